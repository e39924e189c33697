//! Shared by `render` and `build`: IMAGE or RECIPE and the options of the swap → facts and plan.

use super::Global;
use super::error::CliError;
use super::offline;
use super::recipes::{self, Found, RecipeArgs};
use crate::checks::recipe::how_to_know;
use crate::docker::engine::Engine;
use crate::fabric::{Fabric, Origin, RepositoryChoice, Userspace};
use crate::facts::ImageFacts;
use crate::image::reference::Reference;
use crate::plan::{KeyFile, PlanError, SwapOptions, SwapPlan, UnseenImage, plan_swap, plan_unseen};
use crate::recipe::{Kind, Recipe};
use crate::source::{self, LayerCache};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the swap")]
pub struct SwapArgs {
    /// Userspace build, on a fabric with a choice [default: keep if sound, else inbox]
    #[arg(long, value_name = "WHOSE", value_enum)]
    userspace: Option<UserspaceChoice>,
    /// Version of DOCA-Host, such as 2.10.0, with --userspace doca
    #[arg(long, value_name = "VERSION")]
    doca_version: Option<String>,
    /// Use only the package files in a directory; the build has no network
    #[arg(long, value_name = "DIR", conflicts_with_all = ["userspace", "doca_version", "mirror", "vpc", "suite", "apt_proxy", "base_repos"])]
    offline: Option<PathBuf>,
    /// URL of the directory that contains GPGKEY, apt/ and yum/, or DOCA's key and versions [default: the vendor's public mirror]
    #[arg(long, value_name = "URL", conflicts_with = "vpc")]
    mirror: Option<String>,
    /// Use the vendor's mirror that resolves only inside its VPC
    #[arg(long)]
    vpc: bool,
    /// apt suite in the repository, such as jammy/erdma; for rpm a path below yum/, such as redhat/7/erdma/x86_64; for
    /// DOCA the distribution's directory, such as rhel8.10
    /// [default: by the image's distribution]
    #[arg(long, value_name = "SUITE|PATH")]
    suite: Option<String>,
    /// Public key of the repository [default: the mirror's GPGKEY]; of rpm files, with --offline [default: unchecked]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Proxy for apt in the build, without credentials
    #[arg(long, value_name = "URL")]
    apt_proxy: Option<String>,
    /// Build argument; without =VALUE its value comes from the environment
    #[arg(long = "build-arg", value_name = "NAME=VALUE")]
    build_args: Vec<String>,
    /// Additional package to install, such as perftest
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Accept unsigned rpm packages
    #[arg(long, conflicts_with = "key")]
    no_gpg_check: bool,
    /// yum repository for dependencies during the build, replacing the image's own: those of CentOS 7 and 8 no longer
    /// answer; may be repeated
    #[arg(long = "base-repo", value_name = "URL")]
    base_repos: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UserspaceChoice {
    /// The fabric vendor's packages: the only choice on eRDMA
    Vendor,
    /// The image's own, if it drives the devices
    Keep,
    /// The distribution's rdma-core, from the apt or yum repositories of the image
    Inbox,
    /// The packages of NVIDIA's DOCA-Host
    Doca,
}

impl From<UserspaceChoice> for Userspace {
    fn from(choice: UserspaceChoice) -> Userspace {
        match choice {
            UserspaceChoice::Vendor => Userspace::Vendor,
            UserspaceChoice::Keep => Userspace::Keep,
            UserspaceChoice::Inbox => Userspace::Inbox,
            UserspaceChoice::Doca => Userspace::Doca,
        }
    }
}

/// The image that the user named, directly or by a recipe.
pub struct Subject {
    /// Reference of the base image.
    pub base: Reference,
    recipe: Option<Found>,
}

impl Subject {
    /// An image without a recipe.
    pub fn image(base: Reference) -> Subject {
        Subject { base, recipe: None }
    }

    /// The base of a recipe.
    pub fn recipe(found: Found, args: &RecipeArgs) -> Result<Subject, CliError> {
        if found.recipe.kind == Kind::Ready {
            let (origin, recipe) = (&found.origin, &found.recipe);
            return Err(CliError::Usage(format!(
                "{origin}: its image is ready for {}: there is nothing to swap\n  {}",
                recipe.fabric.title,
                how_to_know(recipe, origin, args.region.as_deref(), recipe.target)
            )));
        }
        Ok(Subject { base: Reference::Name(found.image(args)?), recipe: Some(found) })
    }

    /// The recipe, if the user named one.
    pub fn found(&self) -> Option<&Found> {
        self.recipe.as_ref()
    }

    /// The recipe's fabric, if there is a recipe.
    pub fn fabric(&self) -> Option<&'static Fabric> {
        self.recipe.as_ref().map(|found| found.recipe.fabric)
    }

    /// Refuses a recipe for a fabric other than the target's.
    pub fn check_fabric(&self, fabric: &Fabric) -> Result<(), CliError> {
        self.recipe.as_ref().map_or(Ok(()), |found| found.check_fabric(fabric))
    }
}

/// Reads IMAGE|RECIPE.
pub fn read_subject(text: &str, args: &RecipeArgs, global: &Global) -> Result<Subject, CliError> {
    match recipes::find(text, global)? {
        Some(found) => Subject::recipe(found, args),
        None if args.region.is_some() => {
            Err(CliError::Usage(format!("--region is for a recipe, but {text} is an image\n  omit it")))
        }
        None => Ok(Subject::image(source::parse(text)?)),
    }
}

