//! The agent without a container: the supervisor with its ranks, on the stand-ins of `tests/standin`. Every way to fail is
//! told with its kind, its phase and its rank, and no process is left.

use crate::support::skipping;
use crate::support::standin;

use rdmaprep::facts::run::*;
use skipping::say_skipped;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit of a phase where one is to be exceeded: no other phase takes so long, on a busy machine either.
const SHORT_MS: u64 = 2500;
/// Names the run in the environment of all of its processes.
const MARK: &str = "RDMAPREP_TEST_RUN";
const WITHOUT: [&str; 6] =
    ["cuInit", "cuStreamQuery", "ncclAllReduce", "ncclMemAlloc", "ncclGetLastError", "ibv_open_device"];

fn built() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| standin::build("agent", &WITHOUT)) {
        Ok(folder) => Some(folder),
        Err(reason) => {
            say_skipped(reason);
            None
        }
    }
}

/// One run: a plan, the environment, and where libraries are looked for.
struct Case {
    plan: AgentPlan,
    variables: Vec<(String, String)>,
    libraries: Vec<PathBuf>,
    mark: String,
    directory: tempfile::TempDir,
}

impl Case {
    /// So many GPUs with a rank each, two sizes, floats; nothing that goes wrong.
    fn new(folder: &Path, ranks: u32) -> Case {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        let collective = Collective {
            min_bytes: 1024,
            max_bytes: 2048,
            step_factor: 2,
            step_bytes: 0,
            iterations: 2,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        };
        let plan = AgentPlan {
            protocol: PROTOCOL,
            directory: directory.path().to_str().unwrap().to_owned(),
            gpus: GpuSelection::All,
            ranks_per_gpu: 1,
            nccl: None,
            collective,
            phase_timeout_ms: 60_000,
            total_timeout_ms: 120_000,
            plant: None,
        };
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Case {
            plan,
            variables: vec![("STANDIN_GPUS".into(), ranks.to_string())],
            libraries: vec![folder.to_path_buf()],
            mark,
            directory,
        }
    }

