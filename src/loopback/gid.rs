//! Which slot of a GID table the queue pairs take.

use std::net::Ipv6Addr;

/// A slot of the table; an empty one is all zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub gid: Ipv6Addr,
    /// `RoCE v2`, `IB/RoCE v1`; `None`: the kernel does not say.
    pub kind: Option<String>,
}

impl Slot {
    pub fn is_empty(&self) -> bool {
        self.gid.is_unspecified()
    }

    /// NCCL's `getGidAddrFamily`: IPv4, also of an IPv4 multicast address.
    fn is_ipv4(&self) -> bool {
        let segments = self.gid.segments();
        self.gid.to_ipv4_mapped().is_some() || segments[..6] == [0xff0e, 0, 0, 0, 0, 0xffff]
    }

    /// NCCL's `linkLocalGid`: the first 64 bits are `fe80::`.
    fn is_link_local(&self) -> bool {
        self.gid.segments()[..4] == [0xfe80, 0, 0, 0]
    }

    /// NCCL's `validGid`.
    fn is_valid(&self) -> bool {
        !self.is_empty() && !self.is_link_local()
    }

    /// NCCL's `ncclIbRoceGetVersionNum`.
    fn roce_version(&self) -> Option<u32> {
        match self.kind.as_deref()? {
            kind if kind.starts_with("IB/RoCE v1") || kind.starts_with("RoCE v1") => Some(1),
            kind if kind.starts_with("RoCE v2") => Some(2),
            _ => None,
        }
    }

    /// Two hosts of different networks can talk with it.
    pub fn is_routable(&self) -> bool {
        self.is_valid() && self.roce_version() == Some(2)
    }
}

/// The version that NCCL asks for (`NCCL_IB_ROCE_VERSION_NUM`'s default).
const WANTED_VERSION: Option<u32> = Some(2);
/// The slot where NCCL looks for a routable FLID on InfiniBand (`NCCL_IB_ROUTABLE_FLID_GID_INDEX`'s default).
const ROUTABLE_FLID: usize = 1;

/// The slot that NCCL 2.21 and newer takes with `NCCL_IB_GID_INDEX` at -1 and its other variables not set (NVIDIA/nccl,
/// `src/transport/net_ib.cc` up to 2.28, `src/transport/net_ib/connect.cc` since: `ncclIbGetGidIndex`, `ncclUpdateGidIndex`).
///
/// On Ethernet it goes through the table once, from slot 0. It moves to a slot of family `AF_INET` from one that is not; and
/// among those to one of RoCE version 2 that is not link-local, from one that is of another version or not valid.
pub fn nccl_choice(table: &[Slot], is_infiniband: bool) -> usize {
    if is_infiniband {
        let has_flid = table.get(ROUTABLE_FLID).is_some_and(|slot| slot.gid.segments()[2] != 0);
        return if has_flid { ROUTABLE_FLID } else { 0 };
    }
    let mut chosen = 0;
    for candidate in 1..table.len() {
        let (current, next) = (&table[chosen], &table[candidate]);
        if !next.is_ipv4() {
            continue;
        }
        let is_other_version = current.roce_version() != next.roce_version() || !current.is_valid();
        let is_better = next.is_valid() && is_other_version && next.roce_version() == WANTED_VERSION;
        if !current.is_ipv4() || is_better {
            chosen = candidate;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_that_nccl_takes() {
        const LOCAL: &str = "fe80::216:3eff:fe2c:6aad";
        const V4: &str = "::ffff:10.0.60.3";
        const V6: &str = "2001:db8::7";
        let (v1, v2) = ("IB/RoCE v1", "RoCE v2");
        let table = |slots: &[(&str, &str)]| -> Vec<Slot> {
            let slot = |(gid, kind): &(&str, &str)| Slot { gid: gid.parse().unwrap(), kind: Some((*kind).to_owned()) };
            slots.iter().map(slot).collect()
        };
        for (slots, index) in [
            // mlx5; eRDMA and soft-RoCE.
            (vec![(LOCAL, v1), (LOCAL, v2), (V4, v1), (V4, v2)], 3),
            (vec![(LOCAL, v2), (V4, v2), ("::", ""), ("::", "")], 1),
            // An IPv4 address of version 1 only is taken for its family; without one, slot 0 stays.
            (vec![(LOCAL, v1), (LOCAL, v2), (V4, v1)], 2),
            (vec![(LOCAL, v1), (LOCAL, v2), (V6, v2)], 0),
            // A hole, and a table that begins late.
            (vec![(LOCAL, v1), ("::", ""), (V4, v2)], 2),
            (vec![("::", ""), ("::", ""), (LOCAL, v1), (V4, v1), (V4, v2)], 4),
            (vec![], 0),
        ] {
            assert_eq!(nccl_choice(&table(&slots), false), index, "{slots:?}");
        }
        assert_eq!(nccl_choice(&table(&[(LOCAL, v1), ("fec0:0:12:1::1", v1)]), true), 1);
        assert_eq!(nccl_choice(&table(&[(LOCAL, v1)]), true), 0);
    }

    #[test]
    fn routable_is_version_two_and_not_link_local() {
        let slot = |gid: &str, kind: &str| Slot { gid: gid.parse().unwrap(), kind: Some(kind.to_owned()) };
        assert!(slot("::ffff:10.0.60.3", "RoCE v2").is_routable());
        assert!(!slot("::ffff:10.0.60.3", "IB/RoCE v1").is_routable());
        assert!(!slot("fe80::1", "RoCE v2").is_routable());
        assert!(!slot("::", "RoCE v2").is_routable());
    }
}
