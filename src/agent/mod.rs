//! The agent: this program inside the container, started as its entrypoint.
//!
//! A supervisor reads an [`AgentPlan`] from a file, looks around ([`environment`], [`probe`]), starts one process per rank
//! ([`rank`]), watches them, and reports events as JSON lines on stdout ([`crate::facts::run::AgentMessage`]). It needs
//! no shell, no Python and none of the libraries that it asks about: [`crate::ffi`] opens them at run time.
//!
//! [`AgentPlan`]: crate::facts::run::AgentPlan

mod barrier;
mod channel;
mod children;
mod counters;
mod environment;
mod logs;
mod measure;
mod pattern;
mod probe;
mod rank;
mod supervisor;
mod table;

use crate::facts::run::{Failure, GpuProbe, Interface, VerbsProbe};
use crate::ffi::nccl::Nccl;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The words after `rdmaprep agent` that start each part.
pub mod part {
    /// The supervisor; the path of the plan follows.
    pub const RUN: &str = "run";
    pub const RANK: &str = "rank";
    pub const GPUS: &str = "gpus";
    pub const VERBS: &str = "verbs";
    pub const NCCL_VERSION: &str = "nccl-version";
}

/// Runs the supervisor; returns the process's exit code: 0 if every rank did everything requested.
pub fn run(plan: &Path) -> u8 {
    supervisor::run(plan)
}

/// Runs a rank; started by the supervisor.
pub fn run_rank() -> ! {
    rank::run()
}

/// Probes libcuda and prints the result as one line.
pub fn probe_gpus() -> io::Result<()> {
    end_with_supervisor();
    write_line(&probe::gpus())
}

/// Probes libibverbs and prints the result as one line.
pub fn probe_verbs() -> io::Result<()> {
    end_with_supervisor();
    write_line(&probe::verbs())
}

/// Probes libcuda in a separate process, so that a crash or hang in the library affects only that.
pub fn ask_gpus(limit: Duration) -> GpuProbe {
    children::probe_gpus(limit).probe
}

/// Probes libibverbs in a separate process.
pub fn ask_verbs(limit: Duration) -> VerbsProbe {
    children::probe_verbs(limit)
}

/// Network interfaces with their addresses.
pub fn interfaces() -> Vec<Interface> {
    environment::interfaces()
}

/// Whether CAP_IPC_LOCK is in the effective set, by the text of `/proc/PID/status`.
pub fn can_lock_memory(status: &str) -> bool {
    environment::can_lock_memory(status)
}

/// Opens a libnccl and returns its `NCCL_VERSION_CODE`.
pub fn nccl_version(path: Option<&str>) -> Result<i32, Failure> {
    Nccl::open(path)?.version_code()
}

/// Tells a process of the agent the number of the supervisor's.
const SUPERVISOR: &str = "RDMAPREP_SUPERVISOR";

/// Without the supervisor nobody would end a process that hangs in a library.
fn end_with_supervisor() {
    // No kernel refuses this; without it the process ends with the container.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // A supervisor that ended before this call sends no signal.
    let supervisor = std::env::var(SUPERVISOR).ok().and_then(|number| number.parse::<i32>().ok());
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
    if supervisor.is_some() && parent != supervisor {
        std::process::exit(1);
    }
}

fn write_line(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}
