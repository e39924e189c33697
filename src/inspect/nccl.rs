//! Every copy of NCCL, with the version that the library itself would print.

use super::packages::Owners;
use super::{absolute, files_named, loader, verbs};
use crate::facts::{NcclCopy, NcclKind};
use crate::image::rootfs::RootFs;
use crate::image::scan::Marker;
use crate::versions::{nccl_built_for_cuda, parse_nccl_version};

/// Whether the markers in a binary are needed here.
pub fn wants_markers(path: &str) -> bool {
    is_carrier_name(path.rsplit('/').next().unwrap_or(path))
}

/// libnccl itself, and torch's CUDA library, into which some builds link NCCL. Net plugins (`libnccl-net.so`) are no NCCL.
fn is_carrier_name(name: &str) -> bool {
    is_nccl_name(name) || (name.starts_with("libtorch_cuda") && name.ends_with(".so"))
}

fn is_nccl_name(name: &str) -> bool {
    name == "libnccl.so" || name.starts_with("libnccl.so.")
}

/// Paths whose owner matters here.
pub fn paths(fs: &RootFs) -> Vec<String> {
    files_named(fs, is_carrier_name)
}

/// Finds the copies, by path.
pub fn load_nccl(fs: &RootFs, directories: &[String], owners: &Owners) -> Vec<NcclCopy> {
    let loaded = loader::resolve(fs, directories, "libnccl.so.2");
    paths(fs)
        .into_iter()
        .filter_map(|path| {
            let name = path.rsplit('/').next().unwrap_or(&path);
            let line = verbs::hits(fs, &path)
                .unwrap_or_default()
                .iter()
                .filter(|hit| hit.marker == Marker::NcclVersion)
                // The format string `NCCL version %d.%d.%d` stands in some builds too.
                .find(|hit| parse_nccl_version(&hit.tail).is_some());
            let kind = match is_nccl_name(name) {
                // torch without a version line has no NCCL inside: it links to libnccl.
                false if line.is_none() => return None,
                false => NcclKind::Static,
                true if path.contains("-packages/nvidia/nccl/") => NcclKind::Wheel,
                true => match path.rsplit_once('/') {
                    Some((directory, _)) if directories.iter().any(|d| d == directory) => NcclKind::System,
                    _ => NcclKind::Other,
                },
            };
            Some(NcclCopy {
                kind,
                version: line.and_then(|hit| parse_nccl_version(&hit.tail)).map(|v| v.to_string()),
                built_for_cuda: line.and_then(|hit| nccl_built_for_cuda(&hit.tail)).map(|v| v.to_string()),
                loaded: loaded.as_deref() == Some(&path),
                package: owners.of(&path),
                path: absolute(&path),
            })
        })
        .collect()
}
