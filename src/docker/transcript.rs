//! What the builders' message streams have in common.
//!
//! Input: messages of a build. Output: events, and at the end either an image's ID or the reason why there is none.

use std::fmt;

use bollard::models::BuildInfo;

use super::build::{BuildError, BuildEvent};
use super::redact::Redactor;

/// Follows one build. Implementations only interpret messages and never contact the daemon.
pub(super) trait Transcript: Send {
    /// Interprets one message.
    fn message(&mut self, message: BuildInfo) -> Vec<BuildEvent>;

    /// Passes on output without a line end.
    fn finish(&mut self) -> Vec<BuildEvent>;

    /// The image, as soon as the builder named it.
    fn image_id(&self) -> Option<&str>;

    /// Whether a step has started.
    fn has_started(&self) -> bool;

    /// The step that runs, or ran last, and its last lines.
    fn current_step(&self) -> Option<(String, Vec<String>)>;

    /// The error for a failure that the daemon reported.
    fn failure(&self, message: String) -> BuildError;

    /// The effect of closing the stream now.
    fn interruption(&self) -> Interruption {
        Interruption::Works
    }

    /// The objects to remove if the build fails.
    fn traces(&self) -> Traces;
}

/// The effect of closing the stream now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The daemon stops.
    Works,
    /// No step runs, and the next one may be one that the daemon does not stop.
    MayComeTooLate,
    /// The daemon silently continues to the end.
    IsIgnored,
}

/// Objects of the engine that belong to a build alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Traces {
    /// Containers of steps, by their shortened IDs.
    pub(super) containers: Vec<String>,
    /// Images of steps, in the order of their making.
    pub(super) images: Vec<String>,
    /// The builder was about to name the image, so the names may exist although no message said so.
    pub(super) may_have_named: bool,
    /// The step that ran last, if it may leave an image that no message named.
    pub(super) unfinished: Option<UnfinishedStep>,
}

/// A step whose image the engine may still be writing.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UnfinishedStep {
    /// The image that the step started from.
    pub(super) parent: String,
    /// The instruction as in the Dockerfile, for comparison; it may contain credentials.
    pub(super) instruction: String,
    /// The instruction without credentials, for display.
    pub(super) name: String,
}

impl fmt::Debug for UnfinishedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnfinishedStep").field("parent", &self.parent).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Finds the exit code in a builder's message: `returned a non-zero code: 7` (classic), `exit code: 7` (BuildKit),
/// `exit status 7` (podman).
pub(super) fn exit_code(message: &str) -> Option<i64> {
    ["non-zero code: ", "exit code: ", "exit status "].into_iter().find_map(|marker| {
        let rest = &message[message.rfind(marker)? + marker.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

/// The event for a message, if it is about the pull of a base image.
pub(super) fn pull_event(step: Option<u32>, message: &BuildInfo, redactor: &Redactor) -> Option<BuildEvent> {
    let status = message.status.as_deref()?;
    let item = match &message.id {
        Some(id) => redactor.clean(&format!("{id}: {status}")),
        None => redactor.clean(status),
    };
    let progress = message.progress_detail.as_ref().and_then(|detail| Some((detail.current?, detail.total)));
    Some(match progress {
        Some((current, total)) => BuildEvent::Progress {
            step,
            item,
            current: u64::try_from(current).unwrap_or(0),
            total: total.and_then(|total| u64::try_from(total).ok()).filter(|total| *total > 0),
            done: total == Some(current),
        },
        None => BuildEvent::Log { step, line: item },
    })
}

/// A step's instruction on one line.
pub(super) fn one_line(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Replays a recorded stream up to its error, if it has one.
    pub(in crate::docker) fn follow(transcript: &mut dyn Transcript, stream: &str) -> Vec<BuildEvent> {
        let mut events = Vec::new();
        for line in stream.lines() {
            let message: BuildInfo = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if message.error_detail.is_some() {
                break;
            }
            events.extend(transcript.message(message));
        }
        events.extend(transcript.finish());
        events
    }

    /// One line for each step: number, position, name, and its final state.
    pub(in crate::docker) fn outline(events: &[BuildEvent]) -> Vec<String> {
        let mut steps: Vec<(u32, String, &str)> = Vec::new();
        for event in events {
            match event {
                BuildEvent::StepStarted { step, index, total, name } => {
                    let place = index.zip(*total).map(|(index, total)| format!("{index}/{total} ")).unwrap_or_default();
                    if !steps.iter().any(|(number, ..)| number == step) {
                        steps.push((*step, format!("{step} {place}{name}"), "started"));
                    }
                }
                BuildEvent::StepDone { step, cached, .. } => {
                    let known = steps.iter_mut().find(|(number, ..)| number == step);
                    known.expect("a step starts before it is done").2 = if *cached { "cached" } else { "done" };
                }
                _ => {}
            }
        }
        steps.into_iter().map(|(_, text, state)| format!("{text}: {state}")).collect()
    }

    /// The lines of all steps, each after its step's number.
    pub(in crate::docker) fn log_lines(events: &[BuildEvent]) -> Vec<String> {
        let line = |event: &BuildEvent| match event {
            BuildEvent::Log { step, line } => {
                Some(format!("{}: {line}", step.map_or("-".to_owned(), |step| step.to_string())))
            }
            _ => None,
        };
        events.iter().filter_map(line).collect()
    }

    #[test]
    fn exit_codes_of_all_builders() {
        for (message, code) in [
            ("The command '/bin/sh -c exit 7' returned a non-zero code: 7", Some(7)),
            ("executor failed running [/bin/sh -c exit 7]: exit code: 7", Some(7)),
            ("failed to solve: process \"/bin/sh -c x\" did not complete successfully: exit code: 127", Some(127)),
            ("building at STEP \"RUN exit 3\": while running runtime: exit status 3", Some(3)),
            ("executor failed running [/bin/sh -c echo 'exit code: 1']: exit code: 2", Some(2)),
            ("pull access denied", None),
            ("exit code: ?", None),
        ] {
            assert_eq!(exit_code(message), code, "{message}");
        }
    }
}
