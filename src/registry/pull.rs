//! One image of a registry → [`Image`]: manifest and config, then the layers as streams.

use super::client::{ATTEMPTS, Client, unreachable_error, wait_before};
use super::{RegistryError, Settings};
use crate::docker::config::ClientConfig;
use crate::image::layer::{Harvest, LayerDigests, LayerError, index_and_hash_layer, index_layer};
use crate::image::oci::{
    Descriptor, Documents, Found, INDEX_TYPES, Index, MANIFEST_TYPES, MAX_DOCUMENT_BYTES, find_image,
};
use crate::image::rootfs::LayerIndex;
use crate::image::{Image, ImageError, ReadOptions, check_layer_digests, digest, parallel};
use crate::reference::Reference;
use crate::reference::is_digest;
use std::cell::Cell;
use std::io::{self, Read};
use ureq::Body;
use ureq::http::Response;

/// Layers downloaded at a time: more would only share the link, and each has its buffers.
const LAYERS_AT_A_TIME: usize = 2;
/// The tag for a name without one.
const DEFAULT_TAG: &str = "latest";

/// Reads an image from its registry, or from a mirror of it. This blocks.
///
/// # Errors
/// The registry cannot be reached or refuses, has no such image or platform, or sends content that does not match its digest.
pub fn read_image(
    name: &str,
    settings: &Settings,
    config: &ClientConfig,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<Image, RegistryError> {
    let reference = Reference::parse(name)?;
    let client = Client::new(&reference, settings, config)?;
    let wanted = reference.digest().or(reference.tag()).unwrap_or(DEFAULT_TAG);
    let what = format!("{}:{wanted}", reference.repository()).replace(":sha256:", "@sha256:");
    let (top, bytes) = fetch_top(&client, wanted, &what)?;
    tracing::info!("{} is {top}", reference);
    let pull = Pull { client: &client, top: (top.clone(), bytes) };
    // Manifest or index, it is one image: names inside do not matter.
    let entry = Descriptor { digest: top.clone(), ..Descriptor::default() };
    let found = find_image(&pull, Index { manifests: vec![entry] }, None, options.platform)?;
    let layers = pull.layers(&found, options.verify, harvest)?;

    let Found { manifest_digest, id, config, .. } = found;
    let tag = reference.tag().or(reference.digest().is_none().then_some(DEFAULT_TAG));
    let repo_tags = tag.map(|tag| format!("{}:{tag}", reference.name())).into_iter().collect();
    let mut image = Image::assemble(id, repo_tags, config, layers);
    image.repo_digests = vec![format!("{}@{top}", reference.name())];
    image.manifest_digest = Some(manifest_digest);
    image.layers_verified = options.verify;
    Ok(image)
}

/// The document behind a tag or digest, and its own digest.
fn fetch_top(client: &Client, wanted: &str, what: &str) -> Result<(String, Vec<u8>), RegistryError> {
    let accept = MANIFEST_TYPES.iter().chain(&INDEX_TYPES).copied().collect::<Vec<_>>().join(", ");
    let answer = client.get(&format!("manifests/{wanted}"), &accept, what)?;
    let told = answer.headers().get("docker-content-digest").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = document(client, answer, what)?;
    if is_digest(wanted) {
        digest::verify("manifest", &bytes, wanted)?;
    } else if let Some(told) = told.filter(|told| is_digest(told)) {
        digest::verify("manifest", &bytes, &told)?;
    }
    Ok((digest::digest_of(&bytes), bytes))
}

fn document(client: &Client, mut answer: Response<Body>, what: &str) -> Result<Vec<u8>, RegistryError> {
    let read = answer.body_mut().with_config().limit(MAX_DOCUMENT_BYTES).read_to_vec();
    read.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => RegistryError::Protocol {
            host: client.host().to_owned(),
            what: what.to_owned(),
            problem: format!("more than the {MAX_DOCUMENT_BYTES} bytes of any manifest or config"),
        },
        error => unreachable_error(client.host(), &error),
    })
}

struct Pull<'a> {
    client: &'a Client,
    /// Digest and bytes of the document that the name refers to.
    top: (String, Vec<u8>),
}

