//! `PyTorchJob` of training-operator. Pure.
//!
//! Source: kubeflow/training-operator release-1.9, `pkg/apis/kubeflow.org/v1/pytorch_types.go` and
//! `pkg/controller.v1/pytorch/envvar.go`. The operator sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, and torchrun's
//! options as PET_*. Without an elastic policy the number of hosts is fixed. WORLD_SIZE is hosts times `nprocPerNode` if
//! that is a number, and hosts otherwise ("auto").

use super::Manifest;
use super::document::map;
use super::kubernetes::{
    container, device_resource, notes, object, pod_with_devices, replicas, with_devices, with_port, with_variables,
};
use super::spec::{JobError, JobSpec};

/// The operator finds container and port by these names (`PyTorchJobDefaultContainerName`, `…PortName`, `…Port`).
const CONTAINER: &str = "pytorch";
const PORT_NAME: &str = "pytorchjob-port";
const PORT: u16 = 23456;

/// Processes that torchrun starts on each host; any other command ignores this and runs once, so the group would wait for
/// the others.
pub(super) fn processes_per_host(spec: &JobSpec) -> Option<String> {
    spec.command().is_torchrun().then(|| spec.gpus().to_string())
}

/// The manifest of a job with a master and, on more than one host, workers.
///
/// # Errors
/// The target has no device plugin, or the name is too long.
pub(super) fn manifest(spec: &JobSpec) -> Result<Manifest, JobError> {
    let resource = device_resource(spec)?;
    spec.check_name(format!("-worker-{}", spec.workers).len())?;
    let port = spec.port.unwrap_or(PORT);
    let member = |count| {
        let member = with_variables(container(spec, CONTAINER, &spec.command().arguments()), spec);
        let member = with_devices(member, spec, resource);
        // A member restarted alone finds none of the others.
        replicas(count, pod_with_devices(spec, with_port(member, PORT_NAME, port))).with("restartPolicy", Some("Never"))
    };
    let workers = (spec.workers > 1).then(|| member(spec.workers - 1));
    // A string in the operator's type: "auto" and "gpu" are also valid.
    let body = map([])
        .with("nprocPerNode", processes_per_host(spec))
        .with("runPolicy", Some(map([("cleanPodPolicy", "Running".into())])))
        .with("pytorchReplicaSpecs", Some(map([("Master", member(1))]).with("Worker", workers)));
    let mut all = notes(spec);
    if !spec.command().is_torchrun() {
        all.push(format!(
            "the operator starts the command once on each host; use torchrun for {} processes\n  -- torchrun SCRIPT",
            spec.gpus()
        ));
    }
    all.push(format!("the job uses port {port} on each host, so a host can run only one such job\n  --port N"));
    Ok(Manifest { root: object(spec, "kubeflow.org/v1", "PyTorchJob", body), notes: all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::{NASTY, command, spec};

    #[test]
    fn two_hosts() {
        let mut spec = spec();
        spec.workload = command(&["torchrun", "train.py"]);
        spec.interface = Some("eth0".into());
        let job = manifest(&spec).unwrap();
        insta::assert_snapshot!("pytorch_job_ack", job.root.to_yaml());
        assert!(!job.notes.iter().any(|note| note.contains("torchrun makes")));
    }

    #[test]
    fn one_host_has_no_workers() {
        let mut spec = spec();
        spec.workers = 1;
        spec.gpus_per_worker = Some(4);
        spec.workload = command(&NASTY);
        let job = manifest(&spec).unwrap();
        let json: serde_json::Value = serde_json::from_str(&job.root.to_json()).unwrap();
        let replicas = json["spec"]["pytorchReplicaSpecs"].as_object().unwrap();
        assert_eq!(replicas.keys().collect::<Vec<_>>(), ["Master"]);
        assert!(job.notes.iter().any(|note| note.contains("torchrun for 4 processes")));
    }

    /// If set, the operator counts processes that nobody starts.
    #[test]
    fn processes_are_told_to_torchrun_alone() {
        let of = |words: &[&str]| {
            let mut spec = spec();
            spec.gpus_per_worker = Some(4);
            spec.workload = command(words);
            let json = manifest(&spec).unwrap().root.to_json();
            serde_json::from_str::<serde_json::Value>(&json).unwrap()["spec"]["nprocPerNode"].clone()
        };
        assert_eq!(of(&["torchrun", "train.py"]), "4");
        assert_eq!(of(&["python", "-m", "torch.distributed.run", "train.py"]), "4");
        assert_eq!(of(&["python", "train.py"]), serde_json::Value::Null);
        assert_eq!(of(&["accelerate", "launch", "train.py"]), serde_json::Value::Null);
    }
}
