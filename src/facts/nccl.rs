//! NCCL: its copies, who uses them, its plugins and its settings.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a copy of NCCL came into the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NcclKind {
    /// In a directory of the system's loader.
    System,
    /// Under `site-packages/nvidia/nccl`.
    Wheel,
    /// In a conda environment.
    Conda,
    /// In an HPC-X installation.
    HpcX,
    /// Linked into another library, such as `libtorch_cuda.so`.
    Static,
    /// Anywhere else: a user's own directory.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclCopy {
    /// Real path.
    pub path: String,
    pub kind: NcclKind,
    /// The version that the library itself prints (`2.21.5`), never from a package or variable; `None`: it has no version text.
    pub version: Option<String>,
    /// The CUDA version that it was built with (`12.4`).
    pub built_for_cuda: Option<String>,
    /// The loader's first choice for `libnccl.so.2`.
    pub loaded: bool,
    pub package: Option<String>,
}

/// A user of NCCL and the copy that it gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclConsumer {
    pub name: ConsumerName,
    /// The library or variable that decides; empty for programs in general.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Real path of the copy; `None`: it finds none.
    pub path: Option<String>,
    /// How it is found.
    pub how: String,
    /// The directory of `LD_LIBRARY_PATH` that decides, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_path: Option<String>,
    /// The copy that it would get without `LD_LIBRARY_PATH`, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
    /// The libibverbs that this NCCL opens in the consumer's process: `libibverbs.so`, else `libibverbs.so.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<String>,
    /// The search path of the library could not be read; the usual one of its kind was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// Who uses NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ConsumerName {
    #[serde(rename = "torch")]
    Torch,
    /// Packages of a Python without torch, which has NCCL's wheel.
    #[serde(rename = "python packages")]
    PythonPackages,
    #[serde(rename = "vllm")]
    Vllm,
    #[serde(rename = "programs linked to libnccl")]
    Programs,
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConsumerName::Torch => "torch",
            ConsumerName::PythonPackages => "python packages",
            ConsumerName::Vllm => "vllm",
            ConsumerName::Programs => "programs linked to libnccl",
        })
    }
}

/// A `libnccl-net*.so`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NetPlugin {
    /// Real path.
    pub path: String,
    /// The value of `NCCL_NET_PLUGIN` that selects it; empty for `libnccl-net.so`, which NCCL opens by default.
    pub name: String,
    /// The loader finds it by that name.
    pub reachable: bool,
    /// `hpcx`, `aws-ofi`, `spcx`, `unknown`
    pub maker: String,
}

/// One variable that NCCL reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclSetting {
    pub name: String,
    pub value: String,
    pub from: SettingSource,
    /// Where else it is set, to no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<String>,
}

/// What sets a variable of NCCL: in JSON, `Env` or the path of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub enum SettingSource {
    /// The image's own environment.
    Env,
    /// A file in the image, such as `/etc/nccl.conf`.
    File(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingSource::Env => "Env",
            SettingSource::File(path) => path,
        })
    }
}

impl From<String> for SettingSource {
    fn from(text: String) -> SettingSource {
        if text == "Env" { SettingSource::Env } else { SettingSource::File(text) }
    }
}

impl From<SettingSource> for String {
    fn from(source: SettingSource) -> String {
        source.to_string()
    }
}
