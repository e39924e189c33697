//! `--instance TYPE`: what it adds to `check`, `devices --check`, `preflight` and `explain`.

use crate::support;
use crate::support::image_fixture;
use crate::support::schema;
use crate::support::sysfs_fixture;

use image_fixture::Fixture;
use rdmaprep::targets::{BaselineRow, all_baselines};
use schema::{assert_valid, validator};
use serde_json::Value;
use support::*;
use sysfs_fixture::SysTree;
use tempfile::TempDir;

fn write(dir: &TempDir, name: &str, content: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let mut all = report["findings"].as_array().unwrap().iter();
    all.find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check} in {report:#}"))
}

#[test]
fn unknown_types_are_refused_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (image, log) =
        (write(&dir, "good.tar", &Fixture::good().archive()), write(&dir, "t.log", table(2, 8, 1.0, &[]).as_bytes()));
    for args in [
        vec!["check", &image],
        vec!["devices", "--check"],
        vec!["preflight", "my/train:1", "-H", "unix:///nonexistent/docker.sock"],
        vec!["explain", &log],
    ] {
        run(rdmaprep().args(&args).args(["--instance", "ebmgn8v.84xlarge"]))
            .expect(2)
            .says("unknown instance type \"ebmgn8v.84xlarge\"")
            .says("did you mean ecs.ebmgn8v.48xlarge")
            .says("omit --instance");
        run(rdmaprep().args(&args).args(["--target", "cce", "--instance", "gn8is.2xlarge"]))
            .expect(2)
            .says("ecs.gn8is.2xlarge is a type of pai-dlc, ecs, ack")
            .says("--target pai-dlc");
    }
    run(rdmaprep().args(["devices", "--instance", "gn8is.2xlarge"])).expect(2).says("add --check");
    run(rdmaprep().args(["explain", "ofed-packages", "--instance", "gn8is.2xlarge"])).expect(2).says("is a check");
    run(rdmaprep().args(["explain", &log, "--target", "ecs"])).expect(2).says("--instance");
}

#[test]
fn check_for_a_type() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(&dir, "good.tar", &Fixture::good().archive());
    let check = |args: &[&str]| run(rdmaprep().args(["check", &good]).args(args));
    let ran = check(&["--instance", "ebmgn8v.48xlarge"]);
    ran.expect(0)
        .prints("pass     instance-listed      ecs.ebmgn8v.48xlarge is among the types that Alibaba PAI-DLC lists")
        .prints("skip     instance-image       no document states requirements of ecs.ebmgn8v.48xlarge")
        .prints("NCCL_IB_HCA=erdma (preset of pai-dlc) lets every NIC")
        .prints("PASS for pai-dlc on ecs.ebmgn8v.48xlarge");
    // A type that the platform does not list is a warning, which counts where warnings do.
    check(&["--instance", "ebmgn9gc.64xlarge"]).expect(0).prints("not among the types that Alibaba PAI-DLC lists");
    check(&["--instance", "ebmgn9gc.64xlarge", "--fail-on", "warn"]).expect(1);

    let json: Value =
        serde_json::from_str(&check(&["--instance", "ebmgn8v.48xlarge", "--format", "json"]).expect(0).stdout).unwrap();
    assert_valid(&validator("schemas/report.schema.json"), &json, "report.schema.json");
    assert_eq!(json["instance"]["name"], "ecs.ebmgn8v.48xlarge");
    assert_eq!((json["instance"]["nics"].as_u64(), json["instance"]["rdma_gbit_per_s"].as_u64()), (Some(2), Some(160)));
    let without: Value = serde_json::from_str(&check(&["--format", "json"]).expect(0).stdout).unwrap();
    assert_eq!(without.get("instance"), None);
    let ids = |report: &Value| report["findings"].as_array().unwrap().len();
    assert_eq!(ids(&json), ids(&without) + 3);

    // Machines get them, too, as what they are.
    let (junit, sarif) = (dir.path().join("r.xml"), dir.path().join("r.sarif"));
    check(&[
        "--instance",
        "ebmgn9gc.64xlarge",
        "-o",
        &format!("junit={}", junit.display()),
        "-o",
        &format!("sarif={}", sarif.display()),
    ])
    .expect(0);
    assert!(std::fs::read_to_string(junit).unwrap().contains("rdmaprep.instance.pai-dlc"));
    let sarif: Value = serde_json::from_str(&std::fs::read_to_string(sarif).unwrap()).unwrap();
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["id"] == "instance-listed"));
    assert!(rules.iter().all(|rule| rule["id"] != "instance-bandwidth"), "nothing was measured");

    // A policy moves these checks as any other.
    let policy = write(&dir, "p.toml", b"[checks]\ninstance-listed = 'required'\n");
    check(&["--instance", "ebmgn9gc.64xlarge", "--policy", &policy]).expect(1).prints("FAIL     instance-listed");
}

