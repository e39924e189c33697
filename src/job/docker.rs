//! The `docker run` lines of one host. Pure.
//!
//! There are two: one with least privilege, and the vendor's own line with the job's variables and GPUs. They work in
//! any POSIX shell.

use super::Job;
use super::settings::{self, variables};
use super::spec::{JobError, JobSpec};
use crate::docker::container_spec::{ContainerSpec, Device, Gpus, Ipc, NvidiaGpus};
use crate::fabric::Fabric;
use crate::facts::rdma::RdmaDevice;
use crate::launch::command_line::{env_words, option_words};
use crate::launch::host::Host;
use crate::launch::spec::{IPC_LOCK, NETWORK, RDMA_CM, RDMA_DIRECTORY, ulimits};
use crate::nccl_settings::InterfaceFilter;
use crate::shell::shell_join;

/// In bytes; the value in public guides on eRDMA (`--shm-size=8g`).
const SHARED_MEMORY: u64 = 8 << 30;

/// RDMA device nodes that the container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RdmaNodes {
    /// The nodes of the host on which the line is run, found by its shell.
    AllOfTheHost,
    /// Paths.
    These {
        paths: Vec<String>,
        /// The value of `NCCL_IB_HCA` that names these devices; `None`: the host has no others.
        hca_filter: Option<String>,
    },
}

impl RdmaNodes {
    /// The nodes of this many NICs, which the kernel numbers from 0.
    pub fn of_nics(count: u32) -> RdmaNodes {
        let paths = (0..count).map(|number| format!("{RDMA_DIRECTORY}/uverbs{number}")).collect();
        RdmaNodes::These { paths, hca_filter: None }
    }

    /// The nodes of a host's devices of a fabric; if it has none, the job is for another host.
    pub fn of_host(host: &Host, fabric: &Fabric) -> RdmaNodes {
        let own: Vec<&RdmaDevice> = host.devices_of(fabric).collect();
        let paths: Vec<String> = own.iter().filter_map(|device| device.node()).collect();
        if paths.is_empty() {
            return RdmaNodes::AllOfTheHost;
        }
        // NCCL sees the others in sysfs and tries them, too.
        let hca_filter = (own.len() < host.rdma_devices.len())
            .then(|| InterfaceFilter::exactly(own.iter().map(|device| device.name.as_str())));
        RdmaNodes::These { paths, hca_filter }
    }
}

/// The lines, each with a comment above.
///
/// # Errors
/// The name is not a valid container name.
pub(super) fn command_lines(spec: &JobSpec, nodes: &RdmaNodes) -> Result<Job, JobError> {
    if !is_container_name(&spec.name) {
        return Err(JobError::Value {
            option: "--name",
            value: spec.name.clone(),
            rule: "a container name starts with a letter or digit and has at least two characters: letters, digits, _, . and -"
                .to_owned(),
            remedy: "--name train".to_owned(),
        });
    }
    let mut text = format!("# what the job needs and no more\n{}\n", least_privilege(spec, nodes));
    let mut notes = Vec::new();
    if spec.target.docker_flags.is_empty() {
        notes.push(format!("run it on every host; no page about {} has a docker run line", spec.target.title));
    } else {
        notes.push("run one of the lines on every host; both give the container the same name".to_owned());
        text.push_str(&format!(
            "# as the page on {} has it, with every privilege and in the background; the variables are the job's\n{}\n",
            spec.target.title,
            vendor(spec, nodes)
        ));
        notes.extend(note_of_vendor(spec, nodes));
    }
    let secrets = spec.secrets();
    if !secrets.is_empty() {
        let exports: Vec<String> = secrets.iter().map(|name| format!("export {name}=VALUE")).collect();
        notes.push(format!(
            "the value of {} is not in the line: docker takes it from the environment of the shell that runs it\n  {}",
            secrets.join(", "),
            exports.join("; ")
        ));
    }
    notes.push(
        "the image's entrypoint gets the command as its arguments, as with every docker run\n  --entrypoint PROGRAM after docker \
         run replaces it"
            .to_owned(),
    );
    if nodes == &RdmaNodes::AllOfTheHost {
        notes.push(format!(
            "the shell matches the devices with {RDMA_DIRECTORY}/uverbs*, including those of other fabrics\n  --nics N names them"
        ));
    }
    notes.extend(settings::notes(spec));
    notes.extend(spec.note_of_dollars());
    Ok(Job { text, notes })
}

fn vendor(spec: &JobSpec, nodes: &RdmaNodes) -> String {
    let mut words: Vec<String> =
        ["docker", "run"].iter().chain(spec.target.docker_flags).map(|word| (*word).to_owned()).collect();
    // The page's own GPUs are all of them.
    let gpus = words.iter().position(|word| word == "--gpus").and_then(|at| words.get_mut(at + 1));
    if let (Some(page), Some(count)) = (gpus, spec.gpus_per_worker) {
        *page = count.to_string();
    }
    words.extend(["--name".to_owned(), spec.name.clone()]);
    words.extend(env_words(&environment(spec, nodes)));
    words.push(spec.image.clone());
    words.extend(spec.command().arguments());
    shell_join(&words)
}

