//! `rdmaprep explain LOG`: texts of known failures, and of runs without one, as a user would have them → what it says.
//!
//! The logs are put together from the shapes that the programs print; hosts and addresses are placeholders.

use crate::support;
use crate::support::schema;

use rdmaprep::diagnosis::RdmaUse;
use rdmaprep::explain::{Explanation, TextReader, explain};
use rdmaprep::logs::nccl::{Interleaved, Room};
use schema::validator;
use serde_json::Value;
use std::io::Write;
use support::*;
use tempfile::TempDir;

fn read(text: &str) -> Explanation {
    let mut reader = TextReader::within(Room::ALL);
    reader.push(text.as_bytes());
    explain(vec![reader.finish("log").0], false)
}

fn ids(text: &str) -> Vec<&'static str> {
    read(text).causes.iter().map(|cause| cause.id.name()).collect()
}

/// What a user sees of a file: the text form, and the ids of its causes from the JSON form.
fn seen(text: &str, more: &[&str]) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "job.log", text.as_bytes());
    let shown = run(rdmaprep().arg("explain").arg(&path).args(more));
    let shown = shown.expect(0).stdout.clone();
    let json = run(rdmaprep().arg("explain").arg(&path).args(more).args(["--format", "json"]));
    let value: Value = serde_json::from_str(&json.expect(0).stdout).unwrap();
    assert!(validator("schemas/explanation.schema.json").is_valid(&value), "{value:#}");
    let ids = value["causes"].as_array().unwrap().iter().map(|cause| cause["id"].as_str().unwrap().to_owned());
    (shown, ids.collect())
}

fn write(dir: &TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// Forms in which the lines of a log reach a file.
fn dressed(text: &str) -> Vec<(&'static str, String)> {
    let each = |form: &dyn Fn(&str) -> String| {
        text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { form(line) + "\n" }).collect::<String>()
    };
    vec![
        ("plain", text.to_owned()),
        ("CRLF", text.replace('\n', "\r\n")),
        ("mpirun", each(&|line| format!("[1,0]<stdout>:{line}"))),
        ("mpirun, stderr", each(&|line| format!("[1,0]<stderr>:{line}"))),
        ("torchrun", each(&|line| format!("[rank0]:{line}"))),
        ("docker", each(&|line| format!("2026-01-02T03:04:05.123456789Z {line}"))),
        ("a node's log", each(&|line| format!("2026-01-02T03:04:05.123456789+08:00 stdout F {line}"))),
        ("kubectl --prefix", each(&|line| format!("[pod/job-0/main] {line}"))),
        ("compose", each(&|line| format!("worker-1  | {line}"))),
        ("colours", each(&|line| format!("\x1b[33m{line}\x1b[0m"))),
        ("srun -l", each(&|line| format!("0: {line}"))),
    ]
}

/// A line of a process; `!` begins a warning, with the empty line before it.
fn line(host: &str, pid: u32, message: &str) -> String {
    match message.strip_prefix('!') {
        Some(warning) => format!("\n{host}:{pid}:{pid} [0] transport/net_ib.cc:12 NCCL WARN {warning}\n"),
        None => format!("{host}:{pid}:{pid} [0] NCCL INFO {message}\n"),
    }
}

/// A line as NCCL 2.26 and newer print it.
fn new_line(host: &str, pid: u32, message: &str) -> String {
    match message.strip_prefix('!') {
        Some(warning) => format!(
            "\n[2026-01-02 03:04:05] {host}:{pid}:{pid} [0] transport/net_ib/connect.cc:12 (NCCL Proxy) NCCL WARN {warning}\n"
        ),
        None => line(host, pid, message),
    }
}

fn log(messages: &[&str]) -> String {
    messages.iter().map(|message| line("host-a", 7, message)).collect()
}

const USING: &str = "NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>";
const SOCKET: &str = "NET/Socket : Using [0]eth0:192.0.2.7<0>";

