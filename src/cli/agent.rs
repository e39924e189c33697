//! `rdmaprep agent`: this program inside the container, started by the preflight, not by people.

use super::error::CliError;
use crate::agent;
use crate::judge::Exit;
use clap::Subcommand;
use std::io::{self, Write};
use std::path::PathBuf;

/// The parts of the agent, named as in [`agent::part`].
#[derive(Debug, Subcommand)]
pub(super) enum AgentPart {
    /// Run the ranks of a plan
    Run { plan: PathBuf },
    /// Run one rank; the plan comes on stdin
    Rank,
    /// Probe libcuda
    Gpus,
    /// Probe libibverbs
    Verbs,
    /// Open a libnccl and print its version code
    NcclVersion { path: Option<String> },
}

/// Runs the part; the exit code is the agent's own.
pub(super) fn run(part: &AgentPart) -> Result<Exit, CliError> {
    let written = |result: io::Result<()>| result.map(|()| Exit::Ok).map_err(|source| CliError::Output { source });
    match part {
        AgentPart::Run { plan } => Ok(if agent::run(plan) == 0 { Exit::Ok } else { Exit::ImageAtFault }),
        AgentPart::Rank => agent::run_rank(),
        AgentPart::Gpus => written(agent::probe_gpus()),
        AgentPart::Verbs => written(agent::probe_verbs()),
        AgentPart::NcclVersion { path } => {
            let code =
                agent::nccl_version(path.as_deref()).map_err(|failure| CliError::Usage(format!("{failure:?}")))?;
            written(writeln!(io::stdout(), "{code}"))
        }
    }
}
