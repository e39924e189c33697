//! `rdmaprep render`

use super::error::CliError;
use super::judge::parse_target;
use super::output::Output;
use super::recipes::RecipeArgs;
use super::source::SourceArgs;
use super::swap::SwapArgs;
use super::{Global, block_on};
use crate::distro::Distro;
use crate::dockerfile::render_dockerfile;
use crate::fabric::erdma::ERDMA;
use crate::judge::Exit;
use crate::plan::{KeyFile, UnseenImage, listed_distros, plan_unseen};
use crate::source;
use crate::swap::{Subject, SwapError, read_subject};
use crate::targets::Target;
use clap::Args;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  rdmaprep render my/train:1 > Dockerfile
  rdmaprep render my/train:1 -o context --key vendor.asc     Dockerfile and key, ready for docker build context
  rdmaprep render train.tar                                  from an archive, without Docker
  rdmaprep render recipe:cuda-12.4-ubuntu22.04               of a recipe's base, which its registry is asked for
  rdmaprep render my/train:1 -o context --offline debs/      with package files, for a build without any network
  rdmaprep render my/train:1 --target cce --userspace inbox  the distribution's own packages, for RoCE
  rdmaprep render --distro ubuntu:22.04 --base my/train:1    for an image that cannot be read from here
  rdmaprep render --distro all --base 'my/train:{distro}' -o contexts   and so for every distribution that is known";

/// Stands for every distribution that is known.
const EVERY_DISTRO: &str = "all";
/// In the name of the base: the distribution.
const DISTRO_PLACE: &str = "{distro}";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RenderArgs {
    /// Image (NAME in the daemon, or an archive), or a recipe: its path, or the name of a shipped one (rdmaprep images)
    #[arg(value_name = "IMAGE|RECIPE", required_unless_present_any = ["facts", "distro"])]
    subject: Option<String>,
    /// Start from saved facts (inspect --format json) instead of an image
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    facts: Option<PathBuf>,
    /// Write for an image that cannot be read from here: its distribution, such as ubuntu:22.04 or alinux:3, or all for one
    /// of every distribution in --output DIR. The build detects what must go, and refuses an image of another distribution
    #[arg(long, value_name = "ID:VERSION", requires = "base", conflicts_with_all = ["subject", "facts", "offline", "region", "platform", "verify"])]
    distro: Option<String>,
    /// Name of that image, for FROM; {distro} in it becomes the distribution, such as ubuntu22.04
    #[arg(long, value_name = "NAME", requires = "distro")]
    base: Option<String>,
    /// Architecture of that image [default: amd64]
    #[arg(long, value_name = "ARCH", requires = "distro")]
    arch: Option<String>,
    /// User of that image, if it is not root: the build runs as root and restores it
    #[arg(long, value_name = "USER", requires = "distro")]
    user: Option<String>,
    /// Where the image will run: pai-dlc, ecs, ack or cce [default: by a recipe's fabric, else pai-dlc]
    #[arg(long, value_name = "NAME", value_parser = parse_target)]
    target: Option<&'static Target>,
    /// Write Dockerfile, key and package files into this directory, instead of the Dockerfile to stdout
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    swap: SwapArgs,
    #[command(flatten)]
    source: SourceArgs,
}

pub(super) fn run(args: &RenderArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if let Some(distro) = &args.distro {
        return render_unseen(args, distro, output);
    }
    let request = args.swap.load()?;
    let (subject, facts) = match &args.facts {
        Some(path) => {
            let facts = source::load_saved(path)?;
            (Subject::image(source::parse(&facts.image.reference)?), facts)
        }
        None => {
            let (text, region) = (args.subject.as_deref().unwrap_or_default(), args.recipe.region.as_deref());
            let subject = block_on(async { Ok(read_subject(text, region, &global.daemon()).await?) })?;
            let facts = args.source.load_facts(&subject.base.to_string(), global)?;
            (subject, facts)
        }
    };
    let fabric = match args.target {
        Some(target) => {
            subject.check_fabric(target.fabric)?;
            target.fabric
        }
        None => subject.fabric().unwrap_or(&ERDMA),
    };
    request.check(fabric)?;
    let swap = request.plan(&subject, fabric, facts)?;
    let context = Context { dockerfile: render_dockerfile(&swap.plan), key: swap.key_file(), packages: &swap.packages };
    context.write(args.output.as_deref(), output)?;
    Ok(Exit::Ok)
}

