//! `recipe.toml` → [`Recipe`]: what to make ready, as data that lives beside an image's other sources.
//!
//! Unknown keys, fabrics and empty values are errors, never defaults.

use crate::fabric::{self, FABRICS, Fabric};
use crate::image::reference::{is_digest, is_image_name};
use serde::Deserialize;

/// A validated recipe.
#[derive(Debug)]
pub struct Recipe {
    /// Base image, with its digest where the recipe gives one.
    pub base: String,
    pub fabric: &'static Fabric,
    /// `ID-VERSION_ID` that the base must be (`ubuntu-22.04`).
    pub distro: Option<String>,
    pub extra_packages: Vec<String>,
    pub mirror: Option<String>,
    pub suite: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    base: RawBase,
    fabric: RawFabric,
    #[serde(default)]
    packages: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBase {
    image: String,
    digest: Option<String>,
    distro: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFabric {
    name: String,
    mirror: Option<String>,
    suite: Option<String>,
}

/// Why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    #[error("base.image {0:?} is not an image name")]
    Image(String),
    #[error("base.digest {0:?} is not sha256: and 64 hexadecimal digits")]
    Digest(String),
    #[error("fabric.name {name:?} is not known\n  known: {known}")]
    Fabric { name: String, known: String },
}

/// Reads the text of a recipe.
pub fn parse_recipe(text: &str) -> Result<Recipe, RecipeError> {
    let raw: RawRecipe = toml::from_str(text).map_err(|error| RecipeError::Toml(Box::new(error)))?;
    if !is_image_name(&raw.base.image) {
        return Err(RecipeError::Image(raw.base.image));
    }
    let base = match raw.base.digest {
        Some(digest) if !is_digest(&digest) => return Err(RecipeError::Digest(digest)),
        Some(digest) if !raw.base.image.contains('@') => format!("{}@{digest}", raw.base.image),
        Some(_) | None => raw.base.image,
    };
    let fabric = fabric::by_id(&raw.fabric.name).ok_or_else(|| RecipeError::Fabric {
        name: raw.fabric.name.clone(),
        known: FABRICS.map(|fabric| fabric.id).join(", "),
    })?;
    Ok(Recipe {
        base,
        fabric,
        distro: raw.base.distro,
        extra_packages: raw.packages,
        mirror: raw.fabric.mirror,
        suite: raw.fabric.suite,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_recipe() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let text = format!(
            "packages = ['perftest']\n[base]\nimage = 'nvidia/cuda:12.4.1-devel-ubuntu22.04'\ndigest = '{digest}'\ndistro = 'ubuntu-22.04'\n\
             [fabric]\nname = 'erdma'\nsuite = 'jammy/erdma'\n"
        );
        let recipe = parse_recipe(&text).unwrap();
        assert_eq!(recipe.base, format!("nvidia/cuda:12.4.1-devel-ubuntu22.04@{digest}"));
        assert_eq!((recipe.fabric.id, recipe.extra_packages), ("erdma", vec!["perftest".to_owned()]));
    }

    #[test]
    fn unknown_keys_and_values_are_errors() {
        for (text, said) in [
            ("[base]\nimage = 'a'\ncolour = 'red'\n[fabric]\nname = 'erdma'\n", "unknown field `colour`"),
            ("[base]\nimage = 'A b'\n[fabric]\nname = 'erdma'\n", "base.image \"A b\" is not an image name"),
            ("[base]\nimage = 'a'\n[fabric]\nname = 'efa'\n", "known: erdma"),
            ("[base]\nimage = 'a'\ndigest = 'sha256:1'\n[fabric]\nname = 'erdma'\n", "64 hexadecimal digits"),
            ("[fabric]\nname = 'erdma'\n", "missing field `base`"),
        ] {
            let error = parse_recipe(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn the_shipped_recipes_are_valid() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/images");
        let mut count = 0;
        for entry in std::fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path().join("recipe.toml");
            parse_recipe(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            count += 1;
        }
        assert!(count >= 3, "{count} recipes");
    }
}
