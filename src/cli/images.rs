//! `rdmaprep images`: the recipes compiled into the program.

use super::TextOrJson;
use super::error::CliError;
use super::output::Output;
use super::recipes::RecipeArgs;
use crate::checks::recipe::how_to_know;
use crate::judge::Exit;
use crate::recipe::Recipe;
use crate::report::{RecipeEntry, RecipeListing, write_recipe, write_recipes};
use crate::swap::{self, Found};
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  rdmaprep images                                              what there is
  rdmaprep images cuda-12.4-ubuntu22.04                        all that one states, and who says so
  rdmaprep images pai-nccl-tests --region cn-hangzhou          with the image's address in a region
  rdmaprep images --format json | jq -r '.recipes[].image'     for a program
  rdmaprep build cuda-12.4-ubuntu22.04                         build one; see rdmaprep build --help

Facts that nobody states are -.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImagesArgs {
    /// Recipe to show: the name of a shipped one, or a path
    name: Option<String>,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

pub(super) fn run(args: &ImagesArgs, output: &mut Output) -> Result<Exit, CliError> {
    let found = match &args.name {
        Some(name) => vec![swap::find_recipe(name)?],
        None if args.recipe.region.is_some() => {
            return Err(CliError::Usage("--region is for one recipe\n  rdmaprep images NAME --region REGION".into()));
        }
        None => swap::all_shipped()?,
    };
    let entries: Vec<RecipeEntry> = found.iter().map(|found| entry(found, args)).collect::<Result<_, CliError>>()?;
    match (args.format, &args.name) {
        (TextOrJson::Json, _) => output.json(&RecipeListing::new(entries)),
        (TextOrJson::Text, None) => output.write(|out, _| write_recipes(out, &entries)),
        (TextOrJson::Text, Some(call)) => output.write(|out, style| {
            found
                .iter()
                .zip(&entries)
                .try_for_each(|(found, entry)| write_recipe(out, entry, &command(&found.recipe, call, args), style))
        }),
    }
    Ok(Exit::Ok)
}

/// The command for a recipe: for its own target, else the program's default.
fn command(recipe: &Recipe, call: &str, args: &ImagesArgs) -> String {
    how_to_know(recipe, call, args.recipe.region.as_deref(), recipe.target)
}

fn entry(found: &Found, args: &ImagesArgs) -> Result<RecipeEntry, CliError> {
    // Without a region the placeholder is shown: nothing is fetched here.
    let image = match &args.recipe.region {
        Some(region) => found.image(Some(region))?,
        None => found.recipe.base().to_owned(),
    };
    Ok(RecipeEntry::new(&found.recipe, image))
}
