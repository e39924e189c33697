//! Files for a container: a list → a tar archive, built while it is sent.
//!
//! Input: [`Upload`]s. Output: a stream of bytes, and the error of a local file, if any. Only a few pieces are in memory
//! at a time, so a file may be large.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::{mpsc, oneshot};

/// Size of the pieces that go out, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that wait to be sent.
const PIECES: usize = 4;

/// One file or directory to put into a container. Its owner is root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Absolute, in the container. A directory must precede the files in it: an engine gives directories that
    /// it has to create itself a mode that only root can search (Docker 20.10, `pkg/archive`: 0600).
    pub path: String,
    /// Permission bits, such as `0o755`; `0o1777` is a directory that all may write to.
    pub mode: u32,
    pub content: Content,
}

/// Where the content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    /// A file of this machine.
    File(PathBuf),
    Directory,
}

/// The file that could not be read, and why.
pub(super) type Unreadable = (PathBuf, io::Error);

/// Starts building the archive. When the stream has ended, the second part tells whether every local file was read.
pub(super) fn stream_archive(
    files: Vec<Upload>,
) -> (impl Stream<Item = io::Result<Bytes>> + Send + 'static, oneshot::Receiver<Result<(), Unreadable>>) {
    let (pieces, received) = mpsc::channel(PIECES);
    let (tell, outcome) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let failed = pieces.clone();
        let result = write_archive(&files, BufWriter::with_capacity(PIECE_BYTES, Pieces(pieces)));
        if let Err((_, error)) = &result {
            // The request must not end as if it were whole.
            let _ = failed.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
        }
        let _ = tell.send(result);
    });
    let stream = futures_util::stream::unfold(received, |mut received| async move {
        received.recv().await.map(|piece| (piece, received))
    });
    (stream, outcome)
}

/// Sends what is written to it.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        // The reader is gone: the request has its answer already, or was given up.
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the archive. An error that is not a local file's comes from the reader, which reports it itself.
fn write_archive(files: &[Upload], out: impl Write) -> Result<(), Unreadable> {
    let mut archive = tar::Builder::new(out);
    for file in files {
        match append(&mut archive, file) {
            Ok(()) => {}
            Err(Failure::Local(path, error)) => return Err((path, error)),
            Err(Failure::Reader) => return Ok(()),
        }
    }
    // The same: nobody to tell.
    let _ = archive.into_inner().and_then(|mut out| out.flush());
    Ok(())
}

enum Failure {
    Local(PathBuf, io::Error),
    Reader,
}

fn append(archive: &mut tar::Builder<impl Write>, file: &Upload) -> Result<(), Failure> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(file.mode);
    header.set_uid(0);
    header.set_gid(0);
    let path = file.path.trim_start_matches('/');
    let reader = |_: io::Error| Failure::Reader;
    match &file.content {
        Content::Bytes(bytes) => {
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, bytes.as_slice()).map_err(reader)
        }
        Content::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            archive.append_data(&mut header, path, io::empty()).map_err(reader)
        }
        Content::File(local) => {
            let failed = |error| Failure::Local(local.clone(), error);
            let (mut content, size) = open(local).map_err(failed)?;
            header.set_size(size);
            let mut source = Source { inner: &mut content, left: size, failure: None };
            let result = archive.append_data(&mut header, path, &mut source);
            match (source.failure, result) {
                (Some(error), _) => Err(Failure::Local(local.clone(), error)),
                (None, result) => result.map_err(reader),
            }
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((file, metadata.len()))
}

/// Reads exactly as many bytes as the header says, and remembers its own failure.
struct Source<'a, R> {
    inner: &'a mut R,
    left: u64,
    failure: Option<io::Error>,
}

impl<R: io::Read> io::Read for Source<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = match self.inner.read(&mut buffer[..most]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it shrank while it was being read")),
            other => other,
        };
        match read {
            Ok(read) => {
                self.left -= read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn upload(path: &str, mode: u32, content: Content) -> Upload {
        Upload { path: path.to_owned(), mode, content }
    }

    #[test]
    fn the_archive_has_every_entry_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let local = dir.path().join("agent");
        std::fs::write(&local, vec![7; 700_000]).unwrap();
        let files = [
            upload("/a", 0o755, Content::Directory),
            upload("/a/agent", 0o755, Content::File(local)),
            upload("/a/plan.json", 0o644, Content::Bytes(b"{}".to_vec())),
            upload("/a/run", 0o1777, Content::Directory),
        ];
        let mut bytes = Vec::new();
        write_archive(&files, &mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                let path = entry.path().unwrap().to_string_lossy().into_owned();
                let header = entry.header();
                (path, header.mode().unwrap(), header.entry_type().is_dir(), content.len(), header.uid().unwrap())
            })
            .collect();
        assert_eq!(
            entries,
            [
                ("a".to_owned(), 0o755, true, 0, 0),
                ("a/agent".to_owned(), 0o755, false, 700_000, 0),
                ("a/plan.json".to_owned(), 0o644, false, 2, 0),
                ("a/run".to_owned(), 0o1777, true, 0, 0),
            ]
        );
    }

    #[test]
    fn a_local_file_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let files = [upload("/x", 0o755, Content::File(missing.clone()))];
        let (path, error) = write_archive(&files, io::sink()).unwrap_err();
        assert_eq!((path, error.kind()), (missing, io::ErrorKind::NotFound));
        let files = [upload("/x", 0o755, Content::File(dir.path().to_owned()))];
        assert!(write_archive(&files, io::sink()).unwrap_err().1.to_string().contains("not a regular file"));
        let mut short = Source { inner: &mut &b"abc"[..], left: 5, failure: None };
        assert!(io::copy(&mut short, &mut io::sink()).is_err());
        assert_eq!(short.failure.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}
