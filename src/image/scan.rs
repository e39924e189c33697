//! Finds what a program or library states about itself, while its bytes stream past.
//!
//! Input: the content of one file, in chunks of any size; output: the text after each marker, and the ELF facts. Libraries of several
//! gigabytes pass through here, so nothing but a small window is ever held.

use super::elf::{Elf, ElfReader};
use memchr::memmem::Finder;

/// Text that precedes a fact inside a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Marker {
    /// The version line that NCCL prints at start-up.
    NcclVersion,
    /// The version node of libibverbs' private symbols; its number is the provider ABI.
    VerbsPrivateAbi,
    /// The suffix of the provider files that libibverbs opens.
    ProviderSuffix,
    /// The transport name that the eRDMA vendor's `ibv_devinfo` prints and the stock one does not.
    ErdmaTransport,
}

impl Marker {
    const ALL: [Marker; 4] =
        [Marker::NcclVersion, Marker::VerbsPrivateAbi, Marker::ProviderSuffix, Marker::ErdmaTransport];

    fn needle(self) -> &'static [u8] {
        match self {
            Marker::NcclVersion => b"NCCL version ",
            Marker::VerbsPrivateAbi => b"IBVERBS_PRIVATE_",
            Marker::ProviderSuffix => b"-rdmav",
            Marker::ErdmaTransport => b"eRDMA",
        }
    }
}

/// One marker found, and the printable text behind it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hit {
    pub marker: Marker,
    /// Printable ASCII directly behind the marker, at most [`TAIL_BYTES`] long.
    pub tail: String,
}

/// What was found in one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// In order of appearance per marker, without repeats.
    pub hits: Vec<Hit>,
    /// `None`: the file is not an ELF file.
    pub elf: Option<Elf>,
}

/// How much text behind a marker is kept, in bytes. The longest wanted is `2.20.3rc1+cuda12.4`.
const TAIL_BYTES: usize = 48;
/// Distinct hits kept per file; a file that repeats a marker with ever new text is not a library of interest.
const MAX_HITS: usize = 64;

/// The running search over one file.
pub struct Scanner {
    finders: Vec<(Marker, Finder<'static>)>,
    window: Vec<u8>,
    hits: Vec<Hit>,
    elf: ElfReader,
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner {
            finders: Marker::ALL.into_iter().map(|marker| (marker, Finder::new(marker.needle()))).collect(),
            window: Vec::new(),
            hits: Vec::new(),
            elf: ElfReader::default(),
        }
    }
}

impl Scanner {
    /// Takes the next bytes of the file.
    pub fn push(&mut self, chunk: &[u8]) {
        self.elf.push(chunk);
        self.window.extend_from_slice(chunk);
        // The last bytes may hold a marker whose tail has not arrived yet: they are looked at again with what follows.
        let keep = Self::overlap().min(self.window.len());
        let complete = self.window.len() - keep;
        self.search(complete);
        self.window.drain(..complete);
    }

    /// Ends the file and gives what was found.
    pub fn finish(mut self) -> Scanned {
        self.search(self.window.len());
        Scanned { hits: self.hits, elf: self.elf.finish() }
    }

    fn overlap() -> usize {
        let longest = Marker::ALL.iter().map(|marker| marker.needle().len()).max().unwrap_or(0);
        longest + TAIL_BYTES
    }

    /// Records the markers that start before `limit`.
    fn search(&mut self, limit: usize) {
        for (marker, finder) in &self.finders {
            for at in finder.find_iter(&self.window) {
                if at >= limit || self.hits.len() >= MAX_HITS {
                    break;
                }
                let tail = self.window[at + finder.needle().len()..].iter().take(TAIL_BYTES);
                let tail: String = tail.take_while(|b| b.is_ascii_graphic()).map(|b| *b as char).collect();
                let hit = Hit { marker: *marker, tail };
                if !self.hits.contains(&hit) {
                    self.hits.push(hit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: &[u8] =
        b"\x7fELF...NCCL version 2.21.5+cuda12.4\n\0more\0IBVERBS_PRIVATE_34\0-rdmav34.so\0-rdmav34.so\0";

    #[test]
    fn any_chunking_finds_the_same() {
        let whole = {
            let mut scanner = Scanner::default();
            scanner.push(BLOB);
            let mut hits = scanner.finish().hits;
            hits.sort();
            hits
        };
        let expected = [
            (Marker::NcclVersion, "2.21.5+cuda12.4"),
            (Marker::VerbsPrivateAbi, "34"),
            (Marker::ProviderSuffix, "34.so"),
        ];
        assert_eq!(whole, expected.map(|(marker, tail)| Hit { marker, tail: tail.to_owned() }));
        for size in 1..BLOB.len() {
            let mut scanner = Scanner::default();
            BLOB.chunks(size).for_each(|chunk| scanner.push(chunk));
            let mut hits = scanner.finish().hits;
            hits.sort();
            assert_eq!(hits, whole, "chunks of {size}");
        }
    }

    #[test]
    fn the_window_stays_small() {
        let mut scanner = Scanner::default();
        for _ in 0..1000 {
            scanner.push(&[b'x'; 4096]);
            assert!(scanner.window.len() <= Scanner::overlap());
        }
        assert!(scanner.finish().hits.is_empty());
    }
}
