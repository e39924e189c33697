//! The result on stdout, and whether to colour it.

use super::Colour;
use super::error::CliError;
use crate::report::{Style, write_json};
use std::io::{self, BufWriter, IsTerminal, Write};

/// Collects what a command prints; a closed pipe (`| head`) is not an error.
pub(super) struct Output {
    stdout: BufWriter<io::Stdout>,
    pub style: Style,
    closed: bool,
    failure: Option<io::Error>,
}

impl Output {
    pub(super) fn new(colour: Colour) -> Output {
        let stdout = io::stdout();
        let colour = match colour {
            Colour::Always => true,
            Colour::Never => false,
            // https://no-color.org: any non-empty value switches colour off.
            Colour::Auto => stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        Output { stdout: BufWriter::new(stdout), style: Style { colour }, closed: false, failure: None }
    }

    /// Writes through `write`, which gets the stream and the style.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut dyn Write, Style) -> io::Result<()>) {
        if self.closed || self.failure.is_some() {
            return;
        }
        // Flushed at once, so that text and progress on stderr stay in order.
        match write(&mut self.stdout, self.style).and_then(|()| self.stdout.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            Err(error) => self.failure = Some(error),
        }
    }

    /// Whether the reader closed the pipe.
    pub(super) fn is_closed(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    pub(super) fn json(&mut self, value: &impl serde::Serialize) {
        self.write(|out, _| write_json(out, value));
    }

    /// The first failure, if there was one.
    pub(super) fn finish(self) -> Result<(), CliError> {
        match self.failure {
            Some(source) => Err(CliError::Output { source }),
            None => Ok(()),
        }
    }
}
