//! The messages that say what NCCL found and what it connected: text → values. No copies, no allocation for a channel.
//!
//! Sources (NVIDIA/nccl): channels `src/transport/{net,p2p,shm,coll_net}.cc`; devices `src/transport/net_ib*` and
//! `net_socket.cc`; ranks `src/init.cc`; all v2.4 to v2.30.

use super::line::parse_u32;
use crate::nccl_settings::MAX_INTERFACES;
use serde::{Deserialize, Serialize};

/// Reads a text from its beginning.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, text: &[u8]) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> Option<u32> {
        let end = self.0.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.0.len());
        let value = parse_u32(&self.0[..end])?;
        self.0 = &self.0[end..];
        Some(value)
    }

    /// `[3]`, `[3000]` (a bus id in hexadecimal, to 2.17) or nothing.
    fn skip_bracketed(&mut self) {
        if self.0.first() == Some(&b'[')
            && let Some(close) = self.0.iter().take(20).position(|byte| *byte == b']')
        {
            self.0 = &self.0[close + 1..];
        }
    }
}

/// Which way the data of a channel line goes, seen from the rank that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Send,
    Receive,
}

/// A channel line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelLine<'a> {
    /// The other rank; `None`: a collective network has none.
    pub peer: Option<u32>,
    pub direction: Direction,
    /// The text after `via `, for [`parse_via`].
    pub via: &'a [u8],
}

/// The transport after `via`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via<'a> {
    Net { network: &'a [u8], device: u32, gdr: bool, shared: bool, proxied: bool },
    P2p(&'a [u8]),
    Shm,
    CollNet { network: &'a [u8], device: u32, gdr: bool },
}

/// Reads a channel line; `None` for the lines of a ring's order, which begin alike.
///
/// `Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(4)/GDRDMA(PCI)/Shared`, `Channel 00 : 0[0] -> 1[1] via SHM/direct/direct`,
/// `Ring 00 : 3 -> 0 [receive] via NET/IB/0` (2.4), `CollNet 00/0 : 2 [send] via COLLNET/SHARP/0/GDRDMA`.
pub(super) fn parse_channel(message: &[u8]) -> Option<ChannelLine<'_>> {
    let mut text = Cursor(message);
    let collective = if text.take(b"Channel ") || text.take(b"Ring ") {
        false
    } else if text.take(b"CollNet ") || text.take(b"Coll ") {
        true
    } else {
        return None;
    };
    text.number()?;
    if text.take(b"/") {
        text.number()?;
    }
    if !text.take(b" : ") {
        return None;
    }
    let first = text.number()?;
    text.skip_bracketed();
    let mut second = None;
    if !collective {
        if !text.take(b" -> ") {
            return None;
        }
        second = Some(text.number()?);
        text.skip_bracketed();
    }
    let direction = if text.take(b" [receive]") {
        Direction::Receive
    } else {
        text.take(b" [send]");
        Direction::Send
    };
    if !text.take(b" via ") {
        return None;
    }
    let peer = if direction == Direction::Send { second } else { second.and(Some(first)) };
    Some(ChannelLine { peer, direction, via: text.0 })
}

/// Reads what carries a channel.
pub(super) fn parse_via(text: &[u8]) -> Option<Via<'_>> {
    let mut text = Cursor(text);
    if text.take(b"NET/") {
        let (network, mut text) = network_and_rest(text.0)?;
        let device = text.number()?;
        let proxied = text.take(b"(");
        if proxied {
            text.number()?;
            text.take(b")");
        }
        let gdr = text.take(b"/GDRDMA");
        text.take(b"(PCI)");
        let shared = text.take(b"/Shared");
        return Some(Via::Net { network, device, gdr, shared, proxied });
    }
    if text.take(b"P2P/") {
        let end = text.0.iter().position(|byte| *byte == b'/').unwrap_or(text.0.len());
        return Some(Via::P2p(text.0[..end].trim_ascii_end()));
    }
    if text.take(b"SHM/") || text.take(b"SHM") || text.take(b"direct shared memory") {
        return Some(Via::Shm);
    }
    if text.take(b"COLLNET/") {
        let (network, mut text) = network_and_rest(text.0)?;
        let device = text.number()?;
        return Some(Via::CollNet { network, device, gdr: text.take(b"/GDRDMA") });
    }
    None
}

/// `AWS Libfabric/0…` → the name and what follows the slash before the number.
fn network_and_rest(text: &[u8]) -> Option<(&[u8], Cursor<'_>)> {
    let slash = text.windows(2).position(|pair| pair[0] == b'/' && pair[1].is_ascii_digit())?;
    (slash > 0).then(|| (&text[..slash], Cursor(&text[slash + 1..])))
}

