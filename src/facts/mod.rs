//! What is known about an image: plain data, saved and loaded as JSON.
//!
//! `inspect` fills these types; `checks`, `plan` and `report` read them. Nothing here decides anything. Lists are sorted
//! by path or name, so that the same image gives the same bytes.

pub mod devices;
mod loader;
pub mod loopback;
mod nccl;
pub mod rdma;
pub mod run;
pub mod run_evidence;
pub mod saved;
mod verbs;

pub use loader::{LibraryFacts, LoaderAnswer, LoaderCache, LoaderDirectory, LoaderFacts};
pub use nccl::{ConsumerName, NcclConsumer, NcclCopy, NcclKind, NcclSetting, NetPlugin, SettingSource};
pub use verbs::{DriverFile, Provider, VerbsFacts, VerbsLibrary, VerbsPlace};

use crate::distro::Distro;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of the JSON form; raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything read from one image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageFacts {
    pub schema_version: u32,
    pub image: ImageIdentity,
    pub config: ConfigFacts,
    /// `None`: no os-release or `*-release` file says it.
    pub distro: Option<Distro>,
    pub packages: PackageFacts,
    pub ofed: OfedFacts,
    /// What the dynamic loader searches, and what it finds.
    #[serde(default)]
    pub loader: LoaderFacts,
    pub verbs: VerbsFacts,
    /// Every copy of libnccl, and libraries with NCCL linked in.
    pub nccl: Vec<NcclCopy>,
    /// The copy that each consumer gets. Empty only in facts that an older version saved.
    #[serde(default)]
    pub nccl_consumers: Vec<NcclConsumer>,
    /// NCCL's network plugins.
    #[serde(default)]
    pub nccl_plugins: Vec<NetPlugin>,
    /// `NCCL_*` variables that a process of the image starts with, as NCCL sees them: one per name, sorted.
    #[serde(default)]
    pub nccl_settings: Vec<NcclSetting>,
    /// Files that NCCL would read settings from and that the inspection did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nccl_settings_unread: Vec<String>,
    pub cuda: CudaFacts,
    /// The interpreter that `python3` on the image's PATH starts.
    pub python3: Option<Python>,
    /// `/bin/sh`; `None`: the image has no shell, as distroless ones.
    #[serde(default)]
    pub shell: Option<String>,
    /// Every installed torch.
    #[serde(default)]
    pub torch: Vec<Torch>,
    /// What the loader reads in the libraries that matter here, by path.
    #[serde(default)]
    pub libraries: Vec<LibraryFacts>,
    #[serde(default)]
    pub size: SizeByOrigin,
}

/// Which image it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageIdentity {
    /// The user's reference, with its source (`docker-daemon:nvidia/cuda:12.4`).
    pub reference: String,
    /// Digest of the config: Docker's image id.
    pub id: String,
    pub repo_tags: Vec<String>,
    /// `name@sha256:…`, where the image was pulled from a registry.
    pub repo_digests: Vec<String>,
    /// Digest of the manifest that named config and layers, where the source has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
    /// Every layer was hashed and matches manifest and config.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layers_verified: bool,
    pub os: String,
    /// Go's name (`amd64`, `arm64`).
    pub architecture: String,
    pub variant: Option<String>,
    /// Bottom first.
    pub layers: Vec<LayerFacts>,
}

impl ImageIdentity {
    /// Sum of the sizes of the files of all layers, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size_bytes).sum()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerFacts {
    pub diff_id: String,
    /// Sum of the sizes of its regular files.
    pub size_bytes: u64,
}

/// The settings that a container of the image starts with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigFacts {
    /// In order; a later one wins.
    pub env: Vec<(String, String)>,
    /// Empty means root.
    pub user: String,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// The shell of `RUN`, where the image sets one.
    pub shell: Vec<String>,
    pub working_dir: String,
    pub labels: BTreeMap<String, String>,
    /// Triggers that run at the start of a build FROM this image.
    pub on_build: Vec<String>,
    /// The engine gave no config at all: what stands above is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

impl ConfigFacts {
    /// The value that a process in the container sees.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether processes start as root.
    pub fn runs_as_root(&self) -> bool {
        let name = self.user.split(':').next().unwrap_or_default();
        matches!(name, "" | "root" | "0")
    }
}

