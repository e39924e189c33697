//! NCCL logs of known failures, put together from the shapes that NCCL prints → verdict and cause.

use crate::support::rounds;
use rdmaprep::diagnosis::{Cause, Fault, GpuDirect, RdmaUse};
use rdmaprep::logs::nccl::{
    CounterReading, DeviceBytes, ExpectedBytes, GidEntry, Hints, Interleaved, KeyEntry, Limit, Logs, NcclEvidence,
    Observed, Phase, RankLog, RdmaDeviceHint, RdmaReason, explain_nccl_log, judge_rdma,
};

/// A log of one process after another, each line with its prefix. `!` begins a warning.
fn log(processes: &[(&str, u32, &[&str])]) -> String {
    let mut text = String::new();
    for (host, pid, lines) in processes {
        for line in *lines {
            text += &match line.strip_prefix('!') {
                Some(warning) => format!("\n{host}:{pid}:{pid} [0] net.cc:12 NCCL WARN {warning}\n"),
                None => format!("{host}:{pid}:{pid} [0] NCCL INFO {line}\n"),
            };
        }
    }
    text
}

fn read(text: &str) -> Logs {
    let mut stream = Interleaved::default();
    stream.push(text.as_bytes());
    stream.finish()
}

fn evidence(processes: &[(&str, u32, &[&str])]) -> NcclEvidence {
    read(&log(processes)).evidence()
}

fn ids(causes: &[Cause]) -> Vec<&'static str> {
    causes.iter().map(|cause| cause.id.name()).collect()
}

fn causes(evidence: &NcclEvidence) -> Vec<&'static str> {
    ids(&explain_nccl_log(evidence, &Hints::default()))
}

/// Counters that rose as they had to, and results that are right.
fn proof(devices: &[&str], bytes: u64) -> Observed {
    let devices = devices
        .iter()
        .map(|device| DeviceBytes { device: (*device).to_owned(), sent_bytes: bytes, received_bytes: bytes })
        .collect();
    let expected = Some(ExpectedBytes { sent_bytes: 1 << 30, received_bytes: 1 << 30 });
    Observed { nranks: Some(2), counters: CounterReading::Read { devices, expected }, wrong_values: Some(0) }
}

fn checked() -> Observed {
    Observed { nranks: Some(2), wrong_values: Some(0), ..Observed::default() }
}

fn device(name: &str) -> RdmaDeviceHint {
    RdmaDeviceHint {
        name: name.to_owned(),
        can_be_opened: Some(true),
        has_active_port: Some(true),
        ..RdmaDeviceHint::default()
    }
}

fn with_devices(devices: Vec<RdmaDeviceHint>) -> Hints {
    Hints { rdma_devices: Some(devices), ..Hints::default() }
}

const USING: &str = "NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>";
const RANK0: &str = "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init COMPLETE";
const RANK1: &str = "ncclCommInitRank comm 0x1 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init COMPLETE";

/// Two ranks that talk over RDMA, or whatever `via` says.
fn pair(via: &str) -> NcclEvidence {
    let send0 = format!("Channel 00/0 : 0[0] -> 1[0] [send] via {via}");
    let receive0 = format!("Channel 00/0 : 1[0] -> 0[0] [receive] via {via}");
    let send1 = format!("Channel 00/0 : 1[0] -> 0[0] [send] via {via}");
    let receive1 = format!("Channel 00/0 : 0[0] -> 1[0] [receive] via {via}");
    let network = if via.starts_with("NET/Socket") { "Using network Socket" } else { "Using network IB" };
    evidence(&[
        (
            "host-a",
            7,
            &["NCCL version 2.27.3+cuda12.9", USING, network, RANK0, &receive0, &send0, "Connected all rings"],
        ),
        (
            "host-b",
            7,
            &["NCCL version 2.27.3+cuda12.9", USING, network, RANK1, &receive1, &send1, "Connected all rings"],
        ),
    ])
}

#[test]
fn d01_verbs_present_device_not_passed() {
    let lines: &[&str] = &[
        "!Call to ibv_open_device failed",
        "!NET/IB : Unable to open device mlx5_bond_0",
        "NET/IB : No device found.",
        "Using network Socket",
    ];
    let evidence = evidence(&[("host-a", 7, lines)]);
    assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::No);
    let found = explain_nccl_log(&evidence, &Hints::default());
    assert_eq!(ids(&found), ["device-not-permitted"]);
    assert_eq!(found[0].fault, Fault::Launch);
    assert!(found[0].remedy.contains("--device /dev/infiniband/uverbs"));
    assert_eq!(found[0].evidence[1], "host-a:7: NET/IB : Unable to open device mlx5_bond_0");
}

#[test]
fn d02_bandwidth_proves_nothing() {
    let evidence = pair("NET/Socket/0");
    let verdict = judge_rdma(&evidence, &proof(&["erdma_0"], 2 << 30));
    assert_eq!((verdict.rdma, verdict.gpu_direct), (RdmaUse::No, GpuDirect::NotExercised));
    assert_eq!(verdict.reasons, [RdmaReason::SocketChannels { lines: 4, rdma_lines: 0 }]);
    // A hint that the node is not there names the cause; the log alone does not.
    assert_eq!(causes(&evidence), [""; 0]);
    let closed = RdmaDeviceHint { can_be_opened: Some(false), ..device("erdma_0") };
    assert_eq!(ids(&explain_nccl_log(&evidence, &with_devices(vec![closed]))), ["device-not-permitted"]);
}

