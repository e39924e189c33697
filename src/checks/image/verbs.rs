//! Checks of libibverbs and its providers.

use super::remedies::rebuild;
use super::subject::{Subject, abbreviate};
use crate::checks::Outcome;
use crate::facts::{VerbsLibrary, VerbsPlace};
use crate::plan::userspace::other_builds;
use crate::shell::shell_quote;

pub(super) fn libibverbs(subject: &Subject<'_>) -> Outcome {
    let verbs = &subject.facts.verbs;
    match verbs.loaded() {
        Some(library) => Outcome::pass(format!("the loader finds {}", library.path)).evidence(describe(library)),
        None if verbs.libraries.is_empty() => {
            Outcome::fail("the image has no libibverbs.so.1: NCCL will use TCP sockets").remedy(rebuild(subject))
        }
        None => {
            let paths: Vec<String> = verbs.libraries.iter().map(|library| library.path.clone()).collect();
            let machines = subject.facts.libraries.iter().filter(|library| paths.contains(&library.path));
            let machines: Vec<String> =
                machines.map(|library| format!("{} is for {}", library.path, library.machine)).collect();
            Outcome::fail(format!("the loader accepts no libibverbs.so.1; found: {}", abbreviate(&paths)))
                .evidence(paths)
                .evidence(machines)
                .remedy(rebuild(subject))
        }
    }
}

/// How a process gets the fabric's build instead of a library that it loads. A swap changes packages and removes OFED's
/// directories; anything else outside packages stays, and hides what is installed.
fn replace(subject: &Subject<'_>, library: &VerbsLibrary) -> String {
    let rebuild = rebuild(subject);
    if library.package.is_some() || library.place == VerbsPlace::Ofed || library.path.chars().any(char::is_control) {
        return rebuild;
    }
    let directory = library.path.rsplit_once('/').map_or("/", |(directory, _)| directory);
    let in_path = |entry: &str| entry.trim_end_matches('/') == directory;
    let path = subject.facts.config.env("LD_LIBRARY_PATH");
    let first = if path.is_some_and(|path| path.split(':').any(in_path)) {
        format!("take {} out of LD_LIBRARY_PATH", shell_quote(directory))
    } else if library.place == VerbsPlace::Conda {
        "RUN conda remove -y --force rdma-core".to_owned()
    } else {
        format!("RUN rm -f {}/libibverbs.so* && ldconfig   # of no package", shell_quote(directory))
    };
    format!("{first}; then {rebuild}")
}

fn describe(library: &VerbsLibrary) -> Option<String> {
    library.package.as_ref().map(|package| format!("{} belongs to package {package}", library.path))
}

pub(super) fn rdma_provider(subject: &Subject<'_>) -> Outcome {
    let verbs = &subject.facts.verbs;
    let driver = subject.target.fabric.driver;
    let Some(library) = verbs.loaded() else {
        return Outcome::fail(format!("without libibverbs no {driver} provider can be opened"))
            .remedy(rebuild(subject));
    };
    let Some(abi) = library.provider_abi else {
        return Outcome::unknown(format!("{} does not say which provider ABI it opens", library.path));
    };
    let configured = verbs.driver_files.iter().find(|file| file.driver.as_deref() == Some(driver));
    let usable = verbs.usable_providers(library).find(|provider| provider.driver == driver);
    let others: Vec<_> = verbs.providers.iter().filter(|provider| provider.driver == driver).collect();
    let paths = || others.iter().map(|provider| provider.path.clone());
    match (usable, configured) {
        (Some(provider), Some(_)) => {
            Outcome::pass(format!("{} opens {}", library.path, provider.path))
        }
        (Some(provider), None) => Outcome::fail(format!(
            "{} exists, but no file in /etc/libibverbs.d names the driver, so libibverbs does not open it",
            provider.path
        ))
        .remedy(rebuild(subject)),
        (None, _) if !others.is_empty() && others.iter().all(|provider| provider.abi != abi) => Outcome::fail(format!(
            "libibverbs opens only -rdmav{abi} providers, and the {driver} provider is {}: they are from different rdma-core builds",
            abbreviate(&paths().collect::<Vec<_>>())
        ))
        .evidence([library.path.clone()])
        .evidence(paths())
        .remedy(replace(subject, library)),
        (None, _) if !others.is_empty() => Outcome::fail(format!(
            "the {driver} provider is not in {}, where this libibverbs looks",
            library.provider_directory()
        ))
        .evidence(paths())
        .remedy(replace(subject, library)),
        (None, Some(file)) => Outcome::fail(format!("{} names the {driver} driver, but no lib{driver}-rdmav{abi}.so is installed", file.path))
            .remedy(replace(subject, library)),
        (None, None) => {
            let packages = &subject.facts.packages;
            let brings = if packages.manager.is_rpm() { "libibverbs" } else { "ibverbs-providers" };
            let summary = match packages.installed(brings) {
                Some(package) => format!("{brings} {} is installed but has no {driver} provider", package.version),
                None if verbs.providers.is_empty() => {
                    format!("libibverbs is installed without any provider; it only recommends the package ibverbs-providers, which contains {driver}")
                }
                None => format!("no {driver} provider is installed"),
            };
            Outcome::fail(summary).remedy(replace(subject, library))
        }
    }
}

