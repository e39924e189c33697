//! The formats of a report, and the one place that writes them.

use super::{
    Report, Style, write_check, write_github, write_host_check, write_junit, write_nccl_tests, write_preflight,
    write_sarif,
};
use crate::checks::recipe::NOT_STATED;
use serde::Serialize;
use std::io::{self, Write};

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    /// JUnit XML.
    Junit,
    /// SARIF 2.1.0.
    Sarif,
    /// Workflow commands of GitHub Actions.
    Github,
    /// The output of nccl-tests' `all_reduce_perf`; for a report with a run.
    NcclTests,
}

impl Format {
    /// The formats of every report.
    pub const OF_REPORTS: &[Format] = &[Format::Text, Format::Json, Format::Junit, Format::Sarif, Format::Github];
    /// The formats of a report with a run.
    pub const OF_RUNS: &[Format] =
        &[Format::Text, Format::Json, Format::Junit, Format::Sarif, Format::Github, Format::NcclTests];
    /// The formats of what is not judged.
    pub const OF_FACTS: &[Format] = &[Format::Text, Format::Json];

    /// The word for it on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Junit => "junit",
            Format::Sarif => "sarif",
            Format::Github => "github",
            Format::NcclTests => "nccl-tests",
        }
    }

    /// Whether it can say only what was judged.
    pub fn is_of_a_verdict(self) -> bool {
        !Format::OF_FACTS.contains(&self)
    }
}

/// Writes a report in a format; `all`: text shows what passed, too.
///
/// # Errors
/// `out` cannot be written to.
pub fn write_report(out: &mut dyn Write, report: &Report, format: Format, all: bool, style: Style) -> io::Result<()> {
    match format {
        Format::Text if report.run.is_some() => write_preflight(out, report, all, style),
        Format::Text if report.host.is_some() => write_host_check(out, report, all, style),
        Format::Text => {
            write_check(out, report, all, style)?;
            write_rest(out, report)
        }
        Format::Json => write_json(out, report),
        Format::Junit => write_junit(out, report),
        Format::Sarif => write_sarif(out, report),
        Format::Github => write_github(out, report),
        Format::NcclTests => match &report.run {
            Some(run) => write_nccl_tests(out, &run.facts),
            None => Ok(()),
        },
    }
}

/// How to know what a recipe alone does not say.
fn write_rest(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let untold = report.findings.iter().find(|finding| finding.summary == NOT_STATED);
    match untold.and_then(|finding| finding.remedy.as_ref()) {
        Some(command) => writeln!(out, "only the image itself can show the rest: {command}"),
        None => Ok(()),
    }
}

/// Writes a value as indented JSON, with a newline at its end.
///
/// # Errors
/// `out` cannot be written to.
pub fn write_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
