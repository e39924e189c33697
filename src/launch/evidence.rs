//! What the ranks' logs, the counters and the container's view of itself say together.

use crate::fabric::erdma::ERDMA;
use crate::facts::run::{EnvironmentFacts, Failure, RunFacts};
use crate::facts::run_evidence::{LogEvidence, RankLine};
use crate::logs::nccl::{
    CounterReading, DeviceBytes, ExpectedBytes, Hints, Limit, NcclEvidence, Observed, RankEvidence, RankLog,
    RdmaDeviceHint, explain_nccl_log, judge_rdma,
};

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
    Some(LogEvidence {
        rdma: verdict.rdma,
        rdma_reasons: verdict.reasons.iter().map(ToString::to_string).collect(),
        gpu_direct: verdict.gpu_direct,
        network: evidence.networks.keys().cloned().collect(),
        transports: evidence.transports.iter().map(|used| (used.name.clone(), used.lines)).collect(),
        devices: evidence.devices.iter().map(|device| format!("{}/{}", device.name, device.link)).collect(),
        nccl_versions: versions.collect(),
        warnings: warnings.collect(),
        causes: explain_nccl_log(&evidence, &hints(run)),
    })
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
    // A run is one container.
    let Some(environment) = &run.environment else { return Hints { is_one_host: true, ..Hints::default() } };
    Hints {
        memlock: environment.memlock_bytes.map_or(Limit::Unlimited, Limit::Bytes),
        shm_bytes: environment.shm.map(|shm| shm.size_bytes),
        rdma_devices: Some(rdma_hints(environment)),
        gpu_nodes: Some(environment.nvidia_nodes.iter().any(|node| node.path == "/dev/nvidiactl")),
        is_one_host: true,
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
        is_erdma: ERDMA.drives(device.nic()),
        ..RdmaDeviceHint::default()
    });
    devices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{GpuDirect, RdmaUse};
    use crate::run_fixture::good_run;

    /// A rank of two in the words of NCCL 2.28, over a transport.
    fn log(rank: u32, network: &str, via: &str) -> String {
        let peer = 1 - rank;
        let prefix = format!("host-a:{}:{} [{rank}] NCCL INFO", 100 + rank, 100 + rank);
        let init =
            format!("ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId 60 commId 0x9");
        [
            "NCCL version 2.28.3+cuda12.9".to_owned(),
            "NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>".to_owned(),
            format!("Using network {network}"),
            format!("{init} - Init START"),
            format!("{init} - Init COMPLETE"),
            format!("Channel 00/0 : {peer}[{peer}] -> {rank}[{rank}] [receive] via {via}"),
            format!("Channel 00/0 : {rank}[{rank}] -> {peer}[{peer}] [send] via {via}"),
            "Connected all rings".to_owned(),
        ]
        .map(|line| format!("{prefix} {line}\n"))
        .concat()
    }

    fn run_over(network: &str, via: &str) -> RunFacts {
        let mut run = good_run();
        for rank in &mut run.ranks {
            rank.log = log(rank.rank, network, via);
        }
        run
    }

    #[track_caller]
    fn expect(run: &RunFacts, rdma: RdmaUse, reason: &str) -> LogEvidence {
        let evidence = read_evidence(run).unwrap();
        assert_eq!(evidence.rdma, rdma, "{evidence:#?}");
        assert!(evidence.rdma_reasons.iter().any(|said| said.contains(reason)), "{evidence:#?}");
        evidence
    }

    /// Log, counters and results together.
    #[test]
    fn rdma_is_proved_by_all_of_it() {
        let run = run_over("IB", "NET/IB/0/GDRDMA");
        let evidence = expect(&run, RdmaUse::Yes, "4 channel lines are via RDMA (erdma_0)");
        assert_eq!((evidence.gpu_direct, evidence.devices), (GpuDirect::Yes, vec!["erdma_0/RoCE".to_owned()]));
        assert_eq!(evidence.nccl_versions.len(), 2);
        assert!(evidence.causes.is_empty() && evidence.warnings.is_empty());
    }

    /// Seven MiB, 20 operations in either place, two ranks that send and receive once each.
    #[test]
    fn counters_must_rise_by_what_was_to_move() {
        let mut run = run_over("IB", "NET/IB/0");
        let moved = 7 * (1 << 20) * 2 * 20 * 2;
        for (sent, received, rdma) in [
            (moved, moved, RdmaUse::Yes),
            (moved * 95 / 100, moved, RdmaUse::Yes),
            (moved, moved * 80 / 100, RdmaUse::Unknown),
            (0, 0, RdmaUse::Unknown),
        ] {
            (run.counters[0].sent_bytes, run.counters[0].received_bytes) = (sent, received);
            assert_eq!(read_evidence(&run).unwrap().rdma, rdma, "{sent} {received}");
        }
        // A part within the host: how much the device had to move is not known.
        run.ranks[1].log = log(1, "IB", "P2P/CUMEM");
        (run.counters[0].sent_bytes, run.counters[0].received_bytes) = (1, 1);
        expect(&run, RdmaUse::Unknown, "is not known");
        expect(&run_with_counters(run_over("IB", "NET/IB/0"), Vec::new()), RdmaUse::Unknown, "byte counters");
        // The interfaces' traffic is not a device counter.
        let mut interface = good_run().counters.remove(0);
        (interface.device, interface.port) = ("eth0".into(), None);
        expect(&run_with_counters(run_over("IB", "NET/IB/0"), vec![interface]), RdmaUse::Unknown, "byte counters");
    }

    fn run_with_counters(mut run: RunFacts, counters: Vec<crate::facts::run::CounterDelta>) -> RunFacts {
        run.counters = counters;
        run
    }

    #[test]
    fn sockets_and_channels_within_the_host() {
        expect(&run_over("Socket", "NET/Socket/0"), RdmaUse::No, "NET/Socket");
        expect(&run_over("IB", "P2P/CUMEM"), RdmaUse::NotExercised, "within a host");
        let mut one = run_over("IB", "P2P/CUMEM");
        one.ranks.truncate(1);
        one.ranks[0].log = one.ranks[0].log.replace("nranks 2", "nranks 1");
        expect(&one, RdmaUse::NotExercised, "one rank");
        let mut none = good_run();
        none.ranks.clear();
        assert_eq!(read_evidence(&none), None);
    }

    #[test]
    fn results_that_nobody_checked_prove_nothing() {
        let mut run = run_over("IB", "NET/IB/0");
        for row in &mut run.rows {
            (row.out_of_place.wrong, row.in_place.wrong) = (None, None);
        }
        let said = read_evidence(&run).unwrap();
        assert_eq!(said.rdma, RdmaUse::Unknown, "{said:#?}");
    }

    /// In a container without a network there is nothing but `lo`, and the ranks meet over it.
    #[test]
    fn ranks_of_one_host_may_meet_over_any_interface() {
        let mut run = good_run();
        for rank in &mut run.ranks {
            let start = log(rank.rank, "Socket", "").lines().nth(3).unwrap().to_owned();
            let prefix = start.split(" ncclCommInitRank").next().unwrap().to_owned();
            rank.log = format!("{prefix} Bootstrap: Using lo:127.0.0.1<0>\n{start}\n");
        }
        assert_eq!(read_evidence(&run).unwrap().causes, []);
    }

    /// Until 2.21 the version is printed, and does not come with the log.
    #[test]
    fn what_a_rank_printed_is_read_too() {
        let mut run = run_over("IB", "NET/IB/0");
        for rank in &mut run.ranks {
            rank.log = rank.log.lines().skip(1).map(|line| format!("{line}\n")).collect();
        }
        run.ranks[0].output = "NCCL version 2.21.5+cuda12.4\n".into();
        let versions = read_evidence(&run).unwrap().nccl_versions;
        assert_eq!(versions.get(&0).map(String::as_str), Some("2.21.5+cuda12.4"));
    }
}
