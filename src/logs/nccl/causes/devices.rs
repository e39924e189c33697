//! Causes of a network without RDMA: devices, ports, filters, plugins.

use super::{Cause, CauseId, Log, MAX_EVIDENCE, RdmaDeviceHint, cause};
use crate::logs::nccl::rank::is_verbs_network;
use crate::logs::nccl::rank::{PluginState, RankEvidence};
use crate::nccl_settings::InterfaceFilter;

pub(super) fn libibverbs(log: &Log<'_>) -> Option<Cause> {
    // 2.30 names each name that it tries; `libibverbs.so` is often absent, `.so.1` is what matters.
    let lines = log
        .lines(|line| line.contains("Failed to open libibverbs.so") || line.contains("Count not open libibverbs.so.1"));
    CauseId::LibibverbsMissing.found(lines)
}

pub(super) fn switched_off(log: &Log<'_>) -> Option<Cause> {
    let (rank, name, value) =
        [("NCCL_IB_DISABLE", "0"), ("NCCL_NET", "IB")].into_iter().find_map(|(name, harmless)| {
            let (rank, value) = log.setting(name)?;
            let off = if name == "NCCL_NET" { value == "Socket" } else { value != harmless };
            off.then_some((rank, name, value))
        })?;
    cause(
        CauseId::RdmaSwitchedOff,
        format!("{name}={value} switches RDMA off"),
        format!("unset {name}: look in the image's environment, the job's, /etc/nccl.conf and ~/.nccl.conf"),
        vec![format!("{}: {name} set by environment to {value}", rank.label())],
    )
}

pub(super) fn asymmetric(log: &Log<'_>) -> Option<Cause> {
    let told = log.evidence.asymmetric_devices.iter();
    let mut lines: Vec<String> = told
        .map(|(rank, devices)| match devices.is_empty() {
            true => format!("{rank} has no RDMA device"),
            false => format!("{rank} has {}", devices.join(", ")),
        })
        .take(MAX_EVIDENCE)
        .collect();
    lines.extend(log.lines_with("Detected mixed local Net device counts"));
    if !lines.is_empty() {
        lines.extend(log.lines_with("Unable to open device"));
    }
    let common = log.evidence.asymmetric_devices.iter().map(|(_, devices)| devices).min_by_key(|devices| devices.len());
    let only = common.filter(|devices| !devices.is_empty()).map(|devices| devices.join(","));
    let remedy = match only {
        Some(only) => format!(
            "pass every /dev/infiniband/uverbs* of the fabric to every container, or set NCCL_IB_HCA=={only} on all ranks"
        ),
        None => "pass every /dev/infiniband/uverbs* of the fabric to every container".to_owned(),
    };
    cause(
        CauseId::AsymmetricHca,
        "ranks have different RDMA devices, which makes NCCL hang without an error",
        remedy,
        lines,
    )
}

pub(super) fn not_permitted(log: &Log<'_>) -> Option<Cause> {
    let mut lines =
        log.lines(|line| line.contains("Unable to open device") || line.contains("Call to ibv_open_device failed"));
    if !log.uses_rdma() {
        let closed = log.devices().iter().filter(|device| device.can_be_opened == Some(false));
        lines.extend(closed.map(|device| match log.hints.devices_from {
            "" => format!("{} is in sysfs, but its device node cannot be opened", device.name),
            _ => log.device_line(&device.name, "Failed to open device"),
        }));
    }
    // Where only some ranks lack a device that is the matter.
    if !log.evidence.asymmetric_devices.is_empty() {
        return None;
    }
    CauseId::DeviceNotPermitted.found(lines)
}

pub(super) fn hardware(log: &Log<'_>) -> Option<Cause> {
    let looked = log.hints.rdma_devices.as_ref().is_some_and(Vec::is_empty);
    let mut lines = if looked && !log.uses_rdma() { log.no_device() } else { Vec::new() };
    if looked && !log.hints.devices_from.is_empty() {
        lines.push(format!("{}: no device found", log.hints.devices_from));
    }
    // A provider that is not there hides the devices.
    if !log.lines(|line| line.contains("libibverbs: Warning") && names_erdma_provider(line)).is_empty() {
        return None;
    }
    CauseId::NoRdmaHardware.found(lines)
}

pub(super) fn port_down(log: &Log<'_>) -> Option<Cause> {
    let devices = log.devices();
    let all_down = !devices.is_empty() && devices.iter().all(|device| device.has_active_port == Some(false));
    let mut lines = if all_down && !log.uses_rdma() { log.no_device() } else { Vec::new() };
    if all_down && !log.hints.devices_from.is_empty() {
        lines.extend(
            devices.iter().take(MAX_EVIDENCE).map(|device| log.device_line(&device.name, "no port is PORT_ACTIVE")),
        );
    }
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    cause(
        CauseId::PortDown,
        format!("no port of {} is active", names.join(", ")),
        "bring up the device's network interface on the host and give it an address (ip link set eth1 up; dhclient eth1)",
        lines,
    )
}

