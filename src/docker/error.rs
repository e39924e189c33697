//! What can go wrong between this program and a Docker daemon.
//!
//! Input: errors of the client library, with the endpoint and the operation. Output: a [`DockerError`] that names both
//! and has a remedy. The library's own error stays reachable as the source.

use crate::remedy::Remedy;
use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bollard::errors::Error as ClientError;

use super::address::Address;
use super::endpoint::Endpoint;
use super::redact::redact;
use crate::reference::ReferenceError;

/// Which side of a version disagreement is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionLimit {
    /// The daemon speaks only versions from this one on.
    Minimum,
    /// The daemon speaks only versions up to this one.
    Maximum,
}

/// An operation on a Docker daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    /// The socket does not exist.
    #[error("connecting to {endpoint}: no Docker daemon listens there")]
    NotRunning { endpoint: String, source: io::Error },
    /// This user may not use the socket.
    #[error("connecting to {endpoint}: permission denied")]
    PermissionDenied { endpoint: String, source: io::Error },
    /// Nothing listens behind the socket or port.
    #[error("connecting to {endpoint}: connection refused")]
    Refused { endpoint: String, source: io::Error },
    /// Certificates are missing, wrong or not accepted, or one side does not speak TLS.
    #[error("connecting to {endpoint}: TLS failed: {detail}")]
    Tls { endpoint: String, detail: String },
    /// `ssh` ended before the daemon answered.
    #[error("connecting to {endpoint}: ssh failed: {detail}")]
    Ssh { endpoint: String, detail: String },
    /// Any other failure before the daemon answered.
    #[error("connecting to {endpoint}: {detail}")]
    Unreachable { endpoint: String, detail: String },
    /// The daemon did not answer in time.
    #[error("{operation} at {endpoint}: no answer after {} s", after.as_secs())]
    Timeout { endpoint: String, operation: String, after: Duration },
    /// The daemon does not speak this client's API version.
    #[error(
        "negotiating the API version with {endpoint}: this client speaks {client}, the daemon's {} is {daemon}",
        match limit { VersionLimit::Minimum => "minimum", VersionLimit::Maximum => "maximum" }
    )]
    ApiVersion { endpoint: String, client: String, daemon: String, limit: VersionLimit },
    /// No such image.
    #[error("{operation} at {endpoint}: there is no image with that name")]
    ImageNotFound { endpoint: String, operation: String },
    /// The daemon answered with an error.
    #[error("{operation} at {endpoint}: the daemon answered {status}: {message}")]
    Daemon { endpoint: String, operation: String, status: u16, message: String },
    /// The connection broke, or the response does not follow the API.
    #[error("{operation} at {endpoint}: {detail}")]
    Protocol { endpoint: String, operation: String, detail: String },
    /// A local file that was to be sent cannot be read.
    #[error("{operation}: reading {}", path.display())]
    LocalFile { operation: String, path: PathBuf, source: io::Error },
    /// The reference cannot be sent to a daemon.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

impl Remedy for DockerError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::NotRunning { endpoint, .. } | Self::Refused { endpoint, .. } => Some(format!(
                "start the Docker daemon behind {endpoint} (`systemctl start docker`), or name another with --host or DOCKER_HOST"
            )),
            Self::PermissionDenied { .. } => Some(
                "run as root, or join the group of the socket: `sudo usermod -aG docker $USER`, then log in again"
                    .to_owned(),
            ),
            Self::Tls { .. } => Some(
                "check DOCKER_TLS_VERIFY, and ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH or in the context"
                    .to_owned(),
            ),
            Self::Ssh { endpoint, .. } => {
                Some(format!("check that `docker -H {endpoint} version` works without asking for a password"))
            }
            Self::Unreachable { endpoint, .. } => {
                Some(format!("check the address {endpoint}, the network to it, and whether the daemon expects TLS"))
            }
            Self::Timeout { endpoint, .. } => {
                Some(format!("check the network to {endpoint}, and the load and the log of the Docker daemon"))
            }
            Self::ApiVersion { limit: VersionLimit::Minimum, .. } => {
                Some("use a newer version of this program".to_owned())
            }
            Self::ApiVersion { limit: VersionLimit::Maximum, .. } => Some("upgrade the Docker daemon".to_owned()),
            Self::ImageNotFound { .. } => {
                Some("check the name with `docker images`, or pull the image first".to_owned())
            }
            Self::Daemon { .. } | Self::Protocol { .. } | Self::LocalFile { .. } | Self::Reference(_) => None,
        }
    }
}

