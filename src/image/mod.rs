//! Container images as data: reference → [`Image`] (config, layers, root file system), without running anything.
//!
//! `reference` names an image, `archive` reads one from a stream, `directory` a layer from the engine's
//! store, `layer` and `rootfs` make the file tree, `scan` and `elf` look
//! into binaries while they pass. Opening the stream (a file, the daemon) is the caller's.

pub mod archive;
pub mod directory;
pub mod elf;
pub mod layer;
pub mod reference;
pub mod rootfs;
pub mod scan;

use rootfs::RootFs;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;

/// One image, read.
#[derive(Debug)]
pub struct Image {
    /// Digest of the config, which is Docker's image id.
    pub id: String,
    /// Names that the source gave it.
    pub repo_tags: Vec<String>,
    /// `name@sha256:…` as a registry knows it; empty for an image that never was in one.
    pub repo_digests: Vec<String>,
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
            layers: layers.collect(),
            rootfs: RootFs::merge(indexes),
            config,
        }
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
    /// Some engines leave it out or null.
    pub config: Option<RunConfig>,
    #[serde(default)]
    pub rootfs: DiffIds,
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
    #[error("this is not a tar archive\n  an image archive is what `docker save -o FILE IMAGE` writes")]
    NotAnArchive,
    #[error("the archive is broken or truncated\n  write it again with `docker save -o FILE IMAGE`")]
    BrokenArchive(#[source] io::Error),
    #[error(
        "the archive has no manifest.json: it is truncated, or not an image\n  write it again with `docker save -o FILE IMAGE`"
    )]
    NoManifest,
    #[error(
        "the archive is an OCI layout without manifest.json\n  write it as a Docker archive: `skopeo copy oci-archive:FILE docker-archive:NEW`"
    )]
    OciOnly,
    #[error("the archive lacks {0:?}, which its manifest names: it is truncated or damaged")]
    MissingPart(String),
    #[error("the archive names {manifest} layers, the image config {config}")]
    LayerCount { config: usize, manifest: usize },
    #[error("{name}: content is {actual}, its name says {claimed}: the archive is damaged")]
    DigestMismatch { name: String, claimed: String, actual: String },
    #[error("reading {name}: not the JSON that it should be")]
    Json { name: String, source: serde_json::Error },
    #[error("reading layer {name}")]
    Layer { name: String, source: layer::LayerError },
    #[error("the archive has no image {wanted:?}\n  it has: {}", list(.known))]
    NotInArchive { wanted: String, known: Vec<String> },
    #[error("the archive has several images, say which: docker-archive:FILE:NAME\n  it has: {}", list(.known))]
    SeveralImages { known: Vec<String> },
    #[error("reading the archive")]
    Io(#[from] io::Error),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "images without a name".to_owned() } else { names.join(", ") }
}
