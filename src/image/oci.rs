//! Documents of OCI and Docker images: index and manifest → the one selected manifest.
//!
//! Input: JSON as the OCI image-spec (image-index.md, manifest.md) and Docker's schema 2 have it, fetched by whoever
//! implements [`Documents`]: a layout on disk, an archive, a registry. Every document is compared with the digest under
//! which it was named before it is believed. Media types are not: engines mix them up.

use super::platform::Platform;
use super::{ConfigFile, ImageError, digest};
use crate::reference::familiar;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Largest document read: configs of images with thousands of layers' history stay far below.
pub const MAX_DOCUMENT_BYTES: u64 = 8 << 20;
/// An index may name indexes; engines nest two deep.
const MAX_INDEX_DEPTH: usize = 4;
/// Manifests looked at for one image: the largest public indexes name some dozens.
const MAX_MANIFESTS: usize = 1024;

/// Points to another document or a layer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Descriptor {
    pub media_type: Option<String>,
    pub digest: String,
    /// In bytes; some engines wrote wrong ones (moby#47072), so only a registry's are relied on.
    pub size: u64,
    pub platform: Option<Platform>,
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Names that an OCI layout gives it: the spec's, and containerd's whole one.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [CONTAINERD_NAME, REF_NAME].into_iter().filter_map(|name| self.annotation(name))
    }

    fn is_manifest(&self) -> bool {
        self.media_type.as_deref().is_some_and(|kind| MANIFEST_TYPES.contains(&kind))
    }

    /// An entry that accompanies an image: provenance and the like (BuildKit, `docs/attestations`).
    fn is_attestation(&self) -> bool {
        self.annotation("vnd.docker.reference.type").is_some()
            || self.platform.as_ref().is_some_and(Platform::is_placeholder)
    }
}

/// Name of an image in an OCI layout (image-spec, annotations.md).
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The image name as containerd annotates it, with registry and repository.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Media types of one image's manifest (OCI image-spec, media-types.md; distribution, schema 2).
pub const MANIFEST_TYPES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
/// Media types of an index.
pub const INDEX_TYPES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];

#[derive(Debug, Deserialize)]
pub struct Index {
    pub manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Manifest {
    pub config: Descriptor,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// Index or manifest, told by its keys.
#[derive(Debug)]
pub enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// Parses an index or a manifest; `name` only words the error.
pub fn parse_document(name: &str, bytes: &[u8]) -> Result<Document, ImageError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Either {
        schema_version: Option<u32>,
        manifests: Option<Vec<Descriptor>>,
        config: Option<Descriptor>,
        #[serde(default)]
        layers: Option<Vec<Descriptor>>,
    }
    let either: Either = parse_json(name, bytes)?;
    match (either.manifests, either.config) {
        (Some(manifests), _) => Ok(Document::Index(Index { manifests })),
        (None, Some(config)) => Ok(Document::Manifest(Manifest { config, layers: either.layers.unwrap_or_default() })),
        (None, None) if either.schema_version == Some(1) => Err(ImageError::Schema1(name.to_owned())),
        (None, None) => Err(ImageError::NoImageDocument(name.to_owned())),
    }
}

pub(super) fn parse_json<T: serde::de::DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|source| ImageError::Json { name: name.to_owned(), source })
}

/// The source of documents. They need not be verified yet.
pub trait Documents {
    type Error: From<ImageError>;
    /// An index or a manifest.
    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Self::Error>;
    /// An image config.
    fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Self::Error>;
}

/// One image, found: everything but its layers' content.
#[derive(Debug)]
pub struct Found {
    pub manifest_digest: String,
    pub manifest: Manifest,
    /// The whole name that an OCI layout gives it (`docker.io/library/x:1` as `x:1`).
    pub name: Option<String>,
    /// Digest of the config.
    pub id: String,
    pub config: ConfigFile,
}

