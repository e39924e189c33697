//! Checks of the devices as a whole: present, in the expected number and mode, with nodes that can be opened.

use super::{HostSubject, Judged, count, names};
use crate::checks::Outcome;
use crate::checks::finding::provider_missing;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::devices::{Access, Hca, Transport};
use crate::facts::run::Failure;
use crate::nccl_settings::InterfaceFilter;

pub(super) fn devices(subject: &HostSubject<'_>) -> Judged {
    let own = subject.own();
    if !own.is_empty() {
        let foreign = subject.foreign();
        let beside = match foreign.as_slice() {
            [] => String::new(),
            foreign => format!("; not of {}: {}", subject.target.fabric.title, say_makers(foreign)),
        };
        return Ok(Outcome::pass(format!("{}: {}{beside}", count(own.len(), "device"), names(&own))));
    }
    let facts = subject.facts;
    let title = subject.target.fabric.title;
    let others: Vec<&Hca> = facts.rdma_devices.iter().collect();
    let summary = match others.as_slice() {
        [] => "there is no RDMA device".to_owned(),
        others => format!("none of the devices belongs to {title}: {}", names(others)),
    };
    let idle: Vec<_> =
        facts.idle_devices.iter().filter(|device| device.vendor_id == subject.target.fabric.pci_vendor).collect();
    let lines = idle.iter().map(|device| {
        let driver =
            device.driver.as_deref().map_or("no driver is bound to it".to_owned(), |name| format!("driver {name}"));
        format!("PCI {} {}:{}: {driver}", device.pci_address, device.vendor_id, device.device_id)
    });
    let driver = subject.target.fabric.driver;
    let remedy = if idle.is_empty() {
        format!(
            "there is no PCI device of vendor {} (lspci -d {}:): attach an RDMA interface to the instance",
            subject.target.fabric.pci_vendor,
            subject.target.fabric.pci_vendor.trim_start_matches("0x")
        )
    } else {
        format!("the device exists, but its driver is not loaded: modprobe {driver}; if that fails, see dmesg")
    };
    Ok(Outcome::fail(summary).named(CauseId::NoRdmaHardware).evidence(lines).remedy(remedy))
}

/// `mlx5_bond_0 (NVIDIA Mellanox)`
fn say_makers(devices: &[&Hca]) -> String {
    let said: Vec<String> =
        devices.iter().map(|device| format!("{} ({})", device.name, device.maker.title())).collect();
    said.join(", ")
}

pub(super) fn nic_count(subject: &HostSubject<'_>) -> Judged {
    let (expected, of_type) = match (subject.nics, subject.instance.map(|chosen| chosen.instance)) {
        (Some(nics), _) => (nics, None),
        (None, Some(instance)) => match instance.nics {
            Some(nics) => (nics.value, Some(format!("{} has ({})", instance.name, nics.source.say()))),
            None => {
                return Ok(Outcome::skip(format!(
                    "no document gives the number of NICs of {} (--nics N)",
                    instance.name
                )));
            }
        },
        (None, None) => return Ok(Outcome::skip("the expected number is not given (--nics N, --instance TYPE)")),
    };
    let own = subject.own();
    let lines = own.iter().map(|device| match &device.pci_address {
        Some(address) => format!("{}: PCI {address}", device.name),
        None => device.name.clone(),
    });
    let idle = subject.facts.idle_devices.iter().filter(|device| device.vendor_id == subject.target.fabric.pci_vendor);
    let idle = idle.map(|device| format!("PCI {}: it has no RDMA device", device.pci_address));
    let title = subject.target.fabric.title;
    Ok(judge_nic_count(title, own.len(), expected, of_type.as_deref(), lines.chain(idle)))
}

