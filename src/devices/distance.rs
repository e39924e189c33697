//! How far apart two PCI devices are, by their paths in sysfs.

use crate::facts::devices::PciDistance;

/// A PCI path: host bridge, then the bridges down to the device (`/sys/devices/pci0000:50/0000:50:01.0/0000:53:00.0`).
pub(super) fn place(real_path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = real_path.split('/').collect();
    let bridge = parts.iter().position(|part| part.starts_with("pci") && part.contains(':'))?;
    Some(parts[bridge..].to_vec()).filter(|place| place.len() > 1)
}

/// Distance in the terms of `nvidia-smi topo -m`: PIX, one bridge at most; PXB, several without a host bridge; PHB, over a
/// host bridge; NODE, between host bridges of one NUMA node; SYS, between NUMA nodes. A switch has a bridge upstream and one
/// for each device below, which count as one (so does NVIDIA/nccl `src/graph/topo.cc`).
pub(super) fn distance(a: &str, b: &str, same_numa_node: bool) -> Option<PciDistance> {
    /// Below the last common bridge: a switch's own bridge and the device.
    const ONE_SWITCH: usize = 2;
    let (a, b) = (place(a)?, place(b)?);
    if a[0] != b[0] {
        return Some(if same_numa_node { PciDistance::Node } else { PciDistance::Sys });
    }
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    if common == 1 {
        return Some(PciDistance::Phb);
    }
    let is_one = a.len() - common <= ONE_SWITCH && b.len() - common <= ONE_SWITCH;
    Some(if is_one { PciDistance::Pix } else { PciDistance::Pxb })
}

#[cfg(test)]
mod tests {
    use super::*;
    use PciDistance::*;

    #[test]
    fn distances_of_a_switched_node() {
        let at = |path: &str| format!("/sys/devices/{path}");
        // Root port 50:01.0, a switch 51:00.0 with 52:00.0 and 52:01.0 below it, and a second switch below 52:02.0.
        let gpu = at("pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:00.0/0000:53:00.0");
        for (nic, same_numa, found) in [
            ("pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:01.0/0000:54:00.0", true, Some(Pix)),
            (
                "pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:02.0/0000:55:00.0/0000:56:00.0/0000:57:00.0",
                true,
                Some(Pxb),
            ),
            ("pci0000:50/0000:50:02.0/0000:58:00.0", true, Some(Phb)),
            ("pci0000:60/0000:60:01.0/0000:61:00.0", true, Some(Node)),
            ("pci0000:60/0000:60:01.0/0000:61:00.0", false, Some(Sys)),
            // Two functions of one device.
            ("pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:00.0/0000:53:00.1", true, Some(Pix)),
            ("virtual/infiniband/rxe_0", true, None),
            ("pci0000:50", true, None),
        ] {
            assert_eq!(distance(&gpu, &at(nic), same_numa), found, "{nic}");
            assert_eq!(distance(&at(nic), &gpu, same_numa), found, "{nic}, from the other side");
        }
        // A virtual machine without bridges.
        assert_eq!(distance(&at("pci0000:00/0000:00:07.0"), &at("pci0000:00/0000:00:08.0"), true), Some(Phb));
    }
}
