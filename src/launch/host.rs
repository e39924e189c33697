//! What this host offers a container: GPUs, the driver's libraries, RDMA devices, CDI specifications.
//!
//! Input: `/dev`, `/proc`, `/sys`, `/etc/ld.so.cache` and the directories of CDI below a root, which is `/` outside of tests.
//! Output: a [`Host`]. What is not there is left out; what is there and cannot be read is a problem that the host names.

use crate::docker::engine::EngineHost;
use crate::fabric::Fabric;
use crate::facts::rdma::RdmaDevice;
use crate::inspect::parse_cache;
use crate::sysfs::nvidia::parse_driver_version;
use crate::sysfs::{Tree, nvidia, rdma};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

/// The resources of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    pub hostname: String,
    /// Release of the kernel.
    pub kernel: String,
    /// GPUs that have a node, in the order of NVML: by PCI address.
    pub gpus: Vec<HostGpu>,
    /// Nodes that every CUDA process needs: `/dev/nvidiactl`, `/dev/nvidia-uvm`, …
    pub gpu_control_nodes: Vec<String>,
    /// Version of the kernel's driver.
    pub driver_version: Option<String>,
    pub driver_libraries: Vec<HostLibrary>,
    /// Sorted by name; `uverbs` is there only where the node is.
    pub rdma_devices: Vec<RdmaDevice>,
    /// `/dev/infiniband/rdma_cm` is there.
    pub has_rdma_cm: bool,
    /// GPUs that a CDI specification names.
    pub cdi_gpus: Vec<CdiDevice>,
    /// `nvidia-container-runtime-hook`, where it is on the PATH: Docker then has the driver `nvidia` for `--gpus`.
    pub toolkit_hook: Option<String>,
    /// Things that exist but could not be read.
    pub problems: Vec<String>,
}

impl Host {
    /// The RDMA devices that a fabric drives.
    pub fn devices_of(&self, fabric: &Fabric) -> impl Iterator<Item = &RdmaDevice> {
        self.rdma_devices.iter().filter(|device| fabric.drives(device.nic()))
    }
}

/// A GPU with its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGpu {
    /// The number in the node's name, which need not be NVML's.
    pub minor: u32,
    /// `/dev/nvidia0`
    pub node: String,
    /// PCI address such as `0000:1a:00.0`; `None`: the driver's files lack it.
    pub pci_address: Option<String>,
    pub model: Option<String>,
}

/// A library of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLibrary {
    /// The name that programs ask for: `libcuda.so.1`.
    pub soname: String,
    /// The file, links resolved: `/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14`.
    pub path: String,
}

/// A device that a CDI specification names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiDevice {
    /// `nvidia.com/gpu=0`
    pub name: String,
    /// The specification.
    pub file: String,
}

/// Whether the engine's host is this one, so that what is here can be given to its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locality {
    Local,
    /// The engine is not local, or possibly not; the reason as a sentence.
    Remote(String),
}

/// Where CDI specifications are, if the engine does not say (CDI specification 0.5, "Specification directories").
pub const CDI_DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The kind of NVIDIA's CDI devices (nvidia-ctk).
const CDI_GPU_KIND: &str = "nvidia.com/gpu";

const TOOLKIT_HOOK: &str = "nvidia-container-runtime-hook";

/// Nodes that are not of one GPU. NVSwitch and modeset are none of CUDA's.
const CONTROL_NODES: [&str; 3] = ["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-uvm-tools"];

/// Libraries that a CUDA program and NVML need, by the names that they are asked for (libnvidia-container,
/// `src/nvc_info.c`, "utility" and "compute"). With nothing but these in `LD_LIBRARY_PATH`, a context was made and PTX
/// compiled with driver 580.159.04 on an H200.
const DRIVER_LIBRARIES: [&str; 7] = [
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm70.so.4",
    "libnvidia-cfg.so.1",
];

/// A library whose name has the driver's version: `libnvidia-gpucomp.so.550.54.14`.
const VERSIONED_LIBRARY: &str = "libnvidia-gpucomp.so.";

/// Where drivers put their libraries, besides what the loader's cache says.
const LIBRARY_DIRECTORIES: [&str; 5] =
    ["usr/local/nvidia/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib/nvidia"];

