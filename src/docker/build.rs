//! Building an image.
//!
//! Input: a [`BuildRequest`]. Output: events while it runs, then a [`BuiltImage`] that was looked up again, or a
//! [`BuildError`] with the failing step and its last lines. BuildKit is used if the daemon has it, else the classic
//! builder; the first event says which and why. A build that does not produce an image leaves nothing behind.

use crate::remedy::Remedy;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::auth::{RegistryAuth, is_refusal, login_remedy};
use super::context::{BuildContext, ContextError};
use super::error::DockerError;
use crate::reference::Reference;

/// Which builder the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Builder {
    /// BuildKit, or the classic builder if the daemon lacks it.
    #[default]
    Auto,
    /// BuildKit only.
    BuildKit,
    /// The classic builder.
    Classic,
}

/// Which builder runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BuilderKind {
    BuildKit,
    Classic,
}

impl fmt::Display for BuilderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuildKit => "BuildKit",
            Self::Classic => "the classic builder",
        })
    }
}

/// What to build. `Debug` shows the names of the build arguments only: proxies carry passwords.
#[derive(Clone, Default)]
pub struct BuildRequest {
    /// Text of the Dockerfile.
    pub dockerfile: String,
    /// The files that it copies.
    pub context: BuildContext,
    /// Names for the image.
    pub tags: Vec<String>,
    /// Build arguments, the proxies included ([`super::config::proxy_build_args`]).
    pub build_args: BTreeMap<String, String>,
    /// Network of the steps; BuildKit knows `default`, `none` and `host`.
    pub network: Option<String>,
    /// Do not reuse the results of earlier builds.
    pub no_cache: bool,
    /// Check the registry for a newer base image, even if a local one exists.
    pub pull: bool,
    /// Platform such as `linux/arm64`; the daemon's own if missing.
    pub platform: Option<String>,
    /// Which builder.
    pub builder: Builder,
    /// Credentials for private base images ([`super::auth::find_for_images`]).
    pub registry_auth: RegistryAuth,
}

impl fmt::Debug for BuildRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildRequest")
            .field("tags", &self.tags)
            .field("build_args", &self.build_args.keys().collect::<Vec<_>>())
            .field("network", &self.network)
            .field("no_cache", &self.no_cache)
            .field("pull", &self.pull)
            .field("platform", &self.platform)
            .field("builder", &self.builder)
            .field("registry_auth", &self.registry_auth)
            .finish_non_exhaustive()
    }
}

/// What happens during a build. A `step` number is unique within the build, in the order in which steps first start.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BuildEvent {
    /// Which builder runs. A second one means that the first could not.
    BuilderChosen { builder: BuilderKind, reason: String },
    /// A step begins. `index` of `total` is its position in the Dockerfile's stage; the builder's own steps have none.
    /// BuildKit may start a step again that was done, for instance when it needs the layers of a base image.
    StepStarted { step: u32, index: Option<u32>, total: Option<u32>, name: String },
    /// A step is done. `cached`: an earlier result was used.
    StepDone {
        step: u32,
        name: String,
        cached: bool,
        #[serde(rename = "duration_ms", serialize_with = "as_millis")]
        duration: Duration,
    },
    /// One line of a step's output, or of the builder itself.
    Log { step: Option<u32>, line: String },
    /// Progress within a step: a layer being pulled, or the image being written. `current` and `total` are bytes
    /// where the item is a layer.
    Progress { step: Option<u32>, item: String, current: u64, total: Option<u64>, done: bool },
    /// A warning from the builder.
    Warning { message: String },
    /// After a failure or cancellation this could not be removed.
    LeftBehind { object: String, reason: String },
}

fn as_millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A built image, looked up after the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltImage {
    /// The image's ID as the engine inspects it.
    pub id: String,
    /// Which builder made it.
    pub builder: BuilderKind,
    /// From the request to the last check.
    pub duration: Duration,
}

/// Why a build produced no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A step failed.
    #[error("building the step `{step}`: {message}")]
    Step { step: String, exit_code: Option<i64>, message: String, last_lines: Vec<String> },
    /// The builder failed outside of any step, for instance on the Dockerfile's syntax.
    #[error("building the image: {message}")]
    Rejected { message: String, last_lines: Vec<String> },
    /// The daemon stopped talking before it named an image.
    #[error(
        "building the image: the daemon's response ended early{}{}",
        last_step.as_ref().map(|step| format!(", in the step `{step}`")).unwrap_or_default(),
        cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
    )]
    Truncated { last_step: Option<String>, last_lines: Vec<String>, cause: Option<String> },
    /// The token fired.
    #[error("building the image: cancelled")]
    Cancelled,
    /// The tag is not a valid image name.
    #[error("building the image: the tag `{tag}` is invalid: {message}")]
    InvalidTag { tag: String, message: String },
    /// The requested builder is not available.
    #[error("building the image: {builder} is not available: {reason}")]
    BuilderUnavailable { builder: BuilderKind, reason: String },
    /// The builder named an image, but looking it up shows something else.
    #[error("checking the built image {id}: {problem}")]
    Unverified { id: String, problem: String },
    /// The context cannot be packed.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The daemon could not be reached.
    #[error(transparent)]
    Daemon(#[from] DockerError),
}

