//! Directories instead of archives: a layer as the engine keeps it unpacked, or a whole root directory → [`LayerIndex`].
//!
//! Reading the store of a local engine takes a fraction of the time of `docker save`, which packs every byte of the
//! image first. It reads the formats of overlayfs and fuse-overlayfs: a removed name is a character device 0:0 or a
//! `.wh.` file, an emptied directory has an attribute or holds `.wh..wh..opq`. What only the engine can read
//! (redirected directories, files without their data) is an error, and the caller takes the archive instead.
//!
//! Every directory and file is opened below the given one, and no link is followed along the way, even if the tree is
//! changed concurrently.

use super::beneath::{Links, open_directory, open_file};
use super::layer::{Harvest, LayerError, MAX_ENTRIES, Want, keep, whiteout};
use super::oci;
use super::platform::Platform;
use super::rootfs::{Change, Kept, LayerIndex, Node, RootFs};
use super::{ConfigFile, DiffIds, Image, ImageError, ReadOptions};
use rustix::fs::{AtFlags, Dir, FileType, Stat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Attributes that empty a directory of what is below (kernel overlayfs.rst; fuse-overlayfs `main.c`).
const OPAQUE_ATTRIBUTES: [&str; 3] = ["trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque"];
/// The directory's content is under another name in a lower layer.
const REDIRECT_ATTRIBUTE: &str = "trusted.overlay.redirect";
/// The file's data is in a lower layer.
const METACOPY_ATTRIBUTE: &str = "trusted.overlay.metacopy";

/// File systems whose content is the running kernel's, not the image's (linux/magic.h).
const KERNEL_FILE_SYSTEMS: [u32; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
];

/// How a directory is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The changes of one layer.
    Layer,
    /// A plain file system: whiteout names and attributes have no meaning.
    Root,
}

/// Reads the directory of one layer.
///
/// # Errors
/// Something in it cannot be read, or only the engine can read it.
pub fn index_directory(root: &Path, harvest: Harvest<'_>) -> Result<LayerIndex, LayerError> {
    index(root, Meaning::Layer, harvest)
}

/// Reads a root directory. Kernel file systems (`/proc`, `/sys`) and files that vanish meanwhile are left out.
///
/// # Errors
/// Something in it cannot be read, so its content is unknown.
pub fn index_root(root: &Path, harvest: Harvest<'_>) -> Result<LayerIndex, LayerError> {
    index(root, Meaning::Root, harvest)
}

/// Reads a root directory as an image. It has no config, id or digest: `name` names its only layer.
///
/// # Errors
/// Fails like [`index_root`], or the root is for a platform other than the requested one.
pub fn read_root(
    root: &Path,
    name: &str,
    options: &ReadOptions<'_>,
    harvest: Harvest<'_>,
) -> Result<Image, ImageError> {
    let open = |source| ImageError::Open { path: root.display().to_string(), source };
    if !std::fs::metadata(root).map_err(open)?.is_dir() {
        return Err(open(io::ErrorKind::NotADirectory.into()));
    }
    let index = index_root(root, harvest).map_err(|source| ImageError::Root { source })?;
    let mut image = Image::assemble(
        String::new(),
        Vec::new(),
        ConfigFile { rootfs: DiffIds { diff_ids: vec![name.to_owned()] }, ..ConfigFile::default() },
        vec![index],
    );
    let platform = platform_of(&image.rootfs);
    oci::choose([(&platform, "")].into_iter(), options.platform)?;
    (image.config.os, image.config.architecture) = (platform.os, platform.architecture);
    Ok(image)
}

/// Program loaders, by architecture (glibc, `sysdeps/unix/sysv/linux/*/shlib-versions`; musl, `ldso`).
const LOADERS: [(&str, &str); 4] = [
    ("lib64/ld-linux-x86-64.so.2", "amd64"),
    ("lib/ld-musl-x86_64.so.1", "amd64"),
    ("lib/ld-linux-aarch64.so.1", "arm64"),
    ("lib/ld-musl-aarch64.so.1", "arm64"),
];

/// The platform of a tree without a config: that of its program loader, if it has only one kind.
fn platform_of(fs: &RootFs) -> Platform {
    let mut found: Vec<&str> = LOADERS.iter().filter(|(path, _)| fs.exists(path)).map(|(_, name)| *name).collect();
    found.dedup();
    match found[..] {
        [architecture] => Platform::new("linux", architecture, None),
        _ => Platform::default(),
    }
}

