//! Content digests: bytes, whole or streaming past → `sha256:…`.

use super::ImageError;
use crate::reference::is_digest;
use sha2::{Digest as _, Sha256};
use std::io::{self, Read};

/// The digest of bytes in memory.
pub fn digest_of(bytes: &[u8]) -> String {
    written(&Sha256::digest(bytes))
}

fn written(hash: &[u8]) -> String {
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Compares a document with the digest under which it was named.
///
/// # Errors
/// The digests differ, or the algorithm is unknown.
pub fn verify(name: &str, bytes: &[u8], claimed: &str) -> Result<(), ImageError> {
    if !is_digest(claimed) {
        return Err(ImageError::UnknownDigest { name: name.to_owned(), digest: claimed.to_owned() });
    }
    let actual = digest_of(bytes);
    if actual.eq_ignore_ascii_case(claimed) {
        return Ok(());
    }
    Err(ImageError::DigestMismatch { name: name.to_owned(), claimed: claimed.to_owned(), actual })
}

/// Passes a stream through and optionally hashes it.
pub(super) struct Hashing<R> {
    inner: R,
    hasher: Option<Sha256>,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R, wanted: bool) -> Hashing<R> {
        Hashing { inner, hasher: wanted.then(Sha256::new) }
    }

    /// The digest of what was read; `None` if hashing is off.
    pub(super) fn finish(self) -> Option<String> {
        self.hasher.map(|hasher| written(&hasher.finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..n]);
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The digest of empty input, FIPS 180-4.
    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn whole_and_streamed_agree() {
        assert_eq!(digest_of(b""), EMPTY);
        let mut stream = Hashing::new(&b"abc"[..], true);
        io::copy(&mut stream, &mut io::sink()).unwrap();
        assert_eq!(stream.finish(), Some(digest_of(b"abc")));
        assert_eq!(Hashing::new(&b"abc"[..], false).finish(), None);
    }

    #[test]
    fn a_mismatch_names_both() {
        assert!(verify("config", b"", EMPTY).is_ok());
        let error = verify("config", b"abc", EMPTY).unwrap_err().to_string();
        assert!(error.contains(EMPTY) && error.contains(&digest_of(b"abc")), "{error}");
        assert!(matches!(verify("config", b"", "md5:d41d"), Err(ImageError::UnknownDigest { .. })));
    }
}
