//! Opens what a reference names and reads its facts.

use super::error::CliError;
use super::{Global, interrupted};
use crate::docker::address::Address;
use crate::docker::config::{ClientConfig, ClientEnv, load_client_config};
use crate::docker::endpoint::Endpoint;
use crate::docker::engine::Engine;
use crate::docker::error::DockerError;
use crate::docker::image::{ImageSettings, ImageSummary};
use crate::facts::ImageFacts;
use crate::facts::saved::parse_saved_facts;
use crate::image::archive::{read_directory, read_file, read_stream};
use crate::image::directory::{index_directory, read_root};
use crate::image::layer::LayerError;
use crate::image::layout::LayoutKind;
use crate::image::platform::Platform;
use crate::image::reference::{Reference, is_digest, parse_reference};
use crate::image::rootfs::LayerIndex;
use crate::image::{ConfigFile, DiffIds, Image, ImageError, ReadOptions, RunConfig, parallel};
use crate::inspect::{harvest, inspect};
use crate::registry::{self, read_image};
use clap::Args;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How an image is to be read, wherever it is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of the image's source")]
pub struct SourceArgs {
    /// Which of an image's platforms, as linux/arm64 [default: the only one, else linux on this machine's processor]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,
    /// Hash every layer and compare with what manifest and config say
    #[arg(long)]
    verify: bool,
    /// Certificates (PEM) to trust besides the system's when talking to registries
    #[arg(long, value_name = "FILE")]
    registry_ca: Option<PathBuf>,
    /// Registry to ask first; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    registry_mirror: Vec<String>,
    /// Talk to registries without TLS
    #[arg(long)]
    plain_http: bool,
}

impl SourceArgs {
    fn options<'a>(&'a self, select: Option<&'a str>) -> ReadOptions<'a> {
        ReadOptions { select, platform: self.platform.as_ref(), verify: self.verify }
    }

    fn registry(&self) -> registry::Settings {
        registry::Settings {
            plain_http: self.plain_http,
            ca: self.registry_ca.clone(),
            mirrors: self.registry_mirror.clone(),
        }
    }
}

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
pub fn load_facts(text: &str, args: &SourceArgs, global: &Global) -> Result<ImageFacts, CliError> {
    let reference = match parse(text)? {
        Reference::Path { path, select } => sniff(path, select)?,
        reference => reference,
    };
    let failed = |source| CliError::Image { reference: reference.to_string(), source };
    match &reference {
        // A path that was just sniffed is one of the others.
        Reference::Archive { path, select }
        | Reference::OciArchive { path, select }
        | Reference::Path { path, select } => load_archive(path, select.clone(), args),
        Reference::OciDir { path, select } => {
            let read = read_directory(path, &args.options(select.as_deref()), &harvest);
            facts_of(&read.map_err(failed)?.0, reference.to_string())
        }
        Reference::RootFs(path) => {
            if args.verify {
                tracing::warn!("{reference}: a root directory has no digests, there is nothing to verify");
            }
            let name = reference.to_string();
            facts_of(&read_root(path, &name, &args.options(None), &harvest).map_err(failed)?, name)
        }
        Reference::Daemon(name) => super::block_on(async {
            let engine = Client::load(global)?.connect().await?;
            or_interrupted(read_daemon(&engine, name, args, &LayerCache::default())).await
        }),
        Reference::Registry(name) => super::block_on(or_interrupted(read_registry(name, args))),
        Reference::Name(name) => super::block_on(or_interrupted(read_name(name, args, global))),
    }
}

/// Reads facts that `inspect --format json` wrote.
pub fn load_saved(path: &Path) -> Result<ImageFacts, CliError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| CliError::FactsFile { path: name.clone(), source })?;
    parse_saved_facts(&text).map_err(|source| CliError::SavedFacts { path: name, source })
}

/// Says what lies at a path.
fn sniff(path: PathBuf, select: Option<String>) -> Result<Reference, CliError> {
    let shown = path.display().to_string();
    let failed = |source| CliError::Image { reference: shown.clone(), source };
    let metadata =
        std::fs::metadata(&path).map_err(|source| failed(ImageError::Open { path: shown.clone(), source }))?;
    if !metadata.is_dir() {
        return Ok(Reference::Archive { path, select });
    }
    if is_layout(&path) {
        return Ok(Reference::OciDir { path, select });
    }
    match (is_root(&path), select) {
        (true, None) => Ok(Reference::RootFs(path)),
        (true, Some(name)) => {
            Err(CliError::Usage(format!("{shown} is a root directory: there is no image {name:?} to choose in it")))
        }
        (false, _) => Err(failed(ImageError::UnknownDirectory)),
    }
}

/// Whether a directory looks like an image.
pub fn is_image_directory(path: &Path) -> bool {
    is_layout(path) || is_root(path)
}

fn is_layout(directory: &Path) -> bool {
    ["index.json", "oci-layout", "manifest.json"].iter().any(|name| directory.join(name).exists())
}

fn is_root(directory: &Path) -> bool {
    ["etc", "usr", "bin", "lib", "var"].iter().any(|name| directory.join(name).exists())
}

