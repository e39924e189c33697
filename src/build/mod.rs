//! The course of a build: from the base image, which may have to be pulled, to the image that was checked and pushed.
//!
//! What happens meanwhile is told to the caller event by event; nothing is printed here.

mod error;
mod names;

pub use error::{BuildFailure, shorten};
pub use names::{NameTaken, check_names};

use crate::checks::Verdict;
use crate::diff::{ImageDiff, diff_images};
use crate::docker::auth;
use crate::docker::build::{BuildError, BuildEvent, BuildRequest, Builder, BuiltImage};
use crate::docker::config::{merge_build_args, proxy_build_args};
use crate::docker::context::{BuildContext, Content};
use crate::docker::engine::Engine;
use crate::docker::pull::{PullError, PullEvent};
use crate::docker::push::{PushError, PushEvent, Pushed};
use crate::dockerfile::render_dockerfile;
use crate::fabric::Userspace;
use crate::facts::ImageFacts;
use crate::image::reference::Reference;
use crate::judge::{Exit, Judge, verdict_exit};
use crate::logs::build::explain_build_log;
use crate::report::Report;
use crate::source::{Client, DaemonChoice, LayerCache, load_from_daemon};
use crate::swap::{Subject, Swap, SwapRequest};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// Version of the JSON of `build`, for one image and for several recipes.
pub const SCHEMA_VERSION: u32 = 1;

/// Number of lines shown from the failing step.
const FAILURE_LINES: usize = 20;

/// When to pull a base from its registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullWhen {
    /// Where the daemon does not have it.
    Missing,
    Always,
    Never,
}

/// How an image is built, beside what is swapped.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// `None`: a recipe's base where it is missing, an image never.
    pub pull: Option<PullWhen>,
    /// Push every tag of a result that passed.
    pub push: bool,
    pub builder: Builder,
    /// Network of the build; `None`: the builder's own, and none where the swap is offline.
    pub network: Option<String>,
    /// Do not reuse results of earlier builds.
    pub no_cache: bool,
}

