//! The options that say for which target and by which policy is judged.

use super::error::CliError;
use crate::checks::Bar;
use crate::judge::{Judge, default_target};
use crate::policy::{Policy, parse_policy};
use crate::recipe::Recipe;
use crate::remedy::with_remedy;
use crate::targets::{self, ChosenInstance, Target, choose_instance};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct JudgeArgs {
    /// Where the image will run: pai-dlc, ecs, ack or cce [default: pai-dlc; for a recipe of another fabric, one that has it]
    #[arg(long, value_name = "NAME", value_parser = parse_target)]
    target: Option<&'static Target>,
    /// Instance type that it will run on, such as ecs.ebmgn8v.48xlarge: adds checks of its NICs and bandwidth
    #[arg(long, value_name = "TYPE")]
    pub instance: Option<String>,
    /// Policy (TOML) that changes severities and minimum versions
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What counts against the image: failures of required checks, or every warning too
    #[arg(long, value_name = "BAR", value_enum, default_value_t = FailOn::Fail)]
    fail_on: FailOn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Fail,
    Warn,
}

/// A target by its id, for clap.
pub(super) fn parse_target(name: &str) -> Result<&'static Target, String> {
    targets::by_id(name).ok_or_else(|| format!("known targets: {}", targets::known()))
}

/// The instance type of `--instance`.
///
/// # Errors
/// The name is not a type, or is one of another fabric.
pub(super) fn parse_instance(target: &Target, name: Option<&str>) -> Result<Option<ChosenInstance>, CliError> {
    name.map(|name| choose_instance(target, name)).transpose().map_err(|error| CliError::Usage(with_remedy(&error)))
}

impl JudgeArgs {
    /// The named target, else the default, unless a recipe has another fabric.
    pub(super) fn target(&self, recipe: Option<&Recipe>) -> &'static Target {
        self.target.unwrap_or_else(|| default_target(recipe))
    }

    /// Reads the policy, before any work is done.
    pub(super) fn load(&self, recipe: Option<&Recipe>) -> Result<Judge, CliError> {
        let target = self.target(recipe);
        let instance = parse_instance(target, self.instance.as_deref())?;
        let policy = self.policy.as_deref().map(load_policy).transpose()?;
        let bar = match self.fail_on {
            FailOn::Fail => Bar::Fail,
            FailOn::Warn => Bar::Warn,
        };
        Ok(Judge { target, instance, policy, bar })
    }
}

fn load_policy(path: &Path) -> Result<Policy, CliError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| CliError::File { path: name.clone(), source })?;
    parse_policy(&name, &text).map_err(|source| CliError::Policy { path: name, source })
}
