//! Reads what is in a registry's image, without pulling it: `cargo run --example inspect_registry -- IMAGE [CA.pem]`.
//!
//! Credentials are those of `docker login`. Only the layers' headers and the few files that the inspection needs are kept.

#![allow(clippy::disallowed_macros, reason = "an example is a program of its own, and prints")]

use rdmaprep::registry::Settings;
use rdmaprep::source::{DaemonChoice, SourceOptions, load_facts};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("name an image, such as nvcr.io/nvidia/pytorch:24.05-py3")?;
    let registry = Settings { ca: args.next().map(Into::into), ..Settings::default() };
    let options = SourceOptions { registry, ..SourceOptions::default() };
    let facts = load_facts(&format!("docker://{image}"), &options, &DaemonChoice::default()).await?;
    let distribution = facts.distro.as_ref().map_or("an unknown distribution", |distro| &distro.id);
    println!("{} is {} on {}", facts.image.reference, facts.image.id, distribution);
    println!("{} layers, {} packages", facts.image.layers.len(), facts.packages.list.len());
    for nccl in &facts.nccl {
        println!("NCCL {} at {}", nccl.version.as_deref().unwrap_or("of an unknown version"), nccl.path);
    }
    Ok(())
}
