//! A word from the command line → the recipe that it names, if any.
//!
//! In this order: `recipe:NAME` is a shipped recipe; the path of a `.toml` file, or of a directory with a `recipe.toml`, is a
//! recipe; the bare name of a shipped recipe is that one, unless the daemon has an image of that name. Anything else is an image.

use super::error::{SwapError, hint};
use crate::fabric::Fabric;
use crate::recipe::{Recipe, parse_recipe, shipped};
use crate::source::{Client, DaemonChoice, SourceError, is_image_directory};
use std::path::{Path, PathBuf};

/// Prefix that marks the name of a shipped recipe, which could also be an image.
const PREFIX: &str = "recipe:";

/// A recipe and its origin, as named in errors.
#[derive(Debug, Clone)]
pub struct Found {
    pub origin: String,
    pub recipe: Recipe,
}

impl Found {
    /// Refuses a recipe for a fabric other than the target's.
    ///
    /// # Errors
    /// Both fabrics, by their titles.
    pub fn check_fabric(&self, fabric: &Fabric) -> Result<(), SwapError> {
        let own = self.recipe.fabric;
        if own.id == fabric.id {
            return Ok(());
        }
        Err(SwapError::OtherFabric { recipe: self.origin.clone(), own: own.title, wanted: fabric.title })
    }

    /// The image that it names; `region` stands for its `{region}`.
    ///
    /// # Errors
    /// The recipe needs a region and none is given, or the other way round.
    pub fn image(&self, region: Option<&str>) -> Result<String, SwapError> {
        let image = self.recipe.image(region);
        image.map_err(|source| SwapError::Recipe { path: self.origin.clone(), source })
    }
}

/// Finds the recipe that a word names; `None`: it names an image.
///
/// # Errors
/// The recipe cannot be read, or there is no shipped recipe of the name.
pub async fn find(text: &str, daemon: &DaemonChoice) -> Result<Option<Found>, SwapError> {
    if let Some(found) = find_without_daemon(text)? {
        return Ok(Some(found));
    }
    if !shipped::is_shipped(text) {
        if Path::new(text).is_dir() && !is_image_directory(Path::new(text)) {
            return Err(without_recipe(text));
        }
        if let Some(hint) = hint(text)
            && !Path::new(text).exists()
            && !is_in_daemon(text, daemon).await
        {
            tracing::warn!("{text} is not a shipped recipe and is treated as an image: {hint}");
        }
        return Ok(None);
    }
    if is_in_daemon(text, daemon).await {
        tracing::warn!(
            "{text} is an image of the daemon and a shipped recipe: taking the image; the recipe is {PREFIX}{text}"
        );
        return Ok(None);
    }
    find_shipped(text).map(Some)
}

/// Finds a recipe regardless of images: by path, or by name with or without the prefix.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find_recipe(text: &str) -> Result<Found, SwapError> {
    match find_without_daemon(text)? {
        Some(found) => Ok(found),
        None if Path::new(text).is_dir() && !shipped::is_shipped(text) => Err(without_recipe(text)),
        None => find_shipped(text),
    }
}

fn find_without_daemon(text: &str) -> Result<Option<Found>, SwapError> {
    if let Some(name) = text.strip_prefix(PREFIX) {
        return find_shipped(name).map(Some);
    }
    match recipe_file(Path::new(text)) {
        Some(file) => load(&file).map(Some),
        None => Ok(None),
    }
}

fn without_recipe(directory: &str) -> SwapError {
    SwapError::NoRecipe { directory: directory.to_owned() }
}

/// The recipe file that a path refers to.
fn recipe_file(path: &Path) -> Option<PathBuf> {
    let inside = path.join("recipe.toml");
    if inside.is_file() {
        return Some(inside);
    }
    path.extension().is_some_and(|extension| extension == "toml").then(|| path.to_owned())
}

fn load(file: &Path) -> Result<Found, SwapError> {
    let origin = file.display().to_string();
    let content = std::fs::read_to_string(file).map_err(|source| SwapError::File { path: origin.clone(), source })?;
    let recipe =
        parse_recipe(&name_of(file), &content).map_err(|source| SwapError::Recipe { path: origin.clone(), source })?;
    Ok(Found { origin, recipe })
}

/// `images/cuda-12.4/recipe.toml` is `cuda-12.4`, and so is `cuda-12.4.toml`.
fn name_of(file: &Path) -> String {
    let named = match file.file_name().is_some_and(|name| name == "recipe.toml") {
        true => {
            // A relative path may have no directory in it.
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
            whole.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
        }
        false => file.file_stem().map(|name| name.to_string_lossy().into_owned()),
    };
    named.unwrap_or_else(|| "recipe".to_owned())
}

fn find_shipped(name: &str) -> Result<Found, SwapError> {
    let origin = format!("{PREFIX}{name}");
    match shipped::by_name(name) {
        Some(Ok(recipe)) => Ok(Found { origin, recipe }),
        Some(Err(source)) => Err(SwapError::Recipe { path: origin, source }),
        None => Err(SwapError::NotShipped { name: name.to_owned() }),
    }
}

/// Every shipped recipe, by name.
///
/// # Errors
/// None that a test of the shipped recipes would not find.
pub fn all_shipped() -> Result<Vec<Found>, SwapError> {
    shipped::SHIPPED.iter().map(|(name, _)| find_shipped(name)).collect()
}

/// Every recipe of a directory, by name: its directories with a `recipe.toml`, and its `.toml` files.
///
/// # Errors
/// The directory or a recipe cannot be read, or there is none.
pub fn all_in(directory: &Path) -> Result<Vec<Found>, SwapError> {
    let shown = directory.display().to_string();
    let failed = |source| SwapError::File { path: shown.clone(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() || path.is_dir() {
            files.extend(recipe_file(&path).filter(|file| file.is_file()));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(SwapError::NoRecipes { directory: shown });
    }
    files.iter().map(|file| load(file)).collect()
}

/// Whether the daemon has an image of that name; `false` without a daemon.
async fn is_in_daemon(name: &str, daemon: &DaemonChoice) -> bool {
    let asked = async {
        let engine = Client::load(daemon)?.connect().await?;
        Ok::<_, SourceError>(engine.inspect_image(name).await?.is_some())
    };
    asked.await.unwrap_or_else(|error| {
        tracing::debug!("no daemon was asked for an image {name}: {error}");
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_recipes() {
        for (path, name) in
            [("images/cuda-12.4/recipe.toml", "cuda-12.4"), ("a/mine.toml", "mine"), ("cuda-12.4.toml", "cuda-12.4")]
        {
            assert_eq!(name_of(Path::new(path)), name);
        }
        assert_ne!(name_of(Path::new("recipe.toml")), "recipe", "the directory's name");
    }

    #[test]
    fn directories_of_recipes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(all_in(dir.path()).unwrap_err().to_string().contains("has no recipes"));
        let text = "[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n";
        std::fs::create_dir_all(dir.path().join("b")).unwrap();
        std::fs::create_dir_all(dir.path().join("empty.toml")).unwrap();
        std::fs::write(dir.path().join("b/recipe.toml"), text).unwrap();
        std::fs::write(dir.path().join("a.toml"), text).unwrap();
        std::fs::write(dir.path().join("README.md"), text).unwrap();
        let names: Vec<String> = all_in(dir.path()).unwrap().into_iter().map(|found| found.recipe.name).collect();
        assert_eq!(names, ["a", "b"]);
        std::fs::write(dir.path().join("a.toml"), "colour = 1").unwrap();
        assert!(matches!(all_in(dir.path()), Err(SwapError::Recipe { .. })));
    }
}
