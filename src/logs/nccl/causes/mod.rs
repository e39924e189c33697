//! Evidence of a run → what went wrong, in the words of the log, and what to do.
//!
//! Only what the log (or a hint beside it) names is a cause. `NET/IB : No device found.` alone is none: it is the same for a
//! port that is down, a device that was not passed and a host without one. Silence is none either.

mod connections;
mod devices;
mod hints;
mod meeting;
mod software;
mod words;

pub use hints::{GidEntry, Hints, KeyEntry, Limit, RdmaDeviceHint};

use super::evidence::NcclEvidence;
use super::rank::RankEvidence;
use connections::{gid, memlock, namespace, not_compat, partition};
use devices::{asymmetric, filter, foreign_plugin, hardware, libibverbs, not_permitted, port_down, switched_off};
use meeting::{interface, interface_filter, shm, stalled};
use serde::Serialize;
use software::{driver, symbol, version_skew};
use words::WORDS;

/// Lines quoted for one cause.
const MAX_EVIDENCE: usize = 6;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cause {
    /// Stable, kebab-case.
    pub id: &'static str,
    pub summary: String,
    /// Lines of the log (`rank 1 (host-a:7): …`), or what the hint says.
    pub evidence: Vec<String>,
    pub remedy: String,
    pub fault: Fault,
}

impl Cause {
    pub fn is_image_at_fault(&self) -> bool {
        self.fault == Fault::Image
    }
}

/// Where the remedy has to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    Image,
    /// Hardware, drivers, ports: no image and no option helps.
    Host,
    /// How the container was started: devices, limits, network.
    Launch,
    /// The job's own settings.
    Job,
}

/// Finds the causes, those that explain others first; empty where nothing is named.
pub fn explain_nccl_log(evidence: &NcclEvidence, hints: &Hints) -> Vec<Cause> {
    let log = Log { evidence, hints };
    let mut causes: Vec<Cause> = LIST.iter().filter_map(|rule| rule(&log)).collect();
    for rule in WORDS {
        let evidence = log.lines(|line| rule.marks.iter().all(|mark| line.contains(mark)));
        if evidence.is_empty() || causes.iter().any(|cause| rule.id == cause.id || rule.unless == cause.id) {
            continue;
        }
        let (summary, remedy) = (rule.summary.to_owned(), rule.remedy.to_owned());
        causes.push(Cause { id: rule.id, summary, evidence, remedy, fault: rule.fault });
    }
    causes
}

type Rule = fn(&Log<'_>) -> Option<Cause>;

const LIST: &[Rule] = &[
    driver,
    version_skew,
    symbol,
    libibverbs,
    switched_off,
    asymmetric,
    not_permitted,
    hardware,
    port_down,
    filter,
    foreign_plugin,
    memlock,
    not_compat,
    namespace,
    gid,
    partition,
    shm,
    interface_filter,
    interface,
    stalled,
];

struct Log<'a> {
    evidence: &'a NcclEvidence,
    hints: &'a Hints,
}

impl Log<'_> {
    /// Warnings and notes that fit, each with its process.
    fn lines(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let own = self.evidence.ranks.iter().flat_map(|rank| {
            let texts = rank.warnings.iter().chain(rank.notes.iter());
            texts.map(move |text| (Some(rank), text.text.as_str()))
        });
        let rest = self.evidence.notes.iter().map(|note| (None, note.text.as_str()));
        let mut found: Vec<String> = Vec::new();
        for (rank, text) in own.chain(rest).filter(|(_, text)| fits(text)) {
            let line = rank.map_or_else(|| text.to_owned(), |rank| format!("{}: {text}", rank.label()));
            if !found.contains(&line) {
                found.push(line);
            }
            if found.len() == MAX_EVIDENCE {
                break;
            }
        }
        found
    }

    fn lines_with(&self, mark: &str) -> Vec<String> {
        self.lines(|line| line.contains(mark))
    }

    fn ranks(&self) -> &[RankEvidence] {
        &self.evidence.ranks
    }

    fn no_device(&self) -> Vec<String> {
        let quiet = self.ranks().iter().filter(|rank| rank.no_ib_device);
        quiet.map(|rank| format!("{}: NET/IB : No device found.", rank.label())).take(MAX_EVIDENCE).collect()
    }

    fn devices(&self) -> &[RdmaDeviceHint] {
        self.hints.rdma_devices.as_deref().unwrap_or_default()
    }

    /// A setting that some process took from its environment.
    fn setting(&self, name: &str) -> Option<(&RankEvidence, &str)> {
        self.ranks().iter().find_map(|rank| Some((rank, rank.setting(name)?)))
    }

    /// What the text of a tool says of a device.
    fn device_line(&self, device: &str, what: &str) -> String {
        let from = if self.hints.devices_from.is_empty() { "host" } else { self.hints.devices_from };
        format!("{from}: {device}: {what}")
    }

    fn uses_rdma(&self) -> bool {
        !self.evidence.devices.is_empty() || !self.evidence.unnamed_devices.is_empty()
    }
}

fn cause(
    id: &'static str,
    fault: Fault,
    summary: impl Into<String>,
    remedy: impl Into<String>,
    evidence: Vec<String>,
) -> Option<Cause> {
    (!evidence.is_empty()).then(|| Cause { id, summary: summary.into(), evidence, remedy: remedy.into(), fault })
}
