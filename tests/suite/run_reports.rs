//! Reports of a preflight's run in every form: what a machine reads must be what its schema says, and what a person reads
//! is kept as snapshots.

use crate::support::image_fixture;
use crate::support::run_fixture;

use crate::support::schema;

use image_fixture::Fixture;
use rdmaprep::checks::{Bar, RunOptions, RunSubject, Status, check_run};
use rdmaprep::diagnosis::{GpuDirect, RdmaUse};
use rdmaprep::facts::run::*;
use rdmaprep::report::{Report, Style, write_github, write_junit, write_nccl_tests, write_preflight, write_sarif};
use run_fixture::*;
use schema::{assert_valid, validator};
use serde_json::Value;
use std::io::{self, Write};

const PLAIN: Style = Style { colour: false };

fn report(run: RunFacts) -> Report {
    let target = rdmaprep::targets::by_id("pai-dlc").unwrap();
    let facts = Fixture::good().facts();
    let findings = check_run(&RunSubject { run: &run, facts: Some(&facts), target, options: RunOptions::default() });
    Report::of_run(facts.image.clone(), run, target, findings, Bar::Fail, None)
}

/// Sockets in place of RDMA, wrong values, and settings of the image in the way.
fn bad_run() -> RunFacts {
    let mut run = good_run();
    let mut over = variable("NCCL_NET_PLUGIN", "none", Origin::Preset);
    over.replaced.push((Origin::Image, "spcx".into()));
    run.launch.variables.push(over);
    run.launch.variables.push(variable("NCCL_IB_DISABLE", "1", Origin::Image));
    let environment = run.environment.as_mut().unwrap();
    environment.variables.insert("NCCL_NET_PLUGIN".into(), "none".into());
    environment.variables.insert("NCCL_IB_DISABLE".into(), "1".into());
    environment.shm = Some(FileSystem { size_bytes: 64 << 20, free_bytes: 60 << 20 });
    let evidence = run.evidence.as_mut().unwrap();
    evidence.rdma = RdmaUse::No;
    evidence.rdma_reasons = vec!["8 of 8 channels between ranks are via NET/Socket".into()];
    evidence.gpu_direct = GpuDirect::NotExercised;
    evidence.network = vec!["Socket".into()];
    evidence.transports = [("NET/Socket".to_owned(), 8)].into();
    run.rows[2].in_place.wrong = Some(248);
    run.rows[2].in_place.first_wrong =
        Some(WrongElement { rank: 1, index: 17, found_bits: 0x3f80_0000, expected_bits: 0x4040_0000 });
    run
}

fn runs() -> Vec<(&'static str, RunFacts)> {
    let line = "NCCL INFO Bootstrap: Using eth0:192.0.2.7<0>";
    let mut hostile = bad_run();
    hostile.hostname = Some("h\u{1b}[2J\n::error::x".into());
    hostile.gpus.as_mut().unwrap().gpus[0].name = "<\u{1b}[31m&\u{1}".into();
    hostile.launch.gpu_access_reason = "a\nb".into();
    hostile.evidence.as_mut().unwrap().rdma_reasons = vec!["x\n::error::y".into()];
    vec![
        ("good", good_run()),
        ("bad", bad_run()),
        ("one rank", one_rank()),
        ("silent", silent(&[(0, false), (1, true)], Phase::Bootstrap, Some(line))),
        ("refused", not_started(StartFailure::NvidiaToolkitMissing, "could not select device driver")),
        ("crashed", failed(1, Phase::Init, Failure::Signal { signal: 11, name: "SIGSEGV".into() })),
        ("hostile", hostile),
    ]
}

fn text_of(write: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap().replace(env!("CARGO_PKG_VERSION"), "[version]")
}

#[test]
fn every_form_says_the_same() {
    let (preflight, sarif) =
        (validator("schemas/preflight.schema.json"), validator("tests/data/sarif-schema-2.1.0.json"));
    for (name, run) in runs() {
        let report = report(run);
        let json = serde_json::to_value(&report).unwrap();
        assert_valid(&preflight, &json, name);
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report, "{name}: saved and loaded");
        let log: Value = serde_json::from_str(&text_of(|out| write_sarif(out, &report))).unwrap();
        assert_valid(&sarif, &log, name);
        let xml = text_of(|out| write_junit(out, &report));
        let junit = quick_junit::Report::deserialize_from_str(&xml).unwrap();
        assert_eq!(junit.test_suites[0].test_cases.len(), report.findings.len(), "{name}");
        let results = log["runs"][0]["results"].as_array().unwrap();
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        for finding in &report.findings {
            let result = results.iter().find(|result| result["ruleId"] == finding.check);
            assert_eq!(result.is_none(), matches!(finding.status, Status::Pass | Status::Skip), "{name}");
            if let Some(result) = result {
                assert_eq!(rules[result["ruleIndex"].as_u64().unwrap() as usize]["id"], finding.check);
            }
        }
        for text in [
            text_of(|out| write_preflight(out, &report, true, PLAIN)),
            text_of(|out| write_github(out, &report)),
            text_of(|out| write_nccl_tests(out, &report.run.as_ref().unwrap().facts)),
            xml,
        ] {
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{name}: {text:?}");
            assert!(!text.contains("\n::error::"), "{name}: {text:?}");
        }
    }
}

