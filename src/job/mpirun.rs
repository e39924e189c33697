//! The `mpirun` command that starts a process per GPU. Pure.
//!
//! All options are common to Open MPI 3 to 5. MPI itself is restricted to TCP, as in the ACK page's own command: the
//! processes use it to meet, and NCCL carries the data.

use super::settings::variables;
use super::spec::{JobError, JobSpec, UserCommand};
use crate::shell::shell_join;

/// Programs that start the processes themselves.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "horovodrun"];

/// The container's variables that processes on other hosts do not inherit.
const ALWAYS_PASSED: [&str; 2] = ["LD_LIBRARY_PATH", "PATH"];

/// Where mpirun runs, and how it reaches the workers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Launcher<'a> {
    /// By ssh with these options, from its own address: it has none of the hosts' interfaces.
    OnPodNetwork { ssh: &'a str },
    /// By the operator's own mechanism, from one of the hosts.
    OnHostNetwork,
}

/// Whether the user's command starts the processes itself.
fn is_launcher(command: &UserCommand) -> bool {
    command.starts(&LAUNCHERS)
}

/// Refuses torchrun: mpirun would start one for each GPU, each with a process for each GPU. `remedy`: the format that
/// has what torchrun needs.
///
/// # Errors
/// The command runs torchrun without an MPI launcher.
pub(super) fn check_command(spec: &JobSpec, remedy: &str) -> Result<(), JobError> {
    let command = spec.command();
    if is_launcher(command) || !command.is_torchrun() {
        return Ok(());
    }
    Err(JobError::Other {
        problem: format!(
            "torchrun starts a process for each GPU itself, and mpirun would start {} copies of it, {} on each host",
            processes(spec),
            spec.gpus()
        ),
        remedy: format!("{remedy}, or the script itself under mpirun: -- python SCRIPT"),
    })
}

/// Program and arguments of the launcher.
pub(super) fn launcher_arguments(spec: &JobSpec, launcher: Launcher<'_>) -> Vec<String> {
    let command = spec.command();
    if is_launcher(command) {
        return command.arguments();
    }
    let (processes, of_each) = (processes(spec).to_string(), spec.gpus().to_string());
    let mut words = ["mpirun", "--allow-run-as-root", "-np", &processes, "-N", &of_each, "--bind-to", "none"]
        .map(str::to_owned)
        .to_vec();
    let mut parameter = |name: &str, value: &str| words.extend(["--mca", name, value].map(str::to_owned));
    parameter("pml", "ob1");
    parameter("btl", "^openib");
    if let Some(interface) = &spec.interface {
        parameter("btl_tcp_if_include", interface);
    }
    match launcher {
        // The command line overrides the variable that the operator sets.
        Launcher::OnPodNetwork { ssh } => parameter("plm_rsh_args", ssh),
        // mpirun's own connections to the hosts: it fails if it lacks the interface itself.
        Launcher::OnHostNetwork => spec.interface.iter().for_each(|name| parameter("oob_tcp_if_include", name)),
    }
    let variables = variables(spec);
    let names = variables.iter().map(|(name, _)| name.as_str()).filter(|name| !ALWAYS_PASSED.contains(name));
    for name in names.chain(ALWAYS_PASSED) {
        words.extend(["-x".to_owned(), name.to_owned()]);
    }
    words.extend(without_colons(command.arguments()));
    words
}

fn processes(spec: &JobSpec) -> u64 {
    u64::from(spec.workers) * u64::from(spec.gpus())
}

/// mpirun reads a lone colon as a separator of programs; within a shell line it is an ordinary argument.
fn without_colons(words: Vec<String>) -> Vec<String> {
    if words.iter().all(|word| word != ":") {
        return words;
    }
    vec!["/bin/sh".to_owned(), "-c".to_owned(), format!("exec {}", shell_join(&words))]
}

