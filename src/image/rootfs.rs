//! The root file system of an image as one read-only tree: layers, bottom first → what a container would see.
//!
//! Nothing is on disk: a file has its metadata, and its content only if the inspection requested it
//! ([`super::layer::Harvest`]). Links are followed inside the tree, never outside.

use super::scan::{Hit, Scanned};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

/// The part of a regular file that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Metadata only.
    Nothing,
    /// The whole content.
    Content(Arc<[u8]>),
    /// The whole content, compressed with zstd; `size` is the uncompressed one in bytes.
    Packed { bytes: Arc<[u8]>, size: u64 },
    /// The markers and ELF facts found inside.
    Hits(Arc<Scanned>),
    /// Content was wanted, but the file is larger than the limit.
    TooLarge,
}

/// One file system object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Dir,
    File {
        size: u64,
        mode: u32,
        kept: Kept,
    },
    Symlink(String),
    /// Device, FIFO or socket.
    Special,
}

/// An entry of a layer, before the layers are put together. Paths have no leading slash, no `.` and no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Node),
    /// A hard link to another path.
    Link(String),
    /// Removes the path as the layers below left it.
    Whiteout,
    /// Empties the directory of what the layers below put into it.
    Opaque,
}

/// The changes of one layer, in archive order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerIndex {
    pub changes: Vec<(String, Change)>,
    /// Sum of the sizes of the layer's regular files, in bytes; a hard link adds nothing.
    pub file_bytes: u64,
}

/// How many links a path may pass through; Linux allows 40.
const MAX_LINKS: usize = 40;

#[derive(Debug, Default)]
struct Entry {
    children: BTreeMap<String, usize>,
    node: Option<Node>,
}

/// The merged tree.
#[derive(Debug)]
pub struct RootFs {
    /// Entry 0 is the root.
    entries: Vec<Entry>,
    /// Paths whose hard link names a missing file.
    dangling_hard_links: Vec<String>,
}

impl RootFs {
    /// Puts layers together, bottom first.
    pub fn merge(layers: impl IntoIterator<Item = LayerIndex>) -> RootFs {
        let root = Entry { children: BTreeMap::new(), node: Some(Node::Dir) };
        let mut fs = RootFs { entries: vec![root], dangling_hard_links: Vec::new() };
        for layer in layers {
            fs.apply(layer);
        }
        fs
    }

    fn apply(&mut self, layer: LayerIndex) {
        // A directory takes the place of what was no directory before anything is removed below its path: removals must
        // not follow a link that the layer itself replaces.
        for (path, change) in &layer.changes {
            let replaces = |at: usize| self.entries[at].node != Some(Node::Dir);
            if *change == Change::Put(Node::Dir) && self.find(path).is_some_and(replaces) {
                self.put(path, Node::Dir);
            }
        }
        // Removals apply only to the layers below, wherever they are in the archive.
        for (path, change) in &layer.changes {
            match change {
                Change::Whiteout => self.remove(path),
                Change::Opaque => self.empty(path),
                Change::Put(_) | Change::Link(_) => {}
            }
        }
        let mut links = Vec::new();
        for (path, change) in layer.changes {
            match change {
                Change::Put(node) => self.put(&path, node),
                Change::Link(target) => match self.find(&target).map(|at| self.entries[at].node.clone()) {
                    Some(Some(node)) => self.put(&path, node),
                    _ => links.push((path, target)),
                },
                Change::Whiteout | Change::Opaque => {}
            }
        }
        // A link may precede its target in the archive.
        for (path, target) in links {
            match self.find(&target).and_then(|at| self.entries[at].node.clone()) {
                Some(node) => self.put(&path, node),
                None => self.dangling_hard_links.push(path),
            }
        }
    }

    /// The entry at a path, which may itself be a link; links in the directories above it are followed.
    fn find(&self, path: &str) -> Option<usize> {
        let (parent, name) = split_last(path);
        match name {
            Some(name) => self.entries[self.resolve(parent)?.0].children.get(name).copied(),
            None => Some(0),
        }
    }

