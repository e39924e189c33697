//! What the dynamic loader reads of a shared object, taken while the file streams past.
//!
//! Input: the content of one file in chunks of any size; output: [`Elf`]. Nothing is held but the first
//! [`HEAD_BYTES`], the dynamic section and the few strings that it names, so a library of several gigabytes costs no more
//! than a small one. What cannot be had within that is [`Dynamic::Unknown`], never "none".
//! Layout: System V ABI, chapters 4 and 5 (gABI 4.1), and `elf.h` of glibc for the version definitions.

use std::collections::BTreeSet;

/// How much of the start of a file is held. The string table of most libraries ends before it; where it does not (C++
/// libraries of hundreds of megabytes), patchelf has moved it behind the dynamic section or the answer is "unknown".
const HEAD_BYTES: usize = 4 << 20;
/// Largest dynamic section that is read: 4096 entries; libtorch_cuda.so has about 60.
const MAX_DYNAMIC_BYTES: u64 = 64 << 10;
/// Longest name or search path; glibc's own limit for a path is 4096.
const MAX_STRING_BYTES: u64 = 4096;
/// Most NEEDED entries that are read.
const MAX_NEEDED: usize = 256;
/// Most version definitions that are read; libibverbs has about 15.
const MAX_VERSION_NODES: usize = 256;

const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;

/// One ELF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// 32 or 64.
    pub bits: u8,
    /// `e_machine`
    pub machine: u16,
    pub dynamic: Dynamic,
}

impl Elf {
    /// Whether the loader of an image for this architecture (Go's name) accepts the file.
    pub fn fits(&self, architecture: &str) -> bool {
        let machine = match architecture {
            "amd64" => EM_X86_64,
            "arm64" => EM_AARCH64,
            _ => return true,
        };
        self.bits == 64 && self.machine == machine
    }

    /// The dynamic section, if it was read.
    pub fn known(&self) -> Option<&DynamicSection> {
        match &self.dynamic {
            Dynamic::Known(section) => Some(section),
            Dynamic::None | Dynamic::Unknown(_) => None,
        }
    }
}

/// The dynamic section of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dynamic {
    /// The file has none: it is statically linked or not a program.
    None,
    /// The section exists but could not be read, for this reason.
    Unknown(&'static str),
    Known(DynamicSection),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DynamicSection {
    pub soname: Option<String>,
    /// In file order, which is the loader's.
    pub needed: Vec<String>,
    /// Unsplit, exactly as in the file.
    pub rpath: Option<String>,
    pub runpath: Option<String>,
    /// Names of the defined versions, sorted; `None`: out of reach.
    pub versions: Option<BTreeSet<String>>,
}

/// A wanted part of the file.
struct Capture {
    start: u64,
    len: u64,
    bytes: Vec<u8>,
}

impl Capture {
    fn new(start: u64, len: u64) -> Capture {
        Capture { start, len, bytes: Vec::new() }
    }

    /// Takes what a piece of the file at `at` adds.
    fn offer(&mut self, at: u64, piece: &[u8]) {
        let next = self.start + self.bytes.len() as u64;
        let missing = self.len - self.bytes.len() as u64;
        if missing == 0 || next < at {
            return;
        }
        let Ok(skip) = usize::try_from(next - at) else { return };
        if let Some(rest) = piece.get(skip..) {
            let take = rest.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
            self.bytes.extend_from_slice(&rest[..take]);
        }
    }

    fn is_complete(&self) -> bool {
        self.bytes.len() as u64 == self.len
    }
}

/// The role of a captured string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Soname,
    Needed,
    Rpath,
    Runpath,
}

/// The strings that the dynamic section names.
struct Strings {
    wanted: Vec<(Field, Capture)>,
    /// File offset and size of the string table.
    table: (u64, u64),
    /// File offset and number of the version definitions.
    versions: Option<(u64, u64)>,
}

enum Stage {
    /// Waiting for the header and the program headers.
    Headers,
    Dynamic(Capture),
    Strings(Strings),
    Done,
}

/// The running reader of one file.
pub struct ElfReader {
    head: Vec<u8>,
    position: u64,
    /// `p_offset`, `p_vaddr`, `p_filesz` of the loaded segments.
    segments: Vec<(u64, u64, u64)>,
    stage: Stage,
    elf: Option<Elf>,
}

impl Default for ElfReader {
    fn default() -> ElfReader {
        ElfReader { head: Vec::new(), position: 0, segments: Vec::new(), stage: Stage::Headers, elf: None }
    }
}

impl ElfReader {
    /// Takes the next bytes of the file.
    pub fn push(&mut self, chunk: &[u8]) {
        let at = self.position;
        self.position += chunk.len() as u64;
        if matches!(self.stage, Stage::Done) {
            return;
        }
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if matches!(self.stage, Stage::Headers) {
            self.read_headers(false);
        }
        if let Stage::Dynamic(capture) = &mut self.stage {
            capture.offer(0, &self.head);
            capture.offer(at, chunk);
            if capture.is_complete() {
                self.read_dynamic();
            }
        }
        if let Stage::Strings(strings) = &mut self.stage {
            for (_, capture) in &mut strings.wanted {
                capture.offer(0, &self.head);
                capture.offer(at, chunk);
            }
        }
    }

