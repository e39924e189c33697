//! Facts + fabric → [`SwapPlan`]: what goes, what comes, what moves along, as data before it is a Dockerfile.
//!
//! Pure. Only what the facts name is touched, by exact name.

mod apt;
pub mod offline;
mod rpm;
pub mod step;
pub mod steps;
mod unseen;
pub mod userspace;

use crate::distro::Distro;
use crate::fabric::{
    AptRepository, Fabric, Origin, PackageFiles, RDMA_CORE_PACKAGES, RDMA_RPM_PACKAGES, RepositoryChoice,
    RepositoryError, Userspace, YumRepository, check_address,
};
use crate::facts::ImageFacts;
use crate::reference::{is_digest, is_image_name, split_tag};
use crate::remedy::Remedy;
pub use apt::is_rdma_core;
use offline::{OfferedFiles, OfflineError, Wanted, choose_files};
pub use rpm::{has_package_manager, is_split_provider};
use std::collections::BTreeSet;
pub use unseen::{UnseenImage, listed_distros, plan_unseen};
use userspace::{choose_userspace, plan_kept};

/// The user's choices besides the image.
#[derive(Debug, Clone, Default)]
pub struct SwapOptions {
    pub repository: RepositoryChoice,
    /// Whose build; `None`: by the fabric and by what the image has.
    pub userspace: Option<Userspace>,
    /// Package files to take instead of any repository's.
    pub files: Option<OfferedFiles>,
    /// Public key of the repository, given as a file.
    pub key: Option<KeyFile>,
    /// Address of an apt proxy without credentials.
    pub apt_proxy: Option<String>,
    /// Names of build arguments that the Dockerfile declares.
    pub build_args: Vec<String>,
    /// Packages to install besides the fabric's.
    pub extra_packages: Vec<String>,
    /// Take rpm packages without a signature.
    pub no_gpg_check: bool,
    /// Addresses of yum repositories that replace the image's own during the build.
    pub base_repos: Vec<String>,
}

/// A repository's public key, as the user has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// The name that the user gave.
    pub path: String,
    pub content: Vec<u8>,
}

impl KeyFile {
    /// Name in the build context, after the repository's; apt tells armoured from binary keys by the ending.
    pub fn name(&self, repository: &str) -> String {
        format!("{repository}.{}", if self.is_armoured() { "asc" } else { "gpg" })
    }

    fn is_armoured(&self) -> bool {
        self.content.trim_ascii_start().starts_with(b"-----BEGIN PGP PUBLIC KEY BLOCK-----")
    }

    /// Whether the content can be an OpenPGP public key: armoured, or a binary public-key packet (RFC 9580, 4.2).
    pub fn is_key(&self) -> bool {
        self.is_armoured() || matches!(self.content.first(), Some(0x98..=0x9b | 0xc6))
    }
}

/// The whole swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapPlan {
    pub base: Base,
    pub fabric_id: &'static str,
    pub fabric_title: &'static str,
    pub driver: &'static str,
    pub architecture: String,
    pub userspace: Userspace,
    /// What becomes of the packages.
    pub change: Change,
    /// Name of the key in the build context; `None`: it is fetched from the repository.
    pub key_file: Option<String>,
    pub build_args: Vec<String>,
    /// The image's user, to be restored; `None` when it is root.
    pub user: Option<String>,
    /// The image's RUN shell, to be restored.
    pub shell: Option<Vec<String>>,
    /// What stays although it belongs to OFED, and why.
    pub notes: Vec<String>,
}

/// What becomes of an image's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// They stay, since they are right.
    None,
    Apt(AptSwap),
    Rpm(RpmSwap),
}

/// A change of packages with apt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptSwap {
    pub origin: Origin<AptRepository>,
    /// Address of a proxy for apt.
    pub proxy: Option<String>,
    pub packages: Packages,
    /// Installed packages of the fabric that the new ones have another name for.
    pub renamed: Vec<String>,
    /// Conflicting holds.
    pub unhold: Vec<String>,
}

/// A change of packages with dnf or yum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpmSwap {
    pub origin: Origin<YumRepository>,
    /// Repositories that replace the image's own during the build; empty: the image's own.
    pub base_repos: Vec<String>,
    /// The program that changes the packages; `None`: the build finds it.
    pub manager: Option<&'static str>,
    pub packages: Packages,
}

