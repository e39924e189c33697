//! Checks of RDMA: devices as the container has them, whether RDMA carried the data, and GPUDirect.

use super::{Judged, RunSubject, count, say_line, settings};
use crate::checks::Outcome;
use crate::checks::finding::provider_missing;
use crate::diagnosis::{CauseId, Fault, GpuDirect, RdmaUse};
use crate::facts::rdma::RdmaDevice;
use crate::facts::run::{EnvironmentFacts, Failure, RunFacts};
use crate::facts::run_evidence::LogEvidence;
use crate::units::Bytes;

/// What was proved about RDMA. With one rank there is nothing to carry.
pub fn rdma_use(run: &RunFacts) -> RdmaUse {
    match &run.evidence {
        Some(evidence) if run.ranks.len() == 1 && evidence.rdma == RdmaUse::Unknown => RdmaUse::NotExercised,
        Some(evidence) => evidence.rdma,
        None => RdmaUse::Unknown,
    }
}

/// Whether the container got an RDMA device: from the launch, or because it sees all of the host's.
fn got_devices(run: &RunFacts) -> bool {
    let is_uverbs = |path: &str| path.contains("/dev/infiniband/uverbs");
    let nodes = run.environment.iter().flat_map(|environment| &environment.rdma_nodes);
    run.launch.devices.iter().any(|path| is_uverbs(path))
        || nodes.into_iter().any(|node| node.error.is_none() && is_uverbs(&node.path))
}

pub(super) fn rdma_used(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    let required = subject.options.require_rdma;
    subject.started()?;
    let evidence = match subject.evidence() {
        Ok(evidence) => evidence,
        Err(unknown) if required => return Ok(Outcome::fail(format!("RDMA: unknown ({})", unknown.summary))),
        Err(unknown) => return Err(unknown),
    };
    let because = because(evidence);
    let outcome = match rdma_use(run) {
        RdmaUse::Yes => carried(run, &because),
        RdmaUse::NotExercised => {
            let summary = format!("RDMA: not exercised{because}");
            let outcome = if required { Outcome::fail(summary) } else { Outcome::warn(summary) };
            let remedy = if run.ranks.len() < 2 {
                "use two or more GPUs, or --ranks-per-gpu 2, with --force-nic"
            } else {
                "--force-nic makes the ranks of one host communicate over its RDMA devices"
            };
            outcome.remedy(remedy).blame(Fault::Launch)
        }
        RdmaUse::No => not_used(subject, &because, required || got_devices(run)),
        RdmaUse::Unknown => {
            let summary = format!("RDMA: unknown{because}");
            return if required { Ok(Outcome::fail(summary)) } else { Err(Outcome::unknown(summary)) };
        }
    };
    Ok(outcome.evidence(evidence.rdma_reasons.iter().cloned()).evidence(channels(evidence)))
}

/// ` (reason; reason)`
fn because(evidence: &LogEvidence) -> String {
    match evidence.rdma_reasons.first() {
        Some(reason) => format!(" ({reason})"),
        None => String::new(),
    }
}

/// `8 channels via NET/IB`
fn channels(evidence: &LogEvidence) -> Vec<String> {
    evidence.transports.iter().map(|(name, number)| format!("{number} channels via {name}")).collect()
}

/// Logs, counters and results say together that RDMA carried the data; what the devices counted is the evidence.
fn carried(run: &RunFacts, because: &str) -> Outcome {
    let devices = run.environment.iter().flat_map(|environment| &environment.rdma_devices);
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    let counters: Vec<_> = run.counters.iter().filter(|counter| names.contains(&counter.device.as_str())).collect();
    let sent: u64 = counters.iter().map(|counter| counter.sent_bytes).sum();
    let lines = counters.iter().map(|counter| {
        format!(
            "{}: {} sent, {} received ({})",
            counter.device,
            Bytes(counter.sent_bytes),
            Bytes(counter.received_bytes),
            counter.source
        )
    });
    let moved = if counters.is_empty() { String::new() } else { format!("; the devices sent {}", Bytes(sent)) };
    Outcome::pass(format!("RDMA: yes{because}{moved}")).evidence(lines)
}

