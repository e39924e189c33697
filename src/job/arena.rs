//! The command line of arena. Pure.
//!
//! Source: kubeflow/arena 0.15.5 at e30882c1, `pkg/argsbuilder/submit*.go` (flags) and `charts/{mpijob,pytorchjob}` (what
//! becomes of them). The charts put the command into YAML verbatim, and values of variables between double quotes: both
//! are escaped here so that YAML gives back the original.

use super::Job;
use super::document::{yaml_escape, yaml_scalar};
use super::kubernetes::{device_resource, escape_dollars, note_of_controller};
use super::mpirun::{self, Launcher, launcher_arguments};
use super::pytorch_job::processes_per_host;
use super::settings::{self, variables};
use super::spec::{JobError, JobSpec};
use crate::shell::shell_join;

/// `pkg/util/validate.go`, `JobMaxLength`; 14 less than the limit of a label.
const NAME_ROOM: usize = 14;

/// The resource that `--rdma` requests, and the capability that only this flag adds.
const RDMA_FLAG_RESOURCE: &str = "rdma/hca";

/// What is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaKind {
    MpiJob,
    PytorchJob,
}

/// The line that submits the job.
///
/// # Errors
/// The target has no device plugin, the name is too long, arena lacks an option for a setting, or the command is not for
/// mpirun.
pub(super) fn command_line(spec: &JobSpec, kind: ArenaKind) -> Result<Job, JobError> {
    let resource = device_resource(spec)?;
    spec.check_name(NAME_ROOM)?;
    if kind == ArenaKind::MpiJob && spec.shared_memory.is_some() {
        return Err(JobError::Other {
            problem: "--shared-memory: arena gives the pods of an mpijob 2Gi, and has no option for it".to_owned(),
            remedy: "--for mpijob, or --kind pytorchjob".to_owned(),
        });
    }
    if kind == ArenaKind::MpiJob {
        mpirun::check_command(spec, "--kind pytorchjob")?;
    }
    let has_rdma_flag = resource == RDMA_FLAG_RESOURCE;
    let mut words = vec!["arena".to_owned(), "submit".to_owned(), subcommand(kind).to_owned()];
    words.extend(flags(spec, kind).into_iter().map(|(flag, value)| match value {
        Some(value) => format!("--{flag}={value}"),
        None => format!("--{flag}"),
    }));
    // The mpijob chart writes a device's limit only if there are GPUs, which is always the case here.
    words.push(if has_rdma_flag { "--rdma".to_owned() } else { format!("--device={resource}=1") });
    for (name, value) in variables(spec) {
        words.push(format!("--env={name}={}", yaml_escape(&escape_dollars(&value))));
    }
    let line = match kind {
        ArenaKind::MpiJob => shell_join(launcher_arguments(spec, Launcher::OnHostNetwork)),
        ArenaKind::PytorchJob => spec.command().shell_line(),
    };
    words.push(yaml_scalar(&escape_dollars(&line)));
    Ok(Job { text: shell_join(&words) + "\n", notes: notes(spec, kind, has_rdma_flag) })
}

fn subcommand(kind: ArenaKind) -> &'static str {
    match kind {
        ArenaKind::MpiJob => "mpijob",
        ArenaKind::PytorchJob => "pytorchjob",
    }
}

/// Flags other than those of devices and variables. A switch takes no value: `--hostNetwork true` would make `true` the
/// beginning of the command.
fn flags(spec: &JobSpec, kind: ArenaKind) -> Vec<(&'static str, Option<String>)> {
    let mut flags = vec![
        ("name", Some(spec.name.clone())),
        ("image", Some(spec.image.clone())),
        ("workers", Some(spec.workers.to_string())),
        ("gpus", Some(spec.gpus().to_string())),
    ];
    let mut add = |flag, value: Option<String>| flags.extend(value.map(|value| (flag, Some(value))));
    add("namespace", spec.namespace.clone());
    add("cpu", spec.cpu.as_ref().map(ToString::to_string));
    add("memory", spec.memory.as_ref().map(ToString::to_string));
    if kind == ArenaKind::PytorchJob {
        add("share-memory", spec.shared_memory.as_ref().map(ToString::to_string));
        add("nproc-per-node", processes_per_host(spec));
    }
    add("toleration", spec.tolerate_all.then(|| "all".to_owned()));
    flags.push(("hostNetwork", None));
    flags
}

