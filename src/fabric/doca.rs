//! NVIDIA's DOCA-Host, the successor of MLNX_OFED: its apt and yum repositories.
//!
//! Source: NVIDIA/hpc-container-maker, `hpccm/building_blocks/doca_ofed.py`, read 2026-11: address, key, names of
//! distributions and architectures, and that an image needs the packages of rdma-core out of it.

use super::{AptRepository, RepositoryChoice, RepositoryError, YumRepository, check_mirror, is_suite};
use crate::distro::Distro;

/// The directory that holds the key, and a directory for each version.
const PUBLIC_MIRROR: &str = "https://linux.mellanox.com/public/repo/doca";
const KEY: &str = "GPG-KEY-Mellanox.pub";
/// The base name of a swap's files in an image.
const NAME: &str = "doca";
/// A distribution that NVIDIA has a directory for.
struct Listed {
    /// Distributions that it serves, the one that it is named after first.
    ids: &'static [&'static str],
    /// As far as it matters ([`Distro::is_version`]).
    version: &'static str,
    directory: &'static str,
}

/// Red Hat and its rebuilds.
const RED_HAT: &[&str] = &["rhel", "centos", "rocky", "almalinux"];
static LISTED: [Listed; 5] = [
    Listed { ids: &["ubuntu"], version: "20.04", directory: "ubuntu20.04" },
    Listed { ids: &["ubuntu"], version: "22.04", directory: "ubuntu22.04" },
    Listed { ids: &["ubuntu"], version: "24.04", directory: "ubuntu24.04" },
    // The directory of one minor release serves all of the major one.
    Listed { ids: RED_HAT, version: "8", directory: "rhel8.6" },
    Listed { ids: RED_HAT, version: "9", directory: "rhel9.2" },
];

/// The apt repository for an image.
///
/// # Errors
/// No version was given, or NVIDIA has no directory for the distribution.
pub fn apt_repository(
    distro: Option<&Distro>,
    architecture: &str,
    choice: &RepositoryChoice,
) -> Result<AptRepository, RepositoryError> {
    let (mirror, path) = directory(distro, architecture, choice)?;
    Ok(AptRepository {
        name: NAME,
        url: format!("{mirror}/{path}"),
        suite: "./".to_owned(),
        component: String::new(),
        key_url: format!("{mirror}/{KEY}"),
    })
}

/// The yum repository for an image.
///
/// # Errors
/// No version was given, or NVIDIA has no directory for the distribution.
pub fn yum_repository(
    distro: Option<&Distro>,
    architecture: &str,
    choice: &RepositoryChoice,
    gpg_check: bool,
) -> Result<YumRepository, RepositoryError> {
    let (mirror, path) = directory(distro, architecture, choice)?;
    Ok(YumRepository {
        name: NAME,
        base_url: format!("{mirror}/{path}/"),
        key_url: format!("{mirror}/{KEY}"),
        by_analogy: false,
        gpg_check,
    })
}

/// The distributions that NVIDIA has a directory for, by id and version.
pub fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    LISTED.iter().flat_map(|known| known.ids.iter().map(|id| (*id, known.version)))
}

/// Whether a distribution is Red Hat's or a rebuild of it.
pub fn is_red_hat(id: &str) -> bool {
    RED_HAT.contains(&id)
}

