//! Causes of RDMA connections that fail.

use super::{Cause, CauseId, GidEntry, Limit, Log, MAX_EVIDENCE, RdmaDeviceHint, cause};
use crate::logs::nccl::rank::RankEvidence;
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
            CauseId::MemlockLow,
            format!("the limit of locked memory is {bytes} B: RDMA memory cannot be registered"),
            "start the container with --ulimit memlock=-1 (and --cap-add IPC_LOCK); in Kubernetes LimitMEMLOCK=infinity of containerd",
            // Old versions name no error.
            log.lines(|line| no_memory(line) || (verbs(line) && !line.contains("error"))),
        ),
        limit => cause(
            CauseId::VerbsOutOfMemory,
            "the RDMA driver refuses memory",
            match limit {
                Limit::Unlimited => {
                    "the limit of locked memory is not the reason: look in the host's kernel log, and at the device's limits of queue pairs and memory regions (ibv_devinfo -v)"
                }
                _ => {
                    "check `ulimit -l` in the container (start it with --ulimit memlock=-1); if it is unlimited, check the host's kernel log"
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
    if !lines.is_empty() || !log.hints.devices_from.is_empty() {
        let iwarp = erdma.iter().filter(|device| device.is_iwarp == Some(true)).take(MAX_EVIDENCE);
        lines.extend(iwarp.map(|device| log.device_line(&device.name, "transport iWARP")));
    }
    CauseId::ErdmaDriverNotCompat.found(lines)
}

pub(super) fn namespace(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines(|line| line.contains("ibv_modify_qp failed") && line.contains("No such device"));
    CauseId::NetnsGidMismatch.found(lines)
}

/// Completions with status 12, `IBV_WC_RETRY_EXC_ERR`: the other device does not answer.
///
/// `with error 12, opcode …` (to 2.17 or so), `with status=12 opcode=…`, `status=IBV_WC_RETRY_EXC_ERR(12)` (2.27+).
fn unanswered(log: &Log<'_>) -> Vec<String> {
    let is_twelve =
        |rest: &str| rest.strip_prefix("12").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    log.lines(|line| {
        line.contains("Got completion")
            && ["status=", "with error ", "IBV_WC_RETRY_EXC_ERR("]
                .iter()
                .any(|mark| line.split_once(mark).is_some_and(|(_, rest)| is_twelve(rest)))
    })
}

/// Some port is of InfiniBand, and no device of eRDMA.
fn is_on_infiniband(log: &Log<'_>) -> bool {
    let ports =
        || log.ranks().iter().flat_map(|rank| rank.ib_devices.iter().flatten()).flat_map(|device| &device.ports);
    let is_erdma =
        log.devices().iter().any(|device| device.is_erdma) || ports().any(|port| port.device.contains("erdma"));
    !is_erdma && ports().any(|port| port.link.starts_with("IB"))
}

/// InfiniBand ports that do not reach each other: with partitions, the key at the index in use may be of another one.
pub(super) fn partition(log: &Log<'_>) -> Option<Cause> {
    let mut lines = unanswered(log);
    if lines.is_empty() || !is_on_infiniband(log) {
        return None;
    }
    let index = log.setting("NCCL_IB_PKEY").and_then(|(_, value)| value.parse::<u32>().ok()).unwrap_or(0);
    let is_full = |key: u16| key & 0x8000 != 0 && key != 0x8000;
    let keys = &log.hints.partition_keys;
    let in_use = keys.iter().find(|entry| entry.index == index);
    let better = keys.iter().find(|entry| entry.index != index && is_full(entry.key));
    if let (Some(entry), Some(better)) = (in_use, better)
        && entry.key != 0xffff
    {
        lines.push(format!(
            "{}: P_Key {:#06x} at index {index}, {:#06x} at index {}",
            entry.device, entry.key, better.key, better.index
        ));
        return cause(
            CauseId::PartitionKey,
            format!(
                "the InfiniBand ports do not reach each other: P_Key index {index} is not that of a full member of the default partition"
            ),
            format!("set NCCL_IB_PKEY={}, the index of P_Key {:#06x}", better.index, better.key),
            lines,
        );
    }
    CauseId::InfinibandUnreachable.found(lines)
}

/// RoCE devices that do not reach each other. A GID is the cause where one is seen that cannot be routed.
pub(super) fn gid(log: &Log<'_>) -> Option<Cause> {
    let lines = unanswered(log);
    if lines.is_empty() || is_on_infiniband(log) {
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
    let is_link_local = lines.iter().any(|line| line.to_ascii_lowercase().contains("localgid fe80"));
    let suspect = match chosen {
        Some(chosen) => !chosen.is_routable(),
        // The table does not have the index, or the log itself shows what was taken.
        None => is_link_local || (index.is_some() && !table.is_empty()),
    };
    if !suspect {
        return None;
    }
    let better = table.iter().find(|entry| entry.is_ipv4()).or(table.iter().find(|entry| entry.is_routable()));
    let remedy = match better {
        Some(better) => format!("set NCCL_IB_GID_INDEX={}: RoCE v2 with an address that can be routed ({}, {})", better.index, better.device, better.gid),
        None => "choose the GID index of RoCE v2 with the IPv4 address (rdmaprep devices), or leave it to NCCL 2.21+ (NCCL_IB_GID_INDEX=-1)".to_owned(),
    };
    let summary = match index {
        Some(index) => {
            format!("the devices do not reach each other: GID index {index} is not a routable RoCE v2 address")
        }
        None => "the devices do not reach each other: the GID in use is link-local".to_owned(),
    };
    cause(CauseId::GidUnroutable, summary, remedy, lines)
}
