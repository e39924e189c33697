//! The whole way on the real engine: the rig's images, the vendor's repository on loopback, both builders.

use crate::support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use support::*;

/// Builds the swapped image of `base` and gives the JSON result.
fn build(base: &str, tag: &str, mirror: &Mirror, more: &[&str]) -> Value {
    let ran = run(rdmaprep()
        .args(["build", base, "-t", tag, "--format", "json", "--progress", "plain", "--no-cache"])
        .args(mirror.options())
        .args(more));
    serde_json::from_str(&ran.expect(0).stdout).unwrap()
}

fn in_container(image: &str, script: &str) -> String {
    must(
        "docker",
        &["run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "/bin/sh", image, "-ec", script],
    )
}

fn config_of(image: &str) -> Value {
    serde_json::from_str(&must("docker", &["image", "inspect", "--format", "{{json .Config}}", image])).unwrap()
}

/// What the result must be, whichever builder made it. Cases A01 and A02.
fn assert_swapped(image: &str) {
    let versions = in_container(image, r"dpkg-query -W -f '${Package} ${Version} ${Status}\n' | sort");
    for name in [
        "libibverbs1",
        "ibverbs-providers",
        "ibverbs-utils",
        "librdmacm1",
        "libibverbs-dev",
        "librdmacm-dev",
        "rdma-core",
    ] {
        assert!(versions.contains(&format!("\n{name} 44.1-2 install ok installed\n")), "{name}:\n{versions}");
    }
    assert!(!versions.contains("mlnx"), "{versions}");
    // Reverse dependencies stay.
    for name in ["openmpi-bin ", "libopenmpi3 ", "libucx0 ", "ucx-utils ", "libfabric1 "] {
        assert!(versions.contains(&format!("\n{name}")), "{name}:\n{versions}");
    }
    let left = in_container(
        image,
        "apt-get check > /dev/null; dpkg --audit; ls /etc/apt/sources.list.d /etc/apt/trusted.gpg.d /etc/apt/preferences.d /opt /tmp /var/lib/apt/lists; \
         grep -c . /etc/apt/keyrings/erdma.asc; ls /etc/libibverbs.d",
    );
    for gone in ["mellanox", "vmw_pvrdma_old"] {
        assert!(!left.contains(gone), "{left}");
    }
    assert!(left.contains("erdma.list") && left.contains("erdma.driver"), "{left}");
}

/// A later `apt-get upgrade` in the image must not bring another build in.
fn assert_pinned(image: &str) {
    let policy = in_container(image, "apt-cache policy libibverbs1");
    assert!(policy.contains("Candidate: 44.1-2") && policy.contains("1001"), "{policy}");
}

fn provider_opens(image: &str) -> String {
    let script = std::fs::read_to_string(root().join("tests/rig/provider.py")).unwrap();
    let mut child = Command::new("docker")
        .args(["run", "--rm", "-i", "--network", "none", "--user", "0", "--entrypoint", "python3", image, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let ran = Ran::of(&child.wait_with_output().unwrap());
    ran.expect(0).prints("opened with every symbol resolved: /usr/lib/").stdout.clone()
}

#[test]
fn buildkit_swaps_the_cuda_base() {
    if !rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let tag = names.unique("buildkit");
    let before = run(rdmaprep().args(["check", BASE]));
    before.expect(1).prints("FAIL     ofed-packages").prints("mellanox_mlnx_ofed.list").prints("vmw_pvrdma_old.driver");
    let result = build(BASE, &tag, &mirror, &["--builder", "buildkit"]);
    assert_eq!(result["builder"], "BuildKit");
    assert_eq!(result["report"]["verdict"], "pass");
    assert_eq!(result["diff"]["lost"].as_array().unwrap().len(), 1, "{}", result["diff"]);
    assert_eq!(result["diff"]["lost"][0]["package"], "mlnx-ofed-basic-user-only");
    assert_eq!(result["diff"]["changed"].as_array().unwrap().len(), 10);
    assert_eq!(result["diff"]["gained"].as_array().unwrap().len(), 0);
    assert_eq!(result["diff"]["is_built_on_first"], true);
    assert_swapped(&tag);
    assert_pinned(&tag);
    assert!(provider_opens(&tag).contains("ncclGetVersion() answers 22105"));
    assert_eq!(in_container(&tag, "apt-mark showhold").trim(), "libnccl2", "NVIDIA's hold is none of ours");
    let labels = &config_of(&tag)["Labels"];
    assert_eq!(labels["rdmaprep.fabric"], "erdma");
    assert_eq!(labels["org.opencontainers.image.base.name"], BASE);
    run(rdmaprep().args(["check", &tag])).expect(0).prints("PASS for pai-dlc");
    // The swap of a swapped image changes nothing.
    let again = names.unique("again");
    let result = build(&tag, &again, &mirror, &[]);
    for kind in ["lost", "gained", "changed"] {
        assert_eq!(result["diff"][kind].as_array().unwrap().len(), 0, "{kind}: {}", result["diff"]);
    }
}

#[test]
fn the_classic_builder_keeps_user_shell_and_entrypoint() {
    if !rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let base = names.unique("user");
    derive_image(
        &base,
        &format!(
            "FROM {OFED}\nSHELL [\"/bin/bash\", \"-c\"]\nENV LD_LIBRARY_PATH=/nowhere\nUSER 1000:1000\nENTRYPOINT [\"/bin/echo\"]\nCMD [\"hello\"]\n"
        ),
    );
    let tag = names.unique("classic");
    let ran = run(rdmaprep()
        .args([
            "build",
            &base,
            "-t",
            &tag,
            "--builder",
            "classic",
            "--progress",
            "plain",
            "--target",
            "ecs",
            "--no-cache",
        ])
        .args(mirror.options()));
    ran.expect(0).says("building with the classic builder").prints("PASS for ecs");
    assert_swapped(&tag);
    provider_opens_without_nccl(&tag);
    let (before, after) = (config_of(&base), config_of(&tag));
    for key in ["User", "Entrypoint", "Cmd", "Shell", "Env", "WorkingDir"] {
        assert_eq!(before[key], after[key], "{key}");
    }
}

fn provider_opens_without_nccl(image: &str) {
    let out = in_container(
        image,
        "python3 -c 'import ctypes, glob, os; ctypes.CDLL(\"libibverbs.so.1\", mode=os.RTLD_NOW | os.RTLD_GLOBAL); \
         [ctypes.CDLL(p, mode=os.RTLD_NOW) for p in glob.glob(\"/usr/lib/*/libibverbs/liberdma-rdmav34.so\")][0]; print(\"opened\")'",
    );
    assert_eq!(out.trim(), "opened");
}

/// Reading the engine's store, `docker save` to a file, and the same compressed: one image, one set of facts.
#[test]
fn every_source_gives_the_same_facts() {
    if !rig() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    must("docker", &["save", "-o", &path("a.tar"), OFED]);
    let gz = std::fs::File::create(path("a.tar.gz")).unwrap();
    assert!(Command::new("gzip").args(["-1", "-c", &path("a.tar")]).stdout(gz).status().unwrap().success());
    let facts = |args: &[&str]| -> Value {
        let ran = run(rdmaprep().args(["inspect", "--format", "json"]).args(args));
        let mut facts: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
        facts["image"]["reference"] = "".into();
        facts["image"]["repo_digests"] = "".into();
        // Other tests give the image names of their own meanwhile.
        facts["image"]["repo_tags"].as_array_mut().unwrap().retain(|tag| tag == OFED);
        facts
    };
    let store = facts(&[OFED]);
    // An engine behind TCP is not read from its store. The relay ends with the test.
    let relay = Relay::start();
    let saved = facts(&[OFED, "--host", &relay.address]);
    let archive = facts(&[&path("a.tar")]);
    let compressed = facts(&[&path("a.tar.gz")]);
    assert!(store["packages"]["list"].as_array().unwrap().len() > 100);
    assert_eq!(store, saved, "store and docker save");
    assert_eq!(archive, saved, "archive and docker save");
    assert_eq!(compressed, archive, "gzip and plain");

    // Truncated at many places: always an error, never another result.
    let whole = std::fs::read(path("a.tar")).unwrap();
    for share in [1, 10, 50, 90, 99] {
        std::fs::write(path("cut.tar"), &whole[..whole.len() / 100 * share]).unwrap();
        run(rdmaprep().args(["check", &path("cut.tar")])).expect(3).says("docker save -o FILE IMAGE");
    }
}

/// Makes the engine's socket reachable by TCP on loopback.
struct Relay {
    address: String,
}

impl Relay {
    fn start() -> Relay {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let engine = std::os::unix::net::UnixStream::connect("/var/run/docker.sock").unwrap();
                let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
                let (mut from_engine, mut to_engine) = (engine.try_clone().unwrap(), engine);
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from_client, &mut to_engine);
                    let _ = to_engine.shutdown(std::net::Shutdown::Write);
                });
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from_engine, &mut to_client);
                    let _ = to_client.shutdown(std::net::Shutdown::Write);
                });
            }
        });
        Relay { address }
    }
}

