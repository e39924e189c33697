//! The options that say how an image is read.

use super::error::CliError;
use super::{Global, block_on, or_interrupted};
use crate::facts::ImageFacts;
use crate::image::platform::{Platform, PlatformError};
use crate::registry;
use crate::remedy::with_remedy;
use crate::source::{self, SourceOptions};
use clap::Args;
use std::path::PathBuf;

/// How to read an image, wherever it is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of the image's source")]
pub(super) struct SourceArgs {
    /// Platform of a multi-platform image, such as linux/arm64 [default: the only one, else linux on this machine's processor]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = parse_platform)]
    platform: Option<Platform>,
    /// Hash every layer and compare it with manifest and config
    #[arg(long)]
    verify: bool,
    /// CA certificates (PEM) to trust for registries, in addition to the system's
    #[arg(long, value_name = "FILE")]
    registry_ca: Option<PathBuf>,
    /// Registry mirror to try first; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    registry_mirror: Vec<String>,
    /// Talk to registries without TLS
    #[arg(long)]
    plain_http: bool,
}

fn parse_platform(text: &str) -> Result<Platform, String> {
    text.parse().map_err(|error| with_remedy::<PlatformError>(&error))
}

impl SourceArgs {
    fn options(&self) -> SourceOptions {
        SourceOptions {
            platform: self.platform.clone(),
            verify: self.verify,
            registry: registry::Settings {
                plain_http: self.plain_http,
                ca: self.registry_ca.clone(),
                mirrors: self.registry_mirror.clone(),
            },
        }
    }

    /// Reads the facts of the image that `text` names.
    pub(super) fn load_facts(&self, text: &str, global: &Global) -> Result<ImageFacts, CliError> {
        let (options, daemon) = (self.options(), global.daemon());
        block_on(or_interrupted(async { Ok(source::load_facts(text, &options, &daemon).await?) }))
    }
}
