//! RDMA fabrics as data: which packages, where from, for which distributions.
//!
//! To add a fabric, add a file in this directory and an entry in [`FABRICS`].

pub mod doca;
pub mod erdma;
pub mod nic;
pub mod roce;
pub mod yum;

use crate::distro::Distro;
use crate::remedy::Remedy;
use serde::Serialize;
use std::collections::BTreeMap;
pub use yum::{SupportedRpmDistro, YumRepository};

/// The userspace stack of one fabric.
#[derive(Debug)]
pub struct Fabric {
    /// `erdma`
    pub id: &'static str,
    /// For people.
    pub title: &'static str,
    /// Name of the verbs driver: `lib<driver>-rdmav<N>.so`, `driver <driver>`.
    pub driver: &'static str,
    /// PCI vendor of its devices, as sysfs has it.
    pub pci_vendor: &'static str,
    /// Packages that a job needs. Each inner list has the names of one package in different distributions, in the order to
    /// try.
    pub apt_packages: &'static [&'static [&'static str]],
    /// Version of the vendor's packages, if published.
    pub published_version: Option<&'static str>,
    /// `None`: the distribution's own packages are the right ones.
    pub public_mirror: Option<&'static str>,
    /// Resolves only inside the vendor's VPC.
    pub vpc_mirror: Option<&'static str>,
    /// Distributions that the vendor has packages for.
    pub distros: &'static [SupportedDistro],
    /// Whether its devices are Mellanox's, so that a Mellanox userspace drives them too.
    pub is_mellanox: bool,
    /// Userspace builds that drive its devices, the default first.
    pub userspaces: &'static [Userspace],
    /// The packages under their rpm names (rdma-core, `redhat/rdma-core.spec`: the providers are in libibverbs).
    pub rpm_packages: &'static [&'static str],
    /// The rpm distributions that the vendor has packages for.
    pub rpm_distros: &'static [SupportedRpmDistro],
}

/// The userspace build that an image gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Userspace {
    /// The fabric vendor's.
    Vendor,
    /// The image's present one.
    Keep,
    /// The distribution's own.
    Inbox,
    /// NVIDIA's, from DOCA-Host.
    Doca,
}

impl Userspace {
    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Userspace::Vendor => "vendor",
            Userspace::Keep => "keep",
            Userspace::Inbox => "inbox",
            Userspace::Doca => "doca",
        }
    }
}

/// A distribution that the vendor lists.
#[derive(Debug)]
pub struct SupportedDistro {
    pub id: &'static str,
    pub version: &'static str,
    /// apt suite in the vendor's repository.
    pub suite: &'static str,
    /// Go's names.
    pub architectures: &'static [&'static str],
}

/// Base names of this program's apt lists, pins, keys and yum repositories in an image.
pub const OWN_NAMES: [&str; 3] = ["erdma", "mlx5", "doca"];

/// The name from [`OWN_NAMES`] that a list, pin, key or repository in an image has.
pub fn own_name(path: &str) -> Option<&'static str> {
    let stem = path.rsplit('/').next()?.split('.').next();
    OWN_NAMES.into_iter().find(|name| Some(*name) == stem)
}

/// Every fabric known.
pub static FABRICS: [&Fabric; 2] = [&erdma::ERDMA, &roce::ROCE];

/// Finds a fabric by id.
pub fn by_id(id: &str) -> Option<&'static Fabric> {
    FABRICS.into_iter().find(|fabric| fabric.id == id)
}

/// Binary packages of the Debian source package rdma-core (debian/control of 22 to 64): they must all be of one build.
pub const RDMA_CORE_PACKAGES: [&str; 20] = [
    "ibacm",
    "ibverbs-providers",
    "ibverbs-utils",
    "infiniband-diags",
    "libibmad-dev",
    "libibmad5",
    "libibnetdisc-dev",
    "libibnetdisc5",
    "libibnetdisc5t64",
    "libibumad-dev",
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "librdmacm-dev",
    "librdmacm1",
    "librdmacm1t64",
    "python3-pyverbs",
    "rdma-core",
    "rdmacm-utils",
    "srptools",
];

