//! rpm's dependencies: the text of `Package::depends` and `Package::provides` → whether each requirement is met.
//!
//! A requirement is a name, which may be a path, a library (`libc.so.6(GLIBC_2.34)(64bit)`) or anything else, with or
//! without a range of versions; or a condition over several (`(a if b)`). It is met where a package provides the same name
//! with a range that overlaps (rpm's `lib/rpmds.c`, `rpmdsCompareEVR`). Versions are compared by the crate `rpm-version`.

use crate::facts::PackageFacts;
use rpm_version::Evr;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Deepest nesting of conditions; real ones have two.
const MAX_DEPTH: usize = 16;

/// Most ranges of one name that are compared; a name is provided by as many packages as there are versions of it
/// installed side by side.
const MAX_RANGES: usize = 100;

/// A range of versions: operator (`<`, `<=`, `=`, `>=`, `>`) and version.
type Range<'a> = (&'a str, &'a str);

/// The provisions of the installed packages, by name.
#[derive(Debug)]
pub struct Provided<'a> {
    ranges: HashMap<&'a str, Vec<Option<Range<'a>>>>,
}

impl<'a> Provided<'a> {
    pub fn by(packages: &'a PackageFacts) -> Provided<'a> {
        let mut ranges: HashMap<&str, Vec<Option<Range<'_>>>> = HashMap::new();
        for package in packages.all_installed() {
            // Packages of rpm 3 do not say that they provide themselves.
            ranges.entry(&package.name).or_default().push(Some(("=", &package.version)));
            for (name, range) in split_relations(&package.provides).filter_map(parse_relation) {
                ranges.entry(name).or_default().push(range);
            }
        }
        Provided { ranges }
    }

    /// Whether a requirement, as one element of [`split_relations`], is met. `None`: it is a condition that this version
    /// does not understand, or a name is provided in more ranges than are compared.
    pub fn meets(&self, requirement: &str) -> Option<bool> {
        self.meets_at(requirement.trim(), MAX_DEPTH)
    }

    fn meets_at(&self, requirement: &str, depth: usize) -> Option<bool> {
        match requirement.strip_prefix('(') {
            Some(condition) => self.holds(condition.strip_suffix(')')?, depth.checked_sub(1)?),
            None => {
                let (name, wanted) = parse_relation(requirement)?;
                let ranges = self.ranges.get(name).map(Vec::as_slice).unwrap_or_default();
                match ranges.iter().take(MAX_RANGES).any(|range| overlap(*range, wanted)) {
                    false if ranges.len() > MAX_RANGES => None,
                    met => Some(met),
                }
            }
        }
    }

    /// A condition without its parentheses (rpm's manual, "Boolean Dependencies").
    fn holds(&self, condition: &str, depth: usize) -> Option<bool> {
        let parts = split_condition(condition)?;
        let (operands, operators): (Vec<_>, Vec<_>) = parts.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        let met = |at: usize| self.meets_at(operands.get(at)?.1, depth);
        let each = || (0..operands.len()).map(met).collect::<Option<Vec<bool>>>();
        let operator = match operators.first() {
            None => return met(0),
            Some((_, operator)) => **operator,
        };
        // Operators are only mixed where `else` follows `if`.
        let alike = operators.iter().all(|(_, other)| **other == operator);
        match (operator, operands.len()) {
            // `with` requires one package that meets both; whether it is the same one is not checked.
            ("and" | "with", _) if alike => Some(each()?.into_iter().all(|met| met)),
            ("or", _) if alike => Some(each()?.into_iter().any(|met| met)),
            ("without", 2) => Some(met(0)? && !met(1)?),
            ("if", 2) => Some(!met(1)? || met(0)?),
            ("if", 3) if *operators[1].1 == "else" => met(if met(1)? { 0 } else { 2 }),
            // rpm refuses `unless` in a requirement.
            _ => None,
        }
    }
}

/// The elements of a list of requirements. A condition holds no comma.
pub fn split_relations(list: &str) -> impl Iterator<Item = &str> {
    list.split(", ").filter(|relation| !relation.is_empty())
}

/// `name`, or `name operator version`.
fn parse_relation(relation: &str) -> Option<(&str, Option<Range<'_>>)> {
    let mut words = relation.split_whitespace();
    let name = words.next()?;
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Some((name, None)),
        (Some(operator), Some(version), None) => Some((name, Some((operator, version)))),
        _ => None,
    }
}

