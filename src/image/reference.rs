//! Image references as the user writes them: text → [`Reference`].
//!
//! A source and an image in it: `docker-daemon:REF`, `docker-archive:PATH[:REF]`, `oci-archive:PATH[:REF]`,
//! `oci:DIR[:REF]`, `rootfs:DIR`, `docker://REF`; syft's names are aliases. A bare word is what lies at that path if there is
//! something, else an image of the daemon, else of a registry.

use crate::reference::is_image_name;
use crate::remedy::Remedy;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where an image is to be read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An image that the Docker daemon holds, by name, name and digest, or id.
    Daemon(String),
    /// An archive as `docker save` writes it, and which of its images.
    Archive { path: PathBuf, select: Option<String> },
    /// An archive of an OCI layout.
    OciArchive { path: PathBuf, select: Option<String> },
    /// The directory of an OCI layout.
    OciDir { path: PathBuf, select: Option<String> },
    /// A root directory.
    RootFs(PathBuf),
    /// An image in a registry.
    Registry(String),
    /// A bare path: its content decides what it is.
    Path { path: PathBuf, select: Option<String> },
    /// A bare name: the daemon's image, else the registry's.
    Name(String),
}

impl Reference {
    /// The image's name, if the reference has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Reference::Daemon(name) | Reference::Registry(name) | Reference::Name(name) => Some(name),
            Reference::Archive { select, .. } => select.as_deref(),
            Reference::Path { select, .. } => select.as_deref().filter(|name| name.contains([':', '/'])),
            // An OCI layout's selector is often a bare tag, which is not a name.
            Reference::OciArchive { .. } | Reference::OciDir { .. } | Reference::RootFs(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, path, select) = match self {
            Reference::Daemon(name) => return write!(f, "docker-daemon:{name}"),
            Reference::Registry(name) => return write!(f, "docker://{name}"),
            Reference::Name(name) => return f.write_str(name),
            Reference::RootFs(path) => ("rootfs:", path, &None),
            Reference::Archive { path, select } => ("docker-archive:", path, select),
            Reference::OciArchive { path, select } => ("oci-archive:", path, select),
            Reference::OciDir { path, select } => ("oci:", path, select),
            Reference::Path { path, select } => ("", path, select),
        };
        write!(f, "{scheme}{}", path.display())?;
        match select {
            Some(name) => write!(f, ":{name}"),
            None => Ok(()),
        }
    }
}

/// Why a reference cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("the image reference is empty")]
    Empty,
    #[error("image source {scheme:?} in {text:?} is not known")]
    UnknownScheme { scheme: String, text: String },
    #[error("podman's images are reached through its Docker API")]
    Podman(String),
    #[error("{0:?} is not an image name")]
    InvalidName(String),
}

impl Remedy for ReferenceError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            ReferenceError::UnknownScheme { .. } => format!("known: {KNOWN_SOURCES}"),
            ReferenceError::Podman(text) => {
                format!("rdmaprep -H unix:///run/podman/podman.sock … docker-daemon:{text}")
            }
            ReferenceError::InvalidName(_) => {
                "an image name is lower case, such as registry.example.com/team/image:tag".to_owned()
            }
            ReferenceError::Empty => return None,
        })
    }
}

/// For errors and help.
pub const KNOWN_SOURCES: &str = "docker-daemon:REF, docker-archive:PATH[:REF], oci:DIR[:REF], oci-archive:PATH[:REF], \
                                 rootfs:DIR, docker://REF";

/// Sources that other tools know and this version does not read; named so that the error is not "no such image".
const FOREIGN_SCHEMES: [&str; 4] = ["containers-storage", "singularity", "containerd", "snap"];

/// Parses a reference; `exists` tells whether a path exists.
pub fn parse_reference(text: &str, exists: impl Fn(&Path) -> bool) -> Result<Reference, ReferenceError> {
    if text.trim().is_empty() {
        return Err(ReferenceError::Empty);
    }
    if let Some((scheme, rest)) = text.split_once(':') {
        let at_path = |rest: &str| split_path(rest, &exists);
        match scheme {
            // `docker://` means a registry; `docker:` is syft's name for the daemon.
            "docker" if rest.starts_with("//") => return named(&rest[2..], Reference::Registry),
            "registry" => return named(rest.trim_start_matches("//"), Reference::Registry),
            "docker-daemon" | "docker" => return named(rest, Reference::Daemon),
            "docker-archive" | "oci-archive" | "oci" | "oci-dir" | "rootfs" | "dir" if rest.is_empty() => {
                return Err(ReferenceError::Empty);
            }
            "docker-archive" => {
                let (path, select) = at_path(rest);
                return Ok(Reference::Archive { path, select });
            }
            "oci-archive" => {
                let (path, select) = at_path(rest);
                return Ok(Reference::OciArchive { path, select });
            }
            "oci" | "oci-dir" => {
                let (path, select) = at_path(rest);
                return Ok(Reference::OciDir { path, select });
            }
            "rootfs" | "dir" => return Ok(Reference::RootFs(rest.into())),
            "podman" => return Err(ReferenceError::Podman(rest.to_owned())),
            other if FOREIGN_SCHEMES.contains(&other) => {
                return Err(ReferenceError::UnknownScheme { scheme: other.to_owned(), text: text.to_owned() });
            }
            _ => {}
        }
    }
    if exists(Path::new(text)) || looks_like_path(text) {
        let (path, select) = split_path(text, &exists);
        return Ok(Reference::Path { path, select });
    }
    named(text, Reference::Name)
}

