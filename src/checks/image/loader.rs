//! Checks of the dynamic loader's cache and of the driver libraries that it could find in the image.

use super::subject::{Subject, abbreviate};
use crate::checks::Outcome;
use crate::facts::{DriverLibraryKind, LoaderCache};

pub(super) fn loader_cache(subject: &Subject<'_>) -> Outcome {
    let loader = &subject.facts.loader;
    let remedy = "RUN ldconfig";
    if let LoaderCache::Unreadable { problem } = &loader.cache {
        return Outcome::unknown(format!("/etc/ld.so.cache cannot be read: {problem}")).remedy(remedy);
    }
    let changes = loader.answers.iter().filter(|answer| answer.path != answer.after_ldconfig).map(|answer| {
        let file = |path: &Option<String>| path.clone().unwrap_or_else(|| "nothing".to_owned());
        format!("{} gives {}, and after ldconfig {}", answer.name, file(&answer.path), file(&answer.after_ldconfig))
    });
    let unindexed = loader.unindexed.iter().map(|path| format!("{path} is not in the cache"));
    let gone = loader.gone.iter().map(|path| format!("the cache names {path}, which does not exist"));
    let stale: Vec<String> = changes.chain(unindexed).chain(gone).collect();
    if !stale.is_empty() {
        let what = if loader.cache == LoaderCache::Absent {
            "there is no /etc/ld.so.cache"
        } else {
            "/etc/ld.so.cache is stale"
        };
        return Outcome::warn(format!("{what}: {}", abbreviate(&stale))).evidence(stale).remedy(remedy);
    }
    if let Some(problem) = loader.problems.first() {
        return Outcome::unknown(problem.clone()).evidence(loader.problems.clone());
    }
    match loader.cache {
        LoaderCache::Absent => {
            Outcome::pass("there is no /etc/ld.so.cache, and the relevant libraries are found without it")
        }
        _ => Outcome::pass("/etc/ld.so.cache agrees with the directories"),
    }
}

pub(super) fn driver_libraries(subject: &Subject<'_>) -> Outcome {
    let libraries = &subject.facts.cuda.driver_libraries;
    let mut wrong = Vec::new();
    let mut harmless = Vec::new();
    for library in libraries {
        let version = library.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        let path = &library.path;
        match (library.kind, &library.loader_reason) {
            (DriverLibraryKind::Compat, Some(reason)) => {
                wrong.push(format!("the compatibility driver{version} hides the host's: {reason}"));
            }
            (DriverLibraryKind::Stub, Some(reason)) => {
                wrong.push(format!("the stub {path} is not a driver, and {reason}"))
            }
            (DriverLibraryKind::BakedIn, _) => {
                wrong.push(format!("{path} is a driver{version} that was built into the image"))
            }
            (DriverLibraryKind::Compat, None) => harmless.push(format!("compatibility driver{version} at {path}")),
            (DriverLibraryKind::Stub, None) => harmless.push(format!("stub for linking at {path}")),
        }
    }
    if wrong.is_empty() {
        let summary = match harmless.first() {
            Some(_) => format!("no driver library in the way of the host's; {}", abbreviate(&harmless)),
            None => "no driver library in the image".to_owned(),
        };
        return Outcome::pass(summary).evidence(harmless);
    }
    Outcome::warn(abbreviate(&wrong)).evidence(wrong).evidence(harmless)
}
