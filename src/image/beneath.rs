//! Opens files below a directory without ever leaving it, whatever links exist there or are created meanwhile.
//!
//! The kernel resolves the path (openat2(2), Linux 5.6); where it cannot, every component is opened on its own and a
//! link is an error.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// How links along the path are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// A link is an error: the path was just seen without links.
    Refused,
    /// Links are followed as long as they stay below the directory.
    Inside,
}

/// Opens a file for reading; a FIFO does not block.
pub(super) fn open_file(root: impl AsFd, path: impl AsRef<OsStr>, links: Links) -> io::Result<File> {
    Ok(File::from(open_beneath(root.as_fd(), path.as_ref(), OFlags::RDONLY | OFlags::NONBLOCK, links)?))
}

/// Opens a directory; an empty path is the directory itself.
pub(super) fn open_directory(root: impl AsFd, path: impl AsRef<OsStr>, links: Links) -> io::Result<OwnedFd> {
    let path = if path.as_ref().is_empty() { OsStr::new(".") } else { path.as_ref() };
    Ok(open_beneath(root.as_fd(), path, OFlags::RDONLY | OFlags::DIRECTORY, links)?)
}

fn open_beneath(root: BorrowedFd<'_>, path: &OsStr, flags: OFlags, links: Links) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refused {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    match openat2(root, path, flags, Mode::empty(), resolve) {
        // An old kernel, or a container's seccomp filter that rejects the call.
        Err(Errno::NOSYS | Errno::PERM) => open_by_component(root, path, flags),
        result => result,
    }
}

fn open_by_component(root: BorrowedFd<'_>, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut names = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            // The link leads outside.
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let mut names = names.into_iter().peekable();
    let walk = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(root, ".", walk, Mode::empty())?;
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return openat(&here, name, flags | OFlags::NOFOLLOW, Mode::empty());
        }
        here = openat(&here, name, walk, Mode::empty())?;
    }
    openat(root, ".", flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        let inside = dir.path().join("root");
        fs::create_dir_all(inside.join("a")).unwrap();
        fs::write(inside.join("a/file"), "f").unwrap();
        symlink("../secret", inside.join("up")).unwrap();
        symlink("/etc", inside.join("etc")).unwrap();
        symlink("a/file", inside.join("good")).unwrap();
        let root = File::open(&inside).unwrap();
        for links in [Links::Refused, Links::Inside] {
            for path in ["up", "etc/passwd", "../secret", "/etc/passwd", "a/../../secret"] {
                assert!(open_file(&root, path, links).is_err(), "{path} {links:?}");
            }
            assert!(open_file(&root, "a/file", links).is_ok());
        }
        assert!(open_file(&root, "good", Links::Inside).is_ok());
        assert!(open_file(&root, "good", Links::Refused).is_err());
        // The fallback without openat2 allows no links at all.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        for path in ["up", "etc/passwd", "../secret", "/etc/passwd", "a/../../secret", "good"] {
            assert!(open_by_component(root.as_fd(), OsStr::new(path), flags).is_err(), "{path}");
        }
        assert!(open_by_component(root.as_fd(), OsStr::new("a/file"), flags).is_ok());
    }
}
