//! JSON against the schemas of `schemas/` and `tests/data`.

use jsonschema::Validator;
use serde_json::Value;
use std::path::Path;

/// The schema at a path from the top of the repository.
pub fn validator(path: &str) -> Validator {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// `what` tells one value of a test from another.
#[track_caller]
pub fn assert_valid(validator: &Validator, value: &Value, what: &str) {
    let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}");
}
