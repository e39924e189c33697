//! The Dockerfile of an image of rpm packages: the functions of `templates/swap-rpm.sh`, and a call for each step.

use super::script::join_run;
use super::{from_context, swapped};
use crate::distro::Distro;
use crate::fabric::yum::rpm_architecture;
use crate::fabric::{
    OWN_NAMES, Origin, PackageFiles, RDMA_RPM_PACKAGES, SPLIT_PROVIDER_RPMS, Userspace, YumRepository,
};
use crate::inspect::ofed::{PACKAGE_NAMES, PACKAGE_PREFIXES};
use crate::plan::{SwapPlan, WithoutOffer};
use crate::shell::shell_join;

const SCRIPT: &str = include_str!("../../templates/swap-rpm.sh");
/// Functions that find out what nobody has looked at.
const DISCOVERY: &str = include_str!("../../templates/discover-rpm.sh");
/// What is said above the first step.
const FIRST: &str = "The swap of this image, step by step.";
/// Where the package files lie during the build.
const FILES: &str = "/var/tmp/rdmaprep";
/// Where the key of the package files lies during the build.
const KEY: &str = "/var/tmp/rdmaprep.key";

/// Writes the Dockerfile.
pub(super) fn render(plan: &SwapPlan) -> String {
    let run = match &plan.unseen {
        Some(distro) => join_run(&[SCRIPT, DISCOVERY].concat(), &steps_unseen(plan, distro)),
        None => join_run(SCRIPT, &steps(plan)),
    };
    swapped(plan, &comments(plan), &(copies(plan) + &run))
}

/// What is said of the packages.
fn comments(plan: &SwapPlan) -> Vec<String> {
    let mut comments = Vec::new();
    if let Some(distro) = &plan.unseen {
        comments
            .push(format!("Written for {distro} without a look at the base image: the build finds out what is to go."));
    }
    match &plan.origin {
        Origin::Files(files) => {
            comments.push(from_context(files.directory));
            if plan.key_file.is_none() {
                comments.push("Their signatures are not checked: what proves them is that they are the files with the digests below.".to_owned());
            }
        }
        Origin::Yum(repository) => {
            if repository.by_analogy {
                comments.push("The repository's address is by analogy: no page of the vendor's names the one for this distribution.".to_owned());
            }
            if !repository.gpg_check {
                comments.push(
                    "Signatures are not checked, as it was asked for: nothing proves who made the packages.".to_owned(),
                );
            }
        }
        Origin::Distribution | Origin::Apt(_) | Origin::Image => {
            comments
                .push("Its packages come from the image's own repositories, and are checked as those say.".to_owned());
        }
    }
    comments
}

/// What the build takes from its context.
fn copies(plan: &SwapPlan) -> String {
    let mut text = String::new();
    if let Some(key_file) = &plan.key_file {
        let to = match &plan.origin {
            Origin::Yum(repository) => format!("/etc/pki/rpm-gpg/RPM-GPG-KEY-{}", repository.name),
            _ => KEY.to_owned(),
        };
        text.push_str(&format!("COPY {key_file} {to}\n"));
    }
    if let Origin::Files(files) = &plan.origin {
        let names: String = files.names.iter().map(|name| format!("{}/{name} \\\n     ", files.directory)).collect();
        text.push_str(&format!("COPY {names}{FILES}/\n"));
    }
    text
}

/// Calls and comments, in order.
fn steps(plan: &SwapPlan) -> Vec<String> {
    let loader_arch = if plan.architecture == "arm64" { "AArch64" } else { "x86-64" };
    let mut steps = Steps(Vec::new());
    steps.comment(FIRST);
    steps.call("prepare", [plan.package_manager, rpm_architecture(&plan.architecture), loader_arch]);
    if !plan.remove_files.is_empty() || !plan.remove_entries.is_empty() {
        steps.comment("What a former installation left: repositories, driver files of no package.");
        steps.call_if_any("remove_files", &plan.remove_files);
        for (path, section) in &plan.remove_entries {
            steps.call("remove_section", [path, section]);
        }
    }
    match &plan.origin {
        Origin::Yum(repository) => use_repository(&mut steps, plan, repository),
        Origin::Files(files) => use_files(&mut steps, plan, files),
        Origin::Apt(_) | Origin::Distribution | Origin::Image => {}
    }
    steps.call_if_any("ask_instead", &plan.base_repos);
    change_packages(&mut steps, plan);
    steps.call_if_any("remove_directories", &plan.remove_directories);
    prove(&mut steps, plan);
    steps.0
}

