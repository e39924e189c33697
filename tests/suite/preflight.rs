//! `rdmaprep preflight` the whole way: real containers of an image with the stand-ins of `tests/standin`, at one to sixteen
//! ranks. Nothing of what is shown here is of real GPUs or RDMA devices. Without an engine the tests say `skipped: …`.

use crate::support;
use crate::support::schema;
use crate::support::standin;

use rdmaprep::checks::{Finding, Status, Verdict};
use rdmaprep::diagnosis::{Fault, RdmaUse};
use rdmaprep::facts::run::{AgentEnding, DataType, Ending, Failure, Origin, Phase, RunFacts};
use rdmaprep::report::Report;
use schema::{assert_valid, validator};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{Names, Ran, derive_image, must, rdmaprep, rig, say_skipped};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Debian with the stand-ins where libraries are, two GPUs, and a driver for CUDA 12.4.
const IMAGE: &str = "rdmaprep-test/standin:latest";
/// A short run in a network of its own, judged by itself.
const SMALL: [&str; 9] = ["--run-only", "--network", "none", "-b", "32K", "-e", "64K", "-n", "2"];

/// Makes the image and the program for the container, once; gives the latter.
fn rigged() -> Option<&'static Path> {
    static READY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if !rig() {
        return None;
    }
    match READY.get_or_init(|| {
        let folder = standin::build("preflight", &[])?;
        let libraries = ["libcuda.so.1", "libnccl.so.2", "libibverbs.so.1"].join(" ");
        let lines = format!(
            "FROM rdmaprep-test/debian:12\nCOPY {libraries} /usr/lib/x86_64-linux-gnu/\n\
             ENV CUDA_VERSION=12.4.1 STANDIN_CUDA_VERSION=12040 STANDIN_GPUS=2\nRUN ldconfig\n"
        );
        build(&folder, IMAGE, &lines);
        Ok(small_agent(&folder))
    }) {
        Ok(agent) => Some(agent),
        Err(reason) => {
            say_skipped(reason);
            None
        }
    }
}

/// Builds an image with a folder as its context.
fn build(context: &Path, name: &str, dockerfile: &str) {
    let path = context.join("Dockerfile");
    std::fs::write(&path, dockerfile).unwrap();
    let output = Command::new("docker")
        .args(["build", "-q", "--network", "none", "-t", name])
        .arg(context)
        .env("DOCKER_BUILDKIT", "0")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The program under test without what only a debugger reads: it goes into every container.
fn small_agent(folder: &Path) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_rdmaprep"));
    let small = folder.join("agent");
    let stripped = Command::new("strip").arg("-o").arg(&small).arg(&program).output();
    if stripped.is_ok_and(|output| output.status.success()) { small } else { program }
}

/// A preflight with the small agent and nothing else; images are `docker-daemon` names.
fn bare(image: &str) -> Command {
    let mut command = rdmaprep();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NCCL_") || name.starts_with("STANDIN_")) {
        command.env_remove(name);
    }
    command.args(["preflight", image, "--gpu-access", "none", "--agent"]).arg(rigged().unwrap());
    command
}

fn small(image: &str) -> Command {
    let mut command = bare(image);
    command.args(SMALL);
    command
}

/// A small run with these variables.
fn with(variables: &[&str]) -> Command {
    let mut command = small(IMAGE);
    for variable in variables {
        command.args(["--env", variable]);
    }
    command
}

/// Containers of a run that was started by this process.
fn containers(pid: u32) -> Vec<String> {
    let filter = format!("label=rdmaprep.pid={pid}");
    must("docker", &["ps", "--all", "--quiet", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// To the end; no container is left.
#[track_caller]
fn finish(command: &mut Command) -> Ran {
    finish_with_pid(command).0
}

/// Like [`finish`], with the process's number.
#[track_caller]
fn finish_with_pid(command: &mut Command) -> (Ran, u32) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!(containers(pid), [""; 0], "{}", ran.stderr);
    (ran, pid)
}

/// A preflight with its report.
struct Judged {
    ran: Ran,
    report: Report,
}

/// Runs with JSON on stdout, which is as its schema says.
#[track_caller]
fn judge(command: &mut Command) -> Judged {
    let ran = finish(command.args(["--format", "json"]));
    let value: serde_json::Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", ran.stdout, ran.stderr));
    assert_valid(&validator("schemas/preflight.schema.json"), &value, "schemas/preflight.schema.json");
    Judged { report: serde_json::from_value(value).unwrap(), ran }
}

impl Judged {
    #[track_caller]
    fn exits(&self, code: i32) -> &Judged {
        assert_eq!(self.ran.code, Some(code), "{self}");
        self
    }

    fn run(&self) -> &RunFacts {
        &self.report.run.as_ref().unwrap().facts
    }

    #[track_caller]
    fn finding(&self, check: &str) -> &Finding {
        self.report.findings.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("{check}: {self}"))
    }

    /// A finding has this status, and its text these words.
    #[track_caller]
    fn finds(&self, check: &str, status: Status, words: &[&str]) -> &Judged {
        let finding = self.finding(check);
        assert_eq!(finding.status, status, "{finding:#?}");
        let text = format!("{}\n{}\n{:?}", finding.summary, finding.evidence.join("\n"), finding.remedy);
        for word in words {
            assert!(text.contains(word), "{word:?} is not in {finding:#?}");
        }
        self
    }

    /// Who is blamed.
    #[track_caller]
    fn blames(&self, check: &str, blame: Option<Fault>) -> &Judged {
        assert_eq!(self.finding(check).blame, blame, "{self}");
        self
    }

    #[track_caller]
    fn ends(&self, ending: AgentEnding) -> &Judged {
        assert_eq!(self.run().ending, Ending::Agent { ending }, "{self}");
        self
    }

    fn rdma(&self) -> RdmaUse {
        self.run().evidence.as_ref().map_or(RdmaUse::Unknown, |evidence| evidence.rdma)
    }
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {:?}, {:?}\n{}", self.ran.code, self.report.verdict, self.ran.stderr)?;
        let findings = self.report.findings.iter().filter(|finding| finding.status != Status::Pass);
        findings.into_iter().try_for_each(|finding| writeln!(f, "{finding:#?}"))
    }
}

// --- What goes well --------------------------------------------------------------------------------------------------

