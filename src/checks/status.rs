//! What comes of a check, and how much it counts.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
