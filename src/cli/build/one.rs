//! One build from its base to the pushed image.

use super::{BuildArgs, BuilderChoice, PullWhen};
use crate::checks::Verdict;
use crate::cli::error::CliError;
use crate::cli::progress::Progress;
use crate::cli::swap::{Subject, Swap};
use crate::cli::{Global, interrupted};
use crate::diff::{ImageDiff, diff_images};
use crate::docker::auth;
use crate::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuiltImage};
use crate::docker::config::{merge_build_args, proxy_build_args};
use crate::docker::context::{BuildContext, Content};
use crate::docker::engine::Engine;
use crate::docker::pull::PullError;
use crate::docker::push::{PushError, Pushed};
use crate::dockerfile::render_dockerfile;
use crate::fabric::Userspace;
use crate::image::reference::Reference;
use crate::judge::Exit;
use crate::judge::{Judge, verdict_exit};
use crate::logs::build::explain_build_log;
use crate::report::{Report, Style, write_check, write_diff};
use crate::source::{Client, LayerCache, load_from_daemon};
use crate::units::Elapsed;
use serde::Serialize;
use std::io::{self, Write};
use tokio_util::sync::CancellationToken;

/// Version of the JSON of `build`, for one image and for several recipes.
pub const SCHEMA_VERSION: u32 = 1;

/// Number of lines shown from the failing step.
const FAILURE_LINES: usize = 20;

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuildResult {
    schema_version: u32,
    pub image_id: String,
    tags: Vec<String>,
    builder: String,
    /// The userspace build in the result; `keep`: nothing was installed or removed.
    userspace: Userspace,
    build_time_ms: u64,
    /// The base was pulled for this build.
    pulled: bool,
    pub report: Report,
    diff: ImageDiff,
    pushed: Vec<Pushed>,
}

/// The result of a build.
pub struct Built {
    pub result: BuildResult,
    /// Packages outside the RDMA set that changed.
    damage: Vec<String>,
}

impl Built {
    pub fn exit(&self) -> Exit {
        if self.damage.is_empty() { verdict_exit(self.result.report.verdict) } else { Exit::ImageAtFault }
    }

    /// The message about packages that the swap should not have touched.
    pub fn describe_damage(&self) -> Option<String> {
        let packages = self.damage.join(", ");
        (!packages.is_empty()).then(|| format!("the build changed packages outside the RDMA set: {packages}"))
    }
}

/// The name of the base in the daemon.
pub fn base_name(subject: &Subject) -> Result<&str, CliError> {
    match &subject.base {
        Reference::Daemon(name) | Reference::Name(name) => Ok(name),
        _ => {
            let hint = "load it first: docker load -i FILE";
            Err(CliError::Usage(format!("{}: a build starts from an image in the daemon\n  {hint}", subject.base)))
        }
    }
}

/// State shared by builds: the engine, and layers already read.
pub struct Workbench<'a> {
    args: &'a BuildArgs,
    client: Client,
    engine: Engine,
    cache: LayerCache,
    /// Cancelled by an interrupt.
    stop: CancellationToken,
}

