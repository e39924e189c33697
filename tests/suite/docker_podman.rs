//! The Docker module against podman's Docker-compatible service, where podman is installed.

use crate::support::docker as support;

use std::io::Write;
use std::process::{Child, Command, Stdio};

use rdmaprep::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuilderKind};
use rdmaprep::docker::config::{ClientConfig, ClientEnv};
use rdmaprep::docker::container_output::OutputStream;
use rdmaprep::docker::container_spec::{ContainerSpec, Ulimit};
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::{Engine, EngineKind};
use rdmaprep::docker::upload::{Content, Upload};
use rdmaprep::facts::run::{LaunchFacts, StartFailure};
use rdmaprep::launch::spec::Launch;
use rdmaprep::launch::start::{StartError, start};
use std::collections::BTreeMap;
use support::real_engine::{busybox_archive, program, skip, wait_until};
use tokio_util::sync::CancellationToken;

const BASE: &str = "localhost/rdmaprep-test/base:1";

/// A service of its own, with a store of its own.
struct Podman {
    engine: Engine,
    service: Child,
    _store: tempfile::TempDir,
}

impl Podman {
    async fn start() -> Option<Self> {
        if program("podman").is_none() {
            return skip("the program podman is not installed");
        }
        let Some(archive) = busybox_archive(1) else {
            return skip("there is no static busybox");
        };
        let store = tempfile::tempdir().expect("temporary directory");
        let dir = store.path().to_str().expect("UTF-8 path");
        let podman = |arguments: &[&str]| {
            let mut podman = Command::new("podman");
            podman.args(["--root", &format!("{dir}/root"), "--runroot", &format!("{dir}/run")]);
            podman.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
            podman.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            podman
        };
        let mut import = podman(&["import", "-", BASE]).spawn().expect("running podman");
        let written = import.stdin.take().expect("a pipe").write_all(&archive);
        if written.is_err() || !import.wait().expect("podman ends").success() {
            return skip("podman cannot keep images here");
        }
        let socket = format!("unix://{dir}/podman.sock");
        let service = podman(&["system", "service", "--time", "0", &socket]).spawn().expect("running podman");
        assert!(wait_until(|| store.path().join("podman.sock").exists()), "the service listens");
        let endpoint = Endpoint::resolve(Some(&socket), None, &ClientEnv::default(), &ClientConfig::default());
        let engine = Engine::connect(&endpoint.expect("a valid host")).await;
        Some(Self { engine: engine.unwrap_or_else(|error| panic!("{error}")), service, _store: store })
    }

