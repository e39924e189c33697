//! Package files outside any repository: what each states about itself.
//!
//! Input: the bytes of a file. Output: a [`PackageFile`], or why it is not one. `deb` reads Debian's format, `ar` its
//! archive; `rpm` reads rpm's.

mod ar;
mod deb;
mod rpm;

use crate::facts::Package;
use crate::inspect::packages::rpm::RpmError;
use std::io::{Read, Seek, SeekFrom};

/// Why a package file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageFileError {
    #[error("it is not a package file")]
    NotAPackage,
    #[error("it ends in the middle of {member}: it was not copied completely")]
    Truncated { member: String },
    #[error("its {member} is damaged: {problem}")]
    Damaged { member: String, problem: String },
    #[error("it is a Debian package without {0}")]
    Missing(&'static str),
    #[error("its format is {0:?}, which is newer than this program")]
    Format(String),
    #[error("its control file is not that of a package: {0}")]
    Control(String),
    #[error(transparent)]
    Header(#[from] RpmError),
    #[error("it is a source package, which cannot be installed")]
    Source,
    #[error("its {part} does not match its stated digest: it was changed or damaged")]
    Digest { part: &'static str },
    #[error("reading it: {0}")]
    Read(#[from] std::io::Error),
}

/// A package file and its control data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// Name, version, architecture, dependencies; the state is `Installed`, as after installation.
    pub package: Package,
    /// The files that it would install, without a leading slash; `None`: it has no file list.
    pub files: Option<Vec<String>>,
    pub form: Form,
}

/// The format of a package file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Deb,
    Rpm {
        /// Digest of the whole file, in hexadecimal.
        sha256: String,
    },
}

impl Form {
    pub fn is_rpm(&self) -> bool {
        matches!(self, Form::Rpm { .. })
    }

    /// The name of the format.
    pub fn title(&self) -> &'static str {
        match self {
            Form::Deb => "a Debian package",
            Form::Rpm { .. } => "an rpm package",
        }
    }
}

/// Reads the control data of a package file. The payload is not read, only checked for presence.
///
/// # Errors
/// The file is not a package, or is damaged.
pub fn read_package_file(mut file: impl Read + Seek) -> Result<PackageFile, PackageFileError> {
    let mut magic = [0; ar::MAGIC.len()];
    file.read_exact(&mut magic).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => PackageFileError::NotAPackage,
        _ => PackageFileError::Read(error),
    })?;
    if magic.starts_with(&rpm::MAGIC) {
        file.seek(SeekFrom::Start(0))?;
        return rpm::read_rpm(file);
    }
    if magic != *ar::MAGIC {
        return Err(PackageFileError::NotAPackage);
    }
    deb::read_deb(file)
}

#[cfg(test)]
pub mod testing {
    //! Package files made in memory.
    use std::io::Write;

    pub const CONTROL_TEXT: &str = "Package: libibverbs1\nSource: rdma-core\nVersion: 44.1-2\nArchitecture: amd64\n\
                                    Maintainer: x\nDepends: libc6 (>= 2.34), libnl-3-200 (>= 3.2.7)\nDescription: x\n";

    #[derive(Debug, Clone, Copy, PartialEq)]
    pub enum Packing {
        None,
        Gzip,
        Xz,
        Zstd,
    }

    pub fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = super::ar::MAGIC.to_vec();
        for (name, content) in members {
            let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100644, content.len());
            out.extend(header.as_bytes());
            out.extend(*content);
            out.resize(out.len().next_multiple_of(2), b'\n');
        }
        out
    }

    fn tar(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    /// A package with this control file and list of checksums.
    pub fn deb(packing: Packing, control: &str, checksums: &str) -> Vec<u8> {
        let tar = tar(&[("./md5sums", checksums), ("./control", control)]);
        let (name, packed) = match packing {
            Packing::None => ("control.tar", tar),
            Packing::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packer.write_all(&tar).unwrap();
                ("control.tar.gz", packer.finish().unwrap())
            }
            Packing::Xz => {
                let options = lzma_rust2::XzOptions::with_preset(1);
                let mut packer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
                packer.write_all(&tar).unwrap();
                ("control.tar.xz", packer.finish().unwrap())
            }
            Packing::Zstd => ("control.tar.zst", zstd::encode_all(&tar[..], 1).unwrap()),
        };
        ar(&[("debian-binary", b"2.0\n"), (name, &packed), ("data.tar", b"whatever")])
    }

    pub struct RpmText<'a> {
        pub name: &'a str,
        pub version: &'a str,
        pub release: &'a str,
        pub arch: &'a str,
        /// Empty: a source package.
        pub source: &'a str,
        pub requires: &'a [&'a str],
        /// Names below /usr/lib64.
        pub files: &'a [&'a str],
    }

    /// A header value: type, count, bytes.
    type Value = (u32, usize, Vec<u8>);

    fn texts(kind: u32, texts: &[&str]) -> Value {
        (kind, texts.len(), texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect())
    }

    fn numbers(numbers: &[u32]) -> Value {
        (4, numbers.len(), numbers.iter().flat_map(|number| number.to_be_bytes()).collect())
    }

    fn header(tags: &[(u32, Value)]) -> Vec<u8> {
        let (mut index, mut data) = (Vec::new(), Vec::new());
        for (tag, (kind, count, bytes)) in tags {
            if *kind == 4 {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            let entry = [*tag, *kind, data.len() as u32, *count as u32];
            index.extend(entry.iter().flat_map(|number| number.to_be_bytes()));
            data.extend(bytes);
        }
        let sizes = [tags.len() as u32, data.len() as u32];
        let start = [0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0].into_iter().chain(sizes.iter().flat_map(|n| n.to_be_bytes()));
        start.chain(index).chain(data).collect()
    }

    /// An rpm package; its payload is not an archive.
    pub fn rpm(text: &RpmText<'_>) -> Vec<u8> {
        use sha2::{Digest as _, Sha256};
        let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let payload = b"whatever";
        let none = vec![0; text.requires.len()];
        let mut tags = vec![
            (1000, texts(6, &[text.name])),
            (1001, texts(6, &[text.version])),
            (1002, texts(6, &[text.release])),
            (1022, texts(6, &[text.arch])),
            (1044, texts(6, &[text.source])),
            (1048, numbers(&none)),
            (1049, texts(8, text.requires)),
            (1050, texts(8, &vec![""; text.requires.len()])),
            (1116, numbers(&vec![0; text.files.len()])),
            (1117, texts(8, text.files)),
            (1118, texts(8, &["/usr/lib64/"])),
            (5092, texts(8, &[&hex(payload)])),
            (5093, numbers(&[8])),
        ];
        tags.retain(|(tag, _)| *tag != 1044 || !text.source.is_empty());
        let main = header(&tags);
        let signed = numbers(&[(main.len() + payload.len()) as u32]);
        let mut signatures = header(&[(273, texts(6, &[&hex(&main)])), (1000, signed)]);
        signatures.resize(signatures.len().next_multiple_of(8), 0);
        let mut lead = vec![0; 96];
        lead[..5].copy_from_slice(&[0xed, 0xab, 0xee, 0xdb, 3]);
        [lead, signatures, main, payload.to_vec()].concat()
    }
}
