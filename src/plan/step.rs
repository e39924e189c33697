//! One step of a swap, as data.
//!
//! A step is one call of a function of `templates/swap-*.sh` or `templates/discover*.sh`, whoever makes the call: it holds no
//! text of a Dockerfile and nothing that is quoted.

use super::WithoutOffer;
use crate::fabric::Userspace;

/// One step. Names of packages, files and directories are as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Comes first. `architecture` is the package manager's name, `loader_architecture` the one that `ldconfig -p` has;
    /// `manager` is dnf or yum in an image of rpm packages.
    Prepare { architecture: String, loader_architecture: &'static str, manager: Option<&'static str> },
    /// Comes first in an image that nobody has looked at.
    PrepareUnseen { architecture: String, loader_architecture: &'static str },
    /// Refuses an image of another distribution.
    ExpectDistro { id: String, version: String },
    /// Holds would keep these packages as they are.
    LiftHolds { packages: Vec<String> },
    /// Removes files, before the packages change.
    RemoveFiles { paths: Vec<String> },
    /// Takes out of a file that others share: one line of a list of sources, or one section of a `.repo` file.
    DropEntry { path: String, entry: String },
    /// Keeps a key that the build was given, whatever its name.
    SpareKey { path: String },
    /// Finds and removes sources of OFED's packages and of a former swap, by the names that a swap gives its files.
    DiscoverRepositories { names: Vec<String> },
    /// Finds and removes driver files of no package.
    DiscoverDriverFiles,
    /// Removes the pins of a former swap, by the names that a swap gives its files.
    ForgetPins { names: Vec<String> },
    /// Adds the fabric's apt repository, and reads its index alone.
    UseAptRepository { name: String, text: String, entry: String, keyring: String, key: Key, proxy: Option<String> },
    /// Adds the fabric's yum repository.
    UseYumRepository { name: String, address: String, title: String, key: Key },
    /// Reads the indexes of the sources that the image has.
    UseImageSources { proxy: Option<String> },
    /// Takes the Debian package files of a directory and nothing else; `name` is given to the pins.
    UseDebFiles { name: String, directory: &'static str },
    /// Takes the rpm package files of a directory and nothing else; `key` is a file.
    UseRpmFiles { directory: &'static str, key: Option<&'static str> },
    /// Compares a package file with what was read.
    ExpectFile { sha256: String, name: String },
    /// Takes repositories that stand in for the image's own.
    AskInstead { addresses: Vec<String> },
    /// Installs one package, under the first of its names that is offered.
    Take { alternatives: Vec<String> },
    /// Installs one package, under the name that the image has, or else the last that is offered.
    TakePresent { alternatives: Vec<String> },
    /// Changes an installed package along with the others.
    Companion { name: String, without_offer: WithoutOffer },
    /// Takes out packages that come in under another name.
    Renamed { packages: Vec<String> },
    /// Installs further packages, from wherever they are.
    Also { packages: Vec<String> },
    /// Lets these come along without a pin.
    Dependencies { packages: Vec<String> },
    /// Takes out installed packages.
    Drop { packages: Vec<String> },
    /// Lets others replace these.
    MayGo { packages: Vec<String> },
    /// Names the packages that are built from rdma-core.
    RdmaPackages { names: Vec<String> },
    /// Names the providers that were packages of their own before rdma-core.
    SplitProviders { names: Vec<String> },
    /// Names OFED's own packages; a `*` at the end stands for any further letters.
    OfedPackages { patterns: Vec<String> },
    /// Finds what of the installed packages changes along or goes.
    DiscoverPackages { userspace: Userspace },
    /// Finds OFED's directories.
    DiscoverDirectories,
    /// Chooses the builds, and downloads them from the fabric's repository.
    FetchFromRepository,
    /// Chooses the builds, and downloads them from the image's sources.
    FetchFromImageSources,
    /// Changes the packages in one transaction, which may remove none but those that were named.
    Swap,
    /// Removes directories, after the packages have changed.
    RemoveDirectories { paths: Vec<String> },
    /// Removes the directories that were found.
    RemoveFoundDirectories,
    /// Compares what is installed with what was taken; with apt, pins it.
    ProvePackages,
    /// Looks for builds of Mellanox's in the outcome.
    ProveNoMellanox,
    /// Looks with the loader's eyes.
    ProveLoader { driver: String },
    /// Pins what was taken, for dnf and yum.
    PinPackages,
    /// Removes driver files that have no provider.
    RemoveStrayDrivers,
    /// Comes last.
    CleanUp,
}

/// How the repository's key comes into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The build fetches it from this address.
    Fetched(String),
    /// A file that is already there.
    Given,
    /// Signatures are not checked.
    Unchecked,
}

impl Key {
    fn word(&self) -> &str {
        match self {
            Key::Fetched(address) => address,
            Key::Given => "given",
            Key::Unchecked => UNCHECKED,
        }
    }
}

const UNCHECKED: &str = "unchecked";

