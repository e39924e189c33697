//! Whether RDMA carried the data: log, counters and results → one of four values, with the reasons.
//!
//! `Yes` needs all of it: channel lines through a verbs plugin and none through sockets, from every rank; devices that the
//! log names; byte counters of these devices that rose by what the algorithm must move; results that were checked. A part
//! that is missing gives `Unknown` and is named. `No` needs evidence of the contrary: a socket channel, or NCCL's own word
//! that its network is `Socket`. Bandwidth plays no part.

use super::evidence::NcclEvidence;
use super::rank::{Transport, is_verbs_network};
use crate::diagnosis::{GpuDirect, RdmaUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Share of the expected bytes that counters must have risen by: some devices count payload, others whole packets, and a
/// counter can be read a moment early.
const ENOUGH: f64 = 0.9;

/// Observations of a run other than its log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Ranks that the run was started with; `None`: believe the log.
    pub nranks: Option<u32>,
    pub counters: CounterReading,
    /// Wrong values in the results; `None`: they were not checked.
    pub wrong_values: Option<u64>,
}

/// The byte counters of the RDMA devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum CounterReading {
    /// Nobody looked: there is a log and nothing else.
    #[default]
    NotRead,
    /// They were looked for; the devices have none that can be read.
    Unreadable,
    /// How much they rose.
    Read {
        devices: Vec<DeviceBytes>,
        /// The minimum rise, all devices together; `None`: unknown.
        expected: Option<ExpectedBytes>,
    },
}

/// How much the counters of a device rose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceBytes {
    pub device: String,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Bytes that the devices seen must have moved, at the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedBytes {
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// The verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaVerdict {
    pub rdma: RdmaUse,
    /// The verdict of the log alone: `Yes` if every rank has channel lines, all of them through RDMA.
    pub by_log: RdmaUse,
    pub gpu_direct: GpuDirect,
    /// The decisive one first.
    pub reasons: Vec<RdmaReason>,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RdmaReason {
    /// One rank: there is nobody to send to.
    OneRank,
    /// All channels are P2P or shared memory.
    LocalChannelsOnly { lines: u64 },
    /// No channel line at all: not at INFO, or the ranks never connected.
    NoChannelLines { has_info: bool },
    /// Channels through `NET/Socket`; `rdma_lines` is not zero where only a part of them is.
    SocketChannels { lines: u64, rdma_lines: u64 },
    /// NCCL chose the `Socket` network.
    SocketNetwork { processes: u32 },
    /// Channels through a network that is not known to be verbs.
    OtherNetwork { name: String, lines: u64 },
    /// Only reductions in the switches.
    CollNetOnly { name: String },
    /// Channels through RDMA.
    RdmaChannels { lines: u64, devices: Vec<String> },
    /// Channel lines name a device by a number that no list explains.
    UnnamedDevice { process: String, index: u32 },
    /// Ranks without a log.
    RanksMissing { expected: u32, seen: u32 },
    /// Ranks with a log and without a channel line.
    RanksWithoutChannels { processes: Vec<String> },
    /// Counters of the devices in use rose by what was to be moved.
    CountersRose { sent_bytes: u64, received_bytes: u64, expected: u64 },
    /// They did not: log and counters contradict each other.
    CountersDidNotRise { sent_bytes: u64, received_bytes: u64, expected: u64, elsewhere: Vec<String> },
    /// They were not read: the log is all there is.
    CountersNotRead,
    /// The devices have no counters that can be read.
    CountersUnreadable,
    /// Counters were read, but none of a device in use.
    CountersOfOtherDevices { devices: Vec<String> },
    /// They rose; by how much they had to is not known.
    ExpectedBytesUnknown { sent_bytes: u64, received_bytes: u64 },
    /// Results were not checked.
    NotVerified,
    /// Results are wrong: a failure of its own, whatever carried the data.
    WrongValues { count: u64 },
}

impl fmt::Display for RdmaReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use RdmaReason as R;
        match self {
            R::OneRank => f.write_str("one rank: nothing to send"),
            R::LocalChannelsOnly { lines } => {
                write!(f, "all {lines} channel lines are P2P or shared memory within a host")
            }
            R::NoChannelLines { has_info: true } => {
                f.write_str("the log has no channel line: the ranks never connected, or its subsystems are filtered")
            }
            R::NoChannelLines { has_info: false } => {
                f.write_str("the log has no line at INFO: set NCCL_DEBUG=INFO and unset NCCL_DEBUG_FILE")
            }
            R::SocketChannels { lines, rdma_lines: 0 } => write!(f, "{lines} channel lines are via NET/Socket"),
            R::SocketChannels { lines, rdma_lines } => {
                write!(f, "{lines} channel lines are via NET/Socket, beside {rdma_lines} via RDMA")
            }
            R::SocketNetwork { processes: 1 } => f.write_str("NCCL chose the network Socket (1 process)"),
            R::SocketNetwork { processes } => write!(f, "NCCL chose the network Socket ({processes} processes)"),
            R::OtherNetwork { name, lines } => {
                write!(f, "{lines} channel lines are via NET/{name}, which is not known to be ibverbs")
            }
            R::CollNetOnly { name } => {
                write!(f, "all network channels are reductions in the switches (COLLNET/{name})")
            }
            R::RdmaChannels { lines, devices } => {
                write!(f, "{lines} channel lines are via RDMA ({})", devices.join(", "))
            }
            R::UnnamedDevice { process, index } => {
                write!(f, "no `NET/IB : Using` line of {process} names device {index}")
            }
            R::RanksMissing { expected, seen } => write!(f, "{seen} of {expected} ranks have a log"),
            R::RanksWithoutChannels { processes } => write!(f, "no channel line from {}", processes.join(", ")),
            R::CountersRose { sent_bytes, received_bytes, expected } => {
                write!(f, "the devices sent {sent_bytes} B and received {received_bytes} B, of {expected} B to move")
            }
            R::CountersDidNotRise { sent_bytes, received_bytes, expected, elsewhere } => {
                write!(
                    f,
                    "the log says RDMA, but the devices sent {sent_bytes} B and received {received_bytes} B, of {expected} B to move"
                )?;
                if elsewhere.is_empty() { Ok(()) } else { write!(f, "; counters of {} rose", elsewhere.join(", ")) }
            }
            R::CountersNotRead => f.write_str("byte counters were not read: the log alone is half of the proof"),
            R::CountersUnreadable => {
                f.write_str("the devices have no byte counters that can be read: the log alone is half of the proof")
            }
            R::CountersOfOtherDevices { devices } => write!(f, "no byte counters were read of {}", devices.join(", ")),
            R::ExpectedBytesUnknown { sent_bytes, received_bytes } => write!(
                f,
                "the devices sent {sent_bytes} B and received {received_bytes} B; how much they had to is not known"
            ),
            R::NotVerified => f.write_str("results were not checked"),
            R::WrongValues { count } => write!(f, "{count} wrong values"),
        }
    }
}

