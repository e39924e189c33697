//! Container images as data: reference → [`Image`] (config, layers, root file system), without running anything.
//!
//! `reference` and `platform` say which image is meant, `archive` reads one from a stream, a file or a layout's directory,
//! `directory` a layer from the engine's store or a root directory. `layout` and `oci` find config and layers, `store` their
//! bytes; `layer` and `rootfs` make the file tree, `scan` and `elf` look into binaries while they pass, `digest` hashes. Opening the
//! stream (a file, the daemon, a registry) is the caller's.

pub mod archive;
mod beneath;
pub mod digest;
pub mod directory;
pub mod elf;
mod headers;
pub mod layer;
pub mod layout;
pub mod oci;
pub mod parallel;
pub mod platform;
pub mod reference;
pub mod rootfs;
pub mod scan;
mod sparse;
mod store;

use crate::remedy::Remedy;
use layer::LayerDigests;
use platform::Platform;
use rootfs::RootFs;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;

/// One image, read.
#[derive(Debug)]
pub struct Image {
    /// Digest of the config, which is Docker's image id.
    pub id: String,
    /// Names that the source gave the image.
    pub repo_tags: Vec<String>,
    /// `name@sha256:…` as a registry knows it; empty for an image that never was in one.
    pub repo_digests: Vec<String>,
    /// Digest of its manifest, if the source has one.
    pub manifest_digest: Option<String>,
    /// Every layer was hashed and matches manifest and config.
    pub layers_verified: bool,
    pub config: ConfigFile,
    /// Bottom first.
    pub layers: Vec<Layer>,
    pub rootfs: RootFs,
}

impl Image {
    /// Puts an image together from its config and its layers, bottom first; there must be as many as the config names.
    pub fn assemble(id: String, repo_tags: Vec<String>, config: ConfigFile, indexes: Vec<rootfs::LayerIndex>) -> Image {
        let layers = config
            .rootfs
            .diff_ids
            .iter()
            .zip(&indexes)
            .map(|(diff_id, index)| Layer { diff_id: diff_id.clone(), file_bytes: index.file_bytes });
        Image {
            id,
            repo_tags,
            repo_digests: Vec::new(),
            manifest_digest: None,
            layers_verified: false,
            layers: layers.collect(),
            rootfs: RootFs::merge(indexes),
            config,
        }
    }
}

/// Which image of a source is wanted, and whether to verify its layers.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Name, tag or digest of one of several images.
    pub select: Option<&'a str>,
    /// Which platform's image; `None`: the only one, else this machine's.
    pub platform: Option<&'a Platform>,
    /// Hash every layer and compare.
    pub verify: bool,
}

/// Most parts (layers, documents) of an archive: many images of many layers each stay far below.
const MAX_PARTS: usize = 100_000;

/// Compares a layer's digests with what the manifest (`blob`, where it names one) and the config (`diff_id`) say.
///
/// # Errors
/// A mismatch; the error names both digests.
pub fn check_layer_digests(
    name: &str,
    blob: Option<&str>,
    diff_id: &str,
    actual: &LayerDigests,
) -> Result<(), ImageError> {
    let differs = |claimed: &str, actual: &str, of| ImageError::LayerMismatch {
        name: name.to_owned(),
        of,
        claimed: claimed.to_owned(),
        actual: actual.to_owned(),
    };
    match blob {
        Some(blob) if blob != actual.blob => Err(differs(blob, &actual.blob, "manifest")),
        _ if diff_id != actual.diff_id => Err(differs(diff_id, &actual.diff_id, "image config")),
        _ => Ok(()),
    }
}

/// One layer, as the report shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub diff_id: String,
    /// Sum of the sizes of its regular files, in bytes.
    pub file_bytes: u64,
}

/// The image's config document (OCI image-spec, config.md); only what is used here.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ConfigFile {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    pub variant: Option<String>,
    /// Some engines omit it or set it to null.
    pub config: Option<RunConfig>,
    #[serde(default)]
    pub rootfs: DiffIds,
}

impl ConfigFile {
    pub fn platform(&self) -> Platform {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref())
    }
}

