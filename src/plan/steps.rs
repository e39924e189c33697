//! [`SwapPlan`] → the steps of a swap, in their order. Pure.

use super::apt::{SUPERSEDED, in_keyrings};
use super::step::{Key, Step};
use super::{AptSwap, Change, Installed, Look, Packages, RpmSwap, SwapPlan, WithoutOffer};
use crate::distro::Distro;
use crate::fabric::yum::rpm_architecture;
use crate::fabric::{
    AptRepository, OWN_NAMES, Origin, RDMA_CORE_PACKAGES, RDMA_RPM_PACKAGES, SPLIT_PROVIDER_RPMS, Userspace,
    YumRepository,
};
use crate::inspect::names::{PACKAGE_NAMES, PACKAGE_PREFIXES};

/// Where the package files lie during the swap.
pub const FILES_DIRECTORY: &str = "/var/tmp/rdmaprep";
/// Where the key of rpm package files lies during the swap.
pub const FILES_KEY: &str = "/var/tmp/rdmaprep.key";

impl SwapPlan {
    /// The steps; none where nothing changes.
    pub fn steps(&self) -> Vec<Step> {
        match &self.change {
            Change::None => Vec::new(),
            Change::Apt(swap) => self.apt_steps(swap),
            Change::Rpm(swap) => self.rpm_steps(swap),
        }
    }

    fn apt_steps(&self, swap: &AptSwap) -> Vec<Step> {
        let mut steps = self.first_steps(&swap.packages.image, &self.architecture, None);
        match &swap.packages.image {
            Look::Seen(installed) => {
                add(&mut steps, &swap.unhold, |packages| Step::LiftHolds { packages });
                remove_leftovers(&mut steps, installed);
            }
            Look::Unseen(_) => {
                steps.extend(self.key_file.as_deref().map(|key| Step::SpareKey { path: in_keyrings(key) }));
                discover_leftovers(&mut steps);
            }
        }
        steps.push(Step::ForgetPins { names: owned(&OWN_NAMES) });
        let fetch = match &swap.origin {
            Origin::Repository(repository) => {
                steps.push(self.use_apt_repository(repository, swap.proxy.clone()));
                Some(Step::FetchFromRepository)
            }
            Origin::Files(_) => {
                steps.push(Step::UseDebFiles { name: self.driver.to_owned(), directory: FILES_DIRECTORY });
                None
            }
            Origin::Distribution => {
                steps.push(Step::UseImageSources { proxy: swap.proxy.clone() });
                Some(Step::FetchFromImageSources)
            }
        };
        match &swap.packages.image {
            Look::Seen(installed) => note_apt_packages(&mut steps, swap, installed),
            Look::Unseen(_) => {
                let alternatives = swap.packages.install.iter().cloned();
                steps.extend(alternatives.map(|alternatives| Step::TakePresent { alternatives }));
                add(&mut steps, &swap.packages.extra_packages, |packages| Step::Also { packages });
                self.discover_packages(&mut steps, &RDMA_CORE_PACKAGES, &SUPERSEDED);
            }
        }
        steps.extend(fetch);
        self.last_steps(&mut steps, &swap.packages.image, false);
        steps
    }

    fn rpm_steps(&self, swap: &RpmSwap) -> Vec<Step> {
        let architecture = rpm_architecture(&self.architecture);
        let mut steps = self.first_steps(&swap.packages.image, architecture, swap.manager);
        match &swap.packages.image {
            Look::Seen(installed) => remove_leftovers(&mut steps, installed),
            Look::Unseen(_) => discover_leftovers(&mut steps),
        }
        match &swap.origin {
            Origin::Repository(repository) => steps.push(self.use_yum_repository(repository)),
            Origin::Files(files) => {
                let key = self.key_file.as_ref().map(|_| FILES_KEY);
                steps.push(Step::UseRpmFiles { directory: FILES_DIRECTORY, key });
                let sums = files.sha256.iter();
                steps.extend(sums.map(|(name, sum)| Step::ExpectFile { sha256: sum.clone(), name: name.clone() }));
            }
            Origin::Distribution => {}
        }
        add(&mut steps, &swap.base_repos, |addresses| Step::AskInstead { addresses });
        let Packages { install, extra_packages, image } = &swap.packages;
        steps.extend(install.iter().map(|names| Step::Take { alternatives: names.clone() }));
        if let Look::Seen(installed) = image {
            for chosen in [WithoutOffer::Remove, WithoutOffer::Keep] {
                let companions = installed.companions.iter().filter(|companion| companion.without_offer == chosen);
                steps.extend(companions.map(companion));
            }
        }
        add(&mut steps, extra_packages, |packages| Step::Also { packages });
        if let Origin::Files(files) = &swap.origin {
            add(&mut steps, &files.dependencies, |packages| Step::Dependencies { packages });
        }
        match image {
            Look::Seen(installed) => {
                let gone = [installed.purge.as_slice(), &installed.superseded].concat();
                add(&mut steps, &gone, |packages| Step::Drop { packages });
            }
            Look::Unseen(_) => self.discover_packages(&mut steps, &RDMA_RPM_PACKAGES, &SPLIT_PROVIDER_RPMS),
        }
        self.last_steps(&mut steps, image, swap.origin != Origin::Distribution);
        steps
    }