/// The rpm counterpart: binary packages of rdma-core (`redhat/rdma-core.spec` and `suse/rdma-core.spec` of 22 to 64), the
/// libraries that MLNX_OFED 4 had as packages of their own, and perftest, which each OFED builds for its libibverbs.
pub const RDMA_RPM_PACKAGES: [&str; 29] = [
    "ibacm",
    "infiniband-diags",
    "infiniband-diags-compat",
    "iwpmd",
    "libibcm",
    "libibmad",
    "libibmad-devel",
    "libibmad5",
    "libibnetdisc5",
    "libibumad",
    "libibumad-devel",
    "libibumad3",
    "libibverbs",
    "libibverbs-devel",
    "libibverbs-devel-static",
    "libibverbs-utils",
    "libibverbs1",
    "librdmacm",
    "librdmacm-devel",
    "librdmacm-utils",
    "librdmacm1",
    "perftest",
    "python3-pyverbs",
    "rdma-core",
    "rdma-core-devel",
    "rdma-ndd",
    "rsocket",
    "srp_daemon",
    "srptools",
];

/// What a job needs, by rpm's names (`redhat/rdma-core.spec`). The vendor's page prints the names of the deb packages,
/// `ibverbs-providers` among them, which no rpm has.
pub const RPM_PACKAGES: &[&str] = &["libibverbs", "libibverbs-utils", "librdmacm"];

/// Providers that were separate rpm packages before rdma-core (RHEL up to 7.3, MLNX_OFED 4): their files conflict with a
/// newer libibverbs. SUSE still splits two off, under other names.
pub const SPLIT_PROVIDER_RPMS: [&str; 14] = [
    "libcxgb3",
    "libcxgb4",
    "libhfi1verbs",
    "libhns",
    "libi40iw",
    "libipathverbs",
    "libmlx4",
    "libmlx4-devel",
    "libmlx5",
    "libmlx5-devel",
    "libmthca",
    "libnes",
    "libocrdma",
    "librxe",
];

/// The source of the new packages; `R` is the kind of repository that their package manager reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin<R> {
    /// The vendor's.
    Repository(R),
    /// Package files that lie in the build context.
    Files(PackageFiles),
    /// The package sources that the image has, without Mellanox's.
    Distribution,
}

/// Package files instead of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageFiles {
    /// Directory in the build context.
    pub directory: &'static str,
    /// Name in it → name in the user's directory.
    pub sources: BTreeMap<String, String>,
    /// Name → hexadecimal digest, for rpm files.
    pub sha256: BTreeMap<String, String>,
    /// Packages among them that are taken only since others depend on them.
    pub dependencies: Vec<String>,
}

/// A vendor's apt repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptRepository {
    /// Base name of its list, key and pins in the image.
    pub name: &'static str,
    /// Address of the apt repository, without a trailing slash.
    pub url: String,
    pub suite: String,
    /// Empty if the suite is a path of its own (sources.list(5)).
    pub component: String,
    /// Address of the repository's public key.
    pub key_url: String,
}

/// The user's choice of repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositoryChoice {
    /// Address of the directory that holds `GPGKEY`, `apt/` and `yum/`.
    pub mirror: Option<String>,
    pub vpc: bool,
    /// apt suite; for rpm the path below `yum/` of the directory that contains `repodata`; for DOCA the distribution's directory.
    pub suite: Option<String>,
    /// DOCA-Host's version, such as `2.10.0`.
    pub doca_version: Option<String>,
}