/// Steps for an image that the build has to look at first.
fn steps_unseen(plan: &SwapPlan, distro: &Distro) -> Vec<String> {
    let loader_arch = if plan.architecture == "arm64" { "AArch64" } else { "x86-64" };
    let mut steps = Steps(Vec::new());
    steps.comment(FIRST);
    steps.call("prepare_unseen", [rpm_architecture(&plan.architecture), loader_arch]);
    steps.call("expect_distro", [distro.id.as_str(), distro.version.as_deref().unwrap_or_default()]);
    steps.comment("What a former installation left: repositories, driver files of no package.");
    steps.call("discover_repositories", OWN_NAMES);
    steps.call("discover_driver_files", [""; 0]);
    if let Origin::Yum(repository) = &plan.origin {
        use_repository(&mut steps, plan, repository);
    }
    steps.call_if_any("ask_instead", &plan.base_repos);
    for names in &plan.install {
        steps.call("take", names);
    }
    steps.call_if_any("also", &plan.extra_packages);
    steps.comment("Which of the installed packages belong to the swapped ones, or to OFED.");
    steps.call("rdma_packages", RDMA_RPM_PACKAGES);
    steps.call("split_providers", SPLIT_PROVIDER_RPMS);
    let prefixes = PACKAGE_PREFIXES.iter().map(|prefix| format!("{prefix}*"));
    steps.call("ofed_packages", PACKAGE_NAMES.iter().map(|name| (*name).to_owned()).chain(prefixes));
    steps.call("discover_packages", [plan.userspace.id()]);
    if plan.userspace != Userspace::Doca {
        steps.call("discover_directories", [""; 0]);
    }
    steps.call("swap_packages", [""; 0]);
    if plan.userspace != Userspace::Doca {
        steps.call("remove_found_directories", [""; 0]);
    }
    prove(&mut steps, plan);
    steps.0
}

/// The proof, and what remains.
fn prove(steps: &mut Steps, plan: &SwapPlan) {
    steps.comment("Is the outcome what was meant?");
    steps.call("prove_packages", [""; 0]);
    if plan.userspace != Userspace::Doca {
        steps.call("prove_no_mellanox", [""; 0]);
    }
    steps.call("prove_loader", [plan.driver]);
    if plan.origin != Origin::Distribution {
        steps.call("pin_packages", [""; 0]);
    }
    steps.call("remove_stray_drivers", [""; 0]);
    steps.call("clean_up", [""; 0]);
}

fn use_repository(steps: &mut Steps, plan: &SwapPlan, repository: &YumRepository) {
    let key = match (repository.gpg_check, &plan.key_file) {
        (false, _) => "unchecked",
        (true, Some(_)) => "given",
        (true, None) => &repository.key_url,
    };
    steps.call("use_repository", [repository.name, &repository.base_url, plan.fabric_title, key]);
}

fn use_files(steps: &mut Steps, plan: &SwapPlan, files: &PackageFiles) {
    steps.call("use_files", [FILES, if plan.key_file.is_some() { KEY } else { "unchecked" }]);
    for (name, digest) in &files.sha256 {
        steps.call("expect_file", [digest, name]);
    }
}

/// What comes and goes, and the transaction.
fn change_packages(steps: &mut Steps, plan: &SwapPlan) {
    for names in &plan.install {
        steps.call("take", names);
    }
    for (without_offer, word) in [(WithoutOffer::Remove, "remove"), (WithoutOffer::Keep, "keep")] {
        for companion in plan.companions.iter().filter(|companion| companion.without_offer == without_offer) {
            steps.call("companion", [companion.name.as_str(), word]);
        }
    }
    steps.call_if_any("also", &plan.extra_packages);
    steps.call_if_any("dependency", &plan.dependencies);
    let gone: Vec<&String> = plan.purge.iter().chain(&plan.superseded).collect();
    steps.call_if_any("drop", &gone);
    steps.call("swap_packages", [""; 0]);
}

/// Lines of the script that call its functions.
struct Steps(Vec<String>);

impl Steps {
    fn comment(&mut self, text: &str) {
        self.0.push(format!("# {text}"));
    }

    fn call<W: AsRef<str>>(&mut self, function: &str, arguments: impl IntoIterator<Item = W>) {
        let arguments = shell_join(arguments);
        self.0.push(format!("{function} {arguments}").trim_end().to_owned());
    }

    fn call_if_any<W: AsRef<str>>(&mut self, function: &str, arguments: &[W]) {
        if !arguments.is_empty() {
            self.call(function, arguments);
        }
    }
}
