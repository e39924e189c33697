//! Why a build does not come to an image.

use crate::diagnosis::Cause;
use crate::docker::auth::AuthError;
use crate::docker::build::BuildError;
use crate::docker::error::DockerError;
use crate::docker::pull::PullError;
use crate::docker::push::PushError;
use crate::remedy::Remedy;
use crate::source::SourceError;
use crate::swap::SwapError;

/// Why a build does not come to an image.
#[derive(Debug, thiserror::Error)]
pub enum BuildFailure {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Swap(#[from] SwapError),
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Push(#[from] PushError),
    /// The engine's part failed; the cause is what the build's log names.
    #[error("{}", describe_build(.error, .cause.as_ref()))]
    Build { error: Box<BuildError>, cause: Option<Cause> },
    /// The base's tag was moved while the image was built.
    #[error("the result {id} is not built on the image that was inspected")]
    BaseMoved { id: String },
    #[error("interrupted")]
    Interrupted,
}

impl Remedy for BuildFailure {
    fn remedy(&self) -> Option<String> {
        match self {
            BuildFailure::Source(error) => error.remedy(),
            BuildFailure::Swap(error) => error.remedy(),
            BuildFailure::Docker(error) => error.remedy(),
            BuildFailure::Auth(error) => error.remedy(),
            BuildFailure::Pull(error) => error.remedy(),
            BuildFailure::Push(error) => error.remedy(),
            BuildFailure::Build { cause: Some(cause), .. } => Some(cause.remedy.clone()),
            BuildFailure::Build { error, cause: None } => error.remedy(),
            BuildFailure::BaseMoved { .. } => Some("the base's tag moved meanwhile: run the command again".to_owned()),
            BuildFailure::Interrupted => None,
        }
    }
}

/// Engines repeat the whole command of a failed step; here only its beginning is shown.
fn describe_build(error: &BuildError, cause: Option<&Cause>) -> String {
    let text = match error {
        BuildError::Step { step, exit_code: Some(code), .. } => {
            format!("the build failed in {} with exit code {code}", shorten(step))
        }
        BuildError::Step { step, message, .. } => format!("the build failed in {}: {message}", shorten(step)),
        other => other.to_string(),
    };
    match (cause, text.split_once('\n')) {
        (Some(cause), Some((first, rest))) => format!("{first}: {}\n{rest}", cause.summary),
        (Some(cause), None) => format!("{text}: {}", cause.summary),
        (None, _) => text,
    }
}

/// Longest heading of a step; a RUN may be a page long.
const HEADING_CHARS: usize = 64;

/// The beginning of a step's command, on one line.
pub fn shorten(command: &str) -> String {
    let words = command.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = words.chars().take(HEADING_CHARS).collect();
    let more = if short.len() < words.len() { "…" } else { "" };
    format!("{short}{more}")
}
