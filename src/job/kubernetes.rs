//! The parts that every operator's pods have in common. Pure.
//!
//! Sources: the ACK page on eRDMA (host network, `aliyun/erdma`), Baidu AI Cloud doc/CCE/s/Qmknnud7o (`rdma/hca`),
//! AliyunContainerService/alibabacloud-erdma-controller (`IPC_LOCK` in its perftest pods; 200 slots of a NIC), Kubernetes
//! `third_party/forked/golang/expansion/expand.go` (`$(NAME)`).

use super::document::{Node, map};
use super::settings::{self, variables};
use super::spec::{JobError, JobSpec};
use crate::fabric::erdma::ERDMA;

/// Resource of NVIDIA's device plugin.
const GPU: &str = "nvidia.com/gpu";
/// Name of the volume at `/dev/shm`.
const SHARED_MEMORY: &str = "shared-memory";

/// The device plugin's resource of the target.
///
/// # Errors
/// The target is not a Kubernetes platform.
pub(super) fn device_resource(spec: &JobSpec) -> Result<&'static str, JobError> {
    spec.target.device_resource.ok_or_else(|| JobError::Other {
        problem: format!("--target {}: {} has no device plugin for RDMA", spec.target.id, spec.target.title),
        remedy: "--target ack, or --target cce".to_owned(),
    })
}

/// Escapes a text so that it reaches the program unchanged: Kubernetes replaces `$(NAME)` in commands and in values of
/// variables, and reads `$$` as one `$`.
pub(super) fn escape_dollars(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        if c == '$' && matches!(rest.peek(), Some('$' | '(')) {
            out.push('$');
        }
    }
    out
}

/// A container with a command.
pub(super) fn container(spec: &JobSpec, name: &str, command: &[String]) -> Node {
    let command: Vec<Node> = command.iter().map(|word| escape_dollars(word).into()).collect();
    map([("name", name.into()), ("image", spec.image.clone().into()), ("command", Node::List(command))])
}

/// Gives a container the variables of the job.
pub(super) fn with_variables(container: Node, spec: &JobSpec) -> Node {
    let entry =
        |(name, value): (String, String)| map([("name", name.into()), ("value", escape_dollars(&value).into())]);
    container.with("env", Some(Node::List(variables(spec).into_iter().map(entry).collect())))
}

/// Gives a container GPUs, RDMA devices and permission to lock memory.
pub(super) fn with_devices(container: Node, spec: &JobSpec, resource: &str) -> Node {
    let limits = map([])
        .with("cpu", spec.cpu.as_ref().map(ToString::to_string))
        .with("memory", spec.memory.as_ref().map(ToString::to_string))
        .with(GPU, Some(spec.gpus()))
        // One slot: a plugin offers 200 (eRDMA) or 1000 (RoCE) per NIC, so this does not count NICs.
        .with(resource, Some(1_u32));
    let capabilities = map([("add", vec!["IPC_LOCK"].into())]);
    let mount = map([("name", SHARED_MEMORY.into()), ("mountPath", "/dev/shm".into())]);
    container
        .with("resources", Some(map([("limits", limits)])))
        .with("securityContext", Some(map([("capabilities", capabilities)])))
        .with("volumeMounts", Some(Node::List(vec![mount])))
}

/// The host port that the pod uses: the scheduler then never puts two such pods on one host.
pub(super) fn with_port(container: Node, name: &str, port: u16) -> Node {
    let port = map([("name", name.into()), ("containerPort", u32::from(port).into())]);
    container.with("ports", Some(Node::List(vec![port])))
}

/// A pod without devices, with its own address.
pub(super) fn pod(spec: &JobSpec, container: Node) -> Node {
    with_container(map([]), spec, container)
}

/// A pod with devices, on the host network, whose addresses are the GIDs of the NICs.
pub(super) fn pod_with_devices(spec: &JobSpec, container: Node) -> Node {
    // Without a size it is bounded by the pod's memory alone.
    let size = spec.shared_memory.as_ref().map(ToString::to_string);
    let shared_memory = map([("medium", "Memory".into())]).with("sizeLimit", size);
    let volume = map([("name", SHARED_MEMORY.into()), ("emptyDir", shared_memory)]);
    let pod = map([("hostNetwork", true.into()), ("dnsPolicy", "ClusterFirstWithHostNet".into())]);
    with_container(pod, spec, container).with("volumes", Some(Node::List(vec![volume])))
}

fn with_container(pod: Node, spec: &JobSpec, container: Node) -> Node {
    let toleration = map([("operator", "Exists".into())]);
    pod.with("tolerations", spec.tolerate_all.then(|| Node::List(vec![toleration])))
        .with("containers", Some(Node::List(vec![container])))
}

/// Identical pods.
pub(super) fn replicas(count: u32, pod: Node) -> Node {
    map([("replicas", count.into()), ("template", map([("spec", pod)]))])
}

/// An object with its name.
pub(super) fn object(spec: &JobSpec, api_version: &str, kind: &str, body: Node) -> Node {
    let metadata = map([("name", spec.name.clone().into())]).with("namespace", spec.namespace.clone());
    map([("apiVersion", api_version.into()), ("kind", kind.into()), ("metadata", metadata), ("spec", body)])
}

/// Explains the number of devices, and the settings that the cluster needs.
pub(super) fn note_of_controller(spec: &JobSpec) -> Option<String> {
    (spec.target.fabric.id == ERDMA.id).then(|| {
        "aliyun/erdma: 1 is one of a NIC's 200 slots. The eRDMA controller's settings decide whether a pod gets every NIC of its \
         host, and whether they are RoCE, which NCCL needs\n  allocateAllDevices: true, preferDriver: ofed"
            .to_owned()
    })
}

/// Notes that apply to every job on a cluster.
pub(super) fn notes(spec: &JobSpec) -> Vec<String> {
    let mut notes = spec.notes_of_submission();
    notes.extend(note_of_controller(spec));
    notes.push(
        "a pod cannot raise its limit of locked memory: `ibv_create_qp failed with error Unknown error -12` comes from the \
         node's containerd\n  LimitMEMLOCK=infinity in containerd.service"
            .to_owned(),
    );
    notes.extend(settings::notes(spec));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::NASTY;

    /// A text as Kubernetes expands it (`Expand` of `expand.go`), with a mark for every name that it replaces.
    fn expand(text: &str) -> String {
        let text: Vec<char> = text.chars().collect();
        let (mut out, mut at) = (String::new(), 0);
        while at < text.len() {
            let closing = |from: usize| text[from..].iter().position(|c| *c == ')');
            match (text[at], text.get(at + 1), closing(at)) {
                ('$', Some('$'), _) => {
                    out.push('$');
                    at += 2;
                }
                ('$', Some('('), Some(length)) => {
                    out.push_str("REPLACED");
                    at += length + 1;
                }
                (c, _, _) => {
                    out.push(c);
                    at += 1;
                }
            }
        }
        out
    }

    #[test]
    fn dollars_come_back() {
        assert_eq!(escape_dollars("$HOME $(A) $$"), "$HOME $$(A) $$$");
        let more = ["$", "$$", "$$$", "$(", "$$(A)", "$$$(A)$(B)", "a$", "$a$$b$(c", "$()"];
        for text in NASTY.into_iter().chain(more) {
            assert_eq!(expand(&escape_dollars(text)), text);
        }
        assert_eq!(expand("$(A)"), "REPLACED", "the test sees a replacement");
    }
}
