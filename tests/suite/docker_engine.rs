//! The Docker module against the engine of this machine. Without an engine the tests say `skipped: …`.

use crate::support::docker as support;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use rdmaprep::docker::auth::{self, Credentials};
use rdmaprep::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuilderKind, BuiltImage};
use rdmaprep::docker::config::{ClientEnv, load_client_config, proxy_build_args};
use rdmaprep::docker::context::BuildContext;
use rdmaprep::docker::engine::EngineKind;
use rdmaprep::docker::error::DockerError;
use rdmaprep::docker::push::PushError;
use rdmaprep::remedy::Remedy;
use support::real_engine::{Workshop, docker, is_running};
use support::registry::{PASSWORD, Registry, USER};
use tokio_util::sync::CancellationToken;

const BOTH: [Builder; 2] = [Builder::BuildKit, Builder::Classic];

async fn build(workshop: &Workshop, request: BuildRequest) -> (Result<BuiltImage, BuildError>, Vec<BuildEvent>) {
    let mut events = Vec::new();
    let result = workshop.engine.build(request, &mut |event| events.push(event), CancellationToken::new()).await;
    (result, events)
}

fn lines(events: &[BuildEvent]) -> Vec<&str> {
    let line = |event: &'_ BuildEvent| matches!(event, BuildEvent::Log { .. });
    events
        .iter()
        .filter(|event| line(event))
        .map(|event| match event {
            BuildEvent::Log { line, .. } => line.as_str(),
            _ => "",
        })
        .collect()
}

fn is_cached(events: &[BuildEvent], instruction: &str) -> bool {
    events
        .iter()
        .any(|event| matches!(event, BuildEvent::StepDone { name, cached: true, .. } if name.contains(instruction)))
}

#[tokio::test]
async fn the_engine_describes_itself() {
    let Some(workshop) = Workshop::open().await else { return };
    let info = workshop.engine.info();
    assert_eq!(info.kind, EngineKind::Docker);
    let expected = docker(&["version", "--format", "{{.Server.Version}} {{.Server.Os}} {{.Server.Arch}}"]);
    assert_eq!(format!("{} {} {}", info.version, info.os, info.arch), expected.trim());
    assert!(info.api_version.starts_with("1."), "{info:?}");
}

#[tokio::test]
async fn both_builders_make_an_image_and_use_their_cache() {
    let Some(workshop) = Workshop::open().await else { return };
    for (builder, kind) in BOTH.into_iter().zip([BuilderKind::BuildKit, BuilderKind::Classic]) {
        let name = workshop.tag(&format!("{kind:?}").to_lowercase());
        let second = workshop.tag(&format!("{kind:?}-again").to_lowercase());
        let request = BuildRequest {
            tags: vec![name.clone(), second.clone()],
            context: BuildContext {
                files: vec![("dir/script".to_owned(), b"echo from the context\n".to_vec().into(), 0o755)],
            },
            build_args: BTreeMap::from([("WORD".to_owned(), "argument".to_owned())]),
            ..workshop.request(
                builder,
                "ARG WORD\nCOPY dir/script /script\nRUN sh /script && echo $WORD > /word && cat /word\n\
                 ENV A=1\nUSER 7\nLABEL k=v\nWORKDIR /w\nENTRYPOINT [\"/bin/sh\"]\nCMD [\"-c\", \"true\"]",
            )
        };
        let (result, events) = build(&workshop, request.clone()).await;
        let built = result.unwrap_or_else(|error| panic!("{kind}: {error} {events:#?}"));
        assert_eq!(built.builder, kind);
        assert!(matches!(&events[0], BuildEvent::BuilderChosen { builder, .. } if *builder == kind), "{events:?}");
        assert!(lines(&events).contains(&"from the context") && lines(&events).contains(&"argument"), "{events:#?}");

        let image = workshop.engine.inspect_image(&name).await.expect("an answer").expect("the image");
        assert_eq!(image.id, built.id);
        let mut tags = image.repo_tags.clone();
        tags.sort();
        assert_eq!(tags, [second.clone(), name.clone()]);
        assert_eq!(image.config.as_ref().expect("a config").user.as_deref(), Some("7"));
        assert_eq!(image.config.as_ref().expect("a config").working_dir.as_deref(), Some("/w"));
        assert_eq!(image.config.as_ref().expect("a config").entrypoint, Some(vec!["/bin/sh".to_owned()]));
        assert!(
            image.config.as_ref().expect("a config").env.as_ref().is_some_and(|env| env.contains(&"A=1".to_owned())),
            "{image:?}"
        );
        assert_eq!(
            image.config.as_ref().expect("a config").labels,
            Some(BTreeMap::from([("k".to_owned(), "v".to_owned())]))
        );
        assert!(image.diff_ids.len() > 1 && image.size_bytes.is_some_and(|size| size > 1_000_000), "{image:?}");
        let history = workshop.engine.image_history(&name).await.expect("an answer").expect("the image");
        assert!(history[0].created_by.contains("CMD"), "{history:?}");

        let (result, events) = build(&workshop, request.clone()).await;
        assert_eq!(result.expect("a build").id, built.id);
        assert!(is_cached(&events, "RUN sh /script"), "{events:#?}");
        let (result, events) = build(&workshop, BuildRequest { no_cache: true, ..request }).await;
        result.expect("a build");
        assert!(!is_cached(&events, "RUN sh /script"), "{events:#?}");

        assert!(workshop.engine.remove_image(&second, false).await.expect("an answer"));
        assert!(!workshop.engine.remove_image(&second, false).await.expect("an answer"));
        assert_eq!(workshop.containers(), [""; 0]);
    }
}

