//! Whose RDMA device it is: the one place that knows PCI vendors and kernel drivers.
//!
//! Input: what sysfs shows of a device. Output: its maker, and whether a fabric drives it.

use super::Fabric;
use serde::{Deserialize, Serialize};

/// PCI vendor of Alibaba (elastic-rdma-drivers, kernel/src/erdma_hw.h, `PCI_VENDOR_ID_ALIBABA`).
pub const ALIBABA: &str = "0x1ded";
/// PCI vendor of Mellanox (Linux, include/linux/pci_ids.h, `PCI_VENDOR_ID_MELLANOX`).
pub const MELLANOX: &str = "0x15b3";

/// What an RDMA device is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nic<'a> {
    /// The PCI vendor, such as `0x1ded`; `None`: sysfs does not show it.
    pub pci_vendor: Option<&'a str>,
    /// The bound kernel driver: `erdma`, `mlx5_core`, `mlx5_core.sf` on the auxiliary bus; `None`: sysfs does not show it.
    pub driver: Option<&'a str>,
    /// udev may have given any name: `rocep26s0`.
    pub name: &'a str,
}

impl<'a> Nic<'a> {
    /// The module of the bound driver. Drivers on the auxiliary bus are named `module.function` (Linux,
    /// drivers/base/auxiliary.c).
    pub fn module(&self) -> Option<&'a str> {
        self.driver.and_then(|driver| driver.split('.').next())
    }
}

impl Fabric {
    /// Whether a device is the fabric's. The first of these that is known decides:
    ///
    /// 1. the bound kernel driver, which is what a provider of libibverbs opens (a vendor has devices of several: `mlx4_core`,
    ///    `mlx5_core`);
    /// 2. the PCI vendor, where a capture or a container does not show the driver;
    /// 3. the name, since nothing else is left.
    pub fn drives(&self, nic: Nic<'_>) -> bool {
        match (nic.module(), nic.pci_vendor) {
            (Some(module), _) => module.starts_with(self.driver),
            (None, Some(vendor)) => vendor.eq_ignore_ascii_case(self.pci_vendor),
            (None, None) => nic.name.starts_with(self.driver),
        }
    }
}

/// The vendor, by PCI vendor or driver, never by name, since udev may give any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Maker {
    AlibabaErdma,
    Mellanox,
    /// RDMA in software over any interface (`rdma_rxe`).
    SoftRoce,
    /// iWARP in software over any interface (`siw`).
    SoftIwarp,
    AmazonEfa,
    Broadcom,
    Intel,
    Other,
}

/// Maker, PCI vendor (pci.ids) and kernel modules, by which a device is known that has no PCI ids in a captured tree.
const MAKERS: [(Maker, &str, &[&str]); 5] = [
    (Maker::AlibabaErdma, ALIBABA, &["erdma"]),
    (Maker::Mellanox, MELLANOX, &["mlx5_core", "mlx4_core"]),
    (Maker::AmazonEfa, "0x1d0f", &["efa"]),
    (Maker::Broadcom, "0x14e4", &["bnxt_en"]),
    (Maker::Intel, "0x8086", &["ice", "i40e", "hfi1"]),
];

impl Maker {
    /// The maker of a device; `None`: its PCI vendor and driver are not shown, or belong to no known maker.
    pub fn of(nic: Nic<'_>) -> Option<Maker> {
        let by_vendor = MAKERS.iter().find(|(_, vendor, _)| nic.pci_vendor == Some(*vendor));
        let by_module = || MAKERS.iter().find(|(_, _, modules)| modules.iter().any(|name| nic.module() == Some(*name)));
        by_vendor.or_else(by_module).map(|(maker, _, _)| *maker)
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Maker::AlibabaErdma => "Alibaba eRDMA",
            Maker::Mellanox => "NVIDIA Mellanox",
            Maker::SoftRoce => "Soft-RoCE",
            Maker::SoftIwarp => "software iWARP",
            Maker::AmazonEfa => "Amazon EFA",
            Maker::Broadcom => "Broadcom",
            Maker::Intel => "Intel",
            Maker::Other => "unknown maker",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{erdma::ERDMA, roce::ROCE};
    use super::*;

    #[test]
    fn the_driver_decides_then_the_vendor_then_the_name() {
        for (pci_vendor, driver, name, erdma, roce) in [
            // Case D06: a device may have any name.
            (Some("0x1ded"), Some("erdma"), "rocep26s0", true, false),
            (Some("0x15b3"), Some("mlx5_core"), "erdma_0", false, true),
            // A scalable function is on the auxiliary bus, which has no `vendor` file.
            (None, Some("mlx5_core.sf"), "mlx5_4", false, true),
            // libmlx4 opens it, and libmlx5 does not.
            (Some("0x15b3"), Some("mlx4_core"), "mlx4_0", false, false),
            (Some("0x1DED"), None, "x", true, false),
            (Some("0x15b3"), None, "erdma_0", false, true),
            (None, None, "erdma_0", true, false),
            (None, None, "mlx5_bond_0", false, true),
            (None, None, "rxe_0", false, false),
        ] {
            let nic = Nic { pci_vendor, driver, name };
            assert_eq!((ERDMA.drives(nic), ROCE.drives(nic)), (erdma, roce), "{nic:?}");
        }
    }

    #[test]
    fn makers_are_known_by_vendor_or_driver() {
        for (pci_vendor, driver, maker) in [
            (Some("0x1ded"), Some("erdma"), Some(Maker::AlibabaErdma)),
            (None, Some("erdma"), Some(Maker::AlibabaErdma)),
            (Some("0x15b3"), None, Some(Maker::Mellanox)),
            (None, Some("mlx5_core.sf"), Some(Maker::Mellanox)),
            (Some("0x1234"), Some("x"), None),
            (None, None, None),
        ] {
            assert_eq!(Maker::of(Nic { pci_vendor, driver, name: "erdma_0" }), maker, "{pci_vendor:?} {driver:?}");
        }
    }
}