/// Turns a client error into a [`DockerError`]. `operation` reads as `inspecting the image x`.
pub(super) fn from_client(error: ClientError, endpoint: &Endpoint, operation: &str) -> DockerError {
    let name = endpoint.to_string();
    if let ClientError::DockerResponseServerError { status_code, message } = error {
        return from_answer(status_code, &message, endpoint, operation);
    }
    if let ClientError::SocketNotFoundError(path) = &error {
        // The library only asks whether the path exists; the system knows why it seems not to.
        let source = std::fs::metadata(path).err().unwrap_or_else(|| io::ErrorKind::NotFound.into());
        return from_io(source, endpoint, operation);
    }
    let detail = redact(&innermost_text(&error)).into_owned();
    let is_connecting = matches!(&error, ClientError::HyperLegacyError { err } if err.is_connect());
    let is_tls = matches!(endpoint.address(), Address::Https { .. });
    match (&error, io_kind(&error)) {
        (ClientError::IOError { err }, Some(io::ErrorKind::Other)) if matches!(endpoint.address(), Address::Ssh(_)) => {
            let detail = err.to_string();
            DockerError::Ssh { endpoint: name, detail }
        }
        // A refused certificate shows only after the handshake, on the first read.
        (_, Some(io::ErrorKind::InvalidData)) if is_tls => DockerError::Tls { endpoint: name, detail },
        (_, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::Other)) if is_tls && is_connecting => {
            DockerError::Tls { endpoint: name, detail }
        }
        (ClientError::CertPathError { .. }, _)
        | (ClientError::CertMultipleKeys { .. }, _)
        | (ClientError::CertParseError { .. }, _)
        | (ClientError::NoNativeCertsError { .. }, _)
        | (ClientError::LoadNativeCertsErrors { .. }, _) => {
            let detail = error.to_string();
            DockerError::Tls { endpoint: name, detail }
        }
        (_, Some(kind)) if is_connecting || matches!(error, ClientError::IOError { .. }) => {
            from_io(io::Error::new(kind, detail), endpoint, operation)
        }
        _ if is_connecting => DockerError::Unreachable { endpoint: name, detail },
        _ => {
            let operation = operation.to_owned();
            DockerError::Protocol { endpoint: name, operation, detail }
        }
    }
}

/// Whether a stream of messages ended normally after all.
///
/// The client library 0.21.1 takes a message as soon as it is whole. If the line end comes in a later piece, its
/// carriage return stays in the buffer, and the end of the stream becomes an error of the framing.
pub(super) fn is_stray_line_end(error: &ClientError) -> bool {
    matches!(error, ClientError::IOError { err } if err.to_string() == "bytes remaining on stream")
}

fn from_io(source: io::Error, endpoint: &Endpoint, operation: &str) -> DockerError {
    let name = endpoint.to_string();
    match source.kind() {
        io::ErrorKind::NotFound => DockerError::NotRunning { endpoint: name, source },
        io::ErrorKind::PermissionDenied => DockerError::PermissionDenied { endpoint: name, source },
        io::ErrorKind::ConnectionRefused => DockerError::Refused { endpoint: name, source },
        // These can only occur in the middle of a response.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Other => {
            DockerError::Protocol { endpoint: name, operation: operation.to_owned(), detail: source.to_string() }
        }
        // A name that does not resolve, a network that does not exist: the system has many messages for it.
        _ => DockerError::Unreachable { endpoint: name, detail: source.to_string() },
    }
}

fn from_answer(status: u16, message: &str, endpoint: &Endpoint, operation: &str) -> DockerError {
    let message = redact(message.trim()).into_owned();
    let name = endpoint.to_string();
    if status == 400 {
        if let Some((client, daemon, limit)) = parse_version_refusal(&message) {
            return DockerError::ApiVersion { endpoint: name, client, daemon, limit };
        }
        if message.contains("HTTP request to an HTTPS server") {
            let detail = "the daemon expects TLS, but the address is plain HTTP".to_owned();
            return DockerError::Tls { endpoint: name, detail };
        }
    }
    DockerError::Daemon { endpoint: name, operation: operation.to_owned(), status, message }
}

