//! Jobs as those who run them read them: the vendors' models, Kubernetes' schemas, a shell, and the engine.

#[path = "../jobs/readers.rs"]
mod readers;
use crate::support;

use readers::{Fake, NASTY, expand, models, words_of};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::*;

const IMAGE: &str = "registry.example.com/team/train:1-erdma";

/// What tells most about a reader of quotes.
const LINE: &str = "cd /x && prog \"$HOME\" 'a  b' $(id) $$ : é # yes";

/// Values of variables that are easy to get wrong.
const VARIABLES: [(&str, &str); 5] =
    [("A", "$(B) $$ \"q\" \\ it's"), ("B", ""), ("C", "line\nbreak: #x"), ("D", "yes"), ("E", "1_000")];

/// `rdmaprep job IMAGE ARGS… -- NASTY`, with the variables.
fn job(args: &[&str]) -> Ran {
    let mut command = with_variables(args);
    command.arg("--").args(NASTY);
    run(&mut command)
}

fn with_variables(args: &[&str]) -> Command {
    let mut command = rdmaprep();
    command.args(["job", IMAGE]).args(args);
    for (name, value) in VARIABLES {
        command.arg("--env").arg(format!("{name}={value}"));
    }
    command
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.expect(0).stdout).unwrap()
}

/// Texts of a list.
fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The containers of every replica set of a manifest, by its name.
fn containers(manifest: &Value) -> Vec<(String, Value)> {
    let spec = manifest["spec"].as_object().unwrap();
    let (_, replicas) = spec.iter().find(|(key, _)| key.ends_with("ReplicaSpecs")).unwrap();
    let containers = |replica: &Value| replica["template"]["spec"]["containers"][0].clone();
    replicas.as_object().unwrap().iter().map(|(name, replica)| (name.clone(), containers(replica))).collect()
}

/// Arguments of the program that mpirun starts. A lone colon, which is mpirun's own, has the program within a shell's line.
fn started_by_mpirun(words: &[String]) -> Vec<String> {
    let last = words.windows(2).position(|pair| pair == ["-x", "PATH"]).unwrap();
    let program = &words[last + 2..];
    assert_eq!(program[..2], ["/bin/sh", "-c"], "{program:?}");
    assert!(program.iter().all(|word| word != ":"), "{program:?}");
    Fake::new("prog").run(&program[2]).remove(0)
}

/// Each manifest with everything in it, and with as little as can be.
fn manifests() -> Vec<(&'static str, Vec<&'static str>)> {
    let full = [
        "--cpu",
        "64",
        "--memory",
        "512Gi",
        "--shared-memory",
        "64Gi",
        "--namespace",
        "team",
        "--tolerate-all",
        "--interface",
        "eth0",
        "--port",
        "2222",
        "--gpus-per-worker",
        "4",
        "--workers",
        "3",
    ];
    let mut all = Vec::new();
    for kind in ["mpijob", "pytorchjob"] {
        for target in ["ack", "cce"] {
            let least = vec!["--for", kind, "--target", target, "--workers", "1"];
            all.push((kind, least.iter().copied().take(4).chain(full).collect()));
            all.push((kind, least));
        }
    }
    all
}

