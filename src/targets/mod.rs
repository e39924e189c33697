//! Where a job will run, as data: fabric, minimum versions, variables, device resource, launch flags, instance types and
//! bandwidths, each with its source.

mod instance;
mod source;

pub use instance::{Baseline, InstanceType};
pub use source::{Source, Sourced};

use crate::fabric::Fabric;
use crate::fabric::erdma::ERDMA;
use crate::fabric::roce::ROCE;
use crate::versions::{CudaVersion, NcclVersion};
use std::borrow::Cow;

/// One environment that jobs are submitted to.
#[derive(Debug, Clone)]
pub struct Target {
    pub id: &'static str,
    pub title: Cow<'static, str>,
    pub fabric: &'static Fabric,
    /// `None`: the platform states no minimum.
    pub minimum_cuda: Option<CudaVersion>,
    pub minimum_nccl: Option<NcclVersion>,
    /// The platform starts jobs with python3.
    pub needs_python3: bool,
    /// `NCCL_*` variables that the platform sets in every job, over the image's own.
    pub nccl_presets: &'static [(&'static str, &'static str)],
    /// `NCCL_*` variables that have no effect there.
    pub nccl_without_effect: &'static [&'static str],
    /// Resource of the Kubernetes device plugin; `None`: the platform passes the devices by itself.
    pub device_resource: Option<&'static str>,
    /// Flags of the vendor's own `docker run`, where a page gives the line.
    pub docker_flags: &'static [&'static str],
    /// Instance types that sources name, by name.
    pub instances: &'static [InstanceType],
    /// Bandwidths that sources report.
    pub baselines: &'static [Baseline],
    pub source: &'static str,
}

impl Target {
    /// What the platform sets a variable to in every job.
    pub fn nccl_preset(&self, name: &str) -> Option<&'static str> {
        self.nccl_presets.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Every target known.
pub static TARGETS: [&Target; 4] = [&PAI_DLC, &ECS, &ACK, &CCE];

static PAI_DLC: Target = Target {
    id: "pai-dlc",
    title: Cow::Borrowed("Alibaba PAI-DLC"),
    fabric: &ERDMA,
    minimum_cuda: Some(CudaVersion::new(12, 1)),
    minimum_nccl: Some(NcclVersion::new(2, 19, 0)),
    needs_python3: true,
    // The page's table of default variables; NCCL_IB_TC, NCCL_IB_SL and NCCL_IB_TIMEOUT stay unset.
    nccl_presets: &[
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_IB_GID_INDEX", "1"),
        ("NCCL_IB_HCA", "erdma"),
        ("NCCL_IB_QPS_PER_CONNECTION", "8"),
        ("NCCL_MIN_NCHANNELS", "16"),
        ("NCCL_NET_PLUGIN", "none"),
    ],
    nccl_without_effect: &[],
    device_resource: None,
    docker_flags: &[],
    instances: &[],
    baselines: &[],
    source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11",
};

// The vendor's own ECS image has NCCL 2.17.1, so there is no minimum to hold an image to.
static ECS: Target = Target {
    id: "ecs",
    title: Cow::Borrowed("Alibaba ECS"),
    fabric: &ERDMA,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    device_resource: None,
    docker_flags: &[
        "-d",
        "-t",
        "--network=host",
        "--gpus",
        "all",
        "--privileged",
        "--ipc=host",
        "--ulimit",
        "memlock=-1",
        "--ulimit",
        "stack=67108864",
    ],
    instances: &[],
    baselines: &[],
    source: "Alibaba Cloud help, ECS, \"Use eRDMA in a Docker container\", read 2026-11",
};

static ACK: Target = Target {
    id: "ack",
    title: Cow::Borrowed("Alibaba ACK"),
    fabric: &ERDMA,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    device_resource: Some("aliyun/erdma"),
    docker_flags: &[],
    instances: &[],
    baselines: &[],
    source: "Alibaba Cloud help, ACK, \"Accelerate container networks with eRDMA\", read 2026-11",
};

// The page names the resource of the device plugin and no minimum version.
static CCE: Target = Target {
    id: "cce",
    title: Cow::Borrowed("Baidu CCE"),
    fabric: &ROCE,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    device_resource: Some("rdma/hca"),
    docker_flags: &[],
    instances: &[],
    baselines: &[],
    source: "Baidu AI Cloud, doc/CCE/s/Qmknnud7o, read 2026-11",
};

/// Finds a target by id.
pub fn by_id(id: &str) -> Option<&'static Target> {
    TARGETS.into_iter().find(|target| target.id == id)
}

/// The ids, for an error text.
pub fn known() -> String {
    TARGETS.map(|target| target.id).join(", ")
}
