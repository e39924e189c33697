//! The messages of the classic builder.
//!
//! Input: its text stream, in which the builder's own lines and the output of the steps are mixed. Output: steps,
//! whole lines, and what the build made on its way. A line counts as the builder's only when the builder can print it:
//! a step may print anything.

use std::time::Instant;

use bollard::models::{BuildInfo, BuildInfoAux};

use super::build::{BuildError, BuildEvent};
use super::log_lines::{StepLog, plain_text};
use super::redact::Redactor;
use super::transcript::{Traces, Transcript, UnfinishedStep, exit_code, one_line, pull_event};

/// Hexadecimal digits of the IDs in the stream.
const SHORT_ID: usize = 12;

/// Follows a build of the classic builder.
#[derive(Default)]
pub(super) struct ClassicTranscript {
    redactor: Redactor,
    step: Option<Step>,
    /// Output outside of steps.
    outside: StepLog,
    /// The image that the last step ended with.
    parent: Option<String>,
    containers: Vec<String>,
    made: Vec<String>,
    aux_id: Option<String>,
    built_id: Option<String>,
}

struct Step {
    number: u32,
    index: u32,
    total: u32,
    /// The original instruction; `name` is without credentials.
    instruction: String,
    name: String,
    started: Instant,
    cached: bool,
    /// The step has a container: what comes now may be its output.
    runs: bool,
    /// The step's image was named.
    ended: bool,
    log: StepLog,
}

