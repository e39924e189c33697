//! RDMA devices with their ports, GID tables and interfaces.

use super::{gid, mtu, numa_node};
use crate::fabric::nic::Nic;
use crate::facts::devices::*;
use crate::facts::run::Interface;
use crate::sysfs::{Tree, rdma};
use std::collections::BTreeMap;
use std::fs;

/// Where to read.
pub(super) struct Host<'a> {
    pub tree: Tree<'a>,
    /// Nodes can be opened.
    pub is_live: bool,
    /// Interfaces with their addresses; none for a captured tree.
    pub interfaces: &'a [Interface],
}

impl Host<'_> {
    pub(super) fn load_devices(&self, modules: &BTreeMap<String, Module>) -> Vec<Hca> {
        rdma::devices(&self.tree).into_iter().map(|name| self.load_device(name, modules)).collect()
    }

    fn load_device(&self, name: String, modules: &BTreeMap<String, Module>) -> Hca {
        let tree = &self.tree;
        let folder = rdma::folder(&name);
        let read = |file: &str| tree.line(&format!("{folder}/{file}"));
        let vendor_id = rdma::vendor(tree, &name);
        let driver = rdma::driver(tree, &name);
        let description = read("node_desc");
        let has_parent = tree.exists(&format!("{folder}/parent"));
        let nic = Nic { pci_vendor: vendor_id.as_deref(), driver: driver.as_deref(), name: &name };
        let maker = maker(nic, description.as_deref(), has_parent);
        let compat_mode = (maker == Maker::AlibabaErdma)
            .then(|| modules.get("erdma")?.parameters.get("compat_mode").and_then(|value| parse_bool(value)))
            .flatten();
        let node_type = read("node_type").map(|text| rdma::word(&text).to_owned());
        let guid = read("node_guid");
        let ports = rdma::ports(tree, &name).into_iter();
        Hca {
            ports: ports.map(|port| self.load_port(&name, port, maker, guid.as_deref())).collect(),
            maker,
            device_id: read("device/device"),
            subsystem_vendor_id: read("device/subsystem_vendor"),
            subsystem_device_id: read("device/subsystem_device"),
            pci_address: rdma::pci_address(tree, &name),
            numa_node: numa_node(tree, &format!("{folder}/device")),
            driver_version: nic.module().and_then(|module| modules.get(module)?.version.clone()),
            transport: node_type.as_deref().map(transport),
            firmware: read("fw_ver"),
            hca_type: read("hca_type"),
            board_id: read("board_id"),
            hardware_revision: read("hw_rev"),
            system_image_guid: read("sys_image_guid"),
            uverbs: rdma::uverbs(tree, &name).map(|node| self.node(format!("/dev/infiniband/{node}"))),
            node_guid: guid,
            vendor_id,
            driver,
            compat_mode,
            node_type,
            description,
            name,
        }
    }

    /// Whether a node exists and can be opened.
    pub(super) fn node(&self, path: String) -> Node {
        let refused = |error: std::io::Error| (Access::Refused, Some(error.to_string()));
        let (access, error) = if self.tree.real("dev").is_none() {
            (Access::NotCaptured, None)
        } else if !self.tree.exists(&path) {
            (Access::Absent, None)
        } else if !self.is_live {
            (Access::NotTried, None)
        } else {
            match fs::File::options().read(true).write(true).open(self.tree.at(&path)) {
                Ok(_) => (Access::Opened, None),
                Err(error) => refused(error),
            }
        };
        Node { path, access, error }
    }

    fn load_port(&self, device: &str, port: u32, maker: Maker, guid: Option<&str>) -> HcaPort {
        let tree = &self.tree;
        let folder = rdma::port_folder(device, &port.to_string());
        let read = |file: &str| tree.line(&format!("{folder}/{file}"));
        let said = |file: &str| read(file).map(|text| rdma::word(&text).to_owned());
        let (gid_table_length, gids) = self.load_gids(&folder);
        let link_layer = read("link_layer");
        let is_infiniband = link_layer.as_deref() == Some("InfiniBand");
        let rate = read("rate");
        let netdev = self.find_netdev(device, port, guid, &folder, &gids);
        let netdev_mtu = netdev.as_ref().and_then(|netdev| netdev.mtu_bytes);
        HcaPort {
            port,
            port_guid: gids.first().filter(|gid| gid.index == 0).and_then(|gid| gid::port_guid(&gid.gid)),
            state: said("state"),
            physical_state: said("phys_state"),
            rate_gbit_per_s: rate.as_deref().and_then(parse_rate),
            rate,
            is_rate_fixed: maker == Maker::AlibabaErdma,
            lid: read("lid"),
            subnet_manager_lid: read("sm_lid"),
            lid_mask_count: read("lid_mask_count"),
            capability_mask: read("cap_mask"),
            derived_active_mtu_bytes: netdev_mtu
                .filter(|_| !is_infiniband)
                .and_then(|bytes| mtu::active_mtu(maker, bytes)),
            netdev,
            gid_table_length,
            nccl_gid: gid::nccl_choice(&gids, is_infiniband),
            gids,
            pkeys: self.load_pkeys(&folder),
            traffic: rdma::traffic(tree, &folder).map(|moved| TrafficFacts {
                sent_bytes: moved.sent_bytes,
                received_bytes: moved.received_bytes,
                sent_packets: moved.sent_packets,
                received_packets: moved.received_packets,
                source: moved.source,
            }),
            counters: self.load_counters(&folder),
            link_layer,
        }
    }

    /// Length of the table, and its used slots.
    fn load_gids(&self, port: &str) -> (u32, Vec<Gid>) {
        let folder = format!("{port}/gids");
        let mut indices: Vec<u32> = self.tree.list(&folder).iter().filter_map(|index| index.parse().ok()).collect();
        indices.sort_unstable();
        let used = indices.iter().filter_map(|index| {
            let text = self.tree.line(&format!("{folder}/{index}"))?;
            // Most slots are empty, and have nothing more to read.
            gid::parse_gid(&text)?;
            let attribute = |name: &str| self.tree.line(&format!("{port}/gid_attrs/{name}/{index}"));
            gid::gid(*index, &text, attribute("types"), attribute("ndevs"))
        });
        (indices.last().map_or(0, |last| last + 1), used.collect())
    }

    fn load_pkeys(&self, port: &str) -> BTreeMap<u32, String> {
        let folder = format!("{port}/pkeys");
        let names = self.tree.list(&folder).into_iter();
        let keys = names.filter_map(|index| Some((index.parse().ok()?, self.tree.line(&format!("{folder}/{index}"))?)));
        keys.filter(|(_, key)| key != "0x0000").collect()
    }

    fn load_counters(&self, port: &str) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        for folder in ["counters", "hw_counters"] {
            for name in self.tree.list(&format!("{port}/{folder}")) {
                // `lifespan` is how long the driver keeps what it read.
                if name == "lifespan" {
                    continue;
                }
                if let Some(value) = self.tree.number(&format!("{port}/{folder}/{name}")) {
                    counters.insert(format!("{folder}/{name}"), value);
                }
            }
        }
        counters
    }

    /// The interface of a port. The kernel's own answer, the GID table, comes first; it lacks iWARP, and eRDMA's interface
    /// is another PCI device, whose MAC is in the node GUID (elastic-rdma-drivers, `addrconf_addr_eui48`).
    fn find_netdev(&self, device: &str, port: u32, guid: Option<&str>, folder: &str, gids: &[Gid]) -> Option<Netdev> {
        let tree = &self.tree;
        let of_device = rdma::folder(device);
        let by_gid = gids.iter().find_map(|gid| gid.netdev.clone());
        let by_gid = by_gid.or_else(|| rdma::gid_interfaces(tree, folder).into_iter().next());
        let by_parent = || tree.line(&format!("{of_device}/parent"));
        let by_pci = || {
            let names = tree.list(&format!("{of_device}/device/net"));
            // `dev_port` counts from 0; a single-port device may also have interfaces of virtual functions.
            let own = |name: &&String| {
                tree.number::<u32>(&format!("{of_device}/device/net/{name}/dev_port")) == Some(port - 1)
            };
            names.iter().find(own).or(names.first()).cloned()
        };
        let by_guid = || {
            let names = tree.list("sys/class/net").into_iter();
            let mut alike = names.filter(|name| {
                let mac = tree.line(&format!("sys/class/net/{name}/address"));
                mac.and_then(|mac| eui64(&mac)).is_some_and(|eui| Some(eui.as_str()) == guid)
            });
            // A bond or bridge on top has the MAC of what is below it.
            let all: Vec<String> = alike.by_ref().collect();
            let physical = all.iter().find(|name| tree.exists(&format!("sys/class/net/{name}/device")));
            physical.or(all.first()).cloned()
        };
        let found = by_gid.map(|name| (name, FoundBy::GidTable));
        let found = found.or_else(|| by_parent().map(|name| (name, FoundBy::Parent)));
        let found = found.or_else(|| by_pci().map(|name| (name, FoundBy::PciDevice)));
        let (name, found_by) = found.or_else(|| by_guid().map(|name| (name, FoundBy::NodeGuid)))?;
        let read = |file: &str| tree.line(&format!("sys/class/net/{name}/{file}"));
        let interface = self.interfaces.iter().find(|interface| interface.name == name);
        let addresses = match interface {
            Some(interface) => interface.addresses.clone(),
            None => {
                let own = gids.iter().filter(|gid| gid.netdev.as_deref() == Some(&name));
                let mut addresses: Vec<String> =
                    own.filter_map(|gid| gid.ipv4).map(|address| address.to_string()).collect();
                addresses.dedup();
                addresses
            }
        };
        Some(Netdev {
            found_by,
            mac: read("address"),
            mtu_bytes: read("mtu").and_then(|mtu| mtu.parse().ok()),
            state: read("operstate"),
            // -1: unknown; an interface that is down gives EINVAL.
            speed_mbit_per_s: read("speed").and_then(|speed| speed.parse().ok()),
            driver: tree.link_name(&format!("sys/class/net/{name}/device/driver")),
            addresses,
            name,
        })
    }
}

