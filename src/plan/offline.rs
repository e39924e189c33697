//! Package files that the user has → those that a swap needs, without any repository.
//!
//! Pure: the files were read before. Nothing is fetched in such a build, so the whole set is put together here: the fabric's
//! packages, counterparts of installed ones, and what these depend on and the image lacks.

use super::rpm::is_of_one_build;
use super::{Companion, PlanError, WithoutOffer, is_package_name, is_rdma_core};
use crate::fabric::{Fabric, PackageFiles, Userspace};
use crate::facts::{ImageFacts, Package, PackageFacts};
use crate::inspect::packages::{Candidates, Provided, parse_depends, split_relations};
use crate::package_file::{Form, PackageFile};
use crate::remedy::Remedy;
use std::collections::{BTreeMap, BTreeSet};

/// A directory of package files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedFiles {
    /// The name that the user gave.
    pub directory: String,
    /// Name of the file → what it is.
    pub packages: BTreeMap<String, PackageFile>,
    /// Name of the file → why it cannot be used.
    pub unusable: BTreeMap<String, String>,
}

impl OfferedFiles {
    /// Whose build the files are, as far as the swap asks.
    pub fn userspace(&self, fabric: &Fabric, is_rpm: bool) -> Userspace {
        let is_mlnx = |file: &PackageFile| {
            file.form.is_rpm() == is_rpm && is_of_the_userspace(file) && file.package.is_mlnx_build()
        };
        match fabric.is_mellanox {
            false => Userspace::Vendor,
            true if self.packages.values().any(is_mlnx) => Userspace::Doca,
            true => Userspace::Inbox,
        }
    }
}

/// Why the files of a directory do not do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfflineError {
    #[error("it lacks packages that the swap needs")]
    Lacking { missing: Vec<String>, unusable: Vec<String> },
    #[error("its files are from different builds: {0} and {1}")]
    Mixed(String, String),
    #[error("{0} is a Mellanox build, which drives no {1} device")]
    Mellanox(String, &'static str),
    #[error("{file} has no {driver} provider")]
    NoProvider { file: String, driver: &'static str },
}

impl Remedy for OfflineError {
    fn remedy(&self) -> Option<String> {
        let lines = |label, items: &[String]| items.iter().map(|item| format!("{label}: {item}")).collect::<Vec<_>>();
        Some(match self {
            OfflineError::Lacking { missing, unusable } => {
                [lines("missing", missing), lines("unusable", unusable)].concat().join("\n")
            }
            OfflineError::Mixed(..) => "use files from one build only".to_owned(),
            OfflineError::Mellanox(..) => "use the vendor's packages".to_owned(),
            OfflineError::NoProvider { .. } => "use the build that the fabric needs".to_owned(),
        })
    }
}

/// What a swap needs besides what it takes.
pub struct Wanted<'a> {
    /// The fabric's packages; inner lists are alternatives in the order to try.
    pub install: &'a [Vec<String>],
    pub companions: &'a [Companion],
    pub extra_packages: &'a [String],
    /// Packages that are no longer there afterwards.
    pub gone: &'a BTreeSet<String>,
    pub driver: &'static str,
    /// Whether Mellanox's builds drive the devices.
    pub takes_mellanox: bool,
}

/// Whether an installed package is still there after the swap, and drives the devices as far as it is its.
fn stays(facts: &ImageFacts, wanted: &Wanted<'_>, name: &str) -> bool {
    let leaves = |companion: &Companion| companion.name == name && companion.without_offer != WithoutOffer::Keep;
    facts.packages.installed(name).is_some_and(|package| {
        !wanted.gone.contains(name)
            && !wanted.companions.iter().any(leaves)
            && (wanted.takes_mellanox || !package.is_mlnx_build())
    })
}

/// Whether a file is one of those that must all be of one build.
fn is_of_the_userspace(file: &PackageFile) -> bool {
    match file.form {
        Form::Deb => is_rdma_core(&file.package),
        Form::Rpm { .. } => is_of_one_build(&file.package),
    }
}

/// Directory in the build context.
const DIRECTORY: &str = "packages";

/// A file of the user's directory that can be used.
type Entry<'a> = (&'a str, &'a PackageFile);

