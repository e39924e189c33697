//! Names of images: ours beside those of `oci-spec` and of the engine, over a generated set.

use crate::support::skipping;

use rdmaprep::reference::{Reference, can_be_given};
use std::process::{Command, Stdio};

/// Choices for each part of a name; the first of each makes a good one.
struct Parts {
    hosts: Vec<String>,
    paths: Vec<String>,
    tags: Vec<String>,
    digests: Vec<String>,
}

fn parts() -> Parts {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut parts = Parts {
        hosts: owned(&[
            "r.io/",
            "",
            "r.io:5000/",
            "localhost/",
            "docker.io/",
            "index.docker.io/",
            "127.0.0.1:5000/",
            "R.io/",
            "NVIDIA/",
            "a_b.c/",
            "-h.x/",
            "h-.x/",
            "a..b/",
            "h:/",
            "h:99999/",
            "h:x/",
            "[::1]/",
            "[::1]:5000/",
            "[fe80::1:2]/",
            "[::1/",
            "[::g]/",
            "[]/",
            "[::1]x/",
            "//",
            "http://r.io/",
        ]),
        paths: owned(&[
            "a",
            "a/b",
            "a/b/c",
            "a.b",
            "a_b",
            "a__b",
            "a___b",
            "a--b",
            "a-_b",
            "a._b",
            ".a",
            "a.",
            "A",
            "aB",
            "a//b",
            "",
            "/a",
            "a/",
            "é",
            "a b",
            "..",
            "a%62",
            "a?b",
            "library/a",
            "sha256",
            "a\n",
            "a\u{1b}[31m",
            "a\u{2028}b",
        ]),
        tags: owned(&[
            ":1", "", ":T_1.2-x", ":_", ":", ":-x", ":.x", ":é", ":a b", ":1\n", ":a:b", ":1 AS x", ":$y", ":/",
        ]),
        digests: vec![String::new(), "@".into(), "@sha256:12".into(), "@md5:0".into(), "@sha256".into()],
    };
    parts.paths.extend([200, 247, 248, 255, 256].map(|length| "a".repeat(length)));
    parts.paths.push("0a".repeat(32));
    parts.tags.extend([128, 129].map(|length| format!(":{}", "t".repeat(length))));
    parts.digests.push(format!("@sha256:{}", "0a".repeat(32)));
    parts.digests.push(format!("@sha256:{}", "0A".repeat(32)));
    parts.digests.push(format!("@sha256:{}", "0g".repeat(32)));
    parts.digests.push(format!("@sha512:{}", "0a".repeat(64)));
    parts
}

/// Every pair of choices, the other parts being good.
fn all_names() -> Vec<String> {
    let Parts { hosts, paths, tags, digests } = parts();
    let mut names = vec![String::new()];
    for (h, host) in hosts.iter().enumerate() {
        for (p, path) in paths.iter().enumerate() {
            for (t, tag) in tags.iter().enumerate() {
                for (d, digest) in digests.iter().enumerate() {
                    if [h, p, t, d].iter().filter(|choice| **choice > 0).count() <= 2 {
                        names.push(format!("{host}{path}{tag}{digest}"));
                    }
                }
            }
        }
    }
    names
}

/// Every choice beside good ones, and every pair of host and path.
fn some_names() -> Vec<String> {
    let Parts { hosts, paths, tags, digests } = parts();
    let mut names: Vec<String> = tags.iter().map(|tag| format!("r.io/a{tag}")).collect();
    names.extend(digests.iter().map(|digest| format!("r.io/a{digest}")));
    names.extend(digests.iter().map(|digest| format!("a:1{digest}")));
    names.extend(paths.iter().flat_map(|path| [format!("{path}:1"), format!("r.io/{path}")]));
    names.extend(hosts.iter().flat_map(|host| ["a", "a/b:1", "A", ""].map(|path| format!("{host}{path}"))));
    names
}

fn has_capital_host(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(host, _)| !host.contains(['.', ':', '[']) && host.bytes().any(|byte| byte.is_ascii_uppercase()))
}

fn has_large_port(name: &str) -> bool {
    name.contains(":99999/")
}

/// Where the two differ is what `Reference::parse` says.
#[test]
fn names_are_those_of_oci_spec() {
    let mut taken = 0;
    for name in all_names() {
        let ours = Reference::parse(&name);
        let theirs = oci_spec::distribution::Reference::try_from(name.as_str());
        if name.starts_with('[') {
            assert!(theirs.is_err(), "{name:?}");
            continue;
        }
        let differs = !name.is_ascii()
            || has_capital_host(&name)
            || has_large_port(&name)
            || name.contains("@sha512:")
            || name.contains("@sha256:0A");
        if differs {
            assert!(ours.is_err(), "{name:?}");
            continue;
        }
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{name:?}");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            taken += 1;
            assert_eq!((ours.registry(), ours.repository()), (theirs.registry(), theirs.repository()), "{name:?}");
            assert_eq!(ours.digest(), theirs.digest(), "{name:?}");
            // A tag that is not there is `latest` to them, unless there is a digest.
            let filled = ours.tag().or(ours.digest().is_none().then_some("latest"));
            assert_eq!(filled, theirs.tag(), "{name:?}");
            // What is shown means the same image, and has nothing that a shell or a Dockerfile would take for more.
            let shown = ours.to_string();
            assert_eq!(Reference::parse(&shown).as_ref(), Ok(&ours), "{name:?}");
            assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@[]".contains(&b)), "{name:?}");
        }
    }
    assert!(taken > 200, "{taken}");
}

/// The client parses both names before the engine looks for the first, which is not there.
#[test]
fn names_are_those_of_the_engine() {
    const MISSING: &str = "rdmaprep-test-there-is-no-such-image";
    let docker = |from: &str, to: &str| {
        let output = Command::new("docker").args(["tag", from, to]).stdin(Stdio::null()).output().ok()?;
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    match docker(MISSING, "a") {
        Some(said) if said.contains("No such image") => {}
        said => {
            return skipping::say_skipped(&format!("no Docker engine answers: {}", said.unwrap_or_default().trim()));
        }
    }
    for name in some_names() {
        // As the new name; one with a digest can only be an old one.
        let said = if name.contains('@') { docker(&name, "a") } else { docker(MISSING, &name) }.unwrap();
        let taken = said.contains("No such image");
        assert!(
            taken || said.contains("is not a valid repository/tag") || said.contains("refusing"),
            "{name:?}: {said}"
        );
        if has_capital_host(&name) || has_large_port(&name) || name.contains("@sha512:") {
            assert!(Reference::parse(&name).is_err(), "{name:?}");
            continue;
        }
        // The engine refuses the name of an algorithm only when the image is there.
        let is_old_name = name.contains('@') || name.starts_with("sha256:");
        let ours = if is_old_name { Reference::parse(&name).is_ok() } else { can_be_given(&name) };
        assert_eq!(ours, taken, "{name:?}: {said}");
    }
}
