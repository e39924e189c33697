//! `rdmaprep devices` on captured trees: every field, the text, verdicts in every form, traffic, wrong input.

use crate::support;
use crate::support::schema;
use crate::support::sysfs_fixture;

use rdmaprep::devices::{load_captured, names};
use rdmaprep::facts::devices::*;
use schema::{assert_valid, validator};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::Stdio;
use support::*;
use sysfs_fixture::{Net, SysTree};

fn devices(tree: &SysTree, args: &[&str]) -> Ran {
    run(rdmaprep().arg("devices").arg("--sysfs").arg(tree.root()).args(args))
}

/// The facts of a tree, as the program writes them.
fn facts(tree: &SysTree) -> DeviceFacts {
    let ran = devices(tree, &["--format", "json"]);
    let facts: DeviceFacts = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    assert_eq!(facts, load_captured(tree.root()), "what is written is what was read");
    facts
}

fn trees() -> Vec<(&'static str, SysTree)> {
    vec![
        ("erdma", SysTree::erdma()),
        ("erdma_iwarp", SysTree::erdma_iwarp()),
        ("mlx5", SysTree::mlx5()),
        ("bond", SysTree::bond()),
        ("infiniband", SysTree::infiniband()),
        ("soft_roce", SysTree::soft_roce()),
        ("plain", SysTree::plain()),
    ]
}

#[test]
fn text_of_every_tree() {
    for (name, tree) in trees() {
        let text = devices(&tree, &[]).expect(0).stdout.replace(&tree.root().display().to_string(), "DIR");
        insta::assert_snapshot!(format!("text_{name}"), text);
    }
}

#[test]
fn verdicts_of_every_tree() {
    for (name, tree) in trees() {
        let target = if name.contains("erdma") || name == "plain" { "pai-dlc" } else { "cce" };
        let ran = devices(&tree, &["--check", "--target", target]);
        let text = ran.stdout.replace(&tree.root().display().to_string(), "DIR");
        insta::assert_snapshot!(format!("check_{name}"), format!("{text}(exit code {})\n", ran.code.unwrap()));
    }
}

