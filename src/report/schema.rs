//! The JSON Schemas in `schemas/`, generated from the types so that they cannot drift apart. Only tests use this.
//!
//! `UPDATE_SCHEMAS=1 cargo test --lib schema` writes them anew.

#[cfg(test)]
pub mod tests {
    use crate::explain::{Explanation, SCHEMA_VERSION as EXPLANATION_VERSION};
    use crate::facts::devices::{self, DeviceFacts};
    use crate::facts::loopback::{LoopbackReport, SCHEMA_VERSION as LOOPBACK_VERSION};
    use crate::facts::{self, ImageFacts};
    use crate::report::recipes::{RecipeListing, SCHEMA_VERSION as RECIPES_VERSION};
    use crate::report::targets::TARGETS_VERSION;
    use crate::report::{self, InstanceListing, Report, TargetListing};
    use schemars::JsonSchema;
    use schemars::generate::SchemaSettings;
    use serde_json::{Value, json};

    /// The schema of the output, for one version of the format.
    pub fn schema<T: JsonSchema>(title: &str, version: u32) -> String {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut schema = generator.into_root_schema_for::<T>().to_value();
        schema["title"] = json!(title);
        schema["properties"]["schema_version"] = json!({"description": "Version of this form.", "const": version});
        // Line breaks in the source are not part of the text.
        join_lines(&mut schema);
        serde_json::to_string_pretty(&schema).unwrap() + "\n"
    }

    /// The schema for a command whose reports always have `with` and never `without`.
    fn shaped(schema: &str, with: &[&str], without: &[&str]) -> String {
        let mut schema: Value = serde_json::from_str(schema).unwrap();
        for key in without {
            schema["properties"].as_object_mut().unwrap().remove(*key).unwrap();
        }
        for key in with {
            // A required property is never null.
            let property = &mut schema["properties"][*key];
            if let Some(kind) = property["anyOf"].as_array().and_then(|kinds| kinds.first()).cloned() {
                *property = kind;
            }
        }
        let required = schema["required"].as_array_mut().unwrap();
        required.extend(with.iter().map(|key| json!(key)));
        required.sort_by_key(|key| key.as_str().map(str::to_owned));
        loop {
            let text = schema.to_string();
            let types = schema["$defs"].as_object_mut().unwrap();
            let before = types.len();
            types.retain(|name, _| text.contains(&format!("\"#/$defs/{name}\"")));
            if types.len() == before {
                break;
            }
        }
        serde_json::to_string_pretty(&schema).unwrap() + "\n"
    }

    fn join_lines(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        Value::String(text) if key == "description" => *text = text.replace('\n', " "),
                        other => join_lines(other),
                    }
                }
            }
            Value::Array(list) => list.iter_mut().for_each(join_lines),
            _ => {}
        }
    }

    #[test]
    fn the_schemas_are_those_of_the_types() {
        let report = |title: &str, with: &[&str], without: &[&str]| {
            shaped(&schema::<Report>(title, report::SCHEMA_VERSION), with, without)
        };
        for (name, made) in [
            ("facts", schema::<ImageFacts>("What rdmaprep inspect --format json writes", facts::SCHEMA_VERSION)),
            ("report", report("What rdmaprep check IMAGE --format json writes", &["image"], &["run", "host"])),
            (
                "recipe-report",
                report("What rdmaprep check RECIPE --format json writes", &["recipe"], &["image", "run", "host"]),
            ),
            (
                "preflight",
                report("What rdmaprep preflight --format json writes", &["image", "run"], &["host", "recipe"]),
            ),
            ("devices", schema::<DeviceFacts>("What rdmaprep devices --format json writes", devices::SCHEMA_VERSION)),
            (
                "host-report",
                report("What rdmaprep devices --check --format json writes", &["host"], &["image", "run", "recipe"]),
            ),
            ("images", schema::<RecipeListing>("What rdmaprep images --format json writes", RECIPES_VERSION)),
            (
                "loopback",
                schema::<LoopbackReport>("What rdmaprep devices --loopback --format json writes", LOOPBACK_VERSION),
            ),
            ("targets", schema::<TargetListing>("What rdmaprep targets --format json writes", TARGETS_VERSION)),
            (
                "instance-type",
                schema::<InstanceListing>(
                    "What rdmaprep targets --instance TYPE --format json writes",
                    TARGETS_VERSION,
                ),
            ),
            (
                "explanation",
                schema::<Explanation>("What rdmaprep explain LOG --format json writes", EXPLANATION_VERSION),
            ),
        ] {
            assert_kept(name, &made);
        }
    }

    /// The file of a schema matches the generated one.
    pub fn assert_kept(name: &str, made: &str) {
        let path = format!("{}/schemas/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == made, "{path} is not what the types say: UPDATE_SCHEMAS=1 cargo test --lib schema");
    }
}
