//! Checks of what the container may use: locked memory, shared memory.

use super::{Judged, RunSubject, say_line};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::run::Failure;
use crate::units::Bytes;

/// Docker's default size of `/dev/shm` (docs.docker.com, `docker run --shm-size`).
const DOCKER_SHM_BYTES: u64 = 64 << 20;
/// What NCCL says when memory cannot be registered, or a queue cannot be made (NVIDIA/nccl `src/misc/ibvwrap.cc`).
const NO_MEMORY: [&str; 5] = [
    "ibv_reg_mr failed with error Cannot allocate memory",
    "ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    "ibv_create_cq failed",
    "ibv_create_qp failed",
    "ibv_reg_mr_iova2 failed with error Out of memory",
];
/// SIGBUS: the way in which a process learns that `/dev/shm` was full when it touched a page of it.
const SIGBUS: i32 = 7;

pub(super) fn memlock(subject: &RunSubject<'_>) -> Judged {
    let environment = subject.environment()?;
    let line = subject.warned(&NO_MEMORY);
    let cause = subject.cause(&[CauseId::MemlockLow]);
    let lines: Vec<String> =
        line.map(say_line).into_iter().chain(cause.iter().flat_map(|c| c.evidence.clone())).collect();
    let has_failed = !lines.is_empty();
    match environment.memlock_bytes {
        // Other limits of the device and of the kernel end in the same error.
        None if has_failed => {
            Ok(Outcome::pass("locked memory is unlimited; the refusal has another cause").evidence(lines))
        }
        None => Ok(Outcome::pass("locked memory is unlimited")),
        Some(_) if environment.can_lock_memory && !has_failed => {
            Ok(Outcome::pass("CAP_IPC_LOCK: the limit of locked memory does not apply"))
        }
        Some(bytes) => {
            let refused = subject.run.launch.given_up.iter().filter(|text| text.contains("memlock")).cloned();
            let outcome = if has_failed {
                Outcome::fail(format!("only {} may be locked, and NCCL was refused memory", Bytes(bytes)))
            } else {
                Outcome::warn(format!("only {} may be locked; RDMA locks all of its buffers", Bytes(bytes)))
            };
            Ok(outcome.named(CauseId::MemlockLow).evidence(lines.into_iter().chain(refused)).remedy(
                "docker run --ulimit memlock=-1 --cap-add IPC_LOCK (in Kubernetes: LimitMEMLOCK=infinity of containerd)",
            ))
        }
    }
}

pub(super) fn shm_size(subject: &RunSubject<'_>) -> Judged {
    let environment = subject.environment()?;
    let remedy = "docker run --ipc host, or --shm-size 8g (in Kubernetes: an emptyDir of medium Memory on /dev/shm)";
    let has = match environment.shm {
        Some(shm) => format!("/dev/shm has {}, of which {} are free", Bytes(shm.size_bytes), Bytes(shm.free_bytes)),
        None => "there is no /dev/shm".to_owned(),
    };
    let is_small = environment.shm.is_none_or(|shm| shm.size_bytes <= DOCKER_SHM_BYTES);
    let cause = subject.cause(&[CauseId::ShmTooSmall]);
    let line = subject.warned(&["Error while creating shared memory segment", "posix_fallocate failed"]);
    let is_full = line.is_some_and(|line| line.line.contains("No space left") || is_small);
    let bus_error = |failure: &Failure| matches!(failure, Failure::Signal { signal: SIGBUS, .. });
    let died = is_small && subject.run.failures.iter().any(|failed| bus_error(&failed.failure));
    if cause.is_some() || is_full || died {
        let lines = line.map(say_line).into_iter().chain(cause.iter().flat_map(|cause| cause.evidence.clone()));
        return Ok(Outcome::fail(format!("{has}, and NCCL needs more"))
            .named(CauseId::ShmTooSmall)
            .evidence(lines)
            .remedy(remedy));
    }
    Ok(if is_small {
        Outcome::warn(format!("{has}: NCCL's shared memory and data loaders need more"))
            .remedy(remedy)
            .blame(Fault::Launch)
    } else {
        Outcome::pass(has)
    })
}

#[cfg(test)]
mod tests {
    use crate::checks::Status::*;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;
    use crate::facts::run::*;

    #[test]
    fn locked_memory() {
        let mut run = good_run();
        expect(&found(&run, "memlock"), Pass, None, &["unlimited"]);
        run.environment.as_mut().unwrap().memlock_bytes = Some(65536);
        expect(&found(&run, "memlock"), Pass, None, &["CAP_IPC_LOCK"]);
        run.environment.as_mut().unwrap().can_lock_memory = false;
        run.launch.given_up = vec!["ulimit memlock: not permitted".into()];
        expect(&found(&run, "memlock"), Warn, Some(Launch), &["65.5 kB", "ulimit memlock: not permitted"]);
        run.environment = None;
        expect(&found(&run, "memlock"), Unknown, None, &[]);
    }

    #[test]
    fn shared_memory() {
        let mut run = good_run();
        expect(&found(&run, "shm-size"), Pass, None, &["540.0 GB"]);
        run.environment.as_mut().unwrap().shm = Some(FileSystem { size_bytes: 64 << 20, free_bytes: 64 << 20 });
        expect(&found(&run, "shm-size"), Warn, Some(Launch), &["--ipc host"]);
        let failure = Failure::Signal { signal: 7, name: "SIGBUS".into() };
        run.failures.push(RankFailure { rank: 0, phase: Phase::Connect, failure });
        expect(&found(&run, "shm-size"), Fail, Some(Launch), &["shm-too-small"]);
        run.environment.as_mut().unwrap().shm = None;
        run.failures.clear();
        expect(&found(&run, "shm-size"), Warn, Some(Launch), &["no /dev/shm"]);
        run.environment = None;
        expect(&found(&run, "shm-size"), Unknown, None, &[]);
    }
}