#[tokio::test]
async fn a_failed_step_is_explained_and_leaves_nothing() {
    let Some(workshop) = Workshop::open().await else { return };
    let before = workshop.images();
    for builder in BOTH {
        let instructions =
            "RUN echo made-on-the-way > /x\nRUN for i in $(busybox seq 1 50); do echo line-$i; done; exit 7\nRUN true";
        let request = BuildRequest { tags: vec![workshop.tag("failed")], ..workshop.request(builder, instructions) };
        let (result, events) = build(&workshop, request).await;
        let error = result.expect_err("the step fails");
        let BuildError::Step { step, exit_code, last_lines, .. } = &error else { panic!("{error:?}") };
        assert!(step.contains("exit 7"), "{step}");
        assert_eq!(*exit_code, Some(7));
        assert_eq!((last_lines.len(), last_lines[29].as_str()), (30, "line-50"));
        assert!(!events.iter().any(|event| matches!(event, BuildEvent::LeftBehind { .. })), "{events:#?}");
        assert_eq!(workshop.images(), before, "{builder:?}");
        assert_eq!(workshop.containers(), [""; 0], "{builder:?}");
    }
}

#[tokio::test]
async fn cancelling_ends_the_build_in_the_daemon() {
    let Some(workshop) = Workshop::open().await else { return };
    let before = workshop.images();
    for builder in BOTH {
        let nap = workshop.nap();
        let instructions = format!("RUN echo made-on-the-way > /x\nRUN echo asleep; sleep {nap}\nRUN true");
        let request =
            BuildRequest { tags: vec![workshop.tag("cancelled")], ..workshop.request(builder, &instructions) };
        let (cancel, mut seen_running) = (CancellationToken::new(), false);
        let mut on_event = |event: BuildEvent| {
            if matches!(&event, BuildEvent::Log { line, .. } if line == "asleep") {
                seen_running = support::real_engine::wait_until(|| is_running(&nap));
                cancel.cancel();
            }
        };
        let result = workshop.engine.build(request, &mut on_event, cancel.clone()).await;
        assert!(matches!(result, Err(BuildError::Cancelled)), "{result:?}");
        assert!(seen_running, "the process is visible from here");
        assert!(workshop.wait_until_gone(&nap), "{builder:?}: the step still runs");
        assert_eq!(workshop.containers(), [""; 0], "{builder:?}");
        assert_eq!(workshop.images(), before, "{builder:?}");
    }
}

#[tokio::test]
async fn cancelling_while_an_image_is_written_leaves_none() {
    let Some(workshop) = Workshop::open().await else {
        return;
    };
    let before = workshop.images();
    for builder in BOTH {
        let tag = workshop.tag("written");
        let instructions = "RUN dd if=/dev/zero of=/big bs=1M count=200; echo written";
        let request = BuildRequest { tags: vec![tag.clone()], ..workshop.request(builder, instructions) };
        let cancel = CancellationToken::new();
        // BuildKit writes the image in a step of its own, the classic builder right after the last output.
        let mut on_event = |event: BuildEvent| match event {
            BuildEvent::StepStarted { name, .. } if name == "exporting to image" => cancel.cancel(),
            BuildEvent::Log { line, .. } if line == "written" && builder == Builder::Classic => cancel.cancel(),
            _ => {}
        };
        let result = workshop.engine.build(request, &mut on_event, cancel.clone()).await;
        assert!(matches!(result, Err(BuildError::Cancelled)), "{result:?}");
        assert_eq!(workshop.engine.inspect_image(&tag).await.expect("an answer"), None, "{builder:?}");
        assert_eq!(workshop.images(), before, "{builder:?}");
        assert_eq!(workshop.containers(), [""; 0], "{builder:?}");
    }
}

