//! Where a job will run, as data: fabric, minimum versions, variables, device resource, launch flags, instance types and
//! bandwidths, each with its source.
//!
//! A target is a file of constants: an unknown key does not compile. Tests check what types cannot: that every figure
//! has the document that states it.

mod ack;
mod alibaba;
mod baseline;
mod cce;
mod ecs;
mod instance;
mod pai_dlc;
mod source;

pub use baseline::{
    Baseline, BaselineFigures, BaselineRow, Comparison, Layout, Measurement, all_baselines, compare, has_baseline,
};
pub use instance::{
    ChosenInstance, InstanceError, InstanceFamily, InstanceType, choose_instance, find_instance, targets_that_list,
    targets_with,
};
pub use source::{Source, Sourced};

use crate::fabric::Fabric;
use crate::suggest;
use crate::versions::{CudaVersion, NcclRequirement};
use std::borrow::Cow;

/// One environment that jobs are submitted to.
#[derive(Debug, Clone)]
pub struct Target {
    pub id: &'static str,
    pub title: Cow<'static, str>,
    pub fabric: &'static Fabric,
    /// `None`: the platform states no minimum.
    pub minimum_cuda: Option<CudaVersion>,
    pub minimum_nccl: Option<NcclRequirement>,
    /// Whether the platform starts jobs with python3.
    pub needs_python3: bool,
    /// `NCCL_*` variables that the platform sets in every job, over the image's own.
    pub nccl_presets: &'static [(&'static str, &'static str)],
    /// `NCCL_*` variables that have no effect there.
    pub nccl_without_effect: &'static [&'static str],
    /// Other variables that the platform sets in every job.
    pub variables: &'static [PlatformVariable],
    /// Resource of the Kubernetes device plugin. `None`: the platform passes the devices by itself, or has no Kubernetes.
    pub device_resource: Option<&'static str>,
    /// Flags of the vendor's own `docker run`, if a page gives the line.
    pub docker_flags: &'static [&'static str],
    /// Instance types that sources name.
    pub instances: &'static [&'static InstanceType],
    /// Families that sources name without figures.
    pub families: &'static [InstanceFamily],
    /// Bandwidths that sources report.
    pub baselines: &'static [Baseline],
    /// Further notes.
    pub notes: &'static [Sourced<&'static str>],
    pub sources: Provenance,
    /// The document to start with.
    pub source: &'static Source,
}

/// A variable that the platform sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlatformVariable {
    pub name: &'static str,
    /// `None`: the value depends on what `note` says.
    pub value: Option<&'static str>,
    pub note: &'static str,
}

/// The source of each part of a target that does not carry its own.
#[derive(Debug, Clone, Copy)]
pub struct Provenance {
    /// Minimum versions and python3.
    pub minimums: Option<&'static Source>,
    /// Presets, variables without effect, and the other variables.
    pub variables: Option<&'static Source>,
    pub device_resource: Option<&'static Source>,
    pub docker_flags: Option<&'static Source>,
    /// The platform's own list of types with the fabric. `None`: it has none, and `instances` are the known types of its cloud.
    pub instances: Option<&'static Source>,
}

impl Provenance {
    const NONE: Provenance =
        Provenance { minimums: None, variables: None, device_resource: None, docker_flags: None, instances: None };
}

impl Target {
    /// The value that the platform gives a variable in every job.
    pub fn nccl_preset(&self, name: &str) -> Option<&'static str> {
        self.nccl_presets.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Every target known.
pub static TARGETS: [&Target; 4] = [&pai_dlc::PAI_DLC, &ecs::ECS, &ack::ACK, &cce::CCE];

/// Finds a target by id.
pub fn by_id(id: &str) -> Option<&'static Target> {
    TARGETS.into_iter().find(|target| target.id == id)
}

/// The ids, for an error text.
pub fn known() -> String {
    TARGETS.map(|target| target.id).join(", ")
}

