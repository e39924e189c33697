//! A host's devices, for people: a paragraph per RDMA device, the GPUs with their distances, then the host's drivers.

use super::text::{Style, write_findings, write_policy, write_subject, write_verdict};
use super::{Report, visible};
use crate::facts::devices::*;
use crate::units::Bytes;
use std::io::{self, Write};

/// Counters shown if they are not zero, besides traffic: packets dropped or sent again, and errors
/// (elastic-rdma-drivers `kernel/src/erdma_stats.c`; Linux `drivers/infiniband/hw/mlx5/counters.c`; InfiniBand specification,
/// PortCounters).
const TROUBLE: [&str; 16] = [
    "_drop_cnt",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_constraint_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "excessive_buffer_overrun_errors",
];

/// Writes the result of `devices`. `only` names the devices to show; empty: all, and the rest of the host.
pub fn write_devices(out: &mut dyn Write, facts: &DeviceFacts, only: &[String], style: Style) -> io::Result<()> {
    let shown = |device: &&Hca| only.is_empty() || only.contains(&device.name);
    for device in facts.rdma_devices.iter().filter(shown) {
        write_device(out, device, facts.is_live, style)?;
    }
    if !only.is_empty() {
        return Ok(());
    }
    if facts.rdma_devices.is_empty() {
        writeln!(out, "no RDMA device")?;
    }
    for device in &facts.idle_devices {
        let driver = device.driver.as_deref().map_or("no driver".to_owned(), |name| format!("driver {name}"));
        let ids = format!("{}:{}", device.vendor_id, device.device_id);
        writeln!(out, "PCI {} {ids}, {driver}: it has no RDMA device", visible(&device.pci_address))?;
    }
    write_gpus(out, facts, style)?;
    write_host(out, facts, style)
}

/// Writes the result of `devices --check`. `all` also shows what passed.
pub fn write_host_check(out: &mut dyn Write, report: &Report, all: bool, style: Style) -> io::Result<()> {
    write_subject(out, report)?;
    write_findings(out, report, all, style)?;
    if let Some(policy) = &report.policy {
        write_policy(out, policy, style)?;
    }
    write_verdict(out, report, style, "")
}

/// One line, with its name before it.
fn row(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {name:<13} {}", visible(value))
}

fn write_device(out: &mut dyn Write, device: &Hca, is_live: bool, style: Style) -> io::Result<()> {
    let mut about = vec![device.maker.title().to_owned()];
    if let (Some(vendor), Some(id)) = (&device.vendor_id, &device.device_id) {
        about.push(format!("{vendor}:{id}"));
    }
    about.extend(device.hca_type.clone());
    about.extend(device.pci_address.as_ref().map(|address| format!("PCI {address}")));
    about.extend(device.numa_node.map(|node| format!("NUMA {node}")));
    writeln!(out, "{}  {}", style.bold(&visible(&device.name)), visible(&about.join(", ")))?;
    row(out, "transport", &say_transport(device))?;
    let version = device.driver_version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    row(out, "driver", &device.driver.as_ref().map_or("none".to_owned(), |driver| format!("{driver}{version}")))?;
    let board = device.board_id.as_ref().map(|board| format!(", board {board}")).unwrap_or_default();
    row(out, "firmware", &format!("{}{board}", device.firmware.as_deref().unwrap_or("unknown")))?;
    let image = device.system_image_guid.as_ref().filter(|image| Some(*image) != device.node_guid.as_ref());
    let image = image.map(|guid| format!(", system image {guid}")).unwrap_or_default();
    row(out, "node GUID", &format!("{}{image}", device.node_guid.as_deref().unwrap_or("unknown")))?;
    row(out, "uverbs", &device.uverbs.as_ref().map_or("none: is ib_uverbs loaded?".to_owned(), say_node))?;
    for port in &device.ports {
        write_port(out, device, port, is_live)?;
    }
    writeln!(out)
}

