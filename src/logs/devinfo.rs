//! What the tools of a host say about its RDMA devices: `ibv_devinfo`, `show_gids`, and files of sysfs read with `grep .`.
//! Pure: lines in, values out.
//!
//! Sources: linux-rdma/rdma-core `libibverbs/examples/devinfo.c` (v15 to v64); `show_gids` is a script of OFED. Lines that
//! are none of theirs change nothing; what is kept has a bound.

use crate::fabric::erdma::ERDMA;
use crate::fabric::nic::Nic;
use serde::{Deserialize, Serialize};

const MAX_DEVICES: usize = 256;
/// Ports of a device: one or two.
const MAX_PORTS: usize = 16;
/// A device with 256 virtual functions' addresses has 512.
const MAX_GIDS: usize = 4096;
const MAX_KEYS: usize = 1024;
/// Bytes of a word that is kept.
const MAX_WORD: usize = 128;

/// The RDMA devices in a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaTexts {
    /// Blocks of `ibv_devinfo`.
    pub devices: Vec<RdmaDevice>,
    /// From `ibv_devinfo -v`, `show_gids` or sysfs.
    pub gids: Vec<Gid>,
    /// From sysfs, `ports/N/pkeys/I`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_keys: Vec<PartitionKey>,
    /// `ibv_devinfo` found no device.
    pub no_devices: bool,
    /// Devices that `ibv_devinfo` could not open: it does not say which.
    pub unopened_devices: u32,
    /// A line of `ibv_devinfo` was seen.
    #[serde(skip)]
    pub has_devinfo: bool,
    /// The head or a row of `show_gids` was seen.
    #[serde(skip)]
    pub has_gid_table: bool,
    #[serde(skip)]
    pub has_sysfs: bool,
}

/// A block of `ibv_devinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaDevice {
    pub name: String,
    /// `InfiniBand (0)` (RoCE, too), `iWARP (1)`, `unspecified (4)`.
    pub transport: String,
    /// `0x1ded`.
    pub vendor_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    pub ports: Vec<RdmaPort>,
}

/// A port of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaPort {
    pub number: u32,
    /// `PORT_ACTIVE (4)`.
    pub state: String,
    /// `Ethernet`, `InfiniBand`.
    pub link_layer: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub active_mtu: String,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gid {
    pub device: String,
    pub port: u32,
    pub index: u32,
    pub gid: String,
    /// `RoCE v2`, `RoCE v1`; empty: not said (InfiniBand).
    pub kind: String,
    /// The network interface it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// An entry of a table of partition keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartitionKey {
    pub device: String,
    pub port: u32,
    pub index: u32,
    /// `0xffff` is full membership of the default partition.
    pub key: u16,
}

impl RdmaDevice {
    pub fn is_iwarp(&self) -> bool {
        self.transport.starts_with("iWARP")
    }

    /// By vendor: the name may be any (`rocep26s0`).
    pub fn is_erdma(&self) -> bool {
        ERDMA.drives(Nic { pci_vendor: Some(&self.vendor_id), driver: None, name: &self.name })
    }

    pub fn has_active_port(&self) -> bool {
        self.ports.iter().any(RdmaPort::is_active)
    }
}

impl RdmaPort {
    pub fn is_active(&self) -> bool {
        self.state.starts_with("PORT_ACTIVE ") || self.state == "PORT_ACTIVE"
    }
}

impl RdmaTexts {
    pub fn is_empty(&self) -> bool {
        !(self.has_devinfo || self.has_gid_table || self.has_sysfs)
    }

    /// Adds what another text of the same run says.
    pub fn append(&mut self, other: RdmaTexts) {
        self.devices.extend(other.devices);
        self.devices.truncate(MAX_DEVICES);
        self.gids.extend(other.gids);
        self.gids.truncate(MAX_GIDS);
        self.partition_keys.extend(other.partition_keys);
        self.partition_keys.truncate(MAX_KEYS);
        self.no_devices |= other.no_devices;
        self.unopened_devices = self.unopened_devices.saturating_add(other.unopened_devices);
        self.has_devinfo |= other.has_devinfo;
        self.has_gid_table |= other.has_gid_table;
        self.has_sysfs |= other.has_sysfs;
    }

