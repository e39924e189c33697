//! Facts → findings. No I/O, no printing: a check reads facts and says what it found.
//!
//! [`REGISTRY`] holds every check with what it means; a new check is a function and an entry there.

mod loader;
mod nccl;
mod packages;
mod settings;
mod stack;
mod verbs;

use crate::fabric::RepositoryChoice;
use crate::facts::ImageFacts;
use crate::image::reference::split_tag;
use crate::targets::Target;
use serde::{Deserialize, Serialize};

/// Outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Pass,
    /// The target does not ask for it.
    Skip,
    Warn,
    /// It could not be determined; never counts as a pass.
    Unknown,
    Fail,
}

/// What a failure of the check means for the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Without it a job does not run over RDMA, or not at all.
    Required,
    /// Worth knowing.
    Advice,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub check: String,
    pub severity: Severity,
    pub status: Status,
    /// One line: what is the case.
    pub summary: String,
    /// Paths, versions and settings that the summary rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What to do, fit to be pasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// What a check looks at.
pub struct Subject<'a> {
    pub facts: &'a ImageFacts,
    pub target: &'static Target,
}

/// A check, before its name is put to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    status: Status,
    summary: String,
    evidence: Vec<String>,
    remedy: Option<String>,
}

impl Outcome {
    fn new(status: Status, summary: impl Into<String>) -> Outcome {
        Outcome { status, summary: summary.into(), evidence: Vec::new(), remedy: None }
    }

    fn pass(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Pass, summary)
    }

    fn warn(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Warn, summary)
    }

    fn fail(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Fail, summary)
    }

    fn unknown(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Unknown, summary)
    }

    fn skip(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Skip, summary)
    }

    fn evidence(mut self, evidence: impl IntoIterator<Item = String>) -> Outcome {
        self.evidence.extend(evidence);
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Outcome {
        self.remedy = Some(remedy.into());
        self
    }
}

/// One check and what it means.
pub struct Check {
    /// Stable, kebab-case.
    pub id: &'static str,
    pub severity: Severity,
    /// What it looks at, in one sentence.
    pub about: &'static str,
    run: fn(&Subject<'_>) -> Outcome,
}

use Severity::{Advice, Required};

/// Every static check, in the order in which reports show them.
pub const REGISTRY: [Check; 29] = [
    Check {
        id: "image-config",
        severity: Required,
        about: "The image has a config, so that its Env and User are known.",
        run: stack::image_config,
    },
    Check {
        id: "platform",
        severity: Required,
        about: "The image is for Linux on amd64 or arm64.",
        run: stack::platform,
    },
    Check {
        id: "distro-listed",
        severity: Advice,
        about: "The fabric's vendor lists the distribution.",
        run: stack::distro_listed,
    },
    Check {
        id: "package-database",
        severity: Required,
        about: "The package database can be read.",
        run: packages::package_database,
    },
    Check {
        id: "packages-consistent",
        severity: Advice,
        about: "Every installed package is complete and has its dependencies.",
        run: packages::packages_consistent,
    },
    Check {
        id: "ofed-packages",
        severity: Required,
        about: "No package of the RDMA userspace is a Mellanox build.",
        run: packages::ofed_packages,
    },
    Check {
        id: "ofed-leftovers",
        severity: Advice,
        about: "Nothing of a Mellanox OFED installation is left.",
        run: packages::ofed_leftovers,
    },
    Check {
        id: "ofed-loader-path",
        severity: Required,
        about: "The loader does not look into a directory with OFED's verbs libraries.",
        run: packages::ofed_on_loader_path,
    },
    Check {
        id: "foreign-stacks",
        severity: Advice,
        about: "No communication stack of another cloud is in the way.",
        run: packages::foreign_stacks,
    },
    Check {
        id: "loader-cache",
        severity: Advice,
        about: "The loader's cache agrees with the directories that it stands for.",
        run: loader::loader_cache,
    },
    Check {
        id: "libibverbs",
        severity: Required,
        about: "The loader finds libibverbs.so.1, which NCCL opens.",
        run: verbs::libibverbs,
    },
    Check {
        id: "rdma-provider",
        severity: Required,
        about: "libibverbs can open a provider for the fabric's device.",
        run: verbs::rdma_provider,
    },
    Check {
        id: "rdma-vendor-build",
        severity: Advice,
        about: "The RDMA userspace is the fabric vendor's build, not the distribution's.",
        run: verbs::vendor_build,
    },
    Check {
        id: "driver-files",
        severity: Advice,
        about: "Every file in /etc/libibverbs.d names a provider that is there.",
        run: verbs::driver_files,
    },
    Check {
        id: "libibverbs-names",
        severity: Required,
        about: "libibverbs.so, which NCCL opens first, and libibverbs.so.1 are one library.",
        run: verbs::same_library,
    },
    Check {
        id: "libibverbs-copies",
        severity: Advice,
        about: "No other libibverbs is there that cannot open the fabric's device.",
        run: verbs::bundled_libraries,
    },
    Check {
        id: "nccl-version",
        severity: Required,
        about: "NCCL, as each consumer gets it, is new enough for the target.",
        run: nccl::nccl_version,
    },
    Check {
        id: "nccl-shadowed",
        severity: Required,
        about: "LD_LIBRARY_PATH does not give torch an older NCCL than the one that it came with.",
        run: nccl::nccl_shadowed,
    },
    Check {
        id: "nccl-release",
        severity: Required,
        about: "No consumer gets an NCCL release that is known to fail on the fabric.",
        run: nccl::nccl_release,
    },
    Check {
        id: "nccl-cuda",
        severity: Advice,
        about: "NCCL was built for the major CUDA version of the image.",
        run: nccl::nccl_cuda,
    },
    Check {
        id: "nccl-version-hint",
        severity: Advice,
        about: "NCCL_VERSION, a mere label, agrees with what is there.",
        run: nccl::nccl_version_hint,
    },
    Check {
        id: "nccl-net-plugin",
        severity: Required,
        about: "No network plugin for other hardware takes the place of NCCL's own transports.",
        run: nccl::net_plugin,
    },
    Check {
        id: "nccl-ib-enabled",
        severity: Required,
        about: "No NCCL setting of the image switches RDMA off.",
        run: settings::ib_enabled,
    },
    Check {
        id: "nccl-ib-hca",
        severity: Required,
        about: "NCCL_IB_HCA, where the image sets it, can match the fabric's devices.",
        run: settings::ib_hca,
    },
    Check {
        id: "nccl-gid-index",
        severity: Advice,
        about: "NCCL takes a GID that reaches other hosts.",
        run: settings::gid_index,
    },
    Check {
        id: "nccl-socket-ifname",
        severity: Advice,
        about: "NCCL_SOCKET_IFNAME, where the image sets it, leaves the right interface.",
        run: settings::socket_ifname,
    },
    Check {
        id: "cuda-version",
        severity: Required,
        about: "CUDA is new enough for the target.",
        run: stack::cuda_version,
    },
    Check {
        id: "driver-libraries",
        severity: Advice,
        about: "No driver library of the image is in the way of the host's.",
        run: loader::driver_libraries,
    },
    Check {
        id: "python3",
        severity: Required,
        about: "python3 is on the PATH, where the target needs it.",
        run: stack::python3,
    },
];

/// Runs every check.
pub fn check_image(subject: &Subject<'_>) -> Vec<Finding> {
    REGISTRY
        .iter()
        .map(|check| {
            let outcome = (check.run)(subject);
            Finding {
                check: check.id.to_owned(),
                severity: check.severity,
                status: outcome.status,
                summary: outcome.summary,
                evidence: outcome.evidence,
                remedy: outcome.remedy,
            }
        })
        .collect()
}

/// What all findings together say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Pass,
    /// A required check failed.
    Fail,
    /// No required check failed, but one could not be determined.
    Unknown,
}