fn index(root: &Path, meaning: Meaning, harvest: Harvest<'_>) -> Result<LayerIndex, LayerError> {
    let failed = |source: io::Error| LayerError::File { path: "/".to_owned(), source };
    let root = File::open(root).map_err(failed)?;
    let device = root.metadata().map(|metadata| std::os::unix::fs::MetadataExt::dev(&metadata)).map_err(failed)?;
    let mut walk =
        Walk { meaning, harvest, index: LayerIndex::default(), content_bytes: 0, seen: HashSet::new(), device };
    // The path on disk, and the path as displayed: a name need not be UTF-8.
    let mut todo = vec![(PathBuf::new(), String::new())];
    while let Some((below, prefix)) = todo.pop() {
        let failed = |source: io::Error| LayerError::File { path: format!("/{prefix}"), source };
        let directory = match open_directory(&root, &below, Links::Refused) {
            Ok(directory) => directory,
            Err(error) if walk.is_gone(&error) && !prefix.is_empty() => continue,
            Err(error) => return Err(failed(error)),
        };
        if walk.is_kernels(&directory).map_err(failed)? {
            continue;
        }
        if !prefix.is_empty() && meaning == Meaning::Layer {
            walk.layer_directory(&directory, &prefix).map_err(|error| match error {
                DirectoryError::Io(source) => failed(source),
                DirectoryError::Redirected => LayerError::EngineFeature("redirected directories"),
            })?;
        }
        for entry in Dir::read_from(&directory).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let shown = name.to_string_lossy();
            let path = if prefix.is_empty() { shown.into_owned() } else { format!("{prefix}/{shown}") };
            let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(error) if walk.is_gone(&error.into()) => continue,
                Err(error) => return Err(LayerError::File { path: format!("/{path}"), source: error.into() }),
            };
            if walk.entry(&directory, name, &path, &stat)? {
                todo.push((below.join(OsStr::from_bytes(name.to_bytes())), path));
            }
        }
    }
    Ok(walk.index)
}

enum DirectoryError {
    Io(io::Error),
    Redirected,
}

struct Walk<'a> {
    meaning: Meaning,
    harvest: Harvest<'a>,
    index: LayerIndex,
    content_bytes: u64,
    /// Names of one file are counted once.
    seen: HashSet<(u64, u64)>,
    /// Device of the root.
    device: u64,
}

