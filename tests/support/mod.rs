//! What the integration tests share: the program under test, the rig, and honest skipping.

pub mod docker;
pub mod image_fixture;
pub mod oci_fixture;
pub mod own_process;
pub mod readelf;
pub mod run_fixture;
pub mod schema;
pub mod skipping;
pub mod standin;
pub mod sysfs_fixture;
pub mod tls_registry;
pub mod unruly_server;
pub mod wheels;

/// The change of an image of Debian packages.
pub fn apt_swap(plan: &rdmaprep::plan::SwapPlan) -> &rdmaprep::plan::AptSwap {
    match &plan.change {
        rdmaprep::plan::Change::Apt(swap) => swap,
        other => panic!("{other:?}"),
    }
}

pub use skipping::say_skipped;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub const BASE: &str = "rdmaprep-test/base:latest";
pub const OFED: &str = "rdmaprep-test/ofed:latest";

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn rig_dir() -> PathBuf {
    std::env::var_os("RDMAPREP_RIG_DIR").map_or_else(|| root().join("target/rig"), PathBuf::from)
}

/// Lints a Dockerfile; any finding fails the test.
pub fn hadolint(dockerfile: &str) {
    let program = rig_dir().join("venv/bin/hadolint");
    if !program.exists() {
        return say_skipped("hadolint is not installed (tests/rig/deps.sh test)");
    }
    let mut child = Command::new(program).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(dockerfile.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{dockerfile}", String::from_utf8_lossy(&output.stdout));
}

/// The program under test, with an environment that does not depend on the machine's.
pub fn rdmaprep() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdmaprep"));
    for name in
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "DOCKER_CONFIG", "NO_COLOR"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// What a finished program said.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: &Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub fn expect(&self, code: i32) -> &Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub fn says(&self, text: &str) -> &Ran {
        assert!(self.stderr.contains(text), "{text:?} is not in stderr:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn prints(&self, text: &str) -> &Ran {
        assert!(self.stdout.contains(text), "{text:?} is not in stdout:\n{}", self.stdout);
        self
    }
}

pub fn run(command: &mut Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

/// Runs a program that must succeed and gives its stdout.
#[track_caller]
pub fn must(program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).args(args).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let ran = Ran::of(&output);
    assert!(output.status.success(), "{program} {args:?}: {}{}", ran.stdout, ran.stderr);
    ran.stdout
}

/// How often a test on random input goes round: `few` times, or as many times that as `RDMAPREP_ROUNDS` says (`make oracles`).
/// A generator that starts from the same number each time then makes what it made before, and more.
pub fn rounds(few: u64) -> u64 {
    let factor = std::env::var("RDMAPREP_ROUNDS").ok();
    few * factor.map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("RDMAPREP_ROUNDS is not a number: {text}")))
}