#[test]
fn d03_using_with_nothing_after_it() {
    for using in ["NET/IB : Using ; OOB eth0:192.0.2.7<0>", "NET/IB : Using [RO]; OOB eth0:192.0.2.7<0>", ""] {
        let lines =
            ["NET/IB : No device found.", using, "Failed to initialize NET plugin IB", "Using network Socket", RANK0];
        let evidence = evidence(&[("host-a", 7, &lines)]);
        assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::No, "{using}");
        let listed = evidence.ranks[0].ib_devices.as_deref().unwrap_or_default();
        assert!(listed.is_empty());
        // The same line stands for three causes: without a hint there is none.
        assert_eq!(causes(&evidence), [""; 0]);
    }
}

#[test]
fn d04_two_devices_and_one_that_opens() {
    let two = "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.7<0>";
    let evidence = evidence(&[
        (
            "host-a",
            7,
            &[
                two,
                "Using network IB",
                "Detected mixed local Net device counts across ranks (min 1, max 2). Ignoring due to NCCL_IGNORE_NET_MISMATCH.",
                RANK0,
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
                "Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1",
            ],
        ),
        ("host-b", 7, &["!NET/IB : Unable to open device erdma_1", USING, "Using network IB", RANK1]),
    ]);
    let found = explain_nccl_log(&evidence, &Hints::default());
    assert_eq!(ids(&found), ["asymmetric-hca"]);
    assert!(found[0].remedy.contains("NCCL_IB_HCA==erdma_0"), "{}", found[0].remedy);
    assert_eq!(
        found[0].evidence[..2],
        ["rank 0 (host-a:7) has erdma_0, erdma_1", "rank 1 (host-b:7) has erdma_0"].map(str::to_owned)
    );
    assert_eq!(evidence.gpu_direct, GpuDirect::Mixed);
    assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::Unknown);
}

#[test]
fn d05_erdma_as_iwarp() {
    for warning in [
        "!Call to ibv_modify_qp failed with error Invalid argument errno 22",
        "!Call to ibv_modify_qp failed with 22 Invalid argument, on dev erdma_0:1, curr state RTR, next state RTS, local GID index 1, local GID N/A, remote GID N/A",
    ] {
        let evidence = evidence(&[("host-a", 7, &[USING, "Using network IB", warning])]);
        let found = explain_nccl_log(&evidence, &Hints::default());
        assert_eq!(ids(&found), ["erdma-driver-not-compat"]);
        assert_eq!(found[0].fault, Fault::Host);
        let iwarp = RdmaDeviceHint { is_erdma: true, is_iwarp: Some(true), ..device("erdma_0") };
        let found = explain_nccl_log(&evidence, &with_devices(vec![iwarp]));
        assert!(found[0].evidence[1].contains("iWARP"));
        // A device that is known to be in the right mode has another trouble.
        let compat = RdmaDeviceHint { is_erdma: true, is_iwarp: Some(false), ..device("erdma_0") };
        assert_eq!(ids(&explain_nccl_log(&evidence, &with_devices(vec![compat]))), [""; 0]);
    }
    let mlx5 = [
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB e:192.0.2.7<0>",
        "!Call to ibv_modify_qp failed with error Invalid argument",
    ];
    assert_eq!(causes(&evidence(&[("host-a", 7, &mlx5)])), [""; 0]);
}

#[test]
fn d06_a_filter_that_names_nothing() {
    let lines = ["NCCL_IB_HCA set by environment to erdma", "NET/IB : No device found.", "Using network Socket"];
    let evidence = evidence(&[("host-a", 7, &lines)]);
    let found = explain_nccl_log(&evidence, &with_devices(vec![device("rocep26s0")]));
    assert_eq!(ids(&found), ["hca-filter-matches-nothing"]);
    assert!(found[0].remedy.contains("NCCL_IB_HCA=rocep26s0"));
    assert_eq!(causes(&evidence), [""; 0]);
}

fn gid_table() -> Vec<GidEntry> {
    let entry =
        |index, gid: &str, kind: &str| GidEntry { device: "erdma_0".into(), index, gid: gid.into(), kind: kind.into() };
    vec![
        entry(0, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "IB/RoCE v1"),
        entry(1, "fe80:0000:0000:0000:0000:00ff:fe00:0001", "RoCE v2"),
        entry(2, "0000:0000:0000:0000:0000:ffff:c000:0207", "IB/RoCE v1"),
        entry(3, "0000:0000:0000:0000:0000:ffff:c000:0207", "RoCE v2"),
    ]
}

#[test]
fn d08_a_gid_that_is_not_routable() {
    for completion in [
        "!NET/IB: Got completion from peer 192.0.2.8<4791> with status=12 opcode=129 len=0 vendor err 129 (Send) localGid fe80::1 remoteGidsfe80::2 hca erdma_0",
        "!NET/IB : Got completion from peer 192.0.2.8<4791> with error 12, opcode 1, len 0, vendor err 129",
        "!NET/IB: Got completion from peer 192.0.2.8<4791> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca erdma_0",
    ] {
        let lines = ["NCCL_IB_GID_INDEX set by environment to 1.", USING, "Using network IB", completion];
        let evidence = evidence(&[("host-a", 7, &lines)]);
        let hints = Hints { gids: gid_table(), ..Hints::default() };
        let found = explain_nccl_log(&evidence, &hints);
        assert_eq!(ids(&found), ["gid-unroutable"], "{completion}");
        assert!(found[0].remedy.contains("NCCL_IB_GID_INDEX=3"), "{}", found[0].remedy);
    }
    // The table says that index 1 is the right one: then it is something else.
    let lines = [
        "NCCL_IB_GID_INDEX set by environment to 1.",
        USING,
        "!NET/IB : Got completion from peer x with error 12, opcode 1, len 0, vendor err 129",
    ];
    let mut gids = gid_table();
    gids[1].gid = "0000:0000:0000:0000:0000:ffff:c000:0207".into();
    let found = explain_nccl_log(&evidence(&[("host-a", 7, &lines)]), &Hints { gids, ..Hints::default() });
    assert_eq!(ids(&found), [""; 0]);
    // An index alone says nothing without its table.
    let lines = [lines[0], USING, lines[2]];
    assert_eq!(causes(&evidence(&[("host-a", 7, &lines)])), [""; 0]);
}

