//! Causes in the versions of NCCL, CUDA and the driver.

use super::{Cause, Fault, Log, MAX_EVIDENCE, cause};
use crate::versions::NcclVersion;

/// One text for two causes: `/dev/nvidiactl` tells a driver that is too old from a GPU that was not passed.
pub(super) fn driver(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines_with("driver version is insufficient");
    if log.hints.gpu_nodes == Some(false) {
        return cause(
            "gpu-not-passed",
            Fault::Launch,
            "the container sees no GPU: /dev/nvidiactl is not there",
            "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
            lines,
        );
    }
    let summary = match log.hints.gpu_nodes {
        Some(_) => "the host's driver is older than the image's CUDA needs",
        None => {
            "the host's driver is older than the image's CUDA needs (or, without /dev/nvidiactl, no GPU was passed)"
        }
    };
    cause(
        "driver-too-old",
        Fault::Host,
        summary,
        "upgrade the host's driver, or take an image with an older CUDA",
        lines,
    )
}

pub(super) fn version_skew(log: &Log<'_>) -> Option<Cause> {
    let mut lines = log.lines_with("Mismatched NCCL version detected");
    let mut versions = log.evidence.version_skew();
    if versions.is_empty() {
        // `… : rank 0 version 21903 rank 1 version 22105`.
        let codes = lines.iter().flat_map(|line| line.split(" version ").skip(1));
        let codes = codes.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        versions = codes.filter_map(NcclVersion::from_code).collect();
        versions.sort_unstable();
        versions.dedup();
    } else if lines.is_empty() {
        let versions = log.ranks().iter().filter_map(|rank| Some((rank.label(), rank.version.as_ref()?)));
        lines = versions.map(|(label, text)| format!("{label}: NCCL version {text}")).take(MAX_EVIDENCE).collect();
    }
    let named: Vec<String> = versions.iter().map(ToString::to_string).collect();
    cause(
        "nccl-version-skew",
        Fault::Image,
        format!("ranks run different NCCLs: {}", named.join(", ")),
        "run the same image on every rank, and check which libnccl.so.2 each one loads",
        lines,
    )
}
