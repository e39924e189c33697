//! RDMA devices and GPUs of a host, a container or a captured tree → [`DeviceFacts`].
//!
//! Input: `sys`, and `proc` and `dev` if present, below a root. On this machine, but not for a captured tree, device nodes
//! are opened, and libibverbs and libcuda are called in separate processes ([`Probes`]). Unreadable data is omitted;
//! nothing here fails once the root exists.

mod distance;
pub mod gid;
mod mtu;
mod rdma;
mod watch;

pub use watch::Watch;

use crate::agent;
use crate::fabric::nic;
use crate::facts::devices::*;
use crate::facts::run::{GpuProbe, Interface, VerbsProbe};
use crate::sysfs::{Tree, nvidia};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest wait for a library: cuInit takes several seconds on a machine with eight GPUs.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// PCI vendor of NVIDIA, and the classes of a GPU: VGA and 3D controller (pci.ids).
const NVIDIA: &str = "0x10de";
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// Modules whose version and parameters matter here.
const MODULES: [&str; 12] = [
    "erdma",
    "ib_core",
    "ib_umad",
    "ib_uverbs",
    "mlx5_core",
    "mlx5_ib",
    "nv_peer_mem",
    "nvidia",
    "nvidia_peermem",
    "rdma_cm",
    "rdma_rxe",
    "siw",
];

/// Parameters to show: few of a module's parameters matter, and some are readable only by root.
const MAX_PARAMETERS: usize = 64;

/// What only a live machine can answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probes {
    pub interfaces: Vec<Interface>,
    pub verbs: Option<VerbsProbe>,
    pub cuda: Option<GpuProbe>,
}

/// Checks that the root is a directory that contains `sys`.
///
/// # Errors
/// What the path is instead, in words.
pub fn check_root(root: &Path) -> Result<(), String> {
    match std::fs::metadata(root) {
        Err(error) => return Err(error.to_string()),
        Ok(metadata) if !metadata.is_dir() => return Err("it is not a directory".to_owned()),
        Ok(_) => {}
    }
    if !root.join("sys").is_dir() {
        return Err("it has no sys directory".to_owned());
    }
    Ok(())
}

/// Names of the RDMA devices below a root.
pub fn names(root: &Path) -> Vec<String> {
    crate::sysfs::rdma::devices(&Tree::new(root))
}

/// Reads this machine, or the container that this process is in.
pub fn load_live() -> DeviceFacts {
    let root = Path::new("/");
    let has_gpus = root.join("proc/driver/nvidia/version").exists();
    let has_rdma = root.join("sys/class/infiniband").exists();
    let probes = Probes {
        interfaces: agent::interfaces(),
        verbs: has_rdma.then(|| agent::ask_verbs(PROBE_LIMIT)),
        cuda: has_gpus.then(|| agent::ask_gpus(PROBE_LIMIT)),
    };
    load(root, Some(probes))
}

/// Reads a captured tree and nothing of this machine.
pub fn load_captured(root: &Path) -> DeviceFacts {
    load(root, None)
}

fn load(root: &Path, probes: Option<Probes>) -> DeviceFacts {
    let tree = Tree::new(root);
    let is_live = probes.is_some();
    let probes = probes.unwrap_or_default();
    let host = rdma::Host { tree, is_live, interfaces: &probes.interfaces };
    let modules = load_modules(&tree);
    let rdma_devices = host.load_devices(&modules);
    DeviceFacts {
        schema_version: SCHEMA_VERSION,
        root: root.display().to_string(),
        is_live,
        hostname: tree.line("proc/sys/kernel/hostname"),
        kernel: tree.line("proc/sys/kernel/osrelease"),
        idle_devices: load_idle(&tree, &rdma_devices),
        rdma_cm: (!rdma_devices.is_empty()).then(|| host.node("/dev/infiniband/rdma_cm".to_owned())),
        gpus: load_gpus(&tree, &rdma_devices),
        nvidia: load_nvidia(&tree, probes.cuda),
        ofed: load_ofed(&tree, &modules),
        limits: load_limits(&tree),
        verbs: probes.verbs,
        rdma_devices,
        modules,
    }
}

