//! Bug reports of other people that a target's data decides: presets, variables without effect, flags and resources.
//!
//! | case | report | what is tried here, for every target |
//! |---|---|---|
//! | D06 | vendor's ACK page | a preset filter finds every device by the driver's names, and none that udev renamed |
//! | D07 | NVIDIA/nccl#236 | the preset is a prefix: all of the fabric's devices, none of another one |
//! | D08 | NVIDIA/nccl#769 | a preset index is right only where the host's table says so; without one NCCL's own choice counts |
//! | D10 | NVIDIA/nccl#925 | the vendor's docker line has the host's network; a bridge fails |
//! | D12 | NVIDIA/nccl#941 | `NCCL_NET_PLUGIN=none` is PAI's preset, and the remedy elsewhere |
//! | D14 | Megatron-Bridge#5033 | `spcx` of the image is lost where the platform sets another value |
//! | D15 | microsoft/AzureML-BERT#34 | the image's device filter and interface: lost, or wrong; `NCCL_IB_DISABLE=1` fails everywhere |
//!
//! And the page's "-": a variable without effect is said to be one.

use crate::support::image_fixture;
use crate::support::run_fixture;
use crate::support::sysfs_fixture;

use image_fixture::Fixture;
use rdmaprep::checks::run::{RunOptions, RunSubject, check_run};
use rdmaprep::checks::{Finding, HostSubject, Severity, Status, Subject, check_host, check_image};
use rdmaprep::devices::load_captured;
use rdmaprep::nccl_settings::{InterfaceFilter, parse_number};
use rdmaprep::targets::{TARGETS, Target, by_id};
use sysfs_fixture::SysTree;

fn of_image(fixture: &Fixture, check: &str, target: &Target) -> Finding {
    let facts = fixture.facts();
    check_image(&Subject { facts: &facts, target }).into_iter().find(|finding| finding.check == check).unwrap()
}

fn of_host(tree: &SysTree, check: &str, target: &str) -> Finding {
    let facts = load_captured(tree.root());
    let subject = HostSubject { facts: &facts, target: by_id(target).unwrap(), nics: None, instance: None };
    check_host(&subject).into_iter().find(|finding| finding.check == check).unwrap()
}

fn with(name: &str, value: &str) -> Fixture {
    let mut fixture = Fixture::good();
    fixture.env(name, value);
    fixture
}

/// Whether a target's presets hold the word for a variable.
fn preset(target: &str, name: &str) -> Option<&'static str> {
    by_id(target).unwrap().nccl_preset(name)
}

#[test]
fn d06_and_d07_the_preset_filter_finds_every_device_of_the_fabric() {
    let mut tried = 0;
    for target in TARGETS {
        let Some(value) = target.nccl_preset("NCCL_IB_HCA") else { continue };
        tried += 1;
        let filter = InterfaceFilter::parse(value);
        let most =
            target.instances.iter().filter_map(|instance| instance.nics).map(|nics| nics.value).max().unwrap_or(1);
        for number in 0..most {
            assert!(filter.allows(&format!("{}_{number}", target.fabric.driver), Some(1)), "{}: {number}", target.id);
        }
        for foreign in ["mlx5_0", "mlx5_1", "rxe0", "rocep26s0"] {
            assert!(!filter.allows(foreign, Some(1)), "{}: {foreign}", target.id);
        }
    }
    assert_eq!(tried, 1);
    // On a host whose udev renamed the devices the preset finds none, and the right names are given.
    let renamed = SysTree::erdma();
    for number in 0..2 {
        let (old, new) =
            (format!("sys/class/infiniband/erdma_{number}"), format!("sys/class/infiniband/rocep2{number}s0"));
        std::fs::rename(renamed.path(&old), renamed.path(&new)).unwrap();
    }
    let finding = of_host(&renamed, "host-hca-names", "pai-dlc");
    assert_eq!(finding.status, Status::Fail, "{finding:#?}");
    assert!(
        finding.summary.contains("rocep20s0") && finding.remedy.unwrap().contains("NCCL_IB_HCA==rocep20s0,rocep21s0")
    );
    assert_eq!(of_host(&renamed, "host-hca-names", "ecs").status, Status::Skip);
    assert_eq!(of_host(&SysTree::erdma(), "host-hca-names", "pai-dlc").status, Status::Pass);
}

