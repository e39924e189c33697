//! What one process said about itself and its connections: the facts that its log comes down to.
//!
//! A process is one rank, or several (one thread per GPU): NCCL's prefix tells processes apart, not ranks. Every list has a
//! bound, and all of them together have one ([`Room`]), so a log of any length takes the same memory.

use super::message::{Direction, IbDevice, Membership, SocketInterface, Via};
use super::room::{Room, kept};
use crate::versions::{NcclVersion, parse_nccl_version};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Distinct warnings kept from the start, and from the end.
const MAX_WARNINGS: usize = 16;

/// How far a process came; the last line of a stuck one tells more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Not a line of NCCL.
    #[default]
    Nothing,
    /// NCCL is loaded.
    Loaded,
    /// Looking for the other ranks: an interface is chosen, or `Init START` was printed and nothing that needs the others.
    Bootstrap,
    /// The ranks found each other; topology and channels are being worked out.
    InitStart,
    /// `Connected all rings` before `Init COMPLETE` (to 2.21 or so, where connections are made in init).
    Connected,
    /// `Init COMPLETE`: what follows is collectives, and since 2.22 their connections.
    AfterInit,
    /// The communicator was destroyed or aborted.
    Ended,
}

/// A network of NCCL that is ibverbs: its own `IB`, or HPC-X's `IBext`, `IBext_v8`, ….
///
/// `UCX` is not in it, as it may choose TCP; nor is a plugin for another fabric (`AWS Libfabric`).
pub(super) fn is_verbs_network(name: &str) -> bool {
    name == "IB" || name.starts_with("IBext")
}

/// How channels go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Transport {
    /// `NET/<network>/<device>[/GDRDMA][/Shared]`; `proxied`: through the NIC of another rank of the node (PXN).
    Net {
        network: String,
        device: u32,
        gdr: bool,
        shared: bool,
        proxied: bool,
    },
    /// `P2P/<how>`: between GPUs of a node (`MNNVL`: of an NVLink domain).
    P2p {
        how: String,
    },
    Shm,
    /// `COLLNET/<network>/<device>`: reduction in the switches.
    CollNet {
        network: String,
        device: u32,
        gdr: bool,
    },
}

impl Transport {
    pub(super) fn is(&self, via: &Via<'_>) -> bool {
        match (self, via) {
            (
                Transport::Net { network, device, gdr, shared, proxied },
                Via::Net { network: n, device: d, gdr: g, shared: s, proxied: p },
            ) => device == d && gdr == g && shared == s && proxied == p && network.as_bytes() == *n,
            (Transport::P2p { how }, Via::P2p(h)) => how.as_bytes() == *h,
            (Transport::Shm, Via::Shm) => true,
            (Transport::CollNet { network, device, gdr }, Via::CollNet { network: n, device: d, gdr: g }) => {
                device == d && gdr == g && network.as_bytes() == *n
            }
            _ => false,
        }
    }

    pub(super) fn of(via: &Via<'_>) -> Transport {
        match *via {
            Via::Net { network, device, gdr, shared, proxied } => {
                Transport::Net { network: kept(network), device, gdr, shared, proxied }
            }
            Via::P2p(how) => Transport::P2p { how: kept(how) },
            Via::Shm => Transport::Shm,
            Via::CollNet { network, device, gdr } => Transport::CollNet { network: kept(network), device, gdr },
        }
    }
}

/// Channels of one process that go alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChannelGroup {
    pub transport: Transport,
    pub direction: Direction,
    /// Lines; a channel that is set up again counts again.
    pub lines: u64,
    /// The other ranks, sorted; the first 64 that were seen.
    pub peers: Vec<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_peers: bool,
}

/// A text with how often it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counted {
    pub text: String,
    /// Source file and line, for a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub count: u64,
}

/// The first and the last distinct texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Warnings {
    pub first: Vec<Counted>,
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub last: VecDeque<Counted>,
    /// All, those that are not kept too.
    pub total: u64,
}

