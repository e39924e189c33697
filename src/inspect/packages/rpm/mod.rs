//! rpm databases: bytes → packages, and which package owns a file.
//!
//! `sqlite`, `ndb` and `bdb` each find the headers in one of rpm's formats, `header` reads a header, `requirements` compares
//! versions and judges dependencies. All of it works on bytes in memory, so that a database out of an image is never
//! written to disk, opened by a C library, or queried; every read is checked, each part of a file is read once, and what is
//! kept is bounded. A hostile database ends in an error.

mod bdb;
mod bytes;
pub mod header;
mod ndb;
pub mod requirements;
mod sqlite;

use crate::facts::{Package, PackageManager, PackageState};
use header::{Header, Tag};
use std::borrow::Cow;

/// The callback for each header.
type Visit<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), RpmError>;

// For comparison with the limits: the CBL-Mariner 2.0 base image has 129 packages with 97 kB of relations, 3 281 of them,
// and 7 269 files (measured). They leave room for a hundred times as many packages, and more.

/// Most packages of a database.
const MAX_PACKAGES: usize = 100_000;
/// Most text kept of all packages together, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Most requirements and provisions of all packages together.
const MAX_RELATIONS: usize = 2_000_000;
/// Most files of all packages together.
const MAX_FILES: usize = 16_000_000;
/// rpm's longest path (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// Bits of a dependency's flags (rpm's `rpmsenseFlags_e`).
const SENSE_LESS: u32 = 1 << 1;
const SENSE_GREATER: u32 = 1 << 2;
const SENSE_EQUAL: u32 = 1 << 3;
const SENSE_MISSING_OK: u32 = 1 << 19;
const SENSE_RPMLIB: u32 = 1 << 24;

/// A file that is not there, because the user left out documentation or another architecture's (rpm's `rpmfileState_e`:
/// replaced, not installed).
const NOT_INSTALLED_STATES: [u8; 2] = [1, 2];

/// Why an rpm database cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpmError {
    #[error("it does not start like a {0} database")]
    NotADatabase(&'static str),
    #[error("it is cut off")]
    Truncated,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it is {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("it is damaged: a package's header {0}")]
    Header(&'static str),
    #[error("it has more than {MAX_PACKAGES} packages")]
    TooManyPackages,
    #[error("its packages have more than {MAX_FILES} files")]
    TooManyFiles,
    #[error("its packages have more than {MAX_RELATIONS} requirements and provisions")]
    TooManyRelations,
    #[error("its packages have more text than the limit of {limit}", limit = crate::units::Bytes(MAX_TEXT_BYTES as u64))]
    TooMuchText,
}

/// The three formats, with the name of the file that holds the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Sqlite,
    Ndb,
    Bdb,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Sqlite, Format::Ndb, Format::Bdb];

    pub fn file_name(self) -> &'static str {
        match self {
            Format::Sqlite => "rpmdb.sqlite",
            Format::Ndb => "Packages.db",
            Format::Bdb => "Packages",
        }
    }

    pub fn manager(self) -> PackageManager {
        match self {
            Format::Sqlite => PackageManager::RpmSqlite,
            Format::Ndb => PackageManager::RpmNdb,
            Format::Bdb => PackageManager::RpmBdb,
        }
    }
}

/// Suffixes that SQLite appends to a database's name: its write-ahead log and its rollback journal.
pub const SQLITE_COMPANIONS: [&str; 2] = ["-wal", "-journal"];

/// A database in memory.
#[derive(Debug, Clone)]
pub struct Database {
    pub format: Format,
    pub content: Vec<u8>,
    /// Only for SQLite; empty if the log does not exist.
    pub wal: Vec<u8>,
    pub journal: Vec<u8>,
}