/// The files that a swap takes, and notes on the others.
///
/// # Errors
/// A package or a dependency is missing, or the files are of different builds.
pub fn choose_files(
    facts: &ImageFacts,
    offered: &OfferedFiles,
    wanted: &Wanted<'_>,
) -> Result<(PackageFiles, Vec<String>), PlanError> {
    let failed = |error| PlanError::Offline { directory: offered.directory.clone(), error };
    let (usable, unusable) = sort_out(offered, facts);
    let mut missing = Vec::new();
    let mut taken: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
    let mut take = |name: &str| match usable.get_key_value(name) {
        Some((name, entry)) => {
            taken.insert(name, *entry);
            true
        }
        None => false,
    };
    for names in wanted.install {
        if !names.iter().any(|name| take(name)) {
            missing.push(format!("package {}", names.join(" or ")));
        }
    }
    for name in wanted.extra_packages {
        if !take(name) && !stays(facts, wanted, name) {
            missing.push(format!("package {name}"));
        }
    }
    wanted.companions.iter().for_each(|companion| {
        take(&companion.name);
    });
    let asked: BTreeSet<&str> = taken.keys().copied().collect();
    if missing.is_empty() {
        missing = add_dependencies(facts, &usable, &mut taken, wanted.gone);
    }
    if !missing.is_empty() {
        return Err(failed(OfflineError::Lacking { missing, unusable }));
    }
    check_set(&taken, wanted).map_err(failed)?;

    let notes = notes_on(&usable, &taken, unusable);
    let sha256 = taken.values().filter_map(|(_, file)| match &file.form {
        Form::Deb => None,
        Form::Rpm { sha256 } => Some((context_name(file), sha256.clone())),
    });
    let files = PackageFiles {
        directory: DIRECTORY,
        sources: taken.values().map(|(name, file)| (context_name(file), (*name).to_owned())).collect(),
        sha256: sha256.collect(),
        dependencies: taken.keys().filter(|name| !asked.contains(*name)).map(|name| (*name).to_owned()).collect(),
    };
    Ok((files, notes))
}

/// Name of a file in the build context.
fn context_name(file: &PackageFile) -> String {
    let package = &file.package;
    match file.form {
        // As apt names what it fetches: a colon would end the path in its own lists.
        Form::Deb => format!("{}_{}_{}.deb", package.name, package.version.replace(':', "%3a"), package.architecture),
        // As repositories name it, without the epoch.
        Form::Rpm { .. } => {
            let version = package.version.split_once(':').map_or(package.version.as_str(), |(_, version)| version);
            format!("{}-{version}.{}.rpm", package.name, package.architecture)
        }
    }
}

/// The files for the image's package manager and architecture by package, and a line for each of the others.
fn sort_out<'a>(offered: &'a OfferedFiles, facts: &ImageFacts) -> (BTreeMap<&'a str, Entry<'a>>, Vec<String>) {
    let (architecture, is_rpm) = (facts.image.architecture.as_str(), facts.packages.manager.is_rpm());
    let mut unusable: Vec<String> = offered.unusable.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let mut usable: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
    for (file_name, file) in &offered.packages {
        let package = &file.package;
        let is_version = |c: char| c.is_ascii_alphanumeric() || ".+~:-^_".contains(c);
        let reason = if is_rpm != file.form.is_rpm() {
            let has = if is_rpm { "rpm's" } else { "Debian's" };
            format!("it is {}, but the image's packages are {has}", file.form.title())
        } else if package.is_foreign(architecture) {
            format!("it is for {}, but the image is for {architecture}", package.architecture)
        } else if !is_package_name(&package.name) || !package.version.chars().all(is_version) {
            format!("{:?} {:?} is not a package name and version", package.name, package.version)
        } else if let Some((other, _)) = usable.get(package.name.as_str()) {
            format!("package {} is also in {other}: keep one of them", package.name)
        } else {
            usable.insert(&package.name, (file_name, file));
            continue;
        };
        unusable.push(format!("{file_name}: {reason}"));
    }
    (usable, unusable)
}

/// Takes what the taken packages depend on and the image lacks. Gives what is nowhere.
fn add_dependencies<'a>(
    facts: &ImageFacts,
    usable: &BTreeMap<&'a str, Entry<'a>>,
    taken: &mut BTreeMap<&'a str, Entry<'a>>,
    gone: &BTreeSet<String>,
) -> Vec<String> {
    loop {
        let staying = facts.packages.all_installed();
        let staying = staying.filter(|p| !gone.contains(&p.name) && !taken.contains_key(p.name.as_str())).cloned();
        let coming = taken.values().map(|(_, file)| file.package.clone());
        let after = PackageFacts { list: staying.chain(coming).collect(), ..PackageFacts::default() };
        let lacks = match facts.packages.manager.is_rpm() {
            true => rpm_lacks(facts, usable, taken, &after),
            false => deb_lacks(facts, usable, taken, &after),
        };
        match lacks {
            Lacks::Found((file_name, file)) => taken.insert(&file.package.name, (file_name, file)),
            Lacks::Missing(missing) => return missing,
        };
    }
}

/// What the taken packages depend on beyond what there is `after` the swap.
enum Lacks<'a> {
    /// A file that has some of it.
    Found(Entry<'a>),
    /// The missing packages, one line each.
    Missing(Vec<String>),
}

