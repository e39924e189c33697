//! NCCL and CUDA versions: texts and integers → values that compare rightly, and what a policy asks of NCCL.
//!
//! NCCL's versions are three numbers. A requirement is one of `semver`, which [`NcclRequirement`] asks after turning a version
//! into its type; the versions themselves stay plain numbers, since suffixes such as `rc1` and `a` do not follow `semver`.

use semver::{Comparator, Op, Version, VersionReq};
use std::fmt;

/// An NCCL version. A suffix such as `rc1` or `a` does not take part in comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NcclVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl NcclVersion {
    pub const fn new(major: u32, minor: u32, patch: u32) -> NcclVersion {
        NcclVersion { major, minor, patch }
    }

    /// Decodes `NCCL_VERSION_CODE`: `X*1000+Y*100+Z` up to 2.8, `X*10000+Y*100+Z` since 2.9 (nccl.h of both).
    pub fn from_code(code: u32) -> Option<NcclVersion> {
        let major_unit = if code < 10_000 { 1000 } else { 10_000 };
        let version = NcclVersion::new(code / major_unit, code % major_unit / 100, code % 100);
        (version.major > 0).then_some(version)
    }
}

impl fmt::Display for NcclVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl From<NcclVersion> for Version {
    fn from(version: NcclVersion) -> Version {
        Version::new(version.major.into(), version.minor.into(), version.patch.into())
    }
}

/// Which versions of NCCL will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NcclRequirement {
    /// This one or a newer one.
    AtLeast(NcclVersion),
    /// Those that meet every part of the requirement.
    Within(VersionReq),
}

impl NcclRequirement {
    /// Whether this version will do.
    pub fn allows(&self, version: NcclVersion) -> bool {
        match self {
            NcclRequirement::AtLeast(minimum) => version >= *minimum,
            NcclRequirement::Within(requirement) => requirement.matches(&version.into()),
        }
    }

    /// As a policy writes it: `2.19.0` or `>=2.21, <2.28`.
    pub fn as_written(&self) -> String {
        match self {
            NcclRequirement::AtLeast(minimum) => minimum.to_string(),
            NcclRequirement::Within(requirement) => requirement.to_string(),
        }
    }

    /// As pip and conda read it behind a package's name: `>=2.21.0,<2.28.0`.
    pub fn package_specifier(&self) -> String {
        match self {
            NcclRequirement::AtLeast(minimum) => format!(">={minimum}"),
            NcclRequirement::Within(requirement) => {
                let parts = requirement.comparators.iter().flat_map(bounds);
                parts.map(|(sign, version)| format!("{sign}{version}")).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// For a sentence: `2.19.0 or newer`, `>=2.21, <2.28`.
impl fmt::Display for NcclRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NcclRequirement::AtLeast(minimum) => write!(f, "{minimum} or newer"),
            NcclRequirement::Within(requirement) => requirement.fmt(f),
        }
    }
}

/// One part of a requirement as comparisons with whole versions: `=2.21` is `>=2.21.0` and `<2.22.0`.
fn bounds(part: &Comparator) -> Vec<(&'static str, Version)> {
    let from = Version::new(part.major, part.minor.unwrap_or(0), part.patch.unwrap_or(0));
    let after = match (part.minor, part.patch) {
        (None, _) => Version::new(part.major.saturating_add(1), 0, 0),
        (Some(minor), None) => Version::new(part.major, minor.saturating_add(1), 0),
        (Some(_), Some(_)) => {
            return match part.op {
                Op::Greater => vec![(">", from)],
                Op::Less => vec![("<", from)],
                Op::LessEq => vec![("<=", from)],
                Op::Exact => vec![("==", from)],
                _ => vec![(">=", from)],
            };
        }
    };
    match part.op {
        Op::Greater => vec![(">=", after)],
        Op::Less => vec![("<", from)],
        Op::LessEq => vec![("<", after)],
        Op::Exact => vec![(">=", from), ("<", after)],
        _ => vec![(">=", from)],
    }
}

/// Reads what a policy asks of NCCL: `2.21` (that one or newer), or parts with `>=`, `>`, `<`, `<=` and `=` between commas.
/// `semver` takes a version without a sign for "compatible with", and has more signs; they are refused, because they mean
/// something else to each kind of package. So is a requirement that no version meets.
pub fn parse_nccl_requirement(text: &str) -> Option<NcclRequirement> {
    let is_plain = |c: char| c.is_ascii_digit() || "., <>=".contains(c);
    let requirement = VersionReq::parse(text).ok().filter(|_| text.chars().all(is_plain))?;
    let number = |number: u64| u32::try_from(number).ok();
    match &requirement.comparators[..] {
        [Comparator { op: Op::Caret, major, minor: Some(minor), patch, .. }] => Some(NcclRequirement::AtLeast(
            NcclVersion::new(number(*major)?, number(*minor)?, number(patch.unwrap_or(0))?),
        )),
        parts if parts.iter().any(|part| part.op == Op::Caret) => None,
        parts => {
            // The least version that meets it is a bound, or comes directly after one.
            let bounds = parts.iter().flat_map(bounds).map(|(_, version)| version);
            let mut least = bounds.flat_map(|v| [Version::new(v.major, v.minor, v.patch.saturating_add(1)), v]);
            let can_be_met = requirement.matches(&Version::new(0, 0, 0)) || least.any(|v| requirement.matches(&v));
            can_be_met.then_some(NcclRequirement::Within(requirement))
        }
    }
}

/// Reads `2.19.3`, `v2.19.3-1`, `2.20.3rc1+cuda12.4` or torch's `(2, 19, 3)`.
pub fn parse_nccl_version(text: &str) -> Option<NcclVersion> {
    let text = text.trim().trim_start_matches('v');
    let tuple = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let numbers: Vec<u32> = match tuple {
        Some(inner) => inner.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?,
        None => text.splitn(3, '.').map(leading_number).collect::<Option<_>>()?,
    };
    match numbers[..] {
        [major, minor, patch] => Some(NcclVersion::new(major, minor, patch)),
        _ => None,
    }
}

/// The CUDA version in an NCCL version line (`2.21.5+cuda12.4` → `12.4`): what NCCL was built with, not what the image has.
pub fn nccl_built_for_cuda(text: &str) -> Option<CudaVersion> {
    parse_cuda_version(text.split_once("+cuda")?.1)
}

/// A CUDA version, `major.minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    pub major: u32,
    pub minor: u32,
}