/// Compares found and expected devices of a fabric; `of_type`: the instance type with that many, and the document.
pub(crate) fn judge_nic_count(
    title: &str,
    found: usize,
    expected: u32,
    of_type: Option<&str>,
    lines: impl IntoIterator<Item = String>,
) -> Outcome {
    let said = format!("{} of {title}", count(found, "device"));
    if u32::try_from(found) == Ok(expected) {
        return Outcome::pass(format!("{said}, {}", of_type.map_or("as expected".to_owned(), |of| format!("as {of}"))));
    }
    let because = of_type.map(|of| format!(", as {of}")).unwrap_or_default();
    let remedy = match u32::try_from(found).is_ok_and(|found| found < expected) {
        true => "compare with the instance type's EriQuantity (DescribeInstanceTypes), and attach what is missing",
        false => {
            "there are more than expected: check whether the host is of another type, or a device is not for the job"
        }
    };
    Outcome::fail(format!("{said}, but {expected} are expected{because}"))
        .evidence(lines)
        .remedy(remedy)
        .blame(Fault::Host)
}

/// Whether a device speaks iWARP, which NCCL cannot use, though it lists the device as RoCE. `None`: unknown.
pub(super) fn is_iwarp(device: &Hca) -> Option<bool> {
    match (device.transport, device.compat_mode) {
        (Some(Transport::Iwarp), _) => Some(true),
        (Some(_), _) => Some(false),
        (None, Some(compat)) => Some(!compat),
        // The driver has a table of one entry then (elastic-rdma-drivers, `erdma_query_port`).
        (None, None) => match device.ports.first().map(|port| port.gid_table_length) {
            None | Some(0) => None,
            Some(length) => Some(length == 1),
        },
    }
}

/// The evidence for a device's mode.
fn say_mode(device: &Hca) -> String {
    let mut parts = Vec::new();
    if let Some(compat) = device.compat_mode {
        parts.push(format!("compat_mode={}", if compat { "Y" } else { "N" }));
    }
    parts.extend(device.node_type.as_ref().map(|word| format!("node type {word}")));
    let length = device.ports.first().map_or(0, |port| port.gid_table_length);
    parts.push(format!("GID table of {length}"));
    format!("{}: {}", device.name, parts.join(", "))
}

pub(super) fn driver_mode(subject: &HostSubject<'_>) -> Judged {
    let own = match subject.some_own() {
        Ok(own) => own,
        Err(skip) => return Ok(skip),
    };
    let lines = || own.iter().map(|device| say_mode(device));
    let iwarp: Vec<&Hca> = own.iter().copied().filter(|device| is_iwarp(device) == Some(true)).collect();
    if !iwarp.is_empty() {
        let driver = subject.target.fabric.driver;
        return Ok(Outcome::fail(format!(
            "{driver}-driver-not-compat: {} in iWARP mode, which NCCL cannot use",
            if iwarp.len() == 1 { format!("{} is", iwarp[0].name) } else { format!("{} are", names(&iwarp)) }
        ))
        .evidence(lines())
        .remedy(format!(
            "on the host: echo 'options {driver} compat_mode=Y' > /etc/modprobe.d/{driver}.conf; modprobe -r {driver}; modprobe {driver} \
             (ACK: preferDriver ofed)"
        ))
        .blame(Fault::Host));
    }
    let unclear: Vec<&Hca> = own.iter().copied().filter(|device| is_iwarp(device).is_none()).collect();
    if !unclear.is_empty() {
        return Err(Outcome::unknown(format!("neither node type nor GID table shows the mode of {}", names(&unclear))));
    }
    Ok(Outcome::pass("every device speaks InfiniBand's transport, not iWARP").evidence(lines()))
}

pub(super) fn uverbs(subject: &HostSubject<'_>) -> Judged {
    let own = match subject.some_own() {
        Ok(own) => own,
        Err(skip) => return Ok(skip),
    };
    let Some(device) = own.iter().find(|device| device.uverbs.is_none()) else {
        return judge_nodes(subject, &own);
    };
    Ok(Outcome::fail(format!("{} has no uverbs node: programs cannot open it", device.name))
        .remedy("on the host: modprobe ib_uverbs")
        .blame(Fault::Host))
}

