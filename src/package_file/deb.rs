//! Debian packages (deb(5)): the members `debian-binary`, `control.tar` and `data.tar`.

use super::ar::{Archive, Member};
use super::{Form, PackageFile, PackageFileError};
use crate::inspect::packages::parse_dpkg_status;
use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use std::io::{Read, Seek};

/// The largest control archive is that of a kernel's source, with 5 MiB of checksums (Debian's linux-source).
const MAX_CONTROL_BYTES: u64 = 32 << 20;
const CONTROL: &str = "control.tar";

/// Reads an archive after its magic.
pub(super) fn read_deb(file: impl Read + Seek) -> Result<PackageFile, PackageFileError> {
    let mut archive = Archive::new(file)?;
    let version = archive.next()?.filter(|member| member.name == "debian-binary");
    let version = version.ok_or(PackageFileError::NotAPackage)?;
    let mut text = String::new();
    archive.content(&version)?.take(16).read_to_string(&mut text).map_err(|error| damaged(&version, error))?;
    if !text.starts_with("2.") {
        return Err(PackageFileError::Format(text.trim().to_owned()));
    }
    let mut read = None;
    while let Some(member) = archive.next()? {
        // Names that start with an underscore are reserved for extensions.
        if read.is_none() && member.name.starts_with(CONTROL) {
            let packed = archive.content(&member)?;
            let tar: Box<dyn Read> = match &member.name[CONTROL.len()..] {
                "" => Box::new(packed),
                ".gz" => Box::new(GzDecoder::new(packed)),
                ".xz" => Box::new(XzReader::new(packed, true)),
                ".zst" => Box::new(zstd::Decoder::new(packed).map_err(|error| damaged(&member, error))?),
                other => return Err(PackageFileError::Format(format!("{CONTROL}{other}"))),
            };
            let control = read_control(tar.take(MAX_CONTROL_BYTES)).map_err(|error| damaged(&member, error))?;
            read = Some(parse_control(&control.text.ok_or(PackageFileError::Missing("control"))?, control.checksums)?);
        } else if member.name.starts_with("data.tar") {
            return read.ok_or(PackageFileError::Missing(CONTROL));
        }
    }
    Err(PackageFileError::Missing(if read.is_some() { "data.tar" } else { CONTROL }))
}

fn damaged(member: &Member, error: impl std::fmt::Display) -> PackageFileError {
    PackageFileError::Damaged { member: member.name.clone(), problem: error.to_string() }
}

#[derive(Default)]
struct Control {
    text: Option<String>,
    checksums: Option<String>,
}

fn read_control(tar: impl Read) -> std::io::Result<Control> {
    let mut control = Control::default();
    let mut archive = tar::Archive::new(tar);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
        let wanted = match path.as_str() {
            "control" => &mut control.text,
            "md5sums" => &mut control.checksums,
            _ => continue,
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        *wanted = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    // The checksum of the unpacked data is at its end.
    std::io::copy(&mut archive.into_inner(), &mut std::io::sink())?;
    Ok(control)
}

fn parse_control(text: &str, checksums: Option<String>) -> Result<PackageFile, PackageFileError> {
    let mut packages = parse_dpkg_status(text).map_err(PackageFileError::Control)?;
    let (Some(package), true) = (packages.pop(), packages.is_empty()) else {
        return Err(PackageFileError::Control("it does not contain exactly one paragraph".to_owned()));
    };
    for (field, value) in [("Version", &package.version), ("Architecture", &package.architecture)] {
        if value.is_empty() {
            return Err(PackageFileError::Control(format!("it has no {field}")));
        }
    }
    // `checksum  path`
    let files = checksums.map(|text| {
        text.lines().filter_map(|line| line.split_once("  ")).map(|(_, path)| path.trim().to_owned()).collect()
    });
    Ok(PackageFile { package, files, form: Form::Deb })
}

#[cfg(test)]
mod tests {
    use crate::package_file::testing::*;
    use crate::package_file::{PackageFileError, read_package_file};
    use std::io::Cursor;

    fn read(bytes: &[u8]) -> Result<crate::package_file::PackageFile, PackageFileError> {
        read_package_file(Cursor::new(bytes))
    }

    #[test]
    fn every_compression() {
        for packing in [Packing::None, Packing::Gzip, Packing::Xz, Packing::Zstd] {
            let bytes = deb(packing, CONTROL_TEXT, "abc  usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n");
            let file = read(&bytes).unwrap_or_else(|error| panic!("{packing:?}: {error}"));
            assert_eq!((file.package.name.as_str(), file.package.version.as_str()), ("libibverbs1", "44.1-2"));
            assert_eq!(file.package.architecture, "amd64");
            assert_eq!(file.package.source.as_deref(), Some("rdma-core"));
            assert_eq!(file.package.depends, "libc6 (>= 2.34), libnl-3-200 (>= 3.2.7)");
            assert_eq!(file.files.unwrap(), ["usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"]);
        }
    }

    /// A truncated or changed file gives an error, never a panic and never another package.
    #[test]
    fn damaged_files() {
        for packing in [Packing::None, Packing::Gzip, Packing::Xz, Packing::Zstd] {
            let whole = deb(packing, CONTROL_TEXT, "");
            let good = read(&whole).unwrap();
            for length in 0..whole.len() - 1 {
                assert!(read(&whole[..length]).is_err(), "{packing:?}, the first {length} bytes");
            }
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 0x55;
                if let Ok(file) = read(&changed) {
                    // Without a checksum over it a change in the text cannot be seen.
                    assert!(file == good || packing == Packing::None || packing == Packing::Zstd, "{packing:?}, {at}");
                }
            }
        }
    }

    #[test]
    fn what_it_is_instead_is_said() {
        let said = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(said(b""), "it is not a package file");
        assert_eq!(said(b"<!DOCTYPE html><title>404</title>"), "it is not a package file");
        // A static library is an ar archive too.
        assert_eq!(said(&ar(&[("hello.o", b"ELF")])), "it is not a package file");
        let old = ar(&[("debian-binary", b"3.0\n")]);
        assert_eq!(said(&old), "its format is \"3.0\", which is newer than this program");
        let empty = ar(&[("debian-binary", b"2.0\n")]);
        assert_eq!(said(&empty), "it is a Debian package without control.tar");
        let lzma = ar(&[("debian-binary", b"2.0\n"), ("control.tar.lzma", b"x")]);
        assert!(said(&lzma).contains("control.tar.lzma"));
        let control = |text: &str| said(&deb(Packing::None, text, ""));
        assert!(control("Package: a\nVersion: 1\n").contains("it has no Architecture"));
        assert!(control("").contains("one paragraph"));
        let whole = deb(Packing::None, CONTROL_TEXT, "");
        assert_eq!(said(&whole[..whole.len() - 3]), "it ends in the middle of data.tar: it was not copied completely");
    }
}
