//! `rdmaprep render`

use super::error::{CliError, Exit};
use super::output::Output;
use super::recipes::RecipeArgs;
use super::swap::{self, Subject, SwapArgs};
use super::{Global, source};
use crate::dockerfile::render_dockerfile;
use crate::fabric::erdma::ERDMA;
use clap::Args;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  rdmaprep render my/train:1 > Dockerfile
  rdmaprep render my/train:1 -o context --key vendor.asc     Dockerfile and key, ready for docker build context
  rdmaprep render train.tar                                  from an archive, without Docker
  rdmaprep render recipe:cuda-12.4-ubuntu22.04               of a recipe's base, which its registry is asked for";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderArgs {
    /// Image (NAME of the daemon, or an archive), or a recipe: its path, or the name of a shipped one (rdmaprep images)
    #[arg(value_name = "IMAGE|RECIPE", required_unless_present = "facts")]
    subject: Option<String>,
    /// Start from saved facts (inspect --format json) instead of an image
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    facts: Option<PathBuf>,
    /// Write Dockerfile and key into this directory instead of the Dockerfile to stdout
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    swap: SwapArgs,
    #[command(flatten)]
    source: source::SourceArgs,
}

pub fn run(args: &RenderArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let (subject, facts) = match &args.facts {
        Some(path) => {
            let facts = source::load_saved(path)?;
            (Subject::image(source::parse(&facts.image.reference)?), facts)
        }
        None => {
            let subject = swap::read_subject(args.subject.as_deref().unwrap_or_default(), &args.recipe, global)?;
            let facts = source::load_facts(&subject.base.to_string(), &args.source, global)?;
            (subject, facts)
        }
    };
    let swap = args.swap.plan(&subject, &ERDMA, facts)?;
    let text = render_dockerfile(&swap.plan);
    match &args.output {
        None => {
            if let Some(key) = &swap.key {
                tracing::warn!("the Dockerfile copies {}: put your key beside it under that name", key.name());
            }
            output.write(|out, _| out.write_all(text.as_bytes()));
        }
        Some(directory) => {
            write_file(directory, "Dockerfile", text.as_bytes())?;
            if let Some(key) = &swap.key {
                write_file(directory, key.name(), &key.content)?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn write_file(directory: &Path, name: &str, content: &[u8]) -> Result<(), CliError> {
    let path = directory.join(name);
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, content))
        .map_err(|source| CliError::File { path: path.display().to_string(), source })
}
