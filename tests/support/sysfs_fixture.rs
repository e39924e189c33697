//! Captured trees of hosts, as directories: start from one, break one thing. `tests/data/sysfs/README.md` says what each is
//! made from.

#![allow(dead_code)]

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree that is gone with this value.
pub struct SysTree {
    dir: tempfile::TempDir,
}

/// An interface of a tree.
pub struct Net<'a> {
    pub name: &'a str,
    pub mac: &'a str,
    pub mtu: u32,
    pub state: &'a str,
    pub speed: Option<u32>,
}

impl SysTree {
    /// A host with no RDMA device and no GPU.
    pub fn plain() -> SysTree {
        let tree = SysTree { dir: tempfile::tempdir().unwrap() };
        tree.file("sys/class/net/lo/mtu", "65536\n").file("sys/class/net/lo/address", "00:00:00:00:00:00\n");
        tree.file("proc/sys/kernel/hostname", "node-1\n").file("proc/sys/kernel/osrelease", "5.10.134-16.al8.x86_64\n");
        tree.file("dev/null", "");
        tree.limits("unlimited");
        tree
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &SysTree {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub fn link(&self, path: &str, target: &str) -> &SysTree {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    pub fn remove(&self, path: &str) -> &SysTree {
        let path = self.path(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        self
    }

    pub fn limits(&self, memlock: &str) -> &SysTree {
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max locked memory         {memlock:<20} {memlock:<20} bytes     \n"
        );
        self.file("proc/self/limits", limits).file("proc/self/status", "Name:\tcat\nCapEff:\t0000000000000000\n")
    }

    pub fn module(&self, name: &str, version: Option<&str>, parameters: &[(&str, &str)]) -> &SysTree {
        self.file(&format!("sys/module/{name}/initstate"), "live\n");
        if let Some(version) = version {
            self.file(&format!("sys/module/{name}/version"), format!("{version}\n"));
        }
        for (parameter, value) in parameters {
            self.file(&format!("sys/module/{name}/parameters/{parameter}"), format!("{value}\n"));
        }
        self
    }

    /// A PCI device at `pci0000:00/0000:00:07.0`, below `sys/devices`.
    fn pci(&self, place: &str, ids: [&str; 2], class: &str, numa: i32, driver: &str) -> &SysTree {
        let address = place.rsplit('/').next().unwrap();
        let folder = format!("sys/devices/{place}");
        self.file(&format!("{folder}/vendor"), format!("{}\n", ids[0]));
        self.file(&format!("{folder}/device"), format!("{}\n", ids[1]));
        self.file(&format!("{folder}/subsystem_vendor"), format!("{}\n", ids[0]));
        self.file(&format!("{folder}/subsystem_device"), format!("{}\n", ids[1]));
        self.file(&format!("{folder}/class"), format!("{class}\n"));
        self.file(&format!("{folder}/numa_node"), format!("{numa}\n"));
        self.file(&format!("sys/bus/pci/drivers/{driver}/module/initstate"), "live\n");
        let up = "../".repeat(place.split('/').count() + 1);
        self.link(&format!("{folder}/driver"), &format!("{up}bus/pci/drivers/{driver}"));
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../devices/{place}"))
    }

    /// An interface below a device, or of none (`virtual`).
    pub fn net(&self, below: &str, net: &Net<'_>) -> &SysTree {
        let folder = format!("sys/devices/{below}/net/{}", net.name);
        self.file(&format!("{folder}/address"), format!("{}\n", net.mac));
        self.file(&format!("{folder}/mtu"), format!("{}\n", net.mtu));
        self.file(&format!("{folder}/operstate"), format!("{}\n", net.state));
        self.file(&format!("{folder}/dev_port"), "0\n");
        if let Some(speed) = net.speed {
            self.file(&format!("{folder}/speed"), format!("{speed}\n"));
        }
        if below != "virtual" {
            self.link(&format!("{folder}/device"), "../..");
        }
        self.link(&format!("sys/class/net/{}", net.name), &format!("../../devices/{below}/net/{}", net.name))
    }

    /// The class link, the link to the PCI device, node type, GUID and uverbs node of a device.
    fn ib_device(&self, below: &str, name: &str, node_type: &str, guid: &str, uverbs: u32) -> String {
        let folder = format!("sys/devices/{below}/infiniband/{name}");
        self.file(&format!("{folder}/node_type"), format!("{node_type}\n"));
        self.file(&format!("{folder}/node_guid"), format!("{guid}\n"));
        self.file(&format!("{folder}/sys_image_guid"), format!("{guid}\n"));
        self.link(&format!("sys/class/infiniband/{name}"), &format!("../../devices/{below}/infiniband/{name}"));
        if below != "virtual" {
            self.link(&format!("{folder}/device"), "../..");
        }
        self.file(&format!("sys/class/infiniband_verbs/uverbs{uverbs}/ibdev"), format!("{name}\n"));
        self.file("sys/class/infiniband_verbs/abi_version", "6\n");
        self.file(&format!("dev/infiniband/uverbs{uverbs}"), "").file("dev/infiniband/rdma_cm", "");
        folder
    }

    fn port(&self, device: &str, state: &str, physical: &str, rate: &str, link_layer: &str) -> String {
        let port = format!("{device}/ports/1");
        for (file, text) in [
            ("state", state),
            ("phys_state", physical),
            ("rate", rate),
            ("link_layer", link_layer),
            ("lid", "0x0"),
            ("sm_lid", "0x0"),
            ("lid_mask_count", "0"),
            ("cap_mask", "0x00010000"),
        ] {
            self.file(&format!("{port}/{file}"), format!("{text}\n"));
        }
        port
    }

    /// A slot of a GID table.
    pub fn gid(&self, port: &str, index: u32, gid: &str, kind: &str, netdev: &str) -> &SysTree {
        self.file(&format!("{port}/gids/{index}"), format!("{gid}\n"));
        self.file(&format!("{port}/gid_attrs/types/{index}"), format!("{kind}\n"));
        if !netdev.is_empty() {
            self.file(&format!("{port}/gid_attrs/ndevs/{index}"), format!("{netdev}\n"));
        }
        self
    }

    /// Slots that are empty: the kernel gives zero as GID, and EINVAL for the rest, which a capture leaves empty.
    fn empty_gids(&self, port: &str, slots: std::ops::Range<u32>) {
        for index in slots {
            self.file(&format!("{port}/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
            self.file(&format!("{port}/gid_attrs/types/{index}"), "")
                .file(&format!("{port}/gid_attrs/ndevs/{index}"), "");
        }
    }

    /// The directory of a device's first port.
    pub fn port_of(device: &str) -> String {
        format!("sys/class/infiniband/{device}/ports/1")
    }

    pub fn counters(&self, device: &str, values: &[(&str, u64)]) -> &SysTree {
        let port = SysTree::port_of(device);
        for (name, value) in values {
            self.file(&format!("{port}/{name}"), format!("{value}\n"));
        }
        self
    }

    fn nvidia(&self, version: &str, open: bool) -> &SysTree {
        let name = if open { "NVIDIA UNIX Open Kernel Module for x86_64" } else { "NVIDIA UNIX x86_64 Kernel Module" };
        self.file(
            "proc/driver/nvidia/version",
            format!("NVRM version: {name}  {version}  Release Build\nGCC version: 12\n"),
        );
        self.module("nvidia", Some(version), &[])
    }

    fn gpu(&self, place: &str, numa: i32, minor: u32, model: &str) -> &SysTree {
        let address = place.rsplit('/').next().unwrap();
        self.pci(place, ["0x10de", "0x2330"], "0x030200", numa, "nvidia");
        let text = format!(
            "Model: \t\t {model}\nIRQ:   \t\t 41\nGPU UUID: \t GPU-00000000-0000-0000-0000-00000000000{minor}\nBus Type: \t PCIe\n\
             Bus Location: \t {address}\nDevice Minor: \t {minor}\n"
        );
        self.file(&format!("proc/driver/nvidia/gpus/{address}/information"), text)
    }

    /// One eRDMA device with its interface: number, PCI slot, GUID, MAC, address.
    fn erdma_device(&self, number: u32, compat: bool, guid: &str, mac: &str, address: Ipv4Addr) {
        let (numa, bus) = if number == 0 { (0, "00") } else { (1, "80") };
        let place = format!("pci0000:{bus}/0000:{bus}:07.0");
        self.pci(&place, ["0x1ded", "0x107f"], "0x020000", numa, "erdma");
        let net_place = format!("pci0000:{bus}/0000:{bus}:05.0");
        self.pci(&net_place, ["0x1af4", "0x1000"], "0x020000", numa, "virtio-pci");
        let eth = format!("eth{}", number + 1);
        self.net(&net_place, &Net { name: &eth, mac, mtu: 1400, state: "up", speed: None });
        let name = format!("erdma_{number}");
        let node_type = if compat { "1: CA" } else { "4: RNIC" };
        let device = self.ib_device(&place, &name, node_type, guid, number);
        self.file(&format!("{device}/fw_ver"), "0.2.0\n");
        self.file(&format!("{device}/node_desc"), "Elastic RDMA(iWARP) stack\n");
        let port = self.port(&device, "4: ACTIVE", "5: LinkUp", "100 Gb/sec (4X EDR)", "Ethernet");
        let [a, b, c, d] = address.octets();
        if compat {
            self.gid(&port, 0, &format!("fe80:0000:0000:0000:{guid}"), "RoCE v2", &eth);
            let mapped = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
            self.gid(&port, 1, &mapped, "RoCE v2", &eth);
            self.empty_gids(&port, 2..16);
        } else {
            let hex: String = mac.split(':').collect();
            let gid = format!("{}:{}:{}:0000:0000:0000:0000:0000", &hex[..4], &hex[4..8], &hex[8..]);
            self.gid(&port, 0, &gid, "IB/RoCE v1", "");
        }
        self.file(&format!("{port}/pkeys/0"), "0xffff\n");
        self.counters(
            &name,
            &[
                ("hw_counters/hw_tx_bytes_cnt", 1_643_640_000),
                ("hw_counters/hw_rx_bytes_cnt", 1_643_630_000),
                ("hw_counters/hw_tx_packets_cnt", 1_100_000),
                ("hw_counters/hw_rx_packets_cnt", 1_100_010),
                ("hw_counters/hw_bps_limit_drop_cnt", 0),
                ("hw_counters/hw_rx_bps_limit_drop_cnt", 3),
                ("hw_counters/lifespan", 10),
            ],
        );
    }

    fn erdma_host(compat: bool) -> SysTree {
        let tree = SysTree::plain();
        tree.erdma_device(0, compat, "0216:3eff:fe2c:6aad", "00:16:3e:2c:6a:ad", Ipv4Addr::new(172, 16, 15, 237));
        tree.erdma_device(1, compat, "0216:3eff:fe16:58b6", "00:16:3e:16:58:b6", Ipv4Addr::new(172, 16, 15, 238));
        let mode = if compat { "Y" } else { "N" };
        tree.module("erdma", Some("0.2.37"), &[("compat_mode", mode), ("default_cc", "4"), ("vector_num", "0")]);
        tree.module("ib_uverbs", None, &[]);
        tree.nvidia("550.54.14", false).module("nvidia_peermem", Some("550.54.14"), &[]);
        tree.gpu("pci0000:00/0000:00:08.0", 0, 0, "NVIDIA L20");
        tree.gpu("pci0000:80/0000:80:08.0", 1, 1, "NVIDIA L20");
        tree
    }

    /// Two eRDMA devices in compat mode, and two GPUs.
    pub fn erdma() -> SysTree {
        SysTree::erdma_host(true)
    }

    /// That host with `compat_mode=N`.
    pub fn erdma_iwarp() -> SysTree {
        SysTree::erdma_host(false)
    }

    /// The node of a training cluster with `mlx5_0` for the VPC, `mlx5_1` to `mlx5_8` for RDMA, and eight GPUs.
    pub fn mlx5() -> SysTree {
        let tree = SysTree::plain();
        tree.file("proc/sys/kernel/osrelease", "5.4.0-131-generic\n");
        // Device, EUI-64 of the GID, IPv4 address.
        let devices = [
            ("f820:20ff:fe28:c769", [10, 0, 60, 3]),
            ("eaeb:d3ff:fecc:c920", [25, 11, 128, 2]),
            ("eaeb:d3ff:fecc:c921", [25, 11, 128, 34]),
            ("eaeb:d3ff:fe6c:51d2", [25, 11, 128, 66]),
            ("eaeb:d3ff:fe6c:51d3", [25, 11, 128, 98]),
            ("eaeb:d3ff:fe33:1366", [25, 11, 128, 130]),
            ("eaeb:d3ff:fe33:1367", [25, 11, 128, 162]),
            ("eaeb:d3ff:fe6c:68ae", [25, 11, 128, 194]),
            ("eaeb:d3ff:fe6c:68af", [25, 11, 128, 226]),
        ];
        for (number, (eui, [a, b, c, d])) in (0_u32..).zip(devices) {
            // Two ports of one card are two functions; the cards are below the switches of the GPUs.
            let place = match number {
                0 => "pci0000:00/0000:00:01.0/0000:01:00.0".to_owned(),
                _ => {
                    let (card, function) = ((number - 1) / 2, (number - 1) % 2);
                    let bus = ["50", "6a", "89", "c6"][card as usize];
                    format!("{}/0000:{bus}:10.{card}/0000:{bus}:1f.{function}", switch(card))
                }
            };
            let numa = i32::from(number > 4);
            tree.pci(&place, ["0x15b3", "0x101d"], "0x020000", numa, "mlx5_core");
            let eth = format!("eth{number}");
            let speed = if number == 0 { 25_000 } else { 100_000 };
            let mac = mac_of(eui);
            tree.net(&place, &Net { name: &eth, mac: &mac, mtu: 4200, state: "up", speed: Some(speed) });
            let name = format!("mlx5_{number}");
            // The GUID of a physical card is the vendor's, and not of the same MAC.
            let guid = format!("e8eb:d303:00cc:c9{number:02x}");
            let device = tree.ib_device(&place, &name, "1: CA", &guid, number);
            for (file, text) in
                [("fw_ver", "22.32.1010"), ("hca_type", "MT4125"), ("board_id", "MT_0000000359"), ("hw_rev", "0")]
            {
                tree.file(&format!("{device}/{file}"), format!("{text}\n"));
            }
            tree.file(&format!("{device}/node_desc"), format!("node-1 {name}\n"));
            let rate = if number == 0 { "25 Gb/sec (1X EDR)" } else { "100 Gb/sec (4X EDR)" };
            let port = tree.port(&device, "4: ACTIVE", "5: LinkUp", rate, "Ethernet");
            let local = format!("fe80:0000:0000:0000:{eui}");
            let mapped = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
            for (index, gid) in (0..).zip([&local, &local, &mapped, &mapped]) {
                let kind = if index % 2 == 0 { "IB/RoCE v1" } else { "RoCE v2" };
                tree.gid(&port, index, gid, kind, &eth);
            }
            tree.empty_gids(&port, 4..8);
            tree.file(&format!("{port}/pkeys/0"), "0xffff\n");
            tree.counters(
                &name,
                &[
                    ("counters/port_xmit_data", 1000),
                    ("counters/port_rcv_data", 2000),
                    ("counters/port_xmit_packets", 10),
                    ("counters/port_rcv_packets", 20),
                    ("hw_counters/out_of_sequence", u64::from(number == 3) * 17),
                    ("hw_counters/rx_write_requests", 5),
                ],
            );
        }
        tree.module("mlx5_core", Some("5.4-3.1.0"), &[("prof_sel", "2")]).module("ib_uverbs", None, &[]);
        tree.file(
            "usr/bin/ofed_info",
            "#!/bin/bash\nif [ \"$1\" = \"-s\" ]; then\n  echo \"MLNX_OFED_LINUX-5.4-3.1.0.0:\"\nfi\n",
        );
        tree.nvidia("470.141.03", false);
        tree.file("sys/kernel/mm/memory_peers/nv_mem/version", "1.2-0\n");
        let gpus = ["53", "59", "6e", "73", "8d", "92", "c9", "cf"];
        for (minor, bus) in (0_u32..).zip(gpus) {
            let place = format!("{}/0000:{bus}:0{minor}.0/0000:{bus}:00.0", switch(minor / 2));
            tree.gpu(&place, i32::from(minor > 3), minor, "NVIDIA A100-SXM4-80GB");
        }
        tree
    }

    /// Two ports of one card in a bond.
    pub fn bond() -> SysTree {
        let tree = SysTree::plain();
        tree.bond_device(0);
        tree
    }

    /// The host of [`SysTree::erdma`] with a bond of Mellanox's beside.
    pub fn erdma_beside_bond() -> SysTree {
        let tree = SysTree::erdma();
        tree.bond_device(2);
        tree
    }

    /// A scalable function of a card, which is a device of the auxiliary bus: it has a driver and no PCI ids.
    pub fn scalable_function() -> SysTree {
        let tree = SysTree::plain();
        let card = "pci0000:17/0000:17:02.0/0000:18:00.0";
        tree.pci(card, ["0x15b3", "0x101e"], "0x020000", 0, "mlx5_core");
        let place = format!("{card}/mlx5_core.sf.2");
        tree.file("sys/bus/auxiliary/drivers/mlx5_core.sf/module/initstate", "live\n");
        tree.link(&format!("sys/devices/{place}/driver"), "../../../../../bus/auxiliary/drivers/mlx5_core.sf");
        let device = tree.ib_device(&place, "mlx5_4", "1: CA", "b83f:d203:004a:11e4", 4);
        let port = tree.port(&device, "4: ACTIVE", "5: LinkUp", "25 Gb/sec (1X EDR)", "Ethernet");
        tree.gid(&port, 0, "0000:0000:0000:0000:0000:ffff:c0a8:0a16", "RoCE v2", "");
        tree.module("mlx5_core", None, &[]);
        tree
    }

    fn bond_device(&self, uverbs: u32) {
        let tree = self;
        let place = "pci0000:17/0000:17:02.0/0000:18:00.0";
        tree.pci(place, ["0x15b3", "0x101d"], "0x020000", 0, "mlx5_core");
        let mac = "b8:3f:d2:4a:11:e0";
        tree.net(place, &Net { name: "ens1f0", mac, mtu: 9000, state: "up", speed: Some(25_000) });
        tree.net(place, &Net { name: "ens1f1", mac, mtu: 9000, state: "up", speed: Some(25_000) });
        tree.net("virtual", &Net { name: "bond0", mac, mtu: 9000, state: "up", speed: Some(50_000) });
        let device = tree.ib_device(place, "mlx5_bond_0", "1: CA", "b83f:d203:004a:11e0", uverbs);
        for (file, text) in [("fw_ver", "26.35.2000"), ("hca_type", "MT4125"), ("board_id", "MT_0000000531")] {
            tree.file(&format!("{device}/{file}"), format!("{text}\n"));
        }
        let port = tree.port(&device, "4: ACTIVE", "5: LinkUp", "50 Gb/sec (2X EDR)", "Ethernet");
        let local = "fe80:0000:0000:0000:ba3f:d2ff:fe4a:11e0";
        let mapped = "0000:0000:0000:0000:0000:ffff:c0a8:0a15";
        for (index, gid) in (0..).zip([local, local, mapped, mapped]) {
            tree.gid(&port, index, gid, if index % 2 == 0 { "IB/RoCE v1" } else { "RoCE v2" }, "bond0");
        }
        tree.empty_gids(&port, 4..8);
        tree.file(&format!("{port}/pkeys/0"), "0xffff\n");
        tree.module("mlx5_core", None, &[]);
    }

    /// InfiniBand as link layer, with a partition beside the default one.
    pub fn infiniband() -> SysTree {
        let tree = SysTree::plain();
        let place = "pci0000:b0/0000:b0:02.0/0000:b1:00.0";
        tree.pci(place, ["0x15b3", "0x1021"], "0x020700", 1, "mlx5_core");
        let mac = "00:00:10:49:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:9a:12:3c";
        tree.net(place, &Net { name: "ib0", mac, mtu: 2044, state: "up", speed: Some(400_000) });
        let device = tree.ib_device(place, "mlx5_0", "1: CA", "b8ce:f603:009a:123c", 0);
        for (file, text) in [("fw_ver", "28.39.1002"), ("hca_type", "MT4129"), ("board_id", "MT_0000000838")] {
            tree.file(&format!("{device}/{file}"), format!("{text}\n"));
        }
        let port = tree.port(&device, "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", "InfiniBand");
        tree.file(&format!("{port}/lid"), "0x2b\n").file(&format!("{port}/sm_lid"), "0x1\n");
        tree.gid(&port, 0, "fe80:0000:0000:0000:b8ce:f603:009a:123c", "IB/RoCE v1", "");
        tree.empty_gids(&port, 1..8);
        tree.file(&format!("{port}/pkeys/0"), "0x8123\n").file(&format!("{port}/pkeys/1"), "0xffff\n");
        for index in 2..8 {
            tree.file(&format!("{port}/pkeys/{index}"), "0x0000\n");
        }
        tree.counters("mlx5_0", &[("counters/port_xmit_data", 1 << 40), ("counters/port_rcv_data", 1 << 40)]);
        tree.module("mlx5_core", Some("23.10-1.1.9"), &[]);
        tree
    }

    /// Soft-RoCE over an interface.
    pub fn soft_roce() -> SysTree {
        let tree = SysTree::plain();
        let net = "pci0000:00/0000:00:03.0";
        tree.pci(net, ["0x1af4", "0x1000"], "0x020000", -1, "virtio-pci");
        let mac = "52:54:00:12:34:56";
        tree.net(net, &Net { name: "ens3", mac, mtu: 1500, state: "up", speed: None });
        let device = tree.ib_device("virtual", "rxe_0", "1: CA", "5054:00ff:fe12:3456", 0);
        tree.file(&format!("{device}/parent"), "ens3\n").file(&format!("{device}/node_desc"), "rxe\n");
        tree.file(&format!("{device}/fw_ver"), "\n");
        let port = tree.port(&device, "4: ACTIVE", "5: LinkUp", "2.5 Gb/sec (1X SDR)", "Ethernet");
        tree.gid(&port, 0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2", "ens3");
        tree.gid(&port, 1, "0000:0000:0000:0000:0000:ffff:0a00:020f", "RoCE v2", "ens3");
        tree.empty_gids(&port, 2..4);
        tree.file(&format!("{port}/pkeys/0"), "0xffff\n");
        tree.counters("rxe_0", &[("hw_counters/sent_pkts", 4), ("hw_counters/rcvd_pkts", 4)]);
        tree.module("rdma_rxe", None, &[]);
        tree
    }
}

/// The switch of a pair of GPUs: root port, then the port upstream.
fn switch(pair: u32) -> String {
    let bus = ["50", "6a", "89", "c6"][pair as usize];
    format!("pci0000:{bus}/0000:{bus}:01.0/0000:{bus}:0a.0")
}

/// EUI-64 → MAC: `eaeb:d3ff:fecc:c920` → `e8:eb:d3:cc:c9:20`.
fn mac_of(eui: &str) -> String {
    let hex: String = eui.split(':').collect();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes = [byte(0) ^ 2, byte(2), byte(4), byte(10), byte(12), byte(14)];
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
