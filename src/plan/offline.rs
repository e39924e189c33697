//! Package files that the user has → those that a swap needs, without any repository.
//!
//! Pure: the files were read before. Nothing is fetched in such a build, so the whole set is put together here: the fabric's
//! packages, counterparts of installed ones, and what these depend on and the image lacks.

use super::{Companion, PlanError, is_package_name, is_rdma_core};
use crate::fabric::{Fabric, PackageFiles, Userspace};
use crate::facts::{ImageFacts, PackageFacts};
use crate::inspect::packages::{Candidates, parse_depends};
use crate::package_file::PackageFile;
use std::collections::{BTreeMap, BTreeSet};

/// A directory of package files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedFiles {
    /// Name of the file → what it is.
    pub packages: BTreeMap<String, PackageFile>,
    /// Name of the file → why it cannot be used.
    pub unusable: BTreeMap<String, String>,
}

impl OfferedFiles {
    /// Whose build the files are, as far as the swap asks.
    pub fn userspace(&self, fabric: &Fabric) -> Userspace {
        let is_mlnx = |file: &PackageFile| is_rdma_core(&file.package) && file.package.is_mlnx_build();
        match fabric.is_mellanox {
            false => Userspace::Vendor,
            true if self.packages.values().any(is_mlnx) => Userspace::Doca,
            true => Userspace::Inbox,
        }
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

/// The files that a swap takes.
#[derive(Debug, PartialEq, Eq)]
pub struct ChosenFiles {
    pub files: PackageFiles,
    /// Name in the build context → name in the user's directory.
    pub sources: BTreeMap<String, String>,
    /// Packages that are taken only since others depend on them.
    pub dependencies: Vec<String>,
    /// Names of the packages that are taken.
    pub taken: BTreeSet<String>,
    pub notes: Vec<String>,
}

/// Directory in the build context.
const DIRECTORY: &str = "packages";

/// A file of the user's directory that can be used.
type Entry<'a> = (&'a str, &'a PackageFile);

/// Chooses.
///
/// # Errors
/// A package or a dependency is missing, or the files are of different builds.
pub fn choose_files(facts: &ImageFacts, offered: &OfferedFiles, wanted: &Wanted<'_>) -> Result<ChosenFiles, PlanError> {
    let (usable, unusable) = sort_out(offered, &facts.image.architecture);
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
        if !take(name) && facts.packages.installed(name).is_none() {
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
        return Err(PlanError::Offline { missing, unusable });
    }
    check_set(&taken, wanted)?;

    let notes = notes_on(&usable, &taken, unusable);
    let sources: BTreeMap<String, String> = taken
        .values()
        .map(|(file_name, file)| {
            let package = &file.package;
            // As apt names what it fetches: a colon would end the path in its own lists.
            let version = package.version.replace(':', "%3a");
            (format!("{}_{version}_{}.deb", package.name, package.architecture), (*file_name).to_owned())
        })
        .collect();
    Ok(ChosenFiles {
        files: PackageFiles { directory: DIRECTORY, names: sources.keys().cloned().collect() },
        sources,
        dependencies: taken.keys().filter(|name| !asked.contains(*name)).map(|name| (*name).to_owned()).collect(),
        taken: taken.keys().map(|name| (*name).to_owned()).collect(),
        notes,
    })
}

/// The files for the image's architecture by package, and a line for each of the others.
fn sort_out<'a>(offered: &'a OfferedFiles, architecture: &str) -> (BTreeMap<&'a str, Entry<'a>>, Vec<String>) {
    let mut unusable: Vec<String> = offered.unusable.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let mut usable: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
    for (file_name, file) in &offered.packages {
        let package = &file.package;
        let is_version = |c: char| c.is_ascii_alphanumeric() || ".+~:-".contains(c);
        let reason = if package.is_foreign(architecture) {
            format!("it is for {}, and the image is for {architecture}", package.architecture)
        } else if !is_package_name(&package.name) || !package.version.chars().all(is_version) {
            format!("{:?} {:?} is no package name and version", package.name, package.version)
        } else if let Some((other, _)) = usable.get(package.name.as_str()) {
            format!("package {} is in {other}, too: leave one of them", package.name)
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
        let candidates = Candidates::of(&after);
        let mut found = None;
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
                match usable.values().find(helps) {
                    Some(entry) => found = Some(*entry),
                    None => {
                        let words: Vec<String> = group.iter().map(ToString::to_string).collect();
                        let has = group.iter().find_map(|dependency| facts.packages.installed(dependency.name));
                        let has = has.map_or("is not in the image".to_owned(), |package| {
                            format!("the image has {} {}", package.name, package.version)
                        });
                        missing.push(format!("{} for {} ({has})", words.join(" or "), file.package.name));
                    }
                }
            }
        }
        match found {
            Some((file_name, file)) => {
                taken.insert(&file.package.name, (file_name, file));
            }
            None => return missing,
        }
    }
}

/// Whether the files belong together.
fn check_set(taken: &BTreeMap<&str, Entry<'_>>, wanted: &Wanted<'_>) -> Result<(), PlanError> {
    let driver = wanted.driver;
    let shown = |file: &PackageFile| format!("{} {}", file.package.name, file.package.version);
    let family = || taken.values().map(|(_, file)| file).filter(|file| is_rdma_core(&file.package));
    if let Some(first) = family().next()
        && let Some(other) = family().find(|file| file.package.version != first.package.version)
    {
        return Err(PlanError::OfflineMixed(shown(first), shown(other)));
    }
    if let Some(file) = family().find(|file| file.package.is_mlnx_build() && !wanted.takes_mellanox) {
        return Err(PlanError::OfflineMellanox(shown(file), driver));
    }
    let provider = format!("/lib{driver}-rdmav");
    if let Some((file_name, file)) = taken.get("ibverbs-providers")
        && file.files.as_ref().is_some_and(|files| !files.iter().any(|path| path.contains(&provider)))
        // A link has no checksum: its target, the library, is beside the directory.
        && file.files.as_ref().is_some_and(|files| !files.iter().any(|path| path.contains(&format!("/lib{driver}.so"))))
    {
        return Err(PlanError::OfflineProvider { file: (*file_name).to_owned(), driver: driver.to_owned() });
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