#[test]
fn a_host_has_the_nics_of_its_type() {
    let tree = SysTree::erdma();
    let root = tree.root().display().to_string();
    let devices = |args: &[&str]| run(rdmaprep().args(["devices", "--check", "--sysfs", &root]).args(args));
    devices(&["--instance", "ebmgn8v.48xlarge", "--all"])
        .expect(0)
        .prints("2 devices of Alibaba eRDMA, as ecs.ebmgn8v.48xlarge has (Alibaba Cloud help, PAI")
        .prints("PASS for pai-dlc on ecs.ebmgn8v.48xlarge");
    devices(&["--instance", "ebmgn8i.32xlarge"])
        .expect(4)
        .prints("2 devices of Alibaba eRDMA, but 4 are expected, as ecs.ebmgn8i.32xlarge has");
    // What no document says is not held against the host; what is said with --nics is.
    devices(&["--target", "ecs", "--instance", "ebmgn8ia.64xlarge", "--all"])
        .expect(0)
        .prints("skip     host-nic-count       no document gives the number of NICs of ecs.ebmgn8ia.64xlarge");
    devices(&["--target", "ecs", "--instance", "ebmgn8ia.64xlarge", "--nics", "3"]).expect(4);
    let json = devices(&["--instance", "ebmgn8v.48xlarge", "--format", "json"]);
    let json: Value = serde_json::from_str(&json.expect(0).stdout).unwrap();
    assert_valid(&validator("schemas/host-report.schema.json"), &json, "host-report.schema.json");
    assert_eq!(json["instance"]["name"], "ecs.ebmgn8v.48xlarge");
}

/// Output of `all_reduce_perf`: the rows of the PAI page, each bandwidth times `factor`; `without` are left out.
fn table(hosts: u32, per_host: u32, factor: f64, without: &[u64]) -> String {
    let ranks = hosts * per_host;
    let bus = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
    let mut text = String::from(
        "# nThread 1 nGpus 1 minBytes 32768 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
         validation: 1 graph: 0\n#\n# Using devices\n",
    );
    for rank in 0..ranks {
        text += &format!(
            "#  Rank {rank:2} Group  0 Pid {:6} on dlc-worker-{} device {:2} [0x{:02x}] NVIDIA X\n",
            28 + rank,
            rank / per_host,
            rank % per_host,
            16 + rank % per_host
        );
    }
    text += "#\n#                                                              out-of-place                       in-place\n";
    let half = |size: u64, figures: f64| {
        let algbw = figures * factor;
        format!("{:8.1} {algbw:7.2} {:7.2} {:6}", size as f64 / 1e3 / algbw, algbw * bus, 0)
    };
    let rows: &[BaselineRow] = all_baselines().next().unwrap().rows;
    for row in rows.iter().filter(|row| !without.contains(&row.size_bytes)) {
        let size = row.size_bytes;
        // Not the printed algbw, which has two digits.
        let algbw = |time_us: f64| size as f64 / 1e3 / time_us;
        let (out, inside) = (half(size, algbw(row.out_of_place.time_us)), half(size, algbw(row.in_place.time_us)));
        text += &format!("{size:12} {:13}     float     sum      -1 {out} {inside}\n", size / 4);
    }
    text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 7.9\n#\n"
}

fn explained(text: &str, args: &[&str]) -> (Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir, "all_reduce.log", text.as_bytes());
    let explain =
        |more: &[&str]| run(rdmaprep().args(["explain", &path]).args(args).args(more)).expect(0).stdout.clone();
    let json = serde_json::from_str(&explain(&["--format", "json"])).unwrap();
    assert_valid(&validator("schemas/explanation.schema.json"), &json, "explanation.schema.json");
    (json, explain(&[]).replace(&path, "all_reduce.log"))
}

