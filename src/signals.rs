//! The signals that tell a process to end.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for the signals that tell this process to end: INT (Ctrl-C), TERM as CI runners send it, and HUP when its terminal or
/// SSH connection goes away. A HUP that was ignored when the process started stays ignored, as `nohup` wants it.
pub struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Starts to listen, within a runtime: from here on none of the signals ends the process by itself.
    ///
    /// # Errors
    /// When the process cannot listen for signals.
    pub fn listen() -> io::Result<EndSignals> {
        Ok(EndSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// Resolves when one of the signals arrives.
    pub async fn received(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

fn is_hangup_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// Reads the mask of ignored signals in `/proc/PID/status` (proc_pid_status(5)); HUP is signal 1, the lowest bit.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals() {
        assert!(ignores_hangup("Name:\tsh\nSigIgn:\t0000000000000001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001006\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hangup("Name:\tsh\n"));
    }
}
