//! `rpmdb.sqlite`, as rpm writes it since 4.16: bytes → headers.
//!
//! Only what rpm needs of SQLite's file format (sqlite.org, "Database File Format"): the table `Packages` is found in the
//! schema and its tree is walked. No SQL is run, so that a hostile schema (views, triggers, endless queries) means nothing,
//! and no file is written, which the library would need for the write-ahead log: rpm's database is in that mode, and the
//! last commits may still be only in `rpmdb.sqlite-wal`.

use super::bytes::{Order, Visited, slice};
use super::{RpmError, Visit};
use std::borrow::Cow;
use std::collections::HashMap;

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
/// A rollback journal that starts like this holds pages that belong back into the database.
const JOURNAL_MAGIC: &[u8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// The log's magic; its last bit says in which byte order the checksums are.
const WAL_MAGIC: u32 = 0x377f_0682;
const WAL_VERSION: u32 = 3_007_000;
const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

const TABLE_INTERIOR: u8 = 0x05;
const TABLE_LEAF: u8 = 0x0d;

/// The files of one database.
#[derive(Debug, Default)]
pub(super) struct Files<'a> {
    pub database: &'a [u8],
    pub wal: &'a [u8],
    pub journal: &'a [u8],
}

/// Calls `visit` with the header of every package.
///
/// # Errors
/// A database that is cut off, damaged, in the middle of a transaction, or without the table.
pub(super) fn visit_headers(files: &Files<'_>, visit: Visit<'_>) -> Result<(), RpmError> {
    if files.journal.starts_with(JOURNAL_MAGIC) {
        return Err(RpmError::Unsupported("a transaction that was never finished"));
    }
    let mut pager = Pager::open(files)?;
    let mut root = None;
    pager.visit_rows(1, &mut |row| {
        let row = Row::parse(row)?;
        if row.text(0)? == b"table" && row.text(1)? == b"Packages" {
            root = Some(row.integer(3)?);
        }
        Ok(())
    })?;
    let root = root.ok_or(RpmError::Damaged("it has no table of packages"))?;
    // The table is `(hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)`.
    pager.visit_rows(root, &mut |row| visit(Row::parse(row)?.blob(1)?))
}

struct Pager<'a> {
    database: &'a [u8],
    /// Pages whose newest form is in the log.
    newer: HashMap<usize, &'a [u8]>,
    page_bytes: usize,
    /// Bytes of a page that hold content.
    usable: usize,
    pages: usize,
    visited: Visited,
    /// Bytes that rows may still have: they do not overlap, so together they are no longer than the files.
    left: usize,
}

impl<'a> Pager<'a> {
    fn open(files: &Files<'a>) -> Result<Pager<'a>, RpmError> {
        let log = read_wal(files.wal);
        let first = log.pages.get(&1).copied().unwrap_or(files.database);
        let header = first.get(..HEADER_BYTES).ok_or(RpmError::Truncated)?;
        if header[..16] != *MAGIC {
            return Err(RpmError::NotADatabase("SQLite"));
        }
        let page_bytes = match Order::Big.u16(header, 16) {
            Some(1) => 65536,
            Some(size) => usize::from(size),
            None => return Err(RpmError::Truncated),
        };
        let usable = page_bytes.saturating_sub(usize::from(header[20]));
        if !page_bytes.is_power_of_two() || page_bytes < 512 || usable < 480 {
            return Err(RpmError::Damaged("its page size is impossible"));
        }
        if !matches!(Order::Big.u32(header, 56), Some(0 | 1)) {
            return Err(RpmError::Unsupported("a database in UTF-16"));
        }
        if !log.pages.is_empty() && log.page_bytes != page_bytes {
            return Err(RpmError::Damaged("its log has another page size"));
        }
        let pages = if log.pages.is_empty() { files.database.len() / page_bytes } else { log.database_pages };
        // The log's own count is bounded by what there is.
        let pages = pages.min(files.database.len() / page_bytes + log.pages.len());
        Ok(Pager {
            database: files.database,
            newer: log.pages,
            page_bytes,
            usable,
            pages,
            visited: Visited::of(pages + 1),
            left: files.database.len() + files.wal.len(),
        })
    }

    /// A page by its number, which starts at 1. Each can be asked for once.
    fn page(&mut self, number: usize) -> Result<&'a [u8], RpmError> {
        if number == 0 || number > self.pages {
            return Err(RpmError::Truncated);
        }
        if !self.visited.first(number) {
            return Err(RpmError::Damaged("a page is used twice"));
        }
        match self.newer.get(&number) {
            Some(page) => Ok(page),
            None => slice(self.database, (number - 1) * self.page_bytes, self.page_bytes).ok_or(RpmError::Truncated),
        }
    }