    fn set(mut self, name: &str, value: &str) -> Case {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// What is asked of one rank alone.
    fn at_rank(self, rank: u32, name: &str, value: &str) -> Case {
        self.set("STANDIN_RANK", &rank.to_string()).set(name, value)
    }

    fn plan(mut self, change: impl FnOnce(&mut AgentPlan)) -> Case {
        change(&mut self.plan);
        self
    }

    fn phase_timeout(self, milliseconds: u64) -> Case {
        self.plan(|plan| plan.phase_timeout_ms = milliseconds)
    }

    fn libraries(mut self, folders: &[PathBuf]) -> Case {
        self.libraries = folders.to_vec();
        self
    }

    fn start(&self) -> Child {
        let path = self.directory.path().join("plan.json");
        std::fs::write(&path, serde_json::to_vec(&self.plan).unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdmaprep"));
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in names.filter(|name| ["NCCL_", "CUDA_", "STANDIN_"].iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
        command.args(["agent", "run"]).arg(path).env(MARK, &self.mark);
        command.env("LD_LIBRARY_PATH", std::env::join_paths(&self.libraries).unwrap());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// To the end; and nothing of it runs afterwards.
    fn run(self) -> Ran {
        let child = self.start();
        let (pid, begun) = (child.id(), Instant::now());
        let output = child.wait_with_output().unwrap();
        let took = begun.elapsed();
        assert_gone(&self.mark);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let messages = stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")));
        let stderr = String::from_utf8(output.stderr).unwrap();
        Ran { messages: messages.collect(), code: output.status.code(), stderr, took, pid }
    }
}

/// Processes that belong to a run, but zombies: they have no environment any more.
fn processes(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let folders = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let own = folders.filter(|folder| {
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    });
    let said = own.map(|folder| {
        let command = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        format!("{}: {}", folder.display(), String::from_utf8_lossy(&command).replace('\0', " "))
    });
    said.collect()
}

/// The kernel ends what was killed in its own time.
#[track_caller]
fn assert_gone(mark: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let left = processes(mark);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "left running: {left:#?}");
        std::thread::yield_now();
    }
}

/// What a run said.
struct Ran {
    messages: Vec<AgentMessage>,
    code: Option<i32>,
    stderr: String,
    took: Duration,
    pid: u32,
}

impl Ran {
    #[track_caller]
    fn ends(&self, ending: AgentEnding) -> &Ran {
        assert_eq!(self.messages.last(), Some(&AgentMessage::Finished { ending }), "{self}");
        let code = if ending == AgentEnding::Complete { 0 } else { 1 };
        assert_eq!((self.code, self.stderr.as_str()), (Some(code), ""), "{self}");
        let AgentMessage::Hello { protocol, .. } = &self.messages[0] else { panic!("{self}") };
        assert_eq!(*protocol, PROTOCOL);
        self
    }

    fn rows(&self) -> Vec<&Row> {
        let rows = self.messages.iter().filter_map(|message| match message {
            AgentMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.collect()
    }

    /// By rank.
    fn failures(&self) -> Vec<&RankFailure> {
        let mut failures: Vec<&RankFailure> = self
            .messages
            .iter()
            .filter_map(|message| match message {
                AgentMessage::Failure(failure) => Some(failure),
                _ => None,
            })
            .collect();
        failures.sort_by_key(|failed| failed.rank);
        failures
    }

    /// The only failure of a rank.
    #[track_caller]
    fn failure(&self, rank: u32) -> (Phase, &Failure) {
        let of_rank: Vec<&RankFailure> = self.failures().into_iter().filter(|failed| failed.rank == rank).collect();
        assert_eq!(of_rank.len(), 1, "{self}");
        (of_rank[0].phase, &of_rank[0].failure)
    }

    /// What is known about a silent rank: its phase, whether others wait for it, and NCCL's last line.
    #[track_caller]
    fn silent(&self, rank: u32) -> (Phase, bool, &str) {
        let (phase, failure) = self.failure(rank);
        let Failure::Silent { behind, last_nccl_line, .. } = failure else { panic!("{self}") };
        (phase, *behind, last_nccl_line.as_deref().unwrap_or_default())
    }

    fn gpus(&self) -> &GpuProbe {
        let found = self.messages.iter().find_map(|message| match message {
            AgentMessage::Gpus(probe) => Some(probe),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{self}"))
    }

    fn verbs(&self) -> Option<&VerbsProbe> {
        self.messages.iter().find_map(|message| match message {
            AgentMessage::Verbs(probe) => Some(probe),
            _ => None,
        })
    }

    fn started(&self) -> Vec<&RankStart> {
        let started = self.messages.iter().filter_map(|message| match message {
            AgentMessage::Started(start) => Some(start),
            _ => None,
        });
        started.collect()
    }

    fn log(&self, rank: u32) -> &str {
        let found = self.messages.iter().find_map(|message| match message {
            AgentMessage::Log { rank: of, text, .. } if *of == rank => Some(text.as_str()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no log of rank {rank}\n{self}"))
    }

    fn phases(&self, rank: u32) -> Vec<Phase> {
        let phases = self.messages.iter().filter_map(|message| match message {
            AgentMessage::Phase { rank: of, phase } if *of == rank => Some(*phase),
            _ => None,
        });
        phases.collect()
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit code {:?} after {:?}, stderr {:?}", self.code, self.took, self.stderr)?;
        self.messages.iter().try_for_each(|message| writeln!(f, "{message:?}"))
    }
}

fn collective_at(size_bytes: u64, placement: Placement) -> Phase {
    Phase::Collective { data_type_index: 0, size_bytes, placement }
}

// --- What goes well --------------------------------------------------------------------------------------------------

/// Every row of every type, none wrong, from so many ranks.
fn good_run(gpus: u32, per_gpu: u32) {
    let Some(folder) = built() else { return };
    let types = [DataType::Float, DataType::Half, DataType::Bfloat16];
    let ran = Case::new(folder, gpus)
        .plan(|plan| {
            plan.ranks_per_gpu = per_gpu;
            plan.collective.data_types = types.to_vec();
        })
        .run();
    ran.ends(AgentEnding::Complete);
    let ranks = gpus * per_gpu;
    assert_eq!(ran.failures(), Vec::<&RankFailure>::new(), "{ran}");
    let rows: Vec<_> = ran.rows().iter().map(|row| (row.data_type, row.size_bytes, row.count)).collect();
    let expected: Vec<_> =
        types.iter().flat_map(|t| [(*t, 1024, 1024 / t.size()), (*t, 2048, 2048 / t.size())]).collect();
    assert_eq!(rows, expected, "{ran}");
    for measured in ran.rows().iter().flat_map(|row| [&row.out_of_place, &row.in_place]) {
        assert_eq!((measured.wrong, &measured.first_wrong), (Some(0), &None), "{ran}");
        assert!(measured.min_time_us > 0.0 && measured.min_time_us <= measured.time_us, "{ran}");
        assert!(measured.time_us <= measured.max_time_us && measured.max_time_us.is_finite(), "{ran}");
    }
    let started = ran.started();
    let places: Vec<_> = started.iter().map(|start| (start.rank, start.gpu)).collect();
    assert_eq!(places, (0..ranks).map(|rank| (rank, rank % gpus)).collect::<Vec<_>>());
    for start in &started {
        let slot = start.rank / gpus;
        assert_eq!(start.host_id, (per_gpu > 1).then(|| format!("rdmaprep-{slot}")));
        let log = ran.log(start.rank);
        assert!(
            log.contains(&format!("rank {} nranks {ranks} ", start.rank)) && log.contains("Init COMPLETE"),
            "{log}"
        );
        // NCCL takes ranks of one slot for one host.
        let hosts = format!("nNodes {per_gpu} localRanks {gpus} ");
        assert!(log.contains(&hosts), "{hosts}: {log}");
        assert_eq!(ran.phases(start.rank).last(), Some(&Phase::Finish));
    }
}

#[test]
fn one_rank() {
    good_run(1, 1);
}

#[test]
fn two_ranks_on_two_gpus() {
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
fn sixteen_ranks_on_eight_gpus() {
    good_run(8, 2);
}

#[test]
fn what_the_ranks_were_given_is_said() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 3)
        .plan(|plan| plan.gpus = GpuSelection::List(vec![2, 0]))
        .set("STANDIN_NCCL_VERSION", "21805")
        .set("STANDIN_GPU_NAME", "Stand-in H20")
        .set("NCCL_DEBUG", "WARN")
        .set("STANDIN_VERBS", "erdma_0,erdma_1!EACCES")
        .set("STANDIN_VERBS_WARNING", "libibverbs: Warning: no userspace device-specific driver found")
        .set("IBV_SHOW_WARNINGS", "1")
        .run();
    ran.ends(AgentEnding::Complete);
    assert_eq!(ran.started().iter().map(|start| start.gpu).collect::<Vec<_>>(), [2, 0]);
    let gpus = ran.gpus();
    assert_eq!((gpus.gpus.len(), gpus.gpus[1].name.as_str(), gpus.cuda_version_code), (3, "Stand-in H20", Some(13000)));
    assert_eq!((gpus.peer_access.len(), &gpus.failure), (6, &None));
    let libraries: Vec<_> = ran
        .messages
        .iter()
        .filter_map(|message| match message {
            AgentMessage::Library { nccl, nccl_version_code, .. } => Some((nccl.path.as_str(), *nccl_version_code)),
            _ => None,
        })
        .collect();
    let path = folder.canonicalize().unwrap().join("libnccl.so.2");
    assert_eq!(libraries, [(path.to_str().unwrap(), 21805); 2]);
    let verbs = ran.verbs().unwrap_or_else(|| panic!("{ran}"));
    let devices: Vec<_> = verbs.devices.iter().map(|device| (device.name.as_str(), device.error.is_some())).collect();
    assert_eq!((devices, &verbs.failure), (vec![("erdma_0", false), ("erdma_1", true)], &None));
    assert_eq!(verbs.warnings, ["libibverbs: Warning: no userspace device-specific driver found"]);
    let environment = ran.messages.iter().find_map(|message| match message {
        AgentMessage::Environment(environment) => Some(environment),
        _ => None,
    });
    assert_eq!(environment.unwrap().variables.get("NCCL_DEBUG").map(String::as_str), Some("WARN"));
    // The level that was given stays.
    assert!(!ran.log(0).contains("NCCL INFO"), "{ran}");
}

#[test]
fn a_library_by_path_and_one_without_newer_functions() {
    let Some(folder) = built() else { return };
    for symbol in ["ncclMemAlloc", "ncclGetLastError"] {
        let path = folder.join("without").join(symbol).join("libnccl.so.2").to_str().unwrap().to_owned();
        let ran = Case::new(folder, 2).plan(|plan| plan.nccl = Some(path.clone())).run();
        ran.ends(AgentEnding::Complete);
        assert_eq!(ran.rows().len(), 2);
        let asked = ran.messages.iter().find_map(|message| match message {
            AgentMessage::Library { nccl, .. } => Some(nccl.asked.as_str()),
            _ => None,
        });
        assert_eq!(asked, Some(path.as_str()));
    }
}

#[test]
fn unchecked_results_are_said_to_be_unchecked() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).plan(|plan| plan.collective.check = false).set("STANDIN_WRONG", "element=0").run();
    ran.ends(AgentEnding::Complete);
    let unchecked = |one: &Measured| one.wrong.is_none() && one.first_wrong.is_none();
    assert!(ran.rows().iter().all(|row| unchecked(&row.out_of_place) && unchecked(&row.in_place)), "{ran}");
}

#[test]
fn a_slow_rank_is_waited_for() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).at_rank(1, "STANDIN_SLOW_US", "20000").run();
    ran.ends(AgentEnding::Complete);
    for measured in ran.rows().iter().flat_map(|row| [&row.out_of_place, &row.in_place]) {
        // Nobody is done before the slowest.
        assert!(measured.min_time_us >= 10_000.0 && measured.max_time_us > measured.min_time_us, "{ran}");
        assert!(measured.time_us > measured.min_time_us && measured.time_us < measured.max_time_us, "{ran}");
    }
}

#[test]
fn sizes_are_reduced_to_what_the_gpu_holds() {
    let Some(folder) = built() else { return };
    // 2 GiB are kept free of it; what is left is for two buffers of each of two ranks.
    let memory = ((2_u64 << 30) + 4 * 5000).to_string();
    let ran = Case::new(folder, 1)
        .plan(|plan| (plan.ranks_per_gpu, plan.collective.max_bytes) = (2, 1 << 20))
        .set("STANDIN_GPU_MEMORY", &memory)
        .run();
    ran.ends(AgentEnding::Complete);
    assert!(ran.messages.contains(&AgentMessage::Reduced { max_bytes: 4096 }), "{ran}");
    assert_eq!(ran.rows().iter().map(|row| row.size_bytes).collect::<Vec<_>>(), [1024, 2048, 4096]);

    let ran = Case::new(folder, 1).set("STANDIN_GPU_MEMORY", "1073741824").run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(0);
    assert!(matches!(failure, Failure::Other { detail } if detail.contains("1024 B")), "{failure:?}");
    assert_eq!((phase, ran.started().len()), (Phase::Libraries, 0));
}

#[test]
fn another_directory_serves_where_the_planned_one_does_not() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).plan(|plan| plan.directory = "/proc/self/nothing".into()).run();
    ran.ends(AgentEnding::Complete);
    assert!(ran.log(1).contains("Init COMPLETE"), "{ran}");
    // It is the run's own, and gone.
    let prefix = format!("rdmaprep-agent-{}-", ran.pid);
    let names = std::fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with(&prefix)).count(), 0);
}

