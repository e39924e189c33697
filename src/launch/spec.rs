//! The container of a preflight as data. Pure: image, target, host, GPU access and options → [`Launch`].
//!
//! The settings are those that the vendors' pages start jobs with (see the constants), without `--privileged` unless asked.

use super::command_line::{command_line, device_value};
use super::gpu_access::Access;
use super::host::{Host, Locality};
use super::owner::Owner;
use super::variables::{Nics, Sources, UserVariable, environment};
use crate::docker::container_spec::{Bind, ContainerSpec, Device, Gpus, Ipc, Ulimit};
use crate::docker::upload::{Content, Upload};
use crate::fabric::Fabric;
use crate::facts::ImageFacts;
use crate::facts::rdma::RdmaDevice;
use crate::facts::run::LaunchFacts;
use crate::remedy::Remedy;
use crate::targets::Target;
use std::path::PathBuf;

/// Everything of the agent is below it. No image has it, and no volume of an image is there.
pub const AGENT_DIRECTORY: &str = "/rdmaprep";
/// The program.
pub const AGENT_PROGRAM: &str = "/rdmaprep/agent";
/// The agent's task: an [`crate::facts::run::AgentPlan`].
pub const AGENT_PLAN: &str = "/rdmaprep/plan.json";
/// The ranks may write here, whatever user the image has.
pub const AGENT_RUN_DIRECTORY: &str = "/rdmaprep/run";

/// No limit: every buffer and queue of RDMA is locked memory (Alibaba Cloud help, ECS, "Use eRDMA in a Docker container").
const MEMLOCK: i64 = -1;
/// In bytes, as the release notes of NVIDIA's framework images have it (`--ulimit memlock=-1 --ulimit stack=67108864`).
const STACK_BYTES: i64 = 67_108_864;
/// Lets root lock memory beyond the limit (the perftest pods of AliyunContainerService/alibabacloud-erdma-controller).
pub const IPC_LOCK: &str = "IPC_LOCK";
/// The GIDs of a device name addresses of the host's interfaces (NVIDIA/nccl#925).
pub const NETWORK: &str = "host";

/// Node of the connection manager.
pub const RDMA_CM: &str = "/dev/infiniband/rdma_cm";
/// All nodes, if the individual ones are unknown.
pub const RDMA_DIRECTORY: &str = "/dev/infiniband";

/// The user's options beyond image and target.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// Value of the label of the run.
    pub run: String,
    pub owner: Owner,
    /// Program and arguments in the container.
    pub command: Vec<String>,
    /// Whether the image's entrypoint starts the command, which it gets as its arguments.
    pub keep_entrypoint: bool,
    /// Names of RDMA devices; empty: all of the fabric's.
    pub rdma_devices: Vec<String>,
    /// `--device`
    pub devices: Vec<ExtraDevice>,
    /// `--mount`
    pub mounts: Vec<Bind>,
    /// `--env`
    pub env: Vec<UserVariable>,
    /// Whether the target's variables are set, too.
    pub presets: bool,
    pub force_nic: bool,
    /// Lets NCCL take nothing but TCP between hosts.
    pub over_socket: bool,
    pub ranks_per_gpu: u32,
    pub privileged: bool,
    /// `None`: the host's.
    pub network: Option<String>,
    /// A `/dev/shm` of its own of so many bytes; `None`: the host's.
    pub shm_bytes: Option<u64>,
}

impl LaunchOptions {
    /// The agent with all defaults.
    pub fn new(run: &str, owner: Owner, command: Vec<String>) -> LaunchOptions {
        LaunchOptions {
            run: run.to_owned(),
            owner,
            command,
            keep_entrypoint: false,
            rdma_devices: Vec::new(),
            devices: Vec::new(),
            mounts: Vec::new(),
            env: Vec::new(),
            presets: true,
            force_nic: false,
            over_socket: false,
            ranks_per_gpu: 1,
            privileged: false,
            network: None,
            shm_bytes: None,
        }
    }
}

/// An argument of `--device`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtraDevice {
    Node(Device),
    /// The name of a CDI device, as `vendor.com/class=name`.
    Cdi(String),
}

