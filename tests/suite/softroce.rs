//! Writes from a device to itself on real verbs: soft-RoCE in a virtual machine (`tests/rig/softroce.sh`), as it is, and with one
//! thing after the other broken. One boot serves all (`tests/softroce/scenarios.sh`).

use crate::support::skipping;

use rdmaprep::diagnosis::CauseId;
use rdmaprep::facts::devices::{Access, DeviceFacts, Transport};
use rdmaprep::facts::loopback::{
    CounterUnit, DeviceLoopback, GidChoice, LoopbackFailure, LoopbackReport, Path as RdmaPath, PortLoopback, Step,
    StepError,
};
use skipping::say_skipped;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Command, Stdio};

/// The guest boots in 10 to 20 s, and the scenarios take as long again; a busy machine takes several times that.
const SECONDS: &str = "240";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What one scenario printed, and its exit status.
#[derive(Debug)]
struct Scenario {
    output: String,
    status: i32,
}

impl Scenario {
    #[track_caller]
    fn report(&self) -> LoopbackReport {
        self.json()
    }

    /// What stands between the first brace and the last.
    #[track_caller]
    fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        let ends = self.output.find('{').zip(self.output.rfind('}'));
        let (from, to) = ends.unwrap_or_else(|| panic!("{}", self.output));
        serde_json::from_str(&self.output[from..=to]).unwrap_or_else(|error| panic!("{error}: {}", self.output))
    }
}

/// Runs the scenarios; the error is the reason why there is no virtual machine.
fn scenarios() -> Result<BTreeMap<String, Scenario>, String> {
    let script = root().join("tests/rig/softroce.sh");
    let ready = Command::new(&script).arg("--ready").stdin(Stdio::null()).output().unwrap();
    if !ready.status.success() {
        let stderr = String::from_utf8_lossy(&ready.stderr);
        return Err(format!("no virtual machine: {}", stderr.lines().last().unwrap_or("no reason was given")));
    }
    // Without debugging symbols it is less than half as long, and the guest keeps it in memory.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("rdmaprep");
    let stripped = Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_rdmaprep")).status();
    if !stripped.is_ok_and(|status| status.success()) {
        std::fs::copy(env!("CARGO_BIN_EXE_rdmaprep"), &program).unwrap();
    }
    let guest = root().join("tests/softroce/scenarios.sh");
    let output = Command::new(&script)
        .arg(guest)
        .arg(&program)
        .env("SOFTROCE_SECONDS", SECONDS)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let parts = format!("\n{stdout}");
    let parts = parts.split("\n== ").skip(1).map(|part| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (output, status) = rest.trim_end().rsplit_once("exit ").unwrap_or_else(|| panic!("{name}: {rest}"));
        (name.to_owned(), Scenario { output: output.to_owned(), status: status.parse().unwrap() })
    });
    Ok(parts.collect())
}

#[track_caller]
fn device<'a>(report: &'a LoopbackReport, name: &str) -> &'a DeviceLoopback {
    report.devices.iter().find(|device| device.name == name).unwrap_or_else(|| panic!("no {name} in {report:?}"))
}

#[track_caller]
fn port(report: &LoopbackReport) -> &PortLoopback {
    &device(report, "rxe_0").ports[0]
}

/// The failure of both paths, which must be the same.
#[track_caller]
fn of_paths(port: &PortLoopback) -> &LoopbackFailure {
    assert_eq!(port.paths.len(), 2, "{port:?}");
    assert_eq!(port.paths[0].failure, port.paths[1].failure);
    port.paths[0].failure.as_ref().unwrap_or_else(|| panic!("{port:?}"))
}

fn errno(failure: &LoopbackFailure) -> Option<&str> {
    let StepError::Errno { name, .. } = &failure.error else { return None };
    name.as_deref()
}

#[test]
fn writes_to_itself_are_proven_and_what_is_broken_is_named() {
    let scenarios = match scenarios() {
        Ok(scenarios) => scenarios,
        Err(reason) => return say_skipped(&reason),
    };
    let take = |name: &str, status: i32| -> LoopbackReport {
        let scenario = scenarios.get(name).unwrap_or_else(|| panic!("{name} did not run"));
        assert_eq!(scenario.status, status, "{name}: {}", scenario.output);
        let report = scenario.report();
        assert_eq!(report.is_proven(), status == 0, "{name}");
        report
    };
    devices_agree(&scenarios);
    moves_data(&take("as-it-is", 0));
    agrees_with_devinfo(&take("both", 0), &scenarios["devinfo"].output);
    gids(&take);
    ports_and_interfaces(&take);
    nodes_and_limits(&take);
    planted(&take("planted", 4));
    nothing_to_try(&take);
    for (name, scenario) in &scenarios {
        // Its sizes depend on how fast the machine is.
        if scenario.output.contains('{') && !["down-while-busy", "devices"].contains(&name.as_str()) {
            insta::assert_snapshot!(format!("softroce_{name}"), redacted(&scenario.report()));
        }
    }
}