    /// Takes a line, without what a launcher put in front.
    pub fn push_line(&mut self, line: &str) {
        let line = line.trim();
        if line.contains("/sys/class/infiniband") && line.ends_with("No such file or directory") {
            // `ls: cannot access '/sys/class/infiniband': …`; a file further down says nothing of devices.
            let is_all =
                ["infiniband'", "infiniband/'", "infiniband/*'", "infiniband:", "infiniband/:", "infiniband/*:"];
            if is_all.iter().any(|end| line.contains(end)) {
                (self.has_sysfs, self.no_devices) = (true, true);
            }
        } else if let Some(path) = line.strip_prefix("/sys/class/infiniband/") {
            self.sysfs(path);
        } else if let Some(rest) = line.strip_prefix("GID[") {
            self.devinfo_gid(rest);
        } else if let Some((key, value)) = line.split_once(':')
            && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
            && !key.is_empty()
        {
            self.field(key, value.trim());
        } else if line.starts_with("No IB devices found") {
            (self.has_devinfo, self.no_devices) = (true, true);
        } else if line.starts_with("Failed to open device") {
            self.has_devinfo = true;
            self.unopened_devices = self.unopened_devices.saturating_add(1);
        } else if line.starts_with("Failed to get IB devices list") {
            self.has_devinfo = true;
        } else if line.starts_with("DEV") && line.contains("PORT") && line.contains("GID") {
            self.has_gid_table = true;
        } else if let Some(gid) = parse_gid_row(line) {
            self.has_gid_table = true;
            self.gid(gid);
        }
    }

    fn gid(&mut self, gid: Gid) {
        let is_known = |known: &Gid| known.device == gid.device && known.port == gid.port && known.index == gid.index;
        if self.gids.len() < MAX_GIDS && !self.gids.iter().rev().take(64).any(is_known) {
            self.gids.push(gid);
        }
    }

    fn field(&mut self, key: &str, value: &str) {
        if key == "hca_id" {
            self.has_devinfo = true;
            if self.devices.len() < MAX_DEVICES {
                self.devices.push(RdmaDevice { name: kept(value), ..RdmaDevice::default() });
            }
            return;
        }
        let Some(device) = self.devices.last_mut() else { return };
        if key == "port" {
            if let Ok(number) = value.parse()
                && device.ports.len() < MAX_PORTS
            {
                device.ports.push(RdmaPort { number, ..RdmaPort::default() });
            }
            return;
        }
        let port = device.ports.last_mut();
        let place = match (key, port) {
            ("transport", _) => &mut device.transport,
            ("vendor_id", _) => &mut device.vendor_id,
            ("fw_ver", _) => &mut device.firmware,
            ("state", Some(port)) => &mut port.state,
            ("link_layer", Some(port)) => &mut port.link_layer,
            ("active_mtu", Some(port)) => &mut port.active_mtu,
            _ => return,
        };
        // Text behind the block may look like a field of it: the first one is the block's.
        if place.is_empty() {
            *place = kept(value);
        }
    }

    /// `  1]: fe80::…, RoCE v2`, with tabs before the address.
    fn devinfo_gid(&mut self, text: &str) {
        let Some(device) = self.devices.last() else { return };
        let Some((index, rest)) = text.split_once("]:") else { return };
        let Ok(index) = index.trim().parse() else { return };
        let (gid, kind) = rest.split_once(',').unwrap_or((rest, ""));
        if !is_gid(gid.trim()) {
            return;
        }
        let port = device.ports.last().map_or(1, |port| port.number);
        let (gid, kind) = (kept(gid.trim()), kept(kind.trim()));
        self.gid(Gid { device: device.name.clone(), port, index, gid, kind, interface: None });
    }