/// An image with OFED of which every image and container of a build on it has the name as a label, so that what is left of
/// a build is told from what other tests make.
fn marked_base(names: &mut Names, label: &str) -> String {
    let name = names.unique(label);
    derive_image(&name, &format!("FROM {OFED}\nLABEL {MARK}={name}\n"));
    name
}

const MARK: &str = "rdmaprep-test.base";

fn images_and_containers(base: &str) -> (Vec<String>, Vec<String>) {
    let filter = format!("label={MARK}={base}");
    let lines = |args: &[&str]| {
        let output = must("docker", &[args, &["--no-trunc", "--filter", &filter]].concat());
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    (lines(&["images", "-aq"]), lines(&["ps", "-aq"]))
}

/// Failures of the build, each with its cause, remedy and exit code, and nothing left behind.
#[test]
fn failed_builds_name_their_cause() {
    if !rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let (tag, base) = (names.unique("failed"), marked_base(&mut names, "failed-base"));
    let other_key = rig_dir().join("other-key.asc").display().to_string();
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/erdma", listener.local_addr().unwrap())
    };
    let address = mirror.address.as_str();
    let suite = "bookworm/erdma";
    let cases: [(&str, Vec<&str>, &str, &str); 4] = [
        ("mirror", vec!["--mirror", &dead, "--suite", suite], "the vendor's mirror is not reachable", "--network host"),
        (
            "key",
            vec!["--mirror", address, "--suite", suite, "--key", &other_key],
            "the key does not match the repository's signature",
            "--key FILE",
        ),
        (
            "package",
            vec!["--mirror", address, "--suite", "bookworm/incomplete"],
            "package ibverbs-providers is not in",
            "use another one",
        ),
        (
            "suite",
            vec!["--mirror", address, "--suite", "bookworm/nothing"],
            "the mirror has no such suite",
            "check --suite",
        ),
    ];
    for builder in ["buildkit", "classic"] {
        for (case, options, cause, remedy) in &cases {
            let before = images_and_containers(&base);
            assert_eq!((before.0.len(), before.1.len()), (1, 0));
            let ran = run(rdmaprep()
                .args(["build", &base, "-t", &tag, "--network", "host", "--builder", builder, "--target", "ecs"])
                .args(options));
            // A wrong suite or key was given; the rest is the mirror's fault.
            let code = if matches!(*case, "suite" | "key") { 2 } else { 4 };
            assert_eq!(ran.code, Some(code), "{case}, {builder}: {}", ran.stderr);
            ran.says(cause).says(remedy);
            assert_eq!(images_and_containers(&base), before, "{case}, {builder}");
        }
    }
}

