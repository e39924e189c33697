//! What a job is, whoever runs it: image, command, size, variables. Pure.

use super::quantity::Quantity;
use crate::launch::variables::{UserVariable, is_secret};
use crate::reference::{Reference, ReferenceError};
use crate::remedy::Remedy;
use crate::shell::shell_join;
use crate::targets::Target;

/// Default number of GPUs of a host, as in the vendors' instance types for distributed training.
const GPUS_PER_WORKER: u32 = 8;

/// Longest DNS label (RFC 1035): names of pods become host names.
const MAX_LABEL: usize = 63;

/// Longest name derived from an image's, leaving room for the operators' suffixes.
const MAX_DEFAULT_NAME: usize = 40;

/// Image source prefixes that this program accepts elsewhere, but no cluster does.
const SOURCES: [&str; 9] = [
    "docker-daemon:",
    "docker-archive:",
    "docker://",
    "docker:",
    "oci:",
    "oci-dir:",
    "oci-archive:",
    "registry:",
    "rootfs:",
];

/// A job before it has a format.
#[derive(Debug, Clone)]
pub struct JobSpec {
    pub name: String,
    /// The image as the job's hosts pull it.
    pub image: String,
    pub workload: Workload,
    /// Hosts; at least one.
    pub workers: u32,
    /// `None`: all of a host; 8 where a number is needed.
    pub gpus_per_worker: Option<u32>,
    /// CPU of each worker.
    pub cpu: Option<Quantity>,
    /// Memory of each worker.
    pub memory: Option<Quantity>,
    /// Size of `/dev/shm`.
    pub shared_memory: Option<Quantity>,
    /// Variables that override those that the job sets.
    pub env: Vec<UserVariable>,
    pub target: &'static Target,
    pub namespace: Option<String>,
    /// Network interface over which the ranks meet.
    pub interface: Option<String>,
    /// The job's own port on each host: sshd's with MPI, the master's with PyTorch.
    pub port: Option<u16>,
    /// Whether the job runs on tainted nodes, too.
    pub tolerate_all: bool,
}

/// What the job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// The user's own program.
    Command(UserCommand),
}

/// A command as the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserCommand {
    /// Program and arguments, to be passed unchanged.
    Arguments(Vec<String>),
    /// A line for the image's `/bin/sh`.
    Shell(String),
}

/// Why a job cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    #[error("image {image}")]
    Image { image: String, source: ReferenceError },
    #[error("image {0}: a job names an image as its hosts pull it")]
    ImageSource(String),
    #[error("the job has no command")]
    NoCommand,
    #[error("the command contains a zero byte, which no argument can")]
    ZeroByte,
    #[error("{option} {value:?}: {rule}")]
    Value { option: &'static str, value: String, rule: String, remedy: String },
    #[error("--env {0:?}: the name of a variable has letters, digits and _, and does not start with a digit")]
    VariableName(String),
    #[error("{problem}")]
    Other { problem: String, remedy: String },
}

impl Remedy for JobError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            JobError::ImageSource(_) => "push it, and use REGISTRY/REPOSITORY:TAG".to_owned(),
            JobError::NoCommand => "append it: -- PROGRAM ARGUMENTS, or --command 'SHELL LINE'".to_owned(),
            JobError::Value { remedy, .. } | JobError::Other { remedy, .. } => remedy.clone(),
            JobError::VariableName(_) => "--env NAME=VALUE".to_owned(),
            JobError::Image { .. } | JobError::ZeroByte => return None,
        })
    }
}

impl UserCommand {
    /// Program and arguments that run the command.
    pub fn arguments(&self) -> Vec<String> {
        match self {
            UserCommand::Arguments(words) => words.clone(),
            UserCommand::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
        }
    }

    /// A POSIX shell line that runs the command.
    pub fn shell_line(&self) -> String {
        match self {
            UserCommand::Arguments(words) => shell_join(words),
            UserCommand::Shell(line) => line.clone(),
        }
    }

