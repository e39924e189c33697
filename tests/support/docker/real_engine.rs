//! The engine of this machine, with images that only one test uses.
//!
//! Output: a [`Workshop`] with a base image of its own, or a reason to skip. Everything that descends from the base
//! image goes when the workshop is dropped. Other users of the engine are left alone, so nothing here prunes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdmaprep::docker::build::{BuildRequest, Builder};
use rdmaprep::docker::config::{ClientConfig, ClientEnv};
use rdmaprep::docker::endpoint::Endpoint;
use rdmaprep::docker::engine::{Engine, EngineKind};

/// Longest wait for what the engine does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// Programs of busybox that the builds use.
const APPLETS: [&str; 8] = ["sh", "sleep", "echo", "printf", "cat", "test", "env", "dd"];

/// An engine and a base image.
pub struct Workshop {
    pub engine: Engine,
    /// Name of the base image.
    pub base: String,
    /// A number that no other test has.
    pub number: u64,
    base_layer: String,
}

/// Says why a test does not run. Returned early, so that the reason is in the output.
pub fn skip<T>(reason: &str) -> Option<T> {
    crate::support::say_skipped(reason);
    None
}

/// A program's path, where it is installed.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

impl Workshop {
    /// Connects and imports the base image.
    pub async fn open() -> Option<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        if program("docker").is_none() {
            return skip("the program docker is not installed");
        }
        let env = ClientEnv::from_process();
        let Ok(endpoint) = Endpoint::resolve(None, None, &env, &ClientConfig::default()) else {
            return skip("the environment names no usable Docker host");
        };
        let engine = match Engine::connect(&endpoint).await {
            Ok(engine) => engine,
            Err(error) => return skip(&error.to_string()),
        };
        if engine.info().kind != EngineKind::Docker || engine.info().os != "linux" {
            return skip("the engine is not Docker on Linux");
        }
        let number = u64::from(std::process::id()) * 1000 + u64::from(COUNTER.fetch_add(1, Ordering::Relaxed));
        let Some(archive) = busybox_archive(number) else {
            return skip("there is no static busybox");
        };
        let base = format!("rdmaprep-test-{number}/base:1");
        import(&base, &archive);
        let image = engine.inspect_image(&base).await.expect("an answer").expect("the imported image");
        Some(Self { engine, base, number, base_layer: image.diff_ids[0].clone() })
    }

    /// A name for an image of this test.
    pub fn tag(&self, name: &str) -> String {
        format!("rdmaprep-test-{}/{name}:1", self.number)
    }

    /// A build from the base image with these instructions.
    pub fn request(&self, builder: Builder, instructions: &str) -> BuildRequest {
        BuildRequest {
            dockerfile: format!("FROM {}\n{instructions}\n", self.base),
            builder,
            network: Some("none".to_owned()),
            ..BuildRequest::default()
        }
    }

    /// A duration for `sleep` that tells its process from all others.
    pub fn nap(&self) -> String {
        format!("{}", 100_000_000 + self.number % 100_000_000)
    }

    /// All images that descend from the base image, the base image included.
    pub fn images(&self) -> Vec<String> {
        let listing = docker(&["images", "--all", "--quiet", "--no-trunc"]);
        let format = "{{.Id}} {{if .RootFS.Layers}}{{index .RootFS.Layers 0}}{{end}}";
        let mut arguments = vec!["image", "inspect", "--format", format];
        arguments.extend(listing.lines());
        let inspected = docker(&arguments);
        let own =
            inspected.lines().filter_map(|line| line.split_once(' ')).filter(|(_, layer)| *layer == self.base_layer);
        let mut ids: Vec<String> = own.map(|(id, _)| id.to_owned()).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// Containers made from one of these images.
    pub fn containers(&self) -> Vec<String> {
        let filters: Vec<String> = self.images().iter().map(|id| format!("--filter=ancestor={id}")).collect();
        let mut arguments = vec!["ps", "--all", "--quiet"];
        arguments.extend(filters.iter().map(String::as_str));
        docker(&arguments).lines().map(str::to_owned).collect()
    }

    /// Waits until no process of this machine has `word` as an argument.
    pub fn wait_until_gone(&self, word: &str) -> bool {
        wait_until(|| !is_running(word))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        for container in self.containers() {
            docker(&["rm", "--force", &container]);
        }
        // A parent goes only after its children.
        loop {
            let images = self.images();
            if images.is_empty() {
                break;
            }
            for image in &images {
                docker(&["rmi", "--force", image]);
            }
            if self.images().len() == images.len() {
                break;
            }
        }
    }
}

/// Looks again and again until `done`, or patience ends.
pub fn wait_until(done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        std::thread::sleep(POLL);
    }
    false
}

/// Whether a process of this machine has `word` as an argument.
pub fn is_running(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("a process list").flatten();
    let has_word = |path: PathBuf| {
        let arguments = std::fs::read(path.join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    processes.map(|process| process.path()).any(has_word)
}

/// Runs the Docker client; its failures are for the caller's checks to notice.
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("running docker");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file system of busybox and `number`; `None` without a static busybox.
pub fn busybox_archive(number: u64) -> Option<Vec<u8>> {
    let busybox = std::fs::read(program("busybox")?).ok()?;
    let loader = b"/lib64/ld-linux";
    let is_static = !busybox.windows(loader.len()).any(|window| window == loader);
    is_static.then(|| root_file_system(&busybox, number))
}

fn root_file_system(busybox: &[u8], number: u64) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |path: &str, content: &[u8], link: Option<&Path>| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        match link {
            Some(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, path, target).expect("writing to memory");
            }
            None => archive.append_data(&mut header, path, content).expect("writing to memory"),
        }
    };
    add("bin/busybox", busybox, None);
    for applet in APPLETS {
        add(&format!("bin/{applet}"), &[], Some(Path::new("busybox")));
    }
    add("number", number.to_string().as_bytes(), None);
    archive.into_inner().expect("writing to memory")
}

fn import(name: &str, archive: &[u8]) {
    let mut import = Command::new("docker")
        .args(["import", "-", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("running docker");
    import.stdin.take().expect("a pipe").write_all(archive).expect("docker reads the archive");
    assert!(import.wait().expect("docker ends").success(), "importing {name}");
}