fn judge_nodes(subject: &HostSubject<'_>, own: &[&Hca]) -> Judged {
    let nodes = || own.iter().filter_map(|device| Some((device, device.uverbs.as_ref()?)));
    let lines = nodes().map(|(device, node)| match (&node.error, node.access) {
        (Some(error), _) => format!("{}: {}: {error}", device.name, node.path),
        (None, Access::Absent) => format!("{}: {} does not exist", device.name, node.path),
        (None, _) => format!("{}: {}", device.name, node.path),
    });
    let lines: Vec<String> = lines.collect();
    let bad = nodes().find(|(_, node)| matches!(node.access, Access::Absent | Access::Refused));
    if let Some((device, node)) = bad {
        let paths: Vec<String> = nodes().map(|(_, node)| format!("--device {}", node.path)).collect();
        let why = match &node.error {
            Some(error) => format!("cannot be opened: {error}"),
            None => "does not exist".to_owned(),
        };
        return Ok(Outcome::fail(format!("{} has {}, which {why}", device.name, node.path))
            .named(CauseId::DeviceNotPermitted)
            .evidence(lines)
            .remedy(format!(
                "in a container: docker run {} --device /dev/infiniband/rdma_cm; on a host: run it as root, or udev's rules of rdma-core",
                paths.join(" ")
            ))
            .blame(Fault::Host));
    }
    if nodes().any(|(_, node)| node.access == Access::NotCaptured) {
        return Err(Outcome::unknown("the captured tree has no /dev"));
    }
    if nodes().any(|(_, node)| node.access == Access::NotTried) {
        return Ok(Outcome::skip("every device has its node; nodes in a captured tree are not opened").evidence(lines));
    }
    if let Some(cm) = subject.facts.rdma_cm.as_ref().filter(|cm| cm.access != Access::Opened) {
        return Ok(Outcome::warn(format!("every device can be opened, but {} cannot: librdmacm needs it", cm.path))
            .evidence(cm.error.iter().cloned())
            .remedy("docker run --device /dev/infiniband/rdma_cm; on a host: modprobe rdma_ucm")
            .blame(Fault::Host));
    }
    Ok(Outcome::pass("every device's node can be opened").evidence(lines))
}

pub(super) fn libibverbs(subject: &HostSubject<'_>) -> Judged {
    let own = match subject.some_own() {
        Ok(own) => own,
        Err(skip) => return Ok(skip),
    };
    let Some(probe) = &subject.facts.verbs else {
        return Ok(Outcome::skip("libibverbs is not called for a captured tree"));
    };
    let remedy =
        "install the vendor's libibverbs and providers here; containers bring their own (rdmaprep check IMAGE)";
    let warn = |summary: String| {
        Ok(Outcome::warn(summary).evidence(probe.warnings.iter().cloned()).remedy(remedy).blame(Fault::Host))
    };
    match &probe.failure {
        Some(Failure::LibraryMissing { library, detail }) => {
            return warn(format!("{}: {library} cannot be opened: {detail}", CauseId::LibibverbsMissing));
        }
        Some(failure) => {
            return warn(format!("libibverbs does not work: {}", crate::checks::run::say_failure(failure)));
        }
        None => {}
    }
    for device in &own {
        match probe.devices.iter().find(|listed| listed.name == device.name) {
            None => {
                let id = provider_missing(subject.target.fabric);
                return warn(format!("{id}: libibverbs does not list {}", device.name));
            }
            Some(listed) => {
                if let Some(error) = &listed.error {
                    return warn(format!("libibverbs cannot open {}: {error}", device.name));
                }
            }
        }
    }
    let path = probe.library.as_ref().map(|library| library.path.clone());
    Ok(Outcome::pass("libibverbs lists and opens every device").evidence(path))
}

