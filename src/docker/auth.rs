//! Credentials for registries, as `docker login` leaves them.
//!
//! Input: the client's configuration and a registry or an image reference. Output: [`Credentials`], or `None` if
//! the user has none. These functions run helper programs (`docker-credential-…`), so they block.

use crate::remedy::Remedy;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use bollard::auth::DockerCredentials;
use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde_json::json;

use super::config::{AuthEntry, ClientConfig};
use super::redact::redact;
use crate::reference::{DOCKER_HUB, Reference, ReferenceError};

/// Key of Docker Hub in `config.json` and for helpers: the address of the first registry protocol, kept for old files.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// Host that BuildKit asks credentials for when it means Docker Hub.
const HUB_HOST: &str = "registry-1.docker.io";

/// Names under which `config.json` may know Docker Hub.
const HUB_ALIASES: [&str; 4] = [DOCKER_HUB, "index.docker.io", HUB_HOST, HUB_KEY];

/// A helper's message if it has nothing (`docker/docker-credential-helpers`, `credentials/error.go`).
const NOT_FOUND: &str = "credentials not found in native keychain";

/// Why credentials cannot be read, although the configuration names a place for them.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The helper program cannot be run.
    #[error("getting the credentials of {registry}: the program `{program}` cannot be run")]
    HelperMissing { registry: String, program: String },
    /// The helper program failed.
    #[error("getting the credentials of {registry}: `{program}` failed: {message}")]
    HelperFailed { registry: String, program: String, message: String },
    /// The helper program returned something other than credentials.
    #[error("getting the credentials of {registry}: the output of `{program}` is malformed")]
    HelperAnswer { registry: String, program: String },
    /// The entry of `auths` is not what `docker login` writes.
    #[error("getting the credentials of {registry}: its entry in the Docker client configuration is malformed")]
    Entry { registry: String },
    /// The image reference names no registry.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

impl Remedy for AuthError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::HelperMissing { program, .. } => Some(format!(
                "install `{program}` into a directory of PATH, or remove it from credsStore and credHelpers of config.json"
            )),
            Self::HelperFailed { registry, .. } | Self::HelperAnswer { registry, .. } | Self::Entry { registry } => {
                Some(login_remedy(registry))
            }
            Self::Reference(_) => None,
        }
    }
}

/// The remedy for missing or refused credentials.
pub(super) fn login_remedy(registry: &str) -> String {
    if registry == DOCKER_HUB { "run `docker login`".to_owned() } else { format!("run `docker login {registry}`") }
}

/// How registries and engines word missing or refused credentials.
const REFUSALS: [&str; 8] = [
    "unauthorized",
    "no basic auth credentials",
    "authentication required",
    "access to the resource is denied",
    "pull access denied",
    "insufficient_scope",
    "authorization failed",
    "failed to authorize",
];

/// Whether the message of an engine or registry says that credentials are missing or wrong.
pub(super) fn is_refusal(message: &str) -> bool {
    let lower = message.to_lowercase();
    lower.starts_with("denied") || REFUSALS.iter().any(|refusal| lower.contains(refusal))
}

/// What a registry requires. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// User name and password.
    Password { username: String, password: String },
    /// A token that the registry's token server exchanges for short-lived ones.
    IdentityToken { token: String },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { username, .. } => {
                f.debug_struct("Password").field("username", username).finish_non_exhaustive()
            }
            Self::IdentityToken { .. } => f.debug_struct("IdentityToken").finish_non_exhaustive(),
        }
    }
}

/// Credentials by registry, as [`find_for_images`] returns them. The key is a host with its port, or `docker.io`.
pub type RegistryAuth = BTreeMap<String, Credentials>;

impl Credentials {
    /// The secret, for hiding it in logs.
    pub(super) fn secret(&self) -> &str {
        match self {
            Self::Password { password, .. } => password,
            Self::IdentityToken { token } => token,
        }
    }

    /// For the `X-Registry-Auth` header of a push or pull.
    pub(super) fn for_registry(&self, registry: &str) -> DockerCredentials {
        let address = if registry == DOCKER_HUB { HUB_KEY } else { registry };
        let base = DockerCredentials { serveraddress: Some(address.to_owned()), ..DockerCredentials::default() };
        match self {
            Self::Password { username, password } => {
                DockerCredentials { username: Some(username.clone()), password: Some(password.clone()), ..base }
            }
            Self::IdentityToken { token } => DockerCredentials { identitytoken: Some(token.clone()), ..base },
        }
    }
}

/// For the `X-Registry-Config` header of the classic builder.
pub(super) fn for_classic_builder(auth: &RegistryAuth) -> HashMap<String, DockerCredentials> {
    let key = |registry: &str| {
        if registry == DOCKER_HUB { HUB_KEY.to_owned() } else { registry.to_owned() }
    };
    auth.iter().map(|(registry, credentials)| (key(registry), credentials.for_registry(registry))).collect()
}

