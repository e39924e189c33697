//! The image's CUDA version, with all evidence for it. The driver is the host's: a `libcuda` in the image is a compatibility
//! library, a stub or a leftover, and says nothing about either.

use super::absolute;
use super::loader::Loader;
use super::survey::Survey;
use crate::facts::{ConfigFacts, CudaEvidence, CudaFacts, CudaSource, DriverLibrary, DriverLibraryKind, PackageFacts};
use crate::image::rootfs::{Node, RootFs};
use crate::versions::{CudaVersion, parse_cuda_version};

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    let toolkit = path.strip_prefix("usr/local/cuda").and_then(|rest| rest.split_once('/'));
    matches!(toolkit, Some((_, "version.json" | "version.txt")))
}

/// Collects the evidence, strongest first.
pub(super) fn load_cuda(
    fs: &RootFs,
    survey: &Survey<'_>,
    loader: &Loader<'_>,
    packages: &PackageFacts,
    config: &ConfigFacts,
) -> CudaFacts {
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
    for path in survey.files_named(|name| name.starts_with("libcudart.so.")) {
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
    for (path, _) in survey.named() {
        let name = path.rsplit('/').next().unwrap_or(path);
        let version = name
            .strip_prefix("nvidia_cuda_runtime")
            .and_then(|rest| rest.strip_suffix(".dist-info"))
            .and_then(|rest| rest.rsplit_once('-'));
        if let Some((_, version)) = version {
            add(CudaSource::Wheel, parse_cuda_version(version), absolute(path));
        }
    }
    if let Some(value) = config.env("CUDA_VERSION") {
        add(CudaSource::Env, parse_cuda_version(value), format!("CUDA_VERSION={value}"));
    }
    evidence.sort_by_key(|evidence| evidence.source);
    CudaFacts {
        version: evidence.first().map(|first| first.version.clone()),
        evidence,
        driver_libraries: load_driver_libraries(fs, survey, loader),
        requires: config.env("NVIDIA_REQUIRE_CUDA").map(parse_requirement).unwrap_or_default(),
    }
}

/// Every non-empty `libcuda.so*` file: committing a container that has the driver mounted leaves empty files in the
/// image.
fn load_driver_libraries(fs: &RootFs, survey: &Survey<'_>, loader: &Loader<'_>) -> Vec<DriverLibrary> {
    survey
        .files_named(|name| name == "libcuda.so" || name.starts_with("libcuda.so."))
        .into_iter()
        .filter(|path| !matches!(fs.get(path), Some(Node::File { size: 0, .. })))
        .map(|path| {
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let kind = match directory.rsplit('/').next() {
                Some("compat") => DriverLibraryKind::Compat,
                Some("stubs") => DriverLibraryKind::Stub,
                _ => DriverLibraryKind::BakedIn,
            };
            let version = name.strip_prefix("libcuda.so.").filter(|version| version.contains('.'));
            DriverLibrary {
                kind,
                version: version.map(str::to_owned),
                loader_reason: loader.reason_to_look_below(directory),
                path: absolute(&path),
            }
        })
        .collect()
}

/// Splits `cuda>=12.4 brand=tesla,driver>=470,driver<471`: spaces part alternatives, commas conditions that hold together
/// (NVIDIA container toolkit, "NVIDIA_REQUIRE_* constraints").
fn parse_requirement(text: &str) -> Vec<Vec<String>> {
    let conditions = |group: &str| group.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    text.split_whitespace().map(conditions).filter(|group| !group.is_empty()).collect()
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
    fn requirements() {
        let groups = parse_requirement("cuda>=12.4 brand=tesla,driver>=470,driver<471 ");
        assert_eq!(groups, [vec!["cuda>=12.4"], vec!["brand=tesla", "driver>=470", "driver<471"]]);
        assert!(parse_requirement(" ").is_empty());
    }

    #[test]
    fn only_a_toolkit_s_own_version_files_are_read() {
        assert!(wants("usr/local/cuda-12.4/version.json"));
        assert!(!wants("usr/local/cuda-12.4/doc/version.json"));
        assert!(!wants("usr/local/cuda"));
    }
}
