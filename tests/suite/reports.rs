//! Reports of the program in every form: what a machine reads must be what its schema says.

use crate::support;
use crate::support::image_fixture;
use crate::support::schema;

use image_fixture::{Fixture, archive_of, tar_of};
use schema::{assert_valid, validator};
use serde_json::{Value, json};
use std::path::Path;
use support::*;
use tempfile::TempDir;

const TARGETS: [&str; 4] = ["pai-dlc", "ecs", "ack", "cce"];

fn write(dir: &TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// What an image may call a file: it would end an XML element, a shell word, an annotation and a colour.
const ODD_NAME: &str = "a b:c,<&\"'>%$(id)\u{1b}[31m\u{1}::error::x";

/// Images that are right, wrong and unclear, by name.
fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let mut unread = Fixture::good();
    unread.file("var/lib/rpm/rpmdb.sqlite", "SQLite");
    let gone = tar_of(&[("var/lib/dpkg/.wh.status", b"".as_slice())]);
    let config = json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {}});
    let mut odd = Fixture::good();
    odd.file("opt/mellanox/x", "ELF").file(&format!("etc/libibverbs.d/{ODD_NAME}.driver"), "driver x,y:z%\n");
    odd.remove("usr/bin/python3.10").remove("usr/bin/python3");
    vec![
        ("good", Fixture::good().archive()),
        ("ofed", Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive()),
        ("plain", Fixture::plain("debian", "12", "bookworm", "arm64").archive()),
        ("unread", archive_of(&[unread.layer(), gone], &config, "example/rpm:1")),
        ("empty", archive_of(&[tar_of::<&str>(&[])], &json!({"config": null, "rootfs": {}}), "example/empty:1")),
        ("odd", odd.archive()),
    ]
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Archive, target → exit code and files, all forms in one call.
fn check_into(dir: &TempDir, archive: &str, target: &str) -> (Ran, Value, Value, String) {
    let at = |name: &str| dir.path().join(name);
    let ran = run(rdmaprep()
        .args(["check", archive, "--target", target])
        .args(["-o", &format!("json={}", at("r.json").display()), "-o", &format!("sarif={}", at("r.sarif").display())])
        .args(["-o", &format!("junit={}", at("r.xml").display())]));
    (ran, read_json(&at("r.json")), read_json(&at("r.sarif")), std::fs::read_to_string(at("r.xml")).unwrap())
}

#[test]
fn every_report_is_what_its_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let (report, sarif) = (validator("schemas/report.schema.json"), validator("tests/data/sarif-schema-2.1.0.json"));
    let facts = validator("schemas/facts.schema.json");
    let mut seen = std::collections::BTreeSet::new();
    for (name, archive) in archives() {
        let archive = write(&dir, &format!("{name}.tar"), &archive);
        let inspected = run(rdmaprep().args(["inspect", &archive, "--format", "json"]));
        assert_valid(&facts, &serde_json::from_str(&inspected.expect(0).stdout).unwrap(), name);
        for target in TARGETS {
            let what = format!("{name} for {target}");
            let (ran, json, log, xml) = check_into(&dir, &archive, target);
            assert_valid(&report, &json, &what);
            assert_valid(&sarif, &log, &what);
            let exit = match json["verdict"].as_str().unwrap() {
                "pass" => 0,
                "fail" => 1,
                "unknown" => 3,
                other => panic!("{other}"),
            };
            ran.expect(exit);
            agree(&json, &log, &xml, &what);
            for form in ["text", "github", "junit"] {
                let ran = run(rdmaprep().args(["check", &archive, "--target", target, "--all", "--format", form]));
                let obeyed = |c: char| c.is_control() && c != '\n';
                assert!(!ran.expect(exit).stdout.contains(obeyed), "{what} as {form}: {:?}", ran.stdout);
            }
            seen.insert((exit, target));
        }
    }
    // The images cover every verdict for some target, and two of them for each.
    assert!([0, 1, 3].iter().all(|exit| seen.iter().any(|(seen, _)| seen == exit)), "{seen:?}");
    assert!(TARGETS.iter().all(|target| seen.iter().filter(|(_, seen)| seen == target).count() >= 2), "{seen:?}");
}

