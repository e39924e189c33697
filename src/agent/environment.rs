//! What a process in the container sees without libraries: variables, limits, memory, interfaces, devices.
//!
//! Unreadable data is omitted; nothing here fails.

#![allow(unsafe_code)]

use crate::facts::run::{CgroupFacts, DeviceNode, EnvironmentFacts, FileSystem, Interface};
use crate::sysfs::nvidia::parse_driver_version;
use crate::sysfs::{Tree, rdma};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Variables that matter to NCCL, CUDA and the loader.
const PREFIXES: [&str; 5] = ["NCCL_", "CUDA_", "NVIDIA_", "IBV_", "UCX_"];
/// Bit of `CAP_IPC_LOCK` (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;
/// Longest settings file that is read.
const MAX_FILE: usize = 64 * 1024;

/// Collects everything.
pub(super) fn look() -> EnvironmentFacts {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    EnvironmentFacts {
        variables: variables(),
        nccl_files: nccl_files(),
        memlock_bytes: limit(Resource::Memlock),
        stack_bytes: limit(Resource::Stack),
        open_files: limit(Resource::Nofile),
        shm: file_system("/dev/shm"),
        cgroup: cgroup(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default()),
        processors: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        interfaces: interfaces(),
        rdma_devices: rdma::load_devices(&Tree::new(Path::new("/"))),
        rdma_nodes: nodes("/dev/infiniband", |_| true),
        nvidia_nodes: nodes("/dev", |name| name.starts_with("nvidia")),
        kernel_driver: fs::read_to_string("/proc/driver/nvidia/version")
            .ok()
            .and_then(|text| parse_driver_version(&text)),
        peer_memory_module: [
            "/sys/module/nvidia_peermem",
            "/sys/module/nv_peer_mem",
            "/sys/kernel/mm/memory_peers/nv_mem",
        ]
        .iter()
        .any(|path| Path::new(path).exists()),
        effective_uid: rustix::process::geteuid().as_raw(),
        can_lock_memory: can_lock_memory(&status),
    }
}

fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name == "LD_LIBRARY_PATH" || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

/// The files that NCCL reads settings from (NVIDIA/nccl `src/misc/param.cc`).
fn nccl_files() -> BTreeMap<String, String> {
    let home = std::env::var("HOME").ok().map(|home| format!("{home}/.nccl.conf"));
    let named = std::env::var("NCCL_CONF_FILE").ok();
    let paths = [named.or(home), Some("/etc/nccl.conf".to_owned())];
    paths
        .into_iter()
        .flatten()
        .filter_map(|path| {
            let mut text = fs::read(&path).ok()?;
            text.truncate(MAX_FILE);
            Some((path, String::from_utf8_lossy(&text).into_owned()))
        })
        .collect()
}

fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

fn file_system(path: &str) -> Option<FileSystem> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(FileSystem { size_bytes: found.f_blocks * found.f_frsize, free_bytes: found.f_bavail * found.f_frsize })
}

/// Whether CAP_IPC_LOCK is in the effective set.
pub(super) fn can_lock_memory(status: &str) -> bool {
    effective_capabilities(status) >> CAP_IPC_LOCK & 1 == 1
}

fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Reads limits and counts of the process's control group, of either version.
pub(super) fn cgroup(root: &Path, own: &str) -> CgroupFacts {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let field = |path: &Path, name: &str| {
        let text = fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    // The group's own folder where the whole tree is mounted, else the root, which is the group then.
    let folder = |base: &Path, path: Option<&str>, file: &str| {
        let own = path.map(|path| base.join(path.trim_start_matches('/')));
        own.filter(|own| own.join(file).exists()).unwrap_or_else(|| base.to_path_buf())
    };
    if root.join("cgroup.controllers").exists() {
        let path = own.lines().find_map(|line| line.strip_prefix("0::"));
        let folder = folder(root, path, "memory.events");
        return CgroupFacts {
            version: 2,
            memory_limit_bytes: number(&folder.join("memory.max")),
            memory_used_bytes: number(&folder.join("memory.current")),
            oom_kills: field(&folder.join("memory.events"), "oom_kill "),
        };
    }
    let base = root.join("memory");
    if !base.exists() {
        return CgroupFacts::default();
    }
    let path = own.lines().find_map(|line| line.split_once(":memory:").map(|(_, path)| path));
    let folder = folder(&base, path, "memory.limit_in_bytes");
    // The kernel's value for "no limit": the largest multiple of a page.
    const NO_LIMIT: u64 = i64::MAX as u64 & !0xfff;
    CgroupFacts {
        version: 1,
        memory_limit_bytes: number(&folder.join("memory.limit_in_bytes")).filter(|limit| *limit < NO_LIMIT),
        memory_used_bytes: number(&folder.join("memory.usage_in_bytes")),
        oom_kills: field(&folder.join("memory.oom_control"), "oom_kill "),
    }
}

/// The control group of this process.
pub(super) fn own_cgroup() -> CgroupFacts {
    cgroup(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// Network interfaces with their addresses.
pub(super) fn interfaces() -> Vec<Interface> {
    let mut addresses = addresses();
    let read = |name: &str, file: &str| {
        let text = fs::read_to_string(Path::new("/sys/class/net").join(name).join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    let mut names: Vec<String> = list("/sys/class/net");
    names.extend(addresses.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
    names.sort();
    names
        .into_iter()
        .map(|name| Interface {
            state: read(&name, "operstate").unwrap_or_default(),
            mtu: read(&name, "mtu").and_then(|mtu| mtu.parse().ok()),
            addresses: addresses.remove(&name).unwrap_or_default(),
            name,
        })
        .collect()
}

/// Addresses with prefix length, by interface.
fn addresses() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: gives a list that is freed below, or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return found;
    }
    let mut next = first;
    // SAFETY: every entry of the list lives until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: a name ends with a NUL.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let addresses = found.entry(name).or_default();
        if let Some(ip) = ip(entry.ifa_addr) {
            let prefix = ip_bits(entry.ifa_netmask).map(u128::count_ones);
            addresses.push(prefix.map_or_else(|| ip.to_string(), |prefix| format!("{ip}/{prefix}")));
        }
    }
    // SAFETY: came from getifaddrs, and nothing of it is kept.
    unsafe { libc::freeifaddrs(first) };
    found
}

fn ip(address: *const libc::sockaddr) -> Option<std::net::IpAddr> {
    // SAFETY: null or a socket address of its family's size.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is one.
            let v4 = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one.
            let v6 = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn ip_bits(address: *const libc::sockaddr) -> Option<u128> {
    Some(match ip(address)? {
        std::net::IpAddr::V4(v4) => u128::from(u32::from(v4)),
        std::net::IpAddr::V6(v6) => u128::from(v6),
    })
}

/// Names in a folder, sorted.
fn list(path: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn nodes(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<DeviceNode> {
    let names = list(folder).into_iter().filter(|name| wanted(name));
    names
        .map(|name| format!("{folder}/{name}"))
        // nvidia-caps is a folder of nodes that compute does not need.
        .filter(|path| !Path::new(path).is_dir())
        .map(|path| {
            let opened = fs::File::options().read(true).write(true).open(&path);
            DeviceNode { error: opened.err().map(|error| error.to_string()), path }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let facts = look();
        assert!(facts.processors > 0 && facts.open_files.is_some());
        let loopback = facts.interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(loopback.addresses.iter().any(|address| address == "127.0.0.1/8"), "{loopback:?}");
        assert!(facts.shm.is_none_or(|shm| shm.size_bytes >= shm.free_bytes));
    }

    #[test]
    fn capabilities_are_hexadecimal() {
        assert_eq!(effective_capabilities("Name:\tx\nCapEff:\t0000000000004000\n") >> CAP_IPC_LOCK & 1, 1);
        assert_eq!(effective_capabilities("CapPrm:\t4000\n"), 0);
    }

    #[test]
    fn groups_of_both_versions() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("v1/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
        write("v1/memory/docker/x/memory.usage_in_bytes", "7\n");
        write("v1/memory/docker/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        let own = "5:cpu:/\n4:memory:/docker/x\n";
        let found = cgroup(&tree.path().join("v1"), own);
        let expected =
            CgroupFacts { version: 1, memory_limit_bytes: None, memory_used_bytes: Some(7), oom_kills: Some(2) };
        assert_eq!(found, expected);
        // In a container the group is the root of what is mounted.
        write("v2/cgroup.controllers", "memory\n");
        write("v2/memory.max", "1048576\n");
        write("v2/memory.current", "4096\n");
        write("v2/memory.events", "low 0\noom 3\noom_kill 1\noom_group_kill 0\n");
        let found = cgroup(&tree.path().join("v2"), "0::/../outside\n");
        let expected = CgroupFacts {
            version: 2,
            memory_limit_bytes: Some(1 << 20),
            memory_used_bytes: Some(4096),
            oom_kills: Some(1),
        };
        assert_eq!(found, expected);
        assert_eq!(cgroup(&tree.path().join("none"), ""), CgroupFacts::default());
    }

    #[test]
    fn rdma_devices_are_read_from_sysfs() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join("sys/class/infiniband").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("erdma_0/device/vendor", "0x1ded\n");
        write("erdma_0/device/infiniband_verbs/uverbs1/dev", "231:193\n");
        write("erdma_0/ports/1/state", "4: ACTIVE\n");
        write("erdma_0/ports/1/link_layer", "Ethernet\n");
        write("erdma_0/ports/1/gid_attrs/ndevs/0", "eth1\n");
        write("erdma_0/ports/1/gid_attrs/ndevs/1", "eth1\n");
        let devices = rdma::load_devices(&Tree::new(tree.path()));
        assert_eq!(devices.len(), 1);
        assert_eq!((devices[0].vendor.as_deref(), devices[0].uverbs.as_deref()), (Some("0x1ded"), Some("uverbs1")));
        let port = &devices[0].ports[0];
        assert_eq!(
            (port.port, port.state.as_str(), port.interfaces.as_slice()),
            (1, "ACTIVE", &["eth1".to_owned()][..])
        );
    }
}