#[test]
fn kubernetes_and_the_operators_know_every_field() {
    let schema: Value = serde_json::from_str(include_str!("../data/mpijob-v2beta1.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for (kind, args) in manifests() {
        let yaml = job(&args).expect(0).stdout.clone();
        let as_json = json(&job(&[args.as_slice(), &["--format", "json"]].concat()));
        if kind == "mpijob" {
            let errors: Vec<String> = schema.iter_errors(&as_json).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{args:?}: {errors:?}");
            let mut wrong = as_json.clone();
            wrong["spec"]["slots"] = 8.into();
            assert!(!schema.is_valid(&wrong), "the schema refuses unknown fields");
        }
        let Some(read) = models("yaml", &yaml) else { return };
        let read: Value = serde_json::from_str(&read.unwrap()).unwrap();
        assert_eq!(read, as_json, "{args:?}: both notations say the same");
        models("kubernetes", &yaml).unwrap().unwrap();
        // What the check is worth.
        for (right, wrong) in
            [("hostNetwork", "hostnetwork"), ("IPC_LOCK", "{}"), ("containerPort: ", "containerPort: x")]
        {
            assert!(models("kubernetes", &yaml.replace(right, wrong)).unwrap().is_err(), "{args:?}: {wrong}");
        }
    }
}

#[test]
fn pods_start_the_command_as_it_is() {
    for (kind, args) in manifests() {
        let manifest = json(&job(&[args.as_slice(), &["--format", "json"]].concat()));
        for (name, container) in containers(&manifest) {
            let command: Vec<String> = texts(&container["command"]).iter().map(|word| expand(word)).collect();
            match (kind, name.as_str()) {
                ("mpijob", "Worker") => {
                    assert!(command[2].contains("/usr/sbin/sshd -De -p "), "{command:?}");
                    assert_eq!(container["env"], Value::Null, "sshd passes nothing on");
                    continue;
                }
                ("mpijob", _) => {
                    assert_eq!(command[0], "mpirun");
                    assert_eq!(started_by_mpirun(&command), NASTY);
                    for (variable, _) in VARIABLES {
                        assert!(command.windows(2).any(|pair| pair == ["-x", variable]), "{variable}: {command:?}");
                    }
                    assert_eq!(container["resources"], Value::Null, "a launcher takes no devices");
                }
                _ => assert_eq!(command, NASTY),
            }
            let env = container["env"].as_array().unwrap();
            for (variable, value) in VARIABLES {
                let entry = env.iter().find(|entry| entry["name"] == variable).unwrap();
                assert_eq!(expand(entry["value"].as_str().unwrap()), value);
            }
        }
    }
    let mut command = rdmaprep();
    command.args(["job", IMAGE, "--for", "pytorchjob", "--format", "json", "--command", LINE]);
    for (_, container) in containers(&json(&run(&mut command))) {
        let command: Vec<String> = texts(&container["command"]).iter().map(|word| expand(word)).collect();
        assert_eq!(command, ["/bin/sh", "-c", LINE]);
    }
}

/// Open MPI's own reader of options.
#[test]
fn mpirun_starts_the_command_as_it_is() {
    let Some(python) = readers::python() else { return };
    let fake = Fake::new("prog");
    let manifest = json(&job(&["--for", "mpijob", "--format", "json", "--workers", "1", "--gpus-per-worker", "2"]));
    let (_, launcher) = containers(&manifest).into_iter().find(|(name, _)| name == "Launcher").unwrap();
    let words: Vec<String> = texts(&launcher["command"]).iter().map(|word| expand(word)).collect();
    let line: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    // Two ranks on a host, however few processors it has.
    let line = format!(
        "export PATH={}:$PATH PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe\n{}",
        python.parent().unwrap().display(),
        line.join(" ")
    );
    assert_eq!(fake.run(&line), [NASTY, NASTY].map(|call| call.map(str::to_owned).to_vec()));
}

#[test]
fn pai_knows_every_field() {
    let places: [&[&str]; 3] = [
        &["--instance", "ecs.ebmgn8v.48xlarge"],
        &["--resource-id", "quota1", "--cpu", "64", "--memory", "512Gi", "--shared-memory", "64Gi"],
        &["--resource-id", "quota1", "--workspace-id", "1", "--instance", "ecs.ebmgn8v.48xlarge", "--workers", "1"],
    ];
    for place in places {
        let text = job(&[&["--for", "pai-dlc"], place].concat()).expect(0).stdout.clone();
        let body: Value = serde_json::from_str(&text).unwrap();
        for (name, value) in VARIABLES {
            assert_eq!(body["Envs"][name], value);
        }
        // PAI's nodes hand the command to a shell.
        let fake = Fake::new("prog");
        assert_eq!(fake.run(body["UserCommand"].as_str().unwrap()), [NASTY.map(str::to_owned).to_vec()]);
        let Some(read) = models("pai", &text) else { return };
        read.unwrap();
        for (right, wrong) in
            [("PodCount", "Podcount"), ("\"JobSpecs\"", "\"Specs\""), ("\"Type\": \"Worker\"", "\"Type\": 1")]
        {
            assert!(models("pai", &text.replace(right, wrong)).unwrap().is_err(), "{wrong}");
        }
    }
}

/// What arena's charts make of a value: they put it between quotes, or a command as it is.
fn through_the_chart(command: &str, env: &[String]) -> Option<Value> {
    let env: Vec<String> = env
        .iter()
        .map(|variable| variable.split_once('=').unwrap())
        .map(|(name, value)| format!("- name: \"{name}\"\n  value: \"{value}\"\n"))
        .collect();
    let yaml = format!("command:\n- \"sh\"\n- \"-c\"\n- {command}\nenv:\n{}", env.concat());
    Some(serde_json::from_str(&models("yaml", &yaml)?.unwrap_or_else(|error| panic!("{yaml}\n{error}"))).unwrap())
}

#[test]
fn arena_gets_the_command_through_its_charts() {
    for (kind, program, options) in
        [("mpijob", "mpirun", &[] as &[&str]), ("pytorchjob", "prog", &["--shared-memory", "64Gi"])]
    {
        for target in ["ack", "cce"] {
            let args = [&["--for", "arena", "--kind", kind, "--target", target], options].concat();
            let ran = job(&args);
            let argv = Fake::new("arena").run(&ran.expect(0).stdout).remove(0);
            assert_eq!(argv[1..3], ["submit", kind]);
            let has = |flag: &str| argv.iter().any(|word| word == flag);
            // rdma/hca is what --rdma asks for, and ACK has none.
            assert_eq!((has("--rdma"), has("--device=aliyun/erdma=1")), (target == "cce", target == "ack"), "{argv:?}");
            assert!(has("--hostNetwork") && !has("true"), "a switch has no value: {argv:?}");
            let env: Vec<String> =
                argv.iter().filter_map(|word| word.strip_prefix("--env=")).map(str::to_owned).collect();
            let Some(read) = through_the_chart(argv.last().unwrap(), &env) else { return };
            let line = expand(read["command"][2].as_str().unwrap());
            let started = Fake::new(program).run(&line).remove(0);
            let started = if program == "mpirun" { started_by_mpirun(&started) } else { started };
            assert_eq!(started, NASTY);
            for (name, value) in VARIABLES {
                let entry = read["env"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
                assert_eq!(expand(entry["value"].as_str().unwrap()), value);
            }
        }
    }
}

#[test]
fn docker_gets_what_the_lines_say() {
    let ran = job(&["--for", "docker", "--nics", "2", "--name", "t1"]);
    let mut runs = Fake::new("docker").run(&ran.expect(0).stdout).into_iter();
    let variables = VARIABLES.iter().flat_map(|(name, value)| ["--env".to_owned(), format!("{name}={value}")]);
    let least = words_of(
        "docker run --rm --name t1 --network host --shm-size 8589934592 --ulimit memlock=-1 --ulimit stack=67108864 --cap-add \
         IPC_LOCK --device /dev/infiniband/uverbs0 --device /dev/infiniband/uverbs1 --device /dev/infiniband/rdma_cm --gpus all",
    );
    let presets = words_of(
        "--env NCCL_DEBUG=INFO --env NCCL_IB_GID_INDEX=1 --env NCCL_IB_QPS_PER_CONNECTION=8 --env NCCL_MIN_NCHANNELS=16 --env \
         NCCL_NET_PLUGIN=none",
    );
    let tail = || [IMAGE].into_iter().chain(NASTY).map(str::to_owned).collect::<Vec<_>>();
    let variables: Vec<String> = presets.into_iter().chain(variables).collect();
    assert_eq!(runs.next().unwrap(), [least, variables.clone(), tail()].concat());
    // Word for word the vendor's, but for the job's variables.
    let vendor = words_of(
        "docker run -d -t --network=host --gpus all --privileged --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 -v /root:/root --name t1",
    );
    assert_eq!(runs.next().unwrap(), [vendor, variables, tail()].concat());
    assert_eq!(runs.next(), None);
}

/// The shell of the host on which the line is run finds the devices.
#[test]
fn devices_that_the_shell_finds() {
    let ran = job(&["--for", "docker", "--target", "cce"]);
    let text = &ran.expect(0).stdout;
    if !text.contains("uverbs*") {
        return say_skipped("this host has RDMA devices of the target's fabric");
    }
    let directory = tempfile::tempdir().unwrap();
    for node in ["uverbs0", "uverbs10", "rdma_cm"] {
        std::fs::write(directory.path().join(node), "").unwrap();
    }
    let here = directory.path().display().to_string();
    let argv = Fake::new("docker").run(&text.replace("/dev/infiniband", &here)).remove(0);
    let devices: Vec<&String> = argv.iter().filter(|word| word.starts_with(&here)).collect();
    assert_eq!(devices, [&format!("{here}/rdma_cm"), &format!("{here}/uverbs0"), &format!("{here}/uverbs10")]);
    assert!(argv.ends_with(&NASTY.map(str::to_owned)));
}

/// The line itself, apart from devices that no test machine need have.
#[test]
fn the_engine_starts_the_command() {
    if !rig() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let docker = must("sh", &["-c", "command -v docker"]);
    // Takes GPUs and RDMA devices out, and starts the real program.
    let script = format!(
        "#!/bin/sh\nn=$#\nwhile [ $n -gt 0 ]; do\n  word=$1; shift; n=$((n-1))\n  case $word in\n  --gpus) shift; n=$((n-1)) ;;\n  \
         --device) shift; n=$((n-1)) ;;\n  *) set -- \"$@\" \"$word\" ;;\n  esac\ndone\nexec {} \"$@\"\n",
        docker.trim()
    );
    let program = directory.path().join("docker");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let name = format!("rdmaprep-job-{}", std::process::id());
    let mut command = rdmaprep();
    command.args([
        "job",
        BASE,
        "--for",
        "docker",
        "--nics",
        "1",
        "--name",
        &name,
        "--env",
        "A=b  c",
        "--shared-memory",
        "32Mi",
    ]);
    // Prints what it was given and how it was started, each with a zero byte at its end.
    command.args(["--", "/bin/sh", "-c", "printf '%s\\0' \"$@\" \"$A\" \"$(ulimit -l)\"; df -k /dev/shm", "sh"]);
    let ran = run(command.args(NASTY));
    let line = ran.expect(0).stdout.lines().skip(1).take_while(|line| !line.starts_with("# as "));
    let line = line.collect::<Vec<_>>().join("\n");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let start = |line: &str| run(Command::new("sh").args(["-c", line]).env("PATH", &path));
    let (mut started, mut locked) = (start(&line), Some("unlimited"));
    if started.stderr.contains("rlimit") {
        // An engine that may not raise limits, as one in a container.
        say_skipped("this engine may not raise the limit of locked memory: the line is run without it");
        (started, locked) = (start(&line.replace("--ulimit memlock=-1 ", "")), None);
    }
    let said: Vec<&str> = started.expect(0).stdout.split('\0').collect();
    assert_eq!(said[..NASTY.len()], NASTY);
    assert_eq!(said[NASTY.len()], "b  c");
    assert!(locked.is_none_or(|limit| said[NASTY.len() + 1] == limit), "{said:?}");
    assert!(said[NASTY.len() + 2].contains(" 32768 "), "{said:?}");
    assert_eq!(must("docker", &["ps", "--all", "--quiet", "--filter", &format!("name={name}")]), "");
}

/// Every example of the help as it is pasted, into a shell that has values of its own for PAI's variables.
#[test]
fn the_examples_of_the_help() {
    let help = run(rdmaprep().args(["job", "--help"]));
    let (_, examples) = help.expect(0).stdout.split_once("Examples:\n").unwrap();
    let (examples, _) = examples.split_once("\n\n").unwrap();
    // On a narrow terminal the help is wrapped where a shell would not go on.
    assert!(examples.lines().all(|line| line.len() <= 80), "{examples}");
    let examples: Vec<String> =
        examples.split("  rdmaprep job ").skip(1).map(|rest| format!("rdmaprep job {rest}")).collect();
    assert!(examples.len() >= 5, "{examples:?}");
    let directory = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_rdmaprep")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let of_pai = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NPROC_PER_NODE"];
    for example in examples {
        let mut command = Command::new("sh");
        command.args(["-ec", &example]).current_dir(directory.path()).env("PATH", &path);
        let ran = run(command.envs(of_pai.map(|name| (name, "of-this-shell"))));
        assert_eq!(ran.code, Some(0), "{example}\n{}", ran.stderr);
    }
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let body: Value = serde_json::from_str(&read("job.json")).unwrap();
    let variables = of_pai.map(|name| format!("export {name}=pais-{name}\n")).concat();
    let script = variables + body["UserCommand"].as_str().unwrap();
    // Without one of these torchrun waits for the others for ever, or each host is a job of its own.
    let started = words_of(
        "torchrun --nnodes=pais-WORLD_SIZE --node_rank=pais-RANK --nproc_per_node=pais-NPROC_PER_NODE \
         --master_addr=pais-MASTER_ADDR --master_port=pais-MASTER_PORT train.py",
    );
    assert_eq!(Fake::new("torchrun").run(&script), [started]);
    let manifest = read("job.yaml");
    assert!(manifest.contains("kind: PyTorchJob\n") && manifest.contains("nprocPerNode: \"8\"\n"), "{manifest}");
}

#[test]
fn only_the_job_is_on_stdout() {
    let args = ["job", IMAGE, "--for", "mpijob"];
    let ran = run(rdmaprep().args(args).args(["--", "prog"]));
    ran.expect(0)
        .says("note: aliyun/erdma: 1 is one of a NIC's 200 slots")
        .says("\n  allocateAllDevices: true, preferDriver: ofed\n");
    assert!(ran.stdout.starts_with("apiVersion: kubeflow.org/v2beta1\n") && !ran.stdout.contains("note"));
    let quiet = run(rdmaprep().args(args).args(["-q", "--", "prog"]));
    assert_eq!((quiet.expect(0).stdout.as_str(), quiet.stderr.as_str()), (ran.stdout.as_str(), ""));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("job.yaml");
    let written = run(rdmaprep().args(args).arg("-o").arg(&file).args(["--", "prog"]));
    assert_eq!(written.expect(0).stdout, "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), ran.stdout);
    run(rdmaprep().args(args).args(["-o", "/nonexistent/job.yaml", "--", "prog"]))
        .expect(4)
        .says("/nonexistent/job.yaml");
    let log = run(rdmaprep().args(args).args(["--log-format", "json", "--", "prog"]));
    for line in log.expect(0).stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "WARN");
    }
}