/// On InfiniBand the GID is not it; on eRDMA there are no partitions.
#[test]
fn d19_partition_keys() {
    let completion = "!NET/IB : Got completion from peer x with error 12, opcode 1, len 0, vendor err 129";
    let lines = [
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:192.0.2.7<0>",
        "NCCL_IB_GID_INDEX set by environment to 1.",
        completion,
    ];
    let infiniband = evidence(&[("host-a", 7, &lines)]);
    let found = explain_nccl_log(&infiniband, &Hints::default());
    assert_eq!(ids(&found), ["infiniband-unreachable"]);
    assert!(found[0].remedy.contains("NCCL_IB_PKEY"));
    let key = |index, key| KeyEntry { device: "mlx5_0".into(), index, key };
    let hints = Hints { partition_keys: vec![key(0, 0x7fff), key(1, 0x8001)], ..Hints::default() };
    let found = explain_nccl_log(&infiniband, &hints);
    assert_eq!(ids(&found), ["partition-key"]);
    assert!(found[0].remedy.contains("NCCL_IB_PKEY=1"), "{}", found[0].remedy);
    for using in [USING, "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>"] {
        let roce = evidence(&[("host-a", 7, &[using, completion])]);
        assert!(explain_nccl_log(&roce, &hints).iter().all(|cause| !cause.remedy.contains("PKEY")), "{using}");
    }
}

#[test]
fn d10_not_in_the_hosts_network() {
    let lines = [
        "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>",
        "!Call to ibv_modify_qp failed with error No such device",
        "net.cc:5 -> 2",
    ];
    let found = explain_nccl_log(&evidence(&[("host-a", 7, &lines)]), &Hints::default());
    assert_eq!(ids(&found), ["netns-gid-mismatch"]);
    assert!(found[0].remedy.contains("--network host"));
}

#[test]
fn d11_locked_memory() {
    let registration =
        evidence(&[("host-a", 7, &[USING, "!Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"])]);
    let limited = Hints { memlock: Limit::Bytes(65_536), ..Hints::default() };
    let unlimited = Hints { memlock: Limit::Unlimited, ..Hints::default() };
    assert_eq!(ids(&explain_nccl_log(&registration, &limited)), ["memlock-low"]);
    assert_eq!(ids(&explain_nccl_log(&registration, &unlimited)), ["verbs-out-of-memory"]);
    assert_eq!(causes(&registration), ["verbs-out-of-memory"]);
    // Old versions name no error: only a limit makes it a cause.
    let bare = evidence(&[("host-a", 7, &[USING, "!Call to ibv_create_qp failed"])]);
    assert_eq!(ids(&explain_nccl_log(&bare, &limited)), ["memlock-low"]);
    assert_eq!(ids(&explain_nccl_log(&bare, &unlimited)), [""; 0]);
    let number = evidence(&[("host-a", 7, &[USING, "!Call to ibv_create_qp failed with error Unknown error -12"])]);
    assert_eq!(ids(&explain_nccl_log(&number, &limited)), ["memlock-low"]);
}

#[test]
fn d12_a_plugin_of_the_image() {
    let lines: &[&str] = &[
        "NET/Plugin: Loaded net plugin NCCL RDMA Plugin (v5)",
        "Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "P2P plugin IBext",
        "NET/IB : No device found.",
        "NET/IB : No device found.",
        "NET/Socket : Using [0]eth0:192.0.2.7<0>",
        "Using network Socket",
    ];
    let evidence = evidence(&[("host-a", 7, lines)]);
    assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::No);
    let found = explain_nccl_log(&evidence, &with_devices(Vec::new()));
    assert_eq!(ids(&found), ["no-rdma-hardware", "foreign-net-plugin"]);
    assert!(found[1].fault == Fault::Image && found[1].remedy.contains("NCCL_NET_PLUGIN=none"));
    assert!(found[1].evidence.iter().any(|line| line.contains("/opt/hpcx/")));
    // The same plugin with a working device is not a cause.
    let ext = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IBext_v8/0/GDRDMA";
    let working = [
        lines[0],
        "NET/IB : Using [0]={[0] mlx5_2:1/RoCE, [1] mlx5_3:1/RoCE} [RO]; OOB e:1<0>",
        "Using network IBext_v8",
        RANK0,
        ext,
    ];
    let working = self::evidence(&[("host-a", 7, &working)]);
    assert_eq!(causes(&working), [""; 0]);
    assert_eq!(working.devices[0].devices, ["mlx5_2", "mlx5_3"]);
}

#[test]
fn d14_a_plugin_for_another_fabric() {
    let lines = [
        "NET/Plugin: Loaded net plugin AWS Libfabric (v6)",
        "!NET/OFI Initialization: fi_getinfo() call failed: No data available",
        "NET/IB : No device found.",
        "Using network Socket",
    ];
    let evidence = evidence(&[("host-a", 7, &lines)]);
    let found = explain_nccl_log(&evidence, &Hints::default());
    assert_eq!(ids(&found), ["foreign-net-plugin"]);
    assert!(found[0].evidence.iter().any(|line| line.contains("AWS Libfabric")));
    assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::No);
    // At work, it is still no verbs.
    let efa = judge_rdma(&pair("NET/AWS Libfabric/0/GDRDMA"), &checked());
    assert_eq!(efa.rdma, RdmaUse::Unknown);
    assert_eq!(efa.reasons[0], RdmaReason::OtherNetwork { name: "AWS Libfabric".into(), lines: 4 });
}

