//! The archive of an image, as a blocking reader.
//!
//! Input: an image's name. Output: the stream of `docker save` as [`std::io::Read`], for a thread that unpacks it. At
//! most [`QUEUED_CHUNKS`] pieces wait in memory; while they do, nothing more is taken from the daemon.

use std::io::{self, Read};

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::engine::Engine;
use super::error::{DockerError, from_client};
use crate::reference::Reference;

/// Pieces between the connection and the reader. The HTTP client hands over at most some hundred KiB at a time.
const QUEUED_CHUNKS: usize = 16;

impl Engine {
    /// Starts `docker save` of an image and waits for its first bytes, which the daemon sends once it has prepared the
    /// whole archive.
    ///
    /// The reader must be used outside the async runtime's own threads (`std::thread`, `spawn_blocking`). An error
    /// mid-stream is an [`io::Error`] of `read`; dropping the reader ends the transfer.
    pub async fn save_image(&self, name: &str) -> Result<impl Read + Send + use<>, DockerError> {
        Reference::parse(name)?;
        let operation = format!("saving the image {name}");
        let endpoint = self.endpoint().clone();
        let mut stream = self.client().export_image(name).boxed();

        let first = match stream.next().await {
            Some(Ok(chunk)) => chunk,
            None => Bytes::new(),
            Some(Err(error)) => {
                return Err(match from_client(error, &endpoint, &operation) {
                    DockerError::Daemon { endpoint, operation, status: 404, .. } => {
                        DockerError::ImageNotFound { endpoint, operation }
                    }
                    other => other,
                });
            }
        };
        let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS);
        tokio::spawn(async move {
            loop {
                // A daemon that sends nothing must not keep the connection of a reader that is gone.
                let item = tokio::select! {
                    item = stream.next() => item,
                    () = sender.closed() => break,
                };
                let Some(item) = item else { break };
                let item = item.map_err(|error| from_client(error, &endpoint, &operation));
                let is_last = item.is_err();
                if sender.send(item).await.is_err() || is_last {
                    break;
                }
            }
        });
        Ok(SavedImage { chunk: first, receiver: Some(receiver) })
    }
}

/// The reading end.
struct SavedImage {
    chunk: Bytes,
    receiver: Option<mpsc::Receiver<Result<Bytes, DockerError>>>,
}

impl Read for SavedImage {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let Some(receiver) = &mut self.receiver else {
                return Ok(0);
            };
            match receiver.blocking_recv() {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    self.receiver = None;
                    return Err(io::Error::other(error));
                }
                None => self.receiver = None,
            }
        }
        let length = buf.len().min(self.chunk.len());
        buf[..length].copy_from_slice(&self.chunk.split_to(length));
        Ok(length)
    }
}
