//! The results of RDMA writes from devices to themselves, for people.

use crate::facts::loopback::{
    CounterRise, CounterUnit, DeviceLoopback, GidChoice, LoopbackReport, Path, PathLoopback, PortLoopback, SizeRow,
    UsedGid,
};
use crate::units::Bytes;

/// One paragraph per device.
pub fn text(report: &LoopbackReport) -> String {
    let mut lines = Vec::new();
    if let Some(failure) = &report.failure {
        lines.push(format!("failed: {failure}"));
    }
    for device in &report.devices {
        device_lines(&mut lines, device);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn device_lines(lines: &mut Vec<String>, device: &DeviceLoopback) {
    lines.push(device.name.clone());
    for port in &device.ports {
        port_lines(lines, port);
    }
    if let Some(failure) = &device.failure {
        lines.push(format!("  failed: {failure}"));
    }
}

fn port_lines(lines: &mut Vec<String>, port: &PortLoopback) {
    let mtu = port.attributes.as_ref().and_then(|attributes| attributes.active_mtu_bytes);
    let mtu = mtu.map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
    let gid = port.gid.as_ref().map_or_else(String::new, |gid| format!("; {}", gid_words(gid)));
    lines.push(format!("  port {}{mtu}{gid}", port.port));
    if let Some(failure) = &port.failure {
        lines.push(format!("    failed: {failure}"));
    }
    for path in &port.paths {
        path_lines(lines, path);
    }
    let was_moved = port.moved_bytes() > 0;
    match &port.counters {
        Some(rise) if was_moved => lines.push(format!("    {}", counter_words(rise))),
        None if was_moved => lines.push("    no known counter of this port counts it".to_owned()),
        _ => {}
    }
}

fn gid_words(gid: &UsedGid) -> String {
    let mut words = vec![match gid.ipv4 {
        _ if gid.is_empty => "empty".to_owned(),
        Some(address) => address.to_string(),
        None => gid.gid.clone(),
    }];
    words.extend(gid.kind.clone());
    words.push(match gid.chosen_by {
        GidChoice::Nccl => "NCCL's choice".to_owned(),
        GidChoice::Asked => "asked for".to_owned(),
    });
    if !gid.is_empty && !gid.is_routable {
        words.push("not routable".to_owned());
    }
    if let Some(interface) = gid.interface.as_ref().filter(|_| !gid.is_interface_here) {
        words.push(format!("{interface} is in another network namespace"));
    }
    format!("GID {}: {}", gid.index, words.join(", "))
}

fn path_lines(lines: &mut Vec<String>, path: &PathLoopback) {
    let name = match path.path {
        Path::Itself => "a queue pair to itself",
        Path::Pair => "two queue pairs",
    };
    let moved: u64 = path.rows.iter().map(SizeRow::moved_bytes).sum();
    let verified = if path.rows.is_empty() { "nothing" } else { "every byte" };
    lines.push(format!("    {name}: {} written, {verified} verified", Bytes(moved)));
    for row in &path.rows {
        let (size, bandwidth) = (row.size_bytes, row.bandwidth_gb_per_s());
        lines.push(format!("      {size:>8} B  {:>3} messages  {bandwidth:>8.3} GB/s", row.messages));
    }
    if let Some(failure) = &path.failure {
        lines.push(format!("      failed: {failure}"));
    }
}

fn counter_words(rise: &CounterRise) -> String {
    let CounterRise { source, sent, received, expected, .. } = rise;
    let unit = match rise.unit {
        CounterUnit::Bytes => "bytes",
        CounterUnit::Packets => "packets",
    };
    let verdict =
        if rise.confirms() { "confirms it" } else { "does not show it: the device may count only what leaves it" };
    format!("{source} {verdict}: {sent} {unit} sent, {received} received, at least {expected} expected")
}