/// `Y`, `N`, `1` and `0`, as the kernel shows a parameter.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "Y" | "y" | "1" => Some(true),
        "N" | "n" | "0" => Some(false),
        _ => None,
    }
}

fn maker(nic: Nic<'_>, description: Option<&str>, has_parent: bool) -> Maker {
    if let Some(maker) = Maker::of(nic) {
        return maker;
    }
    // Software devices have no PCI parent (Linux, drivers/infiniband/sw).
    match description {
        _ if nic.pci_vendor.is_some() => Maker::Other,
        Some(text) if text.starts_with("rxe") => Maker::SoftRoce,
        Some(text) if text.contains("iWARP stack") => Maker::SoftIwarp,
        Some(_) | None if has_parent => Maker::SoftRoce,
        Some(_) | None => Maker::Other,
    }
}

/// `1: CA` and so on (Linux, `drivers/infiniband/core/sysfs.c`, `node_type_show`).
fn transport(node_type: &str) -> Transport {
    match node_type {
        "CA" | "switch" | "router" => Transport::Infiniband,
        "RNIC" => Transport::Iwarp,
        _ => Transport::Unspecified,
    }
}

/// `100 Gb/sec (4X EDR)`, `2.5 Gb/sec (1X SDR)`
fn parse_rate(text: &str) -> Option<f64> {
    text.split_once(" Gb/sec")?.0.trim().parse().ok()
}

