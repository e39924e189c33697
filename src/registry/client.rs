//! Requests to the registries that may have a repository: mirrors first, then its own registry.
//!
//! Input: a path of the protocol (OCI distribution-spec). Output: a response. Authentication happens when a registry
//! demands it and is remembered; requests are retried after dropped connections and overload.

use super::challenge::{Challenge, parse_challenges};
use super::{RegistryError, Settings};
use crate::docker::auth::{self, Credentials};
use crate::docker::config::ClientConfig;
use crate::reference::{DOCKER_HUB, Reference};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// The host of Docker Hub's registry.
const HUB_HOST: &str = "registry-1.docker.io";
/// Tries per request.
pub(super) const ATTEMPTS: u32 = 3;
/// Wait before the second try; doubled for the third.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait that a registry may request (`Retry-After`).
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence, before a response and within one.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest error text of a registry that is kept, in bytes.
const MAX_ERROR_BYTES: u64 = 64 << 10;
/// Longest token response, in bytes.
const MAX_TOKEN_BYTES: u64 = 1 << 20;

/// One registry, with its credentials.
struct Server {
    /// The registry's name as the user knows it.
    name: String,
    /// Scheme, host and port.
    base: String,
    credentials: Option<Credentials>,
    /// The last accepted `Authorization` header.
    authorization: Mutex<Option<String>>,
}

/// Requests the content of one repository.
pub(super) struct Client {
    agent: Agent,
    /// Mirrors, then the repository's own registry.
    servers: Vec<Server>,
    repository: String,
    plain_http: bool,
}