#[test]
fn d15_switched_off() {
    for (line, expected) in [
        ("NCCL_IB_DISABLE set by environment to 1.", &["rdma-switched-off"] as &[&str]),
        ("NCCL_IB_DISABLE set by environment to 0.", &[]),
        ("NCCL_NET set by environment to Socket", &["rdma-switched-off"]),
    ] {
        assert_eq!(causes(&evidence(&[("host-a", 7, &[line, "Using network Socket"])])), expected, "{line}");
    }
}

#[test]
fn d18_port_down_or_no_hardware() {
    let evidence = evidence(&[("host-a", 7, &["NET/IB : No device found.", "Using network Socket"])]);
    assert_eq!(causes(&evidence), [""; 0]);
    let down = RdmaDeviceHint { has_active_port: Some(false), ..device("erdma_0") };
    let closed = RdmaDeviceHint { can_be_opened: Some(false), ..device("erdma_0") };
    assert_eq!(ids(&explain_nccl_log(&evidence, &with_devices(vec![down]))), ["port-down"]);
    assert_eq!(ids(&explain_nccl_log(&evidence, &with_devices(Vec::new()))), ["no-rdma-hardware"]);
    assert_eq!(ids(&explain_nccl_log(&evidence, &with_devices(vec![closed]))), ["device-not-permitted"]);
}

#[test]
fn d20_rdma_without_gpudirect() {
    let without = judge_rdma(&pair("NET/IB/0"), &proof(&["erdma_0"], 1 << 30));
    assert_eq!((without.rdma, without.gpu_direct), (RdmaUse::Yes, GpuDirect::No));
    let with = judge_rdma(&pair("NET/IB/0/GDRDMA"), &proof(&["erdma_0"], 1 << 30));
    assert_eq!((with.rdma, with.gpu_direct), (RdmaUse::Yes, GpuDirect::Yes));
    // The driver's capability is not a proof.
    let lines = ["DMA-BUF is available on GPU device 0", "NET/IB : GPU Direct RDMA Enabled for HCA 0 'erdma_0'"];
    let capable = evidence(&[("host-a", 7, &lines)]);
    assert!(capable.ranks[0].dma_buf && capable.ranks[0].gdr_hcas == [("erdma_0".to_owned(), true)]);
    assert_eq!(capable.gpu_direct, GpuDirect::NotExercised);
}

#[test]
fn d21_one_host_proves_nothing() {
    for via in ["P2P/CUMEM", "P2P/direct pointer"] {
        let verdict = judge_rdma(&pair(via), &proof(&["erdma_0"], 0));
        assert_eq!(verdict.rdma, RdmaUse::NotExercised);
        assert_eq!(verdict.reasons, [RdmaReason::LocalChannelsOnly { lines: 4 }]);
    }
    let shm = evidence(&[(
        "host-a",
        7,
        &[USING, "Using network IB", RANK0, "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"],
    )]);
    assert_eq!(judge_rdma(&shm, &checked()).rdma, RdmaUse::NotExercised);
}

#[test]
fn d23_dma_buf() {
    let lines = [USING, "!Call to ibv_reg_dmabuf_mr failed with error Operation not supported"];
    let found = explain_nccl_log(&evidence(&[("host-a", 7, &lines)]), &Hints::default());
    assert_eq!(ids(&found), ["dmabuf-unsupported"]);
    assert!(found[0].remedy.contains("NCCL_DMABUF_ENABLE=0"));
}

#[test]
fn e01_shared_memory() {
    for lines in [
        &[
            "!Call to posix_fallocate failed : No space left on device",
            "!Error while creating shared memory segment nccl-shm-recv-5f-0-1-3 (size 9637888)",
        ] as &[&str],
        &[
            "!Error while creating shared memory segment /dev/shm/nccl-Ab12 (size 9637888), error: No space left on device (28)",
        ],
        &[
            "!Error: failed to extend /dev/shm/nccl-Ab12 to 9637892 bytes",
            "!Error while creating shared memory segment /dev/shm/nccl-Ab12 (size 9637888)",
        ],
        &[
            "fallocate: Failed to extend /dev/shm/nccl-Ab12 to 9637892 bytes, error: No space left on device (28) - retrying",
        ],
    ] {
        let found = explain_nccl_log(&evidence(&[("host-a", 7, lines)]), &Hints::default());
        assert_eq!(ids(&found), ["shm-too-small"], "{lines:?}");
        assert_eq!(found[0].evidence.len(), lines.len());
    }
    // Without the error it can be anything, but for a small /dev/shm.
    let bare = evidence(&[("host-a", 7, &["!Error while creating shared memory segment /dev/shm/nccl-Ab12 (size 9)"])]);
    assert_eq!(causes(&bare), [""; 0]);
    let small = Hints { shm_bytes: Some(64 << 20), ..Hints::default() };
    assert_eq!(ids(&explain_nccl_log(&bare, &small)), ["shm-too-small"]);
}

