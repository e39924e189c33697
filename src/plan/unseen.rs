//! Distribution + fabric → the plan of a swap in an image that nobody can look at from here.
//!
//! Pure. What the facts would have told is found by the build, with `templates/discover-rpm.sh`.

use super::rpm::{check_rpm_options, note_trust};
use super::{Base, PlanError, SwapOptions, SwapPlan, base_of, check_options, declared_args, plan_user};
use crate::distro::Distro;
use crate::fabric::{FABRICS, Fabric, Origin, Userspace, doca};
use crate::reference::is_image_name;
use std::collections::BTreeMap;

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
/// The distribution has no yum repository for the fabric; or an option cannot be used.
pub fn plan_unseen(
    image: &UnseenImage<'_>,
    fabric: &'static Fabric,
    options: &SwapOptions,
) -> Result<SwapPlan, PlanError> {
    check_options(options)?;
    let (distro, architecture) = (image.distro, image.architecture);
    if !["amd64", "arm64"].contains(&architecture) {
        return Err(PlanError::Platform { os: "linux".to_owned(), architecture: architecture.to_owned() });
    }
    let userspace = match options.userspace {
        Some(Userspace::Keep) => return Err(PlanError::KeptUnseen),
        Some(userspace) => {
            fabric.check_userspace(userspace)?;
            userspace
        }
        None if fabric.userspaces.contains(&Userspace::Vendor) => Userspace::Vendor,
        None => Userspace::Inbox,
    };
    let is_listed = |fabric: &&Fabric| fabric.supported_rpm(distro, architecture).is_some();
    let is_rpm = doca::is_rpm(distro) || FABRICS.iter().any(is_listed);
    let is_vouched_for = options.repository.mirror.is_some() && options.repository.suite.is_some();
    if !is_rpm && (!is_vouched_for || fabric.lists(distro, architecture)) {
        let known = FABRICS.map(Fabric::known_rpm).into_iter().chain([doca::known_rpm()]);
        return Err(PlanError::UnseenDistro {
            distro: distro.to_string(),
            architecture: architecture.to_owned(),
            known: known.filter(|list| !list.is_empty()).collect::<Vec<_>>().join(", "),
        });
    }
    let repository = match userspace {
        Userspace::Doca => {
            Some(doca::yum_repository(Some(distro), architecture, &options.repository, !options.no_gpg_check)?)
        }
        Userspace::Vendor => {
            Some(fabric.yum_repository(Some(distro), architecture, &options.repository, !options.no_gpg_check)?)
        }
        Userspace::Keep | Userspace::Inbox => None,
    };
    check_rpm_options(options)?;
    let mut notes = Vec::new();
    note_trust(repository.as_ref(), options, &mut notes);
    let named_after = repository.as_ref().map_or(fabric.driver, |repository| repository.name);
    Ok(SwapPlan {
        base: base(image.name)?,
        fabric_id: fabric.id,
        fabric_title: fabric.title,
        driver: fabric.driver,
        architecture: architecture.to_owned(),
        package_manager: "dnf",
        key_file: options.key.as_ref().map(|key| key.name(named_after)),
        origin: repository.map_or(Origin::Distribution, Origin::Yum),
        userspace,
        sources: BTreeMap::new(),
        apt_proxy: None,
        base_repos: options.base_repos.clone(),
        build_args: declared_args(options),
        install: fabric.rpm_packages.iter().map(|name| vec![(*name).to_owned()]).collect(),
        renamed: Vec::new(),
        dependencies: Vec::new(),
        companions: Vec::new(),
        extra_packages: options.extra_packages.clone(),
        purge: Vec::new(),
        superseded: Vec::new(),
        unhold: Vec::new(),
        remove_files: Vec::new(),
        remove_entries: Vec::new(),
        remove_directories: Vec::new(),
        user: image.user.map_or(Ok(None), |user| plan_user(user, false))?,
        shell: None,
        notes,
        unseen: Some(distro.clone()),
    })
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