const EBMGN8V: [&str; 2] = ["--instance", "ebmgn8v.48xlarge"];

#[test]
fn a_table_of_two_hosts_is_compared() {
    let (json, text) = explained(&table(2, 8, 1.0, &[]), &EBMGN8V);
    insta::assert_snapshot!("instances_explain_as_the_source", text);
    assert_eq!(json["layout"], serde_json::json!({"hosts": 2, "ranks": 16, "ranks_per_host": 8}));
    assert_eq!(finding(&json, "instance-bandwidth")["status"], "pass");
    assert_eq!(finding(&json, "instance-line-rate")["status"], "pass");
    for (factor, status) in [(0.86, "pass"), (0.84, "warn"), (0.62, "warn"), (0.56, "fail"), (0.1, "fail")] {
        let (json, _) = explained(&table(2, 8, factor, &[]), &EBMGN8V);
        let found = finding(&json, "instance-bandwidth");
        assert_eq!(found["status"], status, "{factor}: {found:#}");
        let blame = if status == "pass" { Value::Null } else { "host".into() };
        assert_eq!(found["blame"], blame, "{factor}");
    }
    let (json, _) = explained(&table(2, 8, 4.0, &[]), &EBMGN8V);
    assert_eq!(finding(&json, "instance-line-rate")["status"], "warn");
    // The largest size that there is counts.
    let large: Vec<u64> = (28..=32).map(|power| 1 << power).collect();
    let (json, _) = explained(&table(2, 8, 1.0, &large), &EBMGN8V);
    assert!(finding(&json, "instance-bandwidth")["summary"].as_str().unwrap().contains("at 128 MiB: 14.2"));
    let large: Vec<u64> = (27..=32).map(|power| 1 << power).collect();
    let (json, _) = explained(&table(2, 8, 1.0, &large), &EBMGN8V);
    let small = finding(&json, "instance-bandwidth");
    assert_eq!(small["status"], "skip");
    assert!(small["summary"].as_str().unwrap().contains("64 MiB, is too small"), "{small:#}");
}

#[test]
fn another_layout_has_no_baseline() {
    for (hosts, per_host, said) in [
        (1, 8, "no baseline for 8 ranks on one host of ecs.ebmgn8v.48xlarge: the source measured 2 × 8 ranks"),
        (1, 16, "no baseline for 16 ranks on one host"),
        (2, 4, "no baseline for 2 × 4 ranks of ecs.ebmgn8v.48xlarge"),
        (4, 8, "no baseline for 4 × 8 ranks of ecs.ebmgn8v.48xlarge"),
    ] {
        for factor in [0.1, 20.0] {
            let (json, text) = explained(&table(hosts, per_host, factor, &[]), &EBMGN8V);
            let found = finding(&json, "instance-bandwidth");
            assert_eq!(found["status"], "skip", "{found:#}");
            assert!(found["summary"].as_str().unwrap().contains(said) && text.contains(said), "{found:#}");
        }
    }
    // Another type, of which nobody reports anything.
    let (json, text) = explained(&table(2, 8, 1.0, &[]), &["--instance", "ebmgn8is.32xlarge"]);
    assert_eq!(finding(&json, "instance-bandwidth")["status"], "skip");
    assert!(text.contains("no document reports a bandwidth for this type"), "{text}");
}

