//! The settings of the Docker client: its environment variables and `config.json`.
//!
//! Input: a [`ClientEnv`] (a snapshot of the environment, so that tests need no real one) and the file
//! `config.json` in its directory. Output: a [`ClientConfig`], and the proxy variables that a build needs
//! ([`proxy_build_args`]).

use crate::remedy::Remedy;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The file inside the configuration directory.
const CONFIG_FILE: &str = "config.json";

/// Why the settings of the Docker client cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists but cannot be read.
    #[error("reading the Docker client configuration {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is not what the Docker client writes. The parser's own text is left out: it may quote a credential.
    #[error("parsing the Docker client configuration {}: not valid at line {line}, column {column}", path.display())]
    Parse { path: PathBuf, line: usize, column: usize },
}

impl Remedy for ConfigError {
    fn remedy(&self) -> Option<String> {
        match self {
            Self::Read { path, .. } => Some(format!("make {} readable, or set DOCKER_CONFIG", path.display())),
            Self::Parse { path, .. } => {
                Some(format!("correct {}, or set DOCKER_CONFIG to another directory", path.display()))
            }
        }
    }
}

/// The environment of the Docker client: variables, and the directory that holds `config.json` and the contexts.
#[derive(Clone, Default)]
pub struct ClientEnv {
    vars: BTreeMap<String, String>,
    config_dir: Option<PathBuf>,
}

impl ClientEnv {
    /// Takes the variables as given; the directory is `config_dir`, else `DOCKER_CONFIG`, else `HOME/.docker`.
    pub fn new<K, V>(vars: impl IntoIterator<Item = (K, V)>, config_dir: Option<PathBuf>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let vars: BTreeMap<String, String> = vars.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let named = |name: &str| vars.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config_dir =
            config_dir.or_else(|| named("DOCKER_CONFIG")).or_else(|| named("HOME").map(|home| home.join(".docker")));
        Self { vars, config_dir }
    }

    /// The environment of this process. Variables that are not UTF-8 are left out.
    pub fn from_process() -> Self {
        let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::new(vars, None)
    }

    /// A variable's value; an empty one counts as not set, as in the Docker client.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The directory of `config.json`, `contexts/` and the default TLS files.
    pub fn config_dir(&self) -> Option<&Path> {
        self.config_dir.as_deref()
    }
}

impl fmt::Debug for ClientEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientEnv")
            .field("vars", &self.vars.keys().collect::<Vec<_>>())
            .field("config_dir", &self.config_dir)
            .finish()
    }
}

/// What `config.json` says, as far as it matters here. Unknown keys belong to other tools and are ignored.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientConfig {
    pub(super) current_context: Option<String>,
    pub(super) proxies: Option<BTreeMap<String, ProxySettings>>,
    pub(super) auths: Option<BTreeMap<String, AuthEntry>>,
    pub(super) creds_store: Option<String>,
    pub(super) cred_helpers: Option<BTreeMap<String, String>>,
}

/// One entry of `proxies`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ProxySettings {
    http_proxy: Option<String>,
    https_proxy: Option<String>,
    no_proxy: Option<String>,
    ftp_proxy: Option<String>,
    all_proxy: Option<String>,
}

/// One entry of `auths`.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "lowercase")]
pub(super) struct AuthEntry {
    pub(super) auth: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) identitytoken: Option<String>,
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("current_context", &self.current_context)
            .field("proxies", &self.proxies.as_ref().map(|p| p.keys().collect::<Vec<_>>()))
            .field("auths", &self.auths.as_ref().map(|a| a.keys().collect::<Vec<_>>()))
            .field("creds_store", &self.creds_store)
            .field("cred_helpers", &self.cred_helpers)
            .finish()
    }
}

/// Parses the text of `config.json`; `path` only names the file in an error.
pub fn parse_client_config(text: &str, path: &Path) -> Result<ClientConfig, ConfigError> {
    serde_json::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    })
}

