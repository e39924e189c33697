//! Facts → findings. No I/O, no printing: a check reads facts and reports what it found.
//!
//! [`REGISTRY`] (`registry.rs`) holds every check of an image with what it means, [`run::REGISTRY`] every check of a
//! preflight, [`host::REGISTRY`] every check of a host, [`instance::REGISTRY`] those that a named instance type adds,
//! [`recipe::REGISTRY_OF_RECIPES`] those of an image that was built from a recipe; a new check is a function and an entry there.

pub mod host;
pub mod instance;
mod loader;
mod nccl;
mod packages;
pub mod recipe;
mod registry;
pub mod run;
mod settings;
mod stack;
mod verbs;

pub use host::{HostSubject, check_host};
pub use instance::{InstanceSubject, InstanceUse, Measured, check_instance};
pub use registry::{Check, REGISTRY, all, by_id, closest};
pub use run::{RunOptions, RunSubject, check_run};

use crate::diagnosis::{CauseId, Fault};
use crate::fabric::{Fabric, RepositoryChoice};
use crate::facts::{ImageFacts, PackageManager};
use crate::plan::has_package_manager;
use crate::reference::split_tag;
use crate::shell::shell_quote;
use crate::targets::Target;
use registry::Judge;
use serde::{Deserialize, Serialize};

/// Outcome of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Pass,
    /// The target does not require it.
    Skip,
    Warn,
    /// The check could not be determined; this never counts as a pass.
    Unknown,
    Fail,
}

/// What a failure of the check means for the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Without it a job does not run over RDMA, or not at all.
    Required,
    /// Advice: a failure only warns.
    Advice,
}

impl Severity {
    /// The status under this severity: a check that is not required warns instead of failing.
    pub fn bound(self, status: Status) -> Status {
        match (self, status) {
            (Severity::Advice, Status::Fail) => Status::Warn,
            (Severity::Required | Severity::Advice, status) => status,
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    pub check: String,
    pub severity: Severity,
    pub status: Status,
    /// One line: what was found.
    pub summary: String,
    /// Paths, versions and settings as evidence for the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What to do, ready to paste.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Where the problem has to be fixed; absent if only an image was examined, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blame: Option<Fault>,
}

/// The input of a check.
pub struct Subject<'a> {
    pub facts: &'a ImageFacts,
    pub target: &'a Target,
}

/// The result of a check, before its id is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    status: Status,
    summary: String,
    evidence: Vec<String>,
    remedy: Option<String>,
    blame: Option<Fault>,
}

impl Outcome {
    fn new(status: Status, summary: impl Into<String>) -> Outcome {
        Outcome { status, summary: summary.into(), evidence: Vec::new(), remedy: None, blame: None }
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

    fn blame(mut self, blame: Fault) -> Outcome {
        self.blame = Some(blame);
        self
    }

    /// Names the cause, by the table, before the summary, and blames whom the table says.
    fn named(mut self, id: CauseId) -> Outcome {
        self.summary = format!("{id}: {}", self.summary);
        self.blame(id.fault())
    }

    fn into_finding(self, check: &Check, target: &Target) -> Finding {
        let severity = check.severity_for(target);
        Finding {
            check: check.id.to_owned(),
            severity,
            status: severity.bound(self.status),
            summary: self.summary,
            evidence: self.evidence,
            remedy: self.remedy,
            blame: self.blame,
        }
    }
}

/// The fabric's provider is not there, or not for this libibverbs.
fn provider_missing(fabric: &Fabric) -> CauseId {
    match fabric.driver {
        "erdma" => CauseId::ErdmaProviderMissing,
        _ => CauseId::VerbsProviderMissing,
    }
}

/// Runs every check of an image.
pub fn check_image(subject: &Subject<'_>) -> Vec<Finding> {
    REGISTRY
        .iter()
        .filter_map(|check| match check.run {
            Judge::Image(run) => Some(run(subject).into_finding(check, subject.target)),
            Judge::Run(_) | Judge::Host(_) | Judge::Instance(_) | Judge::Recipe(_) => None,
        })
        .collect()
}

/// The verdict over all findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Pass,
    /// A required check failed.
    Fail,
    /// No required check failed, but one could not be determined.
    Unknown,
}

/// The threshold from which a finding counts against the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Bar {
    /// Failures of required checks.
    #[default]
    Fail,
    /// Every failure and every warning of any check.
    Warn,
}

impl Finding {
    /// The verdict from this finding alone.
    pub fn weight(&self, bar: Bar) -> Verdict {
        let counts = self.severity == Severity::Required || bar == Bar::Warn;
        match self.status {
            Status::Fail if counts => Verdict::Fail,
            Status::Warn if bar == Bar::Warn => Verdict::Fail,
            Status::Unknown if counts => Verdict::Unknown,
            Status::Pass | Status::Skip | Status::Warn | Status::Unknown | Status::Fail => Verdict::Pass,
        }
    }
}