#[test]
fn fields_of_erdma_in_compat_mode() {
    let facts = facts(&SysTree::erdma());
    assert!(!facts.is_live && facts.verbs.is_none());
    assert_eq!(facts.hostname.as_deref(), Some("node-1"));
    assert_eq!(facts.kernel.as_deref(), Some("5.10.134-16.al8.x86_64"));
    assert_eq!(facts.limits, Some(Limits { memlock_bytes: None, can_lock_memory: false }));
    assert_eq!(facts.parameter("erdma", "compat_mode"), Some("Y"));
    assert_eq!(facts.rdma_cm.as_ref().map(|node| node.access), Some(Access::NotTried));
    let device = &facts.rdma_devices[0];
    assert_eq!((device.name.as_str(), device.maker), ("erdma_0", Maker::AlibabaErdma));
    assert_eq!((device.vendor_id.as_deref(), device.device_id.as_deref()), (Some("0x1ded"), Some("0x107f")));
    assert_eq!((device.pci_address.as_deref(), device.numa_node), (Some("0000:00:07.0"), Some(0)));
    assert_eq!((device.driver.as_deref(), device.driver_version.as_deref()), (Some("erdma"), Some("0.2.37")));
    assert_eq!((device.compat_mode, device.transport), (Some(true), Some(Transport::Infiniband)));
    assert_eq!((device.node_type.as_deref(), device.firmware.as_deref()), (Some("CA"), Some("0.2.0")));
    assert_eq!(device.node_guid.as_deref(), Some("0216:3eff:fe2c:6aad"));
    assert_eq!(device.system_image_guid, device.node_guid);
    let node = device.uverbs.as_ref().unwrap();
    assert_eq!((node.path.as_str(), node.access), ("/dev/infiniband/uverbs0", Access::NotTried));
    let port = &device.ports[0];
    assert_eq!(port.port_guid, device.node_guid);
    assert_eq!((port.state.as_deref(), port.physical_state.as_deref()), (Some("ACTIVE"), Some("LinkUp")));
    assert_eq!((port.link_layer.as_deref(), port.lid.as_deref()), (Some("Ethernet"), Some("0x0")));
    assert_eq!((port.rate.as_deref(), port.rate_gbit_per_s), (Some("100 Gb/sec (4X EDR)"), Some(100.0)));
    assert!(port.is_rate_fixed, "the driver says this rate of every instance");
    let netdev = port.netdev.as_ref().unwrap();
    assert_eq!((netdev.name.as_str(), netdev.found_by), ("eth1", FoundBy::GidTable));
    assert_eq!((netdev.mtu_bytes, netdev.state.as_deref()), (Some(1400), Some("up")));
    assert_eq!((netdev.mac.as_deref(), netdev.driver.as_deref()), (Some("00:16:3e:2c:6a:ad"), Some("virtio-pci")));
    assert_eq!(netdev.addresses, ["172.16.15.237"]);
    assert_eq!(port.derived_active_mtu_bytes, Some(1024));
    assert_eq!((port.gid_table_length, port.gids.len()), (16, 2));
    assert_eq!(port.gids[1].ipv4, Some(Ipv4Addr::new(172, 16, 15, 237)));
    assert_eq!((port.gids[1].kind.as_deref(), port.gids[1].netdev.as_deref()), (Some("RoCE v2"), Some("eth1")));
    assert!(port.gids[0].is_link_local);
    let nccl = port.nccl_gid.as_ref().unwrap();
    assert_eq!((nccl.index, nccl.is_usable), (1, true));
    let moved = port.traffic.as_ref().unwrap();
    assert_eq!((moved.sent_bytes, moved.received_packets), (1_643_640_000, Some(1_100_010)));
    assert_eq!(moved.source, "hw_counters/hw_tx_bytes_cnt");
    assert_eq!(port.counters["hw_counters/hw_rx_bps_limit_drop_cnt"], 3);
    assert!(!port.counters.contains_key("hw_counters/lifespan"));
    // GPUs: one on the NUMA node of each device, with a host bridge between.
    let gpus: Vec<_> = facts.gpus.iter().map(|gpu| (gpu.minor, gpu.numa_node, gpu.distances["erdma_0"])).collect();
    assert_eq!(gpus, [(Some(0), Some(0), PciDistance::Phb), (Some(1), Some(1), PciDistance::Sys)]);
    assert_eq!(facts.gpus[0].model.as_deref(), Some("NVIDIA L20"));
    assert_eq!(facts.gpus[0].driver.as_deref(), Some("nvidia"));
    assert_eq!(facts.nvidia.driver_version.as_deref(), Some("550.54.14"));
    assert_eq!(facts.nvidia.peer_memory, ["/sys/module/nvidia_peermem"]);
    assert_eq!((facts.ofed, facts.idle_devices), (None, Vec::new()));
}

/// The interface is another PCI device, and the GID table does not name it: the MAC in the GUID does.
#[test]
fn fields_of_erdma_in_iwarp_mode() {
    let facts = facts(&SysTree::erdma_iwarp());
    let device = &facts.rdma_devices[1];
    assert_eq!((device.compat_mode, device.transport), (Some(false), Some(Transport::Iwarp)));
    assert_eq!(device.node_type.as_deref(), Some("RNIC"));
    let port = &device.ports[0];
    assert_eq!(port.port_guid, None);
    assert_eq!((port.gid_table_length, port.gids[0].gid.as_str()), (1, "0016:3e16:58b6:0000:0000:0000:0000:0000"));
    let netdev = port.netdev.as_ref().unwrap();
    assert_eq!((netdev.name.as_str(), netdev.found_by), ("eth2", FoundBy::NodeGuid));
    assert!(port.nccl_gid.as_ref().is_some_and(|gid| gid.index == 0 && !gid.is_usable));
}

