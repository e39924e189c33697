//! Why a step failed: from the step, its error and what is known of the device and the process.

use super::verbs::{Errno, WC_RETRY_EXC_ERR};
use crate::facts::devices::Gid;
use crate::facts::loopback::{Cause, Step, StepError, VerbsTransport};
use rustix::io::Errno as System;

/// What is known when a step fails.
#[derive(Debug, Clone)]
pub struct Situation {
    pub transport: VerbsTransport,
    /// `RLIMIT_MEMLOCK`; `None`: there is no limit, or it does not bind this process.
    pub memlock_bytes: Option<u64>,
    /// What the run registers.
    pub wanted_bytes: u64,
    /// The slots of the port's GID table that are in use.
    pub gids: Vec<Gid>,
    pub gid_index: u32,
    /// The GID is used: always on Ethernet.
    pub is_global: bool,
}

/// The cause, where it is known.
pub fn of(step: Step, error: &StepError, situation: &Situation) -> Option<Cause> {
    match error {
        StepError::Errno { code, .. } => of_errno(step, *code, situation),
        StepError::Completion { status, .. } if *status == WC_RETRY_EXC_ERR => Some(Cause::NoAnswer),
        _ => None,
    }
}

fn of_errno(step: Step, code: Errno, situation: &Situation) -> Option<Cause> {
    let is = |errno: System| errno.raw_os_error() == code;
    match step {
        Step::RegMr | Step::CreateCq | Step::CreateQp if is(System::NOMEM) || is(System::PERM) => {
            let limit_bytes = situation.memlock_bytes?;
            Some(Cause::MemlockLow { limit_bytes, wanted_bytes: situation.wanted_bytes })
        }
        Step::QueryGid | Step::ModifyToRtr | Step::ModifyToRts => {
            if situation.transport == VerbsTransport::Iwarp {
                return Some(Cause::IwarpMode);
            }
            // The kernel does not know the GID's interface, or may not use it from here.
            if step != Step::QueryGid && (is(System::NODEV) || is(System::NETUNREACH)) {
                return Some(Cause::NetworkNamespace);
            }
            let is_unresolved = is(System::TIMEDOUT) || is(System::HOSTUNREACH);
            unusable(situation).or_else(|| is_unresolved.then_some(Cause::AddressUnresolved))
        }
        _ => None,
    }
}

/// A slot that holds no GID.
pub fn unusable(situation: &Situation) -> Option<Cause> {
    if !situation.is_global || situation.gids.iter().any(|gid| gid.index == situation.gid_index) {
        return None;
    }
    let usable = situation.gids.iter().filter(|gid| gid.is_routable()).map(|gid| gid.index).collect();
    Some(Cause::GidUnusable { index: situation.gid_index, usable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::gid;
    use crate::loopback::verbs::errno_error;

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
        let unusable = |index| Some(Cause::GidUnusable { index, usable: vec![1] });
        let memlock = Some(Cause::MemlockLow { limit_bytes: 65536, wanted_bytes: 1 << 25 });
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
            (Step::ModifyToRts, System::INVAL, &iwarp, Some(Cause::IwarpMode)),
            (Step::ModifyToRtr, System::INVAL, &iwarp, Some(Cause::IwarpMode)),
            (Step::ModifyToRtr, System::NODEV, &normal, Some(Cause::NetworkNamespace)),
            (Step::ModifyToRtr, System::TIMEDOUT, &normal, Some(Cause::AddressUnresolved)),
            (Step::ModifyToInit, System::INVAL, &empty, None),
        ] {
            assert_eq!(of(step, &errno(error), situation), cause, "{step:?} {error:?}");
        }
        let completion = |status| StepError::Completion { status, text: String::new(), vendor_error: 0 };
        assert_eq!(of(Step::PollCq, &completion(WC_RETRY_EXC_ERR), &normal), Some(Cause::NoAnswer));
        assert_eq!(of(Step::PollCq, &completion(4), &normal), None);
        assert_eq!(of(Step::PollCq, &StepError::Timeout { after_ms: 1 }, &normal), None);
    }
}
