//! The commands of the README's tours, run one after another as a reader would run them.
//!
//! Every `sh` block of the README is in a tour. A line's comment says how it ends where that is not 0: `# exit 1: …`; `# needs a
//! GPU` ends with 4 on a machine without one. The CI examples (`yaml` blocks) are read as YAML, and what they tell a shell to
//! do is run, too. The images, the vendor's mirror and a registry are the rig's: `rdmaprep build` gets `--mirror` and
//! `--network` from the test, and nothing else is changed.

#[path = "support/docker/real_engine.rs"]
#[allow(dead_code, reason = "of the engine only what the registry needs")]
mod real_engine;
#[path = "support/docker/registry.rs"]
mod registry;
mod support;
mod skipping {
    pub use crate::support::say_skipped;
}

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
    /// Of its first line, from 1.
    line: usize,
}

/// The headings whose `sh` blocks are run, each with a test of its own.
const TOURS: [&str; 3] = ["For whoever maintains an image", "For a CI pipeline", "For whoever submits a job"];

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
    /// Variables that a CI service would set.
    variables: Vec<(&'static str, String)>,
    _mirror: Mirror,
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
        Some(Reader { home, variables: Vec::new(), _mirror: mirror, _images: images })
    }

    /// Runs one command with a shell.
    fn shell(&self, program: &str, flags: &str, command: &str) -> Ran {
        let path = format!("{}/bin:{}", self.home.path().display(), std::env::var("PATH").unwrap());
        let mut process = Command::new(program);
        process.args([flags, command]).current_dir(self.home.path()).stdin(Stdio::null());
        process.env("PATH", path).env("HOME", self.home.path()).env("DOCKER_BUILDKIT", "0").env_remove("DOCKER_CONFIG");
        process.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        run(&mut process)
    }

    fn run_block(&self, block: &Block) {
        for (command, expected) in commands(block) {
            let code = match expected {
                Expected::Exit(code) => code,
                Expected::NeedsGpu if Path::new("/dev/nvidiactl").exists() => 0,
                Expected::NeedsGpu => 4,
            };
            let ran = self.shell("sh", "-ec", &command);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, Some(code), "README block at line {}: {command}\n{said}", block.line);
        }
    }

    /// Runs what a CI service would run of a block.
    fn run_scripts(&self, block: &Block, shell: &str, scripts: &[String]) {
        assert!(!scripts.is_empty(), "README block at line {} runs nothing", block.line);
        for script in scripts {
            let ran = self.shell(shell, "-ec", script);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, Some(0), "README block at line {}: {script}\n{said}", block.line);
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

/// The `run:` scripts of a workflow of GitHub Actions, in order.
fn workflow_scripts(workflow: &Value) -> Vec<String> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    let steps = jobs.flat_map(|job| job["steps"].as_array().unwrap());
    steps.filter_map(|step| step["run"].as_str()).map(str::to_owned).collect()
}

/// The `script:` lines of a pipeline of GitLab, in the order of its stages.
fn pipeline_scripts(pipeline: &Value) -> Vec<String> {
    let stages = pipeline["stages"].as_array().unwrap();
    let jobs =
        |stage: &Value| pipeline.as_object().unwrap().values().filter(|job| job["stage"] == *stage).collect::<Vec<_>>();
    let lines = stages.iter().flat_map(jobs).flat_map(|job| job["script"].as_array().unwrap());
    lines.map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// One after another: they use the same names.
#[test]
fn the_tours() {
    let Some(mut reader) = Reader::new() else { return };
    let (mut shell_blocks, mut ci_blocks) = (0, 0);
    for block in readme().iter().filter(|block| TOURS.contains(&block.heading.as_str())) {
        match block.language.as_str() {
            "sh" => {
                reader.run_block(block);
                shell_blocks += 1;
            }
            "yaml" => {
                let Some(text) = yaml(&block.text) else { continue };
                if text["jobs"].is_object() {
                    github_actions(&mut reader, block, &text);
                } else {
                    gitlab(&mut reader, block, &text);
                }
                ci_blocks += 1;
            }
            _ => {}
        }
    }
    assert!(shell_blocks >= 5 && ci_blocks <= 2, "{shell_blocks} blocks of commands, {ci_blocks} of CI");
    for (file, said) in [
        ("Dockerfile.erdma", "jammy/erdma"),
        ("job.json", "\"EcsSpec\": \"ecs.ebmgn8v.48xlarge\""),
        ("mpijob.yaml", "aliyun/erdma: 1"),
        ("pytorchjob.yaml", "rdma/hca: 1"),
    ] {
        assert!(reader.file(file).contains(said), "{file} has no {said:?}:\n{}", reader.file(file));
    }
}

fn github_actions(reader: &mut Reader, block: &Block, workflow: &Value) {
    // The program is downloaded over the one that is there.
    let program = reader.home.path().join("bin/rdmaprep");
    let published = reader.home.path().join("published");
    std::fs::copy(&program, &published).unwrap();
    reader.variables = vec![
        ("RDMAPREP_URL", format!("file://{}", published.display())),
        ("GITHUB_PATH", reader.home.path().join("github-path").display().to_string()),
    ];
    reader.run_scripts(block, "bash", &workflow_scripts(workflow));
    assert_eq!(reader.file("github-path").trim(), reader.home.path().join("bin").display().to_string());
    let sarif: Value = serde_json::from_str(&reader.file("rdmaprep.sarif")).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
}

fn gitlab(reader: &mut Reader, block: &Block, pipeline: &Value) {
    let Some(registry) = Registry::start() else { return };
    let image = format!("{}/team/train", registry.address);
    let mut images = Names::new();
    images.add(&format!("{image}:1a2b3c4d"));
    images.add(&format!("{image}:1a2b3c4d-erdma"));
    reader.variables = vec![
        ("CI_REGISTRY", registry.address.clone()),
        ("CI_REGISTRY_USER", USER.to_owned()),
        ("CI_REGISTRY_PASSWORD", PASSWORD.to_owned()),
        ("CI_REGISTRY_IMAGE", image),
        ("CI_COMMIT_SHORT_SHA", "1a2b3c4d".to_owned()),
    ];
    reader.run_scripts(block, "sh", &pipeline_scripts(pipeline));
    assert!(reader.file("rdmaprep.xml").contains("<testsuites"));
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
