//! Alibaba ACK: pods on eRDMA nodes, whose devices a Kubernetes device plugin passes.

use super::alibaba::{ACK_GDR_PAGE, ACK_NODES_PAGE, CONTROLLER, ECS_FAMILIES, ECS_TYPES};
use super::source::sourced;
use super::{Provenance, Target};
use crate::fabric::erdma::ERDMA;
use std::borrow::Cow;

pub(super) static ACK: Target = Target {
    id: "ack",
    title: Cow::Borrowed("Alibaba ACK"),
    fabric: &ERDMA,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    variables: &[],
    device_resource: Some("aliyun/erdma"),
    docker_flags: &[],
    // Nodes are ECS instances.
    instances: &ECS_TYPES,
    families: &ECS_FAMILIES,
    baselines: &[],
    notes: &[
        sourced("a node shows 200 slots of aliyun/erdma per NIC: it does not count NICs", &CONTROLLER),
        sourced("one slot passes one NIC; passing all of them needs allocateAllDevices", &CONTROLLER),
        sourced("NCCL needs preferDriver ofed (or compat): the default makes iWARP devices, for SMC-R", &CONTROLLER),
        sourced("the plugin sets no NCCL variable and no limit of locked memory", &CONTROLLER),
        sourced("the GPUDirect example runs in the host's network, with --device=aliyun/erdma=1", &ACK_GDR_PAGE),
    ],
    sources: Provenance { device_resource: Some(&ACK_GDR_PAGE), ..Provenance::NONE },
    source: &ACK_NODES_PAGE,
};
