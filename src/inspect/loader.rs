//! What the dynamic loader of the image would open: configuration, cache and environment → answers.
//!
//! The order is glibc's (ld.so(8), `elf/dl-load.c` `_dl_map_object`): DT_RPATH of the caller and of the program, where the
//! caller has no DT_RUNPATH; `LD_LIBRARY_PATH`; the caller's DT_RUNPATH; `ld.so.cache`; the default directories. The loader
//! itself never reads `ld.so.conf`: ldconfig does, when it writes the cache. NVIDIA's container toolkit runs ldconfig in
//! every container that it gives GPUs to, so what a new cache would say is known here too.

use super::absolute;
use super::ld_cache::{CacheEntry, parse_cache};
use super::loader_conf::{self, ConfigDirectory};
use crate::facts::{ConfigFacts, LoaderAnswer, LoaderCache, LoaderDirectory, LoaderFacts};
use crate::image::rootfs::{Node, RootFs};
use std::collections::{BTreeMap, BTreeSet};

const CACHE: &str = "etc/ld.so.cache";

/// Library names that programs open and that matter here: the facts record which file each resolves to.
pub(super) const NAMES: [&str; 7] = [
    "libibverbs.so",
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libnccl.so.2",
    "libnccl-net.so",
    "libcudart.so.12",
    "libcuda.so.1",
];

/// Most names of missing files that are listed.
const MAX_GONE: usize = 256;

/// Whether the content of a path is needed here.
pub(super) fn wants(path: &str) -> bool {
    path == CACHE || loader_conf::wants(path)
}

/// How a library was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    Rpath,
    /// The directory of `LD_LIBRARY_PATH`.
    LibraryPath(String),
    Runpath,
    Cache,
    /// Only by a cache that is not yet written, from this file.
    Config(String),
    Default,
    /// The caller named the library by path.
    Path,
}

/// A library that the loader opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Real path, no leading slash.
    pub path: String,
    pub how: How,
}

#[derive(Clone)]
enum Cache {
    Absent,
    Unreadable(String),
    Read(Vec<CacheEntry>),
}

/// The loader of one image.
#[derive(Clone)]
pub(super) struct Loader<'a> {
    fs: &'a RootFs,
    architecture: String,
    /// Directories of `LD_LIBRARY_PATH`, absolute.
    library_path: Vec<String>,
    configured: Vec<ConfigDirectory>,
    defaults: Vec<String>,
    cache: Cache,
    problems: Vec<String>,
}

impl<'a> Loader<'a> {
    /// Reads cache and configuration.
    pub(super) fn load(fs: &'a RootFs, config: &ConfigFacts, architecture: &str) -> Loader<'a> {
        let cache = match (fs.exists(CACHE), fs.content(CACHE)) {
            (false, _) => Cache::Absent,
            (true, None) => Cache::Unreadable("its content is not a file of reasonable size".to_owned()),
            (true, Some(bytes)) => match parse_cache(bytes) {
                Ok(entries) => Cache::Read(entries),
                Err(error) => Cache::Unreadable(error.to_string()),
            },
        };
        let (configured, problems) = loader_conf::load_conf(fs);
        let mut loader = Loader {
            fs,
            architecture: architecture.to_owned(),
            library_path: Vec::new(),
            configured,
            defaults: default_directories(fs, architecture),
            cache,
            problems,
        };
        if let Some(value) = config.env("LD_LIBRARY_PATH").filter(|value| !value.is_empty()) {
            let directory = if config.working_dir.is_empty() { "/" } else { &config.working_dir };
            // An empty element is the directory that the process is in: `LD_LIBRARY_PATH=/a:` has one.
            let absolute_path = |element: &str| match element {
                "" => directory.to_owned(),
                element if element.starts_with('/') => element.to_owned(),
                element => format!("{directory}/{element}"),
            };
            loader.library_path = value.split([':', ';']).map(absolute_path).collect();
        }
        loader
    }

    /// The loader of a process that has no `LD_LIBRARY_PATH`.
    pub(super) fn without_library_path(&self) -> Loader<'a> {
        Loader { library_path: Vec::new(), ..self.clone() }
    }

    /// The file that `dlopen(name)` gives in a program that has no search path of its own.
    pub(super) fn find(&self, name: &str) -> Option<Found> {
        self.find_for(name, &[])
    }

