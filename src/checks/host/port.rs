//! Checks of ports: up, with a GID that two hosts can talk with, an MTU and a partition that work.

use super::{HostSubject, Judged, say_port};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::devices::{Gid, Hca, HcaPort, Maker};

/// MTUs of the interface with which eRDMA keeps the order that NCCL's protocol LL128 rests on: with jumbo frames, and
/// without (Alibaba Cloud help, ECS, "Use eRDMA on GPU instances", read 2026-11).
const LL128_MTUS: [u32; 2] = [8500, 1400];

/// NCCL silently skips ports that are not active.
pub(super) fn states(subject: &HostSubject<'_>) -> Judged {
    let ports = match subject.ports() {
        Ok(ports) => ports,
        Err(skip) => return Ok(skip),
    };
    if ports.is_empty() {
        return Err(Outcome::unknown("no device has a port"));
    }
    let down: Vec<_> = ports.iter().filter(|(_, port)| port.state.is_some() && !port.is_active()).collect();
    if let Some((device, port)) = down.first() {
        let state = port.state.as_deref().unwrap_or_default();
        let summary = format!("{}: {} is {state}", CauseId::PortDown, say_port(device, port));
        // A job runs on the remaining ports, but slower.
        let outcome = if down.len() == ports.len() { Outcome::fail(summary) } else { Outcome::warn(summary) };
        let interface = port.netdev.as_ref().map_or("ETH", |netdev| netdev.name.as_str());
        return Ok(outcome
            .evidence(down.iter().map(|(device, port)| say_state(device, port)))
            .remedy(format!("on the host: ip link set {interface} up, and give it an address: dhclient {interface}"))
            .blame(Fault::Host));
    }
    if let Some((device, port)) = ports.iter().find(|(_, port)| port.state.is_none()) {
        return Err(Outcome::unknown(format!("the state of {} cannot be read", say_port(device, port))));
    }
    Ok(Outcome::pass("every port is active").evidence(ports.iter().map(|(device, port)| say_state(device, port))))
}

/// `erdma_1 port 1: DOWN (Disabled); eth2: down, no address`
fn say_state(device: &Hca, port: &HcaPort) -> String {
    let physical = port.physical_state.as_ref().map(|state| format!(" ({state})")).unwrap_or_default();
    let netdev = match &port.netdev {
        None => "; no interface was found for it".to_owned(),
        Some(netdev) => {
            let addresses =
                if netdev.addresses.is_empty() { "no address".to_owned() } else { netdev.addresses.join(", ") };
            format!("; {}: {}, {addresses}", netdev.name, netdev.state.as_deref().unwrap_or("state unknown"))
        }
    };
    format!("{}: {}{physical}{netdev}", say_port(device, port), port.state.as_deref().unwrap_or("unknown"))
}

pub(super) fn gids(subject: &HostSubject<'_>) -> Judged {
    let ports = match subject.roce_ports() {
        Ok(ports) => ports,
        Err(skip) => return Ok(skip),
    };
    let lines = || {
        ports.iter().map(|(device, port)| {
            let choice = port.nccl_gid.as_ref().map(|gid| format!("NCCL takes {} ({})", gid.index, gid.reason));
            let routable: Vec<String> =
                port.gids.iter().filter(|gid| gid.is_routable()).map(|gid| gid.index.to_string()).collect();
            let routable = if routable.is_empty() { "none".to_owned() } else { routable.join(", ") };
            format!("{}: {}; usable: {routable}", say_port(device, port), choice.unwrap_or("the table is empty".into()))
        })
    };
    for (device, port) in &ports {
        if let Some(outcome) = no_routable(device, port) {
            return outcome.map(|outcome| outcome.evidence(lines()));
        }
    }
    if let Some(outcome) = wrong_preset(subject, &ports) {
        return Ok(outcome.evidence(lines()));
    }
    let unusable = ports.iter().find(|(_, port)| port.nccl_gid.as_ref().is_some_and(|gid| !gid.is_usable));
    let has_preset = subject.target.nccl_preset("NCCL_IB_GID_INDEX").is_some();
    if let Some((device, port)) = unusable.filter(|_| !has_preset) {
        let index = first_routable(port).map_or(0, |gid| gid.index);
        let taken = port.nccl_gid.as_ref().map_or("none", |gid| gid.reason.as_str());
        return Ok(Outcome::fail(format!(
            "{}: of {} NCCL takes {taken}",
            CauseId::GidUnroutable,
            say_port(device, port)
        ))
        .evidence(lines())
        .remedy(format!("set NCCL_IB_GID_INDEX={index} in the job"))
        .blame(Fault::Job));
    }
    let indices: Vec<String> = ports
        .iter()
        .filter_map(|(device, port)| Some(format!("{}: {}", device.name, port.nccl_gid.as_ref()?.index)))
        .collect();
    Ok(Outcome::pass(format!("every port has a RoCE v2 GID with an address; NCCL uses {}", indices.join(", ")))
        .evidence(lines()))
}