impl Client {
    pub(super) fn new(
        reference: &Reference,
        settings: &Settings,
        config: &ClientConfig,
    ) -> Result<Client, RegistryError> {
        let mut servers = Vec::new();
        for mirror in &settings.mirrors {
            // The host is the part before the repository.
            let host = Reference::parse(&format!("{mirror}/x")).map_err(|_| RegistryError::Mirror(mirror.clone()))?;
            if host.registry() != mirror {
                return Err(RegistryError::Mirror(mirror.clone()));
            }
            servers.push(Server::new(mirror, settings, config)?);
        }
        servers.push(Server::new(reference.registry(), settings, config)?);
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!settings.plain_http)
            // Blobs are often sent from a storage service: it must not see the registry's credentials.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(SILENCE_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT))
            .user_agent(concat!("rdmaprep/", env!("CARGO_PKG_VERSION")));
        let builder = match settings.plain_http {
            true => builder,
            false => builder.tls_config(
                TlsConfig::builder()
                    .root_certs(load_roots(settings)?)
                    .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
                    .build(),
            ),
        };
        Ok(Client {
            agent: builder.build().new_agent(),
            servers,
            repository: reference.repository().to_owned(),
            plain_http: settings.plain_http,
        })
    }

    /// The name of the repository's own registry.
    pub(super) fn host(&self) -> &str {
        self.servers.last().map_or("", |server| &server.name)
    }

    /// Requests a path below the repository; `what` names it in errors.
    ///
    /// # Errors
    /// Neither a mirror nor the registry itself serves it; the error is the registry's own.
    pub(super) fn get(&self, path: &str, accept: &str, what: &str) -> Result<Response<Body>, RegistryError> {
        let Some((own, mirrors)) = self.servers.split_last() else {
            return Err(RegistryError::Mirror(String::new()));
        };
        for mirror in mirrors {
            match self.get_from(mirror, path, accept, what) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let text = error.to_string();
                    tracing::warn!("mirror left out: {}", text.lines().next().unwrap_or_default());
                }
            }
        }
        self.get_from(own, path, accept, what)
    }

    fn get_from(&self, server: &Server, path: &str, accept: &str, what: &str) -> Result<Response<Body>, RegistryError> {
        let url = format!("{}/v2/{}/{path}", server.base, self.repository);
        let (mut attempt, mut authorized) = (1, false);
        loop {
            let mut request = self.agent.get(&url).header("accept", accept);
            if let Some(authorization) = server.authorization() {
                request = request.header("authorization", authorization);
            }
            let wait = match request.call() {
                Ok(answer) => match answer.status().as_u16() {
                    200 => return Ok(answer),
                    401 if !authorized => {
                        authorized = true;
                        self.authorize(server, &answer, what)?;
                        continue;
                    }
                    429 | 500.. if attempt < ATTEMPTS => asked_wait(&answer).unwrap_or_else(|| wait_before(attempt)),
                    _ => return Err(refused(server, what, answer)),
                },
                Err(error) if attempt < ATTEMPTS && is_transient(&error) => {
                    tracing::debug!("asking {} again: {error}", server.name);
                    wait_before(attempt)
                }
                Err(error) => return Err(unreachable_error(&server.name, &error)),
            };
            attempt += 1;
            std::thread::sleep(wait);
        }
    }

    /// Gets the authorization that the registry requires.
    fn authorize(&self, server: &Server, answer: &Response<Body>, what: &str) -> Result<(), RegistryError> {
        let headers = answer.headers().get_all("www-authenticate");
        let offered: Vec<Challenge> =
            headers.iter().filter_map(|header| header.to_str().ok()).flat_map(parse_challenges).collect();
        let by_scheme = |scheme: &str| offered.iter().find(|challenge| challenge.scheme == scheme);
        let authorization = match (by_scheme("bearer"), by_scheme("basic")) {
            (Some(challenge), _) => format!("Bearer {}", self.fetch_token(server, challenge, what)?),
            (None, Some(_)) => match &server.credentials {
                Some(Credentials::Password { username, password }) => basic(username, password),
                Some(Credentials::IdentityToken { .. }) | None => {
                    return Err(RegistryError::Unauthorized {
                        host: server.name.clone(),
                        what: what.to_owned(),
                        message: "it requires a user name and a password".to_owned(),
                    });
                }
            },
            (None, None) => {
                let offered: Vec<String> = offered.into_iter().map(|challenge| challenge.scheme).collect();
                return Err(RegistryError::Challenge { host: server.name.clone(), offered: offered.join(", ") });
            }
        };
        *server.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        Ok(())
    }

    /// Requests a token (distribution, `docs/spec/auth`), an anonymous one if there are no credentials.
    fn fetch_token(&self, server: &Server, challenge: &Challenge, what: &str) -> Result<String, RegistryError> {
        let malformed = |problem: &str| RegistryError::Protocol {
            host: server.name.clone(),
            what: "a token".to_owned(),
            problem: problem.to_owned(),
        };
        let realm = challenge.parameter("realm").ok_or_else(|| malformed("no realm"))?;
        if !realm.starts_with("https://") && !self.plain_http {
            return Err(RegistryError::TokenAddress { host: server.name.clone(), realm: realm.to_owned() });
        }
        let default_scope = format!("repository:{}:pull", self.repository);
        let scope = challenge.parameter("scope").unwrap_or(&default_scope);
        let service = challenge.parameter("service").unwrap_or_default();
        let answer = match &server.credentials {
            Some(Credentials::IdentityToken { token }) => self.agent.post(realm).send_form([
                ("grant_type", "refresh_token"),
                ("service", service),
                ("scope", scope),
                ("client_id", "rdmaprep"),
                ("refresh_token", token),
            ]),
            credentials => {
                let mut request = self.agent.get(realm).query("scope", scope);
                if !service.is_empty() {
                    request = request.query("service", service);
                }
                if let Some(Credentials::Password { username, password }) = credentials {
                    request = request.header("authorization", basic(username, password));
                }
                request.call()
            }
        };
        let mut answer = answer.map_err(|error| unreachable_error(&server.name, &error))?;
        if answer.status().as_u16() != 200 {
            return Err(refused(server, what, answer));
        }
        #[derive(serde::Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let bytes = answer.body_mut().with_config().limit(MAX_TOKEN_BYTES).read_to_vec();
        let bytes = bytes.map_err(|error| unreachable_error(&server.name, &error))?;
        // The parser's own text may quote the token.
        let token: Token = serde_json::from_slice(&bytes).map_err(|_| malformed("it is not JSON with a token"))?;
        token.token.or(token.access_token).filter(|t| !t.is_empty()).ok_or_else(|| malformed("it has no token"))
    }
}