// --- Wrong data ------------------------------------------------------------------------------------------------------

#[test]
fn one_wrong_element_in_one_rank_is_found() {
    let Some(folder) = built() else { return };
    for (data_type, name, placement, word) in [
        (DataType::Float, "float", Placement::OutOfPlace, "out-of-place"),
        (DataType::Half, "half", Placement::InPlace, "in-place"),
        (DataType::Bfloat16, "bfloat16", Placement::InPlace, "in-place"),
    ] {
        let wrong = format!("element=77,bytes=2048,placement={word},type={name}");
        let ran = Case::new(folder, 3)
            .plan(|plan| plan.collective.data_types = vec![DataType::Float, DataType::Half, DataType::Bfloat16])
            .at_rank(2, "STANDIN_WRONG", &wrong)
            .run();
        ran.ends(AgentEnding::Complete);
        assert_one_wrong(&ran, data_type, 2048, placement, 2, 77);
    }
}

#[test]
fn a_planted_element_is_found() {
    let Some(folder) = built() else { return };
    for (placement, element) in [(Placement::OutOfPlace, 0), (Placement::InPlace, 255)] {
        let plant = Plant { rank: 1, size_bytes: 1024, placement, element };
        let ran = Case::new(folder, 2).plan(|plan| plan.plant = Some(plant)).run();
        ran.ends(AgentEnding::Complete);
        assert_one_wrong(&ran, DataType::Float, 1024, placement, 1, element);
    }
}