fn first_routable(port: &HcaPort) -> Option<&Gid> {
    let routable = || port.gids.iter().filter(|gid| gid.is_routable());
    routable().find(|gid| gid.ipv4.is_some()).or_else(|| routable().next())
}

/// A port without a usable GID.
fn no_routable(device: &Hca, port: &HcaPort) -> Option<Judged> {
    if first_routable(port).is_some() {
        return None;
    }
    let name = say_port(device, port);
    if port.gids.iter().any(|gid| gid.kind.is_none() && !gid.is_link_local) {
        return Some(Err(Outcome::unknown(format!("the kernel does not report the type of the GIDs of {name}"))));
    }
    let interface = port.netdev.as_ref().map_or("ETH", |netdev| netdev.name.as_str());
    let what = match port.gids.iter().find(|gid| !gid.is_link_local) {
        Some(gid) => format!("{name} has {} but no RoCE v2", Gid::describe(Some(gid))),
        None => format!("{name} has no GID with an address"),
    };
    Some(Ok(Outcome::fail(format!("{}: {what}", CauseId::GidUnroutable))
        .remedy(format!(
            "on the host: give {interface} an IPv4 address (dhclient {interface}); the kernel derives the GID from it"
        ))
        .blame(Fault::Host)))
}

/// Case D08: the index that the target sets is right only if the table says so.
fn wrong_preset(subject: &HostSubject<'_>, ports: &[(&Hca, &HcaPort)]) -> Option<Outcome> {
    let preset = subject.target.nccl_preset("NCCL_IB_GID_INDEX")?;
    let index: u32 = preset.parse().ok()?;
    let (device, port) = ports.iter().find(|(_, port)| !port.gid(index).is_some_and(Gid::is_routable))?;
    let right = first_routable(port)?.index;
    let same = ports.iter().all(|(_, port)| port.gid(right).is_some_and(Gid::is_routable));
    let remedy = if same {
        format!("set NCCL_IB_GID_INDEX={right} in the job")
    } else {
        "set NCCL_IB_GID_INDEX=-1 in the job, with NCCL 2.21 or newer: the index is not the same on every device"
            .to_owned()
    };
    Some(
        Outcome::fail(format!(
            "{}: the target sets NCCL_IB_GID_INDEX={preset}, which on {} is {}",
            CauseId::GidUnroutable,
            say_port(device, port),
            Gid::describe(port.gid(index))
        ))
        .remedy(remedy)
        .blame(Fault::Job),
    )
}