/// Sums findings up.
pub fn verdict(findings: &[Finding], bar: Bar) -> Verdict {
    let any = |verdict| findings.iter().any(|finding| finding.weight(bar) == verdict);
    if any(Verdict::Fail) {
        Verdict::Fail
    } else if any(Verdict::Unknown) {
        Verdict::Unknown
    } else {
        Verdict::Pass
    }
}

/// The command that repairs most of what these checks find.
fn rebuild(subject: &Subject<'_>) -> String {
    let has_vendor = subject.target.fabric.public_mirror.is_some();
    match subject.facts.packages.manager {
        PackageManager::Dpkg => {}
        _ if has_vendor => {}
        PackageManager::DpkgStatusD => return subject.target.fabric.distribution_packages(),
        _ => return packages::rpm_install(subject),
    }
    let is_rpm = subject.facts.packages.manager.is_rpm();
    if is_rpm && !has_package_manager(&subject.facts.packages) {
        return format!("{}   # with the fabric vendor's repository", packages::rpm_install(subject));
    }
    let image = &subject.facts.image;
    let named = image.reference.strip_prefix("docker-daemon:").filter(|name| !name.starts_with("sha256:"));
    let name = named.or(image.repo_tags.first().map(String::as_str));
    let (distro, choice) = (subject.facts.distro.as_ref(), RepositoryChoice::default());
    let fabric = subject.target.fabric;
    let more = if !has_vendor {
        format!(" --target {}", subject.target.id)
    } else if is_rpm && fabric.yum_repository(distro, &image.architecture, &choice, true).is_err() {
        " --mirror URL --suite PATH".to_owned()
    } else if !is_rpm && fabric.apt_repository(distro, &image.architecture, &choice).is_err() {
        " --mirror URL --suite SUITE".to_owned()
    } else {
        String::new()
    };
    let Some(name) = name else {
        return format!("rdmaprep build IMAGE -t NEW{more}");
    };
    let (path, tag) = split_tag(name.split('@').next().unwrap_or(name));
    // An archive's names are whatever its creator wrote.
    let new = format!("{path}:{}-{}", tag.unwrap_or("latest"), subject.target.fabric.id);
    format!("rdmaprep build {} -t {}{more}", shell_quote(name), shell_quote(&new))
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
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Pass);
    }

    /// A userspace that is foreign on one fabric is right on another.
    #[test]
    fn mellanox_software_is_judged_by_the_devices() {
        let mut facts = good();
        facts.ofed.directories.push(OfedDirectory {
            path: "/opt/mellanox".into(),
            files: 1,
            size_bytes: 1,
            owners: Vec::new(),
            verbs_files: vec!["/opt/mellanox/lib/libibverbs.so.1".into()],
            loader_reason: Some("LD_LIBRARY_PATH names /opt/mellanox/lib".into()),
        });
        facts.nccl_plugins.push(NetPlugin {
            path: "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so".into(),
            name: String::new(),
            reachable: true,
            maker: "hpcx".into(),
        });
        let gid = |value: &str| NcclSetting {
            name: "NCCL_IB_GID_INDEX".into(),
            value: value.into(),
            from: "Env".into(),
            overridden: Vec::new(),
        };
        let status = |facts: &ImageFacts, check, target| finding_for(facts, check, target).status;
        for (check, erdma, roce) in [
            ("ofed-loader-path", Status::Fail, Status::Skip),
            ("nccl-net-plugin", Status::Warn, Status::Pass),
            ("nccl-gid-index", Status::Pass, Status::Pass),
        ] {
            assert_eq!((status(&facts, check, "ecs"), status(&facts, check, "cce")), (erdma, roce), "{check}");
        }
        // Which index is right there, only the host knows.
        facts.nccl_settings.push(gid("1"));
        assert_eq!(status(&facts, "nccl-gid-index", "ecs"), Status::Pass);
        assert_eq!(status(&facts, "nccl-gid-index", "cce"), Status::Unknown);
    }

    #[test]
    fn advice_warns_and_does_not_know_better() {
        for (status, advice) in [
            (Status::Fail, Status::Warn),
            (Status::Warn, Status::Warn),
            (Status::Unknown, Status::Unknown),
            (Status::Pass, Status::Pass),
        ] {
            assert_eq!((Severity::Required.bound(status), Severity::Advice.bound(status)), (status, advice));
        }
    }

    #[test]
    fn an_unknown_is_never_a_pass() {
        let mut facts = good();
        facts.config.missing = true;
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Unknown);
        facts.python3 = None;
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Fail);
    }
}