/// An interrupt ends the build at the daemon and leaves nothing, with either builder.
#[test]
fn an_interrupt_leaves_nothing() {
    if !rig() {
        return;
    }
    let mut names = Names::new();
    let (tag, base) = (names.unique("interrupted"), marked_base(&mut names, "interrupted-base"));
    // A mirror that accepts and never answers keeps the build waiting.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = format!("http://{}/erdma", listener.local_addr().unwrap());
    for builder in ["buildkit", "classic"] {
        let before = images_and_containers(&base);
        let mut child = rdmaprep()
            .args(["build", &base, "-t", &tag, "--network", "host", "--builder", builder, "--progress", "json"])
            .args(["--mirror", &mirror, "--suite", "bookworm/erdma"])
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Its request says that the build runs.
        let (connection, _) = listener.accept().unwrap();
        must("kill", &["-INT", &child.id().to_string()]);
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            said.push_str(&line.unwrap());
        }
        assert_eq!(child.wait().unwrap().code(), Some(130), "{builder}: {said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(images_and_containers(&base), before, "{builder}");
        drop(connection);
    }
}

/// A package that only OFED's build satisfies: the swap is refused before anything is changed.
#[test]
fn a_package_that_needs_ofed_is_not_removed() {
    if !rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let base = names.unique("needs-ofed");
    derive_image(
        &base,
        &format!(
            "FROM {OFED}\nRUN mkdir -p /p/DEBIAN && printf 'Package: my-trainer\\nVersion: 1\\nArchitecture: all\\nMaintainer: x\\n\
             Description: x\\nDepends: libibverbs1 (>= 2307)\\n' > /p/DEBIAN/control && dpkg-deb -b /p /p.deb && dpkg -i /p.deb && rm -r /p /p.deb\n"
        ),
    );
    let tag = names.unique("refused");
    let ran = run(rdmaprep().args(["build", &base, "-t", &tag, "--target", "ecs"]).args(mirror.options()));
    ran.expect(1).says("the swap would remove my-trainer, which is outside the RDMA set");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
}

