//! The results of RDMA writes from a device to itself: plain data.
//!
//! `loopback` fills these types. A device that moved the data has a driver, a provider and a GID that work; nothing is said
//! about the network behind it, since the data need not have left the machine.

use super::run::LoadedLibrary;
use crate::diagnosis::Cause;
use core::net::Ipv4Addr;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the JSON form; raised when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoopbackReport {
    pub schema_version: u32,
    /// libibverbs; `None`: it could not be opened, and `failure` says why.
    pub library: Option<LoadedLibrary>,
    /// Why no device was tried.
    pub failure: Option<LoopbackFailure>,
    pub devices: Vec<DeviceLoopback>,
}

impl LoopbackReport {
    /// At least one port was tried, and all that were moved every byte.
    pub fn is_proven(&self) -> bool {
        let ports = || self.devices.iter().flat_map(|device| &device.ports);
        self.failure.is_none()
            && ports().next().is_some()
            && self.devices.iter().all(|device| device.failure.is_none())
            && ports().all(PortLoopback::is_proven)
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceLoopback {
    pub name: String,
    /// Its node under `/dev/infiniband`, as `uverbs0`.
    pub node: String,
    pub transport: VerbsTransport,
    /// `None`: the device could not be queried.
    pub limits: Option<DeviceLimits>,
    /// Why no port was tried, or why the device did not come to an end.
    pub failure: Option<LoopbackFailure>,
    pub ports: Vec<PortLoopback>,
}

/// How libibverbs calls the transport (`enum ibv_transport_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VerbsTransport {
    /// InfiniBand's, which RoCE shares; also the number that eRDMA has in compat mode.
    Infiniband,
    Iwarp,
    Other,
}

/// What a device can do (`ibv_query_device`), as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceLimits {
    pub firmware: String,
    /// PCI vendor such as `0x1ded`.
    pub vendor_id: String,
    pub vendor_part_id: u32,
    pub hardware_version: u32,
    /// GUID such as `0016:3eff:fe2c:6aad`.
    pub node_guid: String,
    pub system_image_guid: String,
    pub ports: u32,
    pub max_mr_bytes: u64,
    pub max_mr: u32,
    pub max_pd: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
}

/// A port's own attributes (`ibv_query_port`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortAttributes {
    /// `ACTIVE`, `DOWN`, …
    pub state: String,
    /// `InfiniBand`, `Ethernet` or, where the driver does not say, `unspecified`.
    pub link_layer: String,
    /// `None`: the value is not defined.
    pub max_mtu_bytes: Option<u32>,
    pub active_mtu_bytes: Option<u32>,
    pub lid: u32,
    pub sm_lid: u32,
    pub lmc: u32,
    pub max_message_bytes: u32,
    pub gid_table_length: u32,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortLoopback {
    pub port: u32,
    pub attributes: Option<PortAttributes>,
    /// The GID in use; `None`: it did not come to that.
    pub gid: Option<UsedGid>,
    /// Why nothing was moved on any path.
    pub failure: Option<LoopbackFailure>,
    pub paths: Vec<PathLoopback>,
    /// `None`: the port has no counter that is known to count the traffic.
    pub counters: Option<CounterRise>,
}

impl PortLoopback {
    /// Every path moved every byte.
    pub fn is_proven(&self) -> bool {
        self.failure.is_none()
            && !self.paths.is_empty()
            && self.paths.iter().all(|path| path.failure.is_none() && !path.rows.is_empty())
    }

    /// Bytes that were written and verified.
    pub fn moved_bytes(&self) -> u64 {
        self.paths.iter().flat_map(|path| &path.rows).map(SizeRow::moved_bytes).sum()
    }
}

/// The GID that the queue pairs use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsedGid {
    pub index: u32,
    pub gid: String,
    /// The slot holds none.
    pub is_empty: bool,
    /// The address that an IPv4-mapped GID holds.
    pub ipv4: Option<Ipv4Addr>,
    /// `RoCE v2`, `IB/RoCE v1`; `None`: the kernel does not say.
    pub kind: Option<String>,
    /// RoCE v2, and neither empty nor link-local: hosts of different networks can talk with it. Always on InfiniBand, where LIDs
    /// lead the way. Without it the device moves data to itself all the same.
    pub is_routable: bool,
    /// Its network interface; `None`: the kernel does not say.
    pub interface: Option<String>,
    /// The interface is in the network namespace of this process. Where it is not, hardware refuses the connection (`ENODEV`), but
    /// soft-RoCE does not.
    pub is_interface_here: bool,
    pub chosen_by: GidChoice,
}

/// Who chose a GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GidChoice {
    /// Chosen as NCCL 2.21 and newer do without `NCCL_IB_GID_INDEX`.
    Nccl,
    /// The index was asked for.
    Asked,
}

