//! dpkg: `status` and `status.d` → packages, their dependencies, and the files that they own.

use super::{InspectError, Visitor};
use crate::facts::{Package, PackageFacts, PackageState};
use crate::image::rootfs::RootFs;
use debversion::Version;
use std::collections::HashMap;
use std::fmt;

const STATUS: &str = "var/lib/dpkg/status";
/// One file for each package, as distroless images have them: without a `Status` line, next to a `.md5sums` of its files.
const STATUS_D: &str = "var/lib/dpkg/status.d";
const CHECKSUMS: &str = ".md5sums";
const INFO: &str = "var/lib/dpkg/info";
/// Architectures that dpkg may install, its own first.
const ARCHITECTURES: &str = "var/lib/dpkg/arch";
/// dpkg's diversions, three lines each: path, new path, package.
const DIVERSIONS: &str = "var/lib/dpkg/diversions";

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    [STATUS, ARCHITECTURES, DIVERSIONS].contains(&path)
        || path.strip_prefix("var/lib/dpkg/status.d/").is_some_and(|name| !name.contains('/'))
        || path.strip_prefix("var/lib/dpkg/info/").is_some_and(|name| name.ends_with(".list"))
}

/// Reads `status`. `None`: the file does not exist.
pub(super) fn load_status(fs: &RootFs) -> Result<Option<Vec<Package>>, InspectError> {
    fs.exists(STATUS).then(|| parse_database(fs, STATUS)).transpose()
}

/// Reads `status.d`. `None`: the directory is missing or empty.
pub(super) fn load_status_d(fs: &RootFs) -> Result<Option<Vec<Package>>, InspectError> {
    let names = fs.list(STATUS_D);
    let mut list = Vec::new();
    for name in names.iter().filter(|name| !name.ends_with(CHECKSUMS)) {
        list.extend(parse_database(fs, &format!("{STATUS_D}/{name}"))?);
    }
    Ok((!names.is_empty()).then_some(list))
}

/// The architectures that dpkg may install besides its own, which stands first in its list.
pub(super) fn load_foreign_architectures(fs: &RootFs) -> Vec<String> {
    let text = fs.text(ARCHITECTURES).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).skip(1).map(str::to_owned).collect()
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
                multi_arch: field("Multi-Arch"),
                name,
            })
        })
        .collect()
}

/// One alternative of a dependency: `libibverbs1 (>= 44.0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency<'a> {
    pub name: &'a str,
    /// The part after the name's colon: an architecture, or `any`.
    pub architecture: Option<&'a str>,
    /// Operator (`=`, `>=`, `<<` …) and version.
    pub relation: Option<(&'a str, &'a str)>,
}

impl Dependency<'_> {
    /// Whether the dependency names one exact version.
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
                    let (name, architecture) = match name.split_once(':') {
                        Some((name, architecture)) => (name, Some(architecture)),
                        None => (name, None),
                    };
                    (!name.is_empty()).then_some(Dependency { name, architecture, relation })
                })
                .collect::<Vec<_>>()
        })
        .filter(|group| !group.is_empty())
        .collect()
}

/// The installed packages and what they provide, by name.
#[derive(Debug)]
pub struct Candidates<'a> {
    /// Packages with the version that they are or provide the name in; `None`: they provide it without a version.
    by_name: HashMap<&'a str, Vec<(&'a Package, Option<&'a str>)>>,
    /// dpkg's own architecture, if the package states it.
    native: Option<&'a str>,
}

impl<'a> Candidates<'a> {
    pub fn of(packages: &'a PackageFacts) -> Candidates<'a> {
        let mut by_name: HashMap<&str, Vec<(&Package, Option<&str>)>> = HashMap::new();
        for package in packages.all_installed() {
            by_name.entry(&package.name).or_default().push((package, Some(&package.version)));
            for provided in parse_depends(&package.provides).into_iter().flatten() {
                by_name
                    .entry(provided.name)
                    .or_default()
                    .push((package, provided.relation.map(|(_, version)| version)));
            }
        }
        Candidates { by_name, native: packages.installed("dpkg").map(|dpkg| dpkg.architecture.as_str()) }
    }

    /// Whether an installed package, or one that provides the name, meets a dependency of `of` (Debian Policy 7.5). It must
    /// be of the same architecture, unless `Multi-Arch` allows another (deb-control(5)).
    pub fn meet(&self, of: &Package, dependency: &Dependency<'_>) -> bool {
        self.by_name.get(dependency.name).into_iter().flatten().any(|(package, version)| {
            let has_version = match version {
                Some(version) => dependency.allows(version),
                // An unversioned Provides meets no versioned dependency.
                None => dependency.relation.is_none(),
            };
            has_version && self.fits(of, package, dependency.architecture)
        })
    }

    fn fits(&self, of: &Package, package: &Package, asked: Option<&str>) -> bool {
        let (wanted, given) = (self.architecture(of), self.architecture(package));
        match (asked, package.multi_arch.as_str()) {
            (Some("any"), "allowed") | (_, "foreign") => true,
            (Some(asked), _) if asked != "any" && asked != "native" => given.is_none_or(|given| given == asked),
            // Without dpkg itself, its own architecture is not known.
            _ => given.is_none() || wanted.is_none() || given == wanted,
        }
    }

    /// `Architecture: all` counts as dpkg's own.
    fn architecture<'b>(&self, package: &'b Package) -> Option<&'b str>
    where
        'a: 'b,
    {
        match package.architecture.as_str() {
            "all" | "" => self.native,
            other => Some(other),
        }
    }
}

