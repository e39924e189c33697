//! `rdmaprep inspect`

use super::error::{CliError, Exit};
use super::output::Output;
use super::{Global, source};
use crate::report::write_facts;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Image: NAME of the daemon, docker-daemon:NAME, docker-archive:FILE[:NAME] or the path of an archive
    image: String,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

pub fn run(args: &InspectArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let facts = source::load_facts(&args.image, global)?;
    match args.format {
        Format::Text => output.write(|out, _| write_facts(out, &facts)),
        Format::Json => output.json(&facts),
    }
    Ok(Exit::Ok)
}
