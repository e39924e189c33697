//! Why a swap does not come to a plan.

use crate::plan::PlanError;
use crate::recipe::{RecipeError, shipped};
use crate::remedy::Remedy;
use crate::shell::shell_quote;
use crate::source::SourceError;
use std::io;

/// Why a swap does not come to a plan. Each names the image, recipe, file or option.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    #[error("reading {path}")]
    File { path: String, source: io::Error },
    #[error("recipe {path}")]
    Recipe { path: String, source: RecipeError },
    #[error("recipe {recipe} is for {expected}, but {image} is {found}")]
    RecipeDistro { recipe: String, expected: String, image: String, found: String },
    #[error("recipe {recipe} is for {own}, but the target has {wanted}")]
    OtherFabric { recipe: String, own: &'static str, wanted: &'static str },
    #[error("{recipe}: its image is ready for {fabric}: there is nothing to swap")]
    Ready { recipe: String, fabric: &'static str, instead: String },
    #[error("--region is for a recipe, but {image} is an image")]
    RegionOfImage { image: String },
    #[error("the directory {directory} has no recipe.toml")]
    NoRecipe { directory: String },
    #[error("{directory} has no recipes")]
    NoRecipes { directory: String },
    #[error("there is no shipped recipe {name:?}")]
    NotShipped { name: String },
    #[error("{directory}: it contains no .deb or .rpm file")]
    NoPackageFiles { directory: String },
    #[error("{base}: a build starts from an image of the daemon")]
    NotInDaemon { base: String },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("planning the swap")]
    Plan(#[from] PlanError),
}

impl Remedy for SwapError {
    fn remedy(&self) -> Option<String> {
        match self {
            SwapError::OtherFabric { .. } => Some("choose another --target".to_owned()),
            SwapError::Ready { instead, .. } => Some(instead.clone()),
            SwapError::RegionOfImage { .. } => Some("leave it out".to_owned()),
            SwapError::NoRecipe { directory } => {
                Some(format!("rdmaprep build --all {} builds those below it", shell_quote(directory)))
            }
            SwapError::NoRecipes { .. } => {
                Some("a recipe is a .toml file, or a directory with a recipe.toml".to_owned())
            }
            SwapError::NotShipped { name } => {
                Some(hint(name).unwrap_or_else(|| "rdmaprep images lists them".to_owned()))
            }
            SwapError::NoPackageFiles { .. } => {
                Some("put the fabric's packages and their dependencies there".to_owned())
            }
            SwapError::NotInDaemon { .. } => Some("load it first: docker load -i FILE".to_owned()),
            SwapError::Source(error) => error.remedy(),
            SwapError::Recipe { source, .. } => source.remedy(),
            SwapError::Plan(error) => error.remedy(),
            SwapError::File { .. } | SwapError::RecipeDistro { .. } => None,
        }
    }
}

/// Suggestions for a mistyped recipe name.
pub(super) fn hint(name: &str) -> Option<String> {
    let names = shipped::closest(name);
    (!names.is_empty()).then(|| format!("did you mean {}? rdmaprep images lists them all", names.join(", ")))
}
