//! Report → workflow commands of GitHub Actions: a line for every finding that is not a pass, and one for the verdict.
//!
//! Format and escapes: GitHub documentation, "Workflow commands for GitHub Actions", and actions/toolkit,
//! `packages/core/src/command.ts` (`escapeData`, `escapeProperty`).

use super::{Report, details};
use crate::checks::{Finding, Status, Verdict};
use std::io::{self, Write};

/// Writes the annotations.
pub fn write_github(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        if let Some(level) = level(report, finding) {
            let title = escape_property(&format!("rdmaprep {}", finding.check));
            writeln!(out, "::{level} title={title}::{}", escape_data(&details(finding)))?;
        }
    }
    let level = match report.verdict {
        Verdict::Pass => "notice",
        Verdict::Fail | Verdict::Unknown => "error",
    };
    let message = format!("{}\n{}", super::visible(&report.headline()), report.subject());
    writeln!(out, "::{level} title=rdmaprep::{}", escape_data(&message))
}

fn level(report: &Report, finding: &Finding) -> Option<&'static str> {
    match (finding.weight(report.fail_on), finding.status) {
        (_, Status::Pass | Status::Skip) => None,
        (Verdict::Fail | Verdict::Unknown, _) => Some("error"),
        (Verdict::Pass, _) => Some("warning"),
    }
}

fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_message_ends_it_or_starts_a_command() {
        assert_eq!(escape_data("100%\r\n::error::x"), "100%25%0D%0A::error::x");
        assert_eq!(escape_property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
    }
}
