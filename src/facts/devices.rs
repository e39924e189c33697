//! What is known about a host's RDMA devices and GPUs: plain data, saved and loaded as JSON.
//!
//! `devices` fills these types; `checks` and `report` read them. What no file states is absent: `None`, or an empty list.

use super::run::{Failure, VerbsProbe};
use crate::fabric::nic::Nic;
use core::net::Ipv4Addr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use crate::fabric::nic::Maker;

/// Version of the JSON form; raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything read from one host, container or captured tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceFacts {
    pub schema_version: u32,
    /// Directory that holds the `sys`, `proc` and `dev` that were read: `/` is this host, or this container.
    pub root: String,
    /// Device nodes and libraries were tried, which those of a captured tree cannot be.
    pub is_live: bool,
    pub hostname: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// In the order of their numbers.
    pub rdma_devices: Vec<Hca>,
    /// PCI devices that could do RDMA and have no RDMA device.
    pub idle_devices: Vec<PciFunction>,
    /// `/dev/infiniband/rdma_cm`
    pub rdma_cm: Option<Node>,
    /// In the order of their PCI addresses.
    pub gpus: Vec<GpuFacts>,
    pub nvidia: NvidiaFacts,
    pub ofed: Option<OfedVersion>,
    /// Kernel modules that matter here, by name.
    pub modules: BTreeMap<String, Module>,
    /// The limits of the inspecting process; `None`: not captured.
    pub limits: Option<Limits>,
    /// The result of libibverbs; `None`: it was not called.
    pub verbs: Option<VerbsProbe>,
}

impl DeviceFacts {
    /// A parameter of a kernel module.
    pub fn parameter(&self, module: &str, name: &str) -> Option<&str> {
        self.modules.get(module)?.parameters.get(name).map(String::as_str)
    }
}

/// Transport of a device, as libibverbs derives it from the type of node (rdma-core, `libibverbs/init.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// InfiniBand's, which RoCE shares.
    Infiniband,
    Iwarp,
    Unspecified,
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hca {
    pub name: String,
    pub maker: Maker,
    /// PCI ids, as `0x1ded`; absent where it is not a PCI device. A part of a PCI device, on the auxiliary bus, has its vendor.
    pub vendor_id: Option<String>,
    pub device_id: Option<String>,
    pub subsystem_vendor_id: Option<String>,
    pub subsystem_device_id: Option<String>,
    /// The PCI function, such as `0000:00:07.0`, that the device is or is a part of.
    pub pci_address: Option<String>,
    pub numa_node: Option<u32>,
    pub driver: Option<String>,
    /// Version of the driver's module, where it has one.
    pub driver_version: Option<String>,
    /// For eRDMA: `Y`, the mode that NCCL needs, or `N`; absent if the module's parameter cannot be read.
    pub compat_mode: Option<bool>,
    /// `CA`, `RNIC`, …
    pub node_type: Option<String>,
    pub transport: Option<Transport>,
    pub firmware: Option<String>,
    pub hca_type: Option<String>,
    pub board_id: Option<String>,
    pub hardware_revision: Option<String>,
    pub description: Option<String>,
    pub node_guid: Option<String>,
    pub system_image_guid: Option<String>,
    /// Its node under `/dev/infiniband`; absent where it has none, as without the module `ib_uverbs`.
    pub uverbs: Option<Node>,
    pub ports: Vec<HcaPort>,
}

impl Hca {
    /// What it is known by.
    pub fn nic(&self) -> Nic<'_> {
        Nic { pci_vendor: self.vendor_id.as_deref(), driver: self.driver.as_deref(), name: &self.name }
    }
}

