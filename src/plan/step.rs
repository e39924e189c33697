//! [`SwapPlan`] → the steps of a swap in their order, as data.
//!
//! Pure. A step is one call of a function of `templates/swap-apt.sh`, whoever makes the call: it holds no text of a
//! Dockerfile and nothing that is quoted.

use super::{SwapPlan, WithoutOffer};
use crate::fabric::{AptRepository, OWN_NAMES, Origin, Userspace};

/// Where the package files lie during the swap.
pub const FILES_DIRECTORY: &str = "/var/tmp/rdmaprep";

/// One step of a swap in an image of Debian packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Comes first. `architecture` is dpkg's name.
    Prepare { architecture: String },
    /// Holds would keep these packages as they are.
    LiftHolds { packages: Vec<String> },
    /// Removes files, before the packages change.
    RemoveFiles { paths: Vec<String> },
    /// Takes one line out of a list of sources that others share.
    DropEntry { path: String, entry: String },
    /// Removes the pins of a former swap, by the names that a swap gives its files.
    ForgetPins { names: Vec<String> },
    /// Adds the fabric's repository, and reads its index alone.
    UseRepository { name: String, text: String, entry: String, keyring: String, key: Key, proxy: Option<String> },
    /// Reads the indexes of the sources that the image has.
    UseImageSources { proxy: Option<String> },
    /// Takes the package files of a directory and nothing else; `name` is given to the pins.
    UseFiles { name: String, directory: String },
    /// Installs one package, under the first of its names that is offered.
    Take { alternatives: Vec<String> },
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
    /// Chooses the builds, and downloads them from the fabric's repository.
    FetchFromRepository,
    /// Chooses the builds, and downloads them from the image's sources.
    FetchFromImageSources,
    /// Changes the packages in one transaction, which may remove none but those that were named.
    Swap,
    /// Removes directories, after the packages have changed.
    RemoveDirectories { paths: Vec<String> },
    /// Compares what is installed with the package files, and pins it.
    ProvePackages,
    /// Looks for builds of Mellanox's in the outcome.
    ProveNoMellanox,
    /// Looks with the loader's eyes. `loader_architecture` is the name that `ldconfig -p` has for it.
    ProveLoader { driver: String, loader_architecture: String },
    /// Removes driver files that have no provider.
    RemoveStrayDrivers,
    /// Comes last.
    CleanUp,
}

/// How the repository's key comes into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Fetch it from this address.
    Fetched(String),
    /// Use the file that is already there.
    Given,
}

impl Step {
    /// The function of the script and its arguments, as they are.
    pub fn call(&self) -> (&'static str, Vec<String>) {
        let none = Vec::new;
        let proxy = |proxy: &Option<String>| proxy.clone().unwrap_or_default();
        match self {
            Step::Prepare { architecture } => ("prepare", vec![architecture.clone()]),
            Step::LiftHolds { packages } => ("lift_holds", packages.clone()),
            Step::RemoveFiles { paths } => ("remove_files", paths.clone()),
            Step::DropEntry { path, entry } => ("drop_entry", vec![path.clone(), entry.clone()]),
            Step::ForgetPins { names } => ("forget_pins", names.clone()),
            Step::UseRepository { name, text, entry, keyring, key, proxy: by } => {
                let key = match key {
                    Key::Fetched(address) => address.as_str(),
                    Key::Given => "given",
                };
                ("use_repository", [name.as_str(), text, entry, keyring, key, &proxy(by)].map(str::to_owned).to_vec())
            }
            Step::UseImageSources { proxy: by } => ("use_image_sources", vec![proxy(by)]),
            Step::UseFiles { name, directory } => ("use_files", vec![name.clone(), directory.clone()]),
            Step::Take { alternatives } => ("take", alternatives.clone()),
            Step::Companion { name, without_offer } => ("companion", vec![name.clone(), without_offer.id().to_owned()]),
            Step::Renamed { packages } => ("note_renamed", packages.clone()),
            Step::Also { packages } => ("take_also", packages.clone()),
            Step::Dependencies { packages } => ("note_dependencies", packages.clone()),
            Step::Drop { packages } => ("drop_packages", packages.clone()),
            Step::MayGo { packages } => ("may_go", packages.clone()),
            Step::FetchFromRepository => ("fetch_from_repository", none()),
            Step::FetchFromImageSources => ("fetch_from_image_sources", none()),
            Step::Swap => ("swap_packages", none()),
            Step::RemoveDirectories { paths } => ("remove_directories", paths.clone()),
            Step::ProvePackages => ("prove_packages", none()),
            Step::ProveNoMellanox => ("prove_no_mellanox", none()),
            Step::ProveLoader { driver, loader_architecture } => {
                ("prove_loader", vec![driver.clone(), loader_architecture.clone()])
            }
            Step::RemoveStrayDrivers => ("remove_stray_drivers", none()),
            Step::CleanUp => ("clean_up", none()),
        }
    }

