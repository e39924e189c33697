//! The input of an image's checks.

use crate::facts::ImageFacts;
use crate::targets::Target;

/// The input of a check.
pub struct Subject<'a> {
    pub facts: &'a ImageFacts,
    pub target: &'a Target,
}

/// `a, b and 3 more`
pub(super) fn abbreviate(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        0..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}