/// `eRDMA (0), compat_mode=Y, node type CA`: ibv_devinfo's word and number (rdma-core; the vendor's build says eRDMA).
fn say_transport(device: &Hca) -> String {
    let is_erdma = device.maker == Maker::AlibabaErdma;
    let word = match device.transport {
        Some(Transport::Infiniband) if is_erdma => "eRDMA (0)",
        Some(Transport::Iwarp) if is_erdma => "eRDMA (1): iWARP, which NCCL cannot use",
        Some(Transport::Infiniband) => "InfiniBand (0)",
        Some(Transport::Iwarp) => "iWARP (1)",
        Some(Transport::Unspecified) => "unspecified (4)",
        None => "unknown",
    };
    let mode = match device.compat_mode {
        Some(true) => ", compat_mode=Y",
        Some(false) => ", compat_mode=N",
        None if is_erdma => ", compat_mode unknown",
        None => "",
    };
    let node = device.node_type.as_ref().map(|word| format!(", node type {word}")).unwrap_or_default();
    format!("{word}{mode}{node}")
}

fn say_node(node: &Node) -> String {
    let how = match node.access {
        Access::Opened => "can be opened".to_owned(),
        Access::Refused => format!("cannot be opened: {}", node.error.as_deref().unwrap_or("unknown reason")),
        Access::Absent => "does not exist".to_owned(),
        Access::NotTried => "exists (not opened in a captured tree)".to_owned(),
        Access::NotCaptured => "/dev was not captured".to_owned(),
    };
    format!("{}: {how}", node.path)
}

fn write_port(out: &mut dyn Write, device: &Hca, port: &HcaPort, is_live: bool) -> io::Result<()> {
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let name = format!("port {}", port.port);
    let physical = port.physical_state.as_ref().map(|state| format!(" ({state})")).unwrap_or_default();
    let guid = port.port_guid.as_ref().filter(|guid| Some(*guid) != device.node_guid.as_ref());
    let guid = guid.map(|guid| format!(", port GUID {guid}")).unwrap_or_default();
    row(out, &name, &format!("{}{physical}, {}{guid}", or(&port.state), or(&port.link_layer)))?;
    let fixed = if port.is_rate_fixed { ": fixed in the driver, not the instance's bandwidth" } else { "" };
    row(out, "  rate", &format!("{}{fixed}", or(&port.rate)))?;
    if port.is_infiniband() {
        let lids = [("LID", &port.lid), ("subnet manager", &port.subnet_manager_lid)];
        let lids: Vec<String> = lids.iter().map(|(name, lid)| format!("{name} {}", or(lid))).collect();
        row(out, "  lids", &lids.join(", "))?;
    }
    let netdev = port.netdev.as_ref();
    row(out, "  interface", &netdev.map_or("none was found".to_owned(), |netdev| say_netdev(netdev, is_live)))?;
    if let (Some(active), Some(netdev)) = (port.derived_active_mtu_bytes, netdev) {
        let own = netdev.mtu_bytes.unwrap_or_default();
        row(out, "  active MTU", &format!("{active} (derived from {} of {own})", netdev.name))?;
    }
    row(out, "  GIDs", &format!("{} of {} slots in use", port.gids.len(), port.gid_table_length))?;
    for gid in &port.gids {
        let taken = device.transport != Some(Transport::Iwarp)
            && port.nccl_gid.as_ref().is_some_and(|nccl| nccl.index == gid.index);
        writeln!(out, "{}", visible(&format!("    {}", say_gid(gid, taken))))?;
    }
    row(out, "  NCCL", &say_nccl(device, port))?;
    if port.is_infiniband() {
        let keys: Vec<String> = port.pkeys.iter().map(|(index, key)| format!("{index}: {key}")).collect();
        row(out, "  partitions", &if keys.is_empty() { "none".to_owned() } else { keys.join(", ") })?;
    }
    row(out, "  traffic", &port.traffic.as_ref().map_or("no byte counter".to_owned(), say_traffic))?;
    let trouble = port.counters.iter().filter(|(name, value)| **value > 0 && TROUBLE.iter().any(|t| name.ends_with(t)));
    let trouble: Vec<String> = trouble.map(|(name, value)| format!("{name} {value}")).collect();
    if !trouble.is_empty() {
        row(out, "  trouble", &trouble.join(", "))?;
    }
    Ok(())
}

