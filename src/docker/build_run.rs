//! The course of one build.
//!
//! Input: the packed context and the request. Output: events into a channel, and the result. Chooses the builder, reads
//! its stream until it ends or the token fires, checks the image, and cleans up if there is none.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bollard::auth::DockerCredentials;
use bollard::errors::Error as ClientError;
use bollard::models::BuildInfo;
use bollard::query_parameters::{BuildImageOptions, BuilderVersion};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::auth::{for_buildkit, for_classic_builder};
use super::build::{BuildError, BuildEvent, BuildRequest, Builder, BuilderKind, BuiltImage};
use super::buildkit::BuildKitTranscript;
use super::classic::ClassicTranscript;
use super::context::{DOCKERFILE, PackedContext};
use super::engine::{Engine, EngineInfo, EngineKind};
use super::error::{DockerError, from_client, is_stray_line_end};
use super::leftovers::{self, Snapshot};
use super::podman::PodmanTranscript;
use super::redact::Redactor;
use super::transcript::{Interruption, Transcript};

/// First API version whose daemons have BuildKit without an experimental switch (Docker 18.09).
const BUILDKIT_API: (u32, u32) = (1, 39);

/// How long a cancelled build may go on writing its image. Tens of gigabytes take minutes.
const EXPORT_GRACE: Duration = Duration::from_secs(10 * 60);

/// How long to wait for the next step when the token fires between two steps.
const NEXT_STEP_GRACE: Duration = Duration::from_secs(2);

const OPERATION: &str = "building the image";

/// Everything that a build needs.
pub(super) struct BuildRun {
    pub(super) engine: Engine,
    pub(super) request: BuildRequest,
    pub(super) context: PackedContext,
    pub(super) redactor: Redactor,
    pub(super) events: mpsc::Sender<BuildEvent>,
    pub(super) stop: CancellationToken,
}

/// How reading a stream ended.
enum StreamEnd {
    /// The daemon closed it normally.
    Finished,
    /// The daemon reported a failure inside it.
    Failed(String),
    /// Reading it failed.
    Broken(ClientError),
    /// The token fired.
    Stopped,
}

/// Why an attempt with one builder gave no image.
enum AttemptError {
    /// The daemon refuses this builder, and has not started.
    Refused(String),
    /// Anything else.
    Failed(BuildError),
}

impl BuildRun {
    /// Runs the build to its end.
    pub(super) async fn run(mut self) -> Result<BuiltImage, BuildError> {
        let started = Instant::now();
        let (mut builder, reason) = choose_builder(self.engine.info(), self.request.builder)?;
        let before = tokio::select! {
            before = Snapshot::take(&self.engine) => before?,
            () = self.stop.cancelled() => return Err(BuildError::Cancelled),
        };
        self.send(BuildEvent::BuilderChosen { builder, reason }).await;
        let mut attempt = self.attempt(builder, &before).await;
        if let Err(AttemptError::Refused(reason)) = &attempt
            && self.request.builder == Builder::Auto
            && builder == BuilderKind::BuildKit
        {
            builder = BuilderKind::Classic;
            let reason = format!("the daemon refused BuildKit: {reason}");
            self.send(BuildEvent::BuilderChosen { builder, reason }).await;
            attempt = self.attempt(builder, &before).await;
        }
        let named = match attempt {
            Ok(id) => id,
            Err(AttemptError::Failed(error)) => return Err(error),
            Err(AttemptError::Refused(reason)) => return Err(BuildError::BuilderUnavailable { builder, reason }),
        };
        match self.verify(&named).await {
            Ok(id) => Ok(BuiltImage { id, builder, duration: started.elapsed() }),
            Err(error) => {
                self.remove_named_image(&before, &named).await;
                Err(error)
            }
        }
    }

