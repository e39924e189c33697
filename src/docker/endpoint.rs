//! Where the Docker daemon is.
//!
//! Input: the user's options, the client's environment and configuration directory. Output: an [`Endpoint`]. The
//! order is: explicit host, explicit context, `DOCKER_HOST`, `DOCKER_CONTEXT`, `currentContext` of `config.json`, the
//! default socket. Nothing is contacted here.

use crate::remedy::Remedy;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::address::{Address, AddressError, TlsFiles, parse_host};
use super::config::{ClientConfig, ClientEnv};
use super::context_store::{self, ContextError};
use super::redact::redact_url;

/// The engine's own socket, and so the client's default.
pub const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// The context that means "no context": `DOCKER_HOST` or the default socket.
const DEFAULT_CONTEXT: &str = "default";

/// Why no endpoint can be determined.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The context does not exist or cannot be read.
    #[error(transparent)]
    Context(#[from] ContextError),
}

impl Remedy for EndpointError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Address(_) => {
                Some(format!("give an address such as {DEFAULT_HOST}, tcp://host:2375 or ssh://user@host"))
            }
            Self::Context(error) => error.remedy(),
        }
    }
}

/// What named the endpoint; errors include it, because the user has to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointSource {
    /// The explicit host argument.
    HostArgument,
    /// The explicit context argument.
    ContextArgument { name: String },
    /// The variable `DOCKER_HOST`.
    DockerHost,
    /// The variable `DOCKER_CONTEXT`.
    DockerContext { name: String },
    /// `currentContext` of `config.json`.
    CurrentContext { name: String },
    /// Nothing named one.
    Default,
}

impl fmt::Display for EndpointSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostArgument => f.write_str("host argument"),
            Self::ContextArgument { name } => write!(f, "context {name}"),
            Self::DockerHost => f.write_str("DOCKER_HOST"),
            Self::DockerContext { name } => write!(f, "context {name}, from DOCKER_CONTEXT"),
            Self::CurrentContext { name } => write!(f, "current context {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A daemon's address and what named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    address: Address,
    host: String,
    source: EndpointSource,
}

impl Endpoint {
    /// Finds the endpoint. `host` and `context` are the explicit arguments; a host wins over a context.
    pub fn resolve(
        host: Option<&str>,
        context: Option<&str>,
        env: &ClientEnv,
        config: &ClientConfig,
    ) -> Result<Self, EndpointError> {
        if let Some(host) = host {
            return Self::from_host(host, EndpointSource::HostArgument, env);
        }
        let from_env = |source: EndpointSource| match env.var("DOCKER_HOST") {
            Some(host) => Self::from_host(host, EndpointSource::DockerHost, env),
            None => Self::from_host(DEFAULT_HOST, source, env),
        };
        let named = |name: &str, source: EndpointSource| match name {
            DEFAULT_CONTEXT => from_env(source),
            name => Self::from_context(name, source, env),
        };
        if let Some(name) = context {
            return named(name, EndpointSource::ContextArgument { name: name.to_owned() });
        }
        if env.var("DOCKER_HOST").is_some() {
            return from_env(EndpointSource::DockerHost);
        }
        if let Some(name) = env.var("DOCKER_CONTEXT") {
            return named(name, EndpointSource::DockerContext { name: name.to_owned() });
        }
        match config.current_context.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => named(name, EndpointSource::CurrentContext { name: name.to_owned() }),
            None => from_env(EndpointSource::Default),
        }
    }

    fn from_host(host: &str, source: EndpointSource, env: &ClientEnv) -> Result<Self, EndpointError> {
        // Any value but the empty one switches verification on, `0` included, as in the Docker client.
        let wants_tls = env.var("DOCKER_TLS_VERIFY").is_some();
        let tls_dir = env.var("DOCKER_CERT_PATH").map(PathBuf::from).or_else(|| env.config_dir().map(Path::to_owned));
        let tls = tls_dir.map(|dir| TlsFiles::in_dir(&dir)).unwrap_or_default();
        Self::build(host, source, wants_tls, tls)
    }

    fn from_context(name: &str, source: EndpointSource, env: &ClientEnv) -> Result<Self, EndpointError> {
        let context = context_store::load(env.config_dir(), name)?;
        Self::build(&context.host, source, !context.tls.is_empty(), context.tls)
    }

    fn build(host: &str, source: EndpointSource, wants_tls: bool, tls: TlsFiles) -> Result<Self, EndpointError> {
        let address = parse_host(host, wants_tls, tls)?;
        Ok(Self { address, host: host.to_owned(), source })
    }

    /// How the daemon is reached.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the address is a socket or a loopback port of this machine. It may still be forwarded
    /// elsewhere.
    pub fn is_on_this_machine(&self) -> bool {
        match &self.address {
            Address::Unix { .. } => true,
            Address::Http { authority } | Address::Https { authority, .. } => {
                let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Address::Ssh(_) => false,
        }
    }

    /// What named the endpoint.
    pub fn source(&self) -> &EndpointSource {
        &self.source
    }

    /// The address as it was written; the key of `proxies` in `config.json`.
    pub fn docker_host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_url_password(&self.host))
    }
}