/// What comes in, and what goes for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages {
    /// The fabric's packages; inner lists are alternatives in the order to try.
    pub install: Vec<Vec<String>>,
    /// Further packages that were asked for.
    pub extra_packages: Vec<String>,
    pub image: Look,
}

/// Whether anybody has looked at the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    Seen(Installed),
    /// The distribution that the base must be of: the build finds out what else there is to know.
    Unseen(Distro),
}

/// What of an image changes or goes, all of it by exact name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// Installed packages of the same source that the fabric's repository may have.
    pub companions: Vec<Companion>,
    /// OFED packages that go.
    pub purge: Vec<String>,
    /// Installed packages of older builds that the new ones replace.
    pub superseded: Vec<String>,
    /// Files that go before the packages are changed.
    pub remove_files: Vec<String>,
    /// Single entries that go from sources which must stay: (path, line of an apt source or section of a `.repo` file).
    pub remove_entries: Vec<(String, String)>,
    /// Directories that go after the packages are changed.
    pub remove_directories: Vec<String>,
}

impl SwapPlan {
    /// The plan of an image in which no package, file or setting changes.
    fn unchanged(
        facts: &ImageFacts,
        name: Option<&str>,
        fabric: &Fabric,
        options: &SwapOptions,
    ) -> Result<SwapPlan, PlanError> {
        Ok(SwapPlan {
            base: choose_base(facts, name)?,
            fabric_id: fabric.id,
            fabric_title: fabric.title,
            driver: fabric.driver,
            architecture: facts.image.architecture.clone(),
            userspace: Userspace::Keep,
            change: Change::None,
            key_file: None,
            build_args: declared_args(options),
            user: None,
            shell: None,
            notes: Vec::new(),
        })
    }

    /// Lines to run if packages change, as root in a plain shell.
    fn changing(
        facts: &ImageFacts,
        name: Option<&str>,
        fabric: &Fabric,
        options: &SwapOptions,
    ) -> Result<SwapPlan, PlanError> {
        Ok(SwapPlan {
            user: plan_user(&facts.config.user, facts.config.runs_as_root())?,
            shell: Some(facts.config.shell.clone()).filter(|shell| !shell.is_empty()),
            ..SwapPlan::unchanged(facts, name, fabric, options)?
        })
    }

    /// What comes in, and what goes for it.
    pub fn packages(&self) -> Option<&Packages> {
        match &self.change {
            Change::None => None,
            Change::Apt(swap) => Some(&swap.packages),
            Change::Rpm(swap) => Some(&swap.packages),
        }
    }

    /// The package files that it takes, if it takes files.
    pub fn files(&self) -> Option<&PackageFiles> {
        match &self.change {
            Change::Apt(AptSwap { origin: Origin::Files(files), .. })
            | Change::Rpm(RpmSwap { origin: Origin::Files(files), .. }) => Some(files),
            _ => None,
        }
    }

    /// What of the image changes or goes; `None`: nothing does, or nobody has looked.
    pub fn installed(&self) -> Option<&Installed> {
        match &self.packages()?.image {
            Look::Seen(installed) => Some(installed),
            Look::Unseen(_) => None,
        }
    }

    /// Every package that the swap may remove, replace or add: what a diff may show without alarm.
    pub fn touches(&self, package: &str) -> bool {
        let (family, packages): (&[&str], _) = match &self.change {
            Change::None => return false,
            Change::Apt(swap) => (&RDMA_CORE_PACKAGES, &swap.packages),
            Change::Rpm(swap) => (&RDMA_RPM_PACKAGES, &swap.packages),
        };
        let is_in = |names: &[String]| names.iter().any(|name| name == package);
        family.contains(&package)
            || is_in(&packages.extra_packages)
            || self.files().is_some_and(|files| is_in(&files.dependencies))
            || self.installed().is_some_and(|installed| {
                is_in(&installed.superseded)
                    || is_in(&installed.purge)
                    || installed.companions.iter().any(|companion| companion.name == package)
            })
    }
}

/// What `FROM` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Text of the `FROM` line.
    pub from: String,
    /// Without a digest.
    pub name: String,
    /// Manifest digest, for an image that a registry knows.
    pub digest: Option<String>,
    /// Nothing in `from` says which image it is: no digest, and the tag is `latest`.
    pub floating: bool,
}

/// An installed package of the same source as the swapped ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Companion {
    pub name: String,
    pub without_offer: WithoutOffer,
}

