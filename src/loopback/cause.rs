//! Why a step failed: from the step, its error, and what is known about the device and the process.

use crate::diagnosis::{Cause, CauseId};
use crate::facts::devices::Gid;
use crate::facts::loopback::{Step, StepError, VerbsTransport};
use crate::ffi::rdma::{Errno, WC_RETRY_EXC_ERR};
use rustix::io::Errno as System;

/// The facts known when a step fails.
#[derive(Debug, Clone)]
pub(super) struct Situation {
    pub transport: VerbsTransport,
    /// `RLIMIT_MEMLOCK`; `None`: unlimited, or it does not apply to this process.
    pub memlock_bytes: Option<u64>,
    /// Bytes that the run registers.
    pub wanted_bytes: u64,
    /// The slots of the port's GID table that are in use.
    pub gids: Vec<Gid>,
    pub gid_index: u32,
    /// The GID is used: always on Ethernet.
    pub is_global: bool,
}

/// The cause, if known.
pub(super) fn of(step: Step, error: &StepError, situation: &Situation) -> Option<Cause> {
    match error {
        StepError::Errno { code, .. } => of_errno(step, *code, situation),
        StepError::Completion { status, .. } if *status == WC_RETRY_EXC_ERR => {
            Some(CauseId::DeviceUnanswered.cause(Vec::new()))
        }
        _ => None,
    }
}

fn of_errno(step: Step, code: Errno, situation: &Situation) -> Option<Cause> {
    let is = |errno: System| errno.raw_os_error() == code;
    match step {
        Step::RegMr | Step::CreateCq | Step::CreateQp if is(System::NOMEM) || is(System::PERM) => {
            let limit_bytes = situation.memlock_bytes?;
            let wanted_bytes = situation.wanted_bytes;
            Some(
                CauseId::MemlockLow
                    .cause(Vec::new())
                    .summary(format!("memlock is limited to {limit_bytes} B, but {wanted_bytes} B must be registered")),
            )
        }
        Step::QueryGid | Step::ModifyToRtr | Step::ModifyToRts => {
            if situation.transport == VerbsTransport::Iwarp {
                return Some(
                    CauseId::ErdmaDriverNotCompat
                        .cause(Vec::new())
                        .summary("the device is in iWARP mode, not in compat mode"),
                );
            }
            // The kernel does not know the GID's interface, or may not use it from here.
            if step != Step::QueryGid && (is(System::NODEV) || is(System::NETUNREACH)) {
                return Some(
                    CauseId::NetnsGidMismatch
                        .cause(Vec::new())
                        .summary("the interface of the GID is not in this network namespace (use the host's network)"),
                );
            }
            let is_unresolved = is(System::TIMEDOUT) || is(System::HOSTUNREACH);
            unusable(situation).or_else(|| is_unresolved.then(|| CauseId::GidAddressUnresolved.cause(Vec::new())))
        }
        _ => None,
    }
}

/// A slot without a GID.
pub(super) fn unusable(situation: &Situation) -> Option<Cause> {
    if !situation.is_global || situation.gids.iter().any(|gid| gid.index == situation.gid_index) {
        return None;
    }
    let index = situation.gid_index;
    let routable = situation.gids.iter().filter(|gid| gid.is_routable());
    let usable: Vec<String> = routable.map(|gid| gid.index.to_string()).collect();
    let summary = match usable.is_empty() {
        true => format!("slot {index} of the GID table is empty, and none is RoCE v2 and routable"),
        false => format!("slot {index} of the GID table is empty; usable: {}", usable.join(", ")),
    };
    Some(CauseId::GidUnroutable.cause(Vec::new()).summary(summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::gid;
    use crate::ffi::rdma::errno_error;

    fn situation() -> Situation {
        let slot = |(index, text)| gid::gid(index, text, Some("RoCE v2".to_owned()), None);
        Situation {
            transport: VerbsTransport::Infiniband,
            memlock_bytes: None,
            wanted_bytes: 1 << 25,
            gids: (0..).zip(["fe80::1", "::ffff:10.9.0.1", "::"]).filter_map(slot).collect(),
            gid_index: 1,
            is_global: true,
        }
    }

    #[test]
    fn causes_are_named_only_where_they_are_known() {
        let errno = |errno: System| errno_error(errno.raw_os_error());
        let normal = situation();
        let limited = Situation { memlock_bytes: Some(65536), ..situation() };
        let empty = Situation { gid_index: 2, ..situation() };
        let beyond = Situation { gid_index: 9, ..situation() };
        let iwarp = Situation { transport: VerbsTransport::Iwarp, ..empty.clone() };
        let by_lid = Situation { is_global: false, ..empty.clone() };
        let unusable =
            |index| Some((CauseId::GidUnroutable, format!("slot {index} of the GID table is empty; usable: 1")));
        let memlock =
            Some((CauseId::MemlockLow, "memlock is limited to 65536 B, but 33554432 B must be registered".to_owned()));
        let told = |id: CauseId, summary: &str| Some((id, summary.to_owned()));
        let iwarp_mode = told(CauseId::ErdmaDriverNotCompat, "the device is in iWARP mode, not in compat mode");
        let namespace = told(
            CauseId::NetnsGidMismatch,
            "the interface of the GID is not in this network namespace (use the host's network)",
        );
        let unresolved = told(CauseId::GidAddressUnresolved, CauseId::GidAddressUnresolved.info().title);
        let of = |step, error: &StepError, situation| of(step, error, situation).map(|cause| (cause.id, cause.summary));
        for (step, error, situation, cause) in [
            (Step::RegMr, System::NOMEM, &limited, memlock.clone()),
            (Step::CreateQp, System::NOMEM, &limited, memlock),
            (Step::RegMr, System::NOMEM, &normal, None),
            (Step::RegMr, System::INVAL, &limited, None),
            (Step::AllocPd, System::NOMEM, &limited, None),
            (Step::ModifyToRtr, System::INVAL, &empty, unusable(2)),
            (Step::ModifyToRtr, System::NODATA, &beyond, unusable(9)),
            (Step::QueryGid, System::INVAL, &beyond, unusable(9)),
            (Step::ModifyToRtr, System::INVAL, &normal, None),
            (Step::ModifyToRtr, System::INVAL, &by_lid, None),
            (Step::ModifyToRts, System::INVAL, &iwarp, iwarp_mode.clone()),
            (Step::ModifyToRtr, System::INVAL, &iwarp, iwarp_mode.clone()),
            (Step::ModifyToRtr, System::NODEV, &normal, namespace),
            (Step::ModifyToRtr, System::TIMEDOUT, &normal, unresolved),
            (Step::ModifyToInit, System::INVAL, &empty, None),
        ] {
            assert_eq!(of(step, &errno(error), situation), cause, "{step:?} {error:?}");
        }
        let completion = |status| StepError::Completion { status, text: String::new(), vendor_error: 0 };
        assert_eq!(
            of(Step::PollCq, &completion(WC_RETRY_EXC_ERR), &normal),
            told(CauseId::DeviceUnanswered, CauseId::DeviceUnanswered.info().title)
        );
        assert_eq!(of(Step::PollCq, &completion(4), &normal), None);
        assert_eq!(of(Step::PollCq, &StepError::Timeout { after_ms: 1 }, &normal), None);
    }
}
