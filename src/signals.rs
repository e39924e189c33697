//! The signals that tell a process to end.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Resolves when this process is told to end: INT (Ctrl-C), TERM as CI runners send it, or HUP when its terminal or SSH
/// connection goes away. A HUP that was ignored when the process started stays ignored, as `nohup` wants it.
///
/// # Errors
/// When the process cannot listen for signals.
pub async fn told_to_end() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    if is_hangup_ignored() {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    } else {
        let mut hangup = signal(SignalKind::hangup())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
    Ok(())
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