#[test]
fn an_unknown_image() {
    // A bare name would be looked for in its registry, too.
    const NOWHERE: &str = "docker-daemon:no/such:image";
    if !rig() {
        return;
    }
    for command in [vec!["check", NOWHERE], vec!["build", "no/such:image", "-t", "a:1"], vec!["render", NOWHERE]] {
        run(rdmaprep().args(&command)).expect(3).says("no image no/such:image").says("docker pull no/such:image");
    }
}

/// Case F04, and the push to a registry with a password that needs every care.
#[test]
fn push_with_credentials_and_proxies_without_a_trace() {
    if !rig() {
        return;
    }
    const PASSWORD: &str = "pa?ss>wo~rd/+";
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let dir = tempfile::tempdir().unwrap();
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut registry = Command::new(root().join("tests/rig/registry.sh"))
        .args([&port.to_string(), &dir.path().join("registry").display().to_string()])
        .env("RDMAPREP_REGISTRY_PASSWORD", PASSWORD)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(registry.try_wait().unwrap().is_none(), "the registry ended");
        std::thread::yield_now();
    }
    let tag = format!("127.0.0.1:{port}/team/train:erdma");
    names.add(&tag);
    let proxy = "http://user:s3cr3t-word@127.0.0.1:9";
    let config = |auth: &str| {
        let auths = format!("\"auths\":{{\"127.0.0.1:{port}\":{{\"auth\":\"{auth}\"}}}}");
        let proxies = format!("\"proxies\":{{\"default\":{{\"httpProxy\":\"{proxy}\",\"noProxy\":\"127.0.0.1\"}}}}");
        std::fs::write(dir.path().join("config.json"), format!("{{{auths},{proxies}}}")).unwrap();
    };
    let push = || {
        run(rdmaprep()
            .args(["-vv", "build", OFED, "-t", &tag, "--target", "ecs", "--push", "--progress", "plain"])
            .args(mirror.options())
            .env("DOCKER_CONFIG", dir.path()))
    };
    config(&base64("ci:wrong"));
    let refused = push();
    refused.expect(4).says(&format!("docker login 127.0.0.1:{port}"));
    config(&base64(&format!("ci:{PASSWORD}")));
    let pushed = push();
    pushed.expect(0).prints(&format!("pushed {tag}@sha256:"));
    let history = must("docker", &["history", "--no-trunc", &tag]);
    let inspect = must("docker", &["inspect", &tag]);
    for text in [&refused.stderr, &pushed.stderr, &pushed.stdout, &history, &inspect] {
        assert!(!text.contains("s3cr3t-word") && !text.contains(PASSWORD), "{text}");
    }
    let digest = pushed.stdout.split('@').nth(1).unwrap().trim().to_owned();
    registry.kill().unwrap();
    registry.wait().unwrap();
    // The engine knows the digest now, so the next Dockerfile names it; the registry is not asked for what is here.
    let rendered = run(rdmaprep().args(["render", &tag]).args(&mirror.options()[..4]));
    rendered.expect(0).prints(&format!("\nFROM {tag}@{digest}\n"));
    for builder in ["buildkit", "classic"] {
        let again = names.unique(&format!("digest-{builder}"));
        build(&tag, &again, &mirror, &["--builder", builder, "--target", "ecs"]);
        assert_eq!(config_of(&again)["Labels"]["org.opencontainers.image.base.digest"], digest.as_str());
    }
}

fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at)) & 63;
            out.push(if at <= chunk.len() { char::from(ALPHABET[index as usize]) } else { '=' });
        }
    }
    out
}

/// buildah builds the Dockerfile too.
#[test]
fn buildah_builds_the_rendered_dockerfile() {
    if !rig() {
        return;
    }
    if !Command::new("buildah").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return say_skipped("buildah is not installed (tests/rig/deps.sh test)");
    }
    let mirror = Mirror::start();
    let dir = tempfile::tempdir().unwrap();
    let context = dir.path().join("context").display().to_string();
    let key = rig_dir().join("repo/erdma/GPGKEY").display().to_string();
    let options = mirror.options();
    run(rdmaprep().args(["render", OFED, "-o", &context, "--key", &key]).args(&options[..4])).expect(0);
    let text = std::fs::read_to_string(format!("{context}/Dockerfile")).unwrap();
    hadolint(&text);
    assert!(text.contains("COPY erdma.asc "), "{text}");
    let store = [
        "--root",
        &dir.path().join("root").display().to_string(),
        "--runroot",
        &dir.path().join("run").display().to_string(),
        "--storage-driver",
        "vfs",
    ]
    .map(str::to_owned);
    let buildah = |args: &[&str]| {
        let all: Vec<&str> = store.iter().map(String::as_str).chain(args.iter().copied()).collect();
        must("buildah", &all)
    };
    buildah(&["pull", "-q", &format!("docker-daemon:{OFED}")]);
    let log = buildah(&[
        "bud",
        "-q",
        "--isolation",
        "chroot",
        "--network",
        "host",
        "--pull-never",
        "-t",
        "swapped",
        &context,
    ]);
    let container = buildah(&["from", "--pull-never", "localhost/swapped"]);
    let versions = buildah(&[
        "run",
        "--isolation",
        "chroot",
        container.trim(),
        "--",
        "dpkg-query",
        "-W",
        "libibverbs1",
        "ibverbs-providers",
    ]);
    assert!(versions.contains("44.1-2") && !versions.contains("mlnx"), "{log}\n{versions}");
}