/// Runs of two hosts over RDMA, as each version prints them.
fn healthy(version: &str) -> String {
    let rank = |rank: u32, host: &str| {
        let other = 1 - rank;
        let mut lines: Vec<String> = Vec::new();
        let old = |v: &str| v < version;
        let _ = old;
        let number: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        if number >= 24 {
            lines.push("Bootstrap: Using eth0:192.0.2.7<0>".into());
        } else {
            lines.push("Bootstrap : Using eth0:192.0.2.7<0>".into());
        }
        if number >= 22 {
            lines.push(format!("NCCL version {version}+cuda12.9"));
        }
        lines.push(match number {
            ..=17 => "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation".into(),
            18..=23 => "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory".into(),
            _ => "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.".into(),
        });
        lines.push("NCCL_IB_GID_INDEX set by environment to 3.".into());
        lines.push("NCCL_IB_DISABLE set by environment to 0.".into());
        lines.push(match number {
            30.. => "NET/IB : Using [0]erdma_0:1:0:0/RoCE [1]erdma_1:1:1:0/RoCE [RO]; OOB eth0:192.0.2.7<0>".into(),
            12..=29 => "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.7<0>".into(),
            8..=11 => "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE ; OOB eth0:192.0.2.7<0>".into(),
            _ => "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE ; OOB eth0:192.0.2.7<0>".into(),
        });
        if number >= 27 {
            lines.push("Initialized NET plugin IB".into());
            lines.push("Assigned NET plugin IB to comm".into());
        }
        if number >= 8 {
            lines.push("Using network IB".into());
        }
        let bus = if number < 18 { "f000" } else { "0" };
        let common = match number {
            ..=7 => format!("comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0"),
            8..=11 => format!("comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 busId f000"),
            12..=17 => format!("comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 busId f000"),
            18..=22 => format!("comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId f000 commId 0xab12"),
            _ => format!(
                "ncclCommInitRank comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId f000 commId 0xab12"
            ),
        };
        if number >= 18 {
            lines.push(format!("{common} - Init START"));
        }
        lines.push("Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1".into());
        lines.push("Channel 00/02 :    0   1".into());
        if number >= 22 {
            lines.push(format!("{common} - Init COMPLETE"));
        }
        for channel in 0..2 {
            for (from, to, way) in [(other, rank, "receive"), (rank, other, "send")] {
                lines.push(match number {
                    ..=4 => format!("Ring 0{channel} : {from} -> {to} [{way}] via NET/IB/{channel}/GDRDMA"),
                    5..=11 => {
                        format!("Channel 0{channel} : {from}[{bus}] -> {to}[{bus}] [{way}] via NET/IB/{channel}/GDRDMA")
                    }
                    _ => format!(
                        "Channel 0{channel}/0 : {from}[{bus}] -> {to}[{bus}] [{way}] via NET/IB/{channel}/GDRDMA"
                    ),
                });
            }
        }
        if number >= 12 {
            lines.push("Connected all rings".into());
            lines.push("Connected all trees".into());
        }
        if number < 22 {
            lines.push(format!("{common} - Init COMPLETE"));
        }
        lines.push(format!("comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 busId f000 - Destroy COMPLETE"));
        lines.iter().map(|message| new_line(host, 7, message)).collect::<String>()
    };
    let bare = if version.split('.').nth(1).unwrap().parse::<u32>().unwrap() < 22 {
        format!("NCCL version {version}+cuda12.1\n")
    } else {
        String::new()
    };
    bare + &rank(0, "host-a") + &rank(1, "host-b")
}

const TABLE: &str = "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid      7 on     host-a device  0 [0000:0f:00] NVIDIA H200
#  Rank  1 Group  0 Pid      7 on     host-b device  0 [0000:0f:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    251.7   33.33   33.33       0    250.1   33.54   33.54       0
    16777216       4194304     float     sum      -1    503.3   33.33   33.33       0    500.2   33.54   33.54       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 33.3227
#
";

#[test]
fn logs_of_healthy_runs_have_no_cause() {
    for version in ["2.4.8", "2.8.4", "2.12.12", "2.18.1", "2.21.5", "2.24.3", "2.28.3", "2.30.7"] {
        let text = healthy(version);
        for (form, text) in dressed(&text) {
            let explained = read(&text);
            assert_eq!(explained.causes, [], "{version}, {form}");
            assert!(!explained.shows_trouble, "{version}, {form}: {explained:#?}");
            let verdict = explained.rdma.unwrap();
            assert_eq!((verdict.by_log, verdict.rdma), (RdmaUse::Yes, RdmaUse::Unknown), "{version}, {form}");
            let state = explained.nccl.unwrap();
            assert_eq!(state.versions[0].text.split('+').next(), Some(version), "{form}");
            assert_eq!((state.nranks, state.ranks_seen, state.hosts), (Some(2), 2, 2), "{version}, {form}");
            assert_eq!(state.devices.len(), 4, "{version}, {form}");
        }
        let (shown, ids) = seen(&(text + TABLE), &[]);
        assert_eq!(ids, [""; 0], "{version}");
        for said in [
            "job.log: NCCL log, nccl-tests output",
            "RDMA       yes by the log; byte counters were not read, so it is not proved",
            "GPUDirect  yes",
            "no trouble: nothing in this text names a cause",
            "average bus bandwidth 33.3227 GB/s, no wrong value",
        ] {
            assert!(shown.contains(said), "{version}: no {said:?} in\n{shown}");
        }
    }
}

