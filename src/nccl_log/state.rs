//! What one process said, as far as it said it: lines in, bounded facts out.
//!
//! A process is one rank, or several (one thread per GPU): NCCL's prefix tells processes apart, not ranks. Every list has a
//! bound, so a log of any length takes the same memory.

use super::line::{Level, Record, Sink, split_records, strip_ansi};
use super::message::{
    ChannelLine, Direction, IbDevice, Membership, SocketInterface, Via, parse_channel, parse_ib_devices,
    parse_interfaces, parse_membership, parse_via, parse_virtual_device,
};
use crate::versions::{NcclVersion, parse_nccl_version};
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::LazyLock;

/// Bytes of a text that are kept.
const MAX_TEXT: usize = 400;
/// Distinct warnings kept from the start, and from the end.
const MAX_WARNINGS: usize = 16;
const MAX_CHANNEL_GROUPS: usize = 128;
const MAX_PEERS: usize = 64;
const MAX_SETTINGS: usize = 64;
const MAX_PLUGINS: usize = 16;
const MAX_MEMBERSHIPS: usize = 64;

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
    /// The ranks found one another; topology and channels are being worked out.
    InitStart,
    /// `Connected all rings` before `Init COMPLETE` (to 2.21 or so, where connections are made in init).
    Connected,
    /// `Init COMPLETE`: what follows is collectives, and since 2.22 their connections.
    AfterInit,
    /// The communicator was destroyed or aborted.
    Ended,
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
    fn is(&self, via: &Via<'_>) -> bool {
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

    fn of(via: &Via<'_>) -> Transport {
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

    fn push(&mut self, text: &[u8], place: Option<&[u8]>) {
        self.total += 1;
        let text = lossy(&text[..text.len().min(MAX_TEXT)]);
        let known = self.first.iter_mut().chain(self.last.iter_mut().rev()).find(|warning| warning.text == text);
        if let Some(warning) = known {
            warning.count += 1;
            return;
        }
        let warning = Counted { text: text.into_owned(), place: place.map(kept), count: 1 };
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

/// What a network plugin did.
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

/// What a process said about itself and its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankEvidence {
    /// Empty where the log has no prefixes.
    pub host: String,
    pub pid: u32,
    /// The communicators it took part in, in order.
    pub memberships: Vec<Membership>,
    /// As printed, `2.28.9+cuda13.0`; to 2.21 only rank 0 prints it.
    pub version: Option<String>,
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

/// The log of one process, line by line.
#[derive(Debug, Clone, Default)]
pub struct RankLog {
    facts: RankEvidence,
    milestones: Milestones,
    /// Where the last channel lines were counted.
    recent: [Recent; 8],
    oldest: usize,
    /// What the last record said, not yet as a text.
    last: Vec<u8>,
    /// A line without its colours.
    plain: Vec<u8>,
}

/// Bytes of `NET/IB/0/GDRDMA/Shared`, with room.
const RECENT_TEXT: usize = 30;

/// Lines of one group and peer, counted apart: of a thousand processes in turn, none has more than this in the cache.
#[derive(Debug, Clone, Copy)]
struct Recent {
    via: [u8; RECENT_TEXT],
    /// Zero: free.
    length: u8,
    direction: Direction,
    peer: Option<u32>,
    group: usize,
    lines: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { via: [0; RECENT_TEXT], length: 0, direction: Direction::Send, peer: None, group: usize::MAX, lines: 0 }
    }
}

impl Recent {
    fn is(&self, line: &ChannelLine<'_>) -> bool {
        usize::from(self.length) == line.via.len()
            && self.peer == line.peer
            && self.direction == line.direction
            && self.via[..line.via.len()] == *line.via
    }
}

impl Sink for RankLog {
    fn knows(&self, host: &[u8], pid: u32) -> bool {
        self.facts.pid == pid && self.facts.host.as_bytes() == host
    }

    fn take(&mut self, record: &Record<'_>) {
        self.push(record);
    }
}

/// What [`Phase`] is worked out from.
#[derive(Debug, Clone, Copy, Default)]
struct Milestones {
    bootstrap: bool,
    past_bootstrap: bool,
    complete: bool,
    ended: bool,
}

impl RankLog {
    /// Reads the whole log of one process.
    pub fn read(text: &[u8]) -> RankLog {
        let mut log = RankLog::default();
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(|line| log.push_line(line));
        log
    }

    /// Takes one line, without its line feed. All records on it count as this process's.
    pub fn push_line(&mut self, line: &[u8]) {
        if memchr::memchr(0x1b, line).is_some() {
            let mut plain = std::mem::take(&mut self.plain);
            strip_ansi(line, &mut plain);
            split_records(&plain, self);
            self.plain = plain;
        } else {
            split_records(line, self);
        }
    }

    /// Takes one record.
    pub fn push(&mut self, record: &Record<'_>) {
        self.facts.lines += 1;
        if record.level == Level::Other {
            self.push_other(record.message);
            return;
        }
        if self.facts.host.is_empty() {
            self.facts.host = kept(record.host);
            self.facts.pid = record.pid;
        }
        self.last.clear();
        self.last.extend_from_slice(&record.message[..record.message.len().min(MAX_TEXT)]);
        match record.level {
            Level::Info => {
                self.facts.info_lines += 1;
                self.read_message(record.message);
            }
            Level::Warn => {
                self.facts.warnings.push(record.message, record.place());
                self.read_message(record.message);
            }
            Level::Trace | Level::Call | Level::Other => {}
        }
    }

    /// What the log says so far.
    pub fn evidence(&self) -> RankEvidence {
        let last_line = (!self.last.is_empty()).then(|| kept(&self.last));
        let mut facts = RankEvidence { phase: self.phase(), last_line, ..self.facts.clone() };
        for recent in &self.recent {
            if let Some(group) = facts.channels.get_mut(recent.group) {
                group.lines += recent.lines;
            }
        }
        facts
    }

    pub fn phase(&self) -> Phase {
        let Milestones { bootstrap, past_bootstrap, complete, ended } = self.milestones;
        if ended {
            Phase::Ended
        } else if complete {
            Phase::AfterInit
        } else if self.facts.connected {
            Phase::Connected
        } else if past_bootstrap {
            Phase::InitStart
        } else if bootstrap {
            Phase::Bootstrap
        } else if self.facts.info_lines > 0 || self.facts.warnings.total > 0 || self.facts.version.is_some() {
            Phase::Loaded
        } else {
            Phase::Nothing
        }
    }

    /// A line without prefix: the version of rank 0 (to 2.21), or another program's words.
    fn push_other(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        if let Some(at) = VERSION.find(line)
            && (at == 0 || !line[at - 1].is_ascii_alphanumeric())
        {
            self.version(&line[at + VERSION.needle().len()..]);
        }
        if TELLING.iter().any(|telling| telling.find(line).is_some()) {
            self.facts.notes.push(line.trim_ascii(), None);
        }
    }

    /// Looks at one byte or two before anything else: most lines say nothing that is kept.
    fn read_message(&mut self, message: &[u8]) {
        match message {
            [b'C', b'h' | b'o', ..] | [b'R', b'i', ..] => self.read_channel(message),
            [b'N', b'E', ..] => self.read_net(message),
            [b'N', b'C', b'C', b'L', ..] => self.read_nccl(message),
            [b'B', b'o', ..] => self.read_bootstrap(message),
            [b'U' | b'I' | b'F' | b'A' | b'S' | b'P', ..] => self.read_plugin(message),
            [b'c', b'o', ..] | [b'n', b'c', ..] | [b'[', b'R', ..] => self.read_communicator(message),
            [b'G', b'P', ..] => {
                if message.starts_with(b"GPU Direct RDMA Disabled for GPU") {
                    self.facts.gdr_too_far += 1;
                }
            }
            [b'D', b'M', ..] => self.facts.dma_buf |= message.starts_with(b"DMA-BUF is available"),
            [b'D', b'e', ..] => self.note_if(message, b"Detected mixed local Net device counts"),
            [b'f', b'a', ..] => self.note_if(message, b"fallocate: Failed"),
            [b'T', b'r', b'e', b'e', b's', ..] => self.milestones.past_bootstrap = true,
            _ => {
                if message.len() < 2 * MAX_TEXT && FAILED.find(message).is_some() {
                    self.facts.notes.push(message, None);
                }
            }
        }
    }

    fn note_if(&mut self, message: &[u8], start: &[u8]) {
        if message.starts_with(start) {
            self.facts.notes.push(message, None);
        }
    }

    fn read_channel(&mut self, message: &[u8]) {
        if let Some(channel) = parse_channel(message) {
            self.milestones.past_bootstrap = true;
            self.count(&channel);
        } else if message.starts_with(b"Connected all ") {
            self.milestones.past_bootstrap = true;
            self.facts.connected = true;
        } else if message.starts_with(b"Channel ") {
            self.milestones.past_bootstrap = true;
        } else if message.starts_with(b"Count not open ") {
            self.facts.notes.push(message, None);
        }
    }

    /// Counts a channel where the last ones of its kind were counted; parses what carries it only where that is new.
    fn count(&mut self, line: &ChannelLine<'_>) {
        match self.recent.iter_mut().find(|recent| recent.is(line)) {
            Some(recent) => recent.lines += 1,
            None => self.count_new(line),
        }
    }

    fn count_new(&mut self, line: &ChannelLine<'_>) {
        let Some(via) = parse_via(line.via) else { return };
        let groups = &mut self.facts.channels;
        let fits = |group: &ChannelGroup| group.direction == line.direction && group.transport.is(&via);
        let at = match groups.iter().position(fits) {
            Some(at) => at,
            None if groups.len() < MAX_CHANNEL_GROUPS => {
                groups.push(ChannelGroup {
                    transport: Transport::of(&via),
                    direction: line.direction,
                    lines: 0,
                    peers: Vec::new(),
                    more_peers: false,
                });
                groups.len() - 1
            }
            None => {
                self.facts.channels_left_out += 1;
                return;
            }
        };
        let group = &mut groups[at];
        group.lines += 1;
        if let Some(peer) = line.peer
            && let Err(at) = group.peers.binary_search(&peer)
        {
            if group.peers.len() < MAX_PEERS {
                group.peers.insert(at, peer);
            } else {
                group.more_peers = true;
            }
        }
        if let Ok(length) = u8::try_from(line.via.len())
            && line.via.len() <= RECENT_TEXT
        {
            self.oldest = (self.oldest + 1) % self.recent.len();
            let recent = &mut self.recent[self.oldest];
            if let Some(group) = groups.get_mut(recent.group) {
                group.lines += recent.lines;
            }
            let mut via = [0; RECENT_TEXT];
            via[..line.via.len()].copy_from_slice(line.via);
            *recent = Recent { via, length, direction: line.direction, peer: line.peer, group: at, lines: 0 };
        }
    }

    fn read_net(&mut self, message: &[u8]) {
        let text = lossy(message);
        if let Some(list) = text.strip_prefix("NET/IB : Using") {
            let devices = parse_ib_devices(list);
            // A plugin and NCCL itself both print the line; the one with devices is the one in use.
            if !devices.is_empty() || self.facts.ib_devices.is_none() {
                self.facts.ib_devices = Some(devices);
            }
        } else if text.starts_with("NET/IB : No device found") {
            self.facts.no_ib_device = true;
        } else if let Some(rest) = text.strip_prefix("NET/IB : Made virtual device") {
            if let Some(device) = parse_virtual_device(rest) {
                let devices = self.facts.ib_devices.get_or_insert_default();
                if devices.len() < 256 && !devices.iter().any(|known| known.index == device.index) {
                    devices.push(device);
                }
            }
        } else if let Some(list) = text.strip_prefix("NET/Socket : Using") {
            self.facts.socket_interfaces = parse_interfaces(list);
        } else if let Some((_, rest)) = text.split_once(" : GPU Direct RDMA ") {
            self.read_gdr(rest);
        } else if let Some(rest) = text.strip_prefix("NET/Plugin") {
            self.read_net_plugin(rest.trim_start_matches([' ', ':']));
        } else if text.contains("fail") || text.contains("No IP interface") {
            self.facts.notes.push(message, None);
        }
    }

    /// `Enabled for HCA 0 'erdma_0'`, `Disabled for GPU 3 / HCA 1 (distance 5 > 4)`.
    fn read_gdr(&mut self, rest: &str) {
        let enabled = rest.starts_with("Enabled");
        let name = rest.split_once('\'').and_then(|(_, name)| name.split_once('\''));
        match name {
            Some((name, _)) => {
                let hcas = &mut self.facts.gdr_hcas;
                match hcas.iter().position(|(known, _)| known == name) {
                    Some(at) => hcas[at].1 = enabled,
                    None if hcas.len() < 64 => hcas.push((name.to_owned(), enabled)),
                    None => {}
                }
            }
            None => self.facts.gdr_too_far += u64::from(!enabled && rest.contains("distance")),
        }
    }

    fn read_net_plugin(&mut self, rest: &str) {
        if let Some(name) = rest.strip_prefix("Loaded net plugin ") {
            self.plugin(name, PluginState::Loaded);
        } else if let Some(names) = rest.strip_prefix("Could not find:") {
            let names = names.split(". Using").next().unwrap_or(names);
            names.split_whitespace().for_each(|name| self.plugin(name, PluginState::NotFound));
        } else if rest.starts_with("No plugin found") {
            let name = rest
                .split_once('(')
                .and_then(|(_, name)| name.split_once(')'))
                .map_or("libnccl-net.so", |(name, _)| name);
            self.plugin(name, PluginState::NotFound);
        } else if let Some(name) = rest.strip_prefix("Plugin load returned ") {
            // `2 : libnccl-net-x.so: cannot open shared object file: No such file or directory : when loading libnccl-net-x.so`
            let name = name.rsplit("when loading ").next().unwrap_or(name);
            self.plugin(name, PluginState::NotFound);
        }
    }

    fn plugin(&mut self, name: &str, state: PluginState) {
        let plugins = &mut self.facts.plugins;
        let name = name.trim();
        if plugins.len() < MAX_PLUGINS && !plugins.iter().any(|known| known.name == name && known.state == state) {
            plugins.push(PluginUse { name: kept(name.as_bytes()), state });
        }
    }

    fn read_nccl(&mut self, message: &[u8]) {
        if let Some(version) = message.strip_prefix(b"NCCL version ") {
            self.version(version);
        } else if let Some((name, value)) = lossy(message).split_once(" set by environment to ") {
            let number = value.strip_suffix('.').filter(|number| number.parse::<i64>().is_ok());
            let value = number.unwrap_or(value.trim_end());
            if self.facts.settings.len() < MAX_SETTINGS && self.facts.setting(name).is_none() {
                self.facts.settings.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    fn version(&mut self, text: &[u8]) {
        let text = lossy(text);
        let word = text.split_whitespace().next().unwrap_or_default();
        if self.facts.version.is_none() && parse_nccl_version(word).is_some() {
            self.facts.version = Some(word.to_owned());
        }
    }

    fn read_bootstrap(&mut self, message: &[u8]) {
        let text = lossy(message);
        let Some(rest) = text.strip_prefix("Bootstrap") else { return };
        if let Some(list) = rest.trim_start_matches([' ', ':']).strip_prefix("Using") {
            self.milestones.bootstrap = true;
            if self.facts.bootstrap.is_none() {
                self.facts.bootstrap = parse_interfaces(list).into_iter().next();
            }
        } else if rest.starts_with(" timings") {
            self.milestones.past_bootstrap = true;
        }
    }

    /// `Using network IB`, and what 2.27 and later say of plugins.
    fn read_plugin(&mut self, message: &[u8]) {
        let text = |start: &[u8]| message.strip_prefix(start).map(lossy);
        if let Some(network) = text(b"Using network ") {
            self.facts.network = Some(network.trim_end().to_owned());
        } else if let Some(name) = text(b"Initialized NET plugin ") {
            self.plugin(&name, PluginState::Initialized);
        } else if let Some(name) = text(b"Failed to initialize NET plugin ") {
            self.plugin(&name, PluginState::Failed);
        } else if let Some(name) = text(b"Assigned NET plugin ") {
            self.plugin(name.trim_end().trim_end_matches(" to comm"), PluginState::Assigned);
        } else if let Some(name) = text(b"Successfully loaded external network plugin ") {
            self.plugin(&name, PluginState::Loaded);
        } else if let Some(path) = text(b"Plugin Path : ") {
            self.plugin(&path, PluginState::Loaded);
        } else if let Some(name) = text(b"P2P plugin ") {
            self.plugin(&name, PluginState::Loaded);
        } else if message.starts_with(b"P2P Chunksize set") {
            self.milestones.past_bootstrap = true;
        } else if message.starts_with(b"Failed to open libibverbs") {
            self.facts.notes.push(message, None);
        }
    }

    fn read_communicator(&mut self, message: &[u8]) {
        let complete = message.ends_with(b"Init COMPLETE");
        if complete || message.ends_with(b"Init START") {
            self.milestones.bootstrap = true;
            self.milestones.past_bootstrap |= complete;
            self.milestones.complete |= complete;
            if let Some(membership) = parse_membership(&lossy(message)) {
                let known = &mut self.facts.memberships;
                let alike = |other: &Membership| {
                    other.rank == membership.rank
                        && other.nranks == membership.nranks
                        && other.comm_id == membership.comm_id
                };
                if known.len() < MAX_MEMBERSHIPS && !known.iter().any(alike) {
                    known.push(membership);
                }
            }
        } else if [b"Destroy COMPLETE".as_slice(), b"Abort START", b"Abort COMPLETE", b"Finalize COMPLETE"]
            .iter()
            .any(|end| message.ends_with(end))
        {
            self.milestones.ended = true;
        } else if NODES.find(message).is_some() {
            self.milestones.past_bootstrap = true;
        }
    }
}

static VERSION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("NCCL version "));
static FAILED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" fail"));
static NODES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" nNodes "));

/// Words of other programs that name a failure.
static TELLING: LazyLock<Vec<Finder<'static>>> = LazyLock::new(|| {
    [
        "Test NCCL failure",
        "Test CUDA failure",
        "uda failure",
        "libibverbs: Warning",
        "ddress already in use",
        "undefined symbol: nccl",
        "Incompatible NCCL versions",
        "forward compatibility was attempted",
        "unsupported display driver",
        "driver version is insufficient",
        "no CUDA-capable device",
        "Failed to open libibverbs",
        "Address family not supported by protocol",
    ]
    .into_iter()
    .map(Finder::new)
    .collect()
});

fn lossy(text: &[u8]) -> Cow<'_, str> {
    // The list of devices of a large host is the longest message; NCCL cuts it at 2047 bytes.
    String::from_utf8_lossy(&text[..text.len().min(2048)])
}

/// A text to keep: cut where it is long.
fn kept(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]).into_owned()
}