/// Exactly this element of all rows is wrong.
#[track_caller]
fn assert_one_wrong(ran: &Ran, data_type: DataType, size: u64, placement: Placement, rank: u32, index: u64) {
    let mut found = 0;
    for row in ran.rows() {
        for (at, measured) in [(Placement::OutOfPlace, &row.out_of_place), (Placement::InPlace, &row.in_place)] {
            if (row.data_type, row.size_bytes, at) != (data_type, size, placement) {
                assert_eq!((measured.wrong, &measured.first_wrong), (Some(0), &None), "{ran}");
                continue;
            }
            found += 1;
            let first = measured.first_wrong.as_ref().unwrap_or_else(|| panic!("{ran}"));
            assert_eq!((measured.wrong, first.rank, first.index), (Some(1), rank, index), "{ran}");
            assert_eq!(first.found_bits ^ first.expected_bits, 1, "{ran}");
        }
    }
    assert_eq!(found, 1, "{ran}");
}

// --- Silence ---------------------------------------------------------------------------------------------------------

#[test]
fn a_hang_in_cuda_is_behind() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 3).phase_timeout(SHORT_MS).at_rank(1, "STANDIN_HANG", "cuInit").run();
    ran.ends(AgentEnding::PhaseTimeout);
    assert_eq!(ran.silent(1), (Phase::Cuda, true, ""));
    // The others wait in init, and are not to blame.
    for rank in [0, 2] {
        let (phase, behind, last) = ran.silent(rank);
        assert_eq!((phase, behind), (Phase::Init, false), "{ran}");
        assert!(last.contains("Init START"), "{last}");
    }
}

#[test]
fn a_hang_of_rank_0_before_it_gives_the_id() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 3).phase_timeout(SHORT_MS).at_rank(0, "STANDIN_HANG", "ncclGetUniqueId").run();
    ran.ends(AgentEnding::PhaseTimeout);
    assert_eq!(ran.silent(0), (Phase::Bootstrap, true, ""));
    for rank in [1, 2] {
        assert_eq!(ran.silent(rank), (Phase::Bootstrap, false, ""), "{ran}");
    }
}

