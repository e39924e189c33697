//! Evidence of a run → what went wrong, in the words of the log, and what to do.
//!
//! Only what the log (or a hint) names is a cause. `NET/IB : No device found.` alone is none: it is the same for a
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
use crate::diagnosis::{Cause, CauseId};
use connections::{gid, memlock, namespace, not_compat, partition};
use devices::{asymmetric, filter, foreign_plugin, hardware, libibverbs, not_permitted, port_down, switched_off};
use meeting::{interface, interface_filter, shm, stalled};
use software::{driver, symbol, version_skew};
use words::WORDS;

/// Lines quoted for one cause.
const MAX_EVIDENCE: usize = 6;

/// Finds the causes, those that explain others first; empty where nothing is named.
pub fn explain_nccl_log(evidence: &NcclEvidence, hints: &Hints) -> Vec<Cause> {
    let log = Log { evidence, hints };
    let mut causes: Vec<Cause> = LIST.iter().filter_map(|rule| rule(&log)).collect();
    for rule in WORDS {
        if causes.iter().any(|cause| cause.id == rule.id || Some(cause.id) == rule.unless) {
            continue;
        }
        causes.extend(rule.id.found(log.lines(|line| rule.fit(line))));
    }
    causes.retain(|cause| log.can_occur(cause.id));
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

    /// Whether some rank's NCCL is one in which the cause can occur; ranks whose version the log does not say count.
    fn can_occur(&self, id: CauseId) -> bool {
        let versions = id.info().nccl;
        let ranks = self.ranks();
        ranks.is_empty() || ranks.iter().any(|rank| rank.decoded_version().is_none_or(|v| versions.contains(v)))
    }

    fn uses_rdma(&self) -> bool {
        !self.evidence.devices.is_empty() || !self.evidence.unnamed_devices.is_empty()
    }
}

/// A cause with what this case is in particular.
fn cause(id: CauseId, summary: impl Into<String>, remedy: impl Into<String>, evidence: Vec<String>) -> Option<Cause> {
    Some(id.found(evidence)?.summary(summary).remedy(remedy))
}
