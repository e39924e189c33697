//! Facts + fabric → [`SwapPlan`]: what goes, what comes, what moves along, as data before it is a Dockerfile.
//!
//! Pure. Only what the facts name is touched, by exact name.

pub mod offline;
mod rpm;
pub mod userspace;

use crate::fabric::{
    Fabric, Origin, RDMA_CORE_PACKAGES, RDMA_RPM_PACKAGES, RepositoryChoice, RepositoryError, Userspace, doca,
};
use crate::facts::{AptSource, ImageFacts, Package, PackageManager};
use crate::image::reference::{is_digest, is_image_name, split_tag};
use crate::inspect::packages::{Dependency, parse_depends};
use offline::{OfferedFiles, Wanted, choose_files};
pub use rpm::{has_package_manager, is_split_provider};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use userspace::{choose_userspace, plan_kept};

/// What the user chose beside the image.
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
    /// Addresses of yum repositories that stand in for the image's own during the build.
    pub base_repos: Vec<String>,
}

/// A repository's public key, as the user has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwapPlan {
    pub base: Base,
    pub fabric_id: &'static str,
    pub fabric_title: &'static str,
    pub driver: &'static str,
    pub architecture: String,
    /// The program that changes the packages: `apt-get`, `dnf` or `yum`; empty where none is changed.
    pub package_manager: &'static str,
    /// Where the packages come from.
    pub origin: Origin,
    pub userspace: Userspace,
    /// Name in the build context → name in the user's directory, of package files.
    pub sources: BTreeMap<String, String>,
    /// Name of the key in the build context; `None`: it is fetched from the repository.
    pub key_file: Option<String>,
    pub apt_proxy: Option<String>,
    /// yum repositories that stand in for the image's own during the build; empty: the image's own.
    pub base_repos: Vec<String>,
    pub build_args: Vec<String>,
    /// The fabric's packages; inner lists are alternatives in the order to try.
    pub install: Vec<Vec<String>>,
    /// Installed packages of the fabric that the new ones have another name for.
    pub renamed: Vec<String>,
    /// Packages that come along since others depend on them, where that is known before the build.
    pub dependencies: Vec<String>,
    /// Installed packages of the same source that the fabric's repository may have.
    pub companions: Vec<Companion>,
    /// Further packages that were asked for.
    pub extra_packages: Vec<String>,
    /// OFED packages that go.
    pub purge: Vec<String>,
    /// Installed packages of older builds that the new ones replace.
    pub superseded: Vec<String>,
    /// Holds that stand in the way.
    pub unhold: Vec<String>,
    /// Files that go before the packages are changed.
    pub remove_files: Vec<String>,
    /// Single entries that go from sources which must stay: (path, line of an apt source or section of a `.repo` file).
    pub remove_entries: Vec<(String, String)>,
    /// Directories that go after the packages are changed.
    pub remove_directories: Vec<String>,
    /// The image's user, to be restored; `None` when it is root.
    pub user: Option<String>,
    /// The image's RUN shell, to be restored.
    pub shell: Option<Vec<String>>,
    /// What stays although it belongs to OFED, and why.
    pub notes: Vec<String>,
}

impl SwapPlan {
    /// Every package that the swap may remove, replace or add: what a diff may show without alarm.
    pub fn touches(&self, package: &str) -> bool {
        let family: &[&str] = match self.package_manager {
            "apt-get" => &RDMA_CORE_PACKAGES,
            "dnf" | "yum" => &RDMA_RPM_PACKAGES,
            _ => &[],
        };
        family.contains(&package)
            || self.superseded.iter().any(|name| name == package)
            || self.purge.iter().any(|name| name == package)
            || self.extra_packages.iter().any(|name| name == package)
            || self.dependencies.iter().any(|name| name == package)
            || self.companions.iter().any(|companion| companion.name == package)
    }
}

/// What `FROM` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Companion {
    pub name: String,
    pub without_offer: WithoutOffer,
}

/// What becomes of a companion that the fabric's repository does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutOffer {
    /// It depends on the exact version of a swapped package, so it cannot stay.
    Remove,
    /// It is Mellanox's build: the distribution's takes its place, or it goes.
    Distribution,
    /// It can stay.
    Keep,
}

/// Providers that were packages of their own before rdma-core (OFED 4, Ubuntu 16.04): the new ones replace them.
const SUPERSEDED: [&str; 7] =
    ["libmlx4-1", "libmlx5-1", "libmlx4-dev", "libmlx5-dev", "librxe-1", "libibcm1", "ibverbs-driver"];

/// Predefined by every builder: never declared, never in the history (Dockerfile reference, "Predefined ARGs").
const PREDEFINED_ARGS: [&str; 5] = ["http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"];

