//! The protocol between a preflight and the agent in the container: plain data, one message per line.
//!
//! Input of the agent: an [`AgentPlan`], as a JSON file. Output: [`AgentMessage`]s, one JSON object per line on stdout, the
//! first of them [`AgentMessage::Hello`].

use crate::facts::rdma::RdmaDevice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of the messages; raised when one changes its meaning or goes away.
pub const PROTOCOL: u32 = 1;

/// The agent's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentPlan {
    pub protocol: u32,
    /// A directory that the agent may write to: logs of the ranks.
    pub directory: String,
    pub gpus: GpuSelection,
    /// More than one: ranks of a GPU get different `NCCL_HOSTID`s, and NCCL takes them for ranks of different hosts.
    pub ranks_per_gpu: u32,
    /// libnccl to open; `None`: the one that the loader finds for `libnccl.so.2`.
    pub nccl: Option<String>,
    pub collective: Collective,
    /// A rank must leave a phase within this time.
    pub phase_timeout_ms: u64,
    /// The whole run, from the start of the agent.
    pub total_timeout_ms: u64,
    /// The element of a result to corrupt before it is checked: proof that the check finds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<Plant>,
}

/// One element of one rank's result, to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plant {
    pub rank: u32,
    pub size_bytes: u64,
    pub placement: Placement,
    /// Index of the element.
    pub element: u64,
}

/// Which GPUs of those that the container sees take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GpuSelection {
    All,
    /// The first this many.
    First(u32),
    /// These, by CUDA's number in the container.
    List(Vec<u32>),
}

/// The measurement, in nccl-tests' terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Collective {
    /// Smallest and largest size in bytes (`-b`, `-e`).
    pub min_bytes: u64,
    pub max_bytes: u64,
    /// Factor between sizes (`-f`); 1: steps of `step_bytes`.
    pub step_factor: u64,
    /// Bytes between sizes (`-i`), where the factor is 1.
    pub step_bytes: u64,
    /// Timed operations per size (`-n`).
    pub iterations: u32,
    /// Operations before the table, per size (`-w`).
    pub warmup: u32,
    pub data_types: Vec<DataType>,
    /// Whether results are verified (`-c`).
    pub check: bool,
}

impl Collective {
    /// The sizes of the table, in bytes.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::new();
        let mut size = self.min_bytes;
        while size <= self.max_bytes {
            sizes.push(size);
            let next = if self.step_factor > 1 {
                size.checked_mul(self.step_factor)
            } else {
                size.checked_add(self.step_bytes)
            };
            match next {
                Some(next) if next > size => size = next,
                Some(_) | None => break,
            }
        }
        sizes
    }
}

/// Element type of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DataType {
    Float,
    Half,
    Bfloat16,
}

impl DataType {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            DataType::Float => 4,
            DataType::Half | DataType::Bfloat16 => 2,
        }
    }

    /// nccl-tests' name.
    pub fn name(self) -> &'static str {
        match self {
            DataType::Float => "float",
            DataType::Half => "half",
            DataType::Bfloat16 => "bfloat16",
        }
    }
}

/// Where a collective puts its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    OutOfPlace,
    InPlace,
}

/// A message from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "kebab-case")]
pub enum AgentMessage {
    Hello {
        protocol: u32,
        version: String,
        hostname: String,
    },
    /// The view of the process without any library.
    Environment(EnvironmentFacts),
    /// What libcuda says.
    Gpus(GpuProbe),
    /// What libibverbs says.
    Verbs(VerbsProbe),
    /// A rank is a process now.
    Started(RankStart),
    /// Which libnccl a rank opened.
    Library {
        rank: u32,
        nccl: LoadedLibrary,
        nccl_version_code: i32,
    },
    Phase {
        rank: u32,
        phase: Phase,
    },
    /// The largest size was more than the GPUs hold.
    Reduced {
        max_bytes: u64,
    },
    Row(Row),
    Failure(RankFailure),
    /// NCCL's log of a rank, at the end.
    Log {
        rank: u32,
        text: String,
        /// Bytes left out in the middle.
        omitted_bytes: u64,
    },
    /// The last lines that a rank itself wrote to stdout and stderr, at the end.
    Output {
        rank: u32,
        text: String,
    },
    /// Counters of the RDMA devices and network interfaces around the collectives.
    Counters {
        deltas: Vec<CounterDelta>,
    },
    /// The last message.
    Finished {
        ending: AgentEnding,
    },
}

