//! RDMA devices in `/sys/class/infiniband` (Linux, Documentation/ABI/stable/sysfs-class-infiniband).

use super::Tree;
use crate::facts::rdma::{RdmaDevice, RdmaPort};

const CLASS: &str = "sys/class/infiniband";
const VERBS_CLASS: &str = "sys/class/infiniband_verbs";

/// The directory of a device.
pub fn folder(device: &str) -> String {
    format!("{CLASS}/{device}")
}

/// The directory of a port.
pub fn port_folder(device: &str, port: &str) -> String {
    format!("{CLASS}/{device}/ports/{port}")
}

/// Names of all devices, sorted as people count: `mlx5_2` before `mlx5_10`.
pub fn devices(tree: &Tree<'_>) -> Vec<String> {
    let mut names = tree.list(CLASS);
    names.sort_by_cached_key(|name| {
        let at = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        (name[..at].to_owned(), name[at..].parse::<u64>().unwrap_or(0), name.clone())
    });
    names
}

/// Names of a device's ports, as numbers.
pub fn ports(tree: &Tree<'_>, device: &str) -> Vec<u32> {
    let mut ports: Vec<u32> =
        tree.list(&format!("{CLASS}/{device}/ports")).iter().filter_map(|port| port.parse().ok()).collect();
    ports.sort_unstable();
    ports
}

/// A line of the bound device's `uevent`, for trees without links.
fn uevent(tree: &Tree<'_>, device: &str, name: &str) -> Option<String> {
    let text = tree.text(&format!("{CLASS}/{device}/device/uevent"))?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// The PCI function that a device is, or is a part of: a scalable function is an auxiliary device below its card's function
/// (Linux, Documentation/networking/devlink/devlink-port.rst). `None`: it is in software, as Soft-RoCE is.
pub fn pci_address(tree: &Tree<'_>, device: &str) -> Option<String> {
    let linked = tree.real(&format!("{CLASS}/{device}/device"));
    let function = linked.as_deref().and_then(|path| path.rsplit('/').find(|name| is_pci_address(name)));
    function.map(str::to_owned).or_else(|| uevent(tree, device, "PCI_SLOT_NAME"))
}

/// `0000:00:07.0`, and neither `pci0000:00` nor `mlx5_core.sf.2`.
fn is_pci_address(name: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit());
    let Some((place, function)) = name.rsplit_once('.') else { return false };
    is_hex(function) && place.split(':').count() == 3 && place.split(':').all(is_hex)
}

/// PCI vendor, as `0x1ded`. An auxiliary device has no such file; its card's function has.
pub fn vendor(tree: &Tree<'_>, device: &str) -> Option<String> {
    tree.line(&format!("{CLASS}/{device}/device/vendor"))
        .or_else(|| tree.line(&format!("sys/bus/pci/devices/{}/vendor", pci_address(tree, device)?)))
}

/// Kernel driver that is bound to a device: `mlx5_core`, of a scalable function `mlx5_core.sf`.
pub fn driver(tree: &Tree<'_>, device: &str) -> Option<String> {
    let linked = tree.link_name(&format!("{CLASS}/{device}/device/driver"));
    linked.or_else(|| uevent(tree, device, "DRIVER"))
}

/// Reads every device.
pub fn load_devices(tree: &Tree<'_>) -> Vec<RdmaDevice> {
    let device = |name: String| RdmaDevice {
        vendor: vendor(tree, &name),
        driver: driver(tree, &name),
        pci_address: pci_address(tree, &name),
        uverbs: uverbs(tree, &name),
        ports: ports(tree, &name).into_iter().map(|port| load_port(tree, &name, port)).collect(),
        name,
    };
    devices(tree).into_iter().map(device).collect()
}

fn load_port(tree: &Tree<'_>, device: &str, port: u32) -> RdmaPort {
    let folder = port_folder(device, &port.to_string());
    let read = |file: &str| tree.line(&format!("{folder}/{file}")).unwrap_or_default();
    RdmaPort {
        port,
        state: word(&read("state")).to_owned(),
        link_layer: read("link_layer"),
        interfaces: gid_interfaces(tree, &folder),
    }
}

/// Its `uverbs` node, without `/dev/infiniband/`.
pub fn uverbs(tree: &Tree<'_>, device: &str) -> Option<String> {
    let nodes = tree.list(VERBS_CLASS).into_iter();
    let mut of_device =
        nodes.filter(|node| tree.line(&format!("{VERBS_CLASS}/{node}/ibdev")).as_deref() == Some(device));
    of_device.next().or_else(|| tree.list(&format!("{CLASS}/{device}/device/infiniband_verbs")).into_iter().next())
}

/// `4: ACTIVE` → `ACTIVE`
pub fn word(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, word)| word).trim()
}

/// The interfaces that a port's GIDs name, sorted, each once.
pub fn gid_interfaces(tree: &Tree<'_>, port_folder: &str) -> Vec<String> {
    let folder = format!("{port_folder}/gid_attrs/ndevs");
    let mut interfaces: Vec<String> =
        tree.list(&folder).iter().filter_map(|index| tree.line(&format!("{folder}/{index}"))).collect();
    interfaces.sort();
    interfaces.dedup();
    interfaces
}

/// A port's traffic so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sent_packets: Option<u64>,
    pub received_packets: Option<u64>,
    /// The file of `sent_bytes`, below the port.
    pub source: String,
}

/// Counters of one kind of device.
struct Names {
    folder: &'static str,
    sent: &'static str,
    received: &'static str,
    /// Bytes per unit.
    unit_bytes: u64,
    sent_packets: &'static str,
    received_packets: &'static str,
}

/// Which counters of a port are bytes on the wire, best first. eRDMA counts bytes (elastic-rdma-drivers
/// `kernel/src/erdma_stats.c`; mainline without `hw_`), mlx5 and InfiniBand in general units of four (InfiniBand
/// specification, PortCounters).
const COUNTERS: [Names; 4] = [
    Names {
        folder: "hw_counters",
        sent: "hw_tx_bytes_cnt",
        received: "hw_rx_bytes_cnt",
        unit_bytes: 1,
        sent_packets: "hw_tx_packets_cnt",
        received_packets: "hw_rx_packets_cnt",
    },
    Names {
        folder: "hw_counters",
        sent: "tx_bytes_cnt",
        received: "rx_bytes_cnt",
        unit_bytes: 1,
        sent_packets: "tx_packets_cnt",
        received_packets: "rx_packets_cnt",
    },
    Names {
        folder: "hw_counters",
        sent: "sent_bytes",
        received: "rcvd_bytes",
        unit_bytes: 1,
        sent_packets: "sent_pkts",
        received_packets: "rcvd_pkts",
    },
    Names {
        folder: "counters",
        sent: "port_xmit_data",
        received: "port_rcv_data",
        unit_bytes: 4,
        sent_packets: "port_xmit_packets",
        received_packets: "port_rcv_packets",
    },
];

/// Reads a port's traffic; `None`: the port has no byte counters.
pub fn traffic(tree: &Tree<'_>, port_folder: &str) -> Option<Traffic> {
    COUNTERS.iter().find_map(|names| {
        let read = |file: &str| tree.number::<u64>(&format!("{port_folder}/{}/{file}", names.folder));
        Some(Traffic {
            sent_bytes: read(names.sent)?.saturating_mul(names.unit_bytes),
            received_bytes: read(names.received)?.saturating_mul(names.unit_bytes),
            sent_packets: read(names.sent_packets),
            received_packets: read(names.received_packets),
            source: format!("{}/{}", names.folder, names.sent),
        })
    })
}
