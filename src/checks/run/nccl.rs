//! Checks of the NCCL that the ranks opened.

use super::{Judged, RunSubject, count, say_line};
use crate::checks::Outcome;
use crate::checks::image::consumers::{copy_at, deciding, version_of};
use crate::diagnosis::{CauseId, Fault};
use crate::facts::run::{Failure, RankFacts, RunFacts};
use crate::versions::{NcclVersion, nccl_built_for_cuda, parse_cuda_version};
use std::collections::{BTreeMap, BTreeSet};

/// Messages of the loader and nccl-tests if a program needs a newer NCCL than it gets.
const SKEW: [&str; 2] = ["undefined symbol: nccl", "Incompatible NCCL versions"];

/// The version of a rank's NCCL by its own `ncclGetVersion`.
pub fn version_of_rank(rank: &RankFacts) -> Option<NcclVersion> {
    NcclVersion::from_code(u32::try_from(rank.nccl_version_code?).ok()?)
}

/// Value → the ranks that have it.
fn by<T: Ord>(run: &RunFacts, value: impl Fn(&RankFacts) -> Option<T>) -> BTreeMap<T, Vec<u32>> {
    let mut groups: BTreeMap<T, Vec<u32>> = BTreeMap::new();
    for rank in &run.ranks {
        if let Some(value) = value(rank) {
            groups.entry(value).or_default().push(rank.rank);
        }
    }
    groups
}

fn paths(run: &RunFacts) -> BTreeMap<&str, Vec<u32>> {
    let mut groups: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for rank in &run.ranks {
        if let Some(library) = rank.nccl.as_ref().filter(|library| !library.path.is_empty()) {
            groups.entry(&library.path).or_default().push(rank.rank);
        }
    }
    groups
}

/// `rank 0`, `ranks 1, 2 and 5 more`
pub(super) fn say_ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let names = |ranks: &[u32]| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks.len() {
        1 => format!("rank {}", ranks[0]),
        2..=SHOWN => format!("ranks {}", names(ranks)),
        more => format!("ranks {} and {} more", names(&ranks[..SHOWN.min(more)]), more.saturating_sub(SHOWN)),
    }
}

/// The line of a rank's own output, or of its failure, that speaks of a version skew.
fn skew_line(run: &RunFacts) -> Option<(u32, String)> {
    let has = |line: &&str| SKEW.iter().any(|text| line.contains(text));
    let printed = run.ranks.iter().find_map(|rank| Some((rank.rank, rank.output.lines().find(has)?.to_owned())));
    printed.or_else(|| {
        run.failures.iter().find_map(|failed| match &failed.failure {
            Failure::Other { detail } | Failure::LibraryMissing { detail, .. } => {
                Some((failed.rank, detail.lines().find(has)?.to_owned()))
            }
            _ => None,
        })
    })
}

pub(super) fn nccl_loaded(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    for failed in &run.failures {
        match &failed.failure {
            Failure::SymbolMissing { library, symbol } if is_nccl(library) => {
                return Ok(skewed(subject, library, symbol));
            }
            Failure::LibraryMissing { library, detail } if is_nccl(library) => {
                if let Some((_, line)) = skew_line(run) {
                    return Ok(skewed(subject, library, &line));
                }
                return Ok(missing(subject, library, detail).evidence([detail.clone()]));
            }
            _ => {}
        }
    }
    if let Some((rank, line)) = skew_line(run) {
        return Ok(skewed(subject, &format!("rank {rank}"), &line));
    }
    if let Some(cause) = subject.cause(&[CauseId::NcclTooOldLoaded]) {
        return Ok(super::failed_by(cause));
    }
    let asked = by(run, |rank| rank.nccl.as_ref().map(|library| library.asked.clone()));
    let without = run.ranks.iter().filter(|rank| rank.nccl.is_none()).count();
    if run.ranks.is_empty() || without > 0 {
        return Err(Outcome::unknown(format!(
            "{} of {} reported which libnccl they opened",
            run.ranks.len() - without,
            count(run.ranks.len(), "rank")
        )));
    }
    let paths: Vec<&str> = paths(run).into_keys().collect();
    Ok(Outcome::pass(if paths.is_empty() {
        format!(
            "{} was opened; the kernel does not report which file that is",
            asked.into_keys().collect::<Vec<_>>().join(", ")
        )
    } else {
        paths.join(", ")
    }))
}

