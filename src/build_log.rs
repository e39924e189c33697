//! The output of a failed build → what went wrong and what to do.
//!
//! Only texts that name their cause are matched; anything else stays an unexplained failure with its last lines.

/// A cause that a build log names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Stable, kebab-case.
    pub id: &'static str,
    pub summary: String,
    pub remedy: &'static str,
    /// The line that names it.
    pub line: String,
    /// Another host or mirror would not help: the base image cannot take the swap.
    pub is_image_at_fault: bool,
}

struct Rule {
    id: &'static str,
    /// All of these must stand in one line.
    marks: &'static [&'static str],
    /// Any of these must stand in some line; empty: nothing more is asked.
    beside: &'static [&'static str],
    summary: &'static str,
    remedy: &'static str,
}

/// In order: a full disk explains every other complaint, an unreachable mirror explains missing packages.
const RULES: &[Rule] = &[
    Rule {
        id: "no-space",
        marks: &["No space left on device"],
        beside: &[],
        summary: "the engine's disk is full",
        remedy: "free space on the engine's host: docker system df, docker system prune",
    },
    Rule {
        id: "no-space",
        marks: &["You don't have enough free space"],
        beside: &[],
        summary: "the engine's disk is full",
        remedy: "free space on the engine's host: docker system df, docker system prune",
    },
    Rule {
        id: "swap-removes-package",
        marks: &["rdmaprep: the swap would remove"],
        beside: &[],
        summary: "the swap would remove a package outside the RDMA set",
        remedy: "the named package needs the RDMA packages of its own build: remove or replace it in the base image first",
    },
    Rule {
        id: "mirror-unreachable",
        marks: &["rdmaprep: the repository's key cannot be fetched"],
        beside: &[],
        summary: "the vendor's mirror is not reachable from the build",
        remedy: "outside the vendor's VPC use the public mirror (no --vpc); behind a proxy set HTTP_PROXY or --apt-proxy; for a mirror on this host add --network host",
    },
    Rule {
        id: "mirror-unreachable",
        marks: &["rdmaprep:", "gave no package index"],
        beside: &[],
        summary: "the vendor's mirror is not reachable from the build",
        remedy: "outside the vendor's VPC use the public mirror (no --vpc); behind a proxy set HTTP_PROXY or --apt-proxy; for a mirror on this host add --network host",
    },
    Rule {
        id: "key-mismatch",
        marks: &["NO_PUBKEY"],
        beside: &[],
        summary: "the key does not match the repository's signature",
        remedy: "give the key that signs the repository with --key FILE, or leave --key out to take the mirror's own GPGKEY",
    },
    Rule {
        id: "key-mismatch",
        marks: &["BADSIG"],
        beside: &[],
        summary: "the repository's signature is bad",
        remedy: "the mirror's index was changed after it was signed: use another mirror",
    },
    Rule {
        id: "suite-missing",
        marks: &["does not have a Release file"],
        beside: &[],
        summary: "the mirror has no such suite",
        remedy: "check --suite; the vendor's are noble/erdma, jammy/erdma, focal/erdma and bionic/erdma",
    },
    Rule {
        id: "package-missing",
        marks: &["rdmaprep: package ", " is not in "],
        beside: &[],
        summary: "the mirror lacks a package",
        remedy: "the mirror is incomplete for this suite: use another one, or the vendor's public mirror",
    },
    Rule {
        id: "apt-source-unreachable",
        marks: &["rdmaprep: apt cannot put these packages together"],
        beside: &["Failed to fetch", "Temporary failure resolving", "Could not resolve", "Unable to connect to"],
        summary: "the image's own apt sources are not reachable, and a dependency is missing without them",
        remedy: "give the build a network (--network host) or a proxy (HTTP_PROXY, --apt-proxy)",
    },
    Rule {
        id: "apt-conflict",
        marks: &["rdmaprep: apt cannot put these packages together"],
        beside: &[],
        summary: "apt finds no way to install the vendor's packages beside the image's",
        remedy: "the lines above name the packages in conflict: remove or replace them in the base image first",
    },
    Rule {
        id: "mirror-unreachable",
        marks: &["rdmaprep: http", " cannot be reached"],
        beside: &[],
        summary: "the vendor's mirror is not reachable from the build",
        remedy: "outside the vendor's VPC use the public mirror (no --vpc); behind a proxy set HTTP_PROXY; for a mirror on this host add --network host",
    },
    Rule {
        id: "suite-missing",
        marks: &["rdmaprep: there is no repository at "],
        beside: &[],
        summary: "the mirror has no such directory",
        remedy: "look into yum/ of the mirror for the distribution's directory, and give its path with --suite PATH",
    },
    Rule {
        id: "key-mismatch",
        marks: &["rdmaprep:", "is not signed by the key "],
        beside: &[],
        summary: "a package does not carry the signature that was asked for",
        remedy: "give the key that signs the packages with --key FILE; if they are not signed at all, --no-gpg-check takes them as they are",
    },
    Rule {
        id: "rpm-source-unreachable",
        marks: &["rdmaprep:", "cannot put these packages together"],
        beside: &["Failed to download metadata for repo", "Cannot find a valid baseurl", "Cannot retrieve metalink"],
        summary: "the image's own repositories are not reachable, and a dependency is missing without them",
        remedy: "for a distribution at its end give one that still answers: --base-repo URL (for CentOS 8, BaseOS of its vault); else a network (--network host) or a proxy (HTTP_PROXY)",
    },
    Rule {
        id: "rpm-source-unreachable",
        marks: &["rdmaprep:", "have none of the packages"],
        beside: &["Failed to download metadata for repo", "Cannot find a valid baseurl", "Cannot retrieve metalink"],
        summary: "the image's own repositories are not reachable",
        remedy: "for a distribution at its end give one that still answers: --base-repo URL; else a network (--network host) or a proxy (HTTP_PROXY)",
    },
    Rule {
        id: "rpm-conflict",
        marks: &["rdmaprep:", "cannot put these packages together"],
        beside: &[],
        summary: "there is no way to install the vendor's packages beside the image's",
        remedy: "the lines above name the packages in conflict: remove or replace them in the base image first",
    },
    Rule {
        id: "no-curl",
        marks: &["rdmaprep: the image has no curl"],
        beside: &[],
        summary: "the image cannot fetch the repository's key",
        remedy: "install curl in the base image first",
    },
    Rule {
        id: "base-not-found",
        marks: &["pull access denied"],
        beside: &[],
        summary: "the base image is not there and cannot be pulled",
        remedy: "docker login REGISTRY, or docker pull the base image first",
    },
    Rule {
        id: "no-bridge",
        marks: &["could not find bridge"],
        beside: &[],
        summary: "the engine has no bridge network",
        remedy: "add --network host",
    },
];