/// An argument that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("--rdma-device {name}: this host has no such device")]
    NoSuchRdmaDevice { name: String, present: String },
    #[error("--rdma-device {name}: it has no node")]
    NoRdmaNode { name: String },
    #[error("--rdma-device {name}: {why}, so its devices are unknown here")]
    RemoteRdmaDevice { name: String, why: String },
    #[error("--device {0:?}: a device is HOST[:CONTAINER[:PERMISSIONS]], or a CDI name such as vendor.com/class=name")]
    Device(String),
    #[error("--mount {0:?}: a mount is SOURCE:TARGET[:ro], with absolute paths and no comma")]
    Mount(String),
    #[error("--device {name}: one container gets CDI devices or GPUs of NVIDIA's toolkit, not both")]
    CdiBesideToolkit { name: String },
}

impl Remedy for SpecError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            SpecError::NoSuchRdmaDevice { present, .. } => format!("present: {present}"),
            SpecError::NoRdmaNode { .. } => "modprobe ib_uverbs".to_owned(),
            SpecError::RemoteRdmaDevice { .. } => format!("--device {RDMA_DIRECTORY}/uverbs0"),
            SpecError::CdiBesideToolkit { .. } => "--gpu-access cdi".to_owned(),
            SpecError::Device(_) | SpecError::Mount(_) => return None,
        })
    }
}

/// A container that is ready to be created, and what is said of it.
#[derive(Debug, Clone)]
pub struct Launch {
    pub spec: ContainerSpec,
    pub facts: LaunchFacts,
    /// The image by the name that people know.
    pub image_name: String,
}

impl Launch {
    /// Leaves a part out that the engine refused, and says so with its words.
    pub(super) fn give_up(&mut self, what: &str, words: &str, change: impl FnOnce(&mut ContainerSpec)) {
        change(&mut self.spec);
        self.facts.given_up.push(format!("{what}: {words}"));
        self.facts.command_line = command_line(&self.spec, &self.image_name);
    }
}

/// Whether the agent, a program of this architecture for glibc, starts in containers of an image.
///
/// # Errors
/// Why not, in a sentence with its remedy on a line of its own.
pub fn can_start_agent(facts: &ImageFacts) -> Result<(), String> {
    let agent = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let image = &facts.image;
    if image.os != "linux" || image.architecture != agent {
        return Err(format!(
            "the image is for {}/{}, but the agent is for linux/{agent}\n  run rdmaprep on a host of the image's architecture",
            image.os, image.architecture
        ));
    }
    if facts.loader.program_loader.is_none() {
        let name = if agent == "arm64" { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };
        return Err(format!(
            "the image has no {name}, the loader of glibc programs (as with Alpine, or an image without a C library): \
             neither the agent nor NCCL starts there\n  base the image on a distribution with glibc"
        ));
    }
    Ok(())
}