/// What becomes of a companion that the fabric's repository does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutOffer {
    /// A dependency on the exact version of a swapped package, so it cannot stay.
    Remove,
    /// A Mellanox build: replaced by the distribution's, or removed.
    Distribution,
    /// The companion can stay.
    Keep,
}

impl WithoutOffer {
    /// Its name for the scripts.
    pub fn id(self) -> &'static str {
        match self {
            WithoutOffer::Remove => "remove",
            WithoutOffer::Distribution => "distribution",
            WithoutOffer::Keep => "keep",
        }
    }
}

/// Predefined by every builder: never declared, never in the history (Dockerfile reference, "Predefined ARGs").
const PREDEFINED_ARGS: [&str; 5] = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"];

/// Why no plan can be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("--userspace keep: whether an image's userspace can stay is only known from the image")]
    KeptUnseen,
    #[error("--distro {distro}: whether it has apt or dnf is not known")]
    UnseenDistro { distro: String, known: String },
    #[error("the image has no apt packages ({0}); this version swaps packages of images with apt, dnf or yum")]
    NotApt(&'static str),
    #[error("the image's rpm packages cannot be swapped: its package manager is {0}, but dnf or yum is needed")]
    NoYum(&'static str),
    #[error("{option} is not for an image with this package manager")]
    OtherManager { option: &'static str, instead: &'static str },
    #[error("--key {0}: rpm reads keys as text, and this one is binary")]
    BinaryKey(String),
    #[error("--base-repo: {0:?} is not the address of a repository")]
    BaseRepo(String),
    #[error("the image is for {os}/{architecture}; packages exist for linux/amd64 and linux/arm64")]
    Platform { os: String, architecture: String },
    #[error("image {0} has no name, and a Dockerfile cannot start from an id")]
    Nameless(String),
    #[error("the image's name {0:?} is not a valid image name, and a Dockerfile cannot start from it")]
    InvalidName(String),
    #[error("--base {0:?} is not a valid image name")]
    InvalidBase(String),
    #[error("the image's user {0:?} cannot be written in a Dockerfile")]
    User(String),
    #[error("{option} conflicts with --userspace {userspace}")]
    NotWith { option: &'static str, userspace: &'static str },
    #[error("{option} conflicts with the userspace that the image would get, {userspace}: {reason}")]
    NotWithDefault { option: &'static str, userspace: &'static str, reason: String, title: &'static str, known: String },
    #[error("the image's own userspace cannot be kept: {0}")]
    NotSound(String),
    #[error("{directory}: {error}")]
    Offline { directory: String, error: OfflineError },
    #[error("--key {path}: it is not an OpenPGP public key: it starts with {start:?}")]
    Key { path: String, start: String },
    #[error("{0:?} is not a package name")]
    PackageName(String),
    #[error("{0:?} is not a build argument")]
    BuildArg(String),
    #[error("--apt-proxy: {0:?} is not an address without credentials")]
    AptProxy(String),
}

impl Remedy for PlanError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            PlanError::Repository(error) => return error.remedy(),
            PlanError::Offline { error, .. } => return error.remedy(),
            PlanError::KeptUnseen => "name the image in place of --distro".to_owned(),
            PlanError::UnseenDistro { known, .. } => {
                format!(
                    "a Dockerfile for an image that was not looked at can be written for {known}; for any \
                 other name the image in place of --distro"
                )
            }
            PlanError::NoYum(_) => "install dnf in the base image, or start from one that has it".to_owned(),
            PlanError::OtherManager { instead, .. } => instead.to_string(),
            PlanError::BinaryKey(text) => {
                format!(
                    "make it text: gpg --no-default-keyring --keyring \"$(realpath {text})\" --armor --export \
                 > key.asc"
                )
            }
            PlanError::BaseRepo(_) => {
                "it must start with http:// or https:// and contain no spaces, quotes or user name".to_owned()
            }
            PlanError::Nameless(text) => format!("give it one: docker tag {text} NAME"),
            PlanError::InvalidName(_) => "docker load the image and give it a name: docker tag ID NAME".to_owned(),
            PlanError::InvalidBase(_) => {
                "an image name is lower case, such as registry.example.com/team/image:1.0".to_owned()
            }
            PlanError::NotWith { .. } => "omit one of them".to_owned(),
            PlanError::NotWithDefault { known, title, .. } => {
                format!("omit it, or choose another userspace with --userspace: {title} has {known}")
            }
            PlanError::NotSound(_) => {
                "--userspace inbox uses the distribution's packages, --userspace doca NVIDIA's".to_owned()
            }
            PlanError::Key { .. } => "give the key that signs the repository, as text or binary".to_owned(),
            PlanError::PackageName(_) => {
                "--package, and packages of a recipe, take the name of one package, such as perftest".to_owned()
            }
            PlanError::BuildArg(_) => "an example is --build-arg NAME=VALUE".to_owned(),
            PlanError::AptProxy(_) => "credentials would stay in the image: pass them with --build-arg \
                 http_proxy=http://USER:PASSWORD@HOST:PORT, which leaves no trace"
                .to_owned(),
            PlanError::NotApt(_) | PlanError::Platform { .. } | PlanError::User(_) => return None,
        })
    }
}

