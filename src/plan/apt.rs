//! Facts + fabric → [`SwapPlan`] for images with apt.

use super::{
    AptSwap, Change, Companion, Installed, Look, Packages, PlanError, SwapOptions, SwapPlan, WithoutOffer,
    choose_origin, note_triggers, plan_directories, writable,
};
use crate::distro::Distro;
use crate::fabric::{AptRepository, Fabric, RDMA_CORE_PACKAGES, Userspace, doca, own_name};
use crate::facts::{AptSource, ImageFacts, Package, PackageManager};
use crate::inspect::packages::{Dependency, parse_depends};
use std::collections::BTreeSet;

/// Providers that were packages of their own before rdma-core (OFED 4, Ubuntu 16.04): the new ones replace them.
pub(super) const SUPERSEDED: [&str; 7] =
    ["libmlx4-1", "libmlx5-1", "libmlx4-dev", "libmlx5-dev", "librxe-1", "libibcm1", "ibverbs-driver"];

/// Plans the swap of an image without an rpm database on a platform that there are packages for.
pub(super) fn plan(
    facts: &ImageFacts,
    name: Option<&str>,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
) -> Result<SwapPlan, PlanError> {
    // The distribution first: "Anolis is not supported" says more than "no apt".
    let distro = facts.distro.as_ref();
    let repository = choose_repository(distro, &facts.image.architecture, fabric, options, userspace)?;
    check_has_apt(facts)?;
    check_apt_options(options)?;

    let mut notes = Vec::new();
    let (mut installed, unhold) = plan_installed(facts, fabric, options, userspace, &mut notes);
    let key_file = key_file(repository.as_ref(), options);
    // The key that was copied before may have the name of a former one.
    let is_key = |path: &String| key_file.as_ref().is_some_and(|key| *path == in_keyrings(key));
    installed.remove_files.retain(|path| !is_key(path));
    if let Some(repository) = &repository
        && repository.url.starts_with("https:")
        && facts.packages.installed("ca-certificates").is_none()
    {
        notes.push(format!("the image has no ca-certificates, without which apt cannot use {}", repository.url));
    }
    let install: Vec<Vec<String>> = fabric.apt_packages.iter().map(|names| install_names(names, facts)).collect();
    let origin = choose_origin(facts, fabric, options, repository, (&install, &installed), &mut notes)?;
    let other_names = install.iter().filter(|names| names.len() > 1).flatten();
    let renamed = other_names.filter(|name| facts.packages.installed(name).is_some()).cloned().collect();
    installed.remove_files = writable(installed.remove_files, &mut notes);
    installed.remove_directories = writable(installed.remove_directories, &mut notes);
    let extra_packages = options.extra_packages.clone();
    let packages = Packages { install, extra_packages, image: Look::Seen(installed) };
    Ok(SwapPlan {
        userspace,
        change: Change::Apt(AptSwap { origin, proxy: options.apt_proxy.clone(), packages, renamed, unhold }),
        key_file,
        notes,
        ..SwapPlan::changing(facts, name, fabric, options)?
    })
}

/// The repository of the userspace, if it has one.
pub(super) fn choose_repository(
    distro: Option<&Distro>,
    architecture: &str,
    fabric: &Fabric,
    options: &SwapOptions,
    userspace: Userspace,
) -> Result<Option<AptRepository>, PlanError> {
    Ok(match (userspace, &options.files) {
        (_, Some(_)) | (Userspace::Keep | Userspace::Inbox, None) => None,
        (Userspace::Doca, None) => Some(doca::apt_repository(distro, architecture, &options.repository)?),
        (Userspace::Vendor, None) => Some(fabric.apt_repository(distro, architecture, &options.repository)?),
    })
}

/// Name of the repository's key in the build context, if the user gave it.
pub(super) fn key_file(repository: Option<&AptRepository>, options: &SwapOptions) -> Option<String> {
    repository.zip(options.key.as_ref()).map(|(repository, key)| key.name(repository.name))
}

