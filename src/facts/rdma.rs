//! An RDMA device as every container and host shows it in sysfs: plain data.
//!
//! `sysfs` fills these types for the agent and for the launch; `devices` reads more of a device, into
//! [`super::devices::Hca`].

use crate::fabric::nic::Nic;
use serde::{Deserialize, Serialize};

/// Where the nodes of RDMA devices are.
pub const NODES: &str = "/dev/infiniband";

/// An RDMA device with one entry per port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaDevice {
    pub name: String,
    /// PCI vendor, as `0x1ded`.
    pub vendor: Option<String>,
    /// Kernel driver of the device.
    pub driver: Option<String>,
    /// The PCI function that it is, or is a part of.
    pub pci_address: Option<String>,
    /// Its `uverbs` node, without `/dev/infiniband/`.
    pub uverbs: Option<String>,
    pub ports: Vec<RdmaPort>,
}

impl RdmaDevice {
    /// What it is known by.
    pub fn nic(&self) -> Nic<'_> {
        Nic { pci_vendor: self.vendor.as_deref(), driver: self.driver.as_deref(), name: &self.name }
    }

    /// `/dev/infiniband/uverbs0`
    pub fn node(&self) -> Option<String> {
        self.uverbs.as_ref().map(|uverbs| format!("{NODES}/{uverbs}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RdmaPort {
    pub port: u32,
    /// `ACTIVE`, `DOWN`, …
    pub state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// Interfaces of its GIDs.
    pub interfaces: Vec<String>,
}
