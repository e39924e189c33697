//! The agent's child processes: ranks, and probes that print one line.

use super::channel::{Meeting, RankMessage, RankPlan, receive, send};
use super::logs::RankFiles;
use super::part;
use crate::facts::run::{Failure, GpuProbe, VerbsProbe};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// This program, even if its file was moved or deleted.
const SELF: &str = "/proc/self/exe";

/// A part of the agent as a separate process, which ends with this one.
fn of_agent(part: &str) -> Command {
    let mut command = Command::new(SELF);
    command.args(["agent", part]).env(super::SUPERVISOR, std::process::id().to_string());
    command
}

/// An event for the supervisor.
#[derive(Debug)]
pub(super) enum Event {
    Said {
        rank: u32,
        message: RankMessage,
    },
    /// The rank's end of the socket is closed.
    Closed {
        rank: u32,
    },
    Gpus(GpuAnswer),
    Verbs(VerbsProbe),
    Interrupted,
}

/// The result of the libcuda probe.
#[derive(Debug)]
pub(super) struct GpuAnswer {
    pub probe: GpuProbe,
    /// The probe did not end in time.
    pub is_late: bool,
}

/// A rank's process.
pub(super) struct RankProcess {
    pub child: Child,
    socket: UnixStream,
    pub files: RankFiles,
}

impl RankProcess {
    /// Starts a rank; its messages arrive as events.
    pub(super) fn start(
        plan: &RankPlan,
        files: RankFiles,
        variables: &[(&str, String)],
        events: Sender<Event>,
    ) -> io::Result<RankProcess> {
        let (mut own, theirs) = UnixStream::pair()?;
        let output = File::create(&files.output)?;
        let mut command = of_agent(part::RANK);
        command.stdin(OwnedFd::from(theirs));
        command.stdout(output.try_clone()?).stderr(output).env("NCCL_DEBUG_FILE", &files.log);
        // NCCL's own default says too little to explain anything.
        if std::env::var_os("NCCL_DEBUG").is_none() {
            command.env("NCCL_DEBUG", "INFO");
        }
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = command.spawn()?;
        send(&mut own, plan)?;
        let mut reader = BufReader::new(own.try_clone()?);
        let rank = plan.rank;
        thread::spawn(move || {
            while let Ok(Some(message)) = receive(&mut reader) {
                if events.send(Event::Said { rank, message }).is_err() {
                    return;
                }
            }
            // The supervisor may be gone already.
            let _ = events.send(Event::Closed { rank });
        });
        Ok(RankProcess { child, socket: own, files })
    }

    /// Tells the rank where to meet the others. A rank that is gone is noticed by its end.
    pub(super) fn meet(&mut self, unique_id: &str) {
        let _ = send(&mut self.socket, &Meeting { unique_id: unique_id.to_owned() });
    }
}

/// The meaning of an unannounced exit. `out_of_memory`: the kernel has killed for memory since the start.
pub(super) fn explain_exit(status: ExitStatus, out_of_memory: bool, limit_bytes: Option<u64>) -> Failure {
    match (status.signal(), status.code()) {
        (Some(libc::SIGKILL), _) if out_of_memory => Failure::OutOfMemory { limit_bytes },
        (Some(signal), _) => Failure::Signal { signal, name: signal_name(signal) },
        (None, code) => Failure::Exit { code: code.unwrap_or(-1) },
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// Probes libcuda in a separate process.
pub(super) fn probe_gpus(limit: Duration) -> GpuAnswer {
    let (answer, _) = probe(part::GPUS, limit);
    let is_late = matches!(answer, Err(ProbeError::Late(_)));
    let probe = answer.unwrap_or_else(|error| GpuProbe {
        library: None,
        cuda_version_code: None,
        gpus: Vec::new(),
        peer_access: Vec::new(),
        failure: Some(error.into_failure()),
    });
    GpuAnswer { probe, is_late }
}

/// Probes libibverbs in a separate process.
pub(super) fn probe_verbs(limit: Duration) -> VerbsProbe {
    let (answer, stderr) = probe(part::VERBS, limit);
    let mut probe = answer.unwrap_or_else(|error| VerbsProbe {
        library: None,
        devices: Vec::new(),
        failure: Some(error.into_failure()),
        warnings: Vec::new(),
    });
    probe.warnings = stderr.lines().map(str::to_owned).collect();
    probe
}

/// Why a probe printed no line.
enum ProbeError {
    Failed(Failure),
    /// The probe that did not end in time, in words.
    Late(String),
}

impl ProbeError {
    fn other(detail: String) -> ProbeError {
        ProbeError::Failed(Failure::Other { detail })
    }

    fn into_failure(self) -> Failure {
        match self {
            ProbeError::Failed(failure) => failure,
            ProbeError::Late(detail) => Failure::Other { detail },
        }
    }
}

/// Runs a part of the agent that prints one line; returns that line and its stderr.
fn probe<T: DeserializeOwned>(part: &str, limit: Duration) -> (Result<T, ProbeError>, String) {
    let other = ProbeError::other;
    let mut command = of_agent(part);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (Err(other(format!("starting a process: {error}"))), String::new()),
    };
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let status = match wait(&mut child, limit) {
        Ok(Some(status)) => status,
        Ok(None) => {
            // It may be stuck in the kernel; then its pipes stay open too.
            let _ = child.kill();
            let detail = format!("the {part} probe did not end within {:.1} s", limit.as_secs_f64());
            return (Err(ProbeError::Late(detail)), String::new());
        }
        Err(error) => return (Err(other(format!("waiting for a process: {error}"))), String::new()),
    };
    let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    let said = serde_json::from_slice(&stdout).map_err(|_| match status.code() {
        Some(0) => {
            other(format!("the {part} probe printed {:?}, which cannot be read", String::from_utf8_lossy(&stdout)))
        }
        _ => ProbeError::Failed(explain_exit(status, false, None)),
    });
    (said, String::from_utf8_lossy(&stderr).into_owned())
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    /// More than any probe prints.
    const MOST: u64 = 1024 * 1024;
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // Output before an error is still used.
            let _ = pipe.take(MOST).read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits for a process; `None`: it is still running.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    const PAUSE: Duration = Duration::from_millis(2);
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let killed = ExitStatus::from_raw(libc::SIGKILL);
        let limit = Some(1 << 30);
        assert_eq!(explain_exit(killed, true, limit), Failure::OutOfMemory { limit_bytes: limit });
        assert_eq!(explain_exit(killed, false, limit), Failure::Signal { signal: 9, name: "SIGKILL".into() });
        let crashed = ExitStatus::from_raw(libc::SIGSEGV);
        assert_eq!(explain_exit(crashed, true, limit), Failure::Signal { signal: 11, name: "SIGSEGV".into() });
        assert_eq!(explain_exit(ExitStatus::from_raw(3 << 8), false, None), Failure::Exit { code: 3 });
    }
}
