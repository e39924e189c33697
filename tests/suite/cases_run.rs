//! Real reports of what goes wrong when an image is run, with the right answer for each. The name of a test begins with the
//! case's; where the case came from is in the check's `source`.

use crate::support::image_fixture;
use crate::support::run_fixture;

use image_fixture::Fixture;
use rdmaprep::checks::Status::{self, Fail, Pass, Skip, Unknown, Warn};
use rdmaprep::checks::{Finding, RunOptions, RunSubject, check_run};
use rdmaprep::diagnosis::CauseId;
use rdmaprep::diagnosis::Fault::{self, Host, Image, Launch};
use rdmaprep::diagnosis::{GpuDirect, RdmaUse};
use rdmaprep::facts::run::*;
use rdmaprep::facts::{DriverLibrary, DriverLibraryKind, ImageFacts};
use rdmaprep::judge::{Exit, preflight_exit};
use run_fixture::*;

fn findings(run: &RunFacts, facts: &ImageFacts, options: RunOptions) -> Vec<Finding> {
    let target = rdmaprep::targets::by_id("pai-dlc").unwrap();
    check_run(&RunSubject { run, facts: Some(facts), target, options })
}

fn image() -> ImageFacts {
    Fixture::good().facts()
}

fn find(all: &[Finding], check: &str) -> Finding {
    all.iter().find(|finding| finding.check == check).unwrap().clone()
}

fn found(run: &RunFacts, check: &str) -> Finding {
    find(&findings(run, &image(), RunOptions::default()), check)
}

/// Status and blame of a check, and words that its finding has.
#[track_caller]
fn expect(run: &RunFacts, check: &str, status: Status, blame: Option<Fault>, words: &[&str]) -> Finding {
    let finding = found(run, check);
    same(&finding, status, blame, words);
    finding
}

#[track_caller]
fn same(finding: &Finding, status: Status, blame: Option<Fault>, words: &[&str]) {
    assert_eq!((finding.status, finding.blame), (status, blame), "{finding:#?}");
    let text = serde_json::to_string(finding).unwrap();
    for word in words {
        assert!(text.contains(word), "no {word:?} in {finding:#?}");
    }
}

fn exit(run: &RunFacts) -> Exit {
    preflight_exit(&findings(run, &image(), RunOptions::default()), Default::default(), &run.ending)
}

fn cuda(code: i32, text: &str) -> Failure {
    Failure::Cuda { call: "cuInit".into(), code, name: format!("CUDA_ERROR_{code}"), text: text.into() }
}

fn nccl(code: i32, text: &str, last_error: &str) -> Failure {
    let call = "ncclCommInitRankConfig".into();
    Failure::Nccl { call, code, text: text.into(), last_error: last_error.into() }
}

/// A run whose agent found no GPU that works.
fn without_gpus(failure: Failure) -> RunFacts {
    let mut run = failed(0, Phase::Cuda, failure.clone());
    run.ranks.clear();
    run.failures.clear();
    let probe = run.gpus.as_mut().unwrap();
    probe.gpus.clear();
    probe.cuda_version_code = None;
    probe.failure = Some(failure);
    run
}

fn environment(run: &mut RunFacts) -> &mut EnvironmentFacts {
    run.environment.as_mut().unwrap()
}

#[test]
fn b13_built_against_a_newer_nccl_than_is_loaded() {
    let symbol = "ncclCommWindowRegister";
    let missing = Failure::SymbolMissing { library: "libnccl.so.2".into(), symbol: symbol.into() };
    let run = failed(0, Phase::Libraries, missing);
    expect(&run, "nccl-loaded", Fail, Some(Image), &["nccl-version-skew", symbol, "NCCL 2.21.5"]);
    assert_ne!(found(&run, "rdma-used").status, Fail);

    let mut run = failed(0, Phase::Init, Failure::Exit { code: 127 });
    run.ranks[0].output = format!("all_reduce_perf: symbol lookup error: undefined symbol: {symbol}\n");
    expect(&run, "nccl-loaded", Fail, Some(Image), &["nccl-version-skew", symbol]);
    run.ranks[0].output =
        "Incompatible NCCL versions. nccl-tests was compiled with NCCL 2.28, but is running with NCCL 2.21\n".into();
    expect(&run, "nccl-loaded", Fail, Some(Image), &["compiled with NCCL 2.28, but is running with NCCL 2.21"]);
}

