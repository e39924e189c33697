//! The run of a preflight → findings. As with images, a check reads facts and says what it found.
//!
//! [`REGISTRY`] holds every check; those of an image are in [`super::image::REGISTRY`].

mod container;
mod cuda;
mod data;
mod limits;
mod nccl;
mod ranks;
mod rdma;
mod registry;
mod settings;

pub use cuda::cuda_of_code;
pub use data::{average_busbw_gb_per_s, measured_rows, wrong_results};
pub use nccl::version_of_rank;
pub use ranks::{first_failure, say_failure};
pub use rdma::rdma_use;
pub use registry::REGISTRY;
pub use settings::{InEffect, in_effect};

use super::{Check, Finding, Outcome};
use crate::diagnosis::{Cause, CauseId};
use crate::facts::ImageFacts;
use crate::facts::run::{Ending, EnvironmentFacts, RunFacts};
use crate::facts::run_evidence::{LogEvidence, RankLine};
use crate::targets::Target;

/// The input of a run's check.
#[derive(Clone, Copy)]
pub struct RunSubject<'a> {
    pub run: &'a RunFacts,
    /// The image's facts; `None`: it was not inspected.
    pub facts: Option<&'a ImageFacts>,
    pub target: &'a Target,
    pub options: RunOptions,
}

/// The user's requirements for a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunOptions {
    /// Anything but proof that RDMA carried the data is a failure.
    pub require_rdma: bool,
    /// Least average bus bandwidth, in GB/s.
    pub min_busbw_gb_per_s: Option<f64>,
}

/// Result of a check; `Err`: the facts do not decide.
pub type Judged = Result<Outcome, Outcome>;

/// How a check judges.
pub type Judge = fn(&RunSubject<'_>) -> Judged;

/// Runs every check of a run.
pub fn check_run(subject: &RunSubject<'_>) -> Vec<Finding> {
    let judge = |check: &Check<Judge>| (check.judge)(subject).unwrap_or_else(|unknown| unknown);
    REGISTRY.iter().map(|check| judge(check).into_finding(check, subject.target)).collect()
}

impl<'a> RunSubject<'a> {
    /// What the container's processes see; `Err` if the agent did not get that far.
    fn environment(&self) -> Result<&'a EnvironmentFacts, Outcome> {
        self.run.environment.as_ref().ok_or_else(|| self.no_word())
    }

    /// The evidence in the logs; `Err` if there are none.
    fn evidence(&self) -> Result<&'a LogEvidence, Outcome> {
        self.started()?;
        self.run.evidence.as_ref().ok_or_else(|| Outcome::unknown("NCCL's logs were not read"))
    }

    /// `Err` where there is nothing to judge.
    fn started(&self) -> Result<(), Outcome> {
        match self.run.ending {
            Ending::NotStarted { .. } => Err(self.no_word()),
            Ending::Agent { .. } | Ending::ContainerEnded { .. } | Ending::TotalTimeout => Ok(()),
        }
    }

    fn no_word(&self) -> Outcome {
        Outcome::unknown(match self.run.ending {
            Ending::NotStarted { .. } => "the container did not start",
            Ending::Agent { .. } | Ending::ContainerEnded { .. } | Ending::TotalTimeout => {
                "the agent ended before it reported that"
            }
        })
    }

    fn causes(&self) -> impl Iterator<Item = &'a Cause> {
        self.run.evidence.iter().flat_map(|evidence| &evidence.causes)
    }

    /// The first of these causes that the logs show.
    fn cause(&self, ids: &[CauseId]) -> Option<&'a Cause> {
        self.causes().find(|cause| ids.contains(&cause.id))
    }

    /// The first warning that holds one of these texts.
    fn warned(&self, texts: &[&str]) -> Option<&'a RankLine> {
        let mut warnings = self.run.evidence.iter().flat_map(|evidence| &evidence.warnings);
        warnings.find(|warning| texts.iter().any(|text| warning.line.contains(text)))
    }
}

