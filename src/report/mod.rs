//! Facts and findings → text for people, JSON for machines.
//!
//! Writers take a `&mut dyn Write`; nothing here decides or prints on its own.

mod text;

pub use text::{Style, write_check, write_diff, write_facts};

use crate::checks::{Finding, Verdict};
use crate::facts::{ImageFacts, ImageIdentity};
use serde::{Deserialize, Serialize};

/// Version of the report's JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// The result of `check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: String,
    pub target: String,
    pub fabric: String,
    pub verdict: Verdict,
    pub image: ImageIdentity,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn new(facts: &ImageFacts, target: &str, fabric: &str, findings: Vec<Finding>) -> Report {
        Report {
            schema_version: SCHEMA_VERSION,
            rdmaprep_version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.to_owned(),
            fabric: fabric.to_owned(),
            verdict: crate::checks::verdict(&findings),
            image: facts.image.clone(),
            findings,
        }
    }
}