/// A device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PciFunction {
    pub pci_address: String,
    pub vendor_id: String,
    pub device_id: String,
    /// `None`: no driver is bound to it.
    pub driver: Option<String>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HcaPort {
    pub port: u32,
    /// The second half of the GID in slot 0, as ibstat has it; absent where that slot is empty or, as in iWARP mode, a MAC.
    pub port_guid: Option<String>,
    /// `ACTIVE`, `DOWN`, …
    pub state: Option<String>,
    /// `LinkUp`, `Disabled`, …
    pub physical_state: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// In the kernel's words: `100 Gb/sec (4X EDR)`.
    pub rate: Option<String>,
    pub rate_gbit_per_s: Option<f64>,
    /// The driver reports this rate whatever the device can do, so it is not a bandwidth.
    pub is_rate_fixed: bool,
    pub lid: Option<String>,
    pub subnet_manager_lid: Option<String>,
    pub lid_mask_count: Option<String>,
    pub capability_mask: Option<String>,
    /// The network interface that it shares its wire with.
    pub netdev: Option<Netdev>,
    /// InfiniBand MTU that follows from the interface's, as the driver computes it: sysfs does not have it.
    pub derived_active_mtu_bytes: Option<u32>,
    /// Slots of the GID table, used or not.
    pub gid_table_length: u32,
    /// The slots in use.
    pub gids: Vec<Gid>,
    /// Which of them NCCL takes on its own; absent where there is none to take.
    pub nccl_gid: Option<NcclGid>,
    /// Partition keys by index, as `0xffff`; empty slots left out.
    pub pkeys: BTreeMap<u32, String>,
    pub traffic: Option<TrafficFacts>,
    /// Every counter of the port, as `hw_counters/hw_rx_bytes_cnt`.
    pub counters: BTreeMap<String, u64>,
}

impl HcaPort {
    pub fn is_active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    pub fn is_infiniband(&self) -> bool {
        self.link_layer.as_deref() == Some("InfiniBand")
    }

    /// The content of a GID table slot.
    pub fn gid(&self, index: u32) -> Option<&Gid> {
        self.gids.iter().find(|gid| gid.index == index)
    }
}

/// A used slot of a GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gid {
    pub index: u32,
    /// In the format of sysfs: `fe80:0000:0000:0000:0216:3eff:fe2c:6aad`.
    pub gid: String,
    /// `RoCE v2`, `IB/RoCE v1`; absent where the kernel does not say.
    pub kind: Option<String>,
    pub netdev: Option<String>,
    /// The address that an IPv4-mapped GID holds.
    pub ipv4: Option<Ipv4Addr>,
    pub is_link_local: bool,
}

impl Gid {
    /// Whether packets with it are RoCE v2, and so go through routers.
    pub fn is_roce_v2(&self) -> bool {
        self.kind.as_deref() == Some("RoCE v2")
    }

    /// `RoCE v2, 192.0.2.7`; `RoCE v1, link-local`; `empty`
    pub fn describe(slot: Option<&Gid>) -> String {
        let Some(slot) = slot else { return "empty".to_owned() };
        let kind = match slot.kind.as_deref() {
            Some("IB/RoCE v1") => "RoCE v1",
            Some(kind) => kind,
            None => "of unknown type",
        };
        match slot.ipv4 {
            Some(address) => format!("{kind}, {address}"),
            None if slot.is_link_local => format!("{kind}, link-local"),
            None => format!("{kind}, {}", slot.gid),
        }
    }

    /// Whether two hosts of different networks can talk with it.
    pub fn is_routable(&self) -> bool {
        self.is_roce_v2() && !self.is_link_local
    }
}

/// The GID that NCCL 2.21 and newer takes where `NCCL_IB_GID_INDEX` is not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclGid {
    pub index: u32,
    /// Two hosts can talk with it: on Ethernet a RoCE v2 entry that is not link-local.
    pub is_usable: bool,
    /// What it is, in words.
    pub reason: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Netdev {
    pub name: String,
    pub found_by: FoundBy,
    pub mac: Option<String>,
    pub mtu_bytes: Option<u32>,
    /// `operstate` of sysfs.
    pub state: Option<String>,
    /// The interface's own speed, in Mbit/s.
    pub speed_mbit_per_s: Option<u32>,
    pub driver: Option<String>,
    /// With prefix length where it is known; of a captured tree those that the GID table holds.
    pub addresses: Vec<String>,
}