/// Case → text → the causes, in every form in which a log reaches a file.
#[test]
fn texts_that_name_their_cause() {
    let completion = |text: &str| log(&["NCCL_IB_GID_INDEX set by environment to 1.", USING, "Using network IB", text]);
    let gids = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4\tVER\tDEV\n---\t----\t-----\t---\nerdma_0\t1\t0\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\tv1\teth1\nerdma_0\t1\t1\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\tv2\teth1\nerdma_0\t1\t2\t0000:0000:0000:0000:0000:ffff:c000:0207\t192.0.2.7\tv1\teth1\nerdma_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c000:0207\t192.0.2.7\tv2\teth1\n";
    let devinfo = |name: &str, transport: &str, state: &str| {
        format!(
            "hca_id:\t{name}\n\ttransport:\t\t\t{transport}\n\tfw_ver:\t\t\t\t0.2.0\n\tvendor_id:\t\t\t0x1ded\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tlink_layer:\t\tEthernet\n\n"
        )
    };
    let no_device = log(&["NET/IB : No device found.", SOCKET, "Using network Socket"]);
    let filtered =
        log(&["NCCL_IB_HCA set by environment to erdma", "NET/IB : No device found.", "Using network Socket"]);
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("A06", "libibverbs: Warning: couldn't load driver 'liberdma-rdmav34.so': liberdma-rdmav34.so: cannot open shared object file: No such file or directory\n".into(), &["erdma-provider-missing"]),
        ("A09", "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n".into(), &["verbs-provider-missing"]),
        ("A10", log(&["Failed to open libibverbs.so[.1]", "Using network Socket"]), &["libibverbs-missing"]),
        ("A10", log(&["!Failed to open libibverbs.so[.1]", "Using network Socket"]), &["libibverbs-missing"]),
        ("B05", "ImportError: /usr/local/lib/python3.10/dist-packages/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister\n".into(), &["nccl-too-old-loaded"]),
        ("B13", "all_reduce_perf: symbol lookup error: all_reduce_perf: undefined symbol: ncclCommWindowRegister\n".into(), &["nccl-version-skew"]),
        ("B13", "./build/all_reduce_perf: symbol lookup error: ./build/all_reduce_perf: undefined symbol: ncclCommRegister\n".into(), &["nccl-version-skew"]),
        ("B13", "# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22105\nIncompatible NCCL versions. nccl-tests was compiled with NCCL 2.28, but is running with NCCL 22105\n".into(), &["nccl-version-skew"]),
        ("C06", log(&["!Cuda failure 803 'system has unsupported display driver / cuda driver combination'"]), &["cuda-forward-compat"]),
        ("C06", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW\n".into(), &["cuda-forward-compat"]),
        ("C07", "docker: Error response from daemon: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version\n".into(), &["driver-too-old"]),
        ("C08", log(&["!Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"]), &["driver-too-old"]),
        ("C08", log(&["!Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"]) + "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n", &["gpu-not-passed"]),
        ("C08", "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n".into(), &["gpu-not-passed"]),
        ("C08", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n".into(), &["driver-too-old"]),
        ("C08", "host-a: Test CUDA failure common.cu:891 'CUDA driver version is insufficient for CUDA runtime version'\nls: cannot access '/dev/nvidiactl': No such file or directory\n".into(), &["gpu-not-passed"]),
        ("D01", log(&["!Call to ibv_open_device failed", "!NET/IB : Unable to open device mlx5_bond_0", "NET/IB : No device found.", "Using network Socket"]), &["device-not-permitted"]),
        ("D01", no_device.clone() + "Failed to open device\n", &["device-not-permitted"]),
        ("D05", devinfo("erdma_0", "iWARP (1)", "PORT_ACTIVE (4)"), &["erdma-driver-not-compat"]),
        ("D05", devinfo("rocep26s0", "iWARP (1)", "PORT_ACTIVE (4)").replace('\t', "  "), &["erdma-driver-not-compat"]),
        ("D05", log(&[USING, "!Call to ibv_modify_qp failed with error Invalid argument errno 22"]), &["erdma-driver-not-compat"]),
        ("D05", log(&[USING, "!Call to ibv_modify_qp failed with 22 Invalid argument, on dev erdma_0:1, curr state RTR, next state RTS"]) + &devinfo("erdma_0", "iWARP (1)", "PORT_ACTIVE (4)"), &["erdma-driver-not-compat"]),
        ("D06", filtered.clone() + &devinfo("rocep26s0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &["hca-filter-matches-nothing"]),
        ("D06", filtered.clone() + &gids.replace("erdma_0", "rocep26s0"), &["hca-filter-matches-nothing"]),
        ("D07", filtered.replace("to erdma", "to =erdma") + &devinfo("erdma_0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &["hca-filter-matches-nothing"]),
        ("D07", filtered.replace("to erdma", "to ^erdma") + &devinfo("erdma_0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &["hca-filter-matches-nothing"]),
        ("D07", filtered.replace("to erdma", "to =^erdma_0") + &devinfo("erdma_0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &["hca-filter-matches-nothing"]),
        ("D07", filtered.replace("to erdma", "to erdma_0:2") + &devinfo("erdma_0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &["hca-filter-matches-nothing"]),
        ("D07", filtered.replace("to erdma", "to =erdma_0:1") + &devinfo("erdma_0", "InfiniBand (0)", "PORT_ACTIVE (4)"), &[]),
        ("D08", completion("!NET/IB: Got completion from peer 192.0.2.8<4791> with status=12 opcode=129 len=0 vendor err 129 (Send) localGid fe80::1 remoteGidsfe80::2 hca erdma_0") + gids, &["gid-unroutable"]),
        ("D08", completion("!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129") + gids, &["gid-unroutable"]),
        ("D08", completion("!NET/IB: Got completion from peer 192.0.2.8<4791> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca erdma_0") + gids, &["gid-unroutable"]),
        ("D08", completion("!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"), &[]),
        ("D08", completion("!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129").replace("INDEX set by environment to 1.", "INDEX set by environment to 3.") + gids, &[]),
        ("D10", log(&["NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>", "!Call to ibv_modify_qp failed with error No such device", "transport/net_ib.cc:12 -> 2"]), &["netns-gid-mismatch"]),
        ("D11", log(&[USING, "!Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"]) + "max locked memory           (kbytes, -l) 64\n", &["memlock-low"]),
        ("D11", log(&[USING, "!Call to ibv_create_qp failed"]) + "Max locked memory         8388608              8388608              bytes\n", &["memlock-low"]),
        ("D11", log(&[USING, "!Call to ibv_create_cq failed with error Cannot allocate memory"]) + "max locked memory       (kbytes, -l) unlimited\n", &["verbs-out-of-memory"]),
        ("D12", log(&["NET/Plugin: Loaded net plugin NCCL RDMA Plugin (v5)", "Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so", "P2P plugin IBext", "NET/IB : No device found.", "NET/IB : No device found.", "Using network Socket"]), &["foreign-net-plugin"]),
        ("D14", log(&["NET/Plugin: Loaded net plugin AWS Libfabric (v6)", "!NET/OFI Initialization: fi_getinfo() call failed: No data available", "NET/IB : No device found.", "Using network Socket"]), &["foreign-net-plugin"]),
        ("D15", log(&["NCCL_IB_DISABLE set by environment to 1.", SOCKET, "Using network Socket"]), &["rdma-switched-off"]),
        ("D18", devinfo("erdma_0", "InfiniBand (0)", "PORT_DOWN (1)"), &["port-down"]),
        ("D18", no_device.clone() + &devinfo("erdma_0", "InfiniBand (0)", "PORT_INIT (2)"), &["port-down"]),
        ("D18", no_device.clone() + "No IB devices found\n", &["no-rdma-hardware"]),
        ("D18", "No IB devices found\n".into(), &["no-rdma-hardware"]),
        ("D18", no_device.clone() + "ls: cannot access '/sys/class/infiniband': No such file or directory\n", &["no-rdma-hardware"]),
        ("D18", devinfo("erdma_0", "InfiniBand (0)", "PORT_DOWN (1)") + &devinfo("erdma_1", "InfiniBand (0)", "PORT_ACTIVE (4)"), &[]),
        ("D18", no_device.clone(), &[]),
        ("D19", log(&["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:192.0.2.7<0>", "!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"]), &["infiniband-unreachable"]),
        ("D19", log(&["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:192.0.2.7<0>", "!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"]) + "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0:0x7fff\n/sys/class/infiniband/mlx5_0/ports/1/pkeys/1:0x8001\n", &["partition-key"]),
        ("D23", log(&[USING, "!Call to ibv_reg_dmabuf_mr failed with error Operation not supported"]), &["dmabuf-unsupported"]),
        ("E01", "host-a:7:7 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\nhost-a:7:7 [0] include/shm.h:41 NCCL WARN Error while creating shared memory segment nccl-shm-recv-5f-0-1-3 (size 9637888)\n".into(), &["shm-too-small"]),
        ("E01", log(&["!Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 9637888), error: No space left on device (28)"]), &["shm-too-small"]),
        ("E01", log(&["fallocate: Failed to extend /dev/shm/nccl-Ab12Cd to 9637892 bytes, error: No space left on device (28) - retrying"]), &["shm-too-small"]),
        ("E01", log(&["!Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 9637888)"]) + "shm                65536 65536         0 100% /dev/shm\n", &["shm-too-small"]),
        ("E04", log(&["Bootstrap : Using br-0a1b2c3d4e5f:198.51.100.1<0>", "NET/Socket : Using [0]br-0a1b2c3d4e5f:198.51.100.1<0>"]), &["bootstrap-interface"]),
        ("E04", log(&["Bootstrap: Using veth12ab:198.51.100.1<0>"]), &["bootstrap-interface"]),
        ("E06", log(&["!Socket creation failed : Address family not supported by protocol"]), &["no-ip-interface"]),
        ("E06", log(&["!NET/IB : No IP interface found."]), &["no-ip-interface"]),
        ("E06", log(&["NCCL_SOCKET_IFNAME set by environment to eth7", "!Bootstrap : no socket interface found"]), &["ifname-filter-matches-nothing"]),
        ("E07", log(&["!Mismatched NCCL version detected : rank 0 version 21903 rank 1 version 22105"]), &["nccl-version-skew"]),
        ("E07", line("host-a", 7, "NCCL version 2.28.9+cuda13.0") + &line("host-b", 7, "NCCL version 2.27.3+cuda12.9"), &["nccl-version-skew"]),
        ("E07", format!("NCCL version 2.19.3+cuda12.3\n{}NCCL version 2.21.5+cuda12.4\n{}", line("host-a", 7, USING), line("host-b", 7, USING)), &["nccl-version-skew"]),
        ("E09", log(&["!socketBind: bind to 192.0.2.7<29500> failed : Address already in use"]), &["port-in-use"]),
        ("E09", "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).\n".into(), &["port-in-use"]),
        ("F24", "docker: Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]].\n".into(), &["nvidia-toolkit-missing"]),
        ("G01", TABLE.replace("33.33       0    250.1", "33.33     240    250.1").replace("33.54   33.54       0\n    16", "33.54   33.54       8\n    16").replace(": 0 OK", ": 248 FAILED"), &["data-corruption"]),
        ("G01", TABLE.replace(": 0 OK", ": 248 FAILED"), &["data-corruption"]),
        ("G05", TABLE.to_owned(), &[]),
        ("G07", "host-a: Test NCCL failure common.cu:777 'unhandled system error'\n".into(), &[]),
        ("G07", "Cuda failure common.cu:891 'out of memory'\n".into(), &[]),
    ];
    for (case, text, expected) in &cases {
        for (form, text) in dressed(text) {
            let explained = read(&text);
            let ids: Vec<&str> = explained.causes.iter().map(|cause| cause.id.name()).collect();
            assert_eq!(ids, *expected, "{case}, {form}:\n{text}");
            assert!(explained.causes.iter().all(|cause| !cause.evidence.is_empty() && !cause.remedy.is_empty()));
            assert!(!explained.inputs[0].kinds.is_empty(), "{case}, {form}: not recognized");
        }
        // A warning of NCCL 2.26 and newer.
        let new = text.replace(
            "\nhost-a:7:7 [0] transport/net_ib.cc:12",
            "\n[2026-01-02 03:04:05] host-a:7:7 [0] ib.cc:1 (NCCL Proxy)",
        );
        assert_eq!(ids(&new), *expected, "{case}:\n{new}");
    }
    // As a user sees them.
    for case in ["B13", "C08", "D05", "D08", "D19", "E01", "E07", "G01", "G07"] {
        for (_, text, expected) in cases.iter().filter(|(id, ..)| *id == case) {
            let (shown, ids) = seen(text, &[]);
            assert_eq!(ids, *expected, "{case}");
            match expected.first() {
                Some(id) => {
                    assert!(shown.contains(&format!("cause {id}: ")) && shown.contains("  remedy: "), "{shown}")
                }
                None => assert!(shown.contains(": nothing in this text names a cause"), "{shown}"),
            }
        }
    }
}

fn two(a: &[&str], b: &[&str]) -> String {
    a.iter()
        .map(|message| line("host-a", 7, message))
        .chain(b.iter().map(|message| line("host-b", 8, message)))
        .collect()
}

const RANK0: &str = "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init COMPLETE";
const RANK1: &str = "ncclCommInitRank comm 0x2 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init COMPLETE";

/// D02 and D03: the fallback to sockets is silent, and its cause is not in the log.
#[test]
fn sockets_are_no_rdma_whatever_the_bandwidth() {
    let via = |from: u32, to: u32, way: &str| format!("Channel 00/0 : {from}[0] -> {to}[0] [{way}] via NET/Socket/0");
    for using in [
        "NET/IB : Using ; OOB eth0:192.0.2.7<0>",
        "NET/IB : Using [RO]; OOB eth0:192.0.2.7<0>",
        "NET/IB : No device found.",
    ] {
        let lines = |rank: &'static str, a: u32, b: u32| {
            vec![
                "NET/IB : No device found.".to_owned(),
                using.to_owned(),
                "Failed to initialize NET plugin IB".into(),
                SOCKET.into(),
                "Using network Socket".into(),
                rank.into(),
                via(b, a, "receive"),
                via(a, b, "send"),
                "Connected all rings".into(),
            ]
        };
        let (a, b) = (lines(RANK0, 0, 1), lines(RANK1, 1, 0));
        let text =
            two(&a.iter().map(String::as_str).collect::<Vec<_>>(), &b.iter().map(String::as_str).collect::<Vec<_>>());
        let (shown, ids) = seen(&(text + &TABLE.replace("33.3", "190.")), &[]);
        assert_eq!(ids, [""; 0]);
        for said in [
            "RDMA       no\n",
            "4 channel lines are via NET/Socket",
            "unknown: nothing in this text names a cause",
            "next: NCCL found no RDMA device",
            "devices    none in 2 processes",
        ] {
            assert!(shown.contains(said), "no {said:?} in\n{shown}");
        }
    }
}

/// D04: before the timeout, from one log or from a file of each rank.
#[test]
fn ranks_with_different_devices() {
    let a = [
        "NET/IB : Using [0]erdma_0:1/RoCE [1]erdma_1:1/RoCE [RO]; OOB eth0:192.0.2.7<0>",
        "Detected mixed local Net device counts across ranks (min 1, max 2). Ignoring due to NCCL_IGNORE_NET_MISMATCH.",
        RANK0,
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        "Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1",
    ];
    let b = ["!NET/IB : Unable to open device erdma_1", USING, RANK1];
    let (_, ids) = seen(&two(&a, &b), &[]);
    assert_eq!(ids, ["asymmetric-hca"]);
    let dir = tempfile::tempdir().unwrap();
    // Two files of processes that look alike, as of two containers with one name.
    let (first, second) = (write(&dir, "0.log", log(&a).as_bytes()), write(&dir, "1.log", log(&b).as_bytes()));
    run(rdmaprep().args(["explain", &first, &second]))
        .expect(0)
        .prints("cause asymmetric-hca: ")
        .prints("rank 1 (host-a:7) has erdma_0")
        .prints("NCCL_IB_HCA==erdma_0")
        .prints("ranks      2 of 2 have a log; 2 processes on 1 host");
}

/// D20 and D21.
#[test]
fn what_rdma_and_gpudirect_come_to() {
    let run_of = |via: &str| {
        let lines = |rank: &str, a: u32, b: u32| {
            vec![
                USING.to_owned(),
                "DMA-BUF is available on GPU device 0".into(),
                "Using network IB".into(),
                rank.into(),
                format!("Channel 00/0 : {b}[0] -> {a}[0] [receive] via {via}"),
                format!("Channel 00/0 : {a}[0] -> {b}[0] [send] via {via}"),
                "Connected all rings".into(),
            ]
        };
        let (a, b) = (lines(RANK0, 0, 1), lines(RANK1, 1, 0));
        two(&a.iter().map(String::as_str).collect::<Vec<_>>(), &b.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (via, rdma, direct) in [
        ("NET/IB/0", "RDMA       yes by the log", "GPUDirect  no: "),
        ("NET/IB/0/GDRDMA", "RDMA       yes by the log", "GPUDirect  yes: "),
        ("NET/IB/0(4)/GDRDMA(PCI)/Shared", "RDMA       yes by the log", "GPUDirect  yes: "),
        ("P2P/CUMEM", "RDMA       not-exercised", ""),
        ("P2P/direct pointer", "RDMA       not-exercised", ""),
        ("SHM/direct/direct", "RDMA       not-exercised", ""),
        ("NET/AWS Libfabric/0/GDRDMA", "RDMA       unknown", ""),
    ] {
        let (shown, ids) = seen(&run_of(via), &[]);
        assert_eq!(ids, [""; 0], "{via}");
        assert!(shown.contains(rdma) && shown.contains(direct), "{via}:\n{shown}");
    }
}

/// E03: what is silence without a timeout is a stall with one.
#[test]
fn silence_after_init() {
    let lines = |rank: &'static str, a: u32, b: u32| {
        vec![rank.to_owned(), format!("Channel 00/0 : {a}[0] -> {b}[1] via P2P/IPC"), "Connected all rings".into()]
    };
    let (a, b) = (lines(RANK0, 0, 1), lines(RANK1, 1, 0));
    let text =
        two(&a.iter().map(String::as_str).collect::<Vec<_>>(), &b.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(seen(&text, &[]).1, [""; 0]);
    let (shown, ids) = seen(&text, &["--timed-out"]);
    assert_eq!(ids, ["p2p-stalled"]);
    assert!(shown.contains("phase      after-init (2 processes)") && shown.contains("ACS"), "{shown}");
    let watchdog = "[rank0]:[E102 03:04:05.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.\n";
    assert_eq!(seen(&(text + watchdog), &[]).1, ["p2p-stalled"]);
}

/// E10: nothing is made up; the phase and the last line of each rank are shown.
#[test]
fn silence_in_bootstrap_has_no_cause() {
    let start = |rank: u32| {
        format!(
            "[Rank {rank}] ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x9 - Init START"
        )
    };
    let (a, b) = (start(0), start(1));
    let text =
        two(&["Bootstrap: Using eth0:192.0.2.7<0>", USING, &a], &["Bootstrap: Using eth0:192.0.2.8<0>", USING, &b]);
    for more in [&[] as &[&str], &["--timed-out"]] {
        let (shown, ids) = seen(&text, more);
        assert_eq!(ids, [""; 0]);
        for said in [
            "phase      bootstrap (2 processes)",
            "last line  rank 1 (host-b:8): [Rank 1] ncclCommInitRank",
            "unknown: nothing in this text names a cause",
            "RDMA       unknown",
        ] {
            assert!(shown.contains(said), "no {said:?} in\n{shown}");
        }
    }
}

/// E07, a file of each rank: to 2.21 the version line has no prefix.
#[test]
fn versions_of_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, version: &str, host: &str| {
        write(&dir, name, format!("NCCL version {version}\n{}", line(host, 7, USING)).as_bytes())
    };
    let old = file("0.log", "2.19.3+cuda12.3", "host-a");
    let new = file("1.log", "2.21.5+cuda12.4", "host-b");
    run(rdmaprep().args(["explain", &old, &new]))
        .expect(0)
        .prints("cause nccl-version-skew: ranks run different NCCLs: 2.19.3, 2.21.5")
        .prints("host-b:7: NCCL version 2.21.5+cuda12.4");
    let alike = file("2.log", "2.19.3+cuda12.1", "host-c");
    let json = run(rdmaprep().args(["explain", &old, &alike, "--format", "json"]));
    let value: Value = serde_json::from_str(&json.expect(0).stdout).unwrap();
    assert_eq!(value["causes"], serde_json::json!([]));
}

/// G01 above everything else, although RDMA carried the data.
#[test]
fn wrong_results_come_first() {
    let text = healthy("2.28.3")
        + &line("host-a", 7, "!Call to ibv_reg_dmabuf_mr failed with error Operation not supported")
        + &TABLE.replace(": 0 OK", ": 248 FAILED");
    let (shown, ids) = seen(&text, &[]);
    assert_eq!(ids, ["data-corruption", "dmabuf-unsupported"]);
    assert!(shown.contains("Out of bounds values : 248 FAILED") && shown.contains("GPUDirect off"), "{shown}");
    assert!(shown.contains("RDMA       yes by the log"), "{shown}");
}

/// G03: a real output of one GPU.
#[test]
fn one_rank_proves_nothing() {
    let real = std::fs::read_to_string(root().join("tests/data/nccl-tests-2.19.6-h200-1gpu.txt")).unwrap();
    let bare: String = real.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let unchecked = real.replace("       0\n", "     N/A\n").replace("0.00       0 ", "0.00     N/A ");
    for text in [&real, &bare, &unchecked] {
        let (shown, ids) = seen(text, &[]);
        assert_eq!(ids, [""; 0]);
        assert!(shown.contains("RDMA       not-exercised\n             one rank: nothing to send"), "{shown}");
    }
    assert!(seen(&unchecked, &[]).0.contains("results not checked"));
}

/// G07: a crash without a log is unknown, and what would help is said.
#[test]
fn a_crash_without_a_log_is_unknown() {
    for text in [
        "host-a: Test NCCL failure common.cu:777 'unhandled system error / '\n .. host-a pid 123: Test failure common.cu:1000\n",
        "Cuda failure common.cu:891 'out of memory'\n",
        "host-a: Test CUDA failure common.cu:891 'out of memory'\n",
    ] {
        let (shown, ids) = seen(&(TABLE.split("# Out").next().unwrap().to_owned() + text), &[]);
        assert_eq!(ids, [""; 0]);
        for said in ["unknown: nothing in this text names a cause", "NCCL_DEBUG=INFO", "it did not finish", "gave up"] {
            assert!(shown.contains(said), "no {said:?} in\n{shown}");
        }
    }
}

#[test]
fn build_logs() {
    let failed = "Step 2/3 : RUN apt-get update\n ---> Running in 0123456789ab\nE: You don't have enough free space in /var/cache/apt/archives/.\nThe command '/bin/sh -c apt-get update' returned a non-zero code: 100\n";
    let (shown, ids) = seen(failed, &[]);
    assert_eq!(ids, ["no-space"]);
    assert!(shown.contains("build log") && shown.contains("You don't have enough free space"), "{shown}");
    let stream = "{\"stream\":\"Step 1/1 : RUN x\\n\"}\n{\"stream\":\"W: GPG error: NO_PUBKEY 0123\\n\"}\n{\"errorDetail\":{\"code\":1,\"message\":\"x\"},\"error\":\"The command '/bin/sh -c x' returned a non-zero code: 1\"}\n";
    assert_eq!(seen(stream, &[]).1, ["key-mismatch"]);
    let buildkit = "#5 [2/2] RUN make\n#5 0.123 make: *** [all] Error 2\n#5 ERROR: process \"/bin/sh -c make\" did not complete successfully: exit code: 2\nERROR: failed to solve: process \"/bin/sh -c make\" did not complete successfully: exit code: 2\n";
    let (shown, ids) = seen(buildkit, &[]);
    assert_eq!(ids, [""; 0]);
    assert!(shown.contains("unknown: nothing in this text names a cause"), "{shown}");
    let fine = "#5 [2/2] RUN true\n#5 DONE 0.1s\n#6 exporting layers\n#6 DONE 0.1s\n";
    assert!(seen(fine, &[]).0.contains("no trouble: nothing in this text names a cause"));
}

#[test]
fn files_pipes_and_compression() {
    let dir = tempfile::tempdir().unwrap();
    let text = log(&["NCCL_IB_DISABLE set by environment to 1.", "Using network Socket"]);
    let plain = write(&dir, "plain", text.as_bytes());
    let packed = |text: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    // Two members, as `cat a.gz b.gz` makes them.
    let (first, second) = text.split_at(20);
    let gzip = write(&dir, "log.gz", &[packed(first), packed(second)].concat());
    for path in [&plain, &gzip] {
        run(rdmaprep().args(["explain", path])).expect(0).prints("cause rdma-switched-off: NCCL_IB_DISABLE=1");
    }
    let mut from_pipe = rdmaprep();
    from_pipe.args(["explain", "-"]).stdin(std::fs::File::open(&plain).unwrap());
    run(&mut from_pipe).expect(0).prints("stdin: NCCL log").prints("cause rdma-switched-off");
    // Unreadable, of no known kind, or not a file.
    let cut = write(&dir, "cut.gz", &packed(&text)[..30]);
    let other = write(&dir, "other.txt", b"hello\nworld\n");
    let empty = write(&dir, "empty.txt", b"");
    let bytes = write(&dir, "bytes", &[0, 159, 146, 150, 10, 255]);
    run(rdmaprep().args(["explain", &cut])).expect(3).says("reading");
    for path in [&other, &empty, &bytes] {
        run(rdmaprep().args(["explain", path])).expect(3).says("is not an NCCL log").says("NCCL_DEBUG=INFO");
    }
    run(rdmaprep().args(["explain", &dir.path().display().to_string()])).expect(3).says("reading");
    run(rdmaprep().args(["explain", &plain, "nowhere.log"])).expect(2).says("there is no file");
    run(rdmaprep().args(["explain", &plain, "ofed-packages"])).expect(2).says("is a check");
    run(rdmaprep().args(["explain", "-", "-"])).expect(2).says("only once");
    run(rdmaprep().args(["explain"])).expect(2);
    // A path that exists wins over the check of that name.
    write(&dir, "ofed-packages", text.as_bytes());
    let mut in_dir = rdmaprep();
    in_dir.args(["explain", "ofed-packages"]).current_dir(dir.path());
    run(&mut in_dir).expect(0).prints("cause rdma-switched-off");
}

/// A text of many processes that all say much takes no more than its bound, and says what it left out.
#[test]
fn many_processes_have_one_bound() {
    let mut stream = Interleaved::within(Room::new(4 << 20));
    let long = "x".repeat(300);
    for pid in 0..20_000 {
        for number in 0..4 {
            let text = format!(
                "host-{pid}:{pid}:1 [0] a.cc:1 NCCL WARN {number} failed {long}\nhost-{pid}:{pid}:1 [0] NCCL INFO NCCL_X{number} set by environment to {long}\n"
            );
            stream.push(text.as_bytes());
        }
    }
    let logs = stream.finish();
    assert!(logs.left_out > 0 && logs.ranks.len() > 100, "{} {}", logs.left_out, logs.ranks.len());
    let warnings: u64 = logs.ranks.iter().map(|rank| rank.warnings.total).sum();
    let texts: usize = logs.ranks.iter().flat_map(|rank| rank.warnings.iter()).map(|text| text.text.len()).sum();
    let settings: usize = logs.ranks.iter().flat_map(|rank| &rank.settings).map(|(_, value)| value.len()).sum();
    assert!(texts + settings < 4 << 20, "{texts} {settings}");
    assert_eq!(warnings * 2 + logs.left_out, 160_000);
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

/// Lines of every kind in any order, cut and joined anywhere: no panic, the same in pieces of any size, and nothing that a
/// terminal would obey.
#[test]
fn any_bytes() {
    let seeds = root().join("tests/fuzz/seeds/explain");
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for seed in std::fs::read_dir(seeds).unwrap() {
        let bytes = std::fs::read(seed.unwrap().path()).unwrap();
        lines.extend(bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec));
    }
    assert!(lines.len() > 40, "{}", lines.len());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds(300) {
        let mut text = Vec::new();
        for _ in 0..random.next(30) {
            let line = &lines[random.next(lines.len())];
            match random.next(8) {
                0 => text.extend_from_slice(&line[random.next(line.len())..]),
                1 => text.extend_from_slice(&line[..random.next(line.len())]),
                2 => text.push(u8::try_from(random.next(256)).unwrap()),
                3 => text.extend_from_slice(b"\x1b]0;x\x07\x1b[2J\xe2\x80\xae"),
                _ => text.extend_from_slice(line),
            }
        }
        let room = if round % 3 == 0 { Room::new(8 << 10) } else { Room::ALL };
        let said = |size: usize| {
            let mut reader = TextReader::within(room.clone());
            text.chunks(size).for_each(|piece| reader.push(piece));
            explain(vec![reader.finish("log").0], round % 2 == 0)
        };
        let whole = said(text.len().max(1));
        assert_eq!(whole, said(1 + random.next(40)), "{}", String::from_utf8_lossy(&text));
        assert!(whole.causes.iter().all(|cause| !cause.evidence.is_empty() && !cause.remedy.is_empty()));
        let mut shown = Vec::new();
        rdmaprep::report::write_log_explanation(&mut shown, &whole, rdmaprep::report::Style { colour: false }).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(!shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown:?}");
        if round % 50 == 0 {
            assert!(validator("schemas/explanation.schema.json").is_valid(&serde_json::to_value(&whole).unwrap()));
        }
    }
}