impl Server {
    fn new(name: &str, settings: &Settings, config: &ClientConfig) -> Result<Server, RegistryError> {
        let host = if name == DOCKER_HUB { HUB_HOST } else { name };
        let scheme = if settings.plain_http { "http" } else { "https" };
        let credentials = auth::find(config, name)?;
        if settings.plain_http && credentials.is_some() && !is_loopback(host) {
            tracing::warn!("the credentials for {name} are sent over the network without TLS (--plain-http)");
        }
        let base = format!("{scheme}://{host}");
        Ok(Server { name: name.to_owned(), base, credentials, authorization: Mutex::new(None) })
    }

    fn authorization(&self) -> Option<String> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// The system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others), plus those that the user names.
fn load_roots(settings: &Settings) -> Result<RootCerts, RegistryError> {
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!("reading the system's CA certificates: {error}");
    }
    let mut roots: Vec<Certificate<'static>> =
        system.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    if let Some(path) = &settings.ca {
        let failed = |problem: String| RegistryError::Ca { path: path.clone(), problem };
        let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let before = roots.len();
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(certificate) = item.map_err(|error| failed(error.to_string()))? {
                roots.push(certificate);
            }
        }
        if roots.len() == before {
            return Err(failed("it contains no PEM certificate".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err(RegistryError::NoRoots);
    }
    Ok(RootCerts::new_with_certs(&roots))
}

pub(super) fn wait_before(attempt: u32) -> Duration {
    FIRST_WAIT * 2u32.saturating_pow(attempt - 1)
}

/// The requested wait in seconds; dates are not supported.
fn asked_wait(answer: &Response<Body>) -> Option<Duration> {
    let seconds = answer.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// Whether the request may succeed a moment later. Before a response nothing was taken from the stream.
fn is_transient(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => {
            rustls_error(error).is_none()
                && !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
        }
        ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed | ureq::Error::Protocol(_) => true,
        _ => false,
    }
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

pub(super) fn unreachable_error(host: &str, error: &ureq::Error) -> RegistryError {
    let (host, detail) = (host.to_owned(), error.to_string());
    match error {
        ureq::Error::Rustls(error) => RegistryError::Tls { host, detail: error.to_string() },
        ureq::Error::Tls(_) | ureq::Error::Pem(_) => RegistryError::Tls { host, detail },
        ureq::Error::Io(error) => match rustls_error(error) {
            Some(error) => RegistryError::Tls { host, detail: error.to_string() },
            None => RegistryError::Unreachable { host, detail },
        },
        _ => RegistryError::Unreachable { host, detail },
    }
}

/// The error for a status other than 200.
fn refused(server: &Server, what: &str, mut answer: Response<Body>) -> RegistryError {
    let (host, what) = (server.name.clone(), what.to_owned());
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(MAX_ERROR_BYTES).read_to_vec().unwrap_or_default();
    let message = error_message(&body).unwrap_or_else(|| answer.status().to_string());
    match status {
        404 => RegistryError::NotFound { host, what },
        401 | 403 => RegistryError::Unauthorized { host, what, message },
        _ => RegistryError::Status { host, what, status, message },
    }
}

/// The first message of the protocol's error document; one line, printable.
fn error_message(body: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = document.get("errors")?.get(0)?;
    let text = error.get("message").or_else(|| error.get("code"))?.as_str()?;
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    Some(shown).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["registry.example.com", "10.0.0.1:5000", "localhost.example.com:5000"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn error_documents() {
        let body = br#"{"errors":[{"code":"DENIED","message":"requested\naccess is denied"}]}"#;
        assert_eq!(error_message(body).as_deref(), Some("requested access is denied"));
        assert_eq!(error_message(br#"{"errors":[{"code":"DENIED"}]}"#).as_deref(), Some("DENIED"));
        assert_eq!(error_message(b"<html>"), None);
    }

    #[test]
    fn mirrors_are_hosts() {
        let reference = Reference::parse("r.example:5000/a").unwrap();
        let settings =
            |mirror: &str| Settings { plain_http: true, mirrors: vec![mirror.to_owned()], ..Settings::default() };
        let config = ClientConfig::default();
        assert!(Client::new(&reference, &settings("m.example:80"), &config).is_ok());
        for bad in ["https://m.example", "m.example/path", "m", ""] {
            let error = Client::new(&reference, &settings(bad), &config).err();
            assert!(matches!(error, Some(RegistryError::Mirror(_))), "{bad}: {error:?}");
        }
    }
}
