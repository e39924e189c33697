//! Every cause of the table, through what finds it: `explain` on a text, and the preflight on the same text as a rank's log.
//! Both name the same cause, the same party at fault and the same remedy.

use crate::support::image_fixture::Fixture;
use crate::support::run_fixture::*;

use rdmaprep::checks::{Finding, RunOptions, RunSubject, check_run};
use rdmaprep::diagnosis::{BuildFailure, Cause, CauseId};
use rdmaprep::explain::{TextReader, explain};
use rdmaprep::facts::run::*;
use rdmaprep::launch::evidence::read_evidence;
use rdmaprep::logs::build::explain_build_log;
use rdmaprep::logs::nccl::Room;

/// What shows a cause.
enum Example {
    /// Lines of a rank. `!` begins a warning, `|` what another program printed.
    Log(&'static [&'static str]),
    /// The lines with a tool's text, and the container in which a preflight sees the same.
    LogBeside(&'static [&'static str], &'static str, fn(&mut RunFacts)),
    /// What a run on one host cannot show: its checks get the cause as `explain` has it.
    LogOfHosts(&'static [&'static str], &'static str),
    /// Results that are wrong.
    Results,
    /// The engine refuses the container with these words.
    Refused(StartFailure, &'static str),
    /// Lines of a build that did not end by a code of rdmaprep's, or said more than it.
    Build(&'static [&'static str]),
    Ended(BuildFailure),
    /// No text shows it: a step of the loopback fails. Its unit tests have the step, and a preflight judges it alike.
    Loopback,
}

const USING: &str = "NET/IB : Using [0]erdma_0:1/RoCE [RO]; OOB eth0:192.0.2.7<0>";
const NO_DEVICE: &str = "NET/IB : No device found.";
const UNANSWERED: &str = "!NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129";
const ON_INFINIBAND: &str = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:192.0.2.7<0>";
const NO_MEMORY: &str = "!Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory";
const REFUSED: &str = "could not select device driver \"\" with capabilities: [[gpu]]";

