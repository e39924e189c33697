//! Random access to the parts of an image: a seekable archive or a directory → parts by name.
//!
//! Nothing is unpacked. An archive's entries are listed once, from their headers alone; a part is then a section of the
//! file, so that several can be read at a time.

use super::beneath::{Links, open_directory, open_file};
use super::headers::Budgeted;
use super::layer::LayerError;
use super::layout::{Layout, join};
use super::oci::MAX_DOCUMENT_BYTES;
use super::{ImageError, MAX_PARTS};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The parts of an image.
pub(super) enum Store {
    Archive { file: Arc<File>, parts: HashMap<String, (u64, u64)>, links: HashMap<String, String> },
    Directory(OwnedFd),
}

impl Store {
    /// Lists an archive that is not compressed as a whole.
    pub(super) fn open_archive(file: File) -> Result<Store, ImageError> {
        let file = Arc::new(file);
        let whole = Section::of(Arc::clone(&file))?;
        let (mut parts, mut links) = (HashMap::new(), HashMap::new());
        let (budgeted, budget) = Budgeted::new(whole);
        // All that is read here is headers.
        let mut archive = tar::Archive::new(budgeted);
        let mut entries = archive.entries_with_seek()?;
        for at in 0.. {
            budget.for_headers(0);
            let Some(entry) = entries.next() else { break };
            let entry = entry.map_err(|error| broken(at, error))?;
            if parts.len() + links.len() >= MAX_PARTS {
                return Err(ImageError::TooManyParts);
            }
            let path = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
            let kind = entry.header().entry_type();
            if kind.is_symlink() || kind.is_hard_link() {
                links.insert(path.clone(), link_target(&path, &entry));
            } else if kind.is_file() {
                parts.insert(path, (entry.raw_file_position(), entry.size()));
            }
        }
        Ok(Store::Archive { file, parts, links })
    }

    /// Opens a directory as `skopeo copy … oci:DIR` writes it, or an unpacked archive.
    pub(super) fn open_directory(path: &Path) -> Result<Store, ImageError> {
        let open = |source| ImageError::Open { path: path.display().to_string(), source };
        let root = File::open(path).map_err(open)?;
        Ok(Store::Directory(open_directory(&root, "", Links::Inside).map_err(open)?))
    }

    /// A part's content; `None` if no part has that name.
    pub(super) fn part(&self, name: &str) -> Result<Option<Section>, ImageError> {
        match self {
            Store::Archive { file, parts, links } => {
                let found = parts.get(follow(links, name));
                Ok(found.map(|(start, size)| Section::new(Arc::clone(file), *start, *size)))
            }
            Store::Directory(root) => match open_file(root, name, Links::Inside) {
                Ok(file) => Ok(Some(Section::of(Arc::new(file))?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(ImageError::Open { path: name.to_owned(), source }),
            },
        }
    }

    /// Words a failure to read a layer.
    pub(super) fn layer_error(&self, name: &str, source: LayerError) -> ImageError {
        match (self, source) {
            (Store::Archive { .. }, source) => in_archive(name, source),
            (Store::Directory(_), source) => ImageError::Layer { name: name.to_owned(), source },
        }
    }
}

impl Layout for Store {
    fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(mut part) = self.part(name)? else { return Ok(None) };
        let size = part.len();
        if size > MAX_DOCUMENT_BYTES {
            return Err(ImageError::DocumentTooLarge { name: name.to_owned(), bytes: size });
        }
        let mut bytes = Vec::new();
        part.read_to_end(&mut bytes).map_err(ImageError::BrokenArchive)?;
        Ok(Some(bytes))
    }
}

/// Gives a streamed archive and a seekable one the same errors.
pub(super) fn in_archive(name: &str, source: LayerError) -> ImageError {
    match source {
        LayerError::Io(source) => ImageError::BrokenArchive(source),
        LayerError::Truncated { .. } => ImageError::BrokenArchive(io::Error::new(io::ErrorKind::UnexpectedEof, source)),
        source => ImageError::Layer { name: name.to_owned(), source },
    }
}

/// An unreadable header means something else at the archive's start than in its middle.
pub(super) fn broken(at: usize, error: io::Error) -> ImageError {
    match (at, error.kind()) {
        (0, io::ErrorKind::Other | io::ErrorKind::InvalidInput) => ImageError::NotAnArchive,
        _ => ImageError::BrokenArchive(error),
    }
}

/// The target of a link, as a path in the archive: engine 20.10 stores a layer shared by several images once and links
/// to it.
pub(super) fn link_target(path: &str, entry: &tar::Entry<'_, impl Read>) -> String {
    let target = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned()).unwrap_or_default();
    let base = path.rsplit_once('/').map_or("", |(base, _)| base);
    if entry.header().entry_type().is_symlink() { join(base, &target) } else { join("", &target) }
}

