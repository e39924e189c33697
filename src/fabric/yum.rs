//! A fabric's yum repository: distribution, architecture and the user's choice → where its rpm packages are.
//!
//! The vendor publishes the directory of one distribution; the others follow its pattern and are marked as such.

use super::{Fabric, RepositoryChoice, RepositoryError, check_mirror, is_suite};
use crate::distro::Distro;

/// An rpm distribution that the vendor lists.
#[derive(Debug)]
pub struct SupportedRpmDistro {
    pub id: &'static str,
    /// As far as the vendor lists it: `8` for every 8.x, `22.03` for that one alone ([`Distro::is_version`]).
    pub version: &'static str,
    /// Directory of its packages below `yum/` of the mirror, without the architecture.
    pub directory: &'static str,
    /// The listed distribution that this one is treated as, if any.
    pub listed_as: Option<&'static str>,
    /// Whether a vendor page names that directory. Otherwise it is by analogy, and may not exist.
    pub documented: bool,
    /// Go's names.
    pub architectures: &'static [&'static str],
}

/// A vendor's yum repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YumRepository {
    /// Base name of its file, section and key in the image.
    pub name: &'static str,
    /// Address of the directory that contains `repodata`, with a trailing slash.
    pub base_url: String,
    /// Address of the public key that signs the packages.
    pub key_url: String,
    /// Nobody vouches for the address: neither a vendor page nor the user.
    pub by_analogy: bool,
    /// Whether every package must carry a signature of that key.
    pub gpg_check: bool,
}

impl Fabric {
    /// Chooses the yum repository for an image.
    ///
    /// # Errors
    /// The fabric has no packages of its own; or the vendor does not list the distribution on that architecture, and mirror
    /// and suite were not both given.
    pub fn yum_repository(
        &self,
        distro: Option<&Distro>,
        architecture: &str,
        choice: &RepositoryChoice,
        gpg_check: bool,
    ) -> Result<YumRepository, RepositoryError> {
        let (public_mirror, vpc_mirror) = self.vendor_mirrors()?;
        let mirror = match &choice.mirror {
            Some(mirror) => check_mirror(mirror)?,
            None if choice.vpc => vpc_mirror,
            None => public_mirror,
        };
        let listed = distro.and_then(|distro| self.supported_rpm(distro, architecture));
        let (path, by_analogy) = match (&choice.suite, listed) {
            (Some(path), _) if !is_suite(path) || path.contains("..") => {
                return Err(RepositoryError::BadPath(path.clone()));
            }
            // With both given the user vouches for the repository.
            (Some(path), listed) if choice.mirror.is_some() || listed.is_some() => (path.clone(), false),
            (None, Some(listed)) => {
                (format!("{}/{}", listed.directory, rpm_architecture(architecture)), !listed.documented)
            }
            (_, None) | (Some(_), Some(_)) => {
                return Err(RepositoryError::NotListed {
                    title: self.title,
                    distro: distro.map_or("an image without os-release".to_owned(), Distro::to_string),
                    architecture: architecture.to_owned(),
                    known: self.known_rpm(),
                });
            }
        };
        Ok(YumRepository {
            name: self.driver,
            base_url: format!("{mirror}/yum/{}/", path.trim_end_matches('/')),
            key_url: format!("{mirror}/GPGKEY"),
            by_analogy,
            gpg_check,
        })
    }

    /// The listed entry that a distribution is treated as, if it has none of its own.
    pub fn listed_as(&self, distro: &Distro, architecture: &str) -> Option<&'static str> {
        self.supported_rpm(distro, architecture)?.listed_as
    }

    pub fn supported_rpm(&self, distro: &Distro, architecture: &str) -> Option<&SupportedRpmDistro> {
        self.rpm_distros.iter().find(|known| {
            known.id == distro.id && distro.is_version(known.version) && known.architectures.contains(&architecture)
        })
    }

    /// The distributions that have a yum repository, as one line.
    pub fn known_rpm(&self) -> String {
        let known = self.rpm_distros.iter().map(|d| format!("{} {} ({})", d.id, d.version, d.architectures.join(", ")));
        known.collect::<Vec<_>>().join(", ")
    }
}

