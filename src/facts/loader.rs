//! What the dynamic loader searches and finds, and what it reads in libraries.

use serde::{Deserialize, Serialize};

/// The dynamic loader's view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoaderFacts {
    /// Directories of `LD_LIBRARY_PATH`, in order.
    pub library_path: Vec<String>,
    /// Directories of `ld.so.conf`, in order, each once.
    pub configured: Vec<LoaderDirectory>,
    /// Directories that are built into the loader, in order.
    pub defaults: Vec<String>,
    pub cache: LoaderCache,
    /// The files that programs get for the names that matter here; a name found nowhere is omitted.
    pub answers: Vec<LoaderAnswer>,
    /// Files that the cache names and the image does not have; the driver's, which are mounted at start, are left out.
    pub gone: Vec<String>,
    /// Directories of `ld.so.conf`, or libraries in them, that the cache does not know.
    pub unindexed: Vec<String>,
    /// Parts of the configuration that were not read.
    pub problems: Vec<String>,
    /// The loader that glibc programs of the image's architecture name (`/lib64/ld-linux-x86-64.so.2`), as its real path;
    /// `None`: the image has none, such as one with musl, and starts no such program.
    #[serde(default)]
    pub program_loader: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoaderDirectory {
    pub path: String,
    /// The file that names it.
    pub from: String,
}

/// `/etc/ld.so.cache`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum LoaderCache {
    #[default]
    Absent,
    /// The cache exists but cannot be read.
    Unreadable {
        problem: String,
    },
    Read {
        entries: usize,
    },
}

/// Which file a name gives in a program without search paths of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoaderAnswer {
    pub name: String,
    /// With the cache as it is.
    pub path: Option<String>,
    /// After ldconfig has run, as NVIDIA's container toolkit has it run at the start of a container.
    pub after_ldconfig: Option<String>,
}

/// The loader's view of one library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LibraryFacts {
    pub path: String,
    /// 32 or 64.
    pub bits: u8,
    /// `x86-64`, `aarch64`, or the number of another (`e_machine`).
    pub machine: String,
    /// Why the rest is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpath: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runpath: Option<String>,
    /// Versions that it defines, sorted; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
}