impl Warnings {
    pub fn iter(&self) -> impl Iterator<Item = &Counted> {
        self.first.iter().chain(&self.last)
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Adds those of another list.
    fn append(&mut self, other: Warnings) {
        self.total += other.total;
        for warning in other.first.into_iter().chain(other.last) {
            if self.first.len() < MAX_WARNINGS {
                self.first.push(warning);
            } else {
                if self.last.len() == MAX_WARNINGS {
                    self.last.pop_front();
                }
                self.last.push_back(warning);
            }
        }
    }

    pub(super) fn push(&mut self, text: &[u8], place: Option<&[u8]>, room: &mut Room) {
        self.total += 1;
        let text = kept(text);
        let known = self.first.iter_mut().chain(self.last.iter_mut().rev()).find(|warning| warning.text == text);
        if let Some(warning) = known {
            warning.count += 1;
            return;
        }
        let warning = Counted { text, place: place.map(kept), count: 1 };
        let is_first = self.first.len() < MAX_WARNINGS;
        if !is_first
            && self.last.len() == MAX_WARNINGS
            && let Some(old) = self.last.pop_front()
        {
            room.give_back(old.bytes());
        }
        if room.take(warning.bytes()) {
            if is_first { self.first.push(warning) } else { self.last.push_back(warning) }
        }
    }
}

impl Counted {
    fn bytes(&self) -> usize {
        2 * size_of::<Counted>() + self.text.len() + self.place.as_ref().map_or(0, String::len)
    }
}

/// The outcome of a network plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PluginUse {
    /// A path or file (`libnccl-net.so`), or the plugin's own name (`NCCL RDMA Plugin (v5)`).
    pub name: String,
    pub state: PluginState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PluginState {
    /// Looked for and not there.
    NotFound,
    /// A library was loaded; it may still have no device.
    Loaded,
    /// `Initialized NET plugin` (2.27+): it has a device.
    Initialized,
    /// `Failed to initialize NET plugin` (2.27+): no device, or not usable.
    Failed,
    /// `Assigned NET plugin … to comm` (2.27+).
    Assigned,
}

/// A process's messages about itself and its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankEvidence {
    /// Empty where the log has no prefixes.
    pub host: String,
    pub pid: u32,
    /// The communicators it took part in, in order.
    pub memberships: Vec<Membership>,
    /// The printed version, such as `2.28.9+cuda13.0`; up to 2.21 only rank 0 prints it.
    pub version: Option<String>,
    /// Further ones, of lines without a prefix: several processes printed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_versions: Vec<String>,
    pub plugins: Vec<PluginUse>,
    /// `Using network X`.
    pub network: Option<String>,
    pub bootstrap: Option<SocketInterface>,
    /// `None`: there was no `NET/IB : Using` line; empty: it listed no device.
    pub ib_devices: Option<Vec<IbDevice>>,
    /// `NET/IB : No device found.`
    pub no_ib_device: bool,
    /// `NET/Socket : Using`.
    pub socket_interfaces: Vec<SocketInterface>,
    pub channels: Vec<ChannelGroup>,
    /// Channel lines that found no room among the groups.
    #[serde(default)]
    pub channels_left_out: u64,
    /// `GPU Direct RDMA Enabled`/`Disabled` for an HCA: what the driver can do, not what was used.
    pub gdr_hcas: Vec<(String, bool)>,
    /// `GPU Direct RDMA Disabled for GPU … / HCA …`: too far apart. To 2.29.
    pub gdr_too_far: u64,
    /// `DMA-BUF is available on GPU device`: no proof of GPUDirect.
    pub dma_buf: bool,
    /// `NCCL_X set by environment to Y`, without the full stop behind a number.
    pub settings: Vec<(String, String)>,
    /// `Connected all rings`.
    pub connected: bool,
    pub phase: Phase,
    pub warnings: Warnings,
    /// Other lines that name a failure: NCCL's at INFO, and those of other programs.
    pub notes: Warnings,
    pub last_line: Option<String>,
    pub lines: u64,
    /// Lines at INFO; none: `NCCL_DEBUG` was not INFO, or they went to `NCCL_DEBUG_FILE`.
    pub info_lines: u64,
}

impl RankEvidence {
    /// Adds the lines without a prefix of another text.
    pub fn absorb(&mut self, other: RankEvidence) {
        for version in other.version.into_iter().chain(other.other_versions) {
            if self.version.is_none() {
                self.version = Some(version);
            } else if self.version.as_ref() != Some(&version) && !self.other_versions.contains(&version) {
                self.other_versions.push(version);
            }
        }
        self.notes.append(other.notes);
        self.lines += other.lines;
    }

    /// Size of its largest communicator.
    pub fn nranks(&self) -> Option<u32> {
        self.memberships.iter().map(|membership| membership.nranks).max()
    }

    /// Its ranks in communicators of the given size, sorted.
    pub fn ranks_of(&self, nranks: u32) -> Vec<u32> {
        let mut ranks: Vec<u32> =
            self.memberships.iter().filter(|m| m.nranks == nranks).map(|membership| membership.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// How to call it: `rank 1 (host-a:77)`.
    pub fn label(&self) -> String {
        let process = if self.host.is_empty() { String::new() } else { format!("{}:{}", self.host, self.pid) };
        let ranks = self.nranks().map(|nranks| self.ranks_of(nranks)).unwrap_or_default();
        match (ranks.as_slice(), process.is_empty()) {
            ([], true) => "the log".to_owned(),
            ([], false) => process,
            ([rank], true) => format!("rank {rank}"),
            ([rank], false) => format!("rank {rank} ({process})"),
            ([first, .., last], _) => format!("ranks {first}…{last} ({process})"),
        }
    }

    pub fn decoded_version(&self) -> Option<NcclVersion> {
        parse_nccl_version(self.version.as_deref()?)
    }

    /// The value of an environment variable that NCCL said it took.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Name of the device behind the `n` of `NET/IB/n`.
    pub fn ib_device(&self, index: u32) -> Option<&IbDevice> {
        self.ib_devices.iter().flatten().find(|device| device.index == index)
    }

    /// Names of the physical devices, sorted.
    pub fn physical_devices(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .ib_devices
            .iter()
            .flatten()
            .flat_map(|device| &device.ports)
            .map(|port| port.device.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