fn load_modules(tree: &Tree<'_>) -> BTreeMap<String, Module> {
    let present = MODULES.into_iter().filter(|name| tree.real(&format!("sys/module/{name}")).is_some());
    let module = |name: &str| {
        let folder = format!("sys/module/{name}");
        let parameters = tree.list(&format!("{folder}/parameters")).into_iter().take(MAX_PARAMETERS);
        let parameters = parameters.filter_map(|parameter| {
            let value = tree.line(&format!("{folder}/parameters/{parameter}"))?;
            Some((parameter, value))
        });
        Module { version: tree.line(&format!("{folder}/version")), parameters: parameters.collect() }
    };
    present.map(|name| (name.to_owned(), module(name))).collect()
}

fn load_gpus(tree: &Tree<'_>, nics: &[Hca]) -> Vec<GpuFacts> {
    let on_bus = |address: &String| {
        let read = |file: &str| tree.line(&format!("sys/bus/pci/devices/{address}/{file}")).unwrap_or_default();
        read("vendor") == NVIDIA && GPU_CLASSES.iter().any(|class| read("class").starts_with(class))
    };
    let mut known = nvidia::load_gpus(tree);
    let others: Vec<String> = tree
        .list("sys/bus/pci/devices")
        .into_iter()
        .filter(|address| on_bus(address) && !known.iter().any(|gpu| gpu.pci_address.eq_ignore_ascii_case(address)))
        .collect();
    // In a container the driver's files may be absent, and on a host the driver.
    known.extend(others.into_iter().map(|pci_address| nvidia::GpuInformation { pci_address, ..Default::default() }));
    known.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    let place = |address: &str| tree.real(&format!("sys/bus/pci/devices/{}", address.to_ascii_lowercase()));
    let gpu = |gpu: nvidia::GpuInformation| {
        let folder = format!("sys/bus/pci/devices/{}", gpu.pci_address.to_ascii_lowercase());
        let numa_node = numa_node(tree, &folder);
        let own = place(&gpu.pci_address);
        let distances = nics.iter().filter_map(|nic| {
            let other = place(nic.pci_address.as_deref()?)?;
            let distance = distance::distance(own.as_deref()?, &other, numa_node == nic.numa_node)?;
            Some((nic.name.clone(), distance))
        });
        GpuFacts {
            distances: distances.collect(),
            driver: tree.link_name(&format!("{folder}/driver")),
            numa_node,
            model: gpu.model,
            uuid: gpu.uuid,
            minor: gpu.minor,
            pci_address: gpu.pci_address,
        }
    };
    known.into_iter().map(gpu).collect()
}

/// eRDMA devices (elastic-rdma-drivers, README: 1ded:107f) and Mellanox network controllers (class 02) on the PCI bus
/// without an RDMA device: the driver is not loaded, or did not claim them.
fn load_idle(tree: &Tree<'_>, nics: &[Hca]) -> Vec<PciFunction> {
    let function = |pci_address: String| {
        let folder = format!("sys/bus/pci/devices/{pci_address}");
        let read = |file: &str| tree.line(&format!("{folder}/{file}"));
        let (vendor_id, device_id) = (read("vendor")?, read("device")?);
        let is_candidate = match vendor_id.as_str() {
            nic::ALIBABA => device_id == "0x107f",
            nic::MELLANOX => read("class")?.starts_with("0x02"),
            _ => false,
        };
        let is_used = nics.iter().any(|nic| nic.pci_address.as_deref() == Some(&pci_address));
        // Both ports of a bond form one device.
        let is_used = is_used || tree.real(&format!("{folder}/infiniband")).is_some();
        (is_candidate && !is_used).then(|| PciFunction {
            driver: tree.link_name(&format!("{folder}/driver")),
            pci_address,
            vendor_id,
            device_id,
        })
    };
    tree.list("sys/bus/pci/devices").into_iter().filter_map(function).collect()
}

/// -1: the firmware does not report it.
fn numa_node(tree: &Tree<'_>, folder: &str) -> Option<u32> {
    tree.number::<i64>(&format!("{folder}/numa_node")).and_then(|node| u32::try_from(node).ok())
}

fn load_nvidia(tree: &Tree<'_>, cuda: Option<GpuProbe>) -> NvidiaFacts {
    let version = tree.text("proc/driver/nvidia/version");
    // `cuDriverGetVersion`: 12040 for 12.4.
    let said = |code: i32| format!("{}.{}", code / 1000, code % 1000 / 10);
    NvidiaFacts {
        driver_version: version
            .as_deref()
            .and_then(nvidia::parse_driver_version)
            .or_else(|| tree.line("sys/module/nvidia/version")),
        is_open_module: version.as_deref().and_then(nvidia::is_open_module),
        cuda_version: cuda.as_ref().and_then(|probe| probe.cuda_version_code).map(said),
        cuda_failure: cuda.and_then(|probe| probe.failure),
        peer_memory: load_peer_memory(tree),
    }
}

