//! `policy.toml` → [`Policy`]: a team's own requirements, in addition to the target's.
//!
//! Checks know nothing about policies. A policy changes the target's minimum versions before they run, and the severities
//! of the findings afterwards, in [`Policy::apply`] alone; the report lists what it changed.

use crate::checks::{self, Finding, Severity, Status};
use crate::remedy::Remedy;
use crate::targets::Target;
use crate::versions::{CudaVersion, NcclRequirement, parse_nccl_requirement};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A validated policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The file that it was read from, for people.
    pub name: String,
    checks: BTreeMap<&'static str, Rule>,
    minimum_nccl: Option<NcclRequirement>,
    minimum_cuda: Option<CudaVersion>,
}

/// A policy's setting for one check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    level: Level,
    reason: Option<String>,
}

/// A severity, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Required,
    Advice,
    /// The check's findings do not count.
    Off,
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Level {
        match severity {
            Severity::Required => Level::Required,
            Severity::Advice => Level::Advice,
        }
    }
}

/// The changes that a policy made, as reports show them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyUse {
    pub file: String,
    pub minimums: Vec<MinimumChange>,
    pub overrides: Vec<Override>,
}

/// A minimum version that differs from the target's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MinimumChange {
    /// `nccl` or `cuda`
    pub of: String,
    /// `None`: the target states none.
    pub was: Option<String>,
    pub now: String,
}

/// A check whose severity differs from the target's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Override {
    pub check: String,
    pub was: Level,
    pub now: Level,
    /// The check's own status, if the policy changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    minimum_nccl: Option<String>,
    minimum_cuda: Option<String>,
    #[serde(default)]
    checks: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    severity: Level,
    reason: Option<String>,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    #[error("checks.{id}: there is no such check")]
    UnknownCheck { id: String },
    #[error("checks.{id}: {message}")]
    Rule { id: String, message: String },
    #[error("minimum_nccl = {0:?} is not a version or a range of versions")]
    Nccl(String),
    #[error("minimum_cuda = {0:?} is not a version")]
    Cuda(String),
}

impl Remedy for PolicyError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            PolicyError::UnknownCheck { id } => suggest(id),
            PolicyError::Rule { .. } => {
                "write \"required\", \"advice\" or \"off\", or { severity = \"off\", reason = \"...\" }".to_owned()
            }
            PolicyError::Nccl(_) => "examples are \"2.21.5\" and \">=2.21, <2.28\"".to_owned(),
            PolicyError::Cuda(_) => "an example is \"12.4\"".to_owned(),
            PolicyError::Toml(_) => return None,
        })
    }
}

/// The suggestion for an unknown check id.
pub fn suggest(id: &str) -> String {
    match checks::closest(id)[..] {
        [] => "rdmaprep check --list lists the checks".to_owned(),
        ref ids => format!("did you mean {}?", ids.join(", ")),
    }
}

/// Reads the text of a policy; `name` is the file's.
///
/// # Errors
/// Text that is not TOML, unknown keys and checks, and invalid severities or versions.
pub fn parse_policy(name: &str, text: &str) -> Result<Policy, PolicyError> {
    let raw: RawPolicy = toml::from_str(text).map_err(|error| PolicyError::Toml(Box::new(error)))?;
    let mut rules = BTreeMap::new();
    for (id, value) in raw.checks {
        let Some(check) = checks::by_id(&id) else { return Err(PolicyError::UnknownCheck { id }) };
        let rule = parse_rule(value).map_err(|error| PolicyError::Rule { id, message: error.message().to_owned() })?;
        rules.insert(check.id, rule);
    }
    let minimum_nccl = raw.minimum_nccl.map(parse_minimum_nccl).transpose()?;
    let minimum_cuda = raw.minimum_cuda.map(parse_minimum_cuda).transpose()?;
    Ok(Policy { name: name.to_owned(), checks: rules, minimum_nccl, minimum_cuda })
}

fn parse_rule(value: toml::Value) -> Result<Rule, toml::de::Error> {
    match value {
        toml::Value::String(_) => Ok(Rule { level: Level::deserialize(value)?, reason: None }),
        other => {
            let RawRule { severity, reason } = RawRule::deserialize(other)?;
            Ok(Rule { level: severity, reason })
        }
    }
}

fn parse_minimum_nccl(value: String) -> Result<NcclRequirement, PolicyError> {
    parse_nccl_requirement(&value).ok_or(PolicyError::Nccl(value))
}

fn parse_minimum_cuda(value: String) -> Result<CudaVersion, PolicyError> {
    match numbers(&value).as_deref() {
        Some(&[major, minor]) => Ok(CudaVersion::new(major, minor)),
        _ => Err(PolicyError::Cuda(value)),
    }
}

/// Only numbers between dots: what a person writes must not be guessed at.
fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()))).collect()
}

