//! One run: a container is made, the agent goes into it, speaks, and all is removed again.

use super::collect::Collector;
use super::{start_failure, without_refused};
use crate::docker::container::{Container, ContainerSpec};
use crate::docker::container_output::{ContainerOutput, LineSplitter, OutputStream};
use crate::docker::engine::Engine;
use crate::docker::error::DockerError;
use crate::docker::upload::{Content, Upload};
use crate::facts::run::{AgentMessage, AgentPlan, Ending, LaunchFacts, RunFacts, RunTime};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Where the agent lies in the container.
pub const FOLDER: &str = "/.rdmaprep";
/// How much longer than the agent's own limit the container may run: for its start, and for the agent to say what it has.
const OVERTIME: Duration = Duration::from_secs(20);
/// How long to wait for a container whose output has ended.
const REST: Duration = Duration::from_secs(10);

/// What is to be run.
pub struct Run<'a> {
    pub spec: ContainerSpec,
    pub launch: LaunchFacts,
    pub plan: AgentPlan,
    /// This program, or its build for old systems.
    pub agent: &'a Path,
}

/// How a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error("interrupted")]
    Interrupted,
}

/// The agent's command line.
pub fn agent_command() -> Vec<String> {
    let (program, plan) = (format!("{FOLDER}/rdmaprep"), format!("{FOLDER}/plan.json"));
    vec![program, "agent".to_owned(), "run".to_owned(), plan]
}

/// The folder that the agent may write to.
pub fn agent_directory() -> String {
    format!("{FOLDER}/run")
}

/// Runs it; the container is gone when this returns, or is dropped.
///
/// # Errors
/// The engine does not do its part, or `cancel` was called. A container that does not start, and an agent that fails, are
/// no errors but results.
pub async fn run(
    engine: &Engine,
    mut run: Run<'_>,
    on_message: &mut dyn FnMut(&AgentMessage),
    cancel: &CancellationToken,
) -> Result<RunFacts, RunError> {
    let begin = Instant::now();
    let mut time = RunTime::default();
    let started = loop {
        let started = tokio::select! {
            started = start(engine, &run) => started?,
            () = cancel.cancelled() => return Err(RunError::Interrupted),
        };
        match started {
            Started::Running(container, output) => break Ok((container, output)),
            // What the engine does not grant is left out, once each; what is left over is the reason.
            Started::Refused(words) => match without_refused(&mut run.spec, &words) {
                Some(given_up) => {
                    tracing::warn!("{given_up}");
                    run.launch.given_up.push(given_up);
                }
                None => break Err(words),
            },
        }
    };
    time.create_ms = milliseconds(begin);
    let mut collector = Collector::new(run.launch, run.plan.collective.clone());
    let (container, mut output) = match started {
        Ok(running) => running,
        Err(message) => {
            let cause = start_failure(&message);
            return Ok(collector.finish(Ending::NotStarted { cause, message }, time));
        }
    };
    let limit = Duration::from_millis(run.plan.total_timeout_ms) + OVERTIME;
    let listening = listen(&mut output, &mut collector, on_message, &mut time);
    let ended = tokio::select! {
        ended = tokio::time::timeout(limit, listening) => ended,
        () = cancel.cancelled() => {
            container.remove().await?;
            return Err(RunError::Interrupted);
        }
    };
    let outside = match ended {
        Err(_) => Ending::TotalTimeout,
        Ok(listened) => {
            listened?;
            how_it_ended(engine, &container, &collector).await?
        }
    };
    container.remove().await?;
    Ok(collector.finish(outside, time))
}

/// What the engine knows of a container whose output has ended.
async fn how_it_ended(engine: &Engine, container: &Container, collector: &Collector) -> Result<Ending, DockerError> {
    match tokio::time::timeout(REST, container.wait()).await {
        Ok(code) => {
            let exit_code = code?;
            let out_of_memory = container.inspect().await?.out_of_memory;
            Ok(Ending::ContainerEnded { exit_code, out_of_memory, last_lines: collector.other_lines() })
        }
        // The agent said all; what the kernel still holds goes with the container.
        Err(_) if collector.is_finished() => Ok(Ending::TotalTimeout),
        Err(_) => Err(DockerError::Protocol {
            endpoint: engine.endpoint().to_string(),
            operation: "reading the container's output".to_owned(),
            detail: "the output ended before the container did".to_owned(),
        }),
    }
}

enum Started {
    Running(Container, ContainerOutput),
    /// The engine's words.
    Refused(String),
}

async fn start(engine: &Engine, run: &Run<'_>) -> Result<Started, DockerError> {
    let container = match engine.create_container(&run.spec).await {
        Ok(container) => container,
        Err(DockerError::Daemon { message, .. }) => return Ok(Started::Refused(message)),
        Err(error) => return Err(error),
    };
    let plan = serde_json::to_vec(&run.plan).map_err(|error| DockerError::Protocol {
        endpoint: engine.endpoint().to_string(),
        operation: "writing the agent's plan".to_owned(),
        detail: error.to_string(),
    })?;
    let upload = |path: &str, mode, content| Upload { path: path.to_owned(), mode, content };
    let files = [
        upload(FOLDER, 0o755, Content::Directory),
        upload(&agent_directory(), 0o1777, Content::Directory),
        upload(&format!("{FOLDER}/rdmaprep"), 0o755, Content::File(run.agent.to_owned())),
        upload(&format!("{FOLDER}/plan.json"), 0o644, Content::Bytes(plan)),
    ];
    container.upload(&files).await?;
    // Attached before the start, to miss nothing.
    let output = container.attach().await?;
    match container.start().await {
        Ok(()) => Ok(Started::Running(container, output)),
        Err(DockerError::Daemon { message, .. }) => {
            container.remove().await?;
            Ok(Started::Refused(message))
        }
        Err(error) => Err(error),
    }
}

/// Until the output ends.
async fn listen(
    output: &mut ContainerOutput,
    collector: &mut Collector,
    on_message: &mut dyn FnMut(&AgentMessage),
    time: &mut RunTime,
) -> Result<(), DockerError> {
    let started = Instant::now();
    let mut first: Option<Instant> = None;
    let (mut stdout, mut stderr) = (LineSplitter::default(), LineSplitter::default());
    let mut take = |line: &str| {
        let Some(message) = collector.take_line(line) else { return };
        match first {
            None => {
                first = Some(Instant::now());
                time.start_ms = milliseconds(started);
            }
            Some(first) => time.run_ms = milliseconds(first),
        }
        on_message(&message);
    };
    while let Some(chunk) = output.next().await {
        let chunk = chunk?;
        let splitter = match chunk.stream {
            OutputStream::Stdout => &mut stdout,
            OutputStream::Stderr => &mut stderr,
        };
        for line in splitter.push(&chunk.bytes) {
            take(&line.text());
        }
    }
    for rest in [stdout.finish(), stderr.finish()].into_iter().flatten() {
        take(&rest.text());
    }
    Ok(())
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