#[test]
fn c05_the_suffix_of_nccl_is_not_the_images_cuda() {
    let mut run = good_run();
    for line in run.evidence.as_mut().unwrap().nccl_versions.values_mut() {
        *line = "2.21.5+cuda11.8".into();
    }
    run.gpus.as_mut().unwrap().cuda_version_code = Some(12040);
    expect(&run, "nccl-loaded-version", Warn, Some(Image), &["built with CUDA 11.8", "the image has CUDA 12.4"]);
    expect(&run, "driver-version", Pass, None, &["the image has CUDA 12.4"]);
}

#[test]
fn c06_forward_compatibility_libraries() {
    let mut facts = image();
    let compat = "/usr/local/cuda-12.4/compat/libcuda.so.550.54.14";
    facts.cuda.driver_libraries.push(DriverLibrary {
        path: compat.into(),
        kind: DriverLibraryKind::Compat,
        version: Some("550.54.14".into()),
        loader_reason: Some("/etc/ld.so.conf.d/cuda.conf names it".into()),
    });
    for (code, text) in [
        (803, "system has unsupported display driver / cuda driver combination"),
        (804, "forward compatibility was attempted on non supported HW"),
    ] {
        let run = without_gpus(cuda(code, text));
        let finding = find(&findings(&run, &facts, RunOptions::default()), "gpu-visible");
        same(&finding, Fail, Some(Image), &["cuda-forward-compat", compat, text, "take the compat directory off"]);
    }
    // The compatibility driver is not the driver.
    let mut run = good_run();
    run.gpus.as_mut().unwrap().library = Some(LoadedLibrary { asked: "libcuda.so.1".into(), path: compat.into() });
    expect(&run, "cuda-library", Warn, Some(Image), &["compatibility driver"]);
    expect(&run, "driver-version", Pass, None, &["the version is the compatibility driver's"]);
}

#[test]
fn c07_refused_before_the_start() {
    let mut run = not_started(
        StartFailure::DriverTooOld,
        "failed to create task: OCI runtime create failed: nvidia-container-cli: requirement error: unsatisfied \
         condition: cuda >= 12.4, please update your driver to a newer version, or use an earlier cuda container",
    );
    run.host_driver = Some("535.104.05".into());
    let words = ["driver-too-old: the image needs cuda >= 12.4, but the host's driver is 535.104.05"];
    expect(&run, "container-start", Fail, Some(Host), &words);
    assert_eq!(exit(&run), Exit::Host);
}

#[test]
fn c08_driver_too_old_or_no_gpu_passed_in() {
    let text = "CUDA driver version is insufficient for CUDA runtime version";
    let with_nodes = without_gpus(cuda(35, text));
    expect(&with_nodes, "gpu-visible", Fail, Some(Host), &["driver-too-old", "550.54.14"]);
    let mut without_nodes = with_nodes.clone();
    environment(&mut without_nodes).nvidia_nodes.clear();
    let finding = expect(&without_nodes, "gpu-visible", Fail, Some(Host), &["not passed into the container"]);
    assert!(!finding.summary.contains("driver-too-old"));

    let mut by_nccl = failed(0, Phase::Init, nccl(1, "unhandled cuda error", ""));
    by_nccl.evidence.as_mut().unwrap().warnings =
        vec![warning(0, &format!("H:1:1 [0] init.cc:1 NCCL WARN Cuda failure '{text}'"))];
    expect(&by_nccl, "ranks-complete", Fail, Some(Host), &["driver-too-old"]);
}

#[test]
fn d10_not_in_the_hosts_network() {
    let mut run = failed(0, Phase::Connect, nccl(2, "unhandled system error", ""));
    run.launch.network = "bridge".into();
    run.evidence.as_mut().unwrap().warnings =
        vec![warning(0, "H:1:1 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device")];
    expect(&run, "network-mode", Fail, Some(Launch), &["netns-gid-mismatch", "--network host"]);
    run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::NetnsGidMismatch)];
    expect(&run, "network-mode", Fail, Some(Launch), &["netns-gid-mismatch: what"]);
    run.launch.network = "host".into();
    expect(&run, "network-mode", Pass, None, &[]);
}

