//! Distribution + fabric → the plan of a swap in an image that nobody can look at from here.
//!
//! Pure. What the facts would have told is found by the build, with `templates/discover-*.sh`.

use super::userspace::conflicting_option;
use super::{
    AptSwap, Base, Change, Look, Packages, PlanError, RpmSwap, SwapOptions, SwapPlan, apt, base_of, check_options,
    declared_args, origin_of, plan_user, rpm,
};
use crate::distro::Distro;
use crate::fabric::{FABRICS, Fabric, Userspace, doca};
use crate::reference::is_image_name;

/// What has to be said of an image that nobody looks at.
#[derive(Debug)]
pub struct UnseenImage<'a> {
    /// What `FROM` names.
    pub name: &'a str,
    pub distro: &'a Distro,
    /// Go's name.
    pub architecture: &'a str,
    /// Its user, to be restored; `None`: root.
    pub user: Option<&'a str>,
}

/// Plans the swap.
///
/// # Errors
/// The fabric has no packages for the distribution, or its package manager is not known; or an option cannot be used.
pub fn plan_unseen(
    image: &UnseenImage<'_>,
    fabric: &'static Fabric,
    options: &SwapOptions,
) -> Result<SwapPlan, PlanError> {
    check_options(options)?;
    if !["amd64", "arm64"].contains(&image.architecture) {
        return Err(PlanError::Platform { os: "linux".to_owned(), architecture: image.architecture.to_owned() });
    }
    let userspace = choose_userspace(fabric, options)?;
    if let Some(option) = conflicting_option(userspace, options) {
        return Err(PlanError::NotWith { option, userspace: userspace.id() });
    }
    let mut notes = Vec::new();
    let (change, key_file) = match has_apt(image.distro, options)? {
        true => plan_apt(image, fabric, options, userspace)?,
        false => plan_rpm(image, fabric, options, userspace, &mut notes)?,
    };
    Ok(SwapPlan {
        base: base(image.name)?,
        fabric_id: fabric.id,
        fabric_title: fabric.title,
        driver: fabric.driver,
        architecture: image.architecture.to_owned(),
        userspace,
        change,
        key_file,
        build_args: declared_args(options),
        user: image.user.map_or(Ok(None), |user| plan_user(user, false))?,
        shell: None,
        notes,
    })
}

/// The distributions that a Dockerfile can be written for without a look at the image: those that the fabric's vendor lists,
/// and for the other userspaces those that anybody lists.
///
/// # Errors
/// The userspace is not one of the fabric's, or cannot be chosen for an image that nobody looks at.
pub fn listed_distros(
    fabric: &'static Fabric,
    architecture: &str,
    options: &SwapOptions,
) -> Result<Vec<Distro>, PlanError> {
    let mut listed: Vec<(&str, &str)> = match choose_userspace(fabric, options)? {
        Userspace::Vendor => fabric.listed(architecture).collect(),
        Userspace::Doca => doca::listed().collect(),
        Userspace::Keep | Userspace::Inbox => {
            FABRICS.iter().flat_map(|fabric| fabric.listed(architecture)).chain(doca::listed()).collect()
        }
    };
    listed.sort_unstable();
    listed.dedup();
    Ok(listed.into_iter().map(|(id, version)| Distro::of(id, version)).collect())
}

fn choose_userspace(fabric: &Fabric, options: &SwapOptions) -> Result<Userspace, PlanError> {
    match options.userspace {
        Some(Userspace::Keep) => Err(PlanError::KeptUnseen),
        Some(userspace) => {
            fabric.check_userspace(userspace)?;
            Ok(userspace)
        }
        None if fabric.userspaces.contains(&Userspace::Vendor) => Ok(Userspace::Vendor),
        None => Ok(Userspace::Inbox),
    }
}

/// Whether the distribution's packages are Debian's, or else rpm's.
fn has_apt(distro: &Distro, options: &SwapOptions) -> Result<bool, PlanError> {
    let id = distro.id.as_str();
    let is_in_apt = |fabric: &&Fabric| fabric.distros.iter().any(|known| known.id == id);
    let is_in_rpm = |fabric: &&Fabric| fabric.rpm_distros.iter().any(|known| known.id == id);
    if id == "debian" || FABRICS.iter().any(is_in_apt) {
        return Ok(true);
    }
    // Whoever names mirror and directory knows what the image has; without dnf or yum the build refuses.
    let is_vouched_for = options.repository.mirror.is_some() && options.repository.suite.is_some();
    if is_vouched_for || doca::is_red_hat(id) || FABRICS.iter().any(is_in_rpm) {
        return Ok(false);
    }
    let mut known: Vec<&str> = FABRICS.iter().flat_map(|fabric| fabric.distros).map(|known| known.id).collect();
    known.push("debian");
    known.extend(FABRICS.iter().flat_map(|fabric| fabric.rpm_distros).map(|known| known.id));
    known.extend(doca::listed().map(|(id, _)| id));
    known.sort_unstable();
    known.dedup();
    Err(PlanError::UnseenDistro { distro: distro.to_string(), known: known.join(", ") })
}

fn plan_apt(
    image: &UnseenImage<'_>,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
) -> Result<(Change, Option<String>), PlanError> {
    let repository = apt::choose_repository(Some(image.distro), image.architecture, fabric, options, userspace)?;
    apt::check_apt_options(options)?;
    let key_file = apt::key_file(repository.as_ref(), options);
    let install = fabric.apt_packages.iter().map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    let swap = AptSwap {
        origin: origin_of(repository),
        proxy: options.apt_proxy.clone(),
        packages: packages(install.collect(), image, options),
        renamed: Vec::new(),
        unhold: Vec::new(),
    };
    Ok((Change::Apt(swap), key_file))
}

fn plan_rpm(
    image: &UnseenImage<'_>,
    fabric: &'static Fabric,
    options: &SwapOptions,
    userspace: Userspace,
    notes: &mut Vec<String>,
) -> Result<(Change, Option<String>), PlanError> {
    let repository = rpm::choose_repository(Some(image.distro), image.architecture, fabric, options, userspace)?;
    rpm::check_rpm_options(options)?;
    rpm::note_trust(repository.as_ref(), options, notes);
    let key_file = rpm::key_file(fabric, repository.as_ref(), options);
    let swap = RpmSwap {
        origin: origin_of(repository),
        base_repos: options.base_repos.clone(),
        manager: None,
        packages: packages(rpm::install_names(fabric), image, options),
    };
    Ok((Change::Rpm(swap), key_file))
}

fn packages(install: Vec<Vec<String>>, image: &UnseenImage<'_>, options: &SwapOptions) -> Packages {
    Packages { install, extra_packages: options.extra_packages.clone(), image: Look::Unseen(image.distro.clone()) }
}

fn base(name: &str) -> Result<Base, PlanError> {
    if !is_image_name(name) {
        return Err(PlanError::InvalidBase(name.to_owned()));
    }
    let (tagged, digest) = match name.split_once('@') {
        Some((tagged, digest)) => (tagged, Some(digest.to_owned())),
        None => (name, None),
    };
    Ok(base_of(tagged, digest))
}