    /// Builds with one builder. Returns the ID that the builder named.
    async fn attempt(&mut self, builder: BuilderKind, before: &Snapshot) -> Result<String, AttemptError> {
        let redactor = self.redactor.clone();
        let engine_kind = self.engine.info().kind;
        let mut transcript: Box<dyn Transcript> = match (builder, engine_kind) {
            (BuilderKind::BuildKit, _) => Box::new(BuildKitTranscript::new(redactor)),
            (BuilderKind::Classic, EngineKind::Docker) => Box::new(ClassicTranscript::new(redactor)),
            (BuilderKind::Classic, EngineKind::Podman) => Box::new(PodmanTranscript::new(redactor)),
        };
        let client = self.engine.client().clone();
        let (options, credentials) = options(&self.request, builder);
        let body = bollard::body_try_stream(self.context.stream());
        let stream = client.build_image(options, credentials, Some(body));
        let end = self.follow(stream, transcript.as_mut()).await;
        for event in transcript.finish() {
            self.send(event).await;
        }
        if let (StreamEnd::Stopped, EngineKind::Podman, Some((step, _))) =
            (&end, engine_kind, transcript.current_step())
        {
            let reason = "podman stops a cancelled build only after its running step has ended".to_owned();
            self.send(BuildEvent::LeftBehind { object: format!("the step `{step}`"), reason }).await;
        }
        let error = match (end, transcript.image_id()) {
            (StreamEnd::Finished, Some(id)) => return Ok(id.to_owned()),
            (StreamEnd::Broken(error), Some(id)) if is_stray_line_end(&error) => return Ok(id.to_owned()),
            (end, _) => self.explain(end, builder, transcript.as_ref()),
        };
        if let AttemptError::Failed(_) = &error {
            for event in leftovers::remove(&self.engine, before, &transcript.traces(), &self.request.tags).await {
                self.send(event).await;
            }
        }
        Err(error)
    }

    /// Reads the stream to its end, or until the token fires. Dropping the stream closes the connection, which tells the
    /// daemon to stop; if that would come too late, reading continues.
    async fn follow(
        &self,
        mut stream: impl Stream<Item = Result<BuildInfo, ClientError>> + Unpin,
        transcript: &mut dyn Transcript,
    ) -> StreamEnd {
        loop {
            let item = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                item = stream.next() => item,
            };
            if let Some(end) = self.take(item, transcript).await {
                return end;
            }
        }
        let export_deadline = Instant::now() + EXPORT_GRACE;
        loop {
            let patience = match transcript.interruption() {
                Interruption::Works => break,
                Interruption::MayComeTooLate => NEXT_STEP_GRACE,
                Interruption::IsIgnored => export_deadline.saturating_duration_since(Instant::now()),
            };
            let Ok(item) = tokio::time::timeout(patience, stream.next()).await else {
                break;
            };
            if self.take(item, transcript).await.is_some() {
                break;
            }
        }
        StreamEnd::Stopped
    }

    /// Passes one message on. Returns how the stream ended, if it did.
    async fn take(
        &self,
        item: Option<Result<BuildInfo, ClientError>>,
        transcript: &mut dyn Transcript,
    ) -> Option<StreamEnd> {
        match item {
            None => Some(StreamEnd::Finished),
            Some(Ok(BuildInfo { error_detail: Some(_), .. })) => {
                Some(StreamEnd::Failed("the daemon gave no reason".to_owned()))
            }
            Some(Ok(message)) => {
                for event in transcript.message(message) {
                    self.send(event).await;
                }
                None
            }
            Some(Err(ClientError::DockerStreamError { error })) => Some(StreamEnd::Failed(error)),
            Some(Err(error)) => Some(StreamEnd::Broken(error)),
        }
    }

    fn explain(&self, end: StreamEnd, builder: BuilderKind, transcript: &dyn Transcript) -> AttemptError {
        let truncated = |cause: Option<String>| {
            let (last_step, last_lines) = transcript.current_step().unzip();
            let last_lines = last_lines.unwrap_or_default();
            AttemptError::Failed(BuildError::Truncated { last_step, last_lines, cause })
        };
        let is_first_word = builder == BuilderKind::BuildKit && !transcript.has_started();
        match end {
            StreamEnd::Stopped => AttemptError::Failed(BuildError::Cancelled),
            StreamEnd::Finished => truncated(None),
            StreamEnd::Failed(message) if is_first_word && is_about_buildkit(&message) => {
                AttemptError::Refused(message)
            }
            StreamEnd::Failed(message) => AttemptError::Failed(transcript.failure(message)),
            StreamEnd::Broken(ClientError::DockerResponseServerError { status_code, message }) => {
                if is_first_word && (matches!(status_code, 404 | 501) || is_about_buildkit(&message)) {
                    return AttemptError::Refused(message);
                }
                let error = ClientError::DockerResponseServerError { status_code, message };
                AttemptError::Failed(self.refusal(from_client(error, self.engine.endpoint(), OPERATION)))
            }
            StreamEnd::Broken(error) => {
                let error = from_client(error, self.engine.endpoint(), OPERATION);
                match error {
                    DockerError::Protocol { detail, .. } => truncated(Some(detail)),
                    error if transcript.has_started() => truncated(Some(error.to_string())),
                    error => AttemptError::Failed(error.into()),
                }
            }
        }
    }

    /// A response that is not a stream: the daemon did not start.
    fn refusal(&self, error: DockerError) -> BuildError {
        let DockerError::Daemon { status: 400, message, .. } = &error else {
            return error.into();
        };
        let message = self.redactor.clean(message);
        let about_tags = ["invalid reference format", "invalid tag", "build tag cannot contain a digest"];
        // The base image's name can be malformed too.
        if !self.request.tags.is_empty() && about_tags.iter().any(|text| message.starts_with(text)) {
            return BuildError::InvalidTag { tag: self.request.tags.join(", "), message };
        }
        BuildError::Rejected { message, last_lines: Vec::new() }
    }

    /// Looks the image up, gives it its remaining names, and checks that all of them refer to this image.
    async fn verify(&self, named: &str) -> Result<String, BuildError> {
        let unverified = |problem: String| BuildError::Unverified { id: named.to_owned(), problem };
        let inspected = self.engine.inspect_image(named).await?;
        let id = inspected.ok_or_else(|| unverified("the engine does not know it".to_owned()))?.id;
        for tag in self.request.tags.iter().skip(1) {
            self.engine.tag_image(&id, tag).await?;
        }
        for tag in &self.request.tags {
            match self.engine.inspect_image(tag).await? {
                Some(image) if image.id == id => {}
                Some(image) => return Err(unverified(format!("the tag {tag} refers to {}", image.id))),
                None => return Err(unverified(format!("the tag {tag} was not set"))),
            }
        }
        Ok(id)
    }

    async fn remove_named_image(&self, before: &Snapshot, id: &str) {
        if !before.has_image(id)
            && let Err(error) = self.engine.remove_image(id, true).await
        {
            self.send(BuildEvent::LeftBehind { object: format!("image {id}"), reason: error.to_string() }).await;
        }
    }

    async fn send(&self, event: BuildEvent) {
        // The receiver is gone if the caller dropped its future; then the token has fired too.
        let _ = self.events.send(event).await;
    }
}

