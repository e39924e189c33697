//! The text that `inspect --format json` wrote → [`ImageFacts`], so that an image can be judged again without the image.

use crate::facts::{ImageFacts, SCHEMA_VERSION};
use crate::remedy::Remedy;
use serde_json::Value;

/// Why a text is not facts.
#[derive(Debug, thiserror::Error)]
pub enum SavedFactsError {
    #[error("it is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("it has no schema_version")]
    NoVersion,
    #[error("it has schema_version {found}, but this rdmaprep reads {SCHEMA_VERSION}")]
    Version { found: String },
    #[error("it does not contain an image's facts")]
    Shape(#[source] serde_json::Error),
}

impl Remedy for SavedFactsError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            SavedFactsError::NoVersion => "create the file with: rdmaprep inspect IMAGE --format json".to_owned(),
            SavedFactsError::Version { .. } => {
                "inspect the image again with this rdmaprep, or judge with the version that wrote the file".to_owned()
            }
            SavedFactsError::Shape(_) => "create the file with: rdmaprep inspect IMAGE --format json".to_owned(),
            SavedFactsError::Json(_) => return None,
        })
    }
}

/// Reads facts of this version of the form.
///
/// # Errors
/// Text that is not JSON, of another version, or of another shape.
pub fn parse_saved_facts(text: &str) -> Result<ImageFacts, SavedFactsError> {
    let value: Value = serde_json::from_str(text).map_err(SavedFactsError::Json)?;
    match value.get("schema_version") {
        None => return Err(SavedFactsError::NoVersion),
        Some(version) if version.as_u64() == Some(u64::from(SCHEMA_VERSION)) => {}
        Some(other) => return Err(SavedFactsError::Version { found: other.to_string() }),
    }
    serde_json::from_value(value).map_err(SavedFactsError::Shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::image::testing::good;
    use serde_json::json;

    #[test]
    fn what_was_written_is_read() {
        let facts = good();
        assert_eq!(parse_saved_facts(&serde_json::to_string(&facts).unwrap()).unwrap(), facts);
    }

    #[test]
    fn what_is_not_facts_is_refused() {
        let mut newer = serde_json::to_value(good()).unwrap();
        newer["schema_version"] = json!(SCHEMA_VERSION + 1);
        let mut broken = serde_json::to_value(good()).unwrap();
        broken["packages"]["list"] = json!("none");
        for (text, said) in [
            ("{".to_owned(), "not JSON"),
            ("[]".to_owned(), "no schema_version"),
            (newer.to_string(), &*format!("schema_version {}, but this rdmaprep reads", SCHEMA_VERSION + 1)),
            (json!({"schema_version": "1"}).to_string(), "schema_version \"1\""),
            (
                json!({"schema_version": SCHEMA_VERSION, "findings": []}).to_string(),
                "does not contain an image's facts",
            ),
            (broken.to_string(), "does not contain an image's facts"),
        ] {
            let error = parse_saved_facts(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