#[test]
fn a_hang_in_init_names_everybody_there() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).phase_timeout(SHORT_MS).at_rank(1, "STANDIN_HANG", "ncclCommInitRank").run();
    ran.ends(AgentEnding::PhaseTimeout);
    assert_eq!(ran.silent(1), (Phase::Init, false, ""));
    let (phase, behind, last) = ran.silent(0);
    assert_eq!((phase, behind), (Phase::Init, false));
    assert!(last.contains("rank 0 nranks 2") && last.ends_with("Init START"), "{last}");
}

#[test]
fn a_hang_on_the_gpu_is_named_with_its_size() {
    let Some(folder) = built() else { return };
    // Connect 1; warm-up 2 and 3; of each measurement 1 untimed, 2 timed, 1 checked.
    let check = |size_bytes, placement| Phase::Verify { data_type_index: 0, size_bytes, placement };
    let cases = [
        (1, Phase::Connect),
        (2, Phase::Warmup),
        (4, collective_at(1024, Placement::OutOfPlace)),
        (13, collective_at(2048, Placement::OutOfPlace)),
        (15, check(2048, Placement::OutOfPlace)),
        (16, collective_at(2048, Placement::InPlace)),
    ];
    let hang = |operation: u32, expected: Phase| {
        let hang = format!("stream@{operation}");
        let ran = Case::new(folder, 2).phase_timeout(SHORT_MS).at_rank(1, "STANDIN_HANG", &hang).run();
        ran.ends(AgentEnding::PhaseTimeout);
        for rank in [0, 1] {
            let (phase, behind, last) = ran.silent(rank);
            assert_eq!((phase, behind), (expected, false), "{operation}: {ran}");
            assert!(!last.is_empty(), "{ran}");
        }
        assert_eq!(ran.rows().len(), usize::from(operation > 11), "{operation}: {ran}");
        assert!(ran.log(0).contains("Init COMPLETE"), "{ran}");
        assert!(ran.took < PATIENCE, "{ran}");
    };
    // Side by side: they only wait.
    std::thread::scope(|scope| {
        cases.iter().for_each(|(operation, phase)| drop(scope.spawn(|| hang(*operation, *phase))))
    });
}

#[test]
fn a_hang_at_the_very_end_keeps_the_rows() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).phase_timeout(SHORT_MS).at_rank(1, "STANDIN_HANG", "ncclCommDestroy").run();
    ran.ends(AgentEnding::PhaseTimeout);
    assert_eq!(ran.failures().len(), 1, "{ran}");
    assert_eq!(ran.silent(1).0, Phase::Finish);
    assert_eq!(ran.rows().len(), 2);
}

#[test]
fn the_time_for_the_whole_run_ends_it_too() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2)
        .plan(|plan| plan.total_timeout_ms = 2500)
        .at_rank(1, "STANDIN_HANG", "ncclCommInitRank")
        .run();
    ran.ends(AgentEnding::TotalTimeout);
    assert_eq!((ran.silent(0).0, ran.silent(1).0), (Phase::Init, Phase::Init));
    assert!(ran.took >= Duration::from_millis(2500), "{ran}");
}

#[test]
fn a_driver_that_does_not_answer_is_a_time_limit() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).phase_timeout(1000).set("STANDIN_HANG", "cuInit").run();
    ran.ends(AgentEnding::PhaseTimeout);
    let failure = ran.gpus().failure.as_ref().unwrap();
    assert!(matches!(failure, Failure::Other { detail } if detail.contains("did not end within 1")), "{failure:?}");
    assert_eq!((ran.started().len(), ran.failures().len()), (0, 0), "{ran}");
    // The whole run's limit counts for it as well.
    let ran = Case::new(folder, 2).plan(|plan| plan.total_timeout_ms = 1000).set("STANDIN_HANG", "cuInit").run();
    ran.ends(AgentEnding::TotalTimeout);
    assert!(ran.took < Duration::from_secs(30), "{ran}");
}

#[test]
fn a_silent_libibverbs_keeps_nobody() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).set("STANDIN_HANG", "ibv_get_device_list").run();
    ran.ends(AgentEnding::Complete);
    assert_eq!(ran.verbs(), None, "{ran}");
}

// --- Crashes and errors ----------------------------------------------------------------------------------------------

/// What rank 0 sees where rank 1 is gone: NCCL's word for it, in a call or while an operation runs.
#[track_caller]
fn assert_remote_error(ran: &Ran, rank: u32) {
    match ran.failure(rank).1 {
        Failure::Nccl { code: 6, last_error, .. } | Failure::NcclAsync { code: 6, last_error, .. } => {
            assert!(last_error.contains("Connection closed by remote peer"), "{ran}");
        }
        other => panic!("{other:?}\n{ran}"),
    }
}

