//! One rpm header, of which every rpm database holds one per package: bytes → tags.
//!
//! The format (rpm's `lib/header.c`; Linux Standard Base, "Package File Format"): two big-endian numbers, count of index
//! entries and length of the data; the entries, 16 bytes each (tag, type, offset into the data, count); the data. In a
//! database the eight bytes of magic at the start of a package file are left out. Nothing is copied before it is
//! requested.

use super::RpmError;
use super::bytes::{Order, slice};
use std::borrow::Cow;

/// Most index entries and data bytes that rpm itself accepts (`HEADER_TAGS_MAX`, `HEADER_DATA_MAX`).
pub const MAX_ENTRIES: usize = 0xffff;
pub const MAX_DATA_BYTES: usize = 256 << 20;

pub const ENTRY_BYTES: usize = 16;

/// Types of a tag's value (rpm's `rpmTagType_e`).
const INT32: u32 = 4;
const STRING: u32 = 6;
const STRING_ARRAY: u32 = 8;
const I18N_STRING: u32 = 9;
/// `CHAR` and `INT8` are both one byte.
const BYTE_TYPES: [u32; 2] = [1, 2];

/// Tags that are read here (rpm's `rpmTag_e`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Tag {
    /// In a signature header: the digest of the header that follows it.
    HeaderSha256 = 273,
    Name = 1000,
    Version = 1001,
    Release = 1002,
    Epoch = 1003,
    Arch = 1022,
    /// Whole paths, as in packages of rpm 3.
    OldFileNames = 1027,
    FileStates = 1029,
    SourceRpm = 1044,
    ProvideName = 1047,
    RequireFlags = 1048,
    RequireName = 1049,
    RequireVersion = 1050,
    ProvideFlags = 1112,
    ProvideVersion = 1113,
    DirIndexes = 1116,
    BaseNames = 1117,
    DirNames = 1118,
    PayloadDigest = 5092,
    PayloadDigestAlgorithm = 5093,
}

impl Tag {
    /// In a signature header this number means the size of everything that follows it (rpm's `rpmSigTag_e`).
    pub const SIGNED_BYTES: Tag = Tag::Name;
}

const TAGS: [Tag; 20] = [
    Tag::HeaderSha256,
    Tag::Name,
    Tag::Version,
    Tag::Release,
    Tag::Epoch,
    Tag::Arch,
    Tag::OldFileNames,
    Tag::FileStates,
    Tag::SourceRpm,
    Tag::ProvideName,
    Tag::RequireFlags,
    Tag::RequireName,
    Tag::RequireVersion,
    Tag::ProvideFlags,
    Tag::ProvideVersion,
    Tag::DirIndexes,
    Tag::BaseNames,
    Tag::DirNames,
    Tag::PayloadDigest,
    Tag::PayloadDigestAlgorithm,
];

#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: u32,
    offset: usize,
    count: usize,
}

/// A header whose index was read.
#[derive(Debug)]
pub struct Header<'a> {
    /// In the order of [`TAGS`].
    entries: [Option<Entry>; TAGS.len()],
    data: &'a [u8],
}

impl<'a> Header<'a> {
    /// Reads the index.
    ///
    /// # Errors
    /// Counts that rpm would not accept, or a header that is longer than its bytes.
    pub fn parse(blob: &'a [u8]) -> Result<Header<'a>, RpmError> {
        let broken = RpmError::Header("is cut off");
        let count = Order::Big.index(blob, 0).ok_or(broken.clone())?;
        let data_bytes = Order::Big.index(blob, 4).ok_or(broken.clone())?;
        if count == 0 || count > MAX_ENTRIES || data_bytes > MAX_DATA_BYTES {
            return Err(RpmError::Header("has an impossible size"));
        }
        let index = slice(blob, 8, count * ENTRY_BYTES).ok_or(broken.clone())?;
        let data = slice(blob, 8 + count * ENTRY_BYTES, data_bytes).ok_or(broken.clone())?;
        let mut entries = [None; TAGS.len()];
        for entry in index.chunks_exact(ENTRY_BYTES) {
            let number = |at| Order::Big.u32(entry, at).unwrap_or(0);
            if let Some(at) = TAGS.iter().position(|tag| *tag as u32 == number(0)) {
                // Tags added at installation follow the package's own and replace them.
                entries[at] = Some(Entry { kind: number(4), offset: number(8) as usize, count: number(12) as usize });
            }
        }
        Ok(Header { entries, data })
    }

    fn entry(&self, tag: Tag) -> Option<Entry> {
        TAGS.iter().position(|known| *known == tag).and_then(|at| self.entries[at])
    }

    /// A single text. `None`: the package lacks the tag.
    pub fn text(&self, tag: Tag) -> Result<Option<Cow<'a, str>>, RpmError> {
        match self.entry(tag) {
            Some(_) => self.texts(tag)?.next().transpose(),
            None => Ok(None),
        }
    }

