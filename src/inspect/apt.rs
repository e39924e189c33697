//! Repositories of apt: lists and deb822 files → the entries whose address is wanted.

use super::absolute;
use crate::facts::AptSource;
use crate::image::rootfs::RootFs;

pub(super) const SOURCES_LIST: &str = "etc/apt/sources.list";
pub(super) const SOURCES_DIR: &str = "etc/apt/sources.list.d";

/// apt sources with an entry whose path and address `is_wanted`.
pub(super) fn load_sources(fs: &RootFs, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<AptSource> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_theirs(address: &str) -> bool {
        address.to_ascii_lowercase().contains("mellanox")
    }

    #[test]
    fn one_line_sources() {
        let line = "deb [signed-by=/k.gpg] http://linux.mellanox.com/public/repo/mlnx_ofed/23.10/debian12.1/x86_64 ./";
        let source =
            parse_source("etc/apt/sources.list.d/a.list", &format!("# deb x\n{line} # note\n"), is_theirs).unwrap();
        assert_eq!((source.lines.as_slice(), source.shared), ([line.to_owned()].as_slice(), false));
        let both = format!("{line}\ndeb http://example.com/debian bookworm main\n");
        assert!(parse_source("etc/apt/sources.list", &both, is_theirs).unwrap().shared);
        // A key that is named after Mellanox does not make the repository theirs.
        let other = "deb [signed-by=/usr/share/keyrings/mellanox.gpg] http://example.com/debian bookworm main\n";
        assert_eq!(parse_source("etc/apt/sources.list", other, is_theirs), None);
        assert_eq!(parse_source("etc/apt/sources.list", "#deb http://linux.mellanox.com/x ./\n", is_theirs), None);
    }

    #[test]
    fn deb822_sources() {
        let text =
            "Types: deb\nURIs: https://linux.mellanox.com/public/repo/doca/2.9.0/ubuntu22.04/x86_64/\nSuites: ./\n";
        let source = parse_source("etc/apt/sources.list.d/doca.sources", text, is_theirs).unwrap();
        assert!(!source.shared);
        let both = format!("{text}\nTypes: deb\nURIs: http://example.com\nSuites: x\n");
        assert!(parse_source("etc/apt/sources.list.d/doca.sources", &both, is_theirs).unwrap().shared);
    }
}
