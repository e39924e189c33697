//! The facts of a run that is right in every respect: start from them, break one thing.
//!
//! Two ranks on two GPUs of one host, with `--force-nic`, on an instance with one eRDMA device. Names and versions are those
//! of `image_fixture`'s good image.

#![allow(dead_code)]

use rdmaprep::diagnosis::{Cause, CauseId, GpuDirect, RdmaUse};
use rdmaprep::facts::rdma::*;
use rdmaprep::facts::run::*;
use rdmaprep::facts::run_evidence::*;
use std::collections::BTreeMap;

pub const NCCL: &str = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5";

pub fn variable(name: &str, value: &str, origin: Origin) -> Variable {
    Variable { name: name.into(), value: value.into(), origin, replaced: Vec::new() }
}

pub fn node(path: &str) -> DeviceNode {
    DeviceNode { path: path.into(), error: None }
}

pub fn measured(time_us: f64) -> Measured {
    Measured { time_us, min_time_us: time_us * 0.99, max_time_us: time_us * 1.01, wrong: Some(0), first_wrong: None }
}

pub fn row(size_bytes: u64, out_of_place_us: f64, in_place_us: f64) -> Row {
    Row {
        data_type: DataType::Float,
        size_bytes,
        count: size_bytes / 4,
        out_of_place: measured(out_of_place_us),
        in_place: measured(in_place_us),
    }
}

pub fn cause(id: CauseId) -> Cause {
    id.cause(vec![format!("line of {id}")]).summary(format!("what {id} means")).remedy(format!("remedy of {id}"))
}

pub fn warning(rank: u32, line: &str) -> RankLine {
    RankLine { rank, line: line.into() }
}

fn variables() -> Vec<Variable> {
    vec![
        variable("NCCL_DEBUG", "INFO", Origin::Run),
        variable("NCCL_IB_HCA", "erdma", Origin::Preset),
        variable("NCCL_P2P_DISABLE", "1", Origin::Run),
        variable("NCCL_SHM_DISABLE", "1", Origin::Run),
        variable("NCCL_SOCKET_IFNAME", "eth0", Origin::Preset),
    ]
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        name: "NVIDIA H200".into(),
        pci_address: format!("0000:00:{:02x}.0", 6 + index),
        memory_bytes: 150_754_820_096,
        compute_capability: (9, 0),
        ecc: Some(true),
        numa_node: Some(0),
        gpu_direct_rdma: Some(true),
        dma_buf: Some(true),
    }
}

fn rank(rank: u32) -> RankFacts {
    RankFacts {
        rank,
        pid: 1192 + rank,
        gpu: rank,
        host: Some("gpu-node-1".into()),
        host_id: None,
        nccl: Some(LoadedLibrary { asked: "libnccl.so.2".into(), path: NCCL.into() }),
        nccl_version_code: Some(22105),
        phase: Phase::Finish,
        log: String::new(),
        output: String::new(),
    }
}

fn environment() -> EnvironmentFacts {
    EnvironmentFacts {
        variables: variables().into_iter().map(|variable| (variable.name, variable.value)).collect(),
        nccl_files: BTreeMap::new(),
        memlock_bytes: None,
        stack_bytes: Some(67_108_864),
        open_files: Some(1_048_576),
        shm: Some(FileSystem { size_bytes: 540_000_000_000, free_bytes: 539_000_000_000 }),
        cgroup: CgroupFacts {
            version: 2,
            memory_limit_bytes: None,
            memory_used_bytes: Some(1 << 30),
            oom_kills: Some(0),
        },
        processors: 16,
        interfaces: vec![Interface {
            name: "eth0".into(),
            state: "up".into(),
            mtu: Some(8500),
            addresses: vec!["192.0.2.7/24".into()],
        }],
        rdma_devices: vec![RdmaDevice {
            name: "erdma_0".into(),
            vendor: Some("0x1ded".into()),
            driver: Some("erdma".into()),
            pci_address: Some("0000:00:08.0".into()),
            uverbs: Some("uverbs0".into()),
            ports: vec![RdmaPort {
                port: 1,
                state: "ACTIVE".into(),
                link_layer: "Ethernet".into(),
                interfaces: vec!["eth1".into()],
            }],
        }],
        rdma_nodes: vec![node("/dev/infiniband/rdma_cm"), node("/dev/infiniband/uverbs0")],
        nvidia_nodes: vec![node("/dev/nvidia0"), node("/dev/nvidia1"), node("/dev/nvidiactl"), node("/dev/nvidia-uvm")],
        kernel_driver: Some("550.54.14".into()),
        peer_memory_module: true,
        effective_uid: 0,
        can_lock_memory: true,
    }
}

