//! Communication stacks other than OFED that images carry for other clouds: HPC-X, EFA, and the variables that refer to them.

use super::{absolute, loader_conf};
use crate::facts::{ConfigFacts, Stack};
use crate::image::rootfs::{Node, RootFs};

/// Directories and their owners (NGC images; AWS's EFA installer).
const DIRECTORIES: [(&str, &str); 4] =
    [("opt/hpcx", "hpcx"), ("opt/amazon/efa", "efa"), ("opt/amazon/openmpi", "efa"), ("opt/amazon/ofi-nccl", "efa")];
/// Links that NGC images make into HPC-X.
const LINKS: [&str; 2] = ["usr/local/mpi", "usr/local/ucx"];
const VARIABLES: [(&str, &str); 5] = [
    ("OPAL_PREFIX", "hpcx"),
    ("HPCX_DIR", "hpcx"),
    ("HPCX_VERSION", "hpcx"),
    ("MOFED_VERSION", "mofed"),
    ("EFA_VERSION", "efa"),
];

/// The stacks found, by name and evidence.
pub(super) fn load_stacks(fs: &RootFs, config: &ConfigFacts) -> Vec<Stack> {
    let mut stacks = Vec::new();
    let mut add =
        |name: &str, evidence: String, dangling| stacks.push(Stack { name: name.to_owned(), evidence, dangling });
    for (path, name) in DIRECTORIES {
        if fs.get(path) == Some(&Node::Dir) {
            add(name, absolute(path), false);
        }
    }
    for path in LINKS {
        if let Some(Node::Symlink(target)) = fs.get_no_follow(path)
            && target.contains("hpcx")
        {
            add("hpcx", format!("{} -> {target}", absolute(path)), !fs.exists(path));
        }
    }
    for directory in loader_conf::load_conf(fs).0 {
        let name = if directory.path.contains("hpcx") {
            "hpcx"
        } else if directory.path.starts_with("/opt/amazon/") {
            "efa"
        } else {
            continue;
        };
        add(name, format!("{} names {}", directory.from, directory.path), !fs.exists(&directory.path));
    }
    for (variable, name) in VARIABLES {
        if let Some(value) = config.env(variable).filter(|value| !value.is_empty()) {
            add(name, format!("{variable}={value}"), value.starts_with('/') && !fs.exists(value));
        }
    }
    stacks.sort_by(|a, b| (&a.name, &a.evidence).cmp(&(&b.name, &b.evidence)));
    stacks
}
