//! GIDs: what one means, and which one NCCL uses.

use crate::facts::devices::{Gid, NcclGid};
use std::net::{Ipv4Addr, Ipv6Addr};

/// `fe80:0000:0000:0000:0216:3eff:fe2c:6aad` → address; `None`: not a GID, or all zero, which is an empty slot.
pub fn parse_gid(text: &str) -> Option<Ipv6Addr> {
    text.trim().parse::<Ipv6Addr>().ok().filter(|gid| !gid.is_unspecified())
}

/// A used slot.
pub fn gid(index: u32, text: &str, kind: Option<String>, netdev: Option<String>) -> Option<Gid> {
    let address = parse_gid(text)?;
    // A bare `fe80::` is the prefix of an interface that has no address yet (show_gids omits it too).
    if address == Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0) {
        return None;
    }
    Some(Gid {
        index,
        gid: text.trim().to_owned(),
        kind: kind.filter(|kind| !kind.is_empty()),
        netdev,
        ipv4: mapped(address),
        is_link_local: is_link_local(address),
    })
}

/// `fe80:0000:0000:0000:0216:3eff:fe2c:6aad` → `0216:3eff:fe2c:6aad`; `None`: those bits are zero, or contain an IPv4 address.
pub fn port_guid(text: &str) -> Option<String> {
    let address = parse_gid(text)?;
    let [.., a, b, c, d] = address.segments();
    let is_guid = (a | b | c | d) != 0 && mapped(address).is_none();
    is_guid.then(|| format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}"))
}

fn mapped(gid: Ipv6Addr) -> Option<Ipv4Addr> {
    gid.to_ipv4_mapped()
}

/// NCCL's `linkLocalGid`: the first 64 bits are `fe80::`.
fn is_link_local(gid: Ipv6Addr) -> bool {
    gid.segments()[..4] == [0xfe80, 0, 0, 0]
}

/// NCCL's `getGidAddrFamily`: IPv4, also of an IPv4 multicast address, or not.
fn is_ipv4(gid: Ipv6Addr) -> bool {
    let segments = gid.segments();
    mapped(gid).is_some() || segments[..6] == [0xff0e, 0, 0, 0, 0, 0xffff]
}

/// NCCL's `validGid`: in use and not link-local.
fn is_valid(gid: Ipv6Addr) -> bool {
    !gid.is_unspecified() && !is_link_local(gid)
}

/// NCCL's `ncclIbRoceGetVersionNum`; `None`: the kernel does not say.
fn roce_version(kind: Option<&str>) -> Option<u32> {
    match kind? {
        kind if kind.starts_with("IB/RoCE v1") || kind.starts_with("RoCE v1") => Some(1),
        kind if kind.starts_with("RoCE v2") => Some(2),
        _ => None,
    }
}

/// The slot that NCCL uses on Ethernet with `NCCL_IB_GID_INDEX` at -1 and its other variables not set: address family
/// `AF_INET`, RoCE version 2, no address range (NVIDIA/nccl, `src/transport/net_ib.cc` of 2.21.5 to 2.28,
/// `src/transport/net_ib/connect.cc` of 2.29 and 2.30: `ncclIbGetGidIndex`, `ncclUpdateGidIndex`).
///
/// Starting at slot 0, it moves to a slot of the wanted family if the current one is of the other, whatever its version; and
/// within the family to one of version 2 if the current one is of another version, or not valid. The first such slot
/// stays.
pub fn nccl_roce_index(gids: &[Gid]) -> u32 {
    const WANTED_VERSION: Option<u32> = Some(2);
    // An empty slot reads as zero.
    let at = |index: u32| {
        let slot = gids.iter().find(|gid| gid.index == index);
        let address = slot.and_then(|slot| parse_gid(&slot.gid)).unwrap_or(Ipv6Addr::UNSPECIFIED);
        (address, roce_version(slot.and_then(|slot| slot.kind.as_deref())))
    };
    let length = gids.last().map_or(0, |gid| gid.index + 1);
    let mut chosen = 0;
    for candidate in 1..length {
        let ((gid, version), (next, next_version)) = (at(chosen), at(candidate));
        if !is_ipv4(next) {
            continue;
        }
        let is_other_family = !is_ipv4(gid);
        let is_better = is_valid(next) && (version != next_version || !is_valid(gid)) && next_version == WANTED_VERSION;
        if is_other_family || is_better {
            chosen = candidate;
        }
    }
    chosen
}

/// The default of `NCCL_IB_ROUTABLE_FLID_GID_INDEX`.
const ROUTABLE_FLID_INDEX: u32 = 1;

/// The slot that NCCL uses on InfiniBand: slot 1 if it has a routable FLID (bits 32 to 47), else 0 (the same function,
/// from 2.22 on; before, 0 unless the port is on several subnets).
pub fn nccl_infiniband_index(gids: &[Gid]) -> u32 {
    let slot = gids.iter().find(|gid| gid.index == ROUTABLE_FLID_INDEX);
    let flid = slot.and_then(|slot| parse_gid(&slot.gid)).map_or(0, |gid| gid.segments()[2]);
    if flid == 0 { 0 } else { ROUTABLE_FLID_INDEX }
}