fn notes(spec: &JobSpec, kind: ArenaKind, has_rdma_flag: bool) -> Vec<String> {
    let mut notes = spec.notes_of_submission();
    notes.extend(note_of_controller(spec));
    if !has_rdma_flag {
        notes.push(
            "not --rdma, which requests rdma/hca: nothing offers that on ACK, and the job would wait forever"
                .to_owned(),
        );
        notes.push(
            "arena gives IPC_LOCK only with --rdma; here everything depends on the nodes' limit of locked memory\n  \
             LimitMEMLOCK=infinity in containerd.service, or --for mpijob or pytorchjob, which request IPC_LOCK"
                .to_owned(),
        );
    }
    match kind {
        ArenaKind::MpiJob => {
            notes.push(mpirun::note(spec, Launcher::OnHostNetwork));
            // Launcher and workers share one template in `charts/mpijob`.
            notes.push(
                "arena puts the launcher on the host network too: if it finds a worker at an address of its own host, \
                 mpirun starts that worker's processes in the launcher, which was given no devices\n  --for mpijob, whose \
                 launcher has an address of its own"
                    .to_owned(),
            );
            notes.push("arena gives each pod 2Gi of /dev/shm, whatever NCCL and data loaders need".to_owned());
        }
        ArenaKind::PytorchJob => {
            if spec.shared_memory.is_none() {
                notes.push("arena gives each pod 2Gi of /dev/shm\n  --shared-memory 64Gi".to_owned());
            }
            if !spec.command().is_torchrun() {
                notes.push(format!(
                    "the command starts once on each host; torchrun makes {} processes of it\n  -- torchrun SCRIPT",
                    spec.gpus()
                ));
            }
        }
    }
    notes.push("arena starts the command in /root, not in the image's own directory".to_owned());
    notes.extend(settings::notes(spec));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::tests::{command, spec, variable};
    use crate::remedy::with_remedy;
    use crate::targets::by_id;

    /// Flags of `arena submit mpijob` and `pytorchjob` (0.15.5, e30882c1) with Go's type of each; the first list is common to both.
    const COMMON: [(&str, &str); 10] = [
        ("name", "string"),
        ("image", "string"),
        ("gpus", "int"),
        ("workers", "int"),
        ("device", "stringArray"),
        ("env", "stringArray"),
        ("rdma", "bool"),
        ("toleration", "stringArray"),
        ("hostNetwork", "bool"),
        ("namespace", "string"),
    ];
    const OF_MPIJOB: [(&str, &str); 2] = [("cpu", "string"), ("memory", "string")];
    const OF_PYTORCHJOB: [(&str, &str); 4] =
        [("cpu", "string"), ("memory", "string"), ("share-memory", "string"), ("nproc-per-node", "string")];

    /// A spec with everything that arena supports.
    fn full(kind: ArenaKind, target: &str) -> JobSpec {
        let mut spec = spec();
        spec.target = by_id(target).unwrap();
        spec.namespace = Some("team".into());
        spec.cpu = Some("4".parse().unwrap());
        spec.memory = Some("16Gi".parse().unwrap());
        spec.tolerate_all = true;
        spec.env = vec![variable("A", "b c")];
        if kind == ArenaKind::PytorchJob {
            spec.workload = command(&["torchrun", "train.py"]);
            spec.shared_memory = Some("64Gi".parse().unwrap());
        }
        spec
    }

    #[test]
    fn every_flag_is_arenas() {
        for (kind, own) in
            [(ArenaKind::MpiJob, OF_MPIJOB.as_slice()), (ArenaKind::PytorchJob, OF_PYTORCHJOB.as_slice())]
        {
            for target in ["ack", "cce"] {
                let text = command_line(&full(kind, target), kind).unwrap().text;
                let words = text.split_whitespace().skip(3).map(|word| word.trim_matches('\''));
                // The command's own options follow the last of arena's, which are all of the form --flag[=value].
                let mut count = 0;
                for word in words.take_while(|word| !word.starts_with("\"") && !word.starts_with("torchrun")) {
                    let Some(flag) = word.strip_prefix("--") else { continue };
                    let (flag, value) = flag.split_once('=').map_or((flag, None), |(flag, value)| (flag, Some(value)));
                    let known = COMMON.iter().chain(own).find(|(name, _)| *name == flag);
                    let (_, kind) = known.unwrap_or_else(|| panic!("{flag} is not a flag of arena: {text}"));
                    match *kind {
                        "bool" => assert_eq!(value, None, "{flag}"),
                        "int" => assert!(value.unwrap().parse::<u32>().is_ok(), "{flag}"),
                        _ => assert!(value.is_some_and(|value| !value.is_empty()), "{flag}"),
                    }
                    count += 1;
                }
                assert!(count > 10, "only {count} flags were seen: {text}");
            }
        }
    }

    #[test]
    fn an_mpi_job_on_ack() {
        let mut spec = full(ArenaKind::MpiJob, "ack");
        spec.workload = command(&["python", "train.py", "--name", "a b"]);
        let job = command_line(&spec, ArenaKind::MpiJob).unwrap();
        insta::assert_snapshot!("arena_mpijob_ack", job.text);
        insta::assert_snapshot!("arena_mpijob_ack_notes", job.notes.join("\n"));
        assert!(!job.text.contains("--rdma") && job.text.contains("--device=aliyun/erdma=1"));
    }

    #[test]
    fn a_pytorch_job_on_cce() {
        let mut spec = full(ArenaKind::PytorchJob, "cce");
        let job = command_line(&spec, ArenaKind::PytorchJob).unwrap();
        assert_eq!(
            job.text,
            "arena submit pytorchjob --name=train --image=registry.example.com/team/train:1-erdma --workers=2 --gpus=8 \
             --namespace=team --cpu=4 --memory=16Gi --share-memory=64Gi --nproc-per-node=8 --toleration=all --hostNetwork \
             --rdma --env=NCCL_DEBUG=INFO '--env=A=b c' 'torchrun train.py'\n"
        );
        // Only torchrun uses it: any other command runs once on each host.
        spec.workload = command(&["python", "train.py"]);
        let text = command_line(&spec, ArenaKind::PytorchJob).unwrap().text;
        assert!(!text.contains("nproc-per-node"), "{text}");
        assert!(!job.notes.iter().any(|note| note.contains("IPC_LOCK")));
    }

    #[test]
    fn what_arena_cannot_do() {
        let mut spec = full(ArenaKind::MpiJob, "ack");
        spec.shared_memory = Some("64Gi".parse().unwrap());
        assert!(with_remedy(&command_line(&spec, ArenaKind::MpiJob).unwrap_err()).contains("--kind pytorchjob"));
        let mut spec = full(ArenaKind::MpiJob, "ack");
        spec.workload = command(&["torchrun", "train.py"]);
        assert!(
            with_remedy(&command_line(&spec, ArenaKind::MpiJob).unwrap_err()).contains("\n  --kind pytorchjob, or")
        );
        let mut spec = full(ArenaKind::MpiJob, "ack");
        spec.name = "a".repeat(50);
        assert!(with_remedy(&command_line(&spec, ArenaKind::MpiJob).unwrap_err()).contains("up to 49"));
    }
}
