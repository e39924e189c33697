//! What `check`, `build` and `preflight` share: target, policy and bar → a report of an image's facts, or of a run.

use super::error::{CliError, Exit};
use crate::checks::{
    Bar, Blame, Finding, HostSubject, RunOptions, RunSubject, Status, Subject, Verdict, check_host, check_image,
    check_run,
};
use crate::facts::devices::DeviceFacts;
use crate::facts::run::{AgentEnding, Ending, RunFacts};
use crate::facts::{ImageFacts, ImageIdentity};
use crate::policy::{Policy, PolicyUse, parse_policy};
use crate::report::Report;
use crate::targets::{self, Target};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct JudgeArgs {
    /// Where the image is to run: pai-dlc, ecs, ack or cce
    #[arg(long, value_name = "NAME", default_value = "pai-dlc", value_parser = parse_target)]
    pub target: &'static Target,
    /// Policy (TOML) that changes severities and minimum versions
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What counts against the image: failures of required checks, or every warning too
    #[arg(long, value_name = "BAR", value_enum, default_value_t = FailOn::Fail)]
    fail_on: FailOn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Fail,
    Warn,
}

/// A target by its id, for clap.
pub fn parse_target(name: &str) -> Result<&'static Target, String> {
    targets::by_id(name).ok_or_else(|| format!("known targets: {}", targets::known()))
}

/// Judges images alike.
pub struct Judge {
    target: &'static Target,
    policy: Option<Policy>,
    bar: Bar,
}

impl JudgeArgs {
    /// Reads the policy, before any work is done.
    pub fn load(&self) -> Result<Judge, CliError> {
        let policy = match &self.policy {
            Some(path) => {
                let name = path.display().to_string();
                let text =
                    std::fs::read_to_string(path).map_err(|source| CliError::File { path: name.clone(), source })?;
                Some(parse_policy(&name, &text).map_err(|source| CliError::Policy { path: name, source })?)
            }
            None => None,
        };
        let bar = match self.fail_on {
            FailOn::Fail => Bar::Fail,
            FailOn::Warn => Bar::Warn,
        };
        Ok(Judge { target: self.target, policy, bar })
    }
}

impl Judge {
    pub fn judge(&self, facts: &ImageFacts) -> Report {
        let Some(policy) = &self.policy else {
            let findings = check_image(&Subject { facts, target: self.target });
            return Report::new(facts, self.target, findings, self.bar, None);
        };
        let (target, minimums) = policy.adjust(self.target);
        let mut findings = check_image(&Subject { facts, target: &target });
        let overrides = policy.apply(&mut findings);
        let used = PolicyUse { file: policy.name.clone(), minimums, overrides };
        Report::new(facts, &target, findings, self.bar, Some(used))
    }
}

/// What a run is judged with.
pub struct RunContext<'a> {
    pub image: ImageIdentity,
    /// What is in the image, where it was inspected.
    pub facts: Option<&'a ImageFacts>,
    /// Whether the checks of the image count, too.
    pub checks_image: bool,
    pub options: RunOptions,
}

impl Judge {
    /// Judges the run of a preflight.
    pub fn judge_run(&self, run: RunFacts, context: RunContext<'_>) -> Report {
        let (adjusted, minimums) = match &self.policy {
            Some(policy) => policy.adjust(self.target),
            None => (self.target.clone(), Vec::new()),
        };
        let RunContext { image, facts, checks_image, options } = context;
        let target = &adjusted;
        let mut findings = match facts {
            Some(facts) if checks_image => check_image(&Subject { facts, target }),
            Some(_) | None => Vec::new(),
        };
        findings.extend(check_run(&RunSubject { run: &run, facts, target, options }));
        let used = self.policy.as_ref().map(|policy| {
            let overrides = policy.apply(&mut findings);
            PolicyUse { file: policy.name.clone(), minimums, overrides }
        });
        Report::of_run(image, run, target, findings, self.bar, used)
    }
}