    /// The directory that will contain a path's object, created if missing.
    fn make_parent(&mut self, parent: &str) -> usize {
        let mut at = 0;
        for (depth, name) in components(parent).enumerate() {
            at = match self.entries[at].children.get(name).copied() {
                Some(child) => match self.entries[child].node {
                    Some(Node::Dir) => child,
                    Some(Node::Symlink(_)) => {
                        let upto = components(parent).take(depth + 1).collect::<Vec<_>>().join("/");
                        match self.resolve(&upto) {
                            Some((target, _)) => target,
                            // The engine creates the directory in place of a dangling link.
                            None => self.add(at, name, Node::Dir),
                        }
                    }
                    _ => self.add(at, name, Node::Dir),
                },
                None => self.add(at, name, Node::Dir),
            };
        }
        at
    }

    fn add(&mut self, parent: usize, name: &str, node: Node) -> usize {
        let child = self.entries.len();
        self.entries.push(Entry { children: BTreeMap::new(), node: Some(node) });
        self.entries[parent].children.insert(name.to_owned(), child);
        child
    }

    fn put(&mut self, path: &str, node: Node) {
        let (parent, name) = split_last(path);
        let Some(name) = name else { return };
        let parent = self.make_parent(parent);
        match self.entries[parent].children.get(name) {
            // A directory entry over a directory changes its metadata, not what is in it.
            Some(child) if node == Node::Dir && self.entries[*child].node == Some(Node::Dir) => {}
            _ => {
                self.add(parent, name, node);
            }
        }
    }

    fn remove(&mut self, path: &str) {
        if let (parent, Some(name)) = split_last(path)
            && let Some((parent, _)) = self.resolve(parent)
        {
            self.entries[parent].children.remove(name);
        }
    }

    fn empty(&mut self, path: &str) {
        // A link there is replaced by the layer's directory; its target is not touched.
        if let Some(at) = self.find(path) {
            self.entries[at].children.clear();
        }
    }

    /// The entry behind a path and its real path, with every link followed inside the tree.
    fn resolve(&self, path: &str) -> Option<(usize, String)> {
        let mut todo: Vec<String> = components(path).rev().map(str::to_owned).collect();
        // The entries from the root down to here, with their names.
        let mut stack: Vec<(usize, String)> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                // The root's parent is the root.
                stack.pop();
                continue;
            }
            let here = stack.last().map_or(0, |(at, _)| *at);
            let child = *self.entries[here].children.get(&name)?;
            if let Some(Node::Symlink(target)) = &self.entries[child].node {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                if target.starts_with('/') {
                    stack.clear();
                }
                todo.extend(components(target).rev().map(str::to_owned));
            } else {
                stack.push((child, name));
            }
        }
        let real = stack.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join("/");
        Some((stack.last().map_or(0, |(at, _)| *at), real))
    }

    /// The object behind a path, links followed. `None` also for a dangling link or a loop.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.resolve(path).and_then(|(at, _)| self.entries[at].node.as_ref())
    }

    /// The object at a path itself: a link is a link. Links in the directories above are followed.
    pub fn get_no_follow(&self, path: &str) -> Option<&Node> {
        self.find(path).and_then(|at| self.entries[at].node.as_ref())
    }

    /// The path with every link resolved, without a leading slash.
    pub fn real_path(&self, path: &str) -> Option<String> {
        self.resolve(path).map(|(_, real)| real)
    }

    /// Whether a path exists, links followed.
    pub fn exists(&self, path: &str) -> bool {
        self.resolve(path).is_some()
    }

    /// The kept content of a file, links followed.
    pub fn content(&self, path: &str) -> Option<&[u8]> {
        match self.get(path)? {
            Node::File { kept: Kept::Content(bytes), .. } => Some(bytes),
            _ => None,
        }
    }

    /// The content of a file that was kept compressed ([`super::layer::Want::Database`]), links followed.
    pub fn unpack(&self, path: &str) -> Option<Vec<u8>> {
        let Node::File { kept: Kept::Packed { bytes, size }, .. } = self.get(path)? else {
            return None;
        };
        let mut content = Vec::with_capacity(usize::try_from(*size).ok()?);
        zstd::Decoder::with_buffer(&bytes[..]).ok()?.take(*size).read_to_end(&mut content).ok()?;
        Some(content)
    }

    /// The kept content of a file as text; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self, path: &str) -> Option<String> {
        self.content(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// What was found in a binary; `None` if there is none.
    pub fn scanned(&self, path: &str) -> Option<&Scanned> {
        match self.get(path)? {
            Node::File { kept: Kept::Hits(scanned), .. } => Some(scanned),
            _ => None,
        }
    }

    /// The markers found in a binary; `None` if there is none.
    pub fn hits(&self, path: &str) -> Option<&[Hit]> {
        self.scanned(path).map(|scanned| scanned.hits.as_slice())
    }

    /// The names in a directory, sorted; empty if the path is not a directory.
    pub fn list(&self, path: &str) -> Vec<&str> {
        match self.resolve(path) {
            Some((at, _)) => self.entries[at].children.keys().map(String::as_str).collect(),
            None => Vec::new(),
        }
    }

    /// Calls `visit` for every object below `path` with its path (no leading slash), in name order; links are shown, not
    /// followed.
    pub fn walk<'a>(&'a self, path: &str, visit: &mut dyn FnMut(&str, &'a Node)) {
        let Some((at, real)) = self.resolve(path) else { return };
        // An explicit stack: a hostile image may nest directories deeper than the thread's stack allows.
        let mut todo = vec![(at, real)];
        while let Some((at, path)) = todo.pop() {
            if at != 0
                && let Some(node) = &self.entries[at].node
            {
                visit(&path, node);
            }
            for (name, child) in self.entries[at].children.iter().rev() {
                let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                todo.push((*child, below));
            }
        }
    }

    /// Hard links whose target does not exist.
    pub fn dangling_hard_links(&self) -> &[String] {
        &self.dangling_hard_links
    }
}