    /// Calls `visit` with the record of every row of a table, in the order of its keys.
    fn visit_rows(
        &mut self,
        root: usize,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), RpmError>,
    ) -> Result<(), RpmError> {
        const BAD: RpmError = RpmError::Damaged("a page of a table is out of order");
        let mut todo = vec![root];
        while let Some(number) = todo.pop() {
            let page = self.page(number)?;
            let start = if number == 1 { HEADER_BYTES } else { 0 };
            let kind = *page.get(start).ok_or(BAD)?;
            let cells = usize::from(Order::Big.u16(page, start + 3).ok_or(BAD)?);
            let pointers = start + if kind == TABLE_INTERIOR { 12 } else { 8 };
            let cell = |at: usize| Order::Big.u16(page, pointers + 2 * at).map(usize::from);
            match kind {
                TABLE_INTERIOR => {
                    todo.push(Order::Big.index(page, start + 8).ok_or(BAD)?);
                    for at in (0..cells).rev() {
                        todo.push(cell(at).and_then(|at| Order::Big.index(page, at)).ok_or(BAD)?);
                    }
                }
                TABLE_LEAF => {
                    for at in 0..cells {
                        visit(&self.payload(page, cell(at).ok_or(BAD)?)?)?;
                    }
                }
                _ => return Err(BAD),
            }
        }
        Ok(())
    }

    /// The content of a leaf's cell, including its overflow pages.
    fn payload(&mut self, page: &'a [u8], at: usize) -> Result<Cow<'a, [u8]>, RpmError> {
        const BAD: RpmError = RpmError::Damaged("a row is broken");
        let (length, size) = varint(page, at).ok_or(BAD)?;
        let (_, key_size) = varint(page, at + size).ok_or(BAD)?;
        let start = at + size + key_size;
        let length = usize::try_from(length).map_err(|_| BAD)?;
        self.left = self.left.checked_sub(length).ok_or(RpmError::Damaged("the rows are longer than the file"))?;
        // The format's own rule for how much of a row stays on the leaf.
        let most = self.usable - 35;
        if length <= most {
            return slice(page, start, length).map(Cow::Borrowed).ok_or(BAD);
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let local = least + (length - least) % (self.usable - 4);
        let local = if local <= most { local } else { least };
        let mut payload = Vec::with_capacity(length);
        payload.extend_from_slice(slice(page, start, local).ok_or(BAD)?);
        let mut next = Order::Big.index(page, start + local).ok_or(BAD)?;
        while payload.len() < length {
            let page = self.page(next)?;
            next = Order::Big.index(page, 0).ok_or(BAD)?;
            let part = (length - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(slice(page, 4, part).ok_or(BAD)?);
        }
        Ok(Cow::Owned(payload))
    }
}

/// A number of up to nine bytes, and how many it took.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for size in 0..8 {
        let byte = *bytes.get(at.checked_add(size)?)?;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, size + 1));
        }
    }
    Some((value << 8 | u64::from(*bytes.get(at + 8)?), 9))
}

/// One record: the types of its columns, then their values.
struct Row<'a> {
    record: &'a [u8],
    /// Type, start and length of each column, as far as they are needed.
    columns: Vec<(u64, usize, usize)>,
}

impl<'a> Row<'a> {
    const BAD: RpmError = RpmError::Damaged("a row is broken");
    /// rpm's table has two columns, the schema five.
    const MOST_COLUMNS: usize = 8;

