//! Builds small images in memory: start from a good one, break one thing, read it as a `docker save` archive.
//!
//! The files are stand-ins: a library is a few bytes with the texts that the real one carries. Package names, versions
//! and fields are those of the distributions and of MLNX_OFED 23.10 and elastic-rdma-drivers 44.1-2.

#![allow(dead_code)]

#[path = "elf_fixture.rs"]
pub mod elf;

use rdmaprep::facts::ImageFacts;
use rdmaprep::image::Image;
use rdmaprep::image::archive::read_archive;
use rdmaprep::inspect::{harvest, inspect};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

pub const OFED_VERSION: &str = "2307mlnx47-1.2310119";
pub const ERDMA_VERSION: &str = "44.1-2";

#[derive(Clone)]
enum Entry {
    File { content: Vec<u8>, mode: u32 },
    Link(String),
}

#[derive(Clone)]
pub struct Fixture {
    name: String,
    entries: BTreeMap<String, Entry>,
    packages: BTreeMap<String, Vec<(String, String)>>,
    owned: BTreeMap<String, Vec<String>>,
    pub config: serde_json::Value,
    pub architecture: String,
    triplet: &'static str,
    has_ld_cache: bool,
}

impl Fixture {
    /// A distribution with CUDA 12.4, NCCL 2.21.5 and python3, and no RDMA userspace.
    pub fn plain(id: &str, version: &str, codename: &str, architecture: &str) -> Fixture {
        let triplet = if architecture == "arm64" { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };
        let mut fixture = Fixture {
            name: format!("example/{id}:{version}"),
            entries: BTreeMap::new(),
            packages: BTreeMap::new(),
            owned: BTreeMap::new(),
            config: serde_json::json!({"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CUDA_VERSION=12.4.1"]}),
            architecture: architecture.to_owned(),
            triplet,
            has_ld_cache: true,
        };
        fixture.file(
            "usr/lib/os-release",
            &format!(
                "ID={id}\nVERSION_ID=\"{version}\"\nVERSION_CODENAME={codename}\nPRETTY_NAME=\"{id} {version}\"\n"
            ),
        );
        fixture.link("etc/os-release", "../usr/lib/os-release");
        fixture.file("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
        fixture.file("etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/targets/x86_64-linux/lib\n");
        fixture.file("etc/ld.so.conf.d/zz.conf", &format!("/lib/{triplet}\n/usr/lib/{triplet}\n"));
        fixture.executable("usr/bin/python3.10", "ELF");
        fixture.link("usr/bin/python3", "python3.10");
        fixture.link("usr/local/cuda", "cuda-12.4");
        fixture.file("usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127", "ELF");
        fixture.link("usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12", "libcudart.so.12.4.127");
        fixture.package("libc6", "2.35-0ubuntu3", "");
        fixture.package("libnl-3-200", "3.5.0-0.1", "libc6 (>= 2.34)");
        fixture.nccl("2.21.5+cuda12.4");
        fixture
    }

    /// Ubuntu 22.04 with the vendor's packages: right for PAI-DLC in every respect.
    pub fn good() -> Fixture {
        let mut fixture = Fixture::plain("ubuntu", "22.04", "jammy", "amd64");
        fixture.rdma_core(ERDMA_VERSION, "librdmacm1", &["erdma", "mlx5"]);
        fixture
    }