fn is_nccl(library: &str) -> bool {
    library.rsplit('/').next().unwrap_or(library).contains("nccl")
}

/// A library, or a program, that needs what the loaded NCCL has not.
fn skewed(subject: &RunSubject<'_>, what: &str, needs: &str) -> Outcome {
    let loaded = by(subject.run, version_of_rank).into_keys().next();
    let loaded = loaded.map(|version| format!("; NCCL {version} was loaded")).unwrap_or_default();
    let copies = subject.facts.iter().flat_map(|facts| &facts.nccl);
    let copies = copies.map(|copy| format!("{}: {}", copy.path, copy.version.as_deref().unwrap_or("unknown version")));
    Outcome::fail(format!("{what}: {needs}{loaded}"))
        .named(CauseId::NcclVersionSkew)
        .evidence(copies)
        .remedy("install a newer NCCL, and take the directory of the old one out of LD_LIBRARY_PATH")
}

/// Whether a path was asked for at which the image has no libnccl.
pub(super) fn is_not_of_image(subject: &RunSubject<'_>, library: &str) -> bool {
    let is_known = |path: &str| subject.facts.is_some_and(|facts| facts.nccl.iter().any(|copy| copy.path == path));
    library.starts_with('/') && !is_known(library)
}

fn missing(subject: &RunSubject<'_>, library: &str, detail: &str) -> Outcome {
    if is_not_of_image(subject, library) {
        return Outcome::fail(format!("the requested libnccl cannot be opened: {library}"))
            .remedy("--nccl loader, or the path of a copy in the image")
            .blame(Fault::Launch);
    }
    // dlerror(3) begins with the file that it is about: the library itself, one that it needs, or what was found for it.
    if library.starts_with('/') || !detail.starts_with(library) {
        return Outcome::fail(format!("{library} exists but cannot be opened"))
            .remedy(format!("ldd {library} in the image shows what it needs"))
            .blame(Fault::Image);
    }
    let copies: Vec<String> =
        subject.facts.iter().flat_map(|facts| &facts.nccl).map(|copy| copy.path.clone()).collect();
    let outcome = Outcome::fail(format!("the loader does not find {library}")).blame(Fault::Image);
    if copies.is_empty() {
        outcome.remedy("RUN pip install nvidia-nccl-cu12, or apt-get install -y libnccl2")
    } else {
        outcome
            .evidence(copies.iter().map(|path| format!("a copy is at {path}")))
            .remedy("name the directory of the copy in /etc/ld.so.conf.d, and RUN ldconfig")
    }
}

pub(super) fn nccl_loaded_version(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    let versions = by(run, version_of_rank);
    let minimum = subject.target.minimum_nccl.as_ref();
    let refused = versions.keys().find(|version| minimum.is_some_and(|minimum| !minimum.allows(**version)));
    let Some(&decisive) = refused.or(versions.keys().next()) else {
        let codes: BTreeSet<i32> = run.ranks.iter().filter_map(|rank| rank.nccl_version_code).collect();
        return Err(match codes.first() {
            Some(code) => Outcome::unknown(format!("NCCL reports the version {code}, which is not valid")),
            None => Outcome::unknown("no rank got far enough to query NCCL's version"),
        });
    };
    let path = paths(run).into_keys().next().unwrap_or("libnccl.so.2");
    let said = format!("NCCL {decisive} ({path})");
    if let Some(minimum) = minimum.filter(|_| refused.is_some()) {
        return Ok(Outcome::fail(format!("{said} was loaded; {} needs {minimum}", subject.target.title))
            .remedy(format!(
                "RUN pip install 'nvidia-nccl-cu12{}', or take what hides it out of LD_LIBRARY_PATH",
                minimum.package_specifier()
            ))
            .blame(Fault::Image));
    }
    // The suffix says what NCCL was built with, never what the image or the driver has.
    let lines = run.evidence.iter().flat_map(|evidence| evidence.nccl_versions.values());
    let built = lines.filter_map(|line| nccl_built_for_cuda(line)).next();
    let image = subject.facts.and_then(|facts| facts.cuda.version.as_deref()).and_then(parse_cuda_version);
    if let (Some(built), Some(image)) = (built, image)
        && built.major != image.major
    {
        return Ok(Outcome::warn(format!("{said} was built with CUDA {built}, but the image has CUDA {image}"))
            .remedy(format!("install the NCCL for CUDA {}", image.major))
            .blame(Fault::Image));
    }
    Ok(match minimum {
        Some(minimum) => Outcome::pass(format!("{said}; {minimum} is required")),
        None => Outcome::pass(said),
    })
}