/// The view of the devices beside `ibv_devinfo -v`, field by field, and beside the GID table of sysfs.
fn devices_agree(scenarios: &BTreeMap<String, Scenario>) {
    let facts: DeviceFacts = scenarios["devices"].json();
    let devinfo = &scenarios["devinfo"].output;
    let blocks: Vec<&str> = devinfo.split("hca_id:").skip(1).collect();
    assert_eq!(blocks.len(), 2, "{devinfo}");
    assert_eq!(facts.rdma_devices.len(), blocks.len());
    for (hca, block) in facts.rdma_devices.iter().zip(blocks) {
        // `name:<tabs>value`
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.trim().split_once(':'));
            let found = lines.find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no {name} in {block}"));
            found.1.trim().to_owned()
        };
        assert_eq!(hca.name, block.lines().next().unwrap().trim());
        // Software has none: sysfs has an empty line, and libibverbs makes three zeros of it.
        assert_eq!((hca.firmware.as_deref().unwrap_or_default(), field("fw_ver").as_str()), ("", "0.0.0"));
        assert_eq!(hca.node_guid.as_deref(), Some(field("node_guid").as_str()));
        assert_eq!(hca.system_image_guid.as_deref(), Some(field("sys_image_guid").as_str()));
        assert_eq!(field("transport"), "InfiniBand (0)");
        assert_eq!(hca.transport, Some(Transport::Infiniband));
        assert_eq!(hca.ports.len().to_string(), field("phys_port_cnt"));
        let port = &hca.ports[0];
        assert_eq!(field("state"), format!("PORT_{} (4)", port.state.as_deref().unwrap()));
        assert_eq!(port.link_layer.as_deref(), Some(field("link_layer").as_str()));
        let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(number(port.lid.as_deref().unwrap()).to_string(), field("port_lid"));
        assert_eq!(number(port.subnet_manager_lid.as_deref().unwrap()).to_string(), field("sm_lid"));
        assert_eq!(
            port.lid_mask_count.clone().unwrap(),
            field("port_lmc").trim_start_matches("0x0").trim_start_matches("0x")
        );
        let mtu = field("active_mtu");
        assert_eq!(port.derived_active_mtu_bytes.map(|mtu| mtu.to_string()).as_deref(), mtu.split(' ').next());
        assert_eq!(port.gid_table_length.to_string(), field("gid_tbl_len"));
        // `GID[  1]:		::ffff:10.9.0.1, RoCE v2`
        let shown: Vec<(u32, Ipv6Addr, String)> = block
            .lines()
            .filter_map(|line| line.trim().strip_prefix("GID["))
            .map(|line| {
                let (index, rest) = line.split_once("]:").unwrap();
                let (address, kind) = rest.trim().split_once(", ").unwrap();
                (index.trim().parse().unwrap(), address.parse().unwrap(), kind.to_owned())
            })
            .collect();
        let ours: Vec<(u32, Ipv6Addr, String)> =
            port.gids.iter().map(|gid| (gid.index, gid.gid.parse().unwrap(), gid.kind.clone().unwrap())).collect();
        assert_eq!(ours, shown, "{}", hca.name);
        // `rxe_0 1 0000:…:0a09:0001 RoCE v2`, from sysfs
        let table = scenarios["gids"].output.lines().filter_map(|line| line.strip_prefix(&format!("{} ", hca.name)));
        let table: Vec<(u32, Ipv6Addr, String)> = table
            .map(|line| {
                let mut words = line.splitn(3, ' ');
                let index = words.next().unwrap().parse().unwrap();
                (index, words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned())
            })
            .collect();
        assert_eq!(ours, table, "{}", hca.name);
        assert!(port.nccl_gid.as_ref().is_some_and(|gid| gid.is_usable && port.gid(gid.index).unwrap().ipv4.is_some()));
        let node = hca.uverbs.as_ref().unwrap();
        assert_eq!((node.access, node.path.starts_with("/dev/infiniband/uverbs")), (Access::Opened, true));
    }
}

