//! The `python3` that a job's start command would find, and every torch.

use super::absolute;
use super::survey::Survey;
use crate::facts::{ConfigFacts, Python, Torch};
use crate::image::rootfs::{Node, RootFs};

/// PATH of a container whose image sets none (Docker's default for Linux).
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    path.ends_with("-packages/torch/version.py")
}

/// Whether the ELF facts of a path are needed here: an interpreter's RPATH counts for what it opens.
pub(super) fn wants_markers(path: &str) -> bool {
    let name = path.rsplit_once("bin/python3").map(|(_, rest)| rest);
    name.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Every installed torch, by path.
pub(super) fn load_torch(fs: &RootFs, survey: &Survey<'_>) -> Vec<Torch> {
    survey
        .files_named(|name| name == "version.py")
        .into_iter()
        .filter(|path| wants(path))
        .map(|path| {
            let text = fs.text(&path).unwrap_or_default();
            Torch {
                version: parse_assignment(&text, "__version__"),
                cuda: parse_assignment(&text, "cuda"),
                path: absolute(&path),
            }
        })
        .collect()
}

/// The text in `name = 'text'` or `name: Optional[str] = 'text'`; `None` also for `None`.
fn parse_assignment(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', ':', '=']))?;
        let value = rest.split_once('=')?.1.trim();
        let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        Some(value[1..].split(quote).next()?.to_owned())
    })
}

/// Looks along the image's PATH.
pub(super) fn load_python3(fs: &RootFs, config: &ConfigFacts) -> Option<Python> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_files_of_torch() {
        let old = "__version__ = '2.2.0+cu121'\ndebug = False\ncuda = '12.1'\ngit_version = 'x'\nhip = None\n";
        assert_eq!(parse_assignment(old, "__version__").as_deref(), Some("2.2.0+cu121"));
        assert_eq!(parse_assignment(old, "cuda").as_deref(), Some("12.1"));
        let new =
            "from typing import Optional\n\n__all__ = ['cuda']\n__version__ = '2.6.0'\ncuda: Optional[str] = '12.4'\n";
        assert_eq!(parse_assignment(new, "cuda").as_deref(), Some("12.4"));
        assert_eq!(parse_assignment("cuda: Optional[str] = None\n", "cuda"), None);
    }

    #[test]
    fn interpreters() {
        for (path, is) in [
            ("usr/bin/python3.10", true),
            ("opt/conda/bin/python3", true),
            ("usr/bin/python3-config", false),
            ("usr/bin/python3.10-config", false),
            ("usr/lib/python3", false),
        ] {
            assert_eq!(wants_markers(path), is, "{path}");
        }
    }
}
