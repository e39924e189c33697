//! A connection to one Docker engine.
//!
//! Input: an [`Endpoint`]. Output: an [`Engine`] whose API version is negotiated, and the daemon's description of itself.
//! Everything else of this module tree works on an `Engine`.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error as ClientError;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};

use super::address::{Address, TlsFiles};
use super::endpoint::Endpoint;
use super::error::{DockerError, from_client};
use super::ssh;

/// The client library waits this long for the head of a response. `docker save` prepares a whole image before it sends
/// one, and a build may pull for hours; cancelling is the caller's business, so this is only a last resort.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Requests that the daemon answers from memory.
pub(super) const CONTROL_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that change the image store; deleting tens of gigabytes takes a while.
pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Replaces a TLS file that does not exist: the client library insists on paths, and an empty file gives it nothing.
const NO_FILE: &str = "/dev/null";

/// Name of podman's entry in the component list of `/version`.
const PODMAN_COMPONENT: &str = "Podman Engine";

/// Who answers behind the Docker API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker, or anything that does not say otherwise.
    Docker,
    /// The Docker-compatible service of podman.
    Podman,
}

/// What the daemon says about itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EngineInfo {
    /// The address, without credentials.
    pub endpoint: String,
    /// Version of the daemon, empty if it gives none.
    pub version: String,
    /// API version in use: the highest that both sides speak.
    pub api_version: String,
    /// Who answers.
    pub kind: EngineKind,
    /// Operating system of the daemon, such as `linux`.
    pub os: String,
    /// Architecture of the daemon in Go's spelling, such as `amd64`.
    pub arch: String,
}

/// What the daemon says about its machine (`/info`); empty where it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineHost {
    pub hostname: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Names of the OCI runtimes, sorted.
    pub runtimes: Vec<String>,
    pub default_runtime: String,
    /// Directories searched for CDI specifications (Docker 25 and newer, if CDI is enabled).
    pub cdi_directories: Vec<String>,
    /// CDI devices that it found (API 1.50 and newer).
    pub cdi_devices: Vec<String>,
}

/// A connected engine. Clones share the connection settings.
#[derive(Debug, Clone)]
pub struct Engine {
    docker: Docker,
    endpoint: Endpoint,
    info: EngineInfo,
}

impl Engine {
    /// Connects, negotiates the API version and reads the daemon's version.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, DockerError> {
        let docker = open(endpoint)?;
        // Without a version in its path this request works with every daemon, and tells the highest version it speaks.
        let negotiation = docker.negotiate_version();
        let negotiated = call(endpoint, "negotiating the API version", CONTROL_TIMEOUT, negotiation).await;
        let docker = negotiated.map_err(|error| not_a_daemon(error, endpoint))?;
        let api_version = docker.client_version().to_string();
        let docker = correct(docker, &api_version);
        // This request carries the version, so a daemon that does not speak it reports that here and not during a build.
        let version = call(endpoint, "reading the daemon's version", CONTROL_TIMEOUT, docker.version()).await?;
        let info = describe(endpoint, api_version, version);
        tracing::debug!(?info, source = %endpoint.source(), "connected");
        Ok(Self { docker, endpoint: endpoint.clone(), info })
    }

    /// This engine on new connections, for another runtime: the connections of this value end with the runtime that
    /// opened them.
    pub(super) fn reopen(&self) -> Result<Self, DockerError> {
        let docker = correct(open(&self.endpoint)?, &self.info.api_version);
        Ok(Self { docker, endpoint: self.endpoint.clone(), info: self.info.clone() })
    }

    /// The daemon's description of its machine, as far as containers with GPUs need it.
    pub async fn host(&self) -> Result<EngineHost, DockerError> {
        let info = self.call("reading the daemon's settings", CONTROL_TIMEOUT, self.docker.info()).await?;
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let discovered = info.discovered_devices.unwrap_or_default().into_iter();
        Ok(EngineHost {
            hostname: info.name.unwrap_or_default(),
            kernel: info.kernel_version.unwrap_or_default(),
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            cdi_directories: info.cdi_spec_dirs.unwrap_or_default(),
            cdi_devices: discovered
                .filter(|device| device.source.as_deref() == Some("cdi"))
                .filter_map(|d| d.id)
                .collect(),
        })
    }

    /// What the daemon says about itself.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Where the daemon is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn client(&self) -> &Docker {
        &self.docker
    }

    /// Runs one request with a limit; `operation` reads as `inspecting the image x`.
    pub(super) async fn call<T>(
        &self,
        operation: &str,
        limit: Duration,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, DockerError> {
        call(&self.endpoint, operation, limit, request).await
    }
}

/// On the first request, a response that makes no sense means that something else is listening.
fn not_a_daemon(error: DockerError, endpoint: &Endpoint) -> DockerError {
    let detail = match error {
        DockerError::Protocol { detail, .. } => detail,
        DockerError::Daemon { status: 404, message, .. } => format!("404: {message}"),
        other => return other,
    };
    let detail = format!("no Docker daemon answers there: {detail}");
    DockerError::Unreachable { endpoint: endpoint.to_string(), detail }
}

