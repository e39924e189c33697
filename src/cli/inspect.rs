//! `rdmaprep inspect`

use super::Global;
use super::destinations::{Destination, destination_of, destinations, format_of, write_everywhere};
use super::error::CliError;
use super::output::Output;
use super::source::SourceArgs;
use crate::judge::Exit;
use crate::report::{Format, write_facts, write_json};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// Image: NAME (daemon, else registry), the path of an archive, OCI layout or root directory, or SOURCE:… with SOURCE
    /// docker-daemon, docker-archive, oci, oci-archive, rootfs or docker:// (registry)
    image: String,
    /// Output format on stdout [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = format_of(Format::OF_FACTS))]
    format: Option<Format>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = destination_of(Format::OF_FACTS))]
    outputs: Vec<Destination>,
    #[command(flatten)]
    source: SourceArgs,
}

pub(super) fn run(args: &InspectArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let destinations = destinations(args.format, &args.outputs)?;
    let facts = args.source.load_facts(&args.image, global)?;
    write_everywhere(&destinations, output, |format, out, _| match format {
        Format::Text => write_facts(out, &facts),
        _ => write_json(out, &facts),
    })?;
    Ok(Exit::Ok)
}
