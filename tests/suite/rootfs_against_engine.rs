//! The merged tree against what the engine itself shows: images of random layers, loaded into the engine, exported from
//! a container that never runs, and compared with the archive, with `docker save`, and with the engine's store.

use crate::support;
use crate::support::image_fixture;

use image_fixture::archive_of;
use rdmaprep::image::archive::read_archive;
use rdmaprep::image::directory::index_directory;
use rdmaprep::image::layer::Want;
use rdmaprep::image::rootfs::{Kept, Node, RootFs};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::*;

/// In a short run.
const IMAGES: u64 = 12;
/// Everything random is below this directory; the engine adds files of its own elsewhere.
const TOP: &str = "t";

/// xorshift64*: the same images on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % limit
    }

    /// A path of few names, so that layers meet in the same places.
    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        let names: Vec<&str> = (0..depth).map(|_| ["a", "b", "c"][self.below(3)]).collect();
        format!("{TOP}/{}", names.join("/"))
    }
}

struct LayerWriter {
    tar: tar::Builder<Vec<u8>>,
    /// Path → is a directory, in this layer.
    here: BTreeMap<String, bool>,
    /// Regular files of this layer.
    files: Vec<String>,
}

impl LayerWriter {
    fn put(&mut self, path: &str, kind: tar::EntryType, target: &str, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
        header.set_size(content.len() as u64);
        match kind {
            tar::EntryType::Symlink | tar::EntryType::Link => self.tar.append_link(&mut header, path, target).unwrap(),
            _ => self.tar.append_data(&mut header, path, content).unwrap(),
        }
    }

    /// The directories above a path, as builders write them; `false`: a file of this layer is in the way.
    fn parents(&mut self, path: &str) -> bool {
        let mut above = String::new();
        for name in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
            above = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            match self.here.get(&above) {
                Some(true) => {}
                Some(false) => return false,
                None => {
                    self.put(&above.clone(), tar::EntryType::Directory, "", b"");
                    self.here.insert(above.clone(), true);
                }
            }
        }
        true
    }
}

fn random_layer(random: &mut Random) -> Vec<u8> {
    let mut layer = LayerWriter { tar: tar::Builder::new(Vec::new()), here: BTreeMap::new(), files: Vec::new() };
    for _ in 0..4 + random.below(8) {
        let path = random.path();
        if layer.here.contains_key(&path) || !layer.parents(&path) {
            continue;
        }
        match random.below(10) {
            0..=2 => {
                let content = "x".repeat(1 + random.below(40));
                layer.put(&path, tar::EntryType::Regular, "", content.as_bytes());
                layer.files.push(path.clone());
                layer.here.insert(path, false);
            }
            3 | 4 => {
                layer.put(&path, tar::EntryType::Directory, "", b"");
                layer.here.insert(path, true);
            }
            5 => {
                let target = ["../a", "/t/b", "c", "nowhere", "../../../../t"][random.below(5)];
                layer.put(&path, tar::EntryType::Symlink, target, b"");
                layer.here.insert(path, false);
            }
            6 => {
                // Links to links are not portable between engines.
                let file = layer.files.iter().find(|_| random.below(2) == 0).cloned();
                if let Some(file) = file {
                    layer.put(&path, tar::EntryType::Link, &file, b"");
                    layer.here.insert(path, false);
                }
            }
            7 | 8 => {
                let (parent, name) = path.rsplit_once('/').unwrap();
                layer.put(&format!("{parent}/.wh.{name}"), tar::EntryType::Regular, "", b"");
                layer.here.insert(path.clone(), false);
            }
            _ => {
                layer.put(&path, tar::EntryType::Directory, "", b"");
                layer.put(&format!("{path}/.wh..wh..opq"), tar::EntryType::Regular, "", b"");
                layer.here.insert(path, true);
            }
        }
    }
    layer.tar.into_inner().unwrap()
}

/// Path → what is there, in words.
type Listing = BTreeMap<String, String>;

fn listing_of_tree(fs: &RootFs) -> Listing {
    let mut listing = Listing::new();
    fs.walk(TOP, &mut |path, node| {
        let what = match node {
            Node::Dir => "dir".to_owned(),
            Node::File { kept: Kept::Content(content), .. } => format!("file {}", String::from_utf8_lossy(content)),
            Node::File { .. } => panic!("{path} was not kept"),
            Node::Symlink(target) => format!("link {target}"),
            Node::Special => "special".to_owned(),
        };
        listing.insert(path.to_owned(), what);
    });
    listing
}