/// Every row of every type right, from so many ranks.
fn good_run(gpus: u32, per_gpu: u32) {
    if rigged().is_none() {
        return;
    }
    let gpu_count = format!("STANDIN_GPUS={gpus}");
    let per_gpu_text = per_gpu.to_string();
    let judged = judge(with(&[&gpu_count]).args(["-d", "float,half,bfloat16", "--ranks-per-gpu", &per_gpu_text]));
    judged.exits(0).ends(AgentEnding::Complete);
    assert_eq!(judged.report.verdict, Verdict::Pass, "{judged}");
    let (run, ranks) = (judged.run(), (gpus * per_gpu) as usize);
    let rows: Vec<_> = run.rows.iter().map(|row| (row.data_type, row.size_bytes)).collect();
    let types = [DataType::Float, DataType::Half, DataType::Bfloat16];
    assert_eq!(rows, types.iter().flat_map(|t| [(*t, 32 << 10), (*t, 64 << 10)]).collect::<Vec<_>>());
    assert!(run.rows.iter().all(|row| (row.out_of_place.wrong, row.in_place.wrong) == (Some(0), Some(0))));
    assert_eq!((run.ranks.len(), run.failures.len()), (ranks, 0), "{judged}");
    assert!(run.ranks.iter().all(|rank| rank.nccl_version_code == Some(22809) && rank.phase == Phase::Finish));
    judged.finds("data-correct", Status::Pass, &["12 results, every element correct"]);
    judged.finds("ranks-complete", Status::Pass, &[&format!("{ranks} rank"), "6 sizes and types"]);
    match (ranks, per_gpu) {
        (1, _) => {
            assert_eq!(judged.rdma(), RdmaUse::NotExercised, "{judged}");
            judged.finds("bandwidth", Status::Skip, &["not-exercised"]);
        }
        // One host proves nothing of a network (D21).
        (_, 1) => assert_eq!(judged.rdma(), RdmaUse::NotExercised, "{judged}"),
        // Sockets, on a machine without RDMA.
        _ => {
            assert_eq!(judged.rdma(), RdmaUse::No, "{judged}");
            judged.finds("rdma-used", Status::Warn, &["channels via NET/Socket", "no-rdma-hardware"]);
        }
    }
    judged.ran.says("ranks meet");
}

#[test]
fn one_rank() {
    good_run(1, 1);
}

#[test]
fn two_ranks() {
    good_run(2, 1);
}

#[test]
fn two_ranks_on_one_gpu() {
    good_run(1, 2);
}

#[test]
fn eight_ranks() {
    good_run(8, 1);
}

#[test]
fn sixteen_ranks() {
    good_run(8, 2);
}

#[test]
fn the_images_own_findings_count_unless_only_the_run_is_judged() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let name = names.unique("preflight-base");
    // The base fails its static checks: it has a Mellanox OFED.
    let folder = standin::build("preflight", &[]).unwrap();
    let lines = "FROM rdmaprep-test/base:latest\nCOPY libcuda.so.1 libnccl.so.2 /usr/local/standin/\n\
                 ENV LD_LIBRARY_PATH=/usr/local/standin STANDIN_CUDA_VERSION=12040 STANDIN_GPUS=2\n";
    build_apart(&folder, &name, lines);
    let judged = judge(bare(&name).args(["--network", "none", "-e", "64K", "-n", "2"]));
    judged.exits(1).ends(AgentEnding::Complete);
    judged.finds("ofed-packages", Status::Fail, &[]).finds("data-correct", Status::Pass, &[]);
    let judged = judge(&mut small(&name));
    judged.exits(0);
    assert!(!judged.report.findings.iter().any(|finding| finding.check == "ofed-packages"), "{judged}");
    let path = judged.run().ranks[0].nccl.as_ref().unwrap().path.clone();
    assert_eq!(path, "/usr/local/standin/libnccl.so.2");
}

/// Like [`build`], with a copy of the libraries for a context, since tests run side by side.
fn build_apart(folder: &Path, name: &str, dockerfile: &str) {
    let context = tempfile::tempdir().unwrap();
    for library in ["libcuda.so.1", "libnccl.so.2", "libibverbs.so.1"] {
        std::fs::copy(folder.join(library), context.path().join(library)).unwrap();
    }
    build(context.path(), name, dockerfile);
}

// --- RDMA ------------------------------------------------------------------------------------------------------------

#[test]
fn rdma_that_is_required_and_was_not_used() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(small(IMAGE).args(["--ranks-per-gpu", "2", "--require-rdma"]));
    judged
        .exits(4)
        .finds("rdma-used", Status::Fail, &["RDMA: no", "NET/Socket"])
        .blames("rdma-used", Some(Fault::Host));
    judged.finds("rdma-devices", Status::Fail, &["no-rdma-hardware"]);
    // Direct between GPUs of one host: nothing is proved, and it is the settings that have to change.
    let judged = judge(small(IMAGE).args(["--require-rdma"]));
    judged.exits(4).finds("rdma-used", Status::Fail, &["not exercised", "--force-nic"]);
    judged.blames("rdma-used", Some(Fault::Launch));
    // Through the network's way, and the settings say so.
    let judged = judge(small(IMAGE).args(["--force-nic"]));
    assert_eq!(judged.rdma(), RdmaUse::No);
    let set = |name: &str| judged.run().environment.as_ref().unwrap().variables.get(name).cloned();
    let given = ["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE"].map(set);
    assert_eq!(given, [Some("1".into()), Some("1".into()), Some("0".into())]);
}

#[test]
fn a_log_of_rdma_is_half_of_a_proof() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(with(&["STANDIN_NET=ib-gdr"]).args(["--ranks-per-gpu", "2"]));
    // This machine has no device whose counters could rise.
    judged.exits(3).finds("rdma-used", Status::Unknown, &["counters were not read"]);
    assert_eq!(judged.rdma(), RdmaUse::Unknown);
    let judged = judge(with(&["STANDIN_NET=ib-gdr"]).args(["--ranks-per-gpu", "2", "--require-rdma"]));
    judged.exits(1).finds("rdma-used", Status::Fail, &[]);
}

#[test]
fn a_threshold_of_the_bandwidth() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(small(IMAGE).args(["--min-busbw", "100000"]));
    judged.exits(4).finds("bandwidth", Status::Fail, &["at least 100000"]).blames("bandwidth", Some(Fault::Host));
    judge(small(IMAGE).args(["--min-busbw", "0.000001"])).exits(0);
    // What one rank cannot show is not shown (G03).
    judge(with(&["STANDIN_GPUS=1"]).args(["--min-busbw", "1"])).exits(3).finds("bandwidth", Status::Unknown, &[]);
}

