//! The agent: this program inside the container, started as its entrypoint.
//!
//! A supervisor reads an [`AgentPlan`] from a file, looks around ([`environment`], [`probe`]), starts one process per rank
//! ([`rank`]), watches them, and says what happens as JSON lines on stdout ([`crate::facts::run::AgentMessage`]). It needs
//! no shell, no Python and none of the libraries that it asks about: [`library`] opens them at run time.
//!
//! [`AgentPlan`]: crate::facts::run::AgentPlan

mod barrier;
mod channel;
mod children;
pub mod counters;
pub mod cuda;
mod environment;
pub mod library;
mod logs;
mod measure;
pub mod nccl;
mod pattern;
mod probe;
mod rank;
mod supervisor;
pub mod verbs;

use crate::facts::run::Failure;
use std::io::{self, Write};
use std::path::Path;

/// The words after `rdmaprep agent` that start each part.
pub mod part {
    /// The supervisor; the path of the plan follows.
    pub const RUN: &str = "run";
    pub const RANK: &str = "rank";
    pub const GPUS: &str = "gpus";
    pub const VERBS: &str = "verbs";
    pub const NCCL_VERSION: &str = "nccl-version";
    pub const LOOPBACK: &str = "loopback";
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
    write_line(&probe::gpus())
}

/// Asks libibverbs and writes what it says, as one line.
pub fn probe_verbs() -> io::Result<()> {
    write_line(&probe::verbs())
}

/// Opens a libnccl and gives its `NCCL_VERSION_CODE`.
pub fn nccl_version(path: Option<&str>) -> Result<i32, Failure> {
    nccl::Nccl::open(path)?.version_code()
}

fn write_line(value: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}
