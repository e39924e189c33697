//! Facts → findings. No I/O, no printing: a check reads facts and reports what it found.
//!
//! [`image`] judges what is in an image, [`run`] a preflight, [`host`] a host's devices, [`instance`] what a named instance type
//! adds, [`recipe`] an image by the recipe that it was built from. Each has a `REGISTRY` of its checks with what they mean; a new
//! check is a function and an entry there, and everything else follows from the entry.

mod finding;
pub mod host;
pub mod image;
pub mod instance;
pub mod recipe;
mod record;
pub mod run;
mod status;

pub use finding::{Bar, Finding, Outcome, Verdict, verdict};
pub use host::{HostSubject, check_host};
pub use image::{Subject, check_image};
pub use instance::{InstanceSubject, InstanceUse, Measured, check_instance};
pub use record::{Check, ListedCheck, SubjectKind};
pub use run::{RunOptions, RunSubject, check_run};
pub use status::{Severity, Status};

use crate::suggest;

/// Every check: of an image, of a recipe, of a preflight, of a host, and of an instance type.
pub fn all() -> impl Iterator<Item = ListedCheck> {
    let image = image::REGISTRY.iter().map(|check| check.listed(SubjectKind::Image));
    let recipe = recipe::REGISTRY.iter().map(|check| check.listed(SubjectKind::Recipe));
    let run = run::REGISTRY.iter().map(|check| check.listed(SubjectKind::Run));
    let host = host::REGISTRY.iter().map(|check| check.listed(SubjectKind::Host));
    let instance = instance::REGISTRY.iter().map(|check| check.listed(SubjectKind::Instance));
    image.chain(recipe).chain(run).chain(host).chain(instance)
}

/// Finds a check by id.
pub fn by_id(id: &str) -> Option<ListedCheck> {
    all().find(|check| check.id == id)
}

/// Suggestions for a mistyped id, best first.
pub fn closest(id: &str) -> Vec<&'static str> {
    suggest::closest(id, all().map(|check| check.id), 0.75)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::image::testing::good;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        for id in ids {
            assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{id}");
        }
    }

    #[test]
    fn every_entry_says_what_there_is_to_know() {
        let image = serde_json::to_value(good()).unwrap();
        let run = serde_json::to_value(crate::checks::run::testing::good_run()).unwrap();
        let host = serde_json::to_value(crate::checks::host::testing::good()).unwrap();
        for check in all() {
            let facts = match check.subject() {
                SubjectKind::Image | SubjectKind::Recipe => vec![&image],
                SubjectKind::Run => vec![&run],
                SubjectKind::Host => vec![&host],
                SubjectKind::Instance => vec![&image, &run],
            };
            for text in [check.about, check.why, check.remedy, check.source] {
                assert!(text.len() >= 10 && text == text.trim() && !text.contains("  "), "{}: {text:?}", check.id);
            }
            assert!(check.about.ends_with('.') && check.why.ends_with('.'), "{}", check.id);
            assert!(!check.needs.is_empty() || check.id == "instance-listed", "{}", check.id);
            for part in check.needs {
                assert!(facts.iter().any(|facts| facts.get(part).is_some()), "{}: the facts have no {part}", check.id);
            }
            for (target, severity) in check.exceptions {
                assert!(crate::targets::by_id(target).is_some(), "{}: no target {target}", check.id);
                assert_ne!(*severity, check.severity, "{}: {target} is not an exception", check.id);
            }
        }
    }

    #[test]
    fn mistyped_ids_find_what_was_meant() {
        for (typed, meant) in [("ofed-package", "ofed-packages"), ("NCCL-Version", "nccl-version"), ("provider", "")] {
            assert_eq!(closest(typed).first().copied().unwrap_or_default(), meant, "{typed}: {:?}", closest(typed));
        }
        assert_eq!(closest("zzzz"), Vec::<&str>::new());
    }
}