/// One host is not measured by a figure of two, whatever it comes to; its NICs are counted.
#[test]
fn an_instance_type() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(small(IMAGE).args(["--instance", "ebmgn8v.48xlarge"]));
    let words = ["no baseline for 2 ranks on one host of ecs.ebmgn8v.48xlarge: the source measured 2 × 8 ranks"];
    judged.finds("instance-bandwidth", Status::Skip, &words);
    assert_eq!(judged.report.instance.as_ref().unwrap().nics, Some(2));
    assert!(judged.run().ranks.iter().all(|rank| rank.host == judged.run().hostname), "{judged}");
    let own = |device: &&rdmaprep::facts::rdma::RdmaDevice| device.vendor.as_deref() == Some("0x1ded");
    let found = judged.run().environment.as_ref().unwrap().rdma_devices.iter().filter(own).count();
    if found == 2 {
        judged.exits(0).finds("instance-nic-count", Status::Pass, &["2 devices of Alibaba eRDMA"]);
    } else {
        let words = ["but 2 are expected, as ecs.ebmgn8v.48xlarge has"];
        judged
            .exits(4)
            .finds("instance-nic-count", Status::Fail, &words)
            .blames("instance-nic-count", Some(Fault::Host));
    }
    // A type of which nobody says how many it has is held to nothing.
    let judged = judge(small(IMAGE).args(["--target", "ecs", "--instance", "ebmgn8ia.64xlarge"]));
    judged.exits(0).finds("instance-nic-count", Status::Skip, &["no document gives the number"]);
    judged.finds("instance-bandwidth", Status::Skip, &["no document reports a bandwidth for this type"]);
    // People see both without asking for what passed.
    let ran = finish(small(IMAGE).args(["--target", "ecs", "--instance", "ebmgn8ia.64xlarge"]));
    ran.expect(0).prints("no baseline for 2 ranks on one host").prints("for ecs on ecs.ebmgn8ia.64xlarge");
}

// --- What goes wrong -------------------------------------------------------------------------------------------------

#[test]
fn wrong_data_outweighs_everything() {
    if rigged().is_none() {
        return;
    }
    let wrong = "STANDIN_WRONG=element=5,bytes=65536,placement=in-place";
    let judged = judge(&mut with(&[wrong, "STANDIN_RANK=1"]));
    judged.exits(1).ends(AgentEnding::Complete);
    let words = ["data-corruption: 1 of 4 results", "65536 B in place: rank 1, element 5", "NCCL_P2P_DISABLE=1"];
    judged.finds("data-correct", Status::Fail, &words).blames("data-correct", Some(Fault::Image));
    assert_eq!(judged.report.findings[0].check, "data-correct");
    // With GPUDirect in use that is the first lead (G01).
    let judged = judge(with(&[wrong, "STANDIN_RANK=1", "STANDIN_NET=ib-gdr"]).args(["--ranks-per-gpu", "2"]));
    judged.exits(1).finds("data-correct", Status::Fail, &["rank 1, element 5"]);
    // A planted one is found in the same way.
    let judged = judge(small(IMAGE).args(["--plant-wrong", "0:32K:out-of-place:8191"]));
    judged.exits(1).finds("data-correct", Status::Fail, &["32768 B out of place: rank 0, element 8191"]);
    // A hang afterwards does not hide it.
    let judged = judge(
        with(&["STANDIN_WRONG=element=0,bytes=32768", "STANDIN_HANG=ncclCommDestroy"]).args(["--phase-timeout", "3"]),
    );
    judged.exits(1).ends(AgentEnding::PhaseTimeout).finds("data-correct", Status::Fail, &[]);
}

#[test]
fn a_missing_libcuda() {
    if rigged().is_none() {
        return;
    }
    // The image is right to have none: it comes with the GPUs.
    let judged = judge(&mut small("rdmaprep-test/debian:12"));
    judged.exits(4).ends(AgentEnding::Failed);
    judged.finds("cuda-library", Status::Fail, &["cannot open shared object file"]);
    judged.blames("cuda-library", Some(Fault::Launch)).blames("gpu-visible", Some(Fault::Launch));
    // With GPUs and without libcuda the host's toolkit did half of its work.
    let judged = judge(small("rdmaprep-test/debian:12").args(["--device", "/dev/null:/dev/nvidiactl"]));
    judged.exits(4).finds("cuda-library", Status::Fail, &["was not mounted into the container"]);
    judged.blames("cuda-library", Some(Fault::Host));
}

#[test]
fn a_libnccl_that_cannot_be_opened() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let mut image = |label: &str, lines: &str| {
        let name = names.unique(&format!("preflight-{label}"));
        derive_image(&name, &format!("FROM {IMAGE}\n{lines}\n"));
        name
    };
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libnccl.so.2";
    let missing = image("no-nccl", &format!("RUN rm {LIBRARY} && ldconfig"));
    let judged = judge(&mut small(&missing));
    judged.exits(1).finds("nccl-loaded", Status::Fail, &["the loader does not find libnccl.so.2"]);
    judged.blames("nccl-loaded", Some(Fault::Image)).finds("ranks-complete", Status::Fail, &["rank 0 in libraries"]);
    // A pointer of Git LFS in its place.
    let pointer = image("lfs", &format!("RUN echo version https://git-lfs.example/spec/v1 >{LIBRARY}"));
    let judged = judge(&mut small(&pointer));
    judged.exits(1).finds("nccl-loaded", Status::Fail, &["exists but cannot be opened"]);
    // What the user asked for is the user's.
    let judged = judge(small(IMAGE).args(["--nccl", "/opt/libnccl.so.2"]));
    judged.exits(4).finds("nccl-loaded", Status::Fail, &["/opt/libnccl.so.2"]);
    judge(small(&missing).args(["--nccl", LIBRARY])).exits(4);
    judge(small(IMAGE).args(["--nccl", LIBRARY])).exits(0);
}

/// Cases C06 and C08: one error code, told apart by `/dev/nvidiactl`.
#[test]
fn errors_of_the_driver() {
    if rigged().is_none() {
        return;
    }
    for (code, passed, words) in [
        (35, true, "driver-too-old"),
        (35, false, "were not passed"),
        (803, true, "of different versions"),
        (804, true, "of different versions"),
        (100, true, "the driver finds no GPU"),
        (100, false, "were not passed"),
    ] {
        let fail = format!("STANDIN_FAIL=cuInit:{code}");
        let mut command = with(&[&fail]);
        if passed {
            command.args(["--device", "/dev/null:/dev/nvidiactl"]);
        }
        let judged = judge(&mut command);
        judged.exits(4).ends(AgentEnding::Failed).finds("gpu-visible", Status::Fail, &[words]);
        judged.blames("gpu-visible", Some(if passed { Fault::Host } else { Fault::Launch }));
        assert_eq!(judged.run().ranks.len(), 0);
    }
}