    /// The image with the userspace of MLNX_OFED 23.10, held, with source, key, directory and a program that uses it.
    pub fn ofed(id: &str, version: &str, codename: &str, rdmacm: &str) -> Fixture {
        let mut fixture = Fixture::plain(id, version, codename, "amd64");
        fixture.rdma_core(OFED_VERSION, rdmacm, &["erdma", "mlx5"]);
        fixture.package("libibverbs-dev", OFED_VERSION, &format!("libibverbs1 (= {OFED_VERSION})"));
        fixture.set_field("libibverbs-dev", "Source", "rdma-core");
        fixture.package("mlnx-ofed-basic-user-only", "23.10-1.1.9.0", "libibverbs1, ibverbs-utils");
        fixture.package("libucx0", "1.12.1-1", "libc6 (>= 2.34), libibverbs1 (>= 28)");
        for name in ["libibverbs1", "ibverbs-providers", "ibverbs-utils", rdmacm, "libibverbs-dev", "libnccl2"] {
            fixture.hold(name);
        }
        fixture.file(
            "etc/apt/sources.list.d/mellanox_mlnx_ofed.list",
            "deb [signed-by=/etc/apt/keyrings/mlnx.gpg] http://linux.mellanox.com/public/repo/mlnx_ofed/23.10-1.1.9.0/ubuntu22.04/x86_64 ./\n",
        );
        fixture.file("etc/apt/keyrings/mlnx.gpg", "\u{98}");
        fixture.file("opt/mellanox/ethtool/sbin/ethtool", "ELF");
        fixture.file("etc/libibverbs.d/old.driver", "driver vmw_pvrdma_old\n");
        fixture
    }

    pub fn file(&mut self, path: &str, content: &str) -> &mut Fixture {
        self.entries.insert(path.to_owned(), Entry::File { content: content.as_bytes().to_vec(), mode: 0o644 });
        self
    }

    pub fn executable(&mut self, path: &str, content: &str) -> &mut Fixture {
        self.entries.insert(path.to_owned(), Entry::File { content: content.as_bytes().to_vec(), mode: 0o755 });
        self
    }

    pub fn link(&mut self, path: &str, target: &str) -> &mut Fixture {
        self.entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
        self
    }

    /// A real ELF file, as far as a loader looks.
    pub fn library(&mut self, path: &str, library: &elf::Library) -> &mut Fixture {
        self.entries.insert(path.to_owned(), Entry::File { content: library.bytes(), mode: 0o755 });
        self
    }

    pub fn env(&mut self, name: &str, value: &str) -> &mut Fixture {
        self.config["Env"].as_array_mut().unwrap().push(format!("{name}={value}").into());
        self
    }

    pub fn without_ld_cache(&mut self) -> &mut Fixture {
        self.has_ld_cache = false;
        self.entries.remove("etc/ld.so.cache");
        self
    }

    /// Writes the loader's cache now: what changes afterwards makes it stale. Without this it is written last.
    pub fn ldconfig(&mut self) -> &mut Fixture {
        let cache = self.ld_cache();
        self.entries.insert("etc/ld.so.cache".to_owned(), Entry::File { content: cache, mode: 0o644 });
        self
    }

    /// What ldconfig would write: for every directory of the configuration and every default one, the names that programs ask
    /// for (`libx.so`, `libx.so.1`).
    fn ld_cache(&self) -> Vec<u8> {
        let flags = if self.architecture == "arm64" { 0x0a03 } else { 0x0303 };
        let mut directories = Vec::new();
        for (path, entry) in &self.entries {
            if let Entry::File { content, .. } = entry
                && path.starts_with("etc/ld.so.conf.d/")
            {
                let text = String::from_utf8_lossy(content).into_owned();
                directories.extend(text.lines().filter(|line| line.starts_with('/')).map(str::to_owned));
            }
        }
        directories.extend([format!("/usr/lib/{}", self.triplet), "/usr/lib".to_owned(), "/usr/lib64".to_owned()]);
        let mut entries: Vec<(u32, String, String, u64)> = Vec::new();
        for directory in directories {
            // The toolkit's directory has its versioned name in the tree.
            let real = directory.replace("/usr/local/cuda/", "/usr/local/cuda-12.4/");
            for path in self.entries.keys() {
                let Some(name) = format!("/{path}").strip_prefix(&format!("{real}/")).map(str::to_owned) else {
                    continue;
                };
                let soname = match name.split_once(".so") {
                    Some((stem, version)) if stem.starts_with("lib") && !name.contains('/') => {
                        let major = version.trim_start_matches('.').split('.').next().unwrap_or_default();
                        if major.is_empty() { name.clone() } else { format!("{stem}.so.{major}") }
                    }
                    _ => continue,
                };
                let path = if self.entries.contains_key(format!("{real}/{soname}").trim_start_matches('/')) {
                    format!("{directory}/{soname}")
                } else {
                    format!("{directory}/{name}")
                };
                if !entries.iter().any(|(_, n, p, _)| *n == soname && *p == path) {
                    entries.push((flags, soname, path, 0));
                }
            }
        }
        let entries: Vec<(u32, &str, &str, u64)> =
            entries.iter().map(|(flags, name, path, hwcap)| (*flags, name.as_str(), path.as_str(), *hwcap)).collect();
        ld_cache_bytes(&entries)
    }