/// How the agent came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum AgentEnding {
    /// Every rank did all that was asked.
    Complete,
    /// A rank failed, or nothing could be started.
    Failed,
    /// A rank did not leave its phase in time.
    PhaseTimeout,
    /// The time for the whole run was over.
    TotalTimeout,
    /// Told to end.
    Interrupted,
}

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "at")]
pub enum Phase {
    /// Opening libcuda and libnccl.
    Libraries,
    /// Making the CUDA context.
    Cuda,
    /// Waiting for the unique id of rank 0.
    Bootstrap,
    /// In `ncclCommInitRank`.
    Init,
    /// In the first collective, which sets the connections up.
    Connect,
    /// In the untimed operations before the table.
    Warmup,
    /// In the timed operations of one size.
    Collective { data_type_index: u32, size_bytes: u64, placement: Placement },
    /// In the check of one size.
    Verify { data_type_index: u32, size_bytes: u64, placement: Placement },
    /// Giving everything back.
    Finish,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sized = |f: &mut fmt::Formatter<'_>, name: &str, size: u64, placement: Placement| {
            let placement = match placement {
                Placement::OutOfPlace => "out of place",
                Placement::InPlace => "in place",
            };
            write!(f, "{name} ({size} B, {placement})")
        };
        match *self {
            Phase::Libraries => f.write_str("libraries"),
            Phase::Cuda => f.write_str("cuda"),
            Phase::Bootstrap => f.write_str("bootstrap"),
            Phase::Init => f.write_str("init"),
            Phase::Connect => f.write_str("connect"),
            Phase::Warmup => f.write_str("warmup"),
            Phase::Collective { size_bytes, placement, .. } => sized(f, "collective", size_bytes, placement),
            Phase::Verify { size_bytes, placement, .. } => sized(f, "verify", size_bytes, placement),
            Phase::Finish => f.write_str("finish"),
        }
    }
}

/// A shared library as it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadedLibrary {
    /// What was asked of the loader.
    pub asked: String,
    /// The file that is mapped, links resolved; empty where the kernel does not say.
    pub path: String,
}

/// What the container's processes see without any library.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EnvironmentFacts {
    /// `NCCL_*`, `CUDA_*`, `NVIDIA_*` and `LD_LIBRARY_PATH` as the ranks get them.
    pub variables: BTreeMap<String, String>,
    /// NCCL's settings from files, by path: `/etc/nccl.conf`, `~/.nccl.conf`, `$NCCL_CONF_FILE`.
    #[serde(default)]
    pub nccl_files: BTreeMap<String, String>,
    /// `RLIMIT_MEMLOCK`, in bytes; `None`: unlimited.
    pub memlock_bytes: Option<u64>,
    /// `RLIMIT_STACK`, in bytes; `None`: unlimited.
    pub stack_bytes: Option<u64>,
    /// `RLIMIT_NOFILE`.
    pub open_files: Option<u64>,
    /// Size and free bytes of `/dev/shm`; `None`: it is not there.
    pub shm: Option<FileSystem>,
    pub cgroup: CgroupFacts,
    /// Logical processors that the process may run on.
    pub processors: u32,
    pub interfaces: Vec<Interface>,
    /// RDMA devices of `/sys/class/infiniband`.
    pub rdma_devices: Vec<RdmaDevice>,
    /// Names under `/dev/infiniband`, and whether they can be opened.
    pub rdma_nodes: Vec<DeviceNode>,
    /// `/dev/nvidia*`, and whether they can be opened.
    pub nvidia_nodes: Vec<DeviceNode>,
    /// Version of the kernel's driver, as `/proc/driver/nvidia/version` has it.
    pub kernel_driver: Option<String>,
    /// `nvidia_peermem` or `nv_peer_mem` is loaded.
    pub peer_memory_module: bool,
    pub effective_uid: u32,
    /// CAP_IPC_LOCK is in the effective set.
    pub can_lock_memory: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileSystem {
    pub size_bytes: u64,
    pub free_bytes: u64,
}

/// Limits and counts of the control group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CgroupFacts {
    /// 1 or 2; 0: none was found.
    pub version: u32,
    /// `None`: no limit, or not known.
    pub memory_limit_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    /// Processes that the kernel killed for memory so far.
    pub oom_kills: Option<u64>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interface {
    pub name: String,
    /// `operstate` of sysfs.
    pub state: String,
    pub mtu: Option<u32>,
    /// With prefix length, as `192.0.2.7/24`.
    pub addresses: Vec<String>,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceNode {
    pub path: String,
    /// `None`: it can be opened; else the system's reason.
    pub error: Option<String>,
}

/// What libcuda says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuProbe {
    /// `None`: it could not be opened, and `failure` says why.
    pub library: Option<LoadedLibrary>,
    /// `cuDriverGetVersion`: 12040 for 12.4.
    pub cuda_version_code: Option<i32>,
    pub gpus: Vec<Gpu>,
    /// Pairs of GPUs (by number) of which the first can read the memory of the second.
    pub peer_access: Vec<(u32, u32)>,
    pub failure: Option<Failure>,
}

/// One GPU that the container sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gpu {
    /// CUDA's number in the container.
    pub index: u32,
    pub name: String,
    /// PCI address such as `0000:1a:00.0`.
    pub pci_address: String,
    pub memory_bytes: u64,
    pub compute_capability: (i32, i32),
    pub ecc: Option<bool>,
    /// From sysfs.
    pub numa_node: Option<i32>,
    /// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED`.
    pub gpu_direct_rdma: Option<bool>,
    /// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`.
    pub dma_buf: Option<bool>,
}

/// What libibverbs says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerbsProbe {
    pub library: Option<LoadedLibrary>,
    pub devices: Vec<VerbsDevice>,
    pub failure: Option<Failure>,
    /// What libibverbs printed (`IBV_SHOW_WARNINGS=1`).
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerbsDevice {
    pub name: String,
    /// `None`: `ibv_open_device` worked; else why not.
    pub error: Option<String>,
}

