//! `rdmaprep check`

use super::error::{CliError, Exit};
use super::inspect::Format;
use super::output::Output;
use super::{Global, source};
use crate::checks::{REGISTRY, Severity, Subject, Verdict, check_image};
use crate::facts::ImageFacts;
use crate::report::{Report, write_check};
use crate::targets::{self, Target};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  rdmaprep check my/train:1
  rdmaprep check my/train:1 --target ecs --all
  rdmaprep check docker-archive:train.tar.gz --format json > report.json
  rdmaprep check --list";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Image: NAME of the daemon, docker-daemon:NAME, docker-archive:FILE[:NAME] or the path of an archive
    #[arg(required_unless_present = "list")]
    image: Option<String>,
    /// Where the image is to run: pai-dlc, ecs or ack
    #[arg(long, value_name = "NAME", default_value = "pai-dlc", value_parser = parse_target)]
    target: &'static Target,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show what passed, too
    #[arg(long)]
    all: bool,
    /// List the checks
    #[arg(long)]
    list: bool,
}

/// A target by its id, for clap.
pub fn parse_target(name: &str) -> Result<&'static Target, String> {
    targets::by_id(name).ok_or_else(|| format!("known targets: {}", targets::known()))
}

pub fn run(args: &CheckArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if args.list {
        list(args, output);
        return Ok(Exit::Ok);
    }
    let facts = source::load_facts(args.image.as_deref().unwrap_or_default(), global)?;
    let report = judge(&facts, args.target);
    match args.format {
        Format::Text => output.write(|out, style| write_check(out, &report, args.all, style)),
        Format::Json => output.json(&report),
    }
    Ok(verdict_exit(report.verdict))
}

fn list(args: &CheckArgs, output: &mut Output) {
    output.write(|out, _| {
        for check in REGISTRY {
            let severity = match check.severity_for(args.target) {
                Severity::Required => "required",
                Severity::Advice => "advice",
            };
            writeln!(out, "{:<20} {severity:<9} {}", check.id, check.about)?;
        }
        Ok(())
    });
}

/// Judges facts for a target.
pub fn judge(facts: &ImageFacts, target: &'static Target) -> Report {
    let findings = check_image(&Subject { facts, target });
    Report::new(facts, target.id, target.fabric.id, findings)
}

pub fn verdict_exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Pass => Exit::Ok,
        Verdict::Fail => Exit::ImageAtFault,
        Verdict::Unknown => Exit::NotExamined,
    }
}