    async fn build(&self, instructions: &str, tag: &str) -> (Result<String, BuildError>, Vec<BuildEvent>) {
        let request = BuildRequest {
            dockerfile: format!("FROM {BASE} AS first\n{instructions}\n"),
            tags: vec![tag.to_owned()],
            network: Some("host".to_owned()),
            builder: Builder::Auto,
            ..BuildRequest::default()
        };
        let mut events = Vec::new();
        let result = self.engine.build(request, &mut |event| events.push(event), CancellationToken::new()).await;
        (result.map(|built| built.id), events)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

#[tokio::test]
async fn podman_builds_with_its_classic_interface() {
    let Some(podman) = Podman::start().await else { return };
    assert_eq!(podman.engine.info().kind, EngineKind::Podman);

    let instructions =
        format!("RUN echo hello; printf 'no end'\nFROM {BASE}\nCOPY --from=first /number /n\nRUN cat /n");
    let (result, events) = podman.build(&instructions, "localhost/rdmaprep-test/built:1").await;
    let id = result.unwrap_or_else(|error| panic!("{error} {events:#?}"));
    let chosen = |event: &BuildEvent| matches!(event, BuildEvent::BuilderChosen { builder: BuilderKind::Classic, reason } if reason.contains("podman"));
    assert!(chosen(&events[0]), "{events:#?}");
    let done = events.iter().filter(|event| matches!(event, BuildEvent::StepDone { .. })).count();
    assert_eq!(done, 5, "{events:#?}");
    for expected in ["hello", "no end"] {
        let is_logged = |event: &BuildEvent| matches!(event, BuildEvent::Log { line, .. } if line == expected);
        assert!(events.iter().any(is_logged), "{expected} {events:#?}");
    }
    let image = podman.engine.inspect_image(&id).await.expect("an answer").expect("the image");
    assert!(!image.diff_ids.is_empty(), "{image:?}");

    let (result, _) = podman.build("RUN echo last words; exit 5", "localhost/rdmaprep-test/failed:1").await;
    let Err(BuildError::Step { step, exit_code, last_lines, .. }) = result else { panic!("{result:?}") };
    assert_eq!(step, "RUN echo last words; exit 5");
    assert_eq!((exit_code, last_lines), (Some(5), vec!["last words".to_owned()]));
    assert_eq!(podman.engine.inspect_image("localhost/rdmaprep-test/failed:1").await.expect("an answer"), None);
}

#[tokio::test]
async fn podman_runs_a_container() {
    let Some(podman) = Podman::start().await else { return };
    let mut spec = ContainerSpec::new(BASE);
    spec.entrypoint = Some(vec!["/bin/sh".to_owned()]);
    spec.command = Some(vec!["-c".to_owned(), "cat /d/f; echo $WORD; echo err >&2; exit 3".to_owned()]);
    spec.env = vec![("WORD".to_owned(), Some("word".to_owned()))];
    spec.network = "host".to_owned();
    spec.labels = BTreeMap::from([("rdmaprep.run".to_owned(), "r".to_owned())]);
    // Without these podman asks for limits of its own, which not every daemon may set.
    let limits = [("memlock", -1), ("nofile", 1024), ("nproc", 16_384)];
    spec.ulimits = limits.map(|(name, value)| Ulimit { name: name.to_owned(), value }).into();
    let files = [
        Upload { path: "/d".to_owned(), mode: 0o755, content: Content::Directory },
        Upload { path: "/d/f".to_owned(), mode: 0o644, content: Content::Bytes(b"uploaded\n".to_vec()) },
    ];
    let mut launch = Launch { spec, facts: LaunchFacts::default(), image_name: BASE.to_owned() };
    let started = start(&podman.engine, &mut launch, &files).await;
    let mut running = match started {
        Ok(running) => running,
        // In a sandbox podman cannot run anything.
        Err(StartError::NotStarted { message, .. }) if !message.contains("rlimit") => {
            skip::<()>(&message);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(chunk) = running.output.next().await {
        let chunk = chunk.expect("whole frames");
        match chunk.stream {
            OutputStream::Stdout => out.extend_from_slice(&chunk.bytes),
            OutputStream::Stderr => err.extend_from_slice(&chunk.bytes),
        }
    }
    assert_eq!(
        (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err)),
        ("uploaded\nword\n".into(), "err\n".into())
    );
    assert_eq!(running.container.wait().await.expect("an exit code"), 3);
    let end = running.container.inspect().await.expect("its state");
    assert_eq!((end.running, end.exit_code), (false, 3));
    let listed = podman.engine.list_labelled("rdmaprep.run").await.expect("a list");
    assert_eq!(listed.iter().map(|container| container.id.as_str()).collect::<Vec<_>>(), [running.container.id()]);
    running.container.remove().await.expect("it goes");
    assert_eq!(podman.engine.list_labelled("rdmaprep.run").await.expect("a list"), []);
    assert!(!podman.engine.host().await.expect("its settings").kernel.is_empty());

    let spec = ContainerSpec { entrypoint: Some(vec!["/nope".to_owned()]), ..launch.spec.clone() };
    let mut launch = Launch { spec, ..launch };
    let result = start(&podman.engine, &mut launch, &files).await;
    assert!(matches!(result, Err(StartError::NotStarted { cause: StartFailure::NoLoader, .. })), "{result:?}");
    assert_eq!(podman.engine.list_labelled("rdmaprep.run").await.expect("a list"), []);
}