#[test]
fn e03_stalled_after_init() {
    let evidence = pair("P2P/IPC");
    assert!(evidence.ranks.iter().all(|rank| rank.phase == Phase::AfterInit));
    assert_eq!(causes(&evidence), [""; 0]);
    let found = explain_nccl_log(&evidence, &Hints { timed_out: true, ..Hints::default() });
    assert_eq!(ids(&found), ["p2p-stalled"]);
    assert!(found[0].remedy.contains("ACS"));
}

#[test]
fn e04_the_wrong_interface() {
    for name in ["br-1a2b", "veth77"] {
        let bootstrap = format!("Bootstrap : Using {name}:198.51.100.1<0>");
        let lines = [bootstrap.as_str(), "NET/Socket : Using [0]br-1a2b:198.51.100.1<0> [1]eth1:192.0.2.7<0>"];
        let stuck = evidence(&[("host-a", 7, &lines)]);
        assert_eq!(stuck.ranks[0].phase, Phase::Bootstrap);
        let found = explain_nccl_log(&stuck, &Hints::default());
        assert_eq!(ids(&found), ["bootstrap-interface"]);
        assert!(found[0].remedy.contains("==eth1"), "{}", found[0].remedy);
        // It works where the ranks find each other.
        assert_eq!(causes(&evidence(&[("host-a", 7, &[lines[0], RANK0])])), [""; 0]);
    }
}

#[test]
fn e06_no_address() {
    for line in [
        "!NET/IB : No IP interface found.",
        "!ncclSocketInit: Socket creation failed : Address family not supported by protocol",
        "!Bootstrap : no socket interface found",
    ] {
        let found = explain_nccl_log(&evidence(&[("host-a", 7, &[line])]), &Hints::default());
        assert_eq!(ids(&found), ["no-ip-interface"], "{line}");
        assert_eq!(found[0].fault, Fault::Launch);
    }
}

#[test]
fn e07_ranks_with_different_nccl() {
    let mismatch = "!Mismatched NCCL version detected : rank 0 version 21903 rank 1 version 22105";
    let found = explain_nccl_log(&evidence(&[("host-a", 7, &[mismatch])]), &Hints::default());
    assert_eq!(ids(&found), ["nccl-version-skew"]);
    assert_eq!(found[0].summary, "ranks run different NCCLs: 2.19.3, 2.21.5");
    // Without the warning.
    let silent = evidence(&[
        ("host-a", 7, &["NCCL version 2.28.9+cuda13.0", RANK0]),
        ("host-b", 7, &["NCCL version 2.27.3+cuda12.9", RANK1]),
    ]);
    let found = explain_nccl_log(&silent, &Hints::default());
    assert_eq!(ids(&found), ["nccl-version-skew"]);
    assert_eq!(found[0].evidence[1], "rank 1 (host-b:7): NCCL version 2.27.3+cuda12.9");
    // Builds for two CUDAs are one version; a bare line says nothing of other ranks.
    let alike = format!("NCCL version 2.28.9+cuda12.9\n{}", log(&[("host-b", 7, &["NCCL version 2.28.9+cuda13.0"])]));
    assert_eq!(causes(&read(&alike).evidence()), [""; 0]);
    assert_eq!(read("NCCL version 2.19.3+cuda12.3\n").evidence().versions[0].text, "2.19.3+cuda12.3");
}

#[test]
fn e09_a_port_in_use() {
    for text in [
        "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "host-a:7:7 [0] misc/socket.cc:5 NCCL WARN socketBind: bind to 192.0.2.7<29500> failed : Address already in use",
    ] {
        let found = explain_nccl_log(&read(text).evidence(), &Hints::default());
        assert_eq!(ids(&found), ["port-in-use"], "{text}");
    }
}

#[test]
fn e10_silence_has_no_cause() {
    let start = |rank: u32| {
        format!(
            "[Rank {rank}] ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init START"
        )
    };
    let (zero, one) = (start(0), start(1));
    let evidence = evidence(&[
        ("host-a", 7, &["Bootstrap: Using eth0:192.0.2.7<0>", "Using network IB", &zero]),
        ("host-b", 7, &["Bootstrap: Using eth0:192.0.2.8<0>", "Using network IB", &one]),
    ]);
    let hints = Hints { timed_out: true, ..Hints::default() };
    assert_eq!(explain_nccl_log(&evidence, &hints), []);
    assert_eq!(evidence.behind().len(), 2);
    for rank in &evidence.ranks {
        assert_eq!(rank.phase, Phase::Bootstrap);
        assert!(rank.last_line.as_deref().is_some_and(|line| line.ends_with("Init START")));
        assert_eq!(rank.lines, 3);
    }
    let verdict = judge_rdma(&evidence, &Observed::default());
    assert_eq!(verdict.rdma, RdmaUse::Unknown);
    assert_eq!(verdict.reasons, [RdmaReason::NoChannelLines { has_info: true }]);
}

#[test]
fn c06_forward_compatibility() {
    for text in [
        "system has unsupported display driver / cuda driver combination",
        "forward compatibility was attempted on non supported HW",
    ] {
        let warning = format!("!Cuda failure '{text}'");
        for evidence in [evidence(&[("host-a", 7, &[&warning])]), read(text).evidence()] {
            let found = explain_nccl_log(&evidence, &Hints::default());
            assert_eq!(ids(&found), ["cuda-forward-compat"], "{text}");
            assert!(found[0].fault == Fault::Image);
        }
    }
}

#[test]
fn c08_driver_too_old_or_no_gpu() {
    let evidence =
        evidence(&[("host-a", 7, &["!Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"])]);
    assert_eq!(causes(&evidence), ["driver-too-old"]);
    let with = |gpu_nodes| ids(&explain_nccl_log(&evidence, &Hints { gpu_nodes: Some(gpu_nodes), ..Hints::default() }));
    assert_eq!(with(true), ["driver-too-old"]);
    assert_eq!(with(false), ["gpu-not-passed"]);
}