/// Looks at the host whose root is `root`. `path_variable` is the PATH to search for the toolkit; `cdi_directories` are the
/// engine's, or [`CDI_DIRECTORIES`].
pub fn load_host<D: AsRef<str>>(root: &Path, path_variable: &str, cdi_directories: &[D]) -> Host {
    let tree = Tree::new(root);
    let mut problems = Vec::new();
    let driver_version = tree.text("proc/driver/nvidia/version").and_then(|text| parse_driver_version(&text));
    Host {
        hostname: tree.line("proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: tree.line("proc/sys/kernel/osrelease").unwrap_or_default(),
        gpus: load_gpus(&tree, &mut problems),
        gpu_control_nodes: control_nodes(&tree),
        driver_libraries: load_libraries(&tree, driver_version.as_deref(), &mut problems),
        driver_version,
        rdma_devices: load_rdma_devices(&tree),
        has_rdma_cm: tree.exists("dev/infiniband/rdma_cm"),
        cdi_gpus: load_cdi(&tree, cdi_directories, &mut problems),
        toolkit_hook: find_program(&tree, path_variable, TOOLKIT_HOOK),
        problems,
    }
}

/// Compares the engine's host with this one. `endpoint_is_local`: the engine's address is a socket or port of this machine,
/// which a tunnel, a virtual machine (Docker Desktop) or a socket inside a container can be, too.
pub fn locality(endpoint_is_local: bool, engine: &EngineHost, host: &Host) -> Locality {
    if !endpoint_is_local {
        return Locality::Remote("the engine is on another machine".to_owned());
    }
    if engine.hostname != host.hostname || engine.kernel != host.kernel {
        return Locality::Remote(format!(
            "the engine runs on {} (Linux {}), but this is {} (Linux {})",
            engine.hostname, engine.kernel, host.hostname, host.kernel
        ));
    }
    Locality::Local
}

fn load_gpus(tree: &Tree<'_>, problems: &mut Vec<String>) -> Vec<HostGpu> {
    let mut gpus = Vec::new();
    for gpu in nvidia::load_gpus(tree) {
        let path = format!("/proc/driver/nvidia/gpus/{}/information", gpu.pci_address);
        let Some(minor) = gpu.minor else {
            let why = if gpu.is_read { "has no device minor" } else { "cannot be read" };
            problems.push(format!("{path} {why}"));
            continue;
        };
        gpus.push(HostGpu {
            minor,
            node: format!("/dev/nvidia{minor}"),
            pci_address: Some(gpu.pci_address),
            model: gpu.model,
        });
    }
    gpus.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    let known: BTreeSet<u32> = gpus.iter().map(|gpu| gpu.minor).collect();
    // In a container the nodes may be there without the driver's files, and the files without the nodes.
    let minors = tree.list("dev").into_iter().filter_map(|name| name.strip_prefix("nvidia")?.parse::<u32>().ok());
    let nodes: BTreeSet<u32> = minors.collect();
    gpus.retain(|gpu| nodes.contains(&gpu.minor));
    let unknown = nodes.difference(&known);
    gpus.extend(unknown.map(|minor| HostGpu {
        minor: *minor,
        node: format!("/dev/nvidia{minor}"),
        pci_address: None,
        model: None,
    }));
    gpus
}

fn control_nodes(tree: &Tree<'_>) -> Vec<String> {
    let mut nodes: Vec<String> =
        CONTROL_NODES.into_iter().filter(|path| tree.exists(path)).map(|path| format!("/{path}")).collect();
    // `nvidia-cap1` and `nvidia-cap2` are those of MIG.
    nodes.extend(tree.list("dev/nvidia-caps").into_iter().map(|name| format!("/dev/nvidia-caps/{name}")));
    nodes
}

fn load_libraries(tree: &Tree<'_>, version: Option<&str>, problems: &mut Vec<String>) -> Vec<HostLibrary> {
    let cache = match fs::read(tree.at("etc/ld.so.cache")) {
        Ok(bytes) => parse_cache(&bytes).unwrap_or_else(|error| {
            problems.push(format!("/etc/ld.so.cache cannot be read: {error}"));
            Vec::new()
        }),
        Err(_) => Vec::new(),
    };
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let mut names: BTreeSet<String> = DRIVER_LIBRARIES.map(str::to_owned).into();
    let cached = cache.iter().filter(|entry| entry.fits(architecture));
    names.extend(cached.clone().map(|entry| entry.name.clone()).filter(|name| name.starts_with(VERSIONED_LIBRARY)));
    for directory in LIBRARY_DIRECTORIES {
        names.extend(tree.list(directory).into_iter().filter(|name| name.starts_with(VERSIONED_LIBRARY)));
    }
    let library = |soname: String| {
        let by_cache = cached.clone().filter(|entry| entry.name == soname).map(|entry| entry.path.clone());
        let by_directory = LIBRARY_DIRECTORIES.iter().map(|directory| format!("{directory}/{soname}"));
        let files: Vec<String> = by_cache
            .chain(by_directory)
            .filter(|path| !is_no_driver(path))
            .filter_map(|path| tree.resolve(&path))
            .filter(|path| !is_no_driver(path))
            .collect();
        // Beside the driver's there may be what an older one left behind.
        let matching = version.and_then(|version| files.iter().find(|path| path.ends_with(&format!(".so.{version}"))));
        Some(HostLibrary { path: matching.or(files.first())?.clone(), soname })
    };
    names.into_iter().filter_map(library).collect()
}

/// The toolkit's stubs are for linking, and its `compat` libraries for other drivers.
fn is_no_driver(path: &str) -> bool {
    path.split('/').any(|part| part == "stubs" || part == "compat")
}

/// Without those nodes that are not there.
fn load_rdma_devices(tree: &Tree<'_>) -> Vec<RdmaDevice> {
    let mut devices = rdma::load_devices(tree);
    for device in &mut devices {
        if !device.node().is_some_and(|node| tree.exists(&node)) {
            device.uverbs = None;
        }
    }
    devices
}

fn load_cdi<D: AsRef<str>>(tree: &Tree<'_>, directories: &[D], problems: &mut Vec<String>) -> Vec<CdiDevice> {
    let mut devices = Vec::new();
    for directory in directories {
        let directory = directory.as_ref();
        for name in tree.list(directory) {
            if ![".json", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            let file = format!("{directory}/{name}");
            let Some(text) = tree.text(&file) else {
                problems.push(format!("{file} cannot be read"));
                continue;
            };
            let Some((kind, names)) = parse_cdi(&text) else {
                problems.push(format!("{file} is not a CDI specification"));
                continue;
            };
            if kind == CDI_GPU_KIND {
                let device = |name| CdiDevice { name: format!("{kind}={name}"), file: file.clone() };
                devices.extend(names.into_iter().map(device));
            }
        }
    }
    devices
}

/// Kind and names of the devices. JSON is valid YAML, too.
fn parse_cdi(text: &str) -> Option<(String, Vec<String>)> {
    let documents = YamlLoader::load_from_str(text).ok()?;
    let specification = documents.first()?;
    let name = |device: &Yaml| Some(device["name"].as_str()?.to_owned());
    let devices = specification["devices"].as_vec()?;
    Some((specification["kind"].as_str()?.to_owned(), devices.iter().filter_map(name).collect()))
}

fn find_program(tree: &Tree<'_>, path_variable: &str, name: &str) -> Option<String> {
    let directories = path_variable.split(':').filter(|directory| directory.starts_with('/'));
    directories.map(|directory| format!("{}/{name}", directory.trim_end_matches('/'))).find(|path| tree.exists(path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A device whose driver is not shown.
    pub fn device(name: &str, vendor: &str, uverbs: Option<&str>) -> RdmaDevice {
        RdmaDevice {
            name: name.to_owned(),
            vendor: Some(vendor.to_owned()),
            driver: None,
            pci_address: None,
            uverbs: uverbs.map(str::to_owned),
            ports: Vec::new(),
        }
    }

    use crate::image_fixture::ld_cache_bytes;
    use std::os::unix::fs::symlink;

    /// A host as files, with nothing on it.
    pub(crate) struct FakeHost {
        pub dir: tempfile::TempDir,
    }

    impl FakeHost {
        pub(crate) fn new() -> FakeHost {
            FakeHost { dir: tempfile::tempdir().unwrap() }
        }

        pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &FakeHost {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            self
        }

        pub(crate) fn link(&self, path: &str, target: &str) -> &FakeHost {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
            self
        }

        pub(crate) fn load(&self) -> Host {
            load_host(self.dir.path(), "/usr/bin:/opt/bin", &CDI_DIRECTORIES)
        }

        fn gpu(&self, address: &str, minor: u32) -> &FakeHost {
            // As driver 580.159.04 writes it, with its tabs; some lines and the UUID are left out.
            let text = format!(
                "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nVideo BIOS: \t 96.00.a5.00.1a\nBus Type: \t PCIe\n\
                 Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n"
            );
            self.file(&format!("proc/driver/nvidia/gpus/{address}/information"), text)
        }
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(FakeHost::new().load(), Host::default());
    }

    #[test]
    fn gpus_are_in_the_order_of_their_addresses() {
        let fake = FakeHost::new();
        fake.gpu("0000:1a:00.0", 1).gpu("0000:04:00.0", 3).gpu("0000:9c:00.0", 7);
        for name in
            ["nvidia1", "nvidia3", "nvidia9", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia-caps/nvidia-cap1"]
        {
            fake.file(&format!("dev/{name}"), "");
        }
        fake.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc 11.4.0\n",
        );
        let host = fake.load();
        let gpus: Vec<_> = host.gpus.iter().map(|gpu| (gpu.node.as_str(), gpu.pci_address.as_deref())).collect();
        // Number 7 has no node, number 9 is not among the driver's files.
        let expected =
            [("/dev/nvidia3", Some("0000:04:00.0")), ("/dev/nvidia1", Some("0000:1a:00.0")), ("/dev/nvidia9", None)];
        assert_eq!(gpus, expected);
        assert_eq!(host.gpus[0].model.as_deref(), Some("NVIDIA H200"));
        assert_eq!(host.gpu_control_nodes, ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1"]);
        assert_eq!(host.driver_version.as_deref(), Some("550.54.14"));
        // The open module's, captured.
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \nGCC version:  gcc version 15.3.0 (GCC) \n";
        assert_eq!(parse_driver_version(open).as_deref(), Some("580.159.04"));
        assert_eq!(parse_driver_version("NVRM version: none\n"), None);
    }

    #[test]
    fn driver_libraries_are_the_driver_s() {
        let fake = FakeHost::new();
        let flags = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };
        fake.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  x\n");
        // The cache has a stub and an older driver's file first.
        let cache = [
            (flags, "libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so.1", 0),
            (flags, "libcuda.so.1", "/opt/old/libcuda.so.1", 0),
            (flags, "libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", 0),
            (flags, "libnvidia-gpucomp.so.550.54.14", "/usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.550.54.14", 0),
        ];
        fake.file("etc/ld.so.cache", ld_cache_bytes(&cache));
        fake.file("usr/local/cuda/lib64/stubs/libcuda.so.1", "");
        fake.file("opt/old/libcuda.so.535.1", "").link("opt/old/libcuda.so.1", "libcuda.so.535.1");
        fake.file("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", "");
        fake.link("usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so");
        fake.link("usr/lib/x86_64-linux-gnu/libcuda.so", "../x86_64-linux-gnu/./libcuda.so.550.54.14");
        fake.file("usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.550.54.14", "");
        // Not in the cache, and a link into the toolkit's compat directory.
        fake.file("usr/lib64/libnvidia-ml.so.550.54.14", "")
            .link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.550.54.14");
        fake.file("usr/local/cuda/compat/libnvidia-nvvm.so.4", "");
        fake.link("usr/lib64/libnvidia-nvvm.so.4", "/usr/local/cuda/compat/libnvidia-nvvm.so.4");
        fake.link("usr/lib64/libnvidia-cfg.so.1", "libnvidia-cfg.so.1");
        let host = fake.load();
        let libraries: Vec<_> = host.driver_libraries.iter().map(|l| (l.soname.as_str(), l.path.as_str())).collect();
        assert_eq!(
            libraries,
            [
                ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14"),
                ("libnvidia-gpucomp.so.550.54.14", "/usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.550.54.14"),
                ("libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.550.54.14"),
            ]
        );
        fake.file("etc/ld.so.cache", "damaged");
        assert!(fake.load().problems[0].starts_with("/etc/ld.so.cache cannot be read"));
    }

    #[test]
    fn rdma_devices_have_their_nodes() {
        let fake = FakeHost::new();
        for (name, uverbs, vendor, address) in
            [("erdma_0", "uverbs1", "0x1ded", "0000:00:07.0"), ("mlx5_0", "uverbs0", "0x15b3", "0000:3b:00.0")]
        {
            fake.file(&format!("sys/devices/pci/{address}/vendor"), format!("{vendor}\n"));
            fake.link(&format!("sys/class/infiniband/{name}/device"), &format!("../../../devices/pci/{address}"));
            fake.file(&format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), format!("{name}\n"));
        }
        fake.file("sys/class/infiniband_verbs/abi_version", "6\n");
        fake.file("dev/infiniband/uverbs1", "").file("dev/infiniband/rdma_cm", "");
        let host = fake.load();
        let device = |name: &str, vendor: &str, address: &str, node: Option<&str>| RdmaDevice {
            pci_address: Some(address.to_owned()),
            ..device(name, vendor, node)
        };
        assert_eq!(
            host.rdma_devices,
            [
                device("erdma_0", "0x1ded", "0000:00:07.0", Some("uverbs1")),
                device("mlx5_0", "0x15b3", "0000:3b:00.0", None)
            ]
        );
        assert!(host.has_rdma_cm);
    }

    /// The output of `nvidia-ctk cdi generate`, shortened.
    const CDI_YAML: &str = "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n  hooks:\n  - args:\n    - nvidia-ctk\n    hookName: createContainer\n    name: hook\ndevices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n      name: inner\n  name: \"0\"\n- name: GPU-3f\n  containerEdits: {}\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: all\nkind: nvidia.com/gpu\n";

    #[test]
    fn cdi_specifications_of_gpus() {
        let fake = FakeHost::new();
        fake.file("etc/cdi/nvidia.yaml", CDI_YAML);
        fake.file("etc/cdi/other.yml", "kind: vendor.com/nic\ndevices:\n  - name: x\n").file("etc/cdi/README", "");
        fake.file(
            "var/run/cdi/gpu.json",
            r#"{"kind":"nvidia.com/gpu","devices":[{"name":"mig"},{"containerEdits":{}}]}"#,
        );
        fake.file("var/run/cdi/bad.json", "{");
        let host = fake.load();
        let names: Vec<_> = host.cdi_gpus.iter().map(|device| (device.name.as_str(), device.file.as_str())).collect();
        assert_eq!(
            names,
            [
                ("nvidia.com/gpu=0", "/etc/cdi/nvidia.yaml"),
                ("nvidia.com/gpu=GPU-3f", "/etc/cdi/nvidia.yaml"),
                ("nvidia.com/gpu=all", "/etc/cdi/nvidia.yaml"),
                ("nvidia.com/gpu=mig", "/var/run/cdi/gpu.json"),
            ]
        );
        assert_eq!(host.problems, ["/var/run/cdi/bad.json is not a CDI specification"]);
        assert_eq!(
            parse_cdi("kind: 'a/b'\ndevices:\n  - name: x\n    containerEdits:\n      name: y\n  - name: z\n"),
            Some(("a/b".to_owned(), vec!["x".to_owned(), "z".to_owned()]))
        );
        let by_hand = "# mine\n{kind: a/b, devices: [{containerEdits: {name: y}, name: \"0\"}, {name: 1}]}\n";
        assert_eq!(parse_cdi(by_hand), Some(("a/b".to_owned(), vec!["0".to_owned()])), "an engine refuses a number");
    }

    #[test]
    fn the_toolkit_is_searched_on_the_path() {
        let fake = FakeHost::new();
        fake.file("sbin/nvidia-container-runtime-hook", "");
        assert_eq!(fake.load().toolkit_hook, None);
        fake.file("opt/bin/nvidia-container-runtime-hook", "");
        assert_eq!(fake.load().toolkit_hook.as_deref(), Some("/opt/bin/nvidia-container-runtime-hook"));
    }

    #[test]
    fn an_engine_is_local_if_its_host_is_this_one() {
        let host = Host { hostname: "a".into(), kernel: "6.1".into(), ..Host::default() };
        let engine = |hostname: &str, kernel: &str| EngineHost {
            hostname: hostname.to_owned(),
            kernel: kernel.to_owned(),
            ..EngineHost::default()
        };
        assert_eq!(locality(true, &engine("a", "6.1"), &host), Locality::Local);
        assert!(matches!(locality(false, &engine("a", "6.1"), &host), Locality::Remote(_)));
        for other in [engine("a", "6.10-linuxkit"), engine("b", "6.1"), engine("", "")] {
            let Locality::Remote(why) = locality(true, &other, &host) else { panic!("{other:?}") };
            assert!(why.contains("this is a (Linux 6.1)"), "{why}");
        }
    }
}
