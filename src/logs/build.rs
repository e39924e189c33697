//! The output of a failed build → what went wrong and what to do.
//!
//! A script of rdmaprep's own ends with a [`BuildFailure`]'s code, and what apt, dnf or the engine said around it tells more.
//! Only texts that name their cause are matched; anything else stays an unexplained failure with its last lines.

use crate::diagnosis::{BuildFailure, Cause, CauseId};

/// What names a cause more closely than a script's code, or without one.
struct Rule {
    id: CauseId,
    build: Build,
    /// All of these in one line, which is the evidence; none: the line with the code.
    line: &'static [&'static str],
    /// Some line must also contain one text from each list.
    beside: &'static [&'static [&'static str]],
    /// What this case is in particular.
    summary: Option<&'static str>,
    remedy: Option<&'static str>,
}

/// The builds that a rule is about.
enum Build {
    Any,
    /// One that ended with the code.
    Ended(BuildFailure),
    /// One in which rdmaprep said nothing: what its own builds tolerate is not a cause.
    Foreign,
}
use Build::{Any, Ended, Foreign};

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

const RULE: Rule = Rule { id: CauseId::NoSpace, build: Any, line: &[], beside: &[], summary: None, remedy: None };

/// In order: a full disk explains every other complaint, a source that is out of reach explains missing packages.
const RULES: &[Rule] = &[
    Rule { id: CauseId::NoSpace, line: &["No space left on device"], ..RULE },
    Rule { id: CauseId::NoSpace, line: &["You don't have enough free space"], ..RULE },
    Rule { id: CauseId::BaseNotFound, line: &["pull access denied"], ..RULE },
    Rule { id: CauseId::NoBridge, line: &["could not find bridge"], ..RULE },
    // Only the fabric's repository is asked when a build ends so.
    Rule {
        id: CauseId::KeyMismatch,
        build: Ended(BuildFailure::RepositoryUnusable),
        beside: &[&["NO_PUBKEY"]],
        ..RULE
    },
    Rule { id: CauseId::SignatureBad, build: Ended(BuildFailure::RepositoryUnusable), beside: &[&["BADSIG"]], ..RULE },
    Rule {
        id: CauseId::SuiteMissing,
        build: Ended(BuildFailure::RepositoryUnusable),
        beside: &[&["does not have a Release file"]],
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnreachable,
        build: Ended(BuildFailure::AptSourcesLackPackage),
        beside: &[APT_UNREACHABLE],
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnusable,
        build: Ended(BuildFailure::AptSourcesLackPackage),
        beside: &[APT_UNUSABLE],
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnreachable,
        build: Ended(BuildFailure::AptConflict),
        beside: &[APT_UNREACHABLE, APT_MISSING],
        summary: Some("the image's own apt sources are not reachable, and a package is missing without them"),
        ..RULE
    },
    Rule {
        id: CauseId::AptSourceUnusable,
        build: Ended(BuildFailure::AptConflict),
        beside: &[APT_UNUSABLE, APT_MISSING],
        summary: Some("an apt source of the image cannot be used, and a package is missing without it"),
        ..RULE
    },
    Rule {
        id: CauseId::PackageUnknown,
        build: Ended(BuildFailure::AptConflict),
        line: &["E: Unable to locate package"],
        ..RULE
    },
    Rule {
        id: CauseId::PackageUnknown,
        build: Ended(BuildFailure::AptConflict),
        line: &["E: Package", "has no installation candidate"],
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        build: Ended(BuildFailure::YumRepositoriesLackPackage),
        beside: &[YUM_UNREACHABLE],
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        build: Ended(BuildFailure::GivenRepositoriesLackPackage),
        beside: &[YUM_UNREACHABLE],
        summary: Some("the repositories of --base-repo are not reachable"),
        remedy: Some("check the address; else give the build a network (--network host) or a proxy (HTTP_PROXY)"),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        build: Ended(BuildFailure::RpmConflict),
        beside: &[YUM_UNREACHABLE],
        summary: Some("the image's own repositories are not reachable, and a dependency is missing without them"),
        ..RULE
    },
    Rule {
        id: CauseId::RpmSourceUnreachable,
        build: Ended(BuildFailure::PackageUnknown),
        beside: &[YUM_UNREACHABLE],
        summary: Some(
            "the image's own repositories are not reachable, and the vendor's lacks a package that was asked for",
        ),
        ..RULE
    },
    Rule {
        id: CauseId::KeyMismatch,
        build: Foreign,
        line: &["NO_PUBKEY"],
        summary: Some("a repository is signed with a key that the image does not have"),
        remedy: Some("add the key that signs it, as its publisher says, to the step before"),
        ..RULE
    },
    Rule {
        id: CauseId::SignatureBad,
        build: Foreign,
        line: &["BADSIG"],
        summary: Some("a repository's signature is bad"),
        ..RULE
    },
    Rule {
        id: CauseId::SuiteMissing,
        build: Foreign,
        line: &["does not have a Release file"],
        summary: Some("a mirror has no such suite"),
        remedy: Some(
            "check the suite in the source's line; eRDMA's are noble/erdma, jammy/erdma, focal/erdma and bionic/erdma",
        ),
        ..RULE
    },
];

