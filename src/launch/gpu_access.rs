//! How a container gets its GPUs: engine and host → one way, or why none works. Pure.
//!
//! Input: what was asked for, [`EngineHost`] and [`Host`]. Output: an [`Access`] with the reason in a sentence. The ways, in
//! the order in which `auto` tries them: NVIDIA's container toolkit, CDI, and the nodes and driver libraries of this host.

use super::host::{Host, HostGpu, Locality};
use crate::docker::container_spec::{Bind, Device, Gpus, NvidiaGpus};
use crate::docker::engine::{EngineHost, EngineKind};
use crate::facts::run::GpuSelection;
use crate::remedy::Remedy;
use std::fmt;
use std::str::FromStr;

/// Where the driver's libraries are in a container that gets them by [`Way::Plain`]. A directory of its own, first in
/// `LD_LIBRARY_PATH`, works in every image: no image's loader needs to know it, and nothing of the image is hidden.
pub const DRIVER_DIRECTORY: &str = "/usr/local/rdmaprep/driver";

/// The user's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The first way that can work.
    Auto,
    /// This one.
    Only(Way),
}

/// A way to give a container GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// NVIDIA's container toolkit, as `docker run --gpus`.
    Nvidia,
    /// Devices of the Container Device Interface.
    Cdi,
    /// `/dev/nvidia*` and the driver's libraries of this host.
    Plain,
    /// Nothing: image, `--device` and `--mount` bring what is needed.
    None,
}

impl FromStr for Wanted {
    type Err = String;

    /// Reads the argument of `--gpu-access`.
    fn from_str(text: &str) -> Result<Wanted, String> {
        let ways = [Way::Nvidia, Way::Cdi, Way::Plain, Way::None];
        match ways.into_iter().find(|way| way.to_string() == text) {
            Some(way) => Ok(Wanted::Only(way)),
            None if text == "auto" => Ok(Wanted::Auto),
            None => Err("use auto, nvidia, cdi, plain or none".to_owned()),
        }
    }
}

/// Reads the argument of `--gpus`: `all`, a number, or a list with a comma (`0,2`; `2,` is number 2 alone).
///
/// # Errors
/// The text is none of these.
pub fn parse_selection(text: &str) -> Result<GpuSelection, String> {
    const FORMS: &str = "use all, a number of GPUs, or a list of indices such as 0,2 (2, for index 2 alone)";
    let number = |text: &str| text.parse::<u32>().map_err(|_| FORMS.to_owned());
    if text == "all" {
        return Ok(GpuSelection::All);
    }
    let Some((first, rest)) = text.split_once(',') else {
        return match number(text)? {
            0 => Err("a run needs at least one GPU".to_owned()),
            count => Ok(GpuSelection::First(count)),
        };
    };
    let mut list = vec![number(first)?];
    for word in rest.split(',').filter(|_| !rest.is_empty()) {
        let index = number(word)?;
        if list.contains(&index) {
            return Err(format!("GPU {index} is named twice"));
        }
        list.push(index);
    }
    Ok(GpuSelection::List(list))
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Nvidia => "nvidia",
            Way::Cdi => "cdi",
            Way::Plain => "plain",
            Way::None => "none",
        })
    }
}

/// How a container gets its GPUs. It sees the selected ones, numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub way: Way,
    /// Why this way, in a sentence.
    pub reason: String,
    /// The request to the engine.
    pub gpus: Gpus,
    /// Nodes of this host.
    pub devices: Vec<Device>,
    /// Libraries of this host.
    pub mounts: Vec<Bind>,
    /// A directory to be searched before all others for libraries.
    pub library_directory: Option<&'static str>,
    /// Variables that this way needs.
    pub variables: Vec<(&'static str, &'static str)>,
}

impl Access {
    /// The agent's choice among the GPUs that it sees.
    pub fn agent_selection(&self, asked: &GpuSelection) -> GpuSelection {
        match self.way {
            Way::None => asked.clone(),
            Way::Nvidia | Way::Cdi | Way::Plain => GpuSelection::All,
        }
    }
}

