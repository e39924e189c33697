//! The command line without an engine: wrong input, help, JSON, archives.

use crate::support;
use crate::support::image_fixture;
use crate::support::schema;

use image_fixture::{Fixture, tar_of};
use schema::{assert_valid, validator};
use support::*;
use tempfile::TempDir;

fn write(dir: &TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// Whoever makes an archive writes its names, and the Dockerfile is run as root.
#[test]
fn a_name_that_is_not_one_reaches_no_dockerfile() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = || Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    for name in
        ["x:1\nRUN touch /tmp/evil", "x:1\r\nCOPY secret /", "x:1 AS y", "x\u{1b}[31m:1", "x\u{2028}:1", "X", "x:$y"]
    {
        let archive = write(&dir, "i.tar", &ofed().named(name).archive());
        let facts = dir.path().join("facts.json").display().to_string();
        run(rdmaprep().args(["inspect", &archive, "-o", &format!("json={facts}")])).expect(0);
        for arguments in [["render", &archive].as_slice(), &["render", "--facts", &facts]] {
            let ran = run(rdmaprep().args(arguments));
            ran.expect(2).says(&format!("the image's name {name:?} is not a valid image name"));
            assert_eq!(ran.stdout, "", "{name:?}");
        }
        let ran = run(rdmaprep().args(["render", "--distro", "alinux:3", "--base", name]));
        ran.expect(2).says(&format!("--base {name:?} is not a valid image name"));
    }
    let archive = write(&dir, "good.tar", &ofed().named("registry.example.com:5000/a/b_c:T.1").archive());
    run(rdmaprep().args(["render", &archive])).expect(0).prints("\nFROM registry.example.com:5000/a/b_c:T.1\n");
}

/// Dockerfiles for images that cannot be read from here: one, or one of every distribution.
#[test]
fn render_without_an_image() {
    let ran = run(rdmaprep().args(["render", "--distro", "ubuntu:22.04", "--base", "my/train:1"]));
    ran.expect(0).prints("\nFROM my/train:1\n").prints("    expect_distro ubuntu 22.04; ");
    let dir = tempfile::tempdir().unwrap();
    let contexts = dir.path().join("contexts");
    let every = ["render", "--distro", "all", "--base", "r.example.com/train:{distro}"];
    run(rdmaprep().args(every).args(["--output", &contexts.display().to_string()])).expect(0);
    let mut written: Vec<String> =
        std::fs::read_dir(&contexts).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    written.sort();
    assert!(written.len() >= 8 && written.contains(&"alinux3".to_owned()), "{written:?}");
    for name in &written {
        let text = std::fs::read_to_string(contexts.join(name).join("Dockerfile")).unwrap();
        assert!(text.contains(&format!("\nFROM r.example.com/train:{name}\n")), "{text}");
    }
    run(rdmaprep().args(every)).expect(2).says("name the one that they go into: --output DIR");
    for text in ["ubuntu", "ubuntu:", ":22.04"] {
        let ran = run(rdmaprep().args(["render", "--distro", text, "--base", "my/train:1"]));
        ran.expect(2).says("it is not a distribution and its version");
    }
    let ran = run(rdmaprep().args(["render", "--distro", "slackware:15.0", "--base", "my/train:1"]));
    ran.expect(2).says("can be written for alinux, ");
}

#[test]
fn check_of_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    let all = format!("PASS for pai-dlc: {} passed", rdmaprep::checks::image::REGISTRY.len());
    run(rdmaprep().args(["check", &good])).expect(0).prints(&all);
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let ran = run(rdmaprep().args(["check", &ofed]));
    ran.expect(1)
        .prints("FAIL     ofed-packages")
        .prints("remedy: rdmaprep build example/ubuntu:22.04 -t example/ubuntu:22.04-erdma");
    assert_eq!(ran.stderr, "", "a verdict is not an error");
    // The same verdict for machines.
    let json = run(rdmaprep().args(["check", &ofed, "--format", "json"]));
    let report: serde_json::Value = serde_json::from_str(&json.expect(1).stdout).unwrap();
    assert_eq!((report["schema_version"].as_u64(), report["verdict"].as_str()), (Some(1), Some("fail")));
    let failed: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["status"] == "fail")
        .map(|f| f["check"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["ofed-packages"]);
    // An image without NCCL's minimum is fine where no minimum is stated.
    let mut old = Fixture::good();
    old.remove("usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5").nccl("2.17.1+cuda12.1");
    let old = write(&dir, "old.tar", &old.archive());
    run(rdmaprep().args(["check", &old])).expect(1).prints("NCCL 2.17.1").prints("needs 2.19.0 or newer");
    run(rdmaprep().args(["check", &old, "--target", "ecs"])).expect(0);
}

