//! [`Image`] → [`ImageFacts`]: reads what exists, judges nothing.
//!
//! Each part declares which files it needs while the layers stream past ([`harvest`]), and reads them from the merged tree
//! afterwards.

mod apt;
mod cuda;
mod ld_cache;
mod libraries;
mod loader;
mod loader_conf;
pub mod names;
mod nccl;
mod nccl_settings;
mod ofed;
pub use ld_cache::{CacheEntry, CacheError, parse_cache};
pub use names::is_ofed_name;
pub mod packages;
mod python;
mod size;
mod stacks;
mod survey;
mod verbs;
mod yum;

use crate::distro::{self, Distro};
use crate::facts::{ConfigFacts, ImageFacts, ImageIdentity, LayerFacts, SCHEMA_VERSION};
use crate::image::layer::Want;
use crate::image::rootfs::RootFs;
use crate::image::{ConfigFile, Image};
use std::collections::BTreeSet;

/// Why an image cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("package database /{path} cannot be read: {problem}")]
    Database { path: String, problem: String },
    #[error("/{0} is larger than the limit of {limit}", limit = crate::units::Bytes(crate::image::layer::MAX_CONTENT_BYTES))]
    TooLarge(String),
}

/// Which content the inspection needs, by path (no leading slash) and size in bytes.
pub fn harvest(path: &str, _size_bytes: u64) -> Want {
    if packages::wants(path)
        || loader::wants(path)
        || ofed::wants(path)
        || yum::wants(path)
        || verbs::wants(path)
        || cuda::wants(path)
        || nccl_settings::wants(path)
        || python::wants(path)
        || RELEASE_FILES.contains(&path)
    {
        Want::Content
    } else if packages::wants_database(path) {
        Want::Database
    } else if nccl::wants_markers(path) || verbs::wants_markers(path) || python::wants_markers(path) {
        Want::Markers
    } else {
        Want::Nothing
    }
}

/// Reads all facts. `reference` is what the user wrote, with its source.
///
/// # Errors
/// A database or file exists and cannot be read: that is never mistaken for "missing".
pub fn inspect(image: &Image, reference: String) -> Result<ImageFacts, InspectError> {
    let fs = &image.rootfs;
    let architecture = image.config.architecture.clone();
    let config = config_facts(&image.config);
    let packages = packages::load_packages(fs, &architecture)?;
    let loader = loader::Loader::load(fs, &config, &architecture);

    // Ownership costs a pass over all of dpkg's lists, so it is asked for all paths at once.
    let survey = survey::Survey::load(fs);
    let mut paths = BTreeSet::new();
    paths.extend(verbs::paths(fs, &survey));
    paths.extend(nccl::paths(&survey));
    let owners = packages::Owners::find(fs, &packages, paths);
    let nccl = nccl::load_nccl(fs, &survey, &loader, &owners);
    let (nccl_settings, nccl_settings_unread) = nccl_settings::load_settings(fs, &config);

    Ok(ImageFacts {
        schema_version: SCHEMA_VERSION,
        image: ImageIdentity {
            reference,
            id: image.id.clone(),
            repo_tags: image.repo_tags.clone(),
            repo_digests: image.repo_digests.clone(),
            manifest_digest: image.manifest_digest.clone(),
            layers_verified: image.layers_verified,
            os: image.config.os.clone(),
            architecture,
            variant: image.config.variant.clone(),
            layers: image
                .layers
                .iter()
                .map(|layer| LayerFacts { diff_id: layer.diff_id.clone(), size_bytes: layer.file_bytes })
                .collect(),
        },
        distro: load_distro(fs),
        ofed: ofed::load_ofed(fs, &survey, &loader, &packages, &config),
        verbs: verbs::load_verbs(fs, &survey, &loader, &owners),
        nccl_consumers: nccl::load_consumers(fs, &survey, &loader, &config, &nccl),
        nccl_plugins: nccl::load_plugins(fs, &survey, &loader),
        nccl,
        nccl_settings,
        nccl_settings_unread,
        cuda: cuda::load_cuda(fs, &survey, &loader, &packages, &config),
        python3: python::load_python3(fs, &config),
        shell: load_shell(fs),
        torch: python::load_torch(fs, &survey),
        libraries: libraries::load_libraries(&survey),
        size: size::load_size(fs, &survey, &packages),
        loader: loader.facts(),
        packages,
        config,
    })
}

/// `/etc/os-release` wins over `/usr/lib/os-release`; either may be a link to the other.
const RELEASE_FILES: [&str; 5] =
    ["etc/os-release", "usr/lib/os-release", "etc/centos-release", "etc/redhat-release", "etc/system-release"];

fn load_distro(fs: &RootFs) -> Option<Distro> {
    let read = |path: &&str| fs.text(path);
    RELEASE_FILES[..2]
        .iter()
        .filter_map(read)
        .find_map(|text| distro::parse_os_release(&text))
        .or_else(|| RELEASE_FILES[2..].iter().filter_map(read).find_map(|text| distro::parse_release_line(&text)))
}

/// `/bin/sh`, which runs every `RUN` line and most entrypoints.
fn load_shell(fs: &RootFs) -> Option<String> {
    let is_file = matches!(fs.get("bin/sh"), Some(crate::image::rootfs::Node::File { .. }));
    is_file.then(|| absolute("bin/sh"))
}

fn config_facts(file: &ConfigFile) -> ConfigFacts {
    let missing = file.config.is_none();
    let config = file.config.clone().unwrap_or_default();
    ConfigFacts {
        env: config
            .env
            .unwrap_or_default()
            .into_iter()
            .map(|pair| match pair.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (pair, String::new()),
            })
            .collect(),
        user: config.user.unwrap_or_default(),
        entrypoint: config.entrypoint.unwrap_or_default(),
        cmd: config.cmd.unwrap_or_default(),
        shell: config.shell.unwrap_or_default(),
        working_dir: config.working_dir.unwrap_or_default(),
        labels: config.labels.unwrap_or_default(),
        on_build: config.on_build.unwrap_or_default(),
        missing,
    }
}

/// A path in its usual form, with a leading slash.
fn absolute(path: &str) -> String {
    format!("/{path}")
}
