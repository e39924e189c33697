//! The output of a failed build → what went wrong and what to do.
//!
//! Only texts that name their cause are matched; anything else stays an unexplained failure with its last lines.

use crate::diagnosis::{Cause, CauseId};

struct Rule {
    id: CauseId,
    mark: Mark,
    /// Some line must also contain one text from each list.
    beside: &'static [&'static [&'static str]],
    /// What this case is in particular.
    summary: Option<&'static str>,
    remedy: Option<&'static str>,
}

/// The line that a rule is about.
enum Mark {
    /// A sentence of rdmaprep's own build that has all of these.
    Said(&'static [&'static str]),
    /// A line of any program that has all of these.
    Line(&'static [&'static str]),
    /// Marks that count only in a build without messages of its own: what it tolerates is not a cause.
    Elsewhere(&'static [&'static str]),
}
use Mark::{Elsewhere, Line, Said};

/// apt has no way to a source.
const APT_UNREACHABLE: &[&str] =
    &["Failed to fetch", "Temporary failure resolving", "Could not resolve", "Unable to connect to"];
/// apt leaves a source out.
const APT_UNUSABLE: &[&str] = &[
    "NO_PUBKEY",
    "BADSIG",
    "EXPKEYSIG",
    "is not signed",
    "have a Release file",
    "has a Release file",
    "is expired",
    "Conflicting values set for option",
    "Malformed entry",
    "Malformed stanza",
    "could not be read",
];
/// What apt was asked for, or a dependency of it, is nowhere.
const APT_MISSING: &[&str] =
    &["is not installable", "not going to be installed", "Unable to locate package", "no installation candidate"];
const YUM_UNREACHABLE: &[&str] = &[
    "Failed to download metadata for repo",
    "Errors during downloading metadata",
    "Cannot find a valid baseurl",
    "Cannot retrieve metalink",
    "Ignoring repositories",
];

const RULE: Rule = Rule { id: CauseId::NoSpace, mark: Line(&[]), beside: &[], summary: None, remedy: None };

