//! Alibaba ECS: containers that users start on their own instances.

use super::alibaba::{DOCKER_PAGE, ECS_FAMILIES, ECS_TYPES, GPU_PAGE, IMAGE_PAGE};
use super::baseline::{Baseline, BaselineRow};
use super::source::sourced;
use super::{Provenance, Target};
use crate::fabric::erdma::ERDMA;
use std::borrow::Cow;

// The vendor's own image has NCCL 2.17.1, so there is no minimum to hold an image to.
pub(super) static ECS: Target = Target {
    id: "ecs",
    title: Cow::Borrowed("Alibaba ECS"),
    fabric: &ERDMA,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    variables: &[],
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
        "-v",
        "/root:/root",
    ],
    instances: &ECS_TYPES,
    families: &ECS_FAMILIES,
    baselines: &[TWO_HOSTS],
    notes: &[
        sourced("EriQuantity of DescribeInstanceTypes is the number of NICs that a type supports", &GPU_PAGE),
        sourced("not privileged, a container needs --device /dev/infiniband/rdma_cm and .../uverbsN", &DOCKER_PAGE),
        sourced("LL128 needs MTU 8500 with jumbo frames, 1400 without: any other MTU corrupts data", &GPU_PAGE),
        sourced("the vendor's images egs/erdma are for GPU instances of the 8th generation", &IMAGE_PAGE),
    ],
    sources: Provenance { docker_flags: Some(&IMAGE_PAGE), ..Provenance::NONE },
    source: &DOCKER_PAGE,
};

/// The page's NCCL test between two containers; it does not name the instance type.
const TWO_HOSTS: Baseline = Baseline {
    collective: "all_reduce_perf",
    instance: None,
    hosts: 2,
    ranks_per_host: 8,
    settings: &[
        ("NCCL_ALGO", "Ring"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_IB_GID_INDEX", "1"),
        ("NCCL_NET_GDR_LEVEL", "5"),
        ("NCCL_P2P_LEVEL", "3"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
    ],
    command: "all_reduce_perf -b 1G -e 1G -f 2 -g 1 -n 20",
    software: "NCCL 2.17.1, CUDA 12.1.1, Ubuntu 22.04 (egs/erdma:cuda12.1.1-cudnn8-ubuntu22.04)",
    rows: &[BaselineRow::new(1_073_741_824, [158_061.0, 6.79, 12.74], [156_821.0, 6.85, 12.84])],
    source: &IMAGE_PAGE,
};
