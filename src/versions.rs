//! NCCL and CUDA versions: texts and integers → values that compare correctly.

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
    fn cuda_versions() {
        assert_eq!(parse_cuda_version("12.4.127-1"), Some(CudaVersion::new(12, 4)));
        assert_eq!(parse_cuda_version("12"), None);
        assert!(CudaVersion::new(12, 10) > CudaVersion::new(12, 4));
    }
}