/// In order: a full disk explains every other complaint, an unreachable mirror explains missing packages.
const RULES: &[Rule] = &[
    Rule { id: CauseId::NoSpace, mark: Line(&["No space left on device"]), ..RULE },
    Rule { id: CauseId::NoSpace, mark: Line(&["You don't have enough free space"]), ..RULE },
    Rule { id: CauseId::SwapRemovesPackage, mark: Said(&["the swap would remove"]), ..RULE },
    Rule { id: CauseId::MirrorUnreachable, mark: Said(&["the repository's key cannot be fetched"]), ..RULE },
    Rule { id: CauseId::MirrorUnreachable, mark: Said(&["gave no package index"]), ..RULE },
    // Only the fabric's repository is asked when the build says this.
    Rule {
        id: CauseId::KeyMismatch,
        mark: Said(&["cannot be used: no such suite, or not signed by its key"]),
        beside: &[&["NO_PUBKEY"]],
        ..RULE
    },
    Rule {
        id: CauseId::SignatureBad,
        mark: Said(&["cannot be used: no such suite, or not signed by its key"]),
        beside: &[&["BADSIG"]],
        ..RULE
    },
    Rule {
        id: CauseId::SuiteMissing,
        mark: Said(&["cannot be used: no such suite, or not signed by its key"]),
        beside: &[&["does not have a Release file"]],
        ..RULE
    },
    Rule {
        id: CauseId::MirrorUnusable,
        mark: Said(&["cannot be used: no such suite, or not signed by its key"]),
        ..RULE
    },
    Rule {
        id: CauseId::KeyMismatch,
        mark: Elsewhere(&["NO_PUBKEY"]),
        summary: Some("a repository is signed with a key that the image does not have"),
        remedy: Some("add the key that signs it, as its publisher says, to the step before"),
        ..RULE
    },
    Rule {
        id: CauseId::SignatureBad,
        mark: Elsewhere(&["BADSIG"]),
        summary: Some("a repository's signature is bad"),
        ..RULE
    },
    Rule {
        id: CauseId::SuiteMissing,
        mark: Elsewhere(&["does not have a Release file"]),
        summary: Some("a mirror has no such suite"),
        remedy: Some(
            "check the suite in the source's line; eRDMA's are noble/erdma, jammy/erdma, focal/erdma and bionic/erdma",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnreachable,
        mark: Said(&[" in the apt sources of the image"]),
        beside: &[APT_UNREACHABLE],
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnusable,
        mark: Said(&[" in the apt sources of the image"]),
        beside: &[APT_UNUSABLE],
        ..RULE
    },
    Rule {
        id: CauseId::PackageNotInImageSources,
        mark: Said(&[" in the apt sources of the image"]),
        summary: Some("the image's own apt sources do not have what is needed"),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        mark: Said(&[" in the yum repositories of the image"]),
        beside: &[YUM_UNREACHABLE],
        ..RULE
    },
    Rule {
        id: CauseId::PackageNotInImageSources,
        mark: Said(&[" in the yum repositories of the image"]),
        remedy: Some("enable the repository that has it in the base image, or give one with --base-repo URL"),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        mark: Said(&[" in the given repositories"]),
        beside: &[YUM_UNREACHABLE],
        summary: Some("the repositories of --base-repo are not reachable"),
        remedy: Some("check the address; else give the build a network (--network host) or a proxy (HTTP_PROXY)"),
    },
    Rule {
        id: CauseId::PackageUnknown,
        mark: Said(&[" in the given repositories"]),
        summary: Some("the repositories of --base-repo do not have what is needed"),
        remedy: Some(
            "give the one that has rdma-core of the image's distribution with --base-repo URL: it may be given several times",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::KeyMismatch,
        mark: Said(&["no key that the image trusts has signed "]),
        summary: Some("a package that does not come from the vendor is not signed with a key that the image trusts"),
        remedy: Some(
            "rpm --import KEY in the base image, with the key of that repository; or give another one with --base-repo URL",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::OtherLibibverbs,
        mark: Said(&["the loader finds ", " before the libibverbs.so.1 of package "]),
        ..RULE
    },
    Rule {
        id: CauseId::OtherLibibverbs,
        mark: Said(&["libibverbs.so is ", "NCCL opens the first"]),
        summary: Some("NCCL would open a libibverbs of no package"),
        remedy: Some("remove that libibverbs.so in the base image first, and run ldconfig"),
        ..RULE
    },
    Rule {
        id: CauseId::PackageUnknown,
        mark: Said(&["package ", " is in no repository but Mellanox's"]),
        summary: Some("a package that was asked for is only to be had as Mellanox's build"),
        remedy: Some("leave out its --package, or add a repository that has the distribution's own to the base image"),
        ..RULE
    },
    Rule { id: CauseId::PackageMissing, mark: Said(&["package ", " is not in "]), ..RULE },
    Rule {
        id: CauseId::PackageMissing,
        mark: Said(&["none of the packages is in "]),
        summary: Some("the mirror lacks the packages"),
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnreachable,
        mark: Said(&["apt cannot put these packages together"]),
        beside: &[APT_UNREACHABLE, APT_MISSING],
        summary: Some("the image's own apt sources are not reachable, and a package is missing without them"),
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnusable,
        mark: Said(&["apt cannot put these packages together"]),
        beside: &[APT_UNUSABLE, APT_MISSING],
        summary: Some("an apt source of the image cannot be used, and a package is missing without it"),
        ..RULE
    },
    Rule {
        id: CauseId::PackageUnknown,
        mark: Line(&["E: Unable to locate package"]),
        beside: &[&["apt cannot put these packages together"]],
        ..RULE
    },
    Rule {
        id: CauseId::PackageUnknown,
        mark: Line(&["E: Package", "has no installation candidate"]),
        beside: &[&["apt cannot put these packages together"]],
        ..RULE
    },
    Rule { id: CauseId::AptConflict, mark: Said(&["apt cannot put these packages together"]), ..RULE },
    Rule {
        id: CauseId::MirrorUnreachable,
        mark: Said(&["http", " cannot be reached"]),
        remedy: Some(
            "outside the vendor's VPC use the public mirror (no --vpc); behind a proxy set HTTP_PROXY; for a mirror on this host add --network host",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::SuiteMissing,
        mark: Said(&["there is no repository at "]),
        summary: Some("the mirror has no such directory"),
        remedy: Some(
            "look into the mirror for the distribution's directory, and give its path (below yum/, if the mirror is the vendor's) with --suite PATH",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::KeyMismatch,
        mark: Said(&["is not signed by the key "]),
        summary: Some("a package does not carry the signature that was asked for"),
        remedy: Some(
            "give the key that signs the packages with --key FILE; if they are not signed at all, --no-gpg-check takes them as they are",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        mark: Said(&["cannot put these packages together"]),
        beside: &[YUM_UNREACHABLE],
        summary: Some("the image's own repositories are not reachable, and a dependency is missing without them"),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        mark: Said(&["package ", " is in no repository"]),
        beside: &[YUM_UNREACHABLE],
        summary: Some(
            "the image's own repositories are not reachable, and the vendor's lacks a package that was asked for",
        ),
        ..RULE
    },
    Rule { id: CauseId::PackageUnknown, mark: Said(&["package ", " is in no repository"]), ..RULE },
    Rule { id: CauseId::RpmConflict, mark: Said(&["cannot put these packages together"]), ..RULE },
    Rule { id: CauseId::NoCurl, mark: Said(&["the image has no curl"]), ..RULE },
    Rule { id: CauseId::BaseNotFound, mark: Line(&["pull access denied"]), ..RULE },
    Rule { id: CauseId::NoBridge, mark: Line(&["could not find bridge"]), ..RULE },
];

/// Finds the cause in the lines of a log.
pub fn explain_build_log<'a>(lines: impl IntoIterator<Item = &'a str> + Clone) -> Option<Cause> {
    let all = || lines.clone().into_iter().filter(|line| !is_command(line));
    let has = |line: &str, marks: &[&str]| marks.iter().all(|mark| contains_ignoring_case(line, mark));
    let says_nothing = !all().any(|line| own_sentence(line).is_some());
    RULES.iter().find_map(|rule| {
        let line = match &rule.mark {
            Said(marks) => all().find(|line| own_sentence(line).is_some_and(|said| has(said, marks))),
            Line(marks) => all().find(|line| has(line, marks)),
            Elsewhere(marks) => all().find(|line| says_nothing && has(line, marks)),
        }?;
        let stands = |texts: &&[&str]| all().any(|line| texts.iter().any(|text| contains_ignoring_case(line, text)));
        if !rule.beside.iter().all(stands) {
            return None;
        }
        // The build's own sentence, or apt's, says which package or address it was.
        let said = own_sentence(line).or_else(|| line.split_once("E: ").map(|(_, said)| said.trim_end()));
        let info = rule.id.info();
        let summary = rule.summary.unwrap_or(info.title);
        let summary = said.map_or(summary.to_owned(), |said| format!("{summary}: {said}"));
        let cause = rule.id.cause(vec![line.trim().to_owned()]);
        Some(cause.summary(summary).remedy(rule.remedy.unwrap_or(info.remedy)))
    })
}

/// Builders print a step's command before they run it, and it holds every sentence that it could say.
fn is_command(line: &str) -> bool {
    line.contains("rdmaprep: $1") || line.contains("rdmaprep[$1]: ")
}

/// What rdmaprep's own build says in a line.
fn own_sentence(line: &str) -> Option<&str> {
    let (mark, said) = line.split_once("rdmaprep")?.1.split_once(": ")?;
    let is_code = mark.is_empty() || (mark.starts_with('[') && mark.ends_with(']') && !mark.contains(' '));
    is_code.then(|| said.trim_end())
}

/// The kernel, Go and apt write the same complaint in different cases.
fn contains_ignoring_case(line: &str, mark: &str) -> bool {
    line.as_bytes().windows(mark.len()).any(|window| window.eq_ignore_ascii_case(mark.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Fault;

    #[test]
    fn a_cause_by_its_own_words() {
        let log = [
            "Get:1 http://m/erdma",
            "rdmaprep: package ibverbs-providers is not in http://m/erdma/apt/debian bookworm/incomplete",
        ];
        let cause = explain_build_log(log).unwrap();
        assert_eq!(cause.id.name(), "package-missing");
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
        assert_eq!(explain_build_log(log).unwrap().id.name(), "no-space");
    }

    /// What apt complains of beside the build's own sentence decides whose fault it is.
    #[test]
    fn causes_of_apt_builds() {
        let conflict = "rdmaprep: apt cannot put these packages together";
        let offline = "W: Failed to fetch http://m/InRelease  Temporary failure resolving 'm'";
        let unsigned = "W: GPG error: http://m jammy InRelease: NO_PUBKEY A4B469963BF863CC";
        let lacks = " libibverbs1 : Depends: libnl-3-200 (>= 3.2.7) but it is not installable";
        let pinned = " libibverbs-dev : Depends: libibverbs1 (= 2307mlnx47) but 44.1-2 is to be installed";
        let going_on = "rdmaprep: an apt source of the image cannot be used; going on without it";
        let unusable =
            "rdmaprep: http://m/erdma/apt/ubuntu jammy/erdma cannot be used: no such suite, or not signed by its key";
        let none = "rdmaprep: none of the packages is in the apt sources of the image: can they be reached?";
        let one = "rdmaprep: package ibverbs-utils is not in the apt sources of the image";
        let typo = "E: Unable to locate package perftets";
        for (log, id, is_image_at_fault) in [
            (vec![conflict], "apt-conflict", true),
            (vec![pinned, conflict], "apt-conflict", true),
            (vec![offline, lacks, conflict], "apt-source-unreachable", false),
            // That a source was not reached does not put two packages at odds.
            (vec![offline, pinned, conflict], "apt-conflict", true),
            (vec![unsigned, going_on, lacks, conflict], "apt-source-unusable", true),
            (vec![unsigned, going_on, pinned, conflict], "apt-conflict", true),
            (vec![unsigned, going_on, typo, conflict], "apt-source-unusable", true),
            (vec![typo, conflict], "package-unknown", false),
            (vec!["E: Package 'x' has no installation candidate", conflict], "package-unknown", false),
            (vec![unsigned, unusable], "key-mismatch", false),
            (vec!["W: BADSIG 1", unusable], "signature-bad", false),
            (vec!["E: The repository 'x' does not have a Release file.", unusable], "suite-missing", false),
            (vec![unusable], "mirror-unusable", false),
            (vec![offline, none], "apt-source-unreachable", false),
            (vec![unsigned, one], "apt-source-unusable", true),
            (vec![one], "package-not-in-image-sources", true),
            (
                vec!["rdmaprep: libibverbs1 39.0 from the apt sources of the image", unsigned, conflict],
                "apt-conflict",
                true,
            ),
            // Of a build that is not rdmaprep's only the program's own words are known.
            (vec![unsigned], "key-mismatch", false),
            (vec!["E: The repository 'x' does not have a Release file."], "suite-missing", false),
        ] {
            let cause = explain_build_log(log.iter().copied()).unwrap();
            assert_eq!((cause.id.name(), cause.fault == Fault::Image), (id, is_image_at_fault), "{log:?}");
        }
        let cause = explain_build_log([typo, conflict]).unwrap();
        assert!(cause.summary.ends_with(": Unable to locate package perftets"), "{}", cause.summary);
    }

    #[test]
    fn causes_of_rpm_builds() {
        let conflict = "rdmaprep: dnf cannot put these packages together";
        let unreachable = "Error: Failed to download metadata for repo 'base': Cannot download repomd.xml";
        let nowhere = "rdmaprep: package perftets is in no repository";
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
                vec![unreachable, "rdmaprep: none of the packages is in the yum repositories of the image: can"],
                "rpm-source-unreachable",
                false,
            ),
            (
                vec!["rdmaprep: package libibverbs is not in the yum repositories of the image"],
                "package-not-in-image-sources",
                true,
            ),
            (vec!["rdmaprep: none of the packages is in http://m/erdma/yum/x/"], "package-missing", false),
            (vec!["rdmaprep: a-1.rpm is not signed by the key that was given"], "key-mismatch", false),
            (vec![nowhere], "package-unknown", false),
            (vec![unreachable, nowhere], "rpm-source-unreachable", false),
            (vec![conflict], "rpm-conflict", true),
            (vec![unreachable, "rdmaprep: the swap would remove x, which"], "swap-removes-package", true),
        ] {
            let cause = explain_build_log(log.iter().copied()).unwrap();
            assert_eq!((cause.id.name(), cause.fault == Fault::Image), (id, is_image_at_fault), "{log:?}");
        }
    }

    /// Builders print the command of a step, which has every sentence in it.
    #[test]
    fn a_printed_command_says_nothing() {
        for line in [
            "#5 [2/2] RUN set -eu;     fail() { echo \"rdmaprep: $1\" >&2; exit 1; };     x || fail \"$repo gave no package index\"; fail \"the swap would remove $p\"",
            "Step 2/3 : RUN set -eu;     fail() { echo \"rdmaprep: $1\" >&2; exit 1; };     fail \"apt cannot put these packages together\"",
        ] {
            assert_eq!(explain_build_log([line]), None);
            let cause = explain_build_log([line, "#5 1.2 rdmaprep: the image has no curl to fetch x with"]).unwrap();
            assert_eq!(cause.id.name(), "no-curl");
        }
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(explain_build_log(["E: something else"]), None);
    }
}
