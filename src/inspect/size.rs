//! Where the bytes of an image come from: every file in exactly one class.

use super::names::is_ofed_path;
use super::packages::for_each_owned;
use super::survey::Survey;
use crate::facts::{PackageFacts, PackageManager, SizeByOrigin};
use crate::image::rootfs::{Node, RootFs};

/// The origin that a path alone reveals.
#[derive(PartialEq, Eq)]
enum Class {
    Nccl,
    Ofed,
    Cuda,
    Python,
    /// The file belongs to a package, or to none.
    Rest,
}

fn class(survey: &Survey<'_>, path: &str) -> Class {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "libnccl.so" || name.starts_with("libnccl.so.") || name == "libnccl_static.a" {
        Class::Nccl
    } else if is_ofed_path(path) || path.starts_with("opt/amazon/") {
        Class::Ofed
    } else if path.starts_with("usr/local/cuda") {
        Class::Cuda
    } else if path.contains("/site-packages/") || path.contains("/dist-packages/") || survey.is_in_conda(path) {
        Class::Python
    } else {
        Class::Rest
    }
}

/// Sums up the sizes.
pub(super) fn load_size(fs: &RootFs, survey: &Survey<'_>, packages: &PackageFacts) -> SizeByOrigin {
    let mut size = SizeByOrigin::default();
    let mut rest = 0;
    fs.walk("", &mut |path, node| {
        if let Node::File { size: bytes, .. } = node {
            match class(survey, path) {
                Class::Nccl => size.nccl_bytes += bytes,
                Class::Ofed => size.ofed_bytes += bytes,
                Class::Cuda => size.cuda_toolkit_bytes += bytes,
                Class::Python => size.python_packages_bytes += bytes,
                Class::Rest => rest += bytes,
            }
        }
    });
    let mut owned = 0;
    for_each_owned(fs, packages, &mut |_, directory, name| {
        let path = format!("{}{name}", directory.trim_start_matches('/'));
        if let Some(Node::File { size: bytes, .. }) = fs.get_no_follow(&path)
            && class(survey, &path) == Class::Rest
        {
            owned += bytes;
        }
    });
    // Two packages may list one file, by a diversion or by a name through a linked directory.
    let owned = owned.min(rest);
    let is_known = packages.manager == PackageManager::Dpkg || packages.manager.is_rpm();
    size.distro_packages_bytes = is_known.then_some(owned);
    size.other_bytes = if is_known { rest - owned } else { rest };
    size
}

#[cfg(test)]
mod tests {
    use crate::image_fixture::Fixture;

    #[test]
    fn every_byte_is_in_one_class() {
        let mut fixture = Fixture::good();
        let text = |bytes: usize| "x".repeat(bytes);
        fixture.file("usr/local/cuda-12.4/bin/nvcc", &text(1000));
        fixture.file("opt/venv/lib/python3.11/site-packages/torch/a.py", &text(20_000));
        fixture.file("opt/conda/conda-meta/history", "").file("opt/conda/lib/libz.so", &text(30_000));
        fixture.file("opt/hpcx/ucx/lib/libucp.so", &text(400_000));
        fixture.file("srv/data", &text(5_000_000));
        fixture.owned_file("libc6", "usr/lib/x86_64-linux-gnu/libm.so.6", &text(60_000_000));
        let facts = fixture.facts();
        let size = facts.size;
        assert_eq!(size.cuda_toolkit_bytes / 1000, 1);
        assert_eq!(size.python_packages_bytes, 50_000);
        assert_eq!(size.ofed_bytes, 400_000);
        assert!((5_000_000..5_100_000).contains(&size.other_bytes), "{size:?}");
        assert!((60_000_000..60_001_000).contains(&size.distro_packages_bytes.unwrap()), "{size:?}");
        assert!(size.nccl_bytes > 0);
        let sum = size.cuda_toolkit_bytes
            + size.python_packages_bytes
            + size.ofed_bytes
            + size.other_bytes
            + size.distro_packages_bytes.unwrap()
            + size.nccl_bytes;
        assert_eq!(sum, facts.image.size_bytes());
    }
}