/// A word that can only be meant as a path, so that a missing file is not searched for in the daemon.
fn looks_like_path(text: &str) -> bool {
    text.starts_with('/') || text.starts_with("./") || text.starts_with("../") || text.starts_with('~')
}

/// Splits `PATH[:REF]`. A file name may hold a colon, so the whole text is tried first; then every colon from the left,
/// since a path has fewer of them than a reference.
fn split_path(text: &str, exists: &impl Fn(&Path) -> bool) -> (PathBuf, Option<String>) {
    if !exists(Path::new(text)) {
        for (at, _) in text.match_indices(':') {
            if exists(Path::new(&text[..at])) {
                let select = text[at + 1..].to_owned();
                return (text[..at].into(), Some(select).filter(|select| !select.is_empty()));
            }
        }
    }
    (text.into(), None)
}

fn named(name: &str, source: impl Fn(String) -> Reference) -> Result<Reference, ReferenceError> {
    if is_image_name(name) { Ok(source(name.to_owned())) } else { Err(ReferenceError::InvalidName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, ReferenceError> {
        parse_reference(text, |path| ["image.tar", "a:b.tar", "/x/i.tar"].iter().any(|p| Path::new(p) == path))
    }

    #[test]
    fn schemes_paths_and_bare_words() {
        let select = |select: Option<&str>| select.map(str::to_owned);
        let archive = |path: &str, name| Ok(Reference::Archive { path: path.into(), select: select(name) });
        let path = |path: &str, name| Ok(Reference::Path { path: path.into(), select: select(name) });
        let daemon = |name: &str| Ok(Reference::Daemon(name.to_owned()));
        assert_eq!(parse("docker-daemon:nvidia/cuda:12.4"), daemon("nvidia/cuda:12.4"));
        assert_eq!(parse("docker:ubuntu"), daemon("ubuntu"));
        assert_eq!(parse("localhost:5000/a/b:t"), Ok(Reference::Name("localhost:5000/a/b:t".into())));
        assert_eq!(parse("docker://localhost:5000/a"), Ok(Reference::Registry("localhost:5000/a".into())));
        assert_eq!(parse("docker://[::1]/x"), Ok(Reference::Registry("[::1]/x".into())));
        assert_eq!(parse("registry:a/b:1"), Ok(Reference::Registry("a/b:1".into())));
        assert_eq!(parse("image.tar"), path("image.tar", None));
        assert_eq!(parse("a:b.tar"), path("a:b.tar", None));
        assert_eq!(parse("/x/i.tar:ubuntu:22.04"), path("/x/i.tar", Some("ubuntu:22.04")));
        assert_eq!(parse("./missing.tar"), path("./missing.tar", None));
        assert_eq!(parse("docker-archive:a:b.tar:x/y:1"), archive("a:b.tar", Some("x/y:1")));
        assert_eq!(
            parse("oci-archive:/x/i.tar:v1"),
            Ok(Reference::OciArchive { path: "/x/i.tar".into(), select: select(Some("v1")) })
        );
        for alias in ["oci:d", "oci-dir:d"] {
            assert_eq!(parse(alias), Ok(Reference::OciDir { path: "d".into(), select: None }));
        }
        for alias in ["rootfs:/", "dir:/"] {
            assert_eq!(parse(alias), Ok(Reference::RootFs("/".into())));
        }
        assert!(matches!(parse("containers-storage:x"), Err(ReferenceError::UnknownScheme { .. })));
        assert!(matches!(parse("podman:x"), Err(ReferenceError::Podman(_))));
        assert!(matches!(parse("Ubuntu:22.04"), Err(ReferenceError::InvalidName(_))));
        assert!(matches!(parse("docker://A"), Err(ReferenceError::InvalidName(_))));
        for empty in ["  ", "oci:", "rootfs:", "docker-archive:"] {
            assert_eq!(parse(empty), Err(ReferenceError::Empty), "{empty}");
        }
    }

    #[test]
    fn references_are_written_as_they_are_read() {
        for text in [
            "docker-daemon:a:1",
            "docker://a/b",
            "oci:image.tar:x",
            "oci-archive:image.tar",
            "rootfs:/r",
            "image.tar",
            "a/b",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }
}