impl Walk<'_> {
    /// Whether a listed file has simply vanished. A layer in the engine's store does not change.
    fn is_gone(&self, error: &io::Error) -> bool {
        self.meaning == Meaning::Root && error.kind() == io::ErrorKind::NotFound
    }

    fn is_kernels(&self, directory: &OwnedFd) -> io::Result<bool> {
        if self.meaning == Meaning::Layer || rustix::fs::fstat(directory)?.st_dev == self.device {
            return Ok(false);
        }
        let kind = rustix::fs::fstatfs(directory)?.f_type;
        Ok(u32::try_from(kind).is_ok_and(|kind| KERNEL_FILE_SYSTEMS.contains(&kind)))
    }

    fn layer_directory(&mut self, directory: &OwnedFd, path: &str) -> Result<(), DirectoryError> {
        if has_attribute(directory, REDIRECT_ATTRIBUTE).map_err(DirectoryError::Io)? {
            return Err(DirectoryError::Redirected);
        }
        if is_opaque(directory).map_err(DirectoryError::Io)? {
            self.index.changes.push((path.to_owned(), Change::Opaque));
        }
        Ok(())
    }

    /// Takes one entry; `true` for a directory whose content must be read too.
    fn entry(&mut self, directory: &OwnedFd, name: &CStr, path: &str, stat: &Stat) -> Result<bool, LayerError> {
        if self.index.changes.len() >= MAX_ENTRIES {
            return Err(LayerError::TooManyEntries);
        }
        if self.meaning == Meaning::Layer
            && let Some(change) = whiteout(path)
        {
            self.index.changes.push(change);
            return Ok(false);
        }
        let failed = |source: io::Error| LayerError::File { path: format!("/{path}"), source };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let change = match kind {
            FileType::Directory => Change::Put(Node::Dir),
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new()).map_err(|error| failed(error.into()))?;
                Change::Put(Node::Symlink(target.to_string_lossy().into_owned()))
            }
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let kept = match (self.harvest)(path, size) {
                    Want::Nothing => Kept::Nothing,
                    Want::Content | Want::Database | Want::Markers => match self.keep(directory, name, path, size) {
                        Err(LayerError::File { source, .. }) if self.is_gone(&source) => return Ok(false),
                        result => result?,
                    },
                };
                if stat.st_nlink == 1 || self.seen.insert((stat.st_dev, stat.st_ino)) {
                    self.index.file_bytes += size;
                }
                Change::Put(Node::File { size, mode: stat.st_mode & 0o7777, kept })
            }
            FileType::CharacterDevice if self.meaning == Meaning::Layer && stat.st_rdev == 0 => Change::Whiteout,
            _ => Change::Put(Node::Special),
        };
        self.index.changes.push((path.to_owned(), change));
        Ok(kind == FileType::Directory)
    }

    fn keep(&mut self, directory: &OwnedFd, name: &CStr, path: &str, size: u64) -> Result<Kept, LayerError> {
        let failed = |source: io::Error| LayerError::File { path: format!("/{path}"), source };
        let mut file = open_file(directory, OsStr::from_bytes(name.to_bytes()), Links::Refused).map_err(failed)?;
        // A FIFO or device put in its place would block or never end.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it changed while it was read")));
        }
        if self.meaning == Meaning::Layer && has_attribute(&file, METACOPY_ATTRIBUTE).map_err(failed)? {
            return Err(LayerError::EngineFeature("files without their data"));
        }
        keep(&mut file, path, size, self.harvest, &mut self.content_bytes)
    }
}

fn is_opaque(directory: &OwnedFd) -> io::Result<bool> {
    for name in OPAQUE_ATTRIBUTES {
        if attribute(directory, name)?.is_some_and(|value| value == b'y') {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_attribute(file: impl AsFd, name: &str) -> io::Result<bool> {
    Ok(attribute(file, name)?.is_some())
}

/// The first byte of an extended attribute.
fn attribute(file: impl AsFd, name: &str) -> io::Result<Option<u8>> {
    let mut value = [0; 256];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(_) => Ok(Some(value[0])),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        // The attribute exists and is longer than any known one.
        Err(Errno::RANGE) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_layer_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("usr/lib/libibverbs")).unwrap();
        fs::write(root.join("usr/lib/libibverbs/.wh..wh..opq"), "").unwrap();
        fs::write(root.join("usr/lib/.wh.gone"), "").unwrap();
        fs::write(root.join("usr/lib/a"), "abc").unwrap();
        fs::hard_link(root.join("usr/lib/a"), root.join("usr/lib/b")).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        let index = index_directory(root, &|_, _| Want::Content).unwrap();
        assert_eq!(index.file_bytes, 3);
        let change = |path: &str| &index.changes.iter().find(|(p, _)| p == path).unwrap().1;
        assert_eq!(change("usr/lib/gone"), &Change::Whiteout);
        assert!(index.changes.contains(&("usr/lib/libibverbs".into(), Change::Opaque)));
        assert_eq!(change("link"), &Change::Put(Node::Symlink("/etc/passwd".into())));
        let Change::Put(Node::File { kept: Kept::Content(content), .. }) = change("usr/lib/b") else { panic!() };
        assert_eq!(&content[..], b"abc");
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let error = index_directory(Path::new("/nonexistent-layer"), &|_, _| Want::Nothing).unwrap_err();
        assert!(matches!(error, LayerError::File { .. }), "{error:?}");
    }

    #[test]
    fn a_root_directory_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/os-release"), "ID=x").unwrap();
        fs::write(root.join("etc/.wh.kept"), "").unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink("..", root.join("parent")).unwrap();
        let index = index_root(&root, &|_, _| Want::Content).unwrap();
        let mut paths: Vec<&str> = index.changes.iter().map(|(path, _)| path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["etc", "etc/.wh.kept", "etc/os-release", "parent", "up"]);
        assert!(index.changes.contains(&("parent".into(), Change::Put(Node::Symlink("..".into())))));
        assert_eq!(index.file_bytes, 4);
    }
}
