//! Package databases → [`PackageFacts`], and which package owns a path.
//!
//! dpkg is read from `status` and `status.d`. An rpm database is only noticed: "not read" must never look like "no
//! packages".

use super::InspectError;
use crate::facts::{Package, PackageFacts, PackageManager, PackageState};
use crate::image::rootfs::RootFs;
use debversion::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const STATUS: &str = "var/lib/dpkg/status";
const STATUS_D: &str = "var/lib/dpkg/status.d";
const INFO: &str = "var/lib/dpkg/info";

/// Places of an rpm database, in the order in which rpm's own defaults moved.
const RPM_DATABASES: [&str; 3] = ["var/lib/rpm", "usr/lib/sysimage/rpm", "usr/share/rpm"];
const RPM_FILES: [&str; 3] = ["rpmdb.sqlite", "Packages.db", "Packages"];

/// Whether the content of a path is needed here.
pub fn wants(path: &str) -> bool {
    path == STATUS
        || path.strip_prefix("var/lib/dpkg/status.d/").is_some_and(|name| !name.contains('/'))
        || path.strip_prefix("var/lib/dpkg/info/").is_some_and(|name| name.ends_with(".list"))
}

/// Reads the package database.
///
/// # Errors
/// A database that is there and cannot be read.
pub fn load_packages(fs: &RootFs, architecture: &str) -> Result<PackageFacts, InspectError> {
    let (manager, mut list) = if fs.exists(STATUS) {
        (PackageManager::Dpkg, parse_database(fs, STATUS)?)
    } else if !fs.list(STATUS_D).is_empty() {
        let mut list = Vec::new();
        for name in fs.list(STATUS_D).into_iter().filter(|name| !name.ends_with(".md5sums")) {
            list.extend(parse_database(fs, &format!("{STATUS_D}/{name}"))?);
        }
        (PackageManager::DpkgStatusD, list)
    } else if RPM_DATABASES.iter().any(|dir| RPM_FILES.iter().any(|file| fs.exists(&format!("{dir}/{file}")))) {
        (PackageManager::RpmUnread, Vec::new())
    } else {
        (PackageManager::None, Vec::new())
    };
    list.sort_by(|a, b| {
        let foreign = |package: &Package| package.architecture != architecture && package.architecture != "all";
        (&a.name, foreign(a), &a.architecture).cmp(&(&b.name, foreign(b), &b.architecture))
    });
    Ok(PackageFacts { manager, list })
}

fn parse_database(fs: &RootFs, path: &str) -> Result<Vec<Package>, InspectError> {
    let text = fs.text(path).ok_or_else(|| InspectError::TooLarge(path.to_owned()))?;
    parse_dpkg_status(&text).map_err(|problem| InspectError::Database { path: path.to_owned(), problem })
}

/// Reads dpkg's status format. A paragraph without `Status`, as in `status.d`, counts as installed.
pub fn parse_dpkg_status(text: &str) -> Result<Vec<Package>, String> {
    let document: deb822_fast::Deb822 = text.parse().map_err(|error| format!("{error}"))?;
    document
        .iter()
        .filter(|paragraph| paragraph.get("Package").is_some())
        .map(|paragraph| {
            let field = |name: &str| paragraph.get(name).unwrap_or_default().trim().to_owned();
            let name = field("Package");
            let status = field("Status");
            let mut words = status.split_whitespace();
            let held = words.next() == Some("hold");
            let state = match words.nth(1) {
                None if status.is_empty() => PackageState::Installed,
                Some("installed") => PackageState::Installed,
                Some("config-files") => PackageState::ConfigFiles,
                Some("not-installed") => PackageState::NotInstalled,
                Some("half-installed" | "unpacked" | "half-configured" | "triggers-awaited" | "triggers-pending") => {
                    PackageState::Broken
                }
                _ => {
                    return Err(format!("package {name} has the status {status:?}, which dpkg does not define"));
                }
            };
            let depends: Vec<String> =
                ["Pre-Depends", "Depends"].iter().map(|name| field(name)).filter(|value| !value.is_empty()).collect();
            Ok(Package {
                version: field("Version"),
                architecture: field("Architecture"),
                state,
                held,
                // `Source: rdma-core (44.0-2)` carries a version when it differs.
                source: Some(field("Source"))
                    .and_then(|source| source.split_whitespace().next().map(str::to_owned))
                    .filter(|source| *source != name),
                depends: depends.join(", "),
                provides: field("Provides"),
                name,
            })
        })
        .collect()
}