/// Sockets carried the data. Where the container had a device of the fabric that is a failure: a job pays for RDMA and does
/// not get it. Where it had none, this host could do no better, and the user may know that.
fn not_used(subject: &RunSubject<'_>, because: &str, counts: bool) -> Outcome {
    let run = subject.run;
    let say = |why: &str| {
        let summary = format!("RDMA: no{because}{why}");
        if counts { Outcome::fail(summary) } else { Outcome::warn(summary) }
    };
    // The variable says who set it, which the log does not.
    if let Some(setting) = settings::in_effect(run).iter().find(|setting| setting.switches_rdma_off()) {
        return say(&format!(": {} switches it off", setting.say())).remedy(setting.take_out()).blame(setting.blame);
    }
    if let Some(cause) = subject.causes().find(|cause| cause.id.info().explains_sockets) {
        return say(&format!(": {}: {}", cause.id, cause.summary))
            .evidence(cause.evidence.iter().cloned())
            .remedy(cause.remedy.as_str())
            .blame(cause.fault);
    }
    if let Some((what, remedy, blame)) = broken_device(subject) {
        return say(&format!(": {what}")).remedy(remedy).blame(blame);
    }
    if !got_devices(run) {
        return say(": the container has no RDMA device")
            .remedy(
                "docker run --device /dev/infiniband/uverbs0 --device /dev/infiniband/rdma_cm, on a host that has them",
            )
            .blame(Fault::Host);
    }
    say("")
}

/// What prevents the container's processes from opening a device: problem, remedy, who is at fault.
fn broken_device(subject: &RunSubject<'_>) -> Option<(String, String, Fault)> {
    let run = subject.run;
    let environment = run.environment.as_ref()?;
    // Devices of another fabric, which the container need not open, are left alone.
    let fabric = subject.target.fabric;
    let devices: Vec<&RdmaDevice> =
        environment.rdma_devices.iter().filter(|device| fabric.drives(device.nic())).collect();
    if let Some(problem) = not_permitted(environment, &devices) {
        return Some(problem);
    }
    let verbs = run.verbs.as_ref()?;
    match &verbs.failure {
        Some(Failure::LibraryMissing { library, detail }) => {
            return Some((
                format!("{}: {library} cannot be opened: {detail}", CauseId::LibibverbsMissing),
                "rdmaprep build IMAGE -t NEW".to_owned(),
                Fault::Image,
            ));
        }
        Some(other) => {
            return Some((
                format!("libibverbs does not work: {}", super::say_failure(other)),
                "rdmaprep build IMAGE -t NEW".to_owned(),
                Fault::Image,
            ));
        }
        None => {}
    }
    for device in devices {
        match verbs.devices.iter().find(|found| found.name == device.name) {
            None => {
                let id = provider_missing(subject.target.fabric);
                return Some((
                    format!("{id}: the kernel has {}, but libibverbs does not list it", device.name),
                    "rdmaprep build IMAGE -t NEW".to_owned(),
                    Fault::Image,
                ));
            }
            Some(found) => {
                if let Some(error) = &found.error {
                    return Some((
                        format!("{} cannot be opened: {error}", device.name),
                        "on the host: ibv_devinfo, and dmesg for the device's driver".to_owned(),
                        Fault::Host,
                    ));
                }
            }
        }
    }
    None
}

/// A device that sysfs shows and whose node cannot be used.
fn not_permitted(environment: &EnvironmentFacts, devices: &[&RdmaDevice]) -> Option<(String, String, Fault)> {
    for device in devices {
        let Some(uverbs) = &device.uverbs else { continue };
        let path = format!("/dev/infiniband/{uverbs}");
        let node = environment.rdma_nodes.iter().find(|node| node.path == path);
        let why = match node {
            None => "was not passed into the container".to_owned(),
            Some(node) => match &node.error {
                Some(error) => format!("cannot be opened: {error}"),
                None => continue,
            },
        };
        return Some((
            format!("{}: {} is there, and {path} {why}", CauseId::DeviceNotPermitted, device.name),
            format!("docker run --device {path} --device /dev/infiniband/rdma_cm"),
            CauseId::DeviceNotPermitted.fault(),
        ));
    }
    None
}