/// Case D06: what the preset names need not be what the devices are called. And what it lets through need not be the fabric's:
/// NCCL opens every device that no filter keeps from it.
pub(super) fn hca_names(subject: &HostSubject<'_>) -> Judged {
    let ports = match subject.ports() {
        Ok(ports) => ports,
        Err(skip) => return Ok(skip),
    };
    let mut all: Vec<&str> = ports.iter().map(|(device, _)| device.name.as_str()).collect();
    all.dedup();
    let remedy = format!("set NCCL_IB_HCA={} in the job", InterfaceFilter::exactly(all.iter().copied()));
    let warn = |summary: String| Ok(Outcome::warn(summary).remedy(remedy.as_str()).blame(Fault::Job));
    let title = subject.target.fabric.title;
    let foreign = subject.foreign();
    let Some(preset) = subject.target.nccl_preset("NCCL_IB_HCA") else {
        if foreign.is_empty() {
            return Ok(Outcome::skip("the target sets no NCCL_IB_HCA"));
        }
        return warn(format!(
            "the target sets no NCCL_IB_HCA, and NCCL takes {} beside the devices of {title}",
            say_makers(&foreign)
        ));
    };
    let filter = InterfaceFilter::parse(preset);
    let allows = |device: &Hca| device.ports.iter().any(|port| filter.allows(&device.name, Some(port.port)));
    let taken: Vec<&Hca> = foreign.into_iter().filter(|device| allows(device)).collect();
    let refused: Vec<_> = ports.iter().filter(|(device, port)| !filter.allows(&device.name, Some(port.port))).collect();
    if refused.is_empty() && taken.is_empty() {
        return Ok(Outcome::pass(format!("NCCL_IB_HCA={preset}, which the target sets, names {}", all.join(","))));
    }
    if refused.len() == ports.len() {
        let names = all.join(",");
        return Ok(Outcome::fail(format!(
            "the target sets NCCL_IB_HCA={preset}, but the devices are named {names}: NCCL would use sockets"
        ))
        .named(CauseId::HcaFilterMatchesNothing)
        .remedy(remedy.as_str()));
    }
    if refused.is_empty() {
        return warn(format!(
            "the target sets NCCL_IB_HCA={preset}, which lets {} through beside the devices of {title}",
            say_makers(&taken)
        ));
    }
    let left: Vec<&str> = refused.iter().map(|(device, _)| device.name.as_str()).collect();
    warn(format!("the target sets NCCL_IB_HCA={preset}, which leaves {} out", left.join(", ")))
}

#[cfg(test)]
mod tests {
    use crate::checks::Status::*;
    use crate::checks::host::testing::*;
    use crate::devices::load_captured;
    use crate::diagnosis::Fault::*;
    use crate::facts::devices::*;
    use crate::facts::run::{Failure, VerbsDevice, VerbsProbe};

    #[test]
    fn devices_are_there() {
        expect(&found(&good(), "host-devices"), Pass, None, &["2 devices: erdma_0, erdma_1"]);
        let mut facts = good();
        facts.rdma_devices.clear();
        expect(&found(&facts, "host-devices"), Fail, Some(Host), &["no-rdma-hardware", "lspci -d 1ded:"]);
        // The device is on the bus, and nobody took it.
        let tree = SysTree::erdma();
        tree.remove("sys/class/infiniband").remove("sys/devices/pci0000:00/0000:00:07.0/infiniband");
        tree.remove("sys/devices/pci0000:00/0000:00:07.0/driver");
        let facts = load_captured(tree.root());
        let finding = found(&facts, "host-devices");
        expect(&finding, Fail, Some(Host), &["PCI 0000:00:07.0 0x1ded:0x107f: no driver", "modprobe erdma"]);
    }

    #[test]
    fn as_many_as_the_instance_should_have() {
        let of = |facts: &DeviceFacts, nics| {
            findings(facts, "pai-dlc", nics).into_iter().find(|finding| finding.check == "host-nic-count").unwrap()
        };
        expect(&of(&good(), Some(2)), Pass, None, &[]);
        expect(&of(&good(), None), Skip, None, &["--nics"]);
        expect(&of(&good(), Some(4)), Fail, Some(Host), &["2 devices", "4 are expected", "EriQuantity"]);
        expect(&of(&good(), Some(1)), Fail, Some(Host), &["2 devices", "1 are expected", "of another type"]);
        let mut facts = good();
        facts.rdma_devices.clear();
        expect(&of(&facts, Some(2)), Fail, Some(Host), &["0 devices"]);
    }

