//! The start of a container: create, fill, attach, start; what the engine refuses and the run can do without is left out.
//!
//! Input: a [`Launch`] and the files of the agent. Output: a [`Running`] container with its output from the first byte. On
//! every other path the container is removed.

use super::spec::{Launch, RDMA_DIRECTORY};
use super::start_failure::classify_start_failure;
use crate::docker::container::{Container, Refused, refused};
use crate::docker::container_output::ContainerOutput;
use crate::docker::container_spec::{ContainerSpec, Device};
use crate::docker::engine::Engine;
use crate::docker::error::DockerError;
use crate::docker::upload::Upload;
use crate::facts::run::StartFailure;
use std::time::{Duration, Instant};

/// A container that was started. It is removed when `container` is dropped.
#[derive(Debug)]
pub struct Running {
    pub container: Container,
    pub output: ContainerOutput,
    /// From the request to create it to the moment before its start, over all attempts.
    pub create_time: Duration,
}

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine made no container, or did not start it.
    #[error("{message}")]
    NotStarted { cause: StartFailure, message: String },
    /// Engine or network failed, or the image is not there.
    #[error(transparent)]
    Docker(#[from] DockerError),
}

/// Starts the container. A limit or capability that the engine may not grant is given up, which `launch.facts` then says.
///
/// Dropping the future removes the container.
///
/// # Errors
/// See [`StartError`]; no container is left.
pub async fn start(engine: &Engine, launch: &mut Launch, files: &[Upload]) -> Result<Running, StartError> {
    let begun = Instant::now();
    loop {
        let message = match attempt(engine, &launch.spec, files, begun).await {
            Ok(running) => return Ok(running),
            Err(DockerError::Daemon { message, .. }) => message,
            Err(error) => return Err(error.into()),
        };
        if !give_up(launch, &message) {
            return Err(StartError::NotStarted { cause: classify_start_failure(&message), message });
        }
    }
}

async fn attempt(
    engine: &Engine,
    spec: &ContainerSpec,
    files: &[Upload],
    begun: Instant,
) -> Result<Running, DockerError> {
    let container = engine.create_container(spec).await?;
    let started = async {
        container.upload(files).await?;
        let output = container.attach().await?;
        let create_time = begun.elapsed();
        container.start().await?;
        Ok((output, create_time))
    };
    match started.await {
        Ok((output, create_time)) => Ok(Running { container, output, create_time }),
        Err(error) => {
            if let Err(error) = container.remove().await {
                tracing::warn!("removing the container that did not start: {error}");
            }
            Err(error)
        }
    }
}

/// Leaves out what the engine refused, if it is something that the run can do without.
fn give_up(launch: &mut Launch, message: &str) -> bool {
    // Which nodes a remote engine's host has was not known. Without any the checks say what is missing.
    let is_rdma = |device: &Device| device.host == RDMA_DIRECTORY;
    if message.contains(&format!("\"{RDMA_DIRECTORY}\"")) && launch.spec.devices.iter().any(is_rdma) {
        launch.facts.devices.retain(|device| device != RDMA_DIRECTORY);
        launch.give_up(RDMA_DIRECTORY, message, |spec| spec.devices.retain(|device| !is_rdma(device)));
        return true;
    }
    match refused(message) {
        Some(Refused::Ulimit(name)) if launch.spec.ulimits.iter().any(|limit| limit.name == name) => {
            launch.give_up(&format!("ulimit {name}"), message, |spec| spec.ulimits.retain(|limit| limit.name != name));
            true
        }
        Some(Refused::Capabilities) if !launch.spec.capabilities.is_empty() && !launch.spec.privileged => {
            let what = format!("capability {}", launch.spec.capabilities.join(", "));
            launch.give_up(&what, message, |spec| spec.capabilities.clear());
            true
        }
        Some(Refused::Ulimit(_) | Refused::Capabilities) | None => false,
    }
}
