//! The variables of a container: image, target's presets, `--env` and the run itself → one list with origins. Pure.
//!
//! Precedence: run over user over preset over image. Only variables that matter to NCCL, CUDA and the loader are recorded, and
//! those that a preset, the user or the run set; values that look secret never are.

use crate::facts::run::{Origin, Variable};
use crate::facts::{NcclSetting, SettingSource};
use crate::nccl_settings::{InterfaceFilter, parse_number};
use crate::remedy::Remedy;
use std::collections::BTreeMap;

/// Variables of the image that are recorded, by the start of their names.
const RECORDED_PREFIXES: [&str; 5] = ["NCCL_", "CUDA_", "NVIDIA_", "UCX_", "IBV_"];

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const IB_DISABLE: &str = "NCCL_IB_DISABLE";
const IB_HCA: &str = "NCCL_IB_HCA";
const DEBUG_SUBSYS: &str = "NCCL_DEBUG_SUBSYS";

/// What NCCL logs without the variable (NVIDIA/nccl `src/debug.cc`, v2.19 to v2.28; a name that a version does not know
/// is passed over).
const DEFAULT_SUBSYS: &str = "INIT,BOOTSTRAP,ENV";

/// What the run clears: with a filter or a file of the image's the agent would not see the lines that are the proof.
/// The agent sets the file itself, one per rank.
const CLEARED: [&str; 2] = [DEBUG_SUBSYS, "NCCL_DEBUG_FILE"];

/// Variables that every run sets. Warnings of libibverbs name the provider that is missing.
const ALWAYS: [(&str, &str); 2] = [("NCCL_DEBUG", "INFO"), ("IBV_SHOW_WARNINGS", "1")];

/// What makes NCCL take TCP, whatever it would take otherwise (NVIDIA/nccl, "Environment variables").
const OVER_SOCKET: [(&str, &str); 2] = [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")];
/// What keeps NCCL from any way between GPUs of one host but the network (NVIDIA/nccl `src/transport/p2p.cc`, `shm.cc`,
/// `nvls.cc`).
const FORCE_NIC: [(&str, &str); 3] = [("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"), ("NCCL_NVLS_ENABLE", "0")];

/// Replaces a value that is not shown.
pub const HIDDEN: &str = "***";

/// A variable that the user gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVariable {
    pub name: String,
    pub value: String,
}

/// An argument of `--env` that names no variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error("--env {0:?}: a variable's name has no spaces; write NAME=VALUE")]
    Name(String),
    #[error("--env {0}: the variable is not set here")]
    NotSet(String),
    #[error("--env {0}: the value contains a zero byte")]
    Value(String),
}

impl Remedy for EnvError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            EnvError::NotSet(text) => format!("--env {text}=VALUE"),
            EnvError::Name(_) | EnvError::Value(_) => return None,
        })
    }
}

impl UserVariable {
    /// Reads `NAME=VALUE`, or `NAME` whose value `lookup` gives from the caller's environment.
    ///
    /// # Errors
    /// The name is none, or nothing is set under it.
    pub fn parse(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<UserVariable, EnvError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(EnvError::Name(text.split('=').next().unwrap_or_default().to_owned()));
        }
        let value = value.or_else(|| lookup(name)).ok_or_else(|| EnvError::NotSet(name.to_owned()))?;
        if value.contains('\0') {
            return Err(EnvError::Value(name.to_owned()));
        }
        Ok(UserVariable { name: name.to_owned(), value })
    }
}

/// What the variables come from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sources<'a> {
    /// The image's Env, in order; a later one wins.
    pub image: &'a [(String, String)],
    /// The NCCL settings in the image, including files.
    pub nccl_settings: &'a [NcclSetting],
    /// The target's, or none with `--no-presets`.
    pub presets: &'a [(&'a str, &'a str)],
    pub user: &'a [UserVariable],
    pub force_nic: bool,
    /// RDMA devices of the host, where they are known.
    pub nics: Option<&'a Nics>,
    /// The run repeated over TCP.
    pub over_socket: bool,
    /// A directory to be searched before all others for libraries.
    pub library_directory: Option<&'a str>,
    /// What the GPU access needs.
    pub access: &'a [(&'a str, &'a str)],
}

/// RDMA devices of a host, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nics {
    /// What the container gets a node of.
    pub passed: Vec<String>,
    /// What it sees in sysfs all the same, and cannot open.
    pub others: Vec<String>,
}