impl Database {
    /// All packages, in the order of the database.
    ///
    /// # Errors
    /// The database is damaged or exceeds a limit. What was read until then is dropped: half a list would mislead.
    pub fn packages(&self) -> Result<Vec<Package>, RpmError> {
        let mut packages = Vec::new();
        let mut left = Left { text_bytes: MAX_TEXT_BYTES, relations: MAX_RELATIONS };
        self.visit(&mut |header| {
            if packages.len() >= MAX_PACKAGES {
                return Err(RpmError::TooManyPackages);
            }
            packages.push(read_package(header, &mut left)?);
            Ok(())
        })?;
        Ok(packages)
    }

    /// Calls `visit` with package, directory (with a slash at its end) and name of every file that a package has installed.
    ///
    /// # Errors
    /// Fails like [`Database::packages`].
    pub fn visit_files(&self, visit: &mut dyn FnMut(&str, &str, &str)) -> Result<(), RpmError> {
        let mut left = MAX_FILES;
        self.visit(&mut |header| {
            let name = required(header, Tag::Name)?;
            visit_files_of(header, &mut |directory, file| {
                left = left.checked_sub(1).ok_or(RpmError::TooManyFiles)?;
                visit(&name, directory, file);
                Ok(())
            })
        })
    }

    fn visit(&self, visit: &mut dyn FnMut(&Header<'_>) -> Result<(), RpmError>) -> Result<(), RpmError> {
        let visit: Visit<'_> = &mut |blob| visit(&Header::parse(blob)?);
        match self.format {
            Format::Sqlite => {
                let files = sqlite::Files { database: &self.content, wal: &self.wal, journal: &self.journal };
                sqlite::visit_headers(&files, visit)
            }
            Format::Ndb => ndb::visit_headers(&self.content, visit),
            Format::Bdb => bdb::visit_headers(&self.content, visit),
        }
    }
}

/// The package of a single header, and its files without leading slashes, as a package file has them.
///
/// # Errors
/// The header is damaged or exceeds a limit.
pub fn read_package_header(header: &Header<'_>) -> Result<(Package, Vec<String>), RpmError> {
    let mut left = Left { text_bytes: MAX_TEXT_BYTES, relations: MAX_RELATIONS };
    let package = read_package(header, &mut left)?;
    let mut files = Vec::new();
    visit_files_of(header, &mut |directory, name| {
        left.take_text(directory.len() + name.len())?;
        files.push(format!("{}{name}", directory.trim_start_matches('/')));
        Ok(())
    })?;
    Ok((package, files))
}

/// How much of a database may still be kept.
struct Left {
    text_bytes: usize,
    relations: usize,
}

impl Left {
    fn take_text(&mut self, bytes: usize) -> Result<(), RpmError> {
        self.text_bytes = self.text_bytes.checked_sub(bytes).ok_or(RpmError::TooMuchText)?;
        Ok(())
    }
}

fn required<'a>(header: &Header<'a>, tag: Tag) -> Result<Cow<'a, str>, RpmError> {
    header.text(tag)?.filter(|text| !text.is_empty()).ok_or(RpmError::Header(match tag {
        Tag::Name => "has no name",
        Tag::Version => "has no version",
        _ => "has no release",
    }))
}

fn read_package(header: &Header<'_>, left: &mut Left) -> Result<Package, RpmError> {
    let name = required(header, Tag::Name)?.into_owned();
    let (version, release) = (required(header, Tag::Version)?, required(header, Tag::Release)?);
    let version = match header.numbers(Tag::Epoch)?.next() {
        Some(epoch) => format!("{epoch}:{version}-{release}"),
        None => format!("{version}-{release}"),
    };
    let package = Package {
        architecture: header.text(Tag::Arch)?.unwrap_or_default().into_owned(),
        state: PackageState::Installed,
        held: false,
        source: header
            .text(Tag::SourceRpm)?
            .and_then(|file| source_name(&file).map(str::to_owned))
            .filter(|source| *source != name),
        depends: relations(header, [Tag::RequireName, Tag::RequireFlags, Tag::RequireVersion], left)?,
        provides: relations(header, [Tag::ProvideName, Tag::ProvideFlags, Tag::ProvideVersion], left)?,
        multi_arch: String::new(),
        name,
        version,
    };
    let own = package.name.len() + package.version.len() + package.architecture.len();
    left.take_text(own)?;
    Ok(package)
}

