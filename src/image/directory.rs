//! One layer as the engine keeps it unpacked: a directory → [`LayerIndex`].
//!
//! Reading the store of a local engine takes a fraction of the time of `docker save`, which packs every byte of the
//! image first. The forms of overlayfs and of fuse-overlayfs are known: a removed name is a character device 0:0 or a
//! `.wh.` file, an emptied directory has an attribute or holds `.wh..wh..opq`. What only the engine can read
//! (redirected directories, files without their data) is an error, and the caller takes the archive instead.

use super::layer::{Harvest, LayerError, MAX_ENTRIES, Want, keep, whiteout};
use super::rootfs::{Change, Kept, LayerIndex, Node};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Attributes that empty a directory of what is below (kernel overlayfs.rst; fuse-overlayfs `main.c`).
const OPAQUE_ATTRIBUTES: [&str; 3] = ["trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque"];
/// The directory's content is under another name in a lower layer.
const REDIRECT_ATTRIBUTE: &str = "trusted.overlay.redirect";
/// The file's data is in a lower layer.
const METACOPY_ATTRIBUTE: &str = "trusted.overlay.metacopy";

/// Reads the directory of one layer.
///
/// # Errors
/// Something in it cannot be read, or only the engine could.
pub fn index_directory(root: &Path, harvest: Harvest<'_>) -> Result<LayerIndex, LayerError> {
    let mut index = LayerIndex::default();
    let mut content_bytes = 0;
    // Names of one file are counted once.
    let mut seen = HashSet::new();
    let mut todo = vec![(root.to_path_buf(), String::new())];
    while let Some((directory, prefix)) = todo.pop() {
        let failed = |source| LayerError::File { path: format!("/{prefix}"), source };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let failed = |source| LayerError::File { path: format!("/{path}"), source };
            let metadata = entry.metadata().map_err(failed)?;
            let kind = metadata.file_type();
            if index.changes.len() >= MAX_ENTRIES {
                return Err(LayerError::TooManyEntries);
            }
            if let Some(change) = whiteout(&path) {
                index.changes.push(change);
                continue;
            }
            let change = if kind.is_dir() {
                if has_attribute(&entry.path(), REDIRECT_ATTRIBUTE).map_err(failed)? {
                    return Err(LayerError::EngineFeature("redirected directories"));
                }
                if is_opaque(&entry.path()).map_err(failed)? {
                    index.changes.push((path.clone(), Change::Opaque));
                }
                todo.push((entry.path(), path.clone()));
                Change::Put(Node::Dir)
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path()).map_err(failed)?;
                Change::Put(Node::Symlink(target.to_string_lossy().into_owned()))
            } else if kind.is_file() {
                let size = metadata.size();
                if metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())) {
                    index.file_bytes += size;
                }
                let kept = match harvest(&path, size) {
                    Want::Nothing => Kept::Nothing,
                    Want::Content | Want::Database | Want::Markers => {
                        if has_attribute(&entry.path(), METACOPY_ATTRIBUTE).map_err(failed)? {
                            return Err(LayerError::EngineFeature("files without their data"));
                        }
                        let mut file = open(&entry.path()).map_err(failed)?;
                        keep(&mut file, &path, size, harvest, &mut content_bytes)?
                    }
                };
                Change::Put(Node::File { size, mode: metadata.mode() & 0o7777, kept })
            } else if kind.is_char_device() && metadata.rdev() == 0 {
                Change::Whiteout
            } else {
                Change::Put(Node::Special)
            };
            index.changes.push((path, change));
        }
    }
    Ok(index)
}

/// Opens a regular file; a link that took its place meanwhile is not followed.
fn open(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)
}

fn is_opaque(path: &Path) -> io::Result<bool> {
    for name in OPAQUE_ATTRIBUTES {
        if attribute(path, name)?.is_some_and(|value| value == b'y') {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_attribute(path: &Path, name: &str) -> io::Result<bool> {
    Ok(attribute(path, name)?.is_some())
}

/// The first byte of an extended attribute.
fn attribute(path: &Path, name: &str) -> io::Result<Option<u8>> {
    let mut value = [0; 256];
    match rustix::fs::lgetxattr(path, name, &mut value[..]) {
        Ok(_) => Ok(Some(value[0])),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        // The attribute is there and longer than any that is known.
        Err(rustix::io::Errno::RANGE) => Ok(Some(0)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
