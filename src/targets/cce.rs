//! Baidu CCE: pods on nodes with Mellanox RoCE NICs.

use super::source::{Source, sourced};
use super::{Provenance, Target};
use crate::fabric::roce::ROCE;
use std::borrow::Cow;

static CCE_PAGE: Source = Source {
    title: "Baidu AI Cloud, CCE, NCCL on RDMA nodes",
    address: "cloud.baidu.com/doc/CCE/s/Qmknnud7o",
    read: "2026-11",
};

static BCC_PAGE: Source = Source {
    title: "Baidu AI Cloud, BCC, use of elastic RDMA NICs",
    address: "cloud.baidu.com/doc/BCC/s/ilks01soo",
    read: "2026-11",
};

// The page names the resource of the device plugin and no minimum version.
pub(super) static CCE: Target = Target {
    id: "cce",
    title: Cow::Borrowed("Baidu CCE"),
    fabric: &ROCE,
    minimum_cuda: None,
    minimum_nccl: None,
    needs_python3: false,
    nccl_presets: &[],
    nccl_without_effect: &[],
    variables: &[],
    device_resource: Some("rdma/hca"),
    docker_flags: &[],
    instances: &[],
    families: &[],
    baselines: &[],
    notes: &[
        sourced("a node shows 1k of rdma/hca, whatever the number of its NICs", &CCE_PAGE),
        sourced("the hosts have OFED: ofed_info -s, show_gids", &CCE_PAGE),
        sourced("the security group must not limit UDP port 4791, which carries RoCE v2", &BCC_PAGE),
        sourced(
            "the GID index is that of a v2 entry with the NIC's address (show_gids); the example uses 3",
            &BCC_PAGE,
        ),
    ],
    sources: Provenance { device_resource: Some(&CCE_PAGE), ..Provenance::NONE },
    source: &CCE_PAGE,
};