/// Splits off the last name: `("usr/lib", Some("x"))`; the root has none.
fn split_last(path: &str) -> (&str, Option<&str>) {
    let path = path.trim_matches('/');
    match path.rsplit_once('/') {
        Some((parent, name)) => (parent, Some(name)),
        None if path.is_empty() => ("", None),
        None => ("", Some(path)),
    }
}

fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Change {
        Change::Put(Node::File { size: text.len() as u64, mode: 0o644, kept: Kept::Content(text.as_bytes().into()) })
    }

    fn link(target: &str) -> Change {
        Change::Put(Node::Symlink(target.to_owned()))
    }

    fn layer(changes: Vec<(&str, Change)>) -> LayerIndex {
        LayerIndex {
            changes: changes.into_iter().map(|(path, change)| (path.to_owned(), change)).collect(),
            file_bytes: 0,
        }
    }

    #[test]
    fn whiteouts_and_opaque_directories_speak_of_lower_layers_only() {
        let bottom = || layer(vec![("usr/lib/libibverbs/libmlx5-rdmav34.so", file("mlx5")), ("etc/a", file("a"))]);
        for marker_first in [true, false] {
            let mut upper =
                vec![("usr/lib/libibverbs", Change::Opaque), ("usr/lib/libibverbs/liberdma-rdmav34.so", file("erdma"))];
            if !marker_first {
                upper.reverse();
            }
            upper.push(("etc/a", Change::Whiteout));
            let fs = RootFs::merge([bottom(), layer(upper)]);
            assert_eq!(fs.list("usr/lib/libibverbs"), ["liberdma-rdmav34.so"]);
            assert!(!fs.exists("etc/a"));
            assert!(fs.exists("etc"));
        }
        let fs = RootFs::merge([bottom(), layer(vec![("usr/lib/libibverbs", Change::Whiteout)])]);
        assert!(!fs.exists("usr/lib/libibverbs/libmlx5-rdmav34.so"));
    }

    #[test]
    fn an_opaque_directory_in_place_of_a_link_spares_its_target() {
        let bottom = layer(vec![("lib", link("usr/lib")), ("usr/lib/a", file("a"))]);
        let top = layer(vec![("lib", Change::Opaque), ("lib", Change::Put(Node::Dir)), ("lib/b", file("b"))]);
        let fs = RootFs::merge([bottom, top]);
        assert_eq!((fs.list("lib"), fs.list("usr/lib")), (vec!["b"], vec!["a"]));
    }

    #[test]
    fn a_removal_below_a_directory_in_place_of_a_link_spares_the_link_s_target() {
        let bottom = layer(vec![("lib", link("usr/lib")), ("usr/lib/a", file("a"))]);
        let top = layer(vec![("lib", Change::Put(Node::Dir)), ("lib/a", Change::Whiteout)]);
        let fs = RootFs::merge([bottom, top]);
        assert!(fs.list("lib").is_empty());
        assert_eq!(fs.list("usr/lib"), ["a"]);
    }

    #[test]
    fn hard_links_keep_the_old_content() {
        let bottom = || {
            layer(vec![
                ("lib/libnccl.so.2", Change::Link("lib/libnccl.so.2.19.3".into())),
                ("lib/libnccl.so.2.19.3", file("2.19.3")),
            ])
        };
        let fs = RootFs::merge([bottom(), layer(vec![("lib/libnccl.so.2.19.3", Change::Whiteout)])]);
        assert_eq!(fs.text("lib/libnccl.so.2").as_deref(), Some("2.19.3"));
        let fs = RootFs::merge([bottom(), layer(vec![("lib/libnccl.so.2.19.3", file("new"))])]);
        assert_eq!(fs.text("lib/libnccl.so.2").as_deref(), Some("2.19.3"));
        let fs = RootFs::merge([bottom(), layer(vec![("opt/n/x.so", Change::Link("lib/libnccl.so.2".into()))])]);
        assert_eq!(fs.text("opt/n/x.so").as_deref(), Some("2.19.3"));
        let fs = RootFs::merge([layer(vec![("a", Change::Link("nowhere".into()))])]);
        assert_eq!(fs.dangling_hard_links(), ["a"]);
        assert!(!fs.exists("a"));
    }

    #[test]
    fn links_stay_inside_the_root() {
        let fs = RootFs::merge([layer(vec![
            ("lib", link("usr/lib")),
            ("usr/lib/os-release", file("ID=x")),
            ("etc/os-release", link("../../../../usr/lib/os-release")),
            ("abs", link("/lib/os-release")),
            ("loop1", link("loop2")),
            ("loop2", link("loop1")),
            ("dangling", link("/proc/self/root/etc/passwd")),
        ])]);
        assert_eq!(fs.text("etc/os-release").as_deref(), Some("ID=x"));
        assert_eq!(fs.text("abs").as_deref(), Some("ID=x"));
        assert_eq!(fs.real_path("lib/os-release").as_deref(), Some("usr/lib/os-release"));
        assert_eq!(fs.get("loop1"), None);
        assert_eq!(fs.get("dangling"), None);
        assert_eq!(fs.get_no_follow("lib/../../dangling"), Some(&Node::Symlink("/proc/self/root/etc/passwd".into())));
    }

    #[test]
    fn entries_below_a_link_land_where_it_points() {
        let bottom = || layer(vec![("lib", link("usr/lib")), ("usr/lib/a", file("a"))]);
        let fs = RootFs::merge([bottom(), layer(vec![("lib/b", file("b")), ("lib/a", Change::Whiteout)])]);
        assert_eq!(fs.list("usr/lib"), ["b"]);
        assert_eq!(fs.get_no_follow("lib"), Some(&Node::Symlink("usr/lib".into())));
        // An entry for the directory itself takes the link's place, as the engine does it.
        let fs = RootFs::merge([bottom(), layer(vec![("lib", Change::Put(Node::Dir)), ("lib/b", file("b"))])]);
        assert_eq!(fs.list("lib"), ["b"]);
        assert_eq!(fs.list("usr/lib"), ["a"]);
    }

    #[test]
    fn a_file_that_replaces_a_directory_takes_its_children_away() {
        let fs = RootFs::merge([layer(vec![("a/b/c", file("c"))]), layer(vec![("a/b", file("b"))])]);
        assert_eq!(fs.text("a/b").as_deref(), Some("b"));
        assert!(!fs.exists("a/b/c"));
        let mut seen = Vec::new();
        fs.walk("", &mut |path, _| seen.push(path.to_owned()));
        assert_eq!(seen, ["a", "a/b"]);
    }
}