/// Which builder to start with, and why.
fn choose_builder(info: &EngineInfo, wanted: Builder) -> Result<(BuilderKind, String), BuildError> {
    let obstacle = if info.kind == EngineKind::Podman {
        Some(format!("podman {} ignores the API's BuildKit settings", info.version))
    } else if parse_version(&info.api_version).is_none_or(|version| version < BUILDKIT_API) {
        Some(format!("the daemon's API {} is older than 1.39", info.api_version))
    } else if info.os == "windows" {
        Some("the daemon builds Windows images".to_owned())
    } else {
        None
    };
    match (wanted, obstacle) {
        (Builder::Classic, _) => Ok((BuilderKind::Classic, "asked for".to_owned())),
        (Builder::BuildKit, None) => Ok((BuilderKind::BuildKit, "asked for".to_owned())),
        (Builder::Auto, None) => Ok((BuilderKind::BuildKit, format!("the daemon's API {} has it", info.api_version))),
        (Builder::Auto, Some(reason)) => Ok((BuilderKind::Classic, reason)),
        (Builder::BuildKit, Some(reason)) => {
            Err(BuildError::BuilderUnavailable { builder: BuilderKind::BuildKit, reason })
        }
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// How daemons word that they have no BuildKit, that it does not take a setting, or that the session did not come up.
fn is_about_buildkit(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.contains("buildkit") || lower.contains("no active session") || lower.contains("unknown builder version")
}

fn options(
    request: &BuildRequest,
    builder: BuilderKind,
) -> (BuildImageOptions, Option<HashMap<String, DockerCredentials>>) {
    let auth = &request.registry_auth;
    let common = BuildImageOptions {
        dockerfile: DOCKERFILE.to_owned(),
        t: request.tags.first().cloned(),
        nocache: request.no_cache,
        pull: request.pull.then(|| "1".to_owned()),
        rm: true,
        // The container of a failed step is removed too.
        forcerm: true,
        buildargs: Some(request.build_args.clone().into_iter().collect()),
        networkmode: request.network.clone(),
        platform: request.platform.clone().unwrap_or_default(),
        ..BuildImageOptions::default()
    };
    match builder {
        BuilderKind::BuildKit => {
            let session = Some(session_id());
            let options = BuildImageOptions { version: BuilderVersion::BuilderBuildKit, session, ..common };
            (options, Some(for_buildkit(auth)))
        }
        BuilderKind::Classic => {
            let options = BuildImageOptions { version: BuilderVersion::BuilderV1, ..common };
            (options, Some(for_classic_builder(auth)).filter(|auth| !auth.is_empty()))
        }
    }
}

/// A session name unique at the daemon: two random numbers of this call, and the process id.
fn session_id() -> String {
    let random = || RandomState::new().hash_one(Instant::now());
    format!("rdmaprep-{}-{:016x}{:016x}", std::process::id(), random(), random())
}
