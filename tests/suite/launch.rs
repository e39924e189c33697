//! Containers of the engine of this machine. Without an engine the tests say `skipped: …`.

use crate::support;

use rdmaprep::docker::config::{ClientConfig, ClientEnv};
use rdmaprep::docker::container::Container;
use rdmaprep::docker::container_output::{ContainerOutput, LineEnd, LineSplitter, OutputStream};
use rdmaprep::docker::container_spec::{Bind, ContainerSpec, Device, Gpus, Ipc, NvidiaGpus, Ulimit};
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::Engine;
use rdmaprep::docker::error::DockerError;
use rdmaprep::docker::upload::{Content, Upload};
use rdmaprep::facts::ImageFacts;
use rdmaprep::facts::run::{GpuSelection, LaunchFacts, StartFailure};
use rdmaprep::launch::gpu_access::{Situation, Wanted, Way, choose_access};
use rdmaprep::launch::host::{CDI_DIRECTORIES, Locality, load_host, locality};
use rdmaprep::launch::owner::{Owner, RUN_LABEL};
use rdmaprep::launch::spec::{
    AGENT_PLAN, AGENT_PROGRAM, Launch, LaunchOptions, agent_files, can_start_agent, plan_launch,
};
use rdmaprep::launch::start::{StartError, start};
use rdmaprep::launch::variables::UserVariable;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use support::{BASE, must, rdmaprep, rig, run};

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

async fn engine() -> Option<Engine> {
    if !rig() {
        return None;
    }
    let endpoint = Endpoint::resolve(None, None, &ClientEnv::from_process(), &ClientConfig::default());
    Some(Engine::connect(&endpoint.expect("a usable host")).await.expect("the engine answers"))
}