/// Plans the swap of an image's RDMA userspace. `name` is what `FROM` should say, where the user gave a name.
///
/// # Errors
/// The distribution, platform or package manager is not supported, or an option cannot be used.
pub fn plan_swap(
    facts: &ImageFacts,
    name: Option<&str>,
    fabric: &'static Fabric,
    options: &SwapOptions,
) -> Result<SwapPlan, PlanError> {
    let architecture = facts.image.architecture.as_str();
    if facts.image.os != "linux" || !["amd64", "arm64"].contains(&architecture) {
        return Err(PlanError::Platform { os: facts.image.os.clone(), architecture: architecture.to_owned() });
    }
    check_options(options)?;
    let userspace = match &options.files {
        Some(offered) => offered.userspace(fabric, facts.packages.manager.is_rpm()),
        None => choose_userspace(facts, fabric, options)?,
    };
    if userspace == Userspace::Keep {
        return plan_kept(facts, name, fabric, options);
    }
    if facts.packages.manager.is_rpm() {
        return rpm::plan(facts, name, fabric, options, userspace);
    }
    apt::plan(facts, name, fabric, options, userspace)
}

/// Where the packages come from: the files that the user has, or a repository, or else the image's own sources.
fn choose_origin<R>(
    facts: &ImageFacts,
    fabric: &Fabric,
    options: &SwapOptions,
    repository: Option<R>,
    (install, installed): (&[Vec<String>], &Installed),
    notes: &mut Vec<String>,
) -> Result<Origin<R>, PlanError> {
    let Some(offered) = &options.files else {
        return Ok(origin_of(repository));
    };
    let mut gone: BTreeSet<String> = installed.purge.iter().chain(&installed.superseded).cloned().collect();
    if facts.packages.manager.is_rpm() {
        let leaving = installed.companions.iter().filter(|companion| companion.without_offer == WithoutOffer::Remove);
        gone.extend(leaving.map(|companion| companion.name.clone()));
    }
    let wanted = Wanted {
        install,
        companions: &installed.companions,
        extra_packages: &options.extra_packages,
        gone: &gone,
        driver: fabric.driver,
        takes_mellanox: fabric.is_mellanox,
    };
    let (files, said) = choose_files(facts, offered, &wanted)?;
    notes.extend(said);
    Ok(Origin::Files(files))
}

fn origin_of<R>(repository: Option<R>) -> Origin<R> {
    repository.map_or(Origin::Distribution, Origin::Repository)
}

/// What of OFED a swap to the fabric's own packages leaves in an image, and why, a line each.
pub fn what_stays(facts: &ImageFacts, fabric: &'static Fabric) -> Vec<String> {
    if facts.packages.manager.is_rpm() { rpm::what_stays(facts, fabric) } else { apt::what_stays(facts, fabric) }
}

fn check_options(options: &SwapOptions) -> Result<(), PlanError> {
    if let Some(key) = &options.key
        && !key.is_key()
    {
        let start: String = String::from_utf8_lossy(&key.content).chars().take(40).collect();
        return Err(PlanError::Key { path: key.path.clone(), start });
    }
    if let Some(name) = options.extra_packages.iter().find(|name| !is_package_name(name)) {
        return Err(PlanError::PackageName(name.clone()));
    }
    let is_arg = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if let Some(name) = options.build_args.iter().find(|name| !is_arg(name)) {
        return Err(PlanError::BuildArg(name.clone()));
    }
    options.apt_proxy.iter().try_for_each(|proxy| check_address(proxy).map(drop)).map_err(PlanError::AptProxy)
}

