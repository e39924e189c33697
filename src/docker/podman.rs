//! The messages of podman's builder.
//!
//! Input: what podman sends in place of the classic builder's stream: the lines of `buildah`, mixed with the output of
//! the steps. Output: steps, whole lines, and the images made on the way. Each stage counts its own steps:
//! `[2/3] STEP 1/4: RUN …`.

use std::time::Instant;

use bollard::models::{BuildInfo, BuildInfoAux};

use super::build::{BuildError, BuildEvent};
use super::log_lines::StepLog;
use super::redact::Redactor;
use super::transcript::{Traces, Transcript, exit_code, one_line, pull_event};

/// Shortest ID in the stream, in hexadecimal digits.
const SHORTEST_ID: usize = 10;

/// Follows a build of podman.
#[derive(Debug, Default)]
pub(super) struct PodmanTranscript {
    redactor: Redactor,
    step: Option<Step>,
    started: u32,
    log: StepLog,
    made: Vec<String>,
    aux_id: Option<String>,
    is_built: bool,
}

#[derive(Debug)]
struct Step {
    number: u32,
    name: String,
    started: Instant,
    cached: bool,
}

/// One of the builder's own lines.
#[derive(Debug, PartialEq, Eq)]
enum Own<'a> {
    Step { index: u32, total: u32, instruction: &'a str },
    UsingCache,
    Image(&'a str),
    Built,
}

impl PodmanTranscript {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    fn line(&mut self, line: String, events: &mut Vec<BuildEvent>) {
        match parse_own(&line) {
            Some(Own::Step { index, total, instruction }) => {
                events.extend(self.end_step());
                self.started += 1;
                let name = one_line(instruction);
                let (number, index, total) = (self.started, Some(index), Some(total));
                events.push(BuildEvent::StepStarted { step: number, index, total, name: name.clone() });
                self.step = Some(Step { number, name, started: Instant::now(), cached: false });
                self.log = StepLog::default();
            }
            Some(Own::UsingCache) => self.step.iter_mut().for_each(|step| step.cached = true),
            Some(Own::Image(image)) => {
                if self.step.as_ref().is_some_and(|step| !step.cached) {
                    self.made.push(image.to_owned());
                }
            }
            Some(Own::Built) => {
                self.is_built = true;
                events.extend(self.end_step());
            }
            None => events.push(BuildEvent::Log { step: self.step.as_ref().map(|step| step.number), line }),
        }
    }

    fn end_step(&mut self) -> Option<BuildEvent> {
        let Step { number, name, started, cached } = self.step.take()?;
        Some(BuildEvent::StepDone { step: number, name, cached, duration: started.elapsed() })
    }
}

impl Transcript for PodmanTranscript {
    fn message(&mut self, message: BuildInfo) -> Vec<BuildEvent> {
        if let Some(BuildInfoAux::Default(image)) = &message.aux {
            self.aux_id = image.id.clone().filter(|id| !id.is_empty()).or(self.aux_id.take());
        }
        let mut events = Vec::new();
        if let Some(text) = &message.stream {
            // Output that lacks a line end must not swallow the builder's next line.
            if parse_own(text.trim_end()).is_some() {
                events.extend(self.finish());
            }
            for line in self.log.push(1, text.as_bytes(), &self.redactor) {
                self.line(line, &mut events);
            }
        } else {
            events.extend(pull_event(self.step.as_ref().map(|step| step.number), &message, &self.redactor));
        }
        events
    }

    fn finish(&mut self) -> Vec<BuildEvent> {
        let mut events = Vec::new();
        for line in self.log.finish(&self.redactor) {
            self.line(line, &mut events);
        }
        events
    }

    fn image_id(&self) -> Option<&str> {
        self.aux_id.as_deref().filter(|_| self.is_built)
    }

    fn has_started(&self) -> bool {
        self.started > 0
    }

    fn current_step(&self) -> Option<(String, Vec<String>)> {
        let is_output = |line: &String| parse_own(line).is_none();
        let lines = self.log.last_lines().into_iter().filter(is_output).collect();
        self.step.as_ref().map(|step| (step.name.clone(), lines))
    }

    fn failure(&self, message: String) -> BuildError {
        let message = self.redactor.clean(message.trim());
        match self.current_step() {
            Some((step, last_lines)) => BuildError::Step { step, exit_code: exit_code(&message), message, last_lines },
            None => BuildError::Rejected { message, last_lines: self.log.last_lines() },
        }
    }

    fn traces(&self) -> Traces {
        Traces { images: self.made.clone(), ..Traces::default() }
    }
}

fn parse_own(line: &str) -> Option<Own<'_>> {
    if let Some(rest) = line.strip_prefix("--> ") {
        if let Some(image) = rest.strip_prefix("Using cache ") {
            return is_id(image).then_some(Own::UsingCache);
        }
        return is_id(rest).then_some(Own::Image(rest));
    }
    if let Some(image) = line.strip_prefix("Successfully built ") {
        return is_id(image).then_some(Own::Built);
    }
    let rest = match line.strip_prefix('[') {
        Some(rest) => {
            let (stage, rest) = rest.split_once("] ")?;
            stage.split_once('/')?.0.parse::<u32>().ok()?;
            rest
        }
        None => line,
    };
    let (position, instruction) = rest.strip_prefix("STEP ")?.split_once(": ")?;
    let (index, total) = position.split_once('/')?;
    Some(Own::Step { index: index.parse().ok()?, total: total.parse().ok()?, instruction })
}