pub(super) fn nccl_same_everywhere(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    if let Some(outcome) = skew_between_ranks(subject) {
        return Ok(outcome);
    }
    let versions = by(run, version_of_rank);
    let known: usize = versions.values().map(Vec::len).sum();
    let Some((&version, _)) = versions.first_key_value().filter(|_| known == run.ranks.len()) else {
        return Err(Outcome::unknown(format!(
            "the NCCL version of {} of {} is known",
            known,
            count(run.ranks.len(), "rank")
        )));
    };
    let paths = paths(run);
    if paths.len() > 1 {
        let evidence = paths.iter().map(|(path, ranks)| format!("{path}: {}", say_ranks(ranks)));
        return Ok(Outcome::warn(format!("all ranks have NCCL {version}, from different files"))
            .evidence(evidence)
            .remedy("let every rank open the same libnccl.so.2: LD_LIBRARY_PATH and ld.so.conf.d must not differ")
            .blame(Fault::Launch));
    }
    let path = paths.into_keys().next();
    let said = format!("{} with NCCL {version}", count(run.ranks.len(), "rank"));
    Ok(against_the_image(subject, version, path).unwrap_or_else(|| Outcome::pass(said)))
}

/// Versions that differ between ranks, by their own word, by their logs or by NCCL's.
fn skew_between_ranks(subject: &RunSubject<'_>) -> Option<Outcome> {
    const ID: &str = "nccl-version-skew";
    let run = subject.run;
    let versions = by(run, version_of_rank);
    let mut by_line: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (rank, line) in run.evidence.iter().flat_map(|evidence| &evidence.nccl_versions) {
        by_line.entry(line).or_default().push(*rank);
    }
    let warning = subject.warned(&["Mismatched NCCL version detected"]);
    let groups: Vec<String> = if versions.len() > 1 {
        versions.iter().map(|(version, ranks)| format!("{} with {version}", say_ranks(ranks))).collect()
    } else if by_line.len() > 1 {
        by_line.iter().map(|(version, ranks)| format!("{} with {version}", say_ranks(ranks))).collect()
    } else if let Some(line) = warning {
        vec![decode_mismatch(&line.line).unwrap_or_else(|| line.line.clone())]
    } else {
        return None;
    };
    let paths = paths(run).into_iter().map(|(path, ranks)| format!("{path}: {}", say_ranks(&ranks)));
    Some(
        Outcome::fail(format!("{ID}: the ranks have different NCCL versions: {}", groups.join("; ")))
            .evidence(warning.map(say_line).into_iter().chain(paths))
            .remedy("give every rank the same image and the same LD_LIBRARY_PATH")
            .blame(Fault::Image),
    )
}

/// `rank 0 version 21903 rank 1 version 22105` → `rank 0 with 2.19.3; rank 1 with 2.21.5`
fn decode_mismatch(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_once("detected")?.1.split_whitespace().collect();
    let groups: Vec<String> = words
        .windows(4)
        .filter(|four| four[0] == "rank" && four[2] == "version")
        .filter_map(|four| {
            let version = NcclVersion::from_code(four[3].trim_end_matches([',', '.']).parse().ok()?)?;
            Some(format!("rank {} with {version}", four[1]))
        })
        .collect();
    (!groups.is_empty()).then(|| groups.join("; "))
}

