//! Image references: `[registry/]repository[:tag][@digest]`.
//!
//! Input: the text a user or a Dockerfile gives. Output: a [`Reference`] whose parts are safe to place into a request
//! path. The grammar is that of the `distribution/reference` package, which the engine applies too.

use std::fmt;

/// The registry of references that name none.
pub const DOCKER_HUB: &str = "docker.io";

/// Namespace of one-word repositories at Docker Hub.
const HUB_LIBRARY: &str = "library";

/// Longest tag, and longest repository with its registry (`distribution/reference`, `reference.go`).
const MAX_TAG: usize = 128;
const MAX_NAME: usize = 255;

/// Why a text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parsing the image reference `{reference}`: {problem}")]
pub struct ReferenceError {
    /// The text as given.
    pub reference: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// An image reference in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl Reference {
    /// Parses `text`. A missing registry becomes Docker Hub, a missing tag stays missing.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let fail = |problem| ReferenceError { reference: text.to_owned(), problem };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        // A colon belongs to the tag only after the last slash; before it, it belongs to the registry's port.
        let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match name[path_start..].rfind(':') {
            Some(colon) => (&name[..path_start + colon], Some(&name[path_start + colon + 1..])),
            None => (name, None),
        };
        if name.is_empty() {
            return Err(fail("it has no repository"));
        }
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(fail("the tag may contain letters, digits, `_`, `.` and `-`, up to 128 characters"));
        }
        if let Some(digest) = digest
            && !is_digest(digest)
        {
            return Err(fail("the digest must be `sha256:` and 64 hexadecimal digits"));
        }
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
            Some(_) => (DOCKER_HUB, name.to_owned()),
            None => (DOCKER_HUB, format!("{HUB_LIBRARY}/{name}")),
        };
        let registry = if registry == "index.docker.io" { DOCKER_HUB } else { registry };
        if !is_registry(registry) {
            return Err(fail("the registry is not a host name with an optional port"));
        }
        if !repository.split('/').all(is_path_component) {
            return Err(fail(
                "the repository may contain lower-case letters and digits, separated by `.`, `_`, `__`, `-` or `/`",
            ));
        }
        if name.len() > MAX_NAME {
            return Err(fail("the repository is longer than 255 characters"));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// Host, with the port if there is one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Repository as the registry knows it, including Docker Hub's namespace.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, if the text had one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, if the text had one.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Repository as the engine lists it: without Docker Hub's name and namespace.
    pub fn name(&self) -> String {
        if self.registry == DOCKER_HUB {
            let short = self.repository.strip_prefix(HUB_LIBRARY).and_then(|rest| rest.strip_prefix('/'));
            return short.unwrap_or(&self.repository).to_owned();
        }
        format!("{}/{}", self.registry, self.repository)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Checks a text that names a local image: a reference, or an image ID with or without `sha256:`, whole or shortened.
pub(super) fn check_image_name(text: &str) -> Result<(), ReferenceError> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    let is_id = !hex.is_empty() && hex.len() <= 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { Ok(()) } else { Reference::parse(text).map(drop) }
}

fn is_tag(tag: &str) -> bool {
    let mut bytes = tag.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    first && tag.len() <= MAX_TAG && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if !address.is_empty() => {
                let is_v6 = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
                return is_v6 && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
            }
            _ => return false,
        },
        None => match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    port.parse::<u16>().is_ok()
}

fn is_path_component(component: &str) -> bool {
    let is_alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    if !(bytes.first().is_some_and(is_alnum) && bytes.last().is_some_and(is_alnum)) {
        return false;
    }
    let is_separator = |run: &[u8]| run == b"." || run == b"_" || run == b"__" || run.iter().all(|b| *b == b'-');
    bytes.split(is_alnum).filter(|run| !run.is_empty()).all(is_separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_split_into_their_parts() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, registry, name, tag) in [
            ("ubuntu", "docker.io", "ubuntu", None),
            ("ubuntu:22.04", "docker.io", "ubuntu", Some("22.04")),
            ("docker.io/library/ubuntu:22.04", "docker.io", "ubuntu", Some("22.04")),
            ("index.docker.io/nvidia/cuda:12", "docker.io", "nvidia/cuda", Some("12")),
            ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io", "nvcr.io/nvidia/pytorch", Some("24.05-py3")),
            ("localhost/x", "localhost", "localhost/x", None),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "127.0.0.1:5000/a/b", None),
            ("[::1]:5000/a:t", "[::1]:5000", "[::1]:5000/a", Some("t")),
            ("a/b__c--d.e_f", "docker.io", "a/b__c--d.e_f", None),
        ] {
            for suffix in ["", digest.as_str()] {
                let text = if suffix.is_empty() { text.to_owned() } else { format!("{text}@{suffix}") };
                let reference = Reference::parse(&text).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(reference.registry(), registry, "{text}");
                assert_eq!(reference.name(), name, "{text}");
                assert_eq!(reference.tag(), tag, "{text}");
                assert_eq!(reference.digest(), Some(suffix).filter(|s| !s.is_empty()), "{text}");
            }
        }
    }

    #[test]
    fn what_could_leave_its_place_in_a_request_path_is_refused() {
        for text in [
            "",
            ":tag",
            "@sha256:00",
            "Upper",
            "a//b",
            "../x",
            "a/../b",
            "a?b",
            "a#b",
            "a b",
            "a%2fb",
            "a:",
            "a:b c",
            "a:-t",
            "a@sha256:zz",
            "-h.x/y",
            "h.x:99999/y",
            "a/",
            "/a",
            "a___b",
            "é",
            "a:tag/b:c d",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
            assert!(check_image_name(text).is_err(), "{text}");
        }
        assert!(Reference::parse(&format!("a:{}", "t".repeat(129))).is_err());
        assert!(Reference::parse(&"a".repeat(256)).is_err());
    }

    #[test]
    fn image_ids_are_names_too() {
        for text in ["sha256:81857468af00", "81857468af00", "busybox", &format!("sha256:{}", "0".repeat(64))] {
            assert_eq!(check_image_name(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn display_is_what_the_engine_lists() {
        let digest = format!("sha256:{}", "b".repeat(64));
        let text = format!("docker.io/library/ubuntu:22.04@{digest}");
        assert_eq!(Reference::parse(&text).expect("valid").to_string(), format!("ubuntu:22.04@{digest}"));
    }
}
