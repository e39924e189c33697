//! Images from a registry: Debian's `docker-registry` on loopback with TLS and a password, and a server that misbehaves.

use crate::support;
use crate::support::image_fixture;
use crate::support::oci_fixture;
use crate::support::tls_registry;
use crate::support::unruly_server;

use image_fixture::{Fixture, tar_of};
use oci_fixture::*;
use serde_json::{Value, json};
use std::process::Command;
use support::*;
use tls_registry::{PASSWORD, TlsRegistry, USER};
use unruly_server::{Answer, Behaviour, Unruly};

/// The program with an own home, so that no credentials of this machine are found, and no daemon.
fn program(home: &std::path::Path) -> Command {
    let mut command = rdmaprep();
    command.env("HOME", home).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    for name in ["all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command
}

fn log_in(home: &std::path::Path, host: &str, password: &str) {
    use base64::Engine as _;
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{password}"));
    let config = json!({"auths": {host: {"auth": auth}}});
    std::fs::create_dir_all(home.join(".docker")).unwrap();
    std::fs::write(home.join(".docker/config.json"), config.to_string()).unwrap();
}

fn layers() -> Vec<Vec<u8>> {
    let top = tar_of(&[("opt/note", b"n".as_slice())]);
    vec![Fixture::good().layer(), top.clone(), top]
}

#[test]
fn a_private_registry_with_tls() {
    let Some(registry) = TlsRegistry::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let host = registry.address.as_str();
    // By hand over its API: an index of two platforms and an attestation, and one of them on its own.
    let mut parts = Parts::default();
    let amd64 = parts.image(&layers(), "amd64", Packing::Gzip);
    let arm64 = parts.image(&layers(), "arm64", Packing::ZstdSkippable);
    let attestation = parts.attestation(&amd64);
    let index = parts.index(&[attestation, arm64.clone(), amd64.clone()]);
    registry.push("team/train", &parts, &[(&amd64, "single"), (&arm64, "arm"), (&index, "1")]);
    let ca = registry.ca.display().to_string();
    let reference = format!("docker://{host}/team/train:1");
    let inspect = |args: &[&str]| run(program(home.path()).args(["inspect", "--registry-ca", &ca]).args(args));

    // Without its CA, and without the password.
    run(program(home.path()).args(["inspect", &reference])).expect(3).says("TLS failed").says("--registry-ca FILE");
    run(program(home.path()).args(["inspect", &reference, "--plain-http"])).expect(3).says(host);
    inspect(&[&reference]).expect(3).says(&format!("run `docker login {host}`"));
    log_in(home.path(), host, "wrong");
    inspect(&[&reference]).expect(3).says(&format!("{host} refuses team/train:1"));
    log_in(home.path(), host, PASSWORD);

    // What is resolved: the name's digest, and the manifest's of the platform.
    let digest_of = |descriptor: &Value| descriptor["digest"].as_str().unwrap().to_owned();
    let ran = inspect(&[&reference, "--platform", "linux/amd64", "--format", "json"]);
    let facts: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    let image = &facts["image"];
    assert_eq!(image["reference"], json!(reference));
    assert_eq!(image["repo_digests"], json!([format!("{host}/team/train@{}", digest_of(&index))]));
    assert_eq!(image["manifest_digest"], amd64["digest"]);
    assert_eq!(image["id"], parts.manifest(&amd64)["config"]["digest"]);
    // The same facts as from an archive.
    let archive = home.path().join("train.tar");
    std::fs::write(&archive, containerd_save(&layers(), "example/train:1").archive()).unwrap();
    let local = run(program(home.path()).args(["inspect", "--format", "json"]).arg(&archive));
    let local: Value = serde_json::from_str(&local.expect(0).stdout).unwrap();
    for key in ["packages", "verbs", "nccl", "config", "distro", "cuda"] {
        assert_eq!(facts[key], local[key], "{key}");
    }
    assert_eq!(image["layers"], local["image"]["layers"]);

    let arm = inspect(&[&reference, "--platform", "linux/arm64", "--verify"]);
    arm.expect(0).prints("linux/arm64").prints(&digest_of(&arm64)).prints("3 layers, verified");
    inspect(&[&reference, "--platform", "linux/s390x"]).expect(3).says("available: linux/amd64, linux/arm64");
    let by_digest = format!("registry:{host}/team/train@{}", digest_of(&arm64));
    inspect(&[&by_digest]).expect(0).prints("linux/arm64");
    inspect(&[&format!("docker://{host}/team/train:arm"), "--platform", "linux/amd64"]).expect(3).says("linux/arm64");
    inspect(&[&format!("docker://{host}/team/train:none")]).expect(3).says("has no team/train:none");
    // SSL_CERT_FILE does what --registry-ca does; a bare name goes to the registry where no daemon is.
    let mut bare = program(home.path());
    bare.args(["check", &format!("{host}/team/train:single"), "--verify"]).env("SSL_CERT_FILE", &registry.ca);
    run(&mut bare).expect(0).prints(&format!("docker://{host}/team/train:single (sha256:")).prints("layers verified");
    let mut nowhere = program(home.path());
    nowhere.args(["check", &format!("{host}/team/none:1")]).env("SSL_CERT_FILE", &registry.ca);
    run(&mut nowhere).expect(3).says("no Docker daemon listens there").says(&format!("{host} has no team/none:1"));
    // The Dockerfile of such an image is pinned to the digest of its name.
    let render = ["render", &format!("{host}/team/train:1"), "--registry-ca", &ca, "--platform", "linux/amd64"];
    run(program(home.path()).args(render)).expect(0).prints(&format!("{host}/team/train:1@{}", digest_of(&index)));

    // A registry whose storage is damaged: a layer when asked, a config always.
    let manifest = parts.manifest(&amd64);
    let layer = &manifest["layers"][0];
    registry.damage(&digest_of(layer), &pack(&layers()[0], Packing::Zstd), layer["size"].as_u64().unwrap());
    let single = format!("docker://{host}/team/train:single");
    inspect(&[&single, "--verify"]).expect(3).says(&digest_of(layer));
    let config = &manifest["config"];
    registry.damage(&digest_of(config), b"{}", config["size"].as_u64().unwrap());
    inspect(&[&single]).expect(3).says("image config: the content hashes to sha256:").says(&digest_of(config));
}

#[test]
fn certificates_that_cannot_be_used() {
    let home = tempfile::tempdir().unwrap();
    let empty = home.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (file, said) in
        [("/nonexistent/ca.pem", "No such file"), (empty.to_str().unwrap(), "contains no PEM certificate")]
    {
        run(program(home.path()).args(["inspect", "docker://127.0.0.1:1/a", "--registry-ca", file]))
            .expect(2)
            .says(file)
            .says(said);
    }
    run(program(home.path()).args(["inspect", "docker://127.0.0.1:1/a", "--registry-mirror", "http://x"]))
        .expect(2)
        .says("a mirror is HOST or HOST:PORT");
}

/// A server with one image at `repo:1`, whose answers a test can change.
fn served(parts: &mut Parts) -> Value {
    parts.image(&layers(), "amd64", Packing::Gzip)
}

#[test]
fn plain_http_only_when_asked() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    let server = Unruly::start(&parts, &image, |_, _| Answer::Right);
    let home = tempfile::tempdir().unwrap();
    let reference = format!("docker://{}/repo:1", server.address);
    run(program(home.path()).args(["check", &reference])).expect(3).says("a registry without TLS needs --plain-http");
    run(program(home.path()).args(["check", &reference, "--plain-http"])).expect(0);
}

