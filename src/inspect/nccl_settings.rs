//! Which `NCCL_*` settings a process of the image starts with: Env and configuration files → one value per name.
//!
//! NCCL reads the environment first, then `$NCCL_CONF_FILE` or else `~/.nccl.conf` of the user that it runs as, then
//! `/etc/nccl.conf`; what is set already stays (NVIDIA/nccl `src/misc/param.cc`).

use super::absolute;
use crate::facts::{ConfigFacts, NcclSetting, SettingSource};
use crate::image::rootfs::RootFs;
use crate::nccl_settings::parse_conf;

const SYSTEM_FILE: &str = "etc/nccl.conf";
const USER_FILE: &str = ".nccl.conf";
const PASSWD: &str = "etc/passwd";
/// The variable that names the user's file; NCCL 2.23 and later read it.
const CONF_FILE: &str = "NCCL_CONF_FILE";

/// Whether the content of a path is needed here. Which file `NCCL_CONF_FILE` names is not known while the layers pass, so every
/// file with a likely name is kept.
pub(super) fn wants(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path == PASSWD || name == USER_FILE || (name.starts_with("nccl") && name.ends_with(".conf"))
}

/// The settings, sorted by name, and the files that could not be read.
pub(super) fn load_settings(fs: &RootFs, config: &ConfigFacts) -> (Vec<NcclSetting>, Vec<String>) {
    let mut settings: Vec<NcclSetting> = Vec::new();
    let mut unread = Vec::new();
    let mut add = |name: &str, value: &str, from: SettingSource| match settings
        .iter_mut()
        .find(|known| known.name == name)
    {
        Some(known) => known.overridden.push(format!("{from}: {value}")),
        None => {
            settings.push(NcclSetting { name: name.to_owned(), value: value.to_owned(), from, overridden: Vec::new() })
        }
    };
    let mut names: Vec<&str> =
        config.env.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("NCCL_")).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        // The variable in which images state the version is not one of NCCL's settings.
        if let Some(value) = config.env(name).filter(|_| name != "NCCL_VERSION") {
            add(name, value, SettingSource::Env);
        }
    }
    let user_file = match config.env(CONF_FILE).filter(|path| !path.is_empty()) {
        Some(path) => Some(path.to_owned()),
        None => home(fs, config).map(|home| format!("{}/{USER_FILE}", home.trim_end_matches('/'))),
    };
    for path in user_file.into_iter().chain([absolute(SYSTEM_FILE)]) {
        match fs.text(&path) {
            Some(text) => {
                parse_conf(&text).iter().for_each(|(name, value)| add(name, value, SettingSource::File(path.clone())))
            }
            None if fs.exists(&path) => unread.push(path),
            None => {}
        }
    }
    settings.sort_by(|a, b| a.name.cmp(&b.name));
    (settings, unread)
}

/// The home directory of the user that processes run as, from `/etc/passwd`.
fn home(fs: &RootFs, config: &ConfigFacts) -> Option<String> {
    let user = config.user.split(':').next().unwrap_or_default();
    let user = if user.is_empty() { "root" } else { user };
    let home = fs.text(PASSWD).and_then(|text| parse_home(&text, user));
    // Without the file `~` of root is still what everybody takes it for.
    home.or_else(|| (user == "root" || user == "0").then(|| "/root".to_owned()))
}

/// The sixth field of a user's line, by name or number (passwd(5)).
fn parse_home(text: &str, user: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        (name == user || id == user).then(|| home.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use crate::image_fixture::Fixture;

    fn of(fixture: &Fixture, name: &str) -> Option<(String, String)> {
        let settings = fixture.facts().nccl_settings;
        settings
            .into_iter()
            .find(|setting| setting.name == name)
            .map(|setting| (setting.value, setting.from.to_string()))
    }

    #[test]
    fn the_environment_is_before_the_user_s_file_and_that_before_the_system_s() {
        let mut fixture = Fixture::good();
        let found = |value: &str, from: &str| Some((value.to_owned(), from.to_owned()));
        fixture.file("etc/nccl.conf", "NCCL_DEBUG=WARN\nNCCL_IB_TC=8\n");
        assert_eq!(of(&fixture, "NCCL_DEBUG"), found("WARN", "/etc/nccl.conf"));
        fixture.file("root/.nccl.conf", "NCCL_DEBUG=INFO\n");
        assert_eq!(of(&fixture, "NCCL_DEBUG"), found("INFO", "/root/.nccl.conf"));
        // Another user has another home.
        fixture.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nt:x:1000:1000::/home/t:/bin/sh\n");
        fixture.file("home/t/.nccl.conf", "NCCL_DEBUG=VERSION\n");
        fixture.config["User"] = "1000:1000".into();
        assert_eq!(of(&fixture, "NCCL_DEBUG"), found("VERSION", "/home/t/.nccl.conf"));
        // An explicitly named file replaces the one in the home directory.
        fixture.env("NCCL_CONF_FILE", "/opt/nccl-site.conf").file("opt/nccl-site.conf", "NCCL_NET=IB\n");
        assert_eq!(of(&fixture, "NCCL_DEBUG"), found("WARN", "/etc/nccl.conf"));
        assert_eq!(of(&fixture, "NCCL_NET"), found("IB", "/opt/nccl-site.conf"));
        fixture.env("NCCL_DEBUG", "TRACE").env("NCCL_VERSION", "2.17.1");
        assert_eq!(of(&fixture, "NCCL_DEBUG"), found("TRACE", "Env"));
        assert_eq!(of(&fixture, "NCCL_VERSION"), None);
        let settings = fixture.facts().nccl_settings;
        let debug = settings.iter().find(|setting| setting.name == "NCCL_DEBUG").unwrap();
        assert_eq!(debug.overridden, ["/etc/nccl.conf: WARN"]);
    }

    #[test]
    fn a_file_that_is_not_read_is_named() {
        let mut fixture = Fixture::good();
        fixture.env("NCCL_CONF_FILE", "/opt/settings").file("opt/settings", "NCCL_IB_DISABLE=1\n");
        assert_eq!(fixture.facts().nccl_settings_unread, ["/opt/settings"]);
    }
}
