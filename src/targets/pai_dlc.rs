//! Alibaba PAI-DLC: jobs on subscribed general computing resources. The platform mounts the NICs itself.

use super::alibaba::{self, PAI_PAGE};
use super::baseline::{Baseline, BaselineRow};
use super::source::sourced;
use super::{PlatformVariable, Provenance, Target};
use crate::fabric::erdma::ERDMA;
use crate::versions::{CudaVersion, NcclRequirement, NcclVersion};
use std::borrow::Cow;

pub(super) static PAI_DLC: Target = Target {
    id: "pai-dlc",
    title: Cow::Borrowed("Alibaba PAI-DLC"),
    fabric: &ERDMA,
    minimum_cuda: Some(CudaVersion::new(12, 1)),
    minimum_nccl: Some(NcclRequirement::AtLeast(NcclVersion::new(2, 19, 0))),
    needs_python3: true,
    nccl_presets: &[
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_IB_GID_INDEX", "1"),
        ("NCCL_IB_HCA", "erdma"),
        ("NCCL_IB_QPS_PER_CONNECTION", "8"),
        ("NCCL_MIN_NCHANNELS", "16"),
        ("NCCL_NET_PLUGIN", "none"),
    ],
    // The page has "-" for them, and says that this means no effect in this environment.
    nccl_without_effect: &["NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_TIMEOUT"],
    variables: &[
        PlatformVariable { name: "PYTHONUNBUFFERED", value: Some("1"), note: "" },
        PlatformVariable { name: "TZ", value: None, note: "depends on the job's region, mostly Asia/Shanghai" },
    ],
    device_resource: None,
    docker_flags: &[],
    // The page prints ecs.gn8is-4x.16xlarge twice.
    instances: &[
        &alibaba::EBMGN7V_32,
        &alibaba::EBMGN8V_48,
        &alibaba::EBMGN8IS_32,
        &alibaba::EBMGN8I_32,
        &alibaba::GN8IS_2,
        &alibaba::GN8IS_4,
        &alibaba::GN8IS_2X_8,
        &alibaba::GN8IS_4X_16,
    ],
    families: &[],
    baselines: &[TWO_HOSTS],
    notes: &[
        sourced("only for training jobs on subscribed general computing resources", &PAI_PAGE),
        sourced("the platform itself mounts the eRDMA NICs in the container", &PAI_PAGE),
    ],
    sources: Provenance {
        minimums: Some(&PAI_PAGE),
        variables: Some(&PAI_PAGE),
        instances: Some(&PAI_PAGE),
        ..Provenance::NONE
    },
    source: &PAI_PAGE,
};

/// The page's NCCL test: an MPIJob of two nodes with eight GPUs each.
const TWO_HOSTS: Baseline = Baseline {
    collective: "all_reduce_perf",
    instance: Some("ecs.ebmgn8v.48xlarge"),
    hosts: 2,
    ranks_per_host: 8,
    settings: &[
        ("NCCL_ALGO", "Ring"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_IB_GID_INDEX", "1"),
        ("NCCL_IB_QPS_PER_CONNECTION", "8"),
        ("NCCL_MIN_NCHANNELS", "16"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
    ],
    command: "all_reduce_perf -b 32K -e 4G -f 2 -g 1 -t 1 -n 20",
    software: "NCCL 2.19.3, CUDA 12.2.2, Ubuntu 22.04 (pai/nccl-tests:12.2.2-cudnn8-devel-ubuntu22.04-nccl2.19.3-1-85f9143)",
    rows: &[
        BaselineRow::new(32_768, [169.2, 0.19, 0.36], [165.1, 0.20, 0.37]),
        BaselineRow::new(65_536, [181.7, 0.36, 0.68], [170.0, 0.39, 0.72]),
        BaselineRow::new(131_072, [196.6, 0.67, 1.25], [199.5, 0.66, 1.23]),
        BaselineRow::new(262_144, [227.8, 1.15, 2.16], [226.0, 1.16, 2.17]),
        BaselineRow::new(524_288, [345.6, 1.52, 2.84], [346.8, 1.51, 2.83]),
        BaselineRow::new(1_048_576, [1258.2, 0.83, 1.56], [1317.5, 0.80, 1.49]),
        BaselineRow::new(2_097_152, [1367.7, 1.53, 2.88], [1313.0, 1.60, 2.99]),
        BaselineRow::new(4_194_304, [1502.1, 2.79, 5.24], [1504.8, 2.79, 5.23]),
        BaselineRow::new(8_388_608, [1763.1, 4.76, 8.92], [1793.4, 4.68, 8.77]),
        BaselineRow::new(16_777_216, [2838.3, 5.91, 11.08], [2867.2, 5.85, 10.97]),
        BaselineRow::new(33_554_432, [4952.3, 6.78, 12.70], [4962.5, 6.76, 12.68]),
        BaselineRow::new(67_108_864, [9027.4, 7.43, 13.94], [8976.9, 7.48, 14.02]),
        BaselineRow::new(134_217_728, [17_641.0, 7.61, 14.27], [17_664.0, 7.60, 14.25]),
        BaselineRow::new(268_435_456, [34_935.0, 7.68, 14.41], [34_922.0, 7.69, 14.41]),
        BaselineRow::new(536_870_912, [69_392.0, 7.74, 14.51], [69_274.0, 7.75, 14.53]),
        BaselineRow::new(1_073_741_824, [138_739.0, 7.74, 14.51], [138_833.0, 7.73, 14.50]),
        BaselineRow::new(2_147_483_648, [277_591.0, 7.74, 14.51], [277_373.0, 7.74, 14.52]),
        BaselineRow::new(4_294_967_296, [554_176.0, 7.75, 14.53], [554_452.0, 7.75, 14.52]),
    ],
    source: &PAI_PAGE,
};
