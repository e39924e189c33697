//! The commands of the README's tours, run one after another as a reader would run them.
//!
//! Every `sh` block of the README is in a tour. A line's comment says how it ends where that is not 0: `# exit 1: …`; `# needs a
//! GPU` ends with 4 on a machine without one. The images, the vendor's mirror and a registry are the rig's: `rdmaprep build` gets
//! `--mirror` and `--network` from the test, and nothing else is changed.
//!
//! The CI examples (`yaml` blocks) are read as YAML, and what they tell a shell to do is run, too, each job with a home and a
//! directory of its own. Its programs are this machine's, and only those of a name that its image has or that it installs: of
//! `debian:12` they are read from the rig's image of Debian 12. The program under test comes from where the job fetches it.

use crate::support;
use crate::support::docker::registry;

use registry::{PASSWORD, Registry, USER};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use support::*;

/// A fenced block of the README.
#[derive(Debug, Clone)]
struct Block {
    language: String,
    /// The nearest heading above.
    heading: String,
    text: String,
    /// Number of its first line, from 1.
    line: usize,
}

/// The headings whose `sh` blocks are run, each with a test of its own.
const TOURS: [&str; 3] = ["For image maintainers", "For a CI pipeline", "For job submitters"];

fn blocks(readme: &str) -> Vec<Block> {
    let (mut found, mut heading, mut open): (Vec<Block>, String, Option<Block>) = (Vec::new(), String::new(), None);
    for (number, line) in readme.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let (language, heading) = (language.trim().to_owned(), heading.clone());
                open = Some(Block { language, heading, text: String::new(), line: number + 2 });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => {
                block.text += line;
                block.text.push('\n');
            }
            (None, None) if line.starts_with('#') => heading = line.trim_start_matches('#').trim().to_owned(),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the README ends within a block");
    found
}

fn readme() -> Vec<Block> {
    blocks(&std::fs::read_to_string(root().join("README.md")).unwrap())
}

/// How a line says that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Exit(i32),
    NeedsGpu,
}

/// The commands of a block, continuation lines joined, each with how it ends.
fn commands(block: &Block) -> Vec<(String, Expected)> {
    let joined = block.text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| (line.to_owned(), expected(line))).collect()
}

fn expected(line: &str) -> Expected {
    let Some((_, comment)) = line.split_once(" # ") else { return Expected::Exit(0) };
    if comment.starts_with("needs a GPU") {
        return Expected::NeedsGpu;
    }
    match comment.strip_prefix("exit ") {
        Some(rest) => {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            Expected::Exit(digits.parse().unwrap_or_else(|_| panic!("{line:?} has no exit code")))
        }
        None => Expected::Exit(0),
    }
}

#[test]
fn what_a_line_says_of_its_end() {
    assert_eq!(expected("rdmaprep check a"), Expected::Exit(0));
    assert_eq!(expected("rdmaprep check a   # exit 1: it is not right"), Expected::Exit(1));
    assert_eq!(expected("rdmaprep preflight a # needs a GPU"), Expected::NeedsGpu);
    assert_eq!(expected("rdmaprep check a # is it right?"), Expected::Exit(0));
}

#[test]
fn every_shell_block_is_in_a_tour() {
    let shell: Vec<Block> = readme().into_iter().filter(|block| block.language == "sh").collect();
    for tour in TOURS {
        assert!(shell.iter().any(|block| block.heading == tour), "no commands under {tour:?}");
    }
    for block in &shell {
        assert!(TOURS.contains(&block.heading.as_str()), "README line {}: not in a tour", block.line);
    }
}

/// What a reader has: a directory, a home, the program, and a Dockerfile of an image that was made for Mellanox hardware.
struct Reader {
    home: tempfile::TempDir,
    mirror: Mirror,
    _images: Names,
}

/// Names of images that the tours make. They are removed afterwards, so nobody else's may have them.
const IMAGES: [&str; 5] = ["my/train:1", "my/train:1-erdma", "my/train:1-roce", "train-erdma", "train-perftest-erdma"];

