//! Names of images: `[registry[:port]/]repository[:tag][@digest]`.
//!
//! Input: text of a user, an archive or a Dockerfile. Output: a [`Reference`] whose parts are safe to place into a request
//! path or on a line of a Dockerfile. The grammar is that of `oci-spec`, which follows the engine's (`distribution/reference`).
//! [`Reference::parse`] says where it has more or less than images in the wild.

use oci_spec::distribution::{ParseError, Reference as OciReference};
use oci_spec::image::{Digest, DigestAlgorithm};
use std::fmt;
use std::net::Ipv6Addr;

/// The registry of references that name none.
pub const DOCKER_HUB: &str = "docker.io";

/// Namespace of one-word repositories at Docker Hub.
const HUB_LIBRARY: &str = "library";

/// A host that stands in for an IPv6 address while `oci-spec` parses the rest.
const V6_STAND_IN: &str = "v6.invalid";

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
    /// Parses `text`. A missing registry becomes Docker Hub, a missing tag stays missing. An image id is a reference, too, by
    /// its form: the engine tells ids from names by what it holds.
    ///
    /// `oci-spec` differs from the engine, and from what is safe in a request path, in that it
    /// - refuses an IPv6 address as the registry's host (`[::1]:5000/x`);
    /// - takes letters of any script in a tag;
    /// - takes any number for a port;
    /// - takes a word in capitals before a slash for a part of the repository. The engine takes it for a host; who writes
    ///   `NVIDIA/cuda` means neither, and gets an error here;
    /// - takes digests of kinds that registries and engines do not use, and capitals in them;
    /// - fills in the tag `latest`.
    ///
    /// # Errors
    /// The text is not a reference; the error says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let fail = |problem| ReferenceError { reference: text.to_owned(), problem };
        if !text.is_ascii() {
            return Err(fail(NOT_A_REFERENCE));
        }
        let (v6, rest) = match split_v6_host(text) {
            Some((host, rest)) => (Some(host), format!("{V6_STAND_IN}{rest}")),
            None => (None, text.to_owned()),
        };
        let parsed = OciReference::try_from(rest.as_str()).map_err(|error| fail(problem_of(&error)))?;
        if parsed.repository().bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(fail(NOT_A_REFERENCE));
        }
        if parsed.registry().rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(fail("the registry's port must be at most 65535"));
        }
        if parsed.digest().is_some_and(|digest| !is_digest(digest)) {
            return Err(fail(NOT_A_DIGEST));
        }
        let registry = match v6 {
            Some(host) => parsed.registry().replacen(V6_STAND_IN, host, 1),
            None => parsed.registry().to_owned(),
        };
        let has_tag = split_tag(rest.split('@').next().unwrap_or(&rest)).1.is_some();
        Ok(Self {
            registry,
            repository: parsed.repository().to_owned(),
            tag: parsed.tag().filter(|_| has_tag).map(str::to_owned),
            digest: parsed.digest().map(str::to_owned),
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

const NOT_A_REFERENCE: &str =
    "it must be written as in registry.example.com:5000/team/image:tag, with the path in lower case";
const NOT_A_DIGEST: &str = "the digest must be `sha256:` and 64 hexadecimal digits in lower case";

fn problem_of(error: &ParseError) -> &'static str {
    match error {
        ParseError::DigestInvalidFormat | ParseError::DigestInvalidLength | ParseError::DigestUnsupported => {
            NOT_A_DIGEST
        }
        ParseError::NameEmpty => "it is empty",
        ParseError::NameTooLong => "the repository is longer than 255 characters",
        ParseError::NameContainsUppercase | ParseError::ReferenceInvalidFormat | ParseError::TagInvalidFormat => {
            NOT_A_REFERENCE
        }
    }
}

/// `[::1]:5000/x` → `[::1]` and `:5000/x`.
fn split_v6_host(text: &str) -> Option<(&str, &str)> {
    let end = text.strip_prefix('[')?.find(']')? + 1;
    text[1..end].parse::<Ipv6Addr>().ok()?;
    let (host, rest) = text.split_at(end + 1);
    // Without a path it would be an address alone.
    (rest.starts_with(['/', ':']) && rest.contains('/')).then_some((host, rest))
}

/// Whether a text is an image reference or an image id.
pub fn is_image_name(text: &str) -> bool {
    Reference::parse(text).is_ok()
}

/// Whether an image can be given this name: a reference without a digest that the engine cannot take for an id.
pub fn can_be_given(text: &str) -> bool {
    let is_id = is_digest(&format!("sha256:{text}"));
    let is_given = |reference: Reference| reference.digest.is_none() && reference.name() != "sha256";
    !is_id && Reference::parse(text).is_ok_and(is_given)
}

/// Whether a text is `sha256:` and 64 hexadecimal digits in lower case: the one kind of digest that registries and engines
/// name images by.
pub fn is_digest(text: &str) -> bool {
    text.parse::<Digest>().is_ok_and(|digest| *digest.algorithm() == DigestAlgorithm::Sha256)
}

/// Splits `name:tag`; a colon before a slash belongs to the registry's port.
pub fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    }
}

/// A name as the engine lists it, without Docker Hub's registry and namespace; what is not a reference stays as it is.
pub fn familiar(name: &str) -> String {
    Reference::parse(name).map_or_else(|_| name.to_owned(), |reference| reference.to_string())
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
            ("[::1]/x", "[::1]", "[::1]/x", None),
            ("[fe80::1:2]:443/a/b", "[fe80::1:2]:443", "[fe80::1:2]:443/a/b", None),
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
            "a:tég",
            "NVIDIA/cuda",
            "[::1]",
            "[::1]:5000",
            "[::1/x",
            "[::1]x/y",
            "[::g]/x",
            "[]/x",
            "a:1\nRUN x",
            "a:1\n",
            "a:1 AS b",
            "x\u{1b}[31m:1",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
            assert!(!is_image_name(text), "{text}");
        }
        assert!(Reference::parse(&format!("a:{}", "t".repeat(129))).is_err());
        assert!(Reference::parse(&"a".repeat(256)).is_err());
    }

    #[test]
    fn image_ids_are_names_that_cannot_be_given() {
        let hex = "0a".repeat(32);
        for text in ["sha256:81857468af00", &hex, &format!("sha256:{hex}")] {
            assert!(is_image_name(text) && !can_be_given(text), "{text}");
        }
        for text in ["busybox", "sha256-x:1", "r.io/sha256:1", "81857468af00"] {
            assert!(can_be_given(text), "{text}");
        }
        assert!(!can_be_given(&format!("a:b@sha256:{hex}")) && !can_be_given("A"));
    }

    #[test]
    fn digests() {
        assert!(is_digest(&format!("sha256:{}", "0a".repeat(32))));
        for text in ["0A".repeat(32), "0a".repeat(31), "é".repeat(32)] {
            assert!(!is_digest(&format!("sha256:{text}")), "{text}");
        }
        assert!(!is_digest(&format!("sha512:{}", "0a".repeat(64))) && !is_digest(&"0a".repeat(32)));
    }

    #[test]
    fn display_is_what_the_engine_lists() {
        let digest = format!("sha256:{}", "b".repeat(64));
        let text = format!("docker.io/library/ubuntu:22.04@{digest}");
        assert_eq!(Reference::parse(&text).expect("valid").to_string(), format!("ubuntu:22.04@{digest}"));
    }
}
