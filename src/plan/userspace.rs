//! Whose build of the userspace an image gets, where the fabric's devices work with more than one.
//!
//! Pure. A Mellanox device is driven by the distribution's rdma-core, by MLNX_OFED's and by DOCA's alike, as long as
//! libibverbs and its provider are of one build.

use super::{PlanError, SwapOptions, SwapPlan, is_rdma_core};
use crate::fabric::{Fabric, Userspace};
use crate::facts::{ImageFacts, Package};

/// The userspace that the user chose, or else the one that asks for the least change.
///
/// # Errors
/// The fabric does not have it; what the image has is to stay and does not drive the device; or another option does not go
/// with it.
pub fn choose_userspace(facts: &ImageFacts, fabric: &Fabric, options: &SwapOptions) -> Result<Userspace, PlanError> {
    let chosen = match options.userspace {
        Some(userspace) => {
            fabric.check_userspace(userspace)?;
            userspace
        }
        None if !fabric.userspaces.contains(&Userspace::Keep) => fabric.userspaces[0],
        // More packages are asked for, so it is not to stay as it is.
        None if !options.extra_packages.is_empty() || why_not_sound(facts, fabric).is_some() => Userspace::Inbox,
        None => Userspace::Keep,
    };
    if let Some(option) = conflicting_option(chosen, options) {
        let userspace = chosen.id();
        if options.userspace.is_some() {
            return Err(PlanError::NotWith { option, userspace });
        }
        let reason = match chosen {
            Userspace::Keep => "its own is right".to_owned(),
            Userspace::Inbox if !options.extra_packages.is_empty() => "additional packages are requested".to_owned(),
            _ if fabric.userspaces.len() == 1 => "there is no other".to_owned(),
            _ => why_not_sound(facts, fabric).unwrap_or_default(),
        };
        let (title, known) = (fabric.title, fabric.known_userspaces());
        return Err(PlanError::NotWithDefault { option, userspace, reason, title, known });
    }
    if chosen == Userspace::Keep
        && let Some(reason) = why_not_sound(facts, fabric)
    {
        return Err(PlanError::NotSound(reason));
    }
    Ok(chosen)
}

/// An option that is given and does not go with a userspace.
pub(super) fn conflicting_option(chosen: Userspace, options: &SwapOptions) -> Option<&'static str> {
    let (choice, is_kept) = (&options.repository, chosen == Userspace::Keep);
    let has_no_repository = matches!(chosen, Userspace::Keep | Userspace::Inbox);
    [
        ("--doca-version", choice.doca_version.is_some() && chosen != Userspace::Doca),
        ("--mirror", choice.mirror.is_some() && has_no_repository),
        ("--key", options.key.is_some() && has_no_repository),
        ("--vpc", choice.vpc && chosen != Userspace::Vendor),
        ("--suite", choice.suite.is_some() && has_no_repository),
        ("--no-gpg-check", options.no_gpg_check && has_no_repository),
        ("--base-repo", !options.base_repos.is_empty() && is_kept),
        ("--package", !options.extra_packages.is_empty() && is_kept),
        ("--apt-proxy", options.apt_proxy.is_some() && is_kept),
    ]
    .into_iter()
    .find_map(|(option, conflicts)| conflicts.then_some(option))
}

/// Why what the image has does not drive the fabric's device. `None`: it does.
pub fn why_not_sound(facts: &ImageFacts, fabric: &Fabric) -> Option<String> {
    let (verbs, driver) = (&facts.verbs, fabric.driver);
    let Some(library) = verbs.loaded() else {
        return Some("the loader finds no libibverbs.so.1".to_owned());
    };
    if verbs.unversioned.as_ref().is_some_and(|path| *path != library.path) {
        return Some("libibverbs.so and libibverbs.so.1 are two libraries".to_owned());
    }
    if !verbs.usable_providers(library).any(|provider| provider.driver == driver) {
        return Some(format!("{} finds no {driver} provider", library.path));
    }
    if !verbs.driver_files.iter().any(|file| file.driver.as_deref() == Some(driver)) {
        return Some(format!("no file in /etc/libibverbs.d names the {driver} driver"));
    }
    let (pair, _) = other_builds(facts, driver);
    (!pair.is_empty()).then(|| pair.join("; "))
}

/// The plan of an image whose userspace is right: nothing of it changes.
pub fn plan_kept(
    facts: &ImageFacts,
    name: Option<&str>,
    fabric: &'static Fabric,
    options: &SwapOptions,
) -> Result<SwapPlan, PlanError> {
    let library = facts.verbs.loaded().and_then(|library| library.package.as_deref());
    let shown = library.and_then(|name| facts.packages.installed(name));
    let shown = shown.map_or(String::new(), |package| format!(" ({} {})", package.name, package.version));
    let title = fabric.title;
    Ok(SwapPlan {
        notes: vec![format!(
            "the image's userspace is right for {title}{shown}: it is kept, and nothing is installed or removed"
        )],
        ..SwapPlan::unchanged(facts, name, fabric, options)?
    })
}

/// Packages of the userspace whose version is not libibverbs': first the provider's, which does not work then, then those
/// of programs and further libraries.
pub fn other_builds(facts: &ImageFacts, driver: &str) -> (Vec<String>, Vec<String>) {
    /// They are built together and ask for libibverbs in some version and upwards only.
    const OTHERS: [&str; 5] = ["ibverbs-utils", "libibverbs-utils", "librdmacm", "librdmacm1", "librdmacm1t64"];
    let verbs = &facts.verbs;
    let installed = |name: &str| -> Option<&Package> {
        // Before rdma-core every provider had a version of its own.
        facts.packages.installed(name).filter(|package| is_rdma_core(package) || facts.packages.manager.is_rpm())
    };
    let library = verbs.loaded();
    let Some(main) = library.and_then(|library| installed(library.package.as_deref()?)) else {
        return (Vec::new(), Vec::new());
    };
    let differs = |package: &Package| {
        (package.version != main.version)
            .then(|| format!("{} is {} and {} is {}", main.name, main.version, package.name, package.version))
    };
    let provider = library.and_then(|library| verbs.usable_providers(library).find(|p| p.driver == driver));
    let provider = provider.and_then(|provider| installed(provider.package.as_deref()?)).filter(|package| {
        !facts.packages.manager.is_rpm() || package.source.as_deref() == Some("rdma-core") || package.name == main.name
    });
    let pair = provider.and_then(differs).into_iter().collect();
    (pair, OTHERS.into_iter().filter_map(installed).filter_map(differs).collect())
}
