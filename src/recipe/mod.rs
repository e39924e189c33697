//! `recipe.toml` → [`Recipe`]: an image to make ready or to check, as data kept with the image's other sources.
//!
//! Unknown keys, fabrics and targets, invalid values and empty sources are errors, never defaults.
//! `images/README.md` documents the format.

mod fact;
pub mod shipped;

pub use fact::{Fact, StatedFact};

use crate::fabric::{self, FABRICS, Fabric};
use crate::reference::{can_be_given, is_digest, is_image_name};
use crate::remedy::Remedy;
use crate::targets::{self, Target};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The placeholder for `--region` in an image's name.
pub const REGION: &str = "{region}";

/// What a recipe's image is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An image whose RDMA userspace is to be swapped.
    #[default]
    Base,
    /// An image that already has the fabric's userspace: nothing to build, only to check.
    Ready,
}

impl fmt::Display for Kind {
    /// The word used in a recipe.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A validated recipe.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub name: String,
    /// What the image is, in a line.
    pub title: Option<String>,
    pub kind: Kind,
    /// Image, with its digest if the recipe gives one; may contain [`REGION`].
    base: String,
    /// A region to name in an error.
    region_example: Option<String>,
    pub fabric: &'static Fabric,
    /// Where the image's publisher intends it to run.
    pub target: Option<&'static Target>,
    /// `ID-VERSION_ID` that the base must be (`ubuntu-22.04`).
    pub distro: Option<String>,
    pub extra_packages: Vec<String>,
    pub mirror: Option<String>,
    pub suite: Option<String>,
    tag: Option<String>,
    /// The facts stated about the image, in the order of [`Fact::ALL`]; unstated ones are absent.
    pub facts: Vec<StatedFact>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    title: Option<String>,
    #[serde(default)]
    kind: Kind,
    target: Option<String>,
    tag: Option<String>,
    base: RawBase,
    fabric: RawFabric,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    expect: Vec<RawExpect>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBase {
    image: String,
    digest: Option<String>,
    distro: Option<String>,
    region_example: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFabric {
    name: String,
    mirror: Option<String>,
    suite: Option<String>,
}

/// The statements of one source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    source: String,
    cuda: Option<String>,
    nccl: Option<String>,
    cudnn: Option<String>,
    python: Option<String>,
    torch: Option<String>,
    distro: Option<String>,
}

impl RawExpect {
    fn value(&self, fact: Fact) -> Option<&String> {
        match fact {
            Fact::Cuda => self.cuda.as_ref(),
            Fact::Nccl => self.nccl.as_ref(),
            Fact::Cudnn => self.cudnn.as_ref(),
            Fact::Python => self.python.as_ref(),
            Fact::Torch => self.torch.as_ref(),
            Fact::Distro => self.distro.as_ref(),
        }
    }
}

/// Why a recipe cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("{0}")]
    Toml(Box<toml::de::Error>),
    #[error("base.image {0:?} is not an image name")]
    Image(String),
    #[error("base.digest {0:?} is not sha256: followed by 64 hexadecimal digits")]
    Digest(String),
    #[error("base.distro {0:?} is not ID-VERSION of a distribution")]
    Distro(String),
    #[error("fabric.name {name:?} is not known")]
    Fabric { name: String, known: String },
    #[error("target {name:?} is not known")]
    Target { name: String, known: String },
    #[error("tag {0:?} is not a valid image name")]
    Tag(String),
    #[error("expect: {} = {value:?} is not a valid value", .fact.key())]
    Value { fact: Fact, value: String },
    #[error("expect: an entry has no source")]
    NoSource,
    #[error("expect: {} is stated twice", .0.key())]
    Twice(Fact),
    #[error("base.distro is {base:?}, and expect says {stated:?}")]
    TwoDistros { base: String, stated: String },
    #[error("its image is in a regional registry: {image}")]
    RegionMissing { image: String, example: Option<String> },
    #[error("region {0:?} is not a region id")]
    Region(String),
    #[error("its image {0} is the same in every region")]
    NoRegion(String),
}

