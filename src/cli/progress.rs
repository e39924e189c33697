//! Progress of a build on stderr: a live line on a terminal, plain lines without one, JSON lines for machines.

use super::Global;
use crate::build::{Event, shorten};
use crate::docker::build::BuildEvent;
use crate::docker::pull::PullEvent;
use crate::docker::push::PushEvent;
use crate::units::{Bytes, Elapsed};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Format of the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgressMode {
    Auto,
    Plain,
    Json,
}

enum Sink {
    Live(ProgressBar),
    Plain,
    Json,
    Silent,
}

/// Shows events as they come.
pub(super) struct Progress {
    sink: Sink,
    /// Running steps: number → heading.
    steps: HashMap<u32, String>,
    /// Steps already announced.
    said: HashSet<u32>,
    /// Name of the recipe, if several are built at once.
    of: Option<String>,
}

/// Shortest step duration that is worth a line.
const NOTABLE: Duration = Duration::from_millis(100);

impl Progress {
    pub(super) fn new(mode: ProgressMode, global: &Global) -> Progress {
        let sink = match mode {
            ProgressMode::Json => Sink::Json,
            _ if global.quiet => Sink::Silent,
            ProgressMode::Auto if io::stderr().is_terminal() => {
                let bar = ProgressBar::new_spinner();
                // The template is a constant that a test parses.
                if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(Duration::from_millis(120));
                Sink::Live(bar)
            }
            ProgressMode::Auto | ProgressMode::Plain => Sink::Plain,
        };
        Progress { sink, steps: HashMap::new(), said: HashSet::new(), of: None }
    }

    /// Progress of one of several builds: every line begins with its name, and there is no live line.
    pub(super) fn of_one(name: &str, mode: ProgressMode, global: &Global) -> Progress {
        let mode = match mode {
            ProgressMode::Auto => ProgressMode::Plain,
            ProgressMode::Plain | ProgressMode::Json => mode,
        };
        let mut progress = Progress::new(mode, global);
        progress.of = Some(name.to_owned());
        progress
    }