pub(super) fn rdma_devices(subject: &RunSubject<'_>) -> Judged {
    let environment = subject.environment()?;
    let fabric = subject.target.fabric;
    let run = subject.run;
    let (own, others): (Vec<&RdmaDevice>, Vec<&RdmaDevice>) =
        environment.rdma_devices.iter().partition(|device| fabric.drives(device.nic()));
    if own.is_empty() {
        let is_asked_for = subject.options.require_rdma || run.launch.force_nic || got_devices(run);
        let summary = match others.as_slice() {
            [] => "the host has no RDMA device".to_owned(),
            others => {
                let names: Vec<&str> = others.iter().map(|device| device.name.as_str()).collect();
                format!("none of the host's devices belongs to {}: {}", fabric.title, names.join(", "))
            }
        };
        // A machine without the fabric can still try an image; that is reported, but is not a failure.
        let outcome = if is_asked_for { Outcome::fail(summary) } else { Outcome::warn(summary) };
        return Ok(outcome
            .named(CauseId::NoRdmaHardware)
            .remedy("on the host: lspci, and modprobe the device's driver; the instance needs an RDMA interface"));
    }
    if let Some((what, remedy, blame)) = not_permitted(environment, &own) {
        return Ok(Outcome::fail(what).remedy(remedy).blame(blame));
    }
    if let Some(outcome) = ports_down(&own, environment) {
        return Ok(outcome);
    }
    if run.verbs.is_none() {
        return Err(Outcome::unknown("the agent ended before it called libibverbs"));
    }
    if let Some((what, remedy, blame)) = broken_device(subject) {
        let warnings = run.verbs.iter().flat_map(|verbs| verbs.warnings.iter().cloned());
        return Ok(Outcome::fail(what).evidence(warnings).remedy(remedy).blame(blame));
    }
    let names: Vec<&str> = own.iter().map(|device| device.name.as_str()).collect();
    Ok(Outcome::pass(format!("{}: {}, every port active", count(own.len(), "device"), names.join(", "))))
}

/// NCCL silently skips ports that are not active.
fn ports_down(devices: &[&RdmaDevice], environment: &EnvironmentFacts) -> Option<Outcome> {
    let ports: Vec<_> = devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))).collect();
    let down: Vec<_> = ports.iter().filter(|(_, port)| !port.state.eq_ignore_ascii_case("ACTIVE")).collect();
    let (device, port) = down.first()?;
    let lines = down.iter().flat_map(|(device, port)| {
        let interfaces = port.interfaces.iter().map(|name| {
            match environment.interfaces.iter().find(|interface| interface.name == *name) {
                Some(interface) if interface.addresses.is_empty() => {
                    format!("{name}: {}, no address", interface.state)
                }
                Some(interface) => format!("{name}: {}, {}", interface.state, interface.addresses.join(", ")),
                None => format!("{name}: not in the container's network"),
            }
        });
        [format!("{} port {}: {}", device.name, port.port, port.state)].into_iter().chain(interfaces)
    });
    let summary = format!("{} port {} is {}", device.name, port.port, port.state);
    let outcome = if down.len() == ports.len() { Outcome::fail(summary) } else { Outcome::warn(summary) };
    let interface = port.interfaces.first().map_or("ETH", String::as_str);
    Some(
        outcome
            .named(CauseId::PortDown)
            .evidence(lines)
            .remedy(format!("on the host: ip link set {interface} up, and give it an address: dhclient {interface}")),
    )
}