#[test]
fn g01_wrong_values_do_not_change_what_carried_them() {
    let observed = Observed { wrong_values: Some(248), ..proof(&["erdma_0"], 1 << 30) };
    let verdict = judge_rdma(&pair("NET/IB/0/GDRDMA"), &observed);
    assert_eq!(verdict.rdma, RdmaUse::Yes);
    assert!(verdict.reasons.contains(&RdmaReason::WrongValues { count: 248 }));
}

#[test]
fn g03_one_rank_has_nobody_to_send_to() {
    let one = RANK0.replace("nranks 2", "nranks 1");
    let evidence = evidence(&[("host-a", 7, &[USING, "Using network IB", &one])]);
    for nranks in [None, Some(1)] {
        let verdict = judge_rdma(&evidence, &Observed { nranks, ..Observed::default() });
        assert_eq!(verdict.rdma, RdmaUse::NotExercised);
        assert_eq!(verdict.reasons[0], RdmaReason::OneRank);
    }
}

/// The number makes no difference, whether it is 33 or 93 GB/s.
#[test]
fn g05_slow_is_not_wrong() {
    let slow = judge_rdma(&pair("NET/IB/0"), &proof(&["erdma_0"], 1 << 30));
    assert_eq!((slow.rdma, slow.gpu_direct), (RdmaUse::Yes, GpuDirect::No));
    assert_eq!(causes(&pair("NET/IB/0")), [""; 0]);
}

#[test]
fn g07_a_crash_without_a_log() {
    for text in [
        "host-a: Test NCCL failure common.cu:777 'unhandled system error'\n",
        "host-a: Test CUDA failure common.cu:891 'out of memory'\n",
    ] {
        let evidence = read(text).evidence();
        assert!(!evidence.has_info());
        assert_eq!(evidence.notes.total, 1, "{text}");
        assert_eq!(causes(&evidence), [""; 0]);
        let verdict = judge_rdma(&evidence, &Observed { nranks: Some(2), ..Observed::default() });
        assert_eq!(verdict.reasons, [RdmaReason::NoChannelLines { has_info: false }]);
        assert!(verdict.reasons[0].to_string().contains("NCCL_DEBUG=INFO"));
    }
}

/// Every part of the proof, taken away.
#[test]
fn a_missing_part_of_the_proof_is_named() {
    let evidence = pair("NET/IB/0/GDRDMA");
    let whole = proof(&["erdma_0"], 1 << 30);
    let reason = |observed: &Observed| {
        let verdict = judge_rdma(&evidence, observed);
        assert_eq!((verdict.rdma, verdict.by_log), (RdmaUse::Unknown, RdmaUse::Yes));
        verdict.reasons[0].clone()
    };
    assert_eq!(judge_rdma(&evidence, &whole).rdma, RdmaUse::Yes);
    let with = |counters| Observed { counters, ..whole.clone() };
    assert_eq!(reason(&with(CounterReading::NotRead)), RdmaReason::CountersNotRead);
    assert_eq!(reason(&with(CounterReading::Unreadable)), RdmaReason::CountersUnreadable);
    assert!(matches!(reason(&proof(&["erdma_9"], 1 << 30)), RdmaReason::CountersOfOtherDevices { .. }));
    assert!(matches!(reason(&proof(&["erdma_0"], 1 << 20)), RdmaReason::CountersDidNotRise { .. }));
    let unchecked = Observed { wrong_values: None, ..whole.clone() };
    let verdict = judge_rdma(&evidence, &unchecked);
    assert_eq!(verdict.rdma, RdmaUse::Unknown);
    assert!(verdict.reasons.contains(&RdmaReason::NotVerified));
    // Bytes that went through another device are named.
    let mut elsewhere = proof(&["erdma_0", "erdma_1"], 1 << 30);
    if let CounterReading::Read { devices, .. } = &mut elsewhere.counters {
        devices[0] = DeviceBytes { device: "erdma_0".into(), sent_bytes: 0, received_bytes: 0 };
    }
    let RdmaReason::CountersDidNotRise { elsewhere, .. } = reason(&elsewhere) else { panic!() };
    assert_eq!(elsewhere, ["erdma_1"]);
    // A rank that has no log.
    let verdict = judge_rdma(&evidence, &Observed { nranks: Some(3), ..whole.clone() });
    assert_eq!(
        (verdict.rdma, &verdict.reasons[0]),
        (RdmaUse::Unknown, &RdmaReason::RanksMissing { expected: 3, seen: 2 })
    );
    // A device that no list names.
    let verdict = judge_rdma(&pair("NET/IB/1"), &whole);
    assert!(matches!(verdict.reasons[0], RdmaReason::UnnamedDevice { index: 1, .. }), "{:?}", verdict.reasons);
    assert_eq!(verdict.rdma, RdmaUse::Unknown);
}

#[test]
fn a_socket_channel_beside_rdma_is_no() {
    let mixed = evidence(&[(
        "host-a",
        7,
        &[
            USING,
            RANK0,
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
            "Channel 01/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
        ],
    )]);
    let verdict = judge_rdma(&mixed, &proof(&["erdma_0"], 1 << 30));
    assert_eq!(verdict.rdma, RdmaUse::No);
    assert_eq!(verdict.reasons, [RdmaReason::SocketChannels { lines: 1, rdma_lines: 1 }]);
}