/// Everything that a Dockerfile and a build need.
pub struct Swap {
    pub facts: ImageFacts,
    pub plan: SwapPlan,
    pub key: Option<KeyFile>,
    /// Path in the build context → package file on disk.
    pub packages: Vec<(String, PathBuf)>,
    /// Name → value of the user's build arguments.
    pub build_args: BTreeMap<String, String>,
}

impl Swap {
    /// The key and its path in the build context.
    pub fn key_file(&self) -> Option<(&str, &KeyFile)> {
        self.plan.key_file.as_deref().zip(self.key.as_ref())
    }
}

impl SwapArgs {
    /// Refuses options that are wrong for every image, before any work is done.
    pub fn check(&self, fabric: &Fabric) -> Result<(), CliError> {
        match self.userspace {
            Some(userspace) => Ok(fabric.check_userspace(userspace.into()).map_err(PlanError::from)?),
            None => Ok(()),
        }
    }

    /// Whether everything is available before the build.
    pub fn is_offline(&self) -> bool {
        self.offline.is_some()
    }

    /// Plans the swap of an image whose facts are known, to the fabric of a recipe or else the given one.
    pub fn plan(&self, subject: &Subject, fabric: &'static Fabric, facts: ImageFacts) -> Result<Swap, CliError> {
        let recipe = subject.recipe.as_ref().map(|found| &found.recipe);
        let fabric = recipe.map_or(fabric, |recipe| recipe.fabric);
        if let Some(found) = &subject.recipe {
            check_distro(&found.origin, &found.recipe, &facts)?;
        }
        let (options, build_args) = self.options(recipe)?;
        let plan = plan_swap(&facts, subject.base.name(), fabric, &options)?;
        for note in &plan.notes {
            tracing::warn!("{note}");
        }
        let packages = match (&self.offline, &plan.origin) {
            (Some(from), Origin::Files(files)) => plan
                .sources
                .iter()
                .map(|(name, source)| (format!("{}/{name}", files.directory), from.join(source)))
                .collect(),
            _ => Vec::new(),
        };
        Ok(Swap { facts, plan, key: options.key, packages, build_args })
    }

    /// What the user chose, with the recipe's part, and values of build arguments.
    fn options(&self, recipe: Option<&Recipe>) -> Result<(SwapOptions, BTreeMap<String, String>), CliError> {
        let key = match &self.key {
            Some(path) => {
                let failed = |source| CliError::File { path: path.display().to_string(), source };
                Some(KeyFile { path: path.display().to_string(), content: std::fs::read(path).map_err(failed)? })
            }
            None => None,
        };
        let files = self.offline.as_deref().map(offline::load_files).transpose()?;
        let build_args = parse_build_args(&self.build_args, |name| std::env::var(name).ok())?;
        let options = SwapOptions {
            repository: RepositoryChoice {
                mirror: self.mirror.clone().or_else(|| recipe.and_then(|r| r.mirror.clone()).filter(|_| !self.vpc)),
                vpc: self.vpc,
                suite: self.suite.clone().or_else(|| recipe.and_then(|r| r.suite.clone())),
                doca_version: self.doca_version.clone(),
            },
            userspace: self.userspace.map(Userspace::from),
            files,
            key,
            apt_proxy: self.apt_proxy.clone(),
            build_args: build_args.keys().cloned().collect(),
            extra_packages: recipe.into_iter().flat_map(|r| &r.extra_packages).chain(&self.packages).cloned().collect(),
            no_gpg_check: self.no_gpg_check,
            base_repos: self.base_repos.clone(),
        };
        Ok((options, build_args))
    }

    /// Plans the swap of an image that nobody has looked at, and gives the key.
    pub fn plan_unseen(
        &self,
        image: &UnseenImage<'_>,
        fabric: &'static Fabric,
    ) -> Result<(SwapPlan, Option<KeyFile>), CliError> {
        let (options, _) = self.options(None)?;
        let plan = plan_unseen(image, fabric, &options)?;
        for note in &plan.notes {
            tracing::warn!("{note}");
        }
        Ok((plan, options.key))
    }

    /// Reads the base from a connected daemon and plans.
    pub async fn plan_from_daemon(
        &self,
        subject: &Subject,
        fabric: &'static Fabric,
        engine: &Engine,
        name: &str,
        cache: &LayerCache,
    ) -> Result<Swap, CliError> {
        let facts = source::load_from_daemon(engine, name, cache).await?;
        self.plan(subject, fabric, facts)
    }
}

fn check_distro(name: &str, recipe: &Recipe, facts: &ImageFacts) -> Result<(), CliError> {
    let Some(expected) = &recipe.distro else { return Ok(()) };
    let found = facts.distro.as_ref().map(|d| match &d.version {
        Some(version) => format!("{}-{version}", d.id),
        None => d.id.clone(),
    });
    if found.as_ref() == Some(expected) {
        return Ok(());
    }
    Err(CliError::RecipeDistro {
        recipe: name.to_owned(),
        expected: expected.clone(),
        image: facts.image.reference.clone(),
        found: found.unwrap_or_else(|| "of an unknown distribution".to_owned()),
    })
}

fn parse_build_args(
    args: &[String],
    env: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, CliError> {
    args.iter()
        .map(|arg| match arg.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => match env(arg) {
                Some(value) => Ok((arg.clone(), value)),
                None => Err(CliError::Usage(format!(
                    "--build-arg {arg}: it has no value, and the environment does not set it"
                ))),
            },
        })
        .collect()
}
