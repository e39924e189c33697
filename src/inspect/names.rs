//! Names by which OFED and the verbs' libraries are known.

/// Installed under these names, a package is OFED's own, whatever its version says. Metapackages and tools of
/// MLNX_OFED 5.x–24.x and DOCA-Host 2.x; the HPC libraries that they bring (ucx, openmpi, hcoll, sharp) are not
/// among them: programs link to those.
pub const PACKAGE_PREFIXES: [&str; 6] = ["mlnx-", "doca-", "ofed-", "kmod-mlnx-", "kmod-knem", "kmod-kernel-mft"];
pub const PACKAGE_NAMES: [&str; 6] =
    ["knem", "knem-dkms", "kernel-mft-dkms", "mft", "mft-autocomplete", "neohost-backend"];

/// Whether a package of this name belongs to OFED itself.
pub fn is_ofed_name(name: &str) -> bool {
    PACKAGE_NAMES.contains(&name) || PACKAGE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a file is part of an installation of OFED, DOCA or HPC-X.
pub fn is_ofed_path(path: &str) -> bool {
    let directories = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    path.starts_with("opt/mellanox/")
        || directories.split('/').any(|name| is_ofed_directory(name) || name.starts_with("hpcx"))
}

/// Names of installers and of trees that were unpacked from one: `MLNX_OFED_LINUX-23.10-…`, `mlnx-ofed-…`, `ofed`, `ofed-4.6`.
pub fn is_ofed_directory(name: &str) -> bool {
    // This runs for every directory, so most are not copied to lower case.
    if !name.starts_with(['m', 'M', 'o', 'O']) {
        return false;
    }
    let name = name.to_ascii_lowercase();
    name.starts_with("mlnx_ofed")
        || name.starts_with("mlnx-ofed-")
        || name == "ofed"
        || name.starts_with("ofed-")
        || name.starts_with("ofed_")
}

/// Splits `liberdma-rdmav34.so` into driver and ABI.
pub fn parse_provider_name(name: &str) -> Option<(&str, u32)> {
    let (driver, abi) = name.strip_prefix("lib")?.strip_suffix(".so")?.rsplit_once("-rdmav")?;
    Some((driver, abi.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["mlnx-tools", "ofed-scripts", "kmod-mlnx-ofa_kernel", "doca-ofed-userspace", "knem-dkms"] {
            assert!(is_ofed_name(name), "{name}");
        }
        for name in ["openmpi", "ucx", "libibverbs1", "hcoll"] {
            assert!(!is_ofed_name(name), "{name}");
        }
    }
}
