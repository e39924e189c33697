//! The ELF facts of the libraries that were looked into while the layers passed.

use super::absolute;
use super::survey::Survey;
use crate::facts::LibraryFacts;
use crate::image::elf::{Dynamic, Elf};
use crate::image::rootfs::{Kept, Node};

/// The ELF facts of every library, by path.
pub(super) fn load_libraries(survey: &Survey<'_>) -> Vec<LibraryFacts> {
    let mut libraries = Vec::new();
    for (path, node) in survey.named() {
        if let Node::File { kept: Kept::Hits(scanned), .. } = node
            && let Some(elf) = &scanned.elf
        {
            libraries.push(facts(path, elf));
        }
    }
    libraries.sort_by(|a, b| a.path.cmp(&b.path));
    libraries
}

fn facts(path: &str, elf: &Elf) -> LibraryFacts {
    let section = elf.known().cloned().unwrap_or_default();
    LibraryFacts {
        path: absolute(path),
        bits: elf.bits,
        machine: match elf.machine {
            62 => "x86-64".to_owned(),
            183 => "aarch64".to_owned(),
            other => other.to_string(),
        },
        unknown: match &elf.dynamic {
            Dynamic::Unknown(reason) => Some((*reason).to_owned()),
            Dynamic::None | Dynamic::Known(_) => None,
        },
        soname: section.soname,
        needed: section.needed,
        rpath: section.rpath,
        runpath: section.runpath,
        versions: section.versions.filter(|versions| !versions.is_empty()).map(|v| v.into_iter().collect()),
    }
}
