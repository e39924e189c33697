//! Platforms of images: `os/arch[/variant]`, in Go's names, as in OCI indexes and `docker --platform`.

use crate::remedy::Remedy;
use std::fmt;
use std::str::FromStr;

/// Operating system, architecture and its variant.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub variant: Option<String>,
}

/// A text that is not a platform.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a platform")]
pub struct PlatformError(String);

impl Remedy for PlatformError {
    fn remedy(&self) -> Option<String> {
        Some("a platform is OS/ARCH or OS/ARCH/VARIANT, such as linux/amd64 or linux/arm64/v8".to_owned())
    }
}

impl Platform {
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Platform {
        let variant = variant.filter(|variant| !variant.is_empty()).map(str::to_owned);
        Platform { os: os.to_owned(), architecture: architecture.to_owned(), variant }
    }

    /// The default platform: Linux on this machine's processor.
    pub fn of_this_machine() -> Platform {
        Platform::new("linux", go_architecture(std::env::consts::ARCH), None)
    }

    /// Whether an image of platform `offered` satisfies the request. A variant that was not requested does not matter;
    /// `arm64` and `arm64/v8` are one (containerd, `platforms.Normalize`).
    pub fn accepts(&self, offered: &Platform) -> bool {
        self.os == offered.os
            && self.architecture == offered.architecture
            && (self.variant.is_none() || self.known_variant() == offered.known_variant())
    }

    pub(super) fn known_variant(&self) -> Option<&str> {
        match (self.architecture.as_str(), self.variant.as_deref()) {
            ("arm64", Some("v8")) | (_, Some("")) => None,
            (_, variant) => variant,
        }
    }

    /// Whether this is the placeholder that BuildKit gives to attestations, which are not images.
    pub(super) fn is_placeholder(&self) -> bool {
        self.os == "unknown" && self.architecture == "unknown"
    }
}

/// Rust's and the kernel's names of architectures → Go's.
fn go_architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Platform, PlatformError> {
        let parts: Vec<&str> = text.split('/').collect();
        let word =
            |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if !parts.iter().all(word) {
            return Err(PlatformError(text.to_owned()));
        }
        match parts[..] {
            [os, architecture] => Ok(Platform::new(os, go_architecture(architecture), None)),
            [os, architecture, variant] => Ok(Platform::new(os, go_architecture(architecture), Some(variant))),
            _ => Err(PlatformError(text.to_owned())),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.os.is_empty() && self.architecture.is_empty() {
            return f.write_str("an unspecified platform");
        }
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_parsed_and_matched() {
        let parse = |text: &str| text.parse::<Platform>();
        assert_eq!(parse("linux/amd64").unwrap(), Platform::new("linux", "amd64", None));
        assert_eq!(parse("linux/x86_64"), parse("linux/amd64"));
        assert_eq!(parse("linux/arm/v7").unwrap().to_string(), "linux/arm/v7");
        for bad in ["", "linux", "linux/", "/amd64", "linux/arm/v7/x", "linux/a b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let accepts = |asked: &str, offered: &str| parse(asked).unwrap().accepts(&parse(offered).unwrap());
        assert!(accepts("linux/arm64", "linux/arm64/v8"));
        assert!(accepts("linux/arm64/v8", "linux/arm64"));
        assert!(accepts("linux/arm", "linux/arm/v7"));
        assert!(!accepts("linux/arm/v6", "linux/arm/v7"));
        assert!(!accepts("linux/amd64", "linux/arm64"));
    }
}
