//! What an explanation consists of: the form that is written as JSON.

use crate::checks::{Finding, InstanceUse};
use crate::diagnosis::Cause;
use crate::logs::devinfo::RdmaTexts;
use crate::logs::nccl::{
    DeviceUse, NcclEvidence, Phase, PluginState, PluginUse, RankEvidence, RdmaVerdict, TransportUse, VersionUse,
};
use crate::logs::nccl_tests::NcclTests;
use crate::targets::Layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON format.
pub const SCHEMA_VERSION: u32 = 1;

/// Processes that are shown one by one.
const MAX_PROCESSES_SHOWN: usize = 64;
const MAX_TEXTS: usize = 64;
const MAX_SETTINGS: usize = 256;

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    NcclLog,
    /// Output of `all_reduce_perf` and its like.
    NcclTests,
    IbvDevinfo,
    ShowGids,
    /// Files of `/sys/class/infiniband`, as `grep .` shows them.
    Sysfs,
    /// The log of `docker build` or a similar tool.
    BuildLog,
    /// Another program's, with a line that names a failure of NCCL, CUDA or RDMA.
    ProgramOutput,
}

impl Kind {
    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Kind::NcclLog => "NCCL log",
            Kind::NcclTests => "nccl-tests output",
            Kind::IbvDevinfo => "ibv_devinfo output",
            Kind::ShowGids => "show_gids output",
            Kind::Sysfs => "files of /sys/class/infiniband",
            Kind::BuildLog => "build log",
            Kind::ProgramOutput => "output of a program",
        }
    }
}

/// The kinds of a run's texts, the state they show, and the causes they name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: String,
    pub inputs: Vec<InputText>,
    /// Absent: no text is an NCCL log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl_tests: Option<NcclTests>,
    /// How the ranks lie on hosts; absent: the texts do not show where every rank ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// The counterpart for runs whose table lists no devices.
    #[serde(skip)]
    pub unlisted_layout: Option<Layout>,
    /// The instance type, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceUse>,
    /// The texts' bandwidth compared with that type's figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The devices in `ibv_devinfo`, `show_gids` and sysfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma_devices: Option<RdmaTexts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildState>,
    /// Whether RDMA carried the data: `by_log` is what the texts say; `rdma` needs byte counters, too, which no log has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaVerdict>,
    /// Those that explain others first. Empty: nothing in the texts names a cause.
    pub causes: Vec<Cause>,
    /// Something is not as it should be, whether its cause is known or not.
    pub shows_trouble: bool,
    /// Lines without NCCL's prefix that name a failure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_failures: Vec<ProcessText>,
    /// What to look at next if no cause is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// A text that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InputText {
    /// Path; `-` is stdin.
    pub name: String,
    pub kinds: Vec<Kind>,
    /// After decompression.
    pub size_bytes: u64,
    /// Lines that are not empty; two records on one count twice.
    pub lines: u64,
}

/// The state that NCCL's log shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclState {
    pub versions: Vec<VersionUse>,
    /// Ranks of the largest communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nranks: Option<u32>,
    /// How many of them have a log.
    pub ranks_seen: u32,
    pub processes: u32,
    pub hosts: u32,
    /// Phase → processes in it.
    pub phases: BTreeMap<Phase, u32>,
    /// The processes that are furthest behind.
    pub behind: Vec<ProcessState>,
    /// `Using network X` → processes.
    pub networks: BTreeMap<String, u32>,
    /// Interface that processes meet on → processes.
    pub bootstrap_interfaces: BTreeMap<String, u32>,
    pub transports: Vec<TransportUse>,
    /// RDMA devices that channels use.
    pub devices: Vec<DeviceUse>,
    /// RDMA devices that processes listed → processes.
    pub listed_devices: BTreeMap<String, u32>,
    /// Processes that said `NET/IB : No device found.`
    pub processes_without_ib_device: u32,
    /// Network plugins that were loaded or tried.
    pub plugins: Vec<PluginUse>,
    pub settings: Vec<SettingUse>,
    /// Warnings, and lines at INFO that name a failure.
    pub warnings: Vec<ProcessText>,
    pub warning_count: u64,
    /// Lines of processes for which there was no room.
    #[serde(skip_serializing_if = "is_zero")]
    pub lines_left_out: u64,
}