    /// Whether one of these programs or Python modules is started, as far as its words tell: also behind `cd x &&`, `A=b`, `env`
    /// or `sh -c`.
    pub fn starts(&self, programs: &[&str]) -> bool {
        let text = match self {
            UserCommand::Arguments(words) => words.join(" "),
            UserCommand::Shell(line) => line.clone(),
        };
        // What a shell takes as the end of a word, or removes.
        let ends = |c: char| c.is_whitespace() || ";&|(){}`'\"".contains(c);
        let mut before = "";
        text.split(ends).filter(|word| !word.is_empty()).any(|word| {
            // What follows a long option is its value.
            let is_value = before.starts_with("--") && !before.contains('=');
            before = word;
            !is_value && programs.contains(&word.rsplit('/').next().unwrap_or(word))
        })
    }

    /// Whether it starts a process per GPU itself, and finds the other hosts by the variables of PyTorch's operators.
    pub fn is_torchrun(&self) -> bool {
        self.starts(&["torchrun", "torch.distributed.run", "torch.distributed.launch"])
    }

    /// A word after `--` that may have been meant for a shell.
    fn unexpanded(&self) -> Option<&str> {
        match self {
            UserCommand::Arguments(words) => words.iter().map(String::as_str).find(|word| word.contains('$')),
            UserCommand::Shell(_) => None,
        }
    }

    fn check(&self) -> Result<(), JobError> {
        let is_empty = match self {
            UserCommand::Arguments(words) => words.first().is_none_or(String::is_empty),
            UserCommand::Shell(line) => line.trim().is_empty(),
        };
        if is_empty {
            return Err(JobError::NoCommand);
        }
        if self.arguments().iter().any(|word| word.contains('\0')) { Err(JobError::ZeroByte) } else { Ok(()) }
    }
}

impl JobSpec {
    /// A worker's GPUs, if a number is needed.
    pub fn gpus(&self) -> u32 {
        self.gpus_per_worker.unwrap_or(GPUS_PER_WORKER)
    }

    pub fn command(&self) -> &UserCommand {
        match &self.workload {
            Workload::Command(command) => command,
        }
    }

    /// Checks the rules of every format.
    pub(super) fn check(&self) -> Result<(), JobError> {
        if SOURCES.iter().any(|source| self.image.starts_with(source)) {
            return Err(JobError::ImageSource(self.image.clone()));
        }
        Reference::parse(&self.image).map_err(|source| JobError::Image { image: self.image.clone(), source })?;
        self.command().check()?;
        if let Some(variable) = self.env.iter().find(|variable| !is_identifier(&variable.name)) {
            return Err(JobError::VariableName(variable.name.clone()));
        }
        if let Some(namespace) = self.namespace.as_ref().filter(|namespace| !is_label(namespace)) {
            return Err(JobError::Value {
                option: "--namespace",
                value: namespace.clone(),
                rule: "a namespace has lower-case letters, digits and inner -, up to 63 characters".to_owned(),
                remedy: format!("--namespace {}", label_from(namespace, MAX_LABEL)),
            });
        }
        let not_in_a_name = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if let Some(interface) = self.interface.as_ref().filter(|name| name.is_empty() || name.contains(not_in_a_name))
        {
            return Err(JobError::Value {
                option: "--interface",
                value: interface.clone(),
                rule: "an interface name has no spaces".to_owned(),
                remedy: "--interface eth0".to_owned(),
            });
        }
        self.check_amounts()
    }