/// Case E10: a hang without a warning has no cause.
#[test]
fn ranks_that_fall_silent_are_named() {
    if rigged().is_none() {
        return;
    }
    let hang = ["STANDIN_GPUS=3", "STANDIN_HANG=cuInit", "STANDIN_RANK=1"];
    let judged = judge(with(&hang).args(["--phase-timeout", "3"]));
    judged.exits(5).ends(AgentEnding::PhaseTimeout);
    let words = ["rank 1 of 3 silent in cuda for ", "ranks 0, 2 wait", "the cause is unknown", "Init START"];
    judged.finds("ranks-complete", Status::Fail, &words).blames("ranks-complete", None);
    let silent = judged.run().failures.iter().filter_map(|failed| match &failed.failure {
        Failure::Silent { behind, .. } => Some((failed.rank, failed.phase, *behind)),
        _ => None,
    });
    let mut silent: Vec<_> = silent.collect();
    silent.sort_unstable();
    assert_eq!(silent, [(0, Phase::Init, false), (1, Phase::Cuda, true), (2, Phase::Init, false)]);

    // After the ranks were initialised, with direct channels (E03): on the second operation the channels are there.
    let judged = judge(with(&["STANDIN_HANG=stream@2", "STANDIN_RANK=1"]).args(["--phase-timeout", "3"]));
    let words = ["silent in warmup", "PCIe ACS", "NCCL_P2P_DISABLE=1"];
    judged.exits(5).finds("ranks-complete", Status::Fail, &words).blames("ranks-complete", Some(Fault::Host));

    let judged = judge(with(&["STANDIN_HANG=ncclCommInitRank"]).args(["--timeout", "4"]));
    judged.exits(5).ends(AgentEnding::TotalTimeout);
    judged.finds("ranks-complete", Status::Fail, &["ranks 0, 1 of 2 silent in init", "NCCL logged nothing"]);

    let judged = judge(with(&["STANDIN_HANG=cuInit"]).args(["--phase-timeout", "2"]));
    judged.exits(5).ends(AgentEnding::PhaseTimeout).finds("ranks-complete", Status::Fail, &["no rank was started"]);
}

#[test]
fn ranks_that_crash_or_fail_are_named() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(&mut with(&["STANDIN_CRASH=ncclAllReduce@5", "STANDIN_RANK=1", "STANDIN_NCCL_VERSION=22105"]));
    judged.exits(1).ends(AgentEnding::Failed);
    let words = ["rank 1 in collective (32768 B, out of place): ended by signal 11 (SIGSEGV)"];
    judged.finds("ranks-complete", Status::Fail, &words).blames("ranks-complete", Some(Fault::Image));
    // The release that is known for it.
    let judged = judge(&mut with(&["STANDIN_CRASH=ncclCommInitRank", "STANDIN_RANK=0"]));
    judged.exits(1).finds("ranks-complete", Status::Fail, &["NCCL 2.28.9 is known to crash"]);
    // An error without a line that explains it has no cause (G07).
    let judged = judge(&mut with(&["STANDIN_FAIL=ncclAllReduce:3@5"]));
    judged.exits(1).finds("ranks-complete", Status::Fail, &["ncclAllReduce: internal error", "the cause is unknown"]);
    judged.blames("ranks-complete", None);
    // A rank that stops without a word.
    let judged = judge(&mut with(&["STANDIN_CRASH=ncclCommInitRank:EXIT=3", "STANDIN_RANK=1"]));
    judged.exits(1).finds("ranks-complete", Status::Fail, &["rank 1 in init: ended with exit code 3"]);
}

/// Cases C08, E01, E06 and E09: NCCL's own words, and an error after them.
#[test]
fn what_nccl_warns_of_explains_its_error() {
    if rigged().is_none() {
        return;
    }
    let shm = "Error while creating shared memory segment /dev/shm/nccl-XXXXXX (size 9637888), error: No space left on device (28)";
    let driver = "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'";
    for (warning, arguments, cause, also, blame) in [
        (shm, ["--shm-size", "32M"].as_slice(), "shm-too-small", Some("shm-size"), Fault::Launch),
        (
            "Socket creation failed : Address family not supported by protocol",
            &[],
            "no-ip-interface",
            Some("network-mode"),
            Fault::Launch,
        ),
        (driver, &["--device", "/dev/null:/dev/nvidiactl"], "driver-too-old", Some("driver-version"), Fault::Host),
        (driver, &[], "gpu-not-passed", None, Fault::Launch),
        ("Call to bind failed: Address already in use", &[], "port-in-use", None, Fault::Launch),
    ] {
        let warn = format!("STANDIN_WARN={warning}");
        let judged = judge(with(&[&warn, "STANDIN_FAIL=ncclAllReduce:2@1"]).args(arguments));
        let words = [&format!("{cause}: "), warning, "in connect: ncclAllReduce: unhandled system error"];
        judged.exits(4).finds("ranks-complete", Status::Fail, &words).blames("ranks-complete", Some(blame));
        if let Some(check) = also {
            judged.finds(check, Status::Fail, &[&format!("{cause}: "), warning]);
        }
    }
}

/// Case D23: NCCL does without, and goes on.
#[test]
fn a_warning_that_ends_nothing() {
    if rigged().is_none() {
        return;
    }
    let warn = "STANDIN_WARN=Call to ibv_reg_dmabuf_mr failed with error Operation not supported";
    let judged = judge(&mut with(&[warn]));
    judged.exits(0).ends(AgentEnding::Complete).finds("ranks-complete", Status::Pass, &[]);
    let causes = &judged.run().evidence.as_ref().unwrap().causes;
    assert!(causes.iter().any(|cause| cause.id.name() == "dmabuf-unsupported"), "{causes:#?}");
    // A crash has nothing to do with it.
    let judged = judge(&mut with(&[warn, "STANDIN_CRASH=ncclAllReduce@5", "STANDIN_RANK=1"]));
    judged.exits(1).finds("ranks-complete", Status::Fail, &["rank 1 in collective (32768 B, out of place): ended"]);
    assert!(!judged.finding("ranks-complete").summary.contains("dmabuf"), "{judged}");
}

/// Case E07.
#[test]
fn ranks_with_different_nccls() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(&mut with(&["STANDIN_GPUS=3", "STANDIN_OTHER_NCCL_VERSION=21903", "STANDIN_RANK=1"]));
    let words = ["nccl-version-skew", "rank 1 with 2.19.3", "ranks 0, 2 with 2.28.9"];
    judged.exits(1).finds("nccl-same-everywhere", Status::Fail, &words);
    judged.blames("nccl-same-everywhere", Some(Fault::Image));
}

#[test]
fn the_toolkits_stub() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let name = names.unique("preflight-stub");
    let library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1";
    let stubs = "/usr/local/cuda/lib64/stubs";
    derive_image(
        &name,
        &format!(
            "FROM {IMAGE}\nRUN mkdir -p {stubs} && mv {library} {stubs} && ldconfig\nENV LD_LIBRARY_PATH={stubs}\n"
        ),
    );
    let judged = judge(small(&name).args(["--device", "/dev/null:/dev/nvidiactl"]));
    judged.exits(1).finds("cuda-library", Status::Fail, &["stub", "/usr/local/cuda/lib64/stubs/libcuda.so.1"]);
    judged.blames("cuda-library", Some(Fault::Image));
}