impl Remedy for BuildError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Step { step, message, .. } if is_refusal(message) => {
                let registry = base_image_registry(step);
                Some(login_remedy(registry.as_deref().unwrap_or("REGISTRY")))
            }
            Self::Truncated { .. } => Some("check the Docker daemon's log: it may have been stopped".to_owned()),
            Self::InvalidTag { .. } => Some("use a tag such as registry/repository:tag, in lower case".to_owned()),
            Self::BuilderUnavailable { builder: BuilderKind::BuildKit, .. } => {
                Some("drop --builder, or upgrade the daemon".to_owned())
            }
            Self::Daemon(error) => error.remedy(),
            Self::Step { .. }
            | Self::Rejected { .. }
            | Self::Cancelled
            | Self::BuilderUnavailable { .. }
            | Self::Unverified { .. }
            | Self::Context(_) => None,
        }
    }
}

impl BuildError {
    /// The last lines of the step that failed.
    pub fn last_lines(&self) -> &[String] {
        match self {
            Self::Step { last_lines, .. } | Self::Rejected { last_lines, .. } | Self::Truncated { last_lines, .. } => {
                last_lines
            }
            _ => &[],
        }
    }
}

/// The registry of the image that a step pulls: `FROM x`, or BuildKit's `[internal] load metadata for x`.
fn base_image_registry(step: &str) -> Option<String> {
    let mut words = step.split_whitespace().skip_while(|word| *word != "FROM" && *word != "for").skip(1);
    let image = words.find(|word| !word.starts_with("--"))?;
    Reference::parse(image).ok().map(|reference| reference.registry().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::auth::Credentials;

    #[test]
    fn debug_of_a_request_shows_no_secret() {
        let secret = "hunter2";
        let request = BuildRequest {
            build_args: BTreeMap::from([("http_proxy".to_owned(), format!("http://u:{secret}@p"))]),
            registry_auth: BTreeMap::from([(
                "r".to_owned(),
                Credentials::Password { username: "u".to_owned(), password: secret.to_owned() },
            )]),
            ..BuildRequest::default()
        };
        let shown = format!("{request:?}");
        assert!(!shown.contains(secret), "{shown}");
        assert!(shown.contains("http_proxy"), "{shown}");
    }

    #[test]
    fn events_serialise_with_units() {
        let done =
            BuildEvent::StepDone { step: 1, name: "x".into(), cached: false, duration: Duration::from_millis(1500) };
        assert_eq!(
            serde_json::to_string(&done).expect("serialisable"),
            r#"{"event":"step_done","step":1,"name":"x","cached":false,"duration_ms":1500}"#
        );
        let chosen = BuildEvent::BuilderChosen { builder: BuilderKind::BuildKit, reason: "r".into() };
        assert_eq!(
            serde_json::to_string(&chosen).expect("serialisable"),
            r#"{"event":"builder_chosen","builder":"buildkit","reason":"r"}"#
        );
    }

    #[test]
    fn a_refused_base_image_has_the_login_as_remedy() {
        let remedy = |step: &str, message: &str| {
            let (step, message) = (step.to_owned(), message.to_owned());
            BuildError::Step { step, exit_code: None, message, last_lines: Vec::new() }.remedy()
        };
        let denied = "pull access denied for x";
        assert_eq!(
            remedy("FROM --platform=linux/amd64 r:5000/x AS a", denied).as_deref(),
            Some("run `docker login r:5000`")
        );
        assert_eq!(
            remedy("[internal] load metadata for docker.io/a/x:1", denied).as_deref(),
            Some("run `docker login`")
        );
        assert_eq!(remedy("[1/3] FROM r.io/x", denied).as_deref(), Some("run `docker login r.io`"));
        assert_eq!(remedy("RUN docker pull x", denied).as_deref(), Some("run `docker login REGISTRY`"));
        assert_eq!(remedy("RUN x", "exit code: 1"), None);
    }
}