#[test]
fn d11_locked_memory() {
    for line in [
        "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        "NCCL WARN Call to ibv_create_cq failed",
        "NCCL WARN Call to ibv_create_qp failed",
    ] {
        let mut run = failed(1, Phase::Connect, nccl(2, "unhandled system error", ""));
        run.evidence.as_mut().unwrap().warnings = vec![warning(1, line)];
        // Without a limit, out of memory has another cause.
        let finding = expect(&run, "memlock", Pass, None, &[line]);
        assert!(!finding.summary.contains("memlock-low"));
        environment(&mut run).memlock_bytes = Some(8192 << 10);
        expect(&run, "memlock", Fail, Some(Launch), &["memlock-low", "memlock=-1", line]);
    }
}

#[test]
fn d15_rdma_switched_off_by_the_image() {
    let mut run = good_run();
    let mut over = variable("NCCL_IB_DISABLE", "0", Origin::Run);
    over.replaced.push((Origin::Image, "1".into()));
    run.launch.variables.push(over);
    environment(&mut run).variables.insert("NCCL_IB_DISABLE".into(), "0".into());
    let words = ["the image sets NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=0 (this run; image: 1)"];
    expect(&run, "settings-in-effect", Warn, Some(Image), &words);
    // 0 is fine, whoever set it.
    run.launch.variables.last_mut().unwrap().replaced[0].1 = "0".into();
    expect(&run, "settings-in-effect", Pass, None, &[]);
}

#[test]
fn d18_port_down_and_no_hardware_are_different() {
    let mut down = good_run();
    let facts = environment(&mut down);
    facts.rdma_devices[0].ports[0].state = "DOWN".into();
    facts.interfaces.push(Interface { name: "eth1".into(), state: "down".into(), mtu: None, addresses: Vec::new() });
    expect(&down, "rdma-devices", Fail, Some(Host), &["port-down", "eth1: down, no address", "ip link set eth1 up"]);

    let mut none = good_run();
    let facts = environment(&mut none);
    facts.rdma_devices.clear();
    facts.rdma_nodes.clear();
    none.launch.devices.clear();
    expect(&none, "rdma-devices", Fail, Some(Host), &["no-rdma-hardware"]);
    // A machine without the fabric may try an image all the same.
    none.launch.force_nic = false;
    expect(&none, "rdma-devices", Warn, Some(Host), &["no-rdma-hardware"]);
    let required = RunOptions { require_rdma: true, min_busbw_gb_per_s: None };
    same(&find(&findings(&none, &image(), required), "rdma-devices"), Fail, Some(Host), &[]);

    let mut closed = good_run();
    environment(&mut closed).rdma_nodes.retain(|node| !node.path.ends_with("uverbs0"));
    let finding = expect(&closed, "rdma-devices", Fail, Some(Launch), &["device-not-permitted"]);
    assert!(!finding.summary.contains("port-down") && !finding.summary.contains("no-rdma-hardware"));
}

#[test]
fn d20_rdma_without_gpudirect() {
    let mut run = good_run();
    run.evidence.as_mut().unwrap().gpu_direct = GpuDirect::No;
    environment(&mut run).peer_memory_module = false;
    expect(&run, "rdma-used", Pass, None, &["RDMA: yes"]);
    expect(&run, "gpu-direct", Warn, Some(Host), &["without GPUDirect RDMA", "modprobe nvidia_peermem"]);
    // The device could do DMA-BUF: that proves nothing.
    assert_eq!(run.gpus.as_ref().unwrap().gpus[0].dma_buf, Some(true));
    assert_eq!(exit(&run), Exit::Ok);
}

#[test]
fn d21_one_node_proves_nothing() {
    let mut run = good_run();
    run.launch.force_nic = false;
    let evidence = run.evidence.as_mut().unwrap();
    evidence.rdma = RdmaUse::NotExercised;
    evidence.rdma_reasons = vec!["every channel is via P2P/CUMEM".into()];
    evidence.gpu_direct = GpuDirect::NotExercised;
    evidence.transports = [("P2P/CUMEM".to_owned(), 16)].into();
    let words = ["RDMA: not exercised (every channel is via P2P/CUMEM)", "--force-nic", "16 channels via P2P/CUMEM"];
    expect(&run, "rdma-used", Warn, Some(Launch), &words);
    assert_eq!(exit(&run), Exit::Ok);
}