/// What runs first in every build on the image.
fn note_triggers(facts: &ImageFacts, notes: &mut Vec<String>) {
    if !facts.config.on_build.is_empty() {
        notes.push(format!("the base has ONBUILD triggers, which run first: {}", facts.config.on_build.join("; ")));
    }
}

/// OFED's directories that hold files of no package that stays, and the loader's settings for them if all of them go.
fn plan_directories<'f>(
    facts: &'f ImageFacts,
    purge: &BTreeSet<String>,
    userspace: Userspace,
    notes: &mut Vec<String>,
) -> (Vec<String>, &'f [String]) {
    // DOCA's tools are the successors of OFED's, and lie there, too.
    if userspace == Userspace::Doca {
        return (Vec::new(), &[]);
    }
    let mut directories = Vec::new();
    for directory in &facts.ofed.directories {
        match directory.owners.iter().find(|owner| !purge.contains(*owner)) {
            None => directories.push(directory.path.clone()),
            Some(owner) => notes.push(format!("{} stays: package {owner} has files in it", directory.path)),
        }
    }
    let is_all = directories.len() == facts.ofed.directories.len();
    (directories, if is_all { &facts.ofed.loader_configs } else { &[] })
}

/// Names of the build arguments that the Dockerfile must declare.
fn declared_args(options: &SwapOptions) -> Vec<String> {
    let predefined = |name: &str| PREDEFINED_ARGS.contains(&name.to_ascii_lowercase().as_str());
    options.build_args.iter().filter(|name| !predefined(name)).cloned().collect()
}

fn is_package_name(name: &str) -> bool {
    name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        // rpm's may have capitals and underscores.
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c))
}

/// Drops paths that cannot be written on one line.
fn writable(paths: Vec<String>, notes: &mut Vec<String>) -> Vec<String> {
    let (good, bad): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| !path.chars().any(char::is_control));
    notes.extend(bad.into_iter().map(|path| format!("{path:?} stays: its name holds control characters")));
    good
}

fn plan_user(user: &str, is_root: bool) -> Result<Option<String>, PlanError> {
    if is_root && (user.is_empty() || !user.contains(':')) {
        return Ok(None);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:@".contains(c);
    if user.chars().all(plain) { Ok(Some(user.to_owned())) } else { Err(PlanError::User(user.to_owned())) }
}

fn choose_base(facts: &ImageFacts, name: Option<&str>) -> Result<Base, PlanError> {
    let id = &facts.image.id;
    let given = name.filter(|name| is_image_name(name) && !is_digest(name) && !is_id_prefix(name, id));
    // Whoever made an archive wrote its names, and what is not a name would be lines of the Dockerfile.
    let known = || facts.image.repo_tags.iter().chain(&facts.image.repo_digests).map(String::as_str);
    let name = match (given.or_else(|| known().find(|name| is_image_name(name))), known().next()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(other)) => return Err(PlanError::InvalidName(other.to_owned())),
        (None, None) => return Err(PlanError::Nameless(id.clone())),
    };
    let (tagged, digest) = match name.split_once('@') {
        Some((tagged, digest)) => (tagged.to_owned(), Some(digest.to_owned())),
        None => {
            let (path, _) = split_tag(&name);
            let known = facts.image.repo_digests.iter().filter(|d| is_image_name(d)).filter_map(|d| d.split_once('@'));
            let digest =
                known.filter(|(repository, _)| *repository == path).map(|(_, digest)| digest.to_owned()).next();
            (name.clone(), digest)
        }
    };
    Ok(base_of(&tagged, digest))
}

/// A base by its name without a digest, and its manifest digest where one is known.
fn base_of(tagged: &str, digest: Option<String>) -> Base {
    let tag = split_tag(tagged).1;
    let named = if tag.is_some() || digest.is_some() { tagged.to_owned() } else { format!("{tagged}:latest") };
    Base {
        from: digest.as_ref().map_or_else(|| named.clone(), |digest| format!("{named}@{digest}")),
        floating: digest.is_none() && matches!(tag, None | Some("latest")),
        name: named,
        digest,
    }
}

/// Whether a word of hexadecimal digits is a short form of the image's id.
fn is_id_prefix(name: &str, id: &str) -> bool {
    name.len() >= 4 && name.bytes().all(|b| b.is_ascii_hexdigit()) && id.trim_start_matches("sha256:").starts_with(name)
}