impl Judge {
    /// Judges a host's devices; `nics`: how many of the fabric there should be.
    pub fn judge_host(&self, facts: DeviceFacts, nics: Option<u32>) -> Report {
        let (target, minimums) = match &self.policy {
            Some(policy) => policy.adjust(self.target),
            None => (self.target.clone(), Vec::new()),
        };
        let mut findings = check_host(&HostSubject { facts: &facts, target: &target, nics });
        let used = self.policy.as_ref().map(|policy| {
            let overrides = policy.apply(&mut findings);
            PolicyUse { file: policy.name.clone(), minimums, overrides }
        });
        Report::of_host(facts, &target, findings, self.bar, used)
    }
}

/// The exit code of a host's verdict: no image is at fault.
pub fn host_exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::Host,
        Verdict::Unknown => Exit::NotExamined,
    }
}

/// The exit code of a preflight, by what counts against the image and by how the run ended.
///
/// - Interrupted is interrupted, whatever was found until then.
/// - Wrong data is 1, even where the time ran out afterwards: no other finding may hide it, and no fact of one run clears the
///   image of it (see `data-correct`).
/// - A time limit is 5. What stood in the way is in the findings.
/// - Failures are the host's (4) where all of them are blamed on host or settings. One that nobody is blamed for counts
///   against the image (1): a pipeline must not take it for a machine to be swapped.
/// - Nothing failed and something is not known: 3.
pub fn preflight_exit(findings: &[Finding], bar: Bar, ending: &Ending) -> Exit {
    let interrupted = Ending::Agent { ending: AgentEnding::Interrupted };
    let is_corrupt = |finding: &Finding| finding.check == "data-correct" && finding.status == Status::Fail;
    if *ending == interrupted {
        return Exit::Interrupted;
    }
    if findings.iter().any(|finding| is_corrupt(finding) && finding.weight(bar) == Verdict::Fail) {
        return Exit::ImageAtFault;
    }
    match ending {
        Ending::TotalTimeout | Ending::Agent { ending: AgentEnding::PhaseTimeout | AgentEnding::TotalTimeout } => {
            return Exit::TimeLimit;
        }
        Ending::Agent { .. } | Ending::NotStarted { .. } | Ending::ContainerEnded { .. } => {}
    }
    let mut failed = findings.iter().filter(|finding| finding.weight(bar) == Verdict::Fail).peekable();
    if failed.peek().is_some() {
        let is_elsewhere = |finding: &Finding| matches!(finding.blame, Some(Blame::Host | Blame::Settings));
        return if failed.all(is_elsewhere) { Exit::Host } else { Exit::ImageAtFault };
    }
    verdict_exit(crate::checks::verdict(findings, bar))
}

