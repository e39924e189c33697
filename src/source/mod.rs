//! Where an image comes from: the text that names it → its facts.
//!
//! A reference names an archive, a layout, a root directory, the daemon or a registry. A bare path is examined, and a bare name
//! is the daemon's image, or else the registry's.

mod daemon;
mod error;

pub use daemon::{Client, DaemonChoice, LayerCache, load_from_daemon};
pub use error::SourceError;

use crate::docker::config::{ClientEnv, load_client_config};
use crate::docker::error::DockerError;
use crate::facts::ImageFacts;
use crate::facts::saved::parse_saved_facts;
use crate::image::archive::{read_directory, read_file};
use crate::image::directory::read_root;
use crate::image::layout::LayoutKind;
use crate::image::platform::Platform;
use crate::image::reference::{Reference, parse_reference};
use crate::image::{Image, ImageError, ReadOptions};
use crate::inspect::{harvest, inspect};
use crate::reference::is_digest;
use crate::registry::{self, read_image};
use daemon::read_from_daemon;
use std::fs::File;
use std::path::{Path, PathBuf};

/// How to read an image, wherever it is.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// Which of an image's platforms; `None`: the only one, else Linux on this machine's processor.
    pub platform: Option<Platform>,
    /// Hash every layer and compare with what manifest and configuration say.
    pub verify: bool,
    /// How registries are talked to.
    pub registry: registry::Settings,
}

impl SourceOptions {
    fn read<'a>(&'a self, select: Option<&'a str>) -> ReadOptions<'a> {
        ReadOptions { select, platform: self.platform.as_ref(), verify: self.verify }
    }
}

/// Parses a reference with the file system's help: text that is the path of something is a path.
///
/// # Errors
/// Text that is neither a path nor the name of an image.
pub fn parse(text: &str) -> Result<Reference, SourceError> {
    Ok(parse_reference(text, |path| path.exists())?)
}

/// Reads the facts of any reference; connects only if it must.
///
/// Files are read on the runtime's own threads, so that a cancelled caller returns at once.
///
/// # Errors
/// The image does not exist, or cannot be read.
pub async fn load_facts(text: &str, options: &SourceOptions, daemon: &DaemonChoice) -> Result<ImageFacts, SourceError> {
    match parse(text)? {
        Reference::Daemon(name) => {
            let engine = Client::load(daemon)?.connect().await?;
            read_from_daemon(&engine, &name, options, &LayerCache::default()).await
        }
        Reference::Registry(name) => read_from_registry(&name, options).await,
        Reference::Name(name) => read_name(&name, options, daemon).await,
        reference => {
            let options = options.clone();
            on_thread(move || read_path(reference, &options)).await
        }
    }
}

/// Reads an image from the file system.
fn read_path(reference: Reference, options: &SourceOptions) -> Result<ImageFacts, SourceError> {
    let reference = match reference {
        Reference::Path { path, select } => sniff(path, select)?,
        reference => reference,
    };
    let shown = reference.to_string();
    let failed = |source| SourceError::Image { reference: shown.clone(), source };
    match reference {
        Reference::OciDir { path, select } => {
            let read = read_directory(&path, &options.read(select.as_deref()), &harvest);
            facts_of(&read.map_err(failed)?.0, shown)
        }
        Reference::RootFs(path) => {
            if options.verify {
                tracing::warn!("{shown}: a root directory has no digests, there is nothing to verify");
            }
            facts_of(&read_root(&path, &shown, &options.read(None), &harvest).map_err(failed)?, shown)
        }
        Reference::Archive { path, select }
        | Reference::OciArchive { path, select }
        | Reference::Path { path, select } => load_archive(&path, select, options),
        // A name alone has no file.
        Reference::Daemon(name) | Reference::Registry(name) | Reference::Name(name) => {
            Err(SourceError::NoSuchImage { name })
        }
    }
}

/// Reads facts that `inspect --format json` wrote.
///
/// # Errors
/// The file cannot be read, or has other content.
pub fn load_saved(path: &Path) -> Result<ImageFacts, SourceError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| SourceError::FactsFile { path: name.clone(), source })?;
    parse_saved_facts(&text).map_err(|source| SourceError::SavedFacts { path: name, source })
}

/// Determines what is at a path.
fn sniff(path: PathBuf, select: Option<String>) -> Result<Reference, SourceError> {
    let shown = path.display().to_string();
    let failed = |source| SourceError::Image { reference: shown.clone(), source };
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
        (true, Some(name)) => Err(SourceError::NoChoice { directory: shown, image: name }),
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

fn load_archive(path: &Path, select: Option<String>, options: &SourceOptions) -> Result<ImageFacts, SourceError> {
    let reference = Reference::Archive { path: path.to_owned(), select: select.clone() };
    let failed = |source| SourceError::Image { reference: reference.to_string(), source };
    let open = |source| failed(ImageError::Open { path: path.display().to_string(), source });
    let file = File::open(path).map_err(open)?;
    if file.metadata().map_err(open)?.is_dir() {
        let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(open(source));
    }
    let (image, kind) = read_file(file, &options.read(select.as_deref()), &harvest).map_err(failed)?;
    let reference = match kind {
        LayoutKind::Docker => reference.clone(),
        LayoutKind::Oci => Reference::OciArchive { path: path.to_owned(), select },
    };
    facts_of(&image, reference.to_string())
}

/// A bare name: the daemon's image, else the registry's.
async fn read_name(name: &str, options: &SourceOptions, daemon: &DaemonChoice) -> Result<ImageFacts, SourceError> {
    let in_daemon = async {
        let engine = Client::load(daemon)?.connect().await?;
        read_from_daemon(&engine, name, options, &LayerCache::default()).await
    };
    let missing = match in_daemon.await {
        Err(error @ SourceError::NoSuchImage { .. }) => error,
        // A missing daemon is an error only if the user named one.
        Err(SourceError::Docker(
            error @ (DockerError::NotRunning { .. }
            | DockerError::PermissionDenied { .. }
            | DockerError::Refused { .. }),
        )) if !daemon.is_named() => SourceError::Docker(error),
        result => return result,
    };
    // An id has a meaning only in the daemon.
    if is_digest(name) {
        return Err(missing);
    }
    let daemon = missing.to_string();
    tracing::info!("{daemon}; trying the registry");
    match read_from_registry(name, options).await {
        Err(SourceError::Registry(source)) => {
            Err(SourceError::Nowhere { name: name.to_owned(), daemon, source: Box::new(source) })
        }
        result => result,
    }
}

async fn read_from_registry(name: &str, options: &SourceOptions) -> Result<ImageFacts, SourceError> {
    let (wanted, options) = (name.to_owned(), options.clone());
    let image = on_thread(move || {
        let config = load_client_config(&ClientEnv::from_process())?;
        Ok::<_, SourceError>(read_image(&wanted, &options.registry, &config, &options.read(None), &harvest)?)
    });
    facts_of(&image.await?, Reference::Registry(name.to_owned()).to_string())
}

fn facts_of(image: &Image, reference: String) -> Result<ImageFacts, SourceError> {
    tracing::info!("{reference} is {}", image.id);
    inspect(image, reference.clone()).map_err(|source| SourceError::Inspect { reference, source })
}

/// Runs blocking work outside the runtime's own threads.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
