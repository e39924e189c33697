//! `MPIJob` of mpi-operator. Pure.
//!
//! Source: kubeflow/mpi-operator v0.8.0, `pkg/apis/kubeflow/v2beta1/types.go` and `pkg/controller/mpi_job_controller.go`.

use super::Manifest;
use super::document::map;
use super::kubernetes::{
    container, device_resource, notes, object, pod, pod_with_devices, replicas, with_devices, with_port, with_variables,
};
use super::mpirun::{self, Launcher, launcher_arguments};
use super::spec::{JobError, JobSpec};

/// On the host network port 22 belongs to the host's own sshd; the vendor's page on eRDMA in Docker uses this one.
const SSH_PORT: u16 = 12345;

/// The manifest of a job with a launcher, which has no devices, and a worker on each host.
///
/// The launcher has its own address: on the host network mpirun would take the worker on its host for itself and start
/// that worker's processes in the launcher, for which the operator sets NVIDIA_VISIBLE_DEVICES to nothing.
///
/// # Errors
/// The target has no device plugin, the name is too long, or the command is not for mpirun.
pub(super) fn manifest(spec: &JobSpec) -> Result<Manifest, JobError> {
    let resource = device_resource(spec)?;
    spec.check_name(format!("-worker-{}", spec.workers - 1).len())?;
    mpirun::check_command(spec, "--for pytorchjob")?;
    let port = spec.port.unwrap_or(SSH_PORT);
    // The processes get their variables from mpirun: sshd does not pass on those of its container.
    let ssh = ssh_options(port);
    let way = Launcher::OnPodNetwork { ssh: &ssh };
    let launcher = container(spec, "launcher", &launcher_arguments(spec, way));
    let launcher = with_variables(launcher, spec);
    let worker = with_devices(container(spec, "worker", &sshd(port)), spec, resource);
    let worker = with_port(worker, "ssh", port);
    let body = map([
        ("slotsPerWorker", spec.gpus().into()),
        ("runPolicy", map([("cleanPodPolicy", "Running".into())])),
        (
            "mpiReplicaSpecs",
            map([
                ("Launcher", replicas(1, pod(spec, launcher))),
                ("Worker", replicas(spec.workers, pod_with_devices(spec, worker))),
            ]),
        ),
    ]);
    let mut all = notes(spec);
    all.push(mpirun::note(spec, way));
    if let Some(interface) = &spec.interface {
        all.push(format!(
            "{interface} is for the processes on the hosts: the launcher has an address on the pod network, and mpirun itself \
             reaches the hosts over that"
        ));
    }
    all.push(format!(
        "the image must have sshd, ssh and mpirun; sshd uses port {port} on each host, so a host can run only one such job\n  \
         --port N"
    ));
    all.push(
        "mpirun looks for its own programs in the PATH of an ssh session, which is not the image's; if they are not in \
         /usr/bin, start mpirun yourself\n  -- mpirun --prefix DIRECTORY --mca plm_rsh_args …"
            .to_owned(),
    );
    Ok(Manifest { root: object(spec, "kubeflow.org/v2beta1", "MPIJob", body), notes: all })
}

/// The operator creates new keys for every job, so the hosts' keys are unknown beforehand.
fn ssh_options(port: u16) -> String {
    format!("-p {port} -o ConnectionAttempts=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null")
}

/// The worker's command. Images seldom have host keys or the directory that sshd requires, and the operator mounts its keys with
/// a mode that sshd's strict checks refuse.
fn sshd(port: u16) -> Vec<String> {
    let line = format!("mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -De -p {port} -o StrictModes=no");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), line]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::{spec, variable};
    use crate::remedy::with_remedy;
    use crate::targets::by_id;

    #[test]
    fn on_ack() {
        let mut spec = spec();
        spec.namespace = Some("team".into());
        spec.cpu = Some("64".parse().unwrap());
        spec.memory = Some("512Gi".parse().unwrap());
        spec.shared_memory = Some("64Gi".parse().unwrap());
        spec.env = vec![variable("NCCL_IB_GID_INDEX", "-1")];
        let job = manifest(&spec).unwrap();
        insta::assert_snapshot!("mpi_job_ack", job.root.to_yaml());
        insta::assert_snapshot!("mpi_job_ack_notes", job.notes.join("\n"));
    }

    #[test]
    fn on_cce() {
        let mut spec = spec();
        spec.target = by_id("cce").unwrap();
        spec.tolerate_all = true;
        spec.port = Some(2222);
        let yaml = manifest(&spec).unwrap().root.to_yaml();
        for line in ["rdma/hca: 1\n", "containerPort: 2222\n", "- operator: Exists\n", "medium: Memory\n"] {
            assert!(yaml.contains(line), "{line} is not in:\n{yaml}");
        }
        // Settings of eRDMA only, and a size that was not given.
        for word in ["erdma: 1", "NCCL_IB_GID_INDEX", "sizeLimit"] {
            assert!(!yaml.contains(word), "{word} is in:\n{yaml}");
        }
        let launcher = yaml.split("Worker:").next().unwrap();
        assert!(!launcher.contains("nvidia.com/gpu") && !launcher.contains("rdma/hca"), "{launcher}");
    }

    /// With the address of a worker, the launcher would be mistaken for it.
    #[test]
    fn the_launcher_has_an_address_of_its_own() {
        let mut spec = spec();
        spec.interface = Some("eth7".into());
        let job = manifest(&spec).unwrap();
        let json: serde_json::Value = serde_json::from_str(&job.root.to_json()).unwrap();
        let pod = |replica: &str| json["spec"]["mpiReplicaSpecs"][replica]["template"]["spec"].clone();
        let network = |replica: &str| (pod(replica)["hostNetwork"].clone(), pod(replica)["dnsPolicy"].clone());
        assert_eq!(network("Launcher"), (serde_json::Value::Null, serde_json::Value::Null));
        assert_eq!(network("Worker"), (true.into(), "ClusterFirstWithHostNet".into()));
        // Only the processes on the hosts are told the hosts' interface.
        let command = pod("Launcher")["containers"][0]["command"].to_string();
        assert!(command.contains(r#""btl_tcp_if_include","eth7""#) && !command.contains("oob_tcp_if"), "{command}");
        assert!(job.notes.iter().any(|note| note.starts_with("eth7 is for the processes on the hosts")));
    }

    #[test]
    fn not_elsewhere() {
        let mut spec = spec();
        spec.target = by_id("ecs").unwrap();
        assert!(with_remedy(&manifest(&spec).err().unwrap()).contains("--target ack"));
    }
}
