//! Report → SARIF 2.1.0: the checks are the rules, and findings that did not pass are the results.
//!
//! Locations are paths in the image, relative to its root. An undetermined check is a result of kind `open`, and also a
//! notification, because viewers often show only results of kind `fail` (SARIF 2.1.0, 3.27.9 and 3.20.21).

use super::{Report, details, status_word};
use crate::checks::{self, Finding, ListedCheck, Severity, Status, SubjectKind, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Name for the root of the image, or of the host, in `uriBaseId`.
fn root(report: &Report) -> &'static str {
    if report.host.is_some() { "HOST" } else { "IMAGE" }
}

/// Writes the report as one SARIF run.
pub fn write_sarif(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let not_passed = || report.findings.iter().filter(|f| !matches!(f.status, Status::Pass | Status::Skip));
    let of_status = |status| -> Vec<&str> {
        report.findings.iter().filter(|f| f.status == status).map(|f| f.check.as_str()).collect()
    };
    let notifications: Vec<Value> = not_passed()
        .filter(|finding| finding.status == Status::Unknown)
        .map(|finding| {
            json!({
                "level": if finding.weight(report.fail_on) == Verdict::Unknown { "error" } else { "warning" },
                "message": {"text": format!("could not be determined: {}", finding.summary)},
                "associatedRule": {"id": finding.check},
            })
        })
        .collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "rdmaprep",
                "version": report.rdmaprep_version,
                "rules": rules(report),
            }},
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notifications,
            }],
            "originalUriBaseIds": {root(report): {"description": {"text": format!("root directory of {}", report.subject())}}},
            "results": not_passed().map(|finding| result(report, finding)).collect::<Vec<_>>(),
            "properties": {
                "target": report.target,
                "verdict": super::verdict_word(report.verdict).to_ascii_lowercase(),
                "image": report.subject(),
                "imageId": report.image_id(),
                "policy": report.policy,
                "passed": of_status(Status::Pass),
                "skipped": of_status(Status::Skip),
            },
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

/// The checks that this report's findings are of; those of a run only where there was one, and
/// those of an instance type where one was named.
fn checks_of(report: &Report) -> Vec<ListedCheck> {
    let counts = |check: &ListedCheck| match check.subject() {
        SubjectKind::Instance => report.findings.iter().any(|finding| finding.check == check.id),
        SubjectKind::Host => report.host.is_some(),
        SubjectKind::Run => report.host.is_none() && report.run.is_some(),
        // It needs an image that was built from one.
        SubjectKind::Recipe => report.host.is_none() && report.recipe.is_some() && report.image.is_some(),
        SubjectKind::Image => report.host.is_none(),
    };
    checks::all().filter(counts).collect()
}

fn rules(report: &Report) -> Vec<Value> {
    checks_of(report)
        .into_iter()
        .map(|check| {
            // The severity in this report: for its target, and under its policy.
            let found = report.findings.iter().find(|finding| finding.check == check.id);
            let severity = found.map_or(check.severity, |finding| finding.severity);
            json!({
                "id": check.id,
                "shortDescription": {"text": check.about},
                "fullDescription": {"text": check.why},
                "help": {"text": format!("{}\nSource: {}", check.remedy, check.source)},
                "defaultConfiguration": {"level": match severity {
                    Severity::Required => "error",
                    Severity::Advice => "warning",
                }},
                "properties": {"needs": check.needs},
            })
        })
        .collect()
}

fn result(report: &Report, finding: &Finding) -> Value {
    // Any kind but `fail` must have the level `none` (3.27.10).
    let (kind, level) = match (finding.status, finding.weight(report.fail_on)) {
        (Status::Unknown, _) => ("open", "none"),
        (_, Verdict::Fail) => ("fail", "error"),
        (_, Verdict::Pass | Verdict::Unknown) => ("fail", "warning"),
    };
    json!({
        "ruleId": finding.check,
        "ruleIndex": checks_of(report).iter().position(|check| check.id == finding.check).map_or(-1, |at| at as i64),
        "kind": kind,
        "level": level,
        "message": {"text": details(finding)},
        "locations": locations(report, finding),
        "partialFingerprints": {"checkAndTarget/v1": format!("{}/{}", finding.check, report.target)},
        "properties": {
            "status": status_word(finding.status),
            "severity": finding.severity,
            "evidence": finding.evidence,
            "remedy": finding.remedy,
            "blame": finding.blame,
        },
    })
}

/// A location for every path that the finding names; without one, the image's root.
fn locations(report: &Report, finding: &Finding) -> Vec<Value> {
    // Kernel files in a container are not in its image; on a host they are what was examined.
    let is_there = |path: &&str| report.host.is_some() || !is_of_the_kernel(path);
    let mut paths: BTreeSet<&str> = finding.evidence.iter().flat_map(|text| paths_in(text)).filter(is_there).collect();
    if paths.is_empty() {
        paths.extend(paths_in(&finding.summary).filter(is_there));
    }
    if paths.is_empty() {
        paths.insert("/");
    }
    let location = |path: &&str| {
        let relative = path.trim_start_matches('/');
        let uri = if relative.is_empty() { "./".to_owned() } else { encode(relative) };
        json!({
            "physicalLocation": {"artifactLocation": {"uri": uri, "uriBaseId": root(report)}},
            "logicalLocations": [{"fullyQualifiedName": format!("{}:{path}", report.subject()), "kind": "resource"}],
        })
    };
    paths.iter().map(location).collect()
}

/// The absolute paths among the words of a text; a text that is a path as a whole may have spaces in it.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let whole =
        Some(text).filter(|text| text.starts_with('/') && ![": ", " (", ", "].iter().any(|mark| text.contains(mark)));
    let words = if whole.is_some() { "" } else { text };
    whole.into_iter().chain(words_that_are_paths(words))
}

fn words_that_are_paths(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', ';', '(', ')', '\n', '"'])
        .map(|word| word.trim_end_matches([':', '.']))
        .filter(|word| word.len() > 1 && word.starts_with('/'))
}

fn is_of_the_kernel(path: &str) -> bool {
    ["/dev/", "/proc/", "/sys/"].iter().any(|root| path.starts_with(root))
}

/// Percent-encodes a path for a URI (RFC 3986, 3.3). A colon too, since a first segment with one would read as a scheme.
fn encode(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'+' | b'@' | b'=' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_among_words() {
        let text =
            "linux/amd64: /usr/lib/libnccl.so.2 (system), /etc/libibverbs.d/a.driver; 12.4: /opt/x. http://h/p /";
        let paths: Vec<&str> = paths_in(text).collect();
        assert_eq!(paths, ["/usr/lib/libnccl.so.2", "/etc/libibverbs.d/a.driver", "/opt/x"]);
        for (text, paths) in [
            ("/etc/libibverbs.d/a b.driver", vec!["/etc/libibverbs.d/a b.driver"]),
            ("/usr/lib/libnccl.so.2 (system): 2.21.5", vec!["/usr/lib/libnccl.so.2"]),
            ("apt source /etc/a.list: deb [signed-by=/etc/k] http://h/p ./", vec!["/etc/a.list"]),
            ("12.4: CUDA_VERSION", vec![]),
        ] {
            assert_eq!(paths_in(text).collect::<Vec<_>>(), paths, "{text}");
        }
    }

    #[test]
    fn uris() {
        assert_eq!(encode("opt/a b/c:d#e/libstdc++.so"), "opt/a%20b/c%3Ad%23e/libstdc++.so");
        assert_eq!(encode("\u{e9}"), "%C3%A9");
    }
}
