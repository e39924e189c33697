//! A swap from its beginning: what the user named and the options → facts, plan, and the files that go with it.

mod error;
mod offline;
mod recipes;

pub use error::SwapError;
pub use offline::load_files;
pub use recipes::{Found, all_in, all_shipped, find, find_recipe};

use crate::checks::recipe::how_to_know;
use crate::fabric::{Fabric, RepositoryChoice};
use crate::facts::ImageFacts;
use crate::image::reference::Reference;
use crate::plan::{KeyFile, SwapOptions, SwapPlan, plan_swap};
use crate::recipe::{Kind, Recipe};
use crate::source::{self, DaemonChoice};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

    /// The base of a recipe; `region` stands for its `{region}`.
    ///
    /// # Errors
    /// Its image is ready as it is, or it cannot be named.
    pub fn recipe(found: Found, region: Option<&str>) -> Result<Subject, SwapError> {
        if found.recipe.kind == Kind::Ready {
            let (origin, recipe) = (found.origin, found.recipe);
            let instead = how_to_know(&recipe, &origin, region, recipe.target);
            return Err(SwapError::Ready { recipe: origin, fabric: recipe.fabric.title, instead });
        }
        Ok(Subject { base: Reference::Name(found.image(region)?), recipe: Some(found) })
    }

    /// The recipe, if the user named one.
    pub fn found(&self) -> Option<&Found> {
        self.recipe.as_ref()
    }

    /// The recipe's fabric, if there is a recipe.
    pub fn fabric(&self) -> Option<&'static Fabric> {
        self.recipe.as_ref().map(|found| found.recipe.fabric)
    }

    /// The name in the daemon of the image to build on.
    ///
    /// # Errors
    /// The base is not an image of the daemon.
    pub fn base_name(&self) -> Result<&str, SwapError> {
        match &self.base {
            Reference::Daemon(name) | Reference::Name(name) => Ok(name),
            other => Err(SwapError::NotInDaemon { base: other.to_string() }),
        }
    }

    /// Refuses a recipe for a fabric other than the target's.
    ///
    /// # Errors
    /// Both fabrics, by their titles.
    pub fn check_fabric(&self, fabric: &Fabric) -> Result<(), SwapError> {
        self.recipe.as_ref().map_or(Ok(()), |found| found.check_fabric(fabric))
    }
}

/// Reads IMAGE|RECIPE; `region` is for a recipe whose image has one.
///
/// # Errors
/// The text names neither, the recipe cannot be read, or its image is ready as it is.
pub async fn read_subject(text: &str, region: Option<&str>, daemon: &DaemonChoice) -> Result<Subject, SwapError> {
    match find(text, daemon).await? {
        Some(found) => Subject::recipe(found, region),
        None if region.is_some() => Err(SwapError::RegionOfImage { image: text.to_owned() }),
        None => Ok(Subject::image(source::parse(text)?)),
    }
}

/// What is asked for of a swap, whatever the image.
#[derive(Debug, Clone, Default)]
pub struct SwapRequest {
    /// What the plan may choose from.
    pub options: SwapOptions,
    /// The directory of the package files of `options`.
    pub package_directory: Option<PathBuf>,
    /// Name → value of the build arguments.
    pub build_args: BTreeMap<String, String>,
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

impl SwapRequest {
    /// Whether everything is there before the build, so that it needs no network.
    pub fn is_offline(&self) -> bool {
        self.package_directory.is_some()
    }

    /// Refuses options that are wrong for every image, before any work is done.
    ///
    /// # Errors
    /// The fabric does not know the userspace that is asked for.
    pub fn check(&self, fabric: &Fabric) -> Result<(), SwapError> {
        match self.options.userspace {
            Some(userspace) => Ok(fabric.check_userspace(userspace).map_err(crate::plan::PlanError::from)?),
            None => Ok(()),
        }
    }

    /// Plans the swap of an image whose facts are known, to the fabric of a recipe or else the given one.
    ///
    /// # Errors
    /// The image is not of the recipe's distribution, or nothing can be planned for it.
    pub fn plan(&self, subject: &Subject, fabric: &'static Fabric, facts: ImageFacts) -> Result<Swap, SwapError> {
        let fabric = subject.fabric().unwrap_or(fabric);
        let options = match &subject.recipe {
            Some(found) => {
                check_distro(&found.origin, &found.recipe, &facts)?;
                with_recipe(&self.options, &found.recipe)
            }
            None => self.options.clone(),
        };
        let plan = plan_swap(&facts, subject.base.name(), fabric, &options)?;
        for note in &plan.notes {
            tracing::warn!("{note}");
        }
        let packages = match (&self.package_directory, plan.files()) {
            (Some(from), Some(files)) => files
                .sources
                .iter()
                .map(|(name, source)| (format!("{}/{name}", files.directory), from.join(source)))
                .collect(),
            _ => Vec::new(),
        };
        Ok(Swap { facts, plan, key: options.key, packages, build_args: self.build_args.clone() })
    }
}

/// The options, with what a recipe states where they say nothing.
fn with_recipe(options: &SwapOptions, recipe: &Recipe) -> SwapOptions {
    let given = options.repository.clone();
    SwapOptions {
        repository: RepositoryChoice {
            mirror: given.mirror.or_else(|| recipe.mirror.clone().filter(|_| !given.vpc)),
            suite: given.suite.or_else(|| recipe.suite.clone()),
            ..given
        },
        extra_packages: recipe.extra_packages.iter().chain(&options.extra_packages).cloned().collect(),
        ..options.clone()
    }
}

/// Reads the public key of a repository.
///
/// # Errors
/// The file cannot be read.
pub fn load_key(path: &Path) -> Result<KeyFile, SwapError> {
    let shown = path.display().to_string();
    match std::fs::read(path) {
        Ok(content) => Ok(KeyFile { path: shown, content }),
        Err(source) => Err(SwapError::File { path: shown, source }),
    }
}

fn check_distro(name: &str, recipe: &Recipe, facts: &ImageFacts) -> Result<(), SwapError> {
    let Some(expected) = &recipe.distro else { return Ok(()) };
    let found = facts.distro.as_ref().map(|d| match &d.version {
        Some(version) => format!("{}-{version}", d.id),
        None => d.id.clone(),
    });
    if found.as_ref() == Some(expected) {
        return Ok(());
    }
    Err(SwapError::RecipeDistro {
        recipe: name.to_owned(),
        expected: expected.clone(),
        image: facts.image.reference.clone(),
        found: found.unwrap_or_else(|| "of an unknown distribution".to_owned()),
    })
}
