//! The Linux distribution of an image: os-release text → [`Distro`].
//!
//! Parsing is pure. What a distribution *supports* is not here: that belongs to the fabric (`fabric`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// The distribution as its os-release names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Distro {
    /// `ID`, lower case (`ubuntu`, `debian`, `alinux`).
    pub id: String,
    /// `VERSION_ID` (`22.04`); rolling releases have none.
    pub version: Option<String>,
    /// `VERSION_CODENAME` (`jammy`).
    pub codename: Option<String>,
    /// `ID_LIKE`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub like: Vec<String>,
    /// `PRETTY_NAME`, for people.
    pub pretty_name: Option<String>,
}

impl Distro {
    /// A distribution as the command line names it: `alinux:3`, `ubuntu:22.04`. `None` without both parts.
    pub fn named(text: &str) -> Option<Distro> {
        let (id, version) = text.split_once(':')?;
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        (is_word(id) && is_word(version)).then(|| Distro::of(&id.to_ascii_lowercase(), version))
    }

    /// A distribution of which nothing but id and version is known.
    pub fn of(id: &str, version: &str) -> Distro {
        Distro {
            id: id.to_owned(),
            version: Some(version.to_owned()),
            codename: None,
            like: Vec::new(),
            pretty_name: None,
        }
    }

    /// Whether it is of a version that a table lists: `8` is any 8.x, and `22.03` is 22.03 with its updates, not 22.09.
    pub fn is_version(&self, listed: &str) -> bool {
        let rest = self.version.as_deref().and_then(|version| version.strip_prefix(listed));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for Distro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pretty_name, &self.version) {
            (Some(name), _) => f.write_str(name),
            (None, Some(version)) => write!(f, "{} {version}", self.id),
            (None, None) => f.write_str(&self.id),
        }
    }
}

/// Reads the text of an os-release file. `None` when it has no `ID`.
pub fn parse_os_release(text: &str) -> Option<Distro> {
    let value = |key: &str| {
        text.lines()
            .map(|line| line.trim())
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='))
            // Shells let a later assignment win.
            .filter(|(name, _)| *name == key)
            .map(|(_, value)| unquote(value))
            .next_back()
            .filter(|value| !value.is_empty())
    };
    Some(Distro {
        id: value("ID")?.to_ascii_lowercase(),
        version: value("VERSION_ID"),
        codename: value("VERSION_CODENAME").or_else(|| value("UBUNTU_CODENAME")),
        like: value("ID_LIKE").map(|like| like.split_whitespace().map(str::to_owned).collect()).unwrap_or_default(),
        pretty_name: value("PRETTY_NAME"),
    })
}

/// Reads an old `*-release` line such as `CentOS release 6.10 (Final)`.
pub fn parse_release_line(text: &str) -> Option<Distro> {
    let line = text.lines().next()?.trim();
    let (name, rest) = line.split_once(" release ")?;
    let id = match name {
        "Red Hat Enterprise Linux" | "Red Hat Enterprise Linux Server" => "rhel".to_owned(),
        other => other.split_whitespace().next()?.to_ascii_lowercase(),
    };
    Some(Distro {
        id,
        version: rest.split_whitespace().next().map(str::to_owned),
        codename: None,
        like: Vec::new(),
        pretty_name: Some(line.to_owned()),
    })
}

/// Shell-style unquoting as os-release allows it: one pair of quotes, backslash escapes inside double quotes.
fn unquote(value: &str) -> String {
    let value = value.trim();
    if let Some(inner) = value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')) {
        return inner.to_owned();
    }
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_comments_and_crlf() {
        let text = "# a comment\r\nNAME='Foo'\r\nID=\"Ubuntu\"\r\nVERSION_ID='22.04'\r\nVERSION_CODENAME=jammy\r\n\
                    ID_LIKE=\"rhel fedora\"\r\nPRETTY_NAME=\"A \\\"good\\\" one\"\r\n";
        let distro = parse_os_release(text).unwrap();
        assert_eq!(distro.id, "ubuntu");
        assert_eq!(distro.version.as_deref(), Some("22.04"));
        assert_eq!(distro.codename.as_deref(), Some("jammy"));
        assert_eq!(distro.like, ["rhel", "fedora"]);
        assert_eq!(distro.pretty_name.as_deref(), Some("A \"good\" one"));
    }

    #[test]
    fn listed_versions() {
        let distro = |version: &str| parse_os_release(&format!("ID=x\nVERSION_ID={version}\n")).unwrap();
        for (version, listed) in [("8", "8"), ("8.10", "8"), ("2.1903", "2"), ("22.03", "22.03"), ("22.03.1", "22.03")]
        {
            assert!(distro(version).is_version(listed), "{version} is {listed}");
        }
        for (version, listed) in [("80", "8"), ("8", "8.10"), ("22.09", "22.03"), ("22.030", "22.03"), ("", "8")] {
            assert!(!distro(version).is_version(listed), "{version} is not {listed}");
        }
    }

    #[test]
    fn no_id_is_no_distro() {
        assert_eq!(parse_os_release("NAME=x\n#ID=debian\nVARIANT_ID=server\n"), None);
    }

    #[test]
    fn old_release_files() {
        let distro = parse_release_line("CentOS release 6.10 (Final)\n").unwrap();
        assert_eq!((distro.id.as_str(), distro.version.as_deref()), ("centos", Some("6.10")));
        let distro = parse_release_line("Red Hat Enterprise Linux Server release 7.9 (Maipo)").unwrap();
        assert_eq!((distro.id.as_str(), distro.version.as_deref()), ("rhel", Some("7.9")));
        assert_eq!(parse_release_line("nothing here"), None);
    }
}