fn say_netdev(netdev: &Netdev, is_live: bool) -> String {
    let mut parts = vec![netdev.name.clone()];
    parts.extend(netdev.state.clone());
    parts.extend(netdev.mtu_bytes.map(|mtu| format!("MTU {mtu}")));
    parts.extend(netdev.speed_mbit_per_s.map(|speed| format!("{speed} Mbit/s")));
    // Sysfs has no addresses except those in a GID table.
    let none = if is_live { "no address" } else { "no address in the GID table" };
    parts.push(if netdev.addresses.is_empty() { none.to_owned() } else { netdev.addresses.join(" ") });
    parts.extend(netdev.mac.clone());
    parts.push(
        match netdev.found_by {
            FoundBy::GidTable => "by the GID table",
            FoundBy::Parent => "by the device's parent",
            FoundBy::PciDevice => "on the same PCI device",
            FoundBy::NodeGuid => "by the MAC in the node GUID",
        }
        .to_owned(),
    );
    parts.join(", ")
}

/// The GID table like show_gids, and the slot that NCCL uses.
fn say_gid(gid: &Gid, is_taken: bool) -> String {
    let kind = gid.kind.as_deref().unwrap_or("?");
    let ipv4 = gid.ipv4.map(|address| address.to_string()).unwrap_or_default();
    let netdev = gid.netdev.as_deref().unwrap_or("");
    let taken = if is_taken { "  <- NCCL" } else { "" };
    format!("{:>3}  {:<39}  {ipv4:<15}  {kind:<10}  {netdev}{taken}", gid.index, gid.gid).trim_end().to_owned()
}

/// PAI sets this index in every job (Alibaba Cloud help, PAI, "Use eRDMA for distributed training").
const PAI_INDEX: u32 = 1;

fn say_nccl(device: &Hca, port: &HcaPort) -> String {
    let Some(nccl) = &port.nccl_gid else { return "no GID to take".to_owned() };
    if port.is_infiniband() {
        return format!("takes index {} ({})", nccl.index, nccl.reason);
    }
    if device.transport == Some(Transport::Iwarp) {
        return "no index works: the device is in iWARP mode".to_owned();
    }
    let usable = if nccl.is_usable { "" } else { ", which hosts on different networks cannot use" };
    // 2.20 and older start with 0 (NVIDIA/nccl v2.20.5, `src/transport/net_ib.cc`).
    let mut text = format!("takes index {} ({}{usable}) from 2.21 on, 0 before", nccl.index, nccl.reason);
    if device.maker == Maker::AlibabaErdma {
        let slot = port.gid(PAI_INDEX);
        let right = if slot.is_some_and(Gid::is_routable) { "right" } else { "wrong" };
        text.push_str(&format!("; PAI sets {PAI_INDEX}, here {}: {right}", Gid::describe(slot)));
    }
    text
}

fn say_traffic(traffic: &TrafficFacts) -> String {
    let packets = |packets: Option<u64>| packets.map(|n| format!(" in {n} packets")).unwrap_or_default();
    format!(
        "received {}{}, sent {}{} ({})",
        Bytes(traffic.received_bytes),
        packets(traffic.received_packets),
        Bytes(traffic.sent_bytes),
        packets(traffic.sent_packets),
        traffic.source
    )
}