/// Requested settings that the vendor's line lacks.
fn note_of_vendor(spec: &JobSpec, nodes: &RdmaNodes) -> Option<String> {
    let asked = [
        ("--cpu", spec.cpu.is_some()),
        ("--memory", spec.memory.is_some()),
        ("--shared-memory", spec.shared_memory.is_some()),
        ("the choice of NICs", matches!(nodes, RdmaNodes::These { .. })),
    ];
    let left_out: Vec<&str> = asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(what, _)| what).collect();
    (!left_out.is_empty()).then(|| {
        format!(
            "the page's line omits {}: its container has the host's cores, memory, /dev/shm and every device",
            left_out.join(", ")
        )
    })
}

/// The job's variables as a container takes them.
fn environment(spec: &JobSpec, nodes: &RdmaNodes) -> Vec<(String, Option<String>)> {
    const NAME: &str = "NCCL_IB_HCA";
    let mut variables = variables(spec);
    if let RdmaNodes::These { hca_filter: Some(filter), .. } = nodes
        && !variables.iter().any(|(name, _)| name == NAME)
    {
        variables.push((NAME.to_owned(), filter.clone()));
    }
    variables.into_iter().map(|(name, value)| (name, Some(value))).collect()
}

fn least_privilege(spec: &JobSpec, nodes: &RdmaNodes) -> String {
    let mut words: Vec<String> = ["docker", "run", "--rm", "--name"].map(str::to_owned).to_vec();
    words.push(spec.name.clone());
    if let Some(cores) = spec.cpu.as_ref().and_then(super::Quantity::cores) {
        words.extend(["--cpus".to_owned(), cores]);
    }
    if let Some(bytes) = spec.memory.as_ref().and_then(super::Quantity::bytes) {
        words.extend(["--memory".to_owned(), bytes.to_string()]);
    }
    let (mut container, found_by_shell) = container(spec, nodes);
    container.devices.push(Device::node(RDMA_CM));
    words.extend(option_words(&container));
    let mut rest = vec![spec.image.clone()];
    rest.extend(spec.command().arguments());
    // Left unquoted: the host's shell expands it.
    let devices = found_by_shell.then(|| format!("$(printf ' --device %s' {RDMA_DIRECTORY}/uverbs*)"));
    [Some(shell_join(&words)), devices, Some(shell_join(&rest))].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The container as the preflight starts it, and whether the shell adds the nodes.
fn container(spec: &JobSpec, nodes: &RdmaNodes) -> (ContainerSpec, bool) {
    let mut container = ContainerSpec::new(&spec.image);
    container.network = NETWORK.to_owned();
    let shared_memory = spec.shared_memory.as_ref().and_then(super::Quantity::bytes);
    container.ipc = Ipc::Own { shm_bytes: Some(shared_memory.unwrap_or(SHARED_MEMORY)) };
    container.ulimits = ulimits();
    container.capabilities = vec![IPC_LOCK.to_owned()];
    container.gpus = Gpus::Nvidia(spec.gpus_per_worker.map_or(NvidiaGpus::All, NvidiaGpus::Count));
    container.env = environment(spec, nodes);
    match nodes {
        RdmaNodes::AllOfTheHost => (container, true),
        RdmaNodes::These { paths, .. } => {
            container.devices = paths.iter().map(|path| Device::node(path)).collect();
            (container, false)
        }
    }
}

/// Docker, `daemon/names`: `[a-zA-Z0-9][a-zA-Z0-9_.-]+`.
fn is_container_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.len() > 1 && name.chars().all(is_inner) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::{spec, variable};
    use crate::launch::host::tests::device;
    use crate::targets::by_id;

    fn ecs() -> JobSpec {
        let mut spec = spec();
        spec.target = by_id("ecs").unwrap();
        spec
    }

    #[test]
    fn both_lines() {
        let mut spec = ecs();
        spec.env = vec![variable("HF_TOKEN", "secret")];
        let job = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        insta::assert_snapshot!("docker_ecs", job.text);
        insta::assert_snapshot!("docker_ecs_notes", job.notes.join("\n"));
        assert!(!job.text.contains("secret"));
    }

    #[test]
    fn with_sizes_and_nics() {
        let mut spec = ecs();
        spec.cpu = Some("500m".parse().unwrap());
        spec.memory = Some("1Gi".parse().unwrap());
        spec.shared_memory = Some("64Mi".parse().unwrap());
        spec.gpus_per_worker = Some(2);
        let text = command_lines(&spec, &RdmaNodes::of_nics(2)).unwrap().text;
        for words in [
            "--cpus 0.500 --memory 1073741824",
            "--shm-size 67108864",
            "--device /dev/infiniband/uverbs0 --device /dev/infiniband/uverbs1 --device /dev/infiniband/rdma_cm --gpus 2",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
        assert!(!text.contains('*'));
    }

    #[test]
    fn the_vendors_line_has_what_it_has_a_place_for() {
        let mut spec = ecs();
        let vendor = |job: &Job| job.text.lines().last().unwrap().to_owned();
        let note = |job: &Job| job.notes.iter().find(|note| note.contains("omits")).cloned();
        let plain = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        assert!(vendor(&plain).contains("--gpus all --privileged"), "{}", plain.text);
        assert_eq!(note(&plain), None);

        spec.env = vec![variable("A", "b c"), variable("HF_TOKEN", "hush")];
        spec.interface = Some("eth7".into());
        spec.gpus_per_worker = Some(2);
        let job = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        for words in
            ["--gpus 2 --privileged", "--env NCCL_SOCKET_IFNAME=eth7 ", " --env 'A=b c' --env HF_TOKEN registry."]
        {
            assert!(vendor(&job).contains(words), "{words} is not in {}", job.text);
        }
        assert_eq!(note(&job), None, "all of it is in the line");

        spec.memory = Some("1Gi".parse().unwrap());
        spec.shared_memory = Some("64Mi".parse().unwrap());
        let job = command_lines(&spec, &RdmaNodes::of_nics(2)).unwrap();
        let note = note(&job).unwrap();
        assert!(note.contains("omits --memory, --shared-memory, the choice of NICs: "), "{note}");
        assert!(!vendor(&job).contains("1073741824"), "{}", job.text);
    }

    #[test]
    fn a_secret_is_left_to_the_shell() {
        let mut spec = ecs();
        spec.env = vec![variable("HF_TOKEN", "hush"), variable("TOKENIZERS_PARALLELISM", "false")];
        let job = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        assert!(!job.text.contains("hush") && job.text.contains("--env TOKENIZERS_PARALLELISM=false"), "{}", job.text);
        let note = job.notes.iter().find(|note| note.contains("environment of the shell")).unwrap();
        assert!(note.contains("HF_TOKEN") && note.ends_with("\n  export HF_TOKEN=VALUE"), "{note}");
        assert!(!note.contains("TOKENIZERS"), "{note}");
        spec.env = vec![variable("MAX_TOKENS", "8")];
        let job = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        assert!(!job.notes.iter().any(|note| note.contains("environment of the shell")), "{:?}", job.notes);
    }

    #[test]
    fn the_devices_of_this_host() {
        let mut host = Host {
            rdma_devices: vec![
                device("mlx5_0", "0x15b3", Some("uverbs0")),
                device("erdma_0", "0x1ded", Some("uverbs1")),
                device("erdma_1", "0x1ded", None),
            ],
            ..Host::default()
        };
        let fabric = |target: &str| by_id(target).unwrap().fabric;
        let of = |host: &Host, target: &str| RdmaNodes::of_host(host, fabric(target));
        let these = |path: &str, filter: Option<&str>| RdmaNodes::These {
            paths: vec![path.into()],
            hca_filter: filter.map(str::to_owned),
        };
        assert_eq!(of(&host, "ecs"), these("/dev/infiniband/uverbs1", Some("=erdma_0,erdma_1")));
        assert_eq!(of(&host, "cce"), these("/dev/infiniband/uverbs0", Some("=mlx5_0")));
        // Both lines name the devices, unless the user does.
        let mut spec = ecs();
        let text = command_lines(&spec, &of(&host, "ecs")).unwrap().text;
        assert_eq!(text.matches("--env NCCL_IB_HCA==erdma_0,erdma_1 ").count(), 2, "{text}");
        spec.env = vec![variable("NCCL_IB_HCA", "=erdma_1")];
        let text = command_lines(&spec, &of(&host, "ecs")).unwrap().text;
        assert_eq!(text.matches("NCCL_IB_HCA==").count(), text.matches("NCCL_IB_HCA==erdma_1 ").count(), "{text}");
        let only = Host { rdma_devices: host.rdma_devices[..1].to_vec(), ..Host::default() };
        assert_eq!(of(&only, "cce"), these("/dev/infiniband/uverbs0", None));
        host.rdma_devices.truncate(1);
        assert_eq!(of(&host, "ecs"), RdmaNodes::AllOfTheHost);
    }

    #[test]
    fn without_a_page_there_is_one_line() {
        let mut spec = spec();
        spec.target = by_id("cce").unwrap();
        let job = command_lines(&spec, &RdmaNodes::AllOfTheHost).unwrap();
        assert!(!job.text.contains("--privileged"));
        assert!(job.notes[0].contains("no page about Baidu CCE"));
    }

    #[test]
    fn names() {
        for (name, is_one) in
            [("train", true), ("Train_1.x", true), ("", false), ("a", false), ("-a", false), ("a b", false)]
        {
            let mut spec = ecs();
            spec.name = name.into();
            assert_eq!(command_lines(&spec, &RdmaNodes::AllOfTheHost).is_ok(), is_one, "{name}");
        }
    }
}
