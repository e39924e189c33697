//! Launching against a stand-in for the daemon: what a real one cannot be made to do.

use crate::support::docker as support;

use rdmaprep::docker::config::{ClientConfig, ClientEnv};
use rdmaprep::docker::container_output::OutputStream;
use rdmaprep::docker::container_spec::{ContainerSpec, Device, Ulimit};
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::Engine;
use rdmaprep::docker::error::DockerError;
use rdmaprep::docker::upload::{Content, Upload};
use rdmaprep::facts::run::{LaunchFacts, StartFailure};
use rdmaprep::launch::spec::Launch;
use rdmaprep::launch::start::{Running, StartError, start};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::mock_daemon::{MockDaemon, Reply, Request};
use support::real_engine::wait_until;

const RLIMIT: &str = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown";
const CAPS: &str =
    "runc create failed: unable to start container process: unable to apply caps: operation not permitted: unknown";
const NO_TOOLKIT: &str = r#"could not select device driver "" with capabilities: [[gpu]]"#;

async fn connect(daemon: &MockDaemon) -> Engine {
    let endpoint = Endpoint::resolve(Some(&daemon.host()), None, &ClientEnv::default(), &ClientConfig::default());
    Engine::connect(&endpoint.expect("a valid host")).await.expect("the stand-in speaks the API")
}

fn error(reply: &mut Reply, status: u16, message: &str) {
    reply.json(status, &serde_json::json!({"message": message}).to_string());
}

/// A daemon that numbers its containers, has "out" and "err" come out of each, and answers a start with `on_start`.
fn daemon(on_start: impl Fn(usize, &mut Reply) + Send + Sync + 'static) -> MockDaemon {
    let made = AtomicUsize::new(0);
    MockDaemon::with_api("1.41", move |request, reply| answer(request, reply, &made, &on_start))
}