/// Judges whether RDMA carried the data.
pub fn judge_rdma(evidence: &NcclEvidence, observed: &Observed) -> RdmaVerdict {
    let (by_log, mut reasons) = judge_log(evidence, observed.nranks);
    let mut rdma = by_log;
    if by_log == RdmaUse::Yes {
        let (proved, reason) = judge_counters(evidence, &observed.counters);
        if !proved {
            rdma = RdmaUse::Unknown;
            reasons.insert(0, reason);
        } else {
            reasons.push(reason);
        }
        if observed.wrong_values.is_none() {
            rdma = RdmaUse::Unknown;
            reasons.push(RdmaReason::NotVerified);
        }
    }
    // Wrong values do not change what carried them.
    if let Some(count) = observed.wrong_values.filter(|count| *count > 0) {
        reasons.push(RdmaReason::WrongValues { count });
    }
    RdmaVerdict { rdma, by_log, gpu_direct: evidence.gpu_direct, reasons }
}

/// Channel lines by what they go through.
#[derive(Default)]
struct Lines {
    rdma: u64,
    socket: u64,
    local: u64,
    other: Option<(String, u64)>,
    collnet: Option<String>,
}

impl Lines {
    fn of(evidence: &NcclEvidence) -> Lines {
        let mut lines = Lines::default();
        for group in evidence.ranks.iter().flat_map(|rank| &rank.channels) {
            match &group.transport {
                Transport::Net { network, .. } if is_verbs_network(network) => lines.rdma += group.lines,
                Transport::Net { network, .. } if network == "Socket" => lines.socket += group.lines,
                Transport::Net { network, .. } => {
                    lines.other.get_or_insert_with(|| (network.clone(), 0)).1 += group.lines;
                }
                Transport::P2p { .. } | Transport::Shm => lines.local += group.lines,
                Transport::CollNet { network, .. } => lines.collnet = Some(network.clone()),
            }
        }
        lines
    }
}

