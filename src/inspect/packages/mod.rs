//! Package databases → [`PackageFacts`], and which package owns a path.
//!
//! `dpkg` reads `status` and `status.d`, `rpm` the three formats of rpm. An unreadable database never looks like "no
//! packages": the facts say that it is unreadable, and why.

mod dpkg;
pub mod rpm;

use super::InspectError;
use crate::facts::{Package, PackageFacts, PackageManager};
use crate::image::layer::MAX_DATABASE_BYTES;
use crate::image::rootfs::{Kept, Node, RootFs};
pub use dpkg::{Candidates, Dependency, parse_depends, parse_dpkg_status};
pub use rpm::requirements::{Provided, split_relations};
use rpm::{Database, Format};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Called with package, directory (with a slash at its end) and name of a file.
pub type Visitor<'a> = &'a mut dyn FnMut(&str, &str, &str);

/// Places of an rpm database, in the order in which rpm's own defaults moved.
const RPM_DIRECTORIES: [&str; 3] = ["var/lib/rpm", "usr/lib/sysimage/rpm", "usr/share/rpm"];

/// Whether the content of a path is needed here.
pub fn wants(path: &str) -> bool {
    dpkg::wants(path)
}

/// Whether a path is a package database, which may be larger than other files.
pub fn wants_database(path: &str) -> bool {
    let in_directory = |directory: &&str| path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    RPM_DIRECTORIES.iter().find_map(in_directory).is_some_and(|name| {
        Format::ALL.iter().any(|format| format.file_name() == name)
            || rpm::SQLITE_COMPANIONS.iter().any(|end| name.strip_suffix(end) == Some(Format::Sqlite.file_name()))
    })
}

/// Reads the package database. An empty dpkg database beside an rpm one is a tool that was installed, and the other way
/// round: the one with packages counts.
///
/// # Errors
/// A dpkg database exists and cannot be read. For an rpm database the facts say so.
pub fn load_packages(fs: &RootFs, architecture: &str) -> Result<PackageFacts, InspectError> {
    let status = dpkg::load_status(fs)?;
    let status_d = dpkg::load_status_d(fs)?;
    let mut facts = match (status, status_d) {
        (Some(list), _) if !list.is_empty() => {
            let foreign_architectures = dpkg::load_foreign_architectures(fs);
            PackageFacts { manager: PackageManager::Dpkg, list, foreign_architectures, ..PackageFacts::default() }
        }
        (_, Some(list)) if !list.is_empty() => {
            PackageFacts { manager: PackageManager::DpkgStatusD, list, ..PackageFacts::default() }
        }
        (status, status_d) => match load_rpm(fs) {
            Some(facts) => facts,
            None => PackageFacts {
                manager: match (status, status_d) {
                    (Some(_), _) => PackageManager::Dpkg,
                    (None, Some(_)) => PackageManager::DpkgStatusD,
                    (None, None) => PackageManager::None,
                },
                ..PackageFacts::default()
            },
        },
    };
    let foreign = |package: &Package| package.is_foreign(architecture);
    facts.list.sort_by(|a, b| {
        (&a.name, foreign(a), &a.architecture, &a.version).cmp(&(&b.name, foreign(b), &b.architecture, &b.version))
    });
    Ok(facts)
}

/// One rpm database in the image.
struct Located {
    /// With every link resolved, without a leading slash.
    path: String,
    format: Format,
}

impl Located {
    /// Every rpm database, each once: one of the usual places is often a link to another.
    fn all(fs: &RootFs) -> Vec<Located> {
        let mut found: Vec<Located> = Vec::new();
        for format in Format::ALL {
            for directory in RPM_DIRECTORIES {
                let Some(path) = fs.real_path(&format!("{directory}/{}", format.file_name())) else { continue };
                // An empty file was left by a tool that only queried the database.
                let is_file = matches!(fs.get(&path), Some(Node::File { size: 1.., .. }));
                if is_file && !found.iter().any(|other| other.path == path) {
                    found.push(Located { path, format });
                }
            }
        }
        found
    }

    fn read(&self, fs: &RootFs) -> Result<Database, String> {
        let companion = |end: &str| match self.format {
            Format::Sqlite => content(fs, &format!("{}{end}", self.path)),
            Format::Ndb | Format::Bdb => Ok(None),
        };
        let [wal, journal] = rpm::SQLITE_COMPANIONS.map(companion);
        Ok(Database {
            format: self.format,
            content: content(fs, &self.path)?.unwrap_or_default(),
            wal: wal?.unwrap_or_default(),
            journal: journal?.unwrap_or_default(),
        })
    }

    fn packages(&self, fs: &RootFs) -> Result<Vec<Package>, String> {
        let database = self.read(fs)?;
        let mut list = database.packages().map_err(|error| error.to_string())?;
        add_required_files(fs, &database, &mut list).map_err(|error| error.to_string())?;
        Ok(list)
    }
}

/// The content of a database file. `None`: the file does not exist.
fn content(fs: &RootFs, path: &str) -> Result<Option<Vec<u8>>, String> {
    match fs.get(path) {
        None => Ok(None),
        Some(Node::File { size: 0, .. }) => Ok(None),
        Some(Node::File { kept: Kept::Packed { .. }, .. }) => {
            fs.unpack(path).map(Some).ok_or_else(|| "its content was lost".to_owned())
        }
        Some(Node::File { kept: Kept::TooLarge, .. }) => {
            Err(format!("/{path} is larger than the limit of {}", crate::units::Bytes(MAX_DATABASE_BYTES)))
        }
        Some(_) => Err(format!("a link leads to /{path}, which is not a known place for a database")),
    }
}