/// The three forms say the same of every check.
fn agree(json: &Value, sarif: &Value, xml: &str, what: &str) {
    let junit = quick_junit::Report::deserialize_from_str(xml).unwrap_or_else(|error| panic!("{what}: {error}\n{xml}"));
    let cases = &junit.test_suites[0].test_cases;
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(cases.len(), findings.len(), "{what}");
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    for (finding, case) in findings.iter().zip(cases) {
        use quick_junit::{NonSuccessKind::*, TestCaseStatus::*};
        let (id, status) = (finding["check"].as_str().unwrap(), finding["status"].as_str().unwrap());
        assert_eq!(case.name.as_str(), id, "{what}");
        let kind = match &case.status {
            Success { .. } if case.system_out.is_some() => "warn",
            Success { .. } => "pass",
            NonSuccess { kind: Failure, .. } => "fail",
            NonSuccess { kind: Error, .. } => "unknown",
            Skipped { .. } => "skip",
        };
        assert_eq!(kind, status, "{what}: {id}");
        let result = results.iter().find(|result| result["ruleId"] == id);
        let level = match status {
            "pass" | "skip" => None,
            "fail" => Some(("fail", "error")),
            "warn" => Some(("fail", "warning")),
            _ => Some(("open", "none")),
        };
        let found = result.map(|r| (r["kind"].as_str().unwrap(), r["level"].as_str().unwrap()));
        assert_eq!(found, level, "{what}: {id}");
        if let Some(result) = result {
            assert_eq!(rules[result["ruleIndex"].as_u64().unwrap() as usize]["id"], id);
            assert_eq!(result["properties"]["remedy"], finding["remedy"]);
        }
    }
    assert_eq!(
        run["invocations"][0]["toolExecutionNotifications"].as_array().unwrap().len(),
        findings.iter().filter(|finding| finding["status"] == "unknown").count()
    );
}

#[test]
fn a_report_of_another_shape_is_not_valid() {
    let dir = tempfile::tempdir().unwrap();
    let archive = write(&dir, "good.tar", &Fixture::good().archive());
    let (_, report, log, _) = check_into(&dir, &archive, "pai-dlc");
    let schema = validator("schemas/report.schema.json");
    let sarif = validator("tests/data/sarif-schema-2.1.0.json");
    for (pointer, wrong) in [
        ("/verdict", json!("good")),
        ("/verdict", json!(1)),
        ("/schema_version", json!(2)),
        ("/findings", json!({})),
        ("/findings/0/status", json!("PASS")),
        ("/findings/0/summary", Value::Null),
        ("/image/layers/0/size_bytes", json!("12")),
        ("/fail_on", json!("never")),
    ] {
        let mut broken = report.clone();
        *broken.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = wrong.clone();
        assert!(!schema.is_valid(&broken), "{pointer} = {wrong}");
    }
    for key in ["schema_version", "verdict", "findings", "image"] {
        let mut broken = report.clone();
        broken.as_object_mut().unwrap().remove(key).unwrap();
        assert!(!schema.is_valid(&broken), "without {key}");
    }
    let mut broken = log;
    broken["runs"][0]["results"] = json!([{"ruleId": 1}]);
    assert!(!sarif.is_valid(&broken));

    let inspected = run(rdmaprep().args(["inspect", &archive, "--format", "json"])).stdout;
    let facts: Value = serde_json::from_str(&inspected).unwrap();
    let schema = validator("schemas/facts.schema.json");
    for (pointer, wrong) in [
        ("/packages/manager", json!("apt")),
        ("/packages/list/0/version", json!(1)),
        ("/verbs/providers/0/abi", json!("34")),
        ("/config/env/0", json!(["only a name"])),
        ("/schema_version", json!("1")),
    ] {
        let mut broken = facts.clone();
        *broken.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = wrong.clone();
        assert!(!schema.is_valid(&broken), "{pointer} = {wrong}");
    }
}

