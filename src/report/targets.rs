//! Targets and instance types, with the source of every figure, as JSON.

use crate::targets::{Baseline, BaselineRow, InstanceType, Source, Sourced, Target, all_baselines, targets_that_list};
use crate::versions::NcclRequirement;
use serde::Serialize;

/// Version of the JSON format.
pub(super) const TARGETS_VERSION: u32 = 1;

/// The output of `targets --format json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetListing {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: &'static str,
    pub targets: Vec<TargetEntry>,
}

/// The output of `targets --instance TYPE --format json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InstanceListing {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: &'static str,
    pub instance: InstanceEntry,
    /// Targets whose documents name it.
    pub listed_by: Vec<&'static str>,
    /// Bandwidths that documents report for it.
    pub baselines: Vec<BaselineEntry>,
}

/// Everything about one target. No document states what is absent.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetEntry {
    id: &'static str,
    title: String,
    fabric: &'static str,
    /// The document to start with.
    source: &'static Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_cuda: Option<Sourced<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum_nccl: Option<Sourced<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_python3: Option<Sourced<bool>>,
    /// Variables that the platform sets in every job, or that have no effect there.
    variables: Vec<VariableEntry>,
    /// Resource of the Kubernetes device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_resource: Option<Sourced<&'static str>>,
    /// Flags of the vendor's `docker run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    docker_flags: Option<Sourced<Vec<&'static str>>>,
    /// The source that the types have the fabric on this platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    instances_source: Option<&'static Source>,
    instances: Vec<InstanceEntry>,
    /// Families for whose types no document gives a figure.
    families: Vec<FamilyEntry>,
    baselines: Vec<BaselineEntry>,
    notes: Vec<Sourced<&'static str>>,
}

/// One variable.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct VariableEntry {
    name: &'static str,
    /// Absent: the variable has no effect, or depends on what `note` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'static str>,
    has_effect: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'static str,
    source: &'static Source,
}

/// One instance type. No document states what is absent.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InstanceEntry {
    name: &'static str,
    /// RDMA NICs.
    #[serde(skip_serializing_if = "Option::is_none")]
    nics: Option<Sourced<u32>>,
    /// Bandwidth of the instance's network, all NICs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_gbit_per_s: Option<Sourced<u32>>,
    /// The most of it that RDMA can use, if a document gives less than the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_gbit_per_s: Option<Sourced<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<Sourced<u32>>,
}

/// One family of instance types.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FamilyEntry {
    name: &'static str,
    said: Sourced<&'static str>,
}

/// One reported run of nccl-tests.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BaselineEntry {
    collective: &'static str,
    /// Absent: the document does not name the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'static str>,
    hosts: u32,
    ranks_per_host: u32,
    settings: Vec<SettingEntry>,
    command: &'static str,
    software: &'static str,
    rows: &'static [BaselineRow],
    source: &'static Source,
}

/// A variable of a reported run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SettingEntry {
    name: &'static str,
    value: &'static str,
}

impl TargetListing {
    pub fn new(targets: &[&Target]) -> TargetListing {
        TargetListing {
            schema_version: TARGETS_VERSION,
            rdmaprep_version: env!("CARGO_PKG_VERSION"),
            targets: targets.iter().map(|target| target_entry(target)).collect(),
        }
    }
}

impl InstanceListing {
    pub fn new(instance: &'static InstanceType) -> InstanceListing {
        InstanceListing {
            schema_version: TARGETS_VERSION,
            rdmaprep_version: env!("CARGO_PKG_VERSION"),
            instance: instance_entry(instance),
            listed_by: targets_that_list(instance).iter().map(|(target, _)| target.id).collect(),
            baselines: of_type(instance).map(baseline_entry).collect(),
        }
    }
}

/// The runs that documents report for a type.
pub(super) fn of_type(instance: &InstanceType) -> impl Iterator<Item = &'static Baseline> {
    all_baselines().filter(move |baseline| baseline.instance == Some(instance.name))
}

fn target_entry(target: &Target) -> TargetEntry {
    let sources = target.sources;
    let minimums = sources.minimums;
    let of_page = |value: Option<String>| Some(Sourced { value: value?, source: minimums? });
    TargetEntry {
        id: target.id,
        title: target.title.to_string(),
        fabric: target.fabric.id,
        source: target.source,
        minimum_cuda: of_page(target.minimum_cuda.map(|version| version.to_string())),
        minimum_nccl: of_page(target.minimum_nccl.as_ref().map(NcclRequirement::as_written)),
        needs_python3: minimums.map(|source| Sourced { value: target.needs_python3, source }),
        variables: sources.variables.map(|source| variables(target, source)).unwrap_or_default(),
        device_resource: target
            .device_resource
            .and_then(|value| Some(Sourced { value, source: sources.device_resource? })),
        docker_flags: sources.docker_flags.map(|source| Sourced { value: target.docker_flags.to_vec(), source }),
        instances_source: sources.instances,
        instances: target.instances.iter().map(|instance| instance_entry(instance)).collect(),
        families: target.families.iter().map(|family| FamilyEntry { name: family.name, said: family.said }).collect(),
        baselines: target.baselines.iter().map(baseline_entry).collect(),
        notes: target.notes.to_vec(),
    }
}

fn variables(target: &Target, source: &'static Source) -> Vec<VariableEntry> {
    let entry = |name, value, has_effect, note| VariableEntry { name, value, has_effect, note, source };
    let presets = target.nccl_presets.iter().map(|(name, value)| entry(*name, Some(*value), true, ""));
    let idle = target.nccl_without_effect.iter().map(|name| entry(*name, None, false, ""));
    let others = target.variables.iter().map(|variable| entry(variable.name, variable.value, true, variable.note));
    presets.chain(idle).chain(others).collect()
}

fn instance_entry(instance: &InstanceType) -> InstanceEntry {
    let InstanceType { name, nics, bandwidth_gbit_per_s, rdma_gbit_per_s, gpus } = *instance;
    InstanceEntry { name, nics, bandwidth_gbit_per_s, rdma_gbit_per_s, gpus }
}

fn baseline_entry(baseline: &Baseline) -> BaselineEntry {
    let Baseline { collective, instance, hosts, ranks_per_host, settings, command, software, rows, source } = *baseline;
    let settings = settings.iter().map(|(name, value)| SettingEntry { name, value }).collect();
    BaselineEntry { collective, instance, hosts, ranks_per_host, settings, command, software, rows, source }
}