/// Puts container and facts together.
///
/// # Errors
/// An RDMA device that is asked for and is not there.
pub fn plan_launch(
    image: &ImageFacts,
    target: &Target,
    (host, locality): (&Host, &Locality),
    access: &Access,
    options: &LaunchOptions,
) -> Result<Launch, SpecError> {
    let (mut devices, nics) = rdma_devices(target.fabric, host, locality, &options.rdma_devices)?;
    devices.extend(access.devices.iter().cloned());
    let mut gpus = access.gpus.clone();
    for extra in &options.devices {
        match extra {
            ExtraDevice::Node(device) => devices.push(device.clone()),
            ExtraDevice::Cdi(name) => gpus = with_cdi(gpus, name)?,
        }
    }
    let variables = environment(&Sources {
        image: &image.config.env,
        nccl_settings: &image.nccl_settings,
        presets: if options.presets { target.nccl_presets } else { &[] },
        user: &options.env,
        force_nic: options.force_nic,
        // A privileged container can open every device all the same, and is to use the same ones.
        nics: Some(&nics),
        over_socket: options.over_socket,
        library_directory: access.library_directory,
        access: &access.variables,
    });
    let (entrypoint, command) = match options.command.split_first() {
        Some((program, arguments)) if !options.keep_entrypoint => {
            (Some(vec![program.clone()]), Some(arguments.to_vec()))
        }
        Some(_) => (None, Some(options.command.clone())),
        None => (None, None),
    };
    let spec = ContainerSpec {
        image: image.image.id.clone(),
        entrypoint,
        command,
        env: variables.changes,
        user: None,
        working_dir: None,
        network: options.network.clone().unwrap_or_else(|| NETWORK.to_owned()),
        ipc: options.shm_bytes.map_or(Ipc::Host, |bytes| Ipc::Own { shm_bytes: Some(bytes) }),
        ulimits: ulimits(),
        capabilities: vec![IPC_LOCK.to_owned()],
        devices,
        mounts: access.mounts.iter().chain(&options.mounts).cloned().collect(),
        gpus,
        privileged: options.privileged,
        labels: options.owner.labels(&options.run),
    };
    let image_name = known_name(image);
    let facts = LaunchFacts {
        gpu_access: access.way.to_string(),
        gpu_access_reason: access.reason.clone(),
        devices: spec.devices.iter().map(device_name).collect(),
        mounts: spec.mounts.iter().map(mount_name).collect(),
        variables: variables.recorded,
        command_line: command_line(&spec, &image_name),
        given_up: Vec::new(),
        force_nic: options.force_nic,
        ranks_per_gpu: options.ranks_per_gpu,
        network: spec.network.clone(),
    };
    Ok(Launch { spec, facts, image_name })
}

/// The limits of a container that is to use RDMA.
pub fn ulimits() -> Vec<Ulimit> {
    let limit = |name: &str, value| Ulimit { name: name.to_owned(), value };
    vec![limit("memlock", MEMLOCK), limit("stack", STACK_BYTES)]
}

/// The files to put into the container before its start. `program` is the agent's file on this machine; `plan` its JSON.
pub fn agent_files(program: PathBuf, plan: Vec<u8>) -> Vec<Upload> {
    let upload = |path: &str, mode, content| Upload { path: path.to_owned(), mode, content };
    vec![
        upload(AGENT_DIRECTORY, 0o755, Content::Directory),
        upload(AGENT_PROGRAM, 0o755, Content::File(program)),
        upload(AGENT_PLAN, 0o644, Content::Bytes(plan)),
        upload(AGENT_RUN_DIRECTORY, 0o1777, Content::Directory),
    ]
}

/// Nodes of the chosen devices, and that of the connection manager; and which of the host's devices these are.
fn rdma_devices(
    fabric: &Fabric,
    host: &Host,
    locality: &Locality,
    names: &[String],
) -> Result<(Vec<Device>, Nics), SpecError> {
    if let Locality::Remote(why) = locality {
        return match names.first() {
            Some(name) => Err(SpecError::RemoteRdmaDevice { name: name.clone(), why: why.clone() }),
            None => Ok((vec![Device::node(RDMA_DIRECTORY)], Nics::default())),
        };
    }
    let chosen: Vec<&RdmaDevice> = if names.is_empty() {
        host.devices_of(fabric).collect()
    } else {
        names.iter().map(|name| named_device(host, name)).collect::<Result<_, _>>()?
    };
    // Without a node there is nothing to pass; the agent sees the device in sysfs, and the checks say what is missing.
    let paths: Vec<String> = chosen.iter().filter_map(|device| device.node()).collect();
    let mut nodes: Vec<Device> = paths.iter().map(|path| Device::node(path)).collect();
    if !nodes.is_empty() && host.has_rdma_cm {
        nodes.push(Device::node(RDMA_CM));
    }
    let mut nics = Nics::default();
    for device in &host.rdma_devices {
        let is_chosen = chosen.iter().any(|chosen| chosen.name == device.name);
        let list = if is_chosen { &mut nics.passed } else { &mut nics.others };
        list.push(device.name.clone());
    }
    Ok((nodes, nics))
}

