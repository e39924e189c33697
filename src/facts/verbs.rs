//! libibverbs, its providers and their configuration.

use super::{AptSource, YumRepo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The verbs userspace: libibverbs and what it would load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerbsFacts {
    /// Every `libibverbs.so*` that is a file.
    pub libraries: Vec<VerbsLibrary>,
    /// What the loader opens for `libibverbs.so`, which NCCL asks for before `libibverbs.so.1`; `None`: nothing, and NCCL
    /// goes on to the second name.
    #[serde(default)]
    pub unversioned: Option<String>,
    /// Every `lib*-rdmav<N>.so`.
    pub providers: Vec<Provider>,
    /// Every `/etc/libibverbs.d/*.driver`.
    pub driver_files: Vec<DriverFile>,
    /// Whether `ibv_devinfo` knows the eRDMA transport, as only the vendor's build does; `None` without `ibv_devinfo`.
    pub erdma_transport: Option<bool>,
    /// apt sources that name an eRDMA repository, or that a swap by rdmaprep wrote.
    pub vendor_sources: Vec<AptSource>,
    /// The vendor's yum repositories.
    #[serde(default)]
    pub vendor_repos: Vec<YumRepo>,
    /// Packages that `/etc/apt/preferences.d/erdma` pins, or an entry of rdmaprep's in a list of versionlock, with their
    /// versions: a swap by rdmaprep asserted that they came from the vendor's repository.
    pub pinned: BTreeMap<String, String>,
}

impl VerbsFacts {
    /// The library that the loader would open for `libibverbs.so.1`.
    pub fn loaded(&self) -> Option<&VerbsLibrary> {
        self.libraries.iter().find(|library| library.loaded)
    }

    /// Providers of a driver that the given libibverbs can open: beside it, and of its ABI.
    pub fn usable_providers<'a>(&'a self, library: &'a VerbsLibrary) -> impl Iterator<Item = &'a Provider> {
        self.providers
            .iter()
            .filter(|p| p.directory() == library.provider_directory() && Some(p.abi) == library.provider_abi)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerbsLibrary {
    /// Real path.
    pub path: String,
    /// The N of the `-rdmav<N>.so` files that it opens; `None`: its bytes do not say.
    pub provider_abi: Option<u32>,
    /// The loader's first choice for `libibverbs.so.1`.
    pub loaded: bool,
    /// Installed package that owns it.
    pub package: Option<String>,
    #[serde(default)]
    pub place: VerbsPlace,
}

/// Where a libibverbs lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VerbsPlace {
    /// In a directory of the system's loader.
    System,
    /// Bundled with a python package.
    Wheel,
    /// In a conda environment.
    Conda,
    /// In a directory of an OFED, DOCA or HPC-X installation.
    Ofed,
    #[default]
    Other,
}

impl VerbsLibrary {
    /// Where libibverbs looks for its providers: `libibverbs/` beside itself.
    pub fn provider_directory(&self) -> String {
        let directory = self.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{directory}/libibverbs")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Provider {
    /// Real path of `lib<driver>-rdmav<abi>.so`.
    pub path: String,
    pub driver: String,
    pub abi: u32,
    pub package: Option<String>,
}

impl Provider {
    fn directory(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(directory, _)| directory)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DriverFile {
    pub path: String,
    /// The driver named in it; `None`: no `driver` line.
    pub driver: Option<String>,
    pub package: Option<String>,
}