/// A filter that leaves no device, by NCCL's own grammar, and NCCL that found none.
pub(super) fn filter(log: &Log<'_>) -> Option<Cause> {
    let has_none = |rank: &&RankEvidence| {
        let lists_none = rank.ib_devices.as_ref().is_some_and(Vec::is_empty);
        (rank.no_ib_device || lists_none || rank.network.as_deref() == Some("Socket"))
            && rank.physical_devices().is_empty()
    };
    let without = log.ranks().iter().filter(has_none);
    let (rank, value) = without.filter_map(|rank| Some((rank, rank.setting("NCCL_IB_HCA")?))).next()?;
    let filter = InterfaceFilter::parse(value);
    let usable =
        |device: &&RdmaDeviceHint| device.can_be_opened != Some(false) && device.has_active_port != Some(false);
    let mut known: Vec<(&str, &[u32])> =
        log.devices().iter().filter(usable).map(|device| (device.name.as_str(), device.ports.as_slice())).collect();
    if log.hints.rdma_devices.is_none() {
        // Tables of addresses and the lists of ranks with another setting name devices, too.
        known.extend(log.hints.gids.iter().map(|entry| (entry.device.as_str(), [].as_slice())));
        let others = log.ranks().iter().filter(|other| other.setting("NCCL_IB_HCA") != Some(value));
        known.extend(others.flat_map(|other| other.physical_devices()).map(|name| (name, [].as_slice())));
        known.sort_unstable();
        known.dedup();
    }
    let is_allowed = |(name, ports): &(&str, &[u32])| match ports {
        [] => filter.allows(name, None),
        ports => ports.iter().any(|port| filter.allows(name, Some(*port))),
    };
    if known.is_empty() || known.iter().any(is_allowed) {
        return None;
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).take(32).collect();
    let mut lines = vec![format!("{}: NCCL_IB_HCA set by environment to {value}", rank.label())];
    lines.extend(log.no_device());
    if lines.len() == 1 {
        lines.push(format!("{}: Using network Socket", rank.label()));
    }
    cause(
        CauseId::HcaFilterMatchesNothing,
        format!("NCCL_IB_HCA={value} names none of {}", names.join(", ")),
        format!("set NCCL_IB_HCA={}, or unset it", names.join(",")),
        lines,
    )
}

/// The provider of eRDMA that libibverbs looked for.
pub(super) fn names_erdma_provider(line: &str) -> bool {
    line.contains("couldn't load driver") && line.contains("liberdma")
}

/// A network plugin that came with the image and found no device, or is for another fabric.
pub(super) fn foreign_plugin(log: &Log<'_>) -> Option<Cause> {
    if log.uses_rdma() {
        return None;
    }
    let is_builtin = |name: &str| matches!(name, "IB" | "Socket");
    let plugins = log.ranks().iter().flat_map(|rank| rank.plugins.iter().map(move |plugin| (rank, plugin)));
    let mut lines: Vec<String> = plugins
        .filter(|(_, plugin)| plugin.state != PluginState::NotFound && !is_builtin(&plugin.name))
        .map(|(rank, plugin)| format!("{}: network plugin {}", rank.label(), plugin.name))
        .take(MAX_EVIDENCE)
        .collect();
    let networks = log.evidence.networks.keys();
    lines.extend(networks.filter(|name| !is_builtin(name)).map(|name| format!("Using network {name}")));
    let complaints = log.lines(|line| line.starts_with("NET/OFI") || line.contains("NET/OFI "));
    lines.extend(complaints);
    // It carries data, on its own fabric.
    let is_at_work = |name: &str| name.strip_prefix("NET/").is_some_and(|network| !is_builtin(network));
    if log.evidence.transports.iter().any(|used| is_at_work(&used.name)) {
        return None;
    }
    let works = log.evidence.networks.keys().any(|name| is_verbs_network(name));
    if works && !log.ranks().iter().any(|rank| rank.no_ib_device) {
        return None;
    }
    lines.truncate(MAX_EVIDENCE);
    cause(
        CauseId::ForeignNetPlugin,
        match log.ranks().iter().any(|rank| rank.no_ib_device) {
            true => "a network plugin of the image took over from NCCL's own, and found no device",
            false => "a network plugin of the image took over from NCCL's own",
        },
        "set NCCL_NET_PLUGIN=none, or remove the plugin (libnccl-net*.so) from the image",
        lines,
    )
}