/// The mirror, and the directory of a version, distribution and architecture below it.
fn directory<'a>(
    distro: Option<&Distro>,
    architecture: &str,
    choice: &'a RepositoryChoice,
) -> Result<(&'a str, String), RepositoryError> {
    let mirror = match &choice.mirror {
        Some(mirror) => check_mirror(mirror)?,
        None => PUBLIC_MIRROR,
    };
    let version = choice.doca_version.as_deref().ok_or(RepositoryError::NoDocaVersion)?;
    // `latest` and branch names are directories too, and would make two builds differ.
    if !version.starts_with(|c: char| c.is_ascii_digit())
        || !version.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    {
        return Err(RepositoryError::BadDocaVersion(version.to_owned()));
    }
    let release = match &choice.suite {
        Some(name) if !is_suite(name) || name.contains(['/', '~']) || name.contains("..") => {
            return Err(RepositoryError::BadDocaDirectory(name.clone()));
        }
        Some(name) => Some(name.clone()),
        None => distro.and_then(of_distro),
    };
    let machine = match architecture {
        "amd64" => Some("x86_64"),
        "arm64" => Some("arm64-sbsa"),
        _ => None,
    };
    let (Some(release), Some(machine)) = (release, machine) else {
        let known = LISTED.iter().map(|known| format!("{} {} (amd64, arm64)", known.ids[0], known.version));
        return Err(RepositoryError::DocaNotListed {
            distro: distro.map_or("an unknown distribution".to_owned(), ToString::to_string),
            architecture: architecture.to_owned(),
            known: known.collect::<Vec<_>>().join(", "),
        });
    };
    Ok((mirror, format!("{version}/{release}/{machine}")))
}

/// Name of a distribution's directory.
fn of_distro(distro: &Distro) -> Option<String> {
    let is_it = |known: &&Listed| known.ids.contains(&distro.id.as_str()) && distro.is_version(known.version);
    LISTED.iter().find(is_it).map(|known| known.directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distro::parse_os_release;
    use crate::remedy::with_remedy;

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
        let unknown = with_remedy(&apt_repository(None, "amd64", &choice(Some("2.10.0"))).unwrap_err());
        assert!(unknown.contains("an unknown distribution on amd64"), "{unknown}");
        let bionic = parse_os_release("ID=ubuntu\nVERSION_ID=18.04\n");
        let error = with_remedy(&apt_repository(bionic.as_ref(), "amd64", &choice(Some("2.10.0"))).unwrap_err());
        assert!(error.contains("ubuntu 22.04 (amd64, arm64)") && error.contains("rhel 8 (amd64, arm64)"), "{error}");
        assert!(error.contains("--suite"), "{error}");
    }

    #[test]
    fn one_directory_for_all_of_a_red_hat() {
        let base = "https://linux.mellanox.com/public/repo/doca/2.10.0";
        for (os_release, architecture, path) in [
            ("ID=rhel\nVERSION_ID=8.10\n", "amd64", "rhel8.6/x86_64"),
            ("ID=centos\nVERSION_ID=8\n", "arm64", "rhel8.6/arm64-sbsa"),
            ("ID=rocky\nVERSION_ID=9.4\n", "amd64", "rhel9.2/x86_64"),
        ] {
            let distro = parse_os_release(os_release);
            let found = yum_repository(distro.as_ref(), architecture, &choice(Some("2.10.0")), true).unwrap();
            assert_eq!(found.base_url, format!("{base}/{path}/"));
            assert_eq!(found.key_url, "https://linux.mellanox.com/public/repo/doca/GPG-KEY-Mellanox.pub");
        }
        let alinux = parse_os_release("ID=alinux\nVERSION_ID=3\n");
        for os_release in ["ID=rhel\nVERSION_ID=7.9\n", "ID=fedora\nVERSION_ID=40\n", "ID=rhel\n"] {
            let distro = parse_os_release(os_release);
            assert!(yum_repository(distro.as_ref(), "amd64", &choice(Some("2.10.0")), true).is_err(), "{os_release}");
        }
        // A user who names the directory vouches for it.
        let named = RepositoryChoice { suite: Some("alinux3.2".into()), ..choice(Some("2.10.0")) };
        let found = yum_repository(alinux.as_ref(), "amd64", &named, true).unwrap();
        assert_eq!(found.base_url, format!("{base}/alinux3.2/x86_64/"));
        for bad in ["a/b", "..", "a b", ""] {
            let named = RepositoryChoice { suite: Some(bad.into()), ..choice(Some("2.10.0")) };
            let error = yum_repository(alinux.as_ref(), "amd64", &named, true).unwrap_err();
            assert_eq!(error, RepositoryError::BadDocaDirectory(bad.into()));
        }
    }
}