    fn check_amounts(&self) -> Result<(), JobError> {
        let wrong = |option: &'static str, amount: &Quantity, rule: &str, example: &str| JobError::Value {
            option,
            value: amount.to_string(),
            rule: rule.to_owned(),
            remedy: format!("{option} {example}"),
        };
        for (option, amount) in [("--memory", &self.memory), ("--shared-memory", &self.shared_memory)] {
            if let Some(amount) = amount.as_ref().filter(|amount| amount.bytes().is_none()) {
                return Err(wrong(option, amount, "memory is a whole number of bytes", "64Gi"));
            }
        }
        match self.cpu.as_ref().filter(|amount| amount.cores().is_none()) {
            Some(amount) => Err(wrong("--cpu", amount, "CPU is a number of cores", "8")),
            None => Ok(()),
        }
    }

    /// Checks that the name leaves room for an operator's suffix.
    pub(super) fn check_name(&self, longest_suffix: usize) -> Result<(), JobError> {
        let longest = MAX_LABEL - longest_suffix;
        let name = &self.name;
        // A service's name is a label of RFC 1035, which starts with a letter.
        if is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= longest {
            return Ok(());
        }
        Err(JobError::Value {
            option: "--name",
            value: name.clone(),
            rule: format!(
                "its pods' names are host names: a lower-case letter, then lower-case letters, digits and inner -, up to {longest}"
            ),
            remedy: format!("--name {}", label_from(name, longest)),
        })
    }

    /// Names of the user's variables with secret values.
    pub(super) fn secrets(&self) -> Vec<&str> {
        self.env.iter().map(|variable| variable.name.as_str()).filter(|name| is_secret(name)).collect()
    }

    /// Notes for every format that leaves this host.
    pub(super) fn notes_of_submission(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let names_registry = |(first, _): (&str, &str)| first.contains(['.', ':']) || first == "localhost";
        if !self.image.split_once('/').is_some_and(names_registry) {
            notes.push(format!(
                "the hosts look for {} on Docker Hub, since its name has no registry\n  REGISTRY/REPOSITORY:TAG",
                self.image
            ));
        }
        let secrets = self.secrets();
        if !secrets.is_empty() {
            notes.push(format!("anyone who can see the job sees the value of {} too", secrets.join(", ")));
        }
        notes.extend(self.note_of_dollars());
        notes
    }

    pub(super) fn note_of_dollars(&self) -> Option<String> {
        let word = self.command().unexpanded()?;
        Some(format!(
            "{word:?} reaches the program unchanged, since no shell reads the words after --\n  \
             --command 'SHELL LINE' expands variables"
        ))
    }
}

/// A job name derived from an image: the last part of its repository.
pub fn default_name(image: &str) -> String {
    let without_digest = image.split('@').next().unwrap_or(image);
    let last = without_digest.rsplit('/').next().unwrap_or(without_digest);
    label_from(last.split(':').next().unwrap_or(last), MAX_DEFAULT_NAME)
}

/// Whether a text is a DNS label as Kubernetes requires it (RFC 1123, lower case).
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let length = 1..=MAX_LABEL;
    length.contains(&text.len()) && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// The nearest label that begins with a letter.
fn label_from(text: &str, longest: usize) -> String {
    let kept: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let kept = kept.trim_matches('-').to_ascii_lowercase();
    let named = if kept.starts_with(|c: char| c.is_ascii_lowercase()) { kept } else { format!("job-{kept}") };
    named.chars().take(longest).collect::<String>().trim_end_matches('-').to_owned()
}