pub(super) fn one_build(subject: &Subject<'_>) -> Outcome {
    let (facts, driver) = (subject.facts, subject.target.fabric.driver);
    let Some(library) = facts.verbs.loaded() else {
        return Outcome::skip("there is no libibverbs");
    };
    let Some(package) = library.package.as_deref().and_then(|name| facts.packages.installed(name)) else {
        return Outcome::unknown(format!("{} belongs to no package, so its build is unknown", library.path));
    };
    let (pair, others) = other_builds(facts, driver);
    if !pair.is_empty() {
        return Outcome::fail(format!("the {driver} provider is from another build: {}", pair.join("; ")))
            .evidence(pair)
            .evidence(others)
            .remedy(rebuild(subject));
    }
    if !others.is_empty() {
        return Outcome::warn(format!("from another build than libibverbs: {}", abbreviate(&others)))
            .evidence(others)
            .remedy(rebuild(subject));
    }
    Outcome::pass(format!("libibverbs, its {driver} provider and their tools are {}", package.version))
}

pub(super) fn vendor_build(subject: &Subject<'_>) -> Outcome {
    let (facts, fabric) = (subject.facts, subject.target.fabric);
    let Some(published_version) = fabric.published_version else {
        return Outcome::skip(format!("{} has no build besides the distribution's", fabric.title));
    };
    let Some(library) = facts.verbs.loaded() else {
        return Outcome::skip("there is no libibverbs");
    };
    let package = library.package.as_deref().and_then(|name| facts.packages.installed(name));
    if facts.verbs.erdma_transport == Some(true) {
        return Outcome::pass("ibv_devinfo knows the eRDMA transport, which only the vendor's build does");
    }
    let Some(package) = package else {
        return Outcome::warn(format!("{} belongs to no package, so its origin is unknown", library.path))
            .remedy(replace(subject, library));
    };
    if facts.verbs.pinned.get(&package.name) == Some(&package.version) {
        return Outcome::pass(format!("{} {} is pinned to the vendor's repository", package.name, package.version));
    }
    if package.version == published_version {
        return Outcome::pass(format!("{} {} is the version that the vendor publishes", package.name, package.version));
    }
    if package.is_mlnx_build() {
        return Outcome::skip(format!("{} is a Mellanox build (ofed-packages)", package.name));
    }
    Outcome::warn(format!(
        "{} {} is not the build of {}: whether a stock rdma-core suffices with its driver is not established",
        package.name, package.version, fabric.title
    ))
    .remedy(rebuild(subject))
}

pub(super) fn same_library(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let verbs = &facts.verbs;
    let driver = subject.target.fabric.driver;
    let Some(versioned) = verbs.loaded() else {
        return match &verbs.unversioned {
            Some(path) => Outcome::warn(format!("libibverbs.so is {path}, and there is no libibverbs.so.1"))
                .remedy(rebuild(subject)),
            None => Outcome::skip("there is no libibverbs"),
        };
    };
    // What NCCL opens: by the short name first, and with the search paths of the process that it is in.
    let short = verbs.unversioned.iter().map(|path| ("NCCL opens libibverbs.so first, which".to_owned(), path));
    let processes = facts
        .nccl_consumers
        .iter()
        .filter_map(|consumer| Some((format!("the libibverbs of {}", consumer.name), consumer.verbs.as_ref()?)));
    let mut others: Vec<(String, &String)> = Vec::new();
    for (who, path) in short.chain(processes) {
        if *path != versioned.path && others.iter().all(|(_, known)| *known != path) {
            others.push((who, path));
        }
    }
    if others.is_empty() {
        return Outcome::pass(match &verbs.unversioned {
            Some(path) => format!("libibverbs.so and libibverbs.so.1 are both {path}"),
            None => "there is no libibverbs.so, so NCCL opens libibverbs.so.1".to_owned(),
        });
    }
    let mut worst = None;
    for (who, path) in others {
        let summary = format!("{who} is {path}; libibverbs.so.1 is {}", versioned.path);
        let other = verbs.libraries.iter().find(|library| library.path == *path);
        let outcome = match other.map(|library| (library, library.provider_abi)) {
            None | Some((_, None)) => {
                Outcome::unknown(format!("{summary}, but the first does not show which providers it opens"))
            }
            Some((library, Some(_))) if verbs.usable_providers(library).any(|provider| provider.driver == driver) => {
                Outcome::warn(format!("{summary}: two builds"))
            }
            Some(_) => Outcome::fail(format!("{summary}: the first has no {driver} provider")),
        };
        let outcome = outcome.remedy(other.map_or_else(|| rebuild(subject), |library| replace(subject, library)));
        if worst.as_ref().is_none_or(|worst: &Outcome| worst.status < outcome.status) {
            worst = Some(outcome);
        }
    }
    worst.unwrap_or_else(|| Outcome::pass(versioned.path.clone()))
}