#[test]
fn what_the_text_does_not_show_is_unknown() {
    let whole = table(2, 8, 1.0, &[]);
    let unknown = |text: &str, said: &str| {
        let (json, _) = explained(text, &EBMGN8V);
        let found = finding(&json, "instance-bandwidth");
        assert_eq!(found["status"], "unknown", "{found:#}");
        assert!(found["summary"].as_str().unwrap().contains(said), "{found:#}");
    };
    // Without the list of ranks nobody knows how many hosts there were.
    let rows_only: String =
        whole.lines().filter(|line| !line.contains("Rank")).map(|line| format!("{line}\n")).collect();
    // Where nobody says how many there were either, their hosts would not help.
    unknown(&rows_only, "on which host each rank ran: give the whole output");
    let head: String =
        whole.lines().take_while(|line| !line.contains("out-of-place")).map(|l| format!("{l}\n")).collect();
    unknown(&head, "has no row");
    // NCCL's own log says it, where every rank has one.
    let logs: String = (0..16)
        .map(|rank| {
            format!(
                "dlc-worker-{}:{}:100 [{}] NCCL INFO comm 0x5604ef4799e0 rank {rank} nranks 16 cudaDev {} nvmlDev {} busId \
                 a2000 commId 0xbbe9b8703193e2e4 - Init COMPLETE\n",
                rank / 8,
                27 + rank,
                rank % 8,
                rank % 8,
                rank % 8
            )
        })
        .collect();
    let (json, _) = explained(&format!("{logs}{rows_only}"), &EBMGN8V);
    assert_eq!(json["layout"]["hosts"], 2, "{json:#}");
    assert_eq!(finding(&json, "instance-bandwidth")["status"], "pass");
    // A text that begins later has the ends of the communicators.
    let ends = logs.replace(" commId 0xbbe9b8703193e2e4 - Init COMPLETE", " - Destroy COMPLETE");
    let (json, _) = explained(&format!("{rows_only}{ends}"), &EBMGN8V);
    assert_eq!(json["layout"]["hosts"], 2, "{json:#}");
    // Of an excerpt, as on the vendor's page, a person can say it.
    let excerpt = format!("{}\n{rows_only}", logs.lines().nth(2).unwrap());
    unknown(&excerpt, "each rank ran: say --hosts N");
    let (json, _) = explained(&excerpt, &[&EBMGN8V[..], &["--hosts", "2"]].concat());
    assert_eq!(finding(&json, "instance-bandwidth")["status"], "pass");
    let (json, _) = explained(&excerpt, &[&EBMGN8V[..], &["--hosts", "1"]].concat());
    assert_eq!(finding(&json, "instance-bandwidth")["status"], "skip");
    let dir = tempfile::tempdir().unwrap();
    for (text, hosts, said) in [
        (&excerpt, "3", "16 ranks do not divide evenly over 3 hosts"),
        (&rows_only, "2", "does not show the number of ranks\n  give the whole output"),
        (&whole, "4", "the text shows 2 × 8 ranks"),
    ] {
        let path = write(&dir, "x.log", text.as_bytes());
        run(rdmaprep().args(["explain", &path]).args(EBMGN8V).args(["--hosts", hosts])).expect(2).says(said);
    }
    let one_is_missing: String = logs.lines().skip(1).map(|line| format!("{line}\n")).collect();
    unknown(&format!("{one_is_missing}{rows_only}"), "on which host each rank ran");
}

#[test]
fn another_collective_is_not_compared() {
    let named = table(2, 8, 1.0, &[]).replace("# nThread", "# Collective test starting: all_gather_perf\n# nThread");
    let (json, _) = explained(&named, &EBMGN8V);
    let found = finding(&json, "instance-bandwidth");
    assert_eq!(found["status"], "skip");
    assert!(found["summary"].as_str().unwrap().contains("this is all_gather_perf"), "{found:#}");
    // An old one that does not name itself: busbw is (n-1)/n of algbw.
    let row = "4294967296 1073741824 float sum -1 554176 7.75 7.27 0 554452 7.75 7.26 0\n";
    let whole = table(2, 8, 1.0, &[]);
    let head: String =
        whole.lines().take_while(|line| !line.contains("out-of-place")).map(|l| format!("{l}\n")).collect();
    let (json, _) = explained(&format!("{head}{row}"), &EBMGN8V);
    let found = finding(&json, "instance-bandwidth");
    assert_eq!(found["status"], "skip", "{found:#}");
    assert!(found["summary"].as_str().unwrap().contains("does not match an all-reduce of 16 ranks"), "{found:#}");
}

/// Replaces the bus bandwidth of rows out of place.
fn with_busbw(text: &str, of: impl Fn(u64, f64) -> Option<f64>) -> String {
    let rows = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let row = words.first().and_then(|word| word.parse().ok()).zip(words.get(6).and_then(|word| word.parse().ok()));
        match row.and_then(|(size, algbw)| of(size, algbw)) {
            Some(busbw) => {
                let busbw = format!("{busbw:.2}");
                [&words[..7], &[busbw.as_str()], &words[8..]].concat().join(" ") + "\n"
            }
            None => format!("{line}\n"),
        }
    });
    rows.collect()
}

