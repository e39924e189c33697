//! Files of `/sys`, `/proc` and `/dev` below a root: this host's, a container's, or a captured tree.
//!
//! Input: a root and paths below it, without a leading slash. Output: texts, numbers and names. A missing or unreadable
//! file is `None` or empty: an empty slot of a GID table gives EINVAL, and a captured tree has no file for it. Links are
//! followed below the root, so that nothing of this host is read if the root is a captured tree.

pub mod nvidia;
pub mod rdma;

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The kernel's limit on links in a path.
const MAX_LINKS: usize = 40;

/// The largest file that is read: nothing in sysfs is larger than a page.
const MAX_FILE: u64 = 1 << 20;

/// Files below a root.
#[derive(Debug, Clone, Copy)]
pub struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub fn new(root: &'a Path) -> Tree<'a> {
        Tree { root }
    }

    /// A path below the root as seen by this process, links unresolved.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether the path exists, including a dangling link.
    pub fn exists(&self, path: &str) -> bool {
        let (folder, name) = path.trim_start_matches('/').rsplit_once('/').unwrap_or(("", path));
        let Some(folder) = self.real(folder) else { return false };
        fs::symlink_metadata(self.at(&folder).join(name.trim_start_matches('/'))).is_ok()
    }

    pub fn text(&self, path: &str) -> Option<String> {
        let path = self.at(&self.resolve(path)?);
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text without surrounding white space; `None` if nothing is left.
    pub fn line(&self, path: &str) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned()).filter(|line| !line.is_empty())
    }

    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.line(path)?.parse().ok()
    }

    /// Names in a directory, sorted; none if it does not exist.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Some(real) = self.real(path) else { return Vec::new() };
        let entries = fs::read_dir(self.at(&real)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The last name in a link's target; `None`: the path is not a link.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let (folder, name) = path.trim_start_matches('/').rsplit_once('/').unwrap_or(("", path));
        let target = fs::read_link(self.at(&self.real(folder)?).join(name)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The file that a path leads to, as an absolute path below the root; links stay below it.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let real = self.real(path)?;
        fs::metadata(self.at(&real)).is_ok_and(|metadata| metadata.is_file()).then_some(real)
    }

    /// The file or directory that a path leads to, as an absolute path below the root without links.
    pub fn real(&self, path: &str) -> Option<String> {
        if self.root == Path::new("/") {
            let real = fs::canonicalize(self.at(path)).ok()?;
            return Some(real.to_string_lossy().into_owned());
        }
        let mut links = 0;
        let mut done: Vec<String> = Vec::new();
        let mut todo: Vec<String> = parts(Path::new(path));
        while let Some(part) = todo.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part);
            let current = done.join("/");
            let metadata = fs::symlink_metadata(self.at(&current)).ok()?;
            if metadata.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                let target = fs::read_link(self.at(&current)).ok()?;
                done.pop();
                if target.is_absolute() {
                    done.clear();
                }
                todo.extend(parts(&target));
            }
        }
        Some(format!("/{}", done.join("/")))
    }
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<String> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("sys/devices/a")).unwrap();
        fs::create_dir_all(root.join("sys/class")).unwrap();
        fs::write(root.join("sys/devices/a/vendor"), "0x1ded\n").unwrap();
        fs::write(root.join("sys/devices/a/empty"), "\n").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        symlink("../devices/a", root.join("sys/class/relative")).unwrap();
        symlink("/sys/devices/a", root.join("sys/class/absolute")).unwrap();
        symlink("../../../secret", root.join("sys/class/outside")).unwrap();
        symlink(dir.path().join("secret"), root.join("sys/class/host")).unwrap();
        symlink("loop", root.join("sys/class/loop")).unwrap();
        let tree = Tree::new(&root);
        for link in ["relative", "absolute"] {
            assert_eq!(tree.line(&format!("sys/class/{link}/vendor")).as_deref(), Some("0x1ded"), "{link}");
            assert_eq!(tree.real(&format!("sys/class/{link}")).as_deref(), Some("/sys/devices/a"));
            assert_eq!(tree.link_name(&format!("sys/class/{link}")).as_deref(), Some("a"));
            assert_eq!(tree.list(&format!("sys/class/{link}")), ["empty", "vendor"]);
        }
        for link in ["outside", "host", "loop"] {
            assert_eq!(tree.text(&format!("sys/class/{link}")), None, "{link}");
            assert!(tree.exists(&format!("sys/class/{link}")), "{link}");
        }
        assert!(tree.exists("sys/class/relative/vendor") && !tree.exists("sys/class/relative/device"));
        assert_eq!(tree.line("sys/devices/a/empty"), None);
        assert_eq!(tree.text("sys/devices/a"), None);
        assert_eq!(tree.number::<u32>("sys/devices/a/vendor"), None);
        assert_eq!(tree.list("sys/none"), Vec::<String>::new());
    }
}