pub(super) fn bundled_libraries(subject: &Subject<'_>) -> Outcome {
    let verbs = &subject.facts.verbs;
    let driver = subject.target.fabric.driver;
    let without: Vec<String> = verbs
        .libraries
        .iter()
        .filter(|library| !library.loaded && Some(&library.path) != verbs.unversioned.as_ref())
        .filter(|library| !subject.facts.nccl_consumers.iter().any(|c| c.verbs.as_ref() == Some(&library.path)))
        .filter(|library| !verbs.usable_providers(library).any(|provider| provider.driver == driver))
        .map(|library| library.path.clone())
        .collect();
    if without.is_empty() {
        return Outcome::pass("the image has no other libibverbs without the provider");
    }
    Outcome::warn(format!("programs that open it find no {driver} device: {}", abbreviate(&without))).evidence(without)
}

pub(super) fn driver_files(subject: &Subject<'_>) -> Outcome {
    let verbs = &subject.facts.verbs;
    let dangling: Vec<String> = verbs
        .driver_files
        .iter()
        .filter(|file| !verbs.providers.iter().any(|provider| Some(&provider.driver) == file.driver.as_ref()))
        .map(|file| file.path.clone())
        .collect();
    if dangling.is_empty() {
        return Outcome::pass("every driver file names an existing provider");
    }
    // The names are the image's: none of them may become a command of whoever pastes this. One with a line break cannot
    // stand in a Dockerfile at all.
    let removable: Vec<String> =
        dangling.iter().filter(|path| !path.contains(char::is_control)).map(|path| shell_quote(path)).collect();
    let outcome = Outcome::warn(format!("dangling, which only adds noise to the log: {}", abbreviate(&dangling)))
        .evidence(dangling);
    if removable.is_empty() { outcome } else { outcome.remedy(format!("RUN rm -f {}", removable.join(" "))) }
}

#[cfg(test)]
mod tests {
    use crate::checks::Status;
    use crate::checks::image::testing::{finding, finding_for, good};
    use crate::facts::*;

    fn set_version(facts: &mut ImageFacts, version: &str) {
        for package in &mut facts.packages.list {
            if package.source.as_deref() == Some("rdma-core") {
                package.version = version.to_owned();
                package.depends.clear();
            }
        }
        facts.verbs.pinned.clear();
        facts.verbs.erdma_transport = Some(false);
    }

    /// Case A08: Ubuntu 22.04's own rdma-core (39.0) is older than the provider; 24.04's (50.0) has it.
    #[test]
    fn distribution_builds() {
        let mut jammy = good();
        set_version(&mut jammy, "39.0-1");
        jammy.verbs.providers.retain(|provider| provider.driver != "erdma");
        jammy.verbs.driver_files.retain(|file| file.driver.as_deref() != Some("erdma"));
        let found = finding(&jammy, "rdma-provider");
        assert_eq!(found.status, Status::Fail);
        assert_eq!(found.summary, "ibverbs-providers 39.0-1 is installed but has no erdma provider");

        let mut noble = good();
        set_version(&mut noble, "50.0-2");
        assert_eq!(finding(&noble, "rdma-provider").status, Status::Pass);
        assert_eq!(finding(&noble, "rdma-vendor-build").status, Status::Warn);
    }

    /// Case A09: libibverbs only recommends its providers.
    #[test]
    fn no_provider_at_all() {
        let mut facts = good();
        facts.packages.list.retain(|package| package.name != "ibverbs-providers");
        facts.verbs.providers.clear();
        facts.verbs.driver_files.clear();
        let found = finding(&facts, "rdma-provider");
        assert_eq!(found.status, Status::Fail);
        assert!(found.summary.contains("without any provider"), "{found:?}");
    }