/// Why no repository can be chosen for an image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    #[error("{title} has no packages for {distro} on {architecture}")]
    NotListed { title: &'static str, distro: String, architecture: String, known: String },
    #[error("{title} has no vendor packages")]
    NoVendorPackages { title: &'static str, known: String },
    #[error("{title} has no userspace {userspace:?}")]
    NotItsUserspace { title: &'static str, userspace: &'static str, known: String },
    #[error("DOCA-Host has no packages for {distro} on {architecture}")]
    DocaNotListed { distro: String, architecture: String, known: String },
    #[error("DOCA's repository has a directory for each version")]
    NoDocaVersion,
    #[error("{0:?} is not a directory name in DOCA's repository")]
    BadDocaDirectory(String),
    #[error("{0:?} is not a DOCA version")]
    BadDocaVersion(String),
    #[error("the image does not name its distribution (no os-release)")]
    Unknown { known: String },
    #[error("{0:?} is not a mirror address")]
    BadMirror(String),
    #[error("{0:?} is not an apt suite")]
    BadSuite(String),
    #[error("{0:?} is not a path below yum/ of the mirror")]
    BadPath(String),
}

impl Remedy for RepositoryError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            RepositoryError::NotListed { known, .. } => format!(
                "listed by the vendor: {known}\nname a repository that has them with --mirror URL and --suite SUITE"
            ),
            RepositoryError::NoVendorPackages { known, .. } => format!("choose between {known} with --userspace"),
            RepositoryError::NotItsUserspace { known, .. } => format!("known: {known}"),
            RepositoryError::DocaNotListed { known, .. } => {
                format!("known directories: {known}\nname another one with --suite, such as rhel8.10")
            }
            RepositoryError::NoDocaVersion => "name one with --doca-version, such as 2.10.0".to_owned(),
            RepositoryError::BadDocaDirectory(_) => "an example is rhel8.10".to_owned(),
            RepositoryError::BadDocaVersion(_) => "an example is 2.10.0".to_owned(),
            RepositoryError::Unknown { known } => format!(
                "listed by the vendor: {known}\nwith --mirror URL and --suite SUITE it is treated as a Debian derivative"
            ),
            RepositoryError::BadMirror(_) => {
                "it must start with http:// or https:// and contain no spaces, quotes or user name".to_owned()
            }
            RepositoryError::BadSuite(_) => "an example is jammy/erdma".to_owned(),
            RepositoryError::BadPath(_) => "an example is redhat/7/erdma/x86_64".to_owned(),
        })
    }
}

impl Fabric {
    /// Chooses the apt repository for an image.
    ///
    /// # Errors
    /// The fabric has no packages of its own; or the vendor does not list the distribution on that architecture, and mirror
    /// and suite were not both given.
    pub fn apt_repository(
        &self,
        distro: Option<&Distro>,
        architecture: &str,
        choice: &RepositoryChoice,
    ) -> Result<AptRepository, RepositoryError> {
        let (public_mirror, vpc_mirror) = self.vendor_mirrors()?;
        let mirror = match &choice.mirror {
            Some(mirror) => check_mirror(mirror)?,
            None if choice.vpc => vpc_mirror,
            None => public_mirror,
        };
        let listed = distro.and_then(|distro| self.supported(distro, architecture));
        let suite = match (&choice.suite, listed) {
            (Some(suite), _) if !is_suite(suite) => return Err(RepositoryError::BadSuite(suite.clone())),
            // With both given the user vouches for the repository.
            (Some(suite), _) if choice.mirror.is_some() => suite.clone(),
            (Some(suite), Some(_)) => suite.clone(),
            (None, Some(listed)) => listed.suite.to_owned(),
            (_, None) => {
                return Err(match distro {
                    None => RepositoryError::Unknown { known: self.known() },
                    Some(distro) => RepositoryError::NotListed {
                        title: self.title,
                        distro: distro.to_string(),
                        architecture: architecture.to_owned(),
                        known: self.known(),
                    },
                });
            }
        };
        // The vendor keeps one tree per distribution id.
        let tree = distro.map_or("debian", |distro| distro.id.as_str());
        Ok(AptRepository {
            name: self.driver,
            url: format!("{mirror}/apt/{tree}"),
            suite,
            component: "main".to_owned(),
            key_url: format!("{mirror}/GPGKEY"),
        })
    }

    /// The vendor's public mirror, and the one inside its VPC.
    ///
    /// # Errors
    /// The fabric has no packages of its own: nothing can be swapped in.
    pub fn vendor_mirrors(&self) -> Result<(&'static str, &'static str), RepositoryError> {
        match (self.public_mirror, self.vpc_mirror) {
            (Some(public), Some(vpc)) => Ok((public, vpc)),
            _ => Err(RepositoryError::NoVendorPackages { title: self.title, known: self.known_userspaces() }),
        }
    }

    /// Checks that a userspace build can be chosen.
    ///
    /// # Errors
    /// The build does not drive the fabric's devices, or is not known to.
    pub fn check_userspace(&self, userspace: Userspace) -> Result<(), RepositoryError> {
        if self.userspaces.contains(&userspace) {
            return Ok(());
        }
        let known = self.known_userspaces();
        Err(RepositoryError::NotItsUserspace { title: self.title, userspace: userspace.id(), known })
    }

    /// The builds' names on the command line, as one line.
    pub fn known_userspaces(&self) -> String {
        self.userspaces.iter().map(|userspace| userspace.id()).collect::<Vec<_>>().join(", ")
    }

