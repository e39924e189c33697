//! Archives and layouts on disk → [`Image`]: what `docker save`, `podman save`, `skopeo copy` and BuildKit write.
//!
//! A file that is not compressed as a whole, and a directory, are read part by part, several layers at a time. Anything
//! else, such as the daemon's response, is read in one pass: the list of layers may come last, so every layer is
//! indexed as it passes and put in order afterwards.

use super::headers::Budgeted;
use super::layer::{self, Harvest, LayerDigests, LayerError, index_and_hash_layer, index_layer, index_plain_layer};
use super::layout::{LayerPart, Layout, LayoutKind, Resolved, resolve};
use super::oci::MAX_DOCUMENT_BYTES;
use super::parallel;
use super::rootfs::LayerIndex;
use super::store::{Store, broken, follow, in_archive, link_target};
use super::{Image, ImageError, MAX_PARTS, ReadOptions, check_layer_digests};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Largest total of JSON kept; an archive full of documents is not an image.
const MAX_JSON_TOTAL_BYTES: u64 = 256 << 20;

/// One layer as it was read.
type ReadLayer = (LayerIndex, Option<LayerDigests>);

/// Reads an archive and gives the one image in it, or the one that `select` names by tag.
///
/// # Errors
/// Fails like [`read_stream`].
pub fn read_archive(stream: impl Read, select: Option<&str>, harvest: Harvest<'_>) -> Result<Image, ImageError> {
    read_stream(stream, &ReadOptions { select, ..ReadOptions::default() }, harvest).map(|(image, _)| image)
}

