//! Facts + fabric → [`SwapPlan`] for images with apt.

use super::offline::{Wanted, choose_files};
use super::{Companion, PlanError, SwapOptions, SwapPlan, WithoutOffer, note_triggers, plan_directories, writable};
use crate::fabric::{Fabric, Origin, RDMA_CORE_PACKAGES, Userspace, doca, own_name};
use crate::facts::{AptSource, ImageFacts, Package, PackageManager};
use crate::inspect::packages::{Dependency, parse_depends};
use std::collections::{BTreeMap, BTreeSet};

/// Providers that were packages of their own before rdma-core (OFED 4, Ubuntu 16.04): the new ones replace them.
const SUPERSEDED: [&str; 7] =
    ["libmlx4-1", "libmlx5-1", "libmlx4-dev", "libmlx5-dev", "librxe-1", "libibcm1", "ibverbs-driver"];

/// Plans the swap of an image without an rpm database on a platform that there are packages for.
pub(super) fn plan(
    facts: &ImageFacts,
    name: Option<&str>,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
) -> Result<SwapPlan, PlanError> {
    let architecture = facts.image.architecture.as_str();
    let not_apt = |reason| Err(PlanError::NotApt(reason));
    // The distribution first: "Anolis is not supported" says more than "no apt".
    let distro = facts.distro.as_ref();
    let repository = match (userspace, &options.files) {
        (_, Some(_)) => None,
        (Userspace::Doca, None) => Some(doca::apt_repository(distro, architecture, &options.repository)?),
        (Userspace::Vendor, None) => Some(fabric.apt_repository(distro, architecture, &options.repository)?),
        (Userspace::Keep | Userspace::Inbox, None) => None,
    };
    match facts.packages.manager {
        PackageManager::DpkgStatusD => return not_apt("distroless: it has no apt"),
        PackageManager::Unreadable => return not_apt("its package database cannot be read"),
        PackageManager::None => return not_apt("no package database was found"),
        PackageManager::Dpkg | PackageManager::RpmSqlite | PackageManager::RpmNdb | PackageManager::RpmBdb => {}
    }
    check_apt_options(options)?;

    let (family, foreign) = family(facts);
    let swapped = swapped(fabric, &family);
    let companions: Vec<Companion> = family
        .iter()
        .filter(|package| !fabric.apt_packages.iter().any(|names| names.contains(&package.name.as_str())))
        .map(|package| Companion {
            name: package.name.clone(),
            without_offer: without_offer(package, &swapped, userspace),
        })
        .collect();
    let (mut purge, mut notes) = match userspace {
        // Its tools are the successors of OFED's, and drive the same devices.
        Userspace::Doca => (BTreeSet::new(), Vec::new()),
        Userspace::Vendor | Userspace::Keep | Userspace::Inbox => plan_purge(facts, &swapped),
    };
    // Who asks for a package does not want it gone.
    purge.retain(|name| !options.extra_packages.contains(name));
    // Those of another architecture must have the native ones' version (multi-arch: same), and there is only one build.
    purge.extend(foreign.iter().map(|package| qualified(package)));

    note_triggers(facts, &mut notes);
    let asked = |package: &Package| {
        swapped.contains(package.name.as_str())
            || purge.contains(&package.name)
            || options.extra_packages.contains(&package.name)
    };
    let held = facts.packages.list.iter().filter(|package| package.held && asked(package));
    let unhold: BTreeSet<String> = held
        .map(|package| if package.architecture == "all" { package.name.clone() } else { qualified(package) })
        .collect();

    let (mut remove_files, remove_entries) = plan_files(facts, &mut notes);
    let (remove_directories, loader_configs) = plan_directories(facts, &purge, userspace, &mut notes);
    remove_files.extend(loader_configs.iter().cloned());

    let install: Vec<Vec<String>> = fabric.apt_packages.iter().map(|names| install_names(names, facts)).collect();
    let superseded: Vec<String> =
        SUPERSEDED.into_iter().filter(|name| facts.packages.installed(name).is_some()).map(str::to_owned).collect();
    let chosen = match &options.files {
        Some(offered) => {
            let gone = purge.iter().chain(&superseded).cloned().collect();
            let wanted = Wanted {
                install: &install,
                companions: &companions,
                extra_packages: &options.extra_packages,
                gone: &gone,
                driver: fabric.driver,
                takes_mellanox: fabric.is_mellanox,
            };
            Some(choose_files(facts, offered, &wanted)?)
        }
        None => None,
    };
    let key_file = match (&repository, &options.key) {
        (Some(repository), Some(key)) => Some(key.name(repository.name)),
        _ => None,
    };
    // The key that was copied before may have the name of a former one.
    remove_files.retain(|path| key_file.as_ref().is_none_or(|key| *path != format!("/etc/apt/keyrings/{key}")));
    if let Some(repository) = &repository
        && repository.url.starts_with("https:")
        && facts.packages.installed("ca-certificates").is_none()
    {
        notes.push(format!("the image has no ca-certificates, without which apt cannot use {}", repository.url));
    }
    if let Some(chosen) = &chosen {
        notes.extend(chosen.notes.iter().cloned());
    }
    let (sources, dependencies, files) = match chosen {
        Some(chosen) => (chosen.sources, chosen.dependencies, Some(chosen.files)),
        None => (BTreeMap::new(), Vec::new(), None),
    };
    let origin = match (files, repository) {
        (Some(files), _) => Origin::Files(files),
        (None, Some(repository)) => Origin::Apt(repository),
        (None, None) => Origin::Distribution,
    };

    Ok(SwapPlan {
        package_manager: "apt-get",
        origin,
        userspace,
        sources,
        key_file,
        apt_proxy: options.apt_proxy.clone(),
        renamed: install
            .iter()
            .filter(|names| names.len() > 1)
            .flatten()
            .filter(|name| facts.packages.installed(name).is_some())
            .cloned()
            .collect(),
        install,
        dependencies,
        companions,
        purge: purge.into_iter().collect(),
        superseded,
        unhold: unhold.into_iter().collect(),
        remove_files: writable(remove_files, &mut notes),
        remove_entries,
        remove_directories: writable(remove_directories, &mut notes),
        notes,
        ..SwapPlan::changing(facts, name, fabric, options)?
    })
}

