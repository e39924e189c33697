//! `rdmaprep check`

use super::destinations::{Destination, destination_of, destinations, format_of, write_everywhere};
use super::error::CliError;
use super::judge::JudgeArgs;
use super::output::Output;
use super::source::SourceArgs;
use super::{Global, recipes};
use crate::judge::Exit;
use crate::judge::verdict_exit;
use crate::report::{Format, RegistryListing, write_list, write_report};
use crate::source::load_saved;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rdmaprep check my/train:1
  rdmaprep check my/train:1 --target ecs --all
  rdmaprep check my/train:1 --instance ebmgn8v.48xlarge                    and for this instance type
  rdmaprep check docker-archive:train.tar.gz --format json > report.json
  rdmaprep check my/train:1 -o junit=report.xml -o sarif=report.sarif      text on stdout, and two files
  rdmaprep check my/train:1 --policy policy.toml --fail-on warn            what a team asks, and no warning
  rdmaprep check egs-erdma-cuda12.1                     what a recipe states, without its image
  rdmaprep check --facts facts.json                                        saved by inspect --format json
  rdmaprep check --list";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// Image: NAME (daemon, else registry), the path of an archive, OCI layout or root directory, or SOURCE:… with SOURCE
    /// docker-daemon, docker-archive, oci, oci-archive, rootfs or docker:// (registry). Or a recipe, to judge what it states:
    /// its path, or the name of a shipped one (recipe:NAME if an image has the same name)
    #[arg(value_name = "IMAGE|RECIPE", required_unless_present_any = ["list", "facts"])]
    image: Option<String>,
    /// Judge saved facts (inspect --format json) instead of an image
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    facts: Option<PathBuf>,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Output format on stdout [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = format_of(Format::OF_REPORTS))]
    format: Option<Format>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = destination_of(Format::OF_REPORTS))]
    outputs: Vec<Destination>,
    /// Also show what passed
    #[arg(long)]
    all: bool,
    /// List the checks; --format json adds every detail
    #[arg(long, conflicts_with_all = ["image", "facts", "outputs"])]
    list: bool,
    #[command(flatten)]
    source: SourceArgs,
}

pub(super) fn run(args: &CheckArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if args.list {
        return list(args, output);
    }
    let destinations = destinations(args.format, &args.outputs)?;
    let image = args.image.as_deref().unwrap_or_default();
    let report = match &args.facts {
        Some(path) => args.judge.load(None)?.judge(&load_saved(path)?),
        None => match recipes::find(image, global)? {
            Some(found) => {
                let judge = args.judge.load(Some(&found.recipe))?;
                found.check_fabric(judge.fabric())?;
                judge.judge_stated(&found.recipe, image)
            }
            None => {
                let judge = args.judge.load(None)?;
                judge.judge(&args.source.load_facts(image, global)?)
            }
        },
    };
    write_everywhere(&destinations, output, |format, out, style| write_report(out, &report, format, args.all, style))?;
    Ok(verdict_exit(report.verdict))
}

fn list(args: &CheckArgs, output: &mut Output) -> Result<Exit, CliError> {
    match args.format {
        None | Some(Format::Text) => output.write(|out, _| write_list(out, args.judge.target(None))),
        Some(Format::Json) => output.json(&RegistryListing::new()),
        Some(_) => {
            return Err(CliError::Usage("--list has the formats text and json".into()));
        }
    }
    Ok(Exit::Ok)
}
