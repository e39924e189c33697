//! Containers of an engine: create, fill, watch, start, wait, remove.
//!
//! Input: a [`ContainerSpec`]. Output: a [`Container`], which is removed on every path: by [`Container::remove`], or when
//! the value is dropped. Files go in through the API, so that the engine may be on another machine; output comes out of
//! [`super::container_output`].

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bollard::errors::Error as ClientError;
use bollard::models::ContainerState;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;

use super::container_output::ContainerOutput;
use super::container_spec::{ContainerSpec, body};
use super::engine::{CONTROL_TIMEOUT, Engine, STORE_TIMEOUT};
use super::error::{DockerError, from_client};
use super::upload::{Upload, stream_archive};

/// Creating a container may copy what an image has at its volumes; starting one waits for the GPU runtime.
const START_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long the removal of a dropped container may take.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an engine may take to create a container that nobody waits for any more.
const LATE_CREATION: Duration = Duration::from_secs(5);

/// How often to look.
const POLL: Duration = Duration::from_millis(50);

/// A listed container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    pub id: String,
    pub name: String,
    /// The image that the container was created from: a name or an id.
    pub image: String,
    /// `created`, `running`, `exited`, …
    pub state: String,
    pub labels: BTreeMap<String, String>,
}

/// What became of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerEnd {
    pub running: bool,
    pub exit_code: i64,
    /// The kernel killed one of its processes for memory.
    pub out_of_memory: bool,
    /// The engine's message if it could not start the container; else empty.
    pub error: String,
}

/// What an engine refuses to grant, by its own message at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The resource limit of this name, which the daemon may not raise.
    Ulimit(&'static str),
    /// The capabilities, which the daemon itself lacks.
    Capabilities,
}

/// Finds in an engine's message (runc, crun) what it refuses to grant.
///
/// Numbers of limits are those of Linux on x86-64 and AArch64 (`asm-generic/resource.h`).
pub fn refused(message: &str) -> Option<Refused> {
    let lower = message.to_ascii_lowercase();
    if !lower.contains("not permitted") && !lower.contains("permission denied") {
        return None;
    }
    // runc before and after 1.0: `setting rlimits for ready process caused "error setting rlimit type 8: …"`.
    let number = lower.split_once("setting rlimit type ").map(|(_, rest)| rest);
    let number = number.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok());
    // crun: ``setrlimit `RLIMIT_MEMLOCK`: Operation not permitted``.
    let name = lower.split_once("rlimit_").map(|(_, rest)| rest);
    match (number, name) {
        (Some(8), _) => Some(Refused::Ulimit("memlock")),
        (Some(3), _) => Some(Refused::Ulimit("stack")),
        (_, Some(name)) if name.starts_with("memlock") => Some(Refused::Ulimit("memlock")),
        (_, Some(name)) if name.starts_with("stack") => Some(Refused::Ulimit("stack")),
        _ if lower.contains("unable to apply caps") => Some(Refused::Capabilities),
        _ => None,
    }
}

/// A container that was created. It is removed, whatever state it is in, when this value is dropped.
#[derive(Debug)]
pub struct Container {
    engine: Engine,
    /// The name, until the engine has returned the id.
    id: String,
    /// The engine has not confirmed yet that the container exists.
    uncertain: bool,
    removed: bool,
}

impl Engine {
    /// Creates a container with a unique name.
    ///
    /// The container is removed again if this future is dropped before it is done.
    ///
    /// # Errors
    /// The engine refuses: no such image ([`DockerError::ImageNotFound`]), or an invalid setting.
    pub async fn create_container(&self, spec: &ContainerSpec) -> Result<Container, DockerError> {
        let name = unique_name();
        let operation = format!("creating a container of the image {}", spec.image);
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let mut container = Container { engine: self.clone(), id: name, uncertain: true, removed: false };
        let request = self.client().create_container(Some(options), body(spec));
        match self.call(&operation, START_TIMEOUT, request).await {
            Ok(created) => {
                for warning in created.warnings {
                    tracing::info!("{operation}: {warning}");
                }
                container.id = created.id;
                container.uncertain = false;
                Ok(container)
            }
            Err(error) => {
                // A response is a refusal; without one the container may exist nevertheless.
                container.removed = matches!(error, DockerError::Daemon { .. });
                Err(match error {
                    DockerError::Daemon { status: 404, ref message, .. }
                        if message.to_ascii_lowercase().contains("no such image") =>
                    {
                        DockerError::ImageNotFound { endpoint: self.endpoint().to_string(), operation }
                    }
                    other => other,
                })
            }
        }
    }