/// Calls `visit` with every installed package and each path in its file list.
pub(super) fn for_each_owned(fs: &RootFs, packages: &PackageFacts, visit: Visitor<'_>) {
    let diversions = parse_diversions(&fs.text(DIVERSIONS).unwrap_or_default());
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
        for path in text.lines() {
            // Another package's file is at this path: this package's was diverted.
            let path = match diversions.get(path) {
                Some((moved, by)) if by != package => moved,
                _ => path,
            };
            visit_path(package, path, visit);
        }
    }
    for name in fs.list(STATUS_D) {
        let Some((package, text)) = name.strip_suffix(CHECKSUMS).zip(fs.text(&format!("{STATUS_D}/{name}"))) else {
            continue;
        };
        // `checksum  path`, the path without a leading slash.
        for (_, path) in text.lines().filter_map(|line| line.split_once("  ")) {
            visit_path(package, path, visit);
        }
    }
}

fn visit_path(package: &str, path: &str, visit: Visitor<'_>) {
    let path = path.trim_start_matches('/');
    let (directory, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    visit(package, directory, name);
}

/// Path → where other packages' files of that path are, and the package that moved them.
fn parse_diversions(text: &str) -> HashMap<String, (String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(3).map(|entry| (entry[0].to_owned(), (entry[1].to_owned(), entry[2].to_owned()))).collect()
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
        assert_eq!(
            groups[1],
            [Dependency { name: "libibverbs1", architecture: None, relation: Some(("=", "44.0-2")) }]
        );
        assert_eq!(groups[2][0].architecture, Some("any"));
        let names: Vec<_> = groups[2].iter().map(|d| (d.name, d.is_exact())).collect();
        assert_eq!(names, [("a", false), ("b", false), ("c", true)]);
        assert_eq!(groups[3][0].name, "d");
        assert!(parse_depends(":any").is_empty(), "an architecture alone is not a dependency");
    }

    #[test]
    fn relations_and_provides() {
        let text = "Package: a\nVersion: 1:2.0-1\nProvides: v (= 3), w\n";
        let packages = PackageFacts { list: parse_dpkg_status(text).unwrap(), ..PackageFacts::default() };
        let candidates = Candidates::of(&packages);
        let met = |field: &str| candidates.meet(&packages.list[0], &parse_depends(field)[0][0]);
        for field in ["a", "a (>= 1:1)", "a (= 1:2.0-1)", "a (<< 2:0)", "v (>= 3)", "w", "v"] {
            assert!(met(field), "{field}");
        }
        // The epoch outranks everything behind it.
        for field in ["a (<< 9)", "a (>> 1:2.0-1)", "v (>> 3)", "w (>= 0)", "x"] {
            assert!(!met(field), "{field}");
        }
    }

    /// A foreign library does not satisfy a native program, unless it declares so.
    #[test]
    fn architectures() {
        let text = "Package: dpkg\nVersion: 1\nArchitecture: amd64\n\n\
                    Package: app\nVersion: 1\nArchitecture: amd64\n\n\
                    Package: lib\nVersion: 1\nArchitecture: i386\nMulti-Arch: same\n\n\
                    Package: tool\nVersion: 1\nArchitecture: i386\nMulti-Arch: foreign\n\n\
                    Package: python3\nVersion: 1\nArchitecture: i386\nMulti-Arch: allowed\n\n\
                    Package: data\nVersion: 1\nArchitecture: all\n";
        let packages = PackageFacts { list: parse_dpkg_status(text).unwrap(), ..PackageFacts::default() };
        let candidates = Candidates::of(&packages);
        let met = |of: &str, field: &str| candidates.meet(packages.installed(of).unwrap(), &parse_depends(field)[0][0]);
        for (of, field, expected) in [
            ("app", "lib", false),
            ("app", "lib:i386", true),
            ("lib", "lib", true),
            ("app", "tool", true),
            ("app", "python3", false),
            ("app", "python3:any", true),
            ("app", "data", true),
            ("data", "app", true),
            ("lib", "data", false),
        ] {
            assert_eq!(met(of, field), expected, "{of} needs {field}");
        }
    }

    #[test]
    fn diversions() {
        let moved = parse_diversions("/usr/lib/libGL.so.1\n/usr/lib/mesa/libGL.so.1\nglx-diversions\n");
        assert_eq!(moved["/usr/lib/libGL.so.1"], ("/usr/lib/mesa/libGL.so.1".into(), "glx-diversions".into()));
    }
}
