//! Stand-ins for what reads a job: programs that record their arguments, Kubernetes' replacement of variables, and Python with
//! the vendors' models.

use crate::support::{root, say_skipped};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

mod common {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/nasty.rs"));
}

/// Arguments that every kind of quoting, or mpirun's own reading, may get wrong.
pub const NASTY: [&str; 24] = {
    let mut all = ["end "; 24];
    let (most, _) = all.split_at_mut(22);
    most.copy_from_slice(&common::NASTY);
    all[22] = ":";
    all
};

/// The words of a line that has no quotes.
pub fn words_of(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A program that records its arguments.
pub struct Fake {
    directory: TempDir,
}

impl Fake {
    pub fn new(name: &str) -> Fake {
        let directory = tempfile::tempdir().unwrap();
        // A form feed ends a call: no argument of a test has one. In one piece, as calls may be at the same time.
        let record = directory.path().join("record");
        let script = format!("#!/bin/sh\nprintf '%s\\0' '{name}' \"$@\" '\u{c}' >>{}\n", record.display());
        let program = directory.path().join(name);
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Fake { directory }
    }

    /// Has a shell run a text, and gives the arguments of each call, the program's name first.
    #[track_caller]
    pub fn run(&self, text: &str) -> Vec<Vec<String>> {
        let path = format!("{}:{}", self.directory.path().display(), std::env::var("PATH").unwrap());
        // Of a name of its own, so that what is not quoted has something to become.
        let output = Command::new("sh").args(["-c", text]).env("PATH", path).env("X", "REPLACED").output().unwrap();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let record = std::fs::read_to_string(self.directory.path().join("record")).unwrap();
        let calls = record.strip_suffix("\u{c}\0").unwrap().split("\u{c}\0");
        calls.map(|call| call.strip_suffix('\0').unwrap().split('\0').map(str::to_owned).collect()).collect()
    }
}

/// What Kubernetes makes of a text in a command or a variable (`third_party/forked/golang/expansion/expand.go`), with a mark for
/// every name that it replaces.
pub fn expand(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let closing = rest.find(')');
        if rest.starts_with("$$") {
            out.push('$');
            rest = &rest[2..];
        } else if let Some(end) = closing.filter(|_| rest.starts_with("$(")) {
            out.push_str("REPLACED");
            rest = &rest[end + 1..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// The interpreter of `tests/rig/job-models.sh`; `None`: it could not be fetched, and the test says that it was skipped.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let output = Command::new(root().join("tests/rig/job-models.sh")).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("tests/rig/job-models.sh: {error}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
        } else {
            let reason = stderr.lines().rev().find(|line| line.contains("ERROR")).or(stderr.lines().last());
            Err(format!("the models of jobs could not be fetched: {}", reason.unwrap_or("no reason was given")))
        }
    });
    match python {
        Ok(python) => Some(python),
        Err(reason) => {
            say_skipped(reason);
            None
        }
    }
}

/// Runs `tests/jobs/models.py`: its output, or what it says is wrong; `None`: the test says that it was skipped.
pub fn models(check: &str, text: &str) -> Option<Result<String, String>> {
    let mut child = Command::new(python()?)
        .arg(root().join("tests/jobs/models.py"))
        .arg(check)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}
