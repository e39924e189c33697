//! Package files that lie outside of any repository: what each says of itself.
//!
//! Input: the bytes of a file. Output: a [`PackageFile`], or why it is none. `deb` reads Debian's format, `ar` the archive
//! that it is; rpm's is only told apart.

mod ar;
mod deb;

use crate::facts::Package;
use std::io::{Read, Seek};

/// Where a package file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageFileError {
    #[error("it is no package file")]
    NotAPackage,
    #[error("it is an rpm package")]
    Rpm,
    #[error("it ends in the middle of {member}: it was not copied whole")]
    Truncated { member: String },
    #[error("its {member} is damaged: {problem}")]
    Damaged { member: String, problem: String },
    #[error("it is a Debian package without {0}")]
    Missing(&'static str),
    #[error("its format is {0:?}, which is newer than this program")]
    Format(String),
    #[error("its control file is not one of a package: {0}")]
    Control(String),
    #[error("reading it: {0}")]
    Read(#[from] std::io::Error),
}

/// A package file and what its control data say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// Name, version, architecture, dependencies; the state is `Installed`, as it is to be.
    pub package: Package,
    /// The files that it would put into the image, without a leading slash; `None`: it has no list of them.
    pub files: Option<Vec<String>>,
}

/// The lead of an rpm package (rpm, docs/manual/format_lead.md).
const RPM_MAGIC: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];

/// Reads the control data of a package file. What it would install is not read, only that it is there.
///
/// # Errors
/// It is no Debian package, or damaged.
pub fn read_package_file(mut file: impl Read + Seek) -> Result<PackageFile, PackageFileError> {
    let mut magic = [0; ar::MAGIC.len()];
    file.read_exact(&mut magic).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => PackageFileError::NotAPackage,
        _ => PackageFileError::Read(error),
    })?;
    if magic.starts_with(&RPM_MAGIC) {
        return Err(PackageFileError::Rpm);
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
}