    /// `mlx5_0/ports/1/pkeys/0:0xffff`, `…/gids/3:0000:…`, `…/gid_attrs/types/3:RoCE v2`.
    fn sysfs(&mut self, path: &str) {
        let Some((place, value)) = path.split_once(':') else { return };
        let parts: Vec<&str> = place.split('/').take(7).collect();
        let [device, "ports", port, rest @ ..] = &parts[..] else { return };
        let Ok(port) = port.parse() else { return };
        let value = value.trim();
        match rest {
            ["pkeys", index] => {
                let key = u16::from_str_radix(value.trim_start_matches("0x"), 16);
                if let (Ok(index), Ok(key)) = (index.parse(), key)
                    && self.partition_keys.len() < MAX_KEYS
                {
                    self.has_sysfs = true;
                    self.partition_keys.push(PartitionKey { device: kept(device), port, index, key });
                }
            }
            ["gids", index] => {
                // Empty entries are zeros all over.
                if let Ok(index) = index.parse()
                    && is_gid(value)
                {
                    self.has_sysfs = true;
                    if value.contains(|c: char| c != '0' && c != ':') {
                        let (device, gid) = (kept(device), kept(value));
                        self.gid(Gid { device, port, index, gid, ..Gid::default() });
                    }
                }
            }
            ["gid_attrs", attribute, index] => {
                let Ok(index) = index.parse::<u32>() else { return };
                let entry = self
                    .gids
                    .iter_mut()
                    .rev()
                    .find(|gid| gid.device == **device && gid.port == port && gid.index == index);
                match (*attribute, entry) {
                    ("types", Some(entry)) => entry.kind = kept(value),
                    ("ndevs", Some(entry)) => entry.interface = Some(kept(value)),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// `mlx5_0 1 3 0000:…:ffff:c000:0207 192.0.2.7 v2 eth1`: the column of the IPv4 address may be empty.
fn parse_gid_row(line: &str) -> Option<Gid> {
    let mut words = line.split_whitespace();
    let (device, port, index) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let gid = words.next().filter(|word| word.len() == 39 && is_gid(word))?;
    let rest: Vec<&str> = words.take(5).collect();
    let version = rest.iter().position(|word| matches!(*word, "v1" | "v2"));
    let kind = version.map(|at| format!("RoCE {}", rest[at])).unwrap_or_default();
    let interface = version.and_then(|at| rest.get(at + 1)).map(|word| kept(word));
    Some(Gid { device: kept(device), port, index, gid: kept(gid), kind, interface })
}

/// Hexadecimal groups and colons, with an IPv4 address at the end or not.
fn is_gid(text: &str) -> bool {
    text.len() >= 2
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        && text.bytes().filter(|byte| *byte == b':').count() >= 2
}

fn kept(text: &str) -> String {
    let mut end = text.len().min(MAX_WORD);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RdmaTexts {
        let mut texts = RdmaTexts::default();
        text.lines().for_each(|line| texts.push_line(line));
        texts
    }

    const DEVINFO: &str = "hca_id:\terdma_0\n\ttransport:\t\t\tiWARP (1)\n\tfw_ver:\t\t\t\t0.2.0\n\tnode_guid:\t\t\t0216:3eff:fe00:0001\n\tvendor_id:\t\t\t0x1ded\n\tvendor_part_id:\t\t\t4223\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t1024 (3)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tlink_layer:\t\tEthernet\n\t\t\tGID[  0]:\t\tfe80::216:3eff:fe00:1, RoCE v1\n\t\t\tGID[  3]:\t\t::ffff:192.0.2.7, RoCE v2\n\nhca_id:\trocep26s0\n\ttransport:\t\t\tInfiniBand (0)\n\tvendor_id:\t\t\t0x1ded\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n\t\t\tlink_layer:\t\tEthernet\n";

    #[test]
    fn blocks_of_devinfo() {
        let texts = read(DEVINFO);
        let [first, second] = &texts.devices[..] else { panic!("{texts:?}") };
        assert!(first.is_iwarp() && first.is_erdma() && first.has_active_port());
        assert_eq!((first.name.as_str(), first.firmware.as_str()), ("erdma_0", "0.2.0"));
        assert_eq!((first.ports[0].link_layer.as_str(), first.ports[0].active_mtu.as_str()), ("Ethernet", "1024 (3)"));
        assert!(!second.is_iwarp() && second.is_erdma() && !second.has_active_port());
        let gids: Vec<(u32, &str, &str)> =
            texts.gids.iter().map(|g| (g.index, g.gid.as_str(), g.kind.as_str())).collect();
        assert_eq!(gids, [(0, "fe80::216:3eff:fe00:1", "RoCE v1"), (3, "::ffff:192.0.2.7", "RoCE v2")]);
        // With spaces in place of tabs, as a terminal copies it.
        assert_eq!(read(&DEVINFO.replace('\t', "    ")), texts);
    }

    #[test]
    fn devices_that_are_not_there() {
        let none = read("No IB devices found\n");
        assert!(none.no_devices && !none.is_empty());
        let closed = read(&format!("Failed to open device\n{DEVINFO}"));
        assert_eq!((closed.unopened_devices, closed.devices.len()), (1, 2));
        assert!(read("error: nothing\nstate: x\nport: 1\n").is_empty());
    }

    /// In a container the list may begin at any index; link-local rows have no IPv4 address.
    #[test]
    fn tables_of_show_gids() {
        let text = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\nmlx5_0\t1\t4\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\t\tv2\teth1\nmlx5_0\t1\t5\t0000:0000:0000:0000:0000:ffff:c000:0207\t192.0.2.7  \tv2\teth1\nn_gids_found=2\n";
        let texts = read(text);
        assert!(texts.has_gid_table);
        let rows: Vec<(u32, &str, Option<&str>)> =
            texts.gids.iter().map(|g| (g.index, g.kind.as_str(), g.interface.as_deref())).collect();
        assert_eq!(rows, [(4, "RoCE v2", Some("eth1")), (5, "RoCE v2", Some("eth1"))]);
    }

    #[test]
    fn files_of_sysfs() {
        let texts = read(
            "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0:0x8001\n/sys/class/infiniband/mlx5_0/ports/1/pkeys/1:0xffff\n/sys/class/infiniband/mlx5_0/ports/1/gids/0:0000:0000:0000:0000:0000:0000:0000:0000\n/sys/class/infiniband/mlx5_0/ports/1/gids/3:0000:0000:0000:0000:0000:ffff:c000:0207\n/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3:RoCE v2\n/sys/class/infiniband/mlx5_0/x\n",
        );
        assert_eq!(texts.partition_keys.iter().map(|key| key.key).collect::<Vec<_>>(), [0x8001, 0xffff]);
        assert_eq!((texts.gids.len(), texts.gids[0].index, texts.gids[0].kind.as_str()), (1, 3, "RoCE v2"));
    }
}
