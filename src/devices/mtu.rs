//! The MTU of a port, from the MTU of its interface: sysfs has none for the port.

use crate::facts::devices::Maker;

/// MTUs of InfiniBand (specification 1.4, PortInfo), in bytes.
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// The most that a RoCE packet holds besides the data: GRH 40, UDP 8, BTH 12, XRC 4, atomic header 28, ICRC 4 (Linux,
/// `include/rdma/ib_addr.h`, `iboe_get_mtu`).
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// The active MTU in bytes that a driver reports for an Ethernet port. eRDMA uses the largest MTU not above the
/// interface's, without subtracting headers (elastic-rdma-drivers, `erdma_query_port`: `ib_mtu_int_to_enum(netdev->mtu)`).
pub(super) fn active_mtu(maker: Maker, netdev_mtu: u32) -> Option<u32> {
    let room = match maker {
        Maker::AlibabaErdma => netdev_mtu.max(256),
        _ => netdev_mtu.checked_sub(ROCE_HEADERS)?,
    };
    MTUS.into_iter().find(|mtu| *mtu <= room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_follow_from_the_interface() {
        for (netdev, erdma, roce) in [
            (1400, Some(1024), Some(1024)),
            (1500, Some(1024), Some(1024)),
            (8500, Some(4096), Some(4096)),
            (9000, Some(4096), Some(4096)),
            (4200, Some(4096), Some(4096)),
            // Headers make the difference.
            (4100, Some(4096), Some(2048)),
            (1100, Some(1024), Some(512)),
            (351, Some(256), None),
            (68, Some(256), None),
        ] {
            let found = (active_mtu(Maker::AlibabaErdma, netdev), active_mtu(Maker::Mellanox, netdev));
            assert_eq!(found, (erdma, roce), "{netdev}");
        }
    }
}