#[test]
fn a_rank_that_is_killed_for_memory() {
    let Some(agent) = rigged() else { return };
    let mut names = Names::new();
    let gate = tempfile::tempdir().unwrap();
    let name = names.unique("preflight-memory");
    // It waits until the container has its limit.
    derive_image(
        &name,
        &format!(
            "FROM {IMAGE}\nRUN printf '#!/bin/sh\\nuntil [ -e /gate/open ]; do sleep 0.05; done\\nexec \"$@\"\\n' >/wait && \
             chmod +x /wait\nENTRYPOINT [\"/wait\"]\n"
        ),
    );
    let mount = format!("{}:/gate:ro", gate.path().display());
    let mut command = small(&name);
    command.args(["--keep-entrypoint", "--mount", &mount, "--env", "STANDIN_EAT_MIB=ncclAllReduce:2000@3"]);
    command.args(["--env", "STANDIN_RANK=1", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let container = running(child.id());
    let limit = format!("{}", std::fs::metadata(agent).unwrap().len() + (400 << 20));
    let limited =
        Command::new("docker").args(["update", "--memory", &limit, "--memory-swap", &limit, &container]).output();
    let limited = Ran::of(&limited.unwrap());
    std::fs::write(gate.path().join("open"), "").unwrap();
    let output = Ran::of(&child.wait_with_output().unwrap());
    if limited.code != Some(0) {
        return say_skipped(&format!("the engine sets no limit of memory: {}", limited.stderr.trim()));
    }
    let report: Report = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr));
    let judged = Judged { ran: output, report };
    judged.exits(4).ends(AgentEnding::Failed).blames("ranks-complete", Some(Fault::Host));
    judged.finds("ranks-complete", Status::Fail, &["rank 1 in ", "killed for memory, of which"]);
    let failure = judged.run().failures.iter().find(|failed| failed.rank == 1).unwrap();
    let Failure::OutOfMemory { limit_bytes: Some(bytes) } = failure.failure else { panic!("{judged}") };
    // The kernel counts in pages.
    assert!(bytes.abs_diff(limit.parse().unwrap()) < 1 << 16, "{bytes} {limit}");
}

/// The container of a run, when it runs.
fn running(pid: u32) -> String {
    let filter = format!("label=rdmaprep.pid={pid}");
    let begun = Instant::now();
    loop {
        let id = must("docker", &["ps", "--quiet", "--filter", &filter, "--filter", "status=running"]);
        if let Some(id) = id.lines().next() {
            return id.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "no container of process {pid} runs");
    }
}

#[test]
fn what_is_asked_of_shared_memory_and_gpus() {
    if rigged().is_none() {
        return;
    }
    let judged = judge(small(IMAGE).args(["--shm-size", "32M"]));
    judged.exits(0).finds("shm-size", Status::Warn, &["33.6 MB"]);
    let judged = judge(small(IMAGE).args(["--gpus", "3"]));
    judged.exits(4).finds("ranks-complete", Status::Fail, &["3 GPUs were requested, but the container sees 2"]);
    judged.blames("ranks-complete", Some(Fault::Launch));
    let judged = judge(small(IMAGE).args(["--gpus", "1,"]));
    judged.exits(0);
    assert_eq!(judged.run().ranks.iter().map(|rank| rank.gpu).collect::<Vec<_>>(), [1]);
}

// --- Target, policy, settings ----------------------------------------------------------------------------------------

#[test]
fn the_version_that_was_loaded_is_held_to_the_target() {
    if rigged().is_none() {
        return;
    }
    const OLD: &str = "STANDIN_NCCL_VERSION=21805";
    let judged = judge(&mut with(&[OLD]));
    judged.exits(1).finds("nccl-loaded-version", Status::Fail, &["NCCL 2.18.5", "2.19.0 or newer"]);
    judged.blames("nccl-loaded-version", Some(Fault::Image));
    // Where the platform asks for none.
    let judged = judge(with(&[OLD]).args(["--target", "ecs"]));
    judged.exits(0).finds("nccl-loaded-version", Status::Pass, &["2.18.5"]);
    assert_eq!(judged.report.target, "ecs");
    // Where a policy says that it is for people to judge.
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.toml");
    std::fs::write(&policy, "[checks]\nnccl-loaded-version = 'advice'\n").unwrap();
    let judged = judge(with(&[OLD]).arg("--policy").arg(&policy));
    judged.exits(0).finds("nccl-loaded-version", Status::Warn, &["2.19.0 or newer"]);
    assert_eq!(judged.report.policy.as_ref().unwrap().overrides.len(), 1);
    std::fs::write(&policy, "[checks]\nno-such-check = 'off'\n").unwrap();
    finish(with(&[OLD]).arg("--policy").arg(&policy)).expect(2);
    // Every warning counts where the bar is so.
    judge(small(IMAGE).args(["--fail-on", "warn"])).exits(4).finds("rdma-devices", Status::Warn, &[]);
}

/// What a container had of a variable, and who set it.
fn variable(judged: &Judged, name: &str) -> (Option<String>, Option<Origin>) {
    let run = judged.run();
    let had = run.environment.as_ref().and_then(|environment| environment.variables.get(name)).cloned();
    (had, run.launch.variables.iter().find(|variable| variable.name == name).map(|variable| variable.origin))
}

/// Cases D15 and G07.
#[test]
fn variables_of_image_target_user_and_run() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let name = names.unique("preflight-settings");
    derive_image(
        &name,
        &format!(
            "FROM {IMAGE}\nENV NCCL_IB_DISABLE=1 NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=COLL NCCL_DEBUG_FILE=/tmp/nccl.%h.%p \
             NCCL_IB_HCA=mlx5 NCCL_IB_TIMEOUT=20\n"
        ),
    );
    let judged = judge(small(&name).args(["--env", "NCCL_MIN_NCHANNELS=4", "--env", "NCCL_DEBUG=TRACE"]));
    judged.exits(0);
    let has = |name: &str, value: &str, origin: Origin| {
        assert_eq!(variable(&judged, name), (Some(value.to_owned()), Some(origin)), "{name}");
    };
    has("NCCL_IB_DISABLE", "0", Origin::Run);
    has("NCCL_DEBUG", "INFO", Origin::Run);
    has("NCCL_IB_HCA", "erdma", Origin::Preset);
    has("NCCL_IB_TIMEOUT", "20", Origin::Image);
    has("NCCL_MIN_NCHANNELS", "4", Origin::User);
    // Cleared, so that the agent sees the log: it is in a file per rank.
    for name in ["NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"] {
        assert_eq!(variable(&judged, name), (None, Some(Origin::Run)), "{name}");
    }
    let transports = &judged.run().evidence.as_ref().unwrap().transports;
    assert_eq!(transports.get("P2P/CUMEM"), Some(&4), "{judged}");
    let words = ["the image sets NCCL_IB_DISABLE=1, which switches RDMA off", "this run overrode it with \"0\""];
    judged.finds("settings-in-effect", Status::Warn, &words).blames("settings-in-effect", Some(Fault::Image));
    // What the user wants stays, and is said.
    let judged = judge(small(&name).args(["--env", "NCCL_IB_DISABLE=1", "--no-presets"]));
    judged.exits(0).finds("settings-in-effect", Status::Warn, &["NCCL_IB_DISABLE=1 (user"]);
    assert_eq!(variable(&judged, "NCCL_IB_HCA"), (Some("mlx5".into()), Some(Origin::Image)));
    assert_eq!(variable(&judged, "NCCL_MIN_NCHANNELS"), (None, None));
}