/// One of the builder's own lines.
#[derive(Debug, PartialEq, Eq)]
enum Own<'a> {
    Step {
        index: u32,
        total: u32,
        instruction: &'a str,
    },
    UsingCache,
    Running(&'a str),
    Removed(&'a str),
    Image(&'a str),
    /// What `FROM scratch` ends with.
    NoImage,
    Built(&'a str),
}

impl ClassicTranscript {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, ..Self::default() }
    }

    fn text(&mut self, text: &str) -> Vec<BuildEvent> {
        // The builder's lines are messages of their own, also behind output that lacks a line end.
        if let Some(own) = parse_own(text)
            && self.is_plausible(&own)
        {
            let mut events = self.finish();
            events.extend(self.own(&own));
            return events;
        }
        // The engine ends the line of a step with a message of its own.
        if text == "\n" && self.step.as_ref().is_some_and(|step| !step.runs) {
            return Vec::new();
        }
        let number = self.step.as_ref().map(|step| step.number);
        let log = self.step.as_mut().map_or(&mut self.outside, |step| &mut step.log);
        let lines = log.push(1, text.as_bytes(), &self.redactor);
        lines.into_iter().map(|line| BuildEvent::Log { step: number, line }).collect()
    }

    /// Whether the builder can print this now.
    fn is_plausible(&self, own: &Own<'_>) -> bool {
        let Some(step) = &self.step else {
            return matches!(own, Own::Step { index: 1, .. });
        };
        match own {
            // A step that had a container must have ended first.
            Own::Step { index, total, .. } => {
                *index == step.index + 1 && *total == step.total && (step.ended || !step.runs)
            }
            Own::UsingCache => !step.runs && !step.ended,
            Own::Running(_) => !step.runs && !step.ended,
            Own::Removed(container) => self.containers.iter().any(|known| known == container),
            // The container of a step is removed before its image is named.
            Own::Image(_) | Own::NoImage => !step.ended && self.containers.is_empty(),
            Own::Built(_) => step.index == step.total && step.ended,
        }
    }

    fn own(&mut self, own: &Own<'_>) -> Vec<BuildEvent> {
        match own {
            Own::Step { index, total, instruction } => {
                let mut events = self.end_step();
                let instruction = one_line(&plain_text(instruction.as_bytes()));
                let name = self.redactor.clean(&instruction);
                let step = Step {
                    number: *index,
                    index: *index,
                    total: *total,
                    instruction,
                    name: name.clone(),
                    started: Instant::now(),
                    cached: false,
                    runs: false,
                    ended: false,
                    log: StepLog::default(),
                };
                let (index, total) = (Some(step.index), Some(step.total));
                events.push(BuildEvent::StepStarted { step: step.number, index, total, name });
                self.step = Some(step);
                return events;
            }
            Own::UsingCache => self.step.iter_mut().for_each(|step| step.cached = true),
            Own::Running(container) => {
                self.step.iter_mut().for_each(|step| step.runs = true);
                self.containers.push((*container).to_owned());
            }
            Own::Removed(container) => self.containers.retain(|known| known != container),
            Own::Image(image) => {
                if let Some(step) = &mut self.step {
                    step.ended = true;
                    // A base image, or one from the cache, existed before.
                    if !step.cached && !is_instruction(&step.instruction, "FROM") {
                        self.made.push((*image).to_owned());
                    }
                }
                self.parent = Some((*image).to_owned());
            }
            Own::NoImage => {
                self.step.iter_mut().for_each(|step| step.ended = true);
                self.parent = None;
            }
            Own::Built(image) => {
                self.built_id = Some((*image).to_owned());
                return self.end_step();
            }
        }
        Vec::new()
    }

    /// Reports the running step as done.
    fn end_step(&mut self) -> Vec<BuildEvent> {
        let mut events = self.finish();
        let Some(step) = self.step.take() else { return events };
        let duration = step.started.elapsed();
        events.push(BuildEvent::StepDone { step: step.number, name: step.name, cached: step.cached, duration });
        events
    }
}

impl Transcript for ClassicTranscript {
    fn message(&mut self, message: BuildInfo) -> Vec<BuildEvent> {
        if let Some(BuildInfoAux::Default(image)) = &message.aux {
            self.aux_id = image.id.clone().filter(|id| !id.is_empty()).or(self.aux_id.take());
        }
        match &message.stream {
            Some(text) => self.text(text),
            None => {
                let step = self.step.as_ref().map(|step| step.number);
                pull_event(step, &message, &self.redactor).into_iter().collect()
            }
        }
    }

    fn finish(&mut self) -> Vec<BuildEvent> {
        let number = self.step.as_ref().map(|step| step.number);
        let log = self.step.as_mut().map_or(&mut self.outside, |step| &mut step.log);
        let lines = log.finish(&self.redactor);
        lines.into_iter().map(|line| BuildEvent::Log { step: number, line }).collect()
    }

    /// Each stage of a build names an ID (`aux`), so only the closing line tells that the last one is done.
    fn image_id(&self) -> Option<&str> {
        let built = self.built_id.as_deref()?;
        let whole = self.aux_id.as_deref().filter(|id| id.trim_start_matches("sha256:").starts_with(built));
        whole.or(Some(built))
    }

    fn has_started(&self) -> bool {
        self.step.is_some() || self.parent.is_some()
    }

    fn current_step(&self) -> Option<(String, Vec<String>)> {
        self.step.as_ref().map(|step| (step.name.clone(), step.log.last_lines()))
    }

    fn failure(&self, message: String) -> BuildError {
        let message = self.redactor.clean(message.trim());
        match self.current_step() {
            Some((step, last_lines)) => BuildError::Step { step, exit_code: exit_code(&message), message, last_lines },
            None => BuildError::Rejected { message, last_lines: self.outside.last_lines() },
        }
    }

    fn traces(&self) -> Traces {
        let unfinished = self.step.as_ref().filter(|step| !step.ended).zip(self.parent.as_ref());
        let unfinished = unfinished.map(|(step, parent)| UnfinishedStep {
            parent: parent.clone(),
            instruction: step.instruction.clone(),
            name: step.name.clone(),
        });
        Traces { containers: self.containers.clone(), images: self.made.clone(), may_have_named: false, unfinished }
    }
}

/// Reads one of the builder's own lines, which `builder/dockerfile` of the engine writes.
fn parse_own(text: &str) -> Option<Own<'_>> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    if line.contains('\n') {
        return None;
    }
    if let Some(rest) = line.strip_prefix("Step ") {
        let (position, instruction) = rest.split_once(':')?;
        let (index, total) = position.trim_end().split_once('/')?;
        return Some(Own::Step {
            index: index.parse().ok()?,
            total: total.parse().ok()?,
            instruction: instruction.trim(),
        });
    }
    let container = line
        .strip_prefix("Removing intermediate container ")
        .or_else(|| line.strip_prefix(" ---> Removed intermediate container "));
    if let Some(container) = container {
        return short_id(container).map(Own::Removed);
    }
    if let Some(image) = line.strip_prefix("Successfully built ") {
        return short_id(image).map(Own::Built);
    }
    let rest = line.strip_prefix(" ---> ")?;
    match rest {
        "Using cache" => return Some(Own::UsingCache),
        "" => return Some(Own::NoImage),
        _ => {}
    }
    match rest.strip_prefix("Running in ") {
        Some(container) => short_id(container).map(Own::Running),
        None => short_id(rest).map(Own::Image),
    }
}