#[test]
fn a_rank_that_crashes_is_told_by_its_signal() {
    let Some(folder) = built() else { return };
    for (how, signal, name) in [("", 11, "SIGSEGV"), (":ABRT", 6, "SIGABRT"), (":KILL", 9, "SIGKILL")] {
        let crash = format!("ncclAllReduce{how}@4");
        let ran = Case::new(folder, 2).at_rank(1, "STANDIN_CRASH", &crash).run();
        ran.ends(AgentEnding::Failed);
        let expected = Failure::Signal { signal, name: name.into() };
        assert_eq!(ran.failure(1), (collective_at(1024, Placement::OutOfPlace), &expected), "{ran}");
        assert_remote_error(&ran, 0);
    }
    let ran = Case::new(folder, 2).at_rank(0, "STANDIN_CRASH", "ncclGetUniqueId").run();
    ran.ends(AgentEnding::Failed);
    let expected = Failure::Signal { signal: 11, name: "SIGSEGV".into() };
    assert_eq!((ran.failures().len(), ran.failure(0)), (1, (Phase::Bootstrap, &expected)), "{ran}");
}

#[test]
fn a_rank_that_ends_without_a_word() {
    let Some(folder) = built() else { return };
    for code in [0, 3] {
        let crash = format!("ncclCommInitRank:EXIT={code}");
        let ran = Case::new(folder, 2).at_rank(1, "STANDIN_CRASH", &crash).run();
        ran.ends(AgentEnding::Failed);
        assert_eq!(ran.failure(1), (Phase::Init, &Failure::Exit { code }), "{ran}");
    }
}

#[test]
fn errors_of_cuda_have_code_name_and_text() {
    let Some(folder) = built() else { return };
    let cuda = |code, name: &str, text: &str| Failure::Cuda {
        call: "cuInit".into(),
        code,
        name: name.into(),
        text: text.into(),
    };
    for expected in [
        cuda(100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
        // The runtime's code, which the driver has no name for.
        cuda(35, "", ""),
        cuda(
            803,
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "system has unsupported display driver / cuda driver combination",
        ),
        cuda(
            804,
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "forward compatibility was attempted on non supported HW",
        ),
    ] {
        let Failure::Cuda { code, .. } = expected else { unreachable!() };
        let fail = format!("cuInit:{code}");
        // Where nobody can start CUDA, no rank is started.
        let ran = Case::new(folder, 2).set("STANDIN_FAIL", &fail).run();
        ran.ends(AgentEnding::Failed);
        assert_eq!((ran.gpus().failure.as_ref(), ran.started().len()), (Some(&expected), 0), "{ran}");
        assert_eq!(ran.failures().len(), 0, "{ran}");
        let ran = Case::new(folder, 2).at_rank(1, "STANDIN_FAIL", &fail).run();
        ran.ends(AgentEnding::Failed);
        assert_eq!((ran.failures().len(), ran.failure(1)), (1, (Phase::Cuda, &expected)), "{ran}");
    }
    let ran = Case::new(folder, 0).run();
    ran.ends(AgentEnding::Failed);
    assert!(matches!(ran.gpus().failure, Some(Failure::Cuda { code: 100, .. })), "{ran}");
}

#[test]
fn errors_of_nccl_have_call_code_and_text() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).at_rank(1, "STANDIN_FAIL", "ncclAllReduce:3@8").run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(1);
    let Failure::Nccl { call, code, text, .. } = failure else { panic!("{ran}") };
    assert_eq!((phase, call.as_str(), *code), (collective_at(1024, Placement::InPlace), "ncclAllReduce", 3));
    assert!(text.starts_with("internal error"), "{text}");
    assert_remote_error(&ran, 0);
    assert_eq!(ran.rows().len(), 0);

    // Two ranks of one host on one GPU: NCCL's own refusal, with its last error.
    let ran = Case::new(folder, 1).plan(|plan| plan.ranks_per_gpu = 2).set("STANDIN_FAIL", "ncclCommInitRank:5").run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(0);
    assert!(matches!(failure, Failure::Nccl { call, code: 5, .. } if call == "ncclCommInitRank"), "{ran}");
    assert_eq!(phase, Phase::Init);

    let ran = Case::new(folder, 2).at_rank(1, "STANDIN_FAIL", "ncclGetVersion:2").run();
    ran.ends(AgentEnding::Failed);
    assert!(matches!(ran.failure(1), (Phase::Libraries, Failure::Nccl { code: 2, .. })), "{ran}");
}

#[test]
fn errors_on_the_gpu_and_of_the_communicator() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).at_rank(1, "STANDIN_FAIL", "stream:700@5").run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(1);
    assert!(matches!(failure, Failure::Cuda { code: 700, call, .. } if call == "cuStreamQuery"), "{ran}");
    assert_eq!(phase, collective_at(1024, Placement::OutOfPlace), "{ran}");

    // Slow, so that there is time to ask while an operation runs.
    let ran = Case::new(folder, 2).at_rank(1, "STANDIN_ASYNC", "2@1").set("STANDIN_SLOW_US", "20000").run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(1);
    let Failure::NcclAsync { code, text, .. } = failure else { panic!("{ran}") };
    assert_eq!((phase, *code), (Phase::Connect, 2), "{ran}");
    assert!(text.starts_with("unhandled system error"), "{text}");
}