/// Reads `config.json` of `env`. A missing directory or file counts as an empty configuration.
pub fn load_client_config(env: &ClientEnv) -> Result<ClientConfig, ConfigError> {
    let Some(path) = env.config_dir().map(|dir| dir.join(CONFIG_FILE)) else {
        return Ok(ClientConfig::default());
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => parse_client_config(&text, &path),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(ClientConfig::default()),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}

/// The proxy variables, in the spelling of each case.
const PROXY_VARIABLES: [(&str, &str); 5] = [
    ("HTTP_PROXY", "http_proxy"),
    ("HTTPS_PROXY", "https_proxy"),
    ("NO_PROXY", "no_proxy"),
    ("FTP_PROXY", "ftp_proxy"),
    ("ALL_PROXY", "all_proxy"),
];

/// The proxy variables for the steps of a build, each in both cases.
///
/// `config.json` comes first: the entry for `docker_host`, else `default` (an entry for the host replaces the default
/// as a whole). What it lacks comes from the environment; a variable that is set there in one case only is passed in
/// both, because programs differ in which one they read. The engine knows these names, so they need no `ARG` and do
/// not enter the image's history.
pub fn proxy_build_args(env: &ClientEnv, config: &ClientConfig, docker_host: &str) -> BTreeMap<String, String> {
    let settings = config.proxies.as_ref().and_then(|p| p.get(docker_host).or_else(|| p.get("default")));
    let mut args = BTreeMap::new();
    for (upper, lower) in PROXY_VARIABLES {
        let configured = settings.and_then(|s| {
            let value = match upper {
                "HTTP_PROXY" => &s.http_proxy,
                "HTTPS_PROXY" => &s.https_proxy,
                "NO_PROXY" => &s.no_proxy,
                "FTP_PROXY" => &s.ftp_proxy,
                _ => &s.all_proxy,
            };
            value.as_deref().filter(|v| !v.is_empty())
        });
        let (for_upper, for_lower) = match configured {
            Some(value) => (Some(value), Some(value)),
            None => (env.var(upper).or(env.var(lower)), env.var(lower).or(env.var(upper))),
        };
        args.extend(for_upper.map(|v| (upper.to_owned(), v.to_owned())));
        args.extend(for_lower.map(|v| (lower.to_owned(), v.to_owned())));
    }
    args
}

/// `proxies` overlaid with what the user gave on the command line, which wins.
///
/// An explicit proxy variable also drops its other-case twin from `proxies`: a user who sets `HTTP_PROXY` (or empties
/// it) does not expect `http_proxy` to differ.
pub fn merge_build_args(
    mut proxies: BTreeMap<String, String>,
    explicit: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    for (upper, lower) in PROXY_VARIABLES {
        if explicit.contains_key(upper) || explicit.contains_key(lower) {
            proxies.remove(upper);
            proxies.remove(lower);
        }
    }
    proxies.extend(explicit.clone());
    proxies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> ClientEnv {
        ClientEnv::new(vars.iter().copied(), None)
    }

    fn config(text: &str) -> ClientConfig {
        parse_client_config(text, Path::new("/cfg/config.json")).expect("the fixture is valid")
    }

    fn pairs(args: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
        args.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
    }

    #[test]
    fn directory_is_docker_config_before_home() {
        assert_eq!(env(&[("HOME", "/h")]).config_dir(), Some(Path::new("/h/.docker")));
        assert_eq!(env(&[("HOME", "/h"), ("DOCKER_CONFIG", "/d")]).config_dir(), Some(Path::new("/d")));
        assert_eq!(env(&[("HOME", "/h"), ("DOCKER_CONFIG", "")]).config_dir(), Some(Path::new("/h/.docker")));
        assert_eq!(env(&[]).config_dir(), None);
    }

    #[test]
    fn host_entry_replaces_the_default_entry() {
        let config = config(
            r#"{"proxies":{"default":{"httpProxy":"http://d","noProxy":"x"},"tcp://a:2375":{"httpsProxy":"http://h"}}}"#,
        );
        assert_eq!(
            pairs(&proxy_build_args(&env(&[]), &config, "tcp://a:2375")),
            [("HTTPS_PROXY", "http://h"), ("https_proxy", "http://h")]
        );
        assert_eq!(
            pairs(&proxy_build_args(&env(&[]), &config, "unix:///var/run/docker.sock")),
            [("HTTP_PROXY", "http://d"), ("NO_PROXY", "x"), ("http_proxy", "http://d"), ("no_proxy", "x")]
        );
    }

    #[test]
    fn environment_fills_what_the_config_lacks_in_both_cases() {
        let config = config(r#"{"proxies":{"default":{"httpProxy":"http://c"}}}"#);
        let env = env(&[("http_proxy", "http://e"), ("https_proxy", "http://s"), ("NO_PROXY", "a"), ("no_proxy", "b")]);
        assert_eq!(
            pairs(&proxy_build_args(&env, &config, "any")),
            [
                ("HTTPS_PROXY", "http://s"),
                ("HTTP_PROXY", "http://c"),
                ("NO_PROXY", "a"),
                ("http_proxy", "http://c"),
                ("https_proxy", "http://s"),
                ("no_proxy", "b"),
            ]
        );
    }

    #[test]
    fn explicit_argument_wins_and_drops_its_twin() {
        let proxies = proxy_build_args(
            &env(&[("http_proxy", "http://e"), ("ftp_proxy", "http://f")]),
            &ClientConfig::default(),
            "any",
        );
        let explicit = BTreeMap::from([("HTTP_PROXY".to_owned(), String::new()), ("A".to_owned(), "1".to_owned())]);
        assert_eq!(
            pairs(&merge_build_args(proxies, &explicit)),
            [("A", "1"), ("FTP_PROXY", "http://f"), ("HTTP_PROXY", ""), ("ftp_proxy", "http://f")]
        );
    }

    #[test]
    fn missing_file_is_empty_and_a_malformed_one_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let env = ClientEnv::new([("HOME", "/nowhere")], Some(dir.path().to_owned()));
        assert!(load_client_config(&env).expect("no file").current_context.is_none());

        let path = dir.path().join(CONFIG_FILE);
        std::fs::write(&path, "{\"auths\": {\"r\": \"dXNlcjpzZWNyZXQ=\"}}").expect("writing the fixture");
        let error = load_client_config(&env).expect_err("a string is not an auth entry");
        assert!(matches!(error, ConfigError::Parse { line: 1, .. }), "{error:?}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(path.to_str().expect("UTF-8 path")), "{shown}");
        assert!(!shown.contains("dXNl"), "{shown}");
        assert!(error.remedy().is_some());
    }

    #[test]
    fn debug_shows_no_values() {
        let config = config(
            r#"{"auths":{"r":{"auth":"c2VjcmV0","password":"secret"}},"proxies":{"default":{"httpProxy":"http://u:secret@p"}}}"#,
        );
        let env = env(&[("http_proxy", "http://u:secret@p")]);
        let shown = format!("{config:?} {env:?}");
        assert!(!shown.contains("secret") && !shown.contains("c2VjcmV0"), "{shown}");
        assert!(shown.contains("http_proxy"), "{shown}");
    }
}