/// Why no plan can be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("the image has no apt packages ({0}); this version swaps packages of images with apt, dnf or yum")]
    NotApt(&'static str),
    #[error(
        "the image's rpm packages cannot be swapped: of package managers it has {0}, and dnf or yum are needed\n  install dnf in the base image, or start from one that has it"
    )]
    NoYum(&'static str),
    #[error("{option} is not for an image with this package manager\n  {instead}")]
    OtherManager { option: &'static str, instead: &'static str },
    #[error(
        "rpm reads keys as text, and this one is binary\n  make it text: gpg --import KEY && gpg --armor --export > KEY.asc"
    )]
    BinaryKey,
    #[error(
        "{0:?} is not the address of a repository\n  it must start with http:// or https:// and hold no spaces, quotes or user name"
    )]
    BaseRepo(String),
    #[error("the image is for {os}/{architecture}; packages exist for linux/amd64 and linux/arm64")]
    Platform { os: String, architecture: String },
    #[error("image {0} has no name, and a Dockerfile cannot start from an id\n  give it one: docker tag {0} NAME")]
    Nameless(String),
    #[error("the image's user {0:?} cannot be written in a Dockerfile")]
    User(String),
    #[error("{option} does not go with --userspace {userspace}")]
    NotWith { option: &'static str, userspace: &'static str },
    #[error(
        "what the image has cannot stay: {0}\n  --userspace inbox takes the distribution's packages, --userspace doca NVIDIA's"
    )]
    NotSound(String),
    #[error("the directory does not hold what the swap needs\n  missing: {}{}", .missing.join("\n  missing: "), lines("unusable", .unusable))]
    Offline { missing: Vec<String>, unusable: Vec<String> },
    #[error("the files are of different builds: {0} and {1}\n  take all of them from one")]
    OfflineMixed(String, String),
    #[error("{0} is a Mellanox build, which drives no {1} device\n  take the vendor's packages")]
    OfflineMellanox(String, &'static str),
    #[error("{file} brings no {driver} provider\n  it is not the build that the fabric needs")]
    OfflineProvider { file: String, driver: String },
    #[error("{0:?} is not an OpenPGP public key")]
    Key(String),
    #[error("{0:?} is not a package name")]
    PackageName(String),
    #[error("{0:?} is not a build argument\n  an example is --build-arg NAME=VALUE")]
    BuildArg(String),
    #[error(
        "the apt proxy {0:?} is not an address without credentials\n  credentials would stay in the image: give them with --build-arg http_proxy=http://USER:PASSWORD@HOST:PORT, which leaves no trace"
    )]
    AptProxy(String),
}

/// More lines for an error's text.
fn lines(label: &str, items: &[String]) -> String {
    items.iter().map(|item| format!("\n  {label}: {item}")).collect()
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
        Some(offered) => offered.userspace(fabric),
        None => choose_userspace(facts, fabric, options)?,
    };
    if userspace == Userspace::Keep {
        return plan_kept(facts, name, fabric, options);
    }
    let manager = facts.packages.manager;
    let not_apt = |reason| Err(PlanError::NotApt(reason));
    if manager.is_rpm() {
        return rpm::plan(facts, name, fabric, options);
    }
    // The distribution first: "Anolis is not supported" says more than "no apt".
    let distro = facts.distro.as_ref();
    let repository = match (userspace, &options.files) {
        (_, Some(_)) => None,
        (Userspace::Doca, None) => Some(doca::apt_repository(distro, architecture, &options.repository)?),
        (Userspace::Vendor, None) => Some(fabric.apt_repository(distro, architecture, &options.repository)?),
        (Userspace::Keep | Userspace::Inbox, None) => None,
    };
    match manager {
        PackageManager::DpkgStatusD => return not_apt("distroless: it has no apt"),
        PackageManager::Unreadable => return not_apt("its package database cannot be read"),
        PackageManager::None => return not_apt("no package database was found"),
        PackageManager::Dpkg | PackageManager::RpmSqlite | PackageManager::RpmNdb | PackageManager::RpmBdb => {}
    }
    check_apt_options(options)?;

    let family: Vec<&Package> = facts.packages.all_installed().filter(|p| is_rdma_core(p)).collect();
    let swapped: BTreeSet<&str> = fabric
        .apt_packages
        .iter()
        .flat_map(|names| names.iter().copied())
        .chain(family.iter().map(|p| p.name.as_str()))
        .collect();
    let companions: Vec<Companion> = family
        .iter()
        .filter(|package| !fabric.apt_packages.iter().any(|names| names.contains(&package.name.as_str())))
        .map(|package| Companion {
            name: package.name.clone(),
            without_offer: without_offer(package, &swapped, userspace),
        })
        .collect();
    let (purge, mut notes) = match userspace {
        // Its tools are the successors of OFED's, and drive the same devices.
        Userspace::Doca => (BTreeSet::new(), Vec::new()),
        Userspace::Vendor | Userspace::Keep | Userspace::Inbox => plan_purge(facts, &swapped),
    };

    if !facts.config.on_build.is_empty() {
        notes.push(format!("the base has ONBUILD triggers, which run first: {}", facts.config.on_build.join("; ")));
    }
    let unhold = facts
        .packages
        .list
        .iter()
        .filter(|package| package.held && (swapped.contains(package.name.as_str()) || purge.contains(&package.name)))
        .map(|package| package.name.clone())
        .collect::<BTreeSet<_>>();

    let (remove_files, remove_entries) = plan_files(facts, &mut notes);
    let mut remove_directories = Vec::new();
    for directory in facts.ofed.directories.iter().filter(|_| userspace != Userspace::Doca) {
        match directory.owners.iter().find(|owner| !purge.contains(*owner)) {
            None => remove_directories.push(directory.path.clone()),
            Some(owner) => notes.push(format!("{} stays: package {owner} has files in it", directory.path)),
        }
    }
    let mut remove_files = remove_files;
    if remove_directories.len() == facts.ofed.directories.len() && userspace != Userspace::Doca {
        remove_files.extend(facts.ofed.loader_configs.iter().cloned());
    }

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
        base: choose_base(facts, name)?,
        fabric_id: fabric.id,
        fabric_title: fabric.title,
        driver: fabric.driver,
        architecture: architecture.to_owned(),
        package_manager: "apt-get",
        origin,
        userspace,
        sources,
        key_file,
        apt_proxy: options.apt_proxy.clone(),
        base_repos: Vec::new(),
        build_args: declared_args(options),
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
        extra_packages: options.extra_packages.clone(),
        purge: purge.into_iter().collect(),
        superseded,
        unhold: unhold.into_iter().collect(),
        remove_files: writable(remove_files, &mut notes),
        remove_entries,
        remove_directories: writable(remove_directories, &mut notes),
        user: plan_user(&facts.config.user, facts.config.runs_as_root())?,
        shell: Some(facts.config.shell.clone()).filter(|shell| !shell.is_empty()),
        notes,
    })
}