fn judge_log(evidence: &NcclEvidence, expected: Option<u32>) -> (RdmaUse, Vec<RdmaReason>) {
    let lines = Lines::of(evidence);
    let sockets = evidence.networks.get("Socket").copied().unwrap_or(0);
    let socket_network = (sockets > 0).then_some(RdmaReason::SocketNetwork { processes: sockets });
    if lines.socket > 0 {
        return (RdmaUse::No, vec![RdmaReason::SocketChannels { lines: lines.socket, rdma_lines: lines.rdma }]);
    }
    if expected.or(evidence.nranks) == Some(1) {
        return (RdmaUse::NotExercised, [RdmaReason::OneRank].into_iter().chain(socket_network).collect());
    }
    if let Some((name, count)) = lines.other {
        return (RdmaUse::Unknown, vec![RdmaReason::OtherNetwork { name, lines: count }]);
    }
    if lines.rdma == 0 {
        return match (lines.collnet, socket_network) {
            (Some(name), _) => (RdmaUse::Unknown, vec![RdmaReason::CollNetOnly { name }]),
            (None, socket) if lines.local > 0 => {
                let reason = RdmaReason::LocalChannelsOnly { lines: lines.local };
                (RdmaUse::NotExercised, [reason].into_iter().chain(socket).collect())
            }
            (None, Some(socket)) => (RdmaUse::No, vec![socket]),
            (None, None) => (RdmaUse::Unknown, vec![RdmaReason::NoChannelLines { has_info: evidence.has_info() }]),
        };
    }
    let devices = evidence.devices.iter().map(|device| device.name.clone()).collect::<BTreeSet<_>>();
    let mut reasons = vec![RdmaReason::RdmaChannels { lines: lines.rdma, devices: devices.into_iter().collect() }];
    reasons.extend(gaps(evidence, expected));
    reasons.extend(socket_network);
    let complete = reasons.len() == 1;
    // The gap decides.
    reasons.reverse();
    (if complete { RdmaUse::Yes } else { RdmaUse::Unknown }, reasons)
}

/// The questions that RDMA channel lines leave open.
fn gaps(evidence: &NcclEvidence, expected: Option<u32>) -> Vec<RdmaReason> {
    let mut gaps = Vec::new();
    if let Some((place, index)) = evidence.unnamed_devices.first() {
        let process = evidence.ranks.get(*place as usize).map(|rank| rank.label()).unwrap_or_default();
        gaps.push(RdmaReason::UnnamedDevice { process, index: *index });
    }
    let silent: Vec<String> = evidence
        .ranks
        .iter()
        .filter(|rank| rank.channels.is_empty() && !rank.memberships.is_empty())
        .map(|rank| rank.label())
        .take(8)
        .collect();
    if !silent.is_empty() {
        gaps.push(RdmaReason::RanksWithoutChannels { processes: silent });
    }
    let seen = u32::try_from(evidence.ranks_seen.len()).unwrap_or(u32::MAX);
    let expected = expected.or(evidence.nranks).unwrap_or(0);
    // 2.7 and older print ranks at the end only; without one there is nothing to compare.
    if seen < expected || expected == 0 {
        gaps.push(RdmaReason::RanksMissing { expected, seen });
    }
    gaps
}

fn judge_counters(evidence: &NcclEvidence, counters: &CounterReading) -> (bool, RdmaReason) {
    let (read, expected) = match counters {
        CounterReading::NotRead => return (false, RdmaReason::CountersNotRead),
        CounterReading::Unreadable => return (false, RdmaReason::CountersUnreadable),
        CounterReading::Read { devices, expected } => (devices, expected),
    };
    let in_use: BTreeSet<&str> =
        evidence.devices.iter().flat_map(|device| &device.devices).map(String::as_str).collect();
    let (used, others): (Vec<&DeviceBytes>, Vec<&DeviceBytes>) =
        read.iter().partition(|device| in_use.contains(device.device.as_str()));
    if used.is_empty() {
        let devices = in_use.into_iter().map(str::to_owned).collect();
        return (false, RdmaReason::CountersOfOtherDevices { devices });
    }
    let sum = |bytes: fn(&DeviceBytes) -> u64| used.iter().fold(0u64, |sum, device| sum.saturating_add(bytes(device)));
    let (sent_bytes, received_bytes) = (sum(|device| device.sent_bytes), sum(|device| device.received_bytes));
    let Some(ExpectedBytes { sent_bytes: to_send, received_bytes: to_receive }) = *expected else {
        return (false, RdmaReason::ExpectedBytesUnknown { sent_bytes, received_bytes });
    };
    let expected = to_send.max(to_receive);
    // Other traffic may add to the counters: only too little speaks against RDMA.
    let enough = |risen: u64, wanted: u64| risen as f64 >= wanted as f64 * ENOUGH;
    if expected > 0 && enough(sent_bytes, to_send) && enough(received_bytes, to_receive) {
        return (true, RdmaReason::CountersRose { sent_bytes, received_bytes, expected });
    }
    let rose = |device: &&&DeviceBytes| device.sent_bytes > 0 || device.received_bytes > 0;
    let elsewhere = others.iter().filter(rose).map(|device| device.device.clone()).collect();
    (false, RdmaReason::CountersDidNotRise { sent_bytes, received_bytes, expected, elsewhere })
}
