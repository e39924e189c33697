//! Instance types: what documents say about each, and how a name is looked up.

use super::source::{Source, Sourced};
use super::{TARGETS, Target};
use crate::remedy::Remedy;

/// A machine that a cloud rents out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceType {
    /// `ecs.ebmgn8v.48xlarge`
    pub name: &'static str,
    /// Number of RDMA NICs; `None`: no source gives it.
    pub nics: Option<Sourced<u32>>,
    /// Bandwidth of the instance's network, all NICs together.
    pub bandwidth_gbit_per_s: Option<Sourced<u32>>,
    /// The most of it that RDMA can use, if a source gives less than the whole.
    pub rdma_gbit_per_s: Option<Sourced<u32>>,
    pub gpus: Option<Sourced<u32>>,
}

impl InstanceType {
    /// A type of which only the name is known.
    pub(super) const fn named(name: &'static str) -> InstanceType {
        InstanceType { name, nics: None, bandwidth_gbit_per_s: None, rdma_gbit_per_s: None, gpus: None }
    }

    /// The most that RDMA can carry out of the instance, with the source.
    pub fn line_rate_gbit_per_s(&self) -> Option<Sourced<u32>> {
        self.rdma_gbit_per_s.or(self.bandwidth_gbit_per_s)
    }

    /// 8 for `ecs.ebmgn8v.48xlarge`: the number in the family's name (Alibaba Cloud help, EGS, "Instance naming conventions",
    /// help.aliyun.com/en/egs/instance-naming-conventions, read 2026-11).
    pub fn generation(&self) -> Option<u32> {
        let family = family_of(self.name);
        let digits = &family[family.find(|c: char| c.is_ascii_digit())?..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    }
}

/// A family for whose types no document gives a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceFamily {
    /// `ebmgn7ex`
    pub name: &'static str,
    pub said: Sourced<&'static str>,
}

/// The prefix of ECS type names, which people often omit.
const PREFIX: &str = "ecs.";

fn bare(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// `ebmgn8v` for `ecs.ebmgn8v.48xlarge`, `gn8is` for `ecs.gn8is-2x.8xlarge`.
fn family_of(name: &str) -> &str {
    let name = bare(name);
    &name[..name.find(['.', '-']).unwrap_or(name.len())]
}

/// A type that was named for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenInstance {
    pub instance: &'static InstanceType,
    /// Whether the target itself names the type; else another target of the same fabric does.
    pub is_listed: bool,
}

/// Why a name is not an instance type for a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    #[error("unknown instance type {name:?}{}", family.as_deref().unwrap_or_default())]
    Unknown {
        name: String,
        target: &'static str,
        /// What is known about its family, as the rest of a sentence.
        family: Option<String>,
        /// Likely ones, best first.
        near: Vec<&'static str>,
        known: Vec<&'static str>,
    },
    #[error(
        "{name} is a type of {}, whose fabric differs from that of {target}", listed_by.join(", ")
    )]
    OtherFabric { name: &'static str, target: &'static str, listed_by: Vec<&'static str> },
    #[error("no document lists instance types for {target}, and no other target has {name:?}")]
    NoneListed { name: String, target: &'static str },
}

impl Remedy for InstanceError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            InstanceError::Unknown { target, near, known, .. } => {
                let names = match near[..] {
                    [] => format!("known types: {}", known.join(", ")),
                    _ => format!("did you mean {}? (rdmaprep targets {target} lists the target's)", near.join(", ")),
                };
                format!("{names}\nomit --instance to continue without a type's figures")
            }
            InstanceError::OtherFabric { listed_by, .. } => {
                let target = listed_by.first().copied().unwrap_or_default();
                format!("name the job's target (--target {target}), or omit --instance")
            }
            InstanceError::NoneListed { .. } => "omit --instance".to_owned(),
        })
    }
}

/// Finds a type for a target, with or without `ecs.` in front.
///
/// # Errors
/// No target has the name, or only targets of another fabric do.
pub fn choose_instance(target: &Target, name: &str) -> Result<ChosenInstance, InstanceError> {
    let Some(instance) = find_instance(name) else { return Err(unknown(target, name)) };
    let listed_by = targets_with(instance);
    if !listed_by.iter().any(|other| other.fabric.id == target.fabric.id) {
        let listed_by = listed_by.iter().map(|target| target.id).collect();
        return Err(InstanceError::OtherFabric { name: instance.name, target: target.id, listed_by });
    }
    Ok(ChosenInstance { instance, is_listed: listed_by.iter().any(|other| other.id == target.id) })
}