/// A value from this process's environment, and one that is a secret.
#[test]
fn values_by_name_and_secrets() {
    if rigged().is_none() {
        return;
    }
    let mut command = with(&["NCCL_FROM_HERE", "MY_TOKEN=hunter2"]);
    let judged = judge(command.env("NCCL_FROM_HERE", "a b=c"));
    judged.exits(0);
    assert_eq!(variable(&judged, "NCCL_FROM_HERE"), (Some("a b=c".into()), Some(Origin::User)));
    assert!(!judged.ran.stdout.contains("hunter2") && !judged.ran.stderr.contains("hunter2"), "{judged}");
    finish(&mut with(&["NCCL_NOT_SET_ANYWHERE"])).expect(2).says("is not set here");
}

// --- Images ----------------------------------------------------------------------------------------------------------

#[test]
fn entrypoints_and_users() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let mut image = |label: &str, lines: &str| {
        let name = names.unique(&format!("preflight-{label}"));
        derive_image(&name, &format!("FROM {IMAGE}\n{lines}\n"));
        name
    };
    let script =
        |text: &str| format!("RUN printf '#!/bin/sh\\n{text}\\n' >/entry && chmod +x /entry\nENTRYPOINT [\"/entry\"]");
    let banner =
        image("banner", &script("echo == PyTorch ==; echo {\\\"message\\\":1}; export NCCL_FROM_ENTRY=1; exec \"$@\""));
    let judged = judge(small(&banner).args(["--keep-entrypoint"]));
    judged.exits(0).ends(AgentEnding::Complete);
    assert_eq!(variable(&judged, "NCCL_FROM_ENTRY").0.as_deref(), Some("1"));
    // Otherwise the agent is the entrypoint.
    let judged = judge(&mut small(&banner));
    judged.exits(0);
    assert_eq!(variable(&judged, "NCCL_FROM_ENTRY").0, None);

    let broken = image("broken", "ENTRYPOINT [\"/no/such/program\"]\nCMD [\"x\"]");
    judge(&mut small(&broken)).exits(0).ends(AgentEnding::Complete);
    let judged = judge(small(&broken).args(["--keep-entrypoint"]));
    assert!(matches!(judged.run().ending, Ending::NotStarted { .. }), "{judged}");
    judged.exits(1).finds("container-start", Status::Fail, &["entrypoint cannot be started: /no/such/program"]);
    let fails = image("fails", &script("echo no licence; exit 7"));
    let judged = judge(small(&fails).args(["--keep-entrypoint"]));
    judged.finds("container-start", Status::Unknown, &["exit code 7", "no licence"]).exits(1);

    let user = image("user", "USER 1000:1000\nWORKDIR /srv");
    let judged = judge(&mut small(&user));
    judged.exits(0).ends(AgentEnding::Complete);
    assert_eq!(judged.run().environment.as_ref().unwrap().effective_uid, 1000);
    assert_eq!(judged.run().evidence.as_ref().unwrap().transports.get("P2P/CUMEM"), Some(&4), "{judged}");
}

#[test]
fn images_in_which_nothing_of_glibc_starts() {
    if rigged().is_none() {
        return;
    }
    let busybox = Path::new("/bin/busybox");
    if !busybox.exists() {
        return say_skipped("there is no /bin/busybox (tests/rig/deps.sh test)");
    }
    let mut names = Names::new();
    let name = names.unique("preflight-scratch");
    let context = tempfile::tempdir().unwrap();
    std::fs::copy(busybox, context.path().join("busybox")).unwrap();
    build(context.path(), &name, "FROM scratch\nCOPY busybox /bin/busybox\nCMD [\"/bin/busybox\", \"sh\"]\n");
    let ran = finish(&mut small(&name));
    ran.expect(1).says("the loader of glibc programs").says("base the image on a distribution with glibc");
    assert_eq!(ran.stdout, "");
}

#[test]
fn what_cannot_be_launched() {
    if rigged().is_none() {
        return;
    }
    finish(&mut small("rdmaprep-test/no-such-image:1")).expect(3).says("has no image").says("docker pull");
    let usage = |arguments: &[&str], words: &str| {
        finish(bare(IMAGE).args(arguments)).expect(2).says(words);
    };
    usage(&["-b", "1M", "-e", "1K"], "no size is left to measure");
    usage(&["--gpus", "0"], "--gpus");
    usage(&["--gpus", "1,1"], "named twice");
    usage(&["-d", "double"], "--datatype");
    usage(&["--env", "=x"], "a variable's name has no spaces");
    usage(&["--mount", "relative:/x"], "--mount");
    usage(&["--target", "nowhere"], "known targets");
    usage(&["--rdma-device", "erdma_77"], "this host has no such device");
    usage(&["-o", "yaml=x"], "formats");
    usage(&["--format", "json", "-o", "text=-"], "exclude each other");
    finish(bare("oci:/no/such/folder").args(SMALL)).expect(2);
    // What is not on the host is the host's.
    let judged = judge(small(IMAGE).args(["--mount", "/no/such/folder:/x"]));
    judged.exits(4).finds("container-start", Status::Fail, &["/no/such/folder"]);
    let judged = judge(small(IMAGE).args(["--device", "/dev/no-such-device"]));
    judged.exits(4).finds("container-start", Status::Fail, &["/dev/no-such-device"]);
}

/// Case F24, where the host has no toolkit.
#[test]
fn ways_to_gpus_that_this_host_has_not() {
    if rigged().is_none() {
        return;
    }
    if Path::new("/dev/nvidiactl").exists() {
        return say_skipped("this host has GPUs");
    }
    let mut command = rdmaprep();
    command.args(["preflight", IMAGE]).args(SMALL).arg("--agent").arg(rigged().unwrap());
    finish(&mut command).expect(4).says("the container cannot get GPUs").says("nvidia: ").says("cdi: ");
}