/// Suggestions for a mistyped id, best first.
pub fn closest(id: &str) -> Vec<&'static str> {
    suggest::closest(id, TARGETS.iter().map(|target| target.id), 0.7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_has_a_source() {
        for target in TARGETS {
            let sources = target.sources;
            let has_minimum = target.minimum_cuda.is_some() || target.minimum_nccl.is_some() || target.needs_python3;
            let is_silent =
                target.nccl_presets.is_empty() && target.nccl_without_effect.is_empty() && target.variables.is_empty();
            for (what, has, source) in [
                ("minimums", has_minimum, sources.minimums),
                ("variables", !is_silent, sources.variables),
                ("device resource", target.device_resource.is_some(), sources.device_resource),
                ("docker flags", !target.docker_flags.is_empty(), sources.docker_flags),
            ] {
                assert_eq!(has, source.is_some(), "{}: {what}", target.id);
            }
            assert!(sources.instances.is_none() || !target.instances.is_empty(), "{}: a list without types", target.id);
        }
    }

    #[test]
    fn sources_are_whole() {
        let of_instance = |instance: &InstanceType| {
            let InstanceType { nics, bandwidth_gbit_per_s, rdma_gbit_per_s, gpus, .. } = *instance;
            [nics, bandwidth_gbit_per_s, rdma_gbit_per_s, gpus].into_iter().flatten().map(|figure| figure.source)
        };
        for target in TARGETS {
            let Provenance { minimums, variables, device_resource, docker_flags, instances } = target.sources;
            let parts = [minimums, variables, device_resource, docker_flags, instances].into_iter().flatten();
            let all = parts
                .chain([target.source])
                .chain(target.notes.iter().map(|note| note.source))
                .chain(target.families.iter().map(|family| family.said.source))
                .chain(target.baselines.iter().map(|baseline| baseline.source))
                .chain(target.instances.iter().flat_map(|instance| of_instance(instance)));
            for source in all {
                assert!(!source.title.is_empty() && !source.address.contains("://"), "{source:?}");
                let (year, month) = source.read.split_once('-').unwrap();
                assert!(year.len() == 4 && (1..=12).contains(&month.parse::<u32>().unwrap()), "{source:?}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let ids: BTreeSet<&str> = TARGETS.iter().map(|target| target.id).collect();
        assert_eq!(ids.len(), TARGETS.len());
        for target in TARGETS {
            let types: BTreeSet<&str> = target.instances.iter().map(|instance| instance.name).collect();
            assert_eq!(types.len(), target.instances.len(), "{}", target.id);
            let presets: BTreeSet<&str> = target.nccl_presets.iter().map(|(name, _)| *name).collect();
            assert_eq!(presets.len(), target.nccl_presets.len(), "{}", target.id);
            for name in target.nccl_without_effect {
                assert!(name.starts_with("NCCL_") && !presets.contains(name), "{name}");
            }
            // A type has one record, whoever names it.
            for instance in target.instances {
                assert_eq!(find_instance(instance.name), Some(*instance));
            }
        }
    }

    #[test]
    fn figures_of_the_page() {
        let pai = by_id("pai-dlc").unwrap();
        let nics: Vec<(&str, u32)> =
            pai.instances.iter().map(|instance| (instance.name, instance.nics.unwrap().value)).collect();
        let expected = [
            ("ecs.ebmgn7v.32xlarge", 2),
            ("ecs.ebmgn8v.48xlarge", 2),
            ("ecs.ebmgn8is.32xlarge", 2),
            ("ecs.ebmgn8i.32xlarge", 4),
            ("ecs.gn8is.2xlarge", 1),
            ("ecs.gn8is.4xlarge", 1),
            ("ecs.gn8is-2x.8xlarge", 1),
            ("ecs.gn8is-4x.16xlarge", 1),
        ];
        assert_eq!(nics, expected);
        assert_eq!((pai.nccl_presets.len(), pai.nccl_without_effect.len()), (7, 3));
        // No document states them.
        assert_eq!(find_instance("ebmgn8ia.64xlarge").unwrap().nics, None);
        assert_eq!(find_instance("ebmgn7v.32xlarge").unwrap().bandwidth_gbit_per_s, None);
    }

    #[test]
    fn near_ids() {
        assert_eq!(closest("pai"), ["pai-dlc"]);
        assert_eq!(closest("ec2")[0], "ecs");
        assert!(closest("zzz").is_empty());
    }
}
