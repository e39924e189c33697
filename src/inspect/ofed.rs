//! Residue of Mellanox OFED or DOCA: packages, apt sources and keys, directories, loader configuration.

use super::apt::{SOURCES_DIR, SOURCES_LIST, load_sources};
use super::loader::Loader;
use super::names::{is_ofed_directory, is_ofed_name, parse_provider_name};
use super::survey::Survey;
use super::{absolute, packages, stacks, yum};
use crate::facts::{AptSource, ConfigFacts, OfedDirectory, OfedFacts, PackageFacts};
use crate::image::rootfs::{Node, RootFs};
use std::collections::BTreeSet;

const KEY_DIRS: [&str; 3] = ["etc/apt/trusted.gpg.d", "etc/apt/keyrings", "usr/share/keyrings"];
const LOADER_CONFIG_DIR: &str = "etc/ld.so.conf.d";

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    path == SOURCES_LIST
        // Wherever one is that a link in the directory leads to; dpkg has lists of files by the same ending.
        || (path.ends_with(".list") && !path.starts_with("var/lib/dpkg/"))
        || path.ends_with(".sources")
        || (KEY_DIRS.iter().any(|dir| path.starts_with(dir)) && path.ends_with(".gpg"))
}

/// Collects the residue.
pub(super) fn load_ofed(
    fs: &RootFs,
    survey: &Survey<'_>,
    loader: &Loader<'_>,
    packages: &PackageFacts,
    config: &ConfigFacts,
) -> OfedFacts {
    let apt_sources = load_sources(fs, |_, address| names_ofed_repository(address));
    OfedFacts {
        packages: packages
            .all_installed()
            .filter(|package| package.is_mlnx_build() || is_ofed_name(&package.name))
            .map(|package| package.name.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        apt_keys: load_keys(fs, &apt_sources),
        apt_sources,
        yum_repos: yum::load_repos(fs, |repo| names_ofed_repository(&repo.url)),
        directories: load_directories(fs, survey, loader, packages),
        stacks: stacks::load_stacks(fs, config),
        loader_configs: fs
            .list(LOADER_CONFIG_DIR)
            .into_iter()
            .map(|name| format!("{LOADER_CONFIG_DIR}/{name}"))
            .filter(|path| fs.text(path).is_some_and(|text| text.lines().any(names_ofed_directory)))
            .map(|path| absolute(&path))
            .collect(),
    }
}

fn names_ofed_directory(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default().to_ascii_lowercase();
    line.contains("/mellanox") || line.contains("/ofed") || line.contains("mlnx_ofed")
}

/// Whether an address or path in an apt source is a Mellanox or DOCA repository.
fn names_ofed_repository(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("mellanox") || text.contains("mlnx") || text.contains("/doca/")
}

fn load_keys(fs: &RootFs, sources: &[AptSource]) -> Vec<String> {
    let mut keys = BTreeSet::new();
    for dir in KEY_DIRS {
        for name in fs.list(dir) {
            let path = format!("{dir}/{name}");
            let named = names_ofed_repository(name) || name.to_ascii_lowercase().contains("doca");
            // A binary key contains its owner's name as plain text.
            let owned = || fs.content(&path).is_some_and(|bytes| contains_ignoring_case(bytes, b"mellanox"));
            if named || owned() {
                keys.insert(absolute(&path));
            }
        }
    }
    // A key that an OFED source names is OFED's, whatever its own name is, if no other source names it too.
    let texts: Vec<String> = fs
        .list(SOURCES_DIR)
        .into_iter()
        .map(|name| format!("{SOURCES_DIR}/{name}"))
        .chain([SOURCES_LIST.to_owned()])
        .filter(|path| !sources.iter().any(|source| source.path == absolute(path)))
        .filter_map(|path| fs.text(&path))
        .collect();
    for line in sources.iter().filter(|source| !source.shared).flat_map(|source| &source.lines) {
        let lower = line.replace("Signed-By:", "signed-by=").replace("signed-by= ", "signed-by=");
        let Some((_, rest)) = lower.split_once("signed-by=") else {
            continue;
        };
        let Some(key) = rest.split([' ', ']', ',', '\n']).next() else {
            continue;
        };
        if fs.exists(key) && !texts.iter().any(|text| text.contains(key)) {
            keys.insert(key.to_owned());
        }
    }
    keys.into_iter().collect()
}

fn contains_ignoring_case(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle))
}

fn load_directories(
    fs: &RootFs,
    survey: &Survey<'_>,
    loader: &Loader<'_>,
    packages: &PackageFacts,
) -> Vec<OfedDirectory> {
    let mut roots: BTreeSet<String> =
        ["opt/mellanox"].into_iter().filter(|path| fs.get(path) == Some(&Node::Dir)).map(str::to_owned).collect();
    for (path, node) in survey.named() {
        let name = path.rsplit('/').next().unwrap_or(path);
        if *node == Node::Dir && is_ofed_directory(name) {
            roots.insert(path.to_owned());
        }
    }
    // An unpacked installer holds directories of the same kind: only the outermost counts.
    let outermost = roots.iter().filter(|path| !roots.iter().any(|other| path.starts_with(&format!("{other}/"))));
    let mut found = Vec::new();
    for root in outermost {
        // `/usr/local/ofed/4.6-1.0.1.1`: versions side by side are one installation each.
        let versions: Vec<String> = fs
            .list(root)
            .into_iter()
            .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            .map(str::to_owned)
            .collect();
        let is_installer = root.rsplit('/').next().is_some_and(|name| name.to_ascii_lowercase().starts_with("mlnx"));
        if versions.is_empty() {
            let directory = load_directory(fs, loader, packages, root);
            // A plain `ofed` directory may be anything, such as a chapter of a manual.
            let certain = is_installer || root == "opt/mellanox" || !directory.verbs_files.is_empty();
            found.extend(certain.then_some(directory));
        }
        found.extend(versions.iter().map(|version| load_directory(fs, loader, packages, &format!("{root}/{version}"))));
    }
    found
}

fn load_directory(fs: &RootFs, loader: &Loader<'_>, packages: &PackageFacts, root: &str) -> OfedDirectory {
    let (mut files, mut size_bytes) = (0, 0);
    let mut verbs_files = Vec::new();
    fs.walk(root, &mut |path, node| {
        if let Node::File { size, .. } = node {
            files += 1;
            size_bytes += size;
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_verbs =
                ["libibverbs.so", "libmlx5.so", "libmlx4.so", "librdmacm.so"].iter().any(|n| name.starts_with(n));
            if is_verbs || parse_provider_name(name).is_some() {
                verbs_files.push(absolute(path));
            }
        }
    });
    OfedDirectory {
        path: absolute(root),
        files,
        size_bytes,
        owners: packages::owners_below(fs, packages, root),
        verbs_files,
        loader_reason: loader.reason_to_look_below(root),
    }
}