    /// Case D05: the host is at fault, and another GID index does not help.
    #[test]
    fn case_d05_erdma_in_iwarp_mode() {
        let facts = load_captured(SysTree::erdma_iwarp().root());
        let words = [
            "erdma-driver-not-compat",
            "erdma_0, erdma_1 are in iWARP mode",
            "compat_mode=N, node type RNIC, GID table of 1",
        ];
        expect(&found(&facts, "host-driver-mode"), Fail, Some(Host), &words);
        let all = findings(&facts, "pai-dlc", None);
        assert!(all.iter().all(|f| !f.remedy.iter().any(|remedy| remedy.contains("GID_INDEX"))), "{all:#?}");
        expect(&found(&facts, "host-gid"), Skip, None, &["host-driver-mode"]);
    }

    #[test]
    fn the_mode_by_what_is_there() {
        expect(&found(&good(), "host-driver-mode"), Pass, None, &["compat_mode=Y, node type CA, GID table of 16"]);
        let tree = SysTree::erdma_iwarp();
        let read = |tree: &SysTree| found(&load_captured(tree.root()), "host-driver-mode");
        // One source after another is not there.
        for device in ["erdma_0", "erdma_1"] {
            tree.remove(&format!("sys/class/infiniband/{device}/node_type"));
        }
        expect(&read(&tree), Fail, Some(Host), &["compat_mode=N, GID table of 1"]);
        tree.remove("sys/module/erdma/parameters");
        expect(&read(&tree), Fail, Some(Host), &["GID table of 1"]);
        for device in ["erdma_0", "erdma_1"] {
            tree.remove(&format!("{}/gids", SysTree::port_of(device)));
        }
        expect(&read(&tree), Unknown, None, &["erdma_0, erdma_1"]);
        expect(&found(&load_captured(SysTree::plain().root()), "host-driver-mode"), Skip, None, &[]);
    }

    #[test]
    fn nodes_that_can_be_opened() {
        let opened = |facts: &mut DeviceFacts| {
            for device in &mut facts.rdma_devices {
                device.uverbs.as_mut().unwrap().access = Access::Opened;
            }
            facts.rdma_cm.as_mut().unwrap().access = Access::Opened;
        };
        expect(&found(&good(), "host-uverbs"), Skip, None, &["not opened"]);
        let mut facts = good();
        opened(&mut facts);
        expect(&found(&facts, "host-uverbs"), Pass, None, &["/dev/infiniband/uverbs1"]);
        facts.rdma_cm.as_mut().unwrap().access = Access::Absent;
        expect(&found(&facts, "host-uverbs"), Warn, Some(Host), &["rdma_cm"]);
        let node = facts.rdma_devices[1].uverbs.as_mut().unwrap();
        (node.access, node.error) = (Access::Refused, Some("Permission denied (os error 13)".into()));
        let words = ["device-not-permitted: erdma_1", "Permission denied", "--device /dev/infiniband/uverbs1"];
        expect(&found(&facts, "host-uverbs"), Fail, Some(Host), &words);
        let tree = SysTree::erdma();
        tree.remove("dev/infiniband/uverbs0");
        expect(
            &found(&load_captured(tree.root()), "host-uverbs"),
            Fail,
            Some(Host),
            &["uverbs0, which does not exist"],
        );
        tree.remove("dev");
        expect(&found(&load_captured(tree.root()), "host-uverbs"), Unknown, None, &["no /dev"]);
        tree.remove("sys/class/infiniband_verbs");
        expect(&found(&load_captured(tree.root()), "host-uverbs"), Fail, Some(Host), &["modprobe ib_uverbs"]);
    }