/// Sums findings up. A warning does not change the verdict.
pub fn verdict(findings: &[Finding]) -> Verdict {
    let any = |status| findings.iter().any(|f| f.severity == Severity::Required && f.status == status);
    if any(Status::Fail) {
        Verdict::Fail
    } else if any(Status::Unknown) {
        Verdict::Unknown
    } else {
        Verdict::Pass
    }
}

/// The command that repairs most of what these checks find.
fn rebuild(subject: &Subject<'_>) -> String {
    let image = &subject.facts.image;
    let named = image.reference.strip_prefix("docker-daemon:").filter(|name| !name.starts_with("sha256:"));
    let name = named.or(image.repo_tags.first().map(String::as_str)).unwrap_or("IMAGE");
    let (path, tag) = split_tag(name.split('@').next().unwrap_or(name));
    let listed = subject.target.fabric.apt_repository(
        subject.facts.distro.as_ref(),
        &image.architecture,
        &RepositoryChoice::default(),
    );
    let more = if listed.is_ok() { "" } else { " --mirror URL --suite SUITE" };
    format!("rdmaprep build {name} -t {path}:{}-{}{more}", tag.unwrap_or("latest"), subject.target.fabric.id)
}

/// `a, b and 3 more`
fn abbreviate(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        0..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

#[cfg(test)]
pub mod testing {
    //! A good image to break in one place.
    use super::*;
    use crate::facts::*;
    use crate::targets;

    /// The facts of a Ubuntu 22.04 image that is right for PAI-DLC in every respect.
    pub fn good() -> ImageFacts {
        crate::image_fixture::Fixture::good().facts()
    }

    /// The finding of one check for PAI-DLC.
    pub fn finding(facts: &ImageFacts, check: &str) -> Finding {
        finding_for(facts, check, "pai-dlc")
    }

    pub fn finding_for(facts: &ImageFacts, check: &str, target: &str) -> Finding {
        let target = targets::by_id(target).unwrap();
        let subject = Subject { facts, target };
        check_image(&subject).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn the_good_image_passes_everything() {
        let facts = good();
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_image(&Subject { facts: &facts, target });
        let not_passed: Vec<_> = findings.iter().filter(|f| f.status != Status::Pass).collect();
        assert!(not_passed.is_empty(), "{not_passed:#?}");
        assert_eq!(verdict(&findings), Verdict::Pass);
    }

    #[test]
    fn ids_are_unique_and_kebab_case() {
        for (at, check) in REGISTRY.iter().enumerate() {
            assert!(check.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", check.id);
            assert!(REGISTRY[..at].iter().all(|other| other.id != check.id), "{}", check.id);
        }
    }

    #[test]
    fn an_unknown_is_never_a_pass() {
        let mut facts = good();
        facts.config.missing = true;
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings), Verdict::Unknown);
        facts.python3 = None;
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings), Verdict::Fail);
    }
}
