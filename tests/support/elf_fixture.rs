//! Writes small shared objects for x86-64 and AArch64: an ELF header, two segments, a dynamic section and its strings.
//!
//! What a loader reads is right in every byte; there is no code. The layout is `readelf -dV` clean.

/// A shared object to be.
#[derive(Clone)]
pub struct Library {
    soname: String,
    needed: Vec<String>,
    rpath: Option<String>,
    runpath: Option<String>,
    versions: Vec<String>,
    machine: u16,
    payload: Vec<u8>,
    padding_before_strings: usize,
    strings_first_after: Option<usize>,
}

impl Library {
    pub fn new(soname: &str) -> Library {
        Library {
            soname: soname.to_owned(),
            needed: Vec::new(),
            rpath: None,
            runpath: None,
            versions: Vec::new(),
            machine: 62,
            payload: Vec::new(),
            padding_before_strings: 0,
            strings_first_after: None,
        }
    }

    pub fn needs(mut self, name: &str) -> Library {
        self.needed.push(name.to_owned());
        self
    }

    pub fn runpath(mut self, path: &str) -> Library {
        self.runpath = Some(path.to_owned());
        self
    }

    pub fn rpath(mut self, path: &str) -> Library {
        self.rpath = Some(path.to_owned());
        self
    }

    pub fn version(mut self, name: &str) -> Library {
        self.versions.push(name.to_owned());
        self
    }

    pub fn arm64(mut self) -> Library {
        self.machine = 183;
        self
    }

    /// Text that stands in the file, as in the data of a real library.
    pub fn text(mut self, text: &str) -> Library {
        self.payload.extend_from_slice(text.as_bytes());
        self.payload.push(0);
        self
    }

    /// Puts the strings this many bytes behind the dynamic section.
    pub fn padding_before_strings(mut self, bytes: usize) -> Library {
        self.padding_before_strings = bytes;
        self
    }

    /// Puts the strings before the dynamic section, this many bytes into the file.
    pub fn strings_first_after(mut self, bytes: usize) -> Library {
        self.strings_first_after = Some(bytes);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        const HEADERS: usize = 64 + 2 * 56;
        let mut strings = vec![0];
        let mut add = |text: &str| {
            let at = strings.len() as u64;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let mut dynamic: Vec<(u64, u64)> = self.needed.iter().map(|name| (1, add(name))).collect();
        dynamic.push((14, add(&self.soname)));
        dynamic.extend(self.rpath.as_ref().map(|path| (15, add(path))));
        dynamic.extend(self.runpath.as_ref().map(|path| (29, add(path))));
        let versions: Vec<u64> = self.versions.iter().map(|name| add(name)).collect();

        // STRTAB, STRSZ, VERDEF, VERDEFNUM and the end.
        let dynamic_len = (dynamic.len() + 5) * 16;
        let versions_len = versions.len() * 28;
        let (dynamic_at, strings_at, versions_at);
        match self.strings_first_after {
            Some(bytes) => {
                strings_at = HEADERS.max(bytes);
                dynamic_at = (strings_at + strings.len()).next_multiple_of(8);
                versions_at = dynamic_at + dynamic_len;
            }
            None => {
                dynamic_at = HEADERS;
                versions_at = dynamic_at + dynamic_len;
                strings_at = versions_at + versions_len + self.padding_before_strings;
            }
        }
        dynamic.extend([(5, strings_at as u64), (10, strings.len() as u64)]);
        if !versions.is_empty() {
            dynamic.extend([(0x6fff_fffc, versions_at as u64), (0x6fff_fffd, versions.len() as u64)]);
        }
        let body_end = (strings_at + strings.len()).max(versions_at + versions_len).max(dynamic_at + dynamic_len);

        let mut file = vec![0; body_end];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[6] = 1;
        put(&mut file, 16, &3u16.to_le_bytes());
        put(&mut file, 18, &self.machine.to_le_bytes());
        put(&mut file, 20, &1u32.to_le_bytes());
        put(&mut file, 32, &64u64.to_le_bytes());
        put(&mut file, 52, &64u16.to_le_bytes());
        put(&mut file, 54, &56u16.to_le_bytes());
        put(&mut file, 56, &2u16.to_le_bytes());
        segment(&mut file, 64, 1, 0, body_end);
        segment(&mut file, 64 + 56, 2, dynamic_at, dynamic_len);
        for (index, (tag, value)) in dynamic.iter().enumerate() {
            put(&mut file, dynamic_at + index * 16, &tag.to_le_bytes());
            put(&mut file, dynamic_at + index * 16 + 8, &value.to_le_bytes());
        }
        for (index, name) in versions.iter().enumerate() {
            let at = versions_at + index * 28;
            let next = if index + 1 == versions.len() { 0u32 } else { 28 };
            put(&mut file, at, &1u16.to_le_bytes());
            put(&mut file, at + 4, &(index as u16 + 1).to_le_bytes());
            put(&mut file, at + 6, &1u16.to_le_bytes());
            put(&mut file, at + 12, &20u32.to_le_bytes());
            put(&mut file, at + 16, &next.to_le_bytes());
            put(&mut file, at + 20, &(*name as u32).to_le_bytes());
        }
        put(&mut file, strings_at, &strings);
        file.extend_from_slice(&self.payload);
        file
    }
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn segment(file: &mut [u8], at: usize, kind: u32, offset: usize, size: usize) {
    put(file, at, &kind.to_le_bytes());
    put(file, at + 4, &4u32.to_le_bytes());
    for (field, value) in [(8, offset), (16, offset), (24, offset), (32, size), (40, size), (48, 8)] {
        put(file, at + field, &(value as u64).to_le_bytes());
    }
}