impl Step {
    /// The function of the script and its arguments, as they are.
    pub fn call(&self) -> (&'static str, Vec<String>) {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let none = Vec::new;
        match self {
            Step::Prepare { architecture, loader_architecture, manager } => (
                "prepare",
                [architecture, *loader_architecture].into_iter().chain(*manager).map(str::to_owned).collect(),
            ),
            Step::PrepareUnseen { architecture, loader_architecture } => {
                ("prepare_unseen", words(&[architecture, loader_architecture]))
            }
            Step::ExpectDistro { id, version } => ("expect_distro", words(&[id, version])),
            Step::LiftHolds { packages } => ("lift_holds", packages.clone()),
            Step::RemoveFiles { paths } => ("remove_files", paths.clone()),
            Step::DropEntry { path, entry } => ("drop_entry", words(&[path, entry])),
            Step::SpareKey { path } => ("spare_key", words(&[path])),
            Step::DiscoverRepositories { names } => ("discover_repositories", names.clone()),
            Step::DiscoverDriverFiles => ("discover_driver_files", none()),
            Step::ForgetPins { names } => ("forget_pins", names.clone()),
            Step::UseAptRepository { name, text, entry, keyring, key, proxy } => {
                let proxy = proxy.as_deref().unwrap_or_default();
                ("use_repository", words(&[name, text, entry, keyring, key.word(), proxy]))
            }
            Step::UseYumRepository { name, address, title, key } => {
                ("use_repository", words(&[name, address, title, key.word()]))
            }
            Step::UseImageSources { proxy } => ("use_image_sources", words(&[proxy.as_deref().unwrap_or_default()])),
            Step::UseDebFiles { name, directory } => ("use_files", words(&[name, directory])),
            Step::UseRpmFiles { directory, key } => ("use_files", words(&[directory, key.unwrap_or(UNCHECKED)])),
            Step::ExpectFile { sha256, name } => ("expect_file", words(&[sha256, name])),
            Step::AskInstead { addresses } => ("ask_instead", addresses.clone()),
            Step::Take { alternatives } => ("take", alternatives.clone()),
            Step::TakePresent { alternatives } => ("take_present", alternatives.clone()),
            Step::Companion { name, without_offer } => ("companion", words(&[name, without_offer.id()])),
            Step::Renamed { packages } => ("note_renamed", packages.clone()),
            Step::Also { packages } => ("take_also", packages.clone()),
            Step::Dependencies { packages } => ("note_dependencies", packages.clone()),
            Step::Drop { packages } => ("drop_packages", packages.clone()),
            Step::MayGo { packages } => ("may_go", packages.clone()),
            Step::RdmaPackages { names } => ("rdma_packages", names.clone()),
            Step::SplitProviders { names } => ("split_providers", names.clone()),
            Step::OfedPackages { patterns } => ("ofed_packages", patterns.clone()),
            Step::DiscoverPackages { userspace } => ("discover_packages", words(&[userspace.id()])),
            Step::DiscoverDirectories => ("discover_directories", none()),
            Step::FetchFromRepository => ("fetch_from_repository", none()),
            Step::FetchFromImageSources => ("fetch_from_image_sources", none()),
            Step::Swap => ("swap_packages", none()),
            Step::RemoveDirectories { paths } => ("remove_directories", paths.clone()),
            Step::RemoveFoundDirectories => ("remove_found_directories", none()),
            Step::ProvePackages => ("prove_packages", none()),
            Step::ProveNoMellanox => ("prove_no_mellanox", none()),
            Step::ProveLoader { driver } => ("prove_loader", words(&[driver])),
            Step::PinPackages => ("pin_packages", none()),
            Step::RemoveStrayDrivers => ("remove_stray_drivers", none()),
            Step::CleanUp => ("clean_up", none()),
        }
    }

    /// Why the step is there, for whoever reads the script.
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Step::Prepare { .. } | Step::PrepareUnseen { .. } | Step::ExpectDistro { .. } => {
                "The swap of this image, step by step."
            }
            Step::LiftHolds { .. } => "Holds would keep the packages as they are.",
            Step::RemoveFiles { .. }
            | Step::DropEntry { .. }
            | Step::SpareKey { .. }
            | Step::DiscoverRepositories { .. }
            | Step::DiscoverDriverFiles => {
                "What a former installation left: repositories, keys, driver files of no package."
            }
            Step::ForgetPins { .. } => "Pins of a former swap.",
            Step::UseAptRepository { .. }
            | Step::UseYumRepository { .. }
            | Step::UseImageSources { .. }
            | Step::UseDebFiles { .. }
            | Step::UseRpmFiles { .. }
            | Step::ExpectFile { .. }
            | Step::AskInstead { .. } => "Where the packages come from.",
            Step::Take { .. } | Step::TakePresent { .. } => {
                "The packages that come in; of several names the first that is offered."
            }
            Step::Companion { .. } => "Installed packages of the same source change along.",
            Step::Renamed { .. } => "The same packages under another name.",
            Step::Also { .. } => "Further packages that were asked for.",
            Step::Dependencies { .. } => "What the others depend on.",
            Step::Drop { .. } => "Installed packages that go.",
            Step::MayGo { .. } => "Older builds, which the new packages replace.",
            Step::RdmaPackages { .. }
            | Step::SplitProviders { .. }
            | Step::OfedPackages { .. }
            | Step::DiscoverPackages { .. }
            | Step::DiscoverDirectories => "Which of the installed packages belong to the swapped ones, or to OFED.",
            Step::FetchFromRepository | Step::FetchFromImageSources | Step::Swap => {
                "Nothing but the packages named above may go."
            }
            Step::RemoveDirectories { .. } | Step::RemoveFoundDirectories => "What is left of OFED's directories.",
            Step::ProvePackages | Step::ProveNoMellanox | Step::ProveLoader { .. } => "Is the outcome what was meant?",
            Step::PinPackages => "A later update leaves these packages as they are.",
            Step::RemoveStrayDrivers | Step::CleanUp => return None,
        })
    }
}