    fn supported(&self, distro: &Distro, architecture: &str) -> Option<&SupportedDistro> {
        self.distros.iter().find(|known| {
            known.id == distro.id && distro.is_version(known.version) && known.architectures.contains(&architecture)
        })
    }

    /// The line of a Dockerfile that installs the distribution's own packages, on Debian and its derivatives.
    pub fn distribution_packages(&self) -> String {
        // The last name is the one that older distributions have; newer ones provide it.
        let names: Vec<&str> = self.apt_packages.iter().filter_map(|names| names.last().copied()).collect();
        format!("RUN apt-get update && apt-get install -y --no-install-recommends {}", names.join(" "))
    }

    /// The distributions that the vendor lists for an architecture, by id and version.
    pub fn listed(&self, architecture: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let apt = self.distros.iter().map(|d| (d.id, d.version, d.architectures));
        let rpm = self.rpm_distros.iter().map(|d| (d.id, d.version, d.architectures));
        let is_for = move |architectures: &[&str]| architectures.contains(&architecture);
        apt.chain(rpm).filter(move |(.., on)| is_for(on)).map(|(id, version, _)| (id, version))
    }

    /// Whether the vendor lists a distribution, whatever its package manager.
    pub fn lists(&self, distro: &Distro, architecture: &str) -> bool {
        self.supported(distro, architecture).is_some() || self.supported_rpm(distro, architecture).is_some()
    }

    /// Every listed distribution as one line, the rpm ones last.
    pub fn all_known(&self) -> String {
        let each = [self.known(), self.known_rpm()];
        each.into_iter().filter(|list| !list.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The distributions that have an apt repository, as one line.
    pub fn known(&self) -> String {
        let known = self.distros.iter().map(|d| format!("{} {} ({})", d.id, d.version, d.architectures.join(", ")));
        known.collect::<Vec<_>>().join(", ")
    }
}

fn check_mirror(mirror: &str) -> Result<&str, RepositoryError> {
    check_address(mirror).map(|mirror| mirror.trim_end_matches('/')).map_err(RepositoryError::BadMirror)
}

/// Checks that an address is safe in a Dockerfile: http or https, without credentials or shell metacharacters.
///
/// # Errors
/// The part that may be shown: nothing before an `@`, which can be a password.
pub fn check_address(address: &str) -> Result<&str, String> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/[]%+".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && rest.chars().all(plain) => Ok(address),
        Some(_) | None => Err(address.rsplit('@').next().unwrap_or_default().to_owned()),
    }
}