/// A cause without an example does not compile.
fn example(id: CauseId) -> Example {
    use CauseId::*;
    use Example::*;
    match id {
        DataCorruption => Results,
        NcclVersionSkew => Log(&["!Mismatched NCCL version detected : rank 0 version 21903 rank 1 version 22105"]),
        NcclTooOldLoaded => Log(&["|ImportError: torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister"]),
        P2pStalled => Log(&["!HINT: a hang may be due to PCI ACS"]),
        ShmTooSmall => Log(&[
            "!Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 9637888), error: No space left on device (28)",
        ]),
        PortInUse => Log(&["!socketBind: bind to 192.0.2.7<29500> failed : Address already in use"]),
        NoIpInterface => Log(&["!Bootstrap : no socket interface found"]),
        IfnameFilterMatchesNothing => {
            Log(&["NCCL_SOCKET_IFNAME set by environment to bogus0", "!Bootstrap : no socket interface found"])
        }
        BootstrapInterface => LogOfHosts(&["Bootstrap: Using veth12ab:198.51.100.1<0>"], ""),
        CudaForwardCompat => Log(&["!Cuda failure 'forward compatibility was attempted on non supported HW'"]),
        DriverTooOld => LogBeside(
            &["!Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"],
            "crw-rw-rw- 1 root root 195, 255 Jan  1 00:00 /dev/nvidiactl\n",
            |_| {},
        ),
        GpuNotPassed => LogBeside(
            &["!Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"],
            "ls: cannot access '/dev/nvidiactl': No such file or directory\n",
            |run| run.environment.as_mut().unwrap().nvidia_nodes.clear(),
        ),
        NvidiaToolkitMissing => Refused(StartFailure::NvidiaToolkitMissing, REFUSED),
        LibibverbsMissing => Log(&["!Failed to open libibverbs.so[.1]"]),
        ErdmaProviderMissing => Log(&[
            "|libibverbs: Warning: couldn't load driver 'liberdma-rdmav34.so': liberdma-rdmav34.so: cannot open shared object file",
        ]),
        VerbsProviderMissing => Log(&[
            "|libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
        ]),
        RdmaSwitchedOff => Log(&["NCCL_IB_DISABLE set by environment to 1."]),
        AsymmetricHca => Log(&["!Detected mixed local Net device counts"]),
        DeviceNotPermitted => Log(&["!NET/IB : Unable to open device erdma_0", NO_DEVICE]),
        NoRdmaHardware => LogBeside(&[NO_DEVICE], "No IB devices found\n", |run| {
            let environment = run.environment.as_mut().unwrap();
            environment.rdma_devices.clear();
            environment.rdma_nodes.clear();
        }),
        PortDown => {
            LogBeside(&[NO_DEVICE], "hca_id:\terdma_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_DOWN (1)\n", |run| {
                run.environment.as_mut().unwrap().rdma_devices[0].ports[0].state = "DOWN".into();
            })
        }
        HcaFilterMatchesNothing => LogBeside(
            &["NCCL_IB_HCA set by environment to mlx5", NO_DEVICE],
            "hca_id:\terdma_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n",
            |_| {},
        ),
        ForeignNetPlugin => Log(&[
            "NET/Plugin: Loaded net plugin AWS Libfabric (v6)",
            "!NET/OFI Initialization: fi_getinfo() call failed: No data available",
            NO_DEVICE,
        ]),
        MemlockLow => LogBeside(&[USING, NO_MEMORY], "max locked memory       (kbytes, -l) 64\n", |run| {
            run.environment.as_mut().unwrap().memlock_bytes = Some(64 << 10);
        }),
        VerbsOutOfMemory => LogBeside(&[USING, NO_MEMORY], "max locked memory       (kbytes, -l) unlimited\n", |_| {}),
        DmabufUnsupported => Log(&[USING, "!Call to ibv_reg_dmabuf_mr failed with error Operation not supported"]),
        ErdmaDriverNotCompat => Log(&[USING, "!Call to ibv_modify_qp failed with error Invalid argument errno 22"]),
        NetnsGidMismatch => Log(&[USING, "!Call to ibv_modify_qp failed with error No such device"]),
        GidUnroutable => Log(&[
            USING,
            "!NET/IB: Got completion from peer 192.0.2.8<4791> with status=12 opcode=129 len=0 vendor err 129 (Send) localGid fe80::1 remoteGidsfe80::2 hca erdma_0",
        ]),
        PartitionKey => LogOfHosts(
            &[ON_INFINIBAND, UNANSWERED],
            "/sys/class/infiniband/mlx5_0/ports/1/pkeys/0:0x7fff\n/sys/class/infiniband/mlx5_0/ports/1/pkeys/1:0x8001\n",
        ),
        InfinibandUnreachable => LogBeside(&[ON_INFINIBAND, UNANSWERED], "", |run| {
            run.environment.as_mut().unwrap().rdma_devices.clear();
        }),
        NoVerbsDevice | NoSuchDevice | GidAddressUnresolved | DeviceUnanswered => Loopback,
        NoSpace => Build(&["write error: No space left on device"]),
        SwapRemovesPackage => Ended(BuildFailure::SwapRemovesPackage),
        MirrorUnreachable => Ended(BuildFailure::RepositoryUnreachable),
        MirrorUnusable => Ended(BuildFailure::RepositoryUnusable),
        SuiteMissing => Ended(BuildFailure::RepositoryMissing),
        KeyMismatch => Ended(BuildFailure::KeyMismatch),
        SignatureBad => Build(&["W: GPG error: BADSIG 1", "rdmaprep[repository-unusable]: http://m x cannot be used"]),
        AptSourceUnreachable => Build(&[
            "W: Failed to fetch http://m/InRelease",
            "rdmaprep[apt-sources-lack-package]: package x is not in y",
        ]),
        AptSourceUnusable => {
            Build(&["W: GPG error: NO_PUBKEY 1", "rdmaprep[apt-sources-lack-package]: package x is not in y"])
        }
        AptConflict => Ended(BuildFailure::AptConflict),
        RpmSourceUnreachable => Build(&[
            "Error: Failed to download metadata for repo 'base': Cannot download repomd.xml",
            "rdmaprep[rpm-conflict]: dnf cannot put these packages together",
        ]),
        RpmConflict => Ended(BuildFailure::RpmConflict),
        PackageMissing => Ended(BuildFailure::PackageMissing),
        PackageUnknown => Ended(BuildFailure::PackageUnknown),
        PackageNotInImageSources => Ended(BuildFailure::AptSourcesLackPackage),
        OtherLibibverbs => Ended(BuildFailure::OtherLibibverbs),
        NoCurl => Ended(BuildFailure::NoCurl),
        BaseNotFound => Build(&["ERROR: build failed: pull access denied for x, repository does not exist"]),
        NoBridge => Build(&["ERROR: build failed: could not find bridge docker0"]),
        BaseMismatch => Ended(BuildFailure::OtherDistribution),
        PackageManagerMissing => Ended(BuildFailure::NoManager),
        ReleaseUnknown => Ended(BuildFailure::NoRelease),
        KeyUnreadable => Ended(BuildFailure::BadKey),
        PackageFilesChanged => Ended(BuildFailure::FilesChanged),
        SwapIncomplete => Ended(BuildFailure::NotInstalled),
        ProviderNotInPackages => Ended(BuildFailure::NoProvider),
    }
}

