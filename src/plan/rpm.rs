//! Facts + fabric → [`SwapPlan`] for images of rpm packages, with dnf or yum.
//!
//! Its guarantees are those for apt. The differences: rpm's requirements name anything that a package provides, providers may be
//! packages of their own, and a held package is a line of versionlock's, which the build itself finds and takes out.

use super::{
    Change, Companion, Installed, Look, Packages, PlanError, RpmSwap, SwapOptions, SwapPlan, WithoutOffer,
    choose_origin, note_triggers, plan_directories, writable,
};
use crate::distro::Distro;
use crate::fabric::{Fabric, RDMA_RPM_PACKAGES, SPLIT_PROVIDER_RPMS, Userspace, YumRepository, check_address, doca};
use crate::facts::{ImageFacts, Package, PackageFacts, YumRepo};
use crate::inspect::packages::{Provided, split_relations};
use std::collections::BTreeSet;

/// Plans the swap of an image with an rpm database on a platform that there are packages for.
pub(super) fn plan(
    facts: &ImageFacts,
    name: Option<&str>,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
) -> Result<SwapPlan, PlanError> {
    // The distribution first: that the vendor does not list it says more than that it has no dnf.
    let distro = facts.distro.as_ref();
    let repository = choose_repository(distro, &facts.image.architecture, fabric, options, userspace)?;
    let manager = package_manager(&facts.packages)?;
    check_rpm_options(options)?;

    let mut notes = Vec::new();
    let mut installed = plan_installed(facts, fabric, userspace, &mut notes);
    // Whoever asks for a package does not want it gone.
    installed.purge.retain(|name| !options.extra_packages.contains(name));
    note_trust(repository.as_ref(), options, &mut notes);
    note_triggers(facts, &mut notes);
    plan_leftovers(facts, userspace, &mut installed, &mut notes);
    let key_file = key_file(fabric, repository.as_ref(), options);
    let install = install_names(fabric);
    let origin = choose_origin(facts, fabric, options, repository, (&install, &installed), &mut notes)?;
    installed.remove_files = writable(installed.remove_files, &mut notes);
    installed.remove_directories = writable(installed.remove_directories, &mut notes);
    let extra_packages = options.extra_packages.clone();
    let packages = Packages { install, extra_packages, image: Look::Seen(installed) };
    let base_repos = options.base_repos.clone();
    Ok(SwapPlan {
        userspace,
        change: Change::Rpm(RpmSwap { origin, base_repos, manager: Some(manager), packages }),
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
) -> Result<Option<YumRepository>, PlanError> {
    let (choice, gpg_check) = (&options.repository, !options.no_gpg_check);
    Ok(match (userspace, &options.files) {
        (_, Some(_)) | (Userspace::Keep | Userspace::Inbox, None) => None,
        (Userspace::Doca, None) => Some(doca::yum_repository(distro, architecture, choice, gpg_check)?),
        (Userspace::Vendor, None) => Some(fabric.yum_repository(distro, architecture, choice, gpg_check)?),
    })
}

/// Name in the build context of the key that the user gave.
pub(super) fn key_file(fabric: &Fabric, repository: Option<&YumRepository>, options: &SwapOptions) -> Option<String> {
    let named_after = repository.map_or(fabric.driver, |repository| repository.name);
    options.key.as_ref().map(|key| key.name(named_after))
}

pub(super) fn install_names(fabric: &Fabric) -> Vec<Vec<String>> {
    fabric.rpm_packages.iter().map(|name| vec![(*name).to_owned()]).collect()
}

/// Installed packages that the swap changes or takes out.
fn plan_installed(facts: &ImageFacts, fabric: &Fabric, userspace: Userspace, notes: &mut Vec<String>) -> Installed {
    let (architecture, packages) = (facts.image.architecture.as_str(), &facts.packages);
    let native = |package: &&Package| !package.is_foreign(architecture);
    let family: Vec<&Package> = packages.all_installed().filter(|p| is_rdma_rpm(p)).collect();
    let superseded: BTreeSet<&str> =
        packages.all_installed().filter(|p| is_split_provider(p)).map(|p| p.name.as_str()).collect();
    let swapped: BTreeSet<&str> =
        fabric.rpm_packages.iter().copied().chain(family.iter().map(|p| p.name.as_str())).collect();
    let companions = family
        .iter()
        .copied()
        .filter(native)
        .filter(|package| !fabric.rpm_packages.contains(&package.name.as_str()))
        .map(|package| Companion {
            name: package.name.clone(),
            without_offer: without_offer(package, &swapped, userspace),
        })
        .collect();
    let mut purge = match userspace {
        Userspace::Doca => BTreeSet::new(),
        Userspace::Vendor | Userspace::Keep | Userspace::Inbox => plan_purge(facts, &swapped, &superseded, notes),
    };
    // Packages of both architectures share files, so that they must be of one build, and there is only one.
    purge.extend(family.iter().filter(|package| !native(package)).map(|p| format!("{}.{}", p.name, p.architecture)));
    Installed {
        companions,
        purge: purge.into_iter().collect(),
        superseded: superseded.into_iter().map(str::to_owned).collect(),
        ..Installed::default()
    }
}

/// Files, entries and directories of a former installation.
fn plan_leftovers(facts: &ImageFacts, userspace: Userspace, installed: &mut Installed, notes: &mut Vec<String>) {
    let (mut files, entries) = plan_repos(facts.ofed.yum_repos.iter().chain(&facts.verbs.vendor_repos));
    let purge = installed.purge.iter().cloned().collect();
    let (directories, loader_configs) = plan_directories(facts, &purge, userspace, notes);
    files.extend(loader_configs.iter().cloned());
    let loose = facts.verbs.driver_files.iter().filter(|file| file.package.is_none());
    files.extend(loose.map(|file| file.path.clone()));
    installed.remove_files = files.into_iter().collect();
    installed.remove_entries = entries;
    installed.remove_directories = directories;
}

/// What of OFED a swap leaves in an image, a line each.
pub(super) fn what_stays(facts: &ImageFacts, fabric: &Fabric) -> Vec<String> {
    let mut notes = Vec::new();
    plan_installed(facts, fabric, Userspace::Vendor, &mut notes);
    notes
}

/// Says what nobody vouches for.
pub(super) fn note_trust(repository: Option<&YumRepository>, options: &SwapOptions, notes: &mut Vec<String>) {
    if let Some(repository) = repository.filter(|repository| repository.by_analogy) {
        notes.push(format!(
            "no page of the vendor's names {}: the address follows the pattern of the one for Red Hat 7; if the build finds no repository there, give its path with --suite PATH",
            repository.base_url
        ));
    }
    if repository.is_some_and(|repository| !repository.gpg_check) {
        notes.push(
            "signatures are not checked: whoever is between the build and the mirror can change the packages"
                .to_owned(),
        );
    }
    if options.files.is_some() && options.key.is_none() && !options.no_gpg_check {
        notes.push(
            "signatures of the package files are not checked, only that they are the files that were read: give the key that signs them with --key FILE".to_owned(),
        );
    }
}

/// Whether an image's rpm packages can be swapped: it has a program for it.
pub fn has_package_manager(packages: &PackageFacts) -> bool {
    package_manager(packages).is_ok()
}

/// The program that can change several packages in one transaction.
fn package_manager(packages: &PackageFacts) -> Result<&'static str, PlanError> {
    let has = |name: &&str| packages.installed(name).is_some();
    match ["dnf", "yum", "microdnf", "tdnf", "zypper", "dnf5"].into_iter().find(has) {
        Some(manager @ ("dnf" | "yum")) => Ok(manager),
        Some(other) => Err(PlanError::NoYum(other)),
        None => Err(PlanError::NoYum("none that is known")),
    }
}

pub(super) fn check_rpm_options(options: &SwapOptions) -> Result<(), PlanError> {
    if options.apt_proxy.is_some() {
        return Err(PlanError::OtherManager { option: "--apt-proxy", instead: "set HTTP_PROXY for the build" });
    }
    if let Some(key) = options.key.as_ref().filter(|key| !key.is_armoured()) {
        return Err(PlanError::BinaryKey(key.path.clone()));
    }
    options.base_repos.iter().try_for_each(|url| check_address(url).map(drop)).map_err(PlanError::BaseRepo)
}

/// Whether an rpm package is built from rdma-core, or for one build of it.
fn is_rdma_rpm(package: &Package) -> bool {
    RDMA_RPM_PACKAGES.contains(&package.name.as_str()) || package.source.as_deref() == Some("rdma-core")
}

/// Whether a package has the version of libibverbs: rdma-core's with the libraries of before, and without perftest and
/// others that have versions of their own.
pub(super) fn is_of_one_build(package: &Package) -> bool {
    const LIBRARIES: [&str; 5] = ["libibverbs", "libibverbs-utils", "librdmacm", "librdmacm-utils", "rdma-core"];
    LIBRARIES.contains(&package.name.as_str()) || package.source.as_deref() == Some("rdma-core")
}

/// Whether a package is a provider from before rdma-core.
pub fn is_split_provider(package: &Package) -> bool {
    SPLIT_PROVIDER_RPMS.contains(&package.name.as_str()) && package.source.as_deref() != Some("rdma-core")
}

/// A Mellanox build goes: the distribution's repositories, which would have its own, answer for few of the images.
fn without_offer(package: &Package, swapped: &BTreeSet<&str>, userspace: Userspace) -> WithoutOffer {
    // `libibverbs(x86-64) = 44.1-2`: the architecture is part of the name.
    let pins = |requirement: &str| {
        let mut words = requirement.split_whitespace();
        let name = words.next().unwrap_or_default().split('(').next().unwrap_or_default();
        words.next() == Some("=") && swapped.contains(name)
    };
    let is_odd = package.is_mlnx_build() && userspace != Userspace::Doca;
    if is_odd || split_relations(&package.depends).any(pins) { WithoutOffer::Remove } else { WithoutOffer::Keep }
}

/// OFED packages that nothing outside OFED and the swapped set requires; and notes on those that stay.
fn plan_purge(
    facts: &ImageFacts,
    swapped: &BTreeSet<&str>,
    superseded: &BTreeSet<&str>,
    notes: &mut Vec<String>,
) -> BTreeSet<String> {
    let replaced = |name: &str| swapped.contains(name) || superseded.contains(name);
    let mut purge: BTreeSet<String> = facts.ofed.packages.iter().filter(|name| !replaced(name)).cloned().collect();
    let only = |keep: &dyn Fn(&Package) -> bool| PackageFacts {
        list: facts.packages.list.iter().filter(|package| keep(package)).cloned().collect(),
        ..PackageFacts::default()
    };
    // A package that stays may keep another one: repeat until nothing changes.
    loop {
        let staying = only(&|package| !purge.contains(&package.name));
        let provided = Provided::by(&staying);
        let lost = staying.all_installed().filter(|package| !replaced(&package.name)).find_map(|package| {
            split_relations(&package.depends).find_map(|requirement| {
                let provides = |name: &&String| {
                    Provided::by(&only(&|package| package.name == **name)).meets(requirement) == Some(true)
                };
                if provided.meets(requirement) == Some(true) {
                    return None;
                }
                Some((purge.iter().find(provides)?.clone(), package.name.clone()))
            })
        });
        match lost {
            Some((needed, by)) => {
                notes.push(format!("package {needed} stays: {by} requires it"));
                purge.remove(&needed);
            }
            None => return purge,
        }
    }
}

/// `.repo` files that go, and sections that go from files which others share.
fn plan_repos<'a>(repos: impl Iterator<Item = &'a YumRepo>) -> (BTreeSet<String>, Vec<(String, String)>) {
    let (shared, own): (Vec<_>, Vec<_>) = repos.partition(|repo| repo.shared);
    let files: BTreeSet<String> = own.into_iter().map(|repo| repo.path.clone()).collect();
    let shared = shared.into_iter().filter(|repo| !files.contains(&repo.path));
    let plain = |repo: &&YumRepo| !repo.id.chars().any(char::is_control) && !repo.path.chars().any(char::is_control);
    let entries = shared.filter(plain).map(|repo| (repo.path.clone(), repo.id.clone())).collect();
    (files, entries)
}
