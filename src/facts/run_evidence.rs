//! Conclusions from a run's NCCL logs: plain data. The log reader fills it, and checks judge it.

use crate::diagnosis::{Cause, GpuDirect, RdmaUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Conclusions from the logs of all ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogEvidence {
    pub rdma: RdmaUse,
    /// Evidence for `rdma`, one sentence or line each.
    #[serde(default)]
    pub rdma_reasons: Vec<String>,
    pub gpu_direct: GpuDirect,
    /// The distinct networks of `Using network …`.
    #[serde(default)]
    pub network: Vec<String>,
    /// Channels per transport (`NET/IB`, `P2P/CUMEM`, `SHM/direct/direct`), over all ranks.
    #[serde(default)]
    pub transports: BTreeMap<String, u64>,
    /// RDMA devices that NCCL said to use (`erdma_0:1/RoCE`).
    #[serde(default)]
    pub devices: Vec<String>,
    /// Rank → its version line (`2.21.5+cuda12.4`).
    #[serde(default)]
    pub nccl_versions: BTreeMap<u32, String>,
    /// Lines of level WARN, in order.
    #[serde(default)]
    pub warnings: Vec<RankLine>,
    /// Causes that are known by their lines, most telling first.
    #[serde(default)]
    pub causes: Vec<Cause>,
}

/// A line of one rank's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankLine {
    pub rank: u32,
    pub line: String,
}