fn write_gpus(out: &mut dyn Write, facts: &DeviceFacts, style: Style) -> io::Result<()> {
    if facts.gpus.is_empty() {
        return Ok(());
    }
    let nics: Vec<&str> = facts.rdma_devices.iter().map(|device| device.name.as_str()).collect();
    let nics: Vec<&str> =
        nics.into_iter().filter(|name| facts.gpus.iter().any(|gpu| gpu.distances.contains_key(*name))).collect();
    let width = |name: &str| name.chars().count().max(4);
    let heads: Vec<String> = nics.iter().map(|name| format!("{name:<0$}", width(name))).collect();
    let head = format!("{:<32}{}", "GPUs", heads.join("  "));
    writeln!(out, "{}", style.bold(&visible(head.trim_end())))?;
    for gpu in &facts.gpus {
        let number = gpu.minor.map_or("-".to_owned(), |minor| minor.to_string());
        let numa = gpu.numa_node.map_or(String::new(), |node| format!("NUMA {node}"));
        let cells: Vec<String> = nics
            .iter()
            .map(|name| {
                format!("{:<1$}", gpu.distances.get(*name).map_or("-", |distance| distance.name()), width(name))
            })
            .collect();
        let model = gpu.model.as_deref().unwrap_or("unknown model");
        let line = format!("  {number:>2}  {}  {numa:<12}{}", gpu.pci_address, cells.join("  "));
        writeln!(out, "{}  {}", visible(&line), visible(model))?;
    }
    if !nics.is_empty() {
        writeln!(
            out,
            "  PIX: one PCI bridge; PXB: several; PHB: host bridge; NODE: host bridges of a NUMA node; SYS: NUMA nodes"
        )?;
    }
    writeln!(out)
}

fn write_host(out: &mut dyn Write, facts: &DeviceFacts, style: Style) -> io::Result<()> {
    let name = match (facts.is_live, &facts.hostname) {
        (true, Some(name)) => name.clone(),
        (false, Some(name)) => format!("{name} ({})", facts.root),
        (_, None) => facts.root.clone(),
    };
    writeln!(out, "{}", style.bold(&visible(&name)))?;
    row(out, "kernel", facts.kernel.as_deref().unwrap_or("unknown"))?;
    let ofed = facts.ofed.as_ref().map(|ofed| format!("{} ({})", ofed.version, ofed.source));
    row(out, "OFED", ofed.as_deref().unwrap_or("none"))?;
    let nvidia = &facts.nvidia;
    if let Some(version) = &nvidia.driver_version {
        let open = if nvidia.is_open_module == Some(true) { " (open module)" } else { "" };
        let cuda = nvidia.cuda_version.as_ref().map(|version| format!(", CUDA {version}")).unwrap_or_default();
        row(out, "GPU driver", &format!("{version}{open}{cuda}"))?;
    }
    if !facts.gpus.is_empty() {
        let peer =
            nvidia.peer_memory.first().map_or("none: GPUDirect RDMA needs nvidia_peermem, or dma-buf", String::as_str);
        row(out, "peer memory", peer)?;
    }
    if let Some(limits) = facts.limits {
        let limit = limits.memlock_bytes.map_or("unlimited".to_owned(), |bytes| Bytes(bytes).to_string());
        let capability = if limits.can_lock_memory { ", CAP_IPC_LOCK" } else { "" };
        row(out, "memlock", &format!("{limit}{capability}"))?;
    }
    if let Some(node) = &facts.rdma_cm {
        row(out, "rdma_cm", &say_node(node))?;
    }
    if let Some(probe) = &facts.verbs {
        let listed: Vec<String> = probe
            .devices
            .iter()
            .map(|device| match &device.error {
                None => device.name.clone(),
                Some(error) => format!("{} (cannot be opened: {error})", device.name),
            })
            .collect();
        let path = probe.library.as_ref().map_or("", |library| library.path.as_str());
        let said = match &probe.failure {
            Some(failure) => crate::checks::run::say_failure(failure),
            None if listed.is_empty() => format!("{path} lists no device"),
            None => format!("{path} lists {}", listed.join(", ")),
        };
        row(out, "libibverbs", &said)?;
    }
    for (name, module) in &facts.modules {
        let version = module.version.as_deref().unwrap_or("");
        let parameters: Vec<String> = match name.as_str() {
            // There are many others, none of which matters here.
            "erdma" => module.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            _ => Vec::new(),
        };
        row(
            out,
            "module",
            format!("{name} {version} {}", parameters.join(" "))
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .as_str(),
        )?;
    }
    Ok(())
}
