//! `rdmaprep build`: render, build, check the result, show what changed, push. One image, or several recipes at once.

mod many;

use super::TextOrJson;
use super::error::CliError;
use super::judge::JudgeArgs;
use super::output::Output;
use super::progress::{Progress, ProgressMode};
use super::recipes::RecipeArgs;
use super::swap::SwapArgs;
use super::{Global, block_on, interrupted};
use crate::build::{BuildFailure, BuildOptions, BuildResult, PullWhen, Workbench};
use crate::docker::build::Builder;
use crate::judge::Exit;
use crate::reference::can_be_given;
use crate::report::{Style, write_check, write_diff};
use crate::swap::{Subject, SwapRequest, read_subject};
use crate::units::Elapsed;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  rdmaprep build my/train:1 -t my/train:1-erdma
  rdmaprep build my/train:1 -t reg.example.com/train:1-erdma --push     push if the result passed
  rdmaprep build my/train:1 -t my/train:1-erdma --vpc                   on a machine inside the vendor's VPC
  rdmaprep build cuda-12.4-ubuntu22.04                                  a recipe of rdmaprep images
  rdmaprep build recipes/train -t train:erdma                           recipes/train/recipe.toml
  rdmaprep build my/train:1 -t my/train:1-erdma --offline debs/         from package files, without any network
  rdmaprep build my/train:1 -t my/train:1-roce --target cce             for RoCE: kept if it is sound, else the distribution's
  rdmaprep build --all recipes -j 4 --tag-prefix reg.example.com/team/ --push     every recipe of a directory
  rdmaprep build my/debian:12 -t my/debian:12-erdma \\
      --mirror http://mirror.example.com/erdma --suite bookworm/erdma   from your own mirror

Exit code of several builds: 130 if interrupted, else the first of 1, 2, 4, 5 and 3 that one has, else 0.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct BuildArgs {
    /// Image in the daemon, or a recipe: its path, or the name of a shipped one (recipe:NAME if an image has the same
    /// name). Several recipes can be built at once; with --all, directories of recipes
    #[arg(value_name = "IMAGE|RECIPE", required_unless_present = "all")]
    subjects: Vec<String>,
    /// Build every recipe in the named directories, or every shipped one, and continue after failures
    #[arg(long)]
    all: bool,
    /// Number of recipes to build at the same time
    #[arg(short, long, value_name = "N", default_value = "2")]
    jobs: NonZeroUsize,
    /// Name of the new image; may be repeated [default: from the recipe]
    #[arg(short, long = "tag", value_name = "NAME")]
    tags: Vec<String>,
    /// Prefix for the name from a recipe, such as registry.example.com/team/
    #[arg(long, value_name = "PREFIX", conflicts_with = "tags")]
    tag_prefix: Option<String>,
    /// When to pull the base [default: missing for a recipe, never for an image]
    #[arg(long, value_name = "WHEN", value_enum)]
    pull: Option<PullChoice>,
    /// Push every tag if the result passes
    #[arg(long)]
    push: bool,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Builder to use; auto is BuildKit if available, else the classic builder
    #[arg(long, value_enum, default_value_t = BuilderChoice::Auto)]
    builder: BuilderChoice,
    /// Network of the build, as in docker build [default: the builder's, or none with --offline]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Do not reuse results of earlier builds
    #[arg(long)]
    no_cache: bool,
    /// Progress format on stderr; auto is a live line on a terminal, else plain lines
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    swap: SwapArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuilderChoice {
    Auto,
    Buildkit,
    Classic,
}

/// When to pull a base from its registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PullChoice {
    Missing,
    Always,
    Never,
}

impl BuildArgs {
    fn options(&self) -> BuildOptions {
        BuildOptions {
            pull: self.pull.map(|pull| match pull {
                PullChoice::Missing => PullWhen::Missing,
                PullChoice::Always => PullWhen::Always,
                PullChoice::Never => PullWhen::Never,
            }),
            push: self.push,
            builder: match self.builder {
                BuilderChoice::Auto => Builder::Auto,
                BuilderChoice::Buildkit => Builder::BuildKit,
                BuilderChoice::Classic => Builder::Classic,
            },
            network: self.network.clone(),
            no_cache: self.no_cache,
        }
    }
}