fn named_device<'a>(host: &'a Host, name: &str) -> Result<&'a RdmaDevice, SpecError> {
    let Some(device) = host.rdma_devices.iter().find(|device| device.name == name) else {
        let present: Vec<&str> = host.rdma_devices.iter().map(|device| device.name.as_str()).collect();
        let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
        return Err(SpecError::NoSuchRdmaDevice { name: name.to_owned(), present });
    };
    match device.uverbs {
        Some(_) => Ok(device),
        None => Err(SpecError::NoRdmaNode { name: name.to_owned() }),
    }
}

fn with_cdi(gpus: Gpus, name: &str) -> Result<Gpus, SpecError> {
    match gpus {
        Gpus::None => Ok(Gpus::Cdi(vec![name.to_owned()])),
        Gpus::Cdi(mut names) => {
            names.push(name.to_owned());
            Ok(Gpus::Cdi(names))
        }
        Gpus::Nvidia(_) => Err(SpecError::CdiBesideToolkit { name: name.to_owned() }),
    }
}

/// A name that `docker run` takes: a tag, else a digest, else the id.
fn known_name(image: &ImageFacts) -> String {
    let asked = image.image.reference.strip_prefix("docker-daemon:").filter(|name| !name.is_empty());
    let named = image.image.repo_tags.first().or(image.image.repo_digests.first()).map(String::as_str);
    asked.or(named).unwrap_or(&image.image.id).to_owned()
}

fn device_name(device: &Device) -> String {
    if device.host == device.container { device.host.clone() } else { device_value(device) }
}

fn mount_name(bind: &Bind) -> String {
    format!("{}:{}{}", bind.source, bind.target, if bind.read_only { ":ro" } else { "" })
}

/// Reads an argument of `--device`.
///
/// # Errors
/// The text is neither a path nor a CDI name.
pub fn parse_device(text: &str) -> Result<ExtraDevice, SpecError> {
    let wrong = || SpecError::Device(text.to_owned());
    if !text.starts_with('/') {
        // CDI specification, "CDI device names": vendor/class=name.
        let (kind, name) = text.split_once('=').ok_or_else(wrong)?;
        let (vendor, class) = kind.split_once('/').ok_or_else(wrong)?;
        let is_word = |word: &str| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '/');
        return if is_word(vendor) && is_word(class) && is_word(name) {
            Ok(ExtraDevice::Cdi(text.to_owned()))
        } else {
            Err(wrong())
        };
    }
    let mut parts = text.split(':');
    let host = parts.next().unwrap_or_default();
    let (container, permissions) = match (parts.next(), parts.next(), parts.next()) {
        (None, _, _) => (host, "rwm"),
        // Docker's short form: `/dev/x:r`.
        (Some(only), None, _) if is_permissions(only) => (host, only),
        (Some(container), None, _) => (container, "rwm"),
        (Some(container), Some(permissions), None) => (container, permissions),
        (Some(_), Some(_), Some(_)) => return Err(wrong()),
    };
    if !container.starts_with('/') || !is_permissions(permissions) {
        return Err(wrong());
    }
    Ok(ExtraDevice::Node(Device {
        host: host.to_owned(),
        container: container.to_owned(),
        permissions: permissions.to_owned(),
    }))
}

fn is_permissions(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| "rwm".contains(c))
}

/// Reads an argument of `--mount`.
///
/// # Errors
/// The text is not a pair of absolute paths.
pub fn parse_mount(text: &str) -> Result<Bind, SpecError> {
    let wrong = || SpecError::Mount(text.to_owned());
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts.as_slice() {
        [source, target] | [source, target, "rw"] => (source, target, false),
        [source, target, "ro"] => (source, target, true),
        _ => return Err(wrong()),
    };
    let is_path = |path: &str| path.starts_with('/') && !path.contains(',');
    if !is_path(source) || !is_path(target) || *target == "/" {
        return Err(wrong());
    }
    Ok(Bind { source: (*source).to_owned(), target: (*target).to_owned(), read_only })
}

#[cfg(test)]
mod tests {
    use super::super::gpu_access::{DRIVER_DIRECTORY, Way};
    use super::super::host::tests::device;
    use super::super::host::{CDI_DIRECTORIES, load_host};
    use super::*;
    use crate::docker::container_spec::NvidiaGpus;
    use crate::facts::run::Origin;
    use crate::image_fixture::Fixture;
    use crate::image_fixture::elf::Library;
    use crate::remedy::with_remedy;
    use crate::sysfs_fixture::SysTree;
    use crate::targets;