/// The name after following links. A link's target may be a link, up to a limit.
pub(super) fn follow<'a>(links: &'a HashMap<String, String>, name: &'a str) -> &'a str {
    let mut name = name;
    for _ in 0..8 {
        match links.get(name) {
            Some(target) => name = target,
            None => break,
        }
    }
    name
}

/// Bytes read ahead, as many as some dozen small files of a layer take.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// A part of a file as a stream. Ending early, and seeking past the end, are errors.
pub(super) struct Section {
    file: Arc<File>,
    start: u64,
    size: u64,
    at: u64,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffered_at: u64,
}

impl Section {
    fn new(file: Arc<File>, start: u64, size: u64) -> Section {
        Section { file, start, size, at: 0, buffer: Vec::new(), buffered_at: 0 }
    }

    /// The whole of a regular file.
    fn of(file: Arc<File>) -> Result<Section, ImageError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(ImageError::Io(io::Error::new(io::ErrorKind::InvalidInput, "a part is not a regular file")));
        }
        Ok(Section::new(file, 0, metadata.len()))
    }

    pub(super) fn len(&self) -> u64 {
        self.size
    }

    fn read_from_file(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        match self.file.read_at(&mut buffer[..wanted], self.start + self.at)? {
            0 if wanted > 0 => Err(cut_short(self.size - self.at)),
            n => Ok(n),
        }
    }
}

fn cut_short(missing: u64) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("{missing} bytes are missing at the end"))
}

impl Read for Section {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let ahead = self.at.checked_sub(self.buffered_at).and_then(|ahead| usize::try_from(ahead).ok());
        if ahead.is_none_or(|ahead| ahead >= self.buffer.len()) {
            if out.len() >= READ_AHEAD_BYTES {
                let n = self.read_from_file(out)?;
                self.at += n as u64;
                return Ok(n);
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(READ_AHEAD_BYTES, 0);
            let n = self.read_from_file(&mut buffer)?;
            buffer.truncate(n);
            (self.buffer, self.buffered_at) = (buffer, self.at);
        }
        let ahead = usize::try_from(self.at - self.buffered_at).unwrap_or(usize::MAX).min(self.buffer.len());
        let n = out.len().min(self.buffer.len() - ahead);
        out[..n].copy_from_slice(&self.buffer[ahead..ahead + n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
        };
        match at {
            Some(at) if at <= self.size => {
                self.at = at;
                Ok(at)
            }
            Some(at) => Err(cut_short(at - self.size)),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_section_ends_where_it_should() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
        file.write_all(&bytes).unwrap();
        let file = Arc::new(file);
        let mut section = Section::new(Arc::clone(&file), 10, 150_000);
        let mut all = Vec::new();
        section.read_to_end(&mut all).unwrap();
        assert_eq!(all, bytes[10..150_010]);
        // Back and forth, inside what is buffered and outside.
        let mut small = [0; 100];
        for at in [0, 50, 70_000, 69_990, 149_900, 3] {
            section.seek(SeekFrom::Start(at)).unwrap();
            section.read_exact(&mut small).unwrap();
            assert_eq!(small[..], bytes[10 + at as usize..110 + at as usize]);
        }
        assert_eq!(section.seek(SeekFrom::Start(150_001)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // The file is shorter than the archive's header says.
        let mut cut = Section::new(file, 199_000, 2_000);
        assert_eq!(cut.read_to_end(&mut all).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
