//! What NCCL's messages mean for the facts of a process, and which lines of other programs name a failure.

use super::channels::Channels;
use super::message::{
    IbDevice, IbPort, Membership, parse_channel, parse_ib_devices, parse_interfaces, parse_membership,
    parse_virtual_device,
};
use super::rank::{PluginState, PluginUse, RankEvidence};
use super::room::{MAX_TEXT, Room};
use crate::versions::parse_nccl_version;
use aho_corasick::AhoCorasick;
use memchr::memmem::Finder;
use std::borrow::Cow;
use std::sync::LazyLock;

const MAX_SETTINGS: usize = 64;
const MAX_PLUGINS: usize = 16;
const MAX_MEMBERSHIPS: usize = 64;
const MAX_VERSIONS: usize = 8;

/// What [`super::Phase`] is worked out from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Milestones {
    pub bootstrap: bool,
    pub past_bootstrap: bool,
    pub complete: bool,
    pub ended: bool,
}

/// Where a message goes.
pub(super) struct Reading<'a> {
    pub facts: &'a mut RankEvidence,
    pub milestones: &'a mut Milestones,
    pub channels: &'a mut Channels,
    pub room: &'a mut Room,
}

impl Reading<'_> {
    /// A line without prefix: the version of rank 0 (to 2.21), or another program's words.
    pub(super) fn other(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        // Behind a launcher's tag, too; another program that names a version says nothing of what CUDA that is for.
        if let Some(at) = VERSION.find(line)
            && (at == 0 || matches!(line[at - 1], b':' | b']' | b' '))
        {
            let text = &line[at + VERSION.needle().len()..];
            let word = text.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            if at == 0 || CUDA.find(word).is_some() {
                self.version(word);
            }
        }
        if TELLING.is_match(line) {
            self.note(line.trim_ascii());
        }
    }

    /// Looks at one byte or two before anything else: most lines say nothing that is kept.
    pub(super) fn message(&mut self, message: &[u8]) {
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
                    self.note(message);
                }
            }
        }
    }

    fn note(&mut self, text: &[u8]) {
        self.facts.notes.push(text, None, self.room);
    }

    fn note_if(&mut self, message: &[u8], start: &[u8]) {
        if message.starts_with(start) {
            self.note(message);
        }
    }

    fn read_channel(&mut self, message: &[u8]) {
        if let Some(channel) = parse_channel(message) {
            self.milestones.past_bootstrap = true;
            self.channels.count(&channel, self.facts, self.room);
        } else if message.starts_with(b"Connected all ") {
            self.milestones.past_bootstrap = true;
            self.facts.connected = true;
        } else if message.starts_with(b"Channel ") {
            self.milestones.past_bootstrap = true;
        } else if message.starts_with(b"Count not open ") {
            self.note(message);
        }
    }

    fn read_net(&mut self, message: &[u8]) {
        let text = lossy(message);
        if let Some(list) = text.strip_prefix("NET/IB : Using") {
            let devices = parse_ib_devices(list);
            // A plugin and NCCL itself both print the line; the one with devices is the one in use.
            if !devices.is_empty() || self.facts.ib_devices.is_none() {
                self.room.give_back(devices_bytes(self.facts.ib_devices.as_deref().unwrap_or_default()));
                self.facts.ib_devices = self.room.take(devices_bytes(&devices)).then_some(devices);
            }
        } else if text.starts_with("NET/IB : No device found") {
            self.facts.no_ib_device = true;
        } else if let Some(rest) = text.strip_prefix("NET/IB : Made virtual device") {
            if let Some(device) = parse_virtual_device(rest) {
                let devices = self.facts.ib_devices.get_or_insert_default();
                let is_new = devices.len() < 256 && !devices.iter().any(|known| known.index == device.index);
                if is_new && self.room.take(devices_bytes(std::slice::from_ref(&device))) {
                    devices.push(device);
                }
            }
        } else if let Some(list) = text.strip_prefix("NET/Socket : Using") {
            // Once: each line of it is as long as the first.
            if self.facts.socket_interfaces.is_empty() && self.room.take(2 * list.len()) {
                self.facts.socket_interfaces = parse_interfaces(list);
            }
        } else if let Some((_, rest)) = text.split_once(" : GPU Direct RDMA ") {
            self.read_gdr(rest);
        } else if let Some(rest) = text.strip_prefix("NET/Plugin") {
            self.read_net_plugin(rest.trim_start_matches([' ', ':']));
        } else if text.contains("fail") || text.contains("No IP interface") {
            self.note(message);
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
                    None if hcas.len() < 64 && self.room.take(2 * name.len() + 64) => {
                        hcas.push((name.to_owned(), enabled))
                    }
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
        if plugins.len() < MAX_PLUGINS
            && !plugins.iter().any(|known| known.name == name && known.state == state)
            && let Some(name) = self.room.keep(name.as_bytes())
        {
            plugins.push(PluginUse { name, state });
        }
    }

    fn read_nccl(&mut self, message: &[u8]) {
        if let Some(version) = message.strip_prefix(b"NCCL version ") {
            self.version(version);
        } else if let Some((name, value)) = lossy(message).split_once(" set by environment to ") {
            let number = value.strip_suffix('.').filter(|number| number.parse::<i64>().is_ok());
            let value = number.unwrap_or(value.trim_end());
            if self.facts.settings.len() < MAX_SETTINGS
                && self.facts.setting(name).is_none()
                && let Some(name) = self.room.keep(name.as_bytes())
                && let Some(value) = self.room.keep(value.as_bytes())
            {
                self.facts.settings.push((name, value));
            }
        }
    }

    fn version(&mut self, text: &[u8]) {
        let text = lossy(text);
        let word = text.split_whitespace().next().unwrap_or_default();
        if parse_nccl_version(word).is_none() || self.facts.version.as_deref() == Some(word) {
            return;
        }
        if self.facts.version.is_none() {
            self.facts.version = self.room.keep(word.as_bytes());
        } else if self.facts.other_versions.len() < MAX_VERSIONS
            && !self.facts.other_versions.iter().any(|known| known == word)
        {
            self.facts.other_versions.extend(self.room.keep(word.as_bytes()));
        }
    }

    fn read_bootstrap(&mut self, message: &[u8]) {
        let text = lossy(message);
        let Some(rest) = text.strip_prefix("Bootstrap") else { return };
        if let Some(list) = rest.trim_start_matches([' ', ':']).strip_prefix("Using") {
            self.milestones.bootstrap = true;
            if self.facts.bootstrap.is_none() && self.room.take(2 * list.len()) {
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
            self.room.give_back(self.facts.network.take().map_or(0, |old| old.len() + size_of::<String>()));
            self.facts.network = self.room.keep(network.trim_end().as_bytes());
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
            self.note(message);
        }
    }

    fn read_communicator(&mut self, message: &[u8]) {
        let complete = message.ends_with(b"Init COMPLETE");
        if complete || message.ends_with(b"Init START") {
            self.milestones.bootstrap = true;
            self.milestones.past_bootstrap |= complete;
            self.milestones.complete |= complete;
            self.take_membership(message);
        } else if [b"Destroy COMPLETE".as_slice(), b"Abort START", b"Abort COMPLETE", b"Finalize COMPLETE"]
            .iter()
            .any(|end| message.ends_with(end))
        {
            self.milestones.ended = true;
            // Of a text that begins later these are the only lines with a rank.
            self.take_membership(message);
        } else if NODES.find(message).is_some() {
            self.milestones.past_bootstrap = true;
        }
    }

    fn take_membership(&mut self, message: &[u8]) {
        let Some(membership) = parse_membership(&lossy(message)) else { return };
        let known = &mut self.facts.memberships;
        // The end of a communicator has no commId.
        let alike = |other: &Membership| {
            other.rank == membership.rank
                && other.nranks == membership.nranks
                && (membership.comm_id.is_none() || other.comm_id == membership.comm_id)
        };
        let is_new = known.len() < MAX_MEMBERSHIPS && !known.iter().any(alike);
        if is_new && self.room.take(2 * size_of::<Membership>() + message.len()) {
            known.push(membership);
        }
    }
}

static VERSION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("NCCL version "));
static CUDA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("+cuda"));
static FAILED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" fail"));
static NODES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" nNodes "));