fn answer(request: &Request, reply: &mut Reply, made: &AtomicUsize, on_start: &dyn Fn(usize, &mut Reply)) {
    let path = request.endpoint();
    let number = || path.split('/').nth(2).and_then(|id| id.strip_prefix("id-")?.parse().ok()).unwrap_or(0);
    match (request.method.as_str(), path.rsplit('/').next().unwrap_or_default()) {
        ("POST", "create") => {
            let id = made.fetch_add(1, Ordering::SeqCst) + 1;
            reply.json(201, &format!(r#"{{"Id":"id-{id}","Warnings":[]}}"#));
        }
        ("PUT", "archive") => reply.json(200, ""),
        ("POST", "attach") => reply.upgrade(b"\x01\0\0\0\0\0\0\x04out\n\x02\0\0\0\0\0\0\x03err\x01\0\0\0\0\0\0\x01x"),
        ("POST", "start") => on_start(number(), reply),
        ("POST", "wait") => reply.json(200, r#"{"StatusCode":3,"Error":null}"#),
        ("DELETE", _) => reply.json(204, ""),
        _ => error(reply, 404, "no"),
    }
}

fn launch() -> Launch {
    let mut spec = ContainerSpec::new("sha256:ab");
    spec.ulimits =
        [("memlock", -1), ("stack", 67_108_864)].map(|(name, value)| Ulimit { name: name.into(), value }).into();
    spec.capabilities = vec!["IPC_LOCK".into()];
    Launch { spec, facts: LaunchFacts::default(), image_name: "image:1".into() }
}

fn files() -> Vec<Upload> {
    vec![
        Upload { path: "/rdmaprep".into(), mode: 0o755, content: Content::Directory },
        Upload { path: "/rdmaprep/plan".into(), mode: 0o644, content: Content::Bytes(b"plan".to_vec()) },
    ]
}

async fn try_start(daemon: &MockDaemon) -> (Result<Running, StartError>, Launch) {
    let mut launch = launch();
    let result = start(&connect(daemon).await, &mut launch, &files()).await;
    (result, launch)
}

/// `METHOD last-part-of-path` of every request about containers.
fn course(daemon: &MockDaemon) -> Vec<String> {
    let requests = daemon.requests();
    let about = requests.iter().filter(|request| request.endpoint().starts_with("/containers/"));
    about
        .map(|request| format!("{} {}", request.method, request.endpoint().trim_start_matches("/containers/")))
        .collect()
}

fn bodies(daemon: &MockDaemon, end: &str) -> Vec<Vec<u8>> {
    let requests = daemon.requests();
    requests.into_iter().filter(|request| request.endpoint().ends_with(end)).map(|request| request.body).collect()
}

#[tokio::test]
async fn a_container_is_filled_and_attached_before_it_starts() {
    let daemon = daemon(|_, reply| reply.json(204, ""));
    let (result, launch) = try_start(&daemon).await;
    let mut running = result.expect("it starts");
    assert_eq!(running.container.id(), "id-1");
    assert_eq!(launch.facts.given_up, [""; 0]);
    let mut output = Vec::new();
    while let Some(chunk) = running.output.next().await {
        let chunk = chunk.expect("whole frames");
        output.push((chunk.stream, String::from_utf8(chunk.bytes.to_vec()).expect("text")));
    }
    let expected = [(OutputStream::Stdout, "out\n"), (OutputStream::Stderr, "err"), (OutputStream::Stdout, "x")];
    assert_eq!(output, expected.map(|(stream, text)| (stream, text.to_owned())));
    assert_eq!(running.container.wait().await.expect("an exit code"), 3);
    running.container.remove().await.expect("it goes");
    let expected =
        ["POST create", "PUT id-1/archive", "POST id-1/attach", "POST id-1/start", "POST id-1/wait", "DELETE id-1"];
    assert_eq!(course(&daemon), expected);
    let archive = bodies(&daemon, "/archive").remove(0);
    let mut archive = tar::Archive::new(archive.as_slice());
    let names: Vec<String> = archive
        .entries()
        .expect("an archive")
        .map(|entry| entry.expect("an entry").path().expect("a path").to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["rdmaprep", "rdmaprep/plan"]);
    let removal = daemon.requests().pop().expect("a request").path;
    assert!(removal.contains("force=true") && removal.contains("v=true"), "{removal}");
}

#[tokio::test]
async fn refused_limits_and_capabilities_are_given_up_one_by_one() {
    let daemon = daemon(|number, reply| match number {
        1 => error(reply, 400, RLIMIT),
        2 => error(reply, 400, CAPS),
        _ => reply.json(204, ""),
    });
    let (result, launch) = try_start(&daemon).await;
    let running = result.expect("the third attempt starts");
    assert_eq!(running.container.id(), "id-3");
    assert_eq!(launch.facts.given_up, [format!("ulimit memlock: {RLIMIT}"), format!("capability IPC_LOCK: {CAPS}")]);
    let line = &launch.facts.command_line;
    assert!(line.contains("stack=67108864") && !line.contains("memlock") && !line.contains("cap-add"), "{line}");
    let asked: Vec<serde_json::Value> =
        bodies(&daemon, "/create").iter().map(|body| serde_json::from_slice(body).expect("JSON")).collect();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0]["HostConfig"]["Ulimits"].as_array().map(Vec::len), Some(2));
    assert_eq!(asked[1]["HostConfig"]["Ulimits"][0]["Name"], "stack");
    assert_eq!(asked[1]["HostConfig"]["CapAdd"][0], "IPC_LOCK");
    assert!(asked[2]["HostConfig"].get("CapAdd").is_none(), "{}", asked[2]);
    // Each got the files anew, and those that did not start are gone.
    assert_eq!(bodies(&daemon, "/archive").len(), 3);
    let removed: Vec<String> = course(&daemon).into_iter().filter(|line| line.starts_with("DELETE")).collect();
    assert_eq!(removed, ["DELETE id-1", "DELETE id-2"]);
}

#[tokio::test]
async fn a_limit_that_was_given_up_is_not_tried_for_ever() {
    let daemon = daemon(|_, reply| error(reply, 400, RLIMIT));
    let (result, _) = try_start(&daemon).await;
    assert!(matches!(result, Err(StartError::NotStarted { cause: StartFailure::Other, .. })), "{result:?}");
    assert_eq!(bodies(&daemon, "/create").len(), 2);
    assert_eq!(course(&daemon).iter().filter(|line| line.starts_with("DELETE")).count(), 2);
}

#[tokio::test]
async fn a_remote_host_without_rdma_is_for_the_checks_to_judge() {
    let words =
        r#"error gathering device information while adding custom device "/dev/infiniband": no such file or directory"#;
    let daemon = daemon(move |number, reply| match number {
        1 => error(reply, 500, words),
        _ => reply.json(204, ""),
    });
    let mut launch = launch();
    launch.spec.devices = vec![Device::node("/dev/infiniband")];
    launch.facts.devices = vec!["/dev/infiniband".into()];
    start(&connect(&daemon).await, &mut launch, &files()).await.expect("the second attempt starts");
    assert_eq!(launch.facts.given_up, [format!("/dev/infiniband: {words}")]);
    assert_eq!(launch.facts.devices, [""; 0]);
    // A device that was asked for by name is not given up.
    launch.spec.devices = vec![Device::node("/dev/infiniband/uverbs0")];
    let words = words.replace("infiniband", "infiniband/uverbs0");
    let daemon = MockDaemon::with_api("1.41", move |request, reply| match request.endpoint().ends_with("/start") {
        true => error(reply, 500, &words),
        false => answer(request, reply, &AtomicUsize::new(0), &|_, _| ()),
    });
    let result = start(&connect(&daemon).await, &mut launch, &files()).await;
    assert!(matches!(result, Err(StartError::NotStarted { cause: StartFailure::DeviceMissing, .. })), "{result:?}");
}

/// Case F24.
#[tokio::test]
async fn a_refused_start_is_classified_and_leaves_nothing() {
    let daemon = daemon(|_, reply| error(reply, 500, NO_TOOLKIT));
    let (result, _) = try_start(&daemon).await;
    let Err(StartError::NotStarted { cause, message }) = result else { panic!("{result:?}") };
    assert_eq!((cause, message.as_str()), (StartFailure::NvidiaToolkitMissing, NO_TOOLKIT));
    assert_eq!(course(&daemon).last().map(String::as_str), Some("DELETE id-1"));
}

#[tokio::test]
async fn an_error_between_create_and_start_leaves_nothing() {
    for broken in ["archive", "attach"] {
        let made = AtomicUsize::new(0);
        let daemon = MockDaemon::with_api("1.41", move |request, reply| {
            if request.endpoint().ends_with(broken) {
                return error(reply, 500, "the disk is full");
            }
            answer(request, reply, &made, &|_, reply| reply.json(204, ""));
        });
        let (result, _) = try_start(&daemon).await;
        let error = result.expect_err("it cannot start").to_string();
        assert!(error.contains("the disk is full"), "{error}");
        assert_eq!(course(&daemon).last().map(String::as_str), Some("DELETE id-1"), "{broken}");
    }
}

#[tokio::test]
async fn a_local_file_that_is_not_there_is_named() {
    let daemon = daemon(|_, reply| reply.json(204, ""));
    let engine = connect(&daemon).await;
    let files = [Upload { path: "/x".into(), mode: 0o755, content: Content::File("/nonexistent/agent".into()) }];
    let result = start(&engine, &mut launch(), &files).await;
    let Err(StartError::Docker(error @ DockerError::LocalFile { .. })) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("/nonexistent/agent"), "{error}");
    assert_eq!(course(&daemon).last().map(String::as_str), Some("DELETE id-1"));
}