/// One alternative of a dependency: `libibverbs1 (>= 44.0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency<'a> {
    pub name: &'a str,
    /// Operator (`=`, `>=`, `<<` …) and version.
    pub relation: Option<(&'a str, &'a str)>,
}

impl Dependency<'_> {
    /// Whether it names one exact version.
    pub fn is_exact(&self) -> bool {
        matches!(self.relation, Some(("=", _)))
    }

    fn allows(&self, version: &str) -> bool {
        let Some((operator, wanted)) = self.relation else {
            return true;
        };
        let (Ok(version), Ok(wanted)) = (version.parse::<Version>(), wanted.parse::<Version>()) else {
            return version == wanted;
        };
        match operator {
            "=" => version == wanted,
            ">=" | ">" => version >= wanted,
            "<=" | "<" => version <= wanted,
            ">>" => version > wanted,
            "<<" => version < wanted,
            _ => true,
        }
    }
}

impl fmt::Display for Dependency<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.relation {
            Some((operator, version)) => write!(f, "{} ({operator} {version})", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Splits a `Depends` or `Provides` field into its groups of alternatives.
pub fn parse_depends(field: &str) -> Vec<Vec<Dependency<'_>>> {
    let alternative = |text: &'_ str| -> Option<(usize, usize)> {
        let start = text.len() - text.trim_start().len();
        let length = text[start..].find([' ', '(', '[', '<', '\n']).unwrap_or(text.len() - start);
        (length > 0).then_some((start, start + length))
    };
    field
        .split(',')
        .map(|group| {
            group
                .split('|')
                .filter_map(|text| {
                    let (start, end) = alternative(text)?;
                    let name = &text[start..end];
                    let relation =
                        text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(relation, _)| {
                            let relation = relation.trim();
                            let at = relation.find(|c: char| !"<>=".contains(c)).unwrap_or(relation.len());
                            (&relation[..at], relation[at..].trim())
                        });
                    Some(Dependency { name: name.split(':').next().unwrap_or(name), relation })
                })
                .collect::<Vec<_>>()
        })
        .filter(|group| !group.is_empty())
        .collect()
}

/// Whether an installed package, or one that provides the name, meets a dependency (Debian Policy 7.5).
pub fn is_satisfied(packages: &PackageFacts, dependency: &Dependency<'_>) -> bool {
    packages.all_installed().any(|package| {
        (package.name == dependency.name && dependency.allows(&package.version))
            || parse_depends(&package.provides).iter().flatten().any(|provided| {
                // An unversioned Provides meets no versioned dependency.
                provided.name == dependency.name
                    && match provided.relation {
                        Some((_, version)) => dependency.allows(version),
                        None => dependency.relation.is_none(),
                    }
            })
    })
}

/// Calls `visit` with every installed package and each path (no leading slash) in its file list.
pub(super) fn for_each_owned(fs: &RootFs, packages: &PackageFacts, visit: &mut dyn FnMut(&str, &str)) {
    for list in fs.list(INFO) {
        let Some(package) = list.strip_suffix(".list") else {
            continue;
        };
        let package = package.split(':').next().unwrap_or(package);
        if packages.installed(package).is_none() {
            continue;
        }
        let Some(text) = fs.text(&format!("{INFO}/{list}")) else {
            continue;
        };
        text.lines().for_each(|line| visit(package, line.trim_start_matches('/')));
    }
}