fn check_apt_options(options: &SwapOptions) -> Result<(), PlanError> {
    let instead = "it is for images of rpm packages: leave it out";
    if options.key.is_some() && options.files.is_some() {
        let instead = "files of Debian packages carry no signatures: leave it out";
        return Err(PlanError::OtherManager { option: "--key", instead });
    }
    if options.no_gpg_check {
        return Err(PlanError::OtherManager { option: "--no-gpg-check", instead });
    }
    if !options.base_repos.is_empty() {
        return Err(PlanError::OtherManager { option: "--base-repo", instead });
    }
    Ok(())
}

/// Packages that the fabric's replace or join: of the image's architecture, and of others.
fn family(facts: &ImageFacts) -> (Vec<&Package>, Vec<&Package>) {
    let all = facts.packages.all_installed().filter(|package| is_rdma_core(package));
    all.partition(|package| !package.is_foreign(&facts.image.architecture))
}

/// Names of the packages that change with the fabric's.
fn swapped<'a>(fabric: &'static Fabric, family: &[&'a Package]) -> BTreeSet<&'a str> {
    let names = fabric.apt_packages.iter().flat_map(|names| names.iter().copied());
    names.chain(family.iter().map(|package| package.name.as_str())).collect()
}

/// A package's name as it is where another architecture may have one of that name.
fn qualified(package: &Package) -> String {
    format!("{}:{}", package.name, package.architecture)
}

/// What of OFED a swap leaves in an image, a line each.
pub(super) fn what_stays(facts: &ImageFacts, fabric: &'static Fabric) -> Vec<String> {
    let (_, mut notes) = plan_purge(facts, &swapped(fabric, &family(facts).0));
    plan_files(facts, &mut notes);
    notes
}

/// Whether a package is built from rdma-core, under whatever name.
pub fn is_rdma_core(package: &Package) -> bool {
    RDMA_CORE_PACKAGES.contains(&package.name.as_str()) || package.source.as_deref() == Some("rdma-core")
}

fn without_offer(package: &Package, swapped: &BTreeSet<&str>, userspace: Userspace) -> WithoutOffer {
    let pins = |d: &Dependency<'_>| d.is_exact() && swapped.contains(d.name);
    if parse_depends(&package.depends).iter().flatten().any(pins) {
        WithoutOffer::Remove
    } else if package.is_mlnx_build() && userspace != Userspace::Doca {
        WithoutOffer::Distribution
    } else {
        WithoutOffer::Keep
    }
}

/// The names of one package in the order to try: the one that is installed, else the oldest, then the others.
fn install_names(names: &[&str], facts: &ImageFacts) -> Vec<String> {
    let first = names.iter().copied().find(|name| facts.packages.installed(name).is_some());
    let first = first.or(names.last().copied());
    let rest = names.iter().copied().filter(|name| Some(*name) != first);
    first.into_iter().chain(rest).map(str::to_owned).collect()
}

/// OFED packages that nothing outside OFED and the swapped set depends on; and notes on those that stay.
fn plan_purge(facts: &ImageFacts, swapped: &BTreeSet<&str>) -> (BTreeSet<String>, Vec<String>) {
    let mut purge: BTreeSet<String> =
        facts.ofed.packages.iter().filter(|name| !swapped.contains(name.as_str())).cloned().collect();
    let mut notes = Vec::new();
    // A package that stays may keep another one: repeat until nothing changes.
    loop {
        let needed = facts.packages.all_installed().filter(|p| !purge.contains(&p.name)).find_map(|package| {
            let needed = unmet_without(facts, package, &purge)?;
            Some((needed, package.name.clone()))
        });
        match needed {
            Some((needed, by)) => {
                notes.push(format!("package {needed} stays: {by} depends on it"));
                purge.remove(&needed);
            }
            None => return (purge, notes),
        }
    }
}

/// The package of `gone` that `package` cannot do without.
fn unmet_without(facts: &ImageFacts, package: &Package, gone: &BTreeSet<String>) -> Option<String> {
    parse_depends(&package.depends).into_iter().find_map(|group| {
        let met = group.iter().any(|d| {
            facts.packages.all_installed().any(|p| {
                !gone.contains(&p.name)
                    && (p.name == d.name || parse_depends(&p.provides).iter().flatten().any(|v| v.name == d.name))
            })
        });
        let lost = || group.iter().find(|d| gone.contains(d.name)).map(|d| d.name.to_owned());
        if met { None } else { lost() }
    })
}

/// Files that go, and entries that go from shared sources.
fn plan_files(facts: &ImageFacts, notes: &mut Vec<String>) -> (Vec<String>, Vec<(String, String)>) {
    let mut files = BTreeSet::new();
    let mut entries = Vec::new();
    // An older entry for the same repository with another key makes apt refuse both.
    let ofeds = facts.ofed.apt_sources.iter().map(|source| (source, "OFED's"));
    let vendors = facts.verbs.vendor_sources.iter().map(|source| (source, "the vendor's"));
    for (AptSource { path, lines, shared }, whose) in ofeds.chain(vendors) {
        if !shared {
            files.insert(path.clone());
        } else if path.ends_with(".sources") {
            notes.push(format!("{path} stays: it also has other repositories; remove {whose} stanza by hand"));
        } else {
            entries.extend(lines.iter().map(|line| (path.clone(), line.clone())));
        }
    }
    entries.retain(|(path, _)| !files.contains(path));
    // The keys of those lists.
    let names: Vec<&str> = files.iter().filter_map(|path| own_name(path)).collect();
    files.extend(names.iter().flat_map(|name| ["asc", "gpg"].map(|form| format!("/etc/apt/keyrings/{name}.{form}"))));
    files.extend(facts.ofed.apt_keys.iter().cloned());
    // A configuration file of a package is left to dpkg; the others are nobody's.
    files.extend(facts.verbs.driver_files.iter().filter(|file| file.package.is_none()).map(|file| file.path.clone()));
    (files.into_iter().collect(), entries)
}