pub(super) fn gpu_direct(subject: &RunSubject<'_>) -> Judged {
    let evidence = subject.evidence()?;
    match rdma_use(subject.run) {
        RdmaUse::NotExercised => return Ok(Outcome::skip("RDMA was not exercised")),
        RdmaUse::No => return Ok(Outcome::skip("RDMA carried nothing")),
        RdmaUse::Unknown => return Err(Outcome::unknown("whether RDMA carried the data is unknown")),
        RdmaUse::Yes => {}
    }
    let part = match evidence.gpu_direct {
        GpuDirect::Yes => return Ok(Outcome::pass("the RDMA devices access GPU memory directly")),
        GpuDirect::NotExercised => return Ok(Outcome::skip("no channel could use it")),
        GpuDirect::Unknown => return Err(Outcome::unknown("the channel lines do not show it")),
        GpuDirect::Mixed => "some channels go",
        GpuDirect::No => "RDMA carries the data, but every byte goes",
    };
    let summary = format!("{part} through the host's memory, without GPUDirect RDMA");
    if let Some(cause) = subject.cause(&[CauseId::DmabufUnsupported]) {
        return Ok(Outcome::warn(format!("{summary}: {}: {}", cause.id, cause.summary))
            .evidence(cause.evidence.iter().cloned())
            .remedy(cause.remedy.as_str())
            .blame(cause.fault));
    }
    // The kernel's driver may lack dma-buf registration, and so may the provider that is in the image.
    if let Some(line) = subject.warned(&["ibv_reg_dmabuf_mr failed"]) {
        return Ok(Outcome::warn(format!("{summary}: {}", CauseId::DmabufUnsupported))
            .evidence([say_line(line)])
            .remedy("--env NCCL_DMABUF_ENABLE=0 with nvidia_peermem on the host, or a newer rdma-core and driver")
            .blame(Fault::Host));
    }
    let environment = subject.environment()?;
    let no_dma_buf = subject.run.gpus.iter().flat_map(|probe| &probe.gpus).any(|gpu| gpu.dma_buf == Some(false));
    let outcome = Outcome::warn(summary).blame(Fault::Host);
    Ok(if environment.peer_memory_module {
        outcome.remedy("--env NCCL_NET_GDR_LEVEL=SYS, if GPU and device are far apart on the PCIe bus")
    } else {
        let gpus = no_dma_buf.then(|| "the GPUs' driver has no dma-buf".to_owned());
        outcome
            .evidence(["nvidia_peermem is not loaded".to_owned()].into_iter().chain(gpus))
            .remedy("on the host: modprobe nvidia_peermem")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::run::RunOptions;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;
    use crate::facts::run::{Origin, VerbsProbe};

    const REQUIRED: RunOptions = RunOptions { require_rdma: true, min_busbw_gb_per_s: None };

    fn sockets() -> RunFacts {
        let mut run = good_run();
        let evidence = run.evidence.as_mut().unwrap();
        evidence.rdma = RdmaUse::No;
        evidence.rdma_reasons = vec!["every channel between ranks is via NET/Socket".into()];
        evidence.gpu_direct = GpuDirect::NotExercised;
        evidence.transports = [("NET/Socket".to_owned(), 8)].into();
        run
    }

    fn without_devices(mut run: RunFacts) -> RunFacts {
        run.launch.devices.clear();
        let environment = run.environment.as_mut().unwrap();
        environment.rdma_devices.clear();
        environment.rdma_nodes.clear();
        run
    }

    #[test]
    fn four_values() {
        expect(&found(&good_run(), "rdma-used"), Pass, None, &["RDMA: yes", "8 channels via NET/IB", "700.0 MB"]);
        expect(&found(&one_rank(), "rdma-used"), Warn, Some(Launch), &["RDMA: not exercised (there is one rank)"]);
        expect(&found_with(&one_rank(), "rdma-used", REQUIRED), Fail, Some(Launch), &["--ranks-per-gpu 2"]);
        let mut run = good_run();
        run.evidence.as_mut().unwrap().rdma = RdmaUse::Unknown;
        expect(&found(&run, "rdma-used"), Unknown, None, &["RDMA: unknown"]);
        expect(&found_with(&run, "rdma-used", REQUIRED), Fail, None, &[]);
        run.ranks.truncate(1);
        assert_eq!(rdma_use(&run), RdmaUse::NotExercised);
        run.evidence = None;
        expect(&found(&run, "rdma-used"), Unknown, None, &["were not read"]);
        expect(&found_with(&run, "rdma-used", REQUIRED), Fail, None, &["were not read"]);
    }

    /// A fabric and a device, and sockets carried the data: that is what a preflight is there to find.
    #[test]
    fn sockets_count_where_a_device_was_passed() {
        expect(&found(&sockets(), "rdma-used"), Fail, None, &["RDMA: no (every channel", "8 channels via NET/Socket"]);
        expect(&found(&without_devices(sockets()), "rdma-used"), Warn, Some(Host), &["has no RDMA device"]);
        expect(&found_with(&without_devices(sockets()), "rdma-used", REQUIRED), Fail, Some(Host), &[]);
    }

    #[test]
    fn why_sockets_were_used() {
        let mut run = sockets();
        run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::LibibverbsMissing)];
        expect(&found(&run, "rdma-used"), Fail, Some(Image), &["libibverbs-missing", "remedy of libibverbs-missing"]);

        run.evidence.as_mut().unwrap().causes = vec![cause(CauseId::ShmTooSmall)];
        assert!(!found(&run, "rdma-used").summary.contains("shm-too-small"));

        let mut run = sockets();
        run.environment.as_mut().unwrap().variables.insert("NCCL_IB_DISABLE".into(), "1".into());
        run.launch.variables.push(variable("NCCL_IB_DISABLE", "1", Origin::User));
        expect(&found(&run, "rdma-used"), Fail, Some(Job), &["NCCL_IB_DISABLE=1 (user) switches it off"]);
        run.launch.variables.last_mut().unwrap().origin = Origin::Image;
        expect(&found(&run, "rdma-used"), Fail, Some(Image), &[]);

        let mut run = sockets();
        run.verbs.as_mut().unwrap().devices.clear();
        expect(&found(&run, "rdma-used"), Fail, Some(Image), &["erdma-provider-missing"]);
    }

    #[test]
    fn devices() {
        expect(&found(&good_run(), "rdma-devices"), Pass, None, &["1 device: erdma_0"]);
        let mut run = good_run();
        run.environment.as_mut().unwrap().rdma_nodes.retain(|node| !node.path.contains("uverbs"));
        expect(&found(&run, "rdma-devices"), Fail, Some(Launch), &["device-not-permitted", "was not passed"]);
        let mut run = good_run();
        run.environment.as_mut().unwrap().rdma_nodes[1].error = Some("Operation not permitted".into());
        expect(&found(&run, "rdma-devices"), Fail, Some(Launch), &["device-not-permitted", "Operation not permitted"]);
        let mut run = good_run();
        run.verbs.as_mut().unwrap().devices[0].error = Some("Invalid argument".into());
        expect(&found(&run, "rdma-devices"), Fail, Some(Host), &["Invalid argument"]);
        let missing = Failure::LibraryMissing { library: "libibverbs.so.1".into(), detail: "x".into() };
        run.verbs =
            Some(VerbsProbe { library: None, devices: Vec::new(), failure: Some(missing), warnings: Vec::new() });
        expect(&found(&run, "rdma-devices"), Fail, Some(Image), &["libibverbs-missing"]);
        run.verbs = None;
        expect(&found(&run, "rdma-devices"), Unknown, None, &[]);
        run.environment = None;
        expect(&found(&run, "rdma-devices"), Unknown, None, &[]);
    }

    /// udev names the device by its place; the driver and the vendor tell what it is.
    #[test]
    fn devices_are_known_by_their_driver() {
        let mut run = good_run();
        let rename = |run: &mut RunFacts, name: &str, driver: &str, vendor: &str| {
            let device = &mut run.environment.as_mut().unwrap().rdma_devices[0];
            (device.name, device.driver, device.vendor) = (name.into(), Some(driver.into()), Some(vendor.into()));
            run.verbs.as_mut().unwrap().devices[0].name = name.into();
        };
        rename(&mut run, "rocep26s0", "erdma", "0x1ded");
        expect(&found(&run, "rdma-devices"), Pass, None, &["rocep26s0"]);
        // Another fabric's device beside it, of which the container has no node, is none of its business.
        let devices = &mut run.environment.as_mut().unwrap().rdma_devices;
        let foreign = RdmaDevice {
            name: "mlx5_bond_0".into(),
            driver: Some("mlx5_core".into()),
            vendor: Some("0x15b3".into()),
            uverbs: Some("uverbs9".into()),
            ..devices[0].clone()
        };
        devices.push(foreign);
        expect(&found(&run, "rdma-devices"), Pass, None, &["1 device: rocep26s0"]);
        run.environment.as_mut().unwrap().rdma_devices.pop();
        rename(&mut run, "mlx5_0", "mlx5_core", "0x15b3");
        expect(&found(&run, "rdma-devices"), Fail, Some(Host), &["belongs to Alibaba eRDMA: mlx5_0"]);
    }

    #[test]
    fn gpu_memory_is_read_directly_or_not() {
        expect(&found(&good_run(), "gpu-direct"), Pass, None, &[]);
        expect(&found(&one_rank(), "gpu-direct"), Skip, None, &[]);
        expect(&found(&sockets(), "gpu-direct"), Skip, None, &[]);
        let mut run = good_run();
        run.evidence.as_mut().unwrap().gpu_direct = GpuDirect::Mixed;
        expect(&found(&run, "gpu-direct"), Warn, Some(Host), &["some channels", "NCCL_NET_GDR_LEVEL"]);
        run.environment.as_mut().unwrap().peer_memory_module = false;
        expect(&found(&run, "gpu-direct"), Warn, Some(Host), &["modprobe nvidia_peermem"]);
        run.evidence.as_mut().unwrap().gpu_direct = GpuDirect::Unknown;
        expect(&found(&run, "gpu-direct"), Unknown, None, &[]);
    }
}
