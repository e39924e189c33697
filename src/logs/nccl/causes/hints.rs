//! What is known apart from the log.

/// What is known apart from the log. The default knows nothing.
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
    /// Tables of partition keys; empty: nobody looked.
    pub partition_keys: Vec<KeyEntry>,
    /// What `rdma_devices` were read from where that was a text such as `ibv_devinfo`'s, which says something without an NCCL
    /// log, too; else empty.
    pub devices_from: &'static str,
    /// The run was ended for its time.
    pub timed_out: bool,
    /// All ranks are on one host.
    pub is_one_host: bool,
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
    /// Numbers of its ports; empty: not known.
    pub ports: Vec<u32>,
}

/// An entry of a table of partition keys (InfiniBand).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyEntry {
    pub device: String,
    pub index: u32,
    pub key: u16,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GidEntry {
    pub device: String,
    pub index: u32,
    /// The format of sysfs, `0000:…:ffff:c000:0207`, or the short one.
    pub gid: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
}

impl GidEntry {
    /// RoCE v2 with an address that is not of the link alone.
    pub(super) fn is_routable(&self) -> bool {
        let gid = self.gid.to_ascii_lowercase();
        let is_zero = !gid.contains(|c: char| c != '0' && c != ':');
        self.kind.contains("v2") && !gid.starts_with("fe8") && !is_zero
    }

    /// Those among them that are IPv4 addresses.
    pub(super) fn is_ipv4(&self) -> bool {
        self.is_routable() && self.gid.to_ascii_lowercase().contains(":ffff:")
    }
}
