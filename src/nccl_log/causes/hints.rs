//! What is known beside the log.

/// What is known beside the log. The default knows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// `RLIMIT_MEMLOCK` in the container.
    pub memlock: Limit,
    /// Size of `/dev/shm`.
    pub shm_bytes: Option<u64>,
    /// RDMA devices of sysfs; `None`: nobody looked.
    pub rdma_devices: Option<Vec<RdmaDeviceHint>>,
    /// `/dev/nvidiactl` is in the container; `None`: nobody looked.
    pub gpu_nodes: Option<bool>,
    pub gids: Vec<GidEntry>,
    /// The run was ended for its time.
    pub timed_out: bool,
}

/// A limit in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    #[default]
    NotKnown,
    Unlimited,
    Bytes(u64),
}

/// An RDMA device as sysfs and its device node show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaDeviceHint {
    pub name: String,
    /// Its `/dev/infiniband/uverbsN` can be opened; `None`: not tried.
    pub can_be_opened: Option<bool>,
    /// A port is `ACTIVE`; `None`: not known.
    pub has_active_port: Option<bool>,
    /// Bound to the erdma driver, or of PCI vendor 0x1ded.
    pub is_erdma: bool,
    /// `ibv_devinfo` says `transport: iWARP`; `None`: not known.
    pub is_iwarp: Option<bool>,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GidEntry {
    pub device: String,
    pub index: u32,
    /// As sysfs prints it, `0000:…:ffff:c000:0207`, or short.
    pub gid: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
}

impl GidEntry {
    /// RoCE v2 with an IPv4 address: it can be routed.
    pub(super) fn is_routable(&self) -> bool {
        self.kind.contains("v2") && self.gid.to_ascii_lowercase().contains(":ffff:")
    }
}