/// Notes for the user.
pub(super) fn note(spec: &JobSpec, launcher: Launcher<'_>) -> String {
    if is_launcher(spec.command()) {
        let ssh = match launcher {
            Launcher::OnPodNetwork { ssh } => Some(format!("--mca plm_rsh_args '{ssh}'")),
            Launcher::OnHostNetwork => None,
        };
        let names = variables(spec).into_iter().map(|(name, _)| format!("-x {name}"));
        let options: Vec<String> = ssh.into_iter().chain(names).collect();
        return format!(
            "the command starts the processes itself and is left unchanged; it must reach the hosts and pass on the variables\n  {}",
            options.join(" ")
        );
    }
    format!(
        "mpirun starts {} processes, {} on each of {} hosts: use -g 1 with nccl-tests",
        processes(spec),
        spec.gpus(),
        spec.workers
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::Workload;
    use crate::job::spec::tests::{NASTY, command, spec, variable};
    use crate::remedy::with_remedy;

    const SSH: Launcher<'_> = Launcher::OnPodNetwork { ssh: "-p 12345" };

    #[test]
    fn the_line_of_two_hosts() {
        let mut spec = spec();
        spec.interface = Some("eth0".into());
        spec.workload = command(&["all_reduce_perf", "-b", "8", "-g", "1"]);
        assert_eq!(
            launcher_arguments(&spec, SSH).join(" "),
            "mpirun --allow-run-as-root -np 16 -N 8 --bind-to none --mca pml ob1 --mca btl ^openib --mca btl_tcp_if_include \
             eth0 --mca plm_rsh_args -p 12345 -x NCCL_DEBUG -x NCCL_IB_GID_INDEX -x \
             NCCL_IB_QPS_PER_CONNECTION -x NCCL_MIN_NCHANNELS -x NCCL_NET_PLUGIN -x NCCL_SOCKET_IFNAME -x \
             GLOO_SOCKET_IFNAME -x LD_LIBRARY_PATH -x PATH all_reduce_perf -b 8 -g 1"
        );
        let of_a_host = launcher_arguments(&spec, Launcher::OnHostNetwork).join(" ");
        assert!(of_a_host.contains("btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -x"), "{of_a_host}");
    }

    #[test]
    fn the_command_stays_as_it_is() {
        let mut spec = spec();
        spec.workload = command(&NASTY);
        assert!(launcher_arguments(&spec, SSH).ends_with(&NASTY.map(str::to_owned)));
        assert!(note(&spec, SSH).contains("16 processes, 8 on each of 2 hosts"));
        spec.workload = command(&["/usr/bin/mpirun", "-np", "2", "x"]);
        assert_eq!(launcher_arguments(&spec, SSH), ["/usr/bin/mpirun", "-np", "2", "x"]);
        assert!(note(&spec, SSH).contains("plm_rsh_args '-p 12345' -x NCCL_DEBUG"));
        assert!(note(&spec, Launcher::OnHostNetwork).contains("\n  -x NCCL_DEBUG"));
        for line in ["cd /x && mpirun -np 2 x", "FOO=1 mpirun x", "env A=b /opt/bin/mpirun x"] {
            spec.workload = Workload::Command(UserCommand::Shell(line.into()));
            assert_eq!(launcher_arguments(&spec, SSH), ["/bin/sh", "-c", line]);
            assert!(note(&spec, SSH).contains("starts the processes itself"), "{line}");
        }
        // A path of the user's own is passed once.
        spec.workload = command(&["prog", ":", "a b"]);
        spec.env = vec![variable("PATH", "/x")];
        let all = launcher_arguments(&spec, SSH);
        assert!(all.ends_with(&["/bin/sh", "-c", "exec prog : 'a b'"].map(str::to_owned)), "{all:?}");
        assert_eq!(all.iter().filter(|word| *word == "PATH").count(), 1);
    }

    #[test]
    fn torchrun_is_not_for_mpirun() {
        let check = |words: &[&str]| {
            let mut spec = spec();
            spec.workload = command(words);
            check_command(&spec, "--for pytorchjob").map_err(|error| with_remedy(&error))
        };
        for words in [
            ["torchrun", "train.py"].as_slice(),
            &["python", "-m", "torch.distributed.run", "train.py"],
            &["sh", "-c", "cd /x && torchrun train.py"],
        ] {
            let error = check(words).unwrap_err();
            assert!(error.contains("16 copies of it, 8 on each host\n  --for pytorchjob, or the script"), "{error}");
        }
        // Starting one on each host is a deliberate choice.
        assert_eq!(check(&["mpirun", "-N", "1", "torchrun", "train.py"]), Ok(()));
        assert_eq!(check(&["python", "train.py"]), Ok(()));
    }
}