    /// Every container, running or not, that has the label, sorted by name.
    pub async fn list_labelled(&self, label: &str) -> Result<Vec<ListedContainer>, DockerError> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let operation = format!("listing the containers with the label {label}");
        let listing = self.client().list_containers(Some(options));
        let containers = self.call(&operation, CONTROL_TIMEOUT, listing).await?;
        let mut listed: Vec<ListedContainer> = containers
            .into_iter()
            .filter_map(|container| {
                Some(ListedContainer {
                    id: container.id?,
                    name: container.names.unwrap_or_default().first()?.trim_start_matches('/').to_owned(),
                    image: container.image.unwrap_or_default(),
                    state: container.state.map(|state| state.to_string()).unwrap_or_default(),
                    labels: container.labels.unwrap_or_default().into_iter().collect(),
                })
            })
            .collect();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// Removes a container in any state, with its volumes. Returns whether it existed.
    pub async fn remove_container(&self, id: &str) -> Result<bool, DockerError> {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removal = self.client().remove_container(id, Some(options));
        match self.call(&format!("removing the container {id}"), STORE_TIMEOUT, removal).await {
            Ok(()) => Ok(true),
            Err(DockerError::Daemon { status: 404, .. }) => Ok(false),
            // `removal of container … is already in progress`
            Err(DockerError::Daemon { status: 409, .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Container {
    /// The engine's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first twelve digits of the id, its usual short form.
    pub fn short_id(&self) -> &str {
        self.id.get(..12).unwrap_or(&self.id)
    }

    /// Puts files and directories into the file system, before or after the start.
    ///
    /// # Errors
    /// A local file cannot be read ([`DockerError::LocalFile`]), or the engine refuses the archive.
    pub async fn upload(&self, files: &[Upload]) -> Result<(), DockerError> {
        let operation = format!("putting files into the container {}", self.short_id());
        let options = UploadToContainerOptionsBuilder::default().path("/").build();
        let (archive, outcome) = stream_archive(files.to_vec());
        let request =
            self.engine.client().upload_to_container(&self.id, Some(options), bollard::body_try_stream(archive));
        let answer = self.engine.call(&operation, START_TIMEOUT, request).await;
        // Whatever broke the stream explains a failed request better.
        match outcome.await {
            Ok(Err((path, source))) => Err(DockerError::LocalFile { operation, path, source }),
            Ok(Ok(())) | Err(_) => answer,
        }
    }

    /// Listens to stdout and stderr. To miss nothing, this is done before the start.
    pub async fn attach(&self) -> Result<ContainerOutput, DockerError> {
        let operation = format!("reading the output of the container {}", self.short_id());
        let options = AttachContainerOptionsBuilder::default().stream(true).stdout(true).stderr(true).build();
        let request = self.engine.client().attach_container(&self.id, Some(options));
        let attached = self.engine.call(&operation, CONTROL_TIMEOUT, request).await?;
        Ok(ContainerOutput::new(attached.output, self.engine.endpoint().clone(), operation))
    }

    /// Starts the container.
    ///
    /// # Errors
    /// [`DockerError::Daemon`] with the engine's message, which tells whether host or image is at fault.
    pub async fn start(&self) -> Result<(), DockerError> {
        let operation = format!("starting the container {}", self.short_id());
        self.engine.call(&operation, START_TIMEOUT, self.engine.client().start_container(&self.id, None)).await
    }

    /// Waits for the end of a started container, however long that takes. Returns its exit code: 128 plus the
    /// signal's number if a signal ended it.
    pub async fn wait(&self) -> Result<i64, DockerError> {
        let operation = format!("waiting for the container {}", self.short_id());
        let options = WaitContainerOptionsBuilder::default().condition("not-running").build();
        let answer = self.engine.client().wait_container(&self.id, Some(options)).next().await;
        match answer {
            Some(Ok(response)) => Ok(response.status_code),
            // The client library makes an error of every exit code but zero.
            Some(Err(ClientError::DockerContainerWaitError { code, error })) => {
                if !error.is_empty() {
                    tracing::debug!("{operation}: {error}");
                }
                Ok(code)
            }
            Some(Err(error)) => Err(from_client(error, self.engine.endpoint(), &operation)),
            None => Err(DockerError::Protocol {
                endpoint: self.engine.endpoint().to_string(),
                operation,
                detail: "the response ended before the container did".to_owned(),
            }),
        }
    }

    /// Waits for its end and reports how it ended. Removing a running container from elsewhere kills it.
    pub async fn ended(&self) -> Result<ContainerEnd, DockerError> {
        const KILLED: i64 = 128 + 9;
        let exit_code = match self.wait().await {
            Err(DockerError::Daemon { status: 404, .. }) => KILLED,
            code => code?,
        };
        match self.inspect().await {
            Err(DockerError::Daemon { status: 404, .. }) => Ok(ContainerEnd { exit_code, ..ContainerEnd::default() }),
            end => Ok(ContainerEnd { exit_code, ..end? }),
        }
    }

    /// What the engine knows about its end.
    pub async fn inspect(&self) -> Result<ContainerEnd, DockerError> {
        let operation = format!("inspecting the container {}", self.short_id());
        let request = self.engine.client().inspect_container(&self.id, None);
        let state = self.engine.call(&operation, CONTROL_TIMEOUT, request).await?.state.unwrap_or_default();
        let ContainerState { running, exit_code, oom_killed, error, .. } = state;
        Ok(ContainerEnd {
            running: running.unwrap_or_default(),
            exit_code: exit_code.unwrap_or_default(),
            out_of_memory: oom_killed.unwrap_or_default(),
            error: error.unwrap_or_default(),
        })
    }

    /// Sends a signal such as `SIGTERM`. Returns whether the container was running.
    pub async fn kill(&self, signal: &str) -> Result<bool, DockerError> {
        let operation = format!("sending {signal} to the container {}", self.short_id());
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        let request = self.engine.client().kill_container(&self.id, Some(options));
        match self.engine.call(&operation, CONTROL_TIMEOUT, request).await {
            Ok(()) => Ok(true),
            // 409: `is not running`; 404: it is gone.
            Err(DockerError::Daemon { status: 404 | 409, .. }) => Ok(false),
            // Docker before 20.10 reports this with 500.
            Err(DockerError::Daemon { message, .. }) if message.contains("is not running") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the container, in any state, with its volumes. If it is already gone, that is not an error.
    ///
    /// # Errors
    /// The engine does not remove it; dropping the value then tries once more.
    pub async fn remove(mut self) -> Result<(), DockerError> {
        let removed = self.engine.remove_container(&self.id).await;
        self.removed = removed.is_ok();
        removed.map(drop)
    }
}

impl Drop for Container {
    /// Waits until the container is gone, on a connection and a thread of its own: the runtime that the value was made in
    /// may be ending.
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let (engine, id, uncertain) = (self.engine.clone(), self.id.clone(), self.uncertain);
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("starting a runtime: {error}"))?;
            let work = async move {
                let engine = engine.reopen().map_err(|error| error.to_string())?;
                let deadline = Instant::now() + LATE_CREATION;
                loop {
                    match engine.remove_container(&id).await {
                        Ok(false) if uncertain && Instant::now() < deadline => tokio::time::sleep(POLL).await,
                        Ok(_) => return Ok(()),
                        Err(error) => return Err(error.to_string()),
                    }
                }
            };
            runtime
                .block_on(async { tokio::time::timeout(DROP_TIMEOUT, work).await })
                .unwrap_or_else(|_| Err(format!("no answer after {} s", DROP_TIMEOUT.as_secs())))
        });
        let outcome = removal.join().unwrap_or_else(|_| Err("the removal panicked".to_owned()));
        if let Err(error) = outcome {
            tracing::warn!("a container was left behind, `rdmaprep clean` removes it: {error}");
        }
    }
}

/// A unique container name.
fn unique_name() -> String {
    let random = || RandomState::new().hash_one((Instant::now(), std::process::id()));
    format!("rdmaprep-{:016x}", random() ^ random().rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_engines_that_refuse_a_limit() {
        let memlock = Some(Refused::Ulimit("memlock"));
        for (message, expected) in [
            // Docker 20.10.24 with runc 1.1.5, whose daemon lacks CAP_SYS_RESOURCE.
            (
                "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown",
                memlock.clone(),
            ),
            // runc before 1.0.
            (
                "OCI runtime create failed: container_linux.go:349: starting container process caused \"process_linux.go:449: container init caused \\\"process_linux.go:436: setting rlimits for ready process caused \\\\\\\"error setting rlimit type 8: operation not permitted\\\\\\\"\\\"\": unknown",
                memlock.clone(),
            ),
            ("crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted: OCI permission denied", memlock),
            (
                "error during container init: error setting rlimits for ready process: error setting rlimit type 3: operation not permitted: unknown",
                Some(Refused::Ulimit("stack")),
            ),
            ("error during container init: error setting rlimit type 80: operation not permitted", None),
            (
                "runc create failed: unable to start container process: unable to apply caps: operation not permitted: unknown",
                Some(Refused::Capabilities),
            ),
            ("exec: \"/agent\": permission denied: unknown", None),
            ("error setting rlimit type 8: invalid argument", None),
        ] {
            assert_eq!(refused(message), expected, "{message}");
        }
    }
}
