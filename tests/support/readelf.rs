//! What the loader will ask of a file, as `readelf` of binutils says (which comes with the C compiler).

use std::path::Path;
use std::process::Command;

pub struct Wanted {
    /// NEEDED entries.
    pub libraries: Vec<String>,
    /// Versions that the file needs of them, as `GLIBC_2.17`.
    pub versions: Vec<String>,
    pub soname: Option<String>,
}

impl Wanted {
    /// The newest glibc version among them, as (2, 17).
    pub fn newest_glibc(&self) -> (u32, u32) {
        let number = |version: &str| {
            let mut parts = version.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
            Some((parts.next()?, parts.next()?))
        };
        self.versions.iter().filter_map(|version| number(version)).max().unwrap_or((0, 0))
    }
}

pub fn wanted(file: &Path) -> Wanted {
    let readelf = |option: &str| {
        let output = Command::new("readelf").arg(option).arg("-W").arg(file).env("LC_ALL", "C").output().unwrap();
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let bracketed = |line: &str| line.split_once('[').map(|(_, rest)| rest.trim_end_matches(']').to_owned());
    let dynamic = readelf("-d");
    let named = |tag: &str| dynamic.lines().filter(|line| line.contains(tag)).filter_map(bracketed).collect::<Vec<_>>();
    let text = readelf("-V");
    let needs = text.split_once("Version needs section").map_or("", |(_, rest)| rest);
    let versions = needs.lines().filter_map(|line| line.split_once("Name: ")?.1.split_whitespace().next());
    Wanted {
        libraries: named("(NEEDED)"),
        versions: versions.map(str::to_owned).collect(),
        soname: named("(SONAME)").into_iter().next(),
    }
}