/// rpm's name for an architecture given by Go's name (rpm, `rpmrc.in`).
pub fn rpm_architecture(architecture: &str) -> &str {
    match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distro::parse_os_release;
    use crate::fabric::{erdma, roce};
    use crate::remedy::with_remedy;

    fn repository(
        os_release: &str,
        architecture: &str,
        choice: &RepositoryChoice,
    ) -> Result<YumRepository, RepositoryError> {
        erdma::ERDMA.yum_repository(parse_os_release(os_release).as_ref(), architecture, choice, true)
    }

    /// Case A14. The first address is the vendor's own; the others are by analogy and say so.
    #[test]
    fn listed_distributions_have_their_directory() {
        for (os_release, architecture, path, by_analogy) in [
            ("ID=\"centos\"\nVERSION_ID=\"7\"\n", "amd64", "redhat/7/erdma/x86_64", false),
            ("ID=\"rhel\"\nVERSION_ID=\"7.9\"\n", "amd64", "redhat/7/erdma/x86_64", false),
            ("ID=\"centos\"\nVERSION_ID=\"8\"\n", "amd64", "redhat/8/erdma/x86_64", true),
            ("ID=\"rhel\"\nVERSION_ID=\"8.10\"\n", "amd64", "redhat/8/erdma/x86_64", true),
            ("ID=\"alinux\"\nVERSION_ID=\"2.1903\"\n", "amd64", "alinux/2/erdma/x86_64", true),
            ("ID=\"alinux\"\nVERSION_ID=\"3\"\n", "arm64", "alinux/3/erdma/aarch64", true),
        ] {
            let found = repository(os_release, architecture, &RepositoryChoice::default()).unwrap();
            assert_eq!(found.base_url, format!("http://mirrors.aliyun.com/erdma/yum/{path}/"));
            assert_eq!(found.key_url, "http://mirrors.aliyun.com/erdma/GPGKEY");
            assert_eq!(found.by_analogy, by_analogy, "{os_release}");
        }
        let taken_for = |text: &str| erdma::ERDMA.listed_as(&parse_os_release(text).unwrap(), "amd64");
        assert_eq!(taken_for("ID=rhel\nVERSION_ID=8.10\n"), Some("CentOS 8"), "the vendor's list has no Red Hat");
        assert_eq!(taken_for("ID=centos\nVERSION_ID=8\n"), None);
        let vpc = RepositoryChoice { vpc: true, ..Default::default() };
        let found = repository("ID=centos\nVERSION_ID=7\n", "amd64", &vpc).unwrap();
        assert_eq!(found.base_url, "http://mirrors.cloud.aliyuncs.com/erdma/yum/redhat/7/erdma/x86_64/");
    }

    /// Case A14: never a silent default.
    #[test]
    fn unlisted_distributions_are_refused_with_the_list() {
        for (os_release, architecture) in [
            ("ID=anolis\nVERSION_ID=8.8\n", "amd64"),
            ("ID=\"rocky\"\nVERSION_ID=\"9.3\"\nID_LIKE=\"rhel centos fedora\"\n", "amd64"),
            ("ID=\"almalinux\"\nVERSION_ID=\"8.9\"\nID_LIKE=\"rhel centos fedora\"\n", "amd64"),
            ("ID=\"centos\"\nVERSION_ID=\"7\"\n", "arm64"),
            ("ID=\"alinux\"\nVERSION_ID=\"2.1903\"\n", "arm64"),
            ("ID=\"centos\"\nVERSION_ID=\"9\"\n", "amd64"),
            ("ID=\"centos\"\n", "amd64"),
            ("NAME=x\n", "amd64"),
        ] {
            let only_path = RepositoryChoice { suite: Some("redhat/8/erdma/x86_64".into()), ..Default::default() };
            for choice in [RepositoryChoice::default(), only_path] {
                let error = with_remedy(&repository(os_release, architecture, &choice).unwrap_err());
                assert!(error.contains("alinux 3 (amd64, arm64), alinux 2 (amd64), centos 8 (amd64)"), "{error}");
                assert!(error.contains("--mirror URL and --suite"), "{error}");
            }
        }
    }

    #[test]
    fn mirror_and_suite_together_open_any_distribution() {
        let mirror = Some("http://127.0.0.1:8000/erdma/".to_owned());
        let suite = Some("rocky/9/erdma/x86_64".to_owned());
        let both = RepositoryChoice { mirror: mirror.clone(), suite: suite.clone(), ..Default::default() };
        for os_release in ["ID=rocky\nVERSION_ID=9.3\n", "NAME=x\n"] {
            let found = repository(os_release, "amd64", &both).unwrap();
            assert_eq!(found.base_url, "http://127.0.0.1:8000/erdma/yum/rocky/9/erdma/x86_64/");
            assert!(!found.by_analogy, "the user vouches for it");
        }
        for path in ["a b", "/redhat", "", "../x", "a;b"] {
            let bad = RepositoryChoice { suite: Some(path.into()), ..both.clone() };
            let error = repository("ID=rocky\n", "amd64", &bad).unwrap_err();
            assert_eq!(error, RepositoryError::BadPath(path.into()));
        }
    }

    /// A release is a row, whichever of its numbers count.
    #[test]
    fn releases_that_differ_after_the_dot() {
        static ROWS: [SupportedRpmDistro; 1] = [SupportedRpmDistro {
            id: "openeuler",
            version: "22.03",
            directory: "openeuler/22.03/erdma",
            listed_as: None,
            documented: false,
            architectures: &["amd64"],
        }];
        let fabric = Fabric { rpm_distros: &ROWS, ..erdma::ERDMA };
        let found = |version: &str| {
            let distro = parse_os_release(&format!("ID=\"openEuler\"\nVERSION_ID=\"{version}\"\n"));
            fabric.yum_repository(distro.as_ref(), "amd64", &RepositoryChoice::default(), true)
        };
        let address = "http://mirrors.aliyun.com/erdma/yum/openeuler/22.03/erdma/x86_64/";
        assert_eq!(found("22.03").unwrap().base_url, address);
        for other in ["22.09", "22", "24.03"] {
            let error = with_remedy(&found(other).unwrap_err());
            assert!(error.contains("listed by the vendor: openeuler 22.03 (amd64)"), "{error}");
        }
    }

    #[test]
    fn a_fabric_without_packages_of_its_own() {
        let distro = parse_os_release("ID=centos\nVERSION_ID=8\n");
        let error =
            roce::ROCE.yum_repository(distro.as_ref(), "amd64", &RepositoryChoice::default(), true).unwrap_err();
        assert!(with_remedy(&error).contains("keep, inbox, doca with --userspace"), "{error}");
    }
}