fn is_id(text: &str) -> bool {
    text.len() >= SHORTEST_ID && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::transcript::tests::{follow, log_lines, outline};

    const MULTISTAGE: &str = include_str!("../../tests/data/docker/podman-multistage.ndjson");
    const CACHED: &str = include_str!("../../tests/data/docker/podman-cached.ndjson");
    const FAILED: &str = include_str!("../../tests/data/docker/podman-failed.ndjson");

    fn run(stream: &str) -> (PodmanTranscript, Vec<BuildEvent>) {
        let mut transcript = PodmanTranscript::default();
        let events = follow(&mut transcript, stream);
        (transcript, events)
    }

    #[test]
    fn a_whole_build() {
        let (transcript, events) = run(MULTISTAGE);
        let outline = outline(&events);
        assert_eq!(outline.len(), 10, "{outline:#?}");
        assert_eq!(outline[3], "4 2/3 RUN echo out; echo err >&2; printf 'a\\rb\\n': done");
        assert_eq!(outline[9], "10 5/5 CMD [\"sh\"]: done");
        let lines = log_lines(&events);
        for line in ["4: out", "4: b", "4: err", "8:  ---> 0123456789ab", "8: Step 9/9 : spoof"] {
            assert!(lines.iter().any(|logged| logged == line), "{line} {lines:?}");
        }
        assert!(transcript.image_id().is_some_and(|id| id.starts_with("sha256:") && id.len() == 71));
        assert_eq!(transcript.traces().images.len(), 7);
    }

    #[test]
    fn cached_steps_leave_no_traces() {
        let (transcript, events) = run(CACHED);
        assert_eq!(outline(&events).iter().filter(|line| line.ends_with(": cached")).count(), 7);
        assert_eq!(transcript.traces(), Traces::default());
    }

    #[test]
    fn a_failed_step() {
        let (transcript, _) = run(FAILED);
        let error = transcript.failure("building at STEP \"RUN x\": while running runtime: exit status 7\n".to_owned());
        let BuildError::Step { step, exit_code, last_lines, .. } = error else { panic!("{error:?}") };
        assert_eq!(step, "RUN echo hi; sleep 1; exit 7");
        assert_eq!((exit_code, last_lines), (Some(7), vec!["hi".to_owned()]));
    }

    #[test]
    fn no_cut_of_the_stream_looks_like_success() {
        let lines: Vec<&str> = MULTISTAGE.lines().collect();
        let end = lines.iter().position(|line| line.contains("Successfully built")).expect("a closing line");
        for length in 0..end {
            assert_eq!(run(&lines[..length].join("\n")).0.image_id(), None, "after {length} messages");
        }
    }
}
