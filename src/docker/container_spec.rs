//! Specification of a container → the engine's create request. Pure.

use std::collections::BTreeMap;

use bollard::models::{
    ContainerCreateBody, DeviceMapping, DeviceRequest, HostConfig, Mount, MountType, ResourcesUlimits,
};

/// The specification of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Id or name of a local image.
    pub image: String,
    /// `None`: the image's own. With another entrypoint the image's command is not used.
    pub entrypoint: Option<Vec<String>>,
    /// `None`: the image's own.
    pub command: Option<Vec<String>>,
    /// Variables that override the image's; `None` removes one of the image.
    pub env: Vec<(String, Option<String>)>,
    /// `None`: the image's own.
    pub user: Option<String>,
    /// `None`: the image's own.
    pub working_dir: Option<String>,
    /// Docker's network mode: `host`, `none`, `bridge`, or a network's name.
    pub network: String,
    pub ipc: Ipc,
    pub ulimits: Vec<Ulimit>,
    /// Capabilities without `CAP_`, such as `IPC_LOCK`.
    pub capabilities: Vec<String>,
    pub devices: Vec<Device>,
    pub mounts: Vec<Bind>,
    pub gpus: Gpus,
    pub privileged: bool,
    pub labels: BTreeMap<String, String>,
}

impl ContainerSpec {
    /// A container of an image with nothing but its own settings and no network.
    pub fn new(image: &str) -> ContainerSpec {
        ContainerSpec {
            image: image.to_owned(),
            entrypoint: None,
            command: None,
            env: Vec::new(),
            user: None,
            working_dir: None,
            network: "none".to_owned(),
            ipc: Ipc::Own { shm_bytes: None },
            ulimits: Vec::new(),
            capabilities: Vec::new(),
            devices: Vec::new(),
            mounts: Vec::new(),
            gpus: Gpus::None,
            privileged: false,
            labels: BTreeMap::new(),
        }
    }
}

/// The shared memory that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipc {
    /// The host's `/dev/shm`.
    Host,
    /// Its own, of this size in bytes; `None`: the engine's default, which is 64 MB in Docker.
    Own { shm_bytes: Option<u64> },
}

/// A resource limit; soft and hard are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ulimit {
    /// Docker's name, such as `memlock`.
    pub name: String,
    /// In bytes for `memlock` and `stack`; -1: unlimited.
    pub value: i64,
}

/// A device node, or a directory of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub host: String,
    pub container: String,
    /// Permissions: `r`, `w` and `m`.
    pub permissions: String,
}

impl Device {
    /// A node under its own name, with Docker's default permissions.
    pub fn node(path: &str) -> Device {
        Device { host: path.to_owned(), container: path.to_owned(), permissions: "rwm".to_owned() }
    }
}

/// A file or directory of the host inside the container. A missing one is an error and is never created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub source: String,
    pub target: String,
    pub read_only: bool,
}

/// How GPUs are requested from the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gpus {
    /// Nothing.
    None,
    /// NVIDIA's container toolkit (`docker run --gpus`).
    Nvidia(NvidiaGpus),
    /// Names of CDI devices, such as `nvidia.com/gpu=all`.
    Cdi(Vec<String>),
}

/// Which GPUs NVIDIA's container toolkit gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvidiaGpus {
    All,
    /// The first this many.
    Count(u32),
    /// By index or UUID.
    Ids(Vec<String>),
}

/// What the toolkit mounts: the driver's libraries for CUDA, and NVML. Without these words the image's
/// `NVIDIA_DRIVER_CAPABILITIES` decides, and `graphics` alone gives no libcuda.
const GPU_CAPABILITIES: [&str; 3] = ["gpu", "compute", "utility"];