#[test]
fn sarif_locations_are_paths_in_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let (_, odd) = archives().into_iter().find(|(name, _)| *name == "odd").unwrap();
    let (_, _, log, _) = check_into(&dir, &write(&dir, "odd.tar", &odd), "pai-dlc");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let uris = |id: &str| -> Vec<&str> {
        let result =
            results.iter().find(|result| result["ruleId"] == id).unwrap_or_else(|| panic!("{id}: {results:#?}"));
        let locations = result["locations"].as_array().unwrap().iter();
        locations.map(|l| l["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap()).collect()
    };
    assert_eq!(uris("ofed-leftovers"), ["opt/mellanox"]);
    assert_eq!(
        uris("driver-files"),
        ["etc/libibverbs.d/a%20b%3Ac%2C%3C%26%22%27%3E%25%24%28id%29%1B%5B31m%01%3A%3Aerror%3A%3Ax.driver"]
    );
    assert_eq!(uris("python3"), ["./"], "a finding without a path is one of the whole image");
    assert!(log["runs"][0]["originalUriBaseIds"]["IMAGE"].is_object());
}

#[test]
fn github_annotations() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let ran = run(rdmaprep().args(["check", &ofed, "--format", "github"]));
    let lines: Vec<&str> = ran.expect(1).stdout.lines().collect();
    assert!(
        lines[0].starts_with("::error title=rdmaprep ofed-packages::Mellanox builds are installed: "),
        "{lines:#?}"
    );
    assert!(lines[0].contains("%0Alibibverbs1 2307mlnx47-1.2310119%0A"), "{lines:#?}");
    assert!(lines[1].starts_with("::warning title=rdmaprep ofed-leftovers::"), "{lines:#?}");
    assert!(lines.last().unwrap().starts_with("::error title=rdmaprep::FAIL for pai-dlc: 1 failed"), "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with("::")), "{lines:#?}");
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    let ran = run(rdmaprep().args(["check", &good, "-o", "github=-"]));
    assert!(ran.expect(0).stdout.starts_with("::notice title=rdmaprep::PASS for pai-dlc: "), "{}", ran.stdout);
}

#[test]
fn outputs_are_whole_and_independent() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    let at = |form: &str, name: &str| format!("{form}={}", out.join(name).display());
    std::fs::write(out.join("real"), "old and longer than nothing").unwrap();
    symlink("real", out.join("link")).unwrap();
    std::fs::write(out.join("old.xml"), "x".repeat(1 << 20)).unwrap();
    let before = std::fs::metadata(out.join("old.xml")).unwrap().ino();
    let outputs = ["-o", &at("json", "no-such-dir/r.json"), "-o", &at("junit", "old.xml"), "-o", &at("text", "link")];
    let more = ["-o", &at("sarif", "."), "-o", "github=/dev/null"];
    let ran = run(rdmaprep().args(["check", &good, "--color", "always"]).args(outputs).args(more));
    // Two could not be written: both are named, and the others are there, stdout too.
    ran.expect(4)
        .says("no-such-dir/r.json: No such file or directory (os error 2);")
        .says("out/.: is a directory")
        .prints("for pai-dlc");
    assert!(std::fs::read_to_string(out.join("old.xml")).unwrap().starts_with("<?xml"));
    assert_ne!(std::fs::metadata(out.join("old.xml")).unwrap().ino(), before, "replaced, not written over");
    assert!(std::fs::symlink_metadata(out.join("link")).unwrap().is_symlink());
    let text = std::fs::read_to_string(out.join("real")).unwrap();
    assert!(text.contains("\nPASS for pai-dlc: "), "no colour in a file: {text:?}");
    assert!(!Path::new("/dev/null").is_file());
    let mut left: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["link", "old.xml", "real"], "nothing temporary is left");
    let (new, plain) = (out.join("old.xml"), out.join("plain"));
    std::fs::write(&plain, "").unwrap();
    assert_eq!(std::fs::metadata(new).unwrap().mode(), std::fs::metadata(plain).unwrap().mode(), "the umask's mode");

    // A device or pipe is written to where it is.
    run(rdmaprep().args(["check", &good, "-o", "json=/dev/full"])).expect(4).says("writing /dev/full: No space left");
    let ran = run(std::process::Command::new("bash").args([
        "-c",
        "\"$0\" check \"$1\" -o json=>(cat >&2; echo end >&2) -o text=/dev/stdout; wait $!",
        env!("CARGO_BIN_EXE_rdmaprep"),
        &good,
    ]));
    assert!(ran.stderr.starts_with('{') && ran.stderr.ends_with("}\nend\n"), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("PASS for pai-dlc").count(), 1);

    for (args, said) in [
        (vec!["-o", "json=-", "-o", "text=-"], "two results would go to stdout"),
        (vec!["--format", "json", "-o", "text=-"], "two results would go to stdout"),
        (vec!["-o", "json=a", "-o", "text=a"], "two results would go to a"),
        (vec!["-o", "yaml=a"], "formats: text, json, junit, sarif, github"),
        (vec!["-o", "json"], "write FORMAT=FILE"),
        (vec!["-o", "json="], "the file has no name"),
    ] {
        run(rdmaprep().arg("check").arg(&good).args(args)).expect(2).says(said);
    }
    assert!(!Path::new("a").exists());
    let ran = run(rdmaprep().args(["check", &good, "-o", "json=-"]));
    assert_eq!(serde_json::from_str::<Value>(&ran.expect(0).stdout).unwrap()["verdict"], "pass");
    let ran = run(rdmaprep().args(["inspect", &good, "-o", &at("json", "facts.json")]));
    ran.expect(0).prints("libibverbs");
    assert_eq!(read_json(&out.join("facts.json"))["schema_version"], 1);
}

