//! Writes the Dockerfile that swaps the RDMA userspace of an image: `cargo run --example render_swap -- IMAGE [TARGET]`.
//!
//! IMAGE is an archive of `docker save`, a directory, or the name of an image of the daemon or a registry.

#![allow(clippy::disallowed_macros, reason = "an example is a program of its own, and prints")]

use rdmaprep::dockerfile::render_dockerfile;
use rdmaprep::source::{DaemonChoice, SourceOptions, load_facts, parse};
use rdmaprep::swap::{Subject, SwapRequest};
use rdmaprep::targets;
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("name an image")?;
    let name = args.next().unwrap_or_else(|| "pai-dlc".to_owned());
    let target = targets::by_id(&name).ok_or_else(|| format!("known targets: {}", targets::known()))?;
    let facts = load_facts(&image, &SourceOptions::default(), &DaemonChoice::default()).await?;
    let request = SwapRequest::default();
    request.check(target.fabric)?;
    let swap = request.plan(&Subject::image(parse(&image)?), target.fabric, facts)?;
    print!("{}", render_dockerfile(&swap.plan));
    Ok(())
}