impl<'a> Workbench<'a> {
    /// Connects, and listens for interrupts from then on.
    pub async fn open(args: &'a BuildArgs, global: &Global) -> Result<Workbench<'a>, CliError> {
        let stop = CancellationToken::new();
        let stopper = stop.clone();
        tokio::spawn(async move {
            interrupted().await;
            stopper.cancel();
        });
        let client = Client::load(&global.daemon())?;
        let engine = until(&stop, async { Ok(client.connect().await?) }).await?;
        Ok(Workbench { args, client, engine, cache: LayerCache::default(), stop })
    }

    /// Whether the user interrupted.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Pulls the base if needed, swaps, builds, checks and pushes.
    pub async fn make(
        &self,
        subject: &Subject,
        judge: &Judge,
        tags: &[String],
        progress: &mut Progress,
    ) -> Result<Built, CliError> {
        let args = self.args;
        let name = base_name(subject)?;
        let pulled = until(&self.stop, self.have_base(subject, name, progress)).await?;
        progress.phase(&format!("reading {name}"));
        let plan = args.swap.plan_from_daemon(subject, judge.fabric(), &self.engine, name, &self.cache);
        let swap = until(&self.stop, plan).await?;
        let built = self.build(&swap, tags, progress).await?;
        progress.phase("checking the result");
        let facts =
            until(&self.stop, async { Ok(load_from_daemon(&self.engine, &built.id, &self.cache).await?) }).await?;
        let diff = diff_images(&swap.facts, &facts, |package| swap.plan.touches(package));
        if !diff.is_built_on_first {
            return Err(CliError::BaseMoved { id: built.id });
        }
        let mut report = match subject.found() {
            Some(found) => judge.judge_built(&facts, &found.recipe),
            None => judge.judge(&facts),
        };
        if let (Some(image), Some(tag)) = (&mut report.image, tags.first()) {
            image.reference = Reference::Daemon(tag.clone()).to_string();
        }
        let damage: Vec<String> = diff.damage().map(|change| change.package.clone()).collect();
        let good = report.verdict == Verdict::Pass && damage.is_empty();
        let pushed = match (args.push, good) {
            (true, true) => self.push(tags, progress).await?,
            (true, false) => {
                tracing::warn!("{}: not pushed: the result did not pass", tags.join(", "));
                Vec::new()
            }
            (false, _) => Vec::new(),
        };
        let result = BuildResult {
            schema_version: SCHEMA_VERSION,
            image_id: built.id,
            tags: tags.to_vec(),
            builder: built.builder.to_string(),
            userspace: swap.plan.userspace,
            build_time_ms: u64::try_from(built.duration.as_millis()).unwrap_or(u64::MAX),
            pulled,
            report,
            diff,
            pushed,
        };
        Ok(Built { result, damage })
    }

    /// Pulls the base if needed; returns whether it did.
    async fn have_base(&self, subject: &Subject, name: &str, progress: &Progress) -> Result<bool, CliError> {
        // A user names an existing image; a recipe names one on any machine.
        let default = if subject.found().is_some() { PullWhen::Missing } else { PullWhen::Never };
        let wanted = match self.args.pull.unwrap_or(default) {
            PullWhen::Never => false,
            PullWhen::Always => true,
            PullWhen::Missing => self.engine.inspect_image(name).await?.is_none(),
        };
        if !wanted {
            return Ok(false);
        }
        progress.phase(&format!("pulling {name}"));
        let auth = self.base_auth(name);
        let mut on_event = |event| progress.pull_event(&event);
        let pulled: Result<(), PullError> = self.engine.pull(name, auth.values().next(), &mut on_event).await;
        pulled?;
        Ok(true)
    }

    async fn build(&self, swap: &Swap, tags: &[String], progress: &mut Progress) -> Result<BuiltImage, CliError> {
        let args = self.args;
        let key = swap.key_file().map(|(name, key)| (name.to_owned(), Content::Bytes(key.content.clone()), 0o644));
        let packages = swap.packages.iter().map(|(name, path)| (name.clone(), Content::File(path.clone()), 0o644));
        let proxies = proxy_build_args(&self.client.env, &self.client.config, self.engine.endpoint().docker_host());
        let request = BuildRequest {
            dockerfile: render_dockerfile(&swap.plan),
            context: BuildContext { files: key.into_iter().chain(packages).collect() },
            tags: tags.to_vec(),
            build_args: merge_build_args(proxies, &swap.build_args),
            network: args.network.clone().or_else(|| args.swap.is_offline().then(|| "none".to_owned())),
            no_cache: args.no_cache,
            // Build on exactly the image that was inspected.
            pull: false,
            platform: None,
            builder: match args.builder {
                BuilderChoice::Auto => Builder::Auto,
                BuilderChoice::Buildkit => Builder::BuildKit,
                BuilderChoice::Classic => Builder::Classic,
            },
            registry_auth: self.base_auth(&swap.plan.base.from),
        };
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
        let result = self.engine.build(request, &mut on_event, self.stop.clone()).await;
        result.map_err(|source| {
            progress.finish();
            failure(source, lines, progress)
        })
    }

    /// Credentials for the base's registry. It may need none, so a failing helper need not matter.
    fn base_auth(&self, from: &str) -> auth::RegistryAuth {
        auth::find_for_images(&self.client.config, [from]).unwrap_or_else(|error| {
            tracing::info!("continuing without credentials for the base's registry: {error}");
            auth::RegistryAuth::default()
        })
    }

    async fn push(&self, tags: &[String], progress: &Progress) -> Result<Vec<Pushed>, CliError> {
        let mut pushed = Vec::new();
        for tag in tags {
            progress.phase(&format!("pushing {tag}"));
            let found = auth::find_for_images(&self.client.config, [tag.as_str()])?;
            let mut on_event = |event| progress.push_event(&event);
            let work = async {
                let done: Result<Pushed, PushError> = self.engine.push(tag, found.values().next(), &mut on_event).await;
                Ok(done?)
            };
            pushed.push(until(&self.stop, work).await?);
        }
        Ok(pushed)
    }
}

/// Runs until an interrupt.
async fn until<T>(stop: &CancellationToken, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(CliError::Interrupted),
        done = work => done,
    }
}

/// Log lines kept for finding the cause.
const MAX_LOG_LINES: usize = 50_000;

fn failure(source: BuildError, mut lines: Vec<String>, progress: &Progress) -> CliError {
    if matches!(source, BuildError::Cancelled) {
        return CliError::Interrupted;
    }
    let last = source.last_lines();
    let shown = &last[last.len().saturating_sub(FAILURE_LINES)..];
    for line in shown {
        progress.line(&format!("  | {line}"));
    }
    lines.extend(last.iter().cloned());
    // With an exit code the step's own output has the cause, and the engine's message would repeat its whole command.
    if !matches!(source, BuildError::Step { exit_code: Some(_), .. }) {
        lines.push(source.to_string());
    }
    let cause = explain_build_log(lines.iter().map(String::as_str));
    CliError::Build { error: Box::new(source), cause }
}

/// Writes a result for people; `name` is what it was built on.
pub fn write_built(out: &mut dyn Write, name: &str, result: &BuildResult, style: Style) -> io::Result<()> {
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