#[tokio::test]
async fn dropping_the_build_ends_it_too() {
    let Some(workshop) = Workshop::open().await else { return };
    let before = workshop.images();
    for builder in BOTH {
        let nap = workshop.nap();
        let request = workshop.request(builder, &format!("RUN echo asleep; sleep {nap}"));
        let (started, running) = tokio::sync::oneshot::channel();
        let mut started = Some(started);
        let mut on_event = |event: BuildEvent| {
            if matches!(&event, BuildEvent::Log { line, .. } if line == "asleep") {
                started.take().map(|started| started.send(()));
            }
        };
        tokio::select! {
            result = workshop.engine.build(request, &mut on_event, CancellationToken::new()) => panic!("{result:?}"),
            running = running => running.expect("the step runs"),
        }
        assert!(workshop.wait_until_gone(&nap), "{builder:?}: the step still runs");
        let is_clean = || workshop.containers().is_empty() && workshop.images() == before;
        assert!(support::real_engine::wait_until(is_clean), "{builder:?}");
    }
}

#[tokio::test]
async fn output_of_every_kind_becomes_lines() {
    let Some(workshop) = Workshop::open().await else { return };
    for builder in BOTH {
        let instructions = r"RUN printf 'one\ntw'; sleep 0.2; printf 'o\n10%%\r50%%\r100%%\nbad \377 byte\n\033[1mbold\033[0m\nno end'";
        let (result, events) = build(&workshop, workshop.request(builder, instructions)).await;
        result.expect("a build");
        let lines = lines(&events);
        for line in ["one", "two", "100%", "bad \u{fffd} byte", "bold", "no end"] {
            assert!(lines.contains(&line), "{builder:?}: {line:?} {lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("50%") || line.contains('\u{1b}')), "{lines:?}");
    }
}

#[tokio::test]
async fn proxies_reach_the_steps_but_not_the_log() {
    let Some(workshop) = Workshop::open().await else { return };
    let proxy = "http://user:hidden-password@proxy.invalid:3128";
    let env = ClientEnv::new([("https_proxy", proxy)], None);
    let config = load_client_config(&env).expect("no configuration");
    let args = proxy_build_args(&env, &config, workshop.engine.endpoint().docker_host());
    for builder in BOTH {
        let instructions = format!(
            "RUN test \"$HTTPS_PROXY\" = {proxy} && test \"$https_proxy\" = {proxy} && echo proxy is $https_proxy hidden-password"
        );
        let request = BuildRequest { build_args: args.clone(), ..workshop.request(builder, &instructions) };
        let (result, events) = build(&workshop, request).await;
        let built = result.unwrap_or_else(|error| panic!("{error} {events:#?}"));
        assert!(lines(&events).contains(&"proxy is http://***@proxy.invalid:3128 ***"), "{events:#?}");
        assert!(!format!("{events:?}").contains("hidden-password"), "{events:#?}");
        let image = workshop.engine.inspect_image(&built.id).await.expect("an answer").expect("the image");
        assert!(!format!("{:?}", image.config.as_ref().expect("a config").env).contains("proxy"), "{image:?}");
    }
}

#[tokio::test]
async fn what_cannot_begin_is_told_apart() {
    let Some(workshop) = Workshop::open().await else { return };
    for builder in BOTH {
        let (result, _) = build(&workshop, workshop.request(builder, "FOO bar")).await;
        let error = result.expect_err("there is no such instruction");
        assert!(matches!(error, BuildError::Rejected { .. } | BuildError::Step { .. }), "{error:?}");
        assert!(error.to_string().to_uppercase().contains("FOO"), "{error}");

        let missing = BuildRequest {
            dockerfile: "FROM 127.0.0.1:1/rdmaprep-test/missing:1\n".to_owned(),
            builder,
            ..BuildRequest::default()
        };
        let (result, _) = build(&workshop, missing).await;
        let error = result.expect_err("there is no such registry");
        assert!(matches!(error, BuildError::Step { .. }), "{error:?}");
        assert!(error.to_string().contains("127.0.0.1:1/rdmaprep-test/missing"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_image_is_a_whole_archive() {
    let Some(workshop) = Workshop::open().await else { return };
    let mut archive = workshop.engine.save_image(&workshop.base).await.expect("a stream");
    let files = tokio::task::spawn_blocking(move || {
        let mut archive = tar::Archive::new(&mut archive);
        let path = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.expect("an entry");
            std::io::copy(&mut entry, &mut std::io::sink()).expect("its content");
            entry.path().expect("a path").display().to_string()
        };
        archive.entries().expect("an archive").map(path).collect::<Vec<_>>()
    });
    let files = files.await.expect("no panic");
    assert!(files.contains(&"manifest.json".to_owned()), "{files:?}");
    assert!(files.len() > 3, "{files:?}");

    let mut first = [0; 512];
    let mut archive = workshop.engine.save_image(&workshop.base).await.expect("a stream");
    tokio::task::spawn_blocking(move || archive.read_exact(&mut first)).await.expect("no panic").expect("a header");

    let missing = workshop.engine.save_image(&workshop.tag("missing")).await.map(drop);
    assert!(matches!(missing, Err(DockerError::ImageNotFound { .. })), "{missing:?}");
}

#[tokio::test]
async fn an_image_without_settings_is_described() {
    let Some(workshop) = Workshop::open().await else { return };
    let image = workshop.engine.inspect_image(&workshop.base).await.expect("an answer").expect("the image");
    assert_eq!(image.repo_tags, std::slice::from_ref(&workshop.base));
    assert_eq!((image.os.as_deref(), image.diff_ids.len()), (Some("linux"), 1));
    assert_eq!(
        (&image.config.as_ref().expect("a config").env, &image.config.as_ref().expect("a config").labels),
        (&None, &None)
    );
    assert_eq!(workshop.engine.inspect_image(&workshop.tag("missing")).await.expect("an answer"), None);
}

#[tokio::test]
async fn a_private_registry_is_pushed_to_and_built_from() {
    let Some(workshop) = Workshop::open().await else { return };
    let Some(registry) = Registry::start() else { return };
    let reference = format!("{}/private/{}:1", registry.address, workshop.number);
    workshop.engine.tag_image(&workshop.base, &reference).await.expect("a tag");
    let credentials =
        |password: &str| Credentials::Password { username: USER.to_owned(), password: password.to_owned() };

    for wrong in [None, Some(credentials("wrong"))] {
        let result = workshop.engine.push(&reference, wrong.as_ref(), &mut |_| {}).await;
        let error = result.expect_err("the registry wants the password");
        assert!(matches!(&error, PushError::Unauthorized { registry: r, .. } if *r == registry.address), "{error:?}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains(&registry.address)));
    }
    let mut events = Vec::new();
    let right = credentials(PASSWORD);
    let pushed = workshop.engine.push(&reference, Some(&right), &mut |event| events.push(event)).await;
    let pushed = pushed.unwrap_or_else(|error| panic!("{error}"));
    assert!(pushed.digest.starts_with("sha256:") && !events.is_empty(), "{pushed:?}");
    let image = workshop.engine.inspect_image(&reference).await.expect("an answer").expect("the image");
    let by_digest = format!("{}@{}", reference.trim_end_matches(":1"), pushed.digest);
    assert_eq!(image.repo_digests, [by_digest]);

    // The way from `docker login`: its configuration, then the images of the Dockerfile.
    let dir = tempfile::tempdir().expect("temporary directory");
    let login = std::process::Command::new("docker")
        .args(["login", "--username", USER, "--password", PASSWORD, &registry.address])
        .env("DOCKER_CONFIG", dir.path())
        .output()
        .expect("running docker");
    assert!(login.status.success(), "{}", String::from_utf8_lossy(&login.stderr));
    let config =
        load_client_config(&ClientEnv::new([("", ""); 0], Some(dir.path().to_owned()))).expect("a configuration");
    let registry_auth = auth::find_for_images(&config, [reference.as_str()]).expect("credentials");

    for builder in BOTH {
        let request = |registry_auth| BuildRequest {
            dockerfile: format!("FROM {reference}\nRUN echo from the private image\n"),
            pull: true,
            registry_auth,
            ..workshop.request(builder, "")
        };
        workshop.engine.remove_image(&reference, false).await.expect("an answer");
        let (result, events) = build(&workshop, request(registry_auth.clone())).await;
        result.unwrap_or_else(|error| panic!("{builder:?}: {error} {events:#?}"));
        assert!(!format!("{events:?}").contains(PASSWORD));

        let (result, _) = build(&workshop, request(BTreeMap::new())).await;
        let error = result.expect_err("the registry wants the password");
        assert_eq!(error.remedy(), Some(format!("run `docker login {}`", registry.address)), "{error:?}");
    }
}

#[tokio::test]
async fn an_image_that_does_not_exist_cannot_be_pushed() {
    let Some(workshop) = Workshop::open().await else { return };
    let result = workshop.engine.push(&workshop.tag("missing"), None, &mut |_| {}).await;
    assert!(matches!(result, Err(PushError::Daemon(DockerError::ImageNotFound { .. }))), "{result:?}");
}

#[tokio::test]
async fn durations_are_those_of_the_steps() {
    let Some(workshop) = Workshop::open().await else { return };
    for builder in BOTH {
        let (result, events) = build(&workshop, workshop.request(builder, "RUN sleep 1.2")).await;
        assert!(result.expect("a build").duration >= Duration::from_millis(1200));
        let step = events.iter().find_map(|event| match event {
            BuildEvent::StepDone { name, duration, .. } if name.contains("RUN sleep") => Some(*duration),
            _ => None,
        });
        let step = step.expect("the step is done");
        assert!((1200..20_000).contains(&step.as_millis()), "{builder:?}: {step:?}");
    }
}
