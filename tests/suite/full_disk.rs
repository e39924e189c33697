//! A build on an engine whose disk is full: an engine of its own, on a small file system, in a network namespace of its
//! own (an engine without a bridge would take the host's `docker0` away).

use crate::support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::*;
use tempfile::TempDir;

/// Free space that is left for the build, in bytes: enough to start it, too little for apt's indexes.
const LEFT_BYTES: u64 = 1_500_000;

struct SmallEngine {
    dir: TempDir,
    daemon: Child,
    mirror: Child,
}

impl SmallEngine {
    /// `Err`: why there cannot be one here.
    fn start() -> Result<SmallEngine, String> {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1g", "tmpfs"]).arg(&disk).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return Err("mounting a tmpfs is not allowed here".to_owned());
        }
        std::fs::write(dir.path().join("daemon.json"), "{}").unwrap();
        let driver = must("docker", &["info", "--format", "{{.Driver}}"]);
        let at = |name: &str| dir.path().join(name).display().to_string();
        let script = format!(
            "ip link set lo up && exec dockerd --config-file {} --data-root {}/data --exec-root {} --pidfile {} -H unix://{} \
             --bridge=none --iptables=false --ip6tables=false --storage-driver {}",
            at("daemon.json"),
            at("disk"),
            at("exec"),
            at("pid"),
            at("sock"),
            driver.trim(),
        );
        let log = std::fs::File::create(at("log")).unwrap();
        let daemon = Command::new("unshare")
            .args(["--net", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut engine = SmallEngine { daemon, mirror: Command::new("true").spawn().unwrap(), dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !engine.docker(&["version"]).status().unwrap().success() {
            if engine.daemon.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(engine.path("log")).unwrap();
                return Err(format!("a second engine does not start here: {}", log.lines().last().unwrap_or_default()));
            }
            std::thread::yield_now();
        }
        engine.mirror = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", engine.daemon.id()))
            .arg(root().join("tests/rig/serve.py"))
            .arg(rig_dir().join("repo"))
            .args(["--port", "8000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Ok(engine)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn host(&self) -> String {
        format!("unix://{}", self.path("sock"))
    }

    fn docker(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.args(["-H", &self.host()]).args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn load(&self, image: &str) {
        let mut save = Command::new("docker").args(["save", image]).stdout(Stdio::piped()).spawn().unwrap();
        let loaded = self.docker(&["load"]).stdin(save.stdout.take().unwrap()).status().unwrap();
        assert!(save.wait().unwrap().success() && loaded.success());
    }

    fn fill(&self) {
        let disk = self.path("disk");
        let free: u64 = must("df", &["--output=avail", "-B1", &disk]).lines().last().unwrap().trim().parse().unwrap();
        must("fallocate", &["-l", &(free - LEFT_BYTES).to_string(), &format!("{disk}/fill")]);
    }
}

impl Drop for SmallEngine {
    fn drop(&mut self) {
        drop(self.mirror.stdin.take());
        let _ = self.mirror.wait();
        // `sh` became the daemon, so this is its process id.
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
        let disk = self.path("disk");
        let _ = Command::new("umount").arg("-R").arg(Path::new(&disk)).status();
    }
}

#[test]
fn no_space_left() {
    if !rig() {
        return;
    }
    let engine = match SmallEngine::start() {
        Ok(engine) => engine,
        Err(reason) => return say_skipped(&reason),
    };
    engine.load("rdmaprep-test/debian:12");
    engine.fill();
    for builder in ["buildkit", "classic"] {
        let ran = run(rdmaprep()
            .args(["-H", &engine.host(), "build", "rdmaprep-test/debian:12", "-t", "full:1", "--target", "ecs"])
            .args(["--builder", builder, "--network", "host", "--mirror", "http://127.0.0.1:8000/erdma"])
            .args(["--suite", "bookworm/erdma"]));
        ran.expect(4).says("the engine's disk is full").says("docker system prune");
    }
}