    /// Ends the file. `None`: it is not an ELF file.
    pub fn finish(mut self) -> Option<Elf> {
        if matches!(self.stage, Stage::Headers) {
            self.read_headers(true);
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Headers | Stage::Done => {}
            Stage::Dynamic(_) => self.set(Dynamic::Unknown("the file ends before its dynamic section")),
            Stage::Strings(strings) => {
                let dynamic = self.read_strings(&strings);
                self.set(dynamic);
            }
        }
        self.elf
    }

    fn set(&mut self, dynamic: Dynamic) {
        if let Some(elf) = &mut self.elf {
            elf.dynamic = dynamic;
        }
        self.stage = Stage::Done;
    }

    fn read_headers(&mut self, at_end: bool) {
        if self.elf.is_none() {
            match self.head.get(..20) {
                Some(ident) if ident.starts_with(b"\x7fELF") => {
                    let bits = if ident[4] == 2 { 64 } else { 32 };
                    let dynamic = Dynamic::Unknown("the file ends within its headers");
                    self.elf = Some(Elf { bits, machine: u16::from_le_bytes([ident[18], ident[19]]), dynamic });
                }
                Some(_) => return self.stage = Stage::Done,
                None => return,
            }
        }
        // Both architectures that images here have are 64-bit and little-endian.
        if self.head[4] != 2 || self.head[5] != 1 {
            return self.set(Dynamic::Unknown("the file is not 64-bit little-endian"));
        }
        let (Some(offset), Some(size), Some(count)) =
            (u64_at(&self.head, 32), u16_at(&self.head, 54), u16_at(&self.head, 56))
        else {
            return;
        };
        let end = offset.saturating_add(u64::from(size) * u64::from(count));
        if count > 0 && (size < 56 || end > HEAD_BYTES as u64) {
            return self.set(Dynamic::Unknown("its program headers are not where they are expected"));
        }
        if (self.head.len() as u64) < end {
            if at_end {
                self.set(Dynamic::Unknown("the file ends within its headers"));
            }
            return;
        }
        self.read_segments(offset as usize, usize::from(size), usize::from(count));
    }

    fn read_segments(&mut self, offset: usize, size: usize, count: usize) {
        let mut dynamic = None;
        for index in 0..count {
            let at = offset + index * size;
            let field = |skip| u64_at(&self.head, at + skip).unwrap_or_default();
            let segment = (field(8), field(16), field(32));
            match u32_at(&self.head, at) {
                Some(PT_LOAD) => self.segments.push(segment),
                Some(PT_DYNAMIC) => dynamic = Some(segment),
                _ => {}
            }
        }
        match dynamic {
            None => self.set(Dynamic::None),
            Some((_, _, 0)) => self.set(Dynamic::None),
            Some((_, _, size)) if size > MAX_DYNAMIC_BYTES => {
                self.set(Dynamic::Unknown("its dynamic section exceeds the size limit"));
            }
            Some((offset, _, size)) if offset.checked_add(size).is_some() => {
                self.stage = Stage::Dynamic(Capture::new(offset, size));
            }
            Some(_) => self.set(Dynamic::Unknown("its dynamic section is outside the file")),
        }
    }

    /// The file offset of an address in the loaded library.
    fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|(offset, start, size)| {
            let inside = address.checked_sub(*start).filter(|inside| inside < size)?;
            offset.checked_add(inside)
        })
    }

    fn read_dynamic(&mut self) {
        let Stage::Dynamic(capture) = std::mem::replace(&mut self.stage, Stage::Done) else { return };
        let mut names = Vec::new();
        let (mut table, mut table_size, mut definitions, mut count) = (None, None, None, 0);
        for entry in capture.bytes.chunks_exact(16) {
            let (Some(tag), Some(value)) = (u64_at(entry, 0), u64_at(entry, 8)) else { break };
            match tag {
                DT_NULL => break,
                DT_NEEDED if names.len() < MAX_NEEDED => names.push((Field::Needed, value)),
                DT_SONAME => names.push((Field::Soname, value)),
                DT_RPATH => names.push((Field::Rpath, value)),
                DT_RUNPATH => names.push((Field::Runpath, value)),
                DT_STRTAB => table = Some(value),
                DT_STRSZ => table_size = Some(value),
                DT_VERDEF => definitions = Some(value),
                DT_VERDEFNUM => count = value,
                _ => {}
            }
        }
        let table = table.and_then(|address| self.file_offset(address)).zip(table_size);
        let Some((offset, size)) = table else {
            return match names.is_empty() {
                true => self.set(Dynamic::Known(DynamicSection::default())),
                false => self.set(Dynamic::Unknown("its string table is outside the file")),
            };
        };
        let mut wanted = Vec::new();
        for (field, name) in names {
            let (Some(left), Some(start)) = (size.checked_sub(name), offset.checked_add(name)) else {
                return self.set(Dynamic::Unknown("a name is outside its string table"));
            };
            wanted.push((field, Capture::new(start, left.min(MAX_STRING_BYTES))));
        }
        let versions = definitions.and_then(|address| self.file_offset(address)).map(|at| (at, count));
        self.stage = Stage::Strings(Strings { wanted, table: (offset, size), versions });
    }

    fn read_strings(&self, strings: &Strings) -> Dynamic {
        let mut section = DynamicSection::default();
        for (field, capture) in &strings.wanted {
            let Some(text) = until_nul(&capture.bytes) else {
                return Dynamic::Unknown("a name in its dynamic section is beyond the part that is kept");
            };
            match field {
                Field::Soname => section.soname = Some(text),
                Field::Needed => section.needed.push(text),
                Field::Rpath => section.rpath = Some(text),
                Field::Runpath => section.runpath = Some(text),
            }
        }
        section.versions = match strings.versions {
            None => Some(BTreeSet::new()),
            Some((at, count)) => self.read_versions(at, count, strings.table),
        };
        Dynamic::Known(section)
    }

    /// Follows the chain of `Elf64_Verdef`; `None` if it leaves the part of the file that is held.
    fn read_versions(&self, mut at: u64, count: u64, table: (u64, u64)) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for _ in 0..count.min(MAX_VERSION_NODES as u64) {
            let here = usize::try_from(at).ok()?;
            let auxiliary = here.checked_add(u32_at(&self.head, here.checked_add(12)?)? as usize)?;
            let name = u64::from(u32_at(&self.head, auxiliary)?);
            let start = usize::try_from(table.0.checked_add(name).filter(|_| name < table.1)?).ok()?;
            names.insert(until_nul(self.head.get(start..)?)?);
            match u32_at(&self.head, here.checked_add(16)?)? {
                0 => break,
                next => at = at.checked_add(u64::from(next))?,
            }
        }
        Some(names)
    }
}

