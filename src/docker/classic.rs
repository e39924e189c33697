//! The messages of the classic builder, and of podman, which imitates it.
//!
//! Input: its text stream, in which the builder's own lines and the output of the steps are mixed. Output: steps,
//! whole lines, and what the build made on its way. A line counts as the builder's only where the builder can say it:
//! a step may print anything.

use std::time::Instant;

use bollard::models::{BuildInfo, BuildInfoAux};

use super::build::{BuildError, BuildEvent};
use super::log_lines::{StepLog, plain_text};
use super::redact::Redactor;
use super::transcript::{Traces, Transcript, UnfinishedStep, exit_code, one_line};

/// Hexadecimal digits of the IDs in the stream.
const SHORT_ID: usize = 12;

/// Follows a build of the classic builder.
#[derive(Debug, Default)]
pub(super) struct ClassicTranscript {
    redactor: Redactor,
    step: Option<Step>,
    /// Output outside of steps, such as podman's.
    outside: StepLog,
    /// Image that the last step ended with.
    parent: Option<String>,
    containers: Vec<String>,
    made: Vec<String>,
    aux_id: Option<String>,
    built_id: Option<String>,
}

#[derive(Debug)]
struct Step {
    number: u32,
    index: u32,
    total: u32,
    /// The instruction, with secrets; `name` is without.
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
        let log = self.step.as_ref().map_or(&self.outside, |step| &step.log);
        if log.is_at_line_start()
            && let Some(own) = parse_own(text)
            && self.is_plausible(&own)
        {
            return self.own(&own);
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

    /// Whether the builder can say this now.
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
                    // A base image, and what comes out of the cache, was there before.
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
        let Some(mut step) = self.step.take() else {
            return Vec::new();
        };
        let lines = step.log.finish(&self.redactor);
        let mut events: Vec<BuildEvent> =
            lines.into_iter().map(|line| BuildEvent::Log { step: Some(step.number), line }).collect();
        let duration = step.started.elapsed();
        events.push(BuildEvent::StepDone { step: step.number, name: step.name, cached: step.cached, duration });
        events
    }

    /// A message of the pull of a base image.
    fn status(&self, status: &str, message: &BuildInfo) -> BuildEvent {
        let step = self.step.as_ref().map(|step| step.number);
        let item = match &message.id {
            Some(id) => format!("{id}: {status}"),
            None => status.to_owned(),
        };
        let item = self.redactor.clean(&item);
        match message.progress_detail.as_ref().and_then(|detail| Some((detail.current?, detail.total))) {
            Some((current, total)) => BuildEvent::Progress {
                step,
                item,
                current: u64::try_from(current).unwrap_or(0),
                total: total.and_then(|total| u64::try_from(total).ok()).filter(|total| *total > 0),
                done: total == Some(current),
            },
            None => BuildEvent::Log { step, line: item },
        }
    }
}

impl Transcript for ClassicTranscript {
    fn message(&mut self, message: BuildInfo) -> Vec<BuildEvent> {
        if let Some(BuildInfoAux::Default(image)) = &message.aux {
            self.aux_id = image.id.clone().filter(|id| !id.is_empty()).or(self.aux_id.take());
        }
        match (&message.stream, &message.status) {
            (Some(text), _) => self.text(text),
            (None, Some(status)) => vec![self.status(status, &message)],
            (None, None) => Vec::new(),
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
        let unfinished = unfinished
            .map(|(step, parent)| UnfinishedStep { parent: parent.clone(), instruction: step.instruction.clone() });
        Traces { containers: self.containers.clone(), images: self.made.clone(), unfinished }
    }
}

/// Reads one of the builder's own lines. Formats: `builder/dockerfile` of the engine, and podman's `STEP 1/4: …`.
fn parse_own(text: &str) -> Option<Own<'_>> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    if line.contains('\n') {
        return None;
    }
    if let Some(rest) = line.strip_prefix("Step ").or_else(|| line.strip_prefix("STEP ")) {
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
