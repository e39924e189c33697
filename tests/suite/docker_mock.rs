//! The Docker module against a stand-in for the daemon: what a real one cannot be made to do.

use crate::support::docker as support;

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdmaprep::docker::auth::Credentials;
use rdmaprep::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuilderKind, BuiltImage};
use rdmaprep::docker::config::{ClientConfig, ClientEnv};
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::{Engine, EngineKind};
use rdmaprep::docker::error::{DockerError, VersionLimit};
use rdmaprep::docker::push::{PushError, PushEvent};
use rdmaprep::remedy::Remedy;
use support::mock_daemon::{MockDaemon, Reply, Request, version};
use tokio_util::sync::CancellationToken;

const CLASSIC: &str = include_str!("../data/docker/classic-multistage.ndjson");
const BUILDKIT: &str = include_str!("../data/docker/buildkit-multistage.ndjson");
const BUILDKIT_FAILED: &str = include_str!("../data/docker/buildkit-failed.ndjson");

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn endpoint(host: &str, vars: &[(&str, &str)]) -> Endpoint {
    let env = ClientEnv::new(vars.iter().copied(), None);
    Endpoint::resolve(Some(host), None, &env, &ClientConfig::default()).expect("a valid host")
}

async fn connect(daemon: &MockDaemon) -> Engine {
    Engine::connect(&endpoint(&daemon.host(), &[])).await.expect("the stand-in speaks the API")
}

async fn connection_error(host: &str, vars: &[(&str, &str)]) -> DockerError {
    let error = Engine::connect(&endpoint(host, vars)).await.expect_err("nothing usable is there");
    assert!(error.to_string().contains(host), "{error}");
    error
}