/// Reads an archive in one pass.
///
/// # Errors
/// The archive is truncated or not an archive, its parts do not match, or the wanted image is not in it.
pub fn read_stream(
    stream: impl Read,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<(Image, LayoutKind), ImageError> {
    let mut parts = read_parts(stream, options.verify, harvest)?;
    let resolved = resolve(&parts, options)?;
    let names: Vec<String> = resolved.layers.iter().map(|layer| follow(&parts.links, &layer.name).to_owned()).collect();
    let mut layers = Vec::new();
    for (at, name) in names.iter().enumerate() {
        // One image may contain the same layer several times.
        let used_again = names[at + 1..].contains(name);
        let layer = if used_again { parts.layers.get(name).cloned() } else { parts.layers.remove(name) };
        layers.push(layer.ok_or_else(|| ImageError::MissingPart(resolved.layers[at].name.clone()))?);
    }
    assemble(resolved, layers, options)
}

/// Reads an archive file.
///
/// # Errors
/// Fails like [`read_stream`].
pub fn read_file(
    file: File,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<(Image, LayoutKind), ImageError> {
    let mut head = [0; 512];
    // A pipe is not seekable, and an archive compressed as a whole (`docker save | gzip`) gains nothing from seeking.
    let seekable = file.metadata()?.is_file() && {
        let n = file.read_at(&mut head, 0)?;
        n == 512 && layer::sniff_compression(&head)? == layer::Compression::None && layer::is_tar_block(&head)
    };
    if !seekable {
        return read_stream(file, options, harvest);
    }
    read_store(&Store::open_archive(file)?, options, harvest)
}

/// Reads an OCI layout, or an unpacked archive, from its directory.
///
/// # Errors
/// Fails like [`read_stream`].
pub fn read_directory(
    path: &Path,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<(Image, LayoutKind), ImageError> {
    read_store(&Store::open_directory(path)?, options, harvest)
}

fn read_store(
    store: &Store,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<(Image, LayoutKind), ImageError> {
    let resolved = resolve(store, options)?;
    // Reads each part once, however often it is named.
    let mut parts: Vec<&LayerPart> = Vec::new();
    for layer in &resolved.layers {
        if parts.iter().all(|part| part.name != layer.name) {
            parts.push(layer);
        }
    }
    let size = |part: &&LayerPart| store.part(&part.name).ok().flatten().map_or(0, |section| section.len());
    let read = parallel::for_each(&parts, parallel::workers(), size, |part| {
        read_part(store, &part.name, options.verify, harvest)
    })?;
    let place = |layer: &LayerPart| parts.iter().position(|part| part.name == layer.name);
    let places: Vec<usize> = resolved.layers.iter().filter_map(place).collect();
    let layers = parallel::put_back(read, &places);
    assemble(resolved, layers, options)
}

fn read_part(store: &Store, name: &str, verify: bool, harvest: Harvest<'_>) -> Result<ReadLayer, ImageError> {
    let failed = |source| store.layer_error(name, source);
    let mut part = store.part(name)?.ok_or_else(|| ImageError::MissingPart(name.to_owned()))?;
    if verify {
        return hashed(&mut part, harvest).map_err(failed);
    }
    let mut head = Vec::new();
    (&mut part).take(512).read_to_end(&mut head).map_err(|source| failed(source.into()))?;
    let compression = layer::sniff_compression(&head).map_err(failed)?;
    io::Seek::rewind(&mut part).map_err(|source| failed(source.into()))?;
    let index = match compression {
        layer::Compression::None => index_plain_layer(part, harvest),
        _ => index_layer(part, harvest),
    };
    Ok((index.map_err(failed)?, None))
}

fn hashed(stream: impl Read, harvest: Harvest<'_>) -> Result<ReadLayer, LayerError> {
    index_and_hash_layer(stream, harvest).map(|(index, digests)| (index, Some(digests)))
}

fn assemble(
    resolved: Resolved,
    layers: Vec<ReadLayer>,
    options: &ReadOptions<'_>,
) -> Result<(Image, LayoutKind), ImageError> {
    let mut indexes = Vec::new();
    let claims = resolved.layers.iter().zip(&resolved.config.rootfs.diff_ids);
    for ((index, digests), (part, diff_id)) in layers.into_iter().zip(claims) {
        if let Some(digests) = digests {
            check_layer_digests(&part.name, part.digest.as_deref(), diff_id, &digests)?;
        }
        indexes.push(index);
    }
    let mut image = Image::assemble(resolved.id, resolved.repo_tags, resolved.config, indexes);
    image.manifest_digest = resolved.manifest_digest;
    image.layers_verified = options.verify;
    Ok((image, resolved.kind))
}

/// What a stream contained.
#[derive(Default)]
struct Parts {
    documents: HashMap<String, Vec<u8>>,
    /// Names of parts that are neither layers nor small enough for documents, with their sizes.
    other: HashMap<String, u64>,
    layers: HashMap<String, ReadLayer>,
    links: HashMap<String, String>,
}

impl Layout for Parts {
    fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ImageError> {
        let name = follow(&self.links, name);
        match self.other.get(name) {
            Some(bytes) => Err(ImageError::DocumentTooLarge { name: name.to_owned(), bytes: *bytes }),
            None => Ok(self.documents.get(name).cloned()),
        }
    }
}

fn read_parts(stream: impl Read, verify: bool, harvest: Harvest<'_>) -> Result<Parts, ImageError> {
    let mut parts = Parts::default();
    let mut json_bytes = 0;
    // `docker save | gzip` is common.
    let (budgeted, budget) = Budgeted::new(layer::decompress(stream)?);
    let mut archive = tar::Archive::new(budgeted);
    let mut entries = archive.entries()?;
    let mut stored = 0;
    for at in 0.. {
        budget.for_headers(stored);
        let Some(entry) = entries.next() else { break };
        budget.for_content();
        let mut entry = entry.map_err(|error| broken(at, error))?;
        stored = entry.header().entry_size().unwrap_or(0);
        if at >= MAX_PARTS {
            return Err(ImageError::TooManyParts);
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            parts.links.insert(path.clone(), link_target(&path, &entry));
            continue;
        }
        let size = entry.size();
        if !kind.is_file() {
            continue;
        }
        let mut body = BufReader::with_capacity(256 << 10, CheckedReader { inner: &mut entry, left: size });
        let head = body.fill_buf().map_err(ImageError::BrokenArchive)?;
        if is_layer(head)? {
            let read = match verify {
                true => hashed(&mut body, harvest),
                false => index_layer(&mut body, harvest).map(|index| (index, None)),
            };
            let layer = read.map_err(|source| in_archive(&path, source))?;
            // What follows the layer's own end must still be there.
            io::copy(&mut body, &mut io::sink()).map_err(ImageError::BrokenArchive)?;
            parts.layers.insert(path, layer);
        } else if size <= MAX_DOCUMENT_BYTES && json_bytes + size <= MAX_JSON_TOTAL_BYTES {
            json_bytes += size;
            let mut text = Vec::new();
            body.read_to_end(&mut text).map_err(ImageError::BrokenArchive)?;
            parts.documents.insert(path, text);
        } else {
            parts.other.insert(path, size);
        }
    }
    Ok(parts)
}

fn is_layer(head: &[u8]) -> Result<bool, ImageError> {
    Ok(layer::sniff_compression(head)? != layer::Compression::None || layer::is_tar_block(head))
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