/// The body of the request.
pub(super) fn body(spec: &ContainerSpec) -> ContainerCreateBody {
    let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    let (ipc_mode, shm_size) = match spec.ipc {
        Ipc::Host => (Some("host".to_owned()), None),
        Ipc::Own { shm_bytes } => (None, shm_bytes.and_then(|bytes| i64::try_from(bytes).ok())),
    };
    let env = spec.env.iter().map(|(name, value)| match value {
        Some(value) => format!("{name}={value}"),
        // API: "A variable without = is removed from the environment, rather than to have an empty value."
        None => name.clone(),
    });
    let device = |device: &Device| DeviceMapping {
        path_on_host: Some(device.host.clone()),
        path_in_container: Some(device.container.clone()),
        cgroup_permissions: Some(device.permissions.clone()),
    };
    let mount = |bind: &Bind| Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.source.clone()),
        target: Some(bind.target.clone()),
        read_only: Some(bind.read_only),
        ..Mount::default()
    };
    let ulimit = |limit: &Ulimit| ResourcesUlimits {
        name: Some(limit.name.clone()),
        soft: Some(limit.value),
        hard: Some(limit.value),
    };
    let host_config = HostConfig {
        network_mode: Some(spec.network.clone()),
        ipc_mode,
        shm_size,
        ulimits: Some(spec.ulimits.iter().map(ulimit).collect()),
        cap_add: some(spec.capabilities.clone()),
        devices: Some(spec.devices.iter().map(device).collect()),
        device_requests: device_request(&spec.gpus).map(|request| vec![request]),
        mounts: Some(spec.mounts.iter().map(mount).collect()),
        privileged: Some(spec.privileged),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: spec.entrypoint.clone(),
        cmd: spec.command.clone(),
        env: some(env.collect()),
        user: spec.user.clone(),
        working_dir: spec.working_dir.clone(),
        labels: Some(spec.labels.clone().into_iter().collect()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

fn device_request(gpus: &Gpus) -> Option<DeviceRequest> {
    let nvidia = |count: Option<i64>, device_ids: Option<Vec<String>>| DeviceRequest {
        driver: Some(String::new()),
        count,
        device_ids,
        capabilities: Some(vec![GPU_CAPABILITIES.map(str::to_owned).to_vec()]),
        options: None,
    };
    Some(match gpus {
        Gpus::None => return None,
        Gpus::Nvidia(NvidiaGpus::All) => nvidia(Some(-1), None),
        Gpus::Nvidia(NvidiaGpus::Count(count)) => nvidia(Some(i64::from(*count)), None),
        Gpus::Nvidia(NvidiaGpus::Ids(ids)) => nvidia(None, Some(ids.clone())),
        Gpus::Cdi(names) => DeviceRequest {
            driver: Some("cdi".to_owned()),
            device_ids: Some(names.clone()),
            ..DeviceRequest::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_request() {
        let mut spec = ContainerSpec::new("sha256:ab");
        spec.env = vec![("A".into(), Some("1=2".into())), ("B".into(), None), ("C".into(), Some(String::new()))];
        spec.network = "host".into();
        spec.ipc = Ipc::Host;
        spec.ulimits = vec![Ulimit { name: "memlock".into(), value: -1 }];
        spec.capabilities = vec!["IPC_LOCK".into()];
        spec.devices = vec![Device::node("/dev/infiniband/uverbs0")];
        spec.mounts = vec![Bind { source: "/a".into(), target: "/b".into(), read_only: true }];
        spec.gpus = Gpus::Nvidia(NvidiaGpus::All);
        let json = serde_json::to_value(body(&spec)).unwrap();
        assert_eq!(json["Env"], serde_json::json!(["A=1=2", "B", "C="]));
        let host = &json["HostConfig"];
        assert_eq!(
            (&host["NetworkMode"], &host["IpcMode"], &host["Privileged"]),
            (&"host".into(), &"host".into(), &false.into())
        );
        assert_eq!(host["Ulimits"], serde_json::json!([{"Name": "memlock", "Soft": -1, "Hard": -1}]));
        assert_eq!(host["CapAdd"], serde_json::json!(["IPC_LOCK"]));
        assert_eq!(host["Devices"][0]["PathInContainer"], "/dev/infiniband/uverbs0");
        assert_eq!(
            host["Mounts"],
            serde_json::json!([{"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": true}])
        );
        assert_eq!(
            host["DeviceRequests"],
            serde_json::json!([{"Driver": "", "Count": -1, "Capabilities": [["gpu", "compute", "utility"]]}])
        );
        assert!(json.get("Entrypoint").is_none() && json.get("User").is_none() && host.get("ShmSize").is_none());
    }

    #[test]
    fn requests_for_gpus() {
        let json = |gpus| serde_json::to_value(device_request(&gpus)).unwrap();
        assert!(json(Gpus::None).is_null());
        assert_eq!(json(Gpus::Nvidia(NvidiaGpus::Count(2)))["Count"], 2);
        let ids = json(Gpus::Nvidia(NvidiaGpus::Ids(vec!["0".into(), "3".into()])));
        assert_eq!((&ids["DeviceIDs"], ids.get("Count")), (&serde_json::json!(["0", "3"]), None));
        let cdi = json(Gpus::Cdi(vec!["nvidia.com/gpu=all".into()]));
        assert_eq!(cdi, serde_json::json!({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}));
    }
}