#[test]
fn fields_of_mlx5() {
    let facts = facts(&SysTree::mlx5());
    let found: Vec<&str> = facts.rdma_devices.iter().map(|device| device.name.as_str()).collect();
    let expected: Vec<String> = (0..9).map(|number| format!("mlx5_{number}")).collect();
    assert_eq!(found, expected);
    let device = &facts.rdma_devices[3];
    assert_eq!((device.hca_type.as_deref(), device.board_id.as_deref()), (Some("MT4125"), Some("MT_0000000359")));
    let port = &device.ports[0];
    assert_eq!(port.port_guid.as_deref(), Some("eaeb:d3ff:fe6c:51d2"));
    // Every line of show_gids, and the index that NCCL takes.
    let gids: Vec<_> = port.gids.iter().map(|gid| (gid.index, gid.kind.as_deref().unwrap(), gid.ipv4)).collect();
    let address = Some(Ipv4Addr::new(25, 11, 128, 66));
    assert_eq!(
        gids,
        [(0, "IB/RoCE v1", None), (1, "RoCE v2", None), (2, "IB/RoCE v1", address), (3, "RoCE v2", address)]
    );
    assert!(port.nccl_gid.as_ref().is_some_and(|gid| gid.index == 3 && gid.is_usable));
    assert!(!port.is_rate_fixed);
    assert_eq!(port.derived_active_mtu_bytes, Some(4096));
    // Units of four bytes.
    let moved = port.traffic.as_ref().unwrap();
    assert_eq!((moved.sent_bytes, moved.received_bytes, moved.sent_packets), (4000, 8000, Some(10)));
    let ofed = facts.ofed.as_ref().unwrap();
    assert_eq!((ofed.version.as_str(), ofed.source.as_str()), ("MLNX_OFED_LINUX-5.4-3.1.0.0", "/usr/bin/ofed_info"));
    assert_eq!(facts.nvidia.peer_memory, ["/sys/kernel/mm/memory_peers/nv_mem"]);
    let far: Vec<PciDistance> =
        ["mlx5_1", "mlx5_2", "mlx5_3", "mlx5_5", "mlx5_0"].iter().map(|name| facts.gpus[0].distances[*name]).collect();
    use PciDistance::{Node, Pix, Sys};
    assert_eq!(far, [Pix, Pix, Node, Sys, Node]);
    let buses: Vec<&str> = facts.gpus.iter().map(|gpu| &gpu.pci_address[5..7]).collect();
    assert_eq!(buses, ["53", "59", "6e", "73", "8d", "92", "c9", "cf"]);
}

#[test]
fn fields_of_a_bond() {
    let facts = facts(&SysTree::bond());
    let netdev = facts.rdma_devices[0].ports[0].netdev.as_ref().unwrap();
    assert_eq!((netdev.name.as_str(), netdev.found_by), ("bond0", FoundBy::GidTable));
    assert_eq!((netdev.mtu_bytes, netdev.speed_mbit_per_s), (Some(9000), Some(50_000)));
    assert_eq!(netdev.addresses, ["192.168.10.21"]);
    // Without the table's word it is an interface of the same PCI device.
    let tree = SysTree::bond();
    tree.remove(&format!("{}/gid_attrs/ndevs", SysTree::port_of("mlx5_bond_0")));
    let facts = load_captured(tree.root());
    let netdev = facts.rdma_devices[0].ports[0].netdev.as_ref().unwrap();
    assert_eq!((netdev.name.as_str(), netdev.found_by), ("ens1f0", FoundBy::PciDevice));
}

#[test]
fn fields_of_infiniband() {
    let facts = facts(&SysTree::infiniband());
    let port = &facts.rdma_devices[0].ports[0];
    assert_eq!((port.link_layer.as_deref(), port.lid.as_deref()), (Some("InfiniBand"), Some("0x2b")));
    assert_eq!(port.subnet_manager_lid.as_deref(), Some("0x1"));
    let keys: Vec<_> = port.pkeys.iter().map(|(index, key)| (*index, key.as_str())).collect();
    assert_eq!(keys, [(0, "0x8123"), (1, "0xffff")]);
    assert_eq!(port.derived_active_mtu_bytes, None, "the MTU of IPoIB says nothing of the port's");
    assert!(port.nccl_gid.as_ref().is_some_and(|gid| gid.index == 0 && gid.is_usable));
    assert_eq!(facts.ofed.unwrap().source, "/sys/module/mlx5_core/version");
}

#[test]
fn fields_of_soft_roce() {
    let facts = facts(&SysTree::soft_roce());
    let device = &facts.rdma_devices[0];
    assert_eq!((device.maker, device.pci_address.as_deref(), device.driver.as_deref()), (Maker::SoftRoce, None, None));
    assert_eq!((device.firmware.as_deref(), device.numa_node), (None, None));
    let port = &device.ports[0];
    assert!(port.netdev.as_ref().is_some_and(|netdev| netdev.name == "ens3"));
    assert_eq!((port.derived_active_mtu_bytes, port.traffic.as_ref()), (Some(1024), None));
    assert_eq!(port.counters["hw_counters/sent_pkts"], 4);
}