#[test]
fn a_dry_run_makes_no_container() {
    if rigged().is_none() {
        return;
    }
    let mut names = Names::new();
    let name = names.unique("preflight-dry");
    must("docker", &["tag", IMAGE, &name]);
    let now = || must("date", &["+%s.%N"]).trim().to_owned();
    let begun = now();
    let (ran, pid) = finish_with_pid(small(&name).args([
        "--dry-run",
        "--env",
        "NCCL_DEBUG_SUBSYS=ALL",
        "--env",
        "MY_TOKEN=hunter2",
    ]));
    ran.expect(0).prints("docker run --rm --network none ").prints(&format!(" {name}")).prints("NCCL_IB_HCA=erdma");
    ran.prints("# NCCL_DEBUG=INFO (this run)");
    ran.prints("# MY_TOKEN=*** (user; from the environment of the shell that runs the line)");
    assert!(!ran.stdout.contains("hunter2") && !ran.stdout.contains("privileged"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("starting"), "{}", ran.stderr);
    // Other tests make containers meanwhile; those of this run would have its process for a label.
    let filter = format!("label=rdmaprep.pid={pid}");
    let made = must(
        "docker",
        &["events", "--since", &begun, "--until", &now(), "--filter", "event=create", "--filter", &filter],
    );
    assert_eq!(made, "");
}

// --- Forms of the result ---------------------------------------------------------------------------------------------

/// What nccl-tests' text says, read without regard to how it is written: by lines and words.
struct NcclTests {
    /// Size, count, type, and per placement time, algbw, busbw, wrong.
    rows: Vec<(u64, u64, String, [[f64; 4]; 2])>,
    wrong: Option<(u64, String)>,
    busbw: Option<f64>,
    ranks: usize,
}

impl NcclTests {
    fn read(text: &str) -> NcclTests {
        let mut read = NcclTests { rows: Vec::new(), wrong: None, busbw: None, ranks: 0 };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["#", "Rank", ..] => read.ranks += 1,
                ["#", "Out", "of", "bounds", "values", ":", count, word] => {
                    read.wrong = Some((count.parse().unwrap(), (*word).to_owned()));
                }
                ["#", "Avg", "bus", "bandwidth", ":", value] => read.busbw = Some(value.parse().unwrap()),
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [size, count, data_type, "sum", "-1", numbers @ ..] => {
                    assert_eq!(numbers.len(), 8, "{line}");
                    let number = |at: usize| numbers[at].parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
                    let four = |from: usize| [number(from), number(from + 1), number(from + 2), number(from + 3)];
                    let (size, count) = (size.parse().unwrap(), count.parse().unwrap());
                    read.rows.push((size, count, (*data_type).to_owned(), [four(0), four(4)]));
                }
                _ => panic!("{line:?} is neither a row nor a remark"),
            }
        }
        read
    }
}

#[test]
fn the_text_of_nccl_tests() {
    if rigged().is_none() {
        return;
    }
    let ran = finish(small(IMAGE).args(["--format", "nccl-tests", "-d", "float,half"]));
    ran.expect(0);
    let read = NcclTests::read(&ran.stdout);
    let heads: Vec<_> =
        read.rows.iter().map(|(size, count, data_type, _)| (*size, *count, data_type.as_str())).collect();
    let expected = [(32768, 8192, "float"), (65536, 16384, "float"), (32768, 16384, "half"), (65536, 32768, "half")];
    assert_eq!(heads, expected);
    assert_eq!((read.ranks, read.wrong), (2, Some((0, "OK".to_owned()))));
    let mut all = Vec::new();
    for (size, _, _, placements) in &read.rows {
        for [time, algbw, busbw, wrong] in placements {
            let expected = *size as f64 / 1e3 / time;
            // Two decimals, of a time that was rounded, too.
            assert!(
                (algbw - expected).abs() < 0.02 && (busbw - algbw).abs() < 0.011 && *wrong == 0.0,
                "{}",
                ran.stdout
            );
            all.push(*busbw);
        }
    }
    let average = all.iter().sum::<f64>() / all.len() as f64;
    assert!((read.busbw.unwrap() - average).abs() < 0.01, "{average}: {}", ran.stdout);

    let wrong =
        finish(with(&["STANDIN_WRONG=element=5,bytes=65536,placement=in-place"]).args(["--format", "nccl-tests"]));
    let read = NcclTests::read(&wrong.expect(1).stdout);
    assert_eq!(read.wrong, Some((1, "FAILED".to_owned())));
    assert_eq!(read.rows[1].3[1][3], 2.0, "both ranks have one: {}", wrong.stdout);
    let failed = finish(with(&["STANDIN_CRASH=ncclAllReduce@9", "STANDIN_RANK=1"]).args(["--format", "nccl-tests"]));
    let read = NcclTests::read(&failed.expect(1).stdout);
    assert_eq!((read.wrong, read.busbw), (None, None));
    failed.prints("# error: rank 1 in ");
}

#[test]
fn several_forms_and_logs_at_once() {
    if rigged().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut command = with(&["STANDIN_WRONG=element=5", "STANDIN_RANK=0"]);
    for (form, name) in
        [("json", "a.json"), ("junit", "a.xml"), ("sarif", "a.sarif"), ("github", "a.github"), ("nccl-tests", "a.nccl")]
    {
        command.arg("-o").arg(format!("{form}={}", at(name).display()));
    }
    let logs = at("logs/of/ranks");
    let ran = finish(command.arg("--nccl-logs").arg(&logs));
    ran.expect(1).prints("FAIL     data-correct").prints("FAIL for pai-dlc");
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text("a.json")).unwrap();
    assert_valid(&validator("schemas/preflight.schema.json"), &json, "schemas/preflight.schema.json");
    let sarif: serde_json::Value = serde_json::from_str(&text("a.sarif")).unwrap();
    assert_valid(&validator("tests/data/sarif-schema-2.1.0.json"), &sarif, "tests/data/sarif-schema-2.1.0.json");
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["ruleId"] == "data-correct" && result["level"] == "error"), "{sarif}");
    let junit = quick_junit::Report::deserialize_from_str(&text("a.xml")).unwrap();
    let findings = json["findings"].as_array().unwrap().len();
    assert_eq!(junit.test_suites[0].test_cases.len(), findings);
    assert!(text("a.github").lines().any(|line| line.starts_with("::error ") && line.contains("data-corruption")));
    assert_eq!(NcclTests::read(&text("a.nccl")).wrong, Some((4, "FAILED".to_owned())));
    let mut names: Vec<_> =
        std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["rank-0.log", "rank-1.log"]);
    for (rank, name) in names.iter().enumerate() {
        let log = std::fs::read_to_string(logs.join(name)).unwrap();
        assert!(log.contains(&format!("rank {rank} nranks 2")) && log.contains("Init COMPLETE"), "{log}");
    }
}

