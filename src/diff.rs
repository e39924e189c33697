//! Two images' facts → what differs between them that matters here.

use crate::facts::ImageFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A package that is not the same in both images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PackageChange {
    pub package: String,
    /// Version in the first image.
    pub before: Option<String>,
    /// Version in the second image.
    pub after: Option<String>,
    /// The change is one that the swap is meant to make.
    pub expected: bool,
}

/// The difference, first image to second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageDiff {
    pub lost: Vec<PackageChange>,
    pub gained: Vec<PackageChange>,
    pub changed: Vec<PackageChange>,
    /// Differences of CUDA, NCCL, python3, user and entrypoint, a line each.
    pub other: Vec<String>,
    /// Layers that only the second has.
    pub new_layers: usize,
    /// Size of all layers, second minus first, in bytes.
    pub layer_bytes_delta: i64,
    /// The second image starts with all layers of the first.
    pub is_built_on_first: bool,
}

impl ImageDiff {
    /// Packages that went away or changed although the swap is not meant to touch them.
    pub fn damage(&self) -> impl Iterator<Item = &PackageChange> {
        self.lost.iter().chain(&self.changed).filter(|change| !change.expected)
    }
}

/// Compares. `touches` says which packages the swap may change.
pub fn diff_images(before: &ImageFacts, after: &ImageFacts, touches: impl Fn(&str) -> bool) -> ImageDiff {
    let versions = |facts: &ImageFacts| -> BTreeMap<String, String> {
        facts
            .packages
            .all_installed()
            .map(|package| {
                let foreign = package.is_foreign(&facts.image.architecture);
                let name =
                    if foreign { format!("{}:{}", package.name, package.architecture) } else { package.name.clone() };
                (name, package.version.clone())
            })
            .collect()
    };
    let (old, new) = (versions(before), versions(after));
    let (mut lost, mut gained, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for (package, version) in &old {
        let change = |after: Option<&String>| PackageChange {
            package: package.clone(),
            before: Some(version.clone()),
            after: after.cloned(),
            expected: touches(package),
        };
        match new.get(package) {
            None => lost.push(change(None)),
            Some(other) if other != version => changed.push(change(Some(other))),
            Some(_) => {}
        }
    }
    for (package, version) in new.iter().filter(|(package, _)| !old.contains_key(*package)) {
        // What is new is a dependency of what was swapped.
        gained.push(PackageChange {
            package: package.clone(),
            before: None,
            after: Some(version.clone()),
            expected: true,
        });
    }
    let common =
        before.image.layers.iter().zip(&after.image.layers).take_while(|(a, b)| a.diff_id == b.diff_id).count();
    let size = |facts: &ImageFacts| i64::try_from(facts.image.size_bytes()).unwrap_or(i64::MAX);
    ImageDiff {
        lost,
        gained,
        changed,
        other: other_changes(before, after),
        new_layers: after.image.layers.len() - common,
        layer_bytes_delta: size(after) - size(before),
        is_built_on_first: common == before.image.layers.len(),
    }
}

fn other_changes(before: &ImageFacts, after: &ImageFacts) -> Vec<String> {
    let nccl = |facts: &ImageFacts| {
        let copies: Vec<String> =
            facts.nccl.iter().map(|copy| format!("{} {}", copy.version.as_deref().unwrap_or("?"), copy.path)).collect();
        if copies.is_empty() { "none".to_owned() } else { copies.join(", ") }
    };
    let none = || "none".to_owned();
    let user = |facts: &ImageFacts| {
        if facts.config.user.is_empty() { "root".to_owned() } else { facts.config.user.clone() }
    };
    [
        ("cuda", before.cuda.version.clone().unwrap_or_else(none), after.cuda.version.clone().unwrap_or_else(none)),
        ("nccl", nccl(before), nccl(after)),
        (
            "python3",
            before.python3.as_ref().map_or_else(none, |p| p.path.clone()),
            after.python3.as_ref().map_or_else(none, |p| p.path.clone()),
        ),
        ("user", user(before), user(after)),
        ("entrypoint", before.config.entrypoint.join(" "), after.config.entrypoint.join(" ")),
        ("cmd", before.config.cmd.join(" "), after.config.cmd.join(" ")),
    ]
    .into_iter()
    .filter(|(_, before, after)| before != after)
    .map(|(name, before, after)| format!("{name}: {before} -> {after}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::{ERDMA_VERSION, Fixture};

    #[test]
    fn what_the_swap_means_to_change_is_told_from_damage() {
        let before = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
        let mut after = before.clone();
        after.rdma_core(ERDMA_VERSION, "librdmacm1", &["erdma"]);
        after.remove_package("mlnx-ofed-basic-user-only").remove_package("libucx0");
        let rdma = |name: &str| name != "libucx0";
        let diff = diff_images(&before.facts(), &after.facts(), rdma);
        assert_eq!(diff.damage().map(|change| change.package.as_str()).collect::<Vec<_>>(), ["libucx0"]);
        assert_eq!(diff.lost.len(), 2);
        assert_eq!(diff.changed.len(), 4);
        assert!(diff.gained.is_empty() && diff.other.is_empty());
        assert!(!diff.is_built_on_first, "a single layer was replaced");
    }

    #[test]
    fn other_differences_have_a_line_each() {
        let before = Fixture::good();
        let mut after = before.clone();
        after.nccl("2.27.3+cuda12.9");
        after.config["User"] = "trainer".into();
        let diff = diff_images(&before.facts(), &after.facts(), |_| true);
        assert!(diff.other.iter().any(|line| line == "user: root -> trainer"), "{diff:?}");
        assert!(diff.other.iter().any(|line| line.starts_with("nccl: 2.21.5 ")), "{diff:?}");
    }
}
