//! rpm's own format, `Packages.db`, as SUSE uses it: bytes → headers.
//!
//! The format (rpm's `lib/backend/ndb/rpmpkg.c`), little-endian: a header of 32 bytes, slots of 16 bytes to the end of the
//! slot pages, then blobs at multiples of 16 bytes, each with its own header and checksum.

use super::bytes::{Order, slice};
use super::{RpmError, Visit};

const MAGIC: &[u8] = b"RpmP";
const SLOT_MAGIC: &[u8] = b"Slot";
const BLOB_MAGIC: &[u8] = b"BlbS";
const BLOB_END_MAGIC: &[u8] = b"BlbE";
/// The only version in existence.
const VERSION: u32 = 0;
const HEADER_BYTES: usize = 32;
const SLOT_BYTES: usize = 16;
const SLOT_PAGE_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 16;
const BLOB_HEADER_BYTES: usize = 16;
const BLOB_TAIL_BYTES: usize = 12;

/// Calls `visit` with the header of every package.
///
/// # Errors
/// A database that is cut off, damaged, or of a newer version.
pub(super) fn visit_headers(database: &[u8], visit: Visit<'_>) -> Result<(), RpmError> {
    let number = |at| Order::Little.u32(database, at);
    if database.get(..4) != Some(MAGIC) {
        return Err(RpmError::NotADatabase("ndb"));
    }
    match number(4) {
        Some(VERSION) => {}
        Some(_) => return Err(RpmError::Unsupported("a newer version of ndb")),
        None => return Err(RpmError::Truncated),
    }
    let slots_end = Order::Little
        .index(database, 12)
        .and_then(|pages| pages.checked_mul(SLOT_PAGE_BYTES))
        .filter(|end| *end >= HEADER_BYTES)
        .ok_or(RpmError::Truncated)?;
    let slots = database.get(HEADER_BYTES..slots_end).ok_or(RpmError::Truncated)?;
    let mut blocks_read = 0_usize;
    for slot in slots.chunks_exact(SLOT_BYTES) {
        let (Some(package), Some(offset), Some(blocks)) =
            (Order::Little.u32(slot, 4), Order::Little.index(slot, 8), Order::Little.index(slot, 12))
        else {
            return Err(RpmError::Truncated);
        };
        if slot[..4] != *SLOT_MAGIC {
            return Err(RpmError::Damaged("a slot has no magic"));
        }
        // An offset of zero: the slot is free.
        if offset == 0 {
            continue;
        }
        // Blobs do not overlap: together they are no longer than the file.
        blocks_read = blocks_read.saturating_add(blocks);
        if blocks_read > database.len() / BLOCK_BYTES {
            return Err(RpmError::Damaged("the packages are longer than the file"));
        }
        visit(blob(database, package, offset, blocks)?)?;
    }
    Ok(())
}

fn blob(database: &[u8], package: u32, offset: usize, blocks: usize) -> Result<&[u8], RpmError> {
    let whole = offset
        .checked_mul(BLOCK_BYTES)
        .zip(blocks.checked_mul(BLOCK_BYTES))
        .and_then(|(at, length)| slice(database, at, length))
        .ok_or(RpmError::Truncated)?;
    let number = |at| Order::Little.u32(whole, at);
    if whole.get(..4) != Some(BLOB_MAGIC) || number(4) != Some(package) {
        return Err(RpmError::Damaged("a slot does not lead to its package"));
    }
    let length = Order::Little.index(whole, 12).ok_or(RpmError::Truncated)?;
    let content =
        slice(whole, BLOB_HEADER_BYTES, length).ok_or(RpmError::Damaged("a package is longer than its slot"))?;
    let (body, tail) = whole.split_at_checked(whole.len() - BLOB_TAIL_BYTES).ok_or(RpmError::Truncated)?;
    if tail.get(8..) != Some(BLOB_END_MAGIC) || Order::Little.u32(tail, 0) != Some(adler32(body)) {
        return Err(RpmError::Damaged("a package's checksum is wrong"));
    }
    Ok(content)
}

/// Adler-32 (RFC 1950) of a blob with its header and padding.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    /// Longest run whose sums fit 32 bits (RFC 1950's own figure).
    const RUN: usize = 5552;
    let (mut a, mut b) = (1_u32, 0_u32);
    for run in bytes.chunks(RUN) {
        for byte in run {
            a += u32::from(*byte);
            b += a;
        }
        a %= MODULUS;
        b %= MODULUS;
    }
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum() {
        // RFC 1950 has no example; this one is widely published.
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        assert_eq!(adler32(&[0xff; 20_000]), adler32_slow(&[0xff; 20_000]));
    }

    fn adler32_slow(bytes: &[u8]) -> u32 {
        let sum = |(a, b): (u64, u64), byte: &u8| ((a + u64::from(*byte)) % 65521, (b + a + u64::from(*byte)) % 65521);
        let (a, b) = bytes.iter().fold((1, 0), sum);
        (b << 16 | a) as u32
    }
}