/// Why a way does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub way: Way,
    pub reason: String,
    pub remedy: String,
}

/// No way works, or the selected GPUs are not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("the container cannot get GPUs")]
    NoWay(Vec<Obstacle>),
    #[error("--gpus requests {asked}, but this host has {present}")]
    NoSuchGpu { asked: String, present: String },
}

impl Remedy for AccessError {
    fn remedy(&self) -> Option<String> {
        match self {
            AccessError::NoWay(obstacles) => {
                let lines = obstacles.iter().map(|o| format!("{}: {}\n{}", o.way, o.reason, o.remedy));
                Some(lines.collect::<Vec<_>>().join("\n"))
            }
            AccessError::NoSuchGpu { .. } => None,
        }
    }
}

/// What is known about engine and host.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub kind: EngineKind,
    pub engine: &'a EngineHost,
    /// This host; only of use if it is the engine's.
    pub host: &'a Host,
    pub locality: &'a Locality,
}

/// Chooses.
///
/// # Errors
/// No way works, with the reason for each; or a GPU is asked for that this host does not have.
pub fn choose_access(
    wanted: Wanted,
    selection: &GpuSelection,
    situation: Situation<'_>,
) -> Result<Access, AccessError> {
    let plan = |way| match way {
        Way::Nvidia => nvidia(wanted, selection, situation),
        Way::Cdi => cdi(wanted, selection, situation),
        Way::Plain => plain(selection, situation),
        Way::None => Ok(Access {
            reason: "requested: image, --device and --mount provide what is needed".to_owned(),
            ..access(Way::None, Gpus::None)
        }),
    };
    if situation.locality == &Locality::Local && wanted != Wanted::Only(Way::None) {
        check_selection(selection, &situation.host.gpus)?;
    }
    let ways: &[Way] = match &wanted {
        Wanted::Only(way) => std::slice::from_ref(way),
        Wanted::Auto => &[Way::Nvidia, Way::Cdi, Way::Plain],
    };
    let mut obstacles = Vec::new();
    for way in ways {
        match plan(*way) {
            Ok(access) => return Ok(with_variables(access, situation.engine)),
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    Err(AccessError::NoWay(obstacles))
}

/// NVIDIA's toolkit goes by variables, also of the image (NVIDIA Container Toolkit, "Specialized Configurations with
/// Docker"): which libraries it mounts, and, as the engine's default runtime, whether it does anything at all.
fn with_variables(mut access: Access, engine: &EngineHost) -> Access {
    if access.way == Way::Nvidia {
        access.variables.push(("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"));
    } else if engine.default_runtime == "nvidia" {
        access.variables.push(("NVIDIA_VISIBLE_DEVICES", "void"));
    }
    access
}

fn access(way: Way, gpus: Gpus) -> Access {
    Access {
        way,
        reason: String::new(),
        gpus,
        devices: Vec::new(),
        mounts: Vec::new(),
        library_directory: None,
        variables: Vec::new(),
    }
}

/// Whether the GPUs asked for are there; a host that shows none may be a container that sees no nodes.
fn check_selection(selection: &GpuSelection, gpus: &[HostGpu]) -> Result<(), AccessError> {
    if gpus.is_empty() || select(selection, gpus).is_some() {
        return Ok(());
    }
    let asked = match selection {
        GpuSelection::All => "all GPUs".to_owned(),
        GpuSelection::First(count) => format!("{count} GPUs"),
        GpuSelection::List(list) => format!("GPU {}", join(list)),
    };
    let present = match gpus.len() {
        1 => "one, number 0".to_owned(),
        count => format!("{count}, numbers 0 to {}", count - 1),
    };
    Err(AccessError::NoSuchGpu { asked, present })
}

/// The chosen GPUs, or `None` if one of them is not there.
fn select<'a>(selection: &GpuSelection, gpus: &'a [HostGpu]) -> Option<Vec<&'a HostGpu>> {
    match selection {
        GpuSelection::All => Some(gpus.iter().collect()),
        GpuSelection::First(count) => Some(gpus.get(..usize::try_from(*count).ok()?)?.iter().collect()),
        GpuSelection::List(list) => list.iter().map(|index| gpus.get(usize::try_from(*index).ok()?)).collect(),
    }
}