#[test]
fn d23_dmabuf_unsupported() {
    let mut run = good_run();
    let evidence = run.evidence.as_mut().unwrap();
    evidence.gpu_direct = GpuDirect::No;
    evidence.warnings =
        vec![warning(0, "NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported")];
    expect(&run, "gpu-direct", Warn, Some(Host), &["dmabuf-unsupported", "NCCL_DMABUF_ENABLE=0"]);
    run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::DmabufUnsupported)];
    expect(&run, "gpu-direct", Warn, Some(Host), &["what dmabuf-unsupported means"]);
}

#[test]
fn e01_shared_memory_of_64_mb() {
    let old = "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device";
    let new = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-XXXXXX (size 9637888), error: No space \
               left on device (28)";
    for line in [old, new] {
        let mut run = failed(0, Phase::Connect, nccl(2, "unhandled system error", ""));
        environment(&mut run).shm = Some(FileSystem { size_bytes: 64 << 20, free_bytes: 0 });
        run.evidence.as_mut().unwrap().warnings = vec![warning(0, line)];
        expect(&run, "shm-size", Fail, Some(Launch), &["shm-too-small", "67.1 MB", "--ipc host"]);
    }
}

#[test]
fn e03_silence_after_init_between_gpus() {
    let mut run = silent(&[(0, false), (1, false)], Phase::Connect, Some("NCCL INFO Connected all trees"));
    run.evidence.as_mut().unwrap().transports = [("P2P/IPC".to_owned(), 16)].into();
    let words =
        ["ranks 0, 1 of 2 silent in connect for 1 min 00 s", "ACS", "NCCL_P2P_DISABLE=1", "Connected all trees"];
    expect(&run, "ranks-complete", Fail, Some(Host), &words);
    assert_eq!(exit(&run), Exit::TimeLimit);
    // Over the network, or before the end of the initialisation, nothing points there.
    let mut over_net = run.clone();
    over_net.evidence.as_mut().unwrap().transports.insert("NET/IB".into(), 2);
    let mut early = silent(&[(0, false)], Phase::Init, None);
    early.evidence = run.evidence;
    for run in [over_net, early] {
        let finding = expect(&run, "ranks-complete", Fail, None, &["the cause is unknown"]);
        assert!(!format!("{finding:?}").contains("ACS"), "{finding:#?}");
    }
}

#[test]
fn e07_ranks_with_different_nccl() {
    let mut run = good_run();
    run.ranks[0].nccl_version_code = Some(21903);
    expect(
        &run,
        "nccl-same-everywhere",
        Fail,
        Some(Image),
        &["nccl-version-skew", "rank 0 with 2.19.3; rank 1 with 2.21.5"],
    );
    // By the version lines of the logs, where no code is known.
    let mut run = good_run();
    run.ranks.iter_mut().for_each(|rank| rank.nccl_version_code = None);
    run.evidence.as_mut().unwrap().nccl_versions.insert(1, "2.19.3+cuda12.3".into());
    expect(&run, "nccl-same-everywhere", Fail, Some(Image), &["rank 1 with 2.19.3+cuda12.3"]);
    // By NCCL's own words.
    let mut run = failed(0, Phase::Init, nccl(5, "invalid usage", ""));
    let line = "NCCL WARN Mismatched NCCL version detected : rank 0 version 21903 rank 1 version 22105";
    run.evidence.as_mut().unwrap().warnings = vec![warning(0, line)];
    expect(&run, "nccl-same-everywhere", Fail, Some(Image), &["rank 0 with 2.19.3; rank 1 with 2.21.5"]);
}