    fn host() -> Host {
        Host {
            rdma_devices: vec![
                device("erdma_0", "0x1ded", Some("uverbs2")),
                device("erdma_1", "0x1ded", Some("uverbs0")),
                device("mlx5_0", "0x15b3", Some("uverbs1")),
                device("mlx5_9", "0x15b3", None),
            ],
            has_rdma_cm: true,
            ..Host::default()
        }
    }

    fn nvidia() -> Access {
        Access {
            way: Way::Nvidia,
            reason: "the engine has the runtime nvidia".into(),
            gpus: Gpus::Nvidia(NvidiaGpus::All),
            devices: Vec::new(),
            mounts: Vec::new(),
            library_directory: None,
            variables: vec![("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")],
        }
    }

    fn options() -> LaunchOptions {
        let owner = Owner { pid: 7, pid_namespace: "pid:[1]".into(), started: "9".into(), boot: "b".into() };
        LaunchOptions::new("r1", owner, vec![AGENT_PROGRAM.into(), "agent".into(), AGENT_PLAN.into()])
    }

    fn plan(target: &str, access: &Access, options: &LaunchOptions) -> Launch {
        let target = targets::by_id(target).unwrap();
        plan_launch(&Fixture::good().facts(), target, (&host(), &Locality::Local), access, options).unwrap()
    }

    #[test]
    fn a_container_as_jobs_have_it() {
        let launch = plan("pai-dlc", &nvidia(), &options());
        let spec = &launch.spec;
        assert_eq!(spec.image, Fixture::good().facts().image.id);
        assert_eq!((spec.network.as_str(), spec.ipc, spec.privileged), ("host", Ipc::Host, false));
        let limits: Vec<_> = spec.ulimits.iter().map(|limit| (limit.name.as_str(), limit.value)).collect();
        assert_eq!(limits, [("memlock", -1), ("stack", 67_108_864)]);
        assert_eq!(spec.capabilities, ["IPC_LOCK"]);
        assert_eq!(
            launch.facts.devices,
            ["/dev/infiniband/uverbs2", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]
        );
        assert_eq!(spec.entrypoint.as_deref(), Some([AGENT_PROGRAM.to_owned()].as_slice()));
        assert_eq!(spec.command.as_deref(), Some(["agent".to_owned(), AGENT_PLAN.to_owned()].as_slice()));
        assert_eq!((spec.labels["rdmaprep.run"].as_str(), spec.labels["rdmaprep.agent"].as_str()), ("r1", "1"));
        assert_eq!((launch.facts.gpu_access.as_str(), launch.facts.network.as_str()), ("nvidia", "host"));
        let preset = launch.facts.variables.iter().find(|variable| variable.name == "NCCL_IB_HCA").unwrap();
        assert_eq!(preset.value, "erdma");
        let line = &launch.facts.command_line;
        assert!(line.starts_with("docker run --rm --network host --ipc host --ulimit memlock=-1 "), "{line}");
        assert!(line.contains(" --gpus all ") && line.contains(" --env NCCL_MIN_NCHANNELS=16 "), "{line}");
        assert!(line.ends_with(" example/ubuntu:22.04"), "{line}");
        assert!(!line.contains("privileged"), "{line}");
    }

