//! `rdmaprep explain`

use super::error::{CliError, Exit};
use super::inspect::Format;
use super::output::Output;
use crate::checks;
use crate::policy::suggest;
use crate::report::{CheckEntry, write_explanation};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  rdmaprep explain rdma-provider
  rdmaprep check --list            every check there is";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Id of a check
    #[arg(value_name = "ID")]
    id: String,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub fn run(args: &ExplainArgs, output: &mut Output) -> Result<Exit, CliError> {
    let Some(check) = checks::by_id(&args.id) else {
        return Err(CliError::Usage(format!("there is no check {:?}\n  {}", args.id, suggest(&args.id))));
    };
    match args.format {
        Format::Text => output.write(|out, style| write_explanation(out, check, style)),
        Format::Json => output.json(&CheckEntry::new(check)),
    }
    Ok(Exit::Ok)
}
