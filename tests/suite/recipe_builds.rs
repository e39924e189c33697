//! Recipes on the real engine: several at once, a base that comes from a registry with a password, an image that is not what its
//! recipe states, and an interrupt.

use crate::support;
use crate::support::docker::registry;
use crate::support::schema;

use registry::{PASSWORD, Registry, USER};
use schema::{assert_valid, validator};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use support::*;
use tempfile::TempDir;

/// The rig's distribution, which the vendor does not list: the recipe names the repository.
fn recipe(base: &str, mirror: &str, suite: &str, tag: &str, expect: &str) -> String {
    format!(
        "tag = '{tag}'\n[base]\nimage = '{base}'\ndistro = 'debian-12'\n\
         [fabric]\nname = 'erdma'\nmirror = '{mirror}'\nsuite = '{suite}'\n{expect}"
    )
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn row<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["recipes"].as_array().unwrap().iter().find(|row| row["recipe"] == name).unwrap()
}

fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == check).unwrap()
}

/// What the rig's base really has.
const RIGHT: &str =
    "[[expect]]\nsource = 'the rig'\ncuda = '12.4.1'\nnccl = '2.21.5'\npython = '3.11'\ndistro = 'debian-12'\n";

#[test]
fn three_recipes_at_once() {
    if !rig() {
        return;
    }
    let (mirror, mut names, dir) = (Mirror::start(), Names::new(), tempfile::tempdir().unwrap());
    let (good, failing) = (names.unique("recipe-good"), names.unique("recipe-failing"));
    write(&dir, "good", &recipe(BASE, &mirror.address, "bookworm/erdma", &good, RIGHT));
    write(&dir, "failing", &recipe(BASE, &mirror.address, "bookworm/nothing", &failing, ""));
    // Nobody listens there.
    write(
        &dir,
        "missing",
        &recipe("127.0.0.1:1/rdmaprep-test/missing:1", &mirror.address, "x/erdma", "rdmaprep-test/missing", ""),
    );
    let all = dir.path().display().to_string();
    let build =
        |more: &[&str]| run(rdmaprep().args(["build", "--all", &all, "-j", "3", "--network", "host"]).args(more));
    let ran = build(&["--format", "json", "--progress", "plain", "--no-cache"]);
    // A suite that the recipe has wrong stands above what only could not be examined.
    let result: Value = serde_json::from_str(&ran.expect(2).stdout).unwrap();
    assert_eq!(result["exit_code"], 2);
    assert_valid(&validator("schemas/builds.schema.json"), &result, "builds.schema.json");
    let summary = |name: &str| {
        let row = row(&result, name);
        (row["result"].as_str().unwrap().to_owned(), row["exit_code"].as_u64().unwrap())
    };
    assert_eq!(summary("good"), ("built".into(), 0));
    assert_eq!(summary("failing"), ("failed".into(), 2));
    assert_eq!(summary("missing"), ("failed".into(), 3));
    let report = &row(&result, "good")["build"]["report"];
    assert_eq!((report["verdict"].as_str(), report["recipe"]["name"].as_str()), (Some("pass"), Some("good")));
    assert_eq!(finding(report, "recipe-facts")["status"], "pass", "{report}");
    assert!(row(&result, "failing")["message"].as_str().unwrap().contains("the mirror has no such suite"));
    assert!(row(&result, "missing")["message"].as_str().unwrap().contains("127.0.0.1:1"));
    must("docker", &["image", "inspect", &good]);
    // All of them had begun before the first was done.
    let at = |text: &str| ran.stderr.find(text).unwrap_or_else(|| panic!("{text}: {}", ran.stderr));
    let done = at("good: checking the result");
    for begun in ["good: reading ", "failing: reading ", "missing: pulling "] {
        assert!(at(begun) < done, "{begun}: {}", ran.stderr);
    }
    for line in ran.stderr.lines() {
        assert!(["good: ", "failing: ", "missing: "].iter().any(|name| line.starts_with(name)), "{line}");
    }

    let text = build(&["--progress", "plain"]);
    text.expect(2).prints("1 built, 2 failed").prints("good     built   pass").prints("failing  FAILED  -");
}

#[test]
fn an_image_that_is_not_what_its_recipe_states() {
    if !rig() {
        return;
    }
    let (mirror, mut names, dir) = (Mirror::start(), Names::new(), tempfile::tempdir().unwrap());
    let tag = names.unique("recipe-stale");
    let stale = RIGHT.replace("2.21.5", "2.19.3").replace("3.11", "3.10.12");
    let path = write(&dir, "stale", &recipe(BASE, &mirror.address, "bookworm/erdma", &tag, &stale));
    let build = |more: &[&str]| run(rdmaprep().args(["build", &path, "--network", "host"]).args(more));
    // The image is right, and the recipe is not.
    build(&[])
        .expect(0)
        .prints(&format!("{BASE} -> {tag}"))
        .prints("warn     recipe-facts         NCCL is 2.21.5, but the recipe states 2.19.3; python is 3.11, but the recipe states 3.10.12")
        .prints("NCCL 2.19.3 is stated by the rig");
    build(&["--fail-on", "warn"]).expect(1);
    let policy = write(&dir, "policy", "[checks]\nrecipe-facts = 'off'\n");
    build(&["--policy", &policy]).expect(0);
    // Another distribution than the recipe's ends the build before it begins.
    let text = recipe(BASE, &mirror.address, "bookworm/erdma", &tag, "").replace("debian-12", "ubuntu-22.04");
    let other = write(&dir, "other", &text);
    run(rdmaprep().args(["build", &other])).expect(2).says("is for ubuntu-22.04").says("is debian-12");
}