#[test]
fn an_unreadable_package_database_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::good();
    fixture.file("var/lib/rpm/rpmdb.sqlite", "SQLite");
    let layer = fixture.layer();
    // The same image with its dpkg database taken away by a second layer.
    let top = tar_of(&[("var/lib/dpkg/.wh.status", b"".as_slice())]);
    let config = serde_json::json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {}});
    let path = write(&dir, "rpm.tar", &image_fixture::archive_of(&[layer, top], &config, "example/rpm:1"));
    run(rdmaprep().args(["check", &path])).expect(3).prints("unknown  package-database").prints("UNKNOWN for pai-dlc");
}

#[test]
fn wrong_archives() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Fixture::good().archive();
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty", Vec::new(), "no manifest.json"),
        (
            "text",
            b"this is not an archive, and it is longer than a tar block has to be. ".repeat(20),
            "this is not a tar archive",
        ),
        ("cut", archive[..archive.len() / 2].to_vec(), "docker save -o FILE IMAGE"),
        ("no-manifest", tar_of(&[("a", b"b".as_slice())]), "no manifest.json"),
        ("bad-manifest", tar_of(&[("manifest.json", b"{".as_slice())]), "reading manifest.json"),
        ("lacks", tar_of(&[("manifest.json", br#"[{"Config":"c.json","Layers":[]}]"#.as_slice())]), "lacks \"c.json\""),
        ("oci", tar_of(&[("index.json", b"{}".as_slice()), ("oci-layout", b"{}".as_slice())]), "reading index.json"),
    ];
    for (name, content, said) in &cases {
        let path = write(&dir, name, content);
        let ran = run(rdmaprep().args(["check", &path]));
        assert_eq!(ran.code, Some(3), "{name}: {}", ran.stderr);
        ran.says(said).says(&path);
        assert_eq!(ran.stdout, "", "{name}");
    }
    run(rdmaprep().args(["check", "./nothing-here.tar"]))
        .expect(3)
        .says("opening ./nothing-here.tar")
        .says("No such file");
    run(rdmaprep().args(["check", &format!("docker-archive:{}", dir.path().display())]))
        .expect(3)
        .says("is a directory");
    let good = write(&dir, "good.tar", &archive);
    run(rdmaprep().args(["check", &format!("{good}:other:1")])).expect(3).says("it has: example/ubuntu:22.04");
    run(rdmaprep().args(["check", &format!("docker-archive:{good}:example/ubuntu:22.04")])).expect(0);
}

#[test]
fn a_damaged_config_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Fixture::good().archive();
    let at = archive.windows(5).position(|w| w == b"amd64").unwrap();
    let mut damaged = archive;
    damaged[at] = b'x';
    let path = write(&dir, "damaged.tar", &damaged);
    run(rdmaprep().args(["inspect", &path])).expect(3).says("it is damaged or was changed");
}

#[test]
fn wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = "unix:///nonexistent/docker.sock";
    run(rdmaprep().args(["check", "Ubuntu:22.04"])).expect(2).says("\"Ubuntu:22.04\" is not an image name");
    run(rdmaprep().args(["check", "containers-storage:a"]))
        .expect(2)
        .says("known: docker-daemon:REF, docker-archive:PATH[:REF]");
    run(rdmaprep().args(["check", "podman:a"])).expect(2).says("-H unix:///run/podman/podman.sock");
    run(rdmaprep().args(["check", "a", "--platform", "amd64"])).expect(2).says("a platform is OS/ARCH");
    run(rdmaprep().args(["check", "a", "--target", "mars"])).expect(2).says("known targets: pai-dlc, ecs, ack");
    run(rdmaprep().args(["build", "a", "-t", "Bad:Tag"])).expect(2).says("\"Bad:Tag\" is not a valid image name");
    run(rdmaprep().args(["build", "a"])).expect(2).says("--tag");
    run(rdmaprep().args(["check", "a", "-H", nowhere])).expect(3).says(nowhere).says("start the Docker daemon");
    run(rdmaprep().args(["check", "a", "--context", "nothing"]).env("HOME", dir.path())).expect(2).says("nothing");
    run(rdmaprep().args(["frobnicate"])).expect(2);
    let recipe = write(&dir, "recipe.toml", b"[base]\nimage = \"a\"\ncolour = \"red\"\n[fabric]\nname = \"erdma\"\n");
    run(rdmaprep().args(["render", &recipe])).expect(2).says(&recipe).says("unknown field `colour`");
    run(rdmaprep().args(["render", &dir.path().join("missing.toml").display().to_string()]))
        .expect(2)
        .says("missing.toml");
    let archive = write(&dir, "good.tar", &Fixture::good().archive());
    run(rdmaprep().args(["build", &archive, "-t", "a:1"])).expect(2).says("docker load -i FILE");
    let key = write(&dir, "key", b"<html>");
    run(rdmaprep().args(["render", &archive, "--key", &key])).expect(2).says("is not an OpenPGP public key");
}