/// What people read, without times and without how many packets acknowledged the others.
fn redacted(report: &LoopbackReport) -> String {
    let text = rdmaprep::report::loopback::text(report);
    let line = |line: &str| match line.split_once(" messages ") {
        Some((before, _)) => format!("{before} messages  [bandwidth]\n"),
        None if line.contains(" packets sent") => {
            let (before, rest) = line.split_once(": ").unwrap();
            let expected = rest.split(", ").last().unwrap();
            format!("{before}: [packets], {expected}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn moves_data(report: &LoopbackReport) {
    assert_eq!(report.devices.len(), 1, "one was asked for");
    assert!(report.library.as_ref().unwrap().path.contains("/libibverbs.so.1."), "{:?}", report.library);
    let port = port(report);
    let gid = port.gid.as_ref().unwrap();
    assert_eq!((gid.index, gid.chosen_by, gid.is_routable), (1, GidChoice::Nccl, true));
    assert_eq!(gid.gid, "0000:0000:0000:0000:0000:ffff:0a09:0001");
    let sizes: Vec<u64> = (16..=23).map(|power| 1 << power).collect();
    for (path, of) in port.paths.iter().zip([RdmaPath::Itself, RdmaPath::Pair]) {
        assert_eq!(path.path, of);
        assert_eq!(path.rows.iter().map(|row| row.size_bytes).collect::<Vec<_>>(), sizes);
        assert!(path.rows.iter().all(|row| row.time_us > 0.0 && row.bandwidth_gb_per_s() > 0.0));
    }
    // Soft-RoCE counts packets, of which each holds at most 1024 bytes; the acknowledgements come on top.
    let counters = port.counters.as_ref().unwrap();
    assert_eq!((counters.unit, counters.source.as_str()), (CounterUnit::Packets, "hw_counters/sent_pkts"));
    assert_eq!(counters.expected, port.moved_bytes() / 1024);
    assert!(counters.confirms(), "{counters:?}");
}

/// Field by field what `ibv_devinfo -v` of rdma-core prints.
fn agrees_with_devinfo(report: &LoopbackReport, devinfo: &str) {
    for part in devinfo.split("hca_id:\t").skip(1) {
        let name = part.lines().next().unwrap();
        let fields: BTreeMap<&str, &str> =
            part.lines().rev().filter_map(|line| line.trim().split_once(":\t")).map(|(k, v)| (k, v.trim())).collect();
        let device = device(report, name);
        let limits = device.limits.as_ref().unwrap();
        let port = device.ports[0].attributes.as_ref().unwrap();
        let mtu = |bytes: Option<u32>| bytes.map(|bytes| format!("{bytes} ({})", bytes.trailing_zeros() - 7)).unwrap();
        for (field, value) in [
            ("fw_ver", limits.firmware.clone()),
            ("node_guid", limits.node_guid.clone()),
            ("sys_image_guid", limits.system_image_guid.clone()),
            ("vendor_id", limits.vendor_id.clone()),
            ("vendor_part_id", limits.vendor_part_id.to_string()),
            ("hw_ver", format!("0x{:X}", limits.hardware_version)),
            ("phys_port_cnt", limits.ports.to_string()),
            ("max_mr_size", format!("0x{:x}", limits.max_mr_bytes)),
            ("max_mr", limits.max_mr.to_string()),
            ("max_pd", limits.max_pd.to_string()),
            ("max_qp", limits.max_qp.to_string()),
            ("max_qp_wr", limits.max_qp_wr.to_string()),
            ("max_sge", limits.max_sge.to_string()),
            ("max_cq", limits.max_cq.to_string()),
            ("max_cqe", limits.max_cqe.to_string()),
            ("state", format!("PORT_{} (4)", port.state)),
            ("max_mtu", mtu(port.max_mtu_bytes)),
            ("active_mtu", mtu(port.active_mtu_bytes)),
            ("sm_lid", port.sm_lid.to_string()),
            ("port_lid", port.lid.to_string()),
            ("port_lmc", format!("0x{:02x}", port.lmc)),
            ("link_layer", port.link_layer.clone()),
            ("max_msg_sz", format!("0x{:x}", port.max_message_bytes)),
            ("gid_tbl_len", port.gid_table_length.to_string()),
        ] {
            assert_eq!(fields.get(field), Some(&value.as_str()), "{name}: {field}");
        }
    }
    assert_eq!(report.devices.len(), 2, "{report:?}");
}

fn gids(take: &dyn Fn(&str, i32) -> LoopbackReport) {
    // The data moves, but no other host can be reached with such a GID.
    let report = take("no-address", 0);
    let gid = port(&report).gid.as_ref().unwrap();
    assert_eq!((gid.index, gid.is_routable), (0, false));
    let report = take("link-local", 0);
    let gid = port(&report).gid.as_ref().unwrap();
    assert_eq!((gid.index, gid.chosen_by, gid.is_routable), (0, GidChoice::Asked, false));
    for (name, index, usable) in
        [("asked-slot-empty", 1, ", and none is RoCE v2 and routable"), ("wrong-gid-index", 5, "; usable: 1")]
    {
        let report = take(name, 4);
        let failure = of_paths(port(&report));
        assert_eq!((failure.step, errno(failure)), (Step::ModifyToRtr, Some("ENODATA")), "{name}");
        let summary = format!("slot {index} of the GID table is empty{usable}");
        assert_eq!(cause_of(failure), (CauseId::GidUnroutable, summary.as_str()));
    }
    let report = take("gid-index-beyond-table", 4);
    let failure = port(&report).failure.as_ref().unwrap();
    assert_eq!((failure.step, errno(failure)), (Step::QueryGid, Some("EINVAL")));
    let summary = "slot 5000 of the GID table is empty; usable: 1";
    assert_eq!(cause_of(failure), (CauseId::GidUnroutable, summary));
}

/// The cause of a failure, and what is said of this case.
fn cause_of(failure: &LoopbackFailure) -> (CauseId, &str) {
    let cause = failure.cause.as_ref().unwrap();
    (cause.id, &cause.summary)
}

fn ports_and_interfaces(take: &dyn Fn(&str, i32) -> LoopbackReport) {
    let report = take("port-down", 4);
    let failure = port(&report).failure.as_ref().unwrap();
    assert_eq!(cause_of(failure), (CauseId::PortDown, "the port is not active but DOWN"));
    assert!(device(&report, "rxe_1").ports[0].is_proven(), "the other one is not down");

    let report = take("large-mtu", 0);
    let port_of = port(&report);
    assert_eq!(port_of.attributes.as_ref().unwrap().active_mtu_bytes, Some(4096));
    assert_eq!(port_of.counters.as_ref().unwrap().expected, port_of.moved_bytes() / 4096);

    // Hardware says ENODEV; soft-RoCE moves the data, so that the GID's interface must tell.
    let report = take("other-network-namespace", 0);
    let gid = port(&report).gid.as_ref().unwrap();
    assert_eq!((gid.index, gid.interface.as_deref(), gid.is_interface_here), (1, Some("v0"), false));
    let report = take("large-mtu", 0);
    assert!(port(&report).gid.as_ref().unwrap().is_interface_here);

    // One of the paths was under way. Nothing hangs, and what a completion says about it is left to the driver.
    let report = take("down-while-busy", 4);
    let failure = port(&report).paths.iter().find_map(|path| path.failure.as_ref()).unwrap();
    assert_eq!(cause_of(failure), (CauseId::PortDown, "the port is not active but DOWN"), "{failure:?}");
    assert_eq!(failure.step, Step::PollCq);
    assert!(matches!(&failure.error, StepError::Completion { text, .. } if !text.is_empty()), "{failure:?}");
}

fn nodes_and_limits(take: &dyn Fn(&str, i32) -> LoopbackReport) {
    let node = "/dev/infiniband/uverbs0".to_owned();
    let report = take("node-missing", 4);
    let failure = device(&report, "rxe_0").failure.as_ref().unwrap();
    let missing = format!("{node} is not there");
    assert_eq!((failure.step, cause_of(failure)), (Step::DeviceList, (CauseId::DeviceNotPermitted, missing.as_str())));
    assert!(device(&report, "rxe_1").ports[0].is_proven());

    let report = take("node-refused", 4);
    let failure = device(&report, "rxe_0").failure.as_ref().unwrap();
    assert_eq!(failure.step, Step::OpenDevice);
    let (id, summary) = cause_of(failure);
    assert!(id == CauseId::DeviceNotPermitted && summary.starts_with(&format!("{node}: ")), "{failure:?}");

    let report = take("memlock-low", 4);
    let failure = of_paths(port(&report));
    assert_eq!((failure.step, errno(failure)), (Step::RegMr, Some("ENOMEM")));
    let summary = "memlock is limited to 65536 B, but 33554432 B must be registered";
    assert_eq!(cause_of(failure), (CauseId::MemlockLow, summary));
    take("memlock-unlimited", 0);
}

/// One byte of one message is changed after it arrived.
fn planted(report: &LoopbackReport) {
    let failure = of_paths(port(report));
    assert_eq!((failure.step, &failure.cause), (Step::Verify, &None));
    let StepError::WrongData { message, offset_bytes, found, expected } = failure.error else { panic!("{failure:?}") };
    assert_eq!((message, offset_bytes, found), (20, 65535, !expected));
}

fn nothing_to_try(take: &dyn Fn(&str, i32) -> LoopbackReport) {
    let report = take("no-such-device", 4);
    assert_eq!(cause_of(report.failure.as_ref().unwrap()), (CauseId::NoSuchDevice, "there is rxe_0, rxe_1"));
    let report = take("no-provider", 4);
    assert!(
        report
            .devices
            .iter()
            .all(|device| cause_of(device.failure.as_ref().unwrap()).0 == CauseId::VerbsProviderMissing)
    );
    assert_eq!(report.devices.len(), 2);
    assert_eq!(cause_of(take("no-device", 4).failure.as_ref().unwrap()).0, CauseId::NoVerbsDevice);
    let report = take("no-library", 4);
    assert_eq!((report.library, report.failure.unwrap().step), (None, Step::OpenLibrary));
}
