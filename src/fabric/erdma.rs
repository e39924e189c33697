//! Alibaba Cloud eRDMA.
//!
//! Sources: Alibaba Cloud help, "Use eRDMA in a Docker container" and "Use eRDMA for distributed training" (PAI), read
//! 2026-11; aliyun `elastic-rdma-drivers` 0.2.37, `scripts/patches` (package version, `ibv_devinfo` transport).

use super::{Fabric, RPM_PACKAGES, SupportedDistro, SupportedRpmDistro, Userspace, nic};

const X86: &[&str] = &["amd64"];
const X86_AND_ARM: &[&str] = &["amd64", "arm64"];

pub static ERDMA: Fabric = Fabric {
    id: "erdma",
    title: "Alibaba eRDMA",
    driver: "erdma",
    pci_vendor: nic::ALIBABA,
    // Both pages install these four; librdmacm1 was renamed in the 64-bit time transition of Ubuntu 24.04.
    apt_packages: &[&["libibverbs1"], &["ibverbs-providers"], &["ibverbs-utils"], &["librdmacm1t64", "librdmacm1"]],
    // elastic-rdma-drivers, scripts/patches/0014.
    published_version: Some("44.1-2"),
    public_mirror: Some("http://mirrors.aliyun.com/erdma"),
    vpc_mirror: Some("http://mirrors.cloud.aliyuncs.com/erdma"),
    distros: &[
        // The page lists 24.04 once under x86 and once under x86 and Arm; the repository decides.
        SupportedDistro { id: "ubuntu", version: "24.04", suite: "noble/erdma", architectures: X86_AND_ARM },
        SupportedDistro { id: "ubuntu", version: "22.04", suite: "jammy/erdma", architectures: X86_AND_ARM },
        SupportedDistro { id: "ubuntu", version: "20.04", suite: "focal/erdma", architectures: X86 },
        SupportedDistro { id: "ubuntu", version: "18.04", suite: "bionic/erdma", architectures: X86 },
    ],
    is_mellanox: false,
    // That a stock rdma-core works with the vendor's driver is not established.
    userspaces: &[Userspace::Vendor],
    rpm_packages: RPM_PACKAGES,
    // The first page lists them, and says that Anolis is not supported; "Use eRDMA" (ACK) names only one directory,
    // that of Red Hat 7.
    rpm_distros: &[
        rpm("alinux", "3", "alinux/3/erdma", X86_AND_ARM),
        rpm("alinux", "2", "alinux/2/erdma", X86),
        rpm("centos", "8", "redhat/8/erdma", X86),
        SupportedRpmDistro { documented: true, ..rpm("centos", "7", "redhat/7/erdma", X86) },
        // CentOS is a rebuild of it, and the directory has its name.
        SupportedRpmDistro { listed_as: Some("CentOS 8"), ..rpm("rhel", "8", "redhat/8/erdma", X86) },
        SupportedRpmDistro { listed_as: Some("CentOS 7"), documented: true, ..rpm("rhel", "7", "redhat/7/erdma", X86) },
    ],
};

const fn rpm(
    id: &'static str,
    version: &'static str,
    directory: &'static str,
    architectures: &'static [&'static str],
) -> SupportedRpmDistro {
    SupportedRpmDistro { id, version, directory, listed_as: None, documented: false, architectures }
}
