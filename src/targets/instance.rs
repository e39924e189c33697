//! Instance types and what was measured on them.

use super::source::{Source, Sourced};

/// A machine that a cloud rents out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceType {
    /// `ecs.ebmgn8v.48xlarge`
    pub name: &'static str,
    /// RDMA NICs; `None`: no source gives the number.
    pub nics: Option<Sourced<u32>>,
    /// All NICs together.
    pub bandwidth_gbit_per_s: Option<Sourced<u32>>,
    pub gpus: Option<Sourced<u32>>,
}

/// A bus bandwidth that a source reports, and for what.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// `None`: the source does not name the type.
    pub instance: Option<&'static str>,
    pub hosts: u32,
    pub ranks_per_host: u32,
    pub size_bytes: u64,
    pub bus_bandwidth_gb_per_s: f64,
    /// Settings that the measurement had.
    pub settings: &'static [(&'static str, &'static str)],
    pub source: &'static Source,
}