pub fn verdict_exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::ImageAtFault,
        Verdict::Unknown => Exit::NotExamined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Severity;
    use crate::checks::run::testing::{failed, good_run, not_started, one_rank, silent};
    use crate::checks::testing::good;
    use crate::facts::run::{Failure, Phase, StartFailure};

    fn finding(check: &str, severity: Severity, status: Status, blame: Option<Blame>) -> Finding {
        let summary = String::new();
        Finding { check: check.into(), severity, status, summary, evidence: Vec::new(), remedy: None, blame }
    }

    fn judge() -> Judge {
        Judge { target: targets::by_id("pai-dlc").unwrap(), policy: None, bar: Bar::Fail }
    }

    fn exit_of(run: &RunFacts) -> Exit {
        let facts = good();
        let context = RunContext {
            image: facts.image.clone(),
            facts: Some(&facts),
            checks_image: true,
            options: RunOptions::default(),
        };
        let report = judge().judge_run(run.clone(), context);
        preflight_exit(&report.findings, report.fail_on, &run.ending)
    }

    #[test]
    fn exit_codes_of_findings() {
        use Blame::{Host, Image, Settings};
        use Severity::{Advice, Required};
        use Status::{Fail, Pass, Unknown, Warn};
        let complete = Ending::Agent { ending: AgentEnding::Complete };
        for (found, exit) in [
            (vec![], Exit::Ok),
            (vec![(Required, Pass, None), (Advice, Warn, Some(Host))], Exit::Ok),
            (vec![(Required, Fail, Some(Image))], Exit::ImageAtFault),
            (vec![(Required, Fail, None)], Exit::ImageAtFault),
            (vec![(Required, Fail, Some(Host)), (Required, Fail, Some(Settings))], Exit::Host),
            (vec![(Required, Fail, Some(Host)), (Required, Fail, Some(Image))], Exit::ImageAtFault),
            (vec![(Required, Fail, Some(Host)), (Required, Unknown, None)], Exit::Host),
            (vec![(Required, Pass, None), (Required, Unknown, None)], Exit::NotExamined),
            (vec![(Advice, Unknown, None)], Exit::Ok),
        ] {
            let findings: Vec<Finding> =
                found.iter().map(|(severity, status, blame)| finding("x", *severity, *status, *blame)).collect();
            assert_eq!(preflight_exit(&findings, Bar::Fail, &complete), exit, "{found:?}");
        }
        let warned = [finding("x", Advice, Warn, Some(Host))];
        assert_eq!(preflight_exit(&warned, Bar::Warn, &complete), Exit::Host);
    }

    #[test]
    fn wrong_data_is_hidden_by_no_time_limit() {
        let timeout = Ending::Agent { ending: AgentEnding::PhaseTimeout };
        let corrupt = [finding("data-correct", Severity::Required, Status::Fail, Some(Blame::Image))];
        let other = [finding("rdma-used", Severity::Required, Status::Fail, Some(Blame::Image))];
        assert_eq!(preflight_exit(&corrupt, Bar::Fail, &timeout), Exit::ImageAtFault);
        assert_eq!(preflight_exit(&other, Bar::Fail, &timeout), Exit::TimeLimit);
        assert_eq!(preflight_exit(&other, Bar::Fail, &Ending::TotalTimeout), Exit::TimeLimit);
        let interrupted = Ending::Agent { ending: AgentEnding::Interrupted };
        assert_eq!(preflight_exit(&corrupt, Bar::Fail, &interrupted), Exit::Interrupted);
    }

    #[test]
    fn exit_codes_of_runs() {
        assert_eq!(exit_of(&good_run()), Exit::Ok);
        assert_eq!(exit_of(&one_rank()), Exit::Ok);
        assert_eq!(exit_of(&not_started(StartFailure::NvidiaToolkitMissing, "x")), Exit::Host);
        assert_eq!(exit_of(&not_started(StartFailure::NoLoader, "x")), Exit::ImageAtFault);
        assert_eq!(exit_of(&not_started(StartFailure::Other, "x")), Exit::NotExamined);
        assert_eq!(exit_of(&failed(0, Phase::Init, Failure::Exit { code: 1 })), Exit::ImageAtFault);
        assert_eq!(exit_of(&silent(&[(0, true)], Phase::Init, None)), Exit::TimeLimit);
    }

    #[test]
    fn a_policy_moves_checks_of_a_run_too() {
        let text = "[checks]\ncontainer-start = 'off'\nrdma-used = 'advice'\n";
        let policy = Some(parse_policy("p.toml", text).unwrap());
        let judge = Judge { policy, ..judge() };
        let run = not_started(StartFailure::NvidiaToolkitMissing, "x");
        let context =
            RunContext { image: good().image, facts: None, checks_image: true, options: RunOptions::default() };
        let report = judge.judge_run(run, context);
        // What is switched off does not make a run that never was a pass.
        assert_eq!(report.verdict, Verdict::Unknown);
        assert_eq!(report.policy.unwrap().overrides.len(), 2);
    }
}
