//! `rdmaprep check`

use super::destinations::{Destination, destinations, parse_destination, write_everywhere};
use super::error::CliError;
use super::judge::JudgeArgs;
use super::output::{Output, write_json};
use super::source::SourceArgs;
use super::{Global, recipes};
use crate::checks::recipe::NOT_STATED;
use crate::judge::Exit;
use crate::judge::verdict_exit;
use crate::report::{RegistryListing, Report, Style, write_check, write_github, write_junit, write_list, write_sarif};
use crate::source::load_saved;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
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
pub struct CheckArgs {
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
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = parse_destination::<ReportFormat>)]
    outputs: Vec<Destination<ReportFormat>>,
    /// Also show what passed
    #[arg(long)]
    all: bool,
    /// List the checks; --format json adds every detail
    #[arg(long, conflicts_with_all = ["image", "facts", "outputs"])]
    list: bool,
    #[command(flatten)]
    source: SourceArgs,
}

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    Text,
    Json,
    // JUnit XML.
    Junit,
    // SARIF 2.1.0.
    Sarif,
    // Workflow commands of GitHub Actions.
    Github,
}

pub fn run(args: &CheckArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if args.list {
        return list(args, output);
    }
    let destinations = destinations(args.format, ReportFormat::Text, &args.outputs)?;
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

fn write_report(out: &mut dyn Write, report: &Report, format: ReportFormat, all: bool, style: Style) -> io::Result<()> {
    match format {
        ReportFormat::Text => {
            write_check(out, report, all, style)?;
            write_rest(out, report)
        }
        ReportFormat::Json => write_json(out, report),
        ReportFormat::Junit => write_junit(out, report),
        ReportFormat::Sarif => write_sarif(out, report),
        ReportFormat::Github => write_github(out, report),
    }
}

/// For a recipe alone: how to learn what it does not state.
fn write_rest(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let untold = report.findings.iter().find(|finding| finding.summary == NOT_STATED);
    match untold.and_then(|finding| finding.remedy.as_ref()) {
        Some(command) => writeln!(out, "only the image itself can show the rest: {command}"),
        None => Ok(()),
    }
}

fn list(args: &CheckArgs, output: &mut Output) -> Result<Exit, CliError> {
    match args.format {
        None | Some(ReportFormat::Text) => output.write(|out, _| write_list(out, args.judge.target(None))),
        Some(ReportFormat::Json) => output.json(&RegistryListing::new()),
        Some(ReportFormat::Junit | ReportFormat::Sarif | ReportFormat::Github) => {
            return Err(CliError::Usage("--list has the formats text and json".into()));
        }
    }
    Ok(Exit::Ok)
}