    /// The file that `dlopen(name)` gives in a library: `chain` has that library, the one that loaded it, and so on up to the
    /// program, as real paths without leading slash. Every RPATH of the chain counts, and the RUNPATH of the first alone.
    pub(super) fn find_for(&self, name: &str, chain: &[&str]) -> Option<Found> {
        if name.contains('/') {
            let path = self.library(name)?;
            return Some(Found { path, how: How::Path });
        }
        let paths: Vec<SearchPaths> = chain.iter().map(|path| self.search_paths(path)).collect();
        let runpath = paths.first().and_then(|own| own.runpath.as_ref());
        if runpath.is_none() {
            for directory in paths.iter().filter_map(|paths| paths.rpath.as_ref()).flatten() {
                if let Some(path) = self.in_directory(directory, name) {
                    return Some(Found { path, how: How::Rpath });
                }
            }
        }
        for directory in &self.library_path {
            if let Some(path) = self.in_directory(directory, name) {
                return Some(Found { path, how: How::LibraryPath(directory.clone()) });
            }
        }
        for directory in runpath.into_iter().flatten() {
            if let Some(path) = self.in_directory(directory, name) {
                return Some(Found { path, how: How::Runpath });
            }
        }
        self.system_file(name).or_else(|| self.next_system_file(name))
    }

    /// Searches the cache and the default directories as they are.
    fn system_file(&self, name: &str) -> Option<Found> {
        if let Cache::Read(entries) = &self.cache {
            let fitting = entries.iter().filter(|entry| entry.name == name && entry.fits(&self.architecture));
            let (plain, special): (Vec<_>, Vec<_>) = fitting.partition(|entry| !entry.for_some_processors);
            if let Some(path) = plain.into_iter().chain(special).find_map(|entry| self.library(&entry.path)) {
                return Some(Found { path, how: How::Cache });
            }
        }
        let found = self.defaults.iter().find_map(|directory| self.in_directory(directory, name))?;
        Some(Found { path: found, how: How::Default })
    }

    /// Searches the cache that ldconfig would write now.
    fn next_system_file(&self, name: &str) -> Option<Found> {
        let configured = self.configured.iter().find_map(|directory| {
            let path = self.indexed(&directory.path, name)?;
            Some(Found { path, how: How::Config(directory.from.clone()) })
        });
        configured.or_else(|| {
            // These are searched by file name as well.
            let by_name = self.defaults.iter().find_map(|directory| self.in_directory(directory, name));
            let path = by_name.or_else(|| self.defaults.iter().find_map(|directory| self.indexed(directory, name)))?;
            Some(Found { path, how: How::Default })
        })
    }