#[test]
fn dropped_connections_are_tried_again() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    let layer = parts.manifest(&image)["layers"][0]["digest"].as_str().unwrap().to_owned();
    let manifest_path = "manifests/1".to_owned();
    for (path, answer) in
        [(layer.clone(), Answer::CutAfter(700)), (layer.clone(), Answer::Close), (manifest_path, Answer::Status(503))]
    {
        let home = tempfile::tempdir().unwrap();
        let told = answer.clone();
        let wanted = path.clone();
        // The first two times it goes wrong, the third time right.
        let server = Unruly::start(&parts, &image, move |path, times| {
            if path.ends_with(&wanted) && times < 2 { told.clone() } else { Answer::Right }
        });
        let reference = format!("docker://{}/repo:1", server.address);
        run(program(home.path()).args(["check", &reference, "--plain-http", "--verify"])).expect(0);
        assert_eq!(server.asked_for(&path), 3, "{path} {answer:?}");
    }
    // Not for ever.
    let wanted = layer.clone();
    let server =
        Unruly::start(
            &parts,
            &image,
            move |path, _| {
                if path.ends_with(&wanted) { Answer::CutAfter(700) } else { Answer::Right }
            },
        );
    let home = tempfile::tempdir().unwrap();
    run(program(home.path()).args(["check", &format!("docker://{}/repo:1", server.address), "--plain-http"]))
        .expect(3)
        .says(&layer);
    assert_eq!(server.asked_for(&layer), 3);
}

