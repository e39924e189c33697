//! rpm packages (rpm, docs/manual/format.md): the lead, a signature header, the header, the payload.
//!
//! The file's own digests are verified; signatures are not: rpm checks them in the build.

use super::{Form, PackageFile, PackageFileError};
use crate::inspect::packages::rpm::header::{ENTRY_BYTES, Header, MAX_DATA_BYTES, MAX_ENTRIES, Tag};
use crate::inspect::packages::rpm::{RpmError, read_package_header};
use sha2::{Digest as _, Sha256};
use std::io::{self, Read};

/// Start of the lead (rpm, docs/manual/format_lead.md).
pub(super) const MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
const LEAD: usize = 96;
/// Major version of the format; 5 and later state 4 here.
const MAJOR: usize = 4;
/// Start of a header, before four reserved bytes (rpm, docs/manual/format_header.md).
const HEADER_MAGIC: [u8; 4] = [0x8e, 0xad, 0xe8, 1];
/// The signature header ends at a multiple of this.
const ALIGNMENT: usize = 8;
/// Number of SHA-256 among OpenPGP's digests (RFC 9580, 9.5).
const SHA256: u32 = 8;

/// Reads a package file from its start.
pub(super) fn read_rpm(file: impl Read) -> Result<PackageFile, PackageFileError> {
    let mut file = Hashed { file, hash: Sha256::new() };
    let mut lead = [0; LEAD];
    file.fill(&mut lead, "lead")?;
    if ![3, 4].contains(&lead[MAJOR]) {
        return Err(PackageFileError::Format(lead[MAJOR].to_string()));
    }
    let signatures = file.header("signature header")?;
    let mut padding = [0; ALIGNMENT];
    let padded = signatures.len().next_multiple_of(ALIGNMENT) - signatures.len();
    file.fill(&mut padding[..padded], "signature header")?;
    let signatures = Header::parse(&signatures[ALIGNMENT..])?;
    let bytes = file.header("header")?;
    if let Some(digest) = signatures.text(Tag::HeaderSha256)?
        && digest != hex(&Sha256::digest(&bytes))
    {
        return Err(PackageFileError::Digest { part: "header" });
    }
    let header = Header::parse(&bytes[ALIGNMENT..])?;
    // A source package names what it builds, but no source of its own.
    if header.text(Tag::SourceRpm)?.is_none() {
        return Err(PackageFileError::Source);
    }
    let (package, files) = read_package_header(&header)?;

    let mut payload = Sha256::new();
    let mut length = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                payload.update(&buffer[..n]);
                length += n;
            }
        }
    }
    if let Some(size) = signatures.numbers(Tag::SIGNED_BYTES)?.next()
        && bytes.len() + length < size as usize
    {
        return Err(PackageFileError::Truncated { member: "payload".to_owned() });
    }
    if header.numbers(Tag::PayloadDigestAlgorithm)?.next() == Some(SHA256)
        && let Some(digest) = header.text(Tag::PayloadDigest)?
        && digest != hex(&payload.finalize())
    {
        return Err(PackageFileError::Digest { part: "payload" });
    }
    Ok(PackageFile { package, files: Some(files), form: Form::Rpm { sha256: hex(&file.hash.finalize()) } })
}

fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file, and the digest of what was read of it.
struct Hashed<R> {
    file: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.hash.update(&buffer[..n]);
        Ok(n)
    }
}

impl<R: Read> Hashed<R> {
    fn fill(&mut self, buffer: &mut [u8], member: &str) -> Result<(), PackageFileError> {
        self.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PackageFileError::Truncated { member: member.to_owned() },
            _ => error.into(),
        })
    }

    /// A header with the eight bytes before it.
    fn header(&mut self, member: &str) -> Result<Vec<u8>, PackageFileError> {
        let mut start = [0; 16];
        self.fill(&mut start, member)?;
        if start[..4] != HEADER_MAGIC {
            let problem = "it does not start like one".to_owned();
            return Err(PackageFileError::Damaged { member: member.to_owned(), problem });
        }
        let number = |at: usize| u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]]) as usize;
        let (entries, data) = (number(8), number(12));
        if entries > MAX_ENTRIES || data > MAX_DATA_BYTES {
            return Err(RpmError::Header("has an impossible size").into());
        }
        let length = entries * ENTRY_BYTES + data;
        let mut header = start.to_vec();
        // Never allocates more than the file has.
        self.take(length as u64).read_to_end(&mut header)?;
        if header.len() < start.len() + length {
            return Err(PackageFileError::Truncated { member: member.to_owned() });
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package_file::read_package_file;
    use crate::package_file::testing::{RpmText, rpm};
    use std::io::Cursor;

    const TEXT: RpmText<'_> = RpmText {
        name: "libibverbs",
        version: "44.1",
        release: "2",
        arch: "x86_64",
        source: "rdma-core-44.1-2.src.rpm",
        requires: &["rdma-core(x86-64)", "libnl-3.so.200()(64bit)"],
        files: &["libibverbs.so.1", "liberdma-rdmav34.so"],
    };

    fn read(bytes: &[u8]) -> Result<PackageFile, PackageFileError> {
        read_package_file(Cursor::new(bytes))
    }

    #[test]
    fn what_a_file_says_of_itself() {
        let bytes = rpm(&TEXT);
        let file = read(&bytes).unwrap();
        let package = &file.package;
        assert_eq!((package.name.as_str(), package.version.as_str()), ("libibverbs", "44.1-2"));
        assert_eq!((package.architecture.as_str(), package.source.as_deref()), ("x86_64", Some("rdma-core")));
        assert_eq!(package.depends, "rdma-core(x86-64), libnl-3.so.200()(64bit)");
        assert_eq!(file.files.unwrap(), ["usr/lib64/libibverbs.so.1", "usr/lib64/liberdma-rdmav34.so"]);
        assert_eq!(file.form, Form::Rpm { sha256: hex(&Sha256::digest(&bytes)) });
    }

    /// A truncated or changed file gives an error, never a panic and never another package.
    #[test]
    fn damaged_files() {
        let whole = rpm(&TEXT);
        let good = read(&whole).unwrap();
        // The header and what follows it.
        let protected = memchr::memmem::rfind(&whole, &HEADER_MAGIC).unwrap();
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "the first {length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            if let Ok(file) = read(&changed) {
                // The lead's fields have no meaning any more, and no digest covers the signatures.
                assert!(file.package == good.package && at < protected, "{at}");
            }
        }
    }

    #[test]
    fn what_it_is_instead_is_said() {
        let said = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        let whole = rpm(&TEXT);
        assert_eq!(said(&whole[..20]), "it ends in the middle of lead: it was not copied completely");
        assert_eq!(said(&whole[..whole.len() - 1]), "it ends in the middle of payload: it was not copied completely");
        let mut newer = whole.clone();
        newer[MAJOR] = 6;
        assert_eq!(said(&newer), "its format is \"6\", which is newer than this program");
        let mut no_header = whole.clone();
        no_header[LEAD] = 0;
        assert_eq!(said(&no_header), "its signature header is damaged: it does not start like one");
        let mut other = whole.clone();
        *other.last_mut().unwrap() ^= 1;
        assert!(said(&other).starts_with("its payload does not match"), "{}", said(&other));
        assert!(said(&rpm(&RpmText { source: "", ..TEXT })).starts_with("it is a source package"));
        assert!(said(&rpm(&RpmText { name: "", ..TEXT })).contains("has no name"));
    }
}