    /// Shows one event of a build's course.
    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Phase(text) => self.phase(text),
            Event::Pull(event) => self.pull_event(&event),
            Event::Build(event) => self.build_event(&event),
            Event::Push(event) => self.push_event(&event),
            Event::FailedStep(lines) => {
                self.finish();
                lines.iter().for_each(|line| self.line(&format!("  | {line}")));
            }
        }
    }

    /// Reports a phase outside the build.
    pub(super) fn phase(&self, text: &str) {
        match &self.sink {
            Sink::Live(bar) => bar.set_message(text.to_owned()),
            Sink::Plain => self.line(text),
            Sink::Json => self.json(&serde_json::json!({"event": "phase", "text": text})),
            Sink::Silent => {}
        }
    }

    /// Shows one event of a build.
    fn build_event(&mut self, event: &BuildEvent) {
        match &self.sink {
            Sink::Json => return self.json(event),
            Sink::Silent => return,
            Sink::Live(_) | Sink::Plain => {}
        }
        match event {
            BuildEvent::BuilderChosen { builder, reason } => self.say(&format!("building with {builder}: {reason}")),
            // The builder's own housekeeping is of no interest to anyone.
            BuildEvent::StepStarted { name, .. } | BuildEvent::StepDone { name, .. } if is_internal(name) => {}
            BuildEvent::StepStarted { step, index, total, name } => {
                let heading = heading(*index, *total, name);
                // BuildKit starts a step again, for instance when it needs the base's layers.
                if self.said.insert(*step) {
                    self.say(&heading);
                }
                self.steps.insert(*step, heading);
            }
            BuildEvent::StepDone { step, name, cached, duration } => {
                let heading = self.steps.remove(step).unwrap_or_else(|| heading(None, None, name));
                let how = if *cached { "cached".to_owned() } else { Elapsed(*duration).to_string() };
                // An existing base takes no time and is not worth a line.
                if *cached || *duration > NOTABLE {
                    self.say(&format!("{heading}  done ({how})"));
                }
            }
            BuildEvent::Log { step, line: text } => match &self.sink {
                Sink::Live(bar) => {
                    let heading = step.and_then(|step| self.steps.get(&step)).map_or("", String::as_str);
                    bar.set_message(format!("{heading}  {text}"));
                }
                _ => self.line(&format!("  | {text}")),
            },
            BuildEvent::Progress { item, current, total, done, .. } => {
                if let Sink::Live(bar) = &self.sink
                    && !done
                {
                    bar.set_message(format!("{item}  {}", share(*current, *total)));
                }
            }
            BuildEvent::Warning { message } => self.say(&format!("the builder warns: {message}")),
            BuildEvent::LeftBehind { object, reason } => self.say(&format!("left behind: {object} ({reason})")),
        }
    }

    /// Shows one event of a push.
    fn push_event(&self, event: &PushEvent) {
        match (&self.sink, event) {
            (Sink::Json, event) => self.json(event),
            (Sink::Live(bar), PushEvent::Progress { status, current_bytes, total_bytes }) => {
                bar.set_message(format!("{status}  {}", share(*current_bytes, *total_bytes)));
            }
            (Sink::Live(_) | Sink::Plain, PushEvent::Status { line }) => self.say(line),
            (Sink::Plain, PushEvent::Progress { .. }) | (Sink::Silent, _) => {}
        }
    }

    /// Shows one event of a pull.
    fn pull_event(&self, event: &PullEvent) {
        match (&self.sink, event) {
            (Sink::Json, event) => self.json(event),
            (Sink::Live(bar), PullEvent::Progress { current_bytes, total_bytes }) => {
                bar.set_message(format!("pulling  {}", share(*current_bytes, *total_bytes)));
            }
            (Sink::Live(_) | Sink::Plain, PullEvent::Status { line }) => self.say(line),
            (Sink::Plain, PullEvent::Progress { .. }) | (Sink::Silent, _) => {}
        }
    }

    fn say(&self, text: &str) {
        match &self.sink {
            Sink::Live(bar) => bar.set_message(text.to_owned()),
            Sink::Plain => self.line(text),
            Sink::Json | Sink::Silent => {}
        }
    }

    /// Reports why one of several builds ended, even if only errors are shown.
    pub(super) fn error(&self, message: &str, remedy: &[String]) {
        if let Sink::Json = self.sink {
            return self.json(&serde_json::json!({"event": "error", "message": message, "remedy": remedy}));
        }
        self.line(&format!("error: {message}"));
        remedy.iter().for_each(|line| self.line(&format!("  {line}")));
    }

    /// One line of text, prefixed with the recipe's name if there are several.
    fn line(&self, text: &str) {
        match &self.of {
            Some(name) => line(&format!("{name}: {text}")),
            None => line(text),
        }
    }

    /// One line of JSON, including the recipe's name if there are several.
    fn json(&self, value: &impl serde::Serialize) {
        let text = match &self.of {
            None => serde_json::to_string(value),
            Some(name) => serde_json::to_value(value).map(|mut value| {
                if let Some(map) = value.as_object_mut() {
                    map.insert("recipe".into(), name.as_str().into());
                }
                value.to_string()
            }),
        };
        if let Ok(text) = text {
            line(&text);
        }
    }

    /// Removes the live line.
    pub(super) fn finish(&self) {
        if let Sink::Live(bar) = &self.sink {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whether a step is internal: loading the context, looking up the base.
fn is_internal(name: &str) -> bool {
    name.starts_with("[internal]") || name == "copy /context /"
}

/// `[2/3] RUN set -eu; …`
fn heading(index: Option<u32>, total: Option<u32>, name: &str) -> String {
    // BuildKit's own name has the place in front: `[2/3] RUN …`.
    let place = |text: &str| text.starts_with('[') && text[1..].chars().all(|c| c.is_ascii_digit() || c == '/');
    let name = match name.split_once("] ") {
        Some((head, rest)) if index.is_some() && place(head) => rest,
        _ => name,
    };
    match (index, total) {
        (Some(index), Some(total)) => format!("[{index}/{total}] {}", shorten(name)),
        _ => shorten(name),
    }
}

fn share(current: u64, total: Option<u64>) -> String {
    match total {
        Some(total) if total > 0 => format!("{} of {}", Bytes(current), Bytes(total)),
        _ => Bytes(current).to_string(),
    }
}

/// Writes a line; a closed stderr is not worth an error.
fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_short_and_numbered_once() {
        let run = format!("RUN set -eu;     {}", "x".repeat(100));
        let shown = heading(Some(2), Some(3), &run);
        assert!(shown.starts_with("[2/3] RUN set -eu; xxx") && shown.ends_with('…'), "{shown}");
        assert_eq!(heading(Some(2), Some(3), "[2/3] COPY a b"), "[2/3] COPY a b");
        assert_eq!(heading(None, None, "exporting to image"), "exporting to image");
        assert_eq!(heading(Some(1), Some(2), "RUN a[1] b] c"), "[1/2] RUN a[1] b] c");
        assert!(is_internal("[internal] load metadata for docker.io/library/a") && !is_internal("[1/2] FROM a"));
    }

    #[test]
    fn the_live_template_is_valid() {
        assert!(ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}").is_ok());
    }
}