/// The slot that NCCL uses, and what it contains; `None`: the table is empty.
pub fn nccl_choice(gids: &[Gid], is_infiniband: bool) -> Option<NcclGid> {
    if gids.is_empty() {
        return None;
    }
    if is_infiniband {
        let index = nccl_infiniband_index(gids);
        let reason = if index == 0 { "InfiniBand: slot 0" } else { "InfiniBand: a routable FLID" };
        return Some(NcclGid {
            index,
            is_usable: gids.iter().any(|gid| gid.index == index),
            reason: reason.to_owned(),
        });
    }
    let index = nccl_roce_index(gids);
    let slot = gids.iter().find(|gid| gid.index == index);
    Some(NcclGid { index, is_usable: slot.is_some_and(Gid::is_routable), reason: Gid::describe(slot) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "fe80:0000:0000:0000:0216:3eff:fe2c:6aad";
    const V4: &str = "0000:0000:0000:0000:0000:ffff:0a00:3c03";
    const OTHER_V4: &str = "0000:0000:0000:0000:0000:ffff:190b:8002";
    const V6: &str = "2001:0db8:0000:0000:0000:0000:0000:0007";
    const ZERO: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
    const MAC: &str = "0016:3e2c:6aad:0000:0000:0000:0000:0000";

    fn table(slots: &[(&str, &str)]) -> Vec<Gid> {
        let slots = (0..).zip(slots);
        slots.filter_map(|(index, (text, kind))| gid(index, text, Some((*kind).to_owned()), None)).collect()
    }

    #[test]
    fn slots_in_use() {
        assert_eq!(table(&[(ZERO, "RoCE v2"), ("fe80::", "RoCE v2"), ("x", ""), ("", "")]), []);
        let found = table(&[(V4, "RoCE v2"), (LOCAL, ""), (MAC, "IB/RoCE v1")]);
        assert_eq!(found[0].ipv4, Some(Ipv4Addr::new(10, 0, 60, 3)));
        assert!(found[0].is_routable() && !found[0].is_link_local);
        assert!(found[1].is_link_local && found[1].kind.is_none() && found[1].ipv4.is_none());
        let said: Vec<String> = found.iter().map(|gid| Gid::describe(Some(gid))).collect();
        assert_eq!(said, ["RoCE v2, 10.0.60.3", "of unknown type, link-local", &format!("RoCE v1, {MAC}")]);
        assert_eq!(Gid::describe(None), "empty");
        assert_eq!(port_guid(LOCAL).as_deref(), Some("0216:3eff:fe2c:6aad"));
        for none in [V4, MAC, ZERO, "x"] {
            assert_eq!(port_guid(none), None, "{none}");
        }
    }

    /// Each line follows `ncclUpdateGidIndex` by hand.
    #[test]
    fn the_slot_that_nccl_takes_on_ethernet() {
        let (v1, v2) = ("IB/RoCE v1", "RoCE v2");
        for (slots, index, usable) in [
            // mlx5: link-local and IPv4, each in both versions.
            (vec![(LOCAL, v1), (LOCAL, v2), (V4, v1), (V4, v2)], 3, true),
            // eRDMA in compat mode: version 2 only.
            (vec![(LOCAL, v2), (V4, v2)], 1, true),
            // The first of several addresses stays.
            (vec![(LOCAL, v1), (LOCAL, v2), (V4, v1), (V4, v2), (OTHER_V4, v1), (OTHER_V4, v2)], 3, true),
            // An IPv4 address of version 1 only is taken, for its family.
            (vec![(LOCAL, v1), (LOCAL, v2), (V4, v1)], 2, false),
            // No IPv4 address at all: slot 0, whatever it is.
            (vec![(LOCAL, v1), (LOCAL, v2), (V6, v2)], 0, false),
            (vec![(V6, v2), (LOCAL, v2)], 0, true),
            // Slot 0 is IPv4 of version 2: nothing is better.
            (vec![(V4, v2), (OTHER_V4, v2)], 0, true),
            (vec![(V4, v1), (OTHER_V4, v2)], 1, true),
            // Holes; a container's table that starts at 4.
            (vec![(ZERO, ""), (ZERO, ""), (ZERO, ""), (ZERO, ""), (LOCAL, v1), (V4, v1), (V4, v2)], 6, true),
            (vec![(LOCAL, v1), (ZERO, ""), (ZERO, ""), (V4, v2)], 3, true),
            // A kernel that does not say the type.
            (vec![(LOCAL, ""), (V4, "")], 1, false),
            // iWARP: one entry, the MAC.
            (vec![(MAC, v1)], 0, false),
        ] {
            let choice = nccl_choice(&table(&slots), false).unwrap();
            assert_eq!((choice.index, choice.is_usable), (index, usable), "{slots:?}: {choice:?}");
        }
        assert_eq!(nccl_choice(&[], false), None);
    }

    #[test]
    fn the_slot_that_nccl_takes_on_infiniband() {
        let port = "fe80:0000:0000:0000:e8eb:d303:00cc:c920";
        let flid = "fec0:0000:0012:0001:e8eb:d303:00cc:c920";
        for (slots, index) in [(vec![(port, "IB/RoCE v1")], 0), (vec![(port, ""), (flid, "")], 1)] {
            let choice = nccl_choice(&table(&slots), true).unwrap();
            assert_eq!((choice.index, choice.is_usable), (index, true));
        }
    }
}
