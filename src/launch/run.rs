//! One run: the container starts, the agent speaks, and all is removed again.

use super::collect::Collector;
use super::evidence::read_evidence;
use super::spec::{AGENT_PLAN, AGENT_PROGRAM, Launch, agent_files};
use super::start::{Running, StartError, start};
use crate::docker::container::{Container, ContainerEnd};
use crate::docker::container_output::{ContainerOutput, LineSplitter, OutputStream};
use crate::docker::engine::Engine;
use crate::docker::error::DockerError;
use crate::facts::run::{AgentMessage, AgentPlan, Ending, RunFacts, RunTime};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How much longer than the agent's own limit the container may run: for its start, and for the agent to say what it has.
const OVERTIME: Duration = Duration::from_secs(20);
/// How long to wait for a container whose output has ended.
const REST: Duration = Duration::from_secs(10);

/// The run to perform.
pub struct Run<'a> {
    pub launch: Launch,
    pub plan: &'a AgentPlan,
    /// The agent's file on this machine.
    pub program: &'a Path,
    /// Version of this host's GPU driver, where it is known.
    pub host_driver: Option<String>,
}

/// How a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error("interrupted")]
    Interrupted,
}

/// The agent's command line in the container.
pub fn agent_command() -> Vec<String> {
    [AGENT_PROGRAM, "agent", "run", AGENT_PLAN].map(str::to_owned).to_vec()
}

/// Runs it; the container is gone when this returns, or is dropped.
///
/// # Errors
/// The engine does not do its part, or `cancel` was called. A container that does not start, and an agent that fails, are
/// no errors but results.
pub async fn run(
    engine: &Engine,
    run: Run<'_>,
    on_message: &mut dyn FnMut(&AgentMessage),
    cancel: &CancellationToken,
) -> Result<RunFacts, RunError> {
    let Run { mut launch, plan, program, host_driver } = run;
    // Strings and numbers alone: this cannot fail.
    let files = agent_files(program.to_owned(), serde_json::to_vec(plan).unwrap_or_default());
    let mut time = RunTime::default();
    let begin = Instant::now();
    let started = tokio::select! {
        started = start(engine, &mut launch, &files) => started,
        () = cancel.cancelled() => return Err(RunError::Interrupted),
    };
    for given_up in &launch.facts.given_up {
        tracing::info!("not granted and omitted: {given_up}");
    }
    let mut collector = Collector::new(launch.facts, plan, host_driver);
    let Running { container, mut output, create_time } = match started {
        Ok(running) => running,
        Err(StartError::NotStarted { cause, message }) => {
            time.create_ms = milliseconds(begin.elapsed());
            return Ok(finish(collector, Some(Ending::NotStarted { cause, message }), time));
        }
        Err(StartError::Docker(error)) => return Err(error.into()),
    };
    time.create_ms = milliseconds(create_time);
    let limit = Duration::from_millis(plan.total_timeout_ms) + OVERTIME;
    let listening = listen(&mut output, &mut collector, on_message, &mut time);
    let ended = tokio::select! {
        ended = tokio::time::timeout(limit, listening) => ended,
        () = cancel.cancelled() => {
            container.remove().await?;
            return Err(RunError::Interrupted);
        }
    };
    let outside = match ended {
        Err(_) => Some(Ending::TotalTimeout),
        Ok(listened) => {
            listened?;
            how_it_ended(engine, &container, &collector).await?
        }
    };
    container.remove().await?;
    Ok(finish(collector, outside, time))
}

/// The facts of a run that is over, with what its logs add up to.
fn finish(collector: Collector, outside: Option<Ending>, time: RunTime) -> RunFacts {
    let mut facts = collector.finish(outside, time);
    facts.evidence = read_evidence(&facts);
    facts
}

/// What the engine knows of a container whose output has ended; `None`: the agent said how the run ended.
async fn how_it_ended(
    engine: &Engine,
    container: &Container,
    collector: &Collector,
) -> Result<Option<Ending>, DockerError> {
    // What the kernel still holds goes with the container.
    if collector.is_finished() {
        return Ok(None);
    }
    match tokio::time::timeout(REST, container.ended()).await {
        Ok(ended) => {
            let ContainerEnd { exit_code, out_of_memory, .. } = ended?;
            Ok(Some(Ending::ContainerEnded { exit_code, out_of_memory, last_lines: collector.other_lines() }))
        }
        Err(_) => Err(DockerError::Protocol {
            endpoint: engine.endpoint().to_string(),
            operation: "reading the container's output".to_owned(),
            detail: "the output ended before the container did".to_owned(),
        }),
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
                time.start_ms = milliseconds(started.elapsed());
            }
            Some(first) => time.run_ms = milliseconds(first.elapsed()),
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

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
