//! The image's CUDA version, with all evidence for it. The driver is the host's: a `libcuda` in the image says nothing.

use super::{absolute, files_named};
use crate::facts::{ConfigFacts, CudaEvidence, CudaFacts, CudaSource, PackageFacts};
use crate::image::rootfs::RootFs;
use crate::versions::{CudaVersion, parse_cuda_version};

/// Whether the content of a path is needed here.
pub fn wants(path: &str) -> bool {
    let toolkit = path.strip_prefix("usr/local/cuda").and_then(|rest| rest.split_once('/'));
    matches!(toolkit, Some((_, "version.json" | "version.txt")))
}

/// Collects the evidence, strongest first.
pub fn load_cuda(fs: &RootFs, packages: &PackageFacts, config: &ConfigFacts) -> CudaFacts {
    let mut evidence = Vec::new();
    let mut add = |source, version: Option<CudaVersion>, from: String| {
        if let Some(version) = version {
            evidence.push(CudaEvidence { source, version: version.to_string(), from });
        }
    };
    for name in fs.list("usr/local").into_iter().filter(|name| name.starts_with("cuda")) {
        let Some(real) = fs.real_path(&format!("usr/local/{name}")) else {
            continue;
        };
        // `cuda`, `cuda-12` and `cuda-12.4` are the same toolkit under three names.
        if real != format!("usr/local/{name}") {
            continue;
        }
        let path = format!("{real}/version.json");
        add(CudaSource::VersionJson, fs.text(&path).and_then(|text| parse_version_json(&text)), absolute(&path));
        let path = format!("{real}/version.txt");
        add(CudaSource::VersionTxt, fs.text(&path).and_then(|text| parse_version_txt(&text)), absolute(&path));
    }
    for path in files_named(fs, |name| name.starts_with("libcudart.so.")) {
        let name = path.rsplit('/').next().unwrap_or(&path);
        // A wheel's file is named `libcudart.so.12` only; its dist-info says more.
        add(CudaSource::Libcudart, name.strip_prefix("libcudart.so.").and_then(parse_cuda_version), absolute(&path));
    }
    for package in packages.all_installed().filter(|package| package.name.starts_with("cuda-cudart-")) {
        if !package.name.starts_with("cuda-cudart-dev") {
            let from = format!("package {} {}", package.name, package.version);
            add(CudaSource::Package, parse_cuda_version(&package.version), from);
        }
    }
    fs.walk("", &mut |path, _| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let version = name
            .strip_prefix("nvidia_cuda_runtime")
            .and_then(|rest| rest.strip_suffix(".dist-info"))
            .and_then(|rest| rest.rsplit_once('-'));
        if let Some((_, version)) = version {
            add(CudaSource::Wheel, parse_cuda_version(version), absolute(path));
        }
    });
    if let Some(value) = config.env("CUDA_VERSION") {
        add(CudaSource::Env, parse_cuda_version(value), format!("CUDA_VERSION={value}"));
    }
    evidence.sort_by_key(|evidence| evidence.source);
    CudaFacts { version: evidence.first().map(|first| first.version.clone()), evidence }
}

fn parse_version_json(text: &str) -> Option<CudaVersion> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    parse_cuda_version(value.pointer("/cuda/version")?.as_str()?)
}

fn parse_version_txt(text: &str) -> Option<CudaVersion> {
    parse_cuda_version(text.trim().strip_prefix("CUDA Version ")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_files() {
        let json = r#"{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}"#;
        assert_eq!(parse_version_json(json), Some(CudaVersion::new(12, 4)));
        assert_eq!(parse_version_json("{"), None);
        assert_eq!(parse_version_txt("CUDA Version 10.2.89\n"), Some(CudaVersion::new(10, 2)));
    }

    #[test]
    fn only_a_toolkit_s_own_version_files_are_read() {
        assert!(wants("usr/local/cuda-12.4/version.json"));
        assert!(!wants("usr/local/cuda-12.4/doc/version.json"));
        assert!(!wants("usr/local/cuda"));
    }
}