fn unknown(target: &Target, name: &str) -> InstanceError {
    let name = name.to_owned();
    let alike: Vec<&Target> = TARGETS.into_iter().filter(|other| other.fabric.id == target.fabric.id).collect();
    let mut known: Vec<&'static str> = Vec::new();
    for instance in alike.iter().flat_map(|other| other.instances) {
        if !known.contains(&instance.name) {
            known.push(instance.name);
        }
    }
    if known.is_empty() {
        return InstanceError::NoneListed { name, target: target.id };
    }
    let lower = name.to_ascii_lowercase();
    let family = alike.iter().flat_map(|other| other.families).find(|family| family_of(&lower) == family.name);
    InstanceError::Unknown {
        family: family.map(|family| {
            let said = family.said;
            format!("; documents say about its family {} only: {} ({})", family.name, said.value, said.source.title)
        }),
        target: target.id,
        near: near(&lower, &known),
        known,
        name,
    }
}

/// Finds a type in any target.
pub fn find_instance(name: &str) -> Option<&'static InstanceType> {
    let name = name.to_ascii_lowercase();
    let mut all = TARGETS.iter().flat_map(|target| target.instances);
    all.find(|instance| bare(instance.name) == bare(&name)).copied()
}

/// The targets whose documents list a type, with the list.
pub fn targets_that_list(instance: &InstanceType) -> Vec<(&'static Target, &'static Source)> {
    targets_with(instance).into_iter().filter_map(|target| Some((target, target.sources.instances?))).collect()
}

/// Targets that use this type.
pub fn targets_with(instance: &InstanceType) -> Vec<&'static Target> {
    TARGETS.into_iter().filter(|target| target.instances.iter().any(|one| one.name == instance.name)).collect()
}

/// Suggestions for a mistyped name: those of its family first, then similar ones.
fn near(name: &str, known: &[&'static str]) -> Vec<&'static str> {
    // Names share a dot and "xlarge": below this, every one looks like every other.
    const ALIKE: f64 = 0.85;
    const SUGGESTED: usize = 4;
    let mut scored: Vec<(bool, f64, &'static str)> = known
        .iter()
        .map(|known| (family_of(known) == family_of(name), strsim::jaro_winkler(bare(name), bare(known)), *known))
        .filter(|(is_kin, likeness, _)| *is_kin || *likeness > ALIKE)
        .collect();
    scored.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    scored.into_iter().take(SUGGESTED).map(|(_, _, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::with_remedy;
    use crate::targets::by_id;

    fn choose(target: &str, name: &str) -> Result<ChosenInstance, InstanceError> {
        choose_instance(by_id(target).unwrap(), name)
    }

    #[test]
    fn names_with_and_without_prefix() {
        for name in ["ecs.ebmgn8v.48xlarge", "ebmgn8v.48xlarge", "ECS.EBMGN8V.48XLARGE"] {
            let chosen = choose("pai-dlc", name).unwrap();
            assert_eq!((chosen.instance.name, chosen.is_listed), ("ecs.ebmgn8v.48xlarge", true), "{name}");
        }
        assert_eq!(find_instance("ecs.ecs.ebmgn8v.48xlarge"), None);
        assert_eq!(find_instance(""), None);
    }

    #[test]
    fn a_type_that_only_another_target_names() {
        let chosen = choose("pai-dlc", "ebmgn9gc.64xlarge").unwrap();
        let by: Vec<&str> = targets_with(chosen.instance).iter().map(|target| target.id).collect();
        assert_eq!((chosen.is_listed, by), (false, vec!["ecs", "ack"]));
        let error = with_remedy(&choose("cce", "ebmgn8v.48xlarge").unwrap_err());
        assert!(error.contains("ecs.ebmgn8v.48xlarge is a type of pai-dlc, ecs, ack"), "{error}");
        assert!(error.contains("--target pai-dlc"), "{error}");
    }

    #[test]
    fn unknown_names_have_near_ones() {
        for (name, expected) in [
            ("ecs.ebmgn8v.32xlarge", "ecs.ebmgn8v.48xlarge"),
            ("ebmgn8v", "ecs.ebmgn8v.48xlarge"),
            ("ebmgnv8.48xlarge", "ecs.ebmgn8v.48xlarge"),
            ("gn8is.8xlarge", "ecs.gn8is.4xlarge"),
        ] {
            let Err(InstanceError::Unknown { near, .. }) = choose("pai-dlc", name) else { panic!("{name}") };
            assert!(near.contains(&expected), "{name}: {near:?}");
        }
        let error = with_remedy(&choose("pai-dlc", "p5.48large").unwrap_err());
        assert!(error.contains("known types: ecs.ebmgn7v.32xlarge, "), "{error}");
        assert!(error.contains("omit --instance"), "{error}");
        // Nothing is guessed about a family without figures.
        let error = choose("ecs", "ecs.ebmgn7ex.32xlarge").unwrap_err().to_string();
        assert!(error.contains("documents say about its family ebmgn7ex only: at most 2 NICs"), "{error}");
        assert!(matches!(choose("cce", "x"), Err(InstanceError::NoneListed { .. })));
    }

    #[test]
    fn generations() {
        for target in TARGETS {
            for instance in target.instances {
                let expected = instance.name.chars().find(char::is_ascii_digit).and_then(|c| c.to_digit(10));
                assert_eq!(instance.generation(), expected, "{}", instance.name);
            }
        }
    }
}
