//! The images of a Docker daemon: connecting as the Docker client does, and reading the layers where a local engine keeps them.

use super::{SourceError, SourceOptions, facts_of, on_thread};
use crate::docker::address::Address;
use crate::docker::config::{ClientConfig, ClientEnv, load_client_config};
use crate::docker::endpoint::Endpoint;
use crate::docker::engine::Engine;
use crate::docker::image::{ImageSettings, ImageSummary};
use crate::facts::ImageFacts;
use crate::image::archive::read_stream;
use crate::image::directory::index_directory;
use crate::image::layer::LayerError;
use crate::image::platform::Platform;
use crate::image::reference::Reference;
use crate::image::rootfs::LayerIndex;
use crate::image::{ConfigFile, DiffIds, Image, RunConfig, parallel};
use crate::inspect::harvest;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The daemon to use. Without either option, the one that `docker` itself would use.
#[derive(Debug, Clone, Default)]
pub struct DaemonChoice {
    /// Address, as in `DOCKER_HOST`.
    pub host: Option<String>,
    /// Name of a Docker context.
    pub context: Option<String>,
}

impl DaemonChoice {
    pub(super) fn is_named(&self) -> bool {
        self.host.is_some() || self.context.is_some()
    }
}

/// The Docker client's settings, read once.
pub struct Client {
    pub env: ClientEnv,
    pub config: ClientConfig,
    endpoint: Endpoint,
}

impl Client {
    /// Reads them from the environment and from Docker's configuration directory; nothing is connected.
    ///
    /// # Errors
    /// A configuration or context that cannot be read, or a bad address.
    pub fn load(choice: &DaemonChoice) -> Result<Client, SourceError> {
        let env = ClientEnv::from_process();
        let config = load_client_config(&env)?;
        let endpoint = Endpoint::resolve(choice.host.as_deref(), choice.context.as_deref(), &env, &config)?;
        Ok(Client { env, config, endpoint })
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    /// No daemon answers, or one that does not speak this client's API.
    pub async fn connect(&self) -> Result<Engine, SourceError> {
        let engine = Engine::connect(&self.endpoint).await?;
        let info = engine.info();
        tracing::info!("Docker {} at {}, API {}", info.version, info.endpoint, info.api_version);
        Ok(engine)
    }
}

/// Layers already read, by diff id: images that share layers share the work. Clones share one cache.
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

/// Reads the facts of an image that the daemon holds.
///
/// # Errors
/// The daemon has no such image, or the image cannot be read.
pub async fn load_from_daemon(engine: &Engine, name: &str, cache: &LayerCache) -> Result<ImageFacts, SourceError> {
    read_from_daemon(engine, name, &SourceOptions::default(), cache).await
}

pub(super) async fn read_from_daemon(
    engine: &Engine,
    name: &str,
    options: &SourceOptions,
    cache: &LayerCache,
) -> Result<ImageFacts, SourceError> {
    let no_such_image = || SourceError::NoSuchImage { name: name.to_owned() };
    let summary = engine.inspect_image(name).await?.ok_or_else(no_such_image)?;
    let reference = Reference::Daemon(name.to_owned()).to_string();
    let local = matches!(engine.endpoint().address(), Address::Unix { .. });
    // Another platform is only in what the engine saves, and so are the bytes that digests are of.
    let as_inspected = options.platform.as_ref().is_none_or(|asked| asked.accepts(&platform_of(&summary)));
    let stored = match local && as_inspected && !options.verify {
        true => {
            let (stored, seen) = (summary.clone(), cache.clone());
            // On its own thread, so that interrupts are still handled.
            on_thread(move || read_store(&stored, &seen)).await
        }
        false => None,
    };
    let mut image = match stored {
        Some(image) => image,
        None => save(engine, &summary, &reference, options).await?,
    };
    // A save by id carries no names.
    image.repo_tags = summary.repo_tags;
    image.repo_digests = summary.repo_digests;
    facts_of(&image, reference)
}

fn platform_of(summary: &ImageSummary) -> Platform {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Platform::new(&text(&summary.os), &text(&summary.architecture), summary.variant.as_deref())
}

/// Reads the layers from a local engine's store; `None` if that cannot be done correctly.
fn read_store(summary: &ImageSummary, cache: &LayerCache) -> Option<Image> {
    let directories = &summary.layer_directories;
    if directories.is_empty() || directories.len() != summary.diff_ids.len() {
        return None;
    }
    let parts: Vec<(&PathBuf, &String)> = directories.iter().zip(&summary.diff_ids).collect();
    let read = |(directory, diff_id): &(&PathBuf, &String)| match cache.get(diff_id) {
        Some(index) => Ok(index),
        None => index_directory(directory, &harvest).inspect(|index| cache.put(diff_id, index.clone())),
    };
    // A layer's size is unknown before it is read.
    let indexes = match parallel::for_each(&parts, parallel::workers(), |_| 0, read) {
        Ok(indexes) => indexes,
        Err(error) => {
            let reason = match error {
                // The engine runs elsewhere, as seen from here, or this user may not look.
                LayerError::File { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            tracing::debug!("the engine's store cannot be read directly: {reason}");
            return None;
        }
    };
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

async fn save(
    engine: &Engine,
    summary: &ImageSummary,
    reference: &str,
    options: &SourceOptions,
) -> Result<Image, SourceError> {
    tracing::info!("reading {reference} with docker save");
    // By id: a name without a tag would save every tag of the repository.
    let stream = engine.save_image(&summary.id).await?;
    let options = options.clone();
    on_thread(move || read_stream(stream, &options.read(None), &harvest))
        .await
        .map(|(image, _)| image)
        .map_err(|source| SourceError::Image { reference: reference.to_owned(), source })
}
