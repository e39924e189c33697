//! NVIDIA's DOCA-Host, the successor of MLNX_OFED: its apt repository.
//!
//! Source: NVIDIA/hpc-container-maker, `hpccm/building_blocks/doca_ofed.py`, read 2026-11: address, key, names of
//! distributions and architectures, and that an image needs the packages of rdma-core out of it.

use super::{AptRepository, RepositoryChoice, RepositoryError, check_mirror};
use crate::distro::Distro;

/// The directory that holds the key, and a directory for each version.
const PUBLIC_MIRROR: &str = "https://linux.mellanox.com/public/repo/doca";
const KEY: &str = "GPG-KEY-Mellanox.pub";
/// Releases of Ubuntu that have a directory.
const UBUNTU: [&str; 3] = ["20.04", "22.04", "24.04"];

/// The repository for an image.
///
/// # Errors
/// No version was named; or NVIDIA has no directory for the distribution.
pub fn apt_repository(
    distro: Option<&Distro>,
    architecture: &str,
    choice: &RepositoryChoice,
) -> Result<AptRepository, RepositoryError> {
    let mirror = match &choice.mirror {
        Some(mirror) => check_mirror(mirror)?,
        None => PUBLIC_MIRROR,
    };
    let version = choice.doca_version.as_deref().ok_or(RepositoryError::NoDocaVersion)?;
    // `latest` and the names of branches are directories, too, and would make two builds differ.
    if !version.starts_with(|c: char| c.is_ascii_digit())
        || !version.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    {
        return Err(RepositoryError::BadDocaVersion(version.to_owned()));
    }
    let release = distro
        .filter(|distro| distro.id == "ubuntu")
        .and_then(|distro| distro.version.as_deref())
        .filter(|version| UBUNTU.contains(version));
    let machine = match architecture {
        "amd64" => Some("x86_64"),
        "arm64" => Some("arm64-sbsa"),
        _ => None,
    };
    let (Some(release), Some(machine)) = (release, machine) else {
        return Err(RepositoryError::DocaNotListed {
            distro: distro.map_or("an unknown distribution".to_owned(), ToString::to_string),
            architecture: architecture.to_owned(),
            known: UBUNTU.map(|release| format!("ubuntu {release} (amd64, arm64)")).join(", "),
        });
    };
    Ok(AptRepository {
        name: "doca",
        url: format!("{mirror}/{version}/ubuntu{release}/{machine}"),
        suite: "./".to_owned(),
        component: String::new(),
        key_url: format!("{mirror}/{KEY}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distro::parse_os_release;

    fn choice(version: Option<&str>) -> RepositoryChoice {
        RepositoryChoice { doca_version: version.map(str::to_owned), ..RepositoryChoice::default() }
    }

    #[test]
    fn a_directory_for_each_version_distribution_and_architecture() {
        let jammy = parse_os_release("ID=ubuntu\nVERSION_ID=22.04\n");
        let found = apt_repository(jammy.as_ref(), "arm64", &choice(Some("2.10.0"))).unwrap();
        assert_eq!(found.url, "https://linux.mellanox.com/public/repo/doca/2.10.0/ubuntu22.04/arm64-sbsa");
        assert_eq!(found.key_url, "https://linux.mellanox.com/public/repo/doca/GPG-KEY-Mellanox.pub");
        let mirror = Some("http://mirror.example.com/doca/".to_owned());
        let found =
            apt_repository(jammy.as_ref(), "amd64", &RepositoryChoice { mirror, ..choice(Some("2.10.0")) }).unwrap();
        assert_eq!(found.url, "http://mirror.example.com/doca/2.10.0/ubuntu22.04/x86_64");
        assert_eq!(found.key_url, "http://mirror.example.com/doca/GPG-KEY-Mellanox.pub");
    }

    #[test]
    fn what_has_no_directory() {
        let jammy = parse_os_release("ID=ubuntu\nVERSION_ID=22.04\n");
        assert_eq!(apt_repository(jammy.as_ref(), "amd64", &choice(None)), Err(RepositoryError::NoDocaVersion));
        for version in ["latest", "", "2/../3", "2 3"] {
            let bad = apt_repository(jammy.as_ref(), "amd64", &choice(Some(version)));
            assert_eq!(bad, Err(RepositoryError::BadDocaVersion(version.to_owned())));
        }
        let unknown = apt_repository(None, "amd64", &choice(Some("2.10.0"))).unwrap_err().to_string();
        assert!(unknown.contains("an unknown distribution on amd64"), "{unknown}");
        let bionic = parse_os_release("ID=ubuntu\nVERSION_ID=18.04\n");
        let error = apt_repository(bionic.as_ref(), "amd64", &choice(Some("2.10.0"))).unwrap_err().to_string();
        assert!(error.contains("ubuntu 22.04 (amd64, arm64)"), "{error}");
    }
}
