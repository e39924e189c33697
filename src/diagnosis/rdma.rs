//! Verdicts on a run's use of RDMA.

use serde::{Deserialize, Serialize};

/// Whether RDMA carried the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RdmaUse {
    Yes,
    No,
    /// Nothing had to cross the network: one rank, or GPUs of one host over P2P or shared memory.
    NotExercised,
    Unknown,
}

/// Whether the RDMA device reached the GPU's memory itself. Apart from [`RdmaUse`]: RDMA works without it, more slowly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GpuDirect {
    /// Every channel line through RDMA has `/GDRDMA`.
    Yes,
    /// None has.
    No,
    /// Some channels did, others did not.
    Mixed,
    /// No channel line goes through RDMA.
    #[default]
    NotExercised,
    Unknown,
}
