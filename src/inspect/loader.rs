//! Where the dynamic loader of the image searches: configuration → ordered directories.
//!
//! The order is glibc's (ld.so(8)): `LD_LIBRARY_PATH`, then what `ldconfig` indexed from `ld.so.conf`, then the default
//! directories. The index file itself is not read yet: the directories that it is made from are.

use crate::image::rootfs::RootFs;

const CONF: &str = "etc/ld.so.conf";

/// Whether the content of a path is needed here.
pub fn wants(path: &str) -> bool {
    path == CONF || (path.starts_with("etc/ld.so.conf.d/") && path.ends_with(".conf"))
}

/// Directories of the loader, first match wins, without leading slash and as real paths, each once.
pub fn search_path(fs: &RootFs, ld_library_path: Option<&str>, architecture: &str) -> Vec<String> {
    let mut directories: Vec<String> = ld_library_path
        .unwrap_or_default()
        .split([':', ';'])
        .filter(|d| d.starts_with('/'))
        .map(str::to_owned)
        .collect();
    read_conf(fs, CONF, 0, &mut directories);
    let triplet = match architecture {
        "arm64" => "aarch64-linux-gnu",
        _ => "x86_64-linux-gnu",
    };
    directories.extend([format!("/lib/{triplet}"), format!("/usr/lib/{triplet}")]);
    directories.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(str::to_owned));
    let mut real: Vec<String> = Vec::new();
    for directory in directories {
        if let Some(path) = fs.real_path(&directory)
            && !real.contains(&path)
        {
            real.push(path);
        }
    }
    real
}

/// The file that `dlopen(soname)` would give, as a real path.
pub fn resolve(fs: &RootFs, directories: &[String], soname: &str) -> Option<String> {
    directories.iter().find_map(|directory| fs.real_path(&format!("{directory}/{soname}")))
}

/// Includes nest; a loop of includes ends.
const MAX_INCLUDE_DEPTH: usize = 8;

fn read_conf(fs: &RootFs, path: &str, depth: usize, directories: &mut Vec<String>) {
    if depth > MAX_INCLUDE_DEPTH {
        return;
    }
    let Some(text) = fs.text(path) else { return };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(patterns) => {
                for pattern in patterns.split_whitespace() {
                    for file in glob(fs, pattern) {
                        read_conf(fs, &file, depth + 1, directories);
                    }
                }
            }
            None if line.starts_with('/') => directories.push(line.to_owned()),
            None => {}
        }
    }
}

/// Files of one directory that match `dir/prefix*suffix`, sorted as glob(3) sorts; relative patterns start in /etc.
fn glob(fs: &RootFs, pattern: &str) -> Vec<String> {
    let pattern = if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/{pattern}") };
    let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
    match name.split_once('*') {
        None => vec![pattern.clone()],
        Some((prefix, suffix)) => fs
            .list(directory)
            .into_iter()
            .filter(|n| n.starts_with(prefix) && n.ends_with(suffix) && n.len() >= prefix.len() + suffix.len())
            .map(|n| format!("{directory}/{n}"))
            .collect(),
    }
}