    pub fn remove(&mut self, path: &str) -> &mut Fixture {
        assert!(self.entries.remove(path).is_some(), "{path} is not in the fixture");
        self
    }

    pub fn package(&mut self, name: &str, version: &str, depends: &str) -> &mut Fixture {
        let fields = [
            ("Status", "install ok installed"),
            ("Version", version),
            ("Architecture", &self.architecture),
            ("Depends", depends),
        ];
        let fields =
            fields.iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        self.packages.insert(name.to_owned(), fields.collect());
        self
    }

    pub fn remove_package(&mut self, name: &str) -> &mut Fixture {
        assert!(self.packages.remove(name).is_some(), "{name} is not in the fixture");
        for path in self.owned.remove(name).unwrap_or_default() {
            self.entries.remove(&path);
        }
        self
    }

    pub fn hold(&mut self, name: &str) -> &mut Fixture {
        self.set_field(name, "Status", "hold ok installed")
    }

    pub fn set_field(&mut self, package: &str, field: &str, value: &str) -> &mut Fixture {
        let fields = self.packages.get_mut(package).unwrap_or_else(|| panic!("{package} is not in the fixture"));
        fields.retain(|(name, _)| name != field);
        fields.push((field.to_owned(), value.to_owned()));
        self
    }

    pub fn owned_file(&mut self, package: &str, path: &str, content: &str) {
        self.file(path, content);
        self.owned.entry(package.to_owned()).or_default().push(path.to_owned());
    }

    /// The four packages that a job needs, with the files that matter.
    pub fn rdma_core(&mut self, version: &str, rdmacm: &str, drivers: &[&str]) -> &mut Fixture {
        let dir = format!("usr/lib/{}", self.triplet);
        self.package("libibverbs1", version, "libc6 (>= 2.34), libnl-3-200 (>= 3.2.7)");
        self.package("ibverbs-providers", version, "libibverbs1 (>= 38)");
        self.package("ibverbs-utils", version, "libibverbs1 (>= 34)");
        self.package(rdmacm, version, "libibverbs1 (>= 31)");
        for name in ["libibverbs1", "ibverbs-providers", "ibverbs-utils", rdmacm] {
            self.set_field(name, "Source", "rdma-core");
        }
        let library = format!("{dir}/libibverbs.so.1.14.44.1");
        self.owned_file("libibverbs1", &library, "ELF\0IBVERBS_PRIVATE_34\0-rdmav34.so\0");
        self.link(&format!("{dir}/libibverbs.so.1"), "libibverbs.so.1.14.44.1");
        for driver in drivers {
            self.owned_file("ibverbs-providers", &format!("{dir}/libibverbs/lib{driver}-rdmav34.so"), "ELF");
            self.owned_file(
                "ibverbs-providers",
                &format!("etc/libibverbs.d/{driver}.driver"),
                &format!("driver {driver}\n"),
            );
        }
        self.executable("usr/bin/ibv_devinfo", "ELF\0InfiniBand\0");
        self
    }

    pub fn nccl(&mut self, line: &str) -> &mut Fixture {
        let version = line.split('+').next().unwrap_or(line);
        let dir = format!("usr/lib/{}", self.triplet);
        self.package("libnccl2", &format!("{version}-1+cuda12.4"), "libc6");
        let file = format!("libnccl.so.{version}");
        self.owned_file("libnccl2", &format!("{dir}/{file}"), &format!("ELF\0NCCL version {line}\n\0"));
        self.link(&format!("{dir}/libnccl.so.2"), &file)
    }

    /// The image as `docker save` (engine 25 and later) writes it.
    /// The image under another name.
    pub fn named(mut self, name: &str) -> Fixture {
        name.clone_into(&mut self.name);
        self
    }

