//! The run of a preflight as reports show it: its facts, and the numbers derived from them.

use crate::checks::run::{average_busbw_gb_per_s, first_failure, rdma_use, say_failure, wrong_results};
use crate::checks::{self, Bar, Finding, SubjectKind, Verdict};
use crate::diagnosis::Fault;
use crate::diagnosis::{GpuDirect, RdmaUse};
use crate::facts::run::{AgentEnding, DataType, Ending, Measured, RunFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What `preflight` adds to a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunReport {
    /// Whether RDMA carried the data between ranks.
    pub rdma: RdmaUse,
    /// The first piece of evidence for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_reason: Option<String>,
    pub gpu_direct: GpuDirect,
    /// Who has to change something if the verdict is `fail`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_fault: Option<Fault>,
    pub ranks: u32,
    /// Unweighted mean over all sizes and both placements, as in nccl-tests; absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_busbw_gb_per_s: Option<f64>,
    /// Measurements with wrong values: nccl-tests' "Out of bounds values".
    pub wrong_results: u64,
    pub rows: Vec<RowReport>,
    /// The run repeated over TCP, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_socket: Option<SocketReport>,
    pub facts: RunFacts,
}

/// A run over TCP, to compare with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SocketReport {
    /// Why it is incomplete, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Absent if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_busbw_gb_per_s: Option<f64>,
    /// Channels per transport, over all ranks: what the measurement really used.
    pub transports: BTreeMap<String, u64>,
    pub rows: Vec<RowReport>,
}

impl SocketReport {
    pub(super) fn new(run: &RunFacts) -> SocketReport {
        let complete = Ending::Agent { ending: AgentEnding::Complete };
        let failure = (run.ending != complete).then(|| match first_failure(run) {
            Some(failed) => format!("rank {} in {}: {}", failed.rank, failed.phase, say_failure(&failed.failure)),
            None => "it did not finish".to_owned(),
        });
        SocketReport {
            failure,
            average_busbw_gb_per_s: average_busbw_gb_per_s(run).filter(|average| average.is_finite()),
            transports: run.evidence.as_ref().map(|evidence| evidence.transports.clone()).unwrap_or_default(),
            rows: rows(run),
        }
    }
}

/// One size and type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RowReport {
    pub data_type: DataType,
    pub size_bytes: u64,
    pub count: u64,
    pub out_of_place: MeasuredReport,
    pub in_place: MeasuredReport,
}

/// One measurement, in nccl-tests' terms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredReport {
    pub time_us: f64,
    /// Absent if the time is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algbw_gb_per_s: Option<f64>,
    /// Absent if the time is zero; 0 with one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busbw_gb_per_s: Option<f64>,
    /// Wrong elements; absent if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<u64>,
}

impl RunReport {
    pub(super) fn new(run: RunFacts, findings: &[Finding], bar: Bar) -> RunReport {
        RunReport {
            rdma: rdma_use(&run),
            rdma_reason: run.evidence.as_ref().and_then(|evidence| evidence.rdma_reasons.first().cloned()),
            gpu_direct: run.evidence.as_ref().map_or(GpuDirect::Unknown, |evidence| evidence.gpu_direct),
            at_fault: at_fault(findings, bar),
            ranks: ranks(&run),
            average_busbw_gb_per_s: average_busbw_gb_per_s(&run).filter(|average| average.is_finite()),
            wrong_results: wrong_results(&run) as u64,
            rows: rows(&run),
            over_socket: None,
            facts: run,
        }
    }

    /// `RDMA: not exercised (there is one rank)`
    pub(super) fn rdma_line(&self) -> String {
        let word = match self.rdma {
            RdmaUse::Yes => "yes",
            RdmaUse::No => "no",
            RdmaUse::NotExercised => "not exercised",
            RdmaUse::Unknown => "unknown",
        };
        match &self.rdma_reason {
            Some(reason) => format!("RDMA: {word} ({reason})"),
            None => format!("RDMA: {word}"),
        }
    }
}

fn ranks(run: &RunFacts) -> u32 {
    u32::try_from(run.ranks.len()).unwrap_or(u32::MAX)
}

fn rows(run: &RunFacts) -> Vec<RowReport> {
    let measured = |size_bytes: u64, one: &Measured| {
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        MeasuredReport {
            time_us: one.time_us,
            algbw_gb_per_s: finite(one.algbw_gb_per_s(size_bytes)),
            busbw_gb_per_s: finite(one.busbw_gb_per_s(size_bytes, ranks(run))),
            wrong: one.wrong,
        }
    };
    let rows = run.rows.iter().map(|row| RowReport {
        data_type: row.data_type,
        size_bytes: row.size_bytes,
        count: row.count,
        out_of_place: measured(row.size_bytes, &row.out_of_place),
        in_place: measured(row.size_bytes, &row.in_place),
    });
    rows.collect()
}

/// The image, if any failure is its, as every failed check of an image is; nobody, if the fault of one failure is unknown;
/// else the host before the settings.
fn at_fault(findings: &[Finding], bar: Bar) -> Option<Fault> {
    let failed = findings.iter().filter(|finding| finding.weight(bar) == Verdict::Fail);
    let blamed: Vec<Option<Fault>> = failed
        .map(|finding| match checks::by_id(&finding.check) {
            Some(check) if check.subject() == SubjectKind::Image => Some(Fault::Image),
            Some(_) | None => finding.blame,
        })
        .collect();
    let order = [Some(Fault::Image), None, Some(Fault::Host), Some(Fault::Launch), Some(Fault::Job)];
    order.into_iter().find(|blame| blamed.contains(blame)).flatten()
}

pub(super) fn blame_words(blame: Fault) -> &'static str {
    match blame {
        Fault::Image => "the image is at fault",
        Fault::Host => "the host is at fault, not the image",
        Fault::Launch | Fault::Job => "the settings of the run are at fault, not the image",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{Severity, Status};

    #[test]
    fn whose_fault_it_is() {
        use Fault::{Host, Image, Launch};
        let finding = |check: &str, blame| Finding {
            check: check.into(),
            severity: Severity::Required,
            status: Status::Fail,
            summary: String::new(),
            evidence: Vec::new(),
            remedy: None,
            blame,
        };
        for (found, fault) in [
            (vec![], None),
            (vec![("memlock", Some(Launch)), ("rdma-devices", Some(Host))], Some(Host)),
            (vec![("memlock", Some(Launch))], Some(Launch)),
            (vec![("ranks-complete", None), ("rdma-devices", Some(Host))], None),
            (vec![("ranks-complete", None), ("nccl-loaded", Some(Image))], Some(Image)),
            (vec![("ofed-packages", None), ("rdma-devices", Some(Host))], Some(Image)),
        ] {
            let findings: Vec<Finding> = found.iter().map(|(check, blame)| finding(check, *blame)).collect();
            assert_eq!(at_fault(&findings, Bar::Fail), fault, "{found:?}");
        }
    }
}