/// `cp -rL` and the like leave no links: what they said is in `uevent`.
#[test]
fn a_tree_without_links() {
    let tree = SysTree::plain();
    let device = "sys/class/infiniband/rocep26s0";
    tree.file(&format!("{device}/node_type"), "1: CA\n");
    tree.file(&format!("{device}/device/vendor"), "0x1ded\n");
    tree.file(&format!("{device}/device/uevent"), "DRIVER=erdma\nPCI_CLASS=20000\nPCI_SLOT_NAME=0000:00:1a.0\n");
    tree.file(&format!("{device}/device/infiniband_verbs/uverbs3/dev"), "231:195\n");
    tree.file(&format!("{device}/ports/1/state"), "1: DOWN\n");
    let facts = facts(&tree);
    let found = &facts.rdma_devices[0];
    assert_eq!((found.maker, found.driver.as_deref()), (Maker::AlibabaErdma, Some("erdma")));
    assert_eq!(found.pci_address.as_deref(), Some("0000:00:1a.0"));
    let node = found.uverbs.as_ref().unwrap();
    assert_eq!((node.path.as_str(), node.access), ("/dev/infiniband/uverbs3", Access::Absent));
    let port = &found.ports[0];
    assert_eq!((port.state.as_deref(), &port.netdev, &port.nccl_gid), (Some("DOWN"), &None, &None));
}

#[test]
fn nothing_of_this_host_is_read() {
    let tree = SysTree::erdma();
    // Links of a hostile capture.
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("fw_ver"), "9.9.9\n").unwrap();
    tree.remove("sys/class/infiniband/erdma_0/fw_ver");
    tree.link(
        "sys/devices/pci0000:00/0000:00:07.0/infiniband/erdma_0/fw_ver",
        secret.path().join("fw_ver").to_str().unwrap(),
    );
    assert_eq!(facts(&tree).rdma_devices[0].firmware, None);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!devices(&tree, &[]).expect(0).stdout.contains(kernel.trim()));
}

#[test]
fn names_that_are_shown_and_no_others() {
    let tree = SysTree::mlx5();
    assert_eq!(names(tree.root()).len(), 9);
    let one = devices(&tree, &["mlx5_8"]);
    assert!(one.expect(0).stdout.contains("mlx5_8") && !one.stdout.contains("mlx5_1") && !one.stdout.contains("GPUs"));
    devices(&tree, &["mlx5_9"])
        .expect(2)
        .says("there is no RDMA device \"mlx5_9\"")
        .says("known devices: mlx5_0, mlx5_1");
}

#[test]
fn text_of_a_capture_does_not_move_the_cursor() {
    let tree = SysTree::erdma();
    tree.file("sys/class/infiniband/erdma_0/fw_ver", "\u{1b}[2J0.2.0\n");
    tree.file("proc/sys/kernel/hostname", "a\u{1b}]0;x\u{7}\n");
    tree.net("virtual", &Net { name: "eth\u{1b}[31m", mac: "02:00:00:00:00:01", mtu: 1500, state: "up", speed: None });
    for args in [&[][..], &["--check", "--all"]] {
        assert!(!devices(&tree, args).stdout.contains('\u{1b}'));
    }
}

#[test]
fn exit_codes_of_verdicts() {
    let tree = SysTree::erdma();
    devices(&tree, &["--check"]).expect(0).prints("PASS for pai-dlc");
    devices(&tree, &["--check", "--nics", "2", "--all"]).expect(0).prints("2 devices of Alibaba eRDMA, as expected");
    devices(&tree, &["--check", "--nics", "4"]).expect(4).prints("FAIL     host-nic-count");
    tree.limits("65536");
    devices(&tree, &["--check"]).expect(0).prints("warn     host-memlock");
    devices(&tree, &["--check", "--fail-on", "warn"]).expect(4);
    tree.remove("dev");
    devices(&tree, &["--check"]).expect(3).prints("unknown  host-uverbs").prints("UNKNOWN for pai-dlc");
    // No devices: that is not an error for `devices`, but the host cannot run a job.
    let plain = SysTree::plain();
    devices(&plain, &[]).expect(0).prints("no RDMA device");
    devices(&plain, &["--check", "--target", "ecs"]).expect(4).prints("no-rdma-hardware");
}

