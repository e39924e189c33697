//! `rdmaprep build`: render, build, check the result, show what changed, push.

use super::error::{CliError, Exit};
use super::inspect::Format;
use super::judge::{JudgeArgs, verdict_exit};
use super::output::Output;
use super::progress::{Progress, ProgressMode};
use super::source::{Client, LayerCache, load_daemon};
use super::swap::{self, Swap, SwapArgs};
use super::{Global, block_on, interrupted};
use crate::build_log::explain_build_log;
use crate::checks::Verdict;
use crate::diff::{ImageDiff, diff_images};
use crate::docker::auth;
use crate::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuiltImage};
use crate::docker::config::{merge_build_args, proxy_build_args};
use crate::docker::context::{BuildContext, Content};
use crate::docker::engine::Engine;
use crate::docker::push::{PushError, Pushed};
use crate::dockerfile::render_dockerfile;
use crate::fabric::Userspace;
use crate::image::reference::{Reference, is_image_name};
use crate::report::{Report, write_check, write_diff};
use crate::units::Elapsed;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{self, Write};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  rdmaprep build my/train:1 -t my/train:1-erdma
  rdmaprep build my/train:1 -t reg.example.com/train:1-erdma --push     push if the result passed
  rdmaprep build my/train:1 -t my/train:1-erdma --vpc                   on a machine inside the vendor's VPC
  rdmaprep build images/cuda-12.4-ubuntu22.04 -t cuda:erdma             from a recipe
  rdmaprep build my/train:1 -t my/train:1-erdma --offline debs/         from package files, without any network
  rdmaprep build my/train:1 -t my/train:1-roce --target cce             for RoCE: kept if it is sound, else the distribution's
  rdmaprep build my/debian:12 -t my/debian:12-erdma \\
      --mirror http://mirror.example.com/erdma --suite bookworm/erdma   from a mirror of your own";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BuildArgs {
    /// Image of the daemon, or a recipe.toml
    #[arg(value_name = "IMAGE|RECIPE")]
    subject: String,
    /// Name of the new image; may be repeated
    #[arg(short, long = "tag", value_name = "NAME", required = true)]
    tags: Vec<String>,
    /// Push every tag once the result passed
    #[arg(long)]
    push: bool,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Which builder; auto takes BuildKit, or the classic builder where there is none
    #[arg(long, value_enum, default_value_t = BuilderChoice::Auto)]
    builder: BuilderChoice,
    /// Network of the build, as in docker build [default: the builder's, and none with --offline]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Do not reuse results of earlier builds
    #[arg(long)]
    no_cache: bool,
    /// Form of the progress on stderr; auto is a live line on a terminal and plain lines elsewhere
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    swap: SwapArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuilderChoice {
    Auto,
    Buildkit,
    Classic,
}

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
struct BuildResult {
    schema_version: u32,
    image_id: String,
    tags: Vec<String>,
    builder: String,
    /// Whose build of the userspace the result has; `keep`: nothing was installed or removed.
    userspace: Userspace,
    build_time_ms: u64,
    report: Report,
    diff: ImageDiff,
    pushed: Vec<Pushed>,
}

/// Lines of the failing step that are shown.
const FAILURE_LINES: usize = 20;

pub fn run(args: &BuildArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if let Some(tag) = args.tags.iter().find(|tag| !is_image_name(tag) || tag.contains('@')) {
        let hint = "a tag is lower case, as in registry.example.com/team/image:1.0";
        return Err(CliError::Usage(format!("{tag:?} is not a name that an image can be given\n  {hint}")));
    }
    let subject = swap::read_subject(&args.subject)?;
    let (Reference::Daemon(name) | Reference::Name(name)) = &subject.base else {
        let hint = "load it first: docker load -i FILE";
        return Err(CliError::Usage(format!("{}: a build starts from an image of the daemon\n  {hint}", subject.base)));
    };
    let judge = args.judge.load()?;
    let fabric = args.judge.target.fabric;
    subject.check_fabric(fabric)?;
    args.swap.check(fabric)?;
    let client = Client::load(global)?;
    let mut progress = Progress::new(args.progress, global);
    let (result, damage) = block_on(async {
        let engine = client.connect().await?;
        let cache = LayerCache::default();
        progress.phase(&format!("reading {name}"));
        let swap = args.swap.plan_from_daemon(&subject, fabric, &engine, name, &cache).await?;
        let built = build(args, &client, &engine, &swap, &mut progress).await?;
        progress.phase("checking the result");
        let facts = load_daemon(&engine, &built.id, &cache).await?;
        let diff = diff_images(&swap.facts, &facts, |package| swap.plan.touches(package));
        if !diff.is_built_on_first {
            return Err(CliError::BaseMoved { id: built.id });
        }
        let mut report = judge.judge(&facts);
        if let Some(image) = &mut report.image {
            image.reference = Reference::Daemon(args.tags[0].clone()).to_string();
        }
        let damage: Vec<String> = diff.damage().map(|change| change.package.clone()).collect();
        let good = report.verdict == Verdict::Pass && damage.is_empty();
        let pushed = match (args.push, good) {
            (true, true) => push(args, &client, &engine, &progress).await?,
            (true, false) => {
                tracing::warn!("not pushed: the result did not pass");
                Vec::new()
            }
            (false, _) => Vec::new(),
        };
        Ok((
            BuildResult {
                schema_version: 1,
                image_id: built.id,
                tags: args.tags.clone(),
                builder: built.builder.to_string(),
                userspace: swap.plan.userspace,
                build_time_ms: u64::try_from(built.duration.as_millis()).unwrap_or(u64::MAX),
                report,
                diff,
                pushed,
            },
            damage,
        ))
    })?;
    progress.finish();
    match args.format {
        Format::Json => output.json(&result),
        Format::Text => output.write(|out, style| {
            writeln!(out, "{name} -> {}", args.tags.join(", "))?;
            write_diff(out, &result.diff, style)?;
            write_check(out, &result.report, false, style)?;
            write_summary(out, &result)
        }),
    }
    if !damage.is_empty() {
        tracing::error!("the build changed packages outside the RDMA set: {}", damage.join(", "));
        return Ok(Exit::ImageAtFault);
    }
    Ok(verdict_exit(result.report.verdict))
}