/// For the session that BuildKit asks for credentials.
pub(super) fn for_buildkit(auth: &RegistryAuth) -> HashMap<String, DockerCredentials> {
    let key = |registry: &str| {
        if registry == DOCKER_HUB { HUB_HOST.to_owned() } else { registry.to_owned() }
    };
    auth.iter().map(|(registry, credentials)| (key(registry), credentials.for_registry(registry))).collect()
}

/// Finds the credentials for the registries of `images`. Registries without any are left out.
pub fn find_for_images<'a>(
    config: &ClientConfig,
    images: impl IntoIterator<Item = &'a str>,
) -> Result<RegistryAuth, AuthError> {
    let mut auth = RegistryAuth::new();
    for image in images {
        let reference = Reference::parse(image)?;
        let registry = reference.registry();
        if !auth.contains_key(registry)
            && let Some(credentials) = find(config, registry)?
        {
            auth.insert(registry.to_owned(), credentials);
        }
    }
    Ok(auth)
}

/// Finds the credentials for one registry: its own helper, else the common one, else the entry of `auths`.
pub fn find(config: &ClientConfig, registry: &str) -> Result<Option<Credentials>, AuthError> {
    if let Some(helper) = helper(config, registry) {
        tracing::debug!(registry, helper, "asking a credential helper");
        if let Some(credentials) = ask_helper(helper, registry)? {
            return Ok(Some(credentials));
        }
    }
    match entry(config, registry) {
        Some(entry) => read_entry(entry, registry),
        None => Ok(None),
    }
}

fn helper<'a>(config: &'a ClientConfig, registry: &str) -> Option<&'a str> {
    let helpers = config.cred_helpers.iter().flatten();
    let own = helpers.filter(|(key, _)| is_key_of(key, registry)).map(|(_, helper)| helper.as_str());
    own.chain(config.creds_store.as_deref()).find(|helper| !helper.is_empty())
}

fn entry<'a>(config: &'a ClientConfig, registry: &str) -> Option<&'a AuthEntry> {
    let auths = config.auths.as_ref()?;
    auths.get(registry).or_else(|| auths.iter().find(|(key, _)| is_key_of(key, registry)).map(|(_, entry)| entry))
}

/// Keys may be hosts, or the addresses that older clients wrote (`https://host/v1/`).
fn is_key_of(key: &str, registry: &str) -> bool {
    let host = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = host.split('/').next().unwrap_or_default();
    if registry == DOCKER_HUB { HUB_ALIASES.contains(&host) } else { host == registry }
}

fn ask_helper(helper: &str, registry: &str) -> Result<Option<Credentials>, AuthError> {
    let (registry_name, program) = (|| registry.to_owned(), || format!("docker-credential-{helper}"));
    match retrieve(&json!({ "credsStore": helper }), registry) {
        Ok(credentials) => Ok(credentials),
        Err(CredentialRetrievalError::HelperCommunicationError) => {
            Err(AuthError::HelperMissing { registry: registry_name(), program: program() })
        }
        Err(CredentialRetrievalError::HelperFailure { stdout, stderr, .. }) => {
            // By the protocol, the reason is on standard output.
            let lines = stdout.lines().chain(stderr.lines()).map(str::trim);
            let message = lines.into_iter().find(|line| !line.is_empty()).unwrap_or("it gave no reason");
            if message.contains(NOT_FOUND) {
                return Ok(None);
            }
            let message = redact(message).into_owned();
            Err(AuthError::HelperFailed { registry: registry_name(), program: program(), message })
        }
        Err(_) => Err(AuthError::HelperAnswer { registry: registry_name(), program: program() }),
    }
}

fn read_entry(entry: &AuthEntry, registry: &str) -> Result<Option<Credentials>, AuthError> {
    // With a helper in use, the entry exists but is empty; empty strings would be taken for credentials.
    let fields = [
        ("auth", &entry.auth),
        ("username", &entry.username),
        ("password", &entry.password),
        ("identitytoken", &entry.identitytoken),
    ];
    let filled: serde_json::Map<String, serde_json::Value> = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_deref().filter(|v| !v.is_empty())?))))
        .collect();
    match retrieve(&json!({ "auths": { server_address(registry): filled } }), registry) {
        Ok(credentials) => Ok(credentials),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        Err(_) => Err(AuthError::Entry { registry: registry.to_owned() }),
    }
}

/// Runs the library on a configuration with a single place to look.
fn retrieve(config: &serde_json::Value, registry: &str) -> Result<Option<Credentials>, CredentialRetrievalError> {
    let text = config.to_string();
    let credentials = match docker_credential::get_credential_from_reader(text.as_bytes(), server_address(registry))? {
        DockerCredential::IdentityToken(token) => Credentials::IdentityToken { token },
        DockerCredential::UsernamePassword(username, password) => Credentials::Password { username, password },
    };
    Ok(Some(credentials).filter(|credentials| !credentials.secret().is_empty()))
}

