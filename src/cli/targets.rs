//! `rdmaprep targets`

use super::TextOrJson;
use super::error::CliError;
use super::output::Output;
use crate::judge::Exit;
use crate::remedy::with_remedy;
use crate::report::{InstanceListing, TargetListing, write_instance, write_target, write_targets};
use crate::targets::{self, TARGETS, choose_instance, find_instance};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  rdmaprep targets                                 a line for each
  rdmaprep targets pai-dlc                         minimums, variables, instance types, bandwidths, with sources
  rdmaprep targets --instance ebmgn8v.48xlarge     one instance type, whichever target names it
  rdmaprep targets --format json                   everything of every target";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TargetsArgs {
    /// Show everything of this target
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show everything of this instance type instead
    #[arg(long, value_name = "TYPE", conflicts_with = "name")]
    instance: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

pub(super) fn run(args: &TargetsArgs, output: &mut Output) -> Result<Exit, CliError> {
    if let Some(name) = &args.instance {
        let Some(instance) = find_instance(name) else {
            // Suggestions are the same for every target whose documents list types.
            let listing = TARGETS.into_iter().find(|target| !target.instances.is_empty());
            let error = listing.and_then(|target| choose_instance(target, name).err());
            let text = error.map_or_else(|| format!("unknown instance type {name:?}"), |error| with_remedy(&error));
            // Continuing without a type applies to other commands only.
            let lines: Vec<&str> = text.lines().filter(|line| !line.contains("omit --instance")).collect();
            return Err(CliError::Usage(lines.join("\n")));
        };
        match args.format {
            TextOrJson::Text => output.write(|out, style| write_instance(out, instance, style)),
            TextOrJson::Json => output.json(&InstanceListing::new(instance)),
        }
        return Ok(Exit::Ok);
    }
    let shown = match &args.name {
        None => TARGETS.to_vec(),
        Some(name) => vec![targets::by_id(name).ok_or_else(|| unknown(name))?],
    };
    match (args.format, &shown[..]) {
        (TextOrJson::Json, shown) => output.json(&TargetListing::new(shown)),
        (TextOrJson::Text, [target]) if args.name.is_some() => {
            output.write(|out, style| write_target(out, target, style))
        }
        (TextOrJson::Text, shown) => output.write(|out, style| write_targets(out, shown, style)),
    }
    Ok(Exit::Ok)
}

fn unknown(name: &str) -> CliError {
    let hint = match targets::closest(name)[..] {
        [] => String::new(),
        ref ids => format!("did you mean {}? ", ids.join(" or ")),
    };
    CliError::Usage(format!("there is no target {name:?}\n  {hint}known targets: {}", targets::known()))
}
