//! Every copy of NCCL with the version that the library itself would print, and who gets which copy.

use super::loader::{Found, How, Loader};
use super::packages::Owners;
use super::survey::Survey;
use super::{absolute, python};
use crate::facts::{ConfigFacts, ConsumerName, NcclConsumer, NcclCopy, NcclKind, NetPlugin};
use crate::image::rootfs::{Node, RootFs};
use crate::image::scan::Marker;
use crate::versions::{nccl_built_for_cuda, parse_nccl_version};
use std::collections::BTreeMap;

/// The name that consumers open.
const SONAME: &str = "libnccl.so.2";
/// Where the wheel of NCCL lies in a directory of python packages. In the wheels of torch 2.1.2, 2.2.0 to 2.2.2, 2.3.1, 2.4.0,
/// 2.6.0, 2.8.0 and 2.11.0 an RPATH leads there (`$ORIGIN/../../nvidia/nccl/lib`, measured), which `LD_LIBRARY_PATH` does not
/// hide; other builds have a RUNPATH, as linkers make it today, which it does.
const WHEEL: &str = "nvidia/nccl/lib/libnccl.so.2";

/// Whether the markers in a binary are needed here.
pub(super) fn wants_markers(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    is_carrier_name(name) || is_plugin_name(name)
}

/// libnccl itself, and torch's CUDA library, into which some builds link NCCL. Net plugins (`libnccl-net.so`) do not count.
fn is_carrier_name(name: &str) -> bool {
    is_nccl_name(name) || is_torch_name(name)
}

fn is_torch_name(name: &str) -> bool {
    name.starts_with("libtorch_cuda") && name.ends_with(".so")
}

fn is_nccl_name(name: &str) -> bool {
    name == "libnccl.so" || name.starts_with("libnccl.so.")
}

fn is_plugin_name(name: &str) -> bool {
    name.starts_with("libnccl-net") && name.contains(".so")
}

/// Paths whose owner matters here.
pub(super) fn paths(survey: &Survey<'_>) -> Vec<String> {
    survey.files_named(is_carrier_name)
}

/// Finds the copies, by path.
pub(super) fn load_nccl(fs: &RootFs, survey: &Survey<'_>, loader: &Loader<'_>, owners: &Owners) -> Vec<NcclCopy> {
    let loaded = loader.find(SONAME).map(|found| found.path);
    let directories = loader.directories();
    paths(survey)
        .into_iter()
        .filter_map(|path| {
            let name = path.rsplit('/').next().unwrap_or(&path);
            let line = version_line(fs, &path);
            let kind = match is_nccl_name(name) {
                true => kind(survey, &path, &directories),
                false if is_linked_in(fs, &path, line) => NcclKind::Static,
                false => return None,
            };
            Some(NcclCopy {
                kind,
                version: line.and_then(parse_nccl_version).map(|v| v.to_string()),
                built_for_cuda: line.and_then(nccl_built_for_cuda).map(|v| v.to_string()),
                loaded: loaded.as_deref() == Some(&path),
                package: owners.of(&path),
                path: absolute(&path),
            })
        })
        .collect()
}

/// What follows `NCCL version ` in a binary: in NCCL's own banner where there is one, which names the CUDA version that
/// it was built for (`VERSION_STRING` in NCCL's `src/init.cc`), else in another text that has a version there.
fn version_line<'a>(fs: &'a RootFs, path: &str) -> Option<&'a str> {
    let hits = fs.hits(path).unwrap_or_default().iter().filter(|hit| hit.marker == Marker::NcclVersion);
    // Some builds contain the format string `NCCL version %d.%d.%d`, too.
    let lines = || hits.clone().map(|hit| hit.tail.as_str()).filter(|tail| parse_nccl_version(tail).is_some());
    lines().find(|tail| nccl_built_for_cuda(tail).is_some()).or_else(|| lines().next())
}

