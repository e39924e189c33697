//! The option of a recipe, and the word that may name one.

use super::error::CliError;
use super::{Global, block_on};
use crate::swap::{self, Found};
use clap::Args;

/// Options that a recipe may need.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RecipeArgs {
    /// Region for {region} in a recipe's image, such as cn-hangzhou
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
}

/// Finds the recipe that a word names; `None`: it names an image.
pub(super) fn find(text: &str, global: &Global) -> Result<Option<Found>, CliError> {
    block_on(async { Ok(swap::find(text, &global.daemon()).await?) })
}
