//! The recipes compiled into the program: those in `images/` (see `images/README.md`), named by their directories.

use super::{Recipe, RecipeError, parse_recipe};
use crate::suggest;

/// Name and text of every recipe, by name; `build.rs` lists the directories.
pub static SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped_recipes.rs"));

/// Reads the shipped recipe with a name; `None`: there is none.
pub fn by_name(name: &str) -> Option<Result<Recipe, RecipeError>> {
    let (name, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
    Some(parse_recipe(name, text))
}

/// Whether a shipped recipe has that name.
pub fn is_shipped(name: &str) -> bool {
    SHIPPED.iter().any(|(known, _)| *known == name)
}

/// Suggestions for a mistyped name, best first.
pub fn closest(name: &str) -> Vec<&'static str> {
    suggest::closest(name, SHIPPED.iter().map(|(known, _)| *known), 0.85)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Fact, Kind};
    use std::collections::BTreeSet;

    fn shipped() -> Vec<Recipe> {
        SHIPPED.iter().map(|(name, text)| parse_recipe(name, text).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
    }

    #[test]
    fn every_directory_of_images_is_in_the_program() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/images");
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(root).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                let text = std::fs::read_to_string(entry.path().join("recipe.toml")).unwrap();
                there.insert((entry.file_name().into_string().unwrap(), text));
            }
        }
        let embedded: BTreeSet<(String, String)> =
            SHIPPED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(embedded, there);
        assert!(there.len() >= 20, "{}", there.len());
    }

    #[test]
    fn the_shipped_recipes_are_whole() {
        let mut images = BTreeSet::new();
        for recipe in shipped() {
            let name = &recipe.name;
            assert!(recipe.title.is_some(), "{name} has no title");
            assert!(images.insert(recipe.base().to_owned()), "{name}: another recipe has {}", recipe.base());
            assert!(!recipe.facts.is_empty(), "{name} states nothing");
            assert!(recipe.default_tag().is_some(), "{name} has no tag");
            match recipe.kind {
                Kind::Ready => assert!(recipe.target.is_some(), "{name}: where is it ready for?"),
                Kind::Base => assert!(recipe.fact(Fact::Cuda).is_some(), "{name} states no CUDA"),
            }
        }
    }

    /// The figures of the source documents.
    #[test]
    fn the_published_images_have_the_published_facts() {
        let states = |name: &str, fact| by_name(name).unwrap().unwrap().fact(fact).map(|stated| stated.value.clone());
        for (name, cuda, cudnn, nccl) in [
            ("egs-erdma-cuda12.4", "12.4.1", "9.1.0.70", "2.21.5"),
            ("egs-erdma-cuda12.1", "12.1.1", "8.9.0.131", "2.17.1"),
        ] {
            assert_eq!(states(name, Fact::Cuda).as_deref(), Some(cuda), "{name}");
            assert_eq!(states(name, Fact::Cudnn).as_deref(), Some(cudnn), "{name}");
            assert_eq!(states(name, Fact::Nccl).as_deref(), Some(nccl), "{name}");
            assert_eq!(states(name, Fact::Python).as_deref(), Some("3.10.12"), "{name}");
            assert_eq!(states(name, Fact::Distro).as_deref(), Some("ubuntu-22.04"), "{name}");
        }
        assert_eq!(states("pai-nccl-tests", Fact::Nccl).as_deref(), Some("2.19.3"));
        assert_eq!(states("acs-horovod-0.28", Fact::Nccl), None, "nobody states it");
    }

    #[test]
    fn names_that_were_mistyped() {
        assert_eq!(closest("cuda-12.4-ubuntu2204")[0], "cuda-12.4-ubuntu22.04");
        assert_eq!(closest("zzz"), Vec::<&str>::new());
        assert!(by_name("zzz").is_none() && !is_shipped("zzz") && is_shipped("pai-nccl-tests"));
    }
}