#[test]
fn d08_the_preset_index_is_right_where_the_table_says_so() {
    let index = preset("pai-dlc", "NCCL_IB_GID_INDEX").and_then(parse_number).unwrap();
    let good = of_host(&SysTree::erdma(), "host-gid", "pai-dlc");
    assert_eq!((index, good.status), (1, Status::Pass), "{good:#?}");
    // The address stands at 3, and a link-local entry at 1.
    let tree = SysTree::erdma();
    for device in ["erdma_0", "erdma_1"] {
        let port = SysTree::port_of(device);
        tree.gid(&port, 1, "fe80:0000:0000:0000:0216:3eff:fe2c:6aad", "RoCE v2", "eth0");
        tree.gid(&port, 3, "0000:0000:0000:0000:0000:ffff:c000:0207", "RoCE v2", "eth0");
    }
    let finding = of_host(&tree, "host-gid", "pai-dlc");
    assert_eq!(finding.status, Status::Fail, "{finding:#?}");
    assert!(finding.summary.contains("gid-unroutable"), "{finding:#?}");
    assert!(format!("{finding:?}").contains("NCCL_IB_GID_INDEX=3"), "{finding:#?}");
    // In an image, 0 is said to be wrong, and that the platform sets over it.
    let pai = by_id("pai-dlc").unwrap();
    let finding = of_image(&with("NCCL_IB_GID_INDEX", "0"), "nccl-gid-index", pai);
    assert_eq!(finding.status, Status::Warn);
    assert!(finding.summary.contains("Alibaba PAI-DLC sets NCCL_IB_GID_INDEX=1 over it"), "{finding:#?}");
    for target in ["ecs", "ack"] {
        let finding = of_image(&with("NCCL_IB_GID_INDEX", "3"), "nccl-gid-index", by_id(target).unwrap());
        assert_eq!(finding.status, Status::Unknown, "{target}: the table is the host's");
    }
}

#[test]
fn d10_the_host_s_network() {
    let mut tried = 0;
    for target in TARGETS {
        if !target.docker_flags.is_empty() {
            tried += 1;
            for flag in ["--network=host", "--ipc=host", "memlock=-1", "stack=67108864"] {
                assert!(target.docker_flags.contains(&flag), "{}: {flag}", target.id);
            }
        }
        for (network, status) in [("host", Status::Pass), ("bridge", Status::Fail)] {
            let mut run = run_fixture::good_run();
            run.launch.network = network.into();
            run.evidence.as_mut().unwrap().warnings =
                vec![run_fixture::warning(0, "NCCL WARN Call to ibv_modify_qp failed with error No such device")];
            let subject = RunSubject { run: &run, facts: None, target, options: RunOptions::default() };
            let finding = check_run(&subject).into_iter().find(|finding| finding.check == "network-mode").unwrap();
            assert_eq!(finding.status, status, "{} in {network}", target.id);
        }
    }
    assert_eq!(tried, 1);
}

