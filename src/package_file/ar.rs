//! `ar` archives, as dpkg writes them (deb(5), ar(5)): members one after the other, each padded to an even length.

use super::PackageFileError;
use std::io::{self, Read, Seek, SeekFrom};

pub(super) const MAGIC: &[u8; 8] = b"!<arch>\n";
const HEADER: usize = 60;
/// Name, then decimal ASCII numbers: ten digits of size at offset 48; then the end of the header.
const NAME: std::ops::Range<usize> = 0..16;
const SIZE: std::ops::Range<usize> = 48..58;
const END: &[u8] = b"`\n";

/// One member's header.
pub(super) struct Member {
    pub name: String,
    pub size: u64,
    start: u64,
}

/// An archive after its magic.
pub(super) struct Archive<R> {
    file: R,
    next: u64,
    length: u64,
}

impl<R: Read + Seek> Archive<R> {
    pub(super) fn new(mut file: R) -> io::Result<Archive<R>> {
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Archive { file, next: MAGIC.len() as u64, length })
    }

    /// The next member. Its content is known to be complete.
    pub(super) fn next(&mut self) -> Result<Option<Member>, PackageFileError> {
        if self.next >= self.length {
            return Ok(None);
        }
        let truncated = |member: &str| PackageFileError::Truncated { member: member.to_owned() };
        let mut header = [0; HEADER];
        self.file.seek(SeekFrom::Start(self.next))?;
        self.file.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => truncated("a header"),
            _ => error.into(),
        })?;
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&header[range]).trim_end().to_owned();
        // GNU's ar ends a name with a slash.
        let name = text(NAME).trim_end_matches('/').to_owned();
        let damaged = |problem: &str| PackageFileError::Damaged { member: "archive".into(), problem: problem.into() };
        if header[SIZE.end..] != *END {
            return Err(damaged("a member does not start where the previous one ends"));
        }
        let size: u64 = text(SIZE).parse().map_err(|_| damaged("the size of a member is not a number"))?;
        let start = self.next + HEADER as u64;
        // Ten digits and a file's length: far from overflowing.
        if start + size > self.length {
            return Err(truncated(&name));
        }
        self.next = start + size + size % 2;
        Ok(Some(Member { name, size, start }))
    }

    /// The content of a member.
    pub(super) fn content(&mut self, member: &Member) -> io::Result<impl Read> {
        self.file.seek(SeekFrom::Start(member.start))?;
        Ok((&mut self.file).take(member.size))
    }
}
