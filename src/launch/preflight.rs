//! The course of a preflight: what the host offers and what the image needs → one or two runs of the ranks.

use super::gpu_access::{AccessError, Situation, Wanted, choose_access};
use super::host::{CDI_DIRECTORIES, Host, Locality, load_host, locality};
use super::run::{Run, RunError, run};
use super::spec::{Launch, LaunchOptions, SpecError, plan_launch};
use crate::docker::address::Address;
use crate::docker::engine::{Engine, EngineHost};
use crate::docker::error::DockerError;
use crate::facts::run::{AgentEnding, AgentMessage, AgentPlan, Ending, GpuSelection, RunFacts};
use crate::facts::{ConsumerName, ImageFacts};
use crate::remedy::Remedy;
use crate::targets::Target;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// Which libnccl the ranks open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NcclChoice {
    /// torch's, where there is torch; else what the loader finds.
    Auto,
    /// What the loader finds.
    Loader,
    /// This file in the image.
    Path(String),
}

/// What a preflight is asked for.
pub struct PreflightRequest<'a> {
    pub target: &'a Target,
    pub access: Wanted,
    pub gpus: GpuSelection,
    pub nccl: NcclChoice,
    /// What the ranks do; `gpus` and `nccl` of it are set from the choices above.
    pub plan: AgentPlan,
    pub options: LaunchOptions,
    /// Run once more over TCP.
    pub compare_socket: bool,
}

/// The run to launch.
pub struct Prepared {
    pub launch: Launch,
    /// The run to launch over TCP.
    over_socket: Option<Launch>,
    plan: AgentPlan,
    host_driver: Option<String>,
}

/// Why there is nothing to launch.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Remedy for PrepareError {
    fn remedy(&self) -> Option<String> {
        match self {
            PrepareError::Docker(error) => error.remedy(),
            PrepareError::Access(error) => error.remedy(),
            PrepareError::Spec(error) => error.remedy(),
        }
    }
}

/// What came of a preflight.
pub struct Preflight {
    pub run: RunFacts,
    /// The run repeated over TCP, if that was requested and the first run ended.
    pub over_socket: Option<RunFacts>,
}

/// Looks at the host and plans the container of an image.
///
/// # Errors
/// The engine does not answer, the container cannot be given GPUs, or an option does not fit the host.
pub async fn prepare(
    engine: &Engine,
    facts: &ImageFacts,
    request: PreflightRequest<'_>,
) -> Result<Prepared, PrepareError> {
    let (engine_host, host, locality) = look_at_host(engine).await?;
    let situation = Situation { kind: engine.info().kind, engine: &engine_host, host: &host, locality: &locality };
    let access = choose_access(request.access, &request.gpus, situation)?;
    let plan = AgentPlan {
        gpus: access.agent_selection(&request.gpus),
        nccl: choose_nccl(request.nccl, facts),
        ..request.plan
    };
    let plan_with = |options| plan_launch(facts, request.target, (&host, &locality), &access, options);
    let launch = plan_with(&request.options)?;
    let over_socket = match request.compare_socket {
        true => Some(plan_with(&LaunchOptions { over_socket: true, ..request.options.clone() })?),
        false => None,
    };
    let host_driver = if locality == Locality::Local { host.driver_version } else { None };
    Ok(Prepared { launch, over_socket, plan, host_driver })
}

async fn look_at_host(engine: &Engine) -> Result<(EngineHost, Host, Locality), DockerError> {
    let engine_host = engine.host().await?;
    let directories: Vec<&str> = match engine_host.cdi_directories.as_slice() {
        [] => CDI_DIRECTORIES.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let host = load_host(Path::new("/"), &path, &directories);
    for problem in &host.problems {
        tracing::warn!("looking at this host: {problem}");
    }
    let is_local = matches!(engine.endpoint().address(), Address::Unix { .. });
    let locality = locality(is_local, &engine_host, &host);
    Ok((engine_host, host, locality))
}

/// The libnccl that the ranks open; `None`: what the loader finds.
fn choose_nccl(wanted: NcclChoice, facts: &ImageFacts) -> Option<String> {
    match wanted {
        NcclChoice::Loader => None,
        NcclChoice::Path(path) => Some(path),
        NcclChoice::Auto => {
            let torch = facts.nccl_consumers.iter().find(|consumer| consumer.name == ConsumerName::Torch)?;
            // NCCL that is linked into another library cannot be opened by itself.
            let path = torch.path.clone().filter(|path| path.contains("libnccl.so"));
            if path.is_none() {
                tracing::warn!("torch has its NCCL inside another library: the run uses what the loader finds");
            }
            path
        }
    }
}

impl Prepared {
    /// Launches it. Nothing of it is left running when this returns, or is dropped.
    ///
    /// `program` is the agent's file on this machine; `on_step` is told what goes on.
    ///
    /// # Errors
    /// The engine does not do its part, or `cancel` was called. A run that fails is a result.
    pub async fn run(
        &self,
        engine: &Engine,
        program: &Path,
        on_step: &mut dyn FnMut(Step<'_>),
        cancel: &CancellationToken,
    ) -> Result<Preflight, RunError> {
        on_step(Step::Starting(&self.launch.image_name));
        let first = self.launch(engine, &self.launch, program, on_step, cancel).await?;
        let over_socket = match &self.over_socket {
            Some(over_socket) if first.ending == (Ending::Agent { ending: AgentEnding::Complete }) => {
                on_step(Step::OverSocket);
                Some(self.launch(engine, over_socket, program, on_step, cancel).await?)
            }
            // There is nothing to compare with.
            Some(_) | None => None,
        };
        Ok(Preflight { run: first, over_socket })
    }

    async fn launch(
        &self,
        engine: &Engine,
        launch: &Launch,
        program: &Path,
        on_step: &mut dyn FnMut(Step<'_>),
        cancel: &CancellationToken,
    ) -> Result<RunFacts, RunError> {
        let what = Run { launch: launch.clone(), plan: &self.plan, program, host_driver: self.host_driver.clone() };
        run(engine, what, &mut |message| on_step(Step::Said(message)), cancel).await
    }
}

/// What goes on in a preflight.
pub enum Step<'a> {
    /// The container of this image is being started.
    Starting(&'a str),
    /// The run is done, and is repeated over TCP.
    OverSocket,
    /// The agent said this.
    Said(&'a AgentMessage),
}
