//! Causes between the ranks of a host, and of ranks that do not meet.

use super::{Cause, CauseId, Log, MAX_EVIDENCE, cause};
use crate::logs::nccl::rank::{Phase, RankEvidence, Transport};
use crate::nccl_settings::InterfaceFilter;

pub(super) fn shm(log: &Log<'_>) -> Option<Cause> {
    let segment = |line: &str| {
        line.contains("rror while creating shared memory segment")
            || line.contains("fallocate")
            || (line.contains("failed to extend") && line.contains("/dev/shm/"))
    };
    // Every version but 2.12 – 2.22 says so in the same line or the one before.
    let full = |line: &str| segment(line) && line.contains("No space left on device");
    let small = log.hints.shm_bytes.is_some_and(|bytes| bytes <= 64 << 20);
    let full_now =
        !log.lines(full).is_empty() || !log.lines(|line| segment(line) && line.contains("failed to extend")).is_empty();
    let lines = if full_now || small { log.lines(segment) } else { Vec::new() };
    CauseId::ShmTooSmall.found(lines)
}

/// NCCL found no interface, and was told to look for some only.
pub(super) fn interface_filter(log: &Log<'_>) -> Option<Cause> {
    let (rank, value) = log.setting("NCCL_SOCKET_IFNAME")?;
    let filter = InterfaceFilter::parse_sockets(value);
    let found = log.lines(|line| NO_INTERFACE.iter().any(|mark| line.contains(mark)));
    if found.is_empty() || filter.entries.is_empty() {
        return None;
    }
    let listed = log.ranks().iter().flat_map(|rank| rank.socket_interfaces.iter().chain(&rank.bootstrap));
    let mut names: Vec<&str> = listed.map(|interface| interface.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.iter().any(|name| filter.allows(name, None)) {
        return None;
    }
    let mut lines = vec![format!("{}: NCCL_SOCKET_IFNAME set by environment to {value}", rank.label())];
    lines.extend(found);
    let known = if names.is_empty() { String::new() } else { format!(": other ranks have {}", names.join(", ")) };
    cause(
        CauseId::IfnameFilterMatchesNothing,
        format!("NCCL_SOCKET_IFNAME={value} leaves no interface with an address{known}"),
        "set NCCL_SOCKET_IFNAME to an interface of the host's network (eth0), or unset it, and run the container in the host's network (--network host)",
        lines,
    )
}

/// What NCCL says where it has no interface to meet on.
pub(super) const NO_INTERFACE: &[&str] = &[
    "no socket interface found",
    "No socket interface found",
    "NET/Socket : no interface found",
    "No IP interface found",
    "No usable listening interface found",
    "no interface found matching",
];

/// A bridge or a container's own interface for the ranks to meet on, and they did not meet.
pub(super) fn interface(log: &Log<'_>) -> Option<Cause> {
    // Within a host the ranks reach each other over any of them.
    if log.hints.is_one_host {
        return None;
    }
    let is_virtual = |name: &str| {
        name == "lo"
            || ["br-", "veth", "docker", "virbr", "cni", "flannel", "cali", "lxc", "tunl", "podman"]
                .iter()
                .any(|start| name.starts_with(start))
    };
    let stuck = log.ranks().iter().filter(|rank| rank.phase <= Phase::Bootstrap);
    let chosen =
        stuck.filter_map(|rank| Some((rank, rank.bootstrap.as_ref()?))).filter(|(_, found)| is_virtual(&found.name));
    let lines: Vec<String> = chosen
        .clone()
        .map(|(rank, found)| format!("{}: Bootstrap: Using {}:{}", rank.label(), found.name, found.address))
        .take(MAX_EVIDENCE)
        .collect();
    let others = chosen.clone().flat_map(|(rank, _)| &rank.socket_interfaces);
    let other = others.map(|found| found.name.as_str()).find(|name| !is_virtual(name)).unwrap_or("eth0");
    let mut names: Vec<&str> = chosen.map(|(_, found)| found.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    cause(
        CauseId::BootstrapInterface,
        format!("the ranks are to meet over {}, which other hosts do not reach", names.join(", ")),
        format!("set NCCL_SOCKET_IFNAME to the interface of the hosts' common network, as NCCL_SOCKET_IFNAME=={other}"),
        lines,
    )
}

/// Everything connected over P2P, then nothing until the time was over.
pub(super) fn stalled(log: &Log<'_>) -> Option<Cause> {
    let hint = log.lines(|line| line.contains("HINT") && line.contains("ACS"));
    let over = !log.ranks().is_empty() && log.ranks().iter().all(|rank| rank.phase == Phase::AfterInit);
    let is_p2p =
        |rank: &RankEvidence| rank.channels.iter().any(|group| matches!(group.transport, Transport::P2p { .. }));
    let only_local = !log.uses_rdma() && log.ranks().iter().all(is_p2p);
    let mut lines = hint;
    if log.hints.timed_out && over && only_local {
        lines.push(format!(
            "all {} processes came past Init COMPLETE with P2P channels, then wrote nothing",
            log.ranks().len()
        ));
    }
    CauseId::P2pStalled.found(lines)
}