impl Documents for Pull<'_> {
    type Error = RegistryError;

    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        if descriptor.digest == self.top.0 {
            return Ok(self.top.1.clone());
        }
        Ok(fetch_top(self.client, checked(descriptor)?, &format!("manifest {}", descriptor.digest))?.1)
    }

    fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let what = format!("config {}", descriptor.digest);
        let answer = self.client.get(&format!("blobs/{}", checked(descriptor)?), "*/*", &what)?;
        document(self.client, answer, &what)
    }
}

/// A digest is placed into a request's path, so it must be one.
fn checked(descriptor: &Descriptor) -> Result<&str, RegistryError> {
    if is_digest(&descriptor.digest) {
        return Ok(&descriptor.digest);
    }
    Err(ImageError::UnknownDigest { name: "blob".to_owned(), digest: descriptor.digest.clone() }.into())
}

impl Pull<'_> {
    /// Reads the layers, each once.
    fn layers(&self, found: &Found, verify: bool, harvest: Harvest<'_>) -> Result<Vec<LayerIndex>, RegistryError> {
        let (layers, diff_ids) = (&found.manifest.layers, &found.config.rootfs.diff_ids);
        if layers.len() != diff_ids.len() {
            return Err(ImageError::LayerCount { config: diff_ids.len(), manifest: layers.len() }.into());
        }
        let mut parts: Vec<(&Descriptor, &String)> = Vec::new();
        for part in layers.iter().zip(diff_ids) {
            if parts.iter().all(|(known, _)| known.digest != part.0.digest) {
                parts.push(part);
            }
        }
        let read = parallel::for_each(
            &parts,
            LAYERS_AT_A_TIME,
            |(layer, _)| layer.size,
            |(layer, diff_id)| {
                let (index, digests) = self.layer(layer, verify, harvest)?;
                if let Some(digests) = digests {
                    check_layer_digests(&layer.digest, Some(&layer.digest), diff_id, &digests)?;
                }
                Ok::<_, RegistryError>(index)
            },
        )?;
        let place = |layer: &Descriptor| parts.iter().position(|(known, _)| known.digest == layer.digest);
        let places: Vec<usize> = layers.iter().filter_map(place).collect();
        Ok(parallel::put_back(read, &places))
    }

    fn layer(
        &self,
        layer: &Descriptor,
        verify: bool,
        harvest: Harvest<'_>,
    ) -> Result<(LayerIndex, Option<LayerDigests>), RegistryError> {
        let what = format!("layer {}", layer.digest);
        let mut attempt = 1;
        loop {
            let answer = self.client.get(&format!("blobs/{}", checked(layer)?), "*/*", &what)?;
            let dropped = Cell::new(false);
            let body = Exact { inner: answer.into_body().into_reader(), left: layer.size, dropped: &dropped };
            let read = match verify {
                true => index_and_hash_layer(body, harvest).map(|(index, digests)| (index, Some(digests))),
                false => index_layer(body, harvest).map(|index| (index, None)),
            };
            match read {
                Ok(read) => return Ok(read),
                // The part that was read is thrown away: half a layer is useless.
                Err(error) if dropped.get() && attempt < ATTEMPTS => {
                    tracing::warn!("{what}: the connection was lost ({}), trying again", innermost(&error));
                    std::thread::sleep(wait_before(attempt));
                    attempt += 1;
                }
                Err(LayerError::Io(source)) if dropped.get() => {
                    return Err(RegistryError::Dropped { digest: layer.digest.clone(), attempts: attempt, source });
                }
                Err(source) => return Err(RegistryError::Layer { digest: layer.digest.clone(), source }),
            }
        }
    }
}

fn innermost(error: &LayerError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

/// A body of exactly the size that the manifest says, which remembers whether the connection is to blame.
struct Exact<'a, R> {
    inner: R,
    left: u64,
    dropped: &'a Cell<bool>,
}

impl<R: Read> Read for Exact<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.dropped.set(true);
            }
        })?;
        match self.left.checked_sub(n as u64) {
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than the manifest says")),
            Some(left) if n == 0 && left > 0 && !buffer.is_empty() => {
                self.dropped.set(true);
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{left} bytes are missing at the end")))
            }
            Some(left) => {
                self.left = left;
                Ok(n)
            }
        }
    }
}