/// Which package database the image has. In JSON: `dpkg`, `dpkg-status-d`, `rpm-sqlite`, `rpm-ndb`, `rpm-bdb`,
/// `unreadable`, `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PackageManager {
    /// `/var/lib/dpkg/status`
    Dpkg,
    /// `/var/lib/dpkg/status.d/*`, as distroless images have it: no apt in the image.
    DpkgStatusD,
    /// `rpmdb.sqlite`: Fedora 33, RHEL 9, Alibaba Cloud Linux 4 and later.
    RpmSqlite,
    /// `Packages.db`: SUSE.
    RpmNdb,
    /// `Packages`, a Berkeley DB hash file: RHEL up to 8, Alibaba Cloud Linux up to 3.
    RpmBdb,
    /// A database is there and cannot be read: which packages the image has is not known. [`PackageFacts::problem`] says
    /// why.
    #[serde(alias = "rpm-unread")]
    Unreadable,
    /// No package database was found.
    #[default]
    None,
}

impl fmt::Display for PackageManager {
    /// The word that JSON has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl PackageManager {
    /// Whether a whole rpm database was read.
    pub fn is_rpm(self) -> bool {
        matches!(self, PackageManager::RpmSqlite | PackageManager::RpmNdb | PackageManager::RpmBdb)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PackageFacts {
    pub manager: PackageManager,
    /// Sorted by name, then architecture. Holds also what is only half there.
    pub list: Vec<Package>,
    /// With [`PackageManager::Unreadable`]: which database, and what is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Architectures beside the image's own that dpkg may install (`/var/lib/dpkg/arch`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_architectures: Vec<String>,
}

impl PackageFacts {
    /// The installed package of a name, native architecture first.
    pub fn installed(&self, name: &str) -> Option<&Package> {
        self.list.iter().find(|package| package.name == name && package.is_installed())
    }

    pub fn all_installed(&self) -> impl Iterator<Item = &Package> {
        self.list.iter().filter(|package| package.is_installed())
    }
}

/// dpkg's state of a package (dpkg-query(1), "package status").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PackageState {
    Installed,
    /// Removed; its configuration files are still there.
    ConfigFiles,
    /// Half-installed, unpacked, half-configured or waiting for triggers.
    Broken,
    NotInstalled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Package {
    pub name: String,
    /// dpkg's version, or rpm's `epoch:version-release` (no epoch where the package has none).
    pub version: String,
    /// The database's name: `amd64` and `all`, or `x86_64` and `noarch`.
    pub architecture: String,
    pub state: PackageState,
    /// `apt-mark hold`
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Source package, where it differs from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// dpkg: `Depends` and `Pre-Depends` as the database has them. rpm: the requirements as `rpm -q --requires` prints
    /// them, with `, ` between them and without rpm's own (`rpmlib(…)`). Empty when none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub depends: String,
    /// What it provides, in the same form. rpm: also those of its files that some package requires by path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provides: String,
    /// dpkg's `Multi-Arch`; empty where the package has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub multi_arch: String,
}

impl Package {
    pub fn is_installed(&self) -> bool {
        self.state == PackageState::Installed
    }

    /// Whether it is for another architecture than the image, which is given by Go's name (dpkg's `cputable` and rpm's
    /// `rpmrc` say what they call it).
    pub fn is_foreign(&self, image_architecture: &str) -> bool {
        let native = match image_architecture {
            "amd64" => ["amd64", "x86_64"],
            "arm64" => ["arm64", "aarch64"],
            "386" => ["i386", "i686"],
            "arm" => ["armhf", "armv7hl"],
            "ppc64le" => ["ppc64el", "ppc64le"],
            other => [other, other],
        };
        let architecture = self.architecture.as_str();
        !native.contains(&architecture) && !["all", "noarch", ""].contains(&architecture)
    }

    /// Whether Mellanox built it: their versions carry `mlnx` (`2307mlnx47-1.2310119`).
    pub fn is_mlnx_build(&self) -> bool {
        self.version.to_ascii_lowercase().contains("mlnx")
    }
}

/// Residue of a Mellanox OFED or DOCA installation in the image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfedFacts {
    /// Names of installed packages that are OFED's: built by Mellanox, or OFED's own tools.
    pub packages: Vec<String>,
    /// apt sources that name a Mellanox or DOCA repository.
    pub apt_sources: Vec<AptSource>,
    /// Keys that only such a repository needs.
    pub apt_keys: Vec<String>,
    /// yum, dnf and zypper repositories of Mellanox or DOCA, by file and section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yum_repos: Vec<YumRepo>,
    /// Directories that hold OFED files: `/opt/mellanox`, unpacked installers.
    pub directories: Vec<OfedDirectory>,
    /// Files in `/etc/ld.so.conf.d` that name such a directory.
    pub loader_configs: Vec<String>,
    /// Other communication stacks and their settings: HPC-X, EFA, MOFED variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<Stack>,
}

/// Something of a communication stack that was made for other hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stack {
    /// `hpcx`, `efa`, `mofed`
    pub name: String,
    /// Directory, file or variable.
    pub evidence: String,
    /// What it names, such as the directory of a loader configuration, is not in the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dangling: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AptSource {
    pub path: String,
    /// The lines that name the repository.
    pub lines: Vec<String>,
    /// Other repositories stand in the same file, so that the file as a whole must stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// One section of a `.repo` file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct YumRepo {
    pub path: String,
    /// The section's name.
    pub id: String,
    /// `baseurl`, `mirrorlist` or `metalink`, whichever names the repository.
    pub url: String,
    /// Whether dnf uses it without being asked.
    pub enabled: bool,
    /// Other repositories stand in the same file, so that the file as a whole must stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfedDirectory {
    pub path: String,
    pub files: u64,
    pub size_bytes: u64,
    /// Installed packages that own files in it, sorted.
    pub owners: Vec<String>,
    /// Verbs libraries and providers in it, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs_files: Vec<String>,
    /// What makes the loader search it (`LD_LIBRARY_PATH names /usr/local/ofed/4.6/lib`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader_reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CudaFacts {
    /// The version by the strongest evidence (`12.4`).
    pub version: Option<String>,
    /// All evidence, strongest first.
    pub evidence: Vec<CudaEvidence>,
    /// Every `libcuda.so*` in the image. None of them is the driver, which is the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver_libraries: Vec<DriverLibrary>,
    /// What `NVIDIA_REQUIRE_CUDA` asks of the host, as alternatives of conditions that hold together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Vec<String>>,
}

