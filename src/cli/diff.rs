//! `rdmaprep diff`

use super::error::{CliError, Exit};
use super::inspect::Format;
use super::output::Output;
use super::{Global, source};
use crate::diff::diff_images;
use crate::fabric::RDMA_CORE_PACKAGES;
use crate::inspect::is_ofed_name;
use crate::report::write_diff;
use clap::Args;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// First image
    before: String,
    /// Second image
    after: String,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    source: source::SourceArgs,
}

pub fn run(args: &DiffArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let before = source::load_facts(&args.before, &args.source, global)?;
    let after = source::load_facts(&args.after, &args.source, global)?;
    let diff = diff_images(&before, &after, |name| RDMA_CORE_PACKAGES.contains(&name) || is_ofed_name(name));
    match args.format {
        Format::Json => output.json(&diff),
        Format::Text => output.write(|out, style| {
            writeln!(out, "{} -> {}", before.image.reference, after.image.reference)?;
            write_diff(out, &diff, style)
        }),
    }
    Ok(Exit::Ok)
}