/// Which queue pairs are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// One queue pair connected to itself.
    Itself,
    /// Two queue pairs with each other, as NCCL connects two ranks; both directions are used.
    Pair,
}

/// The data that one path moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PathLoopback {
    pub path: Path,
    /// Every row is of data that was verified.
    pub rows: Vec<SizeRow>,
    /// Why it went no further.
    pub failure: Option<LoopbackFailure>,
}

/// RDMA writes of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SizeRow {
    pub size_bytes: u64,
    pub messages: u32,
    /// From the first post to the last completion of each batch, summed up.
    pub time_us: f64,
}

impl SizeRow {
    pub fn moved_bytes(&self) -> u64 {
        self.size_bytes * u64::from(self.messages)
    }

    pub fn bandwidth_gb_per_s(&self) -> f64 {
        self.moved_bytes() as f64 / 1e9 / (self.time_us / 1e6)
    }
}

/// A port's counters for the traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CounterRise {
    /// The file of what was sent, as `hw_counters/hw_tx_bytes_cnt`.
    pub source: String,
    pub unit: CounterUnit,
    pub sent: u64,
    pub received: u64,
    /// What at least must have been counted in each direction, if the device counts traffic to itself: the bytes that were
    /// moved, or as many packets of the active MTU as they take.
    pub expected: u64,
}

impl CounterRise {
    /// The counters confirm the traffic. If they do not, the device may count only what leaves it.
    pub fn confirms(&self) -> bool {
        self.expected > 0 && self.sent >= self.expected && self.received >= self.expected
    }
}

/// The unit of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CounterUnit {
    Bytes,
    /// Soft-RoCE has no counter of bytes.
    Packets,
}

/// Where and why it stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoopbackFailure {
    pub step: Step,
    pub error: StepError,
    /// Why, where that is known.
    pub cause: Option<Box<Cause>>,
}

impl fmt::Display for LoopbackFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step.call(), self.error)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {}", cause.summary))
    }
}

/// A step, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    OpenLibrary,
    DeviceList,
    OpenDevice,
    QueryDevice,
    QueryPort,
    QueryGid,
    AllocPd,
    RegMr,
    CreateCq,
    CreateQp,
    ModifyToInit,
    ModifyToRtr,
    ModifyToRts,
    PostRecv,
    PostSend,
    PollCq,
    /// Comparing what was written.
    Verify,
    /// Giving everything back.
    Destroy,
}

impl Step {
    /// The call behind it.
    pub fn call(self) -> &'static str {
        match self {
            Step::OpenLibrary => "opening libibverbs",
            Step::DeviceList => "ibv_get_device_list",
            Step::OpenDevice => "ibv_open_device",
            Step::QueryDevice => "ibv_query_device",
            Step::QueryPort => "ibv_query_port",
            Step::QueryGid => "ibv_query_gid",
            Step::AllocPd => "ibv_alloc_pd",
            Step::RegMr => "ibv_reg_mr",
            Step::CreateCq => "ibv_create_cq",
            Step::CreateQp => "ibv_create_qp",
            Step::ModifyToInit => "ibv_modify_qp to INIT",
            Step::ModifyToRtr => "ibv_modify_qp to RTR",
            Step::ModifyToRts => "ibv_modify_qp to RTS",
            Step::PostRecv => "ibv_post_recv",
            Step::PostSend => "ibv_post_send",
            Step::PollCq => "ibv_poll_cq",
            Step::Verify => "comparing the data",
            Step::Destroy => "destroying the resources",
        }
    }
}

/// The error of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StepError {
    /// The system's error, as `EINVAL` where its name is known.
    Errno { code: i32, name: Option<String>, text: String },
    /// A work request completed with an error.
    Completion { status: i32, text: String, vendor_error: u32 },
    /// A completion that nobody asked for.
    UnexpectedCompletion { detail: String },
    /// Not done in time.
    Timeout { after_ms: u64 },
    /// A byte is not what was sent: the first one.
    WrongData { message: u32, offset_bytes: u64, found: u8, expected: u8 },
    /// Anything else, in words.
    Other { detail: String },
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::Errno { code, name: Some(name), text } => write!(f, "{text} ({name}, errno {code})"),
            StepError::Errno { code, name: None, text } => write!(f, "{text} (errno {code})"),
            StepError::Completion { status, text, vendor_error } => {
                write!(f, "{text} (status {status}, vendor error {vendor_error})")
            }
            StepError::UnexpectedCompletion { detail } | StepError::Other { detail } => f.write_str(detail),
            StepError::Timeout { after_ms } => write!(f, "not done after {after_ms} ms"),
            StepError::WrongData { message, offset_bytes, found, expected } => {
                write!(f, "message {message}, byte {offset_bytes}: found 0x{found:02x}, sent 0x{expected:02x}")
            }
        }
    }
}