/// A device of `NET/IB : Using`: one that channels name by its number, made of one physical port or of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IbDevice {
    /// The `n` of `NET/IB/n`.
    pub index: u32,
    pub ports: Vec<IbPort>,
}

impl IbDevice {
    /// NCCL's name: `mlx5_0`, merged `mlx5_0+mlx5_1`.
    pub fn name(&self) -> String {
        self.ports.iter().map(|port| port.device.as_str()).collect::<Vec<_>>().join("+")
    }
}

/// A physical port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IbPort {
    /// The kernel's name, without what NCCL appends to it.
    pub device: String,
    /// `None`: the line did not say (virtual devices since 2.24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// `RoCE` for every Ethernet link, iWARP too; `IB`; with `/SHARP` where the plugin says so; empty: not said.
    pub link: String,
    /// 2.30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plane: Option<u32>,
}

/// Most devices of a list (`MAX_IB_DEVS` is 32, `MAX_IB_VDEVS` 256).
const MAX_DEVICES: usize = 256;

/// Reads the text after `NET/IB : Using`; the list can be empty (2.24 – 2.30 print it so without a device).
///
/// ` [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:…`, ` [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} …` (2.21 – 2.23,
/// IBext_v8), ` [0]mlx5_0:1/IB/SHARP …` (HPC-X), ` [0]erdma_0:1:<rail>:<plane>/RoCE …` (2.30).
pub(super) fn parse_ib_devices(text: &str) -> Vec<IbDevice> {
    let list = text.split("; OOB").next().unwrap_or(text);
    // With merged devices the number of a single one is its physical number; channels use the place in the list.
    let by_place = list.contains("={");
    let mut devices = Vec::new();
    let mut rest = list.trim_start();
    while let Some(inner) = rest.strip_prefix('[') {
        let Some((number, after)) = inner.split_once(']') else { break };
        // `[RO]` ends the list.
        let Ok(number) = number.trim().parse::<u32>() else { break };
        let (body, next) = match after.strip_prefix("={") {
            Some(merged) => merged.split_once('}').unwrap_or((merged, "")),
            None => {
                let end = after
                    .trim_start()
                    .find(' ')
                    .map_or(after.len(), |end| end + after.len() - after.trim_start().len());
                after.split_at(end)
            }
        };
        let ports: Vec<IbPort> = body.split(',').filter_map(parse_port).take(8).collect();
        if !ports.is_empty() && devices.len() < MAX_DEVICES {
            let index = if by_place { u32::try_from(devices.len()).unwrap_or(number) } else { number };
            devices.push(IbDevice { index, ports });
        }
        rest = next.trim_start();
    }
    devices
}

/// NCCL appends `_dma` to the name of a device that it reaches by Data Direct (NVIDIA/nccl, src/transport/net_ib.cc);
/// sysfs, counters and `NCCL_IB_HCA` know the same device without it.
fn kernel_name(name: &str) -> &str {
    name.strip_suffix("_dma").unwrap_or(name)
}

/// `[0] mlx5_2:1/RoCE`, `erdma_0:1:3:0/RoCE`, `mlx5_0:1/IB/SHARP`.
fn parse_port(text: &str) -> Option<IbPort> {
    let text = text.trim();
    let text = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((_, name)) => name.trim_start(),
        None => text,
    };
    let (address, link) = text.split_once('/')?;
    let mut fields = address.split(':');
    let device = kernel_name(fields.next().filter(|name| !name.is_empty())?).to_owned();
    let port = fields.next()?.parse().ok()?;
    let mut optional = || fields.next().and_then(|field| field.parse().ok());
    Some(IbPort { device, port: Some(port), rail: optional(), plane: optional(), link: link.trim().to_owned() })
}

/// `[2] name=mlx5_0+mlx5_1 speed=… ndevs=2`, behind `NET/IB : Made virtual device` (2.24+, NET subsystem only).
pub(super) fn parse_virtual_device(text: &str) -> Option<IbDevice> {
    let (index, rest) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let name = rest.trim_start().strip_prefix("name=")?.split(' ').next()?;
    let port = |device: &str| IbPort {
        device: kernel_name(device).to_owned(),
        port: None,
        link: String::new(),
        rail: None,
        plane: None,
    };
    let ports: Vec<IbPort> = name.split('+').filter(|name| !name.is_empty()).take(8).map(port).collect();
    (!ports.is_empty()).then_some(IbDevice { index: index.parse().ok()?, ports })
}