#[test]
fn places_that_take_no_result() {
    if rigged().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    // Before anything is launched.
    let ran = finish(small(IMAGE).arg("--nccl-logs").arg(file.join("logs")));
    ran.expect(4).says("writing ");
    assert!(!ran.stderr.contains("starting"), "{}", ran.stderr);
    let missing = format!("json={}", file.join("x.json").display());
    finish(small(IMAGE).args(["-o", &missing])).expect(4).says("writing ").prints("PASS for pai-dlc");
}

// --- Ends ------------------------------------------------------------------------------------------------------------

/// A run that hangs in init, when it says this.
fn hanging(said: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    hanging_with(&[], said)
}

fn hanging_with(arguments: &[&str], said: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = with(&["STANDIN_HANG=ncclCommInitRank"]);
    command.args(arguments);
    hanging_as(command, said)
}

fn hanging_as(mut command: Command, said: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let (begun, mut line) = (Instant::now(), String::new());
    while !line.contains(said) {
        line.clear();
        let read = lines.read_line(&mut line).unwrap();
        assert!(read > 0 && begun.elapsed() < PATIENCE, "{said:?} was never said");
    }
    (child, lines)
}

fn kill(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn an_interrupt_leaves_nothing() {
    if rigged().is_none() {
        return;
    }
    use rustix::process::Signal;
    // While the container is made, and while the ranks hang.
    let meeting = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| (signal, "ranks meet"));
    for (signal, said) in [(Signal::INT, "starting")].into_iter().chain(meeting) {
        let (mut child, mut lines) = hanging(said);
        if said == "ranks meet" {
            assert_eq!(containers(child.id()).len(), 1);
        }
        let begun = Instant::now();
        kill(&child, signal);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
        assert!(rest.contains("interrupted") && begun.elapsed() < Duration::from_secs(30), "{rest}");
        assert_eq!(containers(child.id()), [""; 0]);
    }
}

#[test]
fn a_hangup_that_nohup_ignores_is_ignored() {
    if rigged().is_none() {
        return;
    }
    use rustix::process::Signal;
    let plain = with(&["STANDIN_HANG=ncclCommInitRank"]);
    let mut command = Command::new("nohup");
    command.arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (mut child, mut lines) = hanging_as(command, "ranks meet");
    kill(&child, Signal::HUP);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(child.try_wait().unwrap(), None);
    assert_eq!(containers(child.id()).len(), 1);
    kill(&child, Signal::TERM);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert_eq!(containers(child.id()), [""; 0]);
}

#[test]
fn what_a_killed_run_left_is_cleaned_up() {
    if rigged().is_none() {
        return;
    }
    let (mut child, _lines) = hanging("ranks meet");
    kill(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert_eq!(containers(child.id()).len(), 1);
    let ran = finish(rdmaprep().arg("clean"));
    ran.expect(0).prints("removed rdmaprep-");
    assert_eq!(containers(child.id()), [""; 0]);
}

/// A container that somebody else ends.
#[test]
fn a_container_that_ends_under_the_agent() {
    if rigged().is_none() {
        return;
    }
    for how in [["kill"].as_slice(), &["stop", "--time", "20"], &["rm", "--force"]] {
        let (mut child, mut lines) = hanging_with(&["--format", "json"], "ranks meet");
        let container = running(child.id());
        let arguments: Vec<&str> = how.iter().copied().chain([container.as_str()]).collect();
        must("docker", &arguments);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        lines.read_to_string(&mut stderr).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!(containers(child.id()), [""; 0]);
        let report: Report = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{how:?}: {e}: {stderr}"));
        let judged = Judged { ran: Ran { code, stdout, stderr }, report };
        match (&judged.run().ending, how[0]) {
            // The agent hears it, and says what it has.
            (Ending::Agent { ending: AgentEnding::Interrupted }, "stop") => judged.exits(130),
            (Ending::ContainerEnded { exit_code: 137, .. }, "kill" | "rm") => {
                judged.finds("ranks-complete", Status::Fail, &["exit code 137", "rank 0 in init"]).exits(4)
            }
            (other, how) => panic!("{how}: {other:?}\n{judged}"),
        };
    }
}

/// Case E09: two runs in the host's network, each with its own port.
#[test]
fn two_runs_at_once_do_not_meet() {
    if rigged().is_none() {
        return;
    }
    let run = |wrong: Option<&str>| {
        let mut command = bare(IMAGE);
        command.args(["--run-only", "--network", "host", "-b", "32K", "-e", "64K", "-n", "20"]);
        if let Some(variable) = wrong {
            command.args(["--env", variable]);
        }
        judge(&mut command)
    };
    std::thread::scope(|scope| {
        let (good, bad) = (scope.spawn(|| run(None)), scope.spawn(|| run(Some("STANDIN_WRONG=element=1,bytes=32768"))));
        let (good, bad) = (good.join().unwrap(), bad.join().unwrap());
        good.exits(0).finds("data-correct", Status::Pass, &[]).finds("network-mode", Status::Pass, &[]);
        bad.exits(1).finds("data-correct", Status::Fail, &["2 of 4 results", "4 elements"]);
        assert_ne!(good.report.image.as_ref().unwrap().id, "");
    });
}

#[test]
fn a_run_over_tcp_stands_beside() {
    if rigged().is_none() {
        return;
    }
    let mut command = with(&["STANDIN_NET=ib-gdr", "NCCL_NET=IB"]);
    let judged = judge(command.args(["--gpus", "1", "--ranks-per-gpu", "2", "--compare-socket"]));
    let run = judged.report.run.as_ref().unwrap();
    let socket = run.over_socket.as_ref().unwrap();
    assert_eq!(socket.failure, None);
    assert_eq!((run.rows.len(), socket.rows.len()), (2, 2));
    let over = |name: &str| run.facts.launch.variables.iter().find(|v| v.name == name).map(|v| v.value.as_str());
    // What the second run is given is not the first one's.
    assert_eq!((over("NCCL_NET"), over("NCCL_IB_DISABLE")), (Some("IB"), None));
    let ran = finish(with(&[]).args(["--gpus", "1", "--ranks-per-gpu", "2", "--compare-socket", "--format", "text"]));
    ran.prints("compared with TCP").prints("  over TCP");
    // One that breaks off has nothing to stand beside it.
    let broken = judge(with(&["STANDIN_FAIL=ncclAllReduce:3"]).arg("--compare-socket"));
    assert!(broken.report.run.unwrap().over_socket.is_none());
}