fn short_id(text: &str) -> Option<&str> {
    (text.len() == SHORT_ID && text.bytes().all(|b| b.is_ascii_hexdigit())).then_some(text)
}

fn is_instruction(line: &str, instruction: &str) -> bool {
    line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case(instruction))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::transcript::tests::{follow, log_lines, outline};

    const MULTISTAGE: &str = include_str!("../../tests/data/docker/classic-multistage.ndjson");
    const CACHED: &str = include_str!("../../tests/data/docker/classic-cached.ndjson");
    const FAILED: &str = include_str!("../../tests/data/docker/classic-failed.ndjson");

    fn run(stream: &str) -> (ClassicTranscript, Vec<BuildEvent>) {
        let mut transcript = ClassicTranscript::default();
        let events = follow(&mut transcript, stream);
        (transcript, events)
    }

    #[test]
    fn a_whole_build() {
        let (transcript, events) = run(MULTISTAGE);
        assert_eq!(
            outline(&events),
            [
                "1 1/11 ARG BASE=rdmaprep-test/base:1: done",
                "2 2/11 FROM scratch AS empty: done",
                "3 3/11 COPY Dockerfile /d: done",
                "4 4/11 FROM $BASE AS one: done",
                "5 5/11 RUN echo out; echo err >&2; printf 'a\\rb\\n': done",
                "6 6/11 COPY --from=empty /d /d: done",
                "7 7/11 FROM $BASE: done",
                "8 8/11 ENV A=1: done",
                "9 9/11 RUN echo \"Step 9/9 : spoof\"; echo \" ---> 0123456789ab\"; echo last >&2: done",
                "10 10/11 COPY --from=one /d /d: done",
                "11 11/11 CMD [\"sh\"]: done",
            ]
        );
        assert_eq!(
            log_lines(&events),
            [
                "5: out",
                "5: err",
                "5: b",
                "9: Step 9/9 : spoof",
                "9:  ---> 0123456789ab",
                "9: last",
                "-: Successfully tagged rdmaprep-test/probe:1",
            ]
        );
        let closing = MULTISTAGE.lines().find(|line| line.contains("Successfully built")).expect("a closing line");
        let id = transcript.image_id().expect("an image");
        assert!(id.len() == 71 && closing.contains(&id[7..19]), "{id} {closing}");
    }

    #[test]
    fn traces_are_what_this_build_made() {
        let (transcript, _) = run(MULTISTAGE);
        let traces = transcript.traces();
        // Of eleven steps, one is ARG and three are FROM.
        assert_eq!(traces.images.len(), 7, "{traces:?}");
        assert!(!traces.images.iter().any(|id| id == "81857468af00" || id == "0123456789ab"), "{traces:?}");
        assert!(traces.containers.is_empty() && traces.unfinished.is_none(), "{traces:?}");

        let (transcript, events) = run(CACHED);
        assert_eq!(transcript.traces(), Traces::default());
        assert_eq!(outline(&events).iter().filter(|line| line.ends_with(": cached")).count(), 7);
    }

    #[test]
    fn a_failed_step() {
        let (transcript, _) = run(FAILED);
        let error = transcript.failure("The command '/bin/sh -c x' returned a non-zero code: 7\n".to_owned());
        let BuildError::Step { step, exit_code, last_lines, .. } = error else { panic!("{error:?}") };
        assert_eq!(step, "RUN echo hi; sleep 1; exit 7");
        assert_eq!(exit_code, Some(7));
        assert_eq!(last_lines, ["hi"]);
    }

    #[test]
    fn no_cut_of_the_stream_looks_like_success() {
        let lines: Vec<&str> = MULTISTAGE.lines().collect();
        let end = lines.iter().position(|line| line.contains("Successfully built")).expect("a closing line");
        for length in 0..end {
            let (transcript, _) = run(&lines[..length].join("\n"));
            assert_eq!(transcript.image_id(), None, "after {length} messages");
        }
    }

    #[test]
    fn a_running_step_leaves_a_container_and_maybe_an_image() {
        let lines: Vec<&str> = MULTISTAGE.lines().collect();
        let running = lines.iter().rposition(|line| line.contains("Running in")).expect("a running step");
        let (transcript, _) = run(&lines[..=running].join("\n"));
        let traces = transcript.traces();
        assert_eq!(traces.containers.len(), 1);
        let unfinished = traces.unfinished.expect("the step has not ended");
        assert_eq!(unfinished.instruction, "CMD [\"sh\"]");
        assert_eq!(Some(&unfinished.parent), traces.images.last());
    }

    #[test]
    fn output_without_a_line_end_does_not_hide_the_builder() {
        let (transcript, events) = run(concat!(
            "{\"stream\":\"Step 1/1 : RUN x\"}\n",
            "{\"stream\":\" ---\\u003e Running in 876ac77d0b42\\n\"}\n",
            "{\"stream\":\"no end\"}\n",
            "{\"stream\":\"Removing intermediate container 876ac77d0b42\\n\"}\n",
            "{\"stream\":\" ---\\u003e 6e02c67a56c4\\n\"}\n",
            "{\"stream\":\"Successfully built 6e02c67a56c4\\n\"}\n",
        ));
        assert_eq!(log_lines(&events), ["1: no end"]);
        assert_eq!(transcript.image_id(), Some("6e02c67a56c4"));
        assert!(transcript.traces().containers.is_empty());
    }

    #[test]
    fn a_pull_is_progress_and_lines() {
        let (_, events) = run(concat!(
            "{\"stream\":\"Step 1/1 : FROM r/x\"}\n",
            "{\"status\":\"Pulling from x\",\"id\":\"1\"}\n",
            "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":5,\"total\":10},\"id\":\"ab\"}\n",
            "{\"status\":\"Pull complete\",\"progressDetail\":{},\"id\":\"ab\"}\n",
        ));
        assert_eq!(log_lines(&events), ["1: 1: Pulling from x", "1: ab: Pull complete"]);
        let progress = BuildEvent::Progress {
            step: Some(1),
            item: "ab: Downloading".to_owned(),
            current: 5,
            total: Some(10),
            done: false,
        };
        assert!(events.contains(&progress), "{events:?}");
    }

    #[test]
    fn own_lines_are_recognised_by_their_exact_form() {
        assert_eq!(parse_own("Removing intermediate container 876ac77d0b42\n"), Some(Own::Removed("876ac77d0b42")));
        // Docker 23 and later.
        assert_eq!(
            parse_own(" ---> Removed intermediate container 876ac77d0b42\n"),
            Some(Own::Removed("876ac77d0b42"))
        );
        for line in
            [" ---> [Warning] x", " ---> 876ac77d0b4", " ---> 876ac77d0b42\nx", "Step 1 : x", "Step a/b : x", "x"]
        {
            assert_eq!(parse_own(line), None, "{line}");
        }
    }
}
