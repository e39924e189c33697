//! Which parts of a layout are the image: `manifest.json`, or `index.json` → config and layers in order.
//!
//! `docker save` writes both halves, and its `manifest.json` is believed first: some engines wrote the OCI half without
//! layers, in a wrong order or with wrong sizes (moby#47065, #47160, #47072). The OCI half is taken where there is no other,
//! and where only it has the platform that is asked for.

use super::digest;
use super::oci::{self, Descriptor, Document, Documents, Index, parse_document, parse_json};
use super::platform::Platform;
use super::{ConfigFile, ImageError, ReadOptions};
use crate::reference::{familiar, is_digest, split_tag};
use serde::Deserialize;
use std::collections::BTreeSet;

const DOCKER_MANIFEST: &str = "manifest.json";
const OCI_INDEX: &str = "index.json";

/// Documents by their name in the layout.
pub(super) trait Layout {
    /// `None`: there is no such part.
    fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ImageError>;
}

/// Which half of a layout named the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutKind {
    Docker,
    Oci,
}

/// An image, found; its layers are still to be read.
#[derive(Debug)]
pub(super) struct Resolved {
    pub kind: LayoutKind,
    pub id: String,
    pub config: ConfigFile,
    pub repo_tags: Vec<String>,
    pub manifest_digest: Option<String>,
    /// Bottom first, as many as the config has diff ids.
    pub layers: Vec<LayerPart>,
}

/// Where one layer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LayerPart {
    /// Name in the layout.
    pub name: String,
    /// Digest of the stored bytes, where the layout names one.
    pub digest: Option<String>,
}

impl LayerPart {
    fn new(name: String) -> LayerPart {
        let digest = name.strip_prefix("blobs/sha256/").map(|hex| format!("sha256:{hex}"));
        LayerPart { digest: digest.filter(|digest| is_digest(digest)), name }
    }
}

/// Finds the image that is meant.
///
/// # Errors
/// No image or several, a name or platform that is not there, a document that is missing, malformed or not what its digest
/// says.
pub(super) fn resolve(layout: &impl Layout, options: &ReadOptions<'_>) -> Result<Resolved, ImageError> {
    let index = layout.document(OCI_INDEX)?;
    let resolved = match (layout.document(DOCKER_MANIFEST)?, index) {
        (None, None) => return Err(ImageError::NoManifest),
        (None, Some(index)) => resolve_oci(layout, &index, options)?,
        (Some(manifest), index) => match (resolve_docker(layout, &manifest, options), index) {
            (Err(ImageError::NoPlatform { wanted, known }), Some(index)) => {
                match resolve_oci(layout, &index, options) {
                    Ok(resolved) => resolved,
                    // The OCI half names all platforms, including those that the Docker half omits.
                    Err(error @ ImageError::NoPlatform { .. }) => return Err(error),
                    Err(_) => return Err(ImageError::NoPlatform { wanted, known }),
                }
            }
            (Ok(mut resolved), Some(index)) => {
                resolved.manifest_digest = manifest_digest(layout, &index, &resolved.id);
                resolved
            }
            (result, _) => result?,
        },
    };
    let diff_ids = resolved.config.rootfs.diff_ids.len();
    if diff_ids != resolved.layers.len() {
        return Err(ImageError::LayerCount { config: diff_ids, manifest: resolved.layers.len() });
    }
    Ok(resolved)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestItem {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

impl ManifestItem {
    fn tags(&self) -> BTreeSet<&str> {
        self.repo_tags.iter().flatten().map(String::as_str).collect()
    }
}

fn resolve_docker(layout: &impl Layout, manifest: &[u8], options: &ReadOptions<'_>) -> Result<Resolved, ImageError> {
    let items: Vec<ManifestItem> = parse_json(DOCKER_MANIFEST, manifest)?;
    let mut images = Vec::new();
    for item in select_items(&items, options.select)? {
        let (id, config) = load_config(layout, item)?;
        images.push((item, id, config.platform(), config));
    }
    let offered = images.iter().map(|(_, id, platform, _)| (platform, id.as_str()));
    let at = oci::choose(offered, options.platform).map_err(|error| match error {
        ImageError::NoImage => ImageError::NoManifest,
        other => other,
    })?;
    let (item, id, _, config) = images.swap_remove(at);
    Ok(Resolved {
        kind: LayoutKind::Docker,
        id,
        config,
        repo_tags: item.repo_tags.clone().unwrap_or_default(),
        manifest_digest: None,
        layers: item.layers.iter().flatten().cloned().map(LayerPart::new).collect(),
    })
}

/// The selected items: several only if they are platforms of one name.
fn select_items<'a>(items: &'a [ManifestItem], select: Option<&str>) -> Result<Vec<&'a ManifestItem>, ImageError> {
    let names = || items.iter().flat_map(|item| item.repo_tags.clone().unwrap_or_default()).collect();
    let Some(wanted) = select else {
        let tags: BTreeSet<_> = items.iter().map(ManifestItem::tags).collect();
        let nameless = tags.first().is_some_and(BTreeSet::is_empty);
        return match items.len() {
            0 | 1 => Ok(items.iter().collect()),
            _ if tags.len() == 1 && !nameless => Ok(items.iter().collect()),
            _ => Err(ImageError::SeveralImages { known: names() }),
        };
    };
    let tagged = if split_tag(wanted).1.is_some() { wanted.to_owned() } else { format!("{wanted}:latest") };
    let found: Vec<&ManifestItem> = items
        .iter()
        .filter(|item| {
            // skopeo writes names with Docker Hub's registry, Docker without.
            item.tags().iter().any(|tag| familiar(tag) == familiar(&tagged))
                || wanted.trim_start_matches("sha256:") == claimed_hex(&item.config)
        })
        .collect();
    if found.is_empty() {
        return Err(ImageError::NotInArchive { wanted: wanted.to_owned(), known: names() });
    }
    Ok(found)
}