fn until_nul(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().take(MAX_STRING_BYTES as usize).position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::elf::Library;

    fn read(bytes: &[u8], chunk: usize) -> Option<Elf> {
        let mut reader = ElfReader::default();
        bytes.chunks(chunk).for_each(|chunk| reader.push(chunk));
        reader.finish()
    }

    fn library() -> Library {
        Library::new("libx.so.1").needs("libnccl.so.2").needs("libc.so.6").runpath("$ORIGIN/../lib").version("X_1.0")
    }

    #[test]
    fn any_chunking_reads_the_same() {
        let bytes = library().bytes();
        let whole = read(&bytes, bytes.len()).unwrap();
        let section = whole.known().unwrap();
        assert_eq!(section.soname.as_deref(), Some("libx.so.1"));
        assert_eq!(section.needed, ["libnccl.so.2", "libc.so.6"]);
        assert_eq!((section.runpath.as_deref(), section.rpath.as_deref()), (Some("$ORIGIN/../lib"), None));
        assert_eq!(section.versions, Some(BTreeSet::from(["X_1.0".to_owned()])));
        assert!(whole.fits("amd64") && !whole.fits("arm64"));
        for size in 1..bytes.len() {
            assert_eq!(read(&bytes, size).as_ref(), Some(&whole), "chunks of {size}");
        }
    }

    /// patchelf moves the string table to the end of the file, behind the dynamic section and far behind the head.
    #[test]
    fn a_string_table_behind_gigabytes_is_read_and_one_before_them_is_unknown() {
        let far = library().padding_before_strings(HEAD_BYTES + 100_000).bytes();
        let elf = read(&far, 256 << 10).unwrap();
        assert_eq!(elf.known().unwrap().needed, ["libnccl.so.2", "libc.so.6"]);
        assert_eq!(elf.known().unwrap().versions, None, "out of reach is not none");

        let passed = library().strings_first_after(HEAD_BYTES + 1).bytes();
        let elf = read(&passed, 16).unwrap();
        assert!(matches!(elf.dynamic, Dynamic::Unknown(_)), "{elf:?}");
    }

    #[test]
    fn damage_ends_in_an_answer() {
        let bytes = library().bytes();
        let whole = read(&bytes, 7).unwrap();
        for end in 0..bytes.len() {
            // What a truncated file still states is true; the last string is the version's, which is then out of reach.
            if let Some(section) = read(&bytes[..end], 7).as_ref().and_then(Elf::known) {
                assert_eq!(
                    (&section.needed, &section.versions),
                    (&whole.known().unwrap().needed, &None),
                    "cut at {end}"
                );
            }
        }
        // Every byte of the headers and the dynamic section, replaced: no panic, and a bounded answer.
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                read(&damaged, 64);
            }
        }
        assert_eq!(read(b"#!/bin/sh\nexec something else\n", 3), None);
        assert_eq!(read(b"", 1), None);
    }

    /// The linker's own work: this test program.
    #[test]
    fn a_real_program() {
        let path = std::env::current_exe().unwrap();
        let elf = read(&std::fs::read(path).unwrap(), 256 << 10).unwrap();
        let section = elf.known().unwrap();
        assert!(section.needed.iter().any(|name| name.starts_with("libc.so")), "{section:?}");
        assert_eq!(section.versions, Some(BTreeSet::new()));
    }
}