/// Reads the engine's two responses to a version it does not speak (`api/server/middleware/version.go`):
/// `client version 1.10 is too old. Minimum supported API version is 1.24, …` and
/// `client version 1.99 is too new. Maximum supported API version is 1.41`.
fn parse_version_refusal(message: &str) -> Option<(String, String, VersionLimit)> {
    let rest = message.split_once("client version ")?.1;
    let (client, rest) = rest.split_once(" is too ")?;
    let limit = match rest.split('.').next()? {
        "old" => VersionLimit::Minimum,
        "new" => VersionLimit::Maximum,
        _ => return None,
    };
    let daemon = rest.split_once("supported API version is ")?.1;
    let end = daemon.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(daemon.len());
    Some((client.to_owned(), daemon[..end].trim_end_matches('.').to_owned(), limit))
}

/// The error and its sources. The client library wraps some of them so that they show up in no chain of its own.
fn chain(error: &ClientError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = match error {
        ClientError::IOError { err } => err,
        ClientError::HyperResponseError { err } => err,
        other => other,
    };
    std::iter::successors(Some(first), |&error| error.source())
}

/// The kind of the deepest I/O error, which is the one of the system call.
fn io_kind(error: &ClientError) -> Option<io::ErrorKind> {
    chain(error).filter_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind).last()
}

/// The outer layers only say "client error (Connect)".
fn innermost_text(error: &ClientError) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::config::{ClientConfig, ClientEnv};

    fn endpoint(host: &str) -> Endpoint {
        Endpoint::resolve(Some(host), None, &ClientEnv::default(), &ClientConfig::default()).expect("valid host")
    }

    #[test]
    fn version_refusals_name_both_versions() {
        for (message, client, daemon, limit) in [
            (
                "client version 1.10 is too old. Minimum supported API version is 1.24, please upgrade your client to a newer version",
                "1.10",
                "1.24",
                VersionLimit::Minimum,
            ),
            (
                "client version 1.53 is too new. Maximum supported API version is 1.41",
                "1.53",
                "1.41",
                VersionLimit::Maximum,
            ),
        ] {
            let error = from_answer(400, message, &endpoint("tcp://h"), "reading the version");
            let DockerError::ApiVersion { client: c, daemon: d, limit: l, .. } = &error else { panic!("{error:?}") };
            assert_eq!((c.as_str(), d.as_str(), *l), (client, daemon, limit));
            assert!(error.to_string().contains(client) && error.to_string().contains(daemon), "{error}");
            assert!(error.remedy().is_some());
        }
        assert_eq!(parse_version_refusal("client version 1.1 is too odd. x"), None);
        assert_eq!(parse_version_refusal("invalid tag"), None);
    }

    #[test]
    fn io_errors_keep_their_meaning() {
        let endpoint = endpoint("unix:///run/d.sock");
        let convert = |kind: io::ErrorKind| from_client(ClientError::IOError { err: kind.into() }, &endpoint, "x");
        assert!(matches!(convert(io::ErrorKind::NotFound), DockerError::NotRunning { .. }));
        assert!(matches!(convert(io::ErrorKind::PermissionDenied), DockerError::PermissionDenied { .. }));
        assert!(matches!(convert(io::ErrorKind::ConnectionRefused), DockerError::Refused { .. }));
        assert!(matches!(convert(io::ErrorKind::HostUnreachable), DockerError::Unreachable { .. }));
        assert!(matches!(convert(io::ErrorKind::UnexpectedEof), DockerError::Protocol { .. }));
    }

    #[test]
    fn every_connection_error_names_the_endpoint_and_a_remedy() {
        let name = || "unix:///run/d.sock".to_owned();
        let io = || io::Error::from(io::ErrorKind::Other);
        for error in [
            DockerError::NotRunning { endpoint: name(), source: io() },
            DockerError::PermissionDenied { endpoint: name(), source: io() },
            DockerError::Refused { endpoint: name(), source: io() },
            DockerError::Tls { endpoint: name(), detail: "x".into() },
            DockerError::Ssh { endpoint: name(), detail: "x".into() },
            DockerError::Unreachable { endpoint: name(), detail: "x".into() },
            DockerError::Timeout { endpoint: name(), operation: "x".into(), after: Duration::from_secs(1) },
        ] {
            assert!(error.to_string().contains(&name()), "{error}");
            assert!(error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn daemon_messages_lose_credentials() {
        let error = from_answer(500, "proxyconnect http://u:secret@p: refused", &endpoint("tcp://h"), "building");
        assert_eq!(
            error.to_string(),
            "building at tcp://h: the daemon answered 500: proxyconnect http://***@p: refused"
        );
    }
}