#[test]
fn a_base_comes_from_its_registry() {
    if !rig() {
        return;
    }
    let Some(registry) = Registry::start() else { return };
    let (mirror, mut names, dir) = (Mirror::start(), Names::new(), tempfile::tempdir().unwrap());
    let base = format!("{}/team/ofed:{}", registry.address, std::process::id());
    names.add(&base);
    let tag = names.unique("recipe-pulled");
    let config = dir.path().join("docker").display().to_string();
    must("docker", &["--config", &config, "login", "--username", USER, "--password", PASSWORD, &registry.address]);
    must("docker", &["tag", OFED, &base]);
    must("docker", &["--config", &config, "push", "-q", &base]);
    must("docker", &["rmi", &base]);

    let text = |base: &str| recipe(base, &mirror.address, "bookworm/erdma", &tag, "");
    let path = write(&dir, "pulled", &text(&base));
    let build = |path: &str, config: Option<&str>, more: &[&str]| {
        let mut command = rdmaprep();
        command.args(["build", path, "--network", "host", "--target", "ecs", "--format", "json"]).args(more);
        // Without a login nothing of this machine's may help.
        command.env("DOCKER_CONFIG", config.unwrap_or("/nonexistent"));
        run(&mut command)
    };
    build(&path, None, &[]).expect(3).says(&format!("docker login {}", registry.address));
    build(&path, Some(&config), &["--pull", "never"]).expect(3).says(&format!("docker pull {base}"));
    let ran = build(&path, Some(&config), &["--progress", "plain"]);
    let result: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    assert_eq!(result["pulled"], true);
    assert!(!ran.stderr.contains(PASSWORD));
    ran.says(&format!("pulling {base}")).says("Digest: sha256:");
    // Now it is there.
    let again: Value = serde_json::from_str(&build(&path, None, &[]).expect(0).stdout).unwrap();
    assert_eq!(again["pulled"], false);
    let always: Value =
        serde_json::from_str(&build(&path, Some(&config), &["--pull", "always"]).expect(0).stdout).unwrap();
    assert_eq!(always["pulled"], true);

    // By digest, too, which the registry has named.
    let digests = must("docker", &["image", "inspect", "--format", "{{join .RepoDigests \"\\n\"}}", &base]);
    let digest = digests.lines().find(|line| line.starts_with(&registry.address)).unwrap().split('@').nth(1).unwrap();
    must("docker", &["rmi", &base]);
    let pinned = write(&dir, "pinned", &text(&base).replace("distro =", &format!("digest = '{digest}'\ndistro =")));
    let ran = build(&pinned, Some(&config), &[]);
    names.add(&format!("{}/team/ofed@{digest}", registry.address));
    let result: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    assert_eq!(result["pulled"], true);

    // And what the registry does not have.
    let path = write(&dir, "nowhere", &text(&format!("{}/team/nothing:1", registry.address)));
    build(&path, Some(&config), &[]).expect(3).says("has no such image").says("check the name");
}

/// Case of an impatient user: all that runs ends, and what has not begun does not begin.
#[test]
fn an_interrupt_ends_all() {
    if !rig() {
        return;
    }
    let (mut names, dir) = (Names::new(), tempfile::tempdir().unwrap());
    // A mirror that accepts and never answers keeps the builds waiting.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = format!("http://{}/erdma", listener.local_addr().unwrap());
    let mut tags = Vec::new();
    for name in ["a", "b", "c"] {
        let tag = names.unique(&format!("recipe-interrupted-{name}"));
        write(&dir, name, &recipe(OFED, &mirror, "bookworm/erdma", &tag, ""));
        tags.push(tag);
    }
    let mut child = rdmaprep()
        .args(["build", "--all", &dir.path().display().to_string(), "--network", "host", "--target", "ecs"])
        .args(["--format", "json", "--progress", "plain", "--no-cache"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>());
    // A request says that a build waits for the mirror. There may be no second one: BuildKit may run steps that are alike as one.
    let (connection, _) = listener.accept().unwrap();
    must("kill", &["-INT", &child.id().to_string()]);
    let output = child.wait_with_output().unwrap();
    let said = reader.join().unwrap().join("\n");
    drop(connection);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["exit_code"], 130);
    for name in ["a", "b", "c"] {
        assert_eq!(row(&result, name)["result"], "interrupted", "{result}");
    }
    assert!(!said.contains("c: reading"), "the third had not begun: {said}");
    for tag in tags {
        assert_eq!(must("docker", &["images", "-q", &tag]), "", "{tag}");
    }
}