/// `rdma-core` of `rdma-core-44.0-2.el8.src.rpm`.
fn source_name(file: &str) -> Option<&str> {
    let (name_version, _release) = file.rsplit_once('-')?;
    name_version.rsplit_once('-').map(|(name, _version)| name)
}

/// Dependencies as `rpm -q --requires` prints them, `, ` between them.
fn relations(header: &Header<'_>, tags: [Tag; 3], left: &mut Left) -> Result<String, RpmError> {
    let [names, flags, versions] = tags;
    let mut flags = header.numbers(flags)?;
    let mut versions = header.texts(versions)?;
    let mut text = String::new();
    let mut last = String::new();
    for name in header.texts(names)? {
        let (name, flags, version) =
            (name?, flags.next().unwrap_or(0), versions.next().transpose()?.unwrap_or_default());
        // rpm met its own when it installed the package; the others may be missing.
        if name.is_empty() || flags & (SENSE_RPMLIB | SENSE_MISSING_OK) != 0 {
            continue;
        }
        let operator = operator(flags);
        let relation = match operator {
            Some(operator) if !version.is_empty() => format!("{name} {operator} {version}"),
            _ => name.into_owned(),
        };
        // A dependency is listed once for each phase (`pre`, `post`) that needs it.
        if relation == last {
            continue;
        }
        left.take_text(relation.len() + 2)?;
        left.relations = left.relations.checked_sub(1).ok_or(RpmError::TooManyRelations)?;
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&relation);
        last = relation;
    }
    Ok(text)
}

fn operator(flags: u32) -> Option<&'static str> {
    let has = |flag| flags & flag != 0;
    match (has(SENSE_LESS), has(SENSE_GREATER), has(SENSE_EQUAL)) {
        (true, false, false) => Some("<"),
        (true, false, true) => Some("<="),
        (false, false, true) => Some("="),
        (false, true, true) => Some(">="),
        (false, true, false) => Some(">"),
        _ => None,
    }
}

/// Directory and name of every file, without those skipped at installation.
fn visit_files_of(
    header: &Header<'_>,
    visit: &mut dyn FnMut(&str, &str) -> Result<(), RpmError>,
) -> Result<(), RpmError> {
    let states = header.bytes(Tag::FileStates)?;
    let is_installed = |at: usize| !states.get(at).is_some_and(|state| NOT_INSTALLED_STATES.contains(state));
    let mut directories = Vec::new();
    for directory in header.texts(Tag::DirNames)? {
        directories.push(directory?);
    }
    let indexes = header.numbers(Tag::DirIndexes)?;
    for (at, (name, index)) in header.texts(Tag::BaseNames)?.zip(indexes).enumerate() {
        let directory = directories.get(index as usize).ok_or(RpmError::Header("has a file in no directory"))?;
        if directory.len() > MAX_PATH_BYTES {
            return Err(RpmError::Header("has an impossible path"));
        }
        if is_installed(at) {
            visit(directory, &name?)?;
        }
    }
    for (at, path) in header.texts(Tag::OldFileNames)?.enumerate() {
        let path = path?;
        let (directory, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
        if is_installed(at) {
            visit(directory, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_source_packages() {
        assert_eq!(source_name("rdma-core-44.0-2.el8.src.rpm"), Some("rdma-core"));
        assert_eq!(source_name("rdma-core-2307mlnx47-1.2310119.src.rpm"), Some("rdma-core"));
        // Signing keys are packages with this in place of a source.
        assert_eq!(source_name("(none)"), None);
    }

    #[test]
    fn operators() {
        let text = [2, 4, 8, 10, 12, 0, 14].map(|flags| operator(flags).unwrap_or("-"));
        assert_eq!(text, ["<", ">", "=", "<=", ">=", "-", "-"]);
    }
}