/// Whether a library of torch has NCCL's code in it: it holds NCCL's banner, and does not ask the loader for libnccl.
/// torch 2.10 and later contain `requires NCCL version 2.27.0 or later`, which is not a banner.
fn is_linked_in(fs: &RootFs, path: &str, line: Option<&str>) -> bool {
    let has_banner = line.is_some_and(|line| nccl_built_for_cuda(line).is_some());
    has_banner && !needs_nccl(fs, path)
}

fn needs_nccl(fs: &RootFs, path: &str) -> bool {
    let section = fs.scanned(path).and_then(|scanned| scanned.elf.as_ref()?.known());
    section.is_some_and(|section| section.needed.iter().any(|name| is_nccl_name(name)))
}

fn kind(survey: &Survey<'_>, path: &str, directories: &[String]) -> NcclKind {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    if path.contains("-packages/nvidia/nccl/") {
        NcclKind::Wheel
    } else if path.contains("hpcx") {
        NcclKind::HpcX
    } else if survey.is_in_conda(path) {
        NcclKind::Conda
    } else if directories.iter().any(|known| known == directory) {
        NcclKind::System
    } else {
        NcclKind::Other
    }
}

/// The copy that each consumer gets: every torch, vLLM if a variable names one for it, and programs in general, in that order.
pub(super) fn load_consumers(
    fs: &RootFs,
    survey: &Survey<'_>,
    loader: &Loader<'_>,
    config: &ConfigFacts,
    copies: &[NcclCopy],
) -> Vec<NcclConsumer> {
    let (without, preload) = (loader.without_library_path(), preloaded(loader, config));
    let search = Search { fs, survey, loader, config, without, preload };
    let mut consumers = search.torches(copies);
    if let Some(path) = config.env("VLLM_NCCL_SO_PATH").filter(|path| !path.is_empty()) {
        let found = loader.find(path);
        let how = format!("VLLM_NCCL_SO_PATH={path}");
        consumers.push(NcclConsumer {
            by: "VLLM_NCCL_SO_PATH".into(),
            how,
            ..consumer(ConsumerName::Vllm, found.as_ref())
        });
    }
    let found = search.preload.clone().or_else(|| loader.find(SONAME));
    let instead = search.without.find(SONAME);
    consumers.push(consumer(ConsumerName::Programs, found.as_ref()).hiding(found.as_ref(), instead));
    for consumer in &mut consumers {
        consumer.verbs = search.verbs_of(consumer);
    }
    consumers
}

/// A libnccl in `LD_PRELOAD`, which every process has before any other.
fn preloaded(loader: &Loader<'_>, config: &ConfigFacts) -> Option<Found> {
    let value = config.env("LD_PRELOAD")?;
    let mut names = value.split([':', ' ']).filter(|path| is_nccl_name(path.rsplit('/').next().unwrap_or(path)));
    names.find_map(|name| loader.find(name))
}

fn consumer(name: ConsumerName, found: Option<&Found>) -> NcclConsumer {
    NcclConsumer {
        name,
        by: String::new(),
        path: found.map(|found| absolute(&found.path)),
        how: found.map_or("not found".to_owned(), |found| describe(&found.how)),
        library_path: found.and_then(|found| match &found.how {
            How::LibraryPath(directory) => Some(directory.clone()),
            _ => None,
        }),
        instead_of: None,
        verbs: None,
        assumed: false,
    }
}

fn describe(how: &How) -> String {
    match how {
        How::Rpath => "its RPATH".to_owned(),
        How::LibraryPath(directory) => format!("LD_LIBRARY_PATH has {directory}"),
        How::Runpath => "its RUNPATH".to_owned(),
        How::Cache => "ld.so.cache".to_owned(),
        How::Config(file) => format!("{file}, after ldconfig has run"),
        How::Default => "the loader's default directories".to_owned(),
        How::Path => "named by path".to_owned(),
    }
}