/// Both Docker layouts name the config by its digest.
fn claimed_hex(config: &str) -> &str {
    config.trim_start_matches("blobs/sha256/").trim_end_matches(".json")
}

fn load_config(layout: &impl Layout, item: &ManifestItem) -> Result<(String, ConfigFile), ImageError> {
    let name = &item.config;
    let bytes = layout.document(name)?.ok_or_else(|| ImageError::MissingPart(name.clone()))?;
    let claimed = format!("sha256:{}", claimed_hex(name));
    if is_digest(&claimed) {
        digest::verify(name, &bytes, &claimed)?;
    }
    Ok((digest::digest_of(&bytes), parse_json(name, &bytes)?))
}

fn resolve_oci(layout: &impl Layout, index: &[u8], options: &ReadOptions<'_>) -> Result<Resolved, ImageError> {
    let index: Index = parse_json(OCI_INDEX, index)?;
    let found = oci::find_image(&Blobs(layout), index, options.select, options.platform)?;
    let layers: Result<Vec<LayerPart>, ImageError> =
        found.manifest.layers.iter().map(|layer| Ok(LayerPart::new(blob_name(&layer.digest)?))).collect();
    Ok(Resolved {
        kind: LayoutKind::Oci,
        id: found.id,
        config: found.config,
        repo_tags: found.name.into_iter().collect(),
        manifest_digest: Some(found.manifest_digest),
        layers: layers?,
    })
}

/// The manifest of an image known by its config, if the OCI half has it. That half may be broken: then no
/// digest is better than an error about something that is not needed.
fn manifest_digest(layout: &impl Layout, index: &[u8], id: &str) -> Option<String> {
    let index: Index = parse_json(OCI_INDEX, index).ok()?;
    let mut todo = index.manifests;
    // Bounded: documents name each other by their content's hash, so there is no loop, but there may be many.
    for _ in 0..MAX_LOOKED_AT {
        let entry = todo.pop()?;
        let Ok(Some(bytes)) = blob_name(&entry.digest).and_then(|name| layout.document(&name)) else { continue };
        if digest::verify("manifest", &bytes, &entry.digest).is_err() {
            continue;
        }
        match parse_document("manifest", &bytes) {
            Ok(Document::Index(index)) => todo.extend(index.manifests),
            Ok(Document::Manifest(manifest)) if manifest.config.digest == id => return Some(entry.digest),
            _ => {}
        }
    }
    None
}

const MAX_LOOKED_AT: usize = 1024;

/// A layout's blobs, by digest.
struct Blobs<'a, L>(&'a L);

impl<L: Layout> Blobs<'_, L> {
    fn load(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        let name = blob_name(&descriptor.digest)?;
        self.0.document(&name)?.ok_or(ImageError::MissingPart(name))
    }
}

impl<L: Layout> Documents for Blobs<'_, L> {
    type Error = ImageError;

    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.load(descriptor)
    }

    fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.load(descriptor)
    }
}

fn blob_name(digest: &str) -> Result<String, ImageError> {
    match digest.split_once(':') {
        Some(("sha256", hex)) if is_digest(digest) => Ok(format!("blobs/sha256/{hex}")),
        _ => Err(ImageError::UnknownDigest { name: "blob".to_owned(), digest: digest.to_owned() }),
    }
}

/// Asked for a platform of an image that has but one.
pub fn check_platform(config: &ConfigFile, asked: Option<&Platform>) -> Result<(), ImageError> {
    oci::choose([(&config.platform(), "")].into_iter(), asked).map(drop)
}

/// A relative path from a directory of the layout.
pub(super) fn join(base: &str, relative: &str) -> String {
    let mut names: Vec<&str> = base.split('/').filter(|name| !name.is_empty()).collect();
    for name in relative.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join("/")
}