    /// What ldconfig would enter for a name: a link of that name, or a file whose SONAME it is; where the link of a SONAME
    /// (`libnccl.so.2`) is missing it makes one.
    fn indexed(&self, directory: &str, name: &str) -> Option<String> {
        let is_link = matches!(self.fs.get_no_follow(&format!("{directory}/{name}")), Some(Node::Symlink(_)));
        let direct = self.in_directory(directory, name).filter(|path| {
            let soname = self.soname(path);
            is_link || soname.is_none_or(|soname| soname == name)
        });
        direct.or_else(|| {
            let versions = self
                .fs
                .list(directory)
                .into_iter()
                .rev()
                .filter(|file| file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')));
            versions.filter_map(|file| self.in_directory(directory, file)).find(|path| self.soname(path) == Some(name))
        })
    }

    /// The SONAME of a library, if known.
    fn soname(&self, path: &str) -> Option<&str> {
        self.fs.scanned(path)?.elf.as_ref()?.known()?.soname.as_deref()
    }

    fn in_directory(&self, directory: &str, name: &str) -> Option<String> {
        self.library(&format!("{directory}/{name}"))
    }

    /// The real path, if it is a file that this architecture's loader accepts; the loader skips foreign ones.
    fn library(&self, path: &str) -> Option<String> {
        match self.fs.get(path)? {
            Node::File { .. } => {}
            _ => return None,
        }
        let real = self.fs.real_path(path)?;
        let foreign = self
            .fs
            .scanned(&real)
            .and_then(|scanned| scanned.elf.as_ref())
            .is_some_and(|elf| !elf.fits(&self.architecture));
        (!foreign).then_some(real)
    }

    /// The search paths inside a library or program, expanded.
    fn search_paths(&self, path: &str) -> SearchPaths {
        let Some(section) = self.fs.scanned(path).and_then(|scanned| scanned.elf.as_ref()).and_then(|elf| elf.known())
        else {
            return SearchPaths::default();
        };
        let expand = |value: &String| value.split([':', ';']).map(|element| self.expand(element, path)).collect();
        SearchPaths {
            runpath: section.runpath.as_ref().map(expand),
            // A file with both is searched by its RUNPATH only.
            rpath: section.rpath.as_ref().filter(|_| section.runpath.is_none()).map(expand),
        }
    }

    /// Expands `$ORIGIN`, `$LIB` and `$PLATFORM` as the loader does (ld.so(8)).
    fn expand(&self, element: &str, path: &str) -> String {
        let origin = absolute(path.rsplit_once('/').map_or("", |(directory, _)| directory));
        let (machine, triplet) = names_of(&self.architecture);
        let multiarch = self.defaults.iter().any(|directory| directory.ends_with(triplet));
        let lib = if multiarch { format!("lib/{triplet}") } else { "lib64".to_owned() };
        let mut text = element.to_owned();
        for (name, value) in [("ORIGIN", origin.as_str()), ("LIB", &lib), ("PLATFORM", machine)] {
            text = text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
        }
        text
    }

    /// Every directory that is searched without a caller, first match first, as real paths, each once.
    pub(super) fn directories(&self) -> Vec<String> {
        let configured = self.configured.iter().map(|directory| &directory.path);
        let mut real: Vec<String> = Vec::new();
        for directory in self.library_path.iter().chain(configured).chain(&self.defaults) {
            if let Some(path) = self.fs.real_path(directory)
                && !real.contains(&path)
            {
                real.push(path);
            }
        }
        real
    }

    /// What makes the loader look below a directory (no leading slash): a variable, a file, or the cache.
    pub(super) fn reason_to_look_below(&self, root: &str) -> Option<String> {
        let below = |directory: &str| {
            self.fs.real_path(directory).is_some_and(|real| real == root || real.starts_with(&format!("{root}/")))
        };
        if let Some(directory) = self.library_path.iter().find(|directory| below(directory)) {
            return Some(format!("LD_LIBRARY_PATH names {directory}"));
        }
        if let Some(directory) = self.configured.iter().find(|directory| below(&directory.path)) {
            return Some(format!("{} names {}", directory.from, directory.path));
        }
        let Cache::Read(entries) = &self.cache else { return None };
        let entry = entries
            .iter()
            .find(|entry| self.fs.real_path(&entry.path).is_some_and(|real| real.starts_with(&format!("{root}/"))))?;
        Some(format!("/{CACHE} has {}", entry.path))
    }

    /// All loader facts.
    pub(super) fn facts(&self) -> LoaderFacts {
        let answers = NAMES.iter().filter_map(|name| {
            let now = self.library_path.iter().find_map(|directory| self.in_directory(directory, name));
            let (now, next) = match now {
                Some(path) => (Some(path.clone()), Some(path)),
                None => (self.system_file(name).map(|f| f.path), self.next_system_file(name).map(|f| f.path)),
            };
            (now.is_some() || next.is_some()).then(|| LoaderAnswer {
                name: (*name).to_owned(),
                path: now.as_deref().map(absolute),
                after_ldconfig: next.as_deref().map(absolute),
            })
        });
        LoaderFacts {
            library_path: self.library_path.clone(),
            configured: self
                .configured
                .iter()
                .map(|directory| LoaderDirectory { path: directory.path.clone(), from: directory.from.clone() })
                .collect(),
            defaults: self.defaults.clone(),
            cache: match &self.cache {
                Cache::Absent => LoaderCache::Absent,
                Cache::Unreadable(problem) => LoaderCache::Unreadable { problem: problem.clone() },
                Cache::Read(entries) => LoaderCache::Read { entries: entries.len() },
            },
            answers: answers.collect(),
            gone: self.gone(),
            unindexed: self.unindexed(),
            problems: self.problems.clone(),
            program_loader: self.program_loader(),
        }
    }

    /// What the kernel starts for a glibc program (`PT_INTERP`; the names are glibc's ABI, `shlib-versions`).
    fn program_loader(&self) -> Option<String> {
        let path = match self.architecture.as_str() {
            "amd64" => "lib64/ld-linux-x86-64.so.2",
            "arm64" => "lib/ld-linux-aarch64.so.1",
            _ => return None,
        };
        self.library(path).as_deref().map(absolute)
    }

    /// Files that the cache names and the image lacks.
    fn gone(&self) -> Vec<String> {
        let Cache::Read(entries) = &self.cache else { return Vec::new() };
        let gone: BTreeSet<&String> = entries
            .iter()
            .filter(|entry| !is_mounted_at_start(&entry.name) && !self.fs.exists(&entry.path))
            .map(|entry| &entry.path)
            .collect();
        gone.into_iter().take(MAX_GONE).cloned().collect()
    }

    /// Configured directories missing from the cache, and libraries of interest in them that the cache lacks.
    fn unindexed(&self) -> Vec<String> {
        let Cache::Read(entries) = &self.cache else { return Vec::new() };
        let parents: BTreeSet<&str> = entries.iter().filter_map(|entry| Some(entry.path.rsplit_once('/')?.0)).collect();
        let known: BTreeMap<String, &str> =
            parents.into_iter().filter_map(|parent| Some((self.fs.real_path(parent)?, parent))).collect();
        let mut missing = BTreeSet::new();
        for directory in &self.configured {
            let Some(real) = self.fs.real_path(&directory.path) else { continue };
            let has_library = |name: &&str| {
                let is_name = name.starts_with("lib") && name.contains(".so");
                is_name && self.in_directory(&directory.path, name).is_some()
            };
            if !known.contains_key(&real) {
                if self.fs.list(&real).iter().any(has_library) {
                    missing.insert(directory.path.clone());
                }
                continue;
            }
            for name in NAMES.iter().filter(|name| self.indexed(&directory.path, name).is_some()) {
                if !entries.iter().any(|entry| entry.name == **name && entry.fits(&self.architecture)) {
                    missing.insert(format!("{}/{name}", directory.path));
                }
            }
        }
        missing.into_iter().collect()
    }
}

#[derive(Default)]
struct SearchPaths {
    runpath: Option<Vec<String>>,
    rpath: Option<Vec<String>>,
}

/// The driver's libraries are mounted into a container at its start, and a cache that was written in such a container names
/// them.
fn is_mounted_at_start(name: &str) -> bool {
    [
        "libcuda.so",
        "libcudadebugger.so",
        "libnvidia-",
        "libnvcuvid.so",
        "libnvoptix.so",
        "libvdpau_nvidia",
        "libGLX_nvidia",
        "libEGL_nvidia",
        "libGLESv",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// Kernel and Debian names of an architecture (Go's name).
fn names_of(architecture: &str) -> (&'static str, &'static str) {
    match architecture {
        "arm64" => ("aarch64", "aarch64-linux-gnu"),
        _ => ("x86_64", "x86_64-linux-gnu"),
    }
}

/// The directories that are built into the loader. Which they are is told by where the C library is: Debian's multiarch
/// directories, or `/lib64` as on rpm distributions (and on Debian for the loader alone). Where there is no C library, all.
fn default_directories(fs: &RootFs, architecture: &str) -> Vec<String> {
    let (_, triplet) = names_of(architecture);
    let multiarch = [format!("/lib/{triplet}"), format!("/usr/lib/{triplet}"), "/lib".into(), "/usr/lib".into()];
    let lib64 = ["/lib64".to_owned(), "/usr/lib64".to_owned()];
    if fs.exists(&format!("/lib/{triplet}/libc.so.6")) || fs.exists(&format!("/usr/lib/{triplet}/libc.so.6")) {
        multiarch.into()
    } else if fs.exists("/lib64/libc.so.6") {
        lib64.into()
    } else {
        let [first, second, lib, usr_lib] = multiarch;
        let [lib64, usr_lib64] = lib64;
        vec![first, second, lib64, usr_lib64, lib, usr_lib]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::Fixture;
    use crate::image_fixture::elf::Library;

    const SYSTEM: &str = "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5";

    fn ask(fixture: &Fixture, caller: Option<&str>, program: Option<&str>) -> Option<(String, How)> {
        let chain: Vec<&str> = caller.into_iter().chain(program).collect();
        let image = fixture.image();
        let config = super::super::config_facts(&image.config);
        let loader = Loader::load(&image.rootfs, &config, &fixture.architecture);
        loader.find_for("libnccl.so.2", &chain).map(|found| (found.path, found.how))
    }

    #[test]
    fn the_loader_of_glibc_programs() {
        let loader = |fixture: &Fixture| fixture.facts().loader.program_loader;
        let mut fixture = Fixture::good();
        assert_eq!(loader(&fixture), None);
        // musl's own is not one.
        fixture.library("lib/ld-musl-x86_64.so.1", &Library::new("libc.musl-x86_64.so.1"));
        assert_eq!(loader(&fixture), None);
        fixture.link("lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-2.31.so");
        assert_eq!(loader(&fixture), None, "the link dangles");
        fixture.library("lib/x86_64-linux-gnu/ld-2.31.so", &Library::new("ld-linux-x86-64.so.2"));
        assert_eq!(loader(&fixture).as_deref(), Some("/lib/x86_64-linux-gnu/ld-2.31.so"));
        let mut arm = Fixture::plain("ubuntu", "22.04", "jammy", "arm64");
        arm.link("lib64/ld-linux-x86-64.so.2", "x").file("lib64/x", "ELF");
        assert_eq!(loader(&arm), None);
        arm.file("lib/ld-linux-aarch64.so.1", "ELF");
        assert_eq!(loader(&arm).as_deref(), Some("/lib/ld-linux-aarch64.so.1"));
    }

    fn with_nccl(fixture: &mut Fixture, directory: &str) {
        fixture.library(&format!("{directory}/libnccl.so.2"), &Library::new("libnccl.so.2"));
    }

    #[test]
    fn the_order_of_glibc() {
        let mut fixture = Fixture::good();
        assert_eq!(ask(&fixture, None, None), Some((SYSTEM.into(), How::Cache)));

        const WHEEL: &str = "opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib";
        const TORCH: &str = "opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so";
        with_nccl(&mut fixture, WHEEL);
        let torch = Library::new("libtorch_cuda.so").needs("libnccl.so.2");
        fixture.library(TORCH, &torch.clone().runpath("$ORIGIN:$ORIGIN/../../nvidia/nccl/lib"));
        let wheel = format!("{WHEEL}/libnccl.so.2");
        assert_eq!(ask(&fixture, Some(TORCH), None), Some((wheel.clone(), How::Runpath)));
        assert_eq!(ask(&fixture, None, None), Some((SYSTEM.into(), How::Cache)));

        // LD_LIBRARY_PATH is before RUNPATH and behind RPATH.
        with_nccl(&mut fixture, "opt/old");
        fixture.env("LD_LIBRARY_PATH", "relative:/opt/old");
        let old = ("opt/old/libnccl.so.2".to_owned(), How::LibraryPath("/opt/old".into()));
        assert_eq!(ask(&fixture, Some(TORCH), None), Some(old.clone()));
        fixture.library(TORCH, &torch.clone().rpath("${ORIGIN}/../../nvidia/nccl/lib"));
        assert_eq!(ask(&fixture, Some(TORCH), None), Some((wheel.clone(), How::Rpath)));
        // A RUNPATH turns the RPATH off.
        fixture.library(TORCH, &torch.clone().rpath("$ORIGIN/../../nvidia/nccl/lib").runpath("/nowhere"));
        assert_eq!(ask(&fixture, Some(TORCH), None), Some(old.clone()));
        // The program's RPATH counts too, as conda's python has one.
        with_nccl(&mut fixture, "opt/conda/lib");
        fixture.library("opt/conda/bin/python3.11", &Library::new("").rpath("$ORIGIN/../lib"));
        fixture.library(TORCH, &torch);
        let conda = Some(("opt/conda/lib/libnccl.so.2".into(), How::Rpath));
        assert_eq!(ask(&fixture, Some(TORCH), Some("opt/conda/bin/python3.11")), conda);
        assert_eq!(ask(&fixture, Some(TORCH), None), Some(old));
    }

    #[test]
    fn an_empty_element_is_the_working_directory() {
        let mut fixture = Fixture::good();
        with_nccl(&mut fixture, "workspace");
        fixture.env("LD_LIBRARY_PATH", "/nowhere:");
        assert_eq!(ask(&fixture, None, None), Some((SYSTEM.into(), How::Cache)));
        fixture.config["WorkingDir"] = "/workspace".into();
        let here = How::LibraryPath("/workspace".into());
        assert_eq!(ask(&fixture, None, None), Some(("workspace/libnccl.so.2".into(), here)));
    }

    #[test]
    fn a_library_of_another_architecture_is_passed_over() {
        let mut fixture = Fixture::good();
        fixture.env("LD_LIBRARY_PATH", "/opt/arm");
        fixture.library("opt/arm/libnccl.so.2", &Library::new("libnccl.so.2").arm64());
        assert_eq!(ask(&fixture, None, None), Some((SYSTEM.into(), How::Cache)));
    }

    #[test]
    fn a_stale_cache_shows_both_answers() {
        // A file that is gone: the cache still names it, and the loader goes on.
        let mut fixture = Fixture::good();
        fixture.ldconfig();
        fixture.remove(SYSTEM);
        let facts = fixture.facts().loader;
        assert_eq!(facts.gone, ["/usr/lib/x86_64-linux-gnu/libnccl.so.2"]);
        assert_eq!(facts.answers.iter().find(|a| a.name == "libnccl.so.2"), None);

        // A directory that came after the cache was written.
        let mut fixture = Fixture::good();
        fixture.ldconfig();
        with_nccl(&mut fixture, "opt/new");
        fixture.file("etc/ld.so.conf.d/000_new.conf", "/opt/new\n");
        let facts = fixture.facts().loader;
        assert_eq!(facts.unindexed, ["/opt/new"]);
        let answer = facts.answers.iter().find(|a| a.name == "libnccl.so.2").unwrap();
        assert_eq!(answer.path.as_deref(), Some("/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"));
        assert_eq!(answer.after_ldconfig.as_deref(), Some("/opt/new/libnccl.so.2"));

        let mut fixture = Fixture::good();
        fixture.ldconfig();
        assert_eq!((fixture.facts().loader.gone, fixture.facts().loader.unindexed), (vec![], vec![]));
    }

    /// `ldconfig -p` shows links by their own names, and files by their SONAME only (glibc `elf/ldconfig.c`, `search_dir`).
    #[test]
    fn ldconfig_enters_links_and_sonames() {
        let answer = |fixture: &Fixture| {
            let answers = fixture.facts().loader.answers;
            answers.into_iter().find(|answer| answer.name == "libnccl-net.so").and_then(|answer| answer.after_ldconfig)
        };
        let mut fixture = Fixture::good();
        fixture.file("etc/ld.so.conf.d/x.conf", "/opt/x\n").without_ld_cache();
        fixture.library("opt/x/libnccl-net.so", &Library::new("libnccl-net.so.0"));
        assert_eq!(answer(&fixture), None);
        fixture.library("opt/x/libnccl-net.so.0.0.0", &Library::new("libnccl-net.so.0"));
        fixture.link("opt/x/libnccl-net.so", "libnccl-net.so.0.0.0");
        assert_eq!(answer(&fixture).as_deref(), Some("/opt/x/libnccl-net.so.0.0.0"));
        // The link of the SONAME is made.
        fixture.remove("usr/lib/x86_64-linux-gnu/libnccl.so.2").remove(SYSTEM);
        fixture.library("opt/x/libnccl.so.2.18.1", &Library::new("libnccl.so.2"));
        assert_eq!(ask(&fixture, None, None).unwrap().0, "opt/x/libnccl.so.2.18.1");
    }

    #[test]
    fn a_cache_that_cannot_be_read_is_not_an_empty_one() {
        let mut fixture = Fixture::good();
        fixture.file("etc/ld.so.cache", "glibc-ld.so.cache1.1");
        let facts = fixture.facts().loader;
        assert_eq!(facts.cache, LoaderCache::Unreadable { problem: "it ends within its header".into() });
        fixture.without_ld_cache();
        assert_eq!(fixture.facts().loader.cache, LoaderCache::Absent);
    }

    #[test]
    fn default_directories_are_where_the_c_library_is() {
        let mut fixture = Fixture::good();
        fixture.file("usr/lib64/libc.so.6", "ELF").link("lib64", "usr/lib64");
        assert_eq!(fixture.facts().loader.defaults, ["/lib64", "/usr/lib64"]);
        fixture.file("usr/lib/x86_64-linux-gnu/libc.so.6", "ELF");
        assert_eq!(fixture.facts().loader.defaults[..2], ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"]);
    }
}
