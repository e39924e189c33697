//! Starting a build, and waiting for its end.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::build::{BuildError, BuildEvent, BuildRequest, BuiltImage};
use super::build_run::BuildRun;
use super::engine::Engine;
use super::error::DockerError;
use super::redact::Redactor;
use crate::reference::Reference;

/// Events that may wait for the caller; a slower caller slows the build down.
const QUEUED_EVENTS: usize = 256;

impl Engine {
    /// Builds an image. Returns only when the daemon is done with it, also after `cancel` fired: at once while a step
    /// runs, but an image that is already being written is written to its end and then removed. Dropping the future
    /// cancels the build too; cleaning up then goes on in the background, as long as the process lives.
    pub async fn build(
        &self,
        request: BuildRequest,
        on_event: &mut dyn FnMut(BuildEvent),
        cancel: CancellationToken,
    ) -> Result<BuiltImage, BuildError> {
        check_tags(&request.tags)?;
        let context = request.context.pack(&request.dockerfile)?;
        let redactor = Redactor::new(
            request.build_args.values().map(String::as_str),
            request.registry_auth.values().map(super::auth::Credentials::secret),
        );
        tracing::debug!(?request, context_bytes = context.size_bytes(), "building");

        let stop = cancel.child_token();
        let _stop_when_dropped = stop.clone().drop_guard();
        let (events, mut received) = mpsc::channel(QUEUED_EVENTS);
        let (result, finished) = oneshot::channel();
        let run = BuildRun { engine: self.clone(), request, context, redactor, events, stop };
        let worker = std::thread::Builder::new()
            .name("docker-build".to_owned())
            .spawn(move || run_on_own_runtime(run, result))
            .map_err(|error| spawn_failure(self, &error))?;

        while let Some(event) = received.recv().await {
            on_event(event);
        }
        match finished.await {
            Ok(result) => result,
            Err(_) => match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("the worker ends with a result or a panic"),
            },
        }
    }
}

/// Runs a build on a runtime of its own, because ending that runtime is the only way to end what the client library
/// started for it: the BuildKit session is a detached task that holds its connection as long as the process lives.
fn run_on_own_runtime(run: BuildRun, result: oneshot::Sender<Result<BuiltImage, BuildError>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = result.send(Err(spawn_failure(&run.engine, &error)));
            return;
        }
    };
    let outcome = runtime.block_on(run.run());
    // A lookup of a host name may still be running, and cannot be stopped.
    runtime.shutdown_background();
    // Nobody waits any more if the caller dropped its future.
    let _ = result.send(outcome);
}

fn spawn_failure(engine: &Engine, error: &std::io::Error) -> BuildError {
    BuildError::Daemon(DockerError::Protocol {
        endpoint: engine.endpoint().to_string(),
        operation: "building the image".to_owned(),
        detail: format!("starting a thread for it: {error}"),
    })
}

/// The daemon checks tags too, but some builders do so only when the image is finished.
fn check_tags(tags: &[String]) -> Result<(), BuildError> {
    for tag in tags {
        let invalid = |message: &str| BuildError::InvalidTag { tag: tag.clone(), message: message.to_owned() };
        let reference = Reference::parse(tag).map_err(|error| invalid(error.problem))?;
        if reference.digest().is_some() {
            return Err(invalid("it has a digest, which is not known before the build"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::Remedy;

    #[test]
    fn tags_are_checked_before_anything_runs() {
        assert!(check_tags(&["a:1".to_owned(), "r:5000/b".to_owned()]).is_ok());
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for tag in ["A", "a:b:c", "", digest.as_str()] {
            let error = check_tags(&["ok".to_owned(), tag.to_owned()]).expect_err(tag);
            assert!(matches!(error, BuildError::InvalidTag { .. }), "{error:?}");
            assert!(error.remedy().is_some());
        }
    }
}