pub fn good_run() -> RunFacts {
    RunFacts {
        launch: LaunchFacts {
            gpu_access: "nvidia".into(),
            gpu_access_reason: "the engine has the runtime nvidia".into(),
            devices: vec!["/dev/infiniband/uverbs0".into(), "/dev/infiniband/rdma_cm".into()],
            mounts: Vec::new(),
            variables: variables(),
            command_line: "docker run --rm --network host --gpus all example/train:1".into(),
            given_up: Vec::new(),
            force_nic: true,
            ranks_per_gpu: 1,
            network: "host".into(),
        },
        collective: Collective {
            min_bytes: 1 << 20,
            max_bytes: 1 << 22,
            step_factor: 2,
            step_bytes: 0,
            iterations: 20,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        },
        planted: None,
        agent_version: Some("0.1.0".into()),
        hostname: Some("host-a".into()),
        environment: Some(environment()),
        gpus: Some(GpuProbe {
            library: Some(LoadedLibrary {
                asked: "libcuda.so.1".into(),
                path: "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14".into(),
            }),
            cuda_version_code: Some(12040),
            gpus: vec![gpu(0), gpu(1)],
            peer_access: vec![(0, 1), (1, 0)],
            failure: None,
        }),
        verbs: Some(VerbsProbe {
            library: Some(LoadedLibrary {
                asked: "libibverbs.so.1".into(),
                path: "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0".into(),
            }),
            devices: vec![VerbsDevice { name: "erdma_0".into(), error: None }],
            failure: None,
            warnings: Vec::new(),
        }),
        ranks: vec![rank(0), rank(1)],
        rows: vec![row(1 << 20, 90.5, 91.0), row(1 << 21, 150.25, 151.0), row(1 << 22, 270.0, 271.5)],
        failures: Vec::new(),
        counters: vec![CounterDelta {
            device: "erdma_0".into(),
            port: Some(1),
            sent_bytes: 700_000_000,
            received_bytes: 700_000_000,
            source: "/sys/class/infiniband/erdma_0/ports/1/hw_counters/hw_tx_bytes_cnt".into(),
        }],
        ending: Ending::Agent { ending: AgentEnding::Complete },
        time: RunTime { create_ms: 400, start_ms: 250, run_ms: 4200 },
        evidence: Some(LogEvidence {
            rdma: RdmaUse::Yes,
            rdma_reasons: vec!["every channel between ranks is via NET/IB".into()],
            gpu_direct: GpuDirect::Yes,
            network: vec!["IB".into()],
            transports: BTreeMap::from([("NET/IB".into(), 8)]),
            devices: vec!["erdma_0:1/RoCE".into()],
            nccl_versions: BTreeMap::from([(0, "2.21.5+cuda12.4".into()), (1, "2.21.5+cuda12.4".into())]),
            warnings: Vec::new(),
            causes: Vec::new(),
        }),
        host_driver: Some("550.54.14".into()),
    }
}

/// What a run is that one host with one GPU can do.
pub fn one_rank() -> RunFacts {
    let mut run = good_run();
    run.ranks.truncate(1);
    run.launch.force_nic = false;
    let evidence = run.evidence.as_mut().unwrap();
    evidence.rdma = RdmaUse::NotExercised;
    evidence.rdma_reasons = vec!["there is one rank".into()];
    evidence.gpu_direct = GpuDirect::NotExercised;
    evidence.transports.clear();
    run
}

/// A run of which the engine did not start the container.
pub fn not_started(cause: StartFailure, message: &str) -> RunFacts {
    RunFacts {
        agent_version: None,
        hostname: None,
        environment: None,
        gpus: None,
        verbs: None,
        ranks: Vec::new(),
        rows: Vec::new(),
        counters: Vec::new(),
        evidence: None,
        ending: Ending::NotStarted { cause, message: message.into() },
        time: RunTime::default(),
        ..good_run()
    }
}

/// A run that one rank's failure ended.
pub fn failed(rank: u32, phase: Phase, failure: Failure) -> RunFacts {
    let mut run = good_run();
    run.rows.clear();
    run.counters.clear();
    let evidence = run.evidence.as_mut().unwrap();
    evidence.rdma = RdmaUse::Unknown;
    evidence.rdma_reasons = vec!["no channel was made".into()];
    evidence.gpu_direct = GpuDirect::Unknown;
    evidence.transports.clear();
    run.failures.push(RankFailure { rank, phase, failure });
    for facts in &mut run.ranks {
        facts.phase = phase;
    }
    run.ending = Ending::Agent { ending: AgentEnding::Failed };
    run
}

/// A run in which ranks fell silent.
pub fn silent(ranks: &[(u32, bool)], phase: Phase, last: Option<&str>) -> RunFacts {
    let mut run = failed(0, phase, Failure::Exit { code: 0 });
    run.failures = ranks
        .iter()
        .map(|(rank, behind)| RankFailure {
            rank: *rank,
            phase,
            failure: Failure::Silent { after_ms: 60_000, behind: *behind, last_nccl_line: last.map(Into::into) },
        })
        .collect();
    run.ending = Ending::Agent { ending: AgentEnding::PhaseTimeout };
    run
}
