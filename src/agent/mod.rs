//! The agent: this program inside the container, started as its entrypoint.
//!
//! A supervisor reads an [`AgentPlan`] from a file, looks around ([`environment`], [`probe`]), starts one process per rank
//! ([`rank`]), watches them, and says what happens as JSON lines on stdout ([`crate::facts::run::AgentMessage`]). It needs
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

/// Runs the supervisor; the exit code of the process: 0, when every rank did all that was asked.
pub fn run(plan: &Path) -> u8 {
    supervisor::run(plan)
}

/// Runs a rank; started by the supervisor.
pub fn run_rank() -> ! {
    rank::run()
}

/// Asks libcuda and writes what it says, as one line.
pub fn probe_gpus() -> io::Result<()> {
    end_with_supervisor();
    write_line(&probe::gpus())
}

/// Asks libibverbs and writes what it says, as one line.
pub fn probe_verbs() -> io::Result<()> {
    end_with_supervisor();
    write_line(&probe::verbs())
}

/// What libcuda says, asked in a process of its own, so that a library that crashes or hangs takes only that along.
pub fn ask_gpus(limit: Duration) -> GpuProbe {
    children::probe_gpus(limit).probe
}

/// The same of libibverbs.
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

/// Opens a libnccl and gives its `NCCL_VERSION_CODE`.
pub fn nccl_version(path: Option<&str>) -> Result<i32, Failure> {
    Nccl::open(path)?.version_code()
}

/// Tells a process of the agent the number of the supervisor's.
const SUPERVISOR: &str = "RDMAPREP_SUPERVISOR";

/// Without the supervisor nobody would end a process that hangs in a library.
fn end_with_supervisor() {
    // It is refused nowhere; without it the container's end is the end.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // One that ended before that sends no signal any more.
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
