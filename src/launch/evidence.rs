//! What the ranks' logs, the counters and the container's view of itself say together.

use crate::facts::run::{EnvironmentFacts, Failure, RunFacts};
use crate::facts::run_evidence::{Cause, GpuDirect, LogEvidence, RankLine};
use crate::nccl_log::{
    CounterReading, DeviceBytes, ExpectedBytes, Hints, Limit, NcclEvidence, Observed, RankEvidence, RankLog,
    RdmaDeviceHint, explain_nccl_log, judge_rdma,
};

/// PCI vendor of eRDMA (Alibaba).
const ERDMA_VENDOR: &str = "0x1ded";

/// Reads the logs of a run's ranks; `None`: no rank was started.
pub fn read_evidence(run: &RunFacts) -> Option<LogEvidence> {
    if run.ranks.is_empty() {
        return None;
    }
    let logs: Vec<(u32, RankEvidence)> = run
        .ranks
        .iter()
        .map(|rank| {
            let mut log = RankLog::default();
            // NCCL up to 2.21 prints its version to stdout, wherever the log goes.
            for line in rank.output.lines().chain(rank.log.lines()) {
                log.push_line(line.as_bytes());
            }
            (rank.rank, log.evidence())
        })
        .collect();
    let evidence = NcclEvidence::of(logs.iter().map(|(_, log)| log.clone()), &RankEvidence::default());
    let verdict = judge_rdma(&evidence, &observed(run, &evidence));
    let warnings = logs.iter().flat_map(|(rank, log)| {
        log.warnings.iter().map(|warning| RankLine { rank: *rank, line: warning.text.clone() })
    });
    let versions = logs.iter().filter_map(|(rank, log)| Some((*rank, log.version.clone()?)));
    let causes = explain_nccl_log(&evidence, &hints(run)).into_iter().map(|cause| Cause {
        id: cause.id.to_owned(),
        is_image_at_fault: cause.is_image_at_fault(),
        summary: cause.summary,
        evidence: cause.evidence,
        remedy: cause.remedy,
    });
    Some(LogEvidence {
        rdma: verdict.rdma,
        rdma_reasons: verdict.reasons.iter().map(ToString::to_string).collect(),
        gpu_direct: gpu_direct(verdict.gpu_direct),
        network: evidence.networks.keys().cloned().collect(),
        transports: evidence.transports.iter().map(|used| (used.name.clone(), used.lines)).collect(),
        devices: evidence.devices.iter().map(|device| format!("{}/{}", device.name, device.link)).collect(),
        nccl_versions: versions.collect(),
        warnings: warnings.collect(),
        causes: causes.collect(),
    })
}

fn gpu_direct(gdr: crate::nccl_log::GpuDirect) -> GpuDirect {
    use crate::nccl_log::GpuDirect as Log;
    match gdr {
        Log::Yes => GpuDirect::Yes,
        Log::No => GpuDirect::No,
        Log::Mixed => GpuDirect::Mixed,
        Log::NotExercised => GpuDirect::NotExercised,
    }
}

fn observed(run: &RunFacts, evidence: &NcclEvidence) -> Observed {
    let devices: Vec<DeviceBytes> = run
        .counters
        .iter()
        .filter(|counter| counter.port.is_some())
        .map(|counter| DeviceBytes {
            device: counter.device.clone(),
            sent_bytes: counter.sent_bytes,
            received_bytes: counter.received_bytes,
        })
        .collect();
    let has_devices = run.environment.as_ref().is_some_and(|environment| !environment.rdma_devices.is_empty());
    let counters = if !devices.is_empty() {
        CounterReading::Read { devices, expected: expected_bytes(run, evidence) }
    } else if has_devices {
        CounterReading::Unreadable
    } else {
        CounterReading::NotRead
    };
    let checked = run.rows.iter().flat_map(|row| [row.out_of_place.wrong, row.in_place.wrong]);
    Observed {
        nranks: u32::try_from(run.ranks.len()).ok(),
        counters,
        // Nothing measured is nothing checked.
        wrong_values: if run.rows.is_empty() { None } else { checked.sum() },
    }
}

/// What the devices of this host must have sent and received for the rows of the table: of each operation, every rank
/// sends and receives `2(n−1)/n` of its bytes at least (Patarasu and Yuan, 2009). `None`: a part of it went within the host.
fn expected_bytes(run: &RunFacts, evidence: &NcclEvidence) -> Option<ExpectedBytes> {
    let all_network = evidence.transports.iter().all(|used| used.name.starts_with("NET/"));
    if !all_network || run.ranks.len() < 2 {
        return None;
    }
    let ranks = run.ranks.len() as u64;
    let operations = 2 * u64::from(run.collective.iterations);
    let bytes: u64 = run.rows.iter().map(|row| row.size_bytes.saturating_mul(operations)).sum();
    // n ranks, each 2(n−1)/n.
    let moved = bytes.saturating_mul(2 * (ranks - 1));
    Some(ExpectedBytes { sent_bytes: moved, received_bytes: moved })
}

fn hints(run: &RunFacts) -> Hints {
    let Some(environment) = &run.environment else { return Hints::default() };
    Hints {
        memlock: environment.memlock_bytes.map_or(Limit::Unlimited, Limit::Bytes),
        shm_bytes: environment.shm.map(|shm| shm.size_bytes),
        rdma_devices: Some(rdma_hints(environment)),
        gpu_nodes: Some(environment.nvidia_nodes.iter().any(|node| node.path == "/dev/nvidiactl")),
        timed_out: run.failures.iter().any(|failure| matches!(failure.failure, Failure::Silent { .. })),
        ..Hints::default()
    }
}

fn rdma_hints(environment: &EnvironmentFacts) -> Vec<RdmaDeviceHint> {
    let opens = |uverbs: &str| {
        let path = format!("/dev/infiniband/{uverbs}");
        environment.rdma_nodes.iter().find(|node| node.path == path).is_some_and(|node| node.error.is_none())
    };
    let devices = environment.rdma_devices.iter().map(|device| RdmaDeviceHint {
        name: device.name.clone(),
        can_be_opened: device.uverbs.as_deref().map(opens),
        has_active_port: Some(device.ports.iter().any(|port| port.state == "ACTIVE")),
        is_erdma: device.driver.as_deref() == Some("erdma") || device.vendor.as_deref() == Some(ERDMA_VENDOR),
        ..RdmaDeviceHint::default()
    });
    devices.collect()
}
