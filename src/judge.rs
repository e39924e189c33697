//! Judging: facts, a target and a policy → a report and its exit code.

use crate::checks::recipe::{RecipeSubject, check_built, check_stated};
use crate::checks::{
    Bar, Finding, HostSubject, InstanceSubject, Measured, RunOptions, RunSubject, Status, Subject, Verdict, check_host,
    check_image, check_instance, check_run,
};
use crate::diagnosis::Fault;
use crate::fabric::Fabric;
use crate::facts::devices::DeviceFacts;
use crate::facts::run::{AgentEnding, Ending, RunFacts};
use crate::facts::{ImageFacts, ImageIdentity};
use crate::policy::{MinimumChange, Policy, PolicyUse};
use crate::recipe::Recipe;
use crate::report::{RecipeIdentity, Report};
use crate::targets::{self, ChosenInstance, Target};

/// Exit codes of the process. The numbers are part of the command line's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Every required check passed.
    Ok,
    /// The image is at fault.
    ImageAtFault,
    /// Bad usage or bad recipe.
    Usage,
    /// The image could not be examined, or a required check stayed unknown.
    NotExamined,
    /// The host or a service that it needs is at fault, not the image.
    Host,
    /// A time limit was reached.
    TimeLimit,
    /// Interrupted; nothing is left running.
    Interrupted,
}

impl Exit {
    /// The number that the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::ImageAtFault => 1,
            Exit::Usage => 2,
            Exit::NotExamined => 3,
            Exit::Host => 4,
            Exit::TimeLimit => 5,
            Exit::Interrupted => 130,
        }
    }
}

/// The default target: for a recipe of another fabric than the usual one, where its publisher intends it to run, else the
/// first target that has the fabric.
pub fn default_target(recipe: Option<&Recipe>) -> &'static Target {
    let usual = targets::TARGETS[0];
    let Some(recipe) = recipe.filter(|recipe| recipe.fabric.id != usual.fabric.id) else {
        return usual;
    };
    let of_fabric = || targets::TARGETS.into_iter().find(|target| target.fabric.id == recipe.fabric.id);
    recipe.target.or_else(of_fabric).unwrap_or(usual)
}

/// The rules by which images, runs and hosts are judged.
pub struct Judge {
    /// Where the image will run.
    pub target: &'static Target,
    /// The instance type that it will run on, whose checks are added.
    pub instance: Option<ChosenInstance>,
    /// Changes severities and minimum versions.
    pub policy: Option<Policy>,
    /// The threshold from which a finding counts.
    pub bar: Bar,
}

impl Judge {
    /// The fabric of the target.
    pub fn fabric(&self) -> &'static Fabric {
        self.target.fabric
    }

    /// A judge for a target, without instance type or policy, for which only failures of required checks count.
    pub fn new(target: &'static Target) -> Judge {
        Judge { target, instance: None, policy: None, bar: Bar::Fail }
    }

    /// Judges an image by its facts.
    pub fn judge(&self, facts: &ImageFacts) -> Report {
        let (target, minimums) = self.adjusted();
        let mut findings = check_image(&Subject { facts, target: &target });
        findings.extend(self.check_instance(&target, Some(facts), None, &Measured::NotAsked));
        let used = self.apply_policy(&mut findings, minimums);
        Report::new(facts, &target, findings, self.bar, used).on(self.instance.map(Into::into))
    }

    /// Judges an image that was built from a recipe.
    pub fn judge_built(&self, facts: &ImageFacts, recipe: &Recipe) -> Report {
        let (target, minimums) = self.adjusted();
        let mut findings = check_image(&Subject { facts, target: &target });
        findings.extend(check_built(&RecipeSubject { recipe, facts }, &target));
        findings.extend(self.check_instance(&target, Some(facts), None, &Measured::NotAsked));
        let used = self.apply_policy(&mut findings, minimums);
        let report = Report::new(facts, &target, findings, self.bar, used).on(self.instance.map(Into::into));
        Report { recipe: Some(RecipeIdentity::new(recipe)), ..report }
    }

    /// Judges what a recipe states; `call` is its name on a command line.
    pub fn judge_stated(&self, recipe: &Recipe, call: &str) -> Report {
        let (target, minimums) = self.adjusted();
        let mut findings = check_stated(recipe, call, &target);
        if let Some(chosen) = self.instance {
            let measured = &Measured::NotAsked;
            let (target, image_name) = (&target, Some(recipe.base()));
            let subject = InstanceSubject { chosen, target, facts: None, image_name, run: None, measured };
            findings.extend(check_instance(&subject));
        }
        let used = self.apply_policy(&mut findings, minimums);
        Report::of_recipe(recipe, &target, findings, self.bar, used).on(self.instance.map(Into::into))
    }

    /// The target under the policy, and what that changed.
    fn adjusted(&self) -> (Target, Vec<MinimumChange>) {
        match &self.policy {
            Some(policy) => policy.adjust(self.target),
            None => (self.target.clone(), Vec::new()),
        }
    }

    fn apply_policy(&self, findings: &mut [Finding], minimums: Vec<MinimumChange>) -> Option<PolicyUse> {
        let policy = self.policy.as_ref()?;
        let overrides = policy.apply(findings);
        Some(PolicyUse { file: policy.name.clone(), minimums, overrides })
    }

    /// The findings for the named instance type; none if no type was named.
    fn check_instance(
        &self,
        target: &Target,
        facts: Option<&ImageFacts>,
        run: Option<&RunFacts>,
        measured: &Measured,
    ) -> Vec<Finding> {
        let Some(chosen) = self.instance else { return Vec::new() };
        check_instance(&InstanceSubject { chosen, target, facts, image_name: None, run, measured })
    }
}