    fn parse(record: &'a [u8]) -> Result<Row<'a>, RpmError> {
        let (header, mut at) = varint(record, 0).ok_or(Self::BAD)?;
        let header = usize::try_from(header).map_err(|_| Self::BAD)?;
        let mut start = header;
        let mut columns = Vec::new();
        while at < header && columns.len() < Self::MOST_COLUMNS {
            let (kind, size) = varint(record, at).ok_or(Self::BAD)?;
            at += size;
            let length = match kind {
                0 | 8 | 9 => 0,
                1..=4 => kind as usize,
                5 => 6,
                6 | 7 => 8,
                10 | 11 => return Err(Self::BAD),
                _ => usize::try_from((kind - 12) / 2).map_err(|_| Self::BAD)?,
            };
            columns.push((kind, start, length));
            start = start.checked_add(length).ok_or(Self::BAD)?;
        }
        Ok(Row { record, columns })
    }

    fn column(&self, column: usize, wanted: impl Fn(u64) -> bool) -> Result<&'a [u8], RpmError> {
        let &(kind, start, length) = self.columns.get(column).ok_or(Self::BAD)?;
        if !wanted(kind) {
            return Err(Self::BAD);
        }
        slice(self.record, start, length).ok_or(Self::BAD)
    }

    fn blob(&self, column: usize) -> Result<&'a [u8], RpmError> {
        self.column(column, |kind| kind >= 12 && kind % 2 == 0)
    }

    fn text(&self, column: usize) -> Result<&'a [u8], RpmError> {
        self.column(column, |kind| kind >= 13 && kind % 2 == 1)
    }

    /// A number that is an index.
    fn integer(&self, column: usize) -> Result<usize, RpmError> {
        match self.columns.get(column) {
            Some((8, ..)) => return Ok(0),
            Some((9, ..)) => return Ok(1),
            _ => {}
        }
        let bytes = self.column(column, |kind| (1..=6).contains(&kind))?;
        // A negative one becomes too large to be a page.
        bytes
            .iter()
            .try_fold(0_usize, |value, byte| value.checked_mul(256)?.checked_add(usize::from(*byte)))
            .ok_or(Self::BAD)
    }
}

/// The pages that the log adds to the database.
#[derive(Default)]
struct Log<'a> {
    pages: HashMap<usize, &'a [u8]>,
    page_bytes: usize,
    /// Length of the database after the last commit.
    database_pages: usize,
}

/// Reads the log up to its last commit. Anything after it, or left from an older round, is ignored, as in SQLite's own
/// recovery.
fn read_wal(wal: &[u8]) -> Log<'_> {
    let mut log = Log::default();
    let Some(header) = wal.get(..WAL_HEADER_BYTES) else { return log };
    let number = |at| Order::Big.u32(header, at).unwrap_or(0);
    let (magic, version, page_bytes) = (number(0), number(4), number(8) as usize);
    if magic & !1 != WAL_MAGIC || version != WAL_VERSION || !page_bytes.is_power_of_two() || page_bytes < 512 {
        return log;
    }
    let order = if magic & 1 == 1 { Order::Big } else { Order::Little };
    let mut sum = checksum(order, (0, 0), &header[..24]);
    if sum != (number(24), number(28)) {
        return log;
    }
    log.page_bytes = page_bytes;
    // Pages that a later commit frame makes valid.
    let mut pending = Vec::new();
    for frame in wal[WAL_HEADER_BYTES..].chunks_exact(FRAME_HEADER_BYTES + page_bytes) {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        let number = |at| Order::Big.u32(head, at).unwrap_or(0);
        sum = checksum(order, checksum(order, sum, &head[..8]), page);
        if head[8..16] != header[16..24] || sum != (number(16), number(20)) {
            break;
        }
        pending.push((number(0) as usize, page));
        if number(4) != 0 {
            log.database_pages = number(4) as usize;
            log.pages.extend(pending.drain(..));
        }
    }
    log
}

/// The log's running checksum over a multiple of eight bytes.
fn checksum(order: Order, (mut a, mut b): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    for pair in bytes.chunks_exact(8) {
        let number = |at| order.u32(pair, at).unwrap_or(0);
        a = a.wrapping_add(number(0)).wrapping_add(b);
        b = b.wrapping_add(number(4)).wrapping_add(a);
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x7f], 127),
            (&[0x81, 0x00], 128),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], u64::MAX),
        ] {
            assert_eq!(varint(bytes, 0), Some((value, bytes.len())));
            assert_eq!(varint(&bytes[..bytes.len() - 1], 0), None);
        }
    }
}