#[test]
fn a_preflight_has_a_run_and_a_check_has_none() {
    let (preflight, check) = (validator("schemas/preflight.schema.json"), validator("schemas/report.schema.json"));
    let mut json = serde_json::to_value(report(good_run())).unwrap();
    for (pointer, wrong) in [
        ("/run/rdma", Value::from("maybe")),
        ("/run/rows/0/out_of_place/time_us", Value::from("1")),
        ("/run/facts/ending", Value::from("complete")),
        ("/findings/0/blame", Value::from("nobody")),
    ] {
        let mut broken = json.clone();
        match broken.pointer_mut(pointer) {
            Some(value) => *value = wrong,
            None => broken["findings"][0]["blame"] = wrong,
        }
        assert!(!preflight.is_valid(&broken), "{pointer}");
    }
    json.as_object_mut().unwrap().remove("run").unwrap();
    assert!(!preflight.is_valid(&json));
    assert_valid(&check, &json, "without a run");
}

#[test]
fn derived_numbers_have_their_units() {
    let json = serde_json::to_value(report(good_run())).unwrap();
    let row = &json["run"]["rows"][0];
    assert_eq!((row["size_bytes"].as_u64(), row["out_of_place"]["time_us"].as_f64()), (Some(1 << 20), Some(90.5)));
    for key in ["algbw_gb_per_s", "busbw_gb_per_s"] {
        assert_eq!(format!("{:.4}", row["out_of_place"][key].as_f64().unwrap()), "11.5865", "{key}");
    }
    assert_eq!(format!("{:.4}", json["run"]["average_busbw_gb_per_s"].as_f64().unwrap()), "13.6564");
    assert_eq!((json["run"]["rdma"].as_str(), json["run"]["ranks"].as_u64()), (Some("yes"), Some(2)));
    // A time of zero has no bandwidth, and JSON has no infinity.
    let mut run = good_run();
    run.rows[0].in_place.time_us = 0.0;
    let json = serde_json::to_value(report(run)).unwrap();
    assert_eq!(json["run"]["rows"][0]["in_place"].get("busbw_gb_per_s"), None);
    assert_eq!(json["run"].get("average_busbw_gb_per_s"), None);
}

#[test]
fn text_of_a_good_and_a_bad_run() {
    insta::assert_snapshot!("text_good", text_of(|out| write_preflight(out, &report(good_run()), true, PLAIN)));
    insta::assert_snapshot!("text_bad", text_of(|out| write_preflight(out, &report(bad_run()), false, PLAIN)));
}

#[test]
fn text_of_runs_that_did_not_come_to_their_end() {
    for (name, run) in runs() {
        if ["one rank", "silent", "refused", "crashed"].contains(&name) {
            let text = text_of(|out| write_preflight(out, &report(run.clone()), false, PLAIN));
            insta::assert_snapshot!(format!("text_{}", name.replace(' ', "_")), text);
        }
    }
}

#[test]
fn junit_of_a_good_and_a_bad_run() {
    for (name, run) in [("good", good_run()), ("bad", bad_run())] {
        insta::assert_snapshot!(format!("junit_{name}"), text_of(|out| write_junit(out, &report(run.clone()))));
    }
}

/// The rules are the registry's, which `explain` shows; here are the results.
#[test]
fn sarif_of_a_good_and_a_bad_run() {
    for (name, run) in [("good", good_run()), ("bad", bad_run())] {
        let log: Value = serde_json::from_str(&text_of(|out| write_sarif(out, &report(run.clone())))).unwrap();
        insta::assert_json_snapshot!(format!("sarif_{name}"), log["runs"][0]["results"]);
    }
}

#[test]
fn github_of_a_good_and_a_bad_run() {
    for (name, run) in [("good", good_run()), ("bad", bad_run())] {
        insta::assert_snapshot!(format!("github_{name}"), text_of(|out| write_github(out, &report(run.clone()))));
    }
}

#[test]
fn nccl_tests_of_a_good_and_a_bad_run() {
    for (name, run) in [("good", good_run()), ("bad", bad_run())] {
        insta::assert_snapshot!(format!("nccl_tests_{name}"), text_of(|out| write_nccl_tests(out, &run)));
    }
}
