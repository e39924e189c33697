//! RoCE v2 on Mellanox NICs, as Baidu's GPU nodes have it.
//!
//! Sources: cloud.baidu.com, doc/CCE/s/Qmknnud7o (resource `rdma/hca`) and doc/BCC/s/ilks01soo (RoCE v2), read 2026-11;
//! rdma-core, `debian/ibverbs-providers.install` (the mlx5 provider is in the distributions' own packages).

use super::{Fabric, RPM_PACKAGES, Userspace, nic};

pub static ROCE: Fabric = Fabric {
    id: "roce",
    title: "RoCE on mlx5",
    driver: "mlx5",
    pci_vendor: nic::MELLANOX,
    apt_packages: &[&["libibverbs1"], &["ibverbs-providers"], &["ibverbs-utils"], &["librdmacm1t64", "librdmacm1"]],
    published_version: None,
    public_mirror: None,
    vpc_mirror: None,
    distros: &[],
    is_mellanox: true,
    rpm_packages: RPM_PACKAGES,
    userspaces: &[Userspace::Keep, Userspace::Inbox, Userspace::Doca],
    rpm_distros: &[],
};