// --- Libraries -------------------------------------------------------------------------------------------------------

/// A folder with some of the stand-ins.
fn only(folder: &Path, libraries: &[&str], into: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join(into);
    std::fs::create_dir_all(&inner).unwrap();
    for library in libraries {
        std::fs::copy(folder.join(library), inner.join(library)).unwrap();
    }
    (directory, inner)
}

/// Whether the machine has a library of its own, which a test cannot hide.
fn is_on_the_machine(library: &str) -> bool {
    let has = Command::new("/sbin/ldconfig").arg("-p").output();
    let has = has.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(library));
    if has {
        say_skipped(&format!("this machine has a {library} of its own"));
    }
    has
}

#[test]
fn a_missing_libcuda() {
    let Some(folder) = built() else { return };
    if is_on_the_machine("libcuda.so.1") {
        return;
    }
    let (_kept, libraries) = only(folder, &["libnccl.so.2", "libibverbs.so.1"], "lib");
    let ran = Case::new(folder, 2).libraries(&[libraries]).run();
    ran.ends(AgentEnding::Failed);
    let Some(Failure::LibraryMissing { library, detail }) = &ran.gpus().failure else { panic!("{ran}") };
    assert_eq!((library.as_str(), &ran.gpus().library), ("libcuda.so.1", &None));
    assert!(detail.contains("cannot open shared object file"), "{detail}");
    assert_eq!((ran.started().len(), ran.failures().len()), (0, 0));
    // What else there is to know is said all the same.
    assert!(ran.verbs().is_some_and(|verbs| verbs.failure.is_none()), "{ran}");
}

#[test]
fn a_missing_libnccl() {
    let Some(folder) = built() else { return };
    if is_on_the_machine("libnccl.so.2") {
        return;
    }
    let (_kept, libraries) = only(folder, &["libcuda.so.1"], "lib");
    let ran = Case::new(folder, 2).libraries(&[libraries]).run();
    ran.ends(AgentEnding::Failed);
    for rank in [0, 1] {
        let (phase, failure) = ran.failure(rank);
        let Failure::LibraryMissing { library, detail } = failure else { panic!("{ran}") };
        assert_eq!((phase, library.as_str()), (Phase::Libraries, "libnccl.so.2"));
        assert!(detail.contains("cannot open shared object file"), "{detail}");
    }
    let ran = Case::new(folder, 1).plan(|plan| plan.nccl = Some("/no/such/libnccl.so.2".into())).run();
    assert!(matches!(ran.failure(0).1, Failure::LibraryMissing { library, .. } if library == "/no/such/libnccl.so.2"));
}