/// Finds the cause in the lines of a log.
pub fn explain_build_log<'a>(lines: impl IntoIterator<Item = &'a str> + Clone) -> Option<Cause> {
    RULES.iter().find_map(|rule| {
        let has = |line: &&str| rule.marks.iter().all(|mark| contains_ignoring_case(line, mark));
        let line = lines.clone().into_iter().find(has)?;
        let says = |text: &&&str| lines.clone().into_iter().any(|line| contains_ignoring_case(line, text));
        if !rule.beside.is_empty() && rule.beside.iter().find(says).is_none() {
            return None;
        }
        // The build's own sentence says which package or address it was.
        let said = line.split_once("rdmaprep: ").map(|(_, said)| said.trim_end());
        let summary = said.map_or(rule.summary.to_owned(), |said| format!("{}: {said}", rule.summary));
        let is_image_at_fault = matches!(rule.id, "swap-removes-package" | "apt-conflict" | "rpm-conflict" | "no-curl");
        Some(Cause { id: rule.id, summary, remedy: rule.remedy, line: line.trim().to_owned(), is_image_at_fault })
    })
}

/// The kernel, Go and apt write the same complaint in different cases.
fn contains_ignoring_case(line: &str, mark: &str) -> bool {
    line.as_bytes().windows(mark.len()).any(|window| window.eq_ignore_ascii_case(mark.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_by_its_own_words() {
        let log = [
            "Get:1 http://m/erdma",
            "rdmaprep: package ibverbs-providers is not in http://m/erdma/apt/debian bookworm/incomplete",
        ];
        let cause = explain_build_log(log).unwrap();
        assert_eq!(cause.id, "package-missing");
        assert!(
            cause
                .summary
                .ends_with("package ibverbs-providers is not in http://m/erdma/apt/debian bookworm/incomplete")
        );
    }

    #[test]
    fn a_full_disk_outranks_what_follows_from_it() {
        let log = [
            "rdmaprep: http://m x gave no package index: is the mirror reachable?",
            "write error: No space left on device",
        ];
        assert_eq!(explain_build_log(log).unwrap().id, "no-space");
    }

    #[test]
    fn a_missing_network_is_not_a_conflict() {
        let conflict = "rdmaprep: apt cannot put these packages together";
        let cause = explain_build_log([conflict]).unwrap();
        assert_eq!((cause.id, cause.is_image_at_fault), ("apt-conflict", true));
        let offline = ["W: Failed to fetch http://m/InRelease  Temporary failure resolving 'm'", conflict];
        let cause = explain_build_log(offline).unwrap();
        assert_eq!((cause.id, cause.is_image_at_fault), ("apt-source-unreachable", false));
    }

    #[test]
    fn causes_of_rpm_builds() {
        let conflict = "rdmaprep: dnf cannot put these packages together";
        let unreachable = "Error: Failed to download metadata for repo 'base': Cannot download repomd.xml";
        for (log, id, is_image_at_fault) in [
            (
                vec!["curl: (22) 404", "rdmaprep: there is no repository at http://m/erdma/yum/x/"],
                "suite-missing",
                false,
            ),
            (vec!["rdmaprep: http://m/erdma/yum/x/ cannot be reached"], "mirror-unreachable", false),
            (vec!["rdmaprep: a-1.rpm is not signed by the key of the repository"], "key-mismatch", false),
            (vec![unreachable, conflict], "rpm-source-unreachable", false),
            (
                vec![unreachable, "rdmaprep: the yum repositories of the image have none of the packages: can"],
                "rpm-source-unreachable",
                false,
            ),
            (vec!["rdmaprep: a-1.rpm is not signed by the key that was given"], "key-mismatch", false),
            (vec![conflict], "rpm-conflict", true),
            (vec![unreachable, "rdmaprep: the swap would remove x, which"], "swap-removes-package", true),
        ] {
            let cause = explain_build_log(log.iter().copied()).unwrap();
            assert_eq!((cause.id, cause.is_image_at_fault), (id, is_image_at_fault), "{log:?}");
        }
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(explain_build_log(["E: something else"]), None);
    }
}