/// Operands and operators of a condition in turn: `a >= 1`, `if`, `(b or c)`.
fn split_condition(condition: &str) -> Option<Vec<&str>> {
    const OPERATORS: [&str; 7] = ["and", "or", "if", "unless", "else", "with", "without"];
    let mut parts = Vec::new();
    let (mut depth, mut start, mut word) = (0_usize, 0, 0);
    for (at, character) in condition.char_indices().chain([(condition.len(), ' ')]) {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ' ' if depth == 0 => {
                if OPERATORS.contains(&&condition[word..at]) {
                    parts.push(condition[start..word].trim());
                    parts.push(&condition[word..at]);
                    start = at;
                }
                word = at + 1;
            }
            _ => {}
        }
    }
    parts.push(condition[start..].trim());
    (depth == 0 && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// Whether two ranges of the same name have a version in common. One without a range meets every other.
fn overlap(provided: Option<Range<'_>>, wanted: Option<Range<'_>>) -> bool {
    let (Some((provides, version)), Some((wants, other))) = (provided, wanted) else {
        return true;
    };
    let less = |operator: &str| operator.starts_with('<');
    let greater = |operator: &str| operator.starts_with('>');
    let equal = |operator: &str| operator.ends_with('=');
    match compare(version, other) {
        Ordering::Less => greater(provides) || less(wants),
        Ordering::Greater => less(provides) || greater(wants),
        Ordering::Equal => {
            (equal(provides) && equal(wants))
                || (less(provides) && less(wants))
                || (greater(provides) && greater(wants))
        }
    }
}

/// Compares `[epoch:]version[-release]`; the release counts only where both have one.
pub fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch_a, version_a, release_a), (epoch_b, version_b, release_b)) =
        (Evr::parse_values(a), Evr::parse_values(b));
    let (release_a, release_b) =
        if release_a.is_empty() || release_b.is_empty() { ("", "") } else { (release_a, release_b) };
    Evr::new(epoch_a, version_a, release_a).cmp(&Evr::new(epoch_b, version_b, release_b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Package, PackageManager, PackageState};

    /// rpm's own test table (`tests/rpmvercmp.at`), the parts that tell implementations apart.
    #[test]
    fn versions_compare_as_rpm_compares_them() {
        let table = [
            ("1.0", "1.0", Ordering::Equal),
            ("1.0", "2.0", Ordering::Less),
            ("2.0.1", "2.0.1a", Ordering::Less),
            ("5.5p1", "5.5p2", Ordering::Less),
            ("5.5p10", "5.5p1", Ordering::Greater),
            ("10xyz", "10.1xyz", Ordering::Less),
            ("xyz10", "xyz10.1", Ordering::Less),
            ("xyz.4", "8", Ordering::Less),
            ("xyz.4", "2", Ordering::Less),
            ("5.5p2", "5.6p1", Ordering::Less),
            ("6.0.rc1", "6.0", Ordering::Greater),
            ("10b2", "10a1", Ordering::Greater),
            ("1.0aa", "1.0aa", Ordering::Equal),
            ("1.0a", "1.0aa", Ordering::Less),
            ("10.0001", "10.1", Ordering::Equal),
            ("10.0001", "10.0039", Ordering::Less),
            ("4.999.9", "5.0", Ordering::Less),
            ("20101122", "20101121", Ordering::Greater),
            ("2_0", "2.0", Ordering::Equal),
            ("a+", "a_", Ordering::Equal),
            ("1.0~rc1", "1.0", Ordering::Less),
            ("1.0~rc1~git123", "1.0~rc1", Ordering::Less),
            ("1.0^", "1.0", Ordering::Greater),
            ("1.0^git1", "1.0^git2", Ordering::Less),
            ("1.0^git1", "1.01", Ordering::Less),
            ("1.0^20160101", "1.0.1", Ordering::Less),
            ("1.0~rc1^git1", "1.0~rc1", Ordering::Greater),
            ("1.0^git1~pre", "1.0^git1", Ordering::Less),
        ];
        for (a, b, expected) in table {
            assert_eq!(compare(a, b), expected, "{a} {b}");
            assert_eq!(compare(b, a), expected.reverse(), "{b} {a}");
        }
    }

    #[test]
    fn epochs_and_releases() {
        assert_eq!(compare("1:1.0-1", "2.0-1"), Ordering::Greater);
        assert_eq!(compare("0:1.0-1", "1.0-1"), Ordering::Equal);
        assert_eq!(compare("1.0", "1.0-7"), Ordering::Equal);
        assert_eq!(compare("1.0-6", "1.0-7"), Ordering::Less);
        // OFED's outrank every other: a plain install keeps them.
        assert_eq!(compare("52mlnx1-1.53100", "22.4-5.el7"), Ordering::Greater);
        assert_eq!(compare("2307mlnx47-1.2310119", "44.1-2"), Ordering::Greater);
    }

    fn packages() -> PackageFacts {
        let package = |name: &str, version: &str, provides: &str| Package {
            name: name.into(),
            version: version.into(),
            architecture: "x86_64".into(),
            state: PackageState::Installed,
            held: false,
            source: None,
            depends: String::new(),
            provides: provides.into(),
            multi_arch: String::new(),
        };
        PackageFacts {
            manager: PackageManager::RpmSqlite,
            list: vec![
                package("glibc", "2.34-60.el9", "glibc = 2.34-60.el9, libc.so.6(GLIBC_2.34)(64bit), /sbin/ldconfig"),
                package("libibverbs", "1:41.0-3.el9", "libibverbs(x86-64) = 1:41.0-3.el9, old < 5, free"),
            ],
            ..PackageFacts::default()
        }
    }

    #[test]
    fn requirements() {
        let packages = packages();
        let provided = Provided::by(&packages);
        for met in [
            "glibc",
            "glibc >= 2.34",
            "glibc = 2.34",
            "glibc < 2.35",
            "libc.so.6(GLIBC_2.34)(64bit)",
            "/sbin/ldconfig",
            "libibverbs(x86-64) = 1:41.0-3.el9",
            "old = 4",
            "old < 99",
            // A provision without a version meets every range.
            "free >= 3",
        ] {
            assert_eq!(provided.meets(met), Some(true), "{met}");
        }
        for unmet in ["musl", "glibc > 2.34-60.el9", "glibc < 2.34", "libibverbs = 41.0-3.el9", "old >= 5", "/bin/sh"] {
            assert_eq!(provided.meets(unmet), Some(false), "{unmet}");
        }
    }

    #[test]
    fn conditions() {
        let packages = packages();
        let provided = Provided::by(&packages);
        for (condition, met) in [
            ("(glibc or musl)", true),
            ("(musl or bionic)", false),
            ("(glibc and musl)", false),
            ("(glibc and libibverbs and free)", true),
            ("(musl if bionic)", true),
            ("(musl if glibc)", false),
            ("(musl if glibc else free)", false),
            ("(musl if bionic else free)", true),
            ("(glibc >= 2.34 with glibc < 3)", true),
            ("(glibc without musl)", true),
            ("((musl or glibc) and libc.so.6(GLIBC_2.34)(64bit))", true),
        ] {
            assert_eq!(provided.meets(condition), Some(met), "{condition}");
        }
        for unknown in [
            "(a or b and c)",
            "(a unless b)",
            "(a",
            "(a xor b c d)",
            "()",
            &format!("{}a{}", "(".repeat(40), ")".repeat(40)),
        ] {
            assert_eq!(provided.meets(unknown), None, "{unknown}");
        }
    }
}