#[test]
fn d12_and_d14_network_plugins() {
    assert_eq!(preset("pai-dlc", "NCCL_NET_PLUGIN"), Some("none"));
    let image = with("NCCL_NET_PLUGIN", "spcx");
    for target in TARGETS {
        let plugin = of_image(&image, "nccl-net-plugin", target);
        let lost = of_image(&image, "nccl-platform-settings", target);
        match target.nccl_preset("NCCL_NET_PLUGIN") {
            Some(value) => {
                assert_eq!((plugin.status, lost.status), (Status::Warn, Status::Warn), "{}", target.id);
                assert!(
                    lost.summary.contains(&format!("the platform overrides it with NCCL_NET_PLUGIN={value}")),
                    "{lost:#?}"
                );
            }
            None => assert_eq!(lost.status, Status::Skip, "{lost:#?}"),
        }
    }
    // What the platform sets anyway is not lost.
    let pai = by_id("pai-dlc").unwrap();
    assert_eq!(of_image(&with("NCCL_NET_PLUGIN", "none"), "nccl-platform-settings", pai).status, Status::Pass);
}

#[test]
fn d15_what_the_image_sets_itself() {
    for target in TARGETS {
        let off = of_image(&with("NCCL_IB_DISABLE", "1"), "nccl-ib-enabled", target);
        // No platform sets over it.
        assert_eq!((off.status, target.nccl_preset("NCCL_IB_DISABLE")), (Status::Fail, None), "{}", target.id);
        assert_eq!(of_image(&with("NCCL_IB_DISABLE", "0"), "nccl-ib-enabled", target).status, Status::Pass);
        let filter = of_image(&with("NCCL_IB_HCA", "mlx5"), "nccl-ib-hca", target);
        let expected = match (target.fabric.driver, target.nccl_preset("NCCL_IB_HCA")) {
            (driver, _) if driver.starts_with("mlx5") => Status::Pass,
            (_, Some(_)) => Status::Warn,
            (_, None) => Status::Fail,
        };
        assert_eq!(filter.status, expected, "{}: {filter:#?}", target.id);
    }
    let pai = by_id("pai-dlc").unwrap();
    // It lets eth0 through, and the platform's own value wins all the same.
    let image = with("NCCL_SOCKET_IFNAME", "^docker0");
    assert_eq!(of_image(&image, "nccl-platform-settings", pai).status, Status::Warn);
    let mut file = Fixture::good();
    file.file("etc/nccl.conf", "NCCL_IB_DISABLE=1\nNCCL_IB_TC=136\n");
    let lost = of_image(&file, "nccl-platform-settings", pai);
    assert!(lost.summary.contains("NCCL_IB_TC=136 (/etc/nccl.conf)"), "{lost:#?}");
    assert!(lost.remedy.unwrap().contains("sed -i '/^NCCL_IB_TC=/d' /etc/nccl.conf"));
}

#[test]
fn variables_without_effect() {
    let pai = by_id("pai-dlc").unwrap();
    for name in pai.nccl_without_effect {
        let finding = of_image(&with(name, "22"), "nccl-platform-settings", pai);
        assert_eq!((finding.status, finding.severity), (Status::Warn, Severity::Advice), "{finding:#?}");
        assert!(finding.summary.contains(&format!("{name}=22 (Env)")) && finding.summary.contains("no effect"));
        assert!(finding.evidence.iter().any(|line| line.contains("www.alibabacloud.com/help/en/pai")), "{finding:#?}");
        // Elsewhere nobody says so.
        for target in ["ecs", "ack", "cce"] {
            let finding = of_image(&with(name, "22"), "nccl-platform-settings", by_id(target).unwrap());
            assert_eq!(finding.status, Status::Skip, "{target}");
        }
    }
    // All are listed, and what could not be read is not passed over.
    let mut fixture = with("NCCL_IB_TC", "136");
    fixture.env("NCCL_DEBUG", "WARN");
    let finding = of_image(&fixture, "nccl-platform-settings", pai);
    assert!(finding.summary.ends_with("and 1 more"), "{finding:#?}");
    let mut facts = Fixture::good().facts();
    facts.nccl_settings_unread.push("/etc/nccl.conf".into());
    let all = check_image(&Subject { facts: &facts, target: pai });
    let finding = all.iter().find(|finding| finding.check == "nccl-platform-settings").unwrap();
    assert_eq!(finding.status, Status::Unknown);
}