    #[test]
    fn what_libibverbs_says() {
        expect(&found(&good(), "host-libibverbs"), Skip, None, &[]);
        let device =
            |name: &str, error: Option<&str>| VerbsDevice { name: name.into(), error: error.map(str::to_owned) };
        let with = |devices: Vec<VerbsDevice>, failure| {
            let mut facts = good();
            facts.verbs =
                Some(VerbsProbe { library: None, devices, failure, warnings: vec!["libibverbs: Warning: x".into()] });
            found(&facts, "host-libibverbs")
        };
        let both = vec![device("erdma_0", None), device("erdma_1", None)];
        expect(&with(both, None), Pass, None, &[]);
        expect(
            &with(vec![device("erdma_0", None)], None),
            Warn,
            Some(Host),
            &["erdma-provider-missing", "erdma_1", "Warning: x"],
        );
        let refused = vec![device("erdma_0", Some("Permission denied")), device("erdma_1", None)];
        expect(&with(refused, None), Warn, Some(Host), &["cannot open erdma_0"]);
        let missing = Failure::LibraryMissing { library: "libibverbs.so.1".into(), detail: "no such file".into() };
        expect(&with(Vec::new(), Some(missing)), Warn, Some(Host), &["libibverbs-missing"]);
        let other = Failure::Other { detail: "ibv_get_device_list: Function not implemented".into() };
        expect(&with(Vec::new(), Some(other)), Warn, Some(Host), &["Function not implemented"]);
    }

    /// Case D06: the device is eRDMA by its PCI vendor, whatever it is called, and the preset does not match.
    #[test]
    fn case_d06_an_hca_that_is_not_called_erdma() {
        expect(&found(&good(), "host-hca-names"), Pass, None, &["erdma_0,erdma_1"]);
        let mut facts = good();
        facts.rdma_devices[0].name = "rocep26s0".into();
        let words = ["leaves rocep26s0 out", "NCCL_IB_HCA==rocep26s0,erdma_1"];
        expect(&found(&facts, "host-hca-names"), Warn, Some(Job), &words);
        facts.rdma_devices[1].name = "rocep156s0".into();
        let words = ["hca-filter-matches-nothing", "NCCL_IB_HCA==rocep26s0,rocep156s0"];
        expect(&found(&facts, "host-hca-names"), Fail, Some(Job), &words);
        expect(&found(&facts, "host-devices"), Pass, None, &["rocep26s0, rocep156s0"]);
        expect(&found_for(&facts, "host-hca-names", "ecs"), Skip, None, &[]);
    }

    /// As on hosts of Alibaba's that have a Mellanox card, too.
    #[test]
    fn foreign_devices_beside_the_fabric_s_are_said() {
        let facts = load_captured(SysTree::erdma_beside_bond().root());
        let words = ["2 devices: erdma_0, erdma_1; not of Alibaba eRDMA: mlx5_bond_0 (NVIDIA Mellanox)"];
        expect(&found(&facts, "host-devices"), Pass, None, &words);
        // PAI's filter leaves it out, and without a filter NCCL takes it.
        expect(&found(&facts, "host-hca-names"), Pass, None, &["NCCL_IB_HCA=erdma"]);
        let words = ["mlx5_bond_0 (NVIDIA Mellanox)", "NCCL_IB_HCA==erdma_0,erdma_1"];
        expect(&found_for(&facts, "host-hca-names", "ecs"), Warn, Some(Job), &words);
    }

    /// A scalable function: a driver on the auxiliary bus, and the vendor is its card's.
    #[test]
    fn auxiliary_devices_are_the_fabric_s() {
        let facts = load_captured(SysTree::scalable_function().root());
        let device = &facts.rdma_devices[0];
        assert_eq!((device.driver.as_deref(), device.maker), (Some("mlx5_core.sf"), Maker::Mellanox));
        assert_eq!(
            (device.vendor_id.as_deref(), device.pci_address.as_deref()),
            (Some("0x15b3"), Some("0000:18:00.0"))
        );
        expect(&found_for(&facts, "host-devices", "cce"), Pass, None, &["1 device: mlx5_4"]);
    }
}