/// Chooses from an index the manifest for a platform and reads its config.
///
/// A single image is taken whatever its platform, unless one is requested. `select` is the name, tag or digest of one of
/// several images.
///
/// # Errors
/// The source has no image, or none with the name or platform, several match, or a document is missing, damaged or too large.
pub fn find_image<D: Documents>(
    documents: &D,
    index: Index,
    select: Option<&str>,
    asked: Option<&Platform>,
) -> Result<Found, D::Error> {
    let real: Vec<Descriptor> = index.manifests.into_iter().filter(|entry| !entry.is_attestation()).collect();
    let chosen: Vec<&Descriptor> = match select {
        Some(wanted) => real.iter().filter(|entry| is_named(entry, wanted)).collect(),
        None => real.iter().collect(),
    };
    if let (Some(wanted), true) = (select, chosen.is_empty()) {
        return Err(ImageError::NotInArchive { wanted: wanted.to_owned(), known: all_names(&real) }.into());
    }
    let names: BTreeSet<Option<&str>> = chosen.iter().map(|entry| entry.names().next()).collect();
    if names.len() > 1 && select.is_none() {
        return Err(ImageError::SeveralImages { known: all_names(&real) }.into());
    }
    let name = chosen.first().and_then(|entry| entry.annotation(CONTAINERD_NAME)).map(familiar);
    let mut leaves = Vec::new();
    for entry in chosen {
        collect(documents, entry, 0, &mut leaves)?;
    }
    let at = choose(leaves.iter().map(|leaf| (&leaf.platform, leaf.descriptor.digest.as_str())), asked)?;
    let Leaf { descriptor, manifest, config, .. } = leaves.swap_remove(at);
    let manifest = match manifest {
        Some(manifest) => manifest,
        None => match load_document(documents, &descriptor)? {
            Document::Manifest(manifest) => manifest,
            // Its media type said otherwise; what it is inside is looked at again, one level down.
            Document::Index(index) => return find_image(documents, index, None, asked),
        },
    };
    let (id, config) = match config {
        Some(known) => known,
        None => read_config(documents, &manifest.config)?,
    };
    Ok(Found { manifest_digest: descriptor.digest, manifest, name, id, config })
}

/// A candidate manifest.
struct Leaf {
    descriptor: Descriptor,
    platform: Platform,
    /// Read already, because nothing else says that it is a manifest, or the platform.
    manifest: Option<Manifest>,
    config: Option<(String, ConfigFile)>,
}

/// Finds the manifests behind an entry. Where the entry says all about one, it is not fetched.
fn collect<D: Documents>(
    documents: &D,
    entry: &Descriptor,
    depth: usize,
    leaves: &mut Vec<Leaf>,
) -> Result<(), D::Error> {
    if depth > MAX_INDEX_DEPTH || leaves.len() >= MAX_MANIFESTS {
        return Err(ImageError::EndlessIndex.into());
    }
    // The same manifest may be named twice.
    if leaves.iter().any(|leaf| leaf.descriptor.digest == entry.digest) {
        return Ok(());
    }
    let platform = entry.platform.clone().filter(|platform| !platform.os.is_empty());
    if let (Some(platform), true) = (&platform, entry.is_manifest()) {
        leaves.push(Leaf { descriptor: entry.clone(), platform: platform.clone(), manifest: None, config: None });
        return Ok(());
    }
    match load_document(documents, entry)? {
        Document::Index(index) => {
            for entry in index.manifests.iter().filter(|entry| !entry.is_attestation()) {
                collect(documents, entry, depth + 1, leaves)?;
            }
        }
        Document::Manifest(manifest) => {
            let (platform, config) = match platform {
                Some(platform) => (platform, None),
                None => {
                    let (id, config) = read_config(documents, &manifest.config)?;
                    (config.platform(), Some((id, config)))
                }
            };
            leaves.push(Leaf { descriptor: entry.clone(), platform, manifest: Some(manifest), config });
        }
    }
    Ok(())
}

fn load_document<D: Documents>(documents: &D, descriptor: &Descriptor) -> Result<Document, D::Error> {
    let bytes = documents.manifest(descriptor)?;
    digest::verify("manifest", &bytes, &descriptor.digest)?;
    Ok(parse_document(&format!("manifest {}", descriptor.digest), &bytes)?)
}

/// Reads and verifies a config.
pub fn read_config<D: Documents>(documents: &D, descriptor: &Descriptor) -> Result<(String, ConfigFile), D::Error> {
    let bytes = documents.config(descriptor)?;
    digest::verify("image config", &bytes, &descriptor.digest)?;
    Ok((descriptor.digest.clone(), parse_json("image config", &bytes)?))
}

