//! Where the Docker daemon is.
//!
//! Input: what the user asked for, the client's environment and configuration directory. Output: an [`Endpoint`]. The
//! order is: explicit host, explicit context, `DOCKER_HOST`, `DOCKER_CONTEXT`, `currentContext` of `config.json`, the
//! default socket. Nothing is contacted here.

use std::fmt;
use std::path::{Path, PathBuf};

use super::config::{ClientConfig, ClientEnv};
use super::context_store::{self, ContextError};
use super::redact::redact_url;

/// The engine's own socket, and so the client's default.
pub const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// The context that stands for "no context": `DOCKER_HOST` or the default socket.
const DEFAULT_CONTEXT: &str = "default";

/// Ports of `tcp://` hosts that name none (IANA: docker, docker-s).
const PLAIN_PORT: u16 = 2375;
const TLS_PORT: u16 = 2376;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is none that this client speaks.
    #[error("parsing the Docker host `{host}`: unknown scheme, expected unix, tcp, http, https or ssh")]
    Scheme { host: String },
    /// The rest of the address is wrong.
    #[error("parsing the Docker host `{host}`: {problem}")]
    Address { host: String, problem: &'static str },
    /// The context does not exist or cannot be read.
    #[error(transparent)]
    Context(#[from] ContextError),
}

impl EndpointError {
    /// What the user can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Scheme { .. } | Self::Address { .. } => {
                Some(format!("give an address such as {DEFAULT_HOST}, tcp://host:2375 or ssh://user@host"))
            }
            Self::Context(error) => error.remedy(),
        }
    }
}

/// The certificates of a TLS endpoint. Files that do not exist are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authority that signed the daemon's certificate; without it, those of the system count.
    pub ca: Option<PathBuf>,
    /// The client's certificate.
    pub cert: Option<PathBuf>,
    /// The client's key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Those of `ca.pem`, `cert.pem` and `key.pem` that exist in `dir`.
    pub(super) fn in_dir(dir: &Path) -> Self {
        let existing = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
        Self { ca: existing("ca.pem"), cert: existing("cert.pem"), key: existing("key.pem") }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How the daemon is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A local socket.
    Unix { path: PathBuf },
    /// HTTP over TCP; `authority` is `host:port`.
    Http { authority: String },
    /// HTTP over TLS.
    Https { authority: String, tls: TlsFiles },
    /// `docker system dial-stdio` at the other end of an `ssh` connection.
    Ssh(SshTarget),
}

/// The other end of an `ssh://` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// Login name, where given.
    pub user: Option<String>,
    /// Host name or alias of the user's `ssh` configuration.
    pub host: String,
    /// Port, where given.
    pub port: Option<u16>,
    /// Socket on that host, where it is not the default one.
    pub socket: Option<String>,
}

/// What named the endpoint; errors say it, because it is what the user has to change.
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

/// `ssh://user@host` must stay readable: the login name is no secret, a password cannot be there.
fn redact_url_password(host: &str) -> String {
    if host.starts_with("ssh://") { host.to_owned() } else { redact_url(host) }
}

/// Parses one host text. `wants_tls` turns `tcp` into TLS; `tls` are the files to use then.
fn parse_host(host: &str, wants_tls: bool, tls: TlsFiles) -> Result<Address, EndpointError> {
    let shown = || redact_url(host);
    let fail = |problem| EndpointError::Address { host: shown(), problem };
    let Some((scheme, rest)) = host.split_once("://") else {
        return Err(EndpointError::Scheme { host: shown() });
    };
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix { path: PathBuf::from(rest) }),
        "unix" => Err(fail("the socket needs an absolute path")),
        "tcp" if wants_tls => Ok(Address::Https { authority: parse_authority(rest, TLS_PORT).map_err(fail)?, tls }),
        "tcp" => Ok(Address::Http { authority: parse_authority(rest, PLAIN_PORT).map_err(fail)? }),
        "http" => Ok(Address::Http { authority: parse_authority(rest, 80).map_err(fail)? }),
        "https" => Ok(Address::Https { authority: parse_authority(rest, 443).map_err(fail)?, tls }),
        "ssh" => parse_ssh(rest).map(Address::Ssh).map_err(fail),
        _ => Err(EndpointError::Scheme { host: shown() }),
    }
}