/// Words of other programs that name a failure, and NCCL's own where the line lost its prefix.
static TELLING: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = [
        "Test NCCL failure",
        "Test CUDA failure",
        "Test failure ",
        "NCCL failure ",
        "NCCL error",
        "uda failure",
        "libibverbs: Warning",
        "ddress already in use",
        "undefined symbol: nccl",
        "undefined symbol: pnccl",
        "insufficient shared memory (shm)",
        "Incompatible NCCL versions",
        "forward compatibility was attempted",
        "unsupported display driver",
        "driver version is insufficient",
        "driver on your system is too old",
        "no CUDA-capable device",
        "Found no NVIDIA driver on your system",
        "ailed to open libibverbs",
        "Address family not supported by protocol",
        "could not select device driver",
        "unsatisfied condition: cuda",
        "Watchdog caught collective operation timeout",
        "egmentation fault",
        "NCCL WARN ",
        "NET/IB : Unable to open device",
        "NET/IB : No device found",
        "NET/IB : No IP interface",
        "NET/OFI ",
        "Call to ibv_",
        "Got completion from peer",
        "shared memory segment",
        "Mismatched NCCL version",
        "Bootstrap : no socket interface found",
    ];
    // Short words over short lines: this cannot grow beyond its limits.
    AhoCorasick::new(words).unwrap_or_else(|_| unreachable!("the words are few"))
});

fn lossy(text: &[u8]) -> Cow<'_, str> {
    // The list of devices of a large host is the longest message; NCCL cuts it at 2047 bytes.
    String::from_utf8_lossy(&text[..text.len().min(2048)])
}

/// What a list of devices takes, roughly.
fn devices_bytes(devices: &[IbDevice]) -> usize {
    let port = |port: &IbPort| 2 * size_of::<IbPort>() + port.device.len() + port.link.len();
    let device = |device: &IbDevice| 2 * size_of::<IbDevice>() + device.ports.iter().map(port).sum::<usize>();
    devices.iter().map(device).sum()
}
