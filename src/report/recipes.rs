//! Recipes, as `images` lists them.

use super::Style;
use crate::recipe::{Fact, Kind, Recipe, StatedFact};
use serde::Serialize;
use std::io::{self, Write};

/// Version of the JSON format.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What `images --format json` writes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecipeListing {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: String,
    pub recipes: Vec<RecipeEntry>,
}

impl RecipeListing {
    pub fn new(recipes: Vec<RecipeEntry>) -> RecipeListing {
        RecipeListing {
            schema_version: SCHEMA_VERSION,
            rdmaprep_version: env!("CARGO_PKG_VERSION").to_owned(),
            recipes,
        }
    }
}

/// Everything that a recipe states.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecipeEntry {
    pub name: String,
    pub title: Option<String>,
    pub kind: Kind,
    /// The image that it names; `{region}` is replaced by `--region`.
    pub image: String,
    pub fabric: String,
    /// Where the image's publisher intends it to run.
    pub target: Option<String>,
    /// Name of the image built from it; absent if nothing is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// `ID-VERSION_ID` that the base must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distro: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// The facts stated about the image; unstated ones are absent.
    pub facts: Vec<StatedFact>,
}

impl RecipeEntry {
    /// `image`: the recipe's, in the given region if any.
    pub fn new(recipe: &Recipe, image: String) -> RecipeEntry {
        RecipeEntry {
            name: recipe.name.clone(),
            title: recipe.title.clone(),
            kind: recipe.kind,
            image,
            fabric: recipe.fabric.id.to_owned(),
            target: recipe.target.map(|target| target.id.to_owned()),
            tag: recipe.default_tag().filter(|_| recipe.kind == Kind::Base),
            distro: recipe.distro.clone(),
            packages: recipe.extra_packages.clone(),
            mirror: recipe.mirror.clone(),
            suite: recipe.suite.clone(),
            facts: recipe.facts.clone(),
        }
    }

    fn fact(&self, fact: Fact) -> &str {
        self.facts.iter().find(|stated| stated.fact == fact).map_or("-", |stated| &stated.value)
    }

    fn distro(&self) -> &str {
        self.distro.as_deref().unwrap_or_else(|| self.fact(Fact::Distro))
    }
}

/// Writes a table of recipes; `-` means not stated.
pub fn write_recipes(out: &mut dyn Write, recipes: &[RecipeEntry]) -> io::Result<()> {
    let head = ["NAME", "KIND", "FABRIC", "TARGET", "CUDA", "NCCL", "DISTRO", "IMAGE"].map(str::to_owned);
    let rows = recipes.iter().map(|recipe| {
        [
            recipe.name.clone(),
            recipe.kind.to_string(),
            recipe.fabric.clone(),
            recipe.target.clone().unwrap_or_else(|| "-".to_owned()),
            recipe.fact(Fact::Cuda).to_owned(),
            recipe.fact(Fact::Nccl).to_owned(),
            recipe.distro().to_owned(),
            recipe.image.clone(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes everything that a recipe states, and the command that builds or checks it.
pub fn write_recipe(out: &mut dyn Write, recipe: &RecipeEntry, command: &str, style: Style) -> io::Result<()> {
    writeln!(out, "{}  {}", style.bold(&recipe.name), recipe.title.as_deref().unwrap_or_default())?;
    let kind = match recipe.kind {
        Kind::Base => "base: its RDMA userspace is to be swapped",
        Kind::Ready => "ready: it already has the fabric's userspace",
    };
    let packages = recipe.packages.join(" ");
    for (name, text) in [
        ("kind", Some(kind)),
        ("image", Some(recipe.image.as_str())),
        ("fabric", Some(recipe.fabric.as_str())),
        ("target", recipe.target.as_deref()),
        ("tag", recipe.tag.as_deref()),
        ("packages", Some(packages.as_str()).filter(|text| !text.is_empty())),
        ("mirror", recipe.mirror.as_deref()),
        ("suite", recipe.suite.as_deref()),
    ] {
        if let Some(text) = text {
            writeln!(out, "  {name:<9} {text}")?;
        }
    }
    writeln!(out, "  stated")?;
    let mut source = "";
    for stated in &recipe.facts {
        // Facts of one source are usually adjacent.
        if source != stated.source {
            source = &stated.source;
            writeln!(out, "    by {source}")?;
        }
        writeln!(out, "      {:<12} {}", stated.fact.to_string(), stated.value)?;
    }
    if recipe.facts.is_empty() {
        writeln!(out, "    nothing")?;
    }
    match recipe.kind {
        Kind::Base => writeln!(out, "  build it: {command}"),
        Kind::Ready => writeln!(out, "  check it: {command}"),
    }
}
