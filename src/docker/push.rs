//! Pushing an image to its registry.
//!
//! Input: a reference with a tag, and credentials. Output: the digest under which the registry now has the image. The
//! engine reports failures inside a successful response; here they are errors.

use crate::remedy::Remedy;
use bollard::errors::Error as ClientError;
use bollard::models::PushImageInfo;
use bollard::query_parameters::PushImageOptionsBuilder;
use futures_util::StreamExt;

use super::auth::{Credentials, is_refusal, login_remedy};
use super::engine::Engine;
use super::error::{DockerError, from_client, is_stray_line_end};
use super::redact::redact;
use crate::reference::{Reference, ReferenceError};

/// The engine's words inside the stream (`daemon/images`); podman answers 404 instead.
const NO_SUCH_IMAGE: &str = "image does not exist locally";

/// What happens during a push.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PushEvent {
    /// Progress was made. The client library does not say on which layer.
    Progress { status: String, current_bytes: u64, total_bytes: Option<u64> },
    /// A line from the engine.
    Status { line: String },
}

/// A pushed image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pushed {
    /// The reference as pushed, with its tag.
    pub reference: String,
    /// Digest of the manifest in the registry.
    pub digest: String,
}

/// Why an image is not in its registry.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The reference is malformed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A push cannot choose the digest.
    #[error("pushing {reference}: a reference with a digest cannot be pushed")]
    HasDigest { reference: String },
    /// The registry requires other credentials, or any at all.
    #[error("pushing {reference}: the registry {registry} refused the credentials: {message}")]
    Unauthorized { reference: String, registry: String, message: String },
    /// The engine or the registry failed.
    #[error("pushing {reference}: {message}")]
    Failed { reference: String, message: String },
    /// The stream ended without naming a digest.
    #[error("pushing {reference}: the engine finished without naming a digest")]
    NoDigest { reference: String },
    /// The daemon could not be reached.
    #[error(transparent)]
    Daemon(#[from] DockerError),
}

impl Remedy for PushError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unauthorized { registry, .. } => Some(login_remedy(registry)),
            Self::HasDigest { .. } => Some("use a tag instead of the digest".to_owned()),
            Self::Daemon(error) => error.remedy(),
            Self::Reference(_) | Self::Failed { .. } | Self::NoDigest { .. } => None,
        }
    }
}

impl Engine {
    /// Pushes a local image to the registry in its name; without a tag, `latest`.
    pub async fn push(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        on_event: &mut dyn FnMut(PushEvent),
    ) -> Result<Pushed, PushError> {
        let parsed = Reference::parse(reference)?;
        if parsed.digest().is_some() {
            return Err(PushError::HasDigest { reference: reference.to_owned() });
        }
        let tag = parsed.tag().unwrap_or("latest");
        let pushed_as = format!("{}:{tag}", parsed.name());
        let options = PushImageOptionsBuilder::default().tag(tag).build();
        let credentials = credentials.map(|credentials| credentials.for_registry(parsed.registry()));
        let mut stream = self.client().push_image(&parsed.name(), Some(options), credentials).boxed();

        let mut digest = None;
        while let Some(item) = stream.next().await {
            let info = match item {
                Ok(info) => info,
                Err(error) if digest.is_some() && is_stray_line_end(&error) => break,
                Err(error) => return Err(self.push_error(error, &parsed, &pushed_as)),
            };
            if info.error_detail.is_some() {
                let message = "the engine gave no reason".to_owned();
                return Err(PushError::Failed { reference: pushed_as, message });
            }
            if let Some(status) = &info.status {
                digest = parse_digest(status).map(str::to_owned).or(digest);
            }
            if let Some(event) = event(info) {
                on_event(event);
            }
        }
        let digest = digest.ok_or_else(|| PushError::NoDigest { reference: pushed_as.clone() })?;
        Ok(Pushed { reference: pushed_as, digest })
    }

    fn push_error(&self, error: ClientError, reference: &Reference, pushed_as: &str) -> PushError {
        let reference_text = pushed_as.to_owned();
        let message = match &error {
            ClientError::DockerStreamError { error } => error.as_str(),
            // Without any credentials some engines answer before the stream begins.
            ClientError::DockerResponseServerError { message, .. } => message.as_str(),
            _ => "",
        };
        if is_refusal(message) {
            return PushError::Unauthorized {
                reference: reference_text,
                registry: reference.registry().to_owned(),
                message: redact(message).into_owned(),
            };
        }
        match error {
            ClientError::DockerStreamError { error } if error.contains(NO_SUCH_IMAGE) => {
                let endpoint = self.endpoint().to_string();
                DockerError::ImageNotFound { endpoint, operation: format!("pushing {pushed_as}") }.into()
            }
            ClientError::DockerStreamError { error } => {
                PushError::Failed { reference: reference_text, message: redact(&error).into_owned() }
            }
            other => match from_client(other, self.endpoint(), &format!("pushing {pushed_as}")) {
                DockerError::Daemon { endpoint, operation, status: 404, .. } => {
                    DockerError::ImageNotFound { endpoint, operation }.into()
                }
                error => error.into(),
            },
        }
    }
}

/// The last line of a push: `1: digest: sha256:… size: 528`.
fn parse_digest(status: &str) -> Option<&str> {
    let digest = status.split_once("digest: ")?.1.split_whitespace().next()?;
    digest.starts_with("sha256:").then_some(digest)
}

fn event(info: PushImageInfo) -> Option<PushEvent> {
    let status = redact(info.status.as_deref().unwrap_or_default()).into_owned();
    match info.progress_detail.and_then(|detail| Some((detail.current?, detail.total))) {
        Some((current, total)) => Some(PushEvent::Progress {
            status,
            current_bytes: u64::try_from(current).unwrap_or(0),
            total_bytes: total.and_then(|total| u64::try_from(total).ok()).filter(|total| *total > 0),
        }),
        None if status.is_empty() => None,
        None => Some(PushEvent::Status { line: status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_read_from_the_last_line() {
        assert_eq!(parse_digest("1: digest: sha256:ab size: 528"), Some("sha256:ab"));
        assert_eq!(parse_digest("Pushed"), None);
        assert_eq!(parse_digest("digest: md5:ab"), None);
    }

    #[test]
    fn messages_become_events() {
        let info = |json: &str| event(serde_json::from_str(json).expect("valid"));
        assert_eq!(
            info(r#"{"status":"Pushing","progressDetail":{"current":5,"total":10},"id":"ab"}"#),
            Some(PushEvent::Progress { status: "Pushing".into(), current_bytes: 5, total_bytes: Some(10) })
        );
        assert_eq!(
            info(r#"{"status":"Preparing","progressDetail":{},"id":"ab"}"#),
            Some(PushEvent::Status { line: "Preparing".into() })
        );
        assert_eq!(info(r#"{"progressDetail":{},"aux":{"Tag":"1","Digest":"sha256:ab","Size":1}}"#), None);
    }
}