fn text_of(lines: &[&str]) -> String {
    let dressed = |line: &&str| match line.split_at(1) {
        ("!", warning) => format!("host-a:7:7 [0] transport/net_ib.cc:12 NCCL WARN {warning}\n"),
        ("|", printed) => format!("{printed}\n"),
        _ => format!("host-a:7:7 [0] NCCL INFO {line}\n"),
    };
    lines.iter().map(dressed).collect()
}

/// The cause as `explain` finds it in a text.
fn explained(id: CauseId, text: &str) -> Cause {
    let mut reader = TextReader::within(Room::ALL);
    reader.push(text.as_bytes());
    let causes = explain(vec![reader.finish("log").0], false).causes;
    let found = causes.iter().find(|cause| cause.id == id).cloned();
    found.unwrap_or_else(|| panic!("explain does not find {id} in\n{text}\n{causes:#?}"))
}

/// A run that the cause ended, or in which it kept the data from RDMA or from the GPUs' memory.
fn run_with(id: CauseId) -> RunFacts {
    if id.info().ends_run {
        let (call, text) = ("ncclCommInitRankConfig".into(), "unhandled system error".into());
        return failed(0, Phase::Init, Failure::Nccl { call, code: 2, text, last_error: String::new() });
    }
    let (network, via) = if id.info().explains_sockets { ("Socket", "NET/Socket/0") } else { ("IB", "NET/IB/0") };
    let mut run = good_run();
    for rank in &mut run.ranks {
        let (own, peer) = (rank.rank, 1 - rank.rank);
        let init =
            format!("ncclCommInitRank comm 0x1 rank {own} nranks 2 cudaDev {own} nvmlDev {own} busId 60 commId 0x9");
        rank.log = text_of(&[
            "NCCL version 2.28.3+cuda12.9",
            if network == "IB" { USING } else { "cudaDriverVersion 12040" },
            &format!("Using network {network}"),
            &format!("{init} - Init START"),
            &format!("{init} - Init COMPLETE"),
            &format!("Channel 00/0 : {peer}[{peer}] -> {own}[{own}] [receive] via {via}"),
            &format!("Channel 00/0 : {own}[{own}] -> {peer}[{peer}] [send] via {via}"),
            "Connected all rings",
        ]);
    }
    run
}

fn judged(run: &RunFacts) -> Vec<Finding> {
    let target = rdmaprep::targets::by_id("pai-dlc").unwrap();
    check_run(&RunSubject { run, facts: Some(&Fixture::good().facts()), target, options: RunOptions::default() })
}