/// `ssh://user@host` must stay readable: the login name is not a secret, and a password is not allowed there.
fn redact_url_password(host: &str) -> String {
    if host.starts_with("ssh://") { host.to_owned() } else { redact_url(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)], dir: Option<&Path>) -> ClientEnv {
        ClientEnv::new(vars.iter().copied(), dir.map(Path::to_owned))
    }

    fn resolve(host: Option<&str>, context: Option<&str>, env: &ClientEnv, current: Option<&str>) -> Endpoint {
        let config = ClientConfig { current_context: current.map(str::to_owned), ..ClientConfig::default() };
        Endpoint::resolve(host, context, env, &config).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn order_of_precedence() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for name in ["arg", "var", "current"] {
            context_store::tests::write(dir.path(), name, &format!("tcp://{name}:1"), false, &[]);
        }
        let all = [("DOCKER_HOST", "tcp://env:1"), ("DOCKER_CONTEXT", "var")];
        let full = env(&all, Some(dir.path()));
        let no_host = env(&all[1..], Some(dir.path()));
        let bare = env(&[], Some(dir.path()));
        for (endpoint, expected) in [
            (resolve(Some("tcp://flag:1"), Some("arg"), &full, Some("current")), "tcp://flag:1 (host argument)"),
            (resolve(None, Some("arg"), &full, Some("current")), "tcp://arg:1 (context arg)"),
            (resolve(None, None, &full, Some("current")), "tcp://env:1 (DOCKER_HOST)"),
            (resolve(None, None, &no_host, Some("current")), "tcp://var:1 (context var, from DOCKER_CONTEXT)"),
            (resolve(None, None, &bare, Some("current")), "tcp://current:1 (current context current)"),
            (resolve(None, None, &bare, Some("")), "unix:///var/run/docker.sock (default)"),
            (
                resolve(None, Some("default"), &no_host, Some("current")),
                "unix:///var/run/docker.sock (context default)",
            ),
            (resolve(None, Some("default"), &full, Some("current")), "tcp://env:1 (DOCKER_HOST)"),
            (resolve(None, None, &env(&[("DOCKER_HOST", "")], None), None), "unix:///var/run/docker.sock (default)"),
        ] {
            assert_eq!(format!("{endpoint} ({})", endpoint.source()), expected);
        }
    }

    #[test]
    fn addresses_of_this_machine() {
        let resolved = |host: &str| resolve(Some(host), None, &env(&[], None), None).is_on_this_machine();
        for host in ["unix:///run/d.sock", "tcp://127.0.0.1:2375", "tcp://localhost:1", "tcp://[::1]:2375"] {
            assert!(resolved(host), "{host}");
        }
        for host in ["tcp://gpu-1:2375", "tcp://10.0.0.1:2375", "ssh://root@localhost"] {
            assert!(!resolved(host), "{host}");
        }
    }

    #[test]
    fn tls_files_come_from_the_named_directory() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("ca.pem"), "x").expect("writing the fixture");
        let path = dir.path().to_str().expect("UTF-8 path");
        let tls = TlsFiles { ca: Some(dir.path().join("ca.pem")), cert: None, key: None };
        let expected = Address::Https { authority: "h:2376".to_owned(), tls };

        let verify = [("DOCKER_HOST", "tcp://h"), ("DOCKER_TLS_VERIFY", "1")];
        let by_variable = env(&[verify[0], verify[1], ("DOCKER_CERT_PATH", path)], None);
        assert_eq!(resolve(None, None, &by_variable, None).address(), &expected);
        let by_config_dir = env(&verify, Some(dir.path()));
        assert_eq!(resolve(None, None, &by_config_dir, None).address(), &expected);
        let without_verify = env(&[verify[0], ("DOCKER_CERT_PATH", path)], None);
        assert_eq!(resolve(None, None, &without_verify, None).address(), &Address::Http { authority: "h:2375".into() });
    }

    #[test]
    fn context_with_certificates_is_tls() {
        let dir = tempfile::tempdir().expect("temporary directory");
        context_store::tests::write(dir.path(), "gpu", "tcp://gpu:2376", false, &["ca.pem", "cert.pem", "key.pem"]);
        let endpoint = resolve(None, Some("gpu"), &env(&[], Some(dir.path())), None);
        let Address::Https { authority, tls } = endpoint.address() else { panic!("{endpoint:?}") };
        assert_eq!(authority, "gpu:2376");
        assert!(tls.ca.is_some() && tls.cert.is_some() && tls.key.is_some(), "{tls:?}");
        assert_eq!(endpoint.docker_host(), "tcp://gpu:2376");
    }
}