pub(super) fn mtu(subject: &HostSubject<'_>) -> Judged {
    let mut ports = match subject.ports() {
        Ok(ports) => ports,
        Err(skip) => return Ok(skip),
    };
    ports.retain(|(_, port)| !port.is_infiniband());
    if ports.is_empty() {
        return Ok(Outcome::skip("the link layer is InfiniBand, and its MTU is not in sysfs"));
    }
    let mtu = |port: &HcaPort| port.netdev.as_ref().and_then(|netdev| netdev.mtu_bytes);
    let say = |device: &Hca, port: &HcaPort| {
        let netdev = port.netdev.as_ref().map_or("no interface", |netdev| netdev.name.as_str());
        let bytes = mtu(port).map_or("unknown".to_owned(), |bytes| bytes.to_string());
        let active = port.derived_active_mtu_bytes.map(|bytes| format!(", so {bytes} on RDMA")).unwrap_or_default();
        format!("{}: {netdev} has MTU {bytes}{active}", say_port(device, port))
    };
    let lines: Vec<String> = ports.iter().map(|(device, port)| say(device, port)).collect();
    if let Some(wrong) = ports.iter().find(|(device, port)| {
        device.maker == Maker::AlibabaErdma && mtu(port).is_some_and(|bytes| !LL128_MTUS.contains(&bytes))
    }) {
        let (device, port) = wrong;
        let interface = port.netdev.as_ref().map_or("ETH", |netdev| netdev.name.as_str());
        let [jumbo, plain] = LL128_MTUS;
        return Ok(Outcome::fail(format!(
            "{}: NCCL's LL128 corrupts data over eRDMA unless it is {jumbo} with jumbo frames, or {plain} without",
            say(device, port)
        ))
        .evidence(lines)
        .remedy(format!(
            "on the host: ip link set {interface} mtu {plain} ({jumbo} where the instance has jumbo frames); or NCCL_PROTO=^LL128 in the job"
        ))
        .blame(Fault::Host));
    }
    if let Some((device, port)) = ports.iter().find(|(_, port)| mtu(port).is_none()) {
        return Err(Outcome::unknown(say(device, port)).evidence(lines));
    }
    let first = mtu(ports[0].1);
    if ports.iter().any(|(_, port)| mtu(port) != first) {
        return Ok(Outcome::warn("the interfaces have different MTUs: between two of them a job uses the smaller one")
            .evidence(lines)
            .remedy("on the host: give all of them the same MTU, that of the network")
            .blame(Fault::Host));
    }
    Ok(Outcome::pass(say(ports[0].0, ports[0].1)).evidence(lines))
}

/// Case D19: a hint for InfiniBand only.
pub(super) fn pkey(subject: &HostSubject<'_>) -> Judged {
    let mut ports = match subject.ports() {
        Ok(ports) => ports,
        Err(skip) => return Ok(skip),
    };
    ports.retain(|(_, port)| port.is_infiniband());
    if ports.is_empty() {
        return Ok(Outcome::skip("partitions exist only on InfiniBand, which the link layer is not"));
    }
    if let Some((device, port)) = ports.iter().find(|(_, port)| port.pkeys.is_empty()) {
        return Err(Outcome::unknown(format!("the partition keys of {} cannot be read", say_port(device, port))));
    }
    // The top bit means full membership; 0x7fff is the default partition as a limited member.
    let wrong = ports.iter().find(|(_, port)| port.pkeys.get(&0).is_none_or(|key| key != "0xffff"));
    let Some((device, port)) = wrong else {
        return Ok(Outcome::pass("partition key 0, which NCCL uses, is the default partition's"));
    };
    let keys: Vec<String> = port.pkeys.iter().map(|(index, key)| format!("{index}: {key}")).collect();
    let first = port.pkeys.get(&0).map_or("empty", String::as_str);
    let default = port.pkeys.iter().find(|(_, key)| *key == "0xffff").map(|(index, _)| *index);
    let remedy = match default {
        Some(index) => {
            format!("if jobs time out with status 12: NCCL_IB_PKEY={index}, if the others are in that partition")
        }
        None => "if jobs time out with status 12: NCCL_IB_PKEY=INDEX of the other hosts' partition".into(),
    };
    Ok(Outcome::warn(format!("{} has partition key {first} at index 0, which NCCL uses", say_port(device, port)))
        .evidence(keys)
        .remedy(remedy)
        .blame(Fault::Job))
}

#[cfg(test)]
mod tests {
    use crate::checks::Status::*;
    use crate::checks::host::testing::*;
    use crate::devices::load_captured;
    use crate::diagnosis::Fault::*;

    const PORT: &str = "sys/class/infiniband/erdma_1/ports/1";