impl Nics {
    /// The value of `NCCL_IB_HCA` that lets nothing through but what was passed; `None`: the value that is set does so
    /// already, or nothing was passed, or there is nothing else.
    fn filter(&self, set: Option<&str>) -> Option<String> {
        let set = InterfaceFilter::parse(set.unwrap_or_default());
        let tries_others = self.others.iter().any(|name| set.allows(name, None));
        let names = self.passed.iter().map(String::as_str);
        (tries_others && !self.passed.is_empty()).then(|| InterfaceFilter::exactly(names))
    }
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// What the engine is to set over the image's Env, sorted; `None`: to remove. Holds secrets.
    pub changes: Vec<(String, Option<String>)>,
    /// What is said of it, sorted by name. A variable that the run removes has no value and the origin run. Holds no
    /// secrets: their value is [`HIDDEN`].
    pub recorded: Vec<Variable>,
}

/// Puts the sources together.
pub fn environment(sources: &Sources<'_>) -> Environment {
    let image: BTreeMap<&str, &str> =
        sources.image.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let preset: BTreeMap<&str, &str> = sources.presets.iter().copied().collect();
    let user: BTreeMap<&str, &str> =
        sources.user.iter().map(|variable| (variable.name.as_str(), variable.value.as_str())).collect();
    // Without the run's own, who sets a name: the strongest first.
    let layers = [(Origin::User, &user), (Origin::Preset, &preset), (Origin::Image, &image)];
    let given = |name: &str| -> Vec<(Origin, String)> {
        let found = layers.iter().filter_map(|(origin, layer)| Some((*origin, (*layer.get(name)?).to_owned())));
        found.collect()
    };
    let run = settings_of_the_run(sources, &given);

    let mut names: Vec<&str> = image.keys().copied().filter(|name| is_recorded(name)).collect();
    names.extend(preset.keys().chain(user.keys()));
    names.extend(run.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();

    let mut environment = Environment::default();
    for name in names {
        let mut given = given(name);
        if let Some(change) = run.get(name) {
            given.extend(file_setting(sources, name));
            given.insert(0, (Origin::Run, change.clone().unwrap_or_default()));
        }
        let removed = run.get(name).is_some_and(Option::is_none);
        let (origin, value) = given.remove(0);
        given.retain(|(_, other)| removed || *other != value);
        if origin != Origin::Image {
            environment.changes.push((name.to_owned(), (!removed).then(|| value.clone())));
        }
        let shown = |value: String| if is_secret(name) { HIDDEN.to_owned() } else { value };
        environment.recorded.push(Variable {
            name: name.to_owned(),
            value: if removed { String::new() } else { shown(value) },
            origin,
            replaced: given.into_iter().map(|(origin, value)| (origin, shown(value))).collect(),
        });
    }
    environment
}

/// What the run itself sets, or removes with `None`. `given` says who else sets a name, the strongest first.
fn settings_of_the_run(
    sources: &Sources<'_>,
    given: &dyn Fn(&str) -> Vec<(Origin, String)>,
) -> BTreeMap<String, Option<String>> {
    let mut run: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut set = |(name, value): (&str, &str)| run.insert(name.to_owned(), Some(value.to_owned()));
    for setting in ALWAYS {
        set(setting);
    }
    if sources.force_nic {
        for setting in FORCE_NIC {
            set(setting);
        }
    }
    for setting in sources.access {
        set(*setting);
    }
    if sources.over_socket {
        for setting in OVER_SOCKET {
            set(setting);
        }
    }
    let disables = |value: &str| parse_number(value).is_some_and(|number| number != 0);
    let in_force = match given(IB_DISABLE).into_iter().next() {
        Some((Origin::User, _)) => None,
        Some((_, value)) => Some(value),
        None => file_setting(sources, IB_DISABLE).map(|(_, value)| value),
    };
    if in_force.is_some_and(|value| disables(&value)) && !sources.over_socket {
        set((IB_DISABLE, "0"));
    }
    if let Some(filter) = hca_filter(sources, given) {
        set((IB_HCA, &filter));
    }
    if let Some(directory) = sources.library_directory {
        let rest = given(LIBRARY_PATH).into_iter().next().map(|(_, value)| value).filter(|value| !value.is_empty());
        let value = rest.map_or_else(|| directory.to_owned(), |rest| format!("{directory}:{rest}"));
        set((LIBRARY_PATH, &value));
    }
    for name in CLEARED {
        if !given(name).is_empty() {
            run.insert(name.to_owned(), None);
        }
    }
    // A variable beats a file, and without the variable the file counts.
    if file_setting(sources, DEBUG_SUBSYS).is_some() {
        run.insert(DEBUG_SUBSYS.to_owned(), Some(DEFAULT_SUBSYS.to_owned()));
    }
    run
}

/// What `NCCL_IB_HCA` is to be for this host, where neither the image nor the user sets it: theirs is to be judged.
fn hca_filter(sources: &Sources<'_>, given: &dyn Fn(&str) -> Vec<(Origin, String)>) -> Option<String> {
    let nics = sources.nics?;
    match given(IB_HCA).into_iter().next() {
        Some((Origin::Preset, preset)) => nics.filter(Some(&preset)),
        Some(_) => None,
        None if file_setting(sources, IB_HCA).is_some() => None,
        None => nics.filter(None),
    }
}

/// Settings from a file in the image, such as `/etc/nccl.conf`.
fn file_setting(sources: &Sources<'_>, name: &str) -> Option<(Origin, String)> {
    let setting =
        sources.nccl_settings.iter().find(|setting| setting.name == name && setting.from != SettingSource::Env)?;
    Some((Origin::Image, setting.value.clone()))
}

fn is_recorded(name: &str) -> bool {
    name == LIBRARY_PATH || RECORDED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a name looks like that of a secret: one of its words is a secret's.
pub fn is_secret(name: &str) -> bool {
    // Not TOKENS, which are a model's far more often (MAX_TOKENS).
    const WORDS: [&str; 18] = [
        "TOKEN",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "SECRET",
        "SECRETS",
        "KEY",
        "KEYS",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        // Written together, as in PGPASSWORD.
        "APIKEY",
        "ACCESSKEY",
        "SECRETKEY",
        "PRIVATEKEY",
        "ACCESSTOKEN",
        "AUTHTOKEN",
        "PGPASSWORD",
    ];
    name.to_ascii_uppercase().split(|c: char| !c.is_ascii_alphanumeric()).any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn user(variables: &[(&str, &str)]) -> Vec<UserVariable> {
        pairs(variables).into_iter().map(|(name, value)| UserVariable { name, value }).collect()
    }

    fn file(name: &str, value: &str) -> NcclSetting {
        NcclSetting {
            name: name.into(),
            value: value.into(),
            from: SettingSource::File("/etc/nccl.conf".into()),
            overridden: Vec::new(),
        }
    }

    /// `value (origin) < replaced (origin)`, or nothing.
    fn say(environment: &Environment, name: &str) -> String {
        let Some(variable) = environment.recorded.iter().find(|variable| variable.name == name) else {
            return String::new();
        };
        let mut text = format!("{} ({:?})", variable.value, variable.origin);
        for (origin, value) in &variable.replaced {
            text += &format!(" < {value} ({origin:?})");
        }
        text
    }

    fn change<'a>(environment: &'a Environment, name: &str) -> Option<&'a Option<String>> {
        environment.changes.iter().find(|(changed, _)| changed == name).map(|(_, value)| value)
    }

    #[test]
    fn run_over_user_over_preset_over_image() {
        let image =
            pairs(&[("NCCL_IB_HCA", "mlx5"), ("NCCL_IB_TIMEOUT", "20"), ("NCCL_DEBUG", "WARN"), ("PATH", "/bin")]);
        let presets = [("NCCL_IB_HCA", "erdma"), ("NCCL_DEBUG", "INFO"), ("NCCL_NET_PLUGIN", "none")];
        let user = user(&[("NCCL_NET_PLUGIN", "spcx"), ("MINE", "1"), ("NCCL_DEBUG", "TRACE")]);
        let sources = Sources { image: &image, presets: &presets, user: &user, ..Sources::default() };
        let all = environment(&sources);
        assert_eq!(say(&all, "NCCL_IB_HCA"), "erdma (Preset) < mlx5 (Image)");
        assert_eq!(say(&all, "NCCL_IB_TIMEOUT"), "20 (Image)");
        assert_eq!(say(&all, "NCCL_NET_PLUGIN"), "spcx (User) < none (Preset)");
        assert_eq!(say(&all, "NCCL_DEBUG"), "INFO (Run) < TRACE (User) < WARN (Image)");
        assert_eq!((say(&all, "MINE").as_str(), say(&all, "PATH").as_str()), ("1 (User)", ""));
        assert_eq!(say(&all, "IBV_SHOW_WARNINGS"), "1 (Run)");
        // The engine is told what differs from the image.
        assert_eq!(change(&all, "NCCL_IB_TIMEOUT"), None);
        assert_eq!(change(&all, "NCCL_IB_HCA"), Some(&Some("erdma".into())));
        let none = environment(&Sources { presets: &[], ..sources });
        assert_eq!(say(&none, "NCCL_IB_HCA"), "mlx5 (Image)");
        let names: Vec<&str> = all.recorded.iter().map(|variable| variable.name.as_str()).collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    /// A host with erdma_0 beside an mlx5_bond_0 that the container cannot open.
    #[test]
    fn foreign_devices_are_filtered_out() {
        let nics = Nics { passed: vec!["erdma_0".into(), "erdma_1".into()], others: vec!["mlx5_bond_0".into()] };
        let value = |sources: Sources<'_>| say(&environment(&Sources { nics: Some(&nics), ..sources }), IB_HCA);
        assert_eq!(value(Sources::default()), "=erdma_0,erdma_1 (Run)");
        // A filter that already keeps it out stays, and so does what image and user set.
        assert_eq!(value(Sources { presets: &[(IB_HCA, "erdma")], ..Sources::default() }), "erdma (Preset)");
        let broad = [(IB_HCA, "^eth")];
        assert_eq!(value(Sources { presets: &broad, ..Sources::default() }), "=erdma_0,erdma_1 (Run) < ^eth (Preset)");
        assert_eq!(value(Sources { image: &pairs(&[(IB_HCA, "mlx5")]), ..Sources::default() }), "mlx5 (Image)");
        assert_eq!(value(Sources { user: &user(&[(IB_HCA, "")]), ..Sources::default() }), " (User)");
        assert_eq!(value(Sources { nccl_settings: &[file(IB_HCA, "mlx5")], ..Sources::default() }), "");
        for nics in [Nics { others: Vec::new(), ..nics.clone() }, Nics { passed: Vec::new(), ..nics.clone() }] {
            assert_eq!(say(&environment(&Sources { nics: Some(&nics), ..Sources::default() }), IB_HCA), "", "{nics:?}");
        }
    }

    #[test]
    fn filters_and_files_of_the_log_are_cleared() {
        let image = pairs(&[("NCCL_DEBUG_SUBSYS", "COLL"), ("NCCL_DEBUG_FILE", "/tmp/x")]);
        let all = environment(&Sources { image: &image, ..Sources::default() });
        assert_eq!(say(&all, "NCCL_DEBUG_SUBSYS"), " (Run) < COLL (Image)");
        assert_eq!((change(&all, "NCCL_DEBUG_SUBSYS"), change(&all, "NCCL_DEBUG_FILE")), (Some(&None), Some(&None)));
        let clean = environment(&Sources::default());
        assert_eq!((change(&clean, "NCCL_DEBUG_SUBSYS"), change(&clean, "NCCL_DEBUG_FILE")), (None, None));
        // Of the user's, too.
        let by_user = environment(&Sources { user: &user(&[("NCCL_DEBUG_FILE", "/x")]), ..Sources::default() });
        assert_eq!(change(&by_user, "NCCL_DEBUG_FILE"), Some(&None));
        let by_file =
            environment(&Sources { nccl_settings: &[file("NCCL_DEBUG_SUBSYS", "COLL")], ..Sources::default() });
        assert_eq!(say(&by_file, "NCCL_DEBUG_SUBSYS"), "INIT,BOOTSTRAP,ENV (Run) < COLL (Image)");
    }

    /// Case D15.
    #[test]
    fn an_image_that_switches_rdma_off_is_overridden() {
        let switched_off = |value: &str, user: &[UserVariable]| {
            let image = pairs(&[("NCCL_IB_DISABLE", value)]);
            environment(&Sources { image: &image, user, ..Sources::default() })
        };
        assert_eq!(say(&switched_off("1", &[]), "NCCL_IB_DISABLE"), "0 (Run) < 1 (Image)");
        for value in ["0", "", "no"] {
            assert_eq!(say(&switched_off(value, &[]), "NCCL_IB_DISABLE"), format!("{value} (Image)"));
        }
        let wish = user(&[("NCCL_IB_DISABLE", "1")]);
        assert_eq!(say(&switched_off("1", &wish), "NCCL_IB_DISABLE"), "1 (User)");
        let settings = [file("NCCL_IB_DISABLE", "0x1")];
        let by_file = environment(&Sources { nccl_settings: &settings, ..Sources::default() });
        assert_eq!(say(&by_file, "NCCL_IB_DISABLE"), "0 (Run) < 0x1 (Image)");
        let by_file = environment(&Sources { nccl_settings: &settings, user: &wish, ..Sources::default() });
        assert_eq!(say(&by_file, "NCCL_IB_DISABLE"), "1 (User)");
    }

    #[test]
    fn forcing_the_nic_and_driver_libraries() {
        let image = pairs(&[("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/x"), ("NCCL_P2P_DISABLE", "0")]);
        let sources = Sources {
            image: &image,
            force_nic: true,
            over_socket: false,
            library_directory: Some("/drv"),
            access: &[("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")],
            ..Sources::default()
        };
        let all = environment(&sources);
        assert_eq!(
            say(&all, "LD_LIBRARY_PATH"),
            "/drv:/usr/local/nvidia/lib:/x (Run) < /usr/local/nvidia/lib:/x (Image)"
        );
        assert_eq!(say(&all, "NCCL_P2P_DISABLE"), "1 (Run) < 0 (Image)");
        assert_eq!(
            (say(&all, "NCCL_SHM_DISABLE"), say(&all, "NCCL_NVLS_ENABLE")),
            ("1 (Run)".into(), "0 (Run)".into())
        );
        assert_eq!(say(&all, "NVIDIA_DRIVER_CAPABILITIES"), "compute,utility (Run)");
        for image in [&[] as &[(String, String)], &pairs(&[("LD_LIBRARY_PATH", "")])] {
            // An empty element would be the directory that a process is in.
            let all = environment(&Sources { image, ..sources });
            assert_eq!(change(&all, "LD_LIBRARY_PATH"), Some(&Some("/drv".into())));
        }
        let other = environment(&Sources { force_nic: false, library_directory: None, access: &[], ..sources });
        assert_eq!(say(&other, "NCCL_P2P_DISABLE"), "0 (Image)");
        assert_eq!(change(&other, "LD_LIBRARY_PATH"), None);
    }

    #[test]
    fn secrets_are_set_and_not_said() {
        let image = pairs(&[("NVIDIA_API_KEY", "image-secret"), ("HF_TOKEN", "x"), ("NCCL_IB_PKEY", "0x8001")]);
        let user = user(&[("NVIDIA_API_KEY", "user-secret"), ("wandb_auth", "user-secret")]);
        let all = environment(&Sources { image: &image, user: &user, ..Sources::default() });
        assert_eq!(say(&all, "NVIDIA_API_KEY"), "*** (User) < *** (Image)");
        assert_eq!((say(&all, "wandb_auth").as_str(), say(&all, "HF_TOKEN").as_str()), ("*** (User)", ""));
        assert_eq!(say(&all, "NCCL_IB_PKEY"), "0x8001 (Image)");
        assert!(!format!("{:?}", all.recorded).contains("secret"));
        assert_eq!(change(&all, "NVIDIA_API_KEY"), Some(&Some("user-secret".into())));
    }

    #[test]
    fn secrets_by_whole_words() {
        for name in [
            "HF_TOKEN",
            "WANDB_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "CI_REGISTRY_PASSWORD",
            "hf_token",
            "db.password",
            "KEY",
            "OPENAI_APIKEY",
            "PGPASSWORD",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "TOKENIZERS_PARALLELISM",
            "MONKEY",
            "MAX_TOKENS",
            "NCCL_IB_PKEY",
            "KEYBOARD",
            "AUTHOR",
            "TURKEY_DATA",
            "SECRETARY",
            "NCCL_DEBUG",
            "",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn arguments_of_env() {
        let parse = |text: &str| UserVariable::parse(text, |name| (name == "HERE").then(|| "there".to_owned()));
        let variable = |name: &str, value: &str| Ok(UserVariable { name: name.into(), value: value.into() });
        assert_eq!(parse("A=b=c"), variable("A", "b=c"));
        assert_eq!(parse("A="), variable("A", ""));
        assert_eq!(parse("HERE"), variable("HERE", "there"));
        assert_eq!(parse("GONE"), Err(EnvError::NotSet("GONE".into())));
        for text in ["", "=x", "A B=x", "A\n=x"] {
            assert!(matches!(parse(text), Err(EnvError::Name(_))), "{text:?}");
        }
        assert_eq!(parse("A=\0"), Err(EnvError::Value("A".into())));
    }
}