/// The inputs for judging a run.
pub struct RunContext<'a> {
    pub image: ImageIdentity,
    /// The image's facts, if it was inspected.
    pub facts: Option<&'a ImageFacts>,
    /// Whether the checks of the image count too.
    pub checks_image: bool,
    pub options: RunOptions,
}

impl Judge {
    /// Judges the run of a preflight.
    pub fn judge_run(&self, run: RunFacts, context: RunContext<'_>) -> Report {
        let (adjusted, minimums) = self.adjusted();
        let RunContext { image, facts, checks_image, options } = context;
        let target = &adjusted;
        let judged = facts.filter(|_| checks_image);
        let mut findings = judged.map(|facts| check_image(&Subject { facts, target })).unwrap_or_default();
        findings.extend(check_run(&RunSubject { run: &run, facts, target, options }));
        findings.extend(self.check_instance(target, judged, Some(&run), &Measured::of_run(&run)));
        let used = self.apply_policy(&mut findings, minimums);
        Report::of_run(image, run, target, findings, self.bar, used).on(self.instance.map(Into::into))
    }
}

impl Judge {
    /// Judges a host's devices; `nics`: the expected number, overriding the instance type's.
    pub fn judge_host(&self, facts: DeviceFacts, nics: Option<u32>) -> Report {
        let (target, minimums) = self.adjusted();
        let subject = HostSubject { facts: &facts, target: &target, nics, instance: self.instance };
        let mut findings = check_host(&subject);
        findings.extend(self.check_instance(&target, None, None, &Measured::NotAsked));
        let used = self.apply_policy(&mut findings, minimums);
        Report::of_host(facts, &target, findings, self.bar, used).on(self.instance.map(Into::into))
    }
}

/// The exit code of a host's verdict: never that of an image at fault.
pub fn host_exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::Host,
        Verdict::Unknown => Exit::NotExamined,
    }
}

/// The exit code of a preflight, from what counts against the image and how the run ended.
///
/// - An interrupt takes precedence, whatever was found until then.
/// - Wrong data is 1, even if the time ran out afterwards: no other finding may hide it, and no fact of one run clears the
///   image of it (see `data-correct`).
/// - A time limit is 5. The findings show the obstacle.
/// - Failures are the host's (4) if all of them are blamed on host or settings. A failure without blame counts against
///   the image (1): a pipeline must not replace a machine because of it.
/// - Nothing failed, but something is unknown: 3.
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
        let is_elsewhere = |finding: &Finding| matches!(finding.blame, Some(Fault::Host | Fault::Launch | Fault::Job));
        return if failed.all(is_elsewhere) { Exit::Host } else { Exit::ImageAtFault };
    }
    verdict_exit(crate::checks::verdict(findings, bar))
}

/// The exit code of an image's verdict.
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
    use crate::checks::image::testing::good;
    use crate::checks::run::testing::{failed, good_run, not_started, one_rank, silent};
    use crate::facts::run::{Failure, Phase, StartFailure};
    use crate::policy::parse_policy;
    use crate::targets::choose_instance;

    fn finding(check: &str, severity: Severity, status: Status, blame: Option<Fault>) -> Finding {
        let summary = String::new();
        Finding { check: check.into(), severity, status, summary, evidence: Vec::new(), remedy: None, blame }
    }

    fn judge() -> Judge {
        Judge::new(targets::by_id("pai-dlc").unwrap())
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
        use Fault::{Host, Image, Launch};
        use Severity::{Advice, Required};
        use Status::{Fail, Pass, Unknown, Warn};
        let complete = Ending::Agent { ending: AgentEnding::Complete };
        for (found, exit) in [
            (vec![], Exit::Ok),
            (vec![(Required, Pass, None), (Advice, Warn, Some(Host))], Exit::Ok),
            (vec![(Required, Fail, Some(Image))], Exit::ImageAtFault),
            (vec![(Required, Fail, None)], Exit::ImageAtFault),
            (vec![(Required, Fail, Some(Host)), (Required, Fail, Some(Launch))], Exit::Host),
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
        let corrupt = [finding("data-correct", Severity::Required, Status::Fail, Some(Fault::Image))];
        let other = [finding("rdma-used", Severity::Required, Status::Fail, Some(Fault::Image))];
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
    fn a_type_s_checks_count_and_blame_the_host() {
        let facts = good();
        let judged = |name: &str, run: RunFacts| {
            let instance = Some(choose_instance(targets::by_id("pai-dlc").unwrap(), name).unwrap());
            let context = RunContext {
                image: facts.image.clone(),
                facts: Some(&facts),
                checks_image: true,
                options: RunOptions::default(),
            };
            let ending = run.ending.clone();
            let report = Judge { instance, ..judge() }.judge_run(run, context);
            let exit = preflight_exit(&report.findings, report.fail_on, &ending);
            (report.instance.unwrap().name, report.run.unwrap().at_fault, exit)
        };
        // The good run's host has one device.
        let one = judged("gn8is.2xlarge", good_run());
        assert_eq!(one, ("ecs.gn8is.2xlarge".to_owned(), None, Exit::Ok));
        let two = judged("ebmgn8v.48xlarge", good_run());
        assert_eq!(two, ("ecs.ebmgn8v.48xlarge".to_owned(), Some(Fault::Host), Exit::Host));
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
        // A switched-off check does not turn a run that never happened into a pass.
        assert_eq!(report.verdict, Verdict::Unknown);
        assert_eq!(report.policy.unwrap().overrides.len(), 2);
    }
}