#[test]
fn a_policy_of_a_host() {
    let tree = SysTree::erdma();
    tree.file("sys/class/net/eth1/mtu", "1500\n").file("sys/class/net/eth2/mtu", "1500\n");
    tree.file("policy.toml", "[checks]\nhost-mtu = { severity = 'advice', reason = 'no LL128 here' }\n");
    devices(&tree, &["--check"]).expect(4).prints("FAIL     host-mtu");
    let policy = tree.path("policy.toml");
    devices(&tree, &["--check", "--policy", policy.to_str().unwrap()])
        .expect(0)
        .prints("warn     host-mtu")
        .prints("host-mtu: required -> advice, found fail: no LL128 here");
}

#[test]
fn wrong_input_is_usage() {
    let tree = SysTree::erdma();
    let missing = tree.path("none").display().to_string();
    let file = tree.path("dev/null").display().to_string();
    let no_sys = tree.path("dev").display().to_string();
    for (args, said) in [
        (vec!["--sysfs", &missing], "No such file or directory"),
        (vec!["--sysfs", &file], "it is not a directory"),
        (vec!["--sysfs", &no_sys], "it has no sys directory"),
        (vec!["--sysfs", &missing, "--watch"], "No such file or directory"),
        (vec!["--format", "junit"], "add --check"),
        (vec!["-o", "sarif=x"], "add --check"),
        (vec!["--check", "erdma_0"], "cannot be used with"),
        (vec!["--check", "--watch"], "cannot be used with"),
        (vec!["--nics", "2"], "--check"),
        (vec!["--count", "2"], "--watch"),
        (vec!["--watch", "--count", "0"], "0"),
        (vec!["--watch", "--interval", "0"], "from 0.05 to"),
        (vec!["--watch", "--interval", "x"], "number of seconds"),
        (vec!["--watch", "--format", "github"], "add --check"),
        (vec!["--check", "--target", "moon"], "known targets: pai-dlc"),
    ] {
        run(rdmaprep().arg("devices").args(&args)).expect(2).says(said);
    }
    run(rdmaprep().args(["devices", "--sysfs"]).arg(tree.root()).args(["--watch", "none"]))
        .expect(2)
        .says("known devices: erdma_0, erdma_1");
}

#[test]
fn every_form_is_what_its_schema_says() {
    let (report, sarif) =
        (validator("schemas/host-report.schema.json"), validator("tests/data/sarif-schema-2.1.0.json"));
    let facts = validator("schemas/devices.schema.json");
    let mut hostile = trees();
    let odd = SysTree::erdma();
    odd.file("sys/class/infiniband/erdma_0/ports/1/state", "1: <&\"'>%\n::error::x\u{1b}\u{1}\n");
    hostile.push(("odd", odd));
    for (name, tree) in hostile {
        let json: Value = serde_json::from_str(&devices(&tree, &["--format", "json"]).expect(0).stdout).unwrap();
        assert_valid(&facts, &json, name);
        for target in ["pai-dlc", "ecs", "ack", "cce"] {
            let at = |form: &str| tree.path(&format!("report.{form}")).display().to_string();
            let outputs: Vec<String> =
                ["json", "sarif", "junit"].iter().map(|form| format!("{form}={}", at(form))).collect();
            let mut args = vec!["--check", "--target", target, "--format", "github"];
            args.extend(outputs.iter().flat_map(|output| ["-o", output.as_str()]));
            let ran = devices(&tree, &args);
            let read = |form: &str| std::fs::read_to_string(at(form)).unwrap();
            let json: Value = serde_json::from_str(&read("json")).unwrap();
            assert_valid(&report, &json, name);
            assert!(json.get("image").is_none() && json["host"]["root"].is_string());
            let log: Value = serde_json::from_str(&read("sarif")).unwrap();
            assert_valid(&sarif, &log, name);
            let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
            assert!(rules.iter().all(|rule| rule["id"].as_str().unwrap().starts_with("host-")));
            for result in log["runs"][0]["results"].as_array().unwrap() {
                let index = usize::try_from(result["ruleIndex"].as_i64().unwrap()).unwrap();
                assert_eq!(rules[index]["id"], result["ruleId"]);
            }
            let junit = read("junit");
            assert!(junit.contains(&format!("rdmaprep.host.{target}")) && junit.contains("host-devices"), "{junit}");
            let exit = match json["verdict"].as_str().unwrap() {
                "pass" => 0,
                "fail" => 4,
                _ => 3,
            };
            ran.expect(exit);
            assert!(ran.stdout.lines().all(|line| line.starts_with("::")), "{}", ran.stdout);
        }
    }
}