/// The position of the one image for a platform among several.
pub fn choose<'a>(
    offered: impl Iterator<Item = (&'a Platform, &'a str)>,
    asked: Option<&Platform>,
) -> Result<usize, ImageError> {
    let offered: Vec<(&Platform, &str)> = offered.collect();
    let here = Platform::of_this_machine();
    let wanted = match (asked, offered.len()) {
        (_, 0) => return Err(ImageError::NoImage),
        (None, 1) => return Ok(0),
        (asked, _) => asked.unwrap_or(&here),
    };
    let fitting: Vec<usize> = (0..offered.len()).filter(|at| wanted.accepts(offered[*at].0)).collect();
    match fitting[..] {
        [] => {
            let known = offered.iter().map(|(platform, _)| platform.to_string());
            Err(ImageError::NoPlatform {
                wanted: wanted.to_string(),
                known: known.collect::<BTreeSet<_>>().into_iter().collect(),
            })
        }
        [at] => Ok(at),
        _ => {
            // The requested variant, else the newest: `linux/arm` means v7 before v6.
            let variant = |at: &usize| offered[*at].0.known_variant();
            let best = fitting.iter().map(variant).max().flatten();
            let best = wanted.known_variant().or(best);
            let mut left = fitting.iter().filter(|at| variant(at) == best);
            match (left.next(), left.next()) {
                (Some(at), None) => Ok(*at),
                _ => Err(ImageError::SeveralImages {
                    known: fitting.iter().map(|at| offered[*at].1.to_owned()).collect(),
                }),
            }
        }
    }
}

/// Whether a selector matches an entry: its whole name, the tag of its name, or its digest.
fn is_named(entry: &Descriptor, wanted: &str) -> bool {
    if entry.digest == wanted {
        return true;
    }
    let latest = format!("{wanted}:latest");
    entry.names().any(|name| [name, &familiar(name)].iter().any(|name| *name == wanted || *name == latest))
}

fn all_names(entries: &[Descriptor]) -> Vec<String> {
    let name = |entry: &Descriptor| entry.names().next().unwrap_or(&entry.digest).to_owned();
    entries.iter().map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(offered: &[&str], asked: Option<&str>) -> Result<usize, ImageError> {
        let offered: Vec<Platform> = offered.iter().map(|text| text.parse().unwrap()).collect();
        let asked: Option<Platform> = asked.map(|text| text.parse().unwrap());
        choose(offered.iter().map(|platform| (platform, "sha256:x")), asked.as_ref())
    }

    #[test]
    fn the_platform_that_is_meant() {
        let arms = ["linux/arm/v6", "linux/arm/v7", "linux/arm64/v8"];
        assert_eq!(chosen(&arms, Some("linux/arm")).unwrap(), 1);
        assert_eq!(chosen(&arms, Some("linux/arm/v6")).unwrap(), 0);
        assert_eq!(chosen(&arms, Some("linux/arm64")).unwrap(), 2);
        // A single image is taken whatever its platform, unless another is requested.
        assert_eq!(chosen(&["windows/amd64"], None).unwrap(), 0);
        assert!(matches!(chosen(&["windows/amd64"], Some("linux/amd64")), Err(ImageError::NoPlatform { .. })));
        assert!(matches!(chosen(&[], None), Err(ImageError::NoImage)));
        let twice = chosen(&["linux/arm64", "linux/arm64/v8"], Some("linux/arm64"));
        assert!(matches!(twice, Err(ImageError::SeveralImages { .. })), "{twice:?}");
    }

    #[test]
    fn documents_are_told_by_their_keys() {
        let parse = |text: &str| parse_document("x", text.as_bytes());
        assert!(matches!(parse(r#"{"manifests":[]}"#), Ok(Document::Index(_))));
        let config = r#"{"config":{"digest":"sha256:a"},"layers":null}"#;
        assert!(matches!(parse(config), Ok(Document::Manifest(manifest)) if manifest.layers.is_empty()));
        assert!(matches!(parse(r#"{"schemaVersion":1,"fsLayers":[]}"#), Err(ImageError::Schema1(_))));
        assert!(matches!(parse("{}"), Err(ImageError::NoImageDocument(_))));
        assert!(matches!(parse("[]"), Err(ImageError::Json { .. })));
    }
}