impl NcclConsumer {
    /// Records the copy that `LD_LIBRARY_PATH` hides.
    fn hiding(self, found: Option<&Found>, instead: Option<Found>) -> NcclConsumer {
        let by_variable = matches!(found, Some(Found { how: How::LibraryPath(_), .. }));
        let instead_of = instead
            .filter(|instead| by_variable && found.is_some_and(|found| found.path != instead.path))
            .map(|instead| absolute(&instead.path));
        NcclConsumer { instead_of, ..self }
    }
}

struct Search<'a> {
    fs: &'a RootFs,
    survey: &'a Survey<'a>,
    loader: &'a Loader<'a>,
    config: &'a ConfigFacts,
    /// The loader without `LD_LIBRARY_PATH`.
    without: Loader<'a>,
    preload: Option<Found>,
}

impl Search<'_> {
    /// Every torch, found by its CUDA library or by the NCCL wheel that it depends on.
    fn torches(&self, copies: &[NcclCopy]) -> Vec<NcclConsumer> {
        // Some builds have the CUDA part in several libraries: `libtorch_cuda.so`, `libtorch_cuda_cpp.so`, …
        let mut builds: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in self.survey.files_named(is_torch_name) {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
            builds.entry(directory).or_default().push(path);
        }
        let mut consumers: Vec<NcclConsumer> =
            builds.values().filter_map(|libraries| self.torch(libraries, copies)).collect();
        let served: Vec<String> =
            builds.keys().filter_map(|path| packages_directory(path)).map(str::to_owned).collect();
        for copy in copies.iter().filter(|copy| copy.kind == NcclKind::Wheel) {
            let Some(site) = packages_directory(copy.path.trim_start_matches('/')) else { continue };
            let known = served.iter().any(|served| served == site)
                || consumers.iter().any(|consumer| consumer.path.as_deref() == Some(&copy.path));
            if !known {
                let name = if self.fs.exists(&format!("{site}/torch")) {
                    ConsumerName::Torch
                } else {
                    ConsumerName::PythonPackages
                };
                consumers.push(NcclConsumer { by: absolute(site), ..self.by_wheel(name, site) });
            }
        }
        consumers
    }

    fn torch(&self, libraries: &[String], copies: &[NcclCopy]) -> Option<NcclConsumer> {
        let linked_in = libraries.iter().find_map(|path| {
            let path = absolute(path);
            copies.iter().find(|copy| copy.kind == NcclKind::Static && copy.path == path)
        });
        if let Some(copy) = linked_in {
            return Some(NcclConsumer {
                by: copy.path.clone(),
                path: Some(copy.path.clone()),
                how: "linked into it".into(),
                ..consumer(ConsumerName::Torch, None)
            });
        }
        let section = |path: &String| self.fs.scanned(path)?.elf.as_ref()?.known();
        if let Some(path) = libraries.iter().find(|path| needs_nccl(self.fs, path)) {
            let soname = section(path)?.needed.iter().find(|name| is_nccl_name(name))?;
            let program = self.program_of(path);
            let chain: Vec<&str> = [path.as_str()].into_iter().chain(program.as_deref()).collect();
            let ask = |loader: &Loader<'_>| loader.find_for(soname, &chain);
            let found = self.preload.clone().or_else(|| ask(self.loader));
            let consumer = consumer(ConsumerName::Torch, found.as_ref()).hiding(found.as_ref(), ask(&self.without));
            return Some(NcclConsumer { by: absolute(path), ..consumer });
        }
        // Every library was read and none asks for NCCL: a build without it.
        let unread = libraries.iter().find(|path| section(path).is_none())?;
        let site = packages_directory(unread).unwrap_or_default();
        Some(NcclConsumer { by: absolute(unread), ..self.by_wheel(ConsumerName::Torch, site) })
    }

    /// For a library whose own search path could not be read: as with a RUNPATH to the wheel, so that what
    /// `LD_LIBRARY_PATH` might hide is seen.
    fn by_wheel(&self, name: ConsumerName, site: &str) -> NcclConsumer {
        let wheel = self.fs.real_path(&format!("{site}/{WHEEL}")).filter(|path| {
            // A wheel without the link has the file under its full version.
            matches!(self.fs.get(path), Some(Node::File { .. }))
        });
        let wheel = wheel.map(|path| Found { path, how: How::Runpath });
        let by_variable = self.loader.find(SONAME).filter(|found| matches!(found.how, How::LibraryPath(_)));
        let found = self.preload.clone().or(by_variable).or_else(|| wheel.clone()).or_else(|| self.loader.find(SONAME));
        let instead = wheel.or_else(|| self.without.find(SONAME));
        NcclConsumer { assumed: true, ..consumer(name, found.as_ref()).hiding(found.as_ref(), instead) }
    }

    /// What the consumer's NCCL opens for libibverbs: it asks for the short name first (NVIDIA/nccl
    /// `src/misc/ibvsymbols.cc`), with the search paths of the library that has NCCL's code and of the process.
    fn verbs_of(&self, consumer: &NcclConsumer) -> Option<String> {
        let caller = consumer.path.as_deref()?.trim_start_matches('/');
        let program = match consumer.name {
            ConsumerName::Programs => None,
            ConsumerName::Torch | ConsumerName::PythonPackages | ConsumerName::Vllm => {
                self.program_of(consumer.by.trim_start_matches('/'))
            }
        };
        // The library that has NCCL loaded is in the chain; a directory or variable has no search path.
        let loaded_by = consumer.by.trim_start_matches('/');
        let chain: Vec<&str> = [caller, loaded_by].into_iter().chain(program.as_deref()).collect();
        let open = |name| self.loader.find_for(name, &chain);
        open("libibverbs.so").or_else(|| open("libibverbs.so.1")).map(|found| absolute(&found.path))
    }

    /// The interpreter of a library's environment, whose RPATH counts for what it opens.
    fn program_of(&self, path: &str) -> Option<String> {
        let environment = path.split_once("/lib/python").map(|(prefix, _)| format!("{prefix}/bin/python3"));
        environment
            .and_then(|program| self.fs.real_path(&program))
            .or_else(|| python::load_python3(self.fs, self.config).and_then(|python| self.fs.real_path(&python.path)))
    }
}