/// Installed packages that own something below a directory, sorted.
pub fn owners_below(fs: &RootFs, packages: &PackageFacts, directory: &str) -> Vec<String> {
    let mut owners = BTreeSet::new();
    let below = format!("{directory}/");
    for_each_owned(fs, packages, &mut |package, path| {
        if path.starts_with(&below) {
            owners.insert(package.to_owned());
        }
    });
    owners.into_iter().collect()
}

/// Which installed package owns each of a few paths.
pub struct Owners {
    /// Path without leading slash → package.
    owners: BTreeMap<String, String>,
}

impl Owners {
    /// Looks the paths up in dpkg's file lists. On a merged-usr system a list may say `/lib/x` for what is `/usr/lib/x`.
    pub fn find(fs: &RootFs, packages: &PackageFacts, paths: BTreeSet<String>) -> Owners {
        let mut owners = BTreeMap::new();
        for_each_owned(fs, packages, &mut |package, path| {
            let wanted = [path.to_owned(), format!("usr/{path}")].into_iter().find(|path| paths.contains(path));
            if let Some(path) = wanted {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_holds_and_sources() {
        let text = "Package: libibverbs1\nStatus: hold ok installed\nVersion: 2307mlnx47-1.2310119\nArchitecture: amd64\n\
                    Source: rdma-core (2307mlnx47)\nPre-Depends: dpkg\nDepends: libc6 (>= 2.34),\n libnl-3-200\n\n\
                    Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                    Package: half\nStatus: install ok half-configured\nVersion: 1\n\n\
                    Package: distroless\nVersion: 1\n";
        let packages = parse_dpkg_status(text).unwrap();
        assert!(packages[0].held && packages[0].is_installed() && packages[0].is_mlnx_build());
        assert_eq!(packages[0].source.as_deref(), Some("rdma-core"));
        assert!(packages[0].depends.starts_with("dpkg, libc6 (>= 2.34),"));
        let states: Vec<PackageState> = packages.iter().map(|p| p.state).collect();
        use PackageState::*;
        assert_eq!(states, [Installed, ConfigFiles, Broken, Installed]);
    }

    #[test]
    fn an_undefined_status_is_not_taken_for_absence() {
        let error = parse_dpkg_status("Package: x\nStatus: install ok sideways\n").unwrap_err();
        assert!(error.contains("package x"), "{error}");
    }

    #[test]
    fn dependencies() {
        let field = "libc6 (>= 2.34), libibverbs1 (= 44.0-2), a:any | b [amd64] | c (=1) <!nocheck>,\n d, ";
        let groups = parse_depends(field);
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[1], [Dependency { name: "libibverbs1", relation: Some(("=", "44.0-2")) }]);
        let names: Vec<_> = groups[2].iter().map(|d| (d.name, d.is_exact())).collect();
        assert_eq!(names, [("a", false), ("b", false), ("c", true)]);
        assert_eq!(groups[3][0].name, "d");
    }

    #[test]
    fn relations_and_provides() {
        let text = "Package: a\nVersion: 1:2.0-1\nProvides: v (= 3), w\n";
        let packages = PackageFacts { manager: PackageManager::Dpkg, list: parse_dpkg_status(text).unwrap() };
        let met = |field: &str| is_satisfied(&packages, &parse_depends(field)[0][0]);
        for field in ["a", "a (>= 1:1)", "a (= 1:2.0-1)", "a (<< 2:0)", "v (>= 3)", "w", "v"] {
            assert!(met(field), "{field}");
        }
        // The epoch outranks everything behind it.
        for field in ["a (<< 9)", "a (>> 1:2.0-1)", "v (>> 3)", "w (>= 0)", "x"] {
            assert!(!met(field), "{field}");
        }
    }
}