    /// Case D18: a port that is down is not missing hardware.
    #[test]
    fn case_d18_ports_that_are_down() {
        expect(
            &found(&good(), "host-ports"),
            Pass,
            None,
            &["erdma_0 port 1: ACTIVE (LinkUp); eth1: up, 172.16.15.237"],
        );
        let tree = SysTree::erdma();
        tree.file(&format!("{PORT}/state"), "1: DOWN\n").file(&format!("{PORT}/phys_state"), "3: Disabled\n");
        tree.file("sys/class/net/eth2/operstate", "down\n");
        for slot in ["gids/1", "gid_attrs/types/1", "gid_attrs/ndevs/1"] {
            tree.remove(&format!("{PORT}/{slot}"));
        }
        let words = ["port-down: erdma_1 port 1 is DOWN", "(Disabled); eth2: down, no address", "dhclient eth2"];
        expect(&found(&load_captured(tree.root()), "host-ports"), Warn, Some(Host), &words);
        let other = PORT.replace("erdma_1", "erdma_0");
        tree.file(&format!("{other}/state"), "1: DOWN\n");
        let facts = load_captured(tree.root());
        expect(&found(&facts, "host-ports"), Fail, Some(Host), &["erdma_0 port 1: DOWN", "erdma_1 port 1: DOWN"]);
        expect(&found(&facts, "host-devices"), Pass, None, &[]);
        tree.remove(&format!("{other}/state")).file(&format!("{PORT}/state"), "4: ACTIVE\n");
        expect(&found(&load_captured(tree.root()), "host-ports"), Unknown, None, &["erdma_0 port 1"]);
    }

    /// Case D08: the preset's index is right only if the table says so; the right one is proposed.
    #[test]
    fn case_d08_the_index_that_the_target_sets() {
        let words = ["NCCL uses erdma_0: 1, erdma_1: 1", "NCCL takes 1 (RoCE v2, 172.16.15.237); usable: 1"];
        expect(&found(&good(), "host-gid"), Pass, None, &words);
        // The table of the case, on a device of the fabric.
        let (local, mapped) = ("fe80:0000:0000:0000:0216:3eff:fe16:58b6", "0000:0000:0000:0000:0000:ffff:ac10:0fee");
        let tree = SysTree::erdma();
        for device in ["erdma_0", "erdma_1"] {
            let port = SysTree::port_of(device);
            for (index, gid, kind) in
                [(0, local, "IB/RoCE v1"), (1, local, "RoCE v2"), (2, mapped, "IB/RoCE v1"), (3, mapped, "RoCE v2")]
            {
                tree.gid(&port, index, gid, kind, "eth2");
            }
        }
        let facts = load_captured(tree.root());
        let words = [
            "gid-unroutable",
            "NCCL_IB_GID_INDEX=1, which on erdma_0 port 1 is RoCE v2, link-local",
            "NCCL_IB_GID_INDEX=3 in",
        ];
        expect(&found(&facts, "host-gid"), Fail, Some(Job), &words);
        // Without the preset NCCL finds it.
        expect(&found_for(&facts, "host-gid", "ecs"), Pass, None, &["erdma_0: 3, erdma_1: 3"]);
        // A different index on each device.
        let tree = SysTree::erdma();
        tree.gid(PORT, 1, local, "RoCE v2", "eth2").gid(PORT, 2, mapped, "RoCE v2", "eth2");
        let words = ["on erdma_1 port 1 is RoCE v2, link-local", "NCCL_IB_GID_INDEX=-1"];
        expect(&found(&load_captured(tree.root()), "host-gid"), Fail, Some(Job), &words);
    }

