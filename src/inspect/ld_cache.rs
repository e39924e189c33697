//! `/etc/ld.so.cache`: bytes → entries.
//!
//! The layout is that of glibc's `sysdeps/generic/dl-cache.h`: `glibc-ld.so.cache1.1`, which ldconfig writes alone since 2.32 and
//! wrote after an old-format part (`ld.so-1.7.0`) before. The input is untrusted: every length is checked.

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
/// Bytes before the entries of the old part, and per entry.
const OLD_HEADER: usize = 12;
const OLD_ENTRY: usize = 12;
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
/// The alignment of the new part, which holds 64-bit fields.
const NEW_ALIGNMENT: usize = 8;
/// `cache_file_new_flags_endian_big`; zero and 2 (little) are both of x86-64 and AArch64.
const BIG_ENDIAN: u8 = 3;
/// Most entries that are read; a large distribution has some thousand.
const MAX_ENTRIES: usize = 200_000;

/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64` and `FLAG_ELF_LIBC6 | FLAG_AARCH64_LIB64` (`sysdeps/generic/ldconfig.h`).
const FLAGS_AMD64: u32 = 0x0303;
const FLAGS_ARM64: u32 = 0x0a03;

/// One library as ldconfig found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    pub flags: u32,
    pub name: String,
    /// Absolute.
    pub path: String,
    /// The library is in a `glibc-hwcaps` directory: only some processors get it.
    pub for_some_processors: bool,
}

impl CacheEntry {
    /// Whether a process of this architecture (Go's name) uses the entry.
    pub fn fits(&self, architecture: &str) -> bool {
        match architecture {
            "amd64" => self.flags == FLAGS_AMD64,
            "arm64" => self.flags == FLAGS_ARM64,
            _ => true,
        }
    }
}

/// Why a cache cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    #[error("it does not start like a loader cache")]
    Magic,
    #[error("it has only the format that glibc before 2.2 wrote")]
    OldFormat,
    #[error("it is big-endian")]
    BigEndian,
    #[error("it ends within its {0}")]
    Truncated(&'static str),
    #[error("it claims to have {0} entries")]
    TooManyEntries(u32),
}

/// Reads a cache, in its own order, which is the loader's.
///
/// # Errors
/// The input is not a cache, or it is truncated or damaged.
pub fn parse_cache(bytes: &[u8]) -> Result<Vec<CacheEntry>, CacheError> {
    let cache = new_part(bytes)?;
    let header = cache.get(..NEW_HEADER).ok_or(CacheError::Truncated("header"))?;
    if header[28] & 3 == BIG_ENDIAN {
        return Err(CacheError::BigEndian);
    }
    let count = u32_at(header, 20).ok_or(CacheError::Truncated("header"))?;
    let entries = usize::try_from(count).ok().filter(|n| *n <= MAX_ENTRIES).ok_or(CacheError::TooManyEntries(count))?;
    let table = cache.get(NEW_HEADER..NEW_HEADER + entries * NEW_ENTRY).ok_or(CacheError::Truncated("entries"))?;
    table
        .chunks_exact(NEW_ENTRY)
        .map(|entry| {
            let text = |at| u32_at(entry, at).and_then(|offset| text_at(cache, offset));
            Ok(CacheEntry {
                flags: u32_at(entry, 0).ok_or(CacheError::Truncated("entries"))?,
                name: text(4).ok_or(CacheError::Truncated("strings"))?,
                path: text(8).ok_or(CacheError::Truncated("strings"))?,
                for_some_processors: entry[16..24] != [0; 8],
            })
        })
        .collect()
}

/// The part in the new format; offsets of strings count from its start.
fn new_part(bytes: &[u8]) -> Result<&[u8], CacheError> {
    if bytes.starts_with(NEW_MAGIC) {
        return Ok(bytes);
    }
    if !bytes.starts_with(OLD_MAGIC) {
        return Err(CacheError::Magic);
    }
    let count = u32_at(bytes, OLD_HEADER).ok_or(CacheError::Truncated("header"))?;
    let start = (count as usize)
        .checked_mul(OLD_ENTRY)
        .and_then(|size| size.checked_add(OLD_HEADER + 4))
        .and_then(|end| end.checked_next_multiple_of(NEW_ALIGNMENT));
    let rest = start.and_then(|start| bytes.get(start..)).ok_or(CacheError::Truncated("old part"))?;
    if rest.starts_with(NEW_MAGIC) { Ok(rest) } else { Err(CacheError::OldFormat) }
}

/// A path is at most 4096 bytes long (`PATH_MAX`).
const MAX_TEXT: usize = 4096;

fn text_at(cache: &[u8], offset: u32) -> Option<String> {
    let rest = cache.get(usize::try_from(offset).ok()?..)?;
    let end = rest.iter().take(MAX_TEXT).position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::ld_cache_bytes;

    fn cache() -> Vec<u8> {
        ld_cache_bytes(&[
            (FLAGS_AMD64, "libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1", 0),
            (FLAGS_AMD64, "libx.so", "/usr/lib/glibc-hwcaps/x86-64-v3/libx.so", 1 << 62),
            (FLAGS_ARM64, "libx.so", "/usr/lib/aarch64-linux-gnu/libx.so", 0),
        ])
    }

    #[test]
    fn both_forms_and_both_architectures() {
        let entries = parse_cache(&cache()).unwrap();
        let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/lib/x86_64-linux-gnu/libz.so.1",
                "/usr/lib/glibc-hwcaps/x86-64-v3/libx.so",
                "/usr/lib/aarch64-linux-gnu/libx.so"
            ]
        );
        assert!(entries[0].fits("amd64") && !entries[0].fits("arm64") && entries[2].fits("arm64"));
        assert_eq!(entries.iter().map(|e| e.for_some_processors).collect::<Vec<_>>(), [false, true, false]);
        // Before 2.32 the new part stood behind an old one; three entries of 12 bytes end at 52, and 56 is aligned.
        for old_entries in [0u32, 1, 3] {
            let mut both = OLD_MAGIC.to_vec();
            both.push(0);
            both.extend(old_entries.to_le_bytes());
            both.resize(both.len() + old_entries as usize * OLD_ENTRY, 0xaa);
            both.resize(both.len().next_multiple_of(8), 0);
            both.extend(cache());
            assert_eq!(parse_cache(&both).as_ref(), Ok(&entries), "{old_entries}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = cache();
        for end in 0..whole.len() {
            assert!(parse_cache(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            // No panic; what is read is bounded by the file.
            let _ = parse_cache(&damaged);
        }
        let mut many = whole.clone();
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse_cache(&many), Err(CacheError::TooManyEntries(u32::MAX)));
        assert_eq!(parse_cache(b"ELF"), Err(CacheError::Magic));
        assert_eq!(parse_cache(b"ld.so-1.7.0\0\xff\xff\xff\xff"), Err(CacheError::Truncated("old part")));
        assert_eq!(parse_cache(&[b"ld.so-1.7.0\0\0\0\0\0".as_slice(), &[0; 64]].concat()), Err(CacheError::OldFormat));
    }
}
