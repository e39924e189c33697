//! Opens what a reference names and reads its facts.

use super::error::CliError;
use super::{Global, interrupted};
use crate::docker::address::Address;
use crate::docker::config::{ClientConfig, ClientEnv, load_client_config};
use crate::docker::endpoint::Endpoint;
use crate::docker::engine::Engine;
use crate::docker::image::{ImageSettings, ImageSummary};
use crate::facts::ImageFacts;
use crate::image::archive::read_archive;
use crate::image::directory::index_directory;
use crate::image::layer::LayerError;
use crate::image::reference::{Reference, parse_reference};
use crate::image::rootfs::LayerIndex;
use crate::image::{ConfigFile, DiffIds, Image, ImageError, RunConfig};
use crate::inspect::{harvest, inspect};
use crate::saved_facts::parse_saved_facts;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The Docker client's settings, read once.
pub struct Client {
    pub env: ClientEnv,
    pub config: ClientConfig,
    endpoint: Endpoint,
}

impl Client {
    pub fn load(global: &Global) -> Result<Client, CliError> {
        let env = ClientEnv::from_process();
        let config = load_client_config(&env)?;
        let endpoint = Endpoint::resolve(global.host.as_deref(), global.context.as_deref(), &env, &config)?;
        Ok(Client { env, config, endpoint })
    }

    pub async fn connect(&self) -> Result<Engine, CliError> {
        let engine = Engine::connect(&self.endpoint).await?;
        let info = engine.info();
        tracing::info!("Docker {} at {}, API {}", info.version, info.endpoint, info.api_version);
        Ok(engine)
    }
}

/// Layers that were read already, by diff id: images that share layers share the work. Clones are one cache.
#[derive(Default, Clone)]
pub struct LayerCache {
    layers: Arc<Mutex<HashMap<String, LayerIndex>>>,
}

impl LayerCache {
    fn get(&self, diff_id: &str) -> Option<LayerIndex> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).get(diff_id).cloned()
    }

    fn put(&self, diff_id: &str, index: LayerIndex) {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).insert(diff_id.to_owned(), index);
    }
}

/// Parses a reference with the file system's help.
pub fn parse(text: &str) -> Result<Reference, CliError> {
    Ok(parse_reference(text, |path| path.exists())?)
}

/// Reads the facts of any reference; connects only if it must.
pub fn load_facts(text: &str, global: &Global) -> Result<ImageFacts, CliError> {
    match parse(text)? {
        Reference::Archive { path, select } => load_archive(&path, select.as_deref()),
        Reference::Daemon(name) => super::block_on(async {
            let engine = Client::load(global)?.connect().await?;
            load_daemon(&engine, &name, &LayerCache::default()).await
        }),
    }
}

/// Reads facts that `inspect --format json` wrote.
pub fn load_saved(path: &Path) -> Result<ImageFacts, CliError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| CliError::FactsFile { path: name.clone(), source })?;
    parse_saved_facts(&text).map_err(|source| CliError::SavedFacts { path: name, source })
}

fn load_archive(path: &Path, select: Option<&str>) -> Result<ImageFacts, CliError> {
    let reference = Reference::Archive { path: path.to_owned(), select: select.map(str::to_owned) }.to_string();
    let failed = |source| CliError::Image { reference: reference.clone(), source };
    let open = |source| failed(ImageError::Open { path: path.display().to_string(), source });
    let file = File::open(path).map_err(open)?;
    if file.metadata().map_err(open)?.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(open(source));
    }
    let image = read_archive(file, select, &harvest).map_err(failed)?;
    facts_of(&image, reference.clone())
}

fn facts_of(image: &Image, reference: String) -> Result<ImageFacts, CliError> {
    tracing::info!("{reference} is {}", image.id);
    inspect(image, reference.clone()).map_err(|source| CliError::Inspect { reference, source })
}

/// Reads the facts of an image that the daemon holds; an interrupt ends it.
pub async fn load_daemon(engine: &Engine, name: &str, cache: &LayerCache) -> Result<ImageFacts, CliError> {
    tokio::select! {
        facts = read_daemon(engine, name, cache) => facts,
        () = interrupted() => Err(CliError::Interrupted),
    }
}

async fn read_daemon(engine: &Engine, name: &str, cache: &LayerCache) -> Result<ImageFacts, CliError> {
    let no_such_image = || CliError::NoSuchImage { name: name.to_owned() };
    let summary = engine.inspect_image(name).await?.ok_or_else(no_such_image)?;
    let reference = Reference::Daemon(name.to_owned()).to_string();
    let (stored, seen) = (summary.clone(), cache.clone());
    let local = matches!(engine.endpoint().address(), Address::Unix { .. });
    // On a thread of its own, so that an interrupt is heard meanwhile.
    let stored = match local {
        true => on_thread(move || read_store(&stored, &seen)).await,
        false => None,
    };
    let mut image = match stored {
        Some(image) => image,
        None => save(engine, &summary, &reference).await?,
    };
    // A save by id carries no names.
    image.repo_tags = summary.repo_tags;
    image.repo_digests = summary.repo_digests;
    facts_of(&image, reference)
}

/// Reads the layers where a local engine keeps them; `None` where that cannot be done rightly.
fn read_store(summary: &ImageSummary, cache: &LayerCache) -> Option<Image> {
    let directories = &summary.layer_directories;
    if directories.is_empty() || directories.len() != summary.diff_ids.len() {
        return None;
    }
    let mut indexes = Vec::new();
    for (directory, diff_id) in directories.iter().zip(&summary.diff_ids) {
        let index = match cache.get(diff_id) {
            Some(index) => index,
            None => match index_directory(directory, &harvest) {
                Ok(index) => {
                    cache.put(diff_id, index.clone());
                    index
                }
                Err(error) => {
                    let reason = match error {
                        // The engine runs elsewhere, as seen from here, or this user may not look.
                        LayerError::File { source, .. } => source.to_string(),
                        other => other.to_string(),
                    };
                    tracing::debug!("the engine's store cannot be read directly: {reason}");
                    return None;
                }
            },
        };
        indexes.push(index);
    }
    let config = ConfigFile {
        architecture: summary.architecture.clone().unwrap_or_default(),
        os: summary.os.clone().unwrap_or_default(),
        variant: summary.variant.clone(),
        config: summary.config.clone().map(run_config),
        rootfs: DiffIds { diff_ids: summary.diff_ids.clone() },
    };
    Some(Image::assemble(summary.id.clone(), Vec::new(), config, indexes))
}

fn run_config(settings: ImageSettings) -> RunConfig {
    RunConfig {
        env: settings.env,
        user: settings.user,
        entrypoint: settings.entrypoint,
        cmd: settings.cmd,
        shell: settings.shell,
        working_dir: settings.working_dir,
        labels: settings.labels,
        on_build: settings.on_build,
    }
}

async fn save(engine: &Engine, summary: &ImageSummary, reference: &str) -> Result<Image, CliError> {
    tracing::info!("reading {reference} with docker save");
    // By id: a name without a tag would save every tag of the repository.
    let stream = engine.save_image(&summary.id).await?;
    on_thread(move || read_archive(stream, None, &harvest))
        .await
        .map_err(|source| CliError::Image { reference: reference.to_owned(), source })
}

/// Runs work that blocks beside the runtime's own threads.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
