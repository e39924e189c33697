//! What the user calls an image: text → [`Reference`].
//!
//! `docker-daemon:REF` and `docker-archive:PATH[:REF]` (syft's `docker:` is an alias); a bare word is a file if there is
//! one, else an image of the daemon.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where an image is to be read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An image that the Docker daemon holds, by name, name and digest, or id.
    Daemon(String),
    /// An archive as `docker save` writes it, and which of its images.
    Archive { path: PathBuf, select: Option<String> },
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Daemon(name) => write!(f, "docker-daemon:{name}"),
            Reference::Archive { path, select: None } => write!(f, "docker-archive:{}", path.display()),
            Reference::Archive { path, select: Some(name) } => write!(f, "docker-archive:{}:{name}", path.display()),
        }
    }
}

/// Why a reference cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("the image reference is empty")]
    Empty,
    #[error("image source {scheme:?} in {text:?} is not known\n  known: docker-daemon:REF, docker-archive:PATH[:REF]")]
    UnknownScheme { scheme: String, text: String },
    #[error("{0:?} is not an image name\n  an image name is lower case, as in registry.example.com/team/image:tag")]
    InvalidName(String),
}

/// Schemes that other tools know and this version does not read; named so that the error is not "no such image".
const FOREIGN_SCHEMES: [&str; 9] =
    ["oci", "oci-dir", "oci-archive", "docker", "registry", "podman", "containers-storage", "dir", "rootfs"];

/// Parses a reference; `is_file` tells whether a path exists.
pub fn parse_reference(text: &str, is_file: impl Fn(&Path) -> bool) -> Result<Reference, ReferenceError> {
    if text.trim().is_empty() {
        return Err(ReferenceError::Empty);
    }
    if let Some((scheme, rest)) = text.split_once(':') {
        match scheme {
            // `docker://` means a registry; `docker:` is syft's name for the daemon.
            "docker" if rest.starts_with("//") => {
                return Err(ReferenceError::UnknownScheme { scheme: "docker://".to_owned(), text: text.to_owned() });
            }
            "docker-daemon" | "docker" => return daemon(rest),
            "docker-archive" => return Ok(archive(rest, &is_file)),
            other if FOREIGN_SCHEMES.contains(&other) => {
                return Err(ReferenceError::UnknownScheme { scheme: other.to_owned(), text: text.to_owned() });
            }
            _ => {}
        }
    }
    let path = Path::new(text);
    if is_file(path) || looks_like_path(text) {
        return Ok(archive(text, &is_file));
    }
    daemon(text)
}

/// A word that can only be meant as a path, so that a missing file is not searched for in the daemon.
fn looks_like_path(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("./") || text.starts_with("../") || text.starts_with('~')
}

fn archive(rest: &str, is_file: &impl Fn(&Path) -> bool) -> Reference {
    // A file name may hold a colon, so the whole text is tried first; then every colon from the left, since a path has
    // fewer of them than a reference.
    if !is_file(Path::new(rest)) {
        for (at, _) in rest.match_indices(':') {
            if is_file(Path::new(&rest[..at])) {
                let select = rest[at + 1..].to_owned();
                return Reference::Archive { path: rest[..at].into(), select: Some(select).filter(|s| !s.is_empty()) };
            }
        }
    }
    Reference::Archive { path: rest.into(), select: None }
}

fn daemon(name: &str) -> Result<Reference, ReferenceError> {
    if is_image_name(name) {
        Ok(Reference::Daemon(name.to_owned()))
    } else {
        Err(ReferenceError::InvalidName(name.to_owned()))
    }
}

/// Whether a text is `[registry[:port]/]path[:tag][@digest]` or an image id, by the grammar of the distribution project.
pub fn is_image_name(text: &str) -> bool {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return false;
    }
    if is_digest(text) {
        return true;
    }
    let (path, tag) = split_tag(name);
    let tag_ok = tag.is_none_or(|tag| {
        tag.len() <= 128
            && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    });
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() > 1 && is_registry_host(parts[0]) {
        parts.remove(0);
    }
    tag_ok && path.len() <= 255 && parts.iter().all(|part| is_path_component(part))
}

/// Splits `name:tag`; a colon before a slash belongs to the registry's port.
pub fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    }
}

fn is_registry_host(part: &str) -> bool {
    let (host, port) = match part.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (part, None),
    };
    let named = part == "localhost" || host.contains('.') || port.is_some() || host.starts_with('[');
    named
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
        && !host.is_empty()
        && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-[]:".contains(c))
}

/// Lower-case words joined by `.`, `_`, `__` or dashes.
fn is_path_component(part: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !part.starts_with(word) || !part.ends_with(word) {
        return false;
    }
    let separators: Vec<&str> = part.split(word).filter(|s| !s.is_empty()).collect();
    separators.iter().all(|s| matches!(*s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

/// Whether a text is `sha256:` and 64 hexadecimal digits.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, ReferenceError> {
        parse_reference(text, |path| ["image.tar", "a:b.tar", "/x/i.tar"].iter().any(|p| Path::new(p) == path))
    }

    #[test]
    fn schemes_paths_and_bare_words() {
        let daemon = |name: &str| Ok(Reference::Daemon(name.to_owned()));
        let archive = |path: &str, select: Option<&str>| {
            Ok(Reference::Archive { path: path.into(), select: select.map(str::to_owned) })
        };
        assert_eq!(parse("docker-daemon:nvidia/cuda:12.4"), daemon("nvidia/cuda:12.4"));
        assert_eq!(parse("docker:ubuntu"), daemon("ubuntu"));
        assert_eq!(parse("localhost:5000/a/b:t"), daemon("localhost:5000/a/b:t"));
        assert_eq!(parse("image.tar"), archive("image.tar", None));
        assert_eq!(parse("a:b.tar"), archive("a:b.tar", None));
        assert_eq!(parse("docker-archive:a:b.tar:x/y:1"), archive("a:b.tar", Some("x/y:1")));
        assert_eq!(parse("/x/i.tar:ubuntu:22.04"), archive("/x/i.tar", Some("ubuntu:22.04")));
        assert_eq!(parse("./missing.tar"), archive("./missing.tar", None));
        assert!(matches!(parse("oci:dir"), Err(ReferenceError::UnknownScheme { .. })));
        assert!(matches!(parse("docker://ubuntu"), Err(ReferenceError::UnknownScheme { .. })));
        assert!(matches!(parse("Ubuntu:22.04"), Err(ReferenceError::InvalidName(_))));
        assert_eq!(parse("  "), Err(ReferenceError::Empty));
    }

    #[test]
    fn image_names() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for good in ["a", "a/b", "a.b/c__d-e:T_1.2", "r.io:5000/x:y", &digest, &format!("a/b:t@{digest}")] {
            assert!(is_image_name(good), "{good}");
        }
        for bad in ["A", "a:", "a//b", "a/:t", "-a", "a/b:-t", "a@sha256:12", "a b", "a___b", "r.io:x/y"] {
            assert!(!is_image_name(bad), "{bad}");
        }
    }
}