/// What two ranks on one GPU print (NCCL 2.28.9): the whole course of a run over sockets.
#[test]
fn a_whole_run_over_sockets() {
    let rank = |host: &str, rank: u32, pid: u32| {
        let other = 1 - rank;
        let common = format!("comm 0x1{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0xc9");
        let lines = [
            "ENV/Plugin: Could not find: libnccl-env.so".to_owned(),
            "Bootstrap: Using eth0:192.0.2.2<0>".to_owned(),
            "cudaDriverVersion 13000".to_owned(),
            "NCCL version 2.28.9+cuda13.0".to_owned(),
            "NET/Plugin: Could not find: libnccl-net.so".to_owned(),
            "NET/IB : No device found.".to_owned(),
            "NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>".to_owned(),
            "Failed to initialize NET plugin IB".to_owned(),
            "NET/Socket : Using [0]eth0:192.0.2.2<0>".to_owned(),
            "Initialized NET plugin Socket".to_owned(),
            "Assigned NET plugin Socket to comm".to_owned(),
            "Using network Socket".to_owned(),
            format!("ncclCommInitRankConfig {common} - Init START"),
            format!("NCCL_HOSTID set by environment to h{rank}"),
            "Bootstrap timings total 0.02 (create 0.0, send 0.0, recv 0.0, ring 0.0, delay 0.0)".to_owned(),
            format!("comm 0x1{rank} rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"),
            "Channel 00/02 : 0 1".to_owned(),
            "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1".to_owned(),
            format!("ncclCommInitRankConfig {common} - Init COMPLETE"),
            format!("Channel 00/0 : {other}[0] -> {rank}[0] [receive] via NET/Socket/0"),
            format!("Channel 01/0 : {other}[0] -> {rank}[0] [receive] via NET/Socket/0"),
            format!("Channel 00/0 : {rank}[0] -> {other}[0] [send] via NET/Socket/0"),
            format!("Channel 01/0 : {rank}[0] -> {other}[0] [send] via NET/Socket/0"),
            "Connected all rings, use ring PXN 0 GDR 0".to_owned(),
            format!("comm 0x1{rank} rank {rank} nRanks 2 cudaDev 0 busId 60 - Abort START"),
            "misc/socket.cc:64 -> 3".to_owned(),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        log(&[(host, pid, &lines)])
    };
    let text = rank("host-a", 0, 1277) + "[rank0]:[W1 Foo.cpp:1] Warning: something\n" + &rank("host-b", 1, 1278);
    let evidence = read(&text).evidence();
    assert_eq!((evidence.nranks, evidence.ranks_seen.as_slice()), (Some(2), [0, 1].as_slice()));
    let first = &evidence.ranks[0];
    assert_eq!(first.label(), "rank 0 (host-a:1277)");
    assert_eq!((first.phase, first.connected), (Phase::Ended, true));
    assert_eq!(first.bootstrap.as_ref().map(|found| found.name.as_str()), Some("eth0"));
    assert_eq!((first.setting("NCCL_HOSTID"), first.ib_devices.as_deref()), (Some("h0"), Some([].as_slice())));
    assert_eq!(first.memberships.len(), 1);
    assert_eq!((evidence.transports[0].name.as_str(), evidence.transports[0].lines), ("NET/Socket", 8));
    assert_eq!(first.channels[0].peers, [1]);
    assert_eq!(evidence.missing_ranks(), Some(Vec::new()));
    assert_eq!(judge_rdma(&evidence, &checked()).rdma, RdmaUse::No);
    assert_eq!(causes(&evidence), [""; 0]);
    // It can be saved and read again.
    let saved = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<NcclEvidence>(&saved).unwrap(), evidence);
}