/// An outcome from a cause in the logs: summary, lines and remedy.
fn failed_by(cause: &Cause) -> Outcome {
    Outcome::fail(format!("{}: {}", cause.id, cause.summary))
        .evidence(cause.evidence.iter().cloned())
        .remedy(cause.remedy.as_str())
        .blame(cause.fault)
}

/// `rank 3: line`
fn say_line(line: &RankLine) -> String {
    format!("rank {}: {}", line.rank, line.line)
}

/// `1 rank`, `8 ranks`
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
pub mod testing {
    //! A good run to break in one place.
    use super::*;
    use crate::checks::image::testing::good;
    use crate::checks::{Bar, Status, Verdict, verdict};
    use crate::diagnosis::Fault;
    pub use crate::run_fixture::*;
    use crate::targets;

    pub fn findings_for(run: &RunFacts, facts: Option<&ImageFacts>, target: &str, options: RunOptions) -> Vec<Finding> {
        let target = targets::by_id(target).unwrap();
        check_run(&RunSubject { run, facts, target, options })
    }

    /// The finding of one check for PAI-DLC and the good image.
    pub fn found(run: &RunFacts, check: &str) -> Finding {
        found_with(run, check, RunOptions::default())
    }

    pub fn found_with(run: &RunFacts, check: &str, options: RunOptions) -> Finding {
        found_in(run, Some(&good()), check, options)
    }

    pub fn found_in(run: &RunFacts, facts: Option<&ImageFacts>, check: &str, options: RunOptions) -> Finding {
        findings_for(run, facts, "pai-dlc", options).into_iter().find(|finding| finding.check == check).unwrap()
    }

    /// Status, blame and words of a finding.
    #[track_caller]
    pub fn expect(finding: &Finding, status: Status, blame: Option<Fault>, words: &[&str]) {
        assert_eq!((finding.status, finding.blame), (status, blame), "{finding:#?}");
        let text = serde_json::to_string(finding).unwrap();
        for word in words {
            assert!(text.contains(word), "no {word:?} in {finding:#?}");
        }
    }

    #[test]
    fn the_good_run_passes_everything() {
        let options = RunOptions { require_rdma: true, min_busbw_gb_per_s: Some(10.0) };
        for target in ["pai-dlc", "ecs", "ack"] {
            let findings = findings_for(&good_run(), Some(&good()), target, options);
            let not_passed: Vec<_> =
                findings.iter().filter(|f| !matches!(f.status, Status::Pass | Status::Skip)).collect();
            assert!(not_passed.is_empty(), "{target}: {not_passed:#?}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_run_that_did_not_start() {
        let run = not_started(crate::facts::run::StartFailure::Other, "x");
        let findings = findings_for(&run, None, "pai-dlc", RunOptions::default());
        let passed: Vec<_> = findings.iter().filter(|f| f.status == Status::Pass).collect();
        assert!(passed.is_empty(), "{passed:#?}");
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Unknown);
    }

    /// Saved facts are judged as the run itself was.
    #[test]
    fn saved_facts_of_a_run() {
        for run in [good_run(), one_rank(), not_started(crate::facts::run::StartFailure::NoLoader, "x")] {
            let text = serde_json::to_string(&run).unwrap();
            assert_eq!(serde_json::from_str::<RunFacts>(&text).unwrap(), run);
        }
        // What an agent before the logs were read saved.
        let mut old = serde_json::to_value(good_run()).unwrap();
        old.as_object_mut().unwrap().retain(|key, _| key != "evidence" && key != "host_driver");
        assert_eq!(serde_json::from_value::<RunFacts>(old).unwrap().evidence, None);
    }

    /// Blame is assigned to problems only.
    #[test]
    fn blame_comes_with_a_fault() {
        for run in [good_run(), one_rank(), not_started(crate::facts::run::StartFailure::DeviceMissing, "x")] {
            for finding in findings_for(&run, Some(&good()), "pai-dlc", RunOptions::default()) {
                let is_fault = matches!(finding.status, Status::Fail | Status::Warn);
                assert!(is_fault || finding.blame.is_none(), "{finding:#?}");
            }
        }
    }
}