/// Connects, and listens for interrupts from then on.
async fn open_workbench(args: &BuildArgs, request: SwapRequest, global: &Global) -> Result<Workbench, BuildFailure> {
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    tokio::spawn(async move {
        interrupted().await;
        stopper.cancel();
    });
    Workbench::open(&global.daemon(), request, args.options(), stop).await
}

pub(super) fn run(args: &BuildArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if let Some(tag) = args.tags.iter().find(|tag| !can_be_given(tag)) {
        let hint = "a tag is lower case, such as registry.example.com/team/image:1.0";
        return Err(CliError::Usage(format!("{tag:?} is not a valid image name\n  {hint}")));
    }
    if args.all || args.subjects.len() > 1 {
        return many::run(args, global, output);
    }
    let text = args.subjects.first().map(String::as_str).unwrap_or_default();
    let region = args.recipe.region.as_deref();
    let subject = block_on(async { Ok(read_subject(text, region, &global.daemon()).await?) })?;
    let name = subject.base_name()?.to_owned();
    let tags = tags_of(args, &subject)?;
    let judge = args.judge.load(subject.found().map(|found| &found.recipe))?;
    subject.check_fabric(judge.fabric())?;
    let request = args.swap.load()?;
    request.check(judge.fabric())?;
    let mut progress = Progress::new(args.progress, global);
    let built = block_on(async {
        let bench = open_workbench(args, request, global).await?;
        Ok(bench.make(&subject, &judge, &tags, &mut |event| progress.event(event)).await?)
    })?;
    progress.finish();
    match args.format {
        TextOrJson::Json => output.json(&built.result),
        TextOrJson::Text => output.write(|out, style| write_built(out, &name, &built.result, style)),
    }
    if let Some(damage) = built.describe_damage() {
        tracing::error!("{damage}");
    }
    Ok(built.exit())
}

/// The names of the new image: those of the command line, else the recipe's.
fn tags_of(args: &BuildArgs, subject: &Subject) -> Result<Vec<String>, CliError> {
    if !args.tags.is_empty() {
        return Ok(args.tags.clone());
    }
    let Some(found) = subject.found() else {
        return Err(CliError::Usage("the new image needs a name\n  add --tag NAME (-t)".into()));
    };
    let prefix = args.tag_prefix.as_deref().unwrap_or_default();
    let tag = found.recipe.default_tag().map(|tag| format!("{prefix}{tag}")).filter(|tag| can_be_given(tag));
    let Some(tag) = tag else {
        let name = &found.recipe.name;
        return Err(CliError::Usage(format!(
            "{}: {prefix:?} and the recipe's {name:?} do not form an image name\n  add --tag NAME (-t), or set tag in the recipe",
            found.origin
        )));
    };
    if args.push && !tag.contains('/') {
        let hint = "add --tag NAME (-t) with a registry, or --tag-prefix registry.example.com/team/";
        return Err(CliError::Usage(format!("{tag} names no registry to push to\n  {hint}")));
    }
    Ok(vec![tag])
}

/// Writes a result for people; `name` is what it was built on.
fn write_built(out: &mut dyn Write, name: &str, result: &BuildResult, style: Style) -> io::Result<()> {
    writeln!(out, "{name} -> {}", result.tags.join(", "))?;
    write_diff(out, &result.diff, style)?;
    write_check(out, &result.report, false, style)?;
    let time = Elapsed(std::time::Duration::from_millis(result.build_time_ms));
    writeln!(out, "built {} in {time} with {}", result.image_id, result.builder)?;
    for pushed in &result.pushed {
        writeln!(out, "pushed {}@{}", pushed.reference, pushed.digest)?;
    }
    Ok(())
}