/// Reads the rpm database. `None`: the image has none.
fn load_rpm(fs: &RootFs) -> Option<PackageFacts> {
    let located = Located::all(fs);
    let unreadable = |problem: String| {
        let problem = Some(problem);
        PackageFacts { manager: PackageManager::Unreadable, problem, ..PackageFacts::default() }
    };
    if located.is_empty() {
        return empty_file(fs).map(|path| unreadable(format!("rpm database /{path}: the file is empty")));
    }
    let mut chosen: Option<(&Located, Vec<Package>)> = None;
    for database in &located {
        let list = match database.packages(fs) {
            Ok(list) => list,
            Err(problem) => return Some(unreadable(format!("rpm database /{}: {problem}", database.path))),
        };
        match &chosen {
            Some((_, known)) if list.is_empty() || *known == list => {}
            // Which one rpm would use depends on macros that are not read.
            Some((other, known)) if !known.is_empty() => {
                return Some(unreadable(format!(
                    "two rpm databases differ: /{} with {} packages and /{} with {}",
                    other.path,
                    known.len(),
                    database.path,
                    list.len()
                )));
            }
            _ => chosen = Some((database, list)),
        }
    }
    chosen.map(|(database, list)| PackageFacts { manager: database.format.manager(), list, ..PackageFacts::default() })
}

/// An empty database file, if there is nothing better.
fn empty_file(fs: &RootFs) -> Option<String> {
    let names =
        RPM_DIRECTORIES.iter().flat_map(|dir| Format::ALL.map(|format| format!("{dir}/{}", format.file_name())));
    names.filter_map(|path| fs.real_path(&path)).find(|path| matches!(fs.get(path), Some(Node::File { .. })))
}

/// Adds to a package's provisions those of its files that some package requires by path: facts hold no file lists.
fn add_required_files(fs: &RootFs, database: &Database, list: &mut [Package]) -> Result<(), rpm::RpmError> {
    let mut wanted: HashMap<String, BTreeSet<String>> = HashMap::new();
    for word in list.iter().flat_map(|package| package.depends.split([' ', ',', '(', ')'])) {
        if let Some((directory, name)) = word.rsplit_once('/').filter(|_| word.starts_with('/')) {
            wanted.entry(canonical(fs, directory, name)).or_default().insert(word.to_owned());
        }
    }
    let names: HashSet<&str> = wanted.keys().filter_map(|path| path.rsplit('/').next()).collect();
    let mut provided: HashMap<String, BTreeSet<String>> = HashMap::new();
    database.visit_files(&mut |package, directory, name| {
        if names.contains(name)
            && let Some(paths) = wanted.get(&canonical(fs, directory, name))
        {
            provided.entry(package.to_owned()).or_default().extend(paths.iter().cloned());
        }
    })?;
    for package in list {
        for path in provided.remove(&package.name).unwrap_or_default() {
            if !package.provides.is_empty() {
                package.provides.push_str(", ");
            }
            package.provides.push_str(&path);
        }
    }
    Ok(())
}

/// A path without leading slash, the links of its directory resolved: `bin/sh` and `usr/bin/sh` are often one.
fn canonical(fs: &RootFs, directory: &str, name: &str) -> String {
    let directory = directory.trim_matches('/');
    match fs.real_path(directory).as_deref().unwrap_or(directory) {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    }
}

/// Calls `visit` with every file of every installed package.
pub fn for_each_owned(fs: &RootFs, packages: &PackageFacts, visit: Visitor<'_>) {
    if !packages.manager.is_rpm() {
        return dpkg::for_each_owned(fs, packages, visit);
    }
    for located in Located::all(fs).iter().filter(|located| located.format.manager() == packages.manager) {
        // The database was read before, so the facts already record any problem with it.
        if let Ok(database) = located.read(fs) {
            let read = database.visit_files(visit);
            debug_assert!(read.is_ok(), "{read:?}");
        }
    }
}

/// Installed packages that own something below a directory, sorted.
pub fn owners_below(fs: &RootFs, packages: &PackageFacts, directory: &str) -> Vec<String> {
    let mut owners = BTreeSet::new();
    let below = format!("{directory}/");
    for_each_owned(fs, packages, &mut |package, directory, _| {
        if directory.trim_start_matches('/').starts_with(&below) && !owners.contains(package) {
            owners.insert(package.to_owned());
        }
    });
    owners.into_iter().collect()
}

/// The installed package that owns each of a few paths.
pub struct Owners {
    /// Path without leading slash → package.
    owners: BTreeMap<String, String>,
}

impl Owners {
    /// Looks the paths up in the file lists. On a merged-usr system a list may say `/lib/x` for what is `/usr/lib/x`.
    pub fn find(fs: &RootFs, packages: &PackageFacts, paths: BTreeSet<String>) -> Owners {
        let mut owners = BTreeMap::new();
        let names: HashSet<&str> = paths.iter().filter_map(|path| path.rsplit('/').next()).collect();
        for_each_owned(fs, packages, &mut |package, directory, name| {
            if !names.contains(name) {
                return;
            }
            let listed = format!("{}{name}", directory.trim_start_matches('/'));
            let real = canonical(fs, directory, name);
            if let Some(path) = [listed, real].into_iter().find(|path| paths.contains(path)) {
                owners.entry(path).or_insert_with(|| package.to_owned());
            }
        });
        Owners { owners }
    }

    /// The owner of a path without leading slash.
    pub fn of(&self, path: &str) -> Option<String> {
        self.owners.get(path).cloned()
    }
}