fn parse_authority(text: &str, default_port: u16) -> Result<String, &'static str> {
    let authority = text.strip_suffix('/').unwrap_or(text);
    if authority.contains(['/', '?', '#']) {
        return Err("a path is not supported");
    }
    if authority.contains('@') {
        return Err("credentials are not supported");
    }
    let (host, port) = split_port(authority)?;
    Ok(format!("{host}:{}", port.unwrap_or(default_port)))
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`; the brackets stay.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[host_end..].find(':') {
        Some(colon) => {
            let port = &authority[host_end + colon + 1..];
            (
                &authority[..host_end + colon],
                Some(port.parse::<u16>().map_err(|_| "the port is no number below 65536")?),
            )
        }
        None => (authority, None),
    };
    let is_host = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':' | '%');
    // A leading dash would reach `ssh` as an option.
    if host.is_empty() || host.starts_with('-') || !host.chars().all(is_host) {
        return Err("the host name is missing or malformed");
    }
    Ok((host, port))
}

fn parse_ssh(rest: &str) -> Result<SshTarget, &'static str> {
    let (authority, socket) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(&rest[slash..]).filter(|path| *path != "/")),
        None => (rest, None),
    };
    if rest.contains(['?', '#']) {
        return Err("a query is not supported");
    }
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err("a password is not supported, use a key"),
        Some((user, _)) if user.is_empty() || user.starts_with('-') => return Err("the login name is malformed"),
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, authority),
    };
    let (host, port) = split_port(host)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(SshTarget { user, host, port, socket: socket.map(str::to_owned) })
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
    fn addresses_of_each_scheme() {
        let http = |authority: &str| Address::Http { authority: authority.to_owned() };
        let https = |authority: &str| Address::Https { authority: authority.to_owned(), tls: TlsFiles::default() };
        let ssh = |user: Option<&str>, host: &str, port, socket: Option<&str>| {
            Address::Ssh(SshTarget {
                user: user.map(str::to_owned),
                host: host.to_owned(),
                port,
                socket: socket.map(str::to_owned),
            })
        };
        for (host, wants_tls, expected) in [
            ("unix:///run/d.sock", true, Address::Unix { path: "/run/d.sock".into() }),
            ("tcp://h", false, http("h:2375")),
            ("tcp://h", true, https("h:2376")),
            ("tcp://h:99/", false, http("h:99")),
            ("tcp://[::1]:99", false, http("[::1]:99")),
            ("tcp://[::1]", true, https("[::1]:2376")),
            ("http://h", true, http("h:80")),
            ("https://h", false, https("h:443")),
            ("ssh://h", false, ssh(None, "h", None, None)),
            ("ssh://u@h:22/", false, ssh(Some("u"), "h", Some(22), None)),
            ("ssh://u@[::1]:22/run/d.sock", false, ssh(Some("u"), "::1", Some(22), Some("/run/d.sock"))),
        ] {
            let address = parse_host(host, wants_tls, TlsFiles::default()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(address, expected, "{host}");
        }
    }

    #[test]
    fn wrong_addresses_are_errors_without_credentials() {
        for host in [
            "",
            "/run/d.sock",
            "unix://d.sock",
            "npipe:////./pipe/docker",
            "tcp://",
            "tcp://:2375",
            "tcp://h:x",
            "tcp://h:70000",
            "tcp://h/path",
            "tcp://u:secret@h:1",
            "https://u:secret@h",
            "ssh://u:secret@h",
            "ssh://-oProxyCommand=x",
            "ssh://-l@h",
            "ssh://h?x",
            "tcp://h h",
        ] {
            let error = parse_host(host, false, TlsFiles::default()).expect_err(host);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
            assert!(error.remedy().is_some());
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