fn check_options(options: &SwapOptions) -> Result<(), PlanError> {
    if let Some(key) = &options.key
        && !key.is_key()
    {
        let start: String = String::from_utf8_lossy(&key.content).chars().take(40).collect();
        return Err(PlanError::Key(start));
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
    if let Some(proxy) = &options.apt_proxy {
        let host = proxy.strip_prefix("http://").or_else(|| proxy.strip_prefix("https://"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
        if !host.is_some_and(|host| !host.is_empty() && host.chars().all(plain)) {
            // The address may hold a password: only its host is shown.
            let shown = proxy.rsplit('@').next().unwrap_or_default().to_owned();
            return Err(PlanError::AptProxy(shown));
        }
    }
    Ok(())
}

fn check_apt_options(options: &SwapOptions) -> Result<(), PlanError> {
    let instead = "it is for images of rpm packages: leave it out";
    if options.no_gpg_check {
        return Err(PlanError::OtherManager { option: "--no-gpg-check", instead });
    }
    if !options.base_repos.is_empty() {
        return Err(PlanError::OtherManager { option: "--base-repo", instead });
    }
    Ok(())
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
    let sources = facts.ofed.apt_sources.iter().chain(&facts.verbs.vendor_sources);
    for AptSource { path, lines, shared } in sources {
        if !shared {
            files.insert(path.clone());
        } else if path.ends_with(".sources") {
            notes
                .push(format!("{path} stays: other repositories stand in the same file; remove OFED's stanza by hand"));
        } else {
            entries.extend(lines.iter().map(|line| (path.clone(), line.clone())));
        }
    }
    files.extend(facts.ofed.apt_keys.iter().cloned());
    // A configuration file of a package is left to dpkg; the others are nobody's.
    files.extend(facts.verbs.driver_files.iter().filter(|file| file.package.is_none()).map(|file| file.path.clone()));
    (files.into_iter().collect(), entries)
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
    let name = match given.map(str::to_owned).or_else(|| facts.image.repo_tags.first().cloned()) {
        Some(name) => name,
        None => match facts.image.repo_digests.first() {
            Some(name) => name.clone(),
            None => return Err(PlanError::Nameless(id.clone())),
        },
    };
    let (tagged, digest) = match name.split_once('@') {
        Some((tagged, digest)) => (tagged.to_owned(), Some(digest.to_owned())),
        None => {
            let (path, _) = split_tag(&name);
            let known = facts.image.repo_digests.iter().filter_map(|d| d.split_once('@'));
            let digest =
                known.filter(|(repository, _)| *repository == path).map(|(_, digest)| digest.to_owned()).next();
            (name.clone(), digest)
        }
    };
    let tag = split_tag(&tagged).1;
    let named = match tag {
        Some(_) => tagged.clone(),
        None if digest.is_some() => tagged.clone(),
        None => format!("{tagged}:latest"),
    };
    Ok(Base {
        from: match &digest {
            Some(digest) => format!("{named}@{digest}"),
            None => named.clone(),
        },
        floating: digest.is_none() && matches!(tag, None | Some("latest")),
        name: named,
        digest,
    })
}

/// Whether a word of hexadecimal digits is a short form of the image's id.
fn is_id_prefix(name: &str, id: &str) -> bool {
    name.len() >= 4 && name.bytes().all(|b| b.is_ascii_hexdigit()) && id.trim_start_matches("sha256:").starts_with(name)
}