    /// The texts of a tag, none if it is missing. Each is an error if the data ends too early.
    pub fn texts(&self, tag: Tag) -> Result<Texts<'a>, RpmError> {
        let Some(entry) = self.entry(tag) else {
            return Ok(Texts { rest: &[], left: 0 });
        };
        if ![STRING, STRING_ARRAY, I18N_STRING].contains(&entry.kind) {
            return Err(RpmError::Header("has a number where a text belongs"));
        }
        let rest = self.data.get(entry.offset..).ok_or(RpmError::Header("points behind its data"))?;
        Ok(Texts { rest, left: entry.count })
    }

    /// The numbers of a tag, none if it is missing.
    pub fn numbers(&self, tag: Tag) -> Result<impl Iterator<Item = u32> + use<'a>, RpmError> {
        let data = match self.entry(tag) {
            Some(entry) if entry.kind != INT32 => {
                return Err(RpmError::Header("has a text where a number belongs"));
            }
            Some(entry) => entry
                .count
                .checked_mul(4)
                .and_then(|length| slice(self.data, entry.offset, length))
                .ok_or(RpmError::Header("points behind its data"))?,
            None => &[],
        };
        Ok(data.chunks_exact(4).map(|bytes| Order::Big.u32(bytes, 0).unwrap_or(0)))
    }

    /// The bytes of a tag, none if it is missing.
    pub fn bytes(&self, tag: Tag) -> Result<&'a [u8], RpmError> {
        match self.entry(tag) {
            Some(entry) if !BYTE_TYPES.contains(&entry.kind) => Err(RpmError::Header("has no bytes where they belong")),
            Some(entry) => {
                slice(self.data, entry.offset, entry.count).ok_or(RpmError::Header("points behind its data"))
            }
            None => Ok(&[]),
        }
    }
}

/// Consecutive texts, each ended by a zero byte.
#[derive(Debug)]
pub struct Texts<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Texts<'a> {
    type Item = Result<Cow<'a, str>, RpmError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Some(end) = memchr::memchr(0, self.rest) else {
            self.left = 0;
            return Some(Err(RpmError::Header("ends inside a text")));
        };
        let text = String::from_utf8_lossy(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Some(Ok(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(entries: &[(u32, u32, u32, u32)], data: &[u8]) -> Vec<u8> {
        let mut blob = Vec::new();
        blob.extend((entries.len() as u32).to_be_bytes());
        blob.extend((data.len() as u32).to_be_bytes());
        for (tag, kind, offset, count) in entries {
            [tag, kind, offset, count].iter().for_each(|number| blob.extend(number.to_be_bytes()));
        }
        blob.extend(data);
        blob
    }

    #[test]
    fn texts_and_numbers() {
        let blob = header(&[(1000, 6, 0, 1), (1003, 4, 4, 1), (1049, 8, 8, 2)], b"abc\0\0\0\0\x01x\0yz\0");
        let header = Header::parse(&blob).unwrap();
        assert_eq!(header.text(Tag::Name).unwrap().as_deref(), Some("abc"));
        assert_eq!(header.text(Tag::Version).unwrap(), None);
        assert_eq!(header.numbers(Tag::Epoch).unwrap().collect::<Vec<_>>(), [1]);
        let names: Vec<_> = header.texts(Tag::RequireName).unwrap().map(Result::unwrap).collect();
        assert_eq!(names, ["x", "yz"]);
    }

    #[test]
    fn what_was_added_at_the_installation_wins() {
        let blob = header(&[(1000, 6, 0, 1), (1000, 6, 2, 1)], b"a\0b\0");
        assert_eq!(Header::parse(&blob).unwrap().text(Tag::Name).unwrap().as_deref(), Some("b"));
    }

    #[test]
    fn impossible_headers_are_errors() {
        for blob in [&[][..], &[0; 8], &header(&[(1000, 6, 0, 1)], b"a\0")[..20], &[0xff; 64]] {
            assert!(Header::parse(blob).is_err(), "{blob:?}");
        }
        for entry in [(1000, 4, 0, 1), (1000, 6, 9, 1), (1000, 6, u32::MAX, 1)] {
            let blob = header(&[entry], b"a\0");
            assert!(Header::parse(&blob).unwrap().text(Tag::Name).is_err(), "{entry:?}");
        }
        // More texts than there are end after those that there are.
        let blob = header(&[(1049, 8, 0, u32::MAX), (1048, 4, 0, u32::MAX)], b"a\0b\0");
        let header = Header::parse(&blob).unwrap();
        let texts: Vec<_> = header.texts(Tag::RequireName).unwrap().map(|text| text.is_ok()).collect();
        assert_eq!(texts, [true, true, false]);
        assert!(header.numbers(Tag::RequireFlags).is_err());
    }
}
