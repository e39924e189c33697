//! Lists the recipes of `images/` for `src/recipe/shipped.rs`, so that every one is in the program and none can be forgotten.

#![allow(clippy::disallowed_macros, reason = "cargo reads what a build script prints")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a build script that panics says why")]

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let images = Path::new(&root).join("images");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", images.display());
    let mut names: Vec<String> = fs::read_dir(&images)
        .expect("images/ is there")
        .filter_map(|entry| entry.expect("images/ can be listed").file_name().into_string().ok())
        .filter(|name| images.join(name).join("recipe.toml").is_file())
        .collect();
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = images.join(&name).join("recipe.toml");
        println!("cargo:rerun-if-changed={}", path.display());
        writeln!(list, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("a string can grow");
    }
    list.push_str("]\n");
    fs::write(Path::new(&out).join("shipped_recipes.rs"), list).expect("OUT_DIR can be written to");
}
