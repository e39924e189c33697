//! Checks of the package database and of what OFED left.

use super::{Outcome, Subject, abbreviate, rebuild};
use crate::facts::{PackageFacts, PackageManager, PackageState};
use crate::inspect::packages::{is_satisfied, parse_depends};
use crate::plan::is_rdma_core;

pub fn package_database(subject: &Subject<'_>) -> Outcome {
    let packages = &subject.facts.packages;
    match packages.manager {
        PackageManager::Dpkg | PackageManager::DpkgStatusD if packages.list.is_empty() => {
            Outcome::unknown("the dpkg database is empty")
        }
        PackageManager::Dpkg | PackageManager::DpkgStatusD => {
            Outcome::pass(format!("{} packages in the dpkg database", packages.all_installed().count()))
        }
        PackageManager::RpmUnread => {
            Outcome::unknown("the image has an rpm database, which this version does not read")
        }
        PackageManager::None => Outcome::unknown("no package database was found"),
    }
}

pub fn packages_consistent(subject: &Subject<'_>) -> Outcome {
    let packages = &subject.facts.packages;
    if packages.manager != PackageManager::Dpkg {
        return Outcome::unknown("there is no complete dpkg database to look at");
    }
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
    let mut unmet = Vec::new();
    for package in packages.all_installed() {
        for group in parse_depends(&package.depends) {
            if !group.iter().any(|dependency| is_satisfied(packages, dependency)) {
                let wanted: Vec<String> = group.iter().map(|dependency| dependency.to_string()).collect();
                unmet.push(format!("{} needs {}", package.name, wanted.join(" or ")));
            }
        }
    }
    unmet
}

pub fn ofed_packages(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.is_mellanox {
        return Outcome::skip(format!("the devices of {} work with a Mellanox build", subject.target.fabric.title));
    }
    let packages = &subject.facts.packages;
    if packages.manager == PackageManager::RpmUnread {
        return Outcome::unknown("the rpm database is not read, so OFED packages cannot be ruled out");
    }
    let mlnx: Vec<String> = packages
        .all_installed()
        .filter(|package| is_rdma_core(package) && package.is_mlnx_build())
        .map(|package| format!("{} {}", package.name, package.version))
        .collect();
    if mlnx.is_empty() {
        return Outcome::pass("no RDMA package is a Mellanox build");
    }
    Outcome::fail(format!("Mellanox builds are installed: {}", abbreviate(&mlnx)))
        .evidence(mlnx)
        .remedy(rebuild(subject))
}

pub fn ofed_leftovers(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.is_mellanox {
        return Outcome::skip(format!("the devices of {} work with OFED", subject.target.fabric.title));
    }
    let ofed = &subject.facts.ofed;
    let packages = &subject.facts.packages;
    let tools = packages
        .all_installed()
        .filter(|package| ofed.packages.contains(&package.name) && !is_rdma_core(package))
        .map(|package| format!("package {} {}", package.name, package.version));
    let sources =
        ofed.apt_sources.iter().map(|source| format!("apt source {}: {}", source.path, source.lines.join("; ")));
    let keys = ofed.apt_keys.iter().map(|key| format!("apt key {key}"));
    let directories = ofed
        .directories
        .iter()
        .map(|dir| format!("directory {} ({} files, {})", dir.path, dir.files, crate::units::Bytes(dir.size_bytes)));
    let loader = ofed.loader_configs.iter().map(|path| format!("loader configuration {path}"));
    let left: Vec<String> = tools.chain(sources).chain(keys).chain(directories).chain(loader).collect();
    if left.is_empty() {
        return Outcome::pass("nothing of OFED is left");
    }
    let mut kinds = Vec::new();
    if !ofed.apt_sources.is_empty() {
        kinds.push("an apt source that can bring OFED back at the next apt run");
    }
    kinds.extend((!ofed.apt_keys.is_empty()).then_some("its key"));
    kinds.extend((!ofed.directories.is_empty() || !ofed.loader_configs.is_empty()).then_some("directories"));
    if kinds.is_empty() {
        kinds.push("packages");
    }
    Outcome::warn(format!("OFED left {}", kinds.join(", "))).evidence(left).remedy(rebuild(subject))
}

pub fn ofed_on_loader_path(subject: &Subject<'_>) -> Outcome {
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

pub fn foreign_stacks(subject: &Subject<'_>) -> Outcome {
    let stacks = &subject.facts.ofed.stacks;
    let all: Vec<String> = stacks.iter().map(|stack| format!("{}: {}", stack.name, stack.evidence)).collect();
    let mut wrong: Vec<String> = stacks
        .iter()
        .filter(|stack| stack.dangling && stack.evidence.starts_with("OPAL_PREFIX="))
        .map(|stack| format!("{} names a directory that is not there, and mpirun will not start", stack.evidence))
        .collect();
    // HPC-X takes the verbs library that the loader gives it; EFA's stack works on AWS only.
    let efa = stacks.iter().filter(|stack| stack.name == "efa" && !stack.dangling);
    wrong.extend(efa.map(|stack| format!("EFA, which is for AWS: {}", stack.evidence)));
    match (wrong.is_empty(), all.is_empty()) {
        (false, _) => Outcome::warn(abbreviate(&wrong)).evidence(all),
        (true, false) => Outcome::pass(format!("not in the way: {}", abbreviate(&all))).evidence(all),
        (true, true) => Outcome::pass("no communication stack of another cloud"),
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::Status;
    use crate::checks::testing::{finding, good};
    use crate::facts::*;

    #[test]
    fn no_database_is_not_a_clean_database() {
        let mut facts = good();
        facts.packages = PackageFacts { manager: PackageManager::RpmUnread, list: Vec::new() };
        for check in ["package-database", "packages-consistent", "ofed-packages"] {
            assert_eq!(finding(&facts, check).status, Status::Unknown, "{check}");
        }
        facts.packages.manager = PackageManager::None;
        assert_eq!(finding(&facts, "package-database").status, Status::Unknown);
    }

    /// Case A02: packages that were torn out from under their dependents.
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

    /// Case A01: OFED's version outranks every other, and the database still says so.
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
}
