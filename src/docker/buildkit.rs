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
use super::transcript::{Interruption, Traces, Transcript, exit_code, one_line};

/// The error of vertices that another one's failure stopped.
const STOPPED: &str = "context canceled";

/// The step that writes and names the image.
const EXPORT: &str = "exporting to image";

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

    /// The export of Docker 20.10 does not notice a closed connection: the image, and its name, would appear later.
    fn interruption(&self) -> Interruption {
        let mut running = self.steps.values().filter(|step| step.started.is_some() && step.completed.is_none());
        match (running.next(), running.next()) {
            (None, _) if self.has_started() && self.image_id.is_none() => Interruption::MayComeTooLate,
            (Some(step), None) if step.name == EXPORT => Interruption::IsIgnored,
            _ => Interruption::Works,
        }
    }

    fn traces(&self) -> Traces {
        let images = self.writing.iter().chain(&self.image_id).cloned().collect();
        let may_have_named = self.steps.values().any(|step| step.number > 0 && step.name == EXPORT);
        Traces { images, may_have_named, ..Traces::default() }
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

#[cfg(test)]
mod tests {
    use bollard::moby::buildkit::v1::VertexLog;

    use super::*;
    use crate::docker::transcript::tests::{follow, log_lines, outline};

    const MULTISTAGE: &str = include_str!("../../tests/data/docker/buildkit-multistage.ndjson");
    const CACHED: &str = include_str!("../../tests/data/docker/buildkit-cached.ndjson");
    const FAILED: &str = include_str!("../../tests/data/docker/buildkit-failed.ndjson");

    fn run(stream: &str) -> (BuildKitTranscript, Vec<BuildEvent>) {
        let mut transcript = BuildKitTranscript::default();
        let events = follow(&mut transcript, stream);
        (transcript, events)
    }

    #[test]
    fn a_whole_build() {
        let (transcript, events) = run(MULTISTAGE);
        let outline = outline(&events);
        for step in [
            "[internal] load remote build context: done",
            "1/3 [one 1/3] FROM docker.io/rdmaprep-test/base:1: cached",
            "1/1 [empty 1/1] COPY Dockerfile /d: done",
            "2/3 [one 2/3] RUN echo out; echo err >&2; printf 'a\\rb\\n': done",
            "exporting to image: done",
        ] {
            assert!(
                outline.iter().any(|line| line.split_once(' ').is_some_and(|(_, rest)| rest == step)),
                "{step} {outline:#?}"
            );
        }
        assert!(outline.iter().all(|line| line.ends_with(": done") || line.ends_with(": cached")), "{outline:#?}");
        let lines = log_lines(&events);
        for line in ["out", "err", "b", "Step 9/9 : spoof", " ---> 0123456789ab", "last"] {
            assert!(
                lines.iter().any(|logged| logged.split_once(": ").is_some_and(|(_, text)| text == line)),
                "{lines:?}"
            );
        }
        assert!(transcript.image_id().is_some_and(|id| id.starts_with("sha256:") && id.len() == 71));
    }

    #[test]
    fn a_cached_build_says_so() {
        let (transcript, events) = run(CACHED);
        let cached: Vec<String> = outline(&events).into_iter().filter(|line| line.ends_with(": cached")).collect();
        assert!(cached.iter().any(|line| line.contains("RUN echo out")), "{cached:?}");
        assert!(log_lines(&events).iter().all(|line| line.starts_with("-: ")), "a cached step says nothing");
        assert!(transcript.image_id().is_some());
    }

    #[test]
    fn a_failed_step() {
        let (transcript, events) = run(FAILED);
        assert!(outline(&events).iter().any(|line| line.ends_with("RUN echo hi; sleep 1; exit 7: started")));
        let message = "executor failed running [/bin/sh -c echo hi; sleep 1; exit 7]: exit code: 7";
        let error = transcript.failure(message.to_owned());
        let BuildError::Step { step, exit_code, last_lines, .. } = error else { panic!("{error:?}") };
        assert_eq!(step, "[2/3] RUN echo hi; sleep 1; exit 7");
        assert_eq!((exit_code, last_lines), (Some(7), vec!["hi".to_owned()]));
        assert_eq!(transcript.image_id(), None);
    }

    #[test]
    fn no_cut_of_the_stream_looks_like_success() {
        let lines: Vec<&str> = MULTISTAGE.lines().collect();
        let end = lines.iter().position(|line| line.contains("moby.image.id")).expect("an image ID");
        for length in 0..end {
            assert_eq!(run(&lines[..length].join("\n")).0.image_id(), None, "after {length} messages");
        }
    }

    #[test]
    fn an_image_that_is_being_written_is_a_trace() {
        let lines: Vec<&str> = MULTISTAGE.lines().collect();
        let end = lines.iter().position(|line| line.contains("moby.image.id")).expect("an image ID");
        let whole = run(MULTISTAGE).0.image_id().map(str::to_owned);
        assert!(run(&lines[..end].join("\n")).0.traces().may_have_named);
        assert!(!run(&lines[..end / 2].join("\n")).0.traces().may_have_named);
        assert_eq!(run(&lines[..end].join("\n")).0.traces().images, Vec::from_iter(whole));
    }

    #[test]
    fn only_a_running_step_can_be_interrupted() {
        assert_eq!(BuildKitTranscript::default().interruption(), Interruption::Works);
        let mut transcript = BuildKitTranscript::default();
        let mut trace = |vertex: Vertex| {
            let vertexes = vec![vertex];
            transcript.trace(StatusResponse { vertexes, ..StatusResponse::default() });
            transcript.interruption()
        };
        let done = |mut vertex: Vertex| {
            vertex.completed.get_or_insert_default().seconds = 2;
            vertex
        };
        assert_eq!(trace(vertex("a", "[1/1] RUN x", None)), Interruption::Works);
        assert_eq!(trace(done(vertex("a", "[1/1] RUN x", None))), Interruption::MayComeTooLate);
        assert_eq!(trace(vertex("b", EXPORT, None)), Interruption::IsIgnored);
        assert_eq!(trace(vertex("c", "[2/2] RUN y", None)), Interruption::Works);
    }

    fn vertex(digest: &str, name: &str, error: Option<&str>) -> Vertex {
        let mut vertex = Vertex { digest: digest.to_owned(), name: name.to_owned(), ..Vertex::default() };
        vertex.started.get_or_insert_default().seconds = 1;
        if let Some(error) = error {
            vertex.completed.get_or_insert_default().seconds = 2;
            vertex.error = error.to_owned();
        }
        vertex
    }

    #[test]
    fn the_failure_is_told_from_what_it_stopped() {
        let mut transcript = BuildKitTranscript::default();
        let vertexes = vec![
            vertex("a", "[1/2] RUN slow", Some("context canceled")),
            vertex("b", "[2/2] RUN bad", Some("process did not complete successfully: exit code: 3")),
            vertex("c", "[x 1/2] RUN other", None),
        ];
        transcript.trace(StatusResponse { vertexes, ..StatusResponse::default() });
        let error = transcript.failure("failed to solve".to_owned());
        assert!(
            matches!(&error, BuildError::Step { step, exit_code: Some(3), .. } if step == "[2/2] RUN bad"),
            "{error:?}"
        );
    }

    #[test]
    fn a_failure_without_a_step_is_a_rejection() {
        let error = BuildKitTranscript::default().failure("dockerfile parse error line 2".to_owned());
        assert!(matches!(error, BuildError::Rejected { .. }), "{error:?}");
    }

    #[test]
    fn chunks_of_two_vertices_do_not_mix() {
        let mut transcript = BuildKitTranscript::default();
        let log = |vertex: &str, msg: &[u8]| VertexLog {
            vertex: vertex.to_owned(),
            stream: 1,
            msg: msg.to_vec(),
            ..VertexLog::default()
        };
        let vertexes = vec![vertex("a", "[1/2] RUN a", None), vertex("b", "[2/2] RUN b", None)];
        let logs = vec![log("a", b"on"), log("b", b"two\n"), log("a", b"e\nlast \xff")];
        let events = transcript.trace(StatusResponse { vertexes, logs, ..StatusResponse::default() });
        assert_eq!(log_lines(&events), ["2: two", "1: one"]);
        assert_eq!(log_lines(&transcript.finish()), ["1: last \u{fffd}"]);
    }

    #[test]
    fn places_of_steps() {
        assert_eq!(position("[2/3] RUN x"), Some((2, 3)));
        assert_eq!(position("[stage-1 10/12] COPY [a] /"), Some((10, 12)));
        assert_eq!(position("[linux/amd64 stage-1 2/3] RUN x"), Some((2, 3)));
        assert_eq!(position("[internal] load build definition"), None);
        assert_eq!(position("exporting to image"), None);
    }

    #[test]
    fn durations_never_go_backwards() {
        assert_eq!(between((1, 900_000_000), (2, 100_000_000)), Duration::from_millis(200));
        assert_eq!(between((2, 0), (1, 0)), Duration::ZERO);
    }
}
