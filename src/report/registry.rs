//! The registry of checks, as `check --list` and `explain` show it.

use super::Style;
use crate::checks::{self, ListedCheck, Severity, SubjectKind};
use crate::targets::{TARGETS, Target};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Everything about every check, for machines.
#[derive(Debug, Serialize)]
pub struct RegistryListing {
    pub schema_version: u32,
    pub rdmaprep_version: &'static str,
    pub checks: Vec<CheckEntry>,
}

/// Everything about one check.
#[derive(Debug, Serialize)]
pub struct CheckEntry {
    #[serde(flatten)]
    check: ListedCheck,
    /// What it judges: `image`, an image by its `recipe`, the run of a `preflight`, `host`, or the requirements of an
    /// `instance` type.
    judges: &'static str,
    /// Target → the check's severity for it.
    severity_by_target: BTreeMap<&'static str, Severity>,
}

impl RegistryListing {
    pub fn new() -> RegistryListing {
        RegistryListing {
            schema_version: 1,
            rdmaprep_version: env!("CARGO_PKG_VERSION"),
            checks: checks::all().map(CheckEntry::new).collect(),
        }
    }
}

impl Default for RegistryListing {
    fn default() -> RegistryListing {
        RegistryListing::new()
    }
}

impl CheckEntry {
    pub fn new(check: ListedCheck) -> CheckEntry {
        let severity_by_target = TARGETS.iter().map(|target| (target.id, check.severity_for(target))).collect();
        let judges = judges(&check);
        CheckEntry { check, judges, severity_by_target }
    }
}

fn judges(check: &ListedCheck) -> &'static str {
    match check.subject() {
        SubjectKind::Image => "image",
        SubjectKind::Recipe => "recipe",
        SubjectKind::Run => "preflight",
        SubjectKind::Host => "host",
        SubjectKind::Instance => "instance",
    }
}

/// Writes a line per check, with its severity for a target and what it judges.
pub fn write_list(out: &mut dyn Write, target: &Target) -> io::Result<()> {
    for check in checks::all() {
        let severity = severity_word(check.severity_for(target));
        writeln!(out, "{:<20} {severity:<9} {:<10} {}", check.id, judges(&check), check.about)?;
    }
    Ok(())
}

/// Writes everything about one check.
pub fn write_explanation(out: &mut dyn Write, check: &ListedCheck, style: Style) -> io::Result<()> {
    let required = check.targets_with(Severity::Required);
    let advice = check.targets_with(Severity::Advice);
    let severity: Vec<String> = [(Severity::Required, required), (Severity::Advice, advice)]
        .into_iter()
        .filter(|(_, targets)| !targets.is_empty())
        .map(|(severity, targets)| format!("{} for {}", severity_word(severity), targets.join(", ")))
        .collect();
    let judged = match check.subject() {
        SubjectKind::Image => "an image",
        SubjectKind::Recipe => "an image that was built from a recipe",
        SubjectKind::Run => "the run of a preflight",
        SubjectKind::Host => "the devices of a host",
        SubjectKind::Instance => "an image or a run for an instance type (--instance)",
    };
    writeln!(out, "{}  {}", style.bold(check.id), check.about)?;
    for (name, text) in [
        ("severity", severity.join("; ").as_str()),
        ("judges", judged),
        ("needs", check.needs.join(", ").as_str()),
        ("meaning", check.why),
        ("remedy", check.remedy),
        ("source", check.source),
    ] {
        for (at, line) in fold(text).iter().enumerate() {
            writeln!(out, "  {:<9} {line}", if at == 0 { name } else { "" })?;
        }
    }
    Ok(())
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Required => "required",
        Severity::Advice => "advice",
    }
}

/// Wraps words into lines of at most this many characters, if the words allow it.
const WIDTH: usize = 98;

fn fold(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