/// Finds the cause in the lines of a log.
pub fn explain_build_log<'a>(lines: impl IntoIterator<Item = &'a str> + Clone) -> Option<Cause> {
    let all = || lines.clone().into_iter().filter(|line| !is_command(line));
    let ended = all().find_map(|line| build_failure(line).map(|(failure, said)| (failure, said, line)));
    let is_foreign = !all().any(|line| line.contains("rdmaprep: ") || line.contains("rdmaprep["));
    let by_rule = RULES.iter().find_map(|rule| {
        let is_such = match rule.build {
            Any => true,
            Ended(failure) => ended.is_some_and(|(ended, ..)| ended == failure),
            Foreign => is_foreign,
        };
        let stands = |texts: &&[&str]| all().any(|line| texts.iter().any(|text| contains_ignoring_case(line, text)));
        let has_all = |line: &&str| rule.line.iter().all(|text| contains_ignoring_case(line, text));
        if !is_such || !rule.beside.iter().all(stands) {
            return None;
        }
        let (said, line) = match ended {
            Some((_, said, line)) if rule.line.is_empty() => (Some(said), line),
            _ => all().find(has_all).map(|line| (complaint(line), line))?,
        };
        let cause = rule.id.cause(vec![line.trim().to_owned()]);
        let summary = rule.summary.map_or_else(|| cause.summary.clone(), str::to_owned);
        let remedy = rule.remedy.map_or_else(|| cause.remedy.clone(), str::to_owned);
        Some((cause.summary(summary).remedy(remedy), said))
    });
    let by_code = || ended.map(|(failure, said, line)| (failure.cause(vec![line.trim().to_owned()]), Some(said)));
    // The build's own sentence, or apt's, says which package or address it was.
    by_rule.or_else(by_code).map(|(cause, said)| match said {
        Some(said) => {
            let summary = format!("{}: {said}", cause.summary);
            cause.summary(summary)
        }
        None => cause,
    })
}

/// How a script of rdmaprep's own builds ended, where the line says it, and the sentence.
pub fn build_failure(line: &str) -> Option<(BuildFailure, &str)> {
    let (code, said) = line.split_once("rdmaprep[")?.1.split_once("]: ")?;
    Some((BuildFailure::of_code(code)?, said.trim_end()))
}

/// Builders print a step's command before they run it, and it holds what it could say.
fn is_command(line: &str) -> bool {
    line.contains("rdmaprep[$1]")
}