/// The client library's limit ends with the head of a response; this one covers the body too.
async fn call<T>(
    endpoint: &Endpoint,
    operation: &str,
    limit: Duration,
    request: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, DockerError> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(from_client(error, endpoint, operation)),
        Err(_) => {
            Err(DockerError::Timeout { endpoint: endpoint.to_string(), operation: operation.to_owned(), after: limit })
        }
    }
}

fn open(endpoint: &Endpoint) -> Result<Docker, DockerError> {
    let timeout = ANSWER_TIMEOUT.as_secs();
    let client = match endpoint.address() {
        Address::Unix { path } => Docker::connect_with_unix(&path.to_string_lossy(), timeout, API_DEFAULT_VERSION),
        Address::Http { authority } => Docker::connect_with_http(authority, timeout, API_DEFAULT_VERSION),
        Address::Https { authority, tls } => {
            check_tls_files(endpoint, tls)?;
            let file = |path: &Option<PathBuf>| path.clone().unwrap_or_else(|| PathBuf::from(NO_FILE));
            let (key, cert, ca) = (file(&tls.key), file(&tls.cert), file(&tls.ca));
            Docker::connect_with_ssl(authority, &key, &cert, &ca, timeout, API_DEFAULT_VERSION)
        }
        Address::Ssh(target) => ssh::connect(target, timeout, API_DEFAULT_VERSION),
    };
    client.map_err(|error| from_client(error, endpoint, "connecting"))
}

/// The client library silently drops a client certificate that it cannot use; the daemon then only reports that there
/// was none.
fn check_tls_files(endpoint: &Endpoint, tls: &TlsFiles) -> Result<(), DockerError> {
    let fail = |path: &Path, problem: &str| DockerError::Tls {
        endpoint: endpoint.to_string(),
        detail: format!("{} {problem}", path.display()),
    };
    let wanted = [(&tls.ca, "CERTIFICATE-----"), (&tls.cert, "CERTIFICATE-----"), (&tls.key, "PRIVATE KEY-----")];
    for (path, marker) in wanted {
        let Some(path) = path else { continue };
        let text = std::fs::read_to_string(path).map_err(|error| fail(path, &format!("cannot be read: {error}")))?;
        if !text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(marker)) {
            return Err(fail(path, "holds no PEM block of the expected kind"));
        }
    }
    match (&tls.cert, &tls.key) {
        (Some(cert), None) => Err(fail(cert, "has no key.pem next to it")),
        (None, Some(key)) => Err(fail(key, "has no cert.pem next to it")),
        _ => Ok(()),
    }
}

/// Corrects every request, see [`adapt`].
fn correct(docker: Docker, api_version: &str) -> Docker {
    let prefix = format!("/v{api_version}");
    docker.with_request_modifier(move |request| adapt(request, &prefix))
}

/// Corrects two things in every request of the client library 0.21.1.
///
/// Its paths lack the negotiated version (joining a URL with an absolute path drops what stood before), so a daemon
/// would answer in the format of its newest API. And it encodes credentials with the standard base64 alphabet, while
/// engines decode the URL-safe one, so that some passwords fail.
fn adapt(mut request: BollardRequest, version_prefix: &str) -> BollardRequest {
    let uri = request.uri();
    if let (Some(scheme), Some(authority), Some(path)) = (uri.scheme_str(), uri.authority(), uri.path_and_query())
        && !path.path().strip_prefix(version_prefix).is_some_and(|rest| rest.starts_with('/'))
        && let Ok(versioned) = format!("{scheme}://{authority}{version_prefix}{path}").parse()
    {
        *request.uri_mut() = versioned;
    }
    for name in ["x-registry-auth", "x-registry-config"] {
        let Some(value) = request.headers_mut().get_mut(name) else {
            continue;
        };
        if let Some(url_safe) = value.to_str().ok().and_then(|text| to_url_safe(text).parse().ok()) {
            *value = url_safe;
            value.set_sensitive(true);
        }
    }
    request
}

/// The two base64 alphabets differ in two characters only.
fn to_url_safe(base64: &str) -> String {
    base64.replace('+', "-").replace('/', "_")
}

fn describe(endpoint: &Endpoint, api_version: String, version: SystemVersion) -> EngineInfo {
    let is_podman = version.components.iter().flatten().any(|component| component.name == PODMAN_COMPONENT);
    EngineInfo {
        endpoint: endpoint.to_string(),
        version: version.version.unwrap_or_default(),
        api_version,
        kind: if is_podman { EngineKind::Podman } else { EngineKind::Docker },
        os: version.os.unwrap_or_default(),
        arch: version.arch.unwrap_or_default(),
    }
}