/// MAC → the GUID derived from it, as sysfs shows it: `00:16:3e:2c:6a:ad` → `0216:3eff:fe2c:6aad`.
fn eui64(mac: &str) -> Option<String> {
    let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    let &[a, b, c, d, e, f] = bytes.as_slice() else { return None };
    Some(format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_of_macs() {
        assert_eq!(eui64("00:16:3e:2c:6a:ad").as_deref(), Some("0216:3eff:fe2c:6aad"));
        for bad in ["", "00:16:3e:2c:6a", "00:16:3e:2c:6a:zz", "00:16:3e:2c:6a:ad:01:02"] {
            assert_eq!(eui64(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_and_parameters() {
        assert_eq!(parse_rate("100 Gb/sec (4X EDR)"), Some(100.0));
        assert_eq!(parse_rate("2.5 Gb/sec (1X SDR)"), Some(2.5));
        assert_eq!(parse_rate("fast"), None);
        assert_eq!(["Y", "N", "1", "0", "?"].map(parse_bool), [Some(true), Some(false), Some(true), Some(false), None]);
    }

    #[test]
    fn software_devices_are_known_by_what_they_say() {
        for (pci_vendor, driver, description, has_parent, found) in [
            (Some("0x1ded"), Some("erdma"), None, false, Maker::AlibabaErdma),
            (None, None, Some("rxe"), true, Maker::SoftRoce),
            (None, None, Some("host rxe_0"), true, Maker::SoftRoce),
            (None, None, Some("Software iWARP stack"), false, Maker::SoftIwarp),
            (None, None, None, false, Maker::Other),
            (Some("0x1234"), Some("x"), Some("rxe"), false, Maker::Other),
        ] {
            let nic = Nic { pci_vendor, driver, name: "x" };
            assert_eq!(maker(nic, description, has_parent), found, "{nic:?}");
        }
    }

    #[test]
    fn nodes_of_this_machine_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev/infiniband");
        let host = |is_live| Host { tree: Tree::new(dir.path()), is_live, interfaces: &[] };
        let access = |is_live, name: &str| host(is_live).node(format!("/dev/infiniband/{name}")).access;
        assert_eq!(access(true, "uverbs0"), Access::NotCaptured);
        // A path that nobody can open for writing.
        fs::create_dir_all(dev.join("uverbs1")).unwrap();
        fs::write(dev.join("uverbs0"), "").unwrap();
        let found = ["uverbs0", "uverbs1", "uverbs2"].map(|name| access(true, name));
        assert_eq!(found, [Access::Opened, Access::Refused, Access::Absent]);
        assert_eq!(access(false, "uverbs1"), Access::NotTried);
        assert!(host(true).node("/dev/infiniband/uverbs1".into()).error.is_some());
    }

    #[test]
    fn transports_of_node_types() {
        let found = ["CA", "RNIC", "usNIC"].map(transport);
        assert_eq!(found, [Transport::Infiniband, Transport::Iwarp, Transport::Unspecified]);
    }
}