#[test]
fn only_what_is_needed_is_fetched() {
    let mut parts = Parts::default();
    let amd64 = served(&mut parts);
    let arm64 = parts.image(&layers(), "arm64", Packing::Zstd);
    let attestation = parts.attestation(&amd64);
    let index = parts.index(&[attestation, arm64, amd64.clone()]);
    let server = Unruly::start(&parts, &index, |_, _| Answer::Right);
    let home = tempfile::tempdir().unwrap();
    let reference = format!("docker://{}/repo:1", server.address);
    run(program(home.path()).args(["check", &reference, "--plain-http", "--platform", "linux/amd64"])).expect(0);
    // The index, one manifest, its config, and each of its two different layers, once.
    let manifest = parts.manifest(&amd64);
    let digest = |value: &Value| value["digest"].as_str().unwrap().to_owned();
    let mut expected = vec![
        "/v2/repo/manifests/1".to_owned(),
        format!("/v2/repo/manifests/{}", digest(&amd64)),
        format!("/v2/repo/blobs/{}", digest(&manifest["config"])),
        format!("/v2/repo/blobs/{}", digest(&manifest["layers"][0])),
        format!("/v2/repo/blobs/{}", digest(&manifest["layers"][1])),
    ];
    let mut asked = server.all_asked();
    assert_eq!(asked[..3], expected[..3]);
    asked.sort();
    expected.sort();
    assert_eq!(asked, expected);
}

#[test]
fn mirrors_are_asked_first() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    let mirror = Unruly::start(&parts, &image, |_, _| Answer::Right);
    let home = tempfile::tempdir().unwrap();
    // The registry itself is not there: the mirror has all.
    let reference = "docker://127.0.0.1:1/repo:1";
    run(program(home.path()).args(["check", reference, "--plain-http", "--registry-mirror", &mirror.address]))
        .expect(0)
        .prints(reference);
    // A mirror without the image does no harm.
    let empty = Unruly::start(&parts, &image, |_, _| Answer::Status(404));
    let own = Unruly::start(&parts, &image, |_, _| Answer::Right);
    let reference = format!("docker://{}/repo:1", own.address);
    run(program(home.path()).args(["check", &reference, "--plain-http", "--registry-mirror", &empty.address]))
        .expect(0)
        .says("mirror left out");
    assert!(!own.all_asked().is_empty() && !empty.all_asked().is_empty());
}

#[test]
fn tokens() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    // Anonymous, and with a password that the token server wants to see.
    for password in [None, Some("pa?ss>wo~rd/+")] {
        let server = Unruly::with_tokens(&parts, &image, password.map(|password| format!("{USER}:{password}")));
        let home = tempfile::tempdir().unwrap();
        let reference = format!("docker://{}/repo:1", server.address);
        if let Some(password) = password {
            run(program(home.path()).args(["check", &reference, "--plain-http"])).expect(3).says("docker login");
            log_in(home.path(), &server.address, password);
        }
        run(program(home.path()).args(["check", &reference, "--plain-http"])).expect(0);
        // One token serves all requests.
        let tokens = server.asked_for("/token") - usize::from(password.is_some());
        assert_eq!(tokens, 1);
    }
}

#[test]
fn a_registry_that_sends_something_else() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    let home = tempfile::tempdir().unwrap();
    let layer = parts.manifest(&image)["layers"][0]["digest"].as_str().unwrap().to_owned();
    let wanted = layer.clone();
    // A longer layer, a manifest of another digest, an endless document, HTML.
    let cases: [(&str, Behaviour, &str); 4] = [
        (
            "layer",
            Box::new(move |path, _| if path.ends_with(&wanted) { Answer::Longer } else { Answer::Right }),
            &layer,
        ),
        (
            "digest",
            Box::new(
                |path, _| if path.ends_with("manifests/1") { Answer::Body(b"{} ".to_vec()) } else { Answer::Right },
            ),
            "the content hashes to sha256:",
        ),
        (
            "endless",
            Box::new(
                |path, _| if path.contains("manifests") { Answer::Body(vec![b' '; 9 << 20]) } else { Answer::Right },
            ),
            "more than the 8388608 bytes",
        ),
        ("denied", Box::new(|_, _| Answer::Status(403)), "docker login"),
    ];
    for (name, behave, said) in cases {
        let server = Unruly::start(&parts, &image, behave);
        let reference = format!("docker://{}/repo:1", server.address);
        let ran = run(program(home.path()).args(["inspect", &reference, "--plain-http"]));
        assert_eq!(ran.code, Some(3), "{name}: {}{}", ran.stdout, ran.stderr);
        ran.says(said);
    }
}

/// A storage service that blobs are sent from must not see the registry's credentials.
#[test]
fn credentials_stay_with_the_registry() {
    let mut parts = Parts::default();
    let image = served(&mut parts);
    let storage = Unruly::start(&parts, &image, |_, _| Answer::Right);
    // Another host as far as names go.
    let elsewhere = storage.address.replace("127.0.0.1", "localhost");
    let registry = Unruly::redirecting(&parts, &image, elsewhere);
    let home = tempfile::tempdir().unwrap();
    let reference = format!("docker://{}/repo:1", registry.address);
    run(program(home.path()).args(["check", &reference, "--plain-http", "--verify"])).expect(0);
    assert!(!registry.credentials().is_empty());
    // Config and two different layers.
    assert_eq!(storage.all_asked().len(), 3);
    assert_eq!(storage.credentials(), Vec::<String>::new());
}