#[tokio::test]
async fn a_missing_image_is_told_from_other_refusals() {
    for (status, message, is_missing) in
        [(404, "No such image: sha256:ab", true), (404, "network nope not found", false), (409, "conflict", false)]
    {
        let daemon = MockDaemon::with_api("1.41", move |_, reply| error(reply, status, message));
        let result = connect(&daemon).await.create_container(&ContainerSpec::new("sha256:ab")).await;
        let refused = result.expect_err("a refusal");
        assert_eq!(matches!(refused, DockerError::ImageNotFound { .. }), is_missing, "{refused:?}");
        assert!(refused.to_string().contains("sha256:ab"), "{refused}");
        // There is nothing to remove.
        assert_eq!(course(&daemon), ["POST create"]);
    }
}

#[tokio::test]
async fn a_creation_that_nobody_waits_for_is_undone() {
    let (asked, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, may_go) = (Arc::clone(&asked), Arc::clone(&go));
    let deleted = AtomicUsize::new(0);
    let daemon = MockDaemon::with_api("1.41", move |request, reply| match request.method.as_str() {
        "POST" => {
            seen.store(1, Ordering::SeqCst);
            wait_until(|| may_go.load(Ordering::SeqCst) == 1);
        }
        // The container comes to be only after the first attempt to remove it.
        _ if deleted.fetch_add(1, Ordering::SeqCst) == 0 => error(reply, 404, "No such container"),
        _ => reply.json(204, ""),
    });
    let engine = connect(&daemon).await;
    let spec = ContainerSpec::new("sha256:ab");
    let creation = tokio::spawn(async move { engine.create_container(&spec).await.map(drop) });
    let requested = Arc::clone(&asked);
    let is_asked = tokio::task::spawn_blocking(move || wait_until(|| requested.load(Ordering::SeqCst) == 1)).await;
    assert!(is_asked.expect("no panic"), "the request arrives");
    creation.abort();
    assert!(creation.await.expect_err("it was given up").is_cancelled());
    go.store(1, Ordering::SeqCst);
    let requests = daemon.requests();
    let created = requests.iter().find(|request| request.method == "POST").expect("a creation");
    let name = created.path.split_once("name=").expect("a name").1.split('&').next().expect("a value").to_owned();
    let deletions: Vec<&Request> = requests.iter().filter(|request| request.method == "DELETE").collect();
    assert_eq!(deletions.len(), 2, "{requests:?}");
    assert!(deletions.iter().all(|request| request.endpoint() == format!("/containers/{name}")), "{deletions:?}");
}

