//! `rdmaprep inspect`

use super::error::{CliError, Exit};
use super::output::Output;
use super::{Global, source};
use crate::report::write_facts;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Image: NAME (daemon, else registry), the path of an archive, OCI layout or root directory, or SOURCE:… with SOURCE
    /// docker-daemon, docker-archive, oci, oci-archive, rootfs or docker:// (registry)
    image: String,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    source: source::SourceArgs,
}

/// Form of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

pub fn run(args: &InspectArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let facts = source::load_facts(&args.image, &args.source, global)?;
    match args.format {
        Format::Text => output.write(|out, _| write_facts(out, &facts)),
        Format::Json => output.json(&facts),
    }
    Ok(Exit::Ok)
}