    pub fn archive(&self) -> Vec<u8> {
        archive_of(&[self.layer()], &self.config_json(1), &self.name)
    }

    fn config_json(&self, layers: usize) -> serde_json::Value {
        serde_json::json!({"architecture": self.architecture, "os": "linux", "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": (0..layers).map(|_| "").collect::<Vec<_>>()}})
    }

    /// One layer with everything in it.
    pub fn layer(&self) -> Vec<u8> {
        let mut status = String::new();
        let mut entries = self.entries.clone();
        if self.has_ld_cache && !entries.contains_key("etc/ld.so.cache") {
            entries.insert("etc/ld.so.cache".into(), Entry::File { content: self.ld_cache(), mode: 0o644 });
        }
        for (name, fields) in &self.packages {
            status.push_str(&format!("Package: {name}\n"));
            fields.iter().for_each(|(key, value)| status.push_str(&format!("{key}: {value}\n")));
            status.push('\n');
            let files = self.owned.get(name).into_iter().flatten().map(|path| format!("/{path}\n")).collect::<String>();
            let list = format!("var/lib/dpkg/info/{name}.list");
            entries.insert(list, Entry::File { content: format!("/.\n{files}").into_bytes(), mode: 0o644 });
        }
        entries.insert("var/lib/dpkg/status".into(), Entry::File { content: status.into_bytes(), mode: 0o644 });
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &entries {
            let mut header = tar::Header::new_gnu();
            match entry {
                Entry::File { content, mode } => {
                    header.set_size(content.len() as u64);
                    header.set_mode(*mode);
                    tar.append_data(&mut header, path, content.as_slice()).unwrap();
                }
                Entry::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, path, target).unwrap();
                }
            }
        }
        tar.into_inner().unwrap()
    }

    pub fn image(&self) -> Image {
        read_archive(self.archive().as_slice(), None, &harvest).unwrap()
    }

    pub fn facts(&self) -> ImageFacts {
        inspect(&self.image(), format!("docker-archive:{}", self.name)).unwrap()
    }
}

/// Writes `ld.so.cache` in the format 1.1: flags, name, path and hwcap of each entry.
pub fn ld_cache_bytes(entries: &[(u32, &str, &str, u64)]) -> Vec<u8> {
    let mut cache = b"glibc-ld.so.cache1.1".to_vec();
    let mut strings: Vec<u8> = Vec::new();
    let base = 48 + entries.len() * 24;
    let mut table = Vec::new();
    for (flags, name, path, hwcap) in entries {
        table.extend(flags.to_le_bytes());
        for text in [name, path] {
            table.extend(((base + strings.len()) as u32).to_le_bytes());
            strings.extend(text.as_bytes());
            strings.push(0);
        }
        table.extend(0u32.to_le_bytes());
        table.extend(hwcap.to_le_bytes());
    }
    cache.extend((entries.len() as u32).to_le_bytes());
    cache.extend((strings.len() as u32).to_le_bytes());
    cache.push(2);
    cache.resize(48, 0);
    cache.extend(table);
    cache.extend(strings);
    cache
}

/// Writes layers, bottom first, as an archive; diff ids are filled in.
pub fn archive_of(layers: &[Vec<u8>], config: &serde_json::Value, name: &str) -> Vec<u8> {
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", sha256(bytes));
    let mut config = config.clone();
    config["rootfs"]["diff_ids"] = layers.iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
    let config = serde_json::to_vec(&config).unwrap();
    let names: Vec<String> = layers.iter().map(|layer| blob(layer)).collect();
    let manifest = serde_json::json!([{"Config": blob(&config), "RepoTags": [name], "Layers": names}]);
    let mut files: Vec<(String, &[u8])> = vec![(blob(&config), &config)];
    files.extend(layers.iter().map(|layer| (blob(layer), layer.as_slice())));
    let manifest = serde_json::to_vec(&manifest).unwrap();
    files.push(("manifest.json".into(), &manifest));
    tar_of(&files)
}

pub fn tar_of<P: AsRef<std::path::Path>>(files: &[(P, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