#[test]
fn a_file_that_is_no_library() {
    let Some(folder) = built() else { return };
    let (_kept, libraries) = only(folder, &["libcuda.so.1"], "lib");
    std::fs::write(libraries.join("libnccl.so.2"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    let ran = Case::new(folder, 1).libraries(&[libraries]).run();
    ran.ends(AgentEnding::Failed);
    let (phase, failure) = ran.failure(0);
    let Failure::LibraryMissing { detail, .. } = failure else { panic!("{ran}") };
    assert_eq!(phase, Phase::Libraries);
    assert!(detail.contains("file too short") || detail.contains("invalid ELF header"), "{detail}");
}

#[test]
fn a_missing_symbol() {
    let Some(folder) = built() else { return };
    let without = |symbol: &str| [folder.join("without").join(symbol), folder.to_path_buf()];
    let missing =
        |library: &str, symbol: &str| Failure::SymbolMissing { library: library.into(), symbol: symbol.into() };
    for symbol in ["cuInit", "cuStreamQuery"] {
        let ran = Case::new(folder, 2).libraries(&without(symbol)).run();
        ran.ends(AgentEnding::Failed);
        assert_eq!(ran.gpus().failure, Some(missing("libcuda.so.1", symbol)), "{ran}");
    }
    let ran = Case::new(folder, 2).libraries(&without("ncclAllReduce")).run();
    ran.ends(AgentEnding::Failed);
    for rank in [0, 1] {
        let expected = missing("libnccl.so.2", "ncclAllReduce");
        assert_eq!(ran.failure(rank), (Phase::Libraries, &expected), "{ran}");
    }
    // The probe of libibverbs stops nobody.
    let ran = Case::new(folder, 2).libraries(&without("ibv_open_device")).run();
    ran.ends(AgentEnding::Complete);
    let verbs = ran.verbs().unwrap_or_else(|| panic!("{ran}"));
    assert!(matches!(&verbs.failure, Some(Failure::SymbolMissing { symbol, .. }) if symbol == "ibv_open_device"));
}

#[test]
fn the_toolkits_stub_is_none() {
    let Some(folder) = built() else { return };
    let (_kept, stubs) = only(folder, &["libcuda.so.1"], "lib64/stubs");
    let path = stubs.canonicalize().unwrap().join("libcuda.so.1").to_str().unwrap().to_owned();
    let ran = Case::new(folder, 2).libraries(&[stubs, folder.to_path_buf()]).run();
    ran.ends(AgentEnding::Failed);
    assert_eq!(ran.gpus().failure, Some(Failure::StubLibrary { path }), "{ran}");
    assert_eq!(ran.started().len(), 0);
}

#[test]
fn a_library_that_crashes_when_it_is_asked() {
    let Some(folder) = built() else { return };
    let ran = Case::new(folder, 2).set("STANDIN_CRASH", "cuInit").run();
    ran.ends(AgentEnding::Failed);
    let expected = Failure::Signal { signal: 11, name: "SIGSEGV".into() };
    assert_eq!(ran.gpus().failure, Some(expected.clone()), "{ran}");
    let ran = Case::new(folder, 2).set("STANDIN_CRASH", "ibv_get_device_list").run();
    ran.ends(AgentEnding::Complete);
    assert_eq!(ran.verbs().and_then(|verbs| verbs.failure.clone()), Some(expected), "{ran}");
}

// --- Plans and ends --------------------------------------------------------------------------------------------------

#[test]
fn gpus_that_are_not_there() {
    let Some(folder) = built() else { return };
    for (gpus, words) in [
        (GpuSelection::First(3), "3 GPUs were requested, but the container sees 2"),
        (GpuSelection::List(vec![0, 5]), "GPUs [0, 5] were requested, but the container sees 0 to 1"),
    ] {
        let ran = Case::new(folder, 2).plan(|plan| plan.gpus = gpus.clone()).run();
        ran.ends(AgentEnding::Failed);
        let expected = Failure::Other { detail: words.into() };
        assert_eq!((ran.failures().len(), ran.failure(0)), (1, (Phase::Libraries, &expected)), "{ran}");
        assert_eq!(ran.started().len(), 0);
    }
}

#[test]
fn plans_that_cannot_be_read() {
    let run =
        |path: &Path| Command::new(env!("CARGO_BIN_EXE_rdmaprep")).args(["agent", "run"]).arg(path).output().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plan.json");
    let mut case = Case::new(Path::new("/"), 1);
    case.plan.protocol = PROTOCOL + 1;
    for text in [String::new(), "{}".into(), serde_json::to_string(&case.plan).unwrap()] {
        std::fs::write(&path, &text).unwrap();
        let output = run(&path);
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{text}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: reading the plan "), "{output:?}");
    }
}

/// Starts a run, and gives it when one of its lines has this text.
fn start_until(case: &Case, text: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = case.start();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let begun = Instant::now();
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let read = lines.read_line(&mut line).unwrap();
        assert!(read > 0 && begun.elapsed() < PATIENCE, "{text:?} was never said");
    }
    (child, lines)
}

fn kill(child: &Child, signal: i32) {
    let pid = rustix::process::Pid::from_child(child);
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_signal_ends_the_run_and_all_ranks() {
    let Some(folder) = built() else { return };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let case = Case::new(folder, 2).at_rank(1, "STANDIN_HANG", "ncclCommInitRank");
        let (mut child, mut lines) = start_until(&case, r#"{"at":"init"}"#);
        let begun = Instant::now();
        kill(&child, signal);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let last: AgentMessage = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        assert_eq!(last, AgentMessage::Finished { ending: AgentEnding::Interrupted });
        assert!(rest.contains(r#""message":"log""#), "{rest}");
        assert_gone(&case.mark);
    }
}

#[test]
fn a_signal_is_heard_while_the_driver_is_asked() {
    let Some(folder) = built() else { return };
    let case = Case::new(folder, 2).set("STANDIN_HANG", "cuInit");
    let (mut child, mut lines) = start_until(&case, r#""message":"environment""#);
    let begun = Instant::now();
    kill(&child, libc::SIGTERM);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{rest}");
    let last: AgentMessage = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!(last, AgentMessage::Finished { ending: AgentEnding::Interrupted });
    assert_gone(&case.mark);
}

#[test]
fn a_supervisor_that_is_killed_takes_all_along() {
    let Some(folder) = built() else { return };
    for (hang, said) in [("ncclCommInitRank", r#"{"at":"init"}"#), ("cuInit", r#""message":"environment""#)] {
        let case = Case::new(folder, 2).set("STANDIN_HANG", hang);
        let (mut child, _lines) = start_until(&case, said);
        kill(&child, libc::SIGKILL);
        child.wait().unwrap();
        assert_gone(&case.mark);
    }
}
