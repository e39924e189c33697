//! The build context: the files that a Dockerfile can copy, as a tar archive.
//!
//! Input: paths, contents and modes. Output: the same bytes for the same files, in whatever order they were added:
//! builders compare the context with their cache. A file on disk is read when the archive is sent, a piece at a time.

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use tokio::io::AsyncReadExt;

/// Name of the Dockerfile inside the archive.
pub(super) const DOCKERFILE: &str = "Dockerfile";
/// tar pads every content to this (POSIX, pax, "ustar Interchange Format").
const BLOCK: u64 = 512;
/// How much of a file is in memory at a time.
const PIECE: usize = 1 << 20;

/// Why a context cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The path would leave the context, or is empty.
    #[error("packing the build context: `{path}` is not a relative path inside it")]
    Path { path: String },
    /// The path occurs twice, or is the Dockerfile's.
    #[error("packing the build context: `{path}` occurs twice")]
    Duplicate { path: String },
    /// The archive format cannot hold the file, or the file cannot be read.
    #[error("packing the build context: adding `{path}`")]
    Pack { path: String, source: io::Error },
}

/// The content of a file in the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>),
    /// The content that the file at this path has when the context is sent.
    File(PathBuf),
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::Bytes(bytes)
    }
}

/// The files of a build, besides its Dockerfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildContext {
    /// Path inside the context, content, permission bits.
    pub files: Vec<(String, Content, u32)>,
}

/// A packed context, which can be sent more than once.
#[derive(Debug, Clone)]
pub struct PackedContext {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Bytes),
    File { path: PathBuf, size: u64 },
}

impl BuildContext {
    /// Packs the files and the Dockerfile.
    pub fn pack(&self, dockerfile: &str) -> Result<PackedContext, ContextError> {
        let dockerfile = Content::Bytes(dockerfile.as_bytes().to_vec());
        let mut entries: BTreeMap<&str, (&Content, u32)> = BTreeMap::from([(DOCKERFILE, (&dockerfile, 0o644))]);
        for (path, content, mode) in &self.files {
            if !is_inside(path) {
                return Err(ContextError::Path { path: path.clone() });
            }
            if entries.insert(path, (content, *mode)).is_some() {
                return Err(ContextError::Duplicate { path: path.clone() });
            }
        }
        let mut pieces = Vec::new();
        for (path, (content, mode)) in entries {
            let failed = |source| ContextError::Pack { path: path.to_owned(), source };
            pieces.extend(pack_file(path, content, mode).map_err(failed)?);
        }
        // Two empty blocks end an archive.
        pieces.push(Piece::Bytes(Bytes::from(vec![0; 2 * BLOCK as usize])));
        Ok(PackedContext { pieces })
    }
}

fn pack_file(path: &str, content: &Content, mode: u32) -> io::Result<Vec<Piece>> {
    let size = match content {
        Content::Bytes(bytes) => bytes.len() as u64,
        Content::File(path) => std::fs::metadata(path)?.len(),
    };
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(size);
    header.set_mode(mode & 0o7777);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    // A long path has an entry of its own before the header. The content follows as it is, so none is given here.
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, path, io::empty())?;
    let mut head = archive.into_inner()?;
    head.truncate(head.len() - 2 * BLOCK as usize);
    let padding = Bytes::from(vec![0; (size.next_multiple_of(BLOCK) - size) as usize]);
    let content = match content {
        Content::Bytes(bytes) => Piece::Bytes(Bytes::from(bytes.clone())),
        Content::File(path) => Piece::File { path: path.clone(), size },
    };
    Ok(vec![Piece::Bytes(head.into()), content, Piece::Bytes(padding)])
}

impl PackedContext {
    /// Size of the archive.
    pub fn size_bytes(&self) -> u64 {
        let size = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { size, .. } => *size,
        };
        self.pieces.iter().map(size).sum()
    }

    /// The archive, piece by piece.
    ///
    /// # Errors
    /// A file cannot be read, or its length has changed.
    pub fn stream(&self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::iter(self.pieces.clone()).flat_map(|piece| match piece {
            Piece::Bytes(bytes) => stream::once(async move { Ok(bytes) }).left_stream(),
            Piece::File { path, size } => stream_file(path, size).right_stream(),
        })
    }
}