fn write_summary(out: &mut dyn Write, result: &BuildResult) -> io::Result<()> {
    let time = Elapsed(std::time::Duration::from_millis(result.build_time_ms));
    writeln!(out, "built {} in {time} with {}", result.image_id, result.builder)?;
    for pushed in &result.pushed {
        writeln!(out, "pushed {}@{}", pushed.reference, pushed.digest)?;
    }
    Ok(())
}

async fn build(
    args: &BuildArgs,
    client: &Client,
    engine: &Engine,
    swap: &Swap,
    progress: &mut Progress,
) -> Result<BuiltImage, CliError> {
    let key = swap.key_file().map(|(name, key)| (name.to_owned(), Content::Bytes(key.content.clone()), 0o644));
    let packages = swap.packages.iter().map(|(name, path)| (name.clone(), Content::File(path.clone()), 0o644));
    let proxies = proxy_build_args(&client.env, &client.config, engine.endpoint().docker_host());
    let request = BuildRequest {
        dockerfile: render_dockerfile(&swap.plan),
        context: BuildContext { files: key.into_iter().chain(packages).collect() },
        tags: args.tags.clone(),
        build_args: merge_build_args(proxies, &swap.build_args),
        network: args.network.clone().or_else(|| args.swap.is_offline().then(|| "none".to_owned())),
        no_cache: args.no_cache,
        // The image that was inspected is the one to build on.
        pull: false,
        platform: None,
        builder: match args.builder {
            BuilderChoice::Auto => Builder::Auto,
            BuilderChoice::Buildkit => Builder::BuildKit,
            BuilderChoice::Classic => Builder::Classic,
        },
        registry_auth: base_auth(client, &swap.plan.base.from),
    };
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let watch = tokio::spawn(async move {
        interrupted().await;
        stop.cancel();
    });
    // All lines are looked at for the cause: the telling one may be far above the last.
    let mut lines: Vec<String> = Vec::new();
    let mut on_event = |event: BuildEvent| {
        if let BuildEvent::Log { line, .. } = &event
            && lines.len() < MAX_LOG_LINES
        {
            lines.push(line.clone());
        }
        progress.build_event(&event);
    };
    let result = engine.build(request, &mut on_event, cancel).await;
    watch.abort();
    result.map_err(|source| {
        progress.finish();
        failure(source, lines)
    })
}

/// Credentials for the registry of the base. The base is in the daemon already, so a helper that fails need not matter.
fn base_auth(client: &Client, from: &str) -> auth::RegistryAuth {
    auth::find_for_images(&client.config, [from]).unwrap_or_else(|error| {
        tracing::info!("building without credentials for the base's registry: {error}");
        auth::RegistryAuth::default()
    })
}

/// Lines of the log that are kept for the search for a cause.
const MAX_LOG_LINES: usize = 50_000;

fn failure(source: BuildError, mut lines: Vec<String>) -> CliError {
    if matches!(source, BuildError::Cancelled) {
        return CliError::Interrupted;
    }
    let last = source.last_lines();
    let shown = &last[last.len().saturating_sub(FAILURE_LINES)..];
    for line in shown {
        let _ = writeln!(io::stderr(), "  | {line}");
    }
    lines.extend(last.iter().cloned());
    // With an exit code the step's own output has the cause, and the engine's message would repeat its whole command.
    if !matches!(source, BuildError::Step { exit_code: Some(_), .. }) {
        lines.push(source.to_string());
    }
    let cause = explain_build_log(lines.iter().map(String::as_str));
    CliError::Build { error: Box::new(source), cause }
}

async fn push(
    args: &BuildArgs,
    client: &Client,
    engine: &Engine,
    progress: &Progress,
) -> Result<Vec<Pushed>, CliError> {
    let mut pushed = Vec::new();
    for tag in &args.tags {
        progress.phase(&format!("pushing {tag}"));
        let found = auth::find_for_images(&client.config, [tag.as_str()])?;
        let mut on_event = |event| progress.push_event(&event);
        let work = engine.push(tag, found.values().next(), &mut on_event);
        let done: Result<Pushed, PushError> = tokio::select! {
            done = work => done,
            () = interrupted() => return Err(CliError::Interrupted),
        };
        pushed.push(done?);
    }
    Ok(pushed)
}
