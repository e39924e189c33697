//! The ways in which a script of a build ends: a code, which the script prints, and the cause that it stands for.
//!
//! The scripts under `templates/` end through one function, `fail CODE SENTENCE`, which prints `rdmaprep[CODE]: SENTENCE`. The
//! sentence is for people; what reads a log goes by the code.

use super::{Cause, CauseId};

/// One row per way to end: variant, code, cause, and where the cause's own words are too general, a summary and a remedy.
macro_rules! build_failures {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $cause:ident $(, summary: $summary:literal)? $(, remedy: $remedy:literal)?;)+) => {
        /// Why a script of a build ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BuildFailure { $($(#[$doc])* $variant,)+ }

        impl BuildFailure {
            /// Every failure.
            pub const ALL: &[BuildFailure] = &[$(BuildFailure::$variant,)+];

            /// What the script prints between the brackets.
            pub fn code(self) -> &'static str {
                match self { $(BuildFailure::$variant => $code,)+ }
            }

            /// The cause, where nothing around the sentence says more.
            pub fn cause_id(self) -> CauseId {
                match self { $(BuildFailure::$variant => CauseId::$cause,)+ }
            }

            /// The cause with these lines as its evidence.
            pub fn cause(self, evidence: Vec<String>) -> Cause {
                let cause = self.cause_id().cause(evidence);
                match self { $(BuildFailure::$variant => cause $(.summary($summary))? $(.remedy($remedy))?,)+ }
            }
        }
    };
}

build_failures! {
    // The base image is not what the Dockerfile is for.
    OtherArchitecture = "other-architecture", BaseMismatch;
    OtherDistribution = "other-distribution", BaseMismatch;
    /// A Dockerfile that was written without a look at its base image has the base's user only as an option.
    NotRoot = "not-root", BaseMismatch,
        summary: "the base image does not run as root",
        remedy: "write the Dockerfile again with --user and the user of the base image";
    /// There is a package manager that rdmaprep does not drive, or none.
    NoManager = "no-manager", PackageManagerMissing;
    /// No package says which release of its distribution an image is.
    NoRelease = "no-release", ReleaseUnknown;

    // The fabric's repository.
    NoCurl = "no-curl", NoCurl;
    KeyUnreachable = "key-unreachable", MirrorUnreachable;
    RepositoryUnreachable = "repository-unreachable", MirrorUnreachable;
    /// yum: the address answers, and has no repository.
    RepositoryMissing = "repository-missing", SuiteMissing,
        summary: "the mirror has no such directory",
        remedy: "look into the mirror for the distribution's directory, and give its path (below yum/, if the mirror is the vendor's) with --suite PATH";
    /// apt: the suite is not there, or is not signed by its key.
    RepositoryUnusable = "repository-unusable", MirrorUnusable;
    /// apt: the repository was asked, and apt has no index of it.
    NoIndex = "no-index", MirrorUnreachable;
    /// The file that was given as a key, or fetched as one, has no key.
    BadKey = "bad-key", KeyUnreadable;
    /// A package is not signed by the key that was asked for.
    KeyMismatch = "key-mismatch", KeyMismatch,
        summary: "a package does not carry the signature that was asked for",
        remedy: "give the key that signs the packages with --key FILE; if they are not signed at all, --no-gpg-check takes them as they are";
    /// A package from elsewhere than the fabric's repository is not signed by a key that the image trusts.
    UntrustedPackage = "untrusted-package", KeyMismatch,
        summary: "a package that does not come from the vendor is not signed with a key that the image trusts",
        remedy: "rpm --import KEY in the base image, with the key of that repository; or give another one with --base-repo URL";
    /// Package files of the build context are not those that the Dockerfile names by digest.
    FilesChanged = "files-changed", PackageFilesChanged;

    // A package, or all of them, is not where it was to come from.
    /// The fabric's repository lacks it.
    PackageMissing = "package-missing", PackageMissing;
    FilesLackPackage = "files-lack-package", PackageFilesChanged,
        summary: "the package files lack a package";
    AptSourcesLackPackage = "apt-sources-lack-package", PackageNotInImageSources,
        summary: "the image's own apt sources do not have what is needed";
    YumRepositoriesLackPackage = "yum-repositories-lack-package", PackageNotInImageSources,
        remedy: "enable the repository that has it in the base image, or give one with --base-repo URL";
    /// The repositories of `--base-repo` lack it.
    GivenRepositoriesLackPackage = "given-repositories-lack-package", PackageUnknown,
        summary: "the repositories of --base-repo do not have what is needed",
        remedy: "give the one that has rdma-core of the image's distribution with --base-repo URL: it may be given several times";
    /// A package that was asked for by name is in no repository at all.
    PackageUnknown = "package-unknown", PackageUnknown;
    MellanoxOnly = "mellanox-only", PackageUnknown,
        summary: "a requested package exists only as Mellanox's build",
        remedy: "leave out its --package, or add a repository that has the distribution's own to the base image";

    // The transaction.
    AptConflict = "apt-conflict", AptConflict;
    RpmConflict = "rpm-conflict", RpmConflict;
    SwapRemovesPackage = "swap-removes-package", SwapRemovesPackage;

    /// apt: a package that was offered cannot be fetched.
    DownloadFailed = "download-failed", MirrorUnreachable,
        summary: "a package cannot be fetched";
    /// The package manager began to change packages, and did not get to the end.
    InstallFailed = "install-failed", SwapIncomplete;

    // The outcome is not what was meant.
    NotInstalled = "not-installed", SwapIncomplete;
    /// A package has the version that was offered, and is another build of it.
    OtherBuild = "other-build", SwapIncomplete;
    /// Files of a package are not as it brought them.
    FilesDiffer = "files-differ", SwapIncomplete;
    HalfInstalled = "half-installed", SwapIncomplete;
    RequirementsUnmet = "requirements-unmet", SwapIncomplete;
    StillThere = "still-there", SwapIncomplete;
    StillMellanox = "still-mellanox", SwapIncomplete;
    NoLibibverbs = "no-libibverbs", SwapIncomplete,
        summary: "the loader does not find the libibverbs that was installed",
        remedy: "the image's /etc/ld.so.conf leaves the distribution's directories of libraries out: put them back in the base image first";
    OtherLibibverbs = "other-libibverbs", OtherLibibverbs;
    NoProvider = "no-provider", ProviderNotInPackages;
    NoDriverFile = "no-driver-file", ProviderNotInPackages;
}