/// Case A14.
#[test]
fn a_distribution_that_the_vendor_does_not_list() {
    let dir = tempfile::tempdir().unwrap();
    for (id, version, codename, architecture) in
        [("debian", "12", "bookworm", "amd64"), ("anolis", "8.8", "", "amd64"), ("ubuntu", "20.04", "focal", "arm64")]
    {
        let path = write(&dir, id, &Fixture::plain(id, version, codename, architecture).archive());
        run(rdmaprep().args(["render", &path]))
            .expect(2)
            .says(&format!("{id} {version} on {architecture}"))
            .says("ubuntu 24.04 (amd64, arm64)");
    }
    let path = dir.path().join("debian").display().to_string();
    let options = ["--mirror", "http://mirror.example.com/erdma", "--suite", "bookworm/erdma"];
    run(rdmaprep().args(["render", &path]).args(options))
        .expect(0)
        .prints("http://mirror.example.com/erdma/apt/debian bookworm/erdma");
}

#[test]
fn render_into_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let key = write(&dir, "key", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n");
    let out = dir.path().join("out").display().to_string();
    let ran = run(rdmaprep().args(["render", &path, "--key", &key, "-o", &out]));
    assert_eq!((ran.expect(0).stdout.as_str(), ran.stderr.as_str()), ("", ""));
    let text = std::fs::read_to_string(format!("{out}/Dockerfile")).unwrap();
    assert!(text.contains("\nCOPY erdma.asc "));
    assert_eq!(std::fs::read(format!("{out}/erdma.asc")).unwrap(), std::fs::read(&key).unwrap());
    let twice = run(rdmaprep().args(["render", &path, "--key", &key]));
    assert_eq!(twice.expect(0).stdout, text, "the same input gives the same bytes");
    twice.says("put your key next to it");
}

