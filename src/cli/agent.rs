//! `rdmaprep agent`: this program inside the container. Started by the preflight, not by people.

use super::error::{CliError, Exit};
use crate::{agent, loopback};
use clap::Subcommand;
use std::io::{self, Write};
use std::path::PathBuf;

/// Its words are those of [`agent::part`].
#[derive(Debug, Subcommand)]
pub enum AgentPart {
    /// Run the ranks of a plan
    Run { plan: PathBuf },
    /// Be one rank; the plan comes on stdin
    Rank,
    /// Say what libcuda says
    Gpus,
    /// Say what libibverbs says
    Verbs,
    /// Open a libnccl and print its version code
    NcclVersion { path: Option<String> },
    /// Write from RDMA devices to themselves and say what came of it
    Loopback {
        /// This device instead of all
        #[arg(long)]
        device: Option<String>,
        /// This slot of the GID table instead of NCCL's choice
        #[arg(long)]
        gid_index: Option<u32>,
        /// Messages of this many bytes instead of 64 KiB to 8 MiB
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(4096..=8 << 20))]
        sizes: Vec<u64>,
        /// Change this message before it is verified
        #[arg(long)]
        plant: Option<u32>,
    },
}

/// Runs the part; the exit code is the agent's own.
pub fn run(part: &AgentPart) -> Result<Exit, CliError> {
    let written = |result: io::Result<()>| result.map(|()| Exit::Ok).map_err(|source| CliError::Output { source });
    match part {
        AgentPart::Run { plan } => Ok(if agent::run(plan) == 0 { Exit::Ok } else { Exit::ImageAtFault }),
        AgentPart::Rank => agent::run_rank(),
        AgentPart::Gpus => written(agent::probe_gpus()),
        AgentPart::Verbs => written(agent::probe_verbs()),
        AgentPart::Loopback { device, gid_index, sizes, plant } => {
            let mut options = loopback::Options {
                device: device.clone(),
                gid_index: *gid_index,
                plant: *plant,
                ..loopback::Options::default()
            };
            if !sizes.is_empty() {
                options.sizes.clone_from(sizes);
            }
            let report = loopback::run(&options);
            let written = serde_json::to_writer(io::stdout(), &report).map_err(io::Error::from);
            let written = written.and_then(|()| writeln!(io::stdout()));
            written.map_err(|source| CliError::Output { source })?;
            Ok(if report.is_proven() { Exit::Ok } else { Exit::Host })
        }
        AgentPart::NcclVersion { path } => {
            let code =
                agent::nccl_version(path.as_deref()).map_err(|failure| CliError::Usage(format!("{failure:?}")))?;
            written(writeln!(io::stdout(), "{code}"))
        }
    }
}