/// An interface and address, `eth0:192.0.2.7<0>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SocketInterface {
    pub name: String,
    /// The address that NCCL prints, without the port.
    pub address: String,
}

/// Reads the list behind `NET/Socket : Using` and `Bootstrap : Using`, whose entries may have numbers: ` [0]eth0:…<0> [1]…`.
pub(super) fn parse_interfaces(text: &str) -> Vec<SocketInterface> {
    let entry = |word: &str| {
        let word = word.strip_prefix('[').and_then(|inner| inner.split_once(']')).map_or(word, |(_, entry)| entry);
        let (name, address) = word.split_once(':')?;
        let address = address.split('<').next().unwrap_or(address);
        let whole = !name.is_empty() && !address.is_empty();
        whole.then(|| SocketInterface { name: name.to_owned(), address: address.to_owned() })
    };
    text.split_whitespace().filter_map(entry).take(MAX_INTERFACES).collect()
}

/// A rank of a communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Membership {
    pub rank: u32,
    pub nranks: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_id: Option<String>,
    /// Since 2.18.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm_id: Option<String>,
}

/// Reads `… comm 0x… rank R nranks N cudaDev D nvmlDev V busId B commId 0x… - Init START`.
pub(super) fn parse_membership(text: &str) -> Option<Membership> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "comm").skip(2);
    let mut membership = Membership { rank: 0, nranks: 0, bus_id: None, comm_id: None };
    let mut rank = None;
    while let Some(name) = words.next() {
        match name {
            "rank" => rank = words.next()?.parse().ok(),
            "nranks" | "nRanks" => membership.nranks = words.next()?.parse().ok()?,
            "busId" => membership.bus_id = words.next().map(str::to_owned),
            "commId" => membership.comm_id = words.next().map(str::to_owned),
            "-" => break,
            _ => {}
        }
    }
    membership.rank = rank?;
    (membership.nranks > membership.rank).then_some(membership)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_every_version() {
        let net =
            |network: &'static [u8], device, gdr, shared, proxied| Via::Net { network, device, gdr, shared, proxied };
        let table: &[(&str, Option<u32>, Direction, Via<'_>)] = &[
            (
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
                Some(1),
                Direction::Send,
                net(b"IB", 0, true, false, false),
            ),
            (
                "Channel 01/1 : 5[5] -> 1[0] [receive] via NET/IB/11",
                Some(5),
                Direction::Receive,
                net(b"IB", 11, false, false, false),
            ),
            (
                "Channel 01/1 : 5[5] -> 1[0] [send] via NET/IB/2(4)/GDRDMA(PCI)/Shared",
                Some(1),
                Direction::Send,
                net(b"IB", 2, true, true, true),
            ),
            (
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA/Shared",
                Some(1),
                Direction::Send,
                net(b"AWS Libfabric", 0, true, true, false),
            ),
            (
                "Channel 00 : 1[3000] -> 0[b1000] [receive] via NET/IB/0",
                Some(1),
                Direction::Receive,
                net(b"IB", 0, false, false, false),
            ),
            (
                "Ring 00 : 3 -> 0 [receive] via NET/IB/0",
                Some(3),
                Direction::Receive,
                net(b"IB", 0, false, false, false),
            ),
            ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", Some(1), Direction::Send, Via::P2p(b"CUMEM")),
            (
                "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer",
                Some(1),
                Direction::Send,
                Via::P2p(b"direct pointer"),
            ),
            ("Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/2[2]", Some(1), Direction::Send, Via::P2p(b"indirect")),
            ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", Some(1), Direction::Send, Via::Shm),
            ("Channel 00 : 0[0] -> 1[1] via SHM/direct", Some(1), Direction::Send, Via::Shm),
            ("Ring 00 : 0[0] -> 1[1] via direct shared memory", Some(1), Direction::Send, Via::Shm),
            (
                "CollNet 00/0 : 2 [send] via COLLNET/SHARP/0/GDRDMA",
                None,
                Direction::Send,
                Via::CollNet { network: b"SHARP", device: 0, gdr: true },
            ),
            (
                "Coll 00 : 2 [receive] via COLLNET/SHARP/0",
                None,
                Direction::Receive,
                Via::CollNet { network: b"SHARP", device: 0, gdr: false },
            ),
        ];
        for (text, peer, direction, via) in table {
            let line = parse_channel(text.as_bytes()).unwrap();
            assert_eq!((line.peer, line.direction, parse_via(line.via)), (*peer, *direction, Some(*via)), "{text}");
        }
        for text in [
            "Channel 00/02 : 0 1",
            "Ring 00 : 0 -> 1 -> 2",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET//0",
            "Channel 00/0 : 0[0] -> 1[0] [send] via ",
            "Channel 00/0 : 0[0] ->",
            "Connected all rings",
        ] {
            assert_eq!(parse_channel(text.as_bytes()).and_then(|line| parse_via(line.via)), None, "{text}");
        }
    }

    #[test]
    fn lists_of_devices() {
        let names = |text: &str| {
            let devices = parse_ib_devices(text);
            devices.iter().map(|device| format!("{}={}", device.index, device.name())).collect::<Vec<_>>()
        };
        for (text, expected) in [
            (
                " [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.7<0>",
                &["0=erdma_0", "1=erdma_1"] as &[&str],
            ),
            (
                " [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [2]mlx5_4:1/RoCE [RO]; OOB e:1<0>",
                &["0=mlx5_2+mlx5_3", "1=mlx5_4"],
            ),
            (" [0]={[0] mlx5_2:1/RoCE} [1]={[1] mlx5_3:1/RoCE} ; OOB", &["0=mlx5_2", "1=mlx5_3"]),
            (" [0]mlx5_0:1/IB/SHARP [RO]; OOB ib0:192.0.2.7<0>", &["0=mlx5_0"]),
            (" [0]erdma_0:1:3:7/RoCE [1]erdma_1:1::2/RoCE [RO]; OOB", &["0=erdma_0", "1=erdma_1"]),
            (" ; OOB eth0:192.0.2.7<0>", &[]),
            (" [RO]; OOB eth0:192.0.2.7<0>", &[]),
            ("", &[]),
            (" [0]erdma_0:", &[]),
            (" [0]={[0] mlx5_2:1/RoCE", &["0=mlx5_2"]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
        let devices = parse_ib_devices(" [0]erdma_0:1:3:7/RoCE [1]erdma_1:1::2/RoCE");
        assert_eq!((devices[0].ports[0].rail, devices[0].ports[0].plane), (Some(3), Some(7)));
        assert_eq!((devices[1].ports[0].rail, devices[1].ports[0].plane), (None, Some(2)));
        let sharp = parse_ib_devices(" [0]mlx5_0:1/IB/SHARP");
        assert_eq!(sharp[0].ports[0].link, "IB/SHARP");
        assert_eq!(
            parse_virtual_device(" [2] name=mlx5_0+mlx5_1 speed=400000 ndevs=2").unwrap().name(),
            "mlx5_0+mlx5_1"
        );
        assert_eq!(parse_virtual_device(" [x] name="), None);
    }

    #[test]
    fn ranks_of_every_version() {
        for (text, rank, nranks, bus, comm) in [
            ("comm 0x1 rank 3 nranks 8 cudaDev 1 nvmlDev 1 - Init COMPLETE", 3, 8, None, None),
            ("comm 0x1 rank 3 nranks 8 cudaDev 1 busId b1000 - Init COMPLETE", 3, 8, Some("b1000"), None),
            (
                "comm 0x1 rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 60 commId 0x9 - Init START",
                3,
                8,
                Some("60"),
                Some("0x9"),
            ),
            (
                "[Rank 3] ncclCommInitRank comm 0x1 rank 3 nranks 8 cudaDev 1 nvmlDev 1 busId 60 commId 0x9 - Init START",
                3,
                8,
                Some("60"),
                Some("0x9"),
            ),
        ] {
            let found = parse_membership(text).unwrap();
            assert_eq!((found.rank, found.nranks), (rank, nranks), "{text}");
            assert_eq!((found.bus_id.as_deref(), found.comm_id.as_deref()), (bus, comm), "{text}");
        }
        for text in ["comm", "comm 0x1 rank 8 nranks 8", "comm 0x1 rank x nranks 8", "rank 0 nranks 2"] {
            assert_eq!(parse_membership(text), None, "{text}");
        }
    }

    #[test]
    fn interfaces() {
        let found = parse_interfaces(" [0]eth0:192.0.2.7<0> [1]br-1a:198.51.100.1<0>");
        assert_eq!(found.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["eth0", "br-1a"]);
        assert_eq!(parse_interfaces(" eth0:2001:db8::7<0>")[0].address, "2001:db8::7");
        assert_eq!(parse_interfaces(" : x y:"), []);
    }
}
