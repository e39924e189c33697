//! The options of a swap, which `render` and `build` share.

use super::error::CliError;
use crate::fabric::{RepositoryChoice, Userspace};
use crate::plan::SwapOptions;
use crate::swap::{SwapRequest, load_files, load_key};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the swap")]
pub(super) struct SwapArgs {
    /// Userspace build, on a fabric with a choice [default: keep if sound, else inbox]
    #[arg(long, value_name = "WHOSE", value_enum)]
    userspace: Option<UserspaceChoice>,
    /// Version of DOCA-Host, such as 2.10.0, with --userspace doca
    #[arg(long, value_name = "VERSION")]
    doca_version: Option<String>,
    /// Use only the package files in a directory; the build has no network
    #[arg(long, value_name = "DIR", conflicts_with_all = ["userspace", "doca_version", "mirror", "vpc", "suite", "apt_proxy", "base_repos"])]
    offline: Option<PathBuf>,
    /// URL of the directory that contains GPGKEY, apt/ and yum/, or DOCA's key and versions [default: the vendor's public mirror]
    #[arg(long, value_name = "URL", conflicts_with = "vpc")]
    mirror: Option<String>,
    /// Use the vendor's mirror that resolves only inside its VPC
    #[arg(long)]
    vpc: bool,
    /// apt suite in the repository, such as jammy/erdma; for rpm a path below yum/, such as redhat/7/erdma/x86_64; for
    /// DOCA the distribution's directory, such as rhel8.10
    /// [default: by the image's distribution]
    #[arg(long, value_name = "SUITE|PATH")]
    suite: Option<String>,
    /// Public key of the repository [default: the mirror's GPGKEY]; of rpm files, with --offline [default: unchecked]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Proxy for apt in the build, without credentials
    #[arg(long, value_name = "URL")]
    apt_proxy: Option<String>,
    /// Build argument; without =VALUE its value comes from the environment
    #[arg(long = "build-arg", value_name = "NAME=VALUE")]
    build_args: Vec<String>,
    /// Additional package to install, such as perftest
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Accept unsigned rpm packages
    #[arg(long, conflicts_with = "key")]
    no_gpg_check: bool,
    /// yum repository for dependencies during the build, replacing the image's own: those of CentOS 7 and 8 no longer
    /// answer; may be repeated
    #[arg(long = "base-repo", value_name = "URL")]
    base_repos: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UserspaceChoice {
    /// The fabric vendor's packages: the only choice on eRDMA
    Vendor,
    /// The image's own, if it drives the devices
    Keep,
    /// The distribution's rdma-core, from the apt or yum repositories of the image
    Inbox,
    /// The packages of NVIDIA's DOCA-Host
    Doca,
}

impl From<UserspaceChoice> for Userspace {
    fn from(choice: UserspaceChoice) -> Userspace {
        match choice {
            UserspaceChoice::Vendor => Userspace::Vendor,
            UserspaceChoice::Keep => Userspace::Keep,
            UserspaceChoice::Inbox => Userspace::Inbox,
            UserspaceChoice::Doca => Userspace::Doca,
        }
    }
}

impl SwapArgs {
    /// Reads the key and the package files.
    pub(super) fn load(&self) -> Result<SwapRequest, CliError> {
        let build_args = parse_build_args(&self.build_args, |name| std::env::var(name).ok())?;
        let options = SwapOptions {
            repository: RepositoryChoice {
                mirror: self.mirror.clone(),
                vpc: self.vpc,
                suite: self.suite.clone(),
                doca_version: self.doca_version.clone(),
            },
            userspace: self.userspace.map(Userspace::from),
            files: self.offline.as_deref().map(load_files).transpose()?,
            key: self.key.as_deref().map(load_key).transpose()?,
            apt_proxy: self.apt_proxy.clone(),
            build_args: build_args.keys().cloned().collect(),
            extra_packages: self.packages.clone(),
            no_gpg_check: self.no_gpg_check,
            base_repos: self.base_repos.clone(),
        };
        Ok(SwapRequest { options, package_directory: self.offline.clone(), build_args })
    }
}

fn parse_build_args(
    args: &[String],
    env: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, CliError> {
    args.iter()
        .map(|arg| match arg.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => match env(arg) {
                Some(value) => Ok((arg.clone(), value)),
                None => Err(CliError::Usage(format!(
                    "--build-arg {arg}: it has no value, and the environment does not set it"
                ))),
            },
        })
        .collect()
}
