//! Report → JUnit XML: a test case for every check.
//!
//! A failure counts against the image; an undetermined check is an error, never a pass; a warning that does not count is
//! a passed test with the warning as its output.

use super::{Report, details, status_word};
use crate::checks::{self, Finding, Status, SubjectKind, Verdict};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::io::{self, Write};

/// Writes the report as JUnit XML.
pub fn write_junit(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut suite = TestSuite::new(format!("{} for {}", report.subject(), report.target));
    suite.add_property(("rdmaprep.version", report.rdmaprep_version.as_str()));
    suite.add_property(("rdmaprep.target", report.target.as_str()));
    if let Some(image) = &report.image {
        suite.add_property(("rdmaprep.image.id", image.id.as_str()));
    }
    if let Some(run) = &report.run {
        suite.add_property(("rdmaprep.rdma", super::visible(&run.rdma_line()).trim_start_matches("RDMA: ")));
        if let Some(average) = run.average_busbw_gb_per_s {
            suite.add_property(("rdmaprep.average_busbw_gb_per_s", format!("{average:.4}").as_str()));
        }
    }
    suite.add_test_cases(report.findings.iter().map(|finding| test_case(report, finding)));
    let mut junit = quick_junit::Report::new("rdmaprep");
    junit.add_test_suite(suite);
    junit.serialize(out).map_err(io::Error::other)
}

fn test_case(report: &Report, finding: &Finding) -> TestCase {
    let mut warning = None;
    let status = match (finding.status, finding.weight(report.fail_on)) {
        (Status::Skip, _) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(super::visible(&finding.summary).as_ref());
            status
        }
        (Status::Unknown, _) => non_success(NonSuccessKind::Error, finding),
        (Status::Fail | Status::Warn, Verdict::Fail) => non_success(NonSuccessKind::Failure, finding),
        (Status::Fail | Status::Warn, _) => {
            warning = Some(format!("{}: {}", status_word(finding.status), details(finding)));
            TestCaseStatus::success()
        }
        (Status::Pass, _) => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(finding.check.as_str(), status);
    let part = match checks::by_id(&finding.check).map(|check| check.subject()) {
        Some(SubjectKind::Run) => "preflight.",
        Some(SubjectKind::Host) => "host.",
        Some(SubjectKind::Instance) => "instance.",
        Some(SubjectKind::Image | SubjectKind::Recipe) | None => "",
    };
    case.set_classname(format!("rdmaprep.{part}{}", report.target));
    if let Some(warning) = warning {
        case.set_system_out(warning);
    }
    case
}

fn non_success(kind: NonSuccessKind, finding: &Finding) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(status_word(finding.status));
    status.set_message(super::visible(&finding.summary).as_ref());
    status.set_description(details(finding));
    status
}