/// Why there is a `libcuda` in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DriverLibraryKind {
    /// A `compat` directory: for hosts with an older driver.
    Compat,
    /// A `stubs` directory: for linking only.
    Stub,
    /// A driver that a build left behind.
    BakedIn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DriverLibrary {
    /// Real path.
    pub path: String,
    pub kind: DriverLibraryKind,
    /// The driver's version by its name (`550.54.14`).
    pub version: Option<String>,
    /// What makes the loader search its directory, other than its being a default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader_reason: Option<String>,
}

/// Kinds of evidence for a CUDA version, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CudaSource {
    VersionJson,
    VersionTxt,
    /// The real name of libcudart (`libcudart.so.12.4.127`).
    Libcudart,
    Package,
    /// A `nvidia-cuda-runtime-cu12` wheel.
    Wheel,
    /// `CUDA_VERSION`: a hint only.
    Env,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CudaEvidence {
    pub source: CudaSource,
    /// `major.minor`
    pub version: String,
    /// Path, package or variable.
    pub from: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Python {
    /// Path on the image's PATH.
    pub path: String,
    /// From the interpreter's real file name (`3.11`); `None` when that does not say.
    pub version: Option<String>,
}

/// An installed torch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Torch {
    /// Its `version.py`.
    pub path: String,
    pub version: Option<String>,
    /// The CUDA version that it was built for; `None`: built without.
    pub cuda: Option<String>,
}

/// Sizes of all files of the image by where they come from, in bytes. Names of one file count each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SizeByOrigin {
    /// Files of the distribution's packages, without what is in the lines below. `None`: the package database does not say.
    pub distro_packages_bytes: Option<u64>,
    /// `/usr/local/cuda*`
    pub cuda_toolkit_bytes: u64,
    /// Every copy of libnccl.
    pub nccl_bytes: u64,
    /// `site-packages`, `dist-packages` and conda environments.
    pub python_packages_bytes: u64,
    /// OFED, DOCA, HPC-X and EFA directories.
    pub ofed_bytes: u64,
    pub other_bytes: u64,
}
