//! Pulling an image from its registry.
//!
//! Input: a reference and credentials. Output: the image is in the engine under that reference. The engine reports failures
//! inside a successful response; here they are errors.

use crate::remedy::Remedy;
use std::collections::HashMap;

use bollard::errors::Error as ClientError;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;

use super::auth::{Credentials, is_refusal, login_remedy};
use super::engine::Engine;
use super::error::{DockerError, from_client, is_stray_line_end};
use super::redact::redact;
use crate::reference::{Reference, ReferenceError};

/// The engine's words if a registry has no such image (`distribution/errors.go`, and the registry's own responses).
const NOT_FOUND: [&str; 3] = ["manifest unknown", "not found", "name unknown"];

/// The engine's words if the image may be missing or private (`distribution/errors.go`).
const DENIED: &str = "pull access denied";

/// What happens during a pull.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PullEvent {
    /// Progress of the layers: sums over those that have started.
    Progress { current_bytes: u64, total_bytes: Option<u64> },
    /// A line from the engine about the whole image.
    Status { line: String },
}

/// Why an image is not in the engine.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The reference is malformed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The registry has no such image, or hides it from this user.
    #[error("pulling {reference}: the registry {registry} has no such image, or hides it from this user: {message}")]
    NotFound { reference: String, registry: String, message: String },
    /// The registry requires other credentials, or any at all.
    #[error("pulling {reference}: the registry {registry} refused the credentials: {message}")]
    Unauthorized { reference: String, registry: String, message: String },
    /// The engine or the registry failed.
    #[error("pulling {reference}: {message}")]
    Failed { reference: String, message: String },
    /// The stream ended, but the engine lacks the image.
    #[error("pulling {reference}: the engine finished, but has no such image")]
    Missing { reference: String },
    /// The daemon could not be reached.
    #[error(transparent)]
    Daemon(#[from] DockerError),
}

impl Remedy for PullError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::NotFound { reference, registry, .. } => {
                Some(format!("check the name, log in (`docker login {registry}`), or load it: docker pull {reference}"))
            }
            Self::Unauthorized { registry, .. } => Some(login_remedy(registry)),
            Self::Failed { reference, .. } | Self::Missing { reference } => {
                Some(format!("docker pull {reference}   (or docker load -i FILE if the registry cannot be reached)"))
            }
            Self::Daemon(error) => error.remedy(),
            Self::Reference(_) => None,
        }
    }
}

impl Engine {
    /// Pulls an image under the given name; without a tag or digest, `latest`.
    pub async fn pull(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        on_event: &mut dyn FnMut(PullEvent),
    ) -> Result<(), PullError> {
        let parsed = Reference::parse(reference)?;
        // A digest takes the place of a tag and overrides it.
        let which = parsed.digest().or(parsed.tag()).unwrap_or("latest");
        let options = CreateImageOptionsBuilder::default().from_image(&parsed.name()).tag(which).build();
        let credentials = credentials.map(|credentials| credentials.for_registry(parsed.registry()));
        let mut stream = self.client().create_image(Some(options), None, credentials).boxed();

        let mut layers = Layers::default();
        while let Some(item) = stream.next().await {
            let info = match item {
                Ok(info) => info,
                Err(error) if is_stray_line_end(&error) => break,
                Err(error) => return Err(self.pull_error(error, &parsed, reference)),
            };
            if info.error_detail.is_some() {
                let message = "the engine gave no reason".to_owned();
                return Err(PullError::Failed { reference: reference.to_owned(), message });
            }
            if let Some(event) = layers.event(info) {
                on_event(event);
            }
        }
        // The engine's report does not prove that it has the image.
        match self.inspect_image(reference).await? {
            Some(_) => Ok(()),
            None => Err(PullError::Missing { reference: reference.to_owned() }),
        }
    }

    fn pull_error(&self, error: ClientError, parsed: &Reference, reference: &str) -> PullError {
        let reference = reference.to_owned();
        let registry = parsed.registry().to_owned();
        let message = match &error {
            ClientError::DockerStreamError { error } => error.as_str(),
            // Most engines contact the registry before the stream begins.
            ClientError::DockerResponseServerError { message, .. } => message.as_str(),
            _ => "",
        };
        let said = redact(message.trim()).into_owned();
        // Docker Hub responds like this to every name that it lacks.
        if message.contains(DENIED) || NOT_FOUND.iter().any(|text| message.contains(text)) {
            return PullError::NotFound { reference, registry, message: said };
        }
        if is_refusal(message) {
            return PullError::Unauthorized { reference, registry, message: said };
        }
        match error {
            ClientError::DockerStreamError { .. } | ClientError::DockerResponseServerError { .. } => {
                PullError::Failed { reference, message: said }
            }
            other => from_client(other, self.endpoint(), &format!("pulling {reference}")).into(),
        }
    }
}

/// How far the layers are, by their ids: (current, total) in bytes.
#[derive(Default)]
struct Layers(HashMap<String, (u64, u64)>);

impl Layers {
    fn event(&mut self, info: CreateImageInfo) -> Option<PullEvent> {
        let status = info.status.unwrap_or_default();
        let bytes = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        match (info.id, info.progress_detail) {
            // Unpacking counts from the beginning again; the download takes most of the time.
            (Some(id), Some(detail)) if status == "Downloading" => {
                self.0.insert(id, (bytes(detail.current), bytes(detail.total)));
                let sum = |of: fn(&(u64, u64)) -> u64| self.0.values().map(of).sum::<u64>();
                let total = sum(|(_, total)| *total);
                Some(PullEvent::Progress {
                    current_bytes: sum(|(current, _)| *current),
                    total_bytes: Some(total).filter(|total| *total > 0),
                })
            }
            // Lines of single layers are many and say little. `Pulling from …` has the tag as its id.
            (Some(_), _) if !status.starts_with("Pulling from ") => None,
            _ if status.is_empty() => None,
            _ => Some(PullEvent::Status { line: redact(&status).into_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_events() {
        let mut layers = Layers::default();
        let mut event = |json: &str| layers.event(serde_json::from_str(json).expect("valid"));
        assert_eq!(
            event(r#"{"status":"Pulling from team/a","id":"1.0"}"#),
            Some(PullEvent::Status { line: "Pulling from team/a".into() })
        );
        assert_eq!(event(r#"{"status":"Pulling fs layer","progressDetail":{},"id":"ab"}"#), None);
        assert_eq!(
            event(r#"{"status":"Downloading","progressDetail":{"current":5,"total":10},"id":"ab"}"#),
            Some(PullEvent::Progress { current_bytes: 5, total_bytes: Some(10) })
        );
        assert_eq!(
            event(r#"{"status":"Downloading","progressDetail":{"current":1,"total":20},"id":"cd"}"#),
            Some(PullEvent::Progress { current_bytes: 6, total_bytes: Some(30) })
        );
        assert_eq!(event(r#"{"status":"Extracting","progressDetail":{"current":1,"total":10},"id":"ab"}"#), None);
        assert_eq!(event(r#"{"status":"Pull complete","progressDetail":{},"id":"ab"}"#), None);
        assert_eq!(
            event(r#"{"status":"Digest: sha256:ab"}"#),
            Some(PullEvent::Status { line: "Digest: sha256:ab".into() })
        );
        assert_eq!(event("{}"), None);
    }
}