/// The fabric of the target, and what goes together.
#[test]
fn render_for_a_target() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let render = |options: &[&str]| run(rdmaprep().args(["render", &ofed]).args(options));
    render(&[]).expect(0).prints("rdmaprep.fabric=\"erdma\"").prints("jammy/erdma");
    let kept = render(&["--target", "cce"]);
    kept.expect(0).prints("rdmaprep.fabric=\"roce\"").says("it is kept, and nothing is installed or removed");
    assert!(!kept.stdout.contains("\nRUN "), "{}", kept.stdout);
    render(&["--target", "cce", "--userspace", "inbox"]).expect(0).prints("the apt sources of the image");
    render(&["--target", "cce", "--userspace", "doca"]).expect(2).says("name one with --doca-version");
    render(&["--target", "cce", "--userspace", "doca", "--doca-version", "2.10.0"])
        .expect(0)
        .prints("https://linux.mellanox.com/public/repo/doca/2.10.0/ubuntu22.04/x86_64 ./");
    render(&["--target", "cce", "--userspace", "inbox", "--vpc"]).expect(2).says("--vpc conflicts with");
    render(&["--userspace", "inbox"]).expect(2).says("Alibaba eRDMA has no userspace \"inbox\"");
    render(&["--offline", "x", "--mirror", "http://m"]).expect(2).says("cannot be used with");
    render(&["--target", "mars"]).expect(2).says("known targets: pai-dlc, ecs, ack");
    let plain = write(&dir, "plain.tar", &Fixture::plain("ubuntu", "22.04", "jammy", "amd64").archive());
    run(rdmaprep().args(["render", &plain, "--target", "cce"])).expect(0).prints("the apt sources of the image");
    // What the image has is at fault, not how the program was called.
    run(rdmaprep().args(["render", &plain, "--target", "cce", "--userspace", "keep"]))
        .expect(1)
        .says("the image's own userspace cannot be kept: the loader finds no libibverbs.so.1")
        .says("--userspace inbox");
    // A recipe has its fabric, and a target of another one is refused.
    let recipe = write(&dir, "recipe.toml", b"[base]\nimage = \"a\"\n[fabric]\nname = \"roce\"\n");
    run(rdmaprep().args(["build", &recipe, "-t", "a:1", "--target", "ecs"])).expect(2).says("choose another --target");
    run(rdmaprep().args(["build", "a", "-t", "a:1", "--target", "cce", "--userspace", "vendor"]))
        .expect(2)
        .says("known: keep, inbox, doca");
}

/// A directory with nothing that could be used; the good ones are built on the engine.
#[test]
fn offline_directories() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let files = dir.path().join("files");
    let from = files.display().to_string();
    let render = || run(rdmaprep().args(["render", &ofed, "--offline", &from]));
    render().expect(2).says(&from).says("No such file");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("README"), "what is here").unwrap();
    render().expect(2).says("it contains no .deb or .rpm file");
    std::fs::write(files.join("a.deb"), "!<arch>\n").unwrap();
    std::fs::write(files.join("b.rpm"), b"\xed\xab\xee\xdb\x03\x00\x00\x00\x00").unwrap();
    render()
        .expect(2)
        .says("missing: package libibverbs1")
        .says("unusable: a.deb: it is not a package file")
        .says("unusable: b.rpm: it ends in the middle of lead");
}

#[test]
fn inspect_shows_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let text = run(rdmaprep().args(["inspect", &path]));
    insta::assert_snapshot!("inspect_text", text.expect(0).stdout.replace(&path, "ofed.tar"));
    let json = run(rdmaprep().args(["inspect", &path, "--format", "json"]));
    insta::assert_snapshot!("inspect_json", json.expect(0).stdout.replace(&path, "ofed.tar"));
}

#[test]
fn diff_of_two_archives() {
    let dir = tempfile::tempdir().unwrap();
    let before = write(&dir, "before.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let after = write(&dir, "after.tar", &Fixture::good().archive());
    let ran = run(rdmaprep().args(["diff", &before, &after]));
    ran.expect(0)
        .prints("~ libibverbs1")
        .prints("2307mlnx47-1.2310119 -> 44.1-2")
        .prints("- libucx0")
        .prints("outside the RDMA set");
    let ran = run(rdmaprep().args(["diff", &before, &after, "--format", "json"]));
    let diff = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    assert_valid(&validator("schemas/diff.schema.json"), &diff, "diff.schema.json");
}

#[test]
fn help_and_version() {
    for (name, args) in [
        ("help", vec!["--help"]),
        ("help_check", vec!["check", "--help"]),
        ("help_build", vec!["build", "--help"]),
        ("help_render", vec!["render", "--help"]),
        ("help_devices", vec!["devices", "--help"]),
        ("help_explain", vec!["explain", "--help"]),
        ("help_targets", vec!["targets", "--help"]),
        ("help_job", vec!["job", "--help"]),
        ("help_images", vec!["images", "--help"]),
    ] {
        let ran = run(rdmaprep().args(args).env("COLUMNS", "110"));
        insta::assert_snapshot!(name, ran.expect(0).stdout);
    }
    run(rdmaprep().arg("--version")).expect(0).prints(concat!("rdmaprep ", env!("CARGO_PKG_VERSION")));
    run(rdmaprep().args(["check", "--list"])).expect(0).prints("rdma-provider        required");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "good.tar", &Fixture::good().archive());
    let mut child =
        rdmaprep().args(["inspect", &path, "--format", "json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