fn listing_of_export(export: &[u8]) -> Listing {
    let mut listing = Listing::new();
    for entry in tar::Archive::new(export).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string().trim_end_matches('/').to_owned();
        if path != TOP && !path.starts_with(&format!("{TOP}/")) {
            continue;
        }
        let link = || entry.link_name().unwrap().unwrap().display().to_string();
        let what = match entry.header().entry_type() {
            tar::EntryType::Directory => "dir".to_owned(),
            tar::EntryType::Symlink => format!("link {}", link()),
            tar::EntryType::Link => listing[&link()].clone(),
            _ => {
                let mut content = String::new();
                entry.read_to_string(&mut content).unwrap();
                format!("file {content}")
            }
        };
        listing.insert(path, what);
    }
    listing
}

/// The entries of a layer, to show beside a difference.
fn names_in(layer: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(layer);
    archive
        .entries()
        .unwrap()
        .map(|e| format!("{:?} {}", e.as_ref().unwrap().header().entry_type(), e.unwrap().path().unwrap().display()))
        .collect()
}

fn keep_all(_: &str, _: u64) -> Want {
    Want::Content
}

fn docker_bytes(args: &[&str]) -> Vec<u8> {
    let output = Command::new("docker").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn load(archive: &[u8]) {
    let mut child = Command::new("docker")
        .args(["load", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(archive).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The directories of the layers, lowest first; `None`: this engine does not say.
fn store_of(image: &str) -> Option<Vec<PathBuf>> {
    let data = must("docker", &["image", "inspect", "--format", "{{json .GraphDriver.Data}}", image]);
    let data: BTreeMap<String, String> = serde_json::from_str(&data).ok()?;
    let lower = data.get("LowerDir").map(String::as_str).unwrap_or_default();
    let mut dirs: Vec<PathBuf> = data.get("UpperDir").into_iter().map(PathBuf::from).collect();
    dirs.extend(lower.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from));
    dirs.reverse();
    (!dirs.is_empty() && dirs.iter().all(|dir| dir.exists())).then_some(dirs)
}

#[test]
fn random_images_are_what_the_engine_shows() {
    if Command::new("docker").arg("version").output().is_ok_and(|output| !output.status.success()) {
        return say_skipped("no Docker engine answers");
    }
    let (mut objects, mut stores) = (0, 0);
    for seed in 1..=rounds(IMAGES) {
        let mut names = Names::new();
        let name = names.unique(&format!("random-{seed}"));
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let layers: Vec<Vec<u8>> = (0..2 + random.below(4)).map(|_| random_layer(&mut random)).collect();
        let config = serde_json::json!({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/none"]}, "rootfs": {"type": "layers"}});
        let archive = archive_of(&layers, &config, &name);
        load(&archive);
        let container = must("docker", &["create", "--network", "none", &name]);
        let export = docker_bytes(&["export", container.trim()]);
        must("docker", &["rm", container.trim()]);
        let shown = listing_of_export(&export);
        objects += shown.len();

        let ours = listing_of_tree(&read_archive(archive.as_slice(), None, &keep_all).unwrap().rootfs);
        assert_eq!(
            ours,
            shown,
            "the archive, seed {seed}, layers {:#?}",
            layers.iter().map(|l| names_in(l)).collect::<Vec<_>>()
        );
        let saved = docker_bytes(&["save", &name]);
        let ours = listing_of_tree(&read_archive(saved.as_slice(), None, &keep_all).unwrap().rootfs);
        assert_eq!(ours, shown, "docker save, seed {seed}");
        if let Some(dirs) = store_of(&name) {
            stores += 1;
            let indexes: Vec<_> = dirs.iter().map(|dir| index_directory(dir, &keep_all).unwrap()).collect();
            assert_eq!(listing_of_tree(&RootFs::merge(indexes)), shown, "the engine's store, seed {seed}");
        }
    }
    assert!(objects > 100, "{objects} objects were compared");
    if stores == 0 {
        say_skipped("the engine's store is not readable here, so only archives were compared");
    }
}
