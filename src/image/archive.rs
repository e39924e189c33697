//! An archive as `docker save` writes it, read in one pass from any stream: a file, or the daemon's answer.
//!
//! Three shapes exist and all are read alike: engine 20.10 (`<id>/layer.tar`, `<config>.json`), engine 25 and later
//! (`blobs/sha256/…` beside `manifest.json`), and both compressed as a whole. `manifest.json` names config and layers in
//! order and is believed before any OCI index in the same archive, which some engines wrote wrong (moby#47065, #47160).
//! It stands at the archive's end, so every layer is indexed as it passes and put in order afterwards.

use super::layer::{self, Harvest, LayerError, index_layer};
use super::rootfs::LayerIndex;
use super::{ConfigFile, Image, ImageError};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};

/// Largest JSON document kept: configs of images with thousands of layers' history stay far below.
const MAX_JSON_BYTES: u64 = 8 << 20;
/// Largest total of JSON kept; an archive full of documents is not an image.
const MAX_JSON_TOTAL_BYTES: u64 = 256 << 20;

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestItem {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

#[derive(Default)]
struct Parts {
    json: HashMap<String, Vec<u8>>,
    layers: HashMap<String, LayerIndex>,
    links: HashMap<String, String>,
}

/// Reads an archive and gives the one image in it, or the one that `select` names by tag.
///
/// # Errors
/// The archive is truncated or no archive, its parts do not fit each other, or `select` is missing or names nothing.
pub fn read_archive(stream: impl Read, select: Option<&str>, harvest: Harvest<'_>) -> Result<Image, ImageError> {
    let parts = read_parts(stream, harvest)?;
    let Some(manifest) = parts.json.get("manifest.json") else {
        let oci = parts.json.contains_key("index.json") || parts.json.contains_key("oci-layout");
        return Err(if oci { ImageError::OciOnly } else { ImageError::NoManifest });
    };
    let items: Vec<ManifestItem> = parse_json("manifest.json", manifest)?;
    let item = choose(items, select)?;
    assemble(parts, item)
}

fn read_parts(stream: impl Read, harvest: Harvest<'_>) -> Result<Parts, ImageError> {
    let mut parts = Parts::default();
    let mut json_bytes = 0;
    // `docker save | gzip` is common.
    let mut archive = tar::Archive::new(layer::decompress(stream)?);
    for (at, entry) in archive.entries()?.enumerate() {
        let mut entry = entry.map_err(|error| match (at, error.kind()) {
            (0, io::ErrorKind::Other | io::ErrorKind::InvalidInput) => ImageError::NotAnArchive,
            _ => ImageError::BrokenArchive(error),
        })?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            // Engine 20.10 stores a layer that several images share once and links to it.
            let target = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
            let base = path.rsplit_once('/').map_or("", |(base, _)| base);
            let target = target.unwrap_or_default();
            parts.links.insert(path.clone(), if kind.is_symlink() { join(base, &target) } else { target });
            continue;
        }
        if !kind.is_file() {
            continue;
        }
        let size = entry.size();
        let mut body = BufReader::with_capacity(256 << 10, CheckedReader { inner: &mut entry, left: size });
        let head = body.fill_buf().map_err(ImageError::BrokenArchive)?;
        if is_layer(head)? {
            let index = index_layer(&mut body, harvest).map_err(|source| match source {
                LayerError::Io(source) => ImageError::BrokenArchive(source),
                LayerError::Truncated { .. } => {
                    ImageError::BrokenArchive(io::Error::new(io::ErrorKind::UnexpectedEof, source))
                }
                source => ImageError::Layer { name: path.clone(), source },
            })?;
            // What follows the layer's own end must still be there.
            io::copy(&mut body, &mut io::sink()).map_err(ImageError::BrokenArchive)?;
            parts.layers.insert(path, index);
        } else if size <= MAX_JSON_BYTES && json_bytes + size <= MAX_JSON_TOTAL_BYTES {
            json_bytes += size;
            let mut text = Vec::new();
            body.read_to_end(&mut text).map_err(ImageError::BrokenArchive)?;
            parts.json.insert(path, text);
        }
    }
    Ok(parts)
}

fn is_layer(head: &[u8]) -> Result<bool, ImageError> {
    Ok(layer::sniff_compression(head)? != layer::Compression::None || layer::is_tar_block(head))
}

fn join(base: &str, relative: &str) -> String {
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

fn choose(mut items: Vec<ManifestItem>, select: Option<&str>) -> Result<ManifestItem, ImageError> {
    let names =
        |items: &[ManifestItem]| items.iter().flat_map(|item| item.repo_tags.clone().unwrap_or_default()).collect();
    match select {
        Some(wanted) => {
            let tagged = if super::reference::split_tag(wanted).1.is_some() {
                wanted.to_owned()
            } else {
                format!("{wanted}:latest")
            };
            let found = items.iter().position(|item| {
                let hex = item.config.trim_start_matches("blobs/sha256/").trim_end_matches(".json");
                item.repo_tags.iter().flatten().any(|tag| *tag == tagged) || wanted.trim_start_matches("sha256:") == hex
            });
            match found {
                Some(at) => Ok(items.swap_remove(at)),
                None => Err(ImageError::NotInArchive { wanted: wanted.to_owned(), known: names(&items) }),
            }
        }
        None if items.len() == 1 => Ok(items.remove(0)),
        None if items.is_empty() => Err(ImageError::NoManifest),
        None => Err(ImageError::SeveralImages { known: names(&items) }),
    }
}

fn assemble(mut parts: Parts, item: ManifestItem) -> Result<Image, ImageError> {
    let config_bytes = parts.json.get(&item.config).ok_or_else(|| ImageError::MissingPart(item.config.clone()))?;
    let digest = format!("sha256:{}", hex(&Sha256::digest(config_bytes)));
    // Both layouts name the config by its digest.
    let claimed = item.config.trim_start_matches("blobs/sha256/").trim_end_matches(".json");
    if claimed.len() == 64 && !digest.ends_with(claimed) {
        return Err(ImageError::DigestMismatch {
            name: item.config.clone(),
            claimed: claimed.to_owned(),
            actual: digest,
        });
    }
    let config: ConfigFile = parse_json(&item.config, config_bytes)?;
    let diff_ids = &config.rootfs.diff_ids;
    if diff_ids.len() != item.layers.len() {
        return Err(ImageError::LayerCount { config: diff_ids.len(), manifest: item.layers.len() });
    }
    let mut indexes = Vec::new();
    for (at, name) in item.layers.iter().enumerate() {
        let mut key = name.as_str();
        // A link's target may be a link, but not for ever.
        for _ in 0..8 {
            match parts.links.get(key) {
                Some(target) => key = target,
                None => break,
            }
        }
        // The same layer may stand several times in one image.
        let used_again = item.layers[at + 1..].iter().any(|later| later == name || parts.links.contains_key(later));
        let index = if used_again { parts.layers.get(key).cloned() } else { parts.layers.remove(key) };
        indexes.push(index.ok_or_else(|| ImageError::MissingPart(name.clone()))?);
    }
    Ok(Image::assemble(digest, item.repo_tags.unwrap_or_default(), config, indexes))
}

fn parse_json<T: serde::de::DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|source| ImageError::Json { name: name.to_owned(), source })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Turns an entry that ends before its declared size into an error.
struct CheckedReader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for CheckedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if n == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes are missing at the end", self.left),
            ));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

impl From<LayerError> for ImageError {
    fn from(source: LayerError) -> ImageError {
        ImageError::Layer { name: "archive".to_owned(), source }
    }
}
