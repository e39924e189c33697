//! [`ContainerSpec`] → the `docker run` line that gives a container the same. Pure.
//!
//! The line is for people who want to look around in such a container: it has the image's own program, as the agent is put
//! in by the API. Values of secrets are left to the environment in which the line is run.

use super::variables::is_secret;
use crate::docker::container_spec::{Bind, ContainerSpec, Device, Gpus, Ipc, NvidiaGpus};
use crate::shell::shell_join;

/// Writes the line. `image` is the name that people know the image by.
pub fn command_line(spec: &ContainerSpec, image: &str) -> String {
    let mut words = vec!["docker".to_owned(), "run".to_owned(), "--rm".to_owned()];
    words.extend(option_words(spec));
    words.push(image.to_owned());
    shell_join(&words)
}

/// The options of `docker run` alone, one word each.
pub fn option_words(spec: &ContainerSpec) -> Vec<String> {
    options(spec).into_iter().flat_map(|(name, value)| std::iter::once(name.to_owned()).chain(value)).collect()
}

/// The options for variables alone, one word each.
pub fn env_words(variables: &[(String, Option<String>)]) -> Vec<String> {
    variables.iter().flat_map(|variable| ["--env".to_owned(), env_value(variable)]).collect()
}

fn env_value((name, value): &(String, Option<String>)) -> String {
    match value {
        Some(value) if !is_secret(name) => format!("{name}={value}"),
        // The Docker client takes the value from its own environment, and without one removes the variable.
        Some(_) | None => name.clone(),
    }
}

fn options(spec: &ContainerSpec) -> Vec<(&'static str, Option<String>)> {
    let mut options: Vec<(&'static str, Option<String>)> = Vec::new();
    let mut add = |name, value: String| options.push((name, Some(value)));
    add("--network", spec.network.clone());
    match spec.ipc {
        Ipc::Host => add("--ipc", "host".to_owned()),
        Ipc::Own { shm_bytes: Some(bytes) } => add("--shm-size", bytes.to_string()),
        Ipc::Own { shm_bytes: None } => {}
    }
    for limit in &spec.ulimits {
        add("--ulimit", format!("{}={}", limit.name, limit.value));
    }
    for capability in &spec.capabilities {
        add("--cap-add", capability.clone());
    }
    for device in &spec.devices {
        add("--device", device_value(device));
    }
    match &spec.gpus {
        Gpus::None => {}
        Gpus::Nvidia(NvidiaGpus::All) => add("--gpus", "all".to_owned()),
        Gpus::Nvidia(NvidiaGpus::Count(count)) => add("--gpus", count.to_string()),
        // The value is a line of comma-separated values, so that a list needs quotes within.
        Gpus::Nvidia(NvidiaGpus::Ids(ids)) => add("--gpus", format!("\"device={}\"", ids.join(","))),
        Gpus::Cdi(names) => names.iter().for_each(|name| add("--device", name.clone())),
    }
    for bind in &spec.mounts {
        add("--mount", mount_value(bind));
    }
    for variable in &spec.env {
        add("--env", env_value(variable));
    }
    if let Some(user) = &spec.user {
        add("--user", user.clone());
    }
    if let Some(directory) = &spec.working_dir {
        add("--workdir", directory.clone());
    }
    if spec.privileged {
        options.push(("--privileged", None));
    }
    options
}

/// `HOST[:CONTAINER[:PERMISSIONS]]`
pub fn device_value(device: &Device) -> String {
    match (device.container == device.host, device.permissions.as_str()) {
        (true, "rwm") => device.host.clone(),
        (false, "rwm") => format!("{}:{}", device.host, device.container),
        (_, permissions) => format!("{}:{}:{permissions}", device.host, device.container),
    }
}

fn mount_value(bind: &Bind) -> String {
    let read_only = if bind.read_only { ",readonly" } else { "" };
    format!("type=bind,source={},target={}{read_only}", bind.source, bind.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::container_spec::Ulimit;

    #[test]
    fn the_whole_line() {
        let mut spec = ContainerSpec::new("sha256:ab");
        spec.network = "host".into();
        spec.ipc = Ipc::Host;
        spec.ulimits =
            vec![Ulimit { name: "memlock".into(), value: -1 }, Ulimit { name: "stack".into(), value: 67_108_864 }];
        spec.capabilities = vec!["IPC_LOCK".into()];
        spec.devices = vec![Device::node("/dev/infiniband/uverbs0")];
        spec.gpus = Gpus::Nvidia(NvidiaGpus::All);
        spec.mounts = vec![Bind { source: "/my data".into(), target: "/d".into(), read_only: true }];
        spec.env = vec![
            ("HF_TOKEN".into(), Some("secret".into())),
            ("NCCL_DEBUG".into(), Some("INFO".into())),
            ("NCCL_DEBUG_FILE".into(), None),
            ("X".into(), Some("it's".into())),
        ];
        assert_eq!(
            command_line(&spec, "my/train:1"),
            "docker run --rm --network host --ipc host --ulimit memlock=-1 --ulimit stack=67108864 --cap-add IPC_LOCK \
             --device /dev/infiniband/uverbs0 --gpus all --mount 'type=bind,source=/my data,target=/d,readonly' \
             --env HF_TOKEN --env NCCL_DEBUG=INFO --env NCCL_DEBUG_FILE --env 'X=it'\\''s' my/train:1"
        );
    }

    #[test]
    fn other_forms() {
        let line = |change: &dyn Fn(&mut ContainerSpec)| {
            let mut spec = ContainerSpec::new("i");
            change(&mut spec);
            command_line(&spec, "i").replacen("docker run --rm --network none ", "", 1)
        };
        let list = NvidiaGpus::Ids(vec!["0".into(), "1".into()]);
        assert_eq!(line(&|spec| spec.gpus = Gpus::Nvidia(list.clone())), r#"--gpus '"device=0,1"' i"#);
        assert_eq!(line(&|spec| spec.gpus = Gpus::Nvidia(NvidiaGpus::Count(2))), "--gpus 2 i");
        assert_eq!(
            line(&|spec| spec.gpus = Gpus::Cdi(vec!["nvidia.com/gpu=all".into()])),
            "--device nvidia.com/gpu=all i"
        );
        assert_eq!(line(&|spec| spec.ipc = Ipc::Own { shm_bytes: Some(8 << 30) }), "--shm-size 8589934592 i");
        assert_eq!(line(&|spec| spec.privileged = true), "--privileged i");
        assert_eq!(line(&|spec| spec.user = Some("1000:1000".into())), "--user 1000:1000 i");
        let device = Device { host: "/dev/a".into(), container: "/dev/b".into(), permissions: "rw".into() };
        assert_eq!(line(&|spec| spec.devices = vec![device.clone()]), "--device /dev/a:/dev/b:rw i");
    }
}
