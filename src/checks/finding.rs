//! What checks find, and what it comes to.

use super::record::Check;
use super::status::{Severity, Status};
use crate::diagnosis::{CauseId, Fault};
use crate::fabric::Fabric;
use crate::targets::Target;
use serde::{Deserialize, Serialize};

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

/// The result of a check, before its id is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub(super) status: Status,
    pub(super) summary: String,
    evidence: Vec<String>,
    remedy: Option<String>,
    blame: Option<Fault>,
}

impl Outcome {
    pub(super) fn new(status: Status, summary: impl Into<String>) -> Outcome {
        Outcome { status, summary: summary.into(), evidence: Vec::new(), remedy: None, blame: None }
    }

    pub(super) fn pass(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Pass, summary)
    }

    pub(super) fn warn(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Warn, summary)
    }

    pub(super) fn fail(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Fail, summary)
    }

    pub(super) fn unknown(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Unknown, summary)
    }

    pub(super) fn skip(summary: impl Into<String>) -> Outcome {
        Outcome::new(Status::Skip, summary)
    }

    pub(super) fn evidence(mut self, evidence: impl IntoIterator<Item = String>) -> Outcome {
        self.evidence.extend(evidence);
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Outcome {
        self.remedy = Some(remedy.into());
        self
    }

    pub(super) fn blame(mut self, blame: Fault) -> Outcome {
        self.blame = Some(blame);
        self
    }

    /// Names the cause, by the table, before the summary, and blames whom the table says.
    pub(super) fn named(mut self, id: CauseId) -> Outcome {
        self.summary = format!("{id}: {}", self.summary);
        self.blame(id.fault())
    }

    pub(super) fn into_finding<J>(self, check: &Check<J>, target: &Target) -> Finding {
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
pub(super) fn provider_missing(fabric: &Fabric) -> CauseId {
    match fabric.driver {
        "erdma" => CauseId::ErdmaProviderMissing,
        _ => CauseId::VerbsProviderMissing,
    }
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
