//! Checks of the package database and of OFED's residue.

use super::remedies::{install_command, rebuild, rpm_install};
use super::subject::{Subject, abbreviate};
use crate::checks::Outcome;
use crate::fabric::RDMA_RPM_PACKAGES;
use crate::facts::{ImageFacts, Package, PackageFacts, PackageManager, PackageState};
use crate::inspect::packages::{Candidates, Provided, parse_depends, split_relations};
use crate::plan::{has_package_manager, is_rdma_core, what_stays};

/// `None`: the package list is known. Otherwise why it is not: "not read" never looks like "not installed".
fn unknown_packages(facts: &ImageFacts) -> Option<Outcome> {
    let packages = &facts.packages;
    match packages.manager {
        PackageManager::None => Some(Outcome::unknown("no package database was found")),
        PackageManager::Unreadable => {
            let problem = packages.problem.clone();
            Some(Outcome::unknown("the image has a package database that cannot be read").evidence(problem))
        }
        _ if packages.list.is_empty() => Some(Outcome::unknown(format!("the {} is empty", database_name(packages)))),
        _ => None,
    }
}

fn database_name(packages: &PackageFacts) -> &'static str {
    match packages.manager {
        PackageManager::Dpkg | PackageManager::DpkgStatusD => "dpkg database",
        PackageManager::RpmSqlite => "rpm database (sqlite)",
        PackageManager::RpmNdb => "rpm database (ndb)",
        PackageManager::RpmBdb => "rpm database (Berkeley DB)",
        PackageManager::Unreadable | PackageManager::None => "package database",
    }
}

pub(super) fn package_database(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    if let Some(outcome) = unknown_packages(facts) {
        return outcome;
    }
    let packages = &facts.packages;
    let mut summary = format!("{} packages in the {}", packages.all_installed().count(), database_name(packages));
    if packages.manager == PackageManager::DpkgStatusD {
        // What a job or a build would miss first.
        let missing: Vec<&str> = [("shell", facts.shell.is_none()), ("python3", facts.python3.is_none())]
            .into_iter()
            .filter_map(|(name, is_missing)| is_missing.then_some(name))
            .collect();
        summary.push_str(", distroless: no apt");
        missing.iter().for_each(|name| summary.push_str(&format!(", no {name}")));
    }
    Outcome::pass(summary)
}

pub(super) fn packages_consistent(subject: &Subject<'_>) -> Outcome {
    if let Some(outcome) = unknown_packages(subject.facts) {
        return outcome;
    }
    let packages = &subject.facts.packages;
    match packages.manager {
        PackageManager::Dpkg => dpkg_consistent(packages),
        manager if manager.is_rpm() => rpm_consistent(packages),
        _ => Outcome::unknown("there is no complete dpkg database to examine"),
    }
}

fn dpkg_consistent(packages: &PackageFacts) -> Outcome {
    let broken: Vec<String> = packages
        .list
        .iter()
        .filter(|p| p.state == PackageState::Broken)
        .map(|p| format!("{} is half installed", p.name))
        .collect();
    let problems: Vec<String> = broken.into_iter().chain(unmet_dependencies(packages)).collect();
    if problems.is_empty() {
        return Outcome::pass("every installed package is complete and has its dependencies");
    }
    Outcome::warn(format!("the next apt-get will stop: {}", abbreviate(&problems)))
        .evidence(problems)
        .remedy("RUN apt-get update && apt-get install -y --fix-broken")
}

fn unmet_dependencies(packages: &PackageFacts) -> Vec<String> {
    let candidates = Candidates::of(packages);
    let mut unmet = Vec::new();
    for package in packages.all_installed() {
        for group in parse_depends(&package.depends) {
            if !group.iter().any(|dependency| candidates.meet(package, dependency)) {
                let wanted: Vec<String> = group.iter().map(|dependency| dependency.to_string()).collect();
                unmet.push(format!("{} needs {}", package.name, wanted.join(" or ")));
            }
        }
    }
    unmet
}

