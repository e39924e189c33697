//! Debian's `docker-registry` with TLS and a password on a loopback port, and a hand-made push over its HTTP API.

use super::oci_fixture::{Parts, blob_name};
use crate::support::say_skipped;
use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The user of the registry.
pub const USER: &str = "bob";
/// A password whose base64 form differs between the two alphabets.
pub const PASSWORD: &str = "pa?ss>wo~rd/+";

/// A registry for as long as this value lives.
pub struct TlsRegistry {
    /// `host:port`
    pub address: String,
    /// Certificate of the throwaway authority that signed the registry's.
    pub ca: PathBuf,
    process: Child,
    directory: tempfile::TempDir,
}

impl TlsRegistry {
    /// Starts it; `None`, and said so, where a program that it needs is missing.
    pub fn start() -> Option<TlsRegistry> {
        for program in ["docker-registry", "htpasswd", "openssl", "curl"] {
            if Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                say_skipped(&format!("the program {program} is not installed"));
                return None;
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        make_certificates(dir);
        let users = Command::new("htpasswd").args(["-Bbn", USER, PASSWORD]).output().unwrap();
        std::fs::write(dir.join("users"), users.stdout).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).unwrap();
        let shown = dir.display();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {shown}/data}}}}\n\
             http: {{addr: '{address}', tls: {{certificate: {shown}/server.pem, key: {shown}/server.key}}}}\n\
             auth: {{htpasswd: {{realm: test, path: {shown}/users}}}}\n"
        );
        std::fs::write(dir.join("config.yml"), config).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.join("config.yml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let registry = TlsRegistry { address: address.to_string(), ca: dir.join("ca.pem"), process, directory };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            let log = std::fs::read_to_string(registry.directory.path().join("log")).unwrap();
            assert!(Instant::now() < deadline, "the registry does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    /// Pushes blobs, then manifests (those in indexes before the indexes), each under its digest, and tags.
    pub fn push(&self, repository: &str, parts: &Parts, tags: &[(&Value, &str)]) {
        for (name, bytes) in parts.0.iter().filter(|(name, _)| name.starts_with("blobs/")) {
            let digest = format!("sha256:{}", name.trim_start_matches("blobs/sha256/"));
            let headers = self.curl(&["-i", "-X", "POST", &self.url(&format!("{repository}/blobs/uploads/"))], b"");
            let location = headers.lines().find_map(|line| line.strip_prefix("Location: ")).expect("an upload").trim();
            let joined = if location.contains('?') { '&' } else { '?' };
            let url = format!("{location}{joined}digest={digest}");
            self.curl(
                &["-X", "PUT", "-H", "Content-Type: application/octet-stream", "--data-binary", "@-", &url],
                bytes,
            );
        }
        let put = |descriptor: &Value, name: &str| {
            let kind = format!("Content-Type: {}", descriptor["mediaType"].as_str().unwrap());
            let url = self.url(&format!("{repository}/manifests/{name}"));
            self.curl(&["-X", "PUT", "-H", &kind, "--data-binary", "@-", &url], &parts.0[&blob_name(descriptor)]);
        };
        for (descriptor, tag) in tags {
            let document = parts.manifest(descriptor);
            for inner in document["manifests"].as_array().into_iter().flatten() {
                put(inner, inner["digest"].as_str().unwrap());
            }
            put(descriptor, tag);
        }
    }

    /// Puts other bytes where a blob is stored, as many as there were: the registry sends them under the same digest.
    pub fn damage(&self, digest: &str, content: &[u8], size: u64) {
        let hex = digest.trim_start_matches("sha256:");
        let path = format!("data/docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]);
        let path = self.directory.path().join(path);
        let mut content = content.to_vec();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
        content.resize(usize::try_from(size).unwrap(), b' ');
        std::fs::write(path, content).unwrap();
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}/v2/{path}", self.address)
    }

    fn curl(&self, args: &[&str], body: &[u8]) -> String {
        let mut child = Command::new("curl")
            .args(["-sS", "--http1.1", "--fail-with-body", "--noproxy", "*", "--cacert"])
            .arg(&self.ca)
            .args(["-u", &format!("{USER}:{PASSWORD}")])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // curl does not read what it is not to send.
        let _ = child.stdin.take().unwrap().write_all(body);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "curl {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

impl Drop for TlsRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A throwaway authority, and a certificate of it for the loopback address.
fn make_certificates(dir: &Path) {
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    openssl(
        &[&["req", "-x509", "-days", "2", "-subj", "/CN=throwaway", "-keyout", "ca.key", "-out", "ca.pem"], &key[..]]
            .concat(),
    );
    openssl(&[&["req", "-subj", "/CN=127.0.0.1", "-keyout", "server.key", "-out", "server.csr"], &key[..]].concat());
    std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-extfile",
        "names",
        "-out",
        "server.pem",
    ]);
}