impl BuildFailure {
    /// The failure of a code.
    pub fn of_code(code: &str) -> Option<BuildFailure> {
        BuildFailure::ALL.iter().copied().find(|failure| failure.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Fault;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    /// Each code with its cause and the party at fault, for a reader to agree with.
    #[test]
    fn every_code_has_its_cause_and_party() {
        let table: String = BuildFailure::ALL.iter().fold(String::new(), |table, failure| {
            let id = failure.cause_id();
            let cause = failure.cause(Vec::new());
            assert!(!cause.summary.is_empty() && !cause.remedy.is_empty());
            assert_eq!(BuildFailure::of_code(failure.code()), Some(*failure), "two failures have one code");
            format!("{table}{:32} {id:28} {:?}\n", failure.code(), id.fault())
        });
        insta::assert_snapshot!(table);
        assert_ne!(BuildFailure::BadKey.cause_id().fault(), Fault::Image, "a bad --key is the caller's");
    }

    /// The codes that the scripts end with, by file: the words behind `fail`.
    fn codes_in_scripts() -> BTreeMap<String, BTreeSet<String>> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let code = |rest: &str| {
                rest.split(|c: char| c != '-' && !c.is_ascii_lowercase()).next().unwrap_or_default().to_owned()
            };
            let commands = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let codes = commands.flat_map(|line| line.split("fail ").skip(1)).map(code);
            files.insert(path.file_name().unwrap().to_string_lossy().into_owned(), codes.collect());
        }
        files
    }

    #[test]
    fn scripts_and_enum_have_the_same_codes() {
        let known: BTreeSet<String> = BuildFailure::ALL.iter().map(|failure| failure.code().to_owned()).collect();
        let files = codes_in_scripts();
        let mut used = BTreeSet::new();
        for (file, codes) in files {
            let unknown: Vec<&String> = codes.difference(&known).collect();
            assert!(unknown.is_empty(), "templates/{file} ends with codes that are not in the enum: {unknown:?}");
            used.extend(codes);
        }
        let unused: Vec<&String> = known.difference(&used).collect();
        assert!(unused.is_empty(), "no script ends with {unused:?}");
    }
}