/// A rank that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankStart {
    pub rank: u32,
    pub pid: u32,
    /// CUDA's number of its GPU.
    pub gpu: u32,
    /// `NCCL_HOSTID`, where several ranks share a GPU.
    pub host_id: Option<String>,
}

/// One size and type of the table, over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    pub data_type: DataType,
    pub size_bytes: u64,
    pub count: u64,
    pub out_of_place: Measured,
    pub in_place: Measured,
}

/// One measurement; bandwidths follow from size, time and number of ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    /// Time of one operation, mean over the ranks, in microseconds.
    pub time_us: f64,
    /// Times of the fastest and the slowest rank, in microseconds.
    pub min_time_us: f64,
    pub max_time_us: f64,
    /// Wrong elements, sum over the ranks; `None`: not checked.
    pub wrong: Option<u64>,
    /// The first wrong element of some rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wrong: Option<WrongElement>,
}

impl Measured {
    /// Bytes of a rank over time, in GB/s.
    pub fn algbw_gb_per_s(&self, size_bytes: u64) -> f64 {
        size_bytes as f64 / 1e9 / (self.time_us / 1e6)
    }

    /// What a link must carry, in GB/s: `algbw × 2(n−1)/n` for an all-reduce of n ranks.
    pub fn busbw_gb_per_s(&self, size_bytes: u64, ranks: u32) -> f64 {
        let ranks = f64::from(ranks.max(1));
        self.algbw_gb_per_s(size_bytes) * (2.0 * (ranks - 1.0) / ranks)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WrongElement {
    pub rank: u32,
    pub index: u64,
    /// Bit patterns of the element.
    pub found_bits: u32,
    pub expected_bits: u32,
}

/// Why a rank, or a probe, did not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankFailure {
    pub rank: u32,
    /// Where it was.
    pub phase: Phase,
    pub failure: Failure,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Failure {
    /// The loader cannot open a library.
    LibraryMissing { library: String, detail: String },
    /// A library lacks a function that the run needs.
    SymbolMissing { library: String, symbol: String },
    /// libcuda is the toolkit's stub, which works with no GPU.
    StubLibrary { path: String },
    /// A CUDA call failed.
    Cuda { call: String, code: i32, name: String, text: String },
    /// An NCCL call failed.
    Nccl { call: String, code: i32, text: String, last_error: String },
    /// A communicator reported an error while an operation ran.
    NcclAsync { code: i32, text: String, last_error: String },
    /// Killed by a signal.
    Signal { signal: i32, name: String },
    /// Killed by the kernel for memory.
    OutOfMemory { limit_bytes: Option<u64> },
    /// Ended without a word.
    Exit { code: i32 },
    /// Did not leave its phase in time. `behind`: it is among the ranks that the others wait for.
    Silent { after_ms: u64, behind: bool, last_nccl_line: Option<String> },
    /// Anything else, in words.
    Other { detail: String },
}

/// How much a counter rose around the collectives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CounterDelta {
    /// An RDMA device (`erdma_0`) or network interface (`eth0`).
    pub device: String,
    pub port: Option<u32>,
    /// In bytes, whatever the counter's own unit.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// The file read.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collective(min: u64, max: u64, factor: u64, step: u64) -> Vec<u64> {
        Collective {
            min_bytes: min,
            max_bytes: max,
            step_factor: factor,
            step_bytes: step,
            iterations: 1,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        }
        .sizes()
    }

    #[test]
    fn sizes_go_by_factor_or_by_step() {
        assert_eq!(collective(8, 64, 2, 0), [8, 16, 32, 64]);
        assert_eq!(collective(8, 30, 1, 10), [8, 18, 28]);
        assert_eq!(collective(8, 8, 1, 0), [8]);
        assert_eq!(collective(9, 8, 2, 0), Vec::<u64>::new());
        assert_eq!(collective(u64::MAX / 2 + 1, u64::MAX, 2, 0).len(), 1);
    }

    #[test]
    fn bus_bandwidth_is_nccl_tests() {
        let measured =
            Measured { time_us: 129.11, min_time_us: 0.0, max_time_us: 0.0, wrong: Some(0), first_wrong: None };
        assert_eq!(format!("{:.1}", measured.algbw_gb_per_s(268_435_456)), "2079.1");
        assert_eq!(measured.busbw_gb_per_s(268_435_456, 1), 0.0);
        assert_eq!(measured.busbw_gb_per_s(268_435_456, 2), measured.algbw_gb_per_s(268_435_456));
    }

    #[test]
    fn messages_are_one_line() {
        let message = AgentMessage::Phase {
            rank: 1,
            phase: Phase::Verify { data_type_index: 0, size_bytes: 8, placement: Placement::InPlace },
        };
        let line = serde_json::to_string(&message).unwrap();
        assert!(!line.contains('\n') && line.starts_with(r#"{"message":"phase""#), "{line}");
        assert_eq!(serde_json::from_str::<AgentMessage>(&line).unwrap(), message);
    }
}
