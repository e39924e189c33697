//! Addresses of Docker daemons.
//!
//! Input: the text of `DOCKER_HOST` or of a context. Output: an [`Address`]. Errors show the text without credentials.

use std::path::{Path, PathBuf};

use super::redact::redact_url;

/// Ports of `tcp://` hosts that name none (IANA: docker, docker-s).
const PLAIN_PORT: u16 = 2375;
const TLS_PORT: u16 = 2376;

/// Why a text is not a daemon address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// This client does not support the scheme.
    #[error("parsing the Docker host `{host}`: unknown scheme, expected unix, tcp, http, https or ssh")]
    Scheme { host: String },
    /// The rest of the address is wrong.
    #[error("parsing the Docker host `{host}`: {problem}")]
    Malformed { host: String, problem: &'static str },
}

/// The certificates of a TLS endpoint. Files that do not exist are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// CA that signed the daemon's certificate; without it, the system's CAs are trusted.
    pub ca: Option<PathBuf>,
    /// The client's certificate.
    pub cert: Option<PathBuf>,
    /// The client's key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// The files among `ca.pem`, `cert.pem` and `key.pem` that exist in `dir`.
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
    /// Login name, if given.
    pub user: Option<String>,
    /// Host name, or alias from the user's `ssh` configuration.
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// Socket on that host, unless it is the default one.
    pub socket: Option<String>,
}

/// Parses one host text. `wants_tls` turns `tcp` into TLS; `tls` are the files to use then.
pub(super) fn parse_host(host: &str, wants_tls: bool, tls: TlsFiles) -> Result<Address, AddressError> {
    let shown = || redact_url(host);
    let fail = |problem| AddressError::Malformed { host: shown(), problem };
    let Some((scheme, rest)) = host.split_once("://") else {
        return Err(AddressError::Scheme { host: shown() });
    };
    match scheme {
        "unix" if rest.starts_with('/') => Ok(Address::Unix { path: PathBuf::from(rest) }),
        "unix" => Err(fail("the socket needs an absolute path")),
        "tcp" if wants_tls => Ok(Address::Https { authority: parse_authority(rest, TLS_PORT).map_err(fail)?, tls }),
        "tcp" => Ok(Address::Http { authority: parse_authority(rest, PLAIN_PORT).map_err(fail)? }),
        "http" => Ok(Address::Http { authority: parse_authority(rest, 80).map_err(fail)? }),
        "https" => Ok(Address::Https { authority: parse_authority(rest, 443).map_err(fail)?, tls }),
        "ssh" => parse_ssh(rest).map(Address::Ssh).map_err(fail),
        _ => Err(AddressError::Scheme { host: shown() }),
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
                Some(port.parse::<u16>().map_err(|_| "the port is not a number below 65536")?),
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
        }
    }
}
