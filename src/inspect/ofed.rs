//! Residue of Mellanox OFED or DOCA: packages, apt sources and keys, directories, loader configuration.

use super::loader::Loader;
use super::survey::Survey;
use super::verbs::parse_provider_name;
use super::{absolute, packages, stacks, yum};
use crate::facts::{AptSource, ConfigFacts, OfedDirectory, OfedFacts, PackageFacts};
use crate::image::rootfs::{Node, RootFs};
use std::collections::BTreeSet;

/// Installed under these names, a package is OFED's own, whatever its version says. Metapackages and tools of
/// MLNX_OFED 5.x–24.x and DOCA-Host 2.x; the HPC libraries that they bring (ucx, openmpi, hcoll, sharp) are not
/// among them: programs link to those.
pub const PACKAGE_PREFIXES: [&str; 6] = ["mlnx-", "doca-", "ofed-", "kmod-mlnx-", "kmod-knem", "kmod-kernel-mft"];
pub const PACKAGE_NAMES: [&str; 6] =
    ["knem", "knem-dkms", "kernel-mft-dkms", "mft", "mft-autocomplete", "neohost-backend"];

const SOURCES_LIST: &str = "etc/apt/sources.list";
const SOURCES_DIR: &str = "etc/apt/sources.list.d";
const KEY_DIRS: [&str; 3] = ["etc/apt/trusted.gpg.d", "etc/apt/keyrings", "usr/share/keyrings"];
const LOADER_CONFIG_DIR: &str = "etc/ld.so.conf.d";

/// Whether the content of a path is needed here.
pub fn wants(path: &str) -> bool {
    path == SOURCES_LIST
        // Wherever one is that a link in the directory leads to; dpkg has lists of files by the same ending.
        || (path.ends_with(".list") && !path.starts_with("var/lib/dpkg/"))
        || path.ends_with(".sources")
        || (KEY_DIRS.iter().any(|dir| path.starts_with(dir)) && path.ends_with(".gpg"))
}

/// Collects the residue.
pub fn load_ofed(
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

/// Whether a package of this name belongs to OFED itself.
pub fn is_ofed_name(name: &str) -> bool {
    PACKAGE_NAMES.contains(&name) || PACKAGE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
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

/// apt sources with an entry whose path and address `is_wanted`.
pub fn load_sources(fs: &RootFs, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<AptSource> {
    let mut paths = vec![SOURCES_LIST.to_owned()];
    paths.extend(fs.list(SOURCES_DIR).into_iter().map(|name| format!("{SOURCES_DIR}/{name}")));
    paths.iter().filter_map(|path| parse_source(path, &fs.text(path)?, |address| is_wanted(path, address))).collect()
}

/// Reads one apt source file, one-line or deb822 style. `None`: no entry is wanted.
fn parse_source(path: &str, text: &str, is_wanted: impl Fn(&str) -> bool) -> Option<AptSource> {
    let entries: Vec<String> = if path.ends_with(".sources") {
        text.split("\n\n").map(|p| p.trim().to_owned()).filter(|p| p.contains("URIs:")).collect()
    } else {
        let line = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
        text.lines().map(line).filter(|line| line.starts_with("deb")).collect()
    };
    let (ofed, other): (Vec<String>, Vec<String>) =
        entries.into_iter().partition(|entry| entry.split_whitespace().filter(|w| is_address(w)).any(&is_wanted));
    (!ofed.is_empty()).then(|| AptSource { path: absolute(path), lines: ofed, shared: !other.is_empty() })
}

/// The words of a source entry that give the repository's location; a key's path in `signed-by` is not one.
fn is_address(word: &str) -> bool {
    word.contains(":/") && !word.contains("signed-by=")
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

/// Whether a file is part of an installation of OFED, DOCA or HPC-X.
pub fn is_ofed_path(path: &str) -> bool {
    let directories = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    path.starts_with("opt/mellanox/")
        || directories.split('/').any(|name| is_ofed_directory(name) || name.starts_with("hpcx"))
}

/// Names of installers and of trees that were unpacked from one: `MLNX_OFED_LINUX-23.10-…`, `mlnx-ofed-…`, `ofed`, `ofed-4.6`.
pub fn is_ofed_directory(name: &str) -> bool {
    // This runs for every directory, so most are not copied to lower case.
    if !name.starts_with(['m', 'M', 'o', 'O']) {
        return false;
    }
    let name = name.to_ascii_lowercase();
    name.starts_with("mlnx_ofed")
        || name.starts_with("mlnx-ofed-")
        || name == "ofed"
        || name.starts_with("ofed-")
        || name.starts_with("ofed_")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sources() {
        let line = "deb [signed-by=/k.gpg] http://linux.mellanox.com/public/repo/mlnx_ofed/23.10/debian12.1/x86_64 ./";
        let source =
            parse_source("etc/apt/sources.list.d/a.list", &format!("# deb x\n{line} # note\n"), names_ofed_repository)
                .unwrap();
        assert_eq!((source.lines.as_slice(), source.shared), ([line.to_owned()].as_slice(), false));
        let both = format!("{line}\ndeb http://example.com/debian bookworm main\n");
        assert!(parse_source("etc/apt/sources.list", &both, names_ofed_repository).unwrap().shared);
        // A key that is named after Mellanox does not make the repository theirs.
        let other = "deb [signed-by=/usr/share/keyrings/mellanox.gpg] http://example.com/debian bookworm main\n";
        assert_eq!(parse_source("etc/apt/sources.list", other, names_ofed_repository), None);
        assert_eq!(
            parse_source("etc/apt/sources.list", "#deb http://linux.mellanox.com/x ./\n", names_ofed_repository),
            None
        );
    }

    #[test]
    fn deb822_sources() {
        let text =
            "Types: deb\nURIs: https://linux.mellanox.com/public/repo/doca/2.9.0/ubuntu22.04/x86_64/\nSuites: ./\n";
        let source = parse_source("etc/apt/sources.list.d/doca.sources", text, names_ofed_repository).unwrap();
        assert!(!source.shared);
        let both = format!("{text}\nTypes: deb\nURIs: http://example.com\nSuites: x\n");
        assert!(parse_source("etc/apt/sources.list.d/doca.sources", &both, names_ofed_repository).unwrap().shared);
    }

    #[test]
    fn names() {
        for name in ["mlnx-tools", "ofed-scripts", "kmod-mlnx-ofa_kernel", "doca-ofed-userspace", "knem-dkms"] {
            assert!(is_ofed_name(name), "{name}");
        }
        for name in ["openmpi", "ucx", "libibverbs1", "hcoll"] {
            assert!(!is_ofed_name(name), "{name}");
        }
    }
}