impl Policy {
    /// The target with the minimum versions of the policy, and what that changed.
    pub fn adjust(&self, target: &Target) -> (Target, Vec<MinimumChange>) {
        let mut adjusted = target.clone();
        let mut changes = Vec::new();
        let mut note = |of: &str, was: Option<String>, now: String| {
            if was.as_ref() != Some(&now) {
                changes.push(MinimumChange { of: of.to_owned(), was, now });
            }
        };
        if let Some(minimum) = &self.minimum_nccl {
            note("nccl", target.minimum_nccl.as_ref().map(NcclRequirement::as_written), minimum.as_written());
            adjusted.minimum_nccl = Some(minimum.clone());
        }
        if let Some(minimum) = self.minimum_cuda {
            note("cuda", target.minimum_cuda.map(|v| v.to_string()), minimum.to_string());
            adjusted.minimum_cuda = Some(minimum);
        }
        // The platform does not require what the policy requires.
        if !changes.is_empty() {
            adjusted.title = Cow::Owned(format!("{} under {}", target.title, self.name));
        }
        (adjusted, changes)
    }

    /// Applies the policy's severities to the findings: the only place where this happens.
    ///
    /// A warning from a check that the policy makes required is a failure, and a failure from a check that it makes advice
    /// is a warning. Unknown stays unknown.
    pub fn apply(&self, findings: &mut [Finding]) -> Vec<Override> {
        let mut overrides = Vec::new();
        for finding in findings {
            let Some(rule) = self.checks.get(finding.check.as_str()) else { continue };
            let was = Level::from(finding.severity);
            if was == rule.level {
                continue;
            }
            let found = finding.status;
            match rule.level {
                Level::Required => {
                    finding.severity = Severity::Required;
                    if found == Status::Warn {
                        finding.status = Status::Fail;
                    }
                }
                Level::Advice => {
                    finding.severity = Severity::Advice;
                    finding.status = finding.severity.bound(found);
                }
                Level::Off => {
                    finding.severity = Severity::Advice;
                    finding.status = Status::Skip;
                    finding.summary = format!("switched off by {}; it found: {}", self.name, finding.summary);
                }
            }
            overrides.push(Override {
                check: finding.check.clone(),
                was,
                now: rule.level,
                found: (found != finding.status).then_some(found),
                reason: rule.reason.clone(),
            });
        }
        overrides
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::image::testing::good;
    use crate::checks::{Bar, Subject, Verdict, check_image, verdict};
    use crate::facts::{AptSource, ImageFacts};
    use crate::remedy::with_remedy;
    use crate::targets;

    fn judge(facts: &ImageFacts, target: &str, policy: &str, bar: Bar) -> (Verdict, Vec<Finding>, PolicyUse) {
        let policy = parse_policy("ci.toml", policy).unwrap();
        let (target, minimums) = policy.adjust(targets::by_id(target).unwrap());
        let mut findings = check_image(&Subject { facts, target: &target });
        let overrides = policy.apply(&mut findings);
        (verdict(&findings, bar), findings, PolicyUse { file: policy.name, minimums, overrides })
    }

    fn status(findings: &[Finding], check: &str) -> Status {
        findings.iter().find(|finding| finding.check == check).unwrap().status
    }

    fn with_leftovers() -> ImageFacts {
        let mut facts = good();
        let lines = vec!["deb x".into()];
        facts.ofed.apt_sources.push(AptSource { path: "/etc/apt/sources.list.d/m.list".into(), lines, shared: false });
        facts
    }

    #[test]
    fn a_raised_check_fails_and_a_lowered_one_warns() {
        let (verdict, findings, used) =
            judge(&with_leftovers(), "pai-dlc", "[checks]\nofed-leftovers = 'required'\n", Bar::Fail);
        assert_eq!((verdict, status(&findings, "ofed-leftovers")), (Verdict::Fail, Status::Fail));
        let expected = Override {
            check: "ofed-leftovers".into(),
            was: Level::Advice,
            now: Level::Required,
            found: Some(Status::Warn),
            reason: None,
        };
        assert_eq!(used.overrides, [expected]);

        let mut facts = good();
        facts.python3 = None;
        let policy = "[checks.python3]\nseverity = 'advice'\nreason = 'the entrypoint is a binary'\n";
        let (verdict, findings, used) = judge(&facts, "pai-dlc", policy, Bar::Fail);
        assert_eq!((verdict, status(&findings, "python3")), (Verdict::Pass, Status::Warn));
        assert_eq!(used.overrides[0].reason.as_deref(), Some("the entrypoint is a binary"));
        // The bar counts it again.
        assert_eq!(judge(&facts, "pai-dlc", policy, Bar::Warn).0, Verdict::Fail);
    }

    #[test]
    fn a_check_that_is_off_says_what_it_found() {
        let mut facts = good();
        facts.python3 = None;
        let (verdict, findings, used) = judge(&facts, "pai-dlc", "[checks]\npython3 = 'off'\n", Bar::Warn);
        assert_eq!((verdict, status(&findings, "python3")), (Verdict::Pass, Status::Skip));
        assert_eq!((used.overrides[0].was, used.overrides[0].found), (Level::Required, Some(Status::Fail)));
    }

    #[test]
    fn what_is_not_known_does_not_become_known() {
        let mut facts = good();
        facts.config.missing = true;
        for (policy, verdict) in [("", Verdict::Unknown), ("[checks]\nimage-config = 'advice'", Verdict::Pass)] {
            let (found, findings, _) = judge(&facts, "pai-dlc", policy, Bar::Fail);
            assert_eq!((found, status(&findings, "image-config")), (verdict, Status::Unknown), "{policy}");
        }
        let policy = "[checks]\nimage-config = 'advice'";
        assert_eq!(judge(&facts, "pai-dlc", policy, Bar::Warn).0, Verdict::Unknown);
    }

    #[test]
    fn a_rule_that_changes_nothing_is_no_override() {
        let (_, _, used) =
            judge(&good(), "pai-dlc", "minimum_nccl = '2.19'\n[checks]\npython3 = 'required'\n", Bar::Fail);
        assert_eq!((used.overrides, used.minimums), (Vec::new(), Vec::new()));
    }

    #[test]
    fn minimums_are_raised_lowered_and_added() {
        // The good image has NCCL 2.21.5 and CUDA 12.4.
        for (target, policy, check, expected, was) in [
            ("pai-dlc", "minimum_nccl = '2.25'", "nccl-version", Status::Fail, Some("2.19.0")),
            ("pai-dlc", "minimum_nccl = '2.21.5'", "nccl-version", Status::Pass, Some("2.19.0")),
            ("ecs", "minimum_nccl = '2.25'", "nccl-version", Status::Fail, None),
            ("ecs", "minimum_nccl = '>=2.20, <2.28'", "nccl-version", Status::Pass, None),
            ("ecs", "minimum_nccl = '>=2.19, <2.21'", "nccl-version", Status::Fail, None),
            ("pai-dlc", "minimum_cuda = '12.6'", "cuda-version", Status::Fail, Some("12.1")),
        ] {
            let (_, findings, used) = judge(&good(), target, policy, Bar::Fail);
            assert_eq!(status(&findings, check), expected, "{policy}");
            assert_eq!(used.minimums[0].was.as_deref(), was);
        }
        let (_, findings, _) = judge(&good(), "pai-dlc", "minimum_nccl = '2.25'", Bar::Fail);
        let said = &findings.iter().find(|finding| finding.check == "nccl-version").unwrap().summary;
        assert!(said.contains("Alibaba PAI-DLC under ci.toml needs 2.25.0"), "{said}");
        let range = judge(&good(), "ecs", "minimum_nccl = '>=2.25, <2.28'", Bar::Fail);
        let finding = range.1.iter().find(|finding| finding.check == "nccl-version").unwrap();
        assert!(finding.summary.contains("needs >=2.25, <2.28"), "{finding:?}");
        assert_eq!(range.2.minimums[0].now, ">=2.25, <2.28");
        let mut old = good();
        for copy in &mut old.nccl {
            copy.version = Some("2.17.1".into());
        }
        assert_eq!(judge(&old, "pai-dlc", "minimum_nccl = '2.17'", Bar::Fail).0, Verdict::Pass);
        assert_eq!(judge(&old, "pai-dlc", "", Bar::Fail).0, Verdict::Fail);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, said) in [
            ("[checks]\nofed-package = 'off'", "did you mean ofed-packages"),
            ("[checks]\nzzz = 'off'", "rdmaprep check --list"),
            ("[checks]\npython3 = 'maybe'", "unknown variant `maybe`"),
            ("[checks]\npython3 = 1", "write \"required\""),
            ("[checks]\npython3 = { severity = 'off', why = 'x' }", "unknown field `why`"),
            ("[checks]\npython3 = { reason = 'x' }", "missing field `severity`"),
            ("minimum_nccl = '2'", "minimum_nccl = \"2\" is not a version"),
            ("minimum_nccl = '2.19.x'", "is not a version"),
            ("minimum_nccl = '>=2.28, <2.21'", "examples are \"2.21.5\" and \">=2.21, <2.28\""),
            ("minimum_cuda = '12.+4'", "is not a version"),
            ("minimum_cuda = 12.4", "invalid type"),
            ("fail = 'warn'", "unknown field `fail`"),
            ("[checks", "TOML parse error"),
        ] {
            let error = with_remedy(&parse_policy("ci.toml", text).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