fn join(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// `nvidia` is the toolkit's name for its runtime; the hook alone makes Docker offer `--gpus`.
fn nvidia(wanted: Wanted, selection: &GpuSelection, situation: Situation<'_>) -> Result<Access, Obstacle> {
    let runtime = situation.engine.runtimes.iter().find(|name| *name == "nvidia");
    let hook = situation.host.toolkit_hook.as_ref().filter(|_| situation.locality == &Locality::Local);
    let reason = match (runtime, hook, wanted) {
        (Some(_), _, _) => "the engine has the runtime nvidia".to_owned(),
        (None, Some(hook), _) if situation.kind == EngineKind::Docker => {
            format!("NVIDIA's container toolkit is installed ({hook})")
        }
        // What the engine itself finds, only it knows.
        (None, _, Wanted::Only(_)) => "requested, though nothing shows that the engine has NVIDIA's toolkit".to_owned(),
        (None, _, Wanted::Auto) => {
            return Err(Obstacle {
                way: Way::Nvidia,
                reason: "the engine has no runtime nvidia, and nvidia-container-runtime-hook is not on the PATH"
                    .to_owned(),
                remedy:
                    "install nvidia-container-toolkit, then `nvidia-ctk runtime configure && systemctl restart docker`"
                        .to_owned(),
            });
        }
    };
    let gpus = match selection {
        GpuSelection::All => NvidiaGpus::All,
        GpuSelection::First(count) => NvidiaGpus::Count(*count),
        GpuSelection::List(list) => NvidiaGpus::Ids(list.iter().map(u32::to_string).collect()),
    };
    Ok(Access { reason, ..access(Way::Nvidia, Gpus::Nvidia(gpus)) })
}

fn cdi(wanted: Wanted, selection: &GpuSelection, situation: Situation<'_>) -> Result<Access, Obstacle> {
    let obstacle = |reason: String, remedy: &str| Obstacle { way: Way::Cdi, reason, remedy: remedy.to_owned() };
    let engine = situation.engine;
    if situation.kind == EngineKind::Docker && engine.cdi_directories.is_empty() {
        return Err(obstacle(
            "the engine has no CDI, or it is switched off".to_owned(),
            "use Docker 25 or newer with {\"features\": {\"cdi\": true}} in /etc/docker/daemon.json",
        ));
    }
    let local = situation.host.cdi_gpus.iter().filter(|_| situation.locality == &Locality::Local);
    let local: Vec<&str> = local.map(|device| device.name.as_str()).collect();
    let found = engine.cdi_devices.iter().map(String::as_str).filter(|name| name.starts_with("nvidia.com/gpu="));
    let known: Vec<&str> = found.chain(local).collect();
    let name = |index: &u32| format!("nvidia.com/gpu={index}");
    let names: Vec<String> = match selection {
        GpuSelection::All => vec!["nvidia.com/gpu=all".to_owned()],
        GpuSelection::First(count) => (0..*count).map(|index| name(&index)).collect(),
        GpuSelection::List(list) => list.iter().map(name).collect(),
    };
    let missing = names.iter().find(|name| !known.contains(&name.as_str()));
    let reason = match (missing, situation.locality, wanted) {
        (None, _, _) => format!("a CDI specification names {}", names.join(", ")),
        (Some(_), Locality::Remote(_), Wanted::Only(_)) => {
            "requested; the start will show which devices the engine's specifications name".to_owned()
        }
        (Some(name), _, _) => {
            let known = if known.is_empty() { "none of nvidia.com/gpu".to_owned() } else { known.join(", ") };
            return Err(obstacle(
                format!("no CDI specification names {name}; known: {known}"),
                "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            ));
        }
    };
    Ok(Access { reason, ..access(Way::Cdi, Gpus::Cdi(names)) })
}

fn plain(selection: &GpuSelection, situation: Situation<'_>) -> Result<Access, Obstacle> {
    let obstacle = |reason: String, remedy: &str| Obstacle { way: Way::Plain, reason, remedy: remedy.to_owned() };
    if let Locality::Remote(why) = situation.locality {
        return Err(obstacle(
            format!("{why}, so it cannot use nodes and libraries of this host"),
            "run rdmaprep on the engine's host, or set up NVIDIA's container toolkit there",
        ));
    }
    let host = situation.host;
    let control = |name: &str| host.gpu_control_nodes.iter().any(|node| node == name);
    if host.gpus.is_empty() || !control("/dev/nvidiactl") {
        return Err(obstacle(
            "this host has no NVIDIA GPU, or its driver is not loaded: there are no /dev/nvidia* nodes".to_owned(),
            "run on a host with a GPU; `nvidia-smi` there creates the nodes",
        ));
    }
    if !control("/dev/nvidia-uvm") {
        return Err(obstacle("there is no /dev/nvidia-uvm, which CUDA needs".to_owned(), "nvidia-modprobe -u -c 0"));
    }
    let Some(cuda) = host.driver_libraries.iter().find(|library| library.soname == "libcuda.so.1") else {
        return Err(obstacle(
            "the driver's libcuda.so.1 was not found on this host; stubs and compat libraries do not count".to_owned(),
            "install the driver's user-space libraries (libnvidia-compute, nvidia-driver-cuda-libs)",
        ));
    };
    // The selection was checked before, and `All` fits every host.
    let chosen = select(selection, &host.gpus).unwrap_or_default();
    let nodes = chosen.iter().map(|gpu| &gpu.node).chain(&host.gpu_control_nodes);
    let mount = |library: &super::host::HostLibrary| Bind {
        source: library.path.clone(),
        target: format!("{DRIVER_DIRECTORY}/{}", library.soname),
        read_only: true,
    };
    Ok(Access {
        reason: format!("this host has the nodes and the driver's libraries ({})", cuda.path),
        devices: nodes.map(|node| Device::node(node)).collect(),
        mounts: host.driver_libraries.iter().map(mount).collect(),
        library_directory: Some(DRIVER_DIRECTORY),
        ..access(Way::Plain, Gpus::None)
    })
}

#[cfg(test)]
mod tests {
    use super::super::host::{CdiDevice, HostLibrary};
    use super::*;
    use crate::remedy::with_remedy;

    fn host() -> Host {
        let gpu = |minor| HostGpu { minor, node: format!("/dev/nvidia{minor}"), pci_address: None, model: None };
        Host {
            gpus: vec![gpu(3), gpu(1)],
            gpu_control_nodes: vec!["/dev/nvidiactl".into(), "/dev/nvidia-uvm".into()],
            driver_libraries: vec![HostLibrary {
                soname: "libcuda.so.1".into(),
                path: "/usr/lib64/libcuda.so.550.1".into(),
            }],
            ..Host::default()
        }
    }

    fn choose(
        wanted: Wanted,
        selection: &GpuSelection,
        engine: &EngineHost,
        host: &Host,
        locality: &Locality,
    ) -> Result<Access, AccessError> {
        choose_access(wanted, selection, Situation { kind: EngineKind::Docker, engine, host, locality })
    }

    fn engine(runtimes: &[&str], cdi_directories: &[&str]) -> EngineHost {
        EngineHost {
            runtimes: runtimes.iter().map(|name| (*name).to_owned()).collect(),
            cdi_directories: cdi_directories.iter().map(|name| (*name).to_owned()).collect(),
            ..EngineHost::default()
        }
    }

    const REMOTE: &str = "the engine is on another machine";

    #[test]
    fn auto_takes_the_first_way_that_works() {
        let bare = engine(&["runc"], &[]);
        let auto = |engine: &EngineHost, host: &Host| {
            choose(Wanted::Auto, &GpuSelection::All, engine, host, &Locality::Local).unwrap()
        };
        let access = auto(&engine(&["nvidia", "runc"], &["/etc/cdi"]), &host());
        assert_eq!((access.way, &access.gpus), (Way::Nvidia, &Gpus::Nvidia(NvidiaGpus::All)));
        let access = auto(&bare, &Host { toolkit_hook: Some("/usr/bin/x".into()), ..host() });
        assert_eq!(access.way, Way::Nvidia);
        assert!(access.reason.contains("/usr/bin/x"), "{}", access.reason);
        let all = CdiDevice { name: "nvidia.com/gpu=all".into(), file: "/etc/cdi/nvidia.yaml".into() };
        let with_cdi = Host { cdi_gpus: vec![all], ..host() };
        let access = auto(&engine(&["runc"], &["/etc/cdi"]), &with_cdi);
        assert_eq!((access.way, access.gpus), (Way::Cdi, Gpus::Cdi(vec!["nvidia.com/gpu=all".into()])));
        // The specification is there, and the engine does not read it.
        let access = auto(&bare, &with_cdi);
        assert_eq!(access.way, Way::Plain);
        assert_eq!(access.gpus, Gpus::None);
        let nodes: Vec<&str> = access.devices.iter().map(|device| device.host.as_str()).collect();
        assert_eq!(nodes, ["/dev/nvidia3", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]);
        let mount = &access.mounts[0];
        assert_eq!(
            (mount.source.as_str(), mount.target.as_str(), mount.read_only),
            ("/usr/lib64/libcuda.so.550.1", "/usr/local/rdmaprep/driver/libcuda.so.1", true)
        );
        assert_eq!(access.library_directory, Some(DRIVER_DIRECTORY));
    }

    #[test]
    fn no_way_says_why_for_each() {
        let error =
            choose(Wanted::Auto, &GpuSelection::All, &engine(&["runc"], &[]), &Host::default(), &Locality::Local)
                .unwrap_err();
        let AccessError::NoWay(obstacles) = &error else { panic!("{error:?}") };
        assert_eq!(obstacles.iter().map(|o| o.way).collect::<Vec<_>>(), [Way::Nvidia, Way::Cdi, Way::Plain]);
        for word in ["nvidia-container-toolkit", "daemon.json", "no NVIDIA GPU"] {
            assert!(with_remedy(&error).contains(word), "{error}");
        }
        let remote = Locality::Remote(REMOTE.to_owned());
        let error =
            choose(Wanted::Only(Way::Plain), &GpuSelection::All, &engine(&[], &[]), &host(), &remote).unwrap_err();
        assert!(with_remedy(&error).contains(REMOTE), "{error}");
        for (broken, word) in [
            (Host { driver_libraries: Vec::new(), ..host() }, "libcuda.so.1"),
            (Host { gpu_control_nodes: vec!["/dev/nvidiactl".into()], ..host() }, "nvidia-uvm"),
            (Host { gpu_control_nodes: Vec::new(), ..host() }, "no NVIDIA GPU"),
        ] {
            let error =
                choose(Wanted::Only(Way::Plain), &GpuSelection::All, &engine(&[], &[]), &broken, &Locality::Local)
                    .unwrap_err();
            assert!(with_remedy(&error).contains(word), "{error}");
        }
    }

    #[test]
    fn what_only_the_engine_knows_is_left_to_it_if_asked_for() {
        let remote = Locality::Remote(REMOTE.to_owned());
        let bare = engine(&["runc"], &["/etc/cdi"]);
        // This host's toolkit says nothing about a remote engine.
        let here = Host { toolkit_hook: Some("/usr/bin/x".into()), ..host() };
        assert!(choose(Wanted::Auto, &GpuSelection::All, &bare, &here, &remote).is_err());
        let access = choose(Wanted::Only(Way::Nvidia), &GpuSelection::First(2), &bare, &here, &remote).unwrap();
        assert_eq!(access.gpus, Gpus::Nvidia(NvidiaGpus::Count(2)));
        let access = choose(Wanted::Only(Way::Cdi), &GpuSelection::First(2), &bare, &here, &remote).unwrap();
        assert_eq!(access.gpus, Gpus::Cdi(vec!["nvidia.com/gpu=0".into(), "nvidia.com/gpu=1".into()]));
        let error =
            choose(Wanted::Only(Way::Cdi), &GpuSelection::List(vec![1]), &bare, &here, &Locality::Local).unwrap_err();
        assert!(with_remedy(&error).contains("names nvidia.com/gpu=1; known: none"), "{error}");
        let discovered = EngineHost { cdi_devices: vec!["nvidia.com/gpu=all".into()], ..bare.clone() };
        assert_eq!(
            choose(Wanted::Auto, &GpuSelection::All, &discovered, &Host::default(), &remote).unwrap().way,
            Way::Cdi
        );
    }

    #[test]
    fn gpus_are_selected_in_the_order_of_nvml() {
        let plain =
            |selection| choose(Wanted::Only(Way::Plain), &selection, &engine(&[], &[]), &host(), &Locality::Local);
        let first = |selection| plain(selection).unwrap().devices[0].host.clone();
        assert_eq!(first(GpuSelection::First(1)), "/dev/nvidia3");
        assert_eq!(first(GpuSelection::List(vec![1])), "/dev/nvidia1");
        for (selection, asked) in [(GpuSelection::First(3), "3 GPUs"), (GpuSelection::List(vec![0, 2]), "GPU 0,2")] {
            let error = plain(selection).unwrap_err().to_string();
            assert!(error.contains(asked) && error.contains("2, numbers 0 to 1"), "{error}");
        }
        let nvidia = choose(
            Wanted::Only(Way::Nvidia),
            &GpuSelection::List(vec![1]),
            &engine(&[], &[]),
            &host(),
            &Locality::Local,
        );
        assert_eq!(nvidia.unwrap().gpus, Gpus::Nvidia(NvidiaGpus::Ids(vec!["1".into()])));
    }

    #[test]
    fn the_toolkit_s_variables() {
        let of = |way, default_runtime: &str| {
            let engine = EngineHost { default_runtime: default_runtime.to_owned(), ..engine(&["nvidia"], &[]) };
            choose(Wanted::Only(way), &GpuSelection::All, &engine, &host(), &Locality::Local).unwrap().variables
        };
        let capabilities = [("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")];
        assert_eq!(
            (of(Way::Nvidia, "runc"), of(Way::Nvidia, "nvidia")),
            (capabilities.to_vec(), capabilities.to_vec())
        );
        assert_eq!(of(Way::Plain, "runc"), []);
        assert_eq!(of(Way::Plain, "nvidia"), [("NVIDIA_VISIBLE_DEVICES", "void")]);
    }

    #[test]
    fn arguments() {
        let list = |list: &[u32]| Ok(GpuSelection::List(list.to_vec()));
        assert_eq!((parse_selection("all"), parse_selection("2")), (Ok(GpuSelection::All), Ok(GpuSelection::First(2))));
        assert_eq!((parse_selection("0,2"), parse_selection("2,")), (list(&[0, 2]), list(&[2])));
        for text in ["", "0", "-1", "a", "0,a", "0,,1", ",", "1,1"] {
            assert!(parse_selection(text).is_err(), "{text}");
        }
        assert_eq!(("auto".parse(), "plain".parse()), (Ok(Wanted::Auto), Ok(Wanted::Only(Way::Plain))));
        assert!("docker".parse::<Wanted>().is_err());
    }

    #[test]
    fn none_passes_nothing() {
        let remote = Locality::Remote(REMOTE.to_owned());
        for locality in [&Locality::Local, &remote] {
            let access =
                choose(Wanted::Only(Way::None), &GpuSelection::First(9), &engine(&["nvidia"], &[]), &host(), locality)
                    .unwrap();
            assert_eq!(
                (access.gpus, access.devices.len(), access.mounts.len(), access.library_directory),
                (Gpus::None, 0, 0, None)
            );
        }
    }
}
