//! libibverbs, its providers and their configuration.
//!
//! libibverbs opens `libibverbs/lib<driver>-rdmav<N>.so` in its own directory for every `driver` line in `/etc/libibverbs.d`; N
//! is the ABI of its own build (rdma-core `libibverbs/CMakeLists.txt`, `dynamic_driver.c`).

use super::loader::Loader;
use super::names::{is_ofed_path, parse_provider_name};
use super::packages::Owners;
use super::survey::Survey;
use super::{absolute, apt, yum};
use crate::fabric::own_name;
use crate::facts::{DriverFile, Provider, VerbsFacts, VerbsLibrary, VerbsPlace};
use crate::image::rootfs::{Node, RootFs};
use crate::image::scan::Marker;
use std::collections::BTreeMap;

const DRIVER_DIR: &str = "etc/libibverbs.d";
/// Written by rdmaprep's own swap.
const PIN_FILE: &str = "etc/apt/preferences.d/erdma";
/// The pins of an rpm image: lists of dnf's and yum's versionlock.
const LOCK_FILES: [&str; 2] = ["etc/dnf/plugins/versionlock.list", "etc/yum/pluginconf.d/versionlock.list"];
const DEVINFO: &str = "usr/bin/ibv_devinfo";

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    path == PIN_FILE || LOCK_FILES.contains(&path) || (path.starts_with(DRIVER_DIR) && path.ends_with(".driver"))
}

/// Whether the markers in a binary are needed here.
pub(super) fn wants_markers(path: &str) -> bool {
    path == DEVINFO || is_library_name(file_name(path))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The library itself, or a copy that auditwheel bundled under a name of its own (`libibverbs-4c1ef7b2.so.1.14.44.0`).
fn is_library_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("libibverbs") else { return false };
    rest == ".so" || rest.starts_with(".so.") || (rest.starts_with('-') && rest.contains(".so"))
}

/// The driver that a `.driver` file names.
pub(super) fn parse_driver_file(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("driver")).then(|| words.next()).flatten()
    })
}

/// Paths whose owner matters here.
pub(super) fn paths(fs: &RootFs, survey: &Survey<'_>) -> Vec<String> {
    let mut paths = survey.files_named(is_library_name);
    paths.extend(provider_paths(fs, survey));
    paths.extend(driver_paths(fs));
    paths
}

/// Provider files by name. Many are links to a library one directory up, so a link counts when it leads somewhere.
fn provider_paths(fs: &RootFs, survey: &Survey<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, node) in survey.named() {
        let usable = match node {
            Node::File { .. } => true,
            Node::Symlink(_) => matches!(fs.get(path), Some(Node::File { .. })),
            Node::Dir | Node::Special => false,
        };
        if usable && parse_provider_name(file_name(path)).is_some() {
            found.push(path.to_owned());
        }
    }
    found
}

fn driver_paths(fs: &RootFs) -> Vec<String> {
    let names = fs.list(DRIVER_DIR);
    names.into_iter().filter(|name| name.ends_with(".driver")).map(|name| format!("{DRIVER_DIR}/{name}")).collect()
}

/// Collects the verbs userspace.
pub(super) fn load_verbs(fs: &RootFs, survey: &Survey<'_>, loader: &Loader<'_>, owners: &Owners) -> VerbsFacts {
    let loaded = loader.find("libibverbs.so.1").map(|found| found.path);
    let directories = loader.directories();
    VerbsFacts {
        libraries: survey
            .files_named(is_library_name)
            .into_iter()
            .map(|path| VerbsLibrary {
                provider_abi: provider_abi(fs, &path),
                loaded: loaded.as_deref() == Some(&path),
                package: owners.of(&path),
                place: place(survey, &path, &directories),
                path: absolute(&path),
            })
            .collect(),
        unversioned: loader.find("libibverbs.so").map(|found| absolute(&found.path)),
        providers: provider_paths(fs, survey)
            .into_iter()
            .filter_map(|path| {
                let (driver, abi) = parse_provider_name(file_name(&path))?;
                Some(Provider { driver: driver.to_owned(), abi, package: owners.of(&path), path: absolute(&path) })
            })
            .collect(),
        driver_files: driver_paths(fs)
            .into_iter()
            .map(|path| DriverFile {
                driver: fs.text(&path).and_then(|text| parse_driver_file(&text).map(str::to_owned)),
                package: owners.of(&path),
                path: absolute(&path),
            })
            .collect(),
        erdma_transport: fs.hits(DEVINFO).map(|hits| hits.iter().any(|hit| hit.marker == Marker::ErdmaTransport)),
        vendor_sources: apt::load_sources(fs, |path, address| {
            own_name(path).is_some() || address.contains("/erdma/apt")
        }),
        vendor_repos: yum::load_repos(fs, |repo| own_name(&repo.path).is_some() || repo.url.contains("/erdma/yum")),
        pinned: load_pins(fs),
    }
}