fn server_address(registry: &str) -> &str {
    if registry == DOCKER_HUB { HUB_KEY } else { registry }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::docker::config::parse_client_config;

    fn config(text: &str) -> ClientConfig {
        parse_client_config(text, Path::new("config.json")).expect("the fixture is valid")
    }

    fn password(username: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { username: username.to_owned(), password: password.to_owned() })
    }

    #[test]
    fn entries_of_auths() {
        // `dTpw` is `u:p`, `dTpwOnE=` is `u:p:q`.
        let token = Some(Credentials::IdentityToken { token: "t".to_owned() });
        for (text, registry, expected) in [
            (r#"{"auths":{"r:5000":{"auth":"dTpw"}}}"#, "r:5000", password("u", "p")),
            (r#"{"auths":{"r:5000":{"auth":"dTpwOnE="}}}"#, "r:5000", password("u", "p:q")),
            (r#"{"auths":{"https://r:5000/v2/":{"auth":"dTpw"}}}"#, "r:5000", password("u", "p")),
            (r#"{"auths":{"r":{"username":"u","password":"p"}}}"#, "r", password("u", "p")),
            (r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}"#, "docker.io", password("u", "p")),
            (r#"{"auths":{"docker.io":{"auth":"dTpw"}}}"#, "docker.io", password("u", "p")),
            (r#"{"auths":{"r":{"auth":"dTpw","identitytoken":"t"}}}"#, "r", token),
            (r#"{"auths":{"r":{"auth":"dTpw","identitytoken":""}}}"#, "r", password("u", "p")),
            (r#"{"auths":{"r":{}}}"#, "r", None),
            (r#"{"auths":{"r":{"auth":""}}}"#, "r", None),
            (r#"{"auths":{"other":{"auth":"dTpw"}}}"#, "r", None),
            (r#"{"auths":{"index.docker.io":{"auth":"dTpw"}}}"#, "r", None),
            ("{}", "r", None),
        ] {
            assert_eq!(find(&config(text), registry).expect(text), expected, "{text}");
        }
        for auth in ["!!", "bm9jb2xvbg=="] {
            let text = format!(r#"{{"auths":{{"r":{{"auth":"{auth}"}}}}}}"#);
            assert!(matches!(find(&config(&text), "r"), Err(AuthError::Entry { .. })), "{auth}");
        }
    }

    #[test]
    fn a_missing_helper_is_named() {
        for text in [r#"{"credsStore":"rdmaprep-gone"}"#, r#"{"credHelpers":{"r":"rdmaprep-gone"},"auths":{"r":{}}}"#] {
            let error = find(&config(text), "r").expect_err("there is no such program");
            assert!(matches!(error, AuthError::HelperMissing { .. }), "{error:?}");
            assert!(error.to_string().contains("docker-credential-rdmaprep-gone"), "{error}");
            assert!(error.remedy().is_some());
        }
    }

    #[test]
    fn a_helper_is_asked_only_for_its_registry() {
        let config = config(r#"{"credHelpers":{"other":"rdmaprep-gone"},"auths":{"r":{"auth":"dTpw"}}}"#);
        assert_eq!(find(&config, "r").expect("no helper"), password("u", "p"));
        assert!(find(&config, "other").is_err());
    }

    #[test]
    fn images_are_grouped_by_registry() {
        let config = config(r#"{"auths":{"r:5000":{"auth":"dTpw"},"docker.io":{"auth":"dTpw"}}}"#);
        let auth = find_for_images(&config, ["r:5000/a", "r:5000/b:1", "ubuntu", "quay.io/c"]).expect("valid");
        assert_eq!(auth.keys().map(String::as_str).collect::<Vec<_>>(), ["docker.io", "r:5000"]);
        assert!(for_buildkit(&auth).contains_key("registry-1.docker.io"));
        assert!(for_classic_builder(&auth).contains_key("https://index.docker.io/v1/"));
        assert!(find_for_images(&config, ["Bad"]).is_err());
    }

    #[test]
    fn refusals_are_told_from_other_denials() {
        for message in [
            "unauthorized: authentication required",
            "denied: requested access to the resource is denied",
            "Head \"https://r/v2/\": no basic auth credentials",
            "pull access denied for x, repository does not exist or may require 'docker login'",
            "failed to authorize: 401 Unauthorized",
        ] {
            assert!(is_refusal(message), "{message}");
        }
        assert!(!is_refusal("open /var/lib/docker/tmp/x: permission denied"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!(
            "{:?} {:?}",
            password("user", "hunter2"),
            Credentials::IdentityToken { token: "hunter2".to_owned() }
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("user"), "{shown}");
    }
}
