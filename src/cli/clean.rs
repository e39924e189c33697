//! `rdmaprep clean`: removes containers that an interrupted run left.

use super::TextOrJson;
use super::error::CliError;
use super::output::Output;
use super::{Global, block_on, interrupted};
use crate::docker::container::ListedContainer;
use crate::judge::Exit;
use crate::launch::owner::{Fate, Owner, RUN_LABEL, fate};
use crate::source::Client;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    /// Also remove containers of runs that are, or may be, still alive
    #[arg(long)]
    all: bool,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

/// Version of the JSON format.
const SCHEMA_VERSION: u32 = 1;

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
struct Cleaned {
    schema_version: u32,
    dry_run: bool,
    /// What was removed, or would be.
    removed: Vec<Entry>,
    kept: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    id: String,
    name: String,
    image: String,
    run: String,
    state: String,
    /// Why the container was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) fn run(args: &CleanArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let client = Client::load(&global.daemon())?;
    let cleaned = block_on(async {
        tokio::select! {
            cleaned = clean(args, &client) => cleaned,
            () = interrupted() => Err(CliError::Interrupted),
        }
    })?;
    match args.format {
        TextOrJson::Json => output.json(&cleaned),
        TextOrJson::Text => output.write(|out, _| write_text(out, &cleaned)),
    }
    Ok(Exit::Ok)
}

async fn clean(args: &CleanArgs, client: &Client) -> Result<Cleaned, CliError> {
    let engine = client.connect().await?;
    let load = |pid| Owner::load(Path::new("/"), pid);
    let asking = load(std::process::id());
    let mut cleaned =
        Cleaned { schema_version: SCHEMA_VERSION, dry_run: args.dry_run, removed: Vec::new(), kept: Vec::new() };
    for container in engine.list_labelled(RUN_LABEL).await? {
        let fate = match args.all {
            true => Fate::Orphan,
            false => fate(&container.labels, container.state == "running", &asking, load),
        };
        match fate {
            Fate::Kept(reason) => cleaned.kept.push(entry(container, Some(reason))),
            Fate::Orphan => {
                // A container that vanished meanwhile was not removed here.
                if args.dry_run || engine.remove_container(&container.id).await? {
                    cleaned.removed.push(entry(container, None));
                }
            }
        }
    }
    Ok(cleaned)
}

fn entry(container: ListedContainer, reason: Option<String>) -> Entry {
    let run = container.labels.get(RUN_LABEL).cloned().unwrap_or_default();
    let ListedContainer { id, name, image, state, .. } = container;
    Entry { id, name, image, run, state, reason }
}

fn write_text(out: &mut dyn Write, cleaned: &Cleaned) -> io::Result<()> {
    let word = if cleaned.dry_run { "would remove" } else { "removed" };
    for entry in &cleaned.removed {
        writeln!(out, "{word} {} ({}) of {}, run {}", entry.name, entry.state, entry.image, entry.run)?;
    }
    for entry in &cleaned.kept {
        let reason = entry.reason.as_deref().unwrap_or_default();
        writeln!(out, "kept {} ({}) of {}, run {}: {reason}", entry.name, entry.state, entry.image, entry.run)?;
    }
    match (cleaned.removed.is_empty(), cleaned.kept.is_empty()) {
        (true, true) => writeln!(out, "no container of rdmaprep is left"),
        (_, false) => writeln!(out, "--all also removes those that were kept"),
        (false, true) => Ok(()),
    }
}