#[test]
fn what_cannot_be_written() {
    for (args, said) in [
        (vec!["--for", "mpijob"], "the job has no command\n  append it: -- PROGRAM ARGUMENTS"),
        (vec!["--for", "slurm", "--", "x"], "possible values: pai-dlc, mpijob, pytorchjob, arena, docker"),
        (vec!["--for", "mpijob", "--command", "a", "--", "x"], "cannot be used with"),
        (vec!["--for", "mpijob", "--workers", "0", "--", "x"], "0 is not in 1..=10000"),
        (vec!["--for", "mpijob", "--gpus-per-worker", "0", "--", "x"], "0 is not in 1..=1024"),
        (vec!["--for", "mpijob", "--cpu", "64cores", "--", "x"], "is not a valid quantity (cores: 8 or 500m"),
        (vec!["--for", "mpijob", "--memory", "64GB", "--", "x"], "memory: 64Gi)"),
        (vec!["--for", "mpijob", "--name", "My_Job", "--", "x"], "--name my-job"),
        (vec!["--for", "mpijob", "--namespace", "a.b", "--", "x"], "--namespace a-b"),
        (vec!["--for", "mpijob", "--env", "A-B=1", "--", "x"], "letters, digits and _"),
        (vec!["--for", "mpijob", "--target", "pai-dlc", "--", "x"], "--for mpijob is for ack or cce\n  --target ack"),
        (vec!["--for", "mpijob", "--target", "mars", "--", "x"], "known targets: pai-dlc, ecs, ack"),
        (vec!["--for", "mpijob", "--nics", "2", "--", "x"], "--nics has no meaning with --for mpijob"),
        (vec!["--for", "docker", "--workers", "2", "--", "x"], "it is for --for pai-dlc, --for mpijob"),
        (vec!["--for", "docker", "--format", "json", "--", "x"], "--format has no meaning with --for docker"),
        (vec!["--for", "pai-dlc", "--", "x"], "--resource-id is missing"),
        (vec!["--for", "pai-dlc", "--format", "yaml", "--", "x"], "PAI-DLC takes JSON alone"),
        (vec!["--for", "pai-dlc", "--instance", "ecs.a.b", "--cpu", "8", "--", "x"], "cannot be used with"),
        (vec!["--for", "arena", "--shared-memory", "1Gi", "--", "x"], "--for mpijob, or --kind pytorchjob"),
        (vec!["--for", "mpijob", "--", "torchrun", "x"], "16 copies of it, 8 on each host\n  --for pytorchjob, or"),
        (vec!["--for", "mpijob", "--command", "cd /x && torchrun x"], "\n  --for pytorchjob, or"),
        (vec!["--for", "arena", "--", "torchrun", "x"], "16 copies of it, 8 on each host\n  --kind pytorchjob, or"),
    ] {
        let ran = run(rdmaprep().args(["job", IMAGE]).args(&args));
        assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.stdout, ran.stderr);
        ran.says(said);
        assert_eq!(ran.stdout, "", "{args:?}");
    }
    run(rdmaprep().args(["job", "Train", "--for", "mpijob", "--", "x"])).expect(2).says("image Train");
    run(rdmaprep().args(["job", "oci:dir", "--for", "mpijob", "--", "x"])).expect(2).says("push it");
}
