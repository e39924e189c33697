//! What the messages of one run add up to: [`RunFacts`], which can be saved and judged again.

mod protocol;

pub use protocol::*;

use super::run_evidence::LogEvidence;
use serde::{Deserialize, Serialize};

/// Everything that one run said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunFacts {
    pub launch: LaunchFacts,
    pub collective: Collective,
    /// The element that was changed on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted: Option<Plant>,
    pub agent_version: Option<String>,
    pub hostname: Option<String>,
    pub environment: Option<EnvironmentFacts>,
    pub gpus: Option<GpuProbe>,
    pub verbs: Option<VerbsProbe>,
    pub ranks: Vec<RankFacts>,
    pub rows: Vec<Row>,
    pub failures: Vec<RankFailure>,
    #[serde(default)]
    pub counters: Vec<CounterDelta>,
    pub ending: Ending,
    pub time: RunTime,
    /// Conclusions from NCCL's logs; `None`: they were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<LogEvidence>,
    /// Version of the host's GPU driver, where it is known without the container (`550.54.14`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_driver: Option<String>,
}

/// How a run ended, seen from outside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Ending {
    /// The agent said so.
    Agent { ending: AgentEnding },
    /// The engine did not start the container.
    NotStarted { cause: StartFailure, message: String },
    /// The container ended before the agent was done.
    ContainerEnded { exit_code: i64, out_of_memory: bool, last_lines: Vec<String> },
    /// The time for the whole run was over, and the container was ended from outside.
    TotalTimeout,
}

/// Why an engine did not start a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StartFailure {
    /// `could not select device driver`: the NVIDIA container toolkit is not installed or not set up.
    NvidiaToolkitMissing,
    /// `requirement error: unsatisfied condition`: the image asks for a newer driver.
    DriverTooOld,
    /// A CDI device that no specification names.
    CdiDeviceUnknown,
    /// A device or directory that is not on the host.
    DeviceMissing,
    /// The image has no such program, or no loader for it.
    NoLoader,
    Other,
}

/// One rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankFacts {
    pub rank: u32,
    pub pid: u32,
    pub gpu: u32,
    /// Name of the host that it ran on; absent: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub host_id: Option<String>,
    pub nccl: Option<LoadedLibrary>,
    pub nccl_version_code: Option<i32>,
    /// The last phase that it said to be in.
    pub phase: Phase,
    /// What NCCL logged; not part of saved facts.
    #[serde(skip)]
    pub log: String,
    /// What the rank's process printed itself, its last lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// Times of the run, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunTime {
    /// Creating the container and putting the agent into it.
    pub create_ms: u64,
    /// From the start of the container to the agent's first word.
    pub start_ms: u64,
    /// From the agent's first word to its last.
    pub run_ms: u64,
}

/// The request to the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaunchFacts {
    /// `nvidia`, `cdi`, `plain` or `none`.
    pub gpu_access: String,
    /// Why this one, in a sentence.
    pub gpu_access_reason: String,
    /// Device nodes passed.
    pub devices: Vec<String>,
    /// `source:target[:ro]`.
    pub mounts: Vec<String>,
    /// What the container gets of the variables that matter to NCCL, CUDA and the loader, and of those that a preset, the user
    /// or the run sets. A secret's value is `***`; one that the run removes has no value.
    pub variables: Vec<Variable>,
    /// The equivalent `docker run` line.
    pub command_line: String,
    /// Omitted settings that the engine refused, with its message.
    pub given_up: Vec<String>,
    pub force_nic: bool,
    pub ranks_per_gpu: u32,
    pub network: String,
}

/// An environment variable and who set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Variable {
    pub name: String,
    pub value: String,
    pub origin: Origin,
    /// The values that this one replaced, with theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<(Origin, String)>,
}

/// Who set a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The image's config.
    Image,
    /// The target sets it in every job.
    Preset,
    /// `--env`.
    User,
    /// The run needs it (log, `--force-nic`, `--ranks-per-gpu`).
    Run,
}
