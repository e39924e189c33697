//! What `check` and `build` share: target, policy and bar → a report of an image's facts.

use super::error::{CliError, Exit};
use crate::checks::{Bar, Subject, Verdict, check_image};
use crate::facts::ImageFacts;
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
fn parse_target(name: &str) -> Result<&'static Target, String> {
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

pub fn verdict_exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::ImageAtFault,
        Verdict::Unknown => Exit::NotExamined,
    }
}