fn place(survey: &Survey<'_>, path: &str, directories: &[String]) -> VerbsPlace {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    if path.contains("-packages/") {
        VerbsPlace::Wheel
    } else if survey.is_in_conda(path) {
        VerbsPlace::Conda
    } else if is_ofed_path(path) {
        VerbsPlace::Ofed
    } else if directories.iter().any(|known| known == directory) {
        VerbsPlace::System
    } else {
        VerbsPlace::Other
    }
}

fn provider_abi(fs: &RootFs, path: &str) -> Option<u32> {
    let hits = fs.hits(path)?;
    let number = |marker: Marker| {
        hits.iter().filter(|hit| hit.marker == marker).find_map(|hit| {
            let digits: String = hit.tail.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        })
    };
    number(Marker::ProviderSuffix).or_else(|| number(Marker::VerbsPrivateAbi))
}

fn load_pins(fs: &RootFs) -> BTreeMap<String, String> {
    let mut pins = fs.text(PIN_FILE).map(|text| parse_pins(&text)).unwrap_or_default();
    for text in LOCK_FILES.iter().filter_map(|path| fs.text(path)) {
        pins.extend(parse_locks(&text));
    }
    pins
}

/// Package → version of the entries that rdmaprep wrote into a versionlock list: a comment above each gives its purpose.
fn parse_locks(text: &str) -> BTreeMap<String, String> {
    let said = text.lines().filter_map(|line| line.strip_prefix("# rdmaprep: ")?.split_once(' '));
    said.map(|(name, version)| (name.to_owned(), version.trim().to_owned())).collect()
}

/// Package → version of an apt preferences file with exact versions.
fn parse_pins(text: &str) -> BTreeMap<String, String> {
    text.split("\n\n")
        .filter_map(|stanza| {
            let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            Some((field("Package:")?.to_owned(), field("Pin: version")?.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_names() {
        assert_eq!(parse_provider_name("liberdma-rdmav34.so"), Some(("erdma", 34)));
        assert_eq!(parse_provider_name("libbnxt_re-rdmav59.so"), Some(("bnxt_re", 59)));
        assert_eq!(parse_provider_name("libmlx5.so.1"), None);
        assert_eq!(parse_provider_name("libx-rdmav.so"), None);
    }

    #[test]
    fn driver_lines() {
        assert_eq!(parse_driver_file("# c\n driver erdma\n"), Some("erdma"));
        assert_eq!(parse_driver_file("drivers erdma\n"), None);
    }

    /// A lock set by somebody else does not say where the package came from.
    #[test]
    fn locks() {
        let text = "# Added lock on Mon\nlibnccl-0:2.21.5-1.*\n# rdmaprep: libibverbs 44.1-2\nlibibverbs-0:44.1-2.*\n";
        assert_eq!(parse_locks(text), BTreeMap::from([("libibverbs".to_owned(), "44.1-2".to_owned())]));
    }

    #[test]
    fn pins() {
        let text = "Package: libibverbs1\nPin: version 44.1-2\nPin-Priority: 1001\n\nPackage: x\nPin: origin y\n";
        assert_eq!(parse_pins(text), BTreeMap::from([("libibverbs1".to_owned(), "44.1-2".to_owned())]));
    }
}
