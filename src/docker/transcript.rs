//! What the two builders' message streams have in common.
//!
//! Input: messages of a build. Output: events, and at the end either an image's ID or the reason why there is none.

use bollard::models::BuildInfo;

use super::build::{BuildError, BuildEvent};

/// Follows one build. Implementations only interpret messages, they ask the daemon nothing.
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

    /// What has to go if the build does not end well.
    fn traces(&self) -> Traces;
}

/// Objects of the engine that belong to a build alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Traces {
    /// Containers of steps, by their shortened IDs.
    pub(super) containers: Vec<String>,
    /// Images of steps, in the order of their making.
    pub(super) images: Vec<String>,
    /// The step that ran last, if it may leave an image that no message named.
    pub(super) unfinished: Option<UnfinishedStep>,
}

/// A step whose image the engine may still be writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnfinishedStep {
    /// Image that the step started from.
    pub(super) parent: String,
    /// Its instruction, as in the Dockerfile.
    pub(super) instruction: String,
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

/// A step's instruction on one line.
pub(super) fn one_line(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