/// Path in the image of a key by its name.
pub(super) fn in_keyrings(key: &str) -> String {
    format!("/etc/apt/keyrings/{key}")
}

fn check_has_apt(facts: &ImageFacts) -> Result<(), PlanError> {
    Err(PlanError::NotApt(match facts.packages.manager {
        PackageManager::DpkgStatusD => "distroless: it has no apt",
        PackageManager::Unreadable => "its package database cannot be read",
        PackageManager::None => "no package database was found",
        PackageManager::Dpkg | PackageManager::RpmSqlite | PackageManager::RpmNdb | PackageManager::RpmBdb => {
            return Ok(());
        }
    }))
}

/// What of the image changes or goes, and the holds that are in the way.
fn plan_installed(
    facts: &ImageFacts,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
    notes: &mut Vec<String>,
) -> (Installed, Vec<String>) {
    let (family, foreign) = family(facts);
    let swapped = swapped(fabric, &family);
    let is_companion = |package: &&&Package| !fabric.apt_packages.iter().any(|p| p.contains(&package.name.as_str()));
    let companion = |package: &&Package| Companion {
        name: package.name.clone(),
        without_offer: without_offer(package, &swapped, userspace),
    };
    let companions = family.iter().filter(is_companion).map(companion).collect();
    let mut purge = match userspace {
        // Its tools are the successors of OFED's, and drive the same devices.
        Userspace::Doca => BTreeSet::new(),
        Userspace::Vendor | Userspace::Keep | Userspace::Inbox => plan_purge(facts, &swapped, notes),
    };
    // Whoever asks for a package does not want it gone.
    purge.retain(|name| !options.extra_packages.contains(name));
    // Those of another architecture must have the native ones' version (multi-arch: same), and there is only one build.
    purge.extend(foreign.iter().map(|package| qualified(package)));

    note_triggers(facts, notes);
    let asked = |package: &&Package| {
        swapped.contains(package.name.as_str())
            || purge.contains(&package.name)
            || options.extra_packages.contains(&package.name)
    };
    let held = facts.packages.list.iter().filter(|package| package.held).filter(asked);
    let unhold: BTreeSet<String> = held
        .map(|package| if package.architecture == "all" { package.name.clone() } else { qualified(package) })
        .collect();

    let (mut remove_files, remove_entries) = plan_files(facts, notes);
    let (remove_directories, loader_configs) = plan_directories(facts, &purge, userspace, notes);
    remove_files.extend(loader_configs.iter().cloned());
    let superseded = SUPERSEDED.into_iter().filter(|name| facts.packages.installed(name).is_some());
    let superseded = superseded.map(str::to_owned).collect();
    let purge = purge.into_iter().collect();
    let installed = Installed { companions, purge, superseded, remove_files, remove_entries, remove_directories };
    (installed, unhold.into_iter().collect())
}

pub(super) fn check_apt_options(options: &SwapOptions) -> Result<(), PlanError> {
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
    let mut notes = Vec::new();
    plan_purge(facts, &swapped(fabric, &family(facts).0), &mut notes);
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
fn plan_purge(facts: &ImageFacts, swapped: &BTreeSet<&str>, notes: &mut Vec<String>) -> BTreeSet<String> {
    let mut purge: BTreeSet<String> =
        facts.ofed.packages.iter().filter(|name| !swapped.contains(name.as_str())).cloned().collect();
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
            None => return purge,
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
    files.extend(names.iter().flat_map(|name| ["asc", "gpg"].map(|form| in_keyrings(&format!("{name}.{form}")))));
    files.extend(facts.ofed.apt_keys.iter().cloned());
    // A configuration file of a package is left to dpkg; the others are nobody's.
    files.extend(facts.verbs.driver_files.iter().filter(|file| file.package.is_none()).map(|file| file.path.clone()));
    (files.into_iter().collect(), entries)
}