    /// Why the step is there, for whoever reads the script.
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Step::Prepare { .. } => "The swap of this image, step by step.",
            Step::LiftHolds { .. } => "Holds would keep the packages as they are.",
            Step::RemoveFiles { .. } | Step::DropEntry { .. } => {
                "What a former installation left: apt sources, keys, driver files of no package."
            }
            Step::UseRepository { .. } | Step::UseImageSources { .. } | Step::UseFiles { .. } => {
                "Where the packages come from."
            }
            Step::Take { .. } => "The packages that come in; of several names the first that is offered.",
            Step::Companion { .. } => "Installed packages of the same source change along.",
            Step::Renamed { .. } => "The same packages under another name.",
            Step::Also { .. } => "Further packages that were asked for.",
            Step::Dependencies { .. } => "What the others depend on.",
            Step::Drop { .. } => "Installed packages that go.",
            Step::MayGo { .. } => "Older builds, which the new packages replace.",
            Step::FetchFromRepository | Step::FetchFromImageSources | Step::Swap => {
                "Nothing but the packages named above may go."
            }
            Step::ProvePackages | Step::ProveNoMellanox | Step::ProveLoader { .. } => "Is the outcome what was meant?",
            Step::ForgetPins { .. } => "Pins of a former swap.",
            Step::RemoveDirectories { .. } => "What is left of OFED's directories.",
            Step::RemoveStrayDrivers | Step::CleanUp => return None,
        })
    }
}

impl SwapPlan {
    /// The steps of a swap in an image of Debian packages, in their order.
    pub fn apt_steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Prepare { architecture: self.architecture.clone() }];
        let some = |names: &[String], step: fn(Vec<String>) -> Step| (!names.is_empty()).then(|| step(names.to_vec()));
        steps.extend(some(&self.unhold, |packages| Step::LiftHolds { packages }));
        steps.extend(some(&self.remove_files, |paths| Step::RemoveFiles { paths }));
        let entries = self.remove_entries.iter().cloned();
        steps.extend(entries.map(|(path, entry)| Step::DropEntry { path, entry }));
        steps.push(Step::ForgetPins { names: OWN_NAMES.map(str::to_owned).to_vec() });
        let fetch = match &self.origin {
            Origin::Apt(repository) => {
                steps.push(self.use_repository(repository));
                Some(Step::FetchFromRepository)
            }
            Origin::Files(_) => {
                steps.push(Step::UseFiles { name: self.driver.to_owned(), directory: FILES_DIRECTORY.to_owned() });
                None
            }
            Origin::Distribution | Origin::Yum(_) | Origin::Image => {
                steps.push(Step::UseImageSources { proxy: self.apt_proxy.clone() });
                Some(Step::FetchFromImageSources)
            }
        };
        self.note_packages(&mut steps);
        steps.extend(fetch);
        steps.push(Step::Swap);
        steps.extend(some(&self.remove_directories, |paths| Step::RemoveDirectories { paths }));
        steps.push(Step::ProvePackages);
        if self.userspace != Userspace::Doca {
            steps.push(Step::ProveNoMellanox);
        }
        let loader_architecture = if self.architecture == "arm64" { "AArch64" } else { "x86-64" }.to_owned();
        steps.push(Step::ProveLoader { driver: self.driver.to_owned(), loader_architecture });
        steps.extend([Step::RemoveStrayDrivers, Step::CleanUp]);
        steps
    }

    /// Where the repository's key lies in the image.
    pub fn keyring(&self, repository: &AptRepository) -> String {
        let fetched = || format!("{}.asc", repository.name);
        format!("/etc/apt/keyrings/{}", self.key_file.clone().unwrap_or_else(fetched))
    }

    fn use_repository(&self, repository: &AptRepository) -> Step {
        let keyring = self.keyring(repository);
        let text = format!("{} {}", repository.url, repository.suite);
        let entry = format!("deb [arch={} signed-by={keyring}] {text} {}", self.architecture, repository.component);
        Step::UseRepository {
            name: repository.name.to_owned(),
            text,
            entry: entry.trim_end().to_owned(),
            keyring,
            key: match self.key_file {
                Some(_) => Key::Given,
                None => Key::Fetched(repository.key_url.clone()),
            },
            proxy: self.apt_proxy.clone(),
        }
    }

    /// What comes and what goes.
    fn note_packages(&self, steps: &mut Vec<Step>) {
        steps.extend(self.install.iter().map(|names| Step::Take { alternatives: names.clone() }));
        steps.extend(
            self.companions.iter().map(|companion| Step::Companion {
                name: companion.name.clone(),
                without_offer: companion.without_offer,
            }),
        );
        let mut add = |packages: &[String], step: fn(Vec<String>) -> Step| {
            if !packages.is_empty() {
                steps.push(step(packages.to_vec()));
            }
        };
        let mut gone = self.left_without_file();
        gone.extend(self.purge.iter().cloned());
        if !matches!(self.origin, Origin::Files(_)) {
            add(&self.renamed, |packages| Step::Renamed { packages });
        }
        add(&self.extra_packages, |packages| Step::Also { packages });
        add(&self.dependencies, |packages| Step::Dependencies { packages });
        add(&gone, |packages| Step::Drop { packages });
        add(&self.superseded, |packages| Step::MayGo { packages });
    }

    /// With package files: installed packages that no file is a counterpart of and that cannot stay.
    fn left_without_file(&self) -> Vec<String> {
        let Origin::Files(files) = &self.origin else { return Vec::new() };
        let is_there = |name: &String| files.names.iter().any(|file| file.split('_').next() == Some(name));
        let companions = self.companions.iter().filter(|companion| companion.without_offer != WithoutOffer::Keep);
        let names = companions.map(|companion| &companion.name).chain(&self.renamed);
        names.filter(|name| !is_there(name)).cloned().collect()
    }
}
