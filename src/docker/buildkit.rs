//! The messages of BuildKit.
//!
//! Input: the trace that the daemon sends (`moby.buildkit.trace`): states of vertices, their output, their progress.
//! Output: steps, whole lines, and the vertex that failed. The trace repeats a vertex with each change.

use std::collections::HashMap;
use std::time::Duration;

use bollard::moby::buildkit::v1::{StatusResponse, Vertex, VertexStatus};
use bollard::models::{BuildInfo, BuildInfoAux};

use super::build::{BuildError, BuildEvent};
use super::log_lines::{StepLog, plain_text};
use super::redact::Redactor;
use super::transcript::{Traces, Transcript, exit_code, one_line};

/// The error of vertices that another one's failure stopped.
const STOPPED: &str = "context canceled";

/// Seconds and nanoseconds since 1970.
type Moment = (i64, i32);

/// Follows a build of BuildKit.
#[derive(Debug, Default)]
pub(super) struct BuildKitTranscript {
    redactor: Redactor,
    steps: HashMap<String, Step>,
    /// Digest of the vertex that started last.
    latest: Option<String>,
    started: u32,
    image_id: Option<String>,
    /// The image that is being written: it is there before the builder names it.
    writing: Option<String>,
}

#[derive(Debug, Default)]
struct Step {
    /// 0 until the step starts.
    number: u32,
    name: String,
    started: Option<Moment>,
    completed: Option<Moment>,
    error: Option<String>,
    log: StepLog,
}

impl BuildKitTranscript {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    fn vertex(&mut self, vertex: Vertex, events: &mut Vec<BuildEvent>) {
        let step = self.steps.entry(vertex.digest.clone()).or_default();
        step.name = self.redactor.clean(&one_line(&plain_text(vertex.name.as_bytes())));
        let started = vertex.started.map(|t| (t.seconds, t.nanos));
        let completed = vertex.completed.map(|t| (t.seconds, t.nanos));
        if started.is_some() && step.started != started {
            step.started = started;
            step.completed = None;
            if step.number == 0 {
                self.started += 1;
                step.number = self.started;
            }
            self.latest = Some(vertex.digest.clone());
            let (index, total) = position(&step.name).unzip();
            events.push(BuildEvent::StepStarted { step: step.number, index, total, name: step.name.clone() });
        }
        if completed.is_some() && step.completed != completed {
            step.completed = completed;
            if vertex.error.is_empty() {
                let duration = started.zip(completed).map(|(from, to)| between(from, to)).unwrap_or_default();
                let (number, name) = (step.number, step.name.clone());
                events.push(BuildEvent::StepDone { step: number, name, cached: vertex.cached, duration });
            } else {
                step.error = Some(self.redactor.clean(&vertex.error));
            }
        }
    }

    fn status(&mut self, status: VertexStatus, events: &mut Vec<BuildEvent>) {
        if let Some(id) = status.id.strip_prefix("writing image ") {
            self.writing = Some(id.to_owned());
        }
        events.push(BuildEvent::Progress {
            step: self.number_of(&status.vertex),
            item: if status.id.is_empty() { status.name } else { status.id },
            current: u64::try_from(status.current).unwrap_or(0),
            total: u64::try_from(status.total).ok().filter(|total| *total > 0),
            done: status.completed.is_some(),
        });
    }

    fn trace(&mut self, trace: StatusResponse) -> Vec<BuildEvent> {
        let mut events = Vec::new();
        for vertex in trace.vertexes {
            self.vertex(vertex, &mut events);
        }
        for status in trace.statuses {
            self.status(status, &mut events);
        }
        for log in trace.logs {
            let number = self.number_of(&log.vertex);
            let step = self.steps.entry(log.vertex).or_default();
            let lines = step.log.push(log.stream, &log.msg, &self.redactor);
            events.extend(lines.into_iter().map(|line| BuildEvent::Log { step: number, line }));
        }
        for warning in trace.warnings {
            let message = self.redactor.clean(&plain_text(&warning.short));
            events.push(BuildEvent::Warning { message });
        }
        events
    }

    fn number_of(&self, vertex: &str) -> Option<u32> {
        self.steps.get(vertex).map(|step| step.number).filter(|number| *number > 0)
    }

    /// The step whose own error ended the build, else the only one that did not end.
    fn failed_step(&self) -> Option<&Step> {
        let own = |step: &&Step| step.error.as_ref().is_some_and(|error| !error.contains(STOPPED));
        let mut failed: Vec<&Step> = self.steps.values().filter(own).collect();
        failed.sort_by_key(|step| step.completed);
        let mut running = self.steps.values().filter(|step| step.started.is_some() && step.completed.is_none());
        let only_running = running.next().filter(|_| running.next().is_none());
        failed.first().copied().or(only_running)
    }
}

impl Transcript for BuildKitTranscript {
    fn message(&mut self, message: BuildInfo) -> Vec<BuildEvent> {
        match message.aux {
            Some(BuildInfoAux::BuildKit(trace)) => self.trace(trace),
            Some(BuildInfoAux::Default(image)) => {
                self.image_id = image.id.filter(|id| !id.is_empty()).or(self.image_id.take());
                Vec::new()
            }
            None => {
                let text = message.stream.or(message.status).unwrap_or_default();
                let lines = text.lines().filter(|line| !line.trim().is_empty());
                lines.map(|line| BuildEvent::Log { step: None, line: self.redactor.clean(line) }).collect()
            }
        }
    }

    fn finish(&mut self) -> Vec<BuildEvent> {
        let mut steps: Vec<&mut Step> = self.steps.values_mut().collect();
        steps.sort_by_key(|step| step.number);
        let lines = |step: &mut Step| {
            let number = Some(step.number).filter(|number| *number > 0);
            step.log.finish(&self.redactor).into_iter().map(move |line| BuildEvent::Log { step: number, line })
        };
        steps.into_iter().flat_map(lines).collect()
    }

    fn image_id(&self) -> Option<&str> {
        self.image_id.as_deref()
    }

    fn has_started(&self) -> bool {
        self.started > 0
    }

    fn current_step(&self) -> Option<(String, Vec<String>)> {
        let step = self.steps.get(self.latest.as_ref()?)?;
        Some((step.name.clone(), step.log.last_lines()))
    }

    fn failure(&self, message: String) -> BuildError {
        let message = self.redactor.clean(&message);
        match self.failed_step() {
            Some(step) => BuildError::Step {
                step: step.name.clone(),
                exit_code: exit_code(step.error.as_deref().unwrap_or(&message)).or_else(|| exit_code(&message)),
                message,
                last_lines: step.log.last_lines(),
            },
            None => BuildError::Rejected { message, last_lines: Vec::new() },
        }
    }

    fn traces(&self) -> Traces {
        let images = self.writing.iter().chain(&self.image_id).cloned().collect();
        Traces { images, ..Traces::default() }
    }
}

/// Place of a step in its stage: `[2/3] RUN …`, `[stage-1 2/3] COPY …`.
fn position(name: &str) -> Option<(u32, u32)> {
    let inside = name.strip_prefix('[')?.split_once(']')?.0;
    let (index, total) = inside.rsplit(' ').next()?.split_once('/')?;
    Some((index.parse().ok()?, total.parse().ok()?))
}

fn between(from: Moment, to: Moment) -> Duration {
    let nanos = |(seconds, nanos): Moment| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    u64::try_from(nanos(to) - nanos(from)).map(Duration::from_nanos).unwrap_or_default()
}
