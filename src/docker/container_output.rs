//! The output of a container: chunks of stdout and stderr → lines.
//!
//! Input: the stream of an attached container. Output: chunks in the order in which they came; a [`LineSplitter`] per
//! stream makes lines of them. The streams share no order beyond that of their chunks.

use std::pin::Pin;

use bollard::container::LogOutput;
use bollard::errors::Error as ClientError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use super::endpoint::Endpoint;
use super::error::{DockerError, from_client};

/// Longest line kept, in bytes. A rank's log arrives as one line, and NCCL writes a few megabytes at most.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Which of its outputs a process wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Some bytes, which need not be whole lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub stream: OutputStream,
    pub bytes: Bytes,
}

/// The output of one container, from the moment of attaching.
pub struct ContainerOutput {
    chunks: Pin<Box<dyn Stream<Item = Result<LogOutput, ClientError>> + Send>>,
    endpoint: Endpoint,
    operation: String,
}

impl std::fmt::Debug for ContainerOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContainerOutput").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl ContainerOutput {
    pub(super) fn new(
        chunks: Pin<Box<dyn Stream<Item = Result<LogOutput, ClientError>> + Send>>,
        endpoint: Endpoint,
        operation: String,
    ) -> ContainerOutput {
        ContainerOutput { chunks, endpoint, operation }
    }

    /// The next chunk; `None`: the container has ended. May be dropped before it is done, as in `select!`.
    pub async fn next(&mut self) -> Option<Result<Chunk, DockerError>> {
        let item = self.chunks.next().await?;
        Some(match item {
            Ok(LogOutput::StdErr { message }) => Ok(Chunk { stream: OutputStream::Stderr, bytes: message }),
            // An engine that does not name the stream has only one.
            Ok(LogOutput::StdOut { message } | LogOutput::Console { message } | LogOutput::StdIn { message }) => {
                Ok(Chunk { stream: OutputStream::Stdout, bytes: message })
            }
            Err(error) => Err(from_client(error, &self.endpoint, &self.operation)),
        })
    }
}

/// Why a line ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    /// A line feed, which is not part of the text.
    Newline,
    /// The limit: the next line continues where this one ends.
    Limit,
    /// The output ended without a line feed.
    Output,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub bytes: Vec<u8>,
    pub end: LineEnd,
}

impl Line {
    /// The line as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Cuts chunks into lines. Every byte that goes in comes out, line feeds aside, and no more than a limit is held.
#[derive(Debug)]
pub struct LineSplitter {
    held: Vec<u8>,
    limit: usize,
}

impl Default for LineSplitter {
    fn default() -> LineSplitter {
        LineSplitter::with_limit(MAX_LINE_BYTES)
    }
}

impl LineSplitter {
    /// A splitter for lines of at most this many bytes, at least one.
    pub fn with_limit(limit: usize) -> LineSplitter {
        LineSplitter { held: Vec::new(), limit: limit.max(1) }
    }

    /// Takes a chunk and gives the lines that it ends.
    pub fn push(&mut self, mut chunk: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while !chunk.is_empty() {
            let newline = memchr::memchr(b'\n', chunk);
            let wanted = newline.unwrap_or(chunk.len());
            let taken = wanted.min(self.limit - self.held.len());
            self.held.extend_from_slice(&chunk[..taken]);
            chunk = &chunk[taken..];
            if newline == Some(taken) {
                chunk = &chunk[1..];
                lines.push(self.take(LineEnd::Newline));
            } else if self.held.len() == self.limit && !chunk.is_empty() {
                lines.push(self.take(LineEnd::Limit));
            }
        }
        lines
    }

    /// The text after the last line feed.
    pub fn finish(mut self) -> Option<Line> {
        (!self.held.is_empty()).then(|| self.take(LineEnd::Output))
    }

    fn take(&mut self, end: LineEnd) -> Line {
        Line { bytes: std::mem::take(&mut self.held), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<(String, LineEnd)> {
        let mut splitter = LineSplitter::with_limit(limit);
        let mut lines: Vec<Line> = chunks.iter().flat_map(|chunk| splitter.push(chunk)).collect();
        lines.extend(splitter.finish());
        lines.iter().map(|line| (line.text(), line.end)).collect()
    }

    #[test]
    fn lines_over_chunks() {
        use LineEnd::{Newline, Output};
        let line = |text: &str, end| (text.to_owned(), end);
        assert_eq!(
            split(99, &[b"a", b"b\nc\n\n", b"", b"d"]),
            [line("ab", Newline), line("c", Newline), line("", Newline), line("d", Output)]
        );
        assert_eq!(split(99, &[b"a\n"]), [line("a", Newline)]);
        assert_eq!(split(99, &[]), []);
    }

    #[test]
    fn long_lines_are_cut_and_nothing_is_lost() {
        use LineEnd::{Limit, Newline, Output};
        let line = |text: &str, end| (text.to_owned(), end);
        assert_eq!(
            split(3, &[b"abcdefg\nx"]),
            [line("abc", Limit), line("def", Limit), line("g", Newline), line("x", Output)]
        );
        // A line of just the limit is whole, however it comes.
        assert_eq!(split(3, &[b"abc\nd"]), [line("abc", Newline), line("d", Output)]);
        assert_eq!(split(3, &[b"abc", b"\nd"]), [line("abc", Newline), line("d", Output)]);
        assert_eq!(split(3, &[b"abc", b"d\n"]), [line("abc", Limit), line("d", Newline)]);
        // Every text, every limit, every cut.
        let text = b"one\n\ntwo-is-longer\nthree";
        for limit in 1..8 {
            for cut in 0..=text.len() {
                let lines = split(limit, &[&text[..cut], &text[cut..]]);
                assert!(lines.iter().all(|(line, _)| line.len() <= limit));
                let joined: String = lines
                    .iter()
                    .map(|(line, end)| format!("{line}{}", if *end == Newline { "\n" } else { "" }))
                    .collect();
                assert_eq!(joined.as_bytes(), text, "limit {limit}, cut at {cut}");
            }
        }
    }
}
