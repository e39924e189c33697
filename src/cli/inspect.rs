//! `rdmaprep inspect`

use super::Global;
use super::destinations::{Destination, destinations, parse_destination, write_everywhere};
use super::error::CliError;
use super::output::{Output, write_json};
use super::source::SourceArgs;
use crate::judge::Exit;
use crate::report::write_facts;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Image: NAME (daemon, else registry), the path of an archive, OCI layout or root directory, or SOURCE:… with SOURCE
    /// docker-daemon, docker-archive, oci, oci-archive, rootfs or docker:// (registry)
    image: String,
    /// Output format on stdout [default: text]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = parse_destination::<Format>)]
    outputs: Vec<Destination<Format>>,
    #[command(flatten)]
    source: SourceArgs,
}

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

pub fn run(args: &InspectArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let destinations = destinations(args.format, Format::Text, &args.outputs)?;
    let facts = args.source.load_facts(&args.image, global)?;
    write_everywhere(&destinations, output, |format, out, _| match format {
        Format::Text => write_facts(out, &facts),
        Format::Json => write_json(out, &facts),
    })?;
    Ok(Exit::Ok)
}