/// `…/site-packages` or `…/dist-packages` of a path in it.
fn packages_directory(path: &str) -> Option<&str> {
    path.find("-packages/").map(|at| &path[..at + "-packages".len()])
}

/// NCCL's network plugins, by path and name.
pub(super) fn load_plugins(fs: &RootFs, survey: &Survey<'_>, loader: &Loader<'_>) -> Vec<NetPlugin> {
    let mut plugins = Vec::new();
    for (path, node) in survey.named() {
        let name = path.rsplit('/').next().unwrap_or(path);
        if !is_plugin_name(name) || !matches!(node, Node::File { .. } | Node::Symlink(_)) {
            continue;
        }
        // A full name such as libnccl-net.so.0.0.0 is what the name that NCCL opens links to.
        let Some(short) = name.strip_prefix("libnccl-net").and_then(|rest| rest.strip_suffix(".so")) else { continue };
        let (Some(Node::File { .. }), Some(real)) = (fs.get(path), fs.real_path(path)) else { continue };
        let reachable = loader.find(name).is_some_and(|found| found.path == real);
        plugins.push(NetPlugin {
            maker: maker(path).to_owned(),
            path: absolute(&real),
            name: short.trim_start_matches('-').to_owned(),
            reachable,
        });
    }
    plugins.sort_by(|a: &NetPlugin, b: &NetPlugin| (&a.path, &a.name).cmp(&(&b.path, &b.name)));
    plugins.dedup_by(|later, earlier| (&later.path, &later.name) == (&earlier.path, &earlier.name) && !later.reachable);
    plugins
}

fn maker(path: &str) -> &'static str {
    if path.contains("spcx") {
        "spcx"
    } else if path.contains("hpcx") || path.contains("nccl_rdma_sharp_plugin") {
        "hpcx"
    } else if path.contains("amazon") || path.contains("ofi") {
        "aws-ofi"
    } else {
        "unknown"
    }
}