/// Where NCCL looks for the module (NVIDIA/nccl, `ncclIbGdrSupport`: `/sys/kernel/mm/memory_peers/nv_mem*/version`,
/// `/sys/module/nvidia_peermem/version`).
fn load_peer_memory(tree: &Tree<'_>) -> Vec<String> {
    let peers = tree.list("sys/kernel/mm/memory_peers").into_iter();
    let peers = peers.filter(|name| name.starts_with("nv")).map(|name| format!("sys/kernel/mm/memory_peers/{name}"));
    let modules = ["nvidia_peermem", "nv_peer_mem"].map(|name| format!("sys/module/{name}"));
    let found = modules.into_iter().chain(peers).filter(|folder| tree.exists(&format!("{folder}/version")));
    found.map(|folder| format!("/{folder}")).collect()
}

/// `ofed_info` is a script that prints a version written in it.
fn load_ofed(tree: &Tree<'_>, modules: &BTreeMap<String, Module>) -> Option<OfedVersion> {
    const SCRIPT: &str = "usr/bin/ofed_info";
    if let Some(version) = tree.text(SCRIPT).as_deref().and_then(parse_ofed_info) {
        return Some(OfedVersion { version, source: format!("/{SCRIPT}") });
    }
    // Linux's own module had 5.0-0 until its version was dropped; OFED's has OFED's.
    let version = modules.get("mlx5_core")?.version.clone().filter(|version| version != "5.0-0")?;
    Some(OfedVersion { version, source: "/sys/module/mlx5_core/version".to_owned() })
}

/// The first `MLNX_OFED_LINUX-23.10-5.1.4.0` or `OFED-internal-24.10-0.7.0`.
fn parse_ofed_info(text: &str) -> Option<String> {
    const NAMES: [&str; 2] = ["MLNX_OFED_LINUX-", "OFED-internal-"];
    let at = NAMES.iter().filter_map(|name| Some((text.find(name)?, name.len()))).min()?;
    let rest = &text[at.0..];
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    // A bare name, as in a pattern of the script, is not a version.
    (end > at.1 && rest[at.1..].starts_with(|c: char| c.is_ascii_digit())).then(|| rest[..end].to_owned())
}

fn load_limits(tree: &Tree<'_>) -> Option<Limits> {
    let limits = tree.text("proc/self/limits")?;
    let status = tree.text("proc/self/status").unwrap_or_default();
    Some(Limits { memlock_bytes: parse_memlock(&limits)?, can_lock_memory: agent::can_lock_memory(&status) })
}

/// `Max locked memory  65536  65536  bytes` → the soft limit; `Some(None)`: unlimited.
fn parse_memlock(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(None),
        bytes => bytes.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ofed_info_scripts() {
        for (text, version) in [
            (
                "#!/bin/bash\nif [ \"$1\" == \"-s\" ]; then\n\techo \"MLNX_OFED_LINUX-23.10-5.1.4.0:\"\n\texit 0\nfi\n",
                Some("MLNX_OFED_LINUX-23.10-5.1.4.0"),
            ),
            ("echo OFED-internal-24.10-0.7.0:\n", Some("OFED-internal-24.10-0.7.0")),
            ("MLNX_OFED_LINUX-5.4-3.1.0.0", Some("MLNX_OFED_LINUX-5.4-3.1.0.0")),
            ("grep MLNX_OFED_LINUX-*", None),
            ("#!/bin/sh\n", None),
        ] {
            assert_eq!(parse_ofed_info(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn limits_of_locked_memory() {
        let line = |soft: &str| format!("Limit  Soft Limit\nMax locked memory         {soft}   8388608   bytes\n");
        assert_eq!(parse_memlock(&line("65536")), Some(Some(65536)));
        assert_eq!(parse_memlock(&line("unlimited")), Some(None));
        assert_eq!(parse_memlock(&line("x")), None);
        assert_eq!(parse_memlock("Max file locks unlimited"), None);
    }

    #[test]
    fn this_machine_is_read() {
        let facts = load_live();
        assert!(facts.is_live && facts.kernel.is_some() && facts.limits.is_some());
        assert_eq!(facts.rdma_devices.is_empty(), facts.rdma_cm.is_none());
    }
}
