//! The `python3` that a job's start command would find.

use super::absolute;
use crate::facts::{ConfigFacts, Python};
use crate::image::rootfs::{Node, RootFs};

/// PATH of a container whose image sets none (Docker's default for Linux).
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Looks along the image's PATH.
pub fn load_python3(fs: &RootFs, config: &ConfigFacts) -> Option<Python> {
    let path = config.env("PATH").unwrap_or(DEFAULT_PATH);
    path.split(':').filter(|directory| directory.starts_with('/')).find_map(|directory| {
        let path = format!("{}/python3", directory.trim_matches('/'));
        match fs.get(&path)? {
            Node::File { mode, .. } if mode & 0o111 != 0 => {
                let version = fs.real_path(&path).as_deref().and_then(version_of).map(str::to_owned);
                Some(Python { path: absolute(&path), version })
            }
            _ => None,
        }
    })
}

/// `usr/bin/python3.11` → `3.11`.
fn version_of(real_path: &str) -> Option<&str> {
    let version = real_path.rsplit('/').next()?.strip_prefix("python")?;
    version.contains('.').then_some(version)
}
