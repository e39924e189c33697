//! Causes of RDMA connections that fail.

use super::{Cause, Fault, GidEntry, Limit, Log, RdmaDeviceHint, cause};
use crate::nccl_log::rank::RankEvidence;
use crate::versions::NcclVersion;

pub(super) fn memlock(log: &Log<'_>) -> Option<Cause> {
    let verbs = |line: &str| {
        ["ibv_reg_mr", "ibv_create_cq", "ibv_create_qp", "ibv_alloc_pd"].iter().any(|call| line.contains(call))
            && line.contains("failed")
    };
    let no_memory = |line: &str| {
        verbs(line)
            && (line.contains("Cannot allocate memory") || line.contains("error -12") || line.contains("errno 12"))
    };
    match log.hints.memlock {
        Limit::Bytes(bytes) => cause(
            "memlock-low",
            Fault::Launch,
            format!("the limit of locked memory is {bytes} B: RDMA memory cannot be registered"),
            "start the container with --ulimit memlock=-1 (and --cap-add IPC_LOCK); in Kubernetes LimitMEMLOCK=infinity of containerd",
            // Old versions name no error.
            log.lines(|line| no_memory(line) || (verbs(line) && !line.contains("error"))),
        ),
        limit => cause(
            "verbs-out-of-memory",
            Fault::Host,
            "the RDMA driver refuses memory",
            match limit {
                Limit::Unlimited => {
                    "the limit of locked memory is not the reason: look in the host's kernel log, and at the device's limits of queue pairs and memory regions (ibv_devinfo -v)"
                }
                _ => {
                    "check `ulimit -l` in the container (start it with --ulimit memlock=-1); if it is unlimited, look in the host's kernel log"
                }
            },
            log.lines(no_memory),
        ),
    }
}

/// `EINVAL` from `ibv_modify_qp` on eRDMA: the driver runs as iWARP, which NCCL cannot use.
pub(super) fn not_compat(log: &Log<'_>) -> Option<Cause> {
    let is_erdma = log.devices().iter().any(|device| device.is_erdma)
        || log.ranks().iter().any(|rank| rank.physical_devices().iter().any(|name| name.starts_with("erdma")));
    let erdma: Vec<&RdmaDeviceHint> =
        log.devices().iter().filter(|device| device.is_erdma || device.name.starts_with("erdma")).collect();
    let is_compat = !erdma.is_empty() && erdma.iter().all(|device| device.is_iwarp == Some(false));
    if !is_erdma || is_compat {
        return None;
    }
    let mut lines = log.lines(|line| line.contains("ibv_modify_qp failed") && line.contains("Invalid argument"));
    if !lines.is_empty() {
        let iwarp = erdma.iter().filter(|device| device.is_iwarp == Some(true));
        lines.extend(iwarp.map(|device| format!("{}: transport iWARP", device.name)));
    }
    cause(
        "erdma-driver-not-compat",
        Fault::Host,
        "the host's erdma driver is not in compatibility mode: its devices are iWARP, which NCCL cannot connect",
        "load it on the host with compat_mode=Y (rmmod erdma; modprobe erdma compat_mode=Y), or install it in OFED or compat mode; the image is fine, and no other GID index helps",
        lines,
    )
}

pub(super) fn namespace(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines(|line| line.contains("ibv_modify_qp failed") && line.contains("No such device"));
    cause(
        "netns-gid-mismatch",
        Fault::Launch,
        "the GID belongs to a network interface that is not in the container's network namespace",
        "run the container in the host's network (--network host, hostNetwork: true)",
        lines,
    )
}

/// Status 12 with vendor error 129 at once: the devices do not reach one another. A GID is the cause where it is seen.
pub(super) fn gid(log: &Log<'_>) -> Option<Cause> {
    let retries = |line: &str| {
        line.contains("Got completion")
            && (line.contains("status=12") || line.contains("(12)") || line.contains("error 12"))
            && (line.contains("vendor err 129") || line.contains("vendor_err=129"))
    };
    let lines = log.lines(retries);
    let on_infiniband = log
        .ranks()
        .iter()
        .flat_map(|rank| rank.ib_devices.iter().flatten())
        .any(|device| device.ports.iter().any(|port| port.link.starts_with("IB")));
    if lines.is_empty() || on_infiniband {
        return None;
    }
    let set = log.setting("NCCL_IB_GID_INDEX").and_then(|(_, value)| value.parse::<u32>().ok());
    // The default was index 0 to 2.20, and is found by NCCL since 2.21.
    let is_old = log
        .ranks()
        .iter()
        .filter_map(RankEvidence::decoded_version)
        .any(|version| version < NcclVersion::new(2, 21, 0));
    let index = set.or(is_old.then_some(0));
    let in_use: Vec<&str> = log.ranks().iter().flat_map(RankEvidence::physical_devices).collect();
    let table: Vec<&GidEntry> =
        log.hints.gids.iter().filter(|entry| in_use.is_empty() || in_use.contains(&entry.device.as_str())).collect();
    let chosen = table.iter().find(|entry| Some(entry.index) == index);
    let link_local = lines.iter().any(|line| line.contains("localGid fe80") || line.contains("localGid FE80"));
    let suspect = match chosen {
        Some(chosen) => !chosen.is_routable(),
        None => link_local || (index.is_some() && !table.is_empty()) || set.is_some(),
    };
    if !suspect {
        return None;
    }
    let better = table.iter().find(|entry| entry.is_routable());
    let remedy = match better {
        Some(better) => format!("set NCCL_IB_GID_INDEX={}: RoCE v2 with the IPv4 address ({}, {})", better.index, better.device, better.gid),
        None => "choose the GID index of RoCE v2 with the IPv4 address (rdmaprep devices), or leave it to NCCL 2.21+ (NCCL_IB_GID_INDEX=-1)".to_owned(),
    };
    let summary = match index {
        Some(index) => {
            format!("the devices do not reach one another: GID index {index} is not a routable RoCE v2 address")
        }
        None => "the devices do not reach one another: the GID in use is link-local".to_owned(),
    };
    cause("gid-unroutable", Fault::Job, summary, remedy, lines)
}