    #[test]
    fn gids_that_are_missing_or_unclear() {
        let tree = SysTree::erdma();
        tree.file(&format!("{PORT}/gids/1"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        let words = ["erdma_1 port 1 has no GID with an address", "dhclient eth2"];
        expect(&found(&load_captured(tree.root()), "host-gid"), Fail, Some(Host), &words);
        let tree = SysTree::erdma();
        tree.file(&format!("{PORT}/gid_attrs/types/1"), "IB/RoCE v1\n");
        expect(
            &found(&load_captured(tree.root()), "host-gid"),
            Fail,
            Some(Host),
            &["RoCE v1, 172.16.15.238 but no RoCE v2"],
        );
        tree.remove(&format!("{PORT}/gid_attrs/types/1"));
        expect(&found(&load_captured(tree.root()), "host-gid"), Unknown, None, &["erdma_1 port 1"]);
        // IPv6 alone: NCCL skips it.
        let tree = SysTree::mlx5();
        for (index, kind) in [(2, "IB/RoCE v1"), (3, "RoCE v2")] {
            tree.gid(&SysTree::port_of("mlx5_3"), index, "2001:0db8:0000:0000:0000:0000:0000:0007", kind, "eth3");
        }
        let words = ["of mlx5_3 port 1 NCCL takes RoCE v1, link-local", "NCCL_IB_GID_INDEX=3"];
        expect(&found_for(&load_captured(tree.root()), "host-gid", "cce"), Fail, Some(Job), &words);
        let infiniband = load_captured(SysTree::infiniband().root());
        expect(&found_for(&infiniband, "host-gid", "cce"), Skip, None, &["InfiniBand"]);
    }

    #[test]
    fn mtus_that_ll128_works_with() {
        for (mtu, status) in [(1400, Pass), (8500, Pass), (1500, Fail), (9000, Fail)] {
            let tree = SysTree::erdma();
            for eth in ["eth1", "eth2"] {
                tree.file(&format!("sys/class/net/{eth}/mtu"), format!("{mtu}\n"));
            }
            let finding = found(&load_captured(tree.root()), "host-mtu");
            let (blame, words): (_, &[&str]) = if status == Fail {
                (Some(Host), &["LL128", "ip link set eth1 mtu 1400", "NCCL_PROTO=^LL128"])
            } else {
                (None, &[])
            };
            expect(&finding, status, blame, words);
        }
        let tree = SysTree::erdma();
        tree.file("sys/class/net/eth2/mtu", "8500\n");
        let words = ["different MTUs", "eth1 has MTU 1400, so 1024 on RDMA", "eth2 has MTU 8500, so 4096 on RDMA"];
        expect(&found(&load_captured(tree.root()), "host-mtu"), Warn, Some(Host), &words);
        tree.remove("sys/class/net/eth2/mtu");
        expect(&found(&load_captured(tree.root()), "host-mtu"), Unknown, None, &["MTU unknown"]);
        // The rule is eRDMA's.
        expect(
            &found_for(&load_captured(SysTree::mlx5().root()), "host-mtu", "cce"),
            Pass,
            None,
            &["MTU 4200, so 4096"],
        );
        expect(&found_for(&load_captured(SysTree::infiniband().root()), "host-mtu", "cce"), Skip, None, &[]);
    }

    /// Case D19: partitions are a hint on InfiniBand, and never one on eRDMA.
    #[test]
    fn case_d19_partition_keys() {
        let tree = SysTree::infiniband();
        let words = ["mlx5_0 port 1 has partition key 0x8123 at index 0", "NCCL_IB_PKEY=1", "1: 0xffff"];
        expect(&found_for(&load_captured(tree.root()), "host-pkey", "cce"), Warn, Some(Job), &words);
        let keys = "sys/class/infiniband/mlx5_0/ports/1/pkeys";
        tree.file(&format!("{keys}/0"), "0xffff\n");
        expect(&found_for(&load_captured(tree.root()), "host-pkey", "cce"), Pass, None, &[]);
        tree.remove(keys);
        expect(&found_for(&load_captured(tree.root()), "host-pkey", "cce"), Unknown, None, &[]);
        let erdma = SysTree::erdma();
        erdma.file(&format!("{PORT}/pkeys/0"), "0x8123\n");
        expect(&found(&load_captured(erdma.root()), "host-pkey"), Skip, None, &[]);
        let all = findings(&load_captured(erdma.root()), "pai-dlc", None);
        assert!(!serde_json::to_string(&all).unwrap().contains("NCCL_IB_PKEY"));
    }
}