/// What a container starts with.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfig {
    pub env: Option<Vec<String>>,
    pub user: Option<String>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub shell: Option<Vec<String>>,
    pub working_dir: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub on_build: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct DiffIds {
    #[serde(default)]
    pub diff_ids: Vec<String>,
}

/// Why an image cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("opening {path}")]
    Open { path: String, source: io::Error },
    #[error("this is not a tar archive")]
    NotAnArchive,
    #[error("the archive is broken or truncated")]
    BrokenArchive(#[source] io::Error),
    #[error("the archive has no manifest.json: it is truncated, or not an image")]
    NoManifest,
    #[error("the archive lacks {0:?}, which its manifest names: it is truncated or damaged")]
    MissingPart(String),
    #[error("the archive names {manifest} layers, the image config {config}")]
    LayerCount { config: usize, manifest: usize },
    #[error("{name}: the content hashes to {actual}, but its name says {claimed}")]
    DigestMismatch { name: String, claimed: String, actual: String },
    #[error("layer {name}: the content hashes to {actual}, but the {of} says {claimed}")]
    LayerMismatch { name: String, of: &'static str, claimed: String, actual: String },
    #[error("{name}: digest {digest:?} cannot be verified (known: sha256)")]
    UnknownDigest { name: String, digest: String },
    #[error("{name} is {bytes} bytes long, more than the {} of any manifest or config", oci::MAX_DOCUMENT_BYTES)]
    DocumentTooLarge { name: String, bytes: u64 },
    #[error("the archive has more than {MAX_PARTS} parts")]
    TooManyParts,
    #[error("{0} is in Docker's schema 1, which carries no config")]
    Schema1(String),
    #[error("{0} is neither an image manifest nor an index")]
    NoImageDocument(String),
    #[error("its indexes are nested too deeply, or name too many manifests")]
    EndlessIndex,
    #[error("there is no image in it")]
    NoImage,
    #[error("it has no image for {wanted}")]
    NoPlatform { wanted: String, known: Vec<String> },
    #[error("reading {name}: it is not valid JSON of the expected form")]
    Json { name: String, source: serde_json::Error },
    #[error("reading layer {name}")]
    Layer { name: String, source: layer::LayerError },
    #[error("it has no image {wanted:?}")]
    NotInArchive { wanted: String, known: Vec<String> },
    #[error("it has several images: choose one by appending :NAME")]
    SeveralImages { known: Vec<String> },
    #[error("reading the root directory")]
    Root { source: layer::LayerError },
    #[error("it is neither an OCI layout (index.json) nor a root directory (etc, usr, …)")]
    UnknownDirectory,
    #[error("reading the archive")]
    Io(#[from] io::Error),
}

impl Remedy for ImageError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            ImageError::NoPlatform { known, .. } => format!("available: {}   (choose with --platform)", list(known)),
            ImageError::NotInArchive { known, .. } | ImageError::SeveralImages { known } => {
                format!("it has: {}", list(known))
            }
            ImageError::NotAnArchive => "an image archive is what `docker save -o FILE IMAGE` writes".to_owned(),
            ImageError::BrokenArchive(_) => "write it again with `docker save -o FILE IMAGE`".to_owned(),
            ImageError::NoManifest => "write it again with `docker save -o FILE IMAGE`".to_owned(),
            ImageError::DigestMismatch { .. } => "it is damaged or was changed: get the image again".to_owned(),
            ImageError::LayerMismatch { .. } => "it is damaged or was changed: get the image again".to_owned(),
            ImageError::Schema1(_) => "push the image again with Docker 1.10 or later".to_owned(),
            ImageError::Root { .. } => {
                "run as a user who can read all of it: what cannot be read cannot be judged".to_owned()
            }
            ImageError::Open { .. }
            | ImageError::Layer { .. }
            | ImageError::MissingPart(_)
            | ImageError::LayerCount { .. }
            | ImageError::UnknownDigest { .. }
            | ImageError::DocumentTooLarge { .. }
            | ImageError::TooManyParts
            | ImageError::NoImageDocument(_)
            | ImageError::EndlessIndex
            | ImageError::NoImage
            | ImageError::Json { .. }
            | ImageError::UnknownDirectory
            | ImageError::Io(_) => return None,
        })
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "images without a name".to_owned() } else { names.join(", ") }
}
