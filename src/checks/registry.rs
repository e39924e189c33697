//! The checks and their documentation, for reports, `check --list` and `explain`.
//!
//! A new check is a function in this folder and an entry here; everything else follows from the entry.

use super::Severity::{self, Advice, Required};
use super::host::{self, HostSubject};
use super::instance::{self, InstanceSubject};
use super::recipe::{self, RecipeSubject};
use super::run::{self, RunSubject};
use super::{Outcome, Subject, loader, nccl, packages, settings, stack, verbs};
use crate::suggest;
use crate::targets::{TARGETS, Target};
use Judge::Image;
use serde::Serialize;

/// One check and what it means.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Stable, kebab-case.
    pub id: &'static str,
    /// Severity for a target that `exceptions` does not name.
    pub severity: Severity,
    /// Targets (by id) with another severity.
    #[serde(skip)]
    pub exceptions: &'static [(&'static str, Severity)],
    /// What it examines, in one sentence.
    pub about: &'static str,
    /// The parts of [`crate::facts::ImageFacts`] that it rests on, by their names in JSON; of a check of a preflight those
    /// of [`crate::facts::run::RunFacts`], of a host's those of [`crate::facts::devices::DeviceFacts`]; of an instance type's
    /// those of an image or a run, or nothing but the type.
    pub needs: &'static [&'static str],
    /// What it means for a job if it does not pass.
    pub why: &'static str,
    /// What to do, in general; a finding has the remedy for its own image.
    pub remedy: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    #[serde(skip)]
    pub(super) run: Judge,
}