/// What apt says in a line.
fn complaint(line: &str) -> Option<&str> {
    line.split_once("E: ").map(|(_, said)| said.trim_end())
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
            "rdmaprep[package-missing]: package ibverbs-providers is not in http://m/erdma/apt/debian bookworm/incomplete",
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
            "rdmaprep[no-index]: http://m x gave no package index: is the mirror reachable?",
            "write error: No space left on device",
        ];
        assert_eq!(explain_build_log(log).unwrap().id.name(), "no-space");
    }

    /// What apt complains of beside the build's own sentence decides whose fault it is.
    #[test]
    fn causes_of_apt_builds() {
        let conflict = "rdmaprep[apt-conflict]: apt cannot put these packages together";
        let offline = "W: Failed to fetch http://m/InRelease  Temporary failure resolving 'm'";
        let unsigned = "W: GPG error: http://m jammy InRelease: NO_PUBKEY A4B469963BF863CC";
        let lacks = " libibverbs1 : Depends: libnl-3-200 (>= 3.2.7) but it is not installable";
        let pinned = " libibverbs-dev : Depends: libibverbs1 (= 2307mlnx47) but 44.1-2 is to be installed";
        let going_on = "rdmaprep: an apt source of the image cannot be used; going on without it";
        let unusable = "rdmaprep[repository-unusable]: http://m/erdma/apt/ubuntu jammy/erdma cannot be used: no such suite, or not signed by its key";
        let none = "rdmaprep[apt-sources-lack-package]: none of the packages is in the apt sources of the image: can they be reached?";
        let one = "rdmaprep[apt-sources-lack-package]: package ibverbs-utils is not in the apt sources of the image";
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
        let conflict = "rdmaprep[rpm-conflict]: dnf cannot put these packages together";
        let unreachable = "Error: Failed to download metadata for repo 'base': Cannot download repomd.xml";
        let nowhere = "rdmaprep[package-unknown]: package perftets is in no repository";
        for (log, id, is_image_at_fault) in [
            (
                vec!["curl: (22) 404", "rdmaprep[repository-missing]: there is no repository at http://m/erdma/yum/x/"],
                "suite-missing",
                false,
            ),
            (
                vec!["rdmaprep[repository-unreachable]: http://m/erdma/yum/x/ cannot be reached"],
                "mirror-unreachable",
                false,
            ),
            (vec!["rdmaprep[key-mismatch]: a-1.rpm is not signed by the key of the repository"], "key-mismatch", false),
            (vec![unreachable, conflict], "rpm-source-unreachable", false),
            (
                vec![
                    unreachable,
                    "rdmaprep[yum-repositories-lack-package]: none of the packages is in the yum repositories of the image: can",
                ],
                "rpm-source-unreachable",
                false,
            ),
            (
                vec![
                    "rdmaprep[yum-repositories-lack-package]: package libibverbs is not in the yum repositories of the image",
                ],
                "package-not-in-image-sources",
                true,
            ),
            (
                vec!["rdmaprep[package-missing]: none of the packages is in http://m/erdma/yum/x/"],
                "package-missing",
                false,
            ),
            (vec!["rdmaprep[key-mismatch]: a-1.rpm is not signed by the key that was given"], "key-mismatch", false),
            (vec![nowhere], "package-unknown", false),
            (vec![unreachable, nowhere], "rpm-source-unreachable", false),
            (vec![conflict], "rpm-conflict", true),
            (
                vec![unreachable, "rdmaprep[swap-removes-package]: the swap would remove x, which"],
                "swap-removes-package",
                true,
            ),
        ] {
            let cause = explain_build_log(log.iter().copied()).unwrap();
            assert_eq!((cause.id.name(), cause.fault == Fault::Image), (id, is_image_at_fault), "{log:?}");
        }
    }

    /// Builders print the command of a step, which has every sentence in it.
    #[test]
    fn a_printed_command_says_nothing() {
        for line in [
            "#5 [2/2] RUN set -eu;     fail() { echo \"rdmaprep[$1]: $2\" >&2; exit 1; };     x || fail no-index \"$repo gave no package index\"; fail swap-removes-package \"the swap would remove $p\"",
            "Step 2/3 : RUN set -eu;     fail() { echo \"rdmaprep[$1]: $2\" >&2; exit 1; };     fail apt-conflict \"apt cannot put these packages together\"",
        ] {
            assert_eq!(explain_build_log([line]), None);
            let cause =
                explain_build_log([line, "#5 1.2 rdmaprep[no-curl]: the image has no curl to fetch x with"]).unwrap();
            assert_eq!(cause.id.name(), "no-curl");
        }
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(explain_build_log(["E: something else"]), None);
    }
}