    /// Case A06.
    #[test]
    fn a_driver_file_without_its_provider() {
        let mut facts = good();
        facts.verbs.providers.retain(|provider| provider.driver != "erdma");
        let found = finding(&facts, "rdma-provider");
        assert_eq!(found.status, Status::Fail);
        assert!(found.summary.starts_with("/etc/libibverbs.d/erdma.driver names"), "{found:?}");
    }

    /// Case A07.
    #[test]
    fn library_and_provider_of_different_builds() {
        let mut facts = good();
        facts.verbs.libraries[0].provider_abi = Some(59);
        let found = finding(&facts, "rdma-provider");
        assert_eq!(found.status, Status::Fail);
        assert!(found.summary.contains("-rdmav59") && found.summary.contains("liberdma-rdmav34.so"), "{found:?}");
        facts.verbs.libraries[0].provider_abi = None;
        assert_eq!(finding(&facts, "rdma-provider").status, Status::Unknown);
    }

    /// On Mellanox devices OFED's libraries are right, and the distribution's too, but not a mix of both.
    #[test]
    fn packages_of_two_builds() {
        let version = |facts: &mut ImageFacts, name: &str, version: &str| {
            facts.packages.list.iter_mut().find(|package| package.name == name).unwrap().version = version.to_owned();
        };
        for build in ["2307mlnx47-1.2310119", "39.0-1"] {
            let mut facts = good();
            set_version(&mut facts, build);
            for check in ["rdma-one-build", "rdma-provider", "libibverbs"] {
                assert_eq!(finding_for(&facts, check, "cce").status, Status::Pass, "{build}, {check}");
            }
            assert_eq!(finding_for(&facts, "ofed-packages", "cce").status, Status::Skip, "{build}");
            version(&mut facts, "ibverbs-utils", "44.0-2");
            assert_eq!(finding_for(&facts, "rdma-one-build", "cce").status, Status::Warn, "{build}");
            version(&mut facts, "ibverbs-providers", "44.0-2");
            let found = finding_for(&facts, "rdma-one-build", "cce");
            assert_eq!(found.status, Status::Fail, "{found:?}");
            assert!(found.summary.contains(&format!("libibverbs1 is {build} and ibverbs-providers is 44.0-2")));
            assert_eq!(
                found.remedy.unwrap(),
                "rdmaprep build example/ubuntu:22.04 -t example/ubuntu:22.04-roce --target cce"
            );
            assert_eq!(finding_for(&facts, "rdma-one-build", "ecs").status, Status::Fail, "{build}");
        }
        let mut facts = good();
        facts.verbs.libraries[0].package = None;
        assert_eq!(finding_for(&facts, "rdma-one-build", "cce").status, Status::Unknown);
        facts.verbs = VerbsFacts::default();
        assert_eq!(finding_for(&facts, "rdma-one-build", "cce").status, Status::Skip);
    }

    /// Case A10.
    #[test]
    fn no_libibverbs() {
        let mut facts = good();
        facts.verbs = VerbsFacts::default();
        assert_eq!(finding(&facts, "libibverbs").status, Status::Fail);
        assert_eq!(finding(&facts, "rdma-provider").status, Status::Fail);
        assert_eq!(finding(&facts, "rdma-vendor-build").status, Status::Skip);
    }

    /// A remedy is meant to be pasted, and the image's author chose its file names.
    #[test]
    fn a_file_name_is_no_command() {
        let remedy = |path: &str| {
            let mut facts = good();
            facts.verbs.driver_files.push(DriverFile { path: path.into(), driver: None, package: None });
            finding(&facts, "driver-files").remedy
        };
        assert_eq!(
            remedy("/etc/libibverbs.d/a;id.driver").as_deref(),
            Some("RUN rm -f '/etc/libibverbs.d/a;id.driver'")
        );
        assert_eq!(remedy("/etc/libibverbs.d/a\nRUN id.driver"), None);
    }

    /// Case A04: a dangling file is noise, not a failure.
    #[test]
    fn dangling_driver_files() {
        let mut facts = good();
        facts.verbs.driver_files.push(DriverFile {
            path: "/etc/libibverbs.d/ipath.driver".into(),
            driver: Some("ipathverbs_old".into()),
            package: None,
        });
        let found = finding(&facts, "driver-files");
        assert_eq!(
            (found.status, found.evidence.as_slice()),
            (Status::Warn, ["/etc/libibverbs.d/ipath.driver".to_owned()].as_slice())
        );
        assert_eq!(finding(&facts, "rdma-provider").status, Status::Pass);
    }
}
