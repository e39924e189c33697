//! A registry with a password, on a loopback port.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::real_engine::{program, skip, wait_until};

/// The user of the registry.
pub const USER: &str = "bob";

/// A password whose base64 form differs between the two alphabets.
pub const PASSWORD: &str = "pa?ss>wo~rd/+";

/// Debian's `docker-registry`, for as long as this value lives.
pub struct Registry {
    /// `host:port`, which the engine reaches without TLS.
    pub address: String,
    process: Child,
    _directory: tempfile::TempDir,
}

impl Registry {
    /// Starts it; needs `docker-registry`, and `htpasswd` of `apache2-utils`.
    pub fn start() -> Option<Self> {
        for name in ["docker-registry", "htpasswd"] {
            if program(name).is_none() {
                return skip(&format!("the program {name} is not installed"));
            }
        }
        let directory = tempfile::tempdir().expect("temporary directory");
        let dir = directory.path().display();
        let users = Command::new("htpasswd").args(["-Bbn", USER, PASSWORD]).output().expect("running htpasswd");
        std::fs::write(directory.path().join("users"), users.stdout).expect("writing the users");

        let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {dir}/data}}}}\n\
             http: {{addr: '{address}'}}\nauth: {{htpasswd: {{realm: test, path: {dir}/users}}}}\n"
        );
        let path = directory.path().join("config.yml");
        std::fs::write(&path, config).expect("writing the configuration");
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting docker-registry");
        let registry = Self { address: address.to_string(), process, _directory: directory };
        assert!(wait_until(|| TcpStream::connect(address).is_ok()), "the registry listens");
        Some(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