fn is_suite(suite: &str) -> bool {
    !suite.is_empty()
        && suite.chars().all(|c| c.is_ascii_alphanumeric() || "-._/+~".contains(c))
        && !suite.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distro::parse_os_release;
    use crate::remedy::with_remedy;

    fn repository(
        os_release: &str,
        architecture: &str,
        choice: RepositoryChoice,
    ) -> Result<AptRepository, RepositoryError> {
        erdma::ERDMA.apt_repository(parse_os_release(os_release).as_ref(), architecture, &choice)
    }

    const JAMMY: &str = "ID=ubuntu\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\n";

    #[test]
    fn listed_distributions_have_their_suite() {
        let public = repository(JAMMY, "amd64", RepositoryChoice::default()).unwrap();
        assert_eq!(public.url, "http://mirrors.aliyun.com/erdma/apt/ubuntu");
        assert_eq!(public.suite, "jammy/erdma");
        assert_eq!(public.key_url, "http://mirrors.aliyun.com/erdma/GPGKEY");
        let vpc = repository(JAMMY, "arm64", RepositoryChoice { vpc: true, ..Default::default() }).unwrap();
        assert_eq!(vpc.url, "http://mirrors.cloud.aliyuncs.com/erdma/apt/ubuntu");
    }

    /// Case A14: never a silent default.
    #[test]
    fn unlisted_distributions_are_refused_with_the_list() {
        let focal = "ID=ubuntu\nVERSION_ID=20.04\nVERSION_CODENAME=focal\n";
        assert!(repository(focal, "amd64", RepositoryChoice::default()).is_ok());
        for (os_release, architecture) in [
            (focal, "arm64"),
            ("ID=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n", "amd64"),
            ("ID=anolis\nVERSION_ID=8.8\n", "amd64"),
            ("ID=linuxmint\nVERSION_ID=22.04\nID_LIKE=ubuntu\nUBUNTU_CODENAME=jammy\n", "amd64"),
            ("ID=ubuntu\nVERSION_ID=23.10\nUBUNTU_CODENAME=mantic\n", "amd64"),
        ] {
            let error = with_remedy(&repository(os_release, architecture, RepositoryChoice::default()).unwrap_err());
            assert!(error.contains("ubuntu 22.04 (amd64, arm64), ubuntu 20.04 (amd64)"), "{error}");
            assert!(error.contains("--mirror URL and --suite SUITE"), "{error}");
        }
        let no_distro = erdma::ERDMA.apt_repository(None, "amd64", &RepositoryChoice::default()).unwrap_err();
        assert!(matches!(no_distro, RepositoryError::Unknown { .. }));
        assert!(with_remedy(&no_distro).contains("ubuntu 22.04 (amd64, arm64), ubuntu 20.04 (amd64)"), "{no_distro}");
    }

    /// A swap's files are found again, whichever fabric and repository they were for.
    #[test]
    fn names_in_an_image() {
        let doca = RepositoryChoice { doca_version: Some("2.10.0".into()), ..Default::default() };
        let doca = doca::apt_repository(parse_os_release(JAMMY).as_ref(), "amd64", &doca).unwrap();
        for name in FABRICS.iter().map(|fabric| fabric.driver).chain([doca.name]) {
            assert_eq!(own_name(&format!("/etc/apt/sources.list.d/{name}.list")), Some(name));
            assert_eq!(own_name(&format!("etc/apt/preferences.d/{name}")), Some(name));
        }
        assert_eq!(own_name("/etc/apt/sources.list.d/my-erdma.list"), None);
        assert_eq!(own_name("/etc/apt/sources.list"), None);
    }

    #[test]
    fn mirror_and_suite_together_open_any_distribution() {
        let debian = "ID=debian\nVERSION_ID=12\n";
        let mirror = Some("http://127.0.0.1:8000/erdma/".to_owned());
        let choice =
            RepositoryChoice { mirror: mirror.clone(), suite: Some("bookworm/erdma".into()), ..Default::default() };
        let repository_ = repository(debian, "amd64", choice).unwrap();
        assert_eq!(repository_.url, "http://127.0.0.1:8000/erdma/apt/debian");
        assert_eq!(repository_.suite, "bookworm/erdma");
        let only_mirror = RepositoryChoice { mirror, ..Default::default() };
        assert!(repository(debian, "amd64", only_mirror).is_err());
    }

    /// The distribution's packages are right: nothing is swapped, whatever mirror is given.
    #[test]
    fn a_fabric_without_packages_of_its_own() {
        let mirror = Some("http://127.0.0.1:8000/m".to_owned());
        for choice in [
            RepositoryChoice::default(),
            RepositoryChoice { vpc: true, ..Default::default() },
            RepositoryChoice { mirror, suite: Some("jammy/m".into()), ..Default::default() },
        ] {
            let error = roce::ROCE.apt_repository(parse_os_release(JAMMY).as_ref(), "amd64", &choice).unwrap_err();
            let said = with_remedy(&error);
            assert!(matches!(error, RepositoryError::NoVendorPackages { .. }), "{said}");
            assert!(said.contains("keep, inbox, doca with --userspace"), "{said}");
        }
    }

    #[test]
    fn addresses_that_could_break_a_dockerfile_are_refused() {
        for (bad, shown) in [
            ("ftp://x", "ftp://x"),
            ("http://", "http://"),
            ("http://h/$(id)", "http://h/$(id)"),
            ("http://h/a b", "http://h/a b"),
            ("http://h/'", "http://h/'"),
            // The credentials are not shown.
            ("http://u:p@h/", "h/"),
            ("u:p@ss@h", "h"),
        ] {
            let choice = RepositoryChoice { mirror: Some(bad.into()), suite: Some("a/b".into()), ..Default::default() };
            assert_eq!(repository(JAMMY, "amd64", choice), Err(RepositoryError::BadMirror(shown.into())), "{bad}");
        }
        let choice =
            RepositoryChoice { mirror: Some("http://h".into()), suite: Some("a b".into()), ..Default::default() };
        assert_eq!(repository(JAMMY, "amd64", choice), Err(RepositoryError::BadSuite("a b".into())));
    }
}
