//! What there is to know of a check, for reports, `check --list` and `explain`.

use super::status::Severity;
use crate::targets::{TARGETS, Target};
use serde::Serialize;

/// One check, what it means, and how it judges: a function of its subject, by whose type a misplaced check does not compile.
#[derive(Debug, Clone, Serialize)]
pub struct Check<J> {
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
    pub(super) judge: J,
}

/// A check of any subject, with the subject's kind.
pub type ListedCheck = Check<SubjectKind>;

/// What a check judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// What is in an image, and nothing else.
    Image,
    /// An image by the recipe that it was built from.
    Recipe,
    /// The run of a preflight.
    Run,
    /// A host's devices.
    Host,
    /// An image, a host or a run by an instance type that was named.
    Instance,
}

impl<J> Check<J> {
    /// What the check is for a target.
    pub fn severity_for(&self, target: &Target) -> Severity {
        self.exceptions.iter().find(|(id, _)| *id == target.id).map_or(self.severity, |(_, severity)| *severity)
    }

    /// The ids of the targets for which it has a severity.
    pub fn targets_with(&self, severity: Severity) -> Vec<&'static str> {
        TARGETS.iter().filter(|target| self.severity_for(target) == severity).map(|target| target.id).collect()
    }

    pub(super) fn listed(&self, judge: SubjectKind) -> ListedCheck {
        let Check { id, severity, exceptions, about, needs, why, remedy, source, .. } = *self;
        Check { id, severity, exceptions, about, needs, why, remedy, source, judge }
    }
}

impl ListedCheck {
    /// What it judges.
    pub fn subject(&self) -> SubjectKind {
        self.judge
    }
}