/// What a check judges, and how.
#[derive(Debug, Clone, Copy)]
pub(super) enum Judge {
    Image(fn(&Subject<'_>) -> Outcome),
    /// `Err`: the facts do not tell.
    Run(fn(&RunSubject<'_>) -> Result<Outcome, Outcome>),
    /// `Err`: the facts do not decide.
    Host(fn(&HostSubject<'_>) -> Result<Outcome, Outcome>),
    /// `None`: there is nothing of the kind to look at.
    Instance(fn(&InstanceSubject<'_>) -> Option<Outcome>),
    Recipe(fn(&RecipeSubject<'_>) -> Outcome),
}

impl Check {
    /// Whether it judges what is in an image, and nothing else.
    pub fn is_of_an_image(&self) -> bool {
        matches!(self.run, Judge::Image(_))
    }

    /// Whether it is there only where an instance type was named.
    pub fn is_of_an_instance(&self) -> bool {
        matches!(self.run, Judge::Instance(_))
    }

    /// Whether it judges the run of a preflight, and not an image.
    pub fn is_of_a_run(&self) -> bool {
        matches!(self.run, Judge::Run(_))
    }

    /// Whether it judges a host's devices.
    pub fn is_of_a_host(&self) -> bool {
        matches!(self.run, Judge::Host(_))
    }

    /// Whether it judges an image by the recipe that it was built from.
    pub fn is_of_a_recipe(&self) -> bool {
        matches!(self.run, Judge::Recipe(_))
    }

    /// What the check is for a target.
    pub fn severity_for(&self, target: &Target) -> Severity {
        self.exceptions.iter().find(|(id, _)| *id == target.id).map_or(self.severity, |(_, severity)| *severity)
    }

    /// The ids of the targets for which it has a severity.
    pub fn targets_with(&self, severity: Severity) -> Vec<&'static str> {
        TARGETS.iter().filter(|target| self.severity_for(target) == severity).map(|target| target.id).collect()
    }
}

/// Every check: of an image, of a recipe, of a preflight, of a host, and of an instance type.
pub fn all() -> impl Iterator<Item = &'static Check> {
    REGISTRY
        .iter()
        .chain(recipe::REGISTRY_OF_RECIPES)
        .chain(run::REGISTRY)
        .chain(host::REGISTRY)
        .chain(instance::REGISTRY)
}

/// Finds a check by id.
pub fn by_id(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id)
}

/// Suggestions for a mistyped id, best first.
pub fn closest(id: &str) -> Vec<&'static str> {
    suggest::closest(id, all().map(|check| check.id), 0.75)
}

/// Every static check, in the order in which reports show them.
pub static REGISTRY: &[Check] = &[
    Check {
        id: "image-config",
        severity: Required,
        exceptions: &[],
        about: "The image has a config, so that its Env and User are known.",
        needs: &["config"],
        why: "Without the config, the PATH, LD_LIBRARY_PATH and NCCL settings that a job starts with are unknown, so \
              every check that depends on them would guess.",
        remedy: "Pull or load the image again: the engine's store holds only a part of it.",
        source: "OCI image specification 1.1, config.md: `config` is where Env, User and Entrypoint are",
        run: Image(stack::image_config),
    },
    Check {
        id: "platform",
        severity: Required,
        exceptions: &[],
        about: "The image is for Linux on amd64 or arm64.",
        needs: &["image"],
        why: "The platforms' GPU nodes are of these two kinds, and the fabrics' packages exist for no other: the \
              container ends with `exec format error`, or has no provider for its network device.",
        remedy: "Build or pull the image for linux/amd64 (or linux/arm64, if the nodes are).",
        source: "Alibaba Cloud help, ECS, \"Use eRDMA in a Docker container\", list of images, read 2026-11",
        run: Image(stack::platform),
    },
    Check {
        id: "distro-listed",
        severity: Advice,
        exceptions: &[],
        about: "The fabric's vendor lists the distribution.",
        needs: &["distro", "image"],
        why: "For any other distribution there is no vendor repository, so nobody has tested its libraries with \
              the vendor's, and `rdmaprep build` needs --mirror and --suite.",
        remedy: "Start from a listed distribution, or give `rdmaprep build` a mirror that has packages for this one.",
        source: "Alibaba Cloud help, ECS, \"Use eRDMA in a Docker container\", list of images, read 2026-11",
        run: Image(stack::distro_listed),
    },
    Check {
        id: "package-database",
        severity: Required,
        exceptions: &[],
        about: "The package database can be read.",
        needs: &["packages"],
        why: "It records which build of the RDMA userspace is installed; without it a Mellanox build cannot be ruled \
              out.",
        remedy: "Keep /var/lib/dpkg in the image: do not delete it to save space.",
        source: "dpkg-query(1), \"Package information\"; deb-control(5)",
        run: Image(packages::package_database),
    },
    Check {
        id: "packages-consistent",
        severity: Advice,
        exceptions: &[],
        about: "Every installed package is complete and has its dependencies.",
        needs: &["packages"],
        why: "The image may work as it is, but the next `apt-get install` in it stops with `Unmet dependencies`.",
        remedy: "RUN apt-get update && apt-get install -y --fix-broken",
        source: "ROCm/MAD issue 200: packages torn out with `dpkg -r --force-all`",
        run: Image(packages::packages_consistent),
    },
    Check {
        id: "ofed-packages",
        severity: Required,
        // Its devices are Mellanox's.
        exceptions: &[("cce", Advice)],
        about: "No package of the RDMA userspace is a Mellanox build.",
        needs: &["packages"],
        why: "MLNX_OFED's libibverbs brings the providers of Mellanox devices. Its versions sort above every other, so \
              `apt-get install` silently keeps it, the fabric's device is not opened and NCCL falls back to TCP.",
        remedy: "rdmaprep build IMAGE -t NEW",
        source: "openucx/ucx issue 6662; `dpkg --compare-versions 2307mlnx47-1.2310119 gt 44.1-2`, run on Debian 12",
        run: Image(packages::ofed_packages),
    },
    Check {
        id: "ofed-leftovers",
        severity: Advice,
        exceptions: &[],
        about: "Nothing of a Mellanox OFED installation is left.",
        needs: &["ofed", "packages"],
        why: "A leftover apt source brings OFED back at the next apt run; directories cost space, and one on the \
              loader's path can be loaded instead of the right library.",
        remedy: "rdmaprep build IMAGE -t NEW",
        source: "openucx/ucx issue 6576: OFED unpacked without the package manager; MLNX_OFED 23.10, apt source it writes",
        run: Image(packages::ofed_leftovers),
    },
    Check {
        id: "ofed-loader-path",
        severity: Required,
        // Its devices are Mellanox's.
        exceptions: &[("cce", Advice)],
        about: "The loader does not look into a directory with OFED's verbs libraries.",
        needs: &["ofed"],
        why: "OFED that was unpacked without the package manager is in no package list, and the loader may take its \
              libibverbs instead of the one that apt installed: the fabric's device is then not opened.",
        remedy: "Take the directory out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, remove it, and RUN ldconfig",
        source: "openucx/ucx issue 6576: OFED unpacked to /usr/local/ofed by a recipe",
        run: Image(packages::ofed_on_loader_path),
    },
    Check {
        id: "foreign-stacks",
        severity: Advice,
        exceptions: &[],
        about: "No communication stack of another cloud is in the way.",
        needs: &["ofed"],
        why: "A stack for other hardware costs space and may be loaded first; an OPAL_PREFIX that names a missing directory \
              gone keeps mpirun from starting.",
        remedy: "Remove the directory, and the variables that name it: ENV OPAL_PREFIX=",
        source: "NVIDIA PyTorch images 25.10, their history: /opt/hpcx, OPAL_PREFIX and EFA's libfabric",
        run: Image(packages::foreign_stacks),
    },
    Check {
        id: "loader-cache",
        severity: Advice,
        exceptions: &[],
        about: "The loader's cache matches its directories.",
        needs: &["loader"],
        why: "The loader trusts the cache: a library that was added or removed since is found, or not found, \
              contrary to what the files suggest, and the next ldconfig changes what runs.",
        remedy: "RUN ldconfig",
        source: "ldconfig(8); ld.so(8), order of the search",
        run: Image(loader::loader_cache),
    },
    Check {
        id: "libibverbs",
        severity: Required,
        exceptions: &[],
        about: "The loader finds libibverbs.so.1, which NCCL opens.",
        needs: &["verbs"],
        why: "NCCL opens libibverbs at run time; if it is not found, NCCL logs that only at INFO level and uses TCP.",
        remedy: "rdmaprep build IMAGE -t NEW; on RoCE the distribution's libibverbs1 and ibverbs-providers",
        source: "NVIDIA/nccl, src/misc/ibvsymbols.cc; NVIDIA/nvidia-container-toolkit issue 1877",
        run: Image(verbs::libibverbs),
    },
    Check {
        id: "rdma-provider",
        severity: Required,
        exceptions: &[],
        about: "libibverbs can open a provider for the fabric's device.",
        needs: &["verbs", "packages"],
        why: "A device without its provider is not listed: NCCL finds no RDMA device and uses TCP, without an error.",
        remedy: "rdmaprep build IMAGE -t NEW; on RoCE the distribution's ibverbs-providers",
        source: "rdma-core v22 to v64, libibverbs/dynamic_driver.c and CMakeLists.txt (private ABI); \
                 linux-rdma/perftest issue 262; horovod/horovod issue 1117",
        run: Image(verbs::rdma_provider),
    },
    Check {
        id: "rdma-one-build",
        severity: Required,
        exceptions: &[],
        about: "libibverbs and the fabric's provider are of one build.",
        needs: &["verbs", "packages"],
        why: "Builds by Mellanox, DOCA, a cloud vendor and a distribution share the number of their private ABI but \
              not its content: a provider from another build is opened and may fail anywhere.",
        remedy: "rdmaprep build IMAGE -t NEW, which swaps all of them together",
        source: "rdma-core v22 to v64, debian/control: the provider requires any libibverbs1 from some version on, so no \
                 package manager keeps them together",
        run: Image(verbs::one_build),
    },
    Check {
        id: "rdma-vendor-build",
        severity: Advice,
        exceptions: &[],
        about: "The RDMA userspace is the fabric vendor's build, not the distribution's.",
        needs: &["verbs", "packages"],
        why: "rdma-core has had an eRDMA provider since v43, but the kernel driver's response has a different layout \
              in the vendor's build, while both claim the same ABI: whether the two work together is not established.",
        remedy: "rdmaprep build IMAGE -t NEW",
        source: "alibaba/elastic-rdma-drivers 0.2.37, erdma-abi.h compared with rdma-core v64, kernel-headers/rdma/erdma-abi.h",
        run: Image(verbs::vendor_build),
    },
    Check {
        id: "driver-files",
        severity: Advice,
        exceptions: &[],
        about: "Every file in /etc/libibverbs.d names an existing provider.",
        needs: &["verbs"],
        why: "libibverbs warns about each at every start; the warning is often mistaken for the cause of something else.",
        remedy: "RUN rm -f the file that names a missing provider",
        source: "NVIDIA/nccl issue 1044; rdma-core, libibverbs/dynamic_driver.c",
        run: Image(verbs::driver_files),
    },
    Check {
        id: "libibverbs-names",
        severity: Required,
        exceptions: &[],
        about: "libibverbs.so, which NCCL opens first, and libibverbs.so.1 are one library.",
        needs: &["verbs"],
        why: "NCCL opens libibverbs.so before libibverbs.so.1. If a development link leads to another build, NCCL gets \
              that one, whatever the package list says.",
        remedy: "rdmaprep build IMAGE -t NEW",
        source: "NVIDIA/nccl, src/misc/ibvsymbols.cc: order of the two names",
        run: Image(verbs::same_library),
    },
    Check {
        id: "libibverbs-copies",
        severity: Advice,
        exceptions: &[],
        about: "No other libibverbs exists that cannot open the fabric's device.",
        needs: &["verbs"],
        why: "A wheel or a separate directory may contain a libibverbs, which looks for providers in its own directory: the \
              programs that open it find no device.",
        remedy: "Remove the copy, so that its users open the system's library",
        source: "rdma-core, libibverbs/dynamic_driver.c: providers are looked for next to the library; public guide \"RDT on \
                 eRDMA\", read 2026-11: wheels with their own libibverbs",
        run: Image(verbs::bundled_libraries),
    },
    Check {
        id: "nccl-version",
        severity: Required,
        exceptions: &[],
        about: "The NCCL that each consumer gets is new enough for the target.",
        needs: &["nccl", "nccl_consumers"],
        why: "The platform supports its fabric from this version on. torch may have its own copy, which is the one that \
              counts for it.",
        remedy: "RUN pip install a newer nvidia-nccl-cu12, or a newer libnccl2 (apt) or libnccl (dnf, yum), or take a newer torch",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11: NCCL 2.19 or later",
        run: Image(nccl::nccl_version),
    },
    Check {
        id: "nccl-shadowed",
        severity: Required,
        exceptions: &[],
        about: "LD_LIBRARY_PATH does not give torch an older NCCL than its own.",
        needs: &["nccl", "nccl_consumers", "config"],
        why: "torch was built with the newer one: it misses symbols or falls back to older transports, and the version that \
              pip shows is not the one that runs.",
        remedy: "Take the directory out of LD_LIBRARY_PATH, or the old libnccl out of the directory",
        source: "pytorch/pytorch issues 119932 and 119072; NVIDIA/nccl issue 1180",
        run: Image(nccl::nccl_shadowed),
    },
    Check {
        id: "nccl-release",
        severity: Required,
        exceptions: &[],
        about: "No consumer gets an NCCL release that is known to fail on the fabric.",
        needs: &["nccl", "nccl_consumers"],
        why: "On eRDMA, 2.28.7 and 2.28.9 end in a segmentation fault in ncclNetInit, before the first collective.",
        remedy: "Install a release other than 2.28.7 and 2.28.9, such as 2.29.7, in the same way as this one: wheel, apt, dnf or conda.",
        source: "public guide \"RDT on eRDMA\", read 2026-11: 2.28.3, 2.29.7 and 2.30.7 work there; no cause is published",
        run: Image(nccl::nccl_release),
    },
    Check {
        id: "nccl-cuda",
        severity: Advice,
        exceptions: &[],
        about: "NCCL was built for the major CUDA version of the image.",
        needs: &["nccl", "nccl_consumers", "cuda"],
        why: "NCCL's own runtime is linked into it, so it often works; with a driver too old for the newer of the two \
              it does not.",
        remedy: "Install the nvidia-nccl-cuNN or libnccl2 of the image's CUDA",
        source: "NVIDIA/nccl issue 1320: the suffix +cudaX.Y is what NCCL was built with",
        run: Image(nccl::nccl_cuda),
    },
    Check {
        id: "nccl-version-hint",
        severity: Advice,
        exceptions: &[],
        about: "NCCL_VERSION, a mere label, matches the installed NCCL.",
        needs: &["nccl", "config"],
        why: "Images inherit the variable from their base and change the library: the variable then misleads.",
        remedy: "ENV NCCL_VERSION=",
        source: "nvidia/cuda images, which set it; NCCL does not read it (NVIDIA/nccl v2.30.7, src/)",
        run: Image(nccl::nccl_version_hint),
    },
    Check {
        id: "nccl-net-plugin",
        severity: Required,
        exceptions: &[],
        about: "No network plugin for other hardware takes the place of NCCL's own transports.",
        needs: &["nccl_plugins", "nccl_settings", "nccl", "nccl_consumers"],
        why: "A plugin that the loader finds is tried first. One for other hardware finds no device, or replaces NCCL's own \
              InfiniBand transport.",
        remedy: "ENV NCCL_NET_PLUGIN=none",
        source: "NVIDIA/nccl v2.28, src/plugin/net.cc: `none` is a keyword from 2.28 on, before it a name that is not found",
        run: Image(nccl::net_plugin),
    },
    Check {
        id: "nccl-ib-enabled",
        severity: Required,
        exceptions: &[],
        about: "No NCCL setting in the image switches RDMA off.",
        needs: &["nccl_settings"],
        why: "NCCL_IB_DISABLE=1, or NCCL_NET=Socket, may have been right where the image was made: here every byte goes \
              over TCP.",
        remedy: "ENV NCCL_IB_DISABLE=0, and ENV NCCL_NET=IB or nothing",
        source: "NCCL user guide, environment variables: NCCL_IB_DISABLE, NCCL_NET",
        run: Image(settings::ib_enabled),
    },
    Check {
        id: "nccl-ib-hca",
        severity: Required,
        exceptions: &[],
        about: "NCCL_IB_HCA, if the image sets it, can match the fabric's devices.",
        needs: &["nccl_settings"],
        why: "A filter such as mlx5 lets no erdma_N through: NCCL finds no device and uses TCP, without an error.",
        remedy: "ENV NCCL_IB_HCA=erdma (on RoCE: mlx5)",
        source: "NCCL user guide, NCCL_IB_HCA; alibaba/elastic-rdma-drivers 0.2.37: devices are named erdma_%d",
        run: Image(settings::ib_hca),
    },
    Check {
        id: "nccl-gid-index",
        severity: Advice,
        exceptions: &[],
        about: "NCCL uses a GID that reaches other hosts.",
        needs: &["nccl_settings", "nccl", "nccl_consumers"],
        why: "NCCL before 2.21 uses index 0, which is a link-local address on eRDMA, and also RoCE v1 on mlx5: connections \
              between hosts time out. From 2.21 on it chooses itself.",
        remedy: "ENV NCCL_IB_GID_INDEX=1 on eRDMA, the index of RoCE v2 with an IPv4 address on mlx5 (often 3), or NCCL 2.21 \
                 or newer and no setting",
        source: "NVIDIA/nccl v2.20 and v2.21, src/transport/net_ib.cc; alibaba/elastic-rdma-drivers 0.2.37, erdma_verbs.c",
        run: Image(settings::gid_index),
    },
    Check {
        id: "nccl-socket-ifname",
        severity: Advice,
        exceptions: &[],
        about: "NCCL_SOCKET_IFNAME, if the image sets it, allows the right interface.",
        needs: &["nccl_settings"],
        why: "The ranks find each other over this interface even if RDMA carries the data: with a wrong name the job does \
              not start.",
        remedy: "ENV NCCL_SOCKET_IFNAME=eth0",
        source: "NVIDIA/nccl, src/misc/socket.cc; Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11",
        run: Image(settings::socket_ifname),
    },
    Check {
        id: "nccl-platform-settings",
        severity: Advice,
        exceptions: &[],
        about: "The platform neither overrides the image's NCCL settings nor ignores any of them.",
        needs: &["nccl_settings"],
        why: "Whoever set the variable expects it to work, but the platform overrides it in every job, and some \
              variables have no effect on its fabric.",
        remedy: "Set the variable in the job, or remove it from the image.",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", table of preset variables (\"-\": no effect), \
                 read 2026-11",
        run: Image(settings::platform_settings),
    },
    Check {
        id: "cuda-version",
        severity: Required,
        exceptions: &[],
        about: "CUDA is new enough for the target.",
        needs: &["cuda"],
        why: "The platform supports its fabric from this version on.",
        remedy: "Start from an image with a newer CUDA.",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11: CUDA 12.1 or later",
        run: Image(stack::cuda_version),
    },
    Check {
        id: "driver-libraries",
        severity: Advice,
        exceptions: &[],
        about: "No driver library in the image hides the host's.",
        needs: &["cuda"],
        why: "The driver's libraries come from the host and are mounted at container start. A stub, a compatibility driver or \
              one built into the image may be found before them: CUDA then fails with error 803 or 804.",
        remedy: "Take the stub or compat directory off the loader's path, and remove what a driver installer left",
        source: "NVIDIA/nvidia-docker issues 1256 (error 803) and 1515 (error 804)",
        run: Image(loader::driver_libraries),
    },
    Check {
        id: "python3",
        severity: Advice,
        exceptions: &[("pai-dlc", Required)],
        about: "python3 is on the PATH, if the target needs it.",
        needs: &["python3", "config"],
        why: "PAI-DLC starts the processes of a job with python3: without it the job ends before its first line.",
        remedy: "RUN apt-get update && apt-get install -y --no-install-recommends python3",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11: Python 3",
        run: Image(stack::python3),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::good;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        for id in ids {
            assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{id}");
        }
    }

    #[test]
    fn every_entry_says_what_there_is_to_know() {
        let image = serde_json::to_value(good()).unwrap();
        let run = serde_json::to_value(crate::checks::run::testing::good_run()).unwrap();
        let host = serde_json::to_value(crate::checks::host::testing::good()).unwrap();
        for check in all() {
            let facts = match check.run {
                Judge::Image(_) | Judge::Recipe(_) => vec![&image],
                Judge::Run(_) => vec![&run],
                Judge::Host(_) => vec![&host],
                Judge::Instance(_) => vec![&image, &run],
            };
            for text in [check.about, check.why, check.remedy, check.source] {
                assert!(text.len() >= 10 && text == text.trim() && !text.contains("  "), "{}: {text:?}", check.id);
            }
            assert!(check.about.ends_with('.') && check.why.ends_with('.'), "{}", check.id);
            assert!(!check.needs.is_empty() || check.id == "instance-listed", "{}", check.id);
            for part in check.needs {
                assert!(facts.iter().any(|facts| facts.get(part).is_some()), "{}: the facts have no {part}", check.id);
            }
            for (target, severity) in check.exceptions {
                assert!(crate::targets::by_id(target).is_some(), "{}: no target {target}", check.id);
                assert_ne!(*severity, check.severity, "{}: {target} is not an exception", check.id);
            }
        }
    }

    #[test]
    fn mistyped_ids_find_what_was_meant() {
        for (typed, meant) in [("ofed-package", "ofed-packages"), ("NCCL-Version", "nccl-version"), ("provider", "")] {
            assert_eq!(closest(typed).first().copied().unwrap_or_default(), meant, "{typed}: {:?}", closest(typed));
        }
        assert_eq!(closest("zzzz"), Vec::<&str>::new());
    }
}
