//! Splits the output of a build step into whole lines.
//!
//! Input: chunks of bytes as the daemon sends them, cut anywhere. Output: complete lines, without terminal control
//! sequences, without overwritten progress, without credentials. The last few are kept for the error report.

use std::collections::VecDeque;

use super::redact::Redactor;

/// Lines kept of each step.
pub(super) const KEPT_LINES: usize = 30;

/// A line is passed on unfinished at this length, so that output without line ends cannot exhaust memory.
const LONGEST_LINE: usize = 64 * 1024;

/// Standard output, standard error, and any other stream that a builder distinguishes.
type StreamNumber = i64;

/// The output of one step.
#[derive(Debug, Default)]
pub(super) struct StepLog {
    unfinished: Vec<(StreamNumber, LineBuffer)>,
    kept: VecDeque<String>,
}

impl StepLog {
    /// Takes a chunk of one stream and returns the lines that it completes.
    pub(super) fn push(&mut self, stream: StreamNumber, chunk: &[u8], redactor: &Redactor) -> Vec<String> {
        let at = self.unfinished.iter().position(|(number, _)| *number == stream).unwrap_or_else(|| {
            self.unfinished.push((stream, LineBuffer::default()));
            self.unfinished.len() - 1
        });
        let lines = self.unfinished[at].1.push(chunk);
        self.keep(lines, redactor)
    }

    /// Returns what is left without a line end.
    pub(super) fn finish(&mut self, redactor: &Redactor) -> Vec<String> {
        let lines =
            std::mem::take(&mut self.unfinished).into_iter().filter_map(|(_, buffer)| buffer.finish()).collect();
        self.keep(lines, redactor)
    }

    /// The last lines, the oldest first.
    pub(super) fn last_lines(&self) -> Vec<String> {
        self.kept.iter().cloned().collect()
    }

    fn keep(&mut self, lines: Vec<Vec<u8>>, redactor: &Redactor) -> Vec<String> {
        let lines: Vec<String> = lines.iter().map(|line| redactor.clean(&plain_text(line))).collect();
        self.kept.extend(lines.iter().cloned());
        let surplus = self.kept.len().saturating_sub(KEPT_LINES);
        self.kept.drain(..surplus);
        lines
    }
}

#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// The last byte was a carriage return: a line end follows, or text that overwrites the line.
    returned: bool,
}

impl LineBuffer {
    fn push(&mut self, chunk: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for byte in chunk {
            match byte {
                b'\n' => {
                    self.returned = false;
                    lines.push(std::mem::take(&mut self.bytes));
                }
                b'\r' => self.returned = true,
                byte => {
                    if std::mem::take(&mut self.returned) {
                        self.bytes.clear();
                    }
                    self.bytes.push(*byte);
                    if self.bytes.len() >= LONGEST_LINE {
                        lines.push(std::mem::take(&mut self.bytes));
                    }
                }
            }
        }
        lines
    }

    /// The engine wraps standard error in colours, which end after the line end.
    fn has_text(&self) -> bool {
        !plain_text(&self.bytes).is_empty()
    }

    fn finish(self) -> Option<Vec<u8>> {
        self.has_text().then_some(self.bytes)
    }
}

/// Decodes a line and drops what only a terminal understands: escape sequences and control characters.
pub(super) fn plain_text(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.contains(|c: char| c.is_control() && c != '\t') {
        return text.into_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => plain.push('\t'),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Skips the rest of an escape sequence (ECMA-48: control sequences, operating system commands, two-character ones).
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('[') => {
            chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
        }
        Some(']') => {
            let mut previous = '\0';
            chars.find(|&c| c == '\u{7}' || std::mem::replace(&mut previous, c) == '\u{1b}' && c == '\\');
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let (mut log, redactor) = (StepLog::default(), Redactor::default());
        let mut lines: Vec<String> = chunks.iter().flat_map(|chunk| log.push(1, chunk, &redactor)).collect();
        lines.extend(log.finish(&redactor));
        lines
    }

    #[test]
    fn lines_are_put_together_from_chunks() {
        assert_eq!(lines(&[b"a", b"b\nc", b"d\n", b"\n", b"e"]), ["ab", "cd", "", "e"]);
        assert_eq!(lines(&["ä".as_bytes().split_at(1).0, "ä".as_bytes().split_at(1).1, b"\n"]), ["ä"]);
    }

    #[test]
    fn overwritten_progress_leaves_its_last_state() {
        assert_eq!(
            lines(&[b" 0%\r50%\r", b"99%\rdone\r\n", b"10%\r20%\r\r", b"\n", b"x\r\ny\n"]),
            ["done", "20%", "x", "y"]
        );
    }

    #[test]
    fn two_streams_do_not_mix() {
        let (mut log, redactor) = (StepLog::default(), Redactor::default());
        assert!(log.push(1, b"out", &redactor).is_empty());
        assert_eq!(log.push(2, b"err\n", &redactor), ["err"]);
        assert_eq!(log.push(1, b"put\n", &redactor), ["output"]);
        assert_eq!(log.last_lines(), ["err", "output"]);
    }

    #[test]
    fn terminal_control_and_broken_text_become_plain() {
        assert_eq!(
            lines(&[b"\x1b[91mred\x1b[0m \x1b]0;title\x07x\x1b]8;;u\x1b\\y \xff\x08z\tt\n"]),
            ["red xy \u{fffd}z\tt"]
        );
    }

    #[test]
    fn a_colour_behind_the_line_end_is_no_text() {
        let (mut log, redactor) = (StepLog::default(), Redactor::default());
        assert_eq!(log.push(1, b"\x1b[91merr\n\x1b[0m", &redactor), ["err"]);
        assert_eq!(log.push(1, b"\x1b[91mmore\n\x1b[0m", &redactor), ["more"]);
        assert!(log.finish(&redactor).is_empty());
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let (mut log, redactor) = (StepLog::default(), Redactor::default());
        for number in 0..100 {
            log.push(1, format!("{number}\n").as_bytes(), &redactor);
        }
        let kept = log.last_lines();
        assert_eq!((kept.len(), kept[0].as_str(), kept[KEPT_LINES - 1].as_str()), (KEPT_LINES, "70", "99"));
    }

    #[test]
    fn output_without_line_ends_is_bounded() {
        let lines = lines(&[&vec![b'x'; LONGEST_LINE + 5]]);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [LONGEST_LINE, 5]);
    }

    #[test]
    fn credentials_do_not_reach_the_log() {
        let redactor = Redactor::new(["http://u:s3cret99@p"], []);
        let mut log = StepLog::default();
        assert_eq!(log.push(1, b"proxy http://u:s3cret99@p s3cret99\n", &redactor), ["proxy http://***@p ***"]);
        assert_eq!(log.last_lines(), ["proxy http://***@p ***"]);
    }
}