fn rpm_consistent(packages: &PackageFacts) -> Outcome {
    let provided = Provided::by(packages);
    let (mut unmet, mut missing, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    for package in packages.all_installed() {
        for requirement in split_relations(&package.depends) {
            match provided.meets(requirement) {
                Some(true) => {}
                Some(false) => {
                    unmet.push(format!("{} needs {requirement}", package.name));
                    missing.push(requirement);
                }
                None => unclear.push(format!("{} needs {requirement}", package.name)),
            }
        }
    }
    if !unmet.is_empty() {
        missing.sort();
        missing.dedup();
        let remedy = format!("RUN {} {}", install_command(packages), words(&missing));
        return Outcome::warn(format!("packages lack their dependencies: {}", abbreviate(&unmet)))
            .evidence(unmet)
            .remedy(remedy);
    }
    if !unclear.is_empty() {
        return Outcome::unknown(format!("{} requirements could not be judged", unclear.len())).evidence(unclear);
    }
    Outcome::pass("every installed package has its dependencies")
}

pub(super) fn ofed_packages(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.is_mellanox {
        return Outcome::skip(format!("the devices of {} work with a Mellanox build", subject.target.fabric.title));
    }
    if let Some(outcome) = unknown_packages(subject.facts) {
        return outcome;
    }
    let packages = &subject.facts.packages;
    let shown = |package: &Package| format!("{} {}", package.name, package.version);
    let is_family = |package: &&Package| is_rdma_package(packages, package);
    let mlnx: Vec<&Package> = packages.all_installed().filter(is_family).filter(|p| p.is_mlnx_build()).collect();
    // Built by Mellanox or not, they conflict.
    let split: Vec<&Package> = packages.all_installed().filter(|p| is_split_provider(packages, p)).collect();
    let mut gone: Vec<&str> = mlnx.iter().chain(&split).map(|package| package.name.as_str()).collect();
    gone.sort_unstable();
    gone.dedup();
    let remedy = if is_swappable(packages) { rebuild(subject) } else { rpm_swap(subject, &gone) };
    if !mlnx.is_empty() {
        let mlnx: Vec<String> = mlnx.into_iter().map(shown).collect();
        return Outcome::fail(format!("Mellanox builds are installed: {}", abbreviate(&mlnx)))
            .evidence(mlnx)
            .remedy(remedy);
    }
    if !split.is_empty() {
        let split: Vec<String> = split.into_iter().map(shown).collect();
        return Outcome::warn(format!("providers from before rdma-core conflict with it: {}", abbreviate(&split)))
            .evidence(split)
            .remedy(remedy);
    }
    Outcome::pass("no RDMA package is a Mellanox build")
}

/// Whether a package belongs to the RDMA userspace.
fn is_rdma_package(packages: &PackageFacts, package: &Package) -> bool {
    is_rdma_core(package)
        || is_split_provider(packages, package)
        || (packages.manager.is_rpm() && RDMA_RPM_PACKAGES.contains(&package.name.as_str()))
}

fn is_split_provider(packages: &PackageFacts, package: &Package) -> bool {
    packages.manager.is_rpm() && crate::plan::is_split_provider(package)
}

/// Words of a shell command: names from an image are not trusted.
fn words(names: &[&str]) -> String {
    let quoted = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-._/:".contains(c);
        if name.chars().all(plain) { (*name).to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
    };
    names.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Whether `rdmaprep build` swaps packages of this kind of image.
fn is_swappable(packages: &PackageFacts) -> bool {
    !packages.manager.is_rpm() || has_package_manager(packages)
}

/// Replaces the old builds by the repository's, in one layer. Their versions sort above all others, so an installation
/// alone would keep them; a removal with dependencies would take ucx and openmpi along.
fn rpm_swap(subject: &Subject<'_>, gone: &[&str]) -> String {
    let install = rpm_install(subject);
    let install = install.strip_prefix("RUN ").unwrap_or(&install);
    format!("RUN rpm -e --nodeps {} && {install}   # with the fabric vendor's repository", words(gone))
}

pub(super) fn ofed_leftovers(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.is_mellanox {
        return Outcome::skip(format!("the devices of {} work with OFED", subject.target.fabric.title));
    }
    let ofed = &subject.facts.ofed;
    let packages = &subject.facts.packages;
    let tools = packages
        .all_installed()
        .filter(|package| ofed.packages.contains(&package.name) && !is_rdma_package(packages, package))
        .map(|package| (package.name.clone(), format!("package {} {}", package.name, package.version)));
    let sources = ofed
        .apt_sources
        .iter()
        .map(|source| (source.path.clone(), format!("apt source {}: {}", source.path, source.lines.join("; "))));
    let repos = ofed.yum_repos.iter().map(|repo| {
        let state = if repo.enabled { "" } else { " (disabled)" };
        (repo.path.clone(), format!("repository {} in {}{state}: {}", repo.id, repo.path, repo.url))
    });
    let keys = ofed.apt_keys.iter().map(|key| (key.clone(), format!("apt key {key}")));
    let directories = ofed.directories.iter().map(|dir| {
        let size = crate::units::Bytes(dir.size_bytes);
        (dir.path.clone(), format!("directory {} ({} files, {size})", dir.path, dir.files))
    });
    let loader = ofed.loader_configs.iter().map(|path| (path.clone(), format!("loader configuration {path}")));
    // Its name and its description.
    let left: Vec<(String, String)> =
        tools.chain(sources).chain(repos).chain(keys).chain(directories).chain(loader).collect();
    if left.is_empty() {
        // The files show nothing; what packages would show is unknown.
        return unknown_packages(subject.facts).unwrap_or(Outcome::pass("nothing of OFED is left"));
    }
    let mut kinds = Vec::new();
    if !ofed.apt_sources.is_empty() {
        kinds.push("an apt source that can bring OFED back at the next apt run");
    }
    if ofed.yum_repos.iter().any(|repo| repo.enabled) {
        kinds.push("a repository that can bring OFED back at the next update");
    } else if !ofed.yum_repos.is_empty() {
        kinds.push("a disabled repository");
    }
    kinds.extend((!ofed.apt_keys.is_empty()).then_some("its key"));
    kinds.extend((!ofed.directories.is_empty() || !ofed.loader_configs.is_empty()).then_some("directories"));
    if kinds.is_empty() {
        kinds.push("packages");
    }
    let stays = what_stays(subject.facts, subject.target.fabric);
    let is_named = |name: &String| stays.iter().any(|note| note.split_whitespace().any(|word| word == name));
    let remedy = if !is_swappable(packages) {
        rpm_clean_up(subject.facts)
    } else if left.iter().all(|(name, _)| is_named(name)) {
        format!("by hand, since rdmaprep build leaves it: {}", stays.join("; "))
    } else {
        rebuild(subject)
    };
    let left = left.into_iter().map(|(_, said)| said);
    Outcome::warn(format!("OFED left {}", kinds.join(", "))).evidence(left).remedy(remedy)
}

/// Removes OFED's packages and files; directories that packages own are left to those.
fn rpm_clean_up(facts: &ImageFacts) -> String {
    let ofed = &facts.ofed;
    let unowned = ofed.directories.iter().filter(|directory| directory.owners.is_empty());
    let mut paths: Vec<&str> =
        ofed.yum_repos.iter().filter(|repo| !repo.shared).map(|repo| repo.path.as_str()).collect();
    paths.extend(unowned.map(|directory| directory.path.as_str()));
    paths.extend(ofed.loader_configs.iter().map(String::as_str));
    paths.dedup();
    let tools: Vec<&str> = ofed
        .packages
        .iter()
        .map(String::as_str)
        .filter(|name| facts.packages.installed(name).is_some_and(|p| !is_rdma_package(&facts.packages, p)))
        .collect();
    let remove = (!tools.is_empty()).then(|| format!("rpm -e {}", words(&tools)));
    let delete = (!paths.is_empty()).then(|| format!("rm -rf {}", words(&paths)));
    let steps: Vec<String> = remove.into_iter().chain(delete).collect();
    match steps.is_empty() {
        true => "remove OFED's sections from the files that other repositories share with it".to_owned(),
        false => format!("RUN {}", steps.join(" && ")),
    }
}

pub(super) fn ofed_on_loader_path(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.is_mellanox {
        return Outcome::skip(format!("the devices of {} work with OFED", subject.target.fabric.title));
    }
    let directories = &subject.facts.ofed.directories;
    let found: Vec<String> = directories
        .iter()
        .filter(|directory| !directory.verbs_files.is_empty())
        .filter_map(|directory| Some(format!("{}: {}", directory.path, directory.loader_reason.as_ref()?)))
        .collect();
    if found.is_empty() {
        return Outcome::pass("the loader looks into no directory with OFED's verbs libraries");
    }
    let files = directories.iter().filter(|d| d.loader_reason.is_some()).flat_map(|d| d.verbs_files.iter().cloned());
    Outcome::fail(format!("the loader finds OFED's verbs libraries: {}", abbreviate(&found)))
        .evidence(files)
        .remedy("take the directory out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, remove it, and RUN ldconfig")
}

pub(super) fn foreign_stacks(subject: &Subject<'_>) -> Outcome {
    let stacks = &subject.facts.ofed.stacks;
    let all: Vec<String> = stacks.iter().map(|stack| format!("{}: {}", stack.name, stack.evidence)).collect();
    let mut wrong: Vec<String> = stacks
        .iter()
        .filter(|stack| stack.dangling && stack.evidence.starts_with("OPAL_PREFIX="))
        .map(|stack| format!("{} names a directory that does not exist, and mpirun will not start", stack.evidence))
        .collect();
    // HPC-X takes the verbs library that the loader gives it; EFA's stack works on AWS only.
    let efa = stacks.iter().filter(|stack| stack.name == "efa" && !stack.dangling);
    wrong.extend(efa.map(|stack| format!("EFA, which is for AWS: {}", stack.evidence)));
    match (wrong.is_empty(), all.is_empty()) {
        (false, _) => Outcome::warn(abbreviate(&wrong)).evidence(all),
        (true, false) => Outcome::pass(format!("harmless: {}", abbreviate(&all))).evidence(all),
        (true, true) => Outcome::pass("no communication stack of another cloud"),
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::Status;
    use crate::checks::image::testing::{finding, good};
    use crate::facts::*;

    #[test]
    fn no_database_is_not_a_clean_database() {
        let mut facts = good();
        let problem = Some("rpm database /var/lib/rpm/Packages: it is cut off".to_owned());
        facts.packages = PackageFacts { manager: PackageManager::Unreadable, problem, ..PackageFacts::default() };
        for check in ["package-database", "packages-consistent", "ofed-packages"] {
            assert_eq!(finding(&facts, check).status, Status::Unknown, "{check}");
        }
        facts.packages.manager = PackageManager::None;
        assert_eq!(finding(&facts, "package-database").status, Status::Unknown);
    }

    /// Case A02: packages removed from under their dependents.
    #[test]
    fn unmet_dependencies_and_half_installed_packages() {
        let mut facts = good();
        facts.packages.list.retain(|package| package.name != "libnl-3-200");
        let found = finding(&facts, "packages-consistent");
        assert_eq!(found.status, Status::Warn);
        assert!(found.evidence.iter().any(|line| line.contains("needs libnl-3-200")), "{found:?}");
        let mut facts = good();
        facts.packages.list[0].state = PackageState::Broken;
        let found = finding(&facts, "packages-consistent");
        assert!(found.summary.contains(&facts.packages.list[0].name), "{found:?}");
    }

    /// Case A01: OFED's version sorts above every other, and the database still says so.
    #[test]
    fn a_mellanox_build_fails() {
        let mut facts = good();
        facts.packages.list.iter_mut().find(|p| p.name == "libibverbs1").unwrap().version = "54mlnx1-1.54103".into();
        let found = finding(&facts, "ofed-packages");
        assert_eq!(found.status, Status::Fail);
        assert_eq!(found.evidence, ["libibverbs1 54mlnx1-1.54103"]);
        assert_eq!(found.remedy.as_deref(), Some("rdmaprep build example/ubuntu:22.04 -t example/ubuntu:22.04-erdma"));
    }

    #[test]
    fn a_left_source_is_advice_not_a_failure() {
        let mut facts = good();
        facts.ofed.apt_sources.push(AptSource {
            path: "/etc/apt/sources.list.d/mlnx.list".into(),
            lines: vec!["deb x".into()],
            shared: false,
        });
        let found = finding(&facts, "ofed-leftovers");
        assert_eq!(found.status, Status::Warn);
        assert!(found.summary.contains("bring OFED back"), "{found:?}");
    }

    /// The good image with rpm packages instead, and one package of each kind that a remedy is for.
    fn rpm_image(manager: &str) -> ImageFacts {
        let mut facts = good();
        let named = |name: &str, version: &str| Package {
            name: name.into(),
            version: version.into(),
            architecture: "x86_64".into(),
            source: None,
            depends: String::new(),
            provides: String::new(),
            ..facts.packages.list[0].clone()
        };
        let list = vec![
            named(manager, "4.7.0-1"),
            named("libibverbs", "2307mlnx47-1.2310119"),
            named("libmlx5", "41mlnx1-1"),
            named("mlnx-tools", "23.10-1"),
        ];
        facts.packages = PackageFacts { manager: PackageManager::RpmSqlite, list, ..PackageFacts::default() };
        facts.distro = crate::distro::parse_os_release("ID=alinux\nVERSION_ID=3\n");
        facts.ofed.packages = vec!["libibverbs".into(), "mlnx-tools".into()];
        facts
    }

    /// The swap is the remedy if the image has dnf or yum, else the plain commands.
    #[test]
    fn remedies_of_rpm_images() {
        let remedy = |facts: &ImageFacts, check: &str| finding(facts, check).remedy.unwrap();
        let swap = "rdmaprep build example/ubuntu:22.04 -t example/ubuntu:22.04-erdma";
        for manager in ["dnf", "yum"] {
            let mut facts = rpm_image(manager);
            assert_eq!(remedy(&facts, "ofed-packages"), swap);
            assert_eq!(remedy(&facts, "ofed-leftovers"), swap);
            facts.distro = crate::distro::parse_os_release("ID=rocky\nVERSION_ID=9.3\n");
            assert_eq!(remedy(&facts, "ofed-packages"), format!("{swap} --mirror URL --suite PATH"));
            facts.nccl[0].version = Some("2.17.1".into());
            facts.nccl[0].kind = NcclKind::System;
            assert_eq!(remedy(&facts, "nccl-version"), format!("RUN {manager} install -y 'libnccl >= 2.19.0'"));
        }
        let facts = rpm_image("microdnf");
        assert_eq!(
            remedy(&facts, "ofed-packages"),
            "RUN rpm -e --nodeps libibverbs libmlx5 && microdnf install -y libibverbs libibverbs-utils librdmacm   # with the fabric vendor's repository"
        );
        assert_eq!(remedy(&facts, "ofed-leftovers"), "RUN rpm -e mlnx-tools");
    }
}