/// How an interface was found to be the one of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FoundBy {
    /// `gid_attrs/ndevs`
    GidTable,
    /// The device's `parent`, as software devices have it.
    Parent,
    /// The interface is of the same PCI device.
    PciDevice,
    /// Its MAC is in the node GUID.
    NodeGuid,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// `/dev/infiniband/uverbs0`
    pub path: String,
    pub access: Access,
    /// Why it could not be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether a device node can be opened for reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Opened,
    Refused,
    /// The kernel has the device, and `/dev` has no node.
    Absent,
    /// The node exists, in a captured tree.
    NotTried,
    /// The captured tree has no `/dev`.
    NotCaptured,
}

/// A port's traffic since its driver was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrafficFacts {
    /// In bytes, whatever the counter's own unit.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sent_packets: Option<u64>,
    pub received_packets: Option<u64>,
    /// The file of `sent_bytes`, below the port.
    pub source: String,
}

/// How far two PCI devices are from each other, in the terms of `nvidia-smi topo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum PciDistance {
    /// One bridge at most between them.
    Pix,
    /// Several bridges, and no host bridge.
    Pxb,
    /// Over a host bridge.
    Phb,
    /// Between host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl PciDistance {
    pub fn name(self) -> &'static str {
        match self {
            PciDistance::Pix => "PIX",
            PciDistance::Pxb => "PXB",
            PciDistance::Phb => "PHB",
            PciDistance::Node => "NODE",
            PciDistance::Sys => "SYS",
        }
    }
}

/// A GPU that the driver, or the PCI bus, has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuFacts {
    /// PCI address such as `0000:1a:00.0`.
    pub pci_address: String,
    pub model: Option<String>,
    pub uuid: Option<String>,
    /// The number in `/dev/nvidia0`.
    pub minor: Option<u32>,
    pub numa_node: Option<u32>,
    /// Kernel driver; absent where none is bound.
    pub driver: Option<String>,
    /// To each RDMA device that is a PCI device, by name.
    pub distances: BTreeMap<String, PciDistance>,
}

/// NVIDIA's kernel driver and libcuda.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NvidiaFacts {
    pub driver_version: Option<String>,
    pub is_open_module: Option<bool>,
    /// The newest CUDA that libcuda serves (`12.4`); absent where it was not asked.
    pub cuda_version: Option<String>,
    /// Why libcuda does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_failure: Option<Failure>,
    /// The kernel module that registers GPU memory with RDMA (`/sys/module/nvidia_peermem`), as NCCL looks for it.
    pub peer_memory: Vec<String>,
}

/// Which OFED is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfedVersion {
    /// The output of `ofed_info -s`, without the colon: `MLNX_OFED_LINUX-23.10-5.1.4.0`.
    pub version: String,
    /// The file that says it.
    pub source: String,
}

/// A loaded kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Module {
    pub version: Option<String>,
    /// Those that could be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Limits of the process that looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limits {
    /// `RLIMIT_MEMLOCK`, in bytes; `None`: unlimited.
    pub memlock_bytes: Option<u64>,
    /// CAP_IPC_LOCK is in the effective set.
    pub can_lock_memory: bool,
}

/// How fast ports moved data between two looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrafficSample {
    /// Seconds since 1970, UTC.
    pub unix_time_s: u64,
    /// Time between the looks, in seconds.
    pub interval_s: f64,
    pub ports: Vec<PortRates>,
}

/// One port's traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortRates {
    pub device: String,
    pub port: u32,
    /// Absent where the counter is new, was set back, or is not there.
    pub received_bytes_per_s: Option<f64>,
    pub received_packets_per_s: Option<f64>,
    pub sent_bytes_per_s: Option<f64>,
    pub sent_packets_per_s: Option<f64>,
}
