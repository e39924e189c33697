//! Causes in the versions of NCCL, CUDA and the driver.

use super::{Cause, CauseId, Log, MAX_EVIDENCE, cause};
use crate::versions::NcclVersion;

/// One text for two causes: `/dev/nvidiactl` tells a driver that is too old from a GPU that was not passed.
pub(super) fn driver(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines(|line| {
        ["driver version is insufficient", "driver on your system is too old", "unsatisfied condition: cuda"]
            .iter()
            .any(|mark| line.contains(mark))
    });
    if log.hints.gpu_nodes == Some(false) {
        return cause(
            CauseId::GpuNotPassed,
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
    Some(CauseId::DriverTooOld.found(lines)?.summary(summary))
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
        lines = versions.map(|(label, text)| format!("{label}: NCCL version {text}")).collect();
        let bare = log.evidence.versions.iter().filter(|version| version.processes == 0);
        lines.extend(bare.map(|version| format!("NCCL version {}", version.text)));
        // One of each version says it.
        let mut told: Vec<String> = Vec::new();
        lines.retain(|line| {
            let version = line.rsplit(' ').next().unwrap_or_default().to_owned();
            let is_new = !told.contains(&version);
            told.push(version);
            is_new
        });
        lines.truncate(MAX_EVIDENCE);
    }
    let named: Vec<String> = versions.iter().take(8).map(ToString::to_string).collect();
    cause(
        CauseId::NcclVersionSkew,
        format!("ranks run different NCCLs: {}", named.join(", ")),
        "run the same image on every rank, and check which libnccl.so.2 each one loads",
        lines,
    )
}

/// A function of NCCL that the loaded library does not have: an old NCCL on the loader's path before the wheel's, or a program
/// that was built with a newer one, as nccl-tests often is.
pub(super) fn symbol(log: &Log<'_>) -> Option<Cause> {
    let lines =
        log.lines(|line| ["undefined symbol: nccl", "undefined symbol: pnccl"].iter().any(|mark| line.contains(mark)));
    let is_torch =
        lines.iter().any(|line| line.contains("torch") || line.contains("ImportError") || line.contains(".py"));
    // Of NCCL 2.27 and later: what asks for them is nccl-tests, or as new.
    let is_new = lines.iter().any(|line| line.contains("ncclCommWindow") || line.contains("ncclDevComm"));
    let is_tests = lines.iter().any(|line| line.contains("_perf")) || (is_new && !is_torch);
    if is_tests {
        return cause(CauseId::NcclVersionSkew, SKEW, SKEW_REMEDY, lines);
    }
    CauseId::NcclTooOldLoaded.found(lines)
}

pub(super) const SKEW: &str = "the program was built with an NCCL other than the one it runs with";
pub(super) const SKEW_REMEDY: &str =
    "rebuild the program with the NCCL that it runs with, or load the one that it was built with; RDMA is not involved";