/// Makes images and repository, once; `false`: there is no engine, and the test says that it was skipped.
pub fn rig() -> bool {
    static RIG: OnceLock<Result<(), String>> = OnceLock::new();
    let ready = RIG.get_or_init(|| {
        let engine = Command::new("docker").arg("version").output();
        if !engine.is_ok_and(|output| output.status.success()) {
            return Err("no Docker engine answers".to_owned());
        }
        for script in ["base.sh", "repo.sh"] {
            let output = Command::new(root().join("tests/rig").join(script)).output().unwrap();
            assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    });
    match ready {
        Ok(()) => true,
        Err(reason) => {
            say_skipped(reason);
            false
        }
    }
}

/// The vendor's repository on loopback; ends with this value.
pub struct Mirror {
    server: Child,
    pub address: String,
}

impl Mirror {
    pub fn start() -> Mirror {
        Mirror::of("repo")
    }

    /// A folder of the rig that holds `erdma`.
    pub fn of(folder: &str) -> Mirror {
        let mut server = Command::new(root().join("tests/rig/serve.py"))
            .arg(rig_dir().join(folder))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening ").unwrap_or_else(|| panic!("the server said {line:?}"));
        Mirror { address: format!("{address}/erdma"), server }
    }

    /// The options that lead to it.
    pub fn options(&self) -> [&str; 6] {
        ["--mirror", &self.address, "--suite", "bookworm/erdma", "--network", "host"]
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // It ends when its stdin closes.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

/// Image names of one test; the images go with this value.
pub struct Names {
    names: Vec<String>,
}

impl Names {
    pub fn new() -> Names {
        Names { names: Vec::new() }
    }

    pub fn unique(&mut self, label: &str) -> String {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rdmaprep-test/{label}:{}-{number}", std::process::id());
        self.names.push(name.clone());
        name
    }

    pub fn add(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("docker").args(["rmi", "-f", name]).output();
        }
    }
}

/// Builds a small image on another one with the docker command.
pub fn derive_image(name: &str, dockerfile: &str) {
    let mut child = Command::new("docker")
        .args(["build", "-q", "--network", "host", "-t", name, "-"])
        .env("DOCKER_BUILDKIT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(dockerfile.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Builds a Dockerfile that must not build, and gives what was said.
pub fn refused_build(dockerfile: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("Dockerfile"), dockerfile).unwrap();
    let output = Command::new("docker")
        .args(["build", "-q", "--force-rm", "--network", "host", &dir.path().display().to_string()])
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .unwrap();
    assert!(!output.status.success(), "it builds:\n{dockerfile}");
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Fails if two images of one base differ in their settings, or in what the layers above the base have outside of `left_out`.
#[track_caller]
pub fn assert_same_outcome(images: [&str; 2], left_out: &[&str]) {
    let settings = images.map(|image| {
        let format = "{{.Config.User}} {{.Config.Cmd}} {{.Config.Entrypoint}} {{.Config.Env}} {{.Config.Shell}}";
        must("docker", &["image", "inspect", "-f", format, image])
    });
    assert_eq!(settings[0], settings[1]);
    let [one, other] = own_layers(images);
    let is_compared = |path: &str| !left_out.iter().any(|left_out| path.starts_with(left_out));
    let own = |of: &BTreeMap<String, String>| {
        let entries = of.iter().filter(|(path, _)| is_compared(path));
        entries.map(|(path, what)| format!("{path} {what}")).collect::<BTreeSet<_>>()
    };
    let [one, other] = [own(&one), own(&other)];
    assert!(one.len() > 30, "{one:?}");
    let only_one: Vec<_> = one.difference(&other).collect();
    let only_other: Vec<_> = other.difference(&one).collect();
    assert!(one == other, "only in the first: {only_one:#?}\nonly in the second: {only_other:#?}");
}

/// Path → kind, mode, owner and content of each entry in the layers that only one of two images has.
fn own_layers(images: [&str; 2]) -> [BTreeMap<String, String>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("images.tar");
    must("docker", &["save", "-o", &archive.display().to_string(), images[0], images[1]]);
    let file = |name: &str| {
        let mut archive = tar::Archive::new(std::fs::File::open(&archive).unwrap());
        let mut entries = archive.entries().unwrap().map(Result::unwrap);
        let mut entry = entries.find(|entry| entry.path().unwrap() == Path::new(name)).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        content
    };
    let manifest: serde_json::Value = serde_json::from_slice(&file("manifest.json")).unwrap();
    let layers_of = |image: &str| -> Vec<String> {
        let is_it = |entry: &&serde_json::Value| entry["RepoTags"].as_array().unwrap().iter().any(|tag| tag == image);
        let entry = manifest.as_array().unwrap().iter().find(is_it).unwrap();
        entry["Layers"].as_array().unwrap().iter().map(|layer| layer.as_str().unwrap().to_owned()).collect()
    };
    let layers = images.map(layers_of);
    [0, 1].map(|which| {
        let own = layers[which].iter().filter(|layer| !layers[1 - which].contains(layer));
        let mut entries = BTreeMap::new();
        for layer in own {
            let content = file(layer);
            for entry in tar::Archive::new(content.as_slice()).entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                let header = entry.header().clone();
                let (kind, mode) = (header.entry_type(), header.mode().unwrap());
                let owner = (header.uid().unwrap(), header.gid().unwrap());
                let link = entry.link_name().unwrap().map(|link| link.display().to_string());
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                let digest = crc(&content);
                entries.insert(path, format!("{kind:?} {mode:o} {owner:?} {link:?} {digest:08x}"));
            }
        }
        entries
    })
}

fn crc(content: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    crc.sum()
}

/// The functions of these scripts as the shell gets them from a builder: one line, without comments.
pub fn joined_functions(scripts: &[&str]) -> String {
    let text: Vec<String> = scripts.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let run = rdmaprep::dockerfile::script::join_run(&text.join("\n"), &[":".to_owned()]);
    let lines = run.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined: String = lines.map(|line| line.strip_suffix('\\').unwrap_or(line)).collect();
    joined.strip_prefix("RUN ").unwrap().to_owned()
}