#[test]
fn ranks_of_one_process() {
    let line = |rank: u32| {
        format!("comm 0x1 rank {rank} nranks 8 cudaDev {rank} nvmlDev 0 busId 60 commId 0x9 - Init COMPLETE")
    };
    let lines: Vec<String> = (0..8).map(line).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let evidence = evidence(&[("host-a", 7, &lines)]);
    assert_eq!(evidence.ranks_seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(evidence.ranks[0].label(), "ranks 0…7 (host-a:7)");
}

/// Pieces of any size give the same.
#[test]
fn pieces_do_not_matter() {
    let mut text = log(&[(
        "host-a",
        7,
        &[USING, "!x", "Using network IB", RANK0, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"],
    )]);
    text += "\x1b[33mhost-b:8:8 [0] NCCL INFO Using network IB\x1b[0m\r\n";
    text += &"y".repeat(70_000);
    text += "\nhost-b:8:8 [0] NCCL INFO Connected all ringshost-a:7:7 [0] NCCL INFO Connected all trees";
    let whole = read(&text).evidence();
    assert_eq!(whole.ranks.len(), 2);
    for size in [1, 2, 3, 7, 64, 1000, 16_384, 16_385] {
        let mut stream = Interleaved::default();
        text.as_bytes().chunks(size).for_each(|piece| stream.push(piece));
        assert_eq!(stream.finish().evidence(), whole, "{size}");
    }
}

/// A small generator, so that a failure comes again.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }
}

/// Pieces of real shapes in any order, with any bytes between: no panic, and what is kept stays small.
#[test]
fn any_bytes() {
    let parts: &[&[u8]] = &[
        b"host-a:1:2 [0] NCCL INFO ",
        b"host-b:3:4 [1] net.cc:5 NCCL WARN ",
        b"[2026-01-02 03:04:05] ",
        b"NCCL version ",
        b"2.19.3+cuda12.3",
        b"\n",
        b"\r\n",
        b"Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(4)/GDRDMA(PCI)",
        b"Channel ",
        b" : ",
        b"[receive]",
        b" via ",
        b"NET/",
        b"NET/IB : Using",
        b" [0]={[0] mlx5_2:1/RoCE, ",
        b"}",
        b"[",
        b"]",
        b":",
        b"Bootstrap : Using ",
        b"NCCL_X set by environment to ",
        b"comm 0x1 rank 1 nranks 2",
        b" - Init START",
        b"\x1b[3",
        b"\xff\xfe",
        b"4294967296",
        b"-1",
        b"NET/Plugin: ",
        b"Could not find:",
        b"(",
        b")",
        b"'",
        b"GPU Direct RDMA Enabled for HCA 0 '",
        b"Got completion status=12 vendor err 129",
        b"NET/IB : GPU Direct RDMA ",
        b"[1,0]<stdout>:",
        b"NET/IB : Made virtual device [",
        b"name=a+b",
        b"Cuda failure",
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..rounds(600) {
        let mut text = Vec::new();
        for _ in 0..random.next(40) {
            match random.next(8) {
                0 => text.push(u8::try_from(random.next(256)).unwrap()),
                _ => text.extend_from_slice(parts[random.next(parts.len())]),
            }
        }
        let mut stream = Interleaved::default();
        stream.push(&text);
        let evidence = stream.finish().evidence();
        let _ = explain_nccl_log(&evidence, &Hints { timed_out: true, gids: gid_table(), ..Hints::default() });
        let _ = judge_rdma(&evidence, &proof(&["mlx5_2"], 1));
        let _ = RankLog::read(&text).evidence();
    }
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut rank = RankLog::default();
    for number in 0..20_000u32 {
        let long = "x".repeat(1000);
        for message in [
            format!("[0] a.cc:1 NCCL WARN {number} failed {long}"),
            format!("[0] NCCL INFO Channel 00/0 : 0[0] -> {number}[0] [send] via NET/IB/{number}"),
            format!("[0] NCCL INFO Channel 00/0 : 0[0] -> {number}[0] [send] via P2P/{long}"),
            format!("[0] NCCL INFO NCCL_V{number} set by environment to {long}"),
            format!("[0] NCCL INFO Plugin Path : {number}{long}"),
            format!("[0] NCCL INFO comm 0x1 rank {number} nranks 30000 - Init START"),
            format!("[0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'd{number}'"),
            format!("[0] NCCL INFO NET/IB : Made virtual device [{number}] name=d{number}"),
        ] {
            rank.push_line(format!("host-a:1:1 {message}").as_bytes());
        }
    }
    let evidence = rank.evidence();
    assert_eq!(evidence.warnings.total, 20_000);
    assert_eq!(evidence.warnings.iter().count(), 32);
    assert!(evidence.warnings.iter().next().unwrap().text.starts_with("0 failed"));
    assert!(evidence.warnings.iter().last().unwrap().text.starts_with("19999 failed"));
    assert!(serde_json::to_string(&evidence).unwrap().len() < 200_000);
}

/// Not a test: `cargo test --release --test nccl_log -- --ignored --nocapture speed`.
#[test]
#[ignore = "measures speed and asserts nothing: for --release, by hand; `make bench` has the figures"]
fn speed() {
    let mut block = String::new();
    for rank in 0..1024u32 {
        let (host, peer) = (format!("host-{}", rank / 8), (rank + 1) % 1024);
        for channel in 0..16 {
            block += &format!(
                "{host}:{}:{} [{}] NCCL INFO Channel {channel:02}/0 : {rank}[{}] -> {peer}[0] [send] via NET/IB/{}/GDRDMA\n",
                1000 + rank,
                1000 + rank,
                rank % 8,
                rank % 8,
                channel % 2
            );
            block += &format!(
                "{host}:{}:{} [{}] NCCL INFO NVLS comm 0x55d0c headRank {rank} nHeads 8 buffSize 1048576\n",
                1000 + rank,
                1000 + rank,
                rank % 8
            );
        }
    }
    // Lines of all ranks, mixed.
    let mut lines: Vec<&str> = block.lines().collect();
    let mut random = Random(1);
    for at in (1..lines.len()).rev() {
        lines.swap(at, random.next(at + 1));
    }
    let mixed = lines.join("\n") + "\n";
    for (name, text) in [("in order", &block), ("mixed", &mixed)] {
        let mut stream = Interleaved::default();
        let start = std::time::Instant::now();
        let mut bytes = 0;
        while bytes < 300_000_000 {
            text.as_bytes().chunks(65_536).for_each(|piece| stream.push(piece));
            bytes += text.len();
        }
        let seconds = start.elapsed().as_secs_f64();
        #[expect(clippy::disallowed_macros, reason = "the figure is the point")]
        {
            println!("{name}: {:.0} MB/s, {} bytes a line", bytes as f64 / 1e6 / seconds, text.len() / lines.len());
        }
        assert_eq!(stream.finish().ranks.len(), 1024);
    }
}

/// A line that is all prefixes, or one long word before a process, costs no more than its bytes.
#[test]
fn a_hostile_line_takes_no_time() {
    let start = std::time::Instant::now();
    for line in [
        "NCCL INFO ".repeat(1600),
        format!("host-a:1:1 [0] NCCL INFO {}:2:2 [0] NCCL INFO x", "y".repeat(15_000)),
        "a:1:1 [0] NCCL INFO ".repeat(800),
        format!("{} [0] NCCL INFO x", "1:".repeat(8000)),
    ] {
        for _ in 0..100 {
            let mut stream = Interleaved::default();
            stream.push_line(line.as_bytes());
            assert!(stream.finish().ranks.len() <= 3);
        }
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