/// A process on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessState {
    /// `rank 1 (host-a:77)`.
    pub process: String,
    pub phase: Phase,
    pub lines: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
}

/// A text of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessText {
    /// Absent: the line has no prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    pub text: String,
    pub count: u64,
}

/// A setting that processes took from their environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingUse {
    pub name: String,
    pub value: String,
    pub processes: u32,
}

/// How a build ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuildState {
    /// Whether the build reports that it failed.
    pub failed: bool,
}

impl NcclState {
    pub(super) fn of(evidence: &NcclEvidence, lines_left_out: u64) -> NcclState {
        let ranks = &evidence.ranks;
        let mut state = NcclState {
            versions: evidence.versions.clone(),
            nranks: evidence.nranks,
            ranks_seen: count(evidence.ranks_seen.len()),
            processes: count(ranks.len()),
            networks: evidence.networks.clone(),
            transports: evidence.transports.clone(),
            devices: evidence.devices.clone(),
            processes_without_ib_device: count(ranks.iter().filter(|rank| rank.no_ib_device).count()),
            warnings: process_texts(ranks, &RankEvidence::default()),
            warning_count: ranks.iter().map(|rank| rank.warnings.total).sum(),
            lines_left_out,
            ..NcclState::default()
        };
        let mut hosts: Vec<&str> = ranks.iter().map(|rank| rank.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        state.hosts = count(hosts.len());
        let mut settings: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for rank in ranks {
            *state.phases.entry(rank.phase).or_default() += 1;
            if let Some(interface) = &rank.bootstrap {
                *state.bootstrap_interfaces.entry(interface.name.clone()).or_default() += 1;
            }
            for device in rank.physical_devices() {
                *state.listed_devices.entry(device.to_owned()).or_default() += 1;
            }
            for plugin in rank.plugins.iter().filter(|plugin| plugin.state != PluginState::NotFound) {
                if state.plugins.len() < MAX_TEXTS && !state.plugins.contains(plugin) {
                    state.plugins.push(plugin.clone());
                }
            }
            for (name, value) in &rank.settings {
                *settings.entry((name, value)).or_default() += 1;
            }
        }
        let setting = |((name, value), processes): ((&str, &str), u32)| SettingUse {
            name: name.to_owned(),
            value: value.to_owned(),
            processes,
        };
        state.settings = settings.into_iter().take(MAX_SETTINGS).map(setting).collect();
        let behind = evidence.behind().into_iter().take(MAX_PROCESSES_SHOWN);
        state.behind = behind
            .map(|rank| ProcessState {
                process: rank.label(),
                phase: rank.phase,
                lines: rank.lines,
                last_line: rank.last_line.clone(),
            })
            .collect();
        state
    }
}

/// Warnings and notes of processes, then those of nobody; what several say alike is one.
pub(super) fn process_texts(ranks: &[RankEvidence], rest: &RankEvidence) -> Vec<ProcessText> {
    let own = ranks.iter().flat_map(|rank| {
        // A warning that names a failure is a note, too.
        let notes = rank.notes.iter().filter(|note| !rank.warnings.iter().any(|warning| warning.text == note.text));
        rank.warnings.iter().chain(notes).map(move |text| (Some(rank), text))
    });
    let others = rest.notes.iter().map(|text| (None, text));
    let mut texts: Vec<ProcessText> = Vec::new();
    for (rank, said) in own.chain(others) {
        if let Some(known) = texts.iter_mut().find(|known| known.text == said.text) {
            known.count += said.count;
        } else if texts.len() < MAX_TEXTS {
            let process = rank.map(RankEvidence::label);
            texts.push(ProcessText { process, text: said.text.clone(), count: said.count });
        }
    }
    texts
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