#[test]
fn e09_a_port_that_is_in_use() {
    let detail = "binding 0.0.0.0:29500: Address already in use (os error 98)";
    let run = failed(0, Phase::Bootstrap, Failure::Other { detail: detail.into() });
    expect(&run, "ranks-complete", Fail, Some(Launch), &["port-in-use", "29500", "run again"]);
    assert_eq!(exit(&run), Exit::Host);
    let run = failed(0, Phase::Init, nccl(2, "unhandled system error", "bind: Address already in use"));
    expect(&run, "ranks-complete", Fail, Some(Launch), &["port-in-use"]);
}

#[test]
fn e10_a_hang_without_a_warning() {
    let run = silent(&[(0, true), (1, true)], Phase::Bootstrap, Some("NCCL INFO Bootstrap: Using eth0:192.0.2.7<0>"));
    let words = ["silent in bootstrap", "the cause is unknown", "rank 1 in bootstrap", "Bootstrap: Using eth0"];
    let finding = expect(&run, "ranks-complete", Fail, None, &words);
    assert_eq!(finding.remedy, None);
}

#[test]
fn f24_gpu_request_refused() {
    let message = "could not select device driver \"\" with capabilities: [[gpu]]";
    let run = not_started(StartFailure::NvidiaToolkitMissing, message);
    let finding = expect(&run, "container-start", Fail, Some(Host), &["nvidia-toolkit-missing", "nvidia-ctk"]);
    assert_eq!(finding.evidence, [message]);
    assert_eq!(exit(&run), Exit::Host);
}

#[test]
fn g01_wrong_data_is_above_everything() {
    let mut run = good_run();
    for row in &mut run.rows {
        row.out_of_place.wrong = Some(124);
        row.out_of_place.first_wrong =
            Some(WrongElement { rank: 1, index: 262_143, found_bits: 0x7fc0_0000, expected_bits: 0x4040_0000 });
    }
    let all = findings(&run, &image(), RunOptions::default());
    assert_eq!((all[0].check.as_str(), all[0].status), ("data-correct", Fail));
    same(
        &all[0],
        Fail,
        Some(Image),
        &[
            "data-corruption: 3 of 6 results have wrong values, 372 elements in all",
            "found NaN (0x7fc00000), expected 3",
            "NCCL_NET_GDR_LEVEL=LOC",
        ],
    );
    assert_eq!(find(&all, "rdma-used").status, Pass);
    assert_eq!(exit(&run), Exit::ImageAtFault);
    run.ending = Ending::TotalTimeout;
    assert_eq!(exit(&run), Exit::ImageAtFault);
}

#[test]
fn g03_bus_bandwidth_0() {
    let run = one_rank();
    expect(&run, "bandwidth", Skip, None, &["not-exercised"]);
    expect(&run, "rdma-used", Warn, Some(Launch), &["not exercised"]);
    expect(&run, "data-correct", Pass, None, &[]);
    let asked = RunOptions { require_rdma: false, min_busbw_gb_per_s: Some(50.0) };
    same(&find(&findings(&run, &image(), asked), "bandwidth"), Unknown, None, &[]);
}

#[test]
fn g05_slow_but_correct() {
    let mut run = good_run();
    run.evidence.as_mut().unwrap().gpu_direct = GpuDirect::No;
    expect(&run, "bandwidth", Pass, None, &["13.7 GB/s, without GPUDirect RDMA"]);
    for (minimum, status, blame) in [(10.0, Pass, None), (93.0, Fail, Some(Host))] {
        let options = RunOptions { require_rdma: false, min_busbw_gb_per_s: Some(minimum) };
        same(&find(&findings(&run, &image(), options), "bandwidth"), status, blame, &["without GPUDirect RDMA"]);
    }
}

#[test]
fn g07_a_crash_is_no_verdict() {
    let mut run = failed(0, Phase::Init, nccl(2, "unhandled system error", ""));
    environment(&mut run).variables.insert("NCCL_DEBUG".into(), "WARN".into());
    expect(&run, "ranks-complete", Fail, None, &["unhandled system error", "cause is unknown", "NCCL_DEBUG=INFO"]);
    environment(&mut run).variables.insert("NCCL_DEBUG".into(), "INFO".into());
    environment(&mut run).variables.insert("NCCL_DEBUG_SUBSYS".into(), "NET".into());
    expect(&run, "ranks-complete", Fail, None, &["NCCL_DEBUG_SUBSYS=ALL"]);
}
