//! What the logs of all processes add up to.

use super::rank::{RankEvidence, Transport, Warnings, is_verbs_network};
use crate::diagnosis::GpuDirect;
use crate::versions::{NcclVersion, parse_nccl_version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The content of a run's log, over all its processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclEvidence {
    /// One entry per process, sorted by its first rank.
    pub ranks: Vec<RankEvidence>,
    /// Size of the largest communicator.
    pub nranks: Option<u32>,
    /// Ranks of it that have a log, sorted.
    pub ranks_seen: Vec<u32>,
    pub versions: Vec<VersionUse>,
    /// `Using network X` → processes that said so.
    pub networks: BTreeMap<String, u32>,
    pub transports: Vec<TransportUse>,
    /// RDMA devices that channels use.
    pub devices: Vec<DeviceUse>,
    /// Process (its place in `ranks`) and device number that no `NET/IB : Using` line of it names.
    pub unnamed_devices: Vec<(u32, u32)>,
    pub gpu_direct: GpuDirect,
    /// Physical RDMA devices of each process, where processes have different numbers of them.
    pub asymmetric_devices: Vec<(String, Vec<String>)>,
    /// Lines without a prefix that name a failure.
    pub notes: Warnings,
    /// Processes with a line at INFO.
    pub processes_with_info: u32,
}

/// An NCCL version and how many processes printed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VersionUse {
    /// The printed version, such as `2.28.9+cuda13.0`.
    pub text: String,
    /// Zero: a line without a prefix, which says nothing of who printed it.
    pub processes: u32,
}

/// Channels of all processes by the name of what carries them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TransportUse {
    /// `NET/IB`, `NET/Socket`, `P2P/CUMEM`, `SHM`, `COLLNET/SHARP`.
    pub name: String,
    /// Channel lines.
    pub lines: u64,
    pub processes: u32,
}

/// An RDMA device that channels use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceUse {
    pub host: String,
    /// NCCL's name; for merged devices `mlx5_0+mlx5_1`.
    pub name: String,
    /// Physical devices behind the name.
    pub devices: Vec<String>,
    /// `RoCE` for any Ethernet link, `IB`.
    pub link: String,
    pub lines: u64,
    /// Those among them with `/GDRDMA`.
    pub gdr_lines: u64,
}

impl NcclEvidence {
    /// Adds processes up; `rest` is what had no prefix.
    pub fn of(ranks: impl IntoIterator<Item = RankEvidence>, rest: &RankEvidence) -> NcclEvidence {
        let mut ranks: Vec<RankEvidence> = ranks.into_iter().collect();
        let nranks = ranks.iter().filter_map(RankEvidence::nranks).max();
        let first_rank = |rank: &RankEvidence| nranks.and_then(|nranks| rank.ranks_of(nranks).first().copied());
        // Those without a rank at the end, in the order in which they came.
        ranks.sort_by_cached_key(|rank| first_rank(rank).unwrap_or(u32::MAX));
        let seen: BTreeSet<u32> =
            ranks.iter().flat_map(|rank| nranks.map(|n| rank.ranks_of(n)).unwrap_or_default()).collect();

        let mut evidence = NcclEvidence {
            nranks,
            ranks_seen: seen.into_iter().collect(),
            versions: versions(&ranks, rest),
            asymmetric_devices: asymmetric_devices(&ranks),
            notes: rest.notes.clone(),
            processes_with_info: count(ranks.iter().filter(|rank| rank.info_lines > 0)),
            ..NcclEvidence::default()
        };
        for network in ranks.iter().filter_map(|rank| rank.network.as_ref()) {
            *evidence.networks.entry(network.clone()).or_default() += 1;
        }
        evidence.add_channels(&ranks);
        evidence.ranks = ranks;
        evidence
    }