#[test]
fn saved_facts_are_judged_as_the_image_is() {
    let dir = tempfile::tempdir().unwrap();
    for (name, archive) in archives() {
        let archive = write(&dir, &format!("{name}.tar"), &archive);
        let facts = write(&dir, "facts.json", b"");
        run(rdmaprep().args(["inspect", &archive, "-o", &format!("json={facts}")])).expect(0);
        for target in TARGETS {
            let image = run(rdmaprep().args(["check", &archive, "--target", target, "--format", "json"]));
            let saved = run(rdmaprep().args(["check", "--facts", &facts, "--target", target, "--format", "json"]));
            assert_eq!((saved.code, &saved.stdout), (image.code, &image.stdout), "{name} for {target}");
        }
        let (image, saved) =
            (run(rdmaprep().args(["render", &archive])), run(rdmaprep().args(["render", "--facts", &facts])));
        assert_eq!((saved.code, &saved.stdout, &saved.stderr), (image.code, &image.stdout, &image.stderr), "{name}");
        // Nothing of the image is needed.
        std::fs::remove_file(&archive).unwrap();
        assert_ne!(run(rdmaprep().args(["check", "--facts", &facts])).code, None);
    }
    let newer = write(&dir, "newer.json", br#"{"schema_version": 99}"#);
    run(rdmaprep().args(["check", "--facts", &newer]))
        .expect(3)
        .says(&newer)
        .says("schema_version 99")
        .says("inspect the image again");
    let report = write(&dir, "report.json", br#"{"schema_version": 1, "findings": []}"#);
    run(rdmaprep().args(["check", "--facts", &report])).expect(3).says("does not contain an image's facts");
    let missing = dir.path().join("missing.json").display().to_string();
    run(rdmaprep().args(["check", "--facts", &missing])).expect(3).says(&missing);
    run(rdmaprep().args(["check", "--facts", &newer, "image"])).expect(2);
    run(rdmaprep().args(["check"])).expect(2);
}

#[test]
fn a_policy_moves_what_counts_and_the_report_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    let policy = write(
        &dir,
        "policy.toml",
        b"minimum_nccl = '2.25'\n[checks]\nofed-packages = 'off'\nofed-leftovers = { severity = 'required', reason = 'house rule 7' }\n",
    );
    let ran = run(rdmaprep().args(["check", &ofed, "--policy", &policy]));
    ran.expect(1)
        .prints("FAIL     ofed-leftovers")
        .prints("FAIL     nccl-version")
        .prints(&format!("  policy   {policy}\n"))
        .prints("             minimum nccl: 2.19.0 -> 2.25.0\n")
        .prints("             ofed-packages: required -> off, found fail\n")
        .prints("             ofed-leftovers: advice -> required, found warn: house rule 7\n");
    let ran = run(rdmaprep().args(["check", &ofed, "--policy", &policy, "--format", "json"]));
    let report: Value = serde_json::from_str(&ran.expect(1).stdout).unwrap();
    assert_valid(&validator("schemas/report.schema.json"), &report, "with a policy");
    assert_eq!(
        report["policy"]["overrides"][0],
        json!({"check": "ofed-packages", "was": "required", "now": "off", "found": "fail"})
    );
    assert_eq!(report["policy"]["minimums"][0], json!({"of": "nccl", "was": "2.19.0", "now": "2.25.0"}));
    // SARIF's rules and JUnit's cases follow the policy.
    let ran = run(rdmaprep().args(["check", &ofed, "--policy", &policy, "--format", "sarif"]));
    let log: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_valid(&validator("tests/data/sarif-schema-2.1.0.json"), &log, "with a policy");
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.iter().any(|r| r["ruleId"] == "ofed-leftovers" && r["level"] == "error"), "{results:#?}");
    assert!(results.iter().all(|r| r["ruleId"] != "ofed-packages"), "{results:#?}");

    let none = write(&dir, "none.toml", b"");
    assert!(!run(rdmaprep().args(["check", &good])).expect(0).stdout.contains("policy"));
    run(rdmaprep().args(["check", &good, "--policy", &none, "--fail-on", "warn"])).expect(0).prints("(warnings count)");

    let wrong = write(&dir, "wrong.toml", b"[checks]\nofed-leftover = 'off'\n");
    run(rdmaprep().args(["check", &good, "--policy", &wrong]))
        .expect(2)
        .says(&wrong)
        .says("checks.ofed-leftover: there is no such check")
        .says("did you mean ofed-leftovers");
    let missing = dir.path().join("missing.toml").display().to_string();
    run(rdmaprep().args(["check", &good, "--policy", &missing])).expect(2).says(&missing);
}