/// Somebody removed it: before it was waited for, or between its end and the question how it came.
#[tokio::test]
async fn a_container_that_somebody_removed_has_ended() {
    for (waits, exit_code) in [(true, 3), (false, 137)] {
        let made = AtomicUsize::new(0);
        let daemon = MockDaemon::with_api("1.41", move |request, reply| match request.endpoint().ends_with("/wait") {
            true if !waits => error(reply, 404, "No such container: id-1"),
            _ => answer(request, reply, &made, &|_, reply| reply.json(204, "")),
        });
        let (result, _) = try_start(&daemon).await;
        let running = result.expect("it starts");
        let end = running.container.ended().await.expect("its end");
        assert_eq!((end.exit_code, end.out_of_memory), (exit_code, false));
        running.container.remove().await.expect("it goes");
    }
}

#[tokio::test]
async fn what_is_gone_already_is_no_error() {
    let daemon = MockDaemon::with_api("1.41", |request, reply| match (request.method.as_str(), request.endpoint()) {
        ("DELETE", "/containers/busy") => error(reply, 409, "removal of container busy is already in progress"),
        ("DELETE", "/containers/odd") => error(reply, 500, "driver failed to remove root filesystem"),
        _ => error(reply, 404, "No such container: gone"),
    });
    let engine = connect(&daemon).await;
    assert!(!engine.remove_container("gone").await.expect("an answer"));
    assert!(engine.remove_container("busy").await.expect("an answer"));
    let failed = engine.remove_container("odd").await.expect_err("it is still there").to_string();
    assert!(failed.starts_with("removing the container odd at "), "{failed}");
}

#[tokio::test]
async fn the_daemon_says_what_its_machine_has() {
    let info = r#"{"Name":"gpu-1","KernelVersion":"6.1","Runtimes":{"runc":{"path":"runc"},"nvidia":{"path":"x"}},
        "DefaultRuntime":"runc","CDISpecDirs":["/etc/cdi"],"DiscoveredDevices":[{"Source":"cdi","ID":"nvidia.com/gpu=0"}]}"#;
    let daemon = MockDaemon::with_api("1.50", move |_, reply| reply.json(200, info));
    let host = connect(&daemon).await.host().await.expect("an answer");
    assert_eq!((host.hostname.as_str(), host.kernel.as_str(), host.default_runtime.as_str()), ("gpu-1", "6.1", "runc"));
    assert_eq!((host.runtimes, host.cdi_directories), (vec!["nvidia".into(), "runc".into()], vec!["/etc/cdi".into()]));
    assert_eq!(host.cdi_devices, ["nvidia.com/gpu=0"]);
}