fn stream_file(path: PathBuf, size: u64) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let start: (Option<tokio::fs::File>, u64, PathBuf) = (None, size, path);
    stream::try_unfold(start, |(file, left, path)| async move {
        let mut file = match file {
            Some(file) => file,
            None => tokio::fs::File::open(&path).await?,
        };
        if left == 0 {
            return Ok(None);
        }
        let mut buffer = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} has become shorter", path.display())));
        }
        buffer.truncate(read);
        Ok(Some((Bytes::from(buffer), (Some(file), left - read as u64, path))))
    })
    .boxed()
}

fn is_inside(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn context(files: &[(&str, &str, u32)]) -> BuildContext {
        let files = files
            .iter()
            .map(|(path, text, mode)| ((*path).to_owned(), text.as_bytes().to_vec().into(), *mode))
            .collect();
        BuildContext { files }
    }

    /// The whole archive, as the engine gets it.
    fn sent(packed: &PackedContext) -> io::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut out = Vec::new();
            let mut stream = Box::pin(packed.stream());
            while let Some(piece) = stream.next().await {
                out.extend(piece?);
            }
            Ok(out)
        })
    }

    fn archive(context: &BuildContext, dockerfile: &str) -> Vec<u8> {
        let packed = context.pack(dockerfile).expect("valid");
        let bytes = sent(&packed).expect("readable");
        assert_eq!(bytes.len() as u64, packed.size_bytes());
        bytes
    }

    #[test]
    fn a_file_on_disk_is_as_if_it_were_in_memory() {
        let dir = tempfile::tempdir().expect("a folder");
        for size in [0, 1, 511, 512, 513, PIECE, PIECE + 1, 3 * PIECE + 17] {
            let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let path = dir.path().join("x.deb");
            std::fs::write(&path, &content).expect("written");
            let on_disk = BuildContext { files: vec![("packages/x.deb".into(), Content::File(path.clone()), 0o644)] };
            let in_memory = BuildContext { files: vec![("packages/x.deb".into(), content.into(), 0o644)] };
            let packed = on_disk.pack("FROM scratch\n").expect("valid");
            assert_eq!(sent(&packed).expect("readable"), archive(&in_memory, "FROM scratch\n"), "{size} bytes");
            // More than once: the second builder gets the same.
            assert_eq!(sent(&packed).expect("readable"), sent(&packed).expect("readable"));
            if size > 0 {
                std::fs::write(&path, "").expect("written");
                let error = sent(&packed).expect_err("the file is shorter").to_string();
                assert!(error.contains("x.deb has become shorter"), "{error}");
            }
        }
        let missing = BuildContext { files: vec![("a".into(), Content::File(dir.path().join("missing")), 0o644)] };
        assert!(matches!(missing.pack(""), Err(ContextError::Pack { path, .. }) if path == "a"));
    }

    #[test]
    fn order_of_the_files_does_not_matter() {
        let one = archive(&context(&[("b/x.sh", "x", 0o755), ("a", "y", 0o600)]), "FROM scratch\n");
        let two = archive(&context(&[("a", "y", 0o600), ("b/x.sh", "x", 0o755)]), "FROM scratch\n");
        assert_eq!(one, two);

        let mut archive = tar::Archive::new(one.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            let header = entry.header();
            assert_eq!((header.mtime().ok(), header.uid().ok(), header.gid().ok()), (Some(0), Some(0), Some(0)));
            let path = entry.path().expect("a path").display().to_string();
            seen.push((path, text, entry.header().mode().expect("a mode")));
        }
        let expected = [("Dockerfile", "FROM scratch\n", 0o644), ("a", "y", 0o600), ("b/x.sh", "x", 0o755)];
        assert_eq!(seen, expected.map(|(path, text, mode)| (path.to_owned(), text.to_owned(), mode)));
    }

    #[test]
    fn paths_outside_or_twice_are_refused() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/"] {
            assert!(matches!(context(&[(path, "", 0)]).pack(""), Err(ContextError::Path { .. })), "{path}");
        }
        for files in [&[("a", "", 0), ("a", "", 0)][..], &[("Dockerfile", "", 0)][..]] {
            assert!(matches!(context(files).pack(""), Err(ContextError::Duplicate { .. })));
        }
    }

    #[test]
    fn long_paths_survive() {
        let path = format!("{}/x", "d".repeat(150));
        let bytes = archive(&context(&[(&path, "z", 0o644)]), "");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let paths: Vec<String> = archive
            .entries()
            .expect("entries")
            .map(|e| e.expect("entry").path().expect("path").display().to_string())
            .collect();
        assert!(paths.contains(&path), "{paths:?}");
    }
}
