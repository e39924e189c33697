//! Images in a registry: a name → [`Image`](crate::image::Image), fetching only what is needed and storing nothing on disk.
//!
//! Manifest and config are fetched and checked before any layer is requested; layers stream straight into the index, at
//! most two at a time. TLS is the rule; plain HTTP must be requested, even for loopback addresses: a name must not
//! mean less protection because of where it resolves (Docker makes that exception).
//! Credentials are those of `docker login`.
//!
//! The HTTP client is ureq on rustls: it blocks, as the readers of layers do, and adds four packages to this program's
//! tree on Linux, since rustls, ring and the reader of the system's certificates are in it for the Docker client already.
//! oci-client 0.18 would add 33, a second cryptographic library built from C among them (`cargo tree`, 2026-11).

mod challenge;
mod client;
mod pull;

use crate::docker::auth::AuthError;
use crate::image::ImageError;
use crate::image::layer::LayerError;
use crate::reference::ReferenceError;
use crate::remedy::Remedy;
pub use pull::read_image;
use std::io;
use std::path::PathBuf;

/// How registries are reached.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Speak HTTP without TLS.
    pub plain_http: bool,
    /// Certificates (PEM) to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Hosts to try first, for any registry's images.
    pub mirrors: Vec<String>,
}

/// Why an image cannot be read from a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error("{0:?} is not a registry host")]
    Mirror(String),
    #[error("reading the certificates in {path}: {problem}")]
    Ca { path: PathBuf, problem: String },
    #[error("the system has no CA certificates")]
    NoRoots,
    #[error("contacting {host}: {detail}")]
    Unreachable { host: String, detail: String },
    #[error("contacting {host}: TLS failed: {detail}")]
    Tls { host: String, detail: String },
    #[error("{host} has no {what}")]
    NotFound { host: String, what: String },
    #[error("{host} refuses {what}: {message}")]
    Unauthorized { host: String, what: String, message: String },
    #[error("{host} requires an unknown authentication scheme: {offered:?} (known: Bearer, Basic)")]
    Challenge { host: String, offered: String },
    #[error("{host} refers to {realm} for a token, which has no TLS")]
    TokenAddress { host: String, realm: String },
    #[error("requesting {what} from {host}: it answered {status}: {message}")]
    Status { host: String, what: String, status: u16, message: String },
    #[error("requesting {what} from {host}: the response does not follow the registry protocol: {problem}")]
    Protocol { host: String, what: String, problem: String },
    #[error("fetching layer {digest}, tried {attempts} times")]
    Dropped { digest: String, attempts: u32, source: io::Error },
    #[error("reading layer {digest}")]
    Layer { digest: String, source: LayerError },
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl Remedy for RegistryError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            RegistryError::Mirror(_) => "a mirror is HOST or HOST:PORT".to_owned(),
            RegistryError::NoRoots => {
                "install ca-certificates, or name a file: --registry-ca FILE or SSL_CERT_FILE".to_owned()
            }
            RegistryError::Unreachable { .. } => {
                "check the name, the network and the proxy (HTTPS_PROXY, NO_PROXY); a registry without \
                 TLS needs --plain-http"
                    .to_owned()
            }
            RegistryError::Tls { .. } => {
                "trust its CA with --registry-ca FILE (or SSL_CERT_FILE); a registry without TLS needs \
                 --plain-http"
                    .to_owned()
            }
            RegistryError::NotFound { host, .. } => {
                format!("check the name; a private repository may need `docker login {host}`")
            }
            RegistryError::Unauthorized { host, .. } => format!("run `docker login {host}`, or check the name"),
            RegistryError::TokenAddress { .. } => "credentials are sent there only with --plain-http".to_owned(),
            RegistryError::Auth(error) => return error.remedy(),
            RegistryError::Image(error) => return error.remedy(),
            RegistryError::Reference(_)
            | RegistryError::Ca { .. }
            | RegistryError::Challenge { .. }
            | RegistryError::Status { .. }
            | RegistryError::Protocol { .. }
            | RegistryError::Dropped { .. }
            | RegistryError::Layer { .. } => return None,
        })
    }
}