/// The findings that name the cause all blame the same party, and there is one.
fn naming(id: CauseId, run: &RunFacts) -> Vec<Finding> {
    let mut findings = judged(run);
    findings.retain(|finding| finding.summary.contains(&format!("{id}: ")));
    assert!(!findings.is_empty(), "no finding names {id}: {:#?}", judged(run));
    for finding in &findings {
        assert_eq!(finding.blame, Some(id.fault()), "{id}: {finding:#?}");
    }
    findings
}

/// One of the findings has the remedy of `explain`.
fn says_the_same(explained: &Cause, findings: &[Finding]) {
    let has = findings.iter().any(|finding| finding.remedy.as_ref() == Some(&explained.remedy));
    assert!(has, "{explained:#?}\n{findings:#?}");
}

/// A preflight of ranks that log the lines reads the same cause from them, and its findings say the same.
fn preflight_agrees(explained: &Cause, lines: &[&str], mut run: RunFacts) {
    let id = explained.id;
    let (printed, logged): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with('|'));
    run.ranks[0].output += &text_of(&printed);
    run.ranks[0].log += &text_of(&logged);
    run.evidence = read_evidence(&run);
    let causes = &run.evidence.as_ref().unwrap().causes;
    let read = causes.iter().find(|cause| cause.id == id).unwrap_or_else(|| panic!("{id}: {causes:#?}"));
    assert_eq!((read.fault, &read.remedy), (explained.fault, &explained.remedy), "{id}");
    says_the_same(explained, &naming(id, &run));
}

fn with_cause(cause: &Cause) -> RunFacts {
    let mut run = run_with(cause.id);
    run.evidence = read_evidence(&run).or(run.evidence);
    run.evidence.as_mut().unwrap().causes = vec![cause.clone()];
    run
}

const WRONG_RESULTS: &str = "# nThread 1 nGpus 1 minBytes 8388608 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     8388608       2097152     float     sum      -1    251.7   33.33   33.33     240    250.1   33.54   33.54       8
# Out of bounds values : 248 FAILED
";

fn prove(id: CauseId) {
    let explained = match example(id) {
        Example::Log(lines) => {
            let explained = explained(id, &text_of(lines));
            preflight_agrees(&explained, lines, run_with(id));
            explained
        }
        Example::LogBeside(lines, text, change) => {
            let explained = explained(id, &(text_of(lines) + text));
            let mut run = run_with(id);
            change(&mut run);
            preflight_agrees(&explained, lines, run);
            explained
        }
        Example::LogOfHosts(lines, text) => {
            let explained = explained(id, &(text_of(lines) + text));
            says_the_same(&explained, &naming(id, &with_cause(&explained)));
            explained
        }
        Example::Results => {
            let mut run = good_run();
            run.rows[0].in_place.wrong = Some(8);
            naming(id, &run);
            explained(id, WRONG_RESULTS)
        }
        Example::Refused(failure, words) => {
            let explained = explained(id, &format!("docker: Error response from daemon: {words}.\n"));
            says_the_same(&explained, &naming(id, &not_started(failure, words)));
            explained
        }
        Example::Build(lines) => as_the_build_says(id, &lines.join("\n")),
        Example::Ended(failure) => {
            let sentence = format!("#5 1.2 rdmaprep[{}]: package x", failure.code());
            let cause = as_the_build_says(id, &sentence);
            assert!(cause.summary.ends_with(": package x"), "{}", cause.summary);
            cause
        }
        Example::Loopback => {
            let cause = id.cause(vec!["a step of the loopback".into()]);
            says_the_same(&cause, &naming(id, &with_cause(&cause)));
            cause
        }
    };
    assert_eq!((explained.id, explained.fault), (id, id.fault()));
    assert!(!explained.remedy.is_empty());
}

/// `explain` says of a build's log what `build` itself says.
fn as_the_build_says(id: CauseId, text: &str) -> Cause {
    let explained = explained(id, text);
    assert_eq!(explain_build_log(text.lines()), Some(explained.clone()), "{text}");
    explained
}

#[test]
fn every_cause_is_said_alike() {
    for id in CauseId::ALL {
        prove(id);
    }
}