impl Remedy for RecipeError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            RecipeError::Distro(_) => "an example is \"ubuntu-22.04\"".to_owned(),
            RecipeError::Fabric { known, .. } => format!("known: {known}"),
            RecipeError::Target { known, .. } => format!("known: {known}"),
            RecipeError::Value { fact, .. } => format!("an example is {:?}", fact.example()),
            RecipeError::Twice(_) => "keep the statement whose source is closer to the image".to_owned(),
            RecipeError::RegionMissing { example, .. } => {
                format!("choose a region: --region {}", example.as_deref().unwrap_or("REGION"))
            }
            RecipeError::NoSource => "say who states it and where: source = \"...\"".to_owned(),
            RecipeError::Region(_) => "an example is cn-hangzhou".to_owned(),
            RecipeError::NoRegion(_) => "leave --region out".to_owned(),
            RecipeError::Toml(_)
            | RecipeError::Image(_)
            | RecipeError::Digest(_)
            | RecipeError::Tag(_)
            | RecipeError::TwoDistros { .. } => return None,
        })
    }
}

/// Reads the text of a recipe; `name` is its name.
pub fn parse_recipe(name: &str, text: &str) -> Result<Recipe, RecipeError> {
    let raw: RawRecipe = toml::from_str(text).map_err(|error| RecipeError::Toml(Box::new(error)))?;
    let base = parse_base(&raw.base)?;
    if let Some(distro) = &raw.base.distro
        && !fact::is_distro(distro)
    {
        return Err(RecipeError::Distro(distro.clone()));
    }
    if let Some(region) = &raw.base.region_example {
        check_region(region)?;
    }
    let fabric = fabric::by_id(&raw.fabric.name).ok_or_else(|| RecipeError::Fabric {
        name: raw.fabric.name.clone(),
        known: FABRICS.map(|fabric| fabric.id).join(", "),
    })?;
    let target = match raw.target {
        Some(name) => match targets::by_id(&name) {
            Some(target) => Some(target),
            None => return Err(RecipeError::Target { name, known: targets::known() }),
        },
        None => None,
    };
    if let Some(tag) = raw.tag.as_ref().filter(|tag| !can_be_given(tag)) {
        return Err(RecipeError::Tag(tag.clone()));
    }
    let facts = parse_facts(&raw.expect)?;
    if let (Some(base), Some(stated)) = (&raw.base.distro, facts.iter().find(|stated| stated.fact == Fact::Distro))
        && *base != stated.value
    {
        return Err(RecipeError::TwoDistros { base: base.clone(), stated: stated.value.clone() });
    }
    Ok(Recipe {
        name: name.to_owned(),
        title: raw.title,
        kind: raw.kind,
        base,
        region_example: raw.base.region_example,
        fabric,
        target,
        distro: raw.base.distro,
        extra_packages: raw.packages,
        mirror: raw.fabric.mirror,
        suite: raw.fabric.suite,
        tag: raw.tag,
        facts,
    })
}

fn parse_base(raw: &RawBase) -> Result<String, RecipeError> {
    // Any region serves to check whether the rest is a name.
    if !is_image_name(&raw.image.replace(REGION, "region")) {
        return Err(RecipeError::Image(raw.image.clone()));
    }
    match &raw.digest {
        Some(digest) if !is_digest(digest) => Err(RecipeError::Digest(digest.clone())),
        Some(digest) if !raw.image.contains('@') => Ok(format!("{}@{digest}", raw.image)),
        Some(_) | None => Ok(raw.image.clone()),
    }
}

fn parse_facts(expect: &[RawExpect]) -> Result<Vec<StatedFact>, RecipeError> {
    let mut facts: Vec<StatedFact> = Vec::new();
    for entry in expect {
        if entry.source.trim().is_empty() {
            return Err(RecipeError::NoSource);
        }
        for fact in Fact::ALL {
            let Some(value) = entry.value(fact) else { continue };
            if !fact.is_value(value) {
                return Err(RecipeError::Value { fact, value: value.clone() });
            }
            if facts.iter().any(|stated| stated.fact == fact) {
                return Err(RecipeError::Twice(fact));
            }
            facts.push(StatedFact { fact, value: value.clone(), source: entry.source.trim().to_owned() });
        }
    }
    facts.sort_by_key(|stated| stated.fact);
    Ok(facts)
}

