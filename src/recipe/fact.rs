//! What a recipe states about its image: each fact with its value and its source.

use crate::versions::{parse_cuda_version, parse_nccl_version};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that a recipe can state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// Version of the CUDA toolkit or runtime (`12.4.1`).
    Cuda,
    /// Version of the NCCL that the image's programs get (`2.21.5`).
    Nccl,
    /// Version of cuDNN (`9.1.0.70`; `8` if only that is stated).
    Cudnn,
    /// Version of python3 (`3.10.12`).
    Python,
    /// Version of torch, without its build suffix (`2.6.0`).
    Torch,
    /// `ID-VERSION_ID` of os-release (`ubuntu-22.04`).
    Distro,
}

impl Fact {
    /// Every fact, in display order.
    pub const ALL: [Fact; 6] = [Fact::Cuda, Fact::Nccl, Fact::Cudnn, Fact::Python, Fact::Torch, Fact::Distro];

    /// The key in a recipe.
    pub fn key(self) -> &'static str {
        match self {
            Fact::Cuda => "cuda",
            Fact::Nccl => "nccl",
            Fact::Cudnn => "cudnn",
            Fact::Python => "python",
            Fact::Torch => "torch",
            Fact::Distro => "distro",
        }
    }

    /// An example value.
    pub fn example(self) -> &'static str {
        match self {
            Fact::Cuda => "12.4.1",
            Fact::Nccl => "2.21.5",
            Fact::Cudnn => "9.1.0.70",
            Fact::Python => "3.10.12",
            Fact::Torch => "2.6.0",
            Fact::Distro => "ubuntu-22.04",
        }
    }

    /// Whether a text is a valid value for this fact.
    pub fn is_value(self, text: &str) -> bool {
        let count = numbers(text).map_or(0, |numbers| numbers.len());
        match self {
            Fact::Cuda => (2..=3).contains(&count) && parse_cuda_version(text).is_some(),
            Fact::Nccl => count == 3 && parse_nccl_version(text).is_some(),
            Fact::Cudnn => (1..=4).contains(&count),
            // It is the version of python3.
            Fact::Python => (2..=3).contains(&count) && text.starts_with("3."),
            Fact::Torch => count == 3,
            Fact::Distro => is_distro(text),
        }
    }

    /// Whether the found value matches the stated one, to the precision of both: `12.4` matches `12.4.1`, `3.10` matches `3.10.12`.
    pub fn agrees(self, stated: &str, found: &str) -> bool {
        match (self, numbers(stated), numbers(found)) {
            (Fact::Distro, ..) => stated == found,
            (_, Some(stated), Some(found)) => stated.iter().zip(&found).all(|(one, other)| one == other),
            (_, _, _) => false,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fact::Cuda => "CUDA",
            Fact::Nccl => "NCCL",
            Fact::Cudnn => "cuDNN",
            Fact::Python => "python",
            Fact::Torch => "torch",
            Fact::Distro => "distribution",
        })
    }
}

/// `12.4.1` → 12, 4, 1; `None` for anything else.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split('.').map(|part| if is_number(part) { part.parse().ok() } else { None }).collect()
}

/// `ID-VERSION_ID`, as os-release(5) allows both.
pub(super) fn is_distro(text: &str) -> bool {
    let Some((id, version)) = text.rsplit_once('-') else { return false };
    id.starts_with(|c: char| c.is_ascii_lowercase())
        && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
        && numbers(version).is_some()
}

/// A fact that a recipe states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatedFact {
    pub fact: Fact,
    pub value: String,
    /// The publisher and place of the statement.
    pub source: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for fact in Fact::ALL {
            assert!(fact.is_value(fact.example()), "{fact}");
            for wrong in ["", "latest", "12.x", "v2.21.5", "1.2.3.4.5", " 12.4", "12..4", "99999999999.1"] {
                assert!(!fact.is_value(wrong), "{fact}: {wrong:?}");
            }
        }
        assert!(Fact::Cudnn.is_value("8") && !Fact::Cuda.is_value("12") && !Fact::Nccl.is_value("2.21"));
        assert!(is_distro("opensuse-leap-15.6") && is_distro("alinux-3"));
        for wrong in ["ubuntu", "Ubuntu-22.04", "ubuntu-jammy", "-22.04", "ubuntu 22.04", "ubuntu-"] {
            assert!(!is_distro(wrong), "{wrong}");
        }
    }

    #[test]
    fn as_far_as_both_say() {
        for (fact, stated, found, agrees) in [
            (Fact::Cuda, "12.4.1", "12.4", true),
            (Fact::Cuda, "12.4", "12.4.1", true),
            (Fact::Cuda, "12.4.1", "12.6", false),
            (Fact::Nccl, "2.21.5", "2.21.5", true),
            (Fact::Nccl, "2.21.5", "2.2.5", false),
            (Fact::Python, "3.10.12", "3.1", false),
            (Fact::Cudnn, "8", "8.9.0.131", true),
            (Fact::Torch, "2.6.0", "nightly", false),
            (Fact::Distro, "ubuntu-22.04", "ubuntu-22.04", true),
            (Fact::Distro, "ubuntu-22.04", "ubuntu-22.10", false),
        ] {
            assert_eq!(fact.agrees(stated, found), agrees, "{fact}: {stated} and {found}");
        }
    }
}
