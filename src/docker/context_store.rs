//! The contexts that the Docker client keeps below its configuration directory.
//!
//! Input: the directory and a context's name. Output: the host and the TLS files of its `docker` endpoint. A context
//! lives in `contexts/meta/<sha256 of its name>/meta.json`, its certificates in `contexts/tls/<sha256>/docker/`.

use crate::remedy::Remedy;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::address::TlsFiles;

/// Why a context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No context of that name.
    #[error("looking up the Docker context `{name}`: no such context; known contexts: {}", list(known))]
    Unknown { name: String, known: Vec<String> },
    /// The context's file cannot be read.
    #[error("reading the Docker context `{name}` from {}", path.display())]
    Read { name: String, path: PathBuf, source: std::io::Error },
    /// The context's file is not what the Docker client writes.
    #[error("parsing the Docker context `{name}` from {}", path.display())]
    Parse { name: String, path: PathBuf, source: serde_json::Error },
    /// The context has no endpoint of the kind `docker`, or one without a host.
    #[error("using the Docker context `{name}`: it names no Docker host")]
    NoHost { name: String },
    /// The context uses TLS without checking the daemon's certificate.
    #[error(
        "using the Docker context `{name}`: it skips the check of the daemon's certificate, which is not supported"
    )]
    SkipsVerification { name: String },
}

impl Remedy for ContextError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => Some("list the contexts with `docker context ls`".to_owned()),
            Self::Read { name, .. } | Self::Parse { name, .. } | Self::NoHost { name } => {
                Some(format!("look at the context with `docker context inspect {name}`"))
            }
            Self::SkipsVerification { name } => Some(format!(
                "give the context the daemon's authority: `docker context update {name} --docker host=…,ca=…`"
            )),
        }
    }
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = std::iter::once("default").chain(names.iter().map(String::as_str)).map(quote).collect();
    quoted.join(", ")
}

fn quote(name: &str) -> String {
    format!("`{name}`")
}

/// The `docker` endpoint of a context.
#[derive(Debug)]
pub(super) struct StoredContext {
    pub(super) host: String,
    pub(super) tls: TlsFiles,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Meta {
    name: String,
    #[serde(default)]
    endpoints: Endpoints,
}

#[derive(Default, Deserialize)]
struct Endpoints {
    docker: Option<DockerEndpoint>,
}

#[derive(Deserialize)]
struct DockerEndpoint {
    #[serde(rename = "Host", default)]
    host: String,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

/// Loads the context `name` from below `config_dir`.
pub(super) fn load(config_dir: Option<&Path>, name: &str) -> Result<StoredContext, ContextError> {
    let unknown = |known| ContextError::Unknown { name: name.to_owned(), known };
    let dir = config_dir.ok_or_else(|| unknown(Vec::new()))?.join("contexts");
    let id = directory_name(name);
    let path = dir.join("meta").join(&id).join("meta.json");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Err(unknown(known(&dir))),
        Err(source) => {
            return Err(ContextError::Read { name: name.to_owned(), path, source });
        }
    };
    let meta: Meta =
        serde_json::from_str(&text).map_err(|source| ContextError::Parse { name: name.to_owned(), path, source })?;
    let docker = meta.endpoints.docker.filter(|docker| !docker.host.is_empty());
    let docker = docker.ok_or_else(|| ContextError::NoHost { name: name.to_owned() })?;
    let tls = TlsFiles::in_dir(&dir.join("tls").join(&id).join("docker"));
    // The flag is also set for sockets, which have no certificate to check.
    let is_tcp = docker.host.starts_with("tcp://") || docker.host.starts_with("https://");
    if docker.skip_tls_verify && is_tcp {
        return Err(ContextError::SkipsVerification { name: name.to_owned() });
    }
    Ok(StoredContext { host: docker.host, tls })
}

/// Names of all contexts below `contexts/`; unreadable ones are left out.
fn known(contexts: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(contexts.join("meta")) else {
        return Vec::new();
    };
    let name = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("meta.json")).ok()?;
        serde_json::from_str::<Meta>(&text).ok().map(|meta| meta.name)
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| name(entry.path())).collect();
    names.sort();
    names
}

fn directory_name(context: &str) -> String {
    Sha256::digest(context.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes a context the way `docker context create` lays it out.
    pub(in crate::docker) fn write(config_dir: &Path, name: &str, host: &str, skip_tls_verify: bool, tls: &[&str]) {
        let contexts = config_dir.join("contexts");
        let meta = contexts.join("meta").join(directory_name(name));
        std::fs::create_dir_all(&meta).expect("creating the fixture");
        let text = format!(
            r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":{skip_tls_verify}}}}}}}"#
        );
        std::fs::write(meta.join("meta.json"), text).expect("writing the fixture");
        let dir = contexts.join("tls").join(directory_name(name)).join("docker");
        std::fs::create_dir_all(&dir).expect("creating the fixture");
        for file in tls {
            std::fs::write(dir.join(file), "x").expect("writing the fixture");
        }
    }

    #[test]
    fn directory_is_the_digest_of_the_name() {
        // `docker context create gpu` of the Docker client 28.2.2 made this directory.
        assert_eq!(directory_name("gpu"), "e3c5ba51dba85ab0c990db5e309f4d7bdb282470fb02aee75b9022c1399e91c8");
    }

    #[test]
    fn unknown_context_lists_the_known_ones() {
        let dir = tempfile::tempdir().expect("temporary directory");
        write(dir.path(), "zeta", "tcp://z:1", false, &[]);
        write(dir.path(), "alpha", "tcp://a:1", false, &[]);
        let error = load(Some(dir.path()), "gone").expect_err("there is no such context");
        assert_eq!(
            error.to_string(),
            "looking up the Docker context `gone`: no such context; known contexts: `default`, `alpha`, `zeta`"
        );
        assert!(load(None, "gone").is_err());
    }

    #[test]
    fn damaged_contexts_are_told_apart() {
        let dir = tempfile::tempdir().expect("temporary directory");
        write(dir.path(), "empty", "", false, &[]);
        assert!(matches!(load(Some(dir.path()), "empty"), Err(ContextError::NoHost { .. })));

        write(dir.path(), "blind", "tcp://h:1", true, &["ca.pem"]);
        assert!(matches!(load(Some(dir.path()), "blind"), Err(ContextError::SkipsVerification { .. })));
        write(dir.path(), "local", "unix:///run/d.sock", true, &[]);
        assert!(load(Some(dir.path()), "local").is_ok());

        let meta = dir.path().join("contexts/meta").join(directory_name("local")).join("meta.json");
        std::fs::write(&meta, "{").expect("writing the fixture");
        assert!(matches!(load(Some(dir.path()), "local"), Err(ContextError::Parse { .. })));
    }
}