/// Ubuntu 22.04 by its os-release alone: CUDA, NCCL and OFED are the rig's, on Debian.
const DOCKERFILE: &str = "FROM rdmaprep-test/base:latest
RUN printf 'ID=ubuntu\\nVERSION_ID=\"22.04\"\\nVERSION_CODENAME=jammy\\nPRETTY_NAME=\"Ubuntu 22.04 (by name)\"\\n' > /usr/lib/os-release
";

impl Reader {
    fn new() -> Option<Reader> {
        if !rig() {
            return None;
        }
        for name in IMAGES {
            if Command::new("docker").args(["image", "inspect", name]).output().unwrap().status.success() {
                say_skipped(&format!("there is an image {name}, which is not the test's"));
                return None;
            }
        }
        let mut images = Names::new();
        IMAGES.into_iter().for_each(|name| images.add(name));
        let home = tempfile::tempdir().unwrap();
        let mirror = Mirror::start();
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        write_program(&bin.join("rdmaprep"), &wrapper(&mirror));
        let recipe = "[base]\nimage = \"my/train:1\"\ndistro = \"ubuntu-22.04\"\n[fabric]\nname = \"erdma\"\n";
        for (path, text) in [
            ("Dockerfile", DOCKERFILE.to_owned()),
            ("recipes/train/recipe.toml", recipe.to_owned()),
            ("recipes/train-perftest/recipe.toml", format!("packages = [\"perftest\"]\n{recipe}")),
            ("policy.toml", "[checks]\nofed-leftovers = \"required\"\n".to_owned()),
            ("job.log", read("tests/fuzz/seeds/nccl_log/run")),
            ("all_reduce.log", table()),
        ] {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Some(Reader { home, mirror, _images: images })
    }

    /// Runs one command with a shell.
    fn shell(&self, command: &str) -> Ran {
        let path = format!("{}/bin:{}", self.home.path().display(), std::env::var("PATH").unwrap());
        let mut process = Command::new("sh");
        process.args(["-ec", command]).current_dir(self.home.path()).stdin(Stdio::null());
        process.env("PATH", path).env("HOME", self.home.path()).env("DOCKER_BUILDKIT", "0").env_remove("DOCKER_CONFIG");
        run(&mut process)
    }

    fn run_block(&self, block: &Block) {
        for (command, expected) in commands(block) {
            let code = match expected {
                Expected::Exit(code) => code,
                Expected::NeedsGpu if Path::new("/dev/nvidiactl").exists() => 0,
                Expected::NeedsGpu => 4,
            };
            let ran = self.shell(&command);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, Some(code), "README block at line {}: {command}\n{said}", block.line);
        }
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// The program with the vendor's mirror and the build's network as this machine has them; the registry on loopback has no TLS.
fn wrapper(mirror: &Mirror) -> String {
    let program = env!("CARGO_BIN_EXE_rdmaprep");
    format!(
        "#!/bin/sh\ncase \"$1 $*\" in\n\
         build*--target\\ cce*) exec {program} \"$@\" --network host ;;\n\
         build*) exec {program} \"$@\" --mirror {} --network host ;;\n\
         check*docker://*) exec {program} \"$@\" --plain-http ;;\n\
         *) exec {program} \"$@\" ;;\nesac\n",
        mirror.address
    )
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn write_program(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What nccl-tests print for 16 ranks of two hosts, shortened to the row that counts.
fn table() -> String {
    let ranks = (0..16).map(|rank| {
        format!(
            "#  Rank {rank:2} Group  0 Pid {:6} on worker-{} device {:2} [0x10] NVIDIA X\n",
            28 + rank,
            rank / 8,
            rank % 8
        )
    });
    format!(
        "# nThread 1 nGpus 1 minBytes 4294967296 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
         validation: 1 graph: 0\n#\n# Using devices\n{}#\n\
         #                                                              out-of-place                       in-place\n  \
         4294967296    1073741824     float     sum      -1   554176    7.75   14.53      0   554452    7.75   14.52      0\n\
         # Out of bounds values : 0 OK\n# Avg bus bandwidth    : 14.525\n#\n",
        ranks.collect::<String>()
    )
}

/// A YAML text as JSON; `None`: there is no reader of YAML, which is said.
fn yaml(text: &str) -> Option<Value> {
    let models = Command::new(root().join("tests/rig/job-models.sh")).stdin(Stdio::null()).output().unwrap();
    if !models.status.success() {
        say_skipped("there is no PyYAML (tests/rig/job-models.sh)");
        return None;
    }
    let python = String::from_utf8(models.stdout).unwrap();
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let mut child =
        Command::new(python.trim()).args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "no YAML:\n{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A job of a CI service: a checkout, a home, and the programs of its image.
struct CiJob {
    directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl CiJob {
    /// A checkout of the reader's Dockerfile, and no program.
    fn new() -> CiJob {
        let directory = tempfile::tempdir().unwrap();
        for name in ["project", "home", "programs"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("project/Dockerfile"), DOCKERFILE).unwrap();
        CiJob { directory, variables: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Puts this machine's program of a name where the job finds it; `false`: there is none.
    fn give(&self, name: &str) -> bool {
        let path = std::env::var("PATH").unwrap();
        let Some(here) = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()) else {
            return false;
        };
        std::os::unix::fs::symlink(here, self.path(&format!("programs/{name}"))).unwrap();
        true
    }

    /// The image `debian:12`: what is not in it is not there, and its apt-get installs what the job may need.
    fn debian(&self) {
        let names = must("docker", &["run", "--rm", "rdmaprep-test/debian:12", "ls", "/usr/bin", "/usr/sbin"]);
        let given = names.lines().filter(|name| !name.is_empty() && !name.starts_with('/') && *name != "apt-get");
        assert!(given.filter(|name| self.give(name)).count() > 100, "{names}");
        for absent in ["curl", "docker", "rdmaprep"] {
            assert!(!Path::new(&self.path(&format!("programs/{absent}"))).exists(), "{absent}");
        }
        let offered = self.path("offered");
        std::fs::create_dir(&offered).unwrap();
        // Certificates are what a client over TLS looks for first.
        let certificates = self.path("ca-certificates");
        let curl = must("sh", &["-c", "command -v curl"]);
        write_program(
            &Path::new(&offered).join("curl"),
            &format!("#!/bin/sh\n{}exec {} \"$@\"\n", needs(&certificates), curl.trim()),
        );
        let docker = must("sh", &["-c", "command -v docker"]);
        std::os::unix::fs::symlink(docker.trim(), format!("{offered}/docker")).unwrap();
        let programs = self.path("programs");
        write_program(
            &Path::new(&programs).join("apt-get"),
            &format!(
                "#!/bin/sh\nset -e\nlists={}\ncase $1 in\nupdate) touch $lists; exit ;;\ninstall) shift ;;\n*) exit 100 ;;\nesac\n\
                 [ -e $lists ] || {{ echo 'E: no package lists' >&2; exit 100; }}\nyes=\n\
                 for word; do\n  case $word in\n  -y) yes=1 ;;\n  -*) ;;\n  ca-certificates) touch {certificates} ;;\n  \
                 curl) mv {offered}/curl {programs} ;;\n  docker.io) mv {offered}/docker {programs} ;;\n  \
                 *) echo \"E: Unable to locate package $word\" >&2; exit 100 ;;\n  esac\ndone\n\
                 [ $yes ] || {{ echo 'Abort.' >&2; exit 1; }}\n",
                self.path("lists")
            ),
        );
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Where the program under test can be fetched; `before` is what it does first.
    fn publish(&mut self, mirror: &Mirror, before: &str) {
        let published = self.path("published");
        std::fs::write(&published, wrapper(mirror).replacen('\n', &format!("\n{before}"), 1)).unwrap();
        self.set("RDMAPREP_URL", &format!("file://{published}"));
    }

    /// Runs a script with nothing of this machine's but the engine; `more` is before the image's programs.
    fn run(&self, block: &Block, script: &str, more: &str) {
        let mut process = Command::new("/bin/bash");
        process.args(["-eo", "pipefail", "-c", script]).current_dir(self.path("project")).stdin(Stdio::null());
        let engine = ["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"];
        let engine = engine.into_iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
        process.env_clear().envs(engine).env("DOCKER_BUILDKIT", "0").env("HOME", self.path("home"));
        process.env("PATH", format!("{more}{}", self.path("programs")));
        let ran = run(process.envs(self.variables.iter().map(|(name, value)| (name, value))));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.code, Some(0), "README block at line {}: {script}\n{said}", block.line);
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Lines of a shell's script that end it where a file is not.
fn needs(certificates: &str) -> String {
    format!("[ -e {certificates} ] || {{ echo 'no certificates of authorities are installed' >&2; exit 60; }}\n")
}

/// The jobs of a pipeline of GitLab, in the order of its stages, each with what it takes from `default`.
fn pipeline_jobs(pipeline: &Value) -> Vec<Value> {
    let stages = pipeline["stages"].as_array().unwrap();
    let of_stage =
        |stage: &Value| pipeline.as_object().unwrap().values().filter(|job| job["stage"] == *stage).collect::<Vec<_>>();
    let whole = |job: &Value| {
        let mut whole = pipeline["default"].as_object().cloned().unwrap_or_default();
        whole.extend(job.as_object().unwrap().clone());
        Value::Object(whole)
    };
    stages.iter().flat_map(of_stage).map(whole).collect()
}

/// Lines of a script, which GitLab hands to one shell.
fn lines(job: &Value, key: &str) -> String {
    let lines = job[key].as_array().into_iter().flatten();
    lines.map(|line| format!("{}\n", line.as_str().unwrap())).collect()
}

/// One after another: they use the same names.
#[test]
fn the_tours() {
    let Some(reader) = Reader::new() else { return };
    let (mut shell_blocks, mut workflows, mut pipelines, mut unread) = (0, 0, 0, 0);
    for block in readme().iter().filter(|block| TOURS.contains(&block.heading.as_str())) {
        match block.language.as_str() {
            "sh" => {
                reader.run_block(block);
                shell_blocks += 1;
            }
            "yaml" => {
                let Some(text) = yaml(&block.text) else {
                    unread += 1;
                    continue;
                };
                if text["jobs"].is_object() {
                    github_actions(&reader, block, &text);
                    workflows += 1;
                } else {
                    gitlab(&reader, block, &text);
                    pipelines += 1;
                }
            }
            _ => {}
        }
    }
    assert!(shell_blocks >= 5, "{shell_blocks} blocks of commands");
    assert_eq!(workflows + pipelines + unread, 2, "blocks of CI");
    assert!(unread > 0 || (workflows, pipelines) == (1, 1), "{workflows} of GitHub, {pipelines} of GitLab");
    for (file, said) in [
        ("Dockerfile.erdma", "jammy/erdma"),
        ("job.json", "\"EcsSpec\": \"ecs.ebmgn8v.48xlarge\""),
        ("mpijob.yaml", "aliyun/erdma: 1"),
        ("pytorchjob.yaml", "rdma/hca: 1"),
    ] {
        assert!(reader.file(file).contains(said), "{file} has no {said:?}:\n{}", reader.file(file));
    }
}

fn github_actions(reader: &Reader, block: &Block, workflow: &Value) {
    // What `upload-sarif` and `checkout` need, and nothing else.
    assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read", "security-events": "write"}));
    for steps in workflow["jobs"].as_object().unwrap().values() {
        // GitHub's Ubuntu has all that the job needs but the program.
        assert_eq!(steps["runs-on"], "ubuntu-24.04");
        let mut job = CiJob::new();
        for name in ["bash", "sh", "cat", "mkdir", "chmod", "curl", "docker"] {
            assert!(job.give(name), "{name}");
        }
        job.publish(&reader.mirror, "");
        job.set("GITHUB_PATH", &job.path("github-path"));
        std::fs::write(job.path("github-path"), "").unwrap();
        let scripts: Vec<&str> =
            steps["steps"].as_array().unwrap().iter().filter_map(|step| step["run"].as_str()).collect();
        assert!(scripts.len() >= 3, "{scripts:?}");
        for script in scripts {
            let added: String = job.file("github-path").lines().map(|line| format!("{line}:")).collect();
            job.run(block, script, &added);
        }
        assert_eq!(job.file("github-path").trim(), job.path("home/bin"));
        let sarif: Value = serde_json::from_str(&job.file("project/rdmaprep.sarif")).unwrap();
        assert_eq!(sarif["version"], "2.1.0");
    }
}

fn gitlab(reader: &Reader, block: &Block, pipeline: &Value) {
    let Some(registry) = Registry::start() else { return };
    let image = format!("{}/team/train", registry.address);
    let mut images = Names::new();
    images.add(&format!("{image}:1a2b3c4d"));
    images.add(&format!("{image}:1a2b3c4d-erdma"));
    let mut reports = 0;
    for job in pipeline_jobs(pipeline) {
        let mut here = CiJob::new();
        assert_eq!(job["image"], "debian:12", "the test does not know what another image has");
        here.debian();
        for (name, value) in [
            ("CI_REGISTRY", registry.address.as_str()),
            ("CI_REGISTRY_USER", USER),
            ("CI_REGISTRY_PASSWORD", PASSWORD),
            ("CI_REGISTRY_IMAGE", &image),
            ("CI_COMMIT_SHORT_SHA", "1a2b3c4d"),
        ] {
            here.set(name, value);
        }
        here.publish(&reader.mirror, &needs(&here.path("ca-certificates")));
        if job["services"].is_array() {
            // The service's daemon, which stands for the machine's own here: without these nobody finds it.
            let variables = [("DOCKER_HOST", "tcp://docker:2376"), ("DOCKER_TLS_VERIFY", "1")];
            let paths = [("DOCKER_TLS_CERTDIR", "/certs"), ("DOCKER_CERT_PATH", "/certs/client")];
            let expected: serde_json::Map<String, Value> =
                variables.into_iter().chain(paths).map(|(name, value)| (name.to_owned(), value.into())).collect();
            assert_eq!((&job["services"][0], &job["variables"]), (&"docker:28-dind".into(), &expected.into()));
        } else {
            assert_eq!(job["variables"], Value::Null);
        }
        let script = lines(&job, "script");
        assert!(!script.is_empty(), "{job}");
        here.run(block, &(lines(&job, "before_script") + &script), "");
        if let Some(report) = job["artifacts"]["reports"]["junit"].as_str() {
            assert!(here.file(&format!("project/{report}")).contains("<testsuites"));
            reports += 1;
        }
    }
    assert_eq!(reports, 1);
}

/// What the README shows of `make demo` is what the program prints now, but for ids, times, sizes and the progress of the build.
#[test]
fn the_first_session() {
    if !rig() {
        return;
    }
    let session: Vec<Block> = readme().into_iter().filter(|block| block.heading == "A first session").collect();
    let (check, build) = (&session[0].text, &session[1].text);
    assert!(check.starts_with("$ rdmaprep check ") && build.starts_with("$ rdmaprep build "), "{session:#?}");

    let ran = run(rdmaprep().args(["check", BASE]));
    assert_shown(check, &ran.expect(1).stdout, |_| true);

    let (mirror, mut names) = (Mirror::start(), Names::new());
    let tag = names.unique("session");
    let ran = run(rdmaprep().args(["build", BASE, "-t", &tag, "--progress", "plain"]).args(mirror.options()));
    let result = ran.expect(0).stdout.replace(&tag, "rdmaprep-demo:erdma");
    let starts = ["rdmaprep-test/base", "  - ", "  ~ ", "docker-daemon:", "  warn", "             listed", "PASS"];
    assert_shown(build, &result, |line| starts.iter().any(|start| line.starts_with(start)));
}

/// Every line that the README shows stands in the output, without ids.
#[track_caller]
fn assert_shown(block: &str, output: &str, is_compared: impl Fn(&str) -> bool) {
    let without_id = |line: &str| line.split(" (sha256:").next().unwrap_or_default().to_owned();
    let printed: Vec<String> = output.lines().map(without_id).collect();
    let own = |line: &&str| !line.starts_with('$') && !line.starts_with("(exit code") && line.trim() != "...";
    let shown: Vec<&str> = block.lines().filter(own).filter(|line| is_compared(line)).collect();
    assert!(shown.len() >= 8, "{block}");
    for line in shown {
        assert!(printed.contains(&without_id(line)), "the README shows {line:?}, and printed is\n{output}");
    }
}
