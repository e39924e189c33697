//! Checks of what the devices need from the rest of the host: locked memory, peer memory, parameters of drivers.

use super::{HostSubject, Judged};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::devices::Maker;
use crate::units::Bytes;

pub(super) fn memlock(subject: &HostSubject<'_>) -> Judged {
    let Some(limits) = subject.facts.limits else {
        return Err(Outcome::unknown("/proc/self/limits was not captured"));
    };
    match limits.memlock_bytes {
        None => Ok(Outcome::pass("locked memory is unlimited")),
        Some(_) if limits.can_lock_memory => {
            Ok(Outcome::pass("CAP_IPC_LOCK: the limit of locked memory does not apply"))
        }
        Some(bytes) => Ok(Outcome::warn(format!(
            "{}: a process here may lock only {}; RDMA locks all of its buffers",
            CauseId::MemlockLow,
            Bytes(bytes)
        ))
        .remedy(
            "docker run --ulimit memlock=-1 --cap-add IPC_LOCK (in Kubernetes: LimitMEMLOCK=infinity of containerd); without a \
             container: memlock unlimited in /etc/security/limits.conf",
        )
        .blame(Fault::Host)),
    }
}

pub(super) fn peer_memory(subject: &HostSubject<'_>) -> Judged {
    let facts = subject.facts;
    if facts.gpus.is_empty() {
        return Ok(Outcome::skip("there is no GPU"));
    }
    if let Some(place) = facts.nvidia.peer_memory.first() {
        return Ok(Outcome::pass("the kernel can register GPU memory with RDMA devices").evidence([place.clone()]));
    }
    if facts.modules.is_empty() {
        return Err(Outcome::unknown("/sys/module was not captured"));
    }
    // Driver 0.2.37 of eRDMA registers no dma-buf (elastic-rdma-drivers, `erdma_gdr.c`); mlx5 does from Linux 5.12 on, with
    // NVIDIA's open module.
    let has_dma_buf = facts.nvidia.is_open_module == Some(true) && !subject.target.fabric.driver.starts_with("erdma");
    let rest = if has_dma_buf {
        "; dma-buf may do the same with this driver"
    } else {
        ": data would go through the host's memory"
    };
    Ok(Outcome::warn(format!("peer-memory-missing: nvidia_peermem is not loaded{rest}"))
        .remedy("on the host: modprobe nvidia_peermem (it is part of NVIDIA's driver, and for eRDMA needs OFED)")
        .blame(Fault::Host))
}

/// Congestion control of eRDMA by number (elastic-rdma-drivers, `kernel/src/erdma_hw.h`).
const CONGESTION_CONTROLS: [&str; 5] = ["NEWRENO", "CUBIC", "HPCC_RTT", "HPCC_ECN", "MPCC"];
/// The value that the vendor's installer sets in compat mode since 1.5.7 (Alibaba Cloud help, "eRDMA usage", read 2026-11).
const MPCC: usize = 4;

pub(super) fn parameters(subject: &HostSubject<'_>) -> Judged {
    let own = match subject.some_own() {
        Ok(own) => own,
        Err(skip) => return Ok(skip),
    };
    if own.iter().all(|device| device.maker != Maker::AlibabaErdma) {
        return Ok(Outcome::skip(format!("no parameter of {} is known to matter", subject.target.fabric.driver)));
    }
    let facts = subject.facts;
    let Some(value) = facts.parameter("erdma", "default_cc") else {
        return Err(Outcome::unknown("the parameters of the module erdma cannot be read"));
    };
    let lines = facts.modules.get("erdma").into_iter().flat_map(|module| &module.parameters);
    let lines: Vec<String> = lines.map(|(name, value)| format!("erdma {name}={value}")).collect();
    match value.parse::<i64>().ok().map(usize::try_from) {
        // Below zero: the device decides.
        Some(Err(_)) => Ok(Outcome::pass("default_cc is left to the device").evidence(lines)),
        Some(Ok(MPCC)) => {
            Ok(Outcome::pass("default_cc=4 (MPCC), as the vendor sets it for compat mode").evidence(lines))
        }
        Some(Ok(other)) => {
            let name = CONGESTION_CONTROLS.get(other).copied().unwrap_or("unknown");
            Ok(Outcome::warn(format!("default_cc={other} ({name}): the vendor sets 4 (MPCC) for compat mode"))
                .evidence(lines)
                .remedy("on the host: options erdma compat_mode=Y default_cc=4 in /etc/modprobe.d/erdma.conf, and reload the module")
                .blame(Fault::Host))
        }
        None => Err(Outcome::unknown(format!("default_cc={value} is not a number"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::Status::*;
    use crate::checks::host::testing::*;
    use crate::devices::load_captured;
    use crate::diagnosis::Fault::*;

    #[test]
    fn locked_memory() {
        expect(&found(&good(), "host-memlock"), Pass, None, &["unlimited"]);
        let tree = SysTree::erdma();
        tree.limits("65536");
        expect(&found(&load_captured(tree.root()), "host-memlock"), Warn, Some(Host), &["65.5 kB", "LimitMEMLOCK"]);
        tree.file("proc/self/status", "CapEff:\t0000000000004000\n");
        expect(&found(&load_captured(tree.root()), "host-memlock"), Pass, None, &["CAP_IPC_LOCK"]);
        tree.remove("proc/self");
        expect(&found(&load_captured(tree.root()), "host-memlock"), Unknown, None, &[]);
    }

    #[test]
    fn peer_memory() {
        expect(&found(&good(), "host-peer-memory"), Pass, None, &["/sys/module/nvidia_peermem"]);
        expect(
            &found_for(&load_captured(SysTree::mlx5().root()), "host-peer-memory", "cce"),
            Pass,
            None,
            &["memory_peers/nv_mem"],
        );
        let tree = SysTree::erdma();
        tree.remove("sys/module/nvidia_peermem");
        expect(&found(&load_captured(tree.root()), "host-peer-memory"), Warn, Some(Host), &["modprobe nvidia_peermem"]);
        let mut facts = load_captured(tree.root());
        facts.nvidia.is_open_module = Some(true);
        expect(&found_for(&facts, "host-peer-memory", "cce"), Warn, Some(Host), &["dma-buf"]);
        facts.modules.clear();
        expect(&found(&facts, "host-peer-memory"), Unknown, None, &[]);
        facts.gpus.clear();
        expect(&found(&facts, "host-peer-memory"), Skip, None, &[]);
    }

    #[test]
    fn parameters_of_erdma() {
        expect(&found(&good(), "host-parameters"), Pass, None, &["MPCC", "erdma compat_mode=Y"]);
        let tree = SysTree::erdma();
        let at = "sys/module/erdma/parameters/default_cc";
        for (value, status, blame, words) in [
            ("-1", Pass, None, "left to the device"),
            ("1", Warn, Some(Host), "default_cc=1 (CUBIC)"),
            ("9", Warn, Some(Host), "unknown"),
            ("x", Unknown, None, "not a number"),
        ] {
            tree.file(at, format!("{value}\n"));
            expect(&found(&load_captured(tree.root()), "host-parameters"), status, blame, &[words]);
        }
        tree.remove(at);
        expect(&found(&load_captured(tree.root()), "host-parameters"), Unknown, None, &[]);
        expect(&found_for(&load_captured(SysTree::mlx5().root()), "host-parameters", "cce"), Skip, None, &[]);
    }
}
