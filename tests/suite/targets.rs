//! `rdmaprep targets`: what it shows, as text and as JSON, and wrong names.

use crate::support;
use crate::support::schema;

use rdmaprep::targets::TARGETS;
use schema::{assert_valid, validator};
use serde_json::Value;
use support::*;

fn targets(args: &[&str]) -> Ran {
    run(rdmaprep().arg("targets").args(args))
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&targets(&[args, &["--format", "json"]].concat()).expect(0).stdout).unwrap()
}

#[test]
fn text_of_every_target() {
    insta::assert_snapshot!("targets", targets(&[]).expect(0).stdout);
    for target in TARGETS {
        insta::assert_snapshot!(format!("targets_{}", target.id), targets(&[target.id]).expect(0).stdout);
    }
    insta::assert_snapshot!("targets_ebmgn8v", targets(&["--instance", "ebmgn8v.48xlarge"]).expect(0).stdout);
    insta::assert_snapshot!("targets_ebmgn8ia", targets(&["--instance", "ebmgn8ia.64xlarge"]).expect(0).stdout);
}

/// Whatever has a value has a document with title and month.
fn figures(value: &Value, found: &mut usize) {
    match value {
        Value::Object(map) => {
            if let Some(source) = map.get("source") {
                *found += 1;
                assert!(!source["title"].as_str().unwrap().is_empty() && source["read"] == "2026-11", "{source}");
            }
            assert!(!map.contains_key("value") || map.contains_key("source") || map.contains_key("name"), "{map:?}");
            map.values().for_each(|value| figures(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| figures(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn json_is_what_its_schema_says() {
    let all = json(&[]);
    assert_valid(&validator("schemas/targets.schema.json"), &all, "targets.schema.json");
    let entries = all["targets"].as_array().unwrap();
    assert_eq!((all["schema_version"].as_u64(), entries.len()), (Some(1), TARGETS.len()));
    let mut found = 0;
    figures(&all, &mut found);
    assert!(found > 80, "{found}");
    for (entry, target) in entries.iter().zip(TARGETS) {
        let one = json(&[target.id]);
        assert_valid(&validator("schemas/targets.schema.json"), &one, "targets.schema.json");
        assert_eq!(&one["targets"][0], entry);
    }
    let pai = &entries[0];
    assert_eq!(pai["minimum_nccl"]["value"], "2.19.0");
    assert_eq!(pai["baselines"][0]["rows"].as_array().unwrap().len(), 18);
    assert_eq!(pai["baselines"][0]["rows"][17]["in_place"]["busbw_gb_per_s"], 14.52);
    let tc = pai["variables"].as_array().unwrap().iter().find(|variable| variable["name"] == "NCCL_IB_TC").unwrap();
    assert_eq!((tc["has_effect"].as_bool(), tc.get("value")), (Some(false), None));
    // Nobody states a minimum for ECS, so there is none.
    assert_eq!(entries[1].get("minimum_nccl"), None);

    let instance = json(&["--instance", "ecs.ebmgn8ia.64xlarge"]);
    assert_valid(&validator("schemas/instance-type.schema.json"), &instance, "instance-type.schema.json");
    assert_eq!((instance["instance"].get("nics"), instance["baselines"].as_array().unwrap().len()), (None, 0));
    assert_valid(
        &validator("schemas/instance-type.schema.json"),
        &json(&["--instance", "EBMGN8V.48XLARGE"]),
        "instance-type.schema.json",
    );
}

#[test]
fn wrong_names() {
    targets(&["pai"]).expect(2).says("there is no target \"pai\"").says("did you mean pai-dlc?");
    targets(&["mars"]).expect(2).says("known targets: pai-dlc, ecs, ack, cce");
    let ran = targets(&["--instance", "ebmgn8v.32xlarge"]);
    ran.expect(2).says("unknown instance type \"ebmgn8v.32xlarge\"").says("did you mean ecs.ebmgn8v.48xlarge");
    assert!(!ran.stderr.contains("omit --instance"), "{}", ran.stderr);
    targets(&["--instance", "gn8v.4xlarge"]).expect(2).says("documents say about its family gn8v only");
    targets(&["pai-dlc", "--instance", "gn8is.2xlarge"]).expect(2).says("cannot be used with");
}