/// Counters that rise between two looks, one that is set back, and a device that goes away.
#[test]
fn rates_follow_the_counters() {
    let tree = SysTree::erdma();
    let mut watch = rdmaprep::devices::Watch::start(tree.root(), &[]);
    tree.counters("erdma_0", &[("hw_counters/hw_rx_bytes_cnt", 1_643_630_000 + 5_000_000)]);
    tree.counters("erdma_0", &[("hw_counters/hw_rx_packets_cnt", 1_100_010 + 5_000)]);
    tree.counters("erdma_1", &[("hw_counters/hw_tx_bytes_cnt", 7)]);
    let sample = watch.sample(0);
    let [first, second] = sample.ports.as_slice() else { panic!("{sample:?}") };
    let moved = |rate: Option<f64>| (rate.unwrap() * sample.interval_s).round();
    assert_eq!((first.device.as_str(), first.port, moved(first.received_bytes_per_s)), ("erdma_0", 1, 5e6));
    assert_eq!((moved(first.received_packets_per_s), moved(first.sent_bytes_per_s)), (5000.0, 0.0));
    assert_eq!(second.sent_bytes_per_s, None, "it was set back");
    assert_eq!(second.received_bytes_per_s, Some(0.0));
    // From where it was set back to it counts on.
    tree.counters("erdma_1", &[("hw_counters/hw_tx_bytes_cnt", 1007)]);
    let sample = watch.sample(1);
    assert_eq!((sample.ports[1].sent_bytes_per_s.unwrap() * sample.interval_s).round(), 1000.0);
    tree.remove("sys/class/infiniband/erdma_1");
    assert_eq!(watch.sample(2).ports.len(), 1);
    // Without a byte counter there is no rate, rather than a rate of zero.
    let soft = SysTree::soft_roce();
    let sample = rdmaprep::devices::Watch::start(soft.root(), &[]).sample(0);
    assert_eq!(sample.ports[0].received_bytes_per_s, None);
}

/// The program sees a tree that changes under it. It is asked until it does, so that no time is too short.
#[test]
fn traffic_is_shown_as_it_comes() {
    let tree = SysTree::erdma();
    let mut child = rdmaprep()
        .args(["devices", "erdma_0", "--watch", "--interval", "0.05", "--format", "json", "--sysfs"])
        .arg(tree.root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = 1_643_640_000;
    let mut rate = 0.0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let sample: TrafficSample = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(sample.ports.len(), 1);
        // A look in the middle of a write finds no number.
        rate = sample.ports[0].sent_bytes_per_s.unwrap_or(0.0);
        if rate > 0.0 {
            break;
        }
        sent += 1_000_000;
        tree.counters("erdma_0", &[("hw_counters/hw_tx_bytes_cnt", sent)]);
    }
    // The reader has gone away: the program ends by itself.
    assert!(child.wait().unwrap().success());
    assert!(rate > 0.0);
}

#[test]
fn an_interrupt_ends_with_what_it_came_to() {
    let tree = SysTree::erdma();
    let mut child = rdmaprep()
        .args(["devices", "--watch", "--interval", "0.05", "--sysfs"])
        .arg(tree.root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with(" UTC"));
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.last().is_some_and(|line| line.starts_with("  tx: 0 B in 0 packets; max")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn traffic_as_text_ends_with_what_it_came_to() {
    let tree = SysTree::erdma();
    let ran = devices(&tree, &["--watch", "--interval", "0.05", "--count", "2"]);
    ran.expect(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].ends_with(" UTC"), "{}", ran.stdout);
    assert_eq!(lines[1], "  erdma_0  port 1  rx:      0 B/s       0 p/s  tx:      0 B/s       0 p/s");
    assert_eq!(lines.iter().filter(|line| line.starts_with("  erdma_1  port 1")).count(), 2);
    assert!(ran.stdout.contains("erdma_1 port 1, ") && ran.stdout.contains("max 0 B/s, average 0 B/s, min 0 B/s"));
    assert!(!ran.stdout.contains('\u{1b}'), "not in place without a terminal");
}