/// Writes for an image that nobody has looked at.
fn render_unseen(args: &RenderArgs, distro: &str, output: &mut Output) -> Result<Exit, CliError> {
    let fabric = args.target.map_or(&ERDMA, |target| target.fabric);
    let request = args.swap.load()?;
    request.check(fabric)?;
    let architecture = args.arch.as_deref().unwrap_or("amd64");
    let render = |distro: &Distro, directory: Option<&Path>, output: &mut Output| {
        let name = args.base.as_deref().unwrap_or_default().replace(DISTRO_PLACE, &word(distro));
        let image = UnseenImage { name: &name, distro, architecture, user: args.user.as_deref() };
        let plan = plan_unseen(&image, fabric, &request.options).map_err(SwapError::from)?;
        for note in &plan.notes {
            tracing::warn!("{note}");
        }
        let context = Context {
            dockerfile: render_dockerfile(&plan),
            key: plan.key_file.as_deref().zip(request.options.key.as_ref()),
            packages: &[],
        };
        context.write(directory, output)
    };
    if distro != EVERY_DISTRO {
        let distro = Distro::named(distro).ok_or_else(|| CliError::Usage(no_distro(distro)))?;
        render(&distro, args.output.as_deref(), output)?;
        return Ok(Exit::Ok);
    }
    let Some(directory) = &args.output else {
        return Err(CliError::Usage(format!(
            "--distro {EVERY_DISTRO}: it writes a directory for each distribution\n  name the one that they go into: --output DIR"
        )));
    };
    for distro in listed_distros(fabric, architecture, &request.options).map_err(SwapError::from)? {
        let directory = directory.join(word(&distro));
        render(&distro, Some(&directory), output)?;
        tracing::info!("{} is written", directory.join("Dockerfile").display());
    }
    Ok(Exit::Ok)
}

fn no_distro(text: &str) -> String {
    format!(
        "--distro {text}: it is not a distribution and its version\n  examples are ubuntu:22.04 and alinux:3; {EVERY_DISTRO} stands for every one that is known"
    )
}

/// A distribution in names of images and directories.
fn word(distro: &Distro) -> String {
    format!("{}{}", distro.id, distro.version.as_deref().unwrap_or_default())
}

/// What `docker build` takes.
struct Context<'a> {
    dockerfile: String,
    /// With its path in the context, as the packages have.
    key: Option<(&'a str, &'a KeyFile)>,
    packages: &'a [(String, PathBuf)],
}

impl Context<'_> {
    /// Into a directory, or else the Dockerfile alone to stdout.
    fn write(&self, directory: Option<&Path>, output: &mut Output) -> Result<(), CliError> {
        let Some(directory) = directory else {
            if let Some((name, _)) = self.key {
                tracing::warn!("the Dockerfile copies {name}: put your key next to it under that name");
            }
            if let Some((name, _)) = self.packages.first() {
                let directory = name.split('/').next().unwrap_or_default();
                tracing::warn!("the Dockerfile copies {directory}/: use -o DIR to write it with its files");
            }
            output.write(|out, _| out.write_all(self.dockerfile.as_bytes()));
            return Ok(());
        };
        write_file(directory, "Dockerfile", self.dockerfile.as_bytes())?;
        if let Some((name, key)) = self.key {
            write_file(directory, name, &key.content)?;
        }
        for (name, source) in self.packages {
            copy_file(&directory.join(name), source)?;
        }
        Ok(())
    }
}

fn write_file(directory: &Path, name: &str, content: &[u8]) -> Result<(), CliError> {
    let path = directory.join(name);
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, content))
        .map_err(|source| CliError::File { path: path.display().to_string(), source })
}

fn copy_file(path: &Path, source: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::File { path: path.display().to_string(), source };
    std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    std::fs::copy(source, path).map_err(failed)?;
    Ok(())
}