    #[test]
    fn options_change_it() {
        let mut options = options();
        options.presets = false;
        options.privileged = true;
        options.network = Some("bridge".into());
        options.shm_bytes = Some(1 << 30);
        options.devices = vec![parse_device("/dev/erdma").unwrap()];
        options.mounts = vec![parse_mount("/data:/d:ro").unwrap()];
        options.rdma_devices = vec!["erdma_1".into()];
        let launch = plan("pai-dlc", &nvidia(), &options);
        assert!(launch.spec.privileged && launch.facts.command_line.contains(" --privileged "));
        assert_eq!((launch.facts.network.as_str(), launch.spec.ipc), ("bridge", Ipc::Own { shm_bytes: Some(1 << 30) }));
        assert_eq!(launch.facts.devices, ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/dev/erdma"]);
        assert_eq!(launch.facts.mounts, ["/data:/d:ro"]);
        // The container sees the host's other devices in sysfs, and has a node of this one.
        let filter = launch.facts.variables.iter().find(|variable| variable.name == "NCCL_IB_HCA").unwrap();
        assert_eq!((filter.value.as_str(), filter.origin), ("=erdma_1", Origin::Run));
        let mut cdi = options.clone();
        cdi.devices = vec![parse_device("vendor.com/nic=x").unwrap()];
        let access = Access { way: Way::Cdi, gpus: Gpus::Cdi(vec!["nvidia.com/gpu=all".into()]), ..nvidia() };
        assert_eq!(
            plan("ecs", &access, &cdi).spec.gpus,
            Gpus::Cdi(vec!["nvidia.com/gpu=all".into(), "vendor.com/nic=x".into()])
        );
        let image = Fixture::good().facts();
        let refused = plan_launch(&image, targets::TARGETS[0], (&host(), &Locality::Local), &nvidia(), &cdi);
        assert!(matches!(refused, Err(SpecError::CdiBesideToolkit { .. })));
    }

    #[test]
    fn driver_libraries_are_searched_first() {
        let library = Bind {
            source: "/usr/lib64/libcuda.so.550.1".into(),
            target: format!("{DRIVER_DIRECTORY}/libcuda.so.1"),
            read_only: true,
        };
        let access = Access {
            way: Way::Plain,
            gpus: Gpus::None,
            devices: vec![Device::node("/dev/nvidia0")],
            mounts: vec![library],
            library_directory: Some(DRIVER_DIRECTORY),
            variables: Vec::new(),
            ..nvidia()
        };
        let launch = plan("ecs", &access, &options());
        assert!(launch.facts.devices.contains(&"/dev/nvidia0".to_owned()));
        assert_eq!(launch.facts.mounts, ["/usr/lib64/libcuda.so.550.1:/usr/local/rdmaprep/driver/libcuda.so.1:ro"]);
        assert!(launch.spec.env.contains(&("LD_LIBRARY_PATH".into(), Some(DRIVER_DIRECTORY.into()))));
        assert!(!launch.spec.env.iter().any(|(name, _)| name == "NVIDIA_DRIVER_CAPABILITIES"));
    }

    #[test]
    fn rdma_devices_are_those_of_the_fabric_or_those_named() {
        let nodes = |target: &str, host: &Host, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let (devices, _) = rdma_devices(targets::by_id(target).unwrap().fabric, host, &Locality::Local, &names)?;
            Ok(devices.into_iter().map(|device| device.host).collect::<Vec<_>>())
        };
        let host = host();
        assert_eq!(nodes("cce", &host, &[]).unwrap(), ["/dev/infiniband/uverbs1", RDMA_CM]);
        assert_eq!(nodes("cce", &host, &["erdma_0"]).unwrap(), ["/dev/infiniband/uverbs2", RDMA_CM]);
        let error: SpecError = nodes("ecs", &host, &["erdma_7"]).unwrap_err();
        assert!(with_remedy(&error).contains("present: erdma_0, erdma_1, mlx5_0, mlx5_9"), "{error}");
        assert_eq!(nodes("cce", &host, &["mlx5_9"]).unwrap_err(), SpecError::NoRdmaNode { name: "mlx5_9".into() });
        // A host without RDMA is for the checks to judge.
        assert_eq!(nodes("ecs", &Host { has_rdma_cm: true, ..Host::default() }, &[]).unwrap(), [""; 0]);
        let no_cm = Host { has_rdma_cm: false, ..host };
        assert_eq!(nodes("cce", &no_cm, &[]).unwrap(), ["/dev/infiniband/uverbs1"]);

        let remote = Locality::Remote("the engine is on another machine".into());
        let fabric = targets::by_id("ecs").unwrap().fabric;
        let all = (vec![Device::node("/dev/infiniband")], Nics::default());
        assert_eq!(rdma_devices(fabric, &no_cm, &remote, &[]).unwrap(), all);
        let error = rdma_devices(fabric, &no_cm, &remote, &["erdma_0".into()]).unwrap_err();
        assert!(error.to_string().contains("on another machine"), "{error}");
    }