/// The rows that tell, and not those that two digits cannot tell, say what a table is of; and one that is damaged is not passed over.
#[test]
fn a_table_is_judged_as_a_whole() {
    let whole = table(2, 8, 1.0, &[]);
    let gathered = with_busbw(&whole, |_, algbw| Some(algbw * 15.0 / 16.0));
    let (json, _) = explained(&gathered, &EBMGN8V);
    let (status, summary) = judged(&json, "instance-bandwidth");
    assert_eq!(status, "skip", "{summary}");
    assert!(summary.contains("does not match an all-reduce of 16 ranks"), "{summary}");
    let damaged = with_busbw(&whole, |size, _| (size == 4 << 30).then_some(7.2));
    let (json, _) = explained(&damaged, &EBMGN8V);
    let (status, summary) = judged(&json, "instance-bandwidth");
    assert_eq!(status, "unknown", "{summary}");
    assert!(summary.contains("the row of 4294967296 bytes contradicts itself"), "{summary}");
}

/// One finding of an explanation: its status and summary.
fn judged(json: &Value, check: &str) -> (String, String) {
    let found = finding(json, check);
    (found["status"].as_str().unwrap().to_owned(), found["summary"].as_str().unwrap().to_owned())
}

/// The row and the ranks that are compared are of one table; those of another say nothing of it.
#[test]
fn each_table_has_its_own_ranks() {
    let (slow, good) = (|hosts, ranks| table(hosts, ranks, 0.39, &[]), |hosts, ranks| table(hosts, ranks, 1.0, &[]));
    let other = |text: String| format!("# Collective test starting: all_gather_perf\n{text}");
    for (text, status) in [
        (good(4, 4) + &slow(2, 8), "fail"),
        (slow(4, 4) + &good(2, 8), "pass"),
        (good(2, 8) + &slow(4, 4) + &good(2, 8), "pass"),
        // Of several of the same kind the slowest counts.
        (good(2, 8) + &slow(2, 8), "fail"),
        (slow(2, 8) + &good(2, 8), "fail"),
        (good(2, 8) + &other(good(4, 8)), "pass"),
        (format!("# Collective test starting: /opt/nccl-tests/build/all_reduce_perf\n{}", good(2, 8)), "pass"),
        (other(good(2, 8)), "skip"),
    ] {
        let (json, shown) = explained(&text, &EBMGN8V);
        assert_eq!(judged(&json, "instance-bandwidth").0, status, "{shown}");
        assert_eq!(json["shows_trouble"], status == "fail", "{shown}");
        assert_eq!(shown.contains("no trouble"), status != "fail", "{shown}");
    }
}

/// A log that ends within a row is one without that row.
#[test]
fn a_row_that_was_cut_is_none() {
    let whole = table(2, 8, 1.0, &[]);
    let last = whole.lines().rfind(|line| line.trim_start().starts_with("4294967296")).unwrap();
    let before = &whole[..whole.find(last).unwrap()];
    let words: Vec<&str> = last.split_whitespace().collect();
    for kept in 1..words.len() {
        let (json, shown) = explained(&format!("{before}  {}", words[..kept].join(" ")), &EBMGN8V);
        let rows = json["nccl_tests"]["tables"][0]["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["out_of_place"]["time_us"].as_f64().unwrap() > 1.0), "{kept}: {rows:?}");
        let (status, summary) = judged(&json, "instance-bandwidth");
        // With the columns of out of place a row is one; in place is then missing.
        let size = if kept == 9 { "4 GiB" } else { "2 GiB" };
        assert_eq!(status, "pass", "{kept}: {shown}");
        assert!(summary.contains(size), "{kept}: {summary}");
    }
}

#[test]
fn the_bandwidth_of_wrong_data_is_none() {
    let text = table(2, 8, 1.0, &[]).replace(" 0\n", " 12\n");
    let (json, _) = explained(&text, &EBMGN8V);
    let (status, summary) = judged(&json, "instance-bandwidth");
    assert_eq!(status, "unknown", "{summary}");
    assert!(summary.contains("results are wrong"), "{summary}");
}

#[test]
fn any_number_of_ranks_has_its_hosts() {
    let (json, _) = explained(&table(16, 8, 1.0, &[]), &EBMGN8V);
    assert_eq!((json["layout"]["hosts"].as_u64(), json["layout"]["ranks"].as_u64()), (Some(16), Some(128)));
    assert_eq!(judged(&json, "instance-bandwidth").0, "skip");
}