/// `cn-hangzhou`: a label that a registry's host name may contain.
fn check_region(region: &str) -> Result<(), RecipeError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    // RFC 1035: the longest label of a host name has 63 characters.
    match (1..=63).contains(&region.len())
        && region.chars().all(is_inner)
        && region.starts_with(is_end)
        && region.ends_with(is_end)
    {
        true => Ok(()),
        false => Err(RecipeError::Region(region.to_owned())),
    }
}

impl Recipe {
    /// The image as the recipe names it; may contain [`REGION`].
    pub fn base(&self) -> &str {
        &self.base
    }

    /// An example region, if the image is regional.
    pub fn region_example(&self) -> Option<&str> {
        self.region_example.as_deref()
    }

    /// A name that a registry has: for a regional image, the one in the example region.
    pub fn example_image(&self) -> String {
        self.base.replace(REGION, self.region_example.as_deref().unwrap_or(REGION))
    }

    /// The image's name, in the given region if it is regional.
    pub fn image(&self, region: Option<&str>) -> Result<String, RecipeError> {
        match (self.base.contains(REGION), region) {
            (false, None) => Ok(self.base.clone()),
            (false, Some(_)) => Err(RecipeError::NoRegion(self.base.clone())),
            (true, None) => {
                Err(RecipeError::RegionMissing { image: self.base.clone(), example: self.region_example.clone() })
            }
            (true, Some(region)) => {
                check_region(region)?;
                Ok(self.base.replace(REGION, region))
            }
        }
    }

    /// The stated value of a fact.
    pub fn fact(&self, fact: Fact) -> Option<&StatedFact> {
        self.facts.iter().find(|stated| stated.fact == fact)
    }