fn load_archive(path: &Path, select: Option<String>, args: &SourceArgs) -> Result<ImageFacts, CliError> {
    let reference = Reference::Archive { path: path.to_owned(), select: select.clone() };
    let failed = |source| CliError::Image { reference: reference.to_string(), source };
    let open = |source| failed(ImageError::Open { path: path.display().to_string(), source });
    let file = File::open(path).map_err(open)?;
    if file.metadata().map_err(open)?.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(open(source));
    }
    let (image, kind) = read_file(file, &args.options(select.as_deref()), &harvest).map_err(failed)?;
    let reference = match kind {
        LayoutKind::Docker => reference.clone(),
        LayoutKind::Oci => Reference::OciArchive { path: path.to_owned(), select },
    };
    facts_of(&image, reference.to_string())
}

/// A bare name: the daemon's image, else the registry's.
async fn read_name(name: &str, args: &SourceArgs, global: &Global) -> Result<ImageFacts, CliError> {
    let in_daemon = async {
        let engine = Client::load(global)?.connect().await?;
        read_daemon(&engine, name, args, &LayerCache::default()).await
    };
    let missing = match in_daemon.await {
        Err(error @ CliError::NoSuchImage { .. }) => error,
        // Who names a daemon means it; nobody named the one that is not there.
        Err(CliError::Docker(
            error @ (DockerError::NotRunning { .. }
            | DockerError::PermissionDenied { .. }
            | DockerError::Refused { .. }),
        )) if global.host.is_none() && global.context.is_none() => CliError::Docker(error),
        result => return result,
    };
    // An id means something to the daemon alone.
    if is_digest(name) {
        return Err(missing);
    }
    let daemon = missing.to_string().lines().next().unwrap_or_default().to_owned();
    tracing::info!("{daemon}; asking the registry");
    match read_registry(name, args).await {
        Err(CliError::Registry(source)) => {
            Err(CliError::Nowhere { name: name.to_owned(), daemon, source: Box::new(source) })
        }
        result => result,
    }
}

async fn read_registry(name: &str, args: &SourceArgs) -> Result<ImageFacts, CliError> {
    let (wanted, args) = (name.to_owned(), args.clone());
    let image = on_thread(move || {
        let config = load_client_config(&ClientEnv::from_process())?;
        Ok::<_, CliError>(read_image(&wanted, &args.registry(), &config, &args.options(None), &harvest)?)
    });
    facts_of(&image.await?, Reference::Registry(name.to_owned()).to_string())
}

/// Runs until it is told to end.
async fn or_interrupted<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        result = work => result,
        () = interrupted() => Err(CliError::Interrupted),
    }
}

fn facts_of(image: &Image, reference: String) -> Result<ImageFacts, CliError> {
    tracing::info!("{reference} is {}", image.id);
    inspect(image, reference.clone()).map_err(|source| CliError::Inspect { reference, source })
}

/// Reads the facts of an image that the daemon holds; an interrupt ends it.
pub async fn load_daemon(engine: &Engine, name: &str, cache: &LayerCache) -> Result<ImageFacts, CliError> {
    or_interrupted(read_daemon(engine, name, &SourceArgs::default(), cache)).await
}

async fn read_daemon(
    engine: &Engine,
    name: &str,
    args: &SourceArgs,
    cache: &LayerCache,
) -> Result<ImageFacts, CliError> {
    let no_such_image = || CliError::NoSuchImage { name: name.to_owned() };
    let summary = engine.inspect_image(name).await?.ok_or_else(no_such_image)?;
    let reference = Reference::Daemon(name.to_owned()).to_string();
    let local = matches!(engine.endpoint().address(), Address::Unix { .. });
    // Another platform is only in what the engine saves, and so are the bytes that digests are of.
    let as_inspected = args.platform.as_ref().is_none_or(|asked| asked.accepts(&platform_of(&summary)));
    let stored = match local && as_inspected && !args.verify {
        true => {
            let (stored, seen) = (summary.clone(), cache.clone());
            // On a thread of its own, so that an interrupt is heard meanwhile.
            on_thread(move || read_store(&stored, &seen)).await
        }
        false => None,
    };
    let mut image = match stored {
        Some(image) => image,
        None => save(engine, &summary, &reference, args).await?,
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

/// Reads the layers where a local engine keeps them; `None` where that cannot be done rightly.
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
    // Which layer is large is not known before it is read.
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

async fn save(engine: &Engine, summary: &ImageSummary, reference: &str, args: &SourceArgs) -> Result<Image, CliError> {
    tracing::info!("reading {reference} with docker save");
    // By id: a name without a tag would save every tag of the repository.
    let stream = engine.save_image(&summary.id).await?;
    let args = args.clone();
    on_thread(move || read_stream(stream, &args.options(None), &harvest))
        .await
        .map(|(image, _)| image)
        .map_err(|source| CliError::Image { reference: reference.to_owned(), source })
}

/// Runs work that blocks beside the runtime's own threads.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