/// What goes on in a build.
#[derive(Debug)]
pub enum Event<'a> {
    /// What begins now, in words.
    Phase(&'a str),
    Pull(PullEvent),
    Build(BuildEvent),
    Push(PushEvent),
    /// The last lines of the step that failed.
    FailedStep(&'a [String]),
}

/// Who is told of what goes on.
pub type OnEvent<'a> = &'a mut dyn FnMut(Event<'_>);

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuildResult {
    pub schema_version: u32,
    pub image_id: String,
    pub tags: Vec<String>,
    pub builder: String,
    /// The userspace build in the result; `keep`: nothing was installed or removed.
    pub userspace: Userspace,
    pub build_time_ms: u64,
    /// The base was pulled for this build.
    pub pulled: bool,
    pub report: Report,
    pub diff: ImageDiff,
    pub pushed: Vec<Pushed>,
}

/// The result of a build.
pub struct Built {
    pub result: BuildResult,
    /// Packages outside the RDMA set that changed.
    damage: Vec<String>,
}

impl Built {
    /// What the process ends with: a swap that changed more than it should is a fault, whatever the checks say.
    pub fn exit(&self) -> Exit {
        if self.damage.is_empty() { verdict_exit(self.result.report.verdict) } else { Exit::ImageAtFault }
    }

    /// The message about packages that the swap should not have touched.
    pub fn describe_damage(&self) -> Option<String> {
        let packages = self.damage.join(", ");
        (!packages.is_empty()).then(|| format!("the build changed packages outside the RDMA set: {packages}"))
    }
}

/// What builds share: the engine, what is asked for, and layers that were read already.
pub struct Workbench {
    request: SwapRequest,
    options: BuildOptions,
    client: Client,
    engine: Engine,
    cache: LayerCache,
    stop: CancellationToken,
}

impl Workbench {
    /// Connects. Whoever cancels `stop` ends every build of this bench, and nothing of them is left running.
    ///
    /// # Errors
    /// No daemon answers, or `stop` was cancelled.
    pub async fn open(
        daemon: &DaemonChoice,
        request: SwapRequest,
        options: BuildOptions,
        stop: CancellationToken,
    ) -> Result<Workbench, BuildFailure> {
        let client = Client::load(daemon)?;
        let engine = until(&stop, async { Ok(client.connect().await?) }).await?;
        Ok(Workbench { request, options, client, engine, cache: LayerCache::default(), stop })
    }

    /// Whether the user interrupted.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Pulls the base if needed, swaps, builds, checks and pushes.
    ///
    /// # Errors
    /// Whatever keeps the image from being built, judged or pushed. An image that does not pass is a result.
    pub async fn make(
        &self,
        subject: &Subject,
        judge: &Judge,
        tags: &[String],
        on_event: OnEvent<'_>,
    ) -> Result<Built, BuildFailure> {
        let name = subject.base_name()?;
        let pulled = until(&self.stop, self.have_base(subject, name, on_event)).await?;
        on_event(Event::Phase(&format!("reading {name}")));
        let facts = until(&self.stop, self.read(name)).await?;
        let swap = self.request.plan(subject, judge.fabric(), facts)?;
        let built = self.build(&swap, tags, on_event).await?;
        on_event(Event::Phase("checking the result"));
        let facts = until(&self.stop, self.read(&built.id)).await?;
        let diff = diff_images(&swap.facts, &facts, |package| swap.plan.touches(package));
        if !diff.is_built_on_first {
            return Err(BuildFailure::BaseMoved { id: built.id });
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
        let pushed = match (self.options.push, good) {
            (true, true) => self.push(tags, on_event).await?,
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

    async fn read(&self, name: &str) -> Result<ImageFacts, BuildFailure> {
        Ok(load_from_daemon(&self.engine, name, &self.cache).await?)
    }

    /// Pulls the base if needed; returns whether it did.
    async fn have_base(&self, subject: &Subject, name: &str, on_event: OnEvent<'_>) -> Result<bool, BuildFailure> {
        // A user names an existing image; a recipe names one on any machine.
        let default = if subject.found().is_some() { PullWhen::Missing } else { PullWhen::Never };
        let wanted = match self.options.pull.unwrap_or(default) {
            PullWhen::Never => false,
            PullWhen::Always => true,
            PullWhen::Missing => self.engine.inspect_image(name).await?.is_none(),
        };
        if !wanted {
            return Ok(false);
        }
        on_event(Event::Phase(&format!("pulling {name}")));
        let auth = self.base_auth(name);
        let mut on_pull = |event| on_event(Event::Pull(event));
        let pulled: Result<(), PullError> = self.engine.pull(name, auth.values().next(), &mut on_pull).await;
        pulled?;
        Ok(true)
    }

    async fn build(&self, swap: &Swap, tags: &[String], on_event: OnEvent<'_>) -> Result<BuiltImage, BuildFailure> {
        let key = swap.key_file().map(|(name, key)| (name.to_owned(), Content::Bytes(key.content.clone()), 0o644));
        let packages = swap.packages.iter().map(|(name, path)| (name.clone(), Content::File(path.clone()), 0o644));
        let proxies = proxy_build_args(&self.client.env, &self.client.config, self.engine.endpoint().docker_host());
        let request = BuildRequest {
            dockerfile: render_dockerfile(&swap.plan),
            context: BuildContext { files: key.into_iter().chain(packages).collect() },
            tags: tags.to_vec(),
            build_args: merge_build_args(proxies, &swap.build_args),
            network: self.options.network.clone().or_else(|| self.request.is_offline().then(|| "none".to_owned())),
            no_cache: self.options.no_cache,
            // Build on exactly the image that was inspected.
            pull: false,
            platform: None,
            builder: self.options.builder,
            registry_auth: self.base_auth(&swap.plan.base.from),
        };
        // All lines are looked at for the cause: the telling one may be far above the last.
        let mut lines: Vec<String> = Vec::new();
        let mut on_build = |event: BuildEvent| {
            if let BuildEvent::Log { line, .. } = &event
                && lines.len() < MAX_LOG_LINES
            {
                lines.push(line.clone());
            }
            on_event(Event::Build(event));
        };
        let result = self.engine.build(request, &mut on_build, self.stop.clone()).await;
        result.map_err(|source| failure(source, lines, on_event))
    }

    /// Credentials for the base's registry. It may need none, so a failing helper need not matter.
    fn base_auth(&self, from: &str) -> auth::RegistryAuth {
        auth::find_for_images(&self.client.config, [from]).unwrap_or_else(|error| {
            tracing::info!("continuing without credentials for the base's registry: {error}");
            auth::RegistryAuth::default()
        })
    }

    async fn push(&self, tags: &[String], on_event: OnEvent<'_>) -> Result<Vec<Pushed>, BuildFailure> {
        let mut pushed = Vec::new();
        for tag in tags {
            on_event(Event::Phase(&format!("pushing {tag}")));
            let found = auth::find_for_images(&self.client.config, [tag.as_str()])?;
            let mut on_push = |event| on_event(Event::Push(event));
            let work = async {
                let done: Result<Pushed, PushError> = self.engine.push(tag, found.values().next(), &mut on_push).await;
                Ok(done?)
            };
            pushed.push(until(&self.stop, work).await?);
        }
        Ok(pushed)
    }
}

/// Runs until an interrupt.
async fn until<T>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, BuildFailure>>,
) -> Result<T, BuildFailure> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(BuildFailure::Interrupted),
        done = work => done,
    }
}

/// Log lines kept for finding the cause.
const MAX_LOG_LINES: usize = 50_000;

fn failure(source: BuildError, mut lines: Vec<String>, on_event: OnEvent<'_>) -> BuildFailure {
    if matches!(source, BuildError::Cancelled) {
        return BuildFailure::Interrupted;
    }
    let last = source.last_lines();
    let shown = &last[last.len().saturating_sub(FAILURE_LINES)..];
    on_event(Event::FailedStep(shown));
    lines.extend(last.iter().cloned());
    // With an exit code the step's own output has the cause, and the engine's message would repeat its whole command.
    if !matches!(source, BuildError::Step { exit_code: Some(_), .. }) {
        lines.push(source.to_string());
    }
    let cause = explain_build_log(lines.iter().map(String::as_str));
    BuildFailure::Build { error: Box::new(source), cause }
}