/// The message if the run did not measure the NCCL that the image's own programs get.
fn against_the_image(subject: &RunSubject<'_>, version: NcclVersion, path: Option<&str>) -> Option<Outcome> {
    let facts = subject.facts?;
    let copy = copy_at(facts, path);
    if let Some(inspected) = copy.and_then(version_of).filter(|inspected| *inspected != version) {
        return Some(
            Outcome::warn(format!(
                "{} is NCCL {inspected} in the image, but NCCL {version} in the run",
                path.unwrap_or_default()
            ))
            .remedy("check the container's mounts: the file was replaced")
            .blame(Fault::Launch),
        );
    }
    let other = deciding(facts)
        .into_iter()
        .find(|used| used.consumer.path.as_deref() != path && used.version.is_some_and(|theirs| theirs != version))?;
    let theirs = other.version.map(|version| version.to_string()).unwrap_or_default();
    let (name, where_) = (&other.consumer.name, other.consumer.path.as_deref().unwrap_or_default());
    Some(
        Outcome::warn(format!(
            "the run measured NCCL {version} ({}), but {name} gets {theirs} ({where_})",
            path.unwrap_or("libnccl.so.2")
        ))
        .remedy(format!("preflight with the libnccl that {name} gets"))
        .blame(Fault::Image),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;
    use crate::facts::run::Phase;

    fn with_code(code: Option<i32>) -> RunFacts {
        let mut run = good_run();
        for rank in &mut run.ranks {
            rank.nccl_version_code = code;
        }
        run
    }

    #[test]
    fn libnccl_that_is_not_there() {
        expect(&found(&good_run(), "nccl-loaded"), Pass, None, &[NCCL]);
        let missing = |library: &str, about: &str| {
            let detail = format!("{about}: cannot open shared object file: No such file or directory");
            let failure = Failure::LibraryMissing { library: library.into(), detail };
            found(&failed(0, Phase::Libraries, failure), "nccl-loaded")
        };
        let words = ["does not find libnccl.so.2", "a copy is at /usr/lib", "ldconfig"];
        expect(&missing("libnccl.so.2", "libnccl.so.2"), Fail, Some(Image), &words);
        let words = ["libnccl.so.2 exists", "libcudart.so.12: cannot open", "ldd"];
        expect(&missing("libnccl.so.2", "libcudart.so.12"), Fail, Some(Image), &words);
        expect(&missing(NCCL, "libcudart.so.12"), Fail, Some(Image), &["exists but cannot be opened"]);
        let words = ["the requested libnccl cannot be opened: /x/libnccl.so.2", "--nccl loader"];
        expect(&missing("/x/libnccl.so.2", "/x/libnccl.so.2"), Fail, Some(Launch), &words);
        let mut run = good_run();
        run.ranks[1].nccl = None;
        expect(&found(&run, "nccl-loaded"), Unknown, None, &["1 of 2 ranks"]);
        run.ranks.clear();
        expect(&found(&run, "nccl-loaded"), Unknown, None, &[]);
    }

    #[test]
    fn gates() {
        expect(&found(&good_run(), "nccl-loaded-version"), Pass, None, &["NCCL 2.21.5"]);
        for (code, text) in [(21803, "2.18.3"), (2804, "2.8.4")] {
            expect(&found(&with_code(Some(code)), "nccl-loaded-version"), Fail, Some(Image), &[text, "2.19.0"]);
        }
        for code in [None, Some(0), Some(-1)] {
            expect(&found(&with_code(code), "nccl-loaded-version"), Unknown, None, &[]);
        }
        let findings = findings_for(&with_code(Some(21803)), None, "ecs", Default::default());
        let finding = findings.iter().find(|finding| finding.check == "nccl-loaded-version").unwrap();
        expect(finding, Pass, None, &["NCCL 2.18.3"]);
    }

    #[test]
    fn the_run_and_the_image() {
        let mut run = with_code(Some(22105));
        run.ranks[1].nccl_version_code = None;
        expect(&found(&run, "nccl-same-everywhere"), Unknown, None, &["1 of 2 ranks"]);

        let mut run = with_code(Some(21903));
        run.evidence.as_mut().unwrap().nccl_versions.clear();
        expect(&found(&run, "nccl-same-everywhere"), Warn, Some(Launch), &["2.21.5 in the image", "2.19.3 in the run"]);
        for rank in &mut run.ranks {
            rank.nccl.as_mut().unwrap().path = "/opt/nccl/libnccl.so.2".into();
        }
        expect(&found(&run, "nccl-same-everywhere"), Warn, Some(Image), &["measured NCCL 2.19.3", "2.21.5"]);
        expect(&found_in(&run, None, "nccl-same-everywhere", Default::default()), Pass, None, &[]);
        run.ranks[0].nccl.as_mut().unwrap().path = NCCL.into();
        expect(&found(&run, "nccl-same-everywhere"), Warn, Some(Launch), &["different files"]);
    }

    #[test]
    fn the_numbers_of_a_mismatch() {
        let line = "NCCL WARN Mismatched NCCL version detected : rank 0 version 21903 rank 1 version 22105";
        assert_eq!(decode_mismatch(line).unwrap(), "rank 0 with 2.19.3; rank 1 with 2.21.5");
        assert_eq!(decode_mismatch("Mismatched NCCL version detected"), None);
    }
}