/// A label that only one test has, so that what it leaves can be found.
fn label(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// A container of the base image that runs a script.
fn script(test: &str, text: &str) -> ContainerSpec {
    let mut spec = ContainerSpec::new(BASE);
    spec.entrypoint = Some(vec!["/bin/sh".into()]);
    spec.command = Some(vec!["-c".into(), text.into()]);
    // `clean` in another test leaves it alone: this process is alive.
    spec.labels = Owner::load(Path::new("/"), std::process::id()).labels(&label(test));
    spec
}

fn file(path: &str, mode: u32, content: Content) -> Upload {
    Upload { path: path.to_owned(), mode, content }
}

/// Names of the containers that a test left.
fn left(test: &str) -> Vec<String> {
    let filter = format!("label={RUN_LABEL}={}", label(test));
    must("docker", &["ps", "--all", "--quiet", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// All lines of one stream, to the end of the container.
async fn lines(mut output: ContainerOutput) -> (Vec<String>, Vec<String>) {
    let (mut out, mut err) = (LineSplitter::default(), LineSplitter::default());
    let (mut out_lines, mut err_lines) = (Vec::new(), Vec::new());
    while let Some(chunk) = output.next().await {
        let chunk = chunk.expect("the stream stays whole");
        match chunk.stream {
            OutputStream::Stdout => out_lines.extend(out.push(&chunk.bytes)),
            OutputStream::Stderr => err_lines.extend(err.push(&chunk.bytes)),
        }
    }
    out_lines.extend(out.finish());
    err_lines.extend(err.finish());
    let text = |lines: Vec<rdmaprep::docker::container_output::Line>| lines.iter().map(|line| line.text()).collect();
    (text(out_lines), text(err_lines))
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it ends in time")
}

async fn created(engine: &Engine, spec: &ContainerSpec) -> Container {
    engine.create_container(spec).await.unwrap_or_else(|error| panic!("{error}"))
}

fn launch(spec: ContainerSpec) -> Launch {
    Launch { spec, facts: LaunchFacts::default(), image_name: BASE.to_owned() }
}

#[tokio::test]
async fn files_go_in_and_output_comes_out_in_order() {
    let Some(engine) = engine().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    // As large as the agent, and with bytes that do not repeat.
    let content: Vec<u8> = (0..10_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(dir.path().join("big"), &content).expect("a file");
    let sum = must("sha256sum", &[dir.path().join("big").to_str().expect("UTF-8")]);
    let program = "#!/bin/sh\nid -u; stat -c '%a %u' /rdmaprep /rdmaprep/run /rdmaprep/program\nsha256sum < /rdmaprep/big\n\
                   echo mine > /rdmaprep/run/file && cat /rdmaprep/run/file\n\
                   i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done\necho to-stderr >&2\nprintf unended\nexit 7\n";
    let mut spec = script("order", "");
    spec.entrypoint = Some(vec!["/rdmaprep/program".into()]);
    spec.command = Some(Vec::new());
    spec.user = Some("1000:1000".into());
    let container = created(&engine, &spec).await;
    let files = [
        file("/rdmaprep", 0o755, Content::Directory),
        file("/rdmaprep/big", 0o644, Content::File(dir.path().join("big"))),
        file("/rdmaprep/program", 0o755, Content::Bytes(program.into())),
        file("/rdmaprep/run", 0o1777, Content::Directory),
    ];
    container.upload(&files).await.unwrap_or_else(|error| panic!("{error}"));
    let output = container.attach().await.expect("a stream");
    container.start().await.unwrap_or_else(|error| panic!("{error}"));
    let (out, err) = in_time(lines(output)).await;
    assert_eq!(out[..4], ["1000", "755 0", "1777 0", "755 0"]);
    assert_eq!(out[4].split_whitespace().next(), sum.split_whitespace().next());
    assert_eq!(out[5], "mine");
    let expected: Vec<String> = (0..5000).map(|n| format!("line {n}")).collect();
    assert_eq!(out[6..5006], expected);
    assert_eq!((out[5006..].to_vec(), err), (vec!["unended".to_owned()], vec!["to-stderr".to_owned()]));
    assert_eq!(in_time(container.wait()).await.expect("an exit code"), 7);
    let end = container.inspect().await.expect("its state");
    assert_eq!((end.running, end.exit_code, end.out_of_memory), (false, 7, false));
    container.remove().await.expect("it goes");
    assert_eq!(left("order"), [""; 0]);
}

#[tokio::test]
async fn environment_shared_memory_and_mounts() {
    let Some(engine) = engine().await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "mounted").expect("a file");
    let mut spec = script(
        "environment",
        "echo \"[$A] [${PATH-unset}] [$HOSTNAME]\"; /bin/cat /m/f; echo; /bin/touch /m/x 2>/dev/null || echo read-only\n\
         /bin/df -B1 /dev/shm | /usr/bin/tail -1 | /usr/bin/awk '{print $2}'; ulimit -s; echo $$",
    );
    spec.env = vec![("A".into(), Some("x=y z".into())), ("PATH".into(), None)];
    spec.ipc = Ipc::Own { shm_bytes: Some(128 << 20) };
    spec.ulimits = vec![Ulimit { name: "stack".into(), value: 67_108_864 }];
    let source = dir.path().to_str().expect("UTF-8").to_owned();
    spec.mounts = vec![Bind { source, target: "/m".into(), read_only: true }];
    let container = created(&engine, &spec).await;
    let output = container.attach().await.expect("a stream");
    container.start().await.unwrap_or_else(|error| panic!("{error}"));
    let (out, err) = in_time(lines(output)).await;
    // A shell has a PATH of its own where there is none.
    assert!(out[0].starts_with("[x=y z] [") && !out[0].contains("/usr/local/cuda"), "{out:?}");
    assert_eq!(out[1..5], ["mounted", "read-only", "134217728", "65536"], "{err:?}");
    // Nothing stands between the engine and the program.
    assert_eq!(out[5], "1");
    container.remove().await.expect("it goes");
}

#[tokio::test]
async fn exit_codes_and_signals() {
    let Some(engine) = engine().await else { return };
    for (text, code) in [("exit 0", 0), ("exit 1", 1), ("exit 137", 137)] {
        let container = created(&engine, &script("codes", text)).await;
        container.start().await.expect("it starts");
        assert_eq!(in_time(container.wait()).await.expect("an exit code"), code, "{text}");
        assert!(!container.kill("SIGTERM").await.expect("an answer"), "it has ended");
        container.remove().await.expect("it goes");
    }
    let container =
        created(&engine, &script("codes", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")).await;
    let mut output = container.attach().await.expect("a stream");
    container.start().await.expect("it starts");
    assert_eq!(in_time(output.next()).await.expect("output").expect("a chunk").bytes, "ready\n");
    assert!(container.inspect().await.expect("its state").running);
    assert!(container.kill("SIGTERM").await.expect("an answer"));
    assert_eq!(in_time(container.wait()).await.expect("an exit code"), 9);
    container.remove().await.expect("it goes");
    let container = created(&engine, &script("codes", "sleep 600")).await;
    container.start().await.expect("it starts");
    assert!(container.kill("SIGKILL").await.expect("an answer"));
    assert_eq!(in_time(container.wait()).await.expect("an exit code"), 137);
    container.remove().await.expect("it goes");
    assert_eq!(left("codes"), [""; 0]);
}

#[tokio::test]
async fn a_container_goes_with_its_value() {
    let Some(engine) = engine().await else { return };
    let dropped = created(&engine, &script("drop", "sleep 600")).await;
    dropped.start().await.expect("it starts");
    assert_eq!(left("drop").len(), 1);
    drop(dropped);
    assert_eq!(left("drop"), [""; 0]);
    // One that is already gone is not an error.
    let gone = created(&engine, &script("drop", "true")).await;
    must("docker", &["rm", gone.id()]);
    gone.remove().await.expect("nothing to do");
    // A runtime that ends takes its tasks along, and they their containers.
    let inner = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (tell, told) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let engine = engine_again().await;
            let container = created(&engine, &script("drop", "sleep 600")).await;
            container.start().await.expect("it starts");
            tell.send(()).expect("somebody listens");
            container.wait().await
        });
        told.recv_timeout(PATIENCE).expect("it starts in time");
    });
    inner.join().expect("no panic");
    assert_eq!(left("drop"), [""; 0]);
}

async fn engine_again() -> Engine {
    engine().await.expect("it was there before")
}

#[tokio::test]
async fn a_memlock_limit_that_the_engine_may_not_set_is_given_up() {
    let Some(engine) = engine().await else { return };
    let mut spec = script("memlock", "ulimit -l");
    spec.ulimits = vec![Ulimit { name: "memlock".into(), value: -1 }];
    let mut launch = launch(spec);
    let running = start(&engine, &mut launch, &[]).await.unwrap_or_else(|error| panic!("{error}"));
    let (out, err) = in_time(lines(running.output)).await;
    if out == ["unlimited"] {
        support::say_skipped("the engine may raise limits, nothing is refused");
        assert_eq!(launch.facts.given_up, [""; 0]);
    } else {
        assert_eq!(launch.facts.given_up.len(), 1, "{out:?} {err:?}");
        assert!(launch.facts.given_up[0].starts_with("ulimit memlock: "), "{:?}", launch.facts.given_up);
        assert!(launch.facts.given_up[0].contains("rlimit"), "{:?}", launch.facts.given_up);
        assert!(!launch.facts.command_line.contains("memlock"), "{}", launch.facts.command_line);
        assert!(out[0].parse::<u64>().is_ok(), "{out:?}");
    }
    // The one that was refused is gone already.
    assert_eq!(left("memlock").len(), 1);
    running.container.remove().await.expect("it goes");
    assert_eq!(left("memlock"), [""; 0]);
}

/// Cases D10, D11 and E01, from the image's facts to the running container.
#[tokio::test]
async fn an_image_is_launched_as_a_job_is() {
    let Some(engine) = engine().await else { return };
    let ran = run(rdmaprep().args(["inspect", "--format", "json", &format!("docker-daemon:{BASE}")]));
    let facts: ImageFacts = serde_json::from_str(&ran.expect(0).stdout).expect("facts");
    assert_eq!(can_start_agent(&facts), Ok(()), "{:?}", facts.loader.program_loader);
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("agent");
    let text = "#!/bin/sh\necho \"$@\"; cat /rdmaprep/plan.json; echo; env; touch /rdmaprep/run/x && echo writable\n";
    std::fs::write(&program, text).expect("a file");

    let host = load_host(Path::new("/"), "/usr/bin", &CDI_DIRECTORIES);
    let said = engine.host().await.expect("its settings");
    let situation = Situation { kind: engine.info().kind, engine: &said, host: &host, locality: &Locality::Local };
    let access = choose_access(Wanted::Only(Way::None), &GpuSelection::All, situation).expect("none always works");
    let owner = Owner::load(Path::new("/"), std::process::id());
    let command = [AGENT_PROGRAM, "agent", AGENT_PLAN].map(str::to_owned).to_vec();
    let mut options = LaunchOptions::new(&label("job"), owner, command);
    options.force_nic = true;
    options.env = vec![UserVariable { name: "MY_TOKEN".into(), value: "not-to-be-said".into() }];
    let target = rdmaprep::targets::by_id("pai-dlc").expect("a target");
    let mut launch = plan_launch(&facts, target, (&host, &Locality::Local), &access, &options).expect("a plan");
    let running = start(&engine, &mut launch, &agent_files(program, b"{}".to_vec())).await;
    let running = running.unwrap_or_else(|error| panic!("{error}"));

    let settings = must("docker", &["inspect", running.container.id()]);
    let settings: serde_json::Value = serde_json::from_str(&settings).expect("JSON");
    let config = &settings[0]["HostConfig"];
    assert_eq!(
        (&config["NetworkMode"], &config["IpcMode"], &config["Privileged"]),
        (&"host".into(), &"host".into(), &false.into())
    );
    let limits = config["Ulimits"].as_array().expect("limits");
    let has =
        |name: &str, value: i64| limits.contains(&serde_json::json!({"Name": name, "Hard": value, "Soft": value}));
    assert!(has("stack", 67_108_864), "{limits:?}");
    assert!(
        has("memlock", -1) || launch.facts.given_up.iter().any(|part| part.starts_with("ulimit memlock")),
        "{limits:?}"
    );

    let (out, err) = in_time(lines(running.output)).await;
    assert_eq!(out[..2], ["agent /rdmaprep/plan.json", "{}"], "{err:?}");
    for line in ["NCCL_IB_HCA=erdma", "NCCL_DEBUG=INFO", "NCCL_P2P_DISABLE=1", "MY_TOKEN=not-to-be-said", "writable"] {
        assert!(out.iter().any(|known| known == line), "{line}: {out:?}");
    }
    let said = serde_json::to_string(&launch.facts).expect("JSON");
    assert!(said.contains("MY_TOKEN") && !said.contains("not-to-be-said"), "{said}");
    assert_eq!(in_time(running.container.wait()).await.expect("an exit code"), 0);
    running.container.remove().await.expect("it goes");
    assert_eq!(left("job"), [""; 0]);
}

#[tokio::test]
async fn starts_that_fail_are_explained_and_leave_nothing() {
    let Some(engine) = engine().await else { return };
    let base = || script("refused", "true");
    let no_device = ContainerSpec { devices: vec![Device::node("/dev/rdmaprep-nope")], ..base() };
    let bind = Bind { source: "/rdmaprep-nope".into(), target: "/x".into(), read_only: true };
    let no_mount = ContainerSpec { mounts: vec![bind], ..base() };
    let no_program = ContainerSpec { entrypoint: Some(vec!["/rdmaprep-nope".into()]), ..base() };
    let gpus = ContainerSpec { gpus: Gpus::Nvidia(NvidiaGpus::All), ..base() };
    let cdi = ContainerSpec { gpus: Gpus::Cdi(vec!["rdmaprep.test/nope=0".into()]), ..base() };
    let mut cases = vec![
        (no_device, StartFailure::DeviceMissing),
        (no_mount, StartFailure::DeviceMissing),
        (no_program, StartFailure::NoLoader),
        (cdi, StartFailure::CdiDeviceUnknown),
    ];
    if load_host(Path::new("/"), "/usr/bin", &CDI_DIRECTORIES).toolkit_hook.is_none() {
        cases.push((gpus, StartFailure::NvidiaToolkitMissing));
    }
    for (spec, expected) in cases {
        let result = start(&engine, &mut launch(spec), &[]).await;
        let Err(StartError::NotStarted { cause, message }) = result else { panic!("{expected:?}: {result:?}") };
        assert_eq!(cause, expected, "{message}");
    }
    let no_image = ContainerSpec { image: "rdmaprep-test/nope:1".into(), ..base() };
    let result = start(&engine, &mut launch(no_image), &[]).await;
    assert!(matches!(result, Err(StartError::Docker(DockerError::ImageNotFound { .. }))), "{result:?}");
    assert_eq!(left("refused"), [""; 0]);
}

#[tokio::test]
async fn a_program_without_its_loader_says_so_in_the_output() {
    let Some(engine) = engine().await else { return };
    let mut spec = script("loader", "");
    spec.entrypoint = Some(vec!["/program".into()]);
    spec.command = None;
    let files = [file("/program", 0o755, Content::Bytes(b"#!/lib/no-such-loader\n".to_vec()))];
    // Some engines refuse the start, others report it as done.
    let words = match start(&engine, &mut launch(spec), &files).await {
        Ok(running) => {
            let (_, err) = in_time(lines(running.output)).await;
            assert_ne!(in_time(running.container.wait()).await.expect("an exit code"), 0);
            err.join("\n")
        }
        Err(error) => error.to_string(),
    };
    let cause = rdmaprep::launch::start_failure::classify_start_failure(&words);
    assert_eq!(cause, StartFailure::NoLoader, "{words}");
}

#[tokio::test]
async fn a_long_line_is_bounded_and_whole() {
    let Some(engine) = engine().await else { return };
    let container = created(&engine, &script("long", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")).await;
    let mut output = container.attach().await.expect("a stream");
    container.start().await.expect("it starts");
    let mut splitter = LineSplitter::with_limit(1_000_000);
    let mut lines = Vec::new();
    while let Some(chunk) = in_time(output.next()).await {
        lines.extend(splitter.push(&chunk.expect("whole frames").bytes));
    }
    assert_eq!(splitter.finish(), None);
    let shape: Vec<(usize, LineEnd)> = lines.iter().map(|line| (line.bytes.len(), line.end)).collect();
    let piece = |end| (1_000_000, end);
    assert_eq!(shape, [piece(LineEnd::Limit), piece(LineEnd::Limit), piece(LineEnd::Newline), (3, LineEnd::Newline)]);
}

#[tokio::test]
async fn this_engine_is_local() {
    let Some(engine) = engine().await else { return };
    let host = load_host(Path::new("/"), "/usr/bin", &CDI_DIRECTORIES);
    let expected = must("docker", &["info", "--format", "{{.Name}} {{.KernelVersion}}"]);
    let said = engine.host().await.expect("its settings");
    assert_eq!(format!("{} {}", said.hostname, said.kernel), expected.trim());
    assert!(said.runtimes.contains(&said.default_runtime), "{said:?}");
    assert_eq!(locality(engine.endpoint().is_on_this_machine(), &said, &host), Locality::Local);
}

#[tokio::test]
async fn clean_removes_what_nobody_waits_for() {
    let Some(engine) = engine().await else { return };
    let own = Owner::load(Path::new("/"), std::process::id());
    let with =
        |owner: &Owner, run: &str| ContainerSpec { labels: owner.labels(&label(run)), ..script("x", "sleep 600") };
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    let ended = Owner::load(Path::new("/"), child.id());
    child.wait().expect("it ends");
    let dead = Owner { pid: ended.pid, started: "1".into(), ..own.clone() };
    let elsewhere = Owner { boot: "another".into(), ..own.clone() };
    let foreign = ContainerSpec { labels: BTreeMap::from([("other".into(), label("foreign"))]), ..script("x", "true") };

    let alive = created(&engine, &with(&own, "clean-alive")).await;
    let orphan = created(&engine, &with(&dead, "clean-orphan")).await;
    orphan.start().await.expect("it starts");
    let remote = created(&engine, &with(&elsewhere, "clean-remote")).await;
    remote.start().await.expect("it starts");
    let foreign = created(&engine, &foreign).await;

    let json = |arguments: &[&str]| -> serde_json::Value {
        let ran = run(rdmaprep().arg("clean").args(["--format", "json"]).args(arguments));
        ran.expect(0);
        serde_json::from_str(&ran.stdout).expect("JSON")
    };
    let runs = |list: &serde_json::Value| -> Vec<String> {
        let entries = list.as_array().expect("a list").iter();
        entries.map(|entry| entry["run"].as_str().expect("a run").to_owned()).collect()
    };
    let said = json(&["--dry-run"]);
    assert_eq!((&said["schema_version"], &said["dry_run"]), (&1.into(), &true.into()));
    assert!(runs(&said["removed"]).contains(&label("clean-orphan")), "{said}");
    assert_eq!(left("clean-orphan").len(), 1);

    let ran = run(rdmaprep().arg("clean"));
    ran.expect(0).prints("removed rdmaprep-").prints(&label("clean-orphan")).prints("--all also removes");
    ran.prints(&format!("run {}: process {}, which launched it, is alive", label("clean-alive"), own.pid));
    ran.prints(&format!("run {}: it is running, and was launched elsewhere", label("clean-remote")));
    assert_eq!((left("clean-orphan").len(), left("clean-alive").len(), left("clean-remote").len()), (0, 1, 1));
    let said = json(&[]);
    assert!(runs(&said["kept"]).contains(&label("clean-remote")), "{said}");
    assert!(!runs(&said["removed"]).contains(&label("clean-orphan")), "{said}");
    // A container that is none of ours is not even looked at.
    assert!(foreign.inspect().await.is_ok() && !said.to_string().contains(foreign.id()), "{said}");
    assert!(json(&["--all", "--dry-run"])["removed"].as_array().is_some_and(|list| list.len() >= 2));
    for container in [alive, orphan, remote, foreign] {
        container.remove().await.expect("it goes");
    }
}