/// What README shows works as it stands there.
#[test]
fn the_policy_of_the_readme() {
    let dir = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```toml\n").unwrap();
    let policy = write(&dir, "policy.toml", rest.split_once("```").unwrap().0.as_bytes());
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    run(rdmaprep().args(["check", &good, "--policy", &policy]))
        .expect(1)
        .prints("minimum nccl: 2.19.0 -> 2.25.0")
        .prints("ofed-leftovers: advice -> required\n")
        .prints("distro-listed: advice -> off, found pass: we have a mirror of our own");
}

#[test]
fn the_bar_counts_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::good();
    fixture.file("etc/libibverbs.d/old.driver", "driver old\n");
    let warned = write(&dir, "warned.tar", &fixture.archive());
    run(rdmaprep().args(["check", &warned])).expect(0).prints("PASS for pai-dlc: 1 warned");
    run(rdmaprep().args(["check", &warned, "--fail-on", "warn"]))
        .expect(1)
        .prints("FAIL for pai-dlc (warnings count): 1 warned");
    let junit = run(rdmaprep().args(["check", &warned, "--fail-on", "warn", "--format", "junit"])).stdout;
    assert!(junit.contains("failures=\"1\""), "{junit}");
    run(rdmaprep().args(["check", &warned, "--fail-on", "warn", "--format", "github"]))
        .expect(1)
        .prints("::error title=rdmaprep driver-files");
}