    fn add_channels(&mut self, ranks: &[RankEvidence]) {
        let mut transports: BTreeMap<String, (u64, BTreeSet<usize>)> = BTreeMap::new();
        let mut devices: BTreeMap<(String, String), DeviceUse> = BTreeMap::new();
        let (mut gdr_lines, mut other_lines) = (0, 0);
        for (place, rank) in ranks.iter().enumerate() {
            for group in &rank.channels {
                let name = match &group.transport {
                    Transport::Net { network, .. } => format!("NET/{network}"),
                    Transport::P2p { how } => format!("P2P/{how}"),
                    Transport::Shm => "SHM".to_owned(),
                    Transport::CollNet { network, .. } => format!("COLLNET/{network}"),
                };
                let entry = transports.entry(name).or_default();
                entry.0 += group.lines;
                entry.1.insert(place);
                let Transport::Net { network, device, gdr, proxied, .. } = &group.transport else { continue };
                if !is_verbs_network(network) {
                    continue;
                }
                *(if *gdr { &mut gdr_lines } else { &mut other_lines }) += group.lines;
                let Some(known) = rank.ib_device(*device) else {
                    let unnamed = (u32::try_from(place).unwrap_or(u32::MAX), *device);
                    // A proxied channel uses the list of another process of the host, which is alike.
                    if !proxied && !self.unnamed_devices.contains(&unnamed) {
                        self.unnamed_devices.push(unnamed);
                    }
                    continue;
                };
                let device = devices.entry((rank.host.clone(), known.name())).or_insert_with(|| DeviceUse {
                    host: rank.host.clone(),
                    name: known.name(),
                    devices: known.ports.iter().map(|port| port.device.clone()).collect(),
                    link: known.ports.first().map(|port| port.link.clone()).unwrap_or_default(),
                    lines: 0,
                    gdr_lines: 0,
                });
                device.lines += group.lines;
                device.gdr_lines += if *gdr { group.lines } else { 0 };
            }
        }
        let used = |(name, (lines, processes)): (String, (u64, BTreeSet<usize>))| TransportUse {
            name,
            lines,
            processes: count(processes.iter()),
        };
        self.transports = transports.into_iter().map(used).collect();
        self.devices = devices.into_values().collect();
        self.gpu_direct = match (gdr_lines, other_lines) {
            (0, 0) => GpuDirect::NotExercised,
            (0, _) => GpuDirect::No,
            (_, 0) => GpuDirect::Yes,
            _ => GpuDirect::Mixed,
        };
    }

    /// Channel lines of all transports.
    pub fn channel_lines(&self) -> u64 {
        self.transports.iter().map(|transport| transport.lines).sum()
    }

    /// The distinct versions, lowest first, where the log names more than one; else nothing. A line without a prefix is some
    /// process's, too.
    pub fn version_skew(&self) -> Vec<NcclVersion> {
        let distinct: BTreeSet<NcclVersion> =
            self.versions.iter().filter_map(|version| parse_nccl_version(&version.text)).collect();
        if distinct.len() > 1 { distinct.into_iter().collect() } else { Vec::new() }
    }

    /// Ranks of the largest communicator without a log; `None`: its size is not known.
    pub fn missing_ranks(&self) -> Option<Vec<u32>> {
        let seen: BTreeSet<u32> = self.ranks_seen.iter().copied().collect();
        Some((0..self.nranks?).filter(|rank| !seen.contains(rank)).take(1024).collect())
    }

    /// The lowest phase any process is in, with those in it; empty where there is no process.
    pub fn behind(&self) -> Vec<&RankEvidence> {
        let lowest = self.ranks.iter().map(|rank| rank.phase).min();
        self.ranks.iter().filter(|rank| Some(rank.phase) == lowest).collect()
    }

    /// Whether the log can tell anything: without lines at INFO, silence means nothing.
    pub fn has_info(&self) -> bool {
        self.processes_with_info > 0
    }
}

fn versions(ranks: &[RankEvidence], rest: &RankEvidence) -> Vec<VersionUse> {
    let mut versions: Vec<VersionUse> = Vec::new();
    let bare = rest.version.iter().chain(&rest.other_versions).map(|version| (Some(version), 0));
    let printed = ranks.iter().map(|rank| (rank.version.as_ref(), 1)).chain(bare);
    for (text, processes) in printed.filter_map(|(text, processes)| Some((text?, processes))) {
        match versions.iter_mut().find(|version| version.text == *text) {
            Some(version) => version.processes += processes,
            None => versions.push(VersionUse { text: text.clone(), processes }),
        }
    }
    versions
}

/// The devices of each process that said which it has, where their numbers differ.
fn asymmetric_devices(ranks: &[RankEvidence]) -> Vec<(String, Vec<String>)> {
    let told: Vec<(&RankEvidence, Vec<&str>)> = ranks
        .iter()
        .filter(|rank| rank.ib_devices.is_some() || rank.no_ib_device)
        .map(|rank| (rank, rank.physical_devices()))
        .collect();
    let numbers: BTreeSet<usize> = told.iter().map(|(_, devices)| devices.len()).collect();
    if numbers.len() < 2 {
        return Vec::new();
    }
    let named =
        |(rank, devices): (&RankEvidence, Vec<&str>)| (rank.label(), devices.into_iter().map(str::to_owned).collect());
    told.into_iter().map(named).collect()
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}
