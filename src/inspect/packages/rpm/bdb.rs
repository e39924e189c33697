//! Berkeley DB's hash format, `Packages`, as rpm wrote it until 4.16: bytes → headers.
//!
//! The format (Berkeley DB's `dbinc/db_page.h`), in the byte order of the machine that wrote it: pages of one size, the
//! first of which says which. A hash page holds keys and values in turn; a value that does not fit, as nearly all headers
//! do not, is a chain of overflow pages. The key is the package's number; number 0 holds the next free number.

use super::bytes::{Order, Visited, slice};
use super::{RpmError, Visit};
use std::borrow::Cow;

const HASH_MAGIC: u32 = 0x0006_1561;
const BTREE_MAGIC: u32 = 0x0005_3162;
const PAGE_HEADER_BYTES: usize = 26;

/// Types of a page.
const FREE: u8 = 0;
const HASH_UNSORTED: u8 = 2;
const OVERFLOW: u8 = 7;
const HASH_META: u8 = 8;
const HASH: u8 = 13;

/// Types of an item on a hash page.
const KEY_DATA: u8 = 1;
const OFF_PAGE: u8 = 3;

/// Calls `visit` with the header of every package.
///
/// # Errors
/// A database that is cut off, damaged, encrypted, or not a hash.
pub(super) fn visit_headers(database: &[u8], visit: Visit<'_>) -> Result<(), RpmError> {
    let mut file = File::open(database)?;
    let mut packages = 0_u32;
    for number in 1..file.pages {
        let page = file.page(number)?;
        match page[25] {
            HASH | HASH_UNSORTED => packages += file.visit_page(page, visit)?,
            FREE | OVERFLOW => {}
            _ => return Err(RpmError::Damaged("a page is of an unknown type")),
        }
    }
    // A hash page that lost its type would silently lose packages. The count is only kept if the writer locks
    // the whole file, as rpm does; elsewhere it stays zero.
    if packages < file.entries {
        return Err(RpmError::Damaged("it has fewer packages than it claims"));
    }
    Ok(())
}

struct File<'a> {
    bytes: &'a [u8],
    order: Order,
    page_bytes: usize,
    pages: usize,
    /// Keys, the one for the next free number included.
    entries: u32,
    visited: Visited,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Result<File<'a>, RpmError> {
        let magic = |order: Order| order.u32(bytes, 12);
        let order = [Order::Little, Order::Big]
            .into_iter()
            .find(|order| matches!(magic(*order), Some(HASH_MAGIC | BTREE_MAGIC)))
            .ok_or(RpmError::NotADatabase("Berkeley DB"))?;
        if magic(order) == Some(BTREE_MAGIC) {
            return Err(RpmError::Unsupported("a Berkeley DB tree, not a hash"));
        }
        match (bytes.get(24), bytes.get(25)) {
            (Some(0), Some(&HASH_META)) => {}
            (Some(0), _) => return Err(RpmError::Damaged("the first page does not belong to a hash")),
            _ => return Err(RpmError::Unsupported("an encrypted Berkeley DB")),
        }
        let page_bytes = order.index(bytes, 20).filter(|size| size.is_power_of_two() && (512..=65536).contains(size));
        let page_bytes = page_bytes.ok_or(RpmError::Damaged("its page size is impossible"))?;
        let pages = order.index(bytes, 32).and_then(|last| last.checked_add(1)).ok_or(RpmError::Truncated)?;
        if pages.checked_mul(page_bytes).is_none_or(|length| length > bytes.len()) {
            return Err(RpmError::Truncated);
        }
        let entries = order.u32(bytes, 88).ok_or(RpmError::Truncated)?;
        Ok(File { bytes, order, page_bytes, pages, entries, visited: Visited::of(pages) })
    }

    fn page(&self, number: usize) -> Result<&'a [u8], RpmError> {
        number
            .checked_mul(self.page_bytes)
            .filter(|_| number < self.pages)
            .and_then(|at| slice(self.bytes, at, self.page_bytes))
            .ok_or(RpmError::Truncated)
    }

    /// Visits the packages of one hash page; returns how many entries it has.
    fn visit_page(&mut self, page: &'a [u8], visit: Visit<'_>) -> Result<u32, RpmError> {
        const BAD: RpmError = RpmError::Damaged("a hash page is out of order");
        let items = usize::from(self.order.u16(page, 20).ok_or(BAD)?);
        let offset = |item: usize| self.order.u16(page, PAGE_HEADER_BYTES + 2 * item).map(usize::from);
        let mut found = Vec::with_capacity(items / 2);
        // Items are stored consecutively from the page's end towards its front.
        let mut end = page.len();
        for item in 0..items {
            let start = offset(item).filter(|start| *start < end).ok_or(BAD)?;
            found.push(&page[start..end]);
            end = start;
        }
        if end < PAGE_HEADER_BYTES + 2 * items || items % 2 != 0 {
            return Err(BAD);
        }
        for pair in found.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if key[0] != KEY_DATA || key.len() != 5 {
                return Err(RpmError::Damaged("a key is not a package number"));
            }
            if key[1..] == [0; 4] {
                continue;
            }
            let header = match value[0] {
                KEY_DATA => Cow::Borrowed(&value[1..]),
                OFF_PAGE => Cow::Owned(self.overflow(value)?),
                _ => return Err(RpmError::Damaged("a package is of an unknown type")),
            };
            visit(&header)?;
        }
        Ok((items / 2) as u32)
    }

    /// Puts a value together from its chain of overflow pages.
    fn overflow(&mut self, item: &[u8]) -> Result<Vec<u8>, RpmError> {
        const BAD: RpmError = RpmError::Damaged("a chain of pages is broken");
        let (Some(mut next), Some(length)) = (self.order.index(item, 4), self.order.index(item, 8)) else {
            return Err(BAD);
        };
        if length > self.bytes.len() {
            return Err(BAD);
        }
        let mut value = Vec::with_capacity(length);
        while next != 0 {
            if !self.visited.first(next) {
                return Err(BAD);
            }
            let page = self.page(next)?;
            let used = usize::from(self.order.u16(page, 22).ok_or(BAD)?);
            if page[25] != OVERFLOW {
                return Err(BAD);
            }
            value.extend_from_slice(slice(page, PAGE_HEADER_BYTES, used).ok_or(BAD)?);
            next = self.order.index(page, 16).ok_or(BAD)?;
        }
        if value.len() == length { Ok(value) } else { Err(BAD) }
    }
}
