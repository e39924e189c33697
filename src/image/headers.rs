//! Bounds what an archive's headers may take: the tar reader holds long names and PAX records whole, whatever size they
//! claim, and a compressed stream of a few kilobytes can carry one of many gigabytes.
//!
//! Input: the stream below the tar reader. While a [`Budget`] is set, no more than that can be read through it; the
//! caller sets it for the reading of headers and lifts it for content.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

/// Most bytes of headers before one entry: a path of 4096 bytes (Linux, PATH_MAX) and its link, with PAX records that
/// carry extended attributes of 64 KiB each (Linux, XATTR_SIZE_MAX).
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// How much may still be read; shared with the reader.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget {
    left: Rc<Cell<Option<u64>>>,
    /// Bytes of content read since the last entry began.
    content: Rc<Cell<u64>>,
}

impl Budget {
    /// From here on headers are read, behind the rest of an entry that takes `stored_bytes` in the stream: what of it was
    /// not read is passed over first.
    pub(super) fn for_headers(&self, stored_bytes: u64) {
        let rest = stored_bytes.saturating_sub(self.content.get());
        self.left.set(Some(MAX_HEADER_BYTES.saturating_add(rest)));
    }

    /// From here on content is read.
    pub(super) fn for_content(&self) {
        self.left.set(None);
        self.content.set(0);
    }
}

/// A reader that keeps to a budget.
pub(super) struct Budgeted<R> {
    inner: R,
    budget: Budget,
}

impl<R> Budgeted<R> {
    pub(super) fn new(inner: R) -> (Budgeted<R>, Budget) {
        let budget = Budget::default();
        (Budgeted { inner, budget: budget.clone() }, budget)
    }
}

impl<R: Read> Read for Budgeted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.budget.left.get() else {
            let n = self.inner.read(buffer)?;
            self.budget.content.set(self.budget.content.get() + n as u64);
            return Ok(n);
        };
        if left == 0 && !buffer.is_empty() {
            let text = format!("the header of one entry is larger than {} KiB", MAX_HEADER_BYTES >> 10);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.inner.read(&mut buffer[..most])?;
        self.budget.left.set(Some(left - n as u64));
        Ok(n)
    }
}

impl<R: Seek> Seek for Budgeted<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