/// An answer to the inspection of `id`.
fn inspection(id: &str) -> String {
    format!(r#"{{"Id":"{id}","RepoTags":null,"Config":null}}"#)
}

/// The image that a recorded build ends with.
fn built_id(stream: &str) -> String {
    let aux = stream.lines().rfind(|line| line.contains(r#""aux":{"ID""#)).expect("an image ID");
    let start = aux.find("sha256:").expect("a digest");
    aux[start..start + 71].to_owned()
}

fn request(builder: Builder) -> BuildRequest {
    BuildRequest { dockerfile: "FROM scratch\n".to_owned(), builder, ..BuildRequest::default() }
}

async fn build(daemon: &MockDaemon, request: BuildRequest) -> (Result<BuiltImage, BuildError>, Vec<BuildEvent>) {
    let engine = connect(daemon).await;
    let mut events = Vec::new();
    let result = engine.build(request, &mut |event| events.push(event), CancellationToken::new()).await;
    (result, events)
}

/// A daemon whose builds are `stream`, and that knows the image the recording ends with.
fn building(stream: &'static str, answer: impl Fn(&Request, &mut Reply) + Send + Sync + 'static) -> MockDaemon {
    let id = built_id(stream);
    MockDaemon::with_api("1.41", move |request, reply| match request.endpoint() {
        "/build" => answer(request, reply),
        path if path.starts_with("/images/") && request.method == "GET" => reply.json(200, &inspection(&id)),
        _ => reply.json(404, r#"{"message":"no"}"#),
    })
}

fn builders(events: &[BuildEvent]) -> Vec<BuilderKind> {
    let builder = |event: &BuildEvent| match event {
        BuildEvent::BuilderChosen { builder, .. } => Some(*builder),
        _ => None,
    };
    events.iter().filter_map(builder).collect()
}

#[tokio::test]
async fn requests_carry_the_negotiated_version() {
    for (daemons, used) in [("1.41", "1.41"), ("1.99", "1.53")] {
        let daemon = MockDaemon::with_api(daemons, |_, reply| reply.json(404, r#"{"message":"no such image"}"#));
        let engine = connect(&daemon).await;
        assert_eq!(engine.info().api_version, used);
        assert_eq!(engine.info().version, "99.0");
        assert_eq!(engine.info().kind, EngineKind::Docker);
        assert_eq!(engine.inspect_image("x:1").await.expect("an answer"), None);
        let paths: Vec<String> = daemon.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, ["/version".to_owned(), format!("/v{used}/version"), format!("/v{used}/images/x:1/json")]);
    }
}

#[tokio::test]
async fn versions_that_do_not_meet_are_both_named() {
    for (api, message, daemon_version, limit) in [
        (
            "1.99",
            "client version 1.53 is too old. Minimum supported API version is 1.60, please upgrade your client to a newer version",
            "1.60",
            VersionLimit::Minimum,
        ),
        (
            "1.99",
            "client version 1.53 is too new. Maximum supported API version is 1.52",
            "1.52",
            VersionLimit::Maximum,
        ),
    ] {
        let daemon = MockDaemon::start(move |request, reply| match request.path.as_str() {
            "/version" => reply.json(200, &version(api)),
            _ => reply.json(400, &format!(r#"{{"message":"{message}"}}"#)),
        });
        let error = connection_error(&daemon.host(), &[]).await;
        let DockerError::ApiVersion { client, daemon: found, limit: found_limit, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((client.as_str(), found.as_str(), *found_limit), ("1.53", daemon_version, limit));
        assert!(error.to_string().contains("1.53") && error.to_string().contains(daemon_version), "{error}");
        assert!(error.remedy().is_some());
    }
}

#[tokio::test]
async fn podman_is_recognised_and_gets_no_buildkit() {
    let daemon = MockDaemon::start(|request, reply| match request.endpoint() {
        "/version" => reply.json(
            200,
            r#"{"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"Podman Engine","Version":"4.3.1"}]}"#,
        ),
        "/containers/json" | "/images/json" => reply.json(200, "[]"),
        _ => reply.json(500, r#"{"message":"no"}"#),
    });
    assert_eq!(connect(&daemon).await.info().kind, EngineKind::Podman);
    let (_, events) = build(&daemon, request(Builder::Auto)).await;
    assert_eq!(builders(&events), [BuilderKind::Classic]);
    let (result, _) = build(&daemon, request(Builder::BuildKit)).await;
    assert!(matches!(result, Err(BuildError::BuilderUnavailable { .. })), "{result:?}");
}

#[tokio::test]
async fn places_where_no_daemon_is() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let socket = dir.path().join("d.sock");
    let host = format!("unix://{}", socket.display());
    assert!(matches!(connection_error(&host, &[]).await, DockerError::NotRunning { .. }));

    drop(std::os::unix::net::UnixListener::bind(&socket).expect("binding the socket"));
    assert!(matches!(connection_error(&host, &[]).await, DockerError::Refused { .. }));

    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let error = connection_error(&format!("tcp://{free}"), &[]).await;
    assert!(matches!(error, DockerError::Refused { .. }), "{error:?}");

    let web_server = MockDaemon::start(|_, reply| reply.json(404, "404 page not found"));
    let error = connection_error(&web_server.host(), &[]).await;
    assert!(matches!(error, DockerError::Unreachable { .. }), "{error:?}");
    let error = connection_error("tcp://host.invalid:2375", &[]).await;
    assert!(matches!(error, DockerError::Unreachable { .. }), "{error:?}");
    for host in [format!("tcp://{free}"), web_server.host()] {
        assert!(connection_error(&host, &[]).await.remedy().is_some());
    }
}

#[tokio::test]
async fn tls_on_one_side_only_is_a_tls_error() {
    let plain = MockDaemon::with_api("1.41", |_, _| {});
    let error = connection_error(&plain.host(), &[("DOCKER_TLS_VERIFY", "1")]).await;
    assert!(matches!(error, DockerError::Tls { .. }), "{error:?}");

    // What Go's server says to plain HTTP.
    let tls = MockDaemon::start(|_, reply| reply.json(400, "Client sent an HTTP request to an HTTPS server.\n"));
    let error = connection_error(&tls.host(), &[]).await;
    assert!(matches!(error, DockerError::Tls { .. }), "{error:?}");
}

#[tokio::test]
async fn an_unusable_certificate_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().to_str().expect("UTF-8 path");
    let vars = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", path)];
    std::fs::write(dir.path().join("key.pem"), "nonsense").expect("writing the fixture");
    let error = connection_error("tcp://127.0.0.1:1", &vars).await;
    assert!(error.to_string().contains("key.pem"), "{error}");
    std::fs::write(dir.path().join("key.pem"), "-----BEGIN PRIVATE KEY-----\n").expect("writing the fixture");
    let error = connection_error("tcp://127.0.0.1:1", &vars).await;
    assert!(error.to_string().contains("cert.pem"), "{error}");
}

#[tokio::test]
async fn a_reference_never_leaves_its_place_in_the_path() {
    let daemon = MockDaemon::with_api("1.41", |_, reply| reply.json(200, "{}"));
    let engine = connect(&daemon).await;
    let before = daemon.requests().len();
    for name in ["../containers/json", "x?force=1", "x#y", "x y", ""] {
        assert!(matches!(engine.inspect_image(name).await, Err(DockerError::Reference(_))), "{name}");
        assert!(matches!(engine.remove_image(name, true).await, Err(DockerError::Reference(_))), "{name}");
        assert!(engine.save_image(name).await.is_err(), "{name}");
    }
    assert_eq!(daemon.requests().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_image_is_read_with_back_pressure() {
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 1024;
    let sent_all = Arc::new(AtomicBool::new(false));
    let (sent, finished) = (Arc::clone(&sent_all), mpsc::channel());
    let done = Mutex::new(finished.0);
    let daemon = MockDaemon::with_api("1.41", move |_, reply| {
        reply.start();
        for _ in 0..CHUNKS {
            reply.chunk(&[7; CHUNK]);
        }
        reply.end();
        sent.store(true, Ordering::SeqCst);
        let _ = done.lock().expect("one handler").send(());
    });
    let engine = connect(&daemon).await;
    let mut archive = engine.save_image("x").await.expect("a stream");
    let finished = finished.1;
    let total = tokio::task::spawn_blocking(move || {
        let mut byte = [0];
        archive.read_exact(&mut byte).expect("the first byte");
        // An unbounded queue would take all 64 MiB in far less.
        assert!(finished.recv_timeout(Duration::from_secs(2)).is_err(), "the whole image went into memory");
        let rest = std::io::copy(&mut archive, &mut std::io::sink()).expect("the rest");
        finished.recv_timeout(PATIENCE).expect("the daemon could send all");
        rest + 1
    });
    assert_eq!(total.await.expect("no panic"), (CHUNK * CHUNKS) as u64);
    assert!(sent_all.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_archive_is_an_error_of_read() {
    let daemon = MockDaemon::with_api("1.41", |_, reply| {
        reply.start();
        reply.chunk(b"some bytes");
    });
    let engine = connect(&daemon).await;
    let mut archive = engine.save_image("x").await.expect("a stream");
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let result = archive.read_to_end(&mut bytes);
        (bytes, result)
    });
    let (bytes, result) = read.await.expect("no panic");
    assert_eq!(bytes, b"some bytes");
    let error = result.expect_err("the last chunk is missing");
    assert!(error.to_string().contains("saving the image x"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_archive_ends_the_transfer() {
    let (closed, wait) = mpsc::channel();
    let closed = Mutex::new(closed);
    let daemon = MockDaemon::with_api("1.41", move |_, reply| {
        reply.start();
        reply.chunk(b"x");
        reply.wait_for_close();
        let _ = closed.lock().expect("one handler").send(());
    });
    let engine = connect(&daemon).await;
    drop(engine.save_image("x").await.expect("a stream"));
    let waited = tokio::task::spawn_blocking(move || wait.recv_timeout(PATIENCE));
    waited.await.expect("no panic").expect("the connection was closed");
}

#[tokio::test]
async fn a_missing_image_cannot_be_saved() {
    let daemon = MockDaemon::with_api("1.41", |_, reply| reply.json(404, r#"{"message":"No such image: x"}"#));
    let engine = connect(&daemon).await;
    let Err(error) = engine.save_image("x").await else { panic!("there is no such image") };
    assert!(matches!(error, DockerError::ImageNotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn messages_may_be_cut_and_joined_anywhere() {
    let whole = CLASSIC.as_bytes();
    for size in [1, 7, 1000, whole.len()] {
        let daemon = building(CLASSIC, move |_, reply| reply.stream(&whole.chunks(size).collect::<Vec<_>>()));
        let (result, events) = build(&daemon, request(Builder::Classic)).await;
        assert_eq!(result.expect("a build").id, built_id(CLASSIC), "chunks of {size}");
        let steps = events.iter().filter(|event| matches!(event, BuildEvent::StepDone { .. })).count();
        assert_eq!(steps, 11, "chunks of {size}");
    }
}

#[tokio::test]
async fn an_error_inside_a_successful_answer_is_a_failure() {
    let daemon = building(BUILDKIT, |_, reply| reply.stream(&[BUILDKIT_FAILED.as_bytes()]));
    let (result, _) = build(&daemon, request(Builder::Auto)).await;
    let Err(BuildError::Step { step, exit_code, last_lines, .. }) = result else { panic!("{result:?}") };
    assert_eq!(step, "[2/3] RUN echo hi; sleep 1; exit 7");
    assert_eq!((exit_code, last_lines), (Some(7), vec!["hi".to_owned()]));
}

#[tokio::test]
async fn a_stream_that_just_ends_is_a_failure() {
    let cut = CLASSIC.find("last\\n").expect("a line of the ninth step");
    let cut = cut + CLASSIC[cut..].find('\n').expect("its end") + 1;
    for in_order in [true, false] {
        let daemon = building(CLASSIC, move |_, reply| {
            reply.start();
            reply.chunk(&CLASSIC.as_bytes()[..cut]);
            if in_order {
                reply.end();
            }
        });
        let (result, _) = build(&daemon, request(Builder::Classic)).await;
        let Err(BuildError::Truncated { last_step, last_lines, cause }) = result else { panic!("{result:?}") };
        assert!(last_step.as_ref().is_some_and(|step| step.starts_with("RUN echo \"Step 9/9")), "{last_step:?}");
        assert_eq!(last_lines.last().map(String::as_str), Some("last"));
        assert_eq!(cause.is_none(), in_order, "{cause:?}");
    }
    let half = building(CLASSIC, |_, reply| reply.stream(&[b"{\"stream\":\"Step 1/2 : FROM scratch"]));
    let (result, _) = build(&half, request(Builder::Classic)).await;
    assert!(matches!(result, Err(BuildError::Truncated { .. })), "{result:?}");
}

#[tokio::test]
async fn an_image_that_is_not_there_is_a_failure() {
    let daemon = MockDaemon::with_api("1.41", |request, reply| match request.endpoint() {
        "/build" => reply.stream(&[BUILDKIT.as_bytes()]),
        _ => reply.json(404, r#"{"message":"no such image"}"#),
    });
    let (result, _) = build(&daemon, request(Builder::Auto)).await;
    assert!(matches!(result, Err(BuildError::Unverified { .. })), "{result:?}");
}

#[tokio::test]
async fn buildkit_is_the_default_and_falls_back_before_its_first_step() {
    let daemon = building(BUILDKIT, |_, reply| reply.stream(&[BUILDKIT.as_bytes()]));
    let (result, events) = build(&daemon, request(Builder::Auto)).await;
    assert_eq!(result.expect("a build").builder, BuilderKind::BuildKit);
    assert_eq!(builders(&events), [BuilderKind::BuildKit]);

    let refusing = |request: &Request, reply: &mut Reply| match request.path.contains("version=2") {
        true => reply.json(500, r#"{"message":"BuildKit is not enabled on this daemon"}"#),
        false => reply.stream(&[CLASSIC.as_bytes()]),
    };
    let daemon = building(CLASSIC, refusing);
    let (result, events) = build(&daemon, request(Builder::Auto)).await;
    assert_eq!(result.expect("a build").builder, BuilderKind::Classic);
    assert_eq!(builders(&events), [BuilderKind::BuildKit, BuilderKind::Classic]);
    let told = events.iter().any(|event| {
        matches!(event, BuildEvent::BuilderChosen { builder: BuilderKind::Classic, reason } if reason.contains("not enabled"))
    });
    assert!(told, "{events:?}");
    let (result, _) = build(&daemon, request(Builder::BuildKit)).await;
    assert!(matches!(result, Err(BuildError::BuilderUnavailable { .. })), "{result:?}");

    // Once a step has run, another builder would only repeat the failure.
    let late = |request: &Request, reply: &mut Reply| {
        let failed = BUILDKIT_FAILED.replace("executor failed", "buildkit: executor failed");
        assert!(request.path.contains("version=2"), "{}", request.path);
        reply.stream(&[failed.as_bytes()]);
    };
    let (result, events) = build(&building(BUILDKIT, late), request(Builder::Auto)).await;
    assert!(matches!(result, Err(BuildError::Step { .. })), "{result:?}");
    assert_eq!(builders(&events), [BuilderKind::BuildKit]);
}

#[tokio::test]
async fn an_old_daemon_gets_the_classic_builder() {
    let id = built_id(CLASSIC);
    let daemon = MockDaemon::with_api("1.38", move |request, reply| match request.endpoint() {
        "/build" => reply.stream(&[CLASSIC.as_bytes()]),
        _ => reply.json(200, &inspection(&id)),
    });
    let (result, events) = build(&daemon, request(Builder::Auto)).await;
    assert_eq!(result.expect("a build").builder, BuilderKind::Classic);
    assert!(matches!(&events[0], BuildEvent::BuilderChosen { reason, .. } if reason.contains("1.38")), "{events:?}");
}

#[tokio::test]
async fn answers_before_the_stream_are_told_apart() {
    for (status, message, is_expected) in [
        (400, "invalid reference format", (|e| matches!(e, BuildError::InvalidTag { .. })) as fn(&BuildError) -> bool),
        (400, "dockerfile parse error line 2: unknown instruction: FOO", |e| matches!(e, BuildError::Rejected { .. })),
        (500, "no space left on device", |e| matches!(e, BuildError::Daemon(DockerError::Daemon { status: 500, .. }))),
    ] {
        let body = format!(r#"{{"message":"{message}"}}"#);
        let daemon = building(BUILDKIT, move |_, reply| reply.json(status, &body));
        let request = BuildRequest { tags: vec!["x:1".to_owned()], ..request(Builder::Auto) };
        let (result, events) = build(&daemon, request).await;
        let error = result.expect_err("the daemon did not begin");
        assert!(is_expected(&error), "{error:?}");
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(builders(&events).len(), 1, "no fallback");
    }
}

#[tokio::test]
async fn a_wrong_tag_never_reaches_the_daemon() {
    let daemon = building(BUILDKIT, |_, reply| reply.json(500, "{}"));
    let engine = connect(&daemon).await;
    let before = daemon.requests().len();
    let request = BuildRequest { tags: vec!["Upper:1".to_owned()], ..request(Builder::Auto) };
    let result = engine.build(request, &mut |_| {}, CancellationToken::new()).await;
    assert!(matches!(result, Err(BuildError::InvalidTag { .. })), "{result:?}");
    assert_eq!(daemon.requests().len(), before);
}

/// A daemon that shows one step and then waits until the client goes; and a sign that it went.
fn endless(builder: Builder) -> (MockDaemon, mpsc::Receiver<()>) {
    let (closed, wait) = mpsc::channel();
    let closed = Mutex::new(closed);
    let begin = match builder {
        Builder::Classic => CLASSIC.split_inclusive('\n').take(15).collect::<String>(),
        _ => BUILDKIT.split_inclusive('\n').take(2).collect(),
    };
    let daemon = building(CLASSIC, move |_, reply| {
        reply.start();
        reply.chunk(begin.as_bytes());
        reply.wait_for_close();
        let _ = closed.lock().expect("one handler").send(());
    });
    (daemon, wait)
}

#[tokio::test]
async fn the_token_closes_the_connection() {
    for builder in [Builder::Classic, Builder::BuildKit] {
        let (daemon, closed) = endless(builder);
        let engine = connect(&daemon).await;
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let mut on_event = |event| {
            if matches!(event, BuildEvent::StepStarted { .. }) {
                token.cancel();
            }
        };
        let result = engine.build(request(builder), &mut on_event, cancel).await;
        assert!(matches!(result, Err(BuildError::Cancelled)), "{result:?}");
        closed.recv_timeout(PATIENCE).expect("the connection was closed");
    }
}

#[tokio::test]
async fn a_dropped_build_closes_the_connection_too() {
    let (daemon, closed) = endless(Builder::BuildKit);
    let engine = connect(&daemon).await;
    let (started, wait) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let mut on_event = |event| {
        if matches!(event, BuildEvent::StepStarted { .. }) {
            started.take().map(|started| started.send(()));
        }
    };
    tokio::select! {
        result = engine.build(request(Builder::BuildKit), &mut on_event, CancellationToken::new()) => panic!("{result:?}"),
        started = wait => started.expect("a step"),
    }
    closed.recv_timeout(PATIENCE).expect("the connection was closed");
}

#[tokio::test]
async fn a_token_that_has_fired_builds_nothing() {
    let daemon = building(BUILDKIT, |_, reply| reply.stream(&[BUILDKIT.as_bytes()]));
    let engine = connect(&daemon).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let result = engine.build(request(Builder::Auto), &mut |_| {}, cancel).await;
    assert!(matches!(result, Err(BuildError::Cancelled)), "{result:?}");
    assert!(!daemon.requests().iter().any(|request| request.endpoint() == "/build"));
}

async fn push(answer: &'static str) -> (Result<String, PushError>, Vec<PushEvent>, MockDaemon) {
    let daemon =
        MockDaemon::with_api("1.41", move |_, reply| reply.stream(&answer.as_bytes().chunks(1).collect::<Vec<_>>()));
    let credentials = Credentials::Password { username: "bob".to_owned(), password: "pa?ss>wo~rd/+".to_owned() };
    let mut events = Vec::new();
    let engine = connect(&daemon).await;
    let pushed = engine.push("r.example:5000/a/b:1", Some(&credentials), &mut |event| events.push(event)).await;
    (pushed.map(|pushed| pushed.digest), events, daemon)
}

#[tokio::test]
async fn a_push_ends_with_a_digest_and_sends_url_safe_credentials() {
    let (digest, events, daemon) = push(concat!(
        "{\"status\":\"Pushing\",\"progressDetail\":{\"current\":1,\"total\":2},\"id\":\"ab\"}\r\n",
        "{\"status\":\"1: digest: sha256:ab size: 527\"}\r\n",
        "{\"progressDetail\":{},\"aux\":{\"Tag\":\"1\",\"Digest\":\"sha256:ab\",\"Size\":527}}\r\n",
    ))
    .await;
    assert_eq!(digest.expect("a push"), "sha256:ab");
    assert_eq!(events.len(), 2, "{events:?}");
    let requests = daemon.requests();
    let sent = requests.last().expect("a request");
    assert_eq!(sent.path, "/v1.41/images/r.example:5000/a/b/push?tag=1");
    let auth = sent.header("x-registry-auth").expect("credentials");
    assert!(auth.contains(['-', '_']) && !auth.contains(['+', '/']), "{auth}");
}

#[tokio::test]
async fn a_push_can_fail_inside_a_successful_answer() {
    let (result, ..) = push(r#"{"errorDetail":{"message":"unauthorized: authentication required"},"error":"x"}"#).await;
    let error = result.expect_err("an error");
    assert!(matches!(&error, PushError::Unauthorized { registry, .. } if registry == "r.example:5000"), "{error:?}");
    assert_eq!(error.remedy().as_deref(), Some("run `docker login r.example:5000`"));

    let (result, ..) = push(r#"{"errorDetail":{"message":"blob upload unknown"},"error":"x"}"#).await;
    assert!(matches!(result, Err(PushError::Failed { .. })), "{result:?}");
    let (result, ..) = push(r#"{"errorDetail":{"message":"An image does not exist locally with the tag: x"}}"#).await;
    assert!(matches!(result, Err(PushError::Daemon(DockerError::ImageNotFound { .. }))), "{result:?}");
    let (result, ..) = push(r#"{"status":"Pushed"}"#).await;
    assert!(matches!(result, Err(PushError::NoDigest { .. })), "{result:?}");
}