impl CudaVersion {
    pub const fn new(major: u32, minor: u32) -> CudaVersion {
        CudaVersion { major, minor }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Reads the first two numbers of `12.4`, `12.4.127-1` or `12.4.1`.
pub fn parse_cuda_version(text: &str) -> Option<CudaVersion> {
    let mut numbers = text.trim().splitn(3, '.').map(leading_number);
    Some(CudaVersion { major: numbers.next()??, minor: numbers.next()?? })
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_forms() {
        let decoded: Vec<String> = [2408, 2708, 2804, 20908, 21003, 21903, 22105]
            .iter()
            .map(|code| NcclVersion::from_code(*code).unwrap().to_string())
            .collect();
        assert_eq!(decoded, ["2.4.8", "2.7.8", "2.8.4", "2.9.8", "2.10.3", "2.19.3", "2.21.5"]);
        assert_eq!(NcclVersion::from_code(0), None);
    }

    #[test]
    fn texts_of_every_origin() {
        for text in ["2.19.3+cuda12.3", "2.19.3-1+cuda12.3", "v2.19.3-1", "(2, 19, 3)", "2.19.3a"] {
            assert_eq!(parse_nccl_version(text), Some(NcclVersion::new(2, 19, 3)), "{text}");
        }
        assert_eq!(parse_nccl_version("2.20.3rc1+cuda12.4"), Some(NcclVersion::new(2, 20, 3)));
        for text in ["", "2", "2.19", "%d.%d.%d", "x.y.z"] {
            assert_eq!(parse_nccl_version(text), None, "{text}");
        }
        assert_eq!(nccl_built_for_cuda("2.21.5+cuda12.4"), Some(CudaVersion::new(12, 4)));
        assert!(NcclVersion::new(2, 9, 0) < NcclVersion::new(2, 19, 0));
    }

    #[test]
    fn requirements() {
        for (text, said, specifier, allowed, refused) in [
            ("2.21", "2.21.0 or newer", ">=2.21.0", "2.21.0 2.21.5 2.30.7 3.0.0", "2.20.5 2.9.8"),
            ("2.21.5", "2.21.5 or newer", ">=2.21.5", "2.21.5 2.22.3", "2.21.4"),
            (">=2.21, <2.28", ">=2.21, <2.28", ">=2.21.0,<2.28.0", "2.21.0 2.27.7", "2.20.5 2.28.0 2.28.9 3.0.0"),
            (">2.21,<=2.28", ">2.21, <=2.28", ">=2.22.0,<2.29.0", "2.22.3 2.28.9", "2.21.5 2.29.2"),
            (">2.21.5, <=2.28.3", ">2.21.5, <=2.28.3", ">2.21.5,<=2.28.3", "2.22.3 2.28.3", "2.21.5 2.28.7"),
            ("=2.21", "=2.21", ">=2.21.0,<2.22.0", "2.21.5", "2.22.3 2.20.5"),
            ("=2.21.5", "=2.21.5", "==2.21.5", "2.21.5", "2.21.4"),
            (">=2.21, <3", ">=2.21, <3", ">=2.21.0,<3.0.0", "2.30.7", "3.0.0"),
        ] {
            let requirement = parse_nccl_requirement(text).unwrap();
            assert_eq!((requirement.to_string().as_str(), requirement.package_specifier().as_str()), (said, specifier));
            for (versions, expected) in [(allowed, true), (refused, false)] {
                for version in versions.split(' ') {
                    let version = parse_nccl_version(version).unwrap();
                    assert_eq!(requirement.allows(version), expected, "{text}: {version}");
                }
            }
            assert_eq!(parse_nccl_requirement(&requirement.as_written()), Some(requirement));
        }
        for text in [
            "",
            "2",
            "2.19.x",
            "2.*",
            "*",
            "^2.21",
            "~2.21",
            "2.21, <2.28",
            ">=2.21 <2.28",
            ">=2.21,",
            "2.21-rc1",
            "2.21.5+cuda12.4",
            ">=",
            "latest",
            ">=2.28, <2.21",
            ">2.21.5, <2.21.6",
            "=2.21.5, =2.21.6",
            "2.99999999999",
        ] {
            assert_eq!(parse_nccl_requirement(text), None, "{text}");
        }
    }

    #[test]
    fn cuda_versions() {
        assert_eq!(parse_cuda_version("12.4.127-1"), Some(CudaVersion::new(12, 4)));
        assert_eq!(parse_cuda_version("12"), None);
        assert!(CudaVersion::new(12, 10) > CudaVersion::new(12, 4));
    }
}
