//! What Alibaba Cloud's targets share: documents, and the ECS instance types that have eRDMA.
//!
//! The authority for any type is `EriQuantity` of DescribeInstanceTypes. This module has only documented figures; if no
//! document states one, it is absent.

use super::instance::{InstanceFamily, InstanceType};
use super::source::{Source, sourced};

/// NIC counts, presets, minimums and a bandwidth table.
pub(super) static PAI_PAGE: Source = Source {
    title: "Alibaba Cloud help, PAI, \"eRDMA: Use high-performance networks for distributed training\"",
    address: "www.alibabacloud.com/help/en/pai/user-guide/erdma-distributed-training-with-high-performance-networks",
    read: "2026-11",
};

/// The vendor's own image, its `docker run` line and a bandwidth.
pub(super) static IMAGE_PAGE: Source = Source {
    title: "Alibaba Cloud help, ECS, \"Use the eRDMA image to set up eRDMA on GPU instances\"",
    address: "",
    read: "2026-11",
};

/// Devices that a container needs.
pub(super) static DOCKER_PAGE: Source = Source {
    title: "Alibaba Cloud help, ECS, \"Enable eRDMA in a Docker container\"",
    address: "www.alibabacloud.com/help/en/ecs/user-guide/configure-erdma-in-a-docker-container",
    read: "2026-11",
};

/// Families with eRDMA, and the MTU.
pub(super) static GPU_PAGE: Source = Source {
    title: "Alibaba Cloud help, ECS, \"Enable eRDMA on GPU-accelerated instances\"",
    address: "www.alibabacloud.com/help/en/ecs/user-guide/on-the-gpu-instance-configuration-erdma",
    read: "2026-11",
};

/// Bandwidths.
pub(super) static FAMILIES_PAGE: Source = Source {
    title: "Alibaba Cloud help, ECS, instance families (GPU, gn and ebm series)",
    address: "",
    read: "2026-11",
};

pub(super) static ACK_NODES_PAGE: Source = Source {
    title: "Alibaba Cloud help, ACK, \"Add eRDMA nodes to ACK clusters\"",
    address: "www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/add-an-erdma-node-to-the-ack",
    read: "2026-11",
};

pub(super) static ACK_GDR_PAGE: Source = Source {
    title: "Alibaba Cloud help, ACK, GPU Direct RDMA on eRDMA nodes with Arena",
    address: "",
    read: "2026-11",
};

pub(super) static CONTROLLER: Source = Source {
    title: "AliyunContainerService/alibabacloud-erdma-controller at 72e8f0c",
    address: "github.com/AliyunContainerService/alibabacloud-erdma-controller",
    read: "2026-11",
};

static ROBOT_SOLUTION: Source = Source {
    title: "aliyun-computenest/quickstart-robot-solution, health check of a node",
    address: "github.com/aliyun-computenest/quickstart-robot-solution",
    read: "2026-11",
};

pub(super) static EBMGN7V_32: InstanceType =
    InstanceType { nics: Some(sourced(2, &PAI_PAGE)), ..InstanceType::named("ecs.ebmgn7v.32xlarge") };

pub(super) static EBMGN8V_48: InstanceType = InstanceType {
    nics: Some(sourced(2, &PAI_PAGE)),
    // 85 for each NIC.
    bandwidth_gbit_per_s: Some(sourced(170, &FAMILIES_PAGE)),
    rdma_gbit_per_s: Some(sourced(160, &FAMILIES_PAGE)),
    // The page's job of two nodes takes eight of each.
    gpus: Some(sourced(8, &PAI_PAGE)),
    ..InstanceType::named("ecs.ebmgn8v.48xlarge")
};

pub(super) static EBMGN8IS_32: InstanceType = InstanceType {
    nics: Some(sourced(2, &PAI_PAGE)),
    // 80 for each NIC.
    bandwidth_gbit_per_s: Some(sourced(160, &FAMILIES_PAGE)),
    ..InstanceType::named("ecs.ebmgn8is.32xlarge")
};

pub(super) static EBMGN8I_32: InstanceType =
    InstanceType { nics: Some(sourced(4, &PAI_PAGE)), ..InstanceType::named("ecs.ebmgn8i.32xlarge") };

pub(super) static GN8IS_2: InstanceType = gn8is("ecs.gn8is.2xlarge", 8);
pub(super) static GN8IS_4: InstanceType = gn8is("ecs.gn8is.4xlarge", 16);
pub(super) static GN8IS_2X_8: InstanceType = gn8is("ecs.gn8is-2x.8xlarge", 32);
pub(super) static GN8IS_4X_16: InstanceType = gn8is("ecs.gn8is-4x.16xlarge", 64);

const fn gn8is(name: &'static str, gbit_per_s: u32) -> InstanceType {
    InstanceType {
        nics: Some(sourced(1, &PAI_PAGE)),
        bandwidth_gbit_per_s: Some(sourced(gbit_per_s, &FAMILIES_PAGE)),
        ..InstanceType::named(name)
    }
}

pub(super) static EBMGN9GC_64: InstanceType = InstanceType {
    nics: Some(sourced(2, &ROBOT_SOLUTION)),
    // 180 for each NIC.
    bandwidth_gbit_per_s: Some(sourced(360, &FAMILIES_PAGE)),
    ..InstanceType::named("ecs.ebmgn9gc.64xlarge")
};

pub(super) static EBMGN8IA_64: InstanceType = InstanceType {
    bandwidth_gbit_per_s: Some(sourced(160, &FAMILIES_PAGE)),
    ..InstanceType::named("ecs.ebmgn8ia.64xlarge")
};

/// Every ECS type that a document names with eRDMA.
pub(super) static ECS_TYPES: [&InstanceType; 10] = [
    &EBMGN7V_32,
    &EBMGN8I_32,
    &EBMGN8IA_64,
    &EBMGN8IS_32,
    &EBMGN8V_48,
    &EBMGN9GC_64,
    &GN8IS_2,
    &GN8IS_4,
    &GN8IS_2X_8,
    &GN8IS_4X_16,
];

/// Families that documents name without figures for their types.
pub(super) static ECS_FAMILIES: [InstanceFamily; 7] = [
    family("ebmgn7ex", "at most 2 NICs", &GPU_PAGE),
    family("ebmgn7ix", "at most 2 NICs", &GPU_PAGE),
    family("ebmgn7vx", "at most 2 NICs", &GPU_PAGE),
    family("ebmgn9g", "checked like ebmgn9gc", &ROBOT_SOLUTION),
    family("ebmgn9ge", "checked like ebmgn9gc", &ROBOT_SOLUTION),
    family("ebmgn9t", "no figure", &FAMILIES_PAGE),
    family("gn8v", "no figure", &ACK_GDR_PAGE),
];

const fn family(name: &'static str, said: &'static str, source: &'static Source) -> InstanceFamily {
    InstanceFamily { name, said: sourced(said, source) }
}