fn deb_lacks<'a>(
    facts: &ImageFacts,
    usable: &BTreeMap<&'a str, Entry<'a>>,
    taken: &BTreeMap<&'a str, Entry<'a>>,
    after: &PackageFacts,
) -> Lacks<'a> {
    let candidates = Candidates::of(after);
    let mut missing = Vec::new();
    for (_, file) in taken.values() {
        for group in parse_depends(&file.package.depends) {
            if group.iter().any(|dependency| candidates.meet(&file.package, dependency)) {
                continue;
            }
            let helps = |(_, other): &&Entry<'a>| {
                let alone = PackageFacts { list: vec![other.package.clone()], ..PackageFacts::default() };
                group.iter().any(|dependency| Candidates::of(&alone).meet(&file.package, dependency))
            };
            if let Some(entry) = free(usable, taken).find(helps) {
                return Lacks::Found(*entry);
            }
            let words: Vec<String> = group.iter().map(ToString::to_string).collect();
            let has = group.iter().find_map(|dependency| facts.packages.installed(dependency.name));
            missing.push(missing_line(&words.join(" or "), has, file));
        }
    }
    Lacks::Missing(missing)
}

/// The rpm counterpart. A path that only the image could have is left to the build: facts hold no lists of files.
fn rpm_lacks<'a>(
    facts: &ImageFacts,
    usable: &BTreeMap<&'a str, Entry<'a>>,
    taken: &BTreeMap<&'a str, Entry<'a>>,
    after: &PackageFacts,
) -> Lacks<'a> {
    let provided = Provided::by(after);
    let has_path = |file: &PackageFile, requirement: &str| {
        let path = requirement.strip_prefix('/');
        path.is_some_and(|path| file.files.iter().flatten().any(|file| file == path))
    };
    let mut missing = Vec::new();
    for (_, file) in taken.values() {
        for requirement in split_relations(&file.package.depends) {
            // What cannot be told is left to the build, too.
            if provided.meets(requirement) != Some(false)
                || taken.values().any(|(_, other)| has_path(other, requirement))
            {
                continue;
            }
            let helps = |(_, other): &&Entry<'a>| {
                // A condition may hold of a single package only since it lacks the others.
                let beside = if requirement.starts_with('(') { after.list.as_slice() } else { &[] };
                let list = beside.iter().chain([&other.package]).cloned().collect();
                let with = PackageFacts { list, ..PackageFacts::default() };
                has_path(other, requirement) || Provided::by(&with).meets(requirement) == Some(true)
            };
            if let Some(entry) = free(usable, taken).find(helps) {
                return Lacks::Found(*entry);
            }
            if !requirement.starts_with('/') {
                // `libibverbs(x86-64) = 44.1-2`: the architecture is part of the name.
                let name = requirement.split([' ', '(']).next().unwrap_or_default();
                missing.push(missing_line(requirement, facts.packages.installed(name), file));
            }
        }
    }
    Lacks::Missing(missing)
}

/// Files that are not taken yet.
fn free<'a, 'b>(
    usable: &'b BTreeMap<&'a str, Entry<'a>>,
    taken: &'b BTreeMap<&'a str, Entry<'a>>,
) -> impl Iterator<Item = &'b Entry<'a>> {
    usable.iter().filter(|(name, _)| !taken.contains_key(*name)).map(|(_, entry)| entry)
}

fn missing_line(what: &str, has: Option<&Package>, file: &PackageFile) -> String {
    let has = has.map_or("is not in the image".to_owned(), |package| {
        format!("the image has {} {}", package.name, package.version)
    });
    format!("{what} for {} ({has})", file.package.name)
}

/// Whether the files belong together.
fn check_set(taken: &BTreeMap<&str, Entry<'_>>, wanted: &Wanted<'_>) -> Result<(), OfflineError> {
    let driver = wanted.driver;
    let shown = |file: &PackageFile| format!("{} {}", file.package.name, file.package.version);
    let family = || taken.values().map(|(_, file)| file).filter(|file| is_of_the_userspace(file));
    if let Some(first) = family().next()
        && let Some(other) = family().find(|file| file.package.version != first.package.version)
    {
        return Err(OfflineError::Mixed(shown(first), shown(other)));
    }
    if let Some(file) = family().find(|file| file.package.is_mlnx_build() && !wanted.takes_mellanox) {
        return Err(OfflineError::Mellanox(shown(file), driver));
    }
    let provider = format!("/lib{driver}-rdmav");
    // rpm's are in libibverbs.
    let bringing = taken.get("ibverbs-providers").or_else(|| taken.get("libibverbs"));
    if let Some((file_name, file)) = bringing
        && file.files.as_ref().is_some_and(|files| !files.iter().any(|path| path.contains(&provider)))
        // A link has no checksum: its target, the library, is beside the directory.
        && file.files.as_ref().is_some_and(|files| !files.iter().any(|path| path.contains(&format!("/lib{driver}.so"))))
    {
        return Err(OfflineError::NoProvider { file: (*file_name).to_owned(), driver });
    }
    Ok(())
}

fn notes_on(
    usable: &BTreeMap<&str, Entry<'_>>,
    taken: &BTreeMap<&str, Entry<'_>>,
    unusable: Vec<String>,
) -> Vec<String> {
    let mut notes: Vec<String> = unusable.into_iter().map(|line| format!("not used: {line}")).collect();
    let unused = usable.iter().filter(|(name, _)| !taken.contains_key(*name)).map(|(_, (file, _))| *file);
    notes.extend(unused.map(|file| format!("not used: {file}: nothing needs it")));
    notes
}
