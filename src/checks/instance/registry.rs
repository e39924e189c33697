//! The checks of an instance type with their documentation, in the order of reports.

use super::{Judge, bandwidth, image, nics};
use crate::checks::Check;
use crate::checks::Severity::{Advice, Required};

/// Every check that --instance adds.
pub static REGISTRY: &[Check<Judge>] = &[
    Check {
        id: "instance-listed",
        severity: Advice,
        exceptions: &[],
        about: "The target's documents list the instance type.",
        needs: &[],
        why: "PAI mounts the NICs of listed types into a job, and says nothing about others: there a job may go over TCP.",
        remedy: "Choose a listed type: rdmaprep targets NAME",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", table of types, read 2026-11",
        judge: image::listed,
    },
    Check {
        id: "instance-image",
        severity: Advice,
        exceptions: &[],
        about: "The vendor's own image is on a type that it is for.",
        needs: &["image"],
        why: "The vendor publishes its eRDMA images for GPU instances of the 8th generation, and says nothing about others. An \
              image built on one is not recognised.",
        remedy: "Build an image from one whose CUDA is right for the type's GPUs.",
        source: "Alibaba Cloud help, ECS, page of the image egs/erdma, read 2026-11",
        judge: image::image,
    },
    Check {
        id: "instance-devices",
        severity: Required,
        exceptions: &[],
        about: "NCCL_IB_HCA lets every NIC of the type through.",
        needs: &["nccl_settings"],
        why: "NCCL spreads channels over the devices that the filter lets through: with one of two excluded, half of the \
              bandwidth is lost; with all of them, NCCL silently uses TCP.",
        remedy: "ENV NCCL_IB_HCA=erdma",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\" (NICs per type), read 2026-11; NVIDIA/nccl, \
                 src/transport/net_ib.cc (NCCL_IB_HCA)",
        judge: image::devices,
    },
    Check {
        id: "instance-nic-count",
        severity: Required,
        exceptions: &[],
        about: "The run's host has as many RDMA devices as the type.",
        needs: &["environment"],
        why: "A host that lacks one has a fraction of the bandwidth, and a job whose hosts differ may hang.",
        remedy: "Attach what is missing; the type's EriQuantity is the possible number.",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\" (NICs per type), read 2026-11; NVIDIA/nccl \
                 issue 2428",
        judge: nics::count,
    },
    Check {
        id: "instance-bandwidth",
        severity: Required,
        exceptions: &[],
        about: "The bus bandwidth at the largest size is near what a document reports for the type.",
        needs: &["rows", "ranks"],
        why: "A figure holds for its own layout: type, hosts and ranks per host. From 85 % of it on a run is as good, since the \
              vendor's own two figures differ by 12 %; below 60 % something is missing, since half is what one of two NICs \
              leaves. Any other layout has no baseline, and passes nothing.",
        remedy: "rdmaprep devices --check on every host; then the settings that the figure was measured with.",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", result of the NCCL test, and ECS, page of the \
                 image egs/erdma, both read 2026-11",
        judge: bandwidth::bandwidth,
    },
    Check {
        id: "instance-line-rate",
        severity: Advice,
        exceptions: &[],
        about: "The run over several hosts is not faster than the type's NICs.",
        needs: &["rows", "ranks"],
        why: "Every host must receive as many bytes as the buffer has, whatever the algorithm: more than its NICs can carry went \
              another way, or the hosts are of another type.",
        remedy: "Look at the channels in NCCL's log, and name the right type.",
        source: "Alibaba Cloud help, ECS, instance families, read 2026-11",
        judge: bandwidth::line_rate,
    },
];