    /// A scalable function is on the auxiliary bus, which shows a driver and no PCI vendor.
    #[test]
    fn auxiliary_devices_are_passed() {
        let mut host = load_host(SysTree::scalable_function().root(), "", &CDI_DIRECTORIES);
        host.rdma_devices[0].vendor = None;
        let fabric = |target: &str| targets::by_id(target).unwrap().fabric;
        let (nodes, nics) = rdma_devices(fabric("cce"), &host, &Locality::Local, &[]).unwrap();
        assert_eq!(
            (nodes, nics.passed),
            (vec![Device::node("/dev/infiniband/uverbs4"), Device::node(RDMA_CM)], vec!["mlx5_4".to_owned()])
        );
        let (nodes, nics) = rdma_devices(fabric("ecs"), &host, &Locality::Local, &[]).unwrap();
        assert!(nodes.is_empty() && nics.passed.is_empty() && nics.others == ["mlx5_4"], "{nics:?}");
    }

    #[test]
    fn what_is_given_up_is_said() {
        let mut launch = plan("ecs", &nvidia(), &options());
        launch.give_up("memlock", "not permitted", |spec| spec.ulimits.retain(|limit| limit.name != "memlock"));
        assert_eq!(launch.facts.given_up, ["memlock: not permitted"]);
        assert!(!launch.facts.command_line.contains("memlock") && launch.facts.command_line.contains("stack"));
    }

    #[test]
    fn images_in_which_the_agent_does_not_start() {
        let mut fixture = Fixture::good();
        let error = can_start_agent(&fixture.facts()).unwrap_err();
        assert!(error.contains("ld-linux") && error.contains("glibc"), "{error}");
        fixture.library("lib64/ld-linux-x86-64.so.2", &Library::new("ld-linux-x86-64.so.2"));
        fixture.file("lib/ld-linux-aarch64.so.1", "ELF");
        let here = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        fixture.architecture = here.to_owned();
        assert_eq!(can_start_agent(&fixture.facts()), Ok(()));
        fixture.architecture = "riscv64".to_owned();
        let error = can_start_agent(&fixture.facts()).unwrap_err();
        assert!(error.contains("linux/riscv64") && error.contains(here), "{error}");
    }

    #[test]
    fn devices_and_mounts_as_arguments() {
        let node = |host: &str, container: &str, permissions: &str| {
            Ok(ExtraDevice::Node(Device {
                host: host.into(),
                container: container.into(),
                permissions: permissions.into(),
            }))
        };
        assert_eq!(parse_device("/dev/a"), node("/dev/a", "/dev/a", "rwm"));
        assert_eq!(parse_device("/dev/a:/dev/b"), node("/dev/a", "/dev/b", "rwm"));
        assert_eq!(parse_device("/dev/a:/dev/b:rw"), node("/dev/a", "/dev/b", "rw"));
        assert_eq!(parse_device("/dev/a:r"), node("/dev/a", "/dev/a", "r"));
        assert_eq!(parse_device("nvidia.com/gpu=all"), Ok(ExtraDevice::Cdi("nvidia.com/gpu=all".into())));
        for text in
            ["", "dev/a", "/dev/a:b", "/dev/a:/dev/b:x", "/dev/a:/dev/b:rw:z", "nvidia.com=all", "a/b/c=d", "/dev/a:"]
        {
            assert!(matches!(parse_device(text), Err(SpecError::Device(_))), "{text}");
        }
        let bind = |read_only| Ok(Bind { source: "/a".into(), target: "/b".into(), read_only });
        assert_eq!(
            (parse_mount("/a:/b"), parse_mount("/a:/b:ro"), parse_mount("/a:/b:rw")),
            (bind(false), bind(true), bind(false))
        );
        for text in ["", "/a", "a:/b", "/a:b", "/a:/b:z", "/a:/b,c", "/a:/", "/a:/b:ro:x"] {
            assert!(matches!(parse_mount(text), Err(SpecError::Mount(_))), "{text}");
        }
    }
}