/// Whether a text is a variable name for shells and `mpirun -x`.
fn is_identifier(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_inner) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::remedy::with_remedy;
    use crate::targets::by_id;

    /// A job on two ACK hosts that runs `python train.py`.
    pub fn spec() -> JobSpec {
        JobSpec {
            name: "train".into(),
            image: "registry.example.com/team/train:1-erdma".into(),
            workload: command(&["python", "train.py"]),
            workers: 2,
            gpus_per_worker: None,
            cpu: None,
            memory: None,
            shared_memory: None,
            env: Vec::new(),
            target: by_id("ack").unwrap(),
            namespace: None,
            interface: None,
            port: None,
            tolerate_all: false,
        }
    }

    pub fn command(words: &[&str]) -> Workload {
        Workload::Command(arguments(words))
    }

    fn arguments(words: &[&str]) -> UserCommand {
        UserCommand::Arguments(words.iter().map(|word| (*word).to_owned()).collect())
    }

    pub fn variable(name: &str, value: &str) -> UserVariable {
        UserVariable { name: name.to_owned(), value: value.to_owned() }
    }

    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/nasty.rs"));

    #[test]
    fn names_out_of_images() {
        for (image, name) in [
            ("train", "train"),
            ("registry.example.com:5000/team/Train_x:1", "train-x"),
            ("my/train@sha256:00", "train"),
            ("my/24.04-py3", "job-24-04-py3"),
            ("---", "job"),
        ] {
            assert_eq!(default_name(image), name, "{image}");
            assert!(is_label(name));
        }
        assert_eq!(default_name(&"a".repeat(200)).len(), 40);
    }

    #[test]
    fn what_cannot_be_a_job() {
        let wrong = |words: &str, change: &dyn Fn(&mut JobSpec)| {
            let mut spec = spec();
            change(&mut spec);
            let text = with_remedy(&spec.check().unwrap_err());
            assert!(text.contains(words), "{text:?} lacks {words:?}");
        };
        wrong("image Train", &|spec| spec.image = "Train".into());
        wrong("push it", &|spec| spec.image = "docker-archive:a.tar".into());
        wrong("no command", &|spec| spec.workload = command(&[]));
        wrong("no command", &|spec| spec.workload = command(&[""]));
        wrong("no command", &|spec| spec.workload = Workload::Command(UserCommand::Shell("  ".into())));
        wrong("zero byte", &|spec| spec.workload = command(&["a", "\0"]));
        wrong("--namespace team-a", &|spec| spec.namespace = Some("Team_A".into()));
        wrong("--interface eth0", &|spec| spec.interface = Some("eth 0".into()));
        wrong("A-B", &|spec| spec.env = vec![variable("A-B", "")]);
        wrong("1A", &|spec| spec.env = vec![variable("1A", "")]);
        wrong("CPU is a number of cores\n  --cpu 8", &|spec| spec.cpu = Some("8Gi".parse().unwrap()));
        wrong("--memory 64Gi", &|spec| spec.memory = Some("500m".parse().unwrap()));
        assert_eq!(spec().check(), Ok(()));
    }

    #[test]
    fn names_of_pods() {
        let check = |name: &str| {
            let mut spec = spec();
            spec.name = name.to_owned();
            spec.check_name(9).map_err(|error| with_remedy(&error))
        };
        assert_eq!(check("a1-b"), Ok(()));
        assert_eq!(check(&"a".repeat(54)), Ok(()));
        assert!(check(&"a".repeat(55)).unwrap_err().contains("up to 54"));
        for name in ["1a", "A", "a_b", "-a", "a-", ""] {
            assert!(check(name).unwrap_err().contains("--name "), "{name}");
        }
        assert!(check("Train_1").unwrap_err().ends_with("--name train-1"));
    }

    #[test]
    fn commands() {
        assert!(arguments(&["torchrun", "train.py"]).is_torchrun());
        assert!(arguments(&["python", "-m", "torch.distributed.run"]).is_torchrun());
        assert!(UserCommand::Shell("cd /x && torchrun t.py".into()).is_torchrun());
        assert!(!arguments(&["python", "train.py"]).is_torchrun());
        assert!(!arguments(&["python", "train.py", "--launcher", "torchrun"]).is_torchrun());
        assert_eq!(arguments(&["echo", "a b"]).shell_line(), "echo 'a b'");
        assert_eq!(UserCommand::Shell("echo a b".into()).arguments(), ["/bin/sh", "-c", "echo a b"]);
        assert_eq!(arguments(&["echo", "$RANK"]).unexpanded(), Some("$RANK"));
    }

    #[test]
    fn programs_that_a_command_starts() {
        let of_shell = |line: &str| UserCommand::Shell(line.into()).starts(&["mpirun"]);
        for line in [
            "mpirun -np 2 x",
            "/usr/bin/mpirun -np 2 x",
            "cd /x && mpirun -np 2 x",
            "cd /x;mpirun -np 2 x",
            "FOO=1 mpirun x",
            "env A=b mpirun x",
            "if true; then (mpirun x) fi",
            "sh -c 'exec mpirun x'",
            "x=$(mpirun x)",
            "timeout --signal=KILL 60 mpirun x",
        ] {
            assert!(of_shell(line), "{line}");
        }
        for line in
            ["python train.py", "mpirun.sh", "cat mpirun_log", "python x.py --launcher mpirun", "ls mpirun/x", ""]
        {
            assert!(!of_shell(line), "{line}");
        }
        assert!(arguments(&["/usr/bin/mpirun", "-np", "2"]).starts(&["mpirun"]));
        assert!(arguments(&["bash", "-c", "cd /x && mpirun y"]).starts(&["mpirun"]));
        assert!(!arguments(&["python", "train.py", "--launcher", "mpirun"]).starts(&["mpirun"]));
    }

    #[test]
    fn what_is_said_of_every_submission() {
        let mut spec = spec();
        assert_eq!(spec.notes_of_submission(), Vec::<String>::new());
        spec.image = "team/train".into();
        spec.env = vec![variable("HF_TOKEN", "x")];
        spec.workload = command(&["echo", "$RANK"]);
        let notes = spec.notes_of_submission();
        for (note, words) in notes.iter().zip(["Docker Hub", "HF_TOKEN", "\"$RANK\""]) {
            assert!(note.contains(words), "{note}");
        }
        assert_eq!(notes.len(), 3);
    }
}