    /// The name of the built image: its `tag`, else the recipe's name and the fabric's. `None`: that is not a valid
    /// image name.
    pub fn default_tag(&self) -> Option<String> {
        let derived = || format!("{}-{}", self.name, self.fabric.id);
        Some(self.tag.clone().unwrap_or_else(derived)).filter(|tag| can_be_given(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::with_remedy;

    #[test]
    fn a_whole_recipe() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let text = format!(
            "title = 'CUDA'\nkind = 'base'\ntarget = 'ecs'\ntag = 'team/cuda:1'\npackages = ['perftest']\n\
             [base]\nimage = 'nvidia/cuda:12.4.1-devel-ubuntu22.04'\ndigest = '{digest}'\ndistro = 'ubuntu-22.04'\n\
             [fabric]\nname = 'erdma'\nsuite = 'jammy/erdma'\n\
             [[expect]]\nsource = 'its tag'\ndistro = 'ubuntu-22.04'\ncuda = '12.4.1'\n\
             [[expect]]\nsource = 'a page'\nnccl = '2.21.5'\n"
        );
        let recipe = parse_recipe("mine", &text).unwrap();
        assert_eq!(recipe.image(None).unwrap(), format!("nvidia/cuda:12.4.1-devel-ubuntu22.04@{digest}"));
        assert_eq!((recipe.fabric.id, recipe.extra_packages.clone()), ("erdma", vec!["perftest".to_owned()]));
        assert_eq!(recipe.default_tag().as_deref(), Some("team/cuda:1"));
        let facts: Vec<(Fact, &str, &str)> =
            recipe.facts.iter().map(|s| (s.fact, s.value.as_str(), s.source.as_str())).collect();
        assert_eq!(
            facts,
            [
                (Fact::Cuda, "12.4.1", "its tag"),
                (Fact::Nccl, "2.21.5", "a page"),
                (Fact::Distro, "ubuntu-22.04", "its tag")
            ]
        );
    }

    #[test]
    fn a_recipe_needs_no_more_than_base_and_fabric() {
        let recipe = parse_recipe("mine", "[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n").unwrap();
        assert_eq!((recipe.kind, recipe.facts.len()), (Kind::Base, 0));
        assert_eq!(recipe.default_tag().as_deref(), Some("mine-erdma"));
        let shouting = parse_recipe("MINE", "[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n").unwrap();
        assert_eq!(shouting.default_tag(), None);
    }

    #[test]
    fn unknown_keys_and_values_are_errors() {
        let with = |more: &str| format!("{more}\n[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n");
        let expect = |more: &str| format!("[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n[[expect]]\n{more}\n");
        for (text, said) in [
            ("[base]\nimage = 'a'\ncolour = 'red'\n[fabric]\nname = 'erdma'\n".to_owned(), "unknown field `colour`"),
            ("[base]\nimage = 'A b'\n[fabric]\nname = 'erdma'\n".to_owned(), "base.image \"A b\" is not an image name"),
            ("[base]\nimage = 'a{b}'\n[fabric]\nname = 'erdma'\n".to_owned(), "base.image \"a{b}\" is not an image name"),
            ("[base]\nimage = 'a'\n[fabric]\nname = 'efa'\n".to_owned(), "known: erdma"),
            ("[base]\nimage = 'a'\ndigest = 'sha256:1'\n[fabric]\nname = 'erdma'\n".to_owned(), "64 hexadecimal digits"),
            ("[base]\nimage = 'a'\ndistro = 'jammy'\n[fabric]\nname = 'erdma'\n".to_owned(), "\"ubuntu-22.04\""),
            ("[fabric]\nname = 'erdma'\n".to_owned(), "missing field `base`"),
            (with("kind = 'other'"), "unknown variant `other`"),
            (with("target = 'mars'"), "known: pai-dlc"),
            (with("tag = 'Bad'"), "tag \"Bad\" is not a valid image name"),
            (expect("cuda = '12.4'"), "missing field `source`"),
            (expect("source = ' '\ncuda = '12.4'"), "has no source"),
            (expect("source = 'x'\nkernel = '6'"), "unknown field `kernel`"),
            (expect("source = 'x'\npython = '2.7.18'"), "python = \"2.7.18\" is not a valid value"),
            (expect("source = 'x'\nnccl = '2.21'"), "nccl = \"2.21\" is not a valid value"),
            (expect("source = 'x'\ncuda = '12.4'\n[[expect]]\nsource = 'y'\ncuda = '12.4'"), "cuda is stated twice"),
            (
                "[base]\nimage = 'a'\ndistro = 'ubuntu-22.04'\n[fabric]\nname = 'erdma'\n[[expect]]\nsource = 'x'\ndistro = 'debian-12'\n"
                    .to_owned(),
                "expect says \"debian-12\"",
            ),
        ] {
            let error = with_remedy(&parse_recipe("x", &text).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn regions() {
        let text = "[base]\nimage = 'registry.{region}.example.com/a:1'\nregion_example = 'cn-hangzhou'\n[fabric]\nname = 'erdma'\n";
        let recipe = parse_recipe("x", text).unwrap();
        assert_eq!(recipe.image(Some("cn-beijing")).unwrap(), "registry.cn-beijing.example.com/a:1");
        let missing = with_remedy(&recipe.image(None).unwrap_err());
        assert!(missing.contains("{region}") && missing.contains("--region cn-hangzhou"), "{missing}");
        for wrong in ["", "CN", "a.b", "-a", "a-", "a/b", "a b"] {
            assert!(matches!(recipe.image(Some(wrong)), Err(RecipeError::Region(_))), "{wrong:?}");
        }
        let plain = parse_recipe("x", "[base]\nimage = 'a'\n[fabric]\nname = 'erdma'\n").unwrap();
        assert_eq!(recipe.example_image(), "registry.cn-hangzhou.example.com/a:1");
        assert!(with_remedy(&plain.image(Some("cn-beijing")).unwrap_err()).contains("leave --region out"));
    }
}