    fn first_steps(&self, image: &Look, architecture: &str, manager: Option<&'static str>) -> Vec<Step> {
        let architecture = architecture.to_owned();
        let loader_architecture = if self.architecture == "arm64" { "AArch64" } else { "x86-64" };
        match image {
            Look::Seen(_) => vec![Step::Prepare { architecture, loader_architecture, manager }],
            Look::Unseen(Distro { id, version, .. }) => vec![
                Step::PrepareUnseen { architecture, loader_architecture },
                Step::ExpectDistro { id: id.clone(), version: version.clone().unwrap_or_default() },
            ],
        }
    }

    /// The transaction, its proof, and what remains.
    fn last_steps(&self, steps: &mut Vec<Step>, image: &Look, pins: bool) {
        steps.push(Step::Swap);
        match image {
            Look::Seen(installed) => {
                add(steps, &installed.remove_directories, |paths| Step::RemoveDirectories { paths });
            }
            Look::Unseen(_) if self.userspace == Userspace::Doca => {}
            Look::Unseen(_) => steps.push(Step::RemoveFoundDirectories),
        }
        steps.push(Step::ProvePackages);
        if self.userspace != Userspace::Doca {
            steps.push(Step::ProveNoMellanox);
        }
        steps.push(Step::ProveLoader { driver: self.driver.to_owned() });
        steps.extend(pins.then_some(Step::PinPackages));
        steps.extend([Step::RemoveStrayDrivers, Step::CleanUp]);
    }

    /// Finds at build time what the facts would have told of the packages.
    fn discover_packages(&self, steps: &mut Vec<Step>, family: &[&str], split_providers: &[&str]) {
        let prefixes = PACKAGE_PREFIXES.iter().map(|prefix| format!("{prefix}*"));
        steps.extend([
            Step::RdmaPackages { names: owned(family) },
            Step::SplitProviders { names: owned(split_providers) },
            Step::OfedPackages { patterns: owned(&PACKAGE_NAMES).into_iter().chain(prefixes).collect() },
            Step::DiscoverPackages { userspace: self.userspace },
        ]);
        // DOCA's tools are the successors of OFED's, and lie there, too.
        if self.userspace != Userspace::Doca {
            steps.push(Step::DiscoverDirectories);
        }
    }

    /// Where the apt repository's key lies in the image.
    pub fn keyring(&self, repository: &AptRepository) -> String {
        in_keyrings(&self.key_file.clone().unwrap_or_else(|| format!("{}.asc", repository.name)))
    }

    fn key(&self, address: &str) -> Key {
        if self.key_file.is_some() { Key::Given } else { Key::Fetched(address.to_owned()) }
    }

    fn use_apt_repository(&self, repository: &AptRepository, proxy: Option<String>) -> Step {
        let keyring = self.keyring(repository);
        let text = format!("{} {}", repository.url, repository.suite);
        let entry = format!("deb [arch={} signed-by={keyring}] {text} {}", self.architecture, repository.component);
        Step::UseAptRepository {
            name: repository.name.to_owned(),
            text,
            entry: entry.trim_end().to_owned(),
            keyring,
            key: self.key(&repository.key_url),
            proxy,
        }
    }

    fn use_yum_repository(&self, repository: &YumRepository) -> Step {
        Step::UseYumRepository {
            name: repository.name.to_owned(),
            address: repository.base_url.clone(),
            title: self.fabric_title.to_owned(),
            key: if repository.gpg_check { self.key(&repository.key_url) } else { Key::Unchecked },
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Adds a step about these words, if there are any.
fn add(steps: &mut Vec<Step>, words: &[String], step: fn(Vec<String>) -> Step) {
    steps.extend((!words.is_empty()).then(|| step(words.to_vec())));
}

fn companion(companion: &super::Companion) -> Step {
    Step::Companion { name: companion.name.clone(), without_offer: companion.without_offer }
}

fn remove_leftovers(steps: &mut Vec<Step>, installed: &Installed) {
    add(steps, &installed.remove_files, |paths| Step::RemoveFiles { paths });
    let entries = installed.remove_entries.iter().cloned();
    steps.extend(entries.map(|(path, entry)| Step::DropEntry { path, entry }));
}

fn discover_leftovers(steps: &mut Vec<Step>) {
    steps.extend([Step::DiscoverRepositories { names: owned(&OWN_NAMES) }, Step::DiscoverDriverFiles]);
}

/// What comes in and what goes in an image of Debian packages.
fn note_apt_packages(steps: &mut Vec<Step>, swap: &AptSwap, installed: &Installed) {
    steps.extend(swap.packages.install.iter().map(|names| Step::Take { alternatives: names.clone() }));
    steps.extend(installed.companions.iter().map(companion));
    let mut gone = Vec::new();
    match &swap.origin {
        Origin::Files(files) => {
            // Installed packages that no file is a counterpart of and that cannot stay.
            let is_there = |name: &String| files.sources.keys().any(|file| file.split('_').next() == Some(name));
            let leaving = installed.companions.iter().filter(|c| c.without_offer != WithoutOffer::Keep);
            let names = leaving.map(|companion| &companion.name).chain(&swap.renamed);
            gone.extend(names.filter(|name| !is_there(name)).cloned());
        }
        Origin::Repository(_) | Origin::Distribution => {
            add(steps, &swap.renamed, |packages| Step::Renamed { packages });
        }
    }
    add(steps, &swap.packages.extra_packages, |packages| Step::Also { packages });
    if let Origin::Files(files) = &swap.origin {
        add(steps, &files.dependencies, |packages| Step::Dependencies { packages });
    }
    gone.extend(installed.purge.iter().cloned());
    add(steps, &gone, |packages| Step::Drop { packages });
    add(steps, &installed.superseded, |packages| Step::MayGo { packages });
}
