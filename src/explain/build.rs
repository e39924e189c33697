//! The log of a build, as far as it is kept: its beginning says what it is, its end what went wrong.

use crate::logs::build::build_failure;
use std::borrow::Cow;

/// Bytes kept of the end.
const MAX_TAIL: usize = 128 * 1024;

/// Lines that may be of a build.
#[derive(Debug, Default)]
pub(super) struct BuildText {
    /// A line that only a build has was seen.
    pub is_build: bool,
    /// The build said that it failed.
    pub has_failed: bool,
    tail: String,
}

impl BuildText {
    pub(super) fn push_line(&mut self, line: &str) {
        let text = plain(line);
        for line in text.lines() {
            self.is_build |= is_of_a_build(line);
            self.has_failed |= is_failure(line);
            if self.tail.len() + line.len() >= 2 * MAX_TAIL {
                // Behind a line feed is a whole character, wherever the middle falls.
                let end = memchr::memchr(b'\n', &self.tail.as_bytes()[MAX_TAIL..]);
                let from = end.map_or(self.tail.len(), |at| MAX_TAIL + at + 1);
                self.tail.drain(..from);
            }
            self.tail.push_str(line);
            self.tail.push('\n');
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> + Clone {
        self.tail.lines()
    }
}

/// The engine's stream has a JSON object per line (`{"stream":"Step 1/2 : …\n"}`).
fn plain(line: &str) -> Cow<'_, str> {
    if !line.starts_with("{\"") {
        return Cow::Borrowed(line);
    }
    let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { return Cow::Borrowed(line) };
    let text = |key: &str| value.get(key).and_then(|text| text.as_str()).map(str::to_owned);
    match (text("stream"), text("error")) {
        (Some(stream), _) => Cow::Owned(stream),
        (None, Some(error)) => Cow::Owned(format!("ERROR: build failed: {error}")),
        (None, None) => Cow::Borrowed(line),
    }
}

/// Lines of the classic builder, BuildKit (plain and on a terminal) and buildah.
fn is_of_a_build(line: &str) -> bool {
    let line = line.trim_start();
    let counted = |start: &str| {
        line.strip_prefix(start).is_some_and(|rest| {
            rest.split_once('/')
                .is_some_and(|(step, _)| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    match line.as_bytes().first() {
        Some(b'S') => {
            counted("Step ")
                || counted("STEP ")
                || ["Sending build context to", "Successfully built ", "Successfully tagged "]
                    .iter()
                    .any(|start| line.starts_with(start))
        }
        Some(b'#') => {
            let rest = line[1..].trim_start_matches(|c: char| c.is_ascii_digit());
            rest.len() < line.len() - 1
                && [" [", " DONE", " CACHED", " ERROR", " transferring", " exporting", " naming"]
                    .iter()
                    .any(|word| rest.starts_with(word))
        }
        Some(b'=') => line.starts_with("=> ["),
        _ => is_failure(line),
    }
}

fn is_failure(line: &str) -> bool {
    line.contains("failed to solve")
        || line.contains("returned a non-zero code")
        || line.contains("did not complete successfully: exit code")
        || line.starts_with("ERROR: build failed")
        || line.starts_with("error: the build failed")
        || build_failure(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_every_builder() {
        for (line, is_build, has_failed) in [
            ("Step 1/2 : FROM debian:12", true, false),
            ("STEP 1/2: FROM debian:12", true, false),
            ("#5 [2/3] RUN apt-get update", true, false),
            ("#5 DONE 0.1s", true, false),
            (" => [1/2] FROM docker.io/library/debian:12", true, false),
            (r#"{"stream":"Step 1/2 : FROM debian:12\n"}"#, true, false),
            (
                r#"{"errorDetail":{"code":1,"message":"x"},"error":"The command '/bin/sh -c x' returned a non-zero code: 1"}"#,
                true,
                true,
            ),
            (r#"{"errorDetail":{"message":"pull access denied"},"error":"pull access denied"}"#, true, true),
            (
                r#"ERROR: failed to solve: process "/bin/sh -c x" did not complete successfully: exit code: 100"#,
                true,
                true,
            ),
            // This program's own.
            ("error: the build failed in [2/2] RUN set -eu; with exit code 1: the vendor's mirror", true, true),
            ("# nThread 1 nGpus 1", false, false),
            ("#  Rank  0 Group  0", false, false),
            ("Step by step", false, false),
            ("#12", false, false),
            ("{\"x\":1}", false, false),
        ] {
            let mut text = BuildText::default();
            text.push_line(line);
            assert_eq!((text.is_build, text.has_failed), (is_build, has_failed), "{line}");
        }
    }

    #[test]
    fn the_end_is_kept() {
        let mut text = BuildText::default();
        for number in 0..100_000 {
            text.push_line(&format!("line {number} ü"));
            assert!(text.tail.len() <= 2 * MAX_TAIL + 32);
        }
        assert_eq!(text.lines().last(), Some("line 99999 ü"));
        assert!(text.lines().all(|line| line.starts_with("line ")));
    }
}