#[test]
fn mellanox_userspace_is_right_on_mellanox_devices() {
    let dir = tempfile::tempdir().unwrap();
    let ofed = write(&dir, "ofed.tar", &Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").archive());
    run(rdmaprep().args(["check", &ofed, "--target", "cce", "--all"]))
        .expect(0)
        .prints("skip     ofed-packages")
        .prints("skip     ofed-leftovers")
        .prints("skip     rdma-vendor-build")
        .prints("libmlx5-rdmav34.so");
    let plain = write(&dir, "plain.tar", &Fixture::plain("ubuntu", "22.04", "jammy", "amd64").archive());
    let remedy = "remedy: rdmaprep build example/ubuntu:22.04 -t example/ubuntu:22.04-roce --target cce";
    run(rdmaprep().args(["check", &plain, "--target", "cce"])).expect(1).prints("FAIL     libibverbs").prints(remedy);
    // Only the eRDMA provider: libibverbs is there, and the device is not opened.
    let mut fixture = Fixture::plain("ubuntu", "22.04", "jammy", "amd64");
    fixture.rdma_core(image_fixture::ERDMA_VERSION, "librdmacm1", &["erdma"]);
    let erdma = write(&dir, "erdma.tar", &fixture.archive());
    run(rdmaprep().args(["check", &erdma, "--target", "cce"]))
        .expect(1)
        .prints("FAIL     rdma-provider")
        .prints("no mlx5 provider");
    run(rdmaprep().args(["check", &erdma, "--target", "pai-dlc"])).expect(0);
    // An invalid choice is reported before any daemon is contacted.
    let vendor = ["build", "a:1", "-t", "b:1", "--target", "cce", "--userspace", "vendor"];
    run(rdmaprep().args(vendor).args(["-H", "unix:///nonexistent/docker.sock"]))
        .expect(2)
        .says("RoCE on mlx5 has no userspace \"vendor\"")
        .says("known: keep, inbox, doca");
    let recipe = write(&dir, "recipe.toml", b"[base]\nimage = 'a:1'\n[fabric]\nname = 'erdma'\n");
    run(rdmaprep().args(["build", &recipe, "-t", "b:1", "--target", "cce"])).expect(2).says("is for Alibaba eRDMA");
}

#[test]
fn checks_are_listed_and_explained() {
    let listed = run(rdmaprep().args(["check", "--list"]));
    let ids: Vec<&str> = listed.expect(0).stdout.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    listed.prints("python3              required");
    run(rdmaprep().args(["check", "--list", "--target", "cce"])).expect(0).prints("python3              advice");
    let json = run(rdmaprep().args(["check", "--list", "--format", "json"]));
    let registry: Value = serde_json::from_str(&json.expect(0).stdout).unwrap();
    let checks = registry["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|check| check["id"].as_str().unwrap()).collect::<Vec<_>>(), ids);
    for check in checks {
        let id = check["id"].as_str().unwrap();
        let explained = run(rdmaprep().args(["explain", id]));
        let text = explained.expect(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for key in ["about", "why", "remedy", "source"] {
            assert!(text.contains(check[key].as_str().unwrap()), "{id}: no {key} in {text}");
        }
        let one = run(rdmaprep().args(["explain", id, "--format", "json"]));
        assert_eq!(&serde_json::from_str::<Value>(&one.expect(0).stdout).unwrap(), check);
    }
    insta::assert_snapshot!("explain", run(rdmaprep().args(["explain", "ofed-packages"])).expect(0).stdout);
    run(rdmaprep().args(["explain", "ofed-package"])).expect(2).says("did you mean ofed-packages");
    run(rdmaprep().args(["explain", "zzzz"])).expect(2).says("rdmaprep check --list lists the checks");
    run(rdmaprep().args(["check", "--list", "--format", "sarif"]))
        .expect(2)
        .says("--list has the formats text and json");
}
