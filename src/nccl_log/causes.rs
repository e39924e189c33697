//! Evidence of a run → what went wrong, in the words of the log, and what to do.
//!
//! Only what the log (or a hint beside it) names is a cause. `NET/IB : No device found.` alone is none: it is the same for a
//! port that is down, a device that was not passed and a host without one. Silence is none either.

use super::evidence::NcclEvidence;
use super::rdma::is_verbs_network;
use super::state::{Phase, PluginState, RankEvidence, Transport};
use crate::nccl_settings::InterfaceFilter;
use crate::versions::NcclVersion;
use serde::Serialize;

/// Lines quoted for one cause.
const MAX_EVIDENCE: usize = 6;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Stable, kebab-case.
    pub id: &'static str,
    pub summary: String,
    /// Lines of the log (`rank 1 (host-a:7): …`), or what the hint says.
    pub evidence: Vec<String>,
    pub remedy: String,
    pub fault: Fault,
}

impl Cause {
    pub fn is_image_at_fault(&self) -> bool {
        self.fault == Fault::Image
    }
}

/// Where the remedy has to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    Image,
    /// Hardware, drivers, ports: no image and no option helps.
    Host,
    /// How the container was started: devices, limits, network.
    Launch,
    /// The job's own settings.
    Job,
}

/// What is known beside the log. The default knows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// `RLIMIT_MEMLOCK` in the container.
    pub memlock: Limit,
    /// Size of `/dev/shm`.
    pub shm_bytes: Option<u64>,
    /// RDMA devices of sysfs; `None`: nobody looked.
    pub rdma_devices: Option<Vec<RdmaDeviceHint>>,
    /// `/dev/nvidiactl` is in the container; `None`: nobody looked.
    pub gpu_nodes: Option<bool>,
    pub gids: Vec<GidEntry>,
    /// The run was ended for its time.
    pub timed_out: bool,
}

/// A limit in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    #[default]
    NotKnown,
    Unlimited,
    Bytes(u64),
}

/// An RDMA device as sysfs and its device node show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaDeviceHint {
    pub name: String,
    /// Its `/dev/infiniband/uverbsN` can be opened; `None`: not tried.
    pub can_be_opened: Option<bool>,
    /// A port is `ACTIVE`; `None`: not known.
    pub has_active_port: Option<bool>,
    /// Bound to the erdma driver, or of PCI vendor 0x1ded.
    pub is_erdma: bool,
    /// `ibv_devinfo` says `transport: iWARP`; `None`: not known.
    pub is_iwarp: Option<bool>,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GidEntry {
    pub device: String,
    pub index: u32,
    /// As sysfs prints it, `0000:…:ffff:c000:0207`, or short.
    pub gid: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: String,
}

impl GidEntry {
    /// RoCE v2 with an IPv4 address: it can be routed.
    fn is_routable(&self) -> bool {
        self.kind.contains("v2") && self.gid.to_ascii_lowercase().contains(":ffff:")
    }
}

/// Finds the causes, those that explain others first; empty where nothing is named.
pub fn explain_nccl_log(evidence: &NcclEvidence, hints: &Hints) -> Vec<Cause> {
    let log = Log { evidence, hints };
    let mut causes: Vec<Cause> = LIST.iter().filter_map(|rule| rule(&log)).collect();
    for rule in WORDS {
        let evidence = log.lines(|line| rule.marks.iter().all(|mark| line.contains(mark)));
        if evidence.is_empty() || causes.iter().any(|cause| cause.id == rule.id) {
            continue;
        }
        let (summary, remedy) = (rule.summary.to_owned(), rule.remedy.to_owned());
        causes.push(Cause { id: rule.id, summary, evidence, remedy, fault: rule.fault });
    }
    causes
}

/// A cause that a line names by itself.
struct Words {
    id: &'static str,
    /// All of them in one line.
    marks: &'static [&'static str],
    summary: &'static str,
    remedy: &'static str,
    fault: Fault,
}

const NO_IP: (&str, &str, &str) = (
    "no-ip-interface",
    "there is no usable IP interface in the container",
    "run the container in the host's network (--network host, hostNetwork: true), and check NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY where they are set",
);
const FORWARD: (&str, &str, &str) = (
    "cuda-forward-compat",
    "the image's CUDA forward-compatibility libcuda does not fit this GPU or driver",
    "take /usr/local/cuda/compat off the loader's path (ld.so.conf.d, LD_LIBRARY_PATH), or upgrade the host's driver",
);

const WORDS: &[Words] = &[
    Words {
        id: NO_IP.0,
        marks: &["Address family not supported by protocol"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words { id: NO_IP.0, marks: &["No IP interface found"], summary: NO_IP.1, remedy: NO_IP.2, fault: Fault::Launch },
    Words {
        id: NO_IP.0,
        marks: &["no socket interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: NO_IP.0,
        marks: &["NET/Socket : no interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: NO_IP.0,
        marks: &["No usable listening interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: "port-in-use",
        marks: &["ddress already in use"],
        summary: "a port is taken by another process of the host's network",
        remedy: "choose another master port; in the host's network two runs cannot share one",
        fault: Fault::Launch,
    },
    Words {
        id: "dmabuf-unsupported",
        marks: &["ibv_reg_dmabuf_mr", "failed", "Operation not supported"],
        summary: "the device's driver or the image's provider library cannot register dma-buf memory",
        remedy: "set NCCL_DMABUF_ENABLE=0 to use nvidia_peermem, or take newer rdma-core and driver (an old libmlx5 in the image does this, too)",
        fault: Fault::Host,
    },
    Words {
        id: FORWARD.0,
        marks: &["forward compatibility was attempted on non supported HW"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
    },
    Words {
        id: FORWARD.0,
        marks: &["unsupported display driver / cuda driver combination"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
    },
    Words {
        id: "gpu-not-passed",
        marks: &["no CUDA-capable device is detected"],
        summary: "the container sees no GPU",
        remedy: "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
        fault: Fault::Launch,
    },
    Words {
        id: "nccl-too-old-loaded",
        marks: &["undefined symbol: nccl"],
        summary: "the NCCL that the loader found is older than the one the program was built with",
        remedy: "find which libnccl.so.2 is loaded (LD_LIBRARY_PATH comes before the wheel's own) and take the old one out of the way",
        fault: Fault::Image,
    },
    Words {
        id: "nccl-version-skew",
        marks: &["Incompatible NCCL versions"],
        summary: "the program was built with another NCCL than it runs with",
        remedy: "rebuild it, or load the NCCL that it was built with",
        fault: Fault::Image,
    },
    Words {
        id: "nccl-version-skew",
        marks: &["was compiled with NCCL version", "but is running with"],
        summary: "the program was built with another NCCL than it runs with",
        remedy: "rebuild it, or load the NCCL that it was built with",
        fault: Fault::Image,
    },
];

type Rule = fn(&Log<'_>) -> Option<Cause>;

const LIST: &[Rule] = &[
    driver,
    version_skew,
    libibverbs,
    switched_off,
    asymmetric,
    not_permitted,
    hardware,
    port_down,
    filter,
    foreign_plugin,
    memlock,
    not_compat,
    namespace,
    gid,
    shm,
    interface,
    stalled,
];

struct Log<'a> {
    evidence: &'a NcclEvidence,
    hints: &'a Hints,
}

impl Log<'_> {
    /// Warnings and notes that fit, each with its process.
    fn lines(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let own = self.evidence.ranks.iter().flat_map(|rank| {
            let texts = rank.warnings.iter().chain(rank.notes.iter());
            texts.map(move |text| (Some(rank), text.text.as_str()))
        });
        let rest = self.evidence.notes.iter().map(|note| (None, note.text.as_str()));
        let mut found: Vec<String> = Vec::new();
        for (rank, text) in own.chain(rest).filter(|(_, text)| fits(text)) {
            let line = rank.map_or_else(|| text.to_owned(), |rank| format!("{}: {text}", rank.label()));
            if !found.contains(&line) {
                found.push(line);
            }
            if found.len() == MAX_EVIDENCE {
                break;
            }
        }
        found
    }

    fn lines_with(&self, mark: &str) -> Vec<String> {
        self.lines(|line| line.contains(mark))
    }

    fn ranks(&self) -> &[RankEvidence] {
        &self.evidence.ranks
    }

    fn no_device(&self) -> Vec<String> {
        let quiet = self.ranks().iter().filter(|rank| rank.no_ib_device);
        quiet.map(|rank| format!("{}: NET/IB : No device found.", rank.label())).take(MAX_EVIDENCE).collect()
    }

    fn devices(&self) -> &[RdmaDeviceHint] {
        self.hints.rdma_devices.as_deref().unwrap_or_default()
    }

    /// A setting that some process took from its environment.
    fn setting(&self, name: &str) -> Option<(&RankEvidence, &str)> {
        self.ranks().iter().find_map(|rank| Some((rank, rank.setting(name)?)))
    }

    fn uses_rdma(&self) -> bool {
        !self.evidence.devices.is_empty() || !self.evidence.unnamed_devices.is_empty()
    }
}

fn cause(
    id: &'static str,
    fault: Fault,
    summary: impl Into<String>,
    remedy: impl Into<String>,
    evidence: Vec<String>,
) -> Option<Cause> {
    (!evidence.is_empty()).then(|| Cause { id, summary: summary.into(), evidence, remedy: remedy.into(), fault })
}

/// One text for two causes: `/dev/nvidiactl` tells a driver that is too old from a GPU that was not passed.
fn driver(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines_with("driver version is insufficient");
    if log.hints.gpu_nodes == Some(false) {
        return cause(
            "gpu-not-passed",
            Fault::Launch,
            "the container sees no GPU: /dev/nvidiactl is not there",
            "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
            lines,
        );
    }
    let summary = match log.hints.gpu_nodes {
        Some(_) => "the host's driver is older than the image's CUDA needs",
        None => {
            "the host's driver is older than the image's CUDA needs (or, without /dev/nvidiactl, no GPU was passed)"
        }
    };
    cause(
        "driver-too-old",
        Fault::Host,
        summary,
        "upgrade the host's driver, or take an image with an older CUDA",
        lines,
    )
}

fn version_skew(log: &Log<'_>) -> Option<Cause> {
    let mut lines = log.lines_with("Mismatched NCCL version detected");
    let mut versions = log.evidence.version_skew();
    if versions.is_empty() {
        // `… : rank 0 version 21903 rank 1 version 22105`.
        let codes = lines.iter().flat_map(|line| line.split(" version ").skip(1));
        let codes = codes.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
        versions = codes.filter_map(NcclVersion::from_code).collect();
        versions.sort_unstable();
        versions.dedup();
    } else if lines.is_empty() {
        let versions = log.ranks().iter().filter_map(|rank| Some((rank.label(), rank.version.as_ref()?)));
        lines = versions.map(|(label, text)| format!("{label}: NCCL version {text}")).take(MAX_EVIDENCE).collect();
    }
    let named: Vec<String> = versions.iter().map(ToString::to_string).collect();
    cause(
        "nccl-version-skew",
        Fault::Image,
        format!("ranks run different NCCLs: {}", named.join(", ")),
        "run the same image on every rank, and check which libnccl.so.2 each one loads",
        lines,
    )
}

fn libibverbs(log: &Log<'_>) -> Option<Cause> {
    // 2.30 names each name that it tries; `libibverbs.so` is often absent, `.so.1` is what matters.
    let lines = log
        .lines(|line| line.contains("Failed to open libibverbs.so") || line.contains("Count not open libibverbs.so.1"));
    cause(
        "libibverbs-missing",
        Fault::Image,
        "NCCL finds no libibverbs.so.1 in the image",
        "install the fabric's RDMA packages in the image (rdmaprep build)",
        lines,
    )
}

fn switched_off(log: &Log<'_>) -> Option<Cause> {
    let (rank, name, value) =
        [("NCCL_IB_DISABLE", "0"), ("NCCL_NET", "IB")].into_iter().find_map(|(name, harmless)| {
            let (rank, value) = log.setting(name)?;
            let off = if name == "NCCL_NET" { value == "Socket" } else { value != harmless };
            off.then_some((rank, name, value))
        })?;
    cause(
        "rdma-switched-off",
        Fault::Job,
        format!("{name}={value} switches RDMA off"),
        format!("unset {name}: look in the image's environment, the job's, /etc/nccl.conf and ~/.nccl.conf"),
        vec![format!("{}: {name} set by environment to {value}", rank.label())],
    )
}

fn asymmetric(log: &Log<'_>) -> Option<Cause> {
    let told = log.evidence.asymmetric_devices.iter();
    let mut lines: Vec<String> = told
        .map(|(rank, devices)| match devices.is_empty() {
            true => format!("{rank} has no RDMA device"),
            false => format!("{rank} has {}", devices.join(", ")),
        })
        .take(MAX_EVIDENCE)
        .collect();
    lines.extend(log.lines_with("Detected mixed local Net device counts"));
    if !lines.is_empty() {
        lines.extend(log.lines_with("Unable to open device"));
    }
    let common = log.evidence.asymmetric_devices.iter().map(|(_, devices)| devices).min_by_key(|devices| devices.len());
    let only = common.filter(|devices| !devices.is_empty()).map(|devices| devices.join(","));
    let remedy = match only {
        Some(only) => format!(
            "pass every /dev/infiniband/uverbs* of the fabric to every container, or set NCCL_IB_HCA=={only} on all ranks"
        ),
        None => "pass every /dev/infiniband/uverbs* of the fabric to every container".to_owned(),
    };
    cause(
        "asymmetric-hca",
        Fault::Launch,
        "ranks have different RDMA devices: NCCL hangs without an error then",
        remedy,
        lines,
    )
}

fn not_permitted(log: &Log<'_>) -> Option<Cause> {
    let mut lines =
        log.lines(|line| line.contains("Unable to open device") || line.contains("Call to ibv_open_device failed"));
    if !log.uses_rdma() {
        let closed = log.devices().iter().filter(|device| device.can_be_opened == Some(false));
        lines.extend(closed.map(|device| format!("{} is in sysfs, but its device node cannot be opened", device.name)));
    }
    // Where only some ranks lack a device that is the matter.
    if !log.evidence.asymmetric_devices.is_empty() {
        return None;
    }
    cause(
        "device-not-permitted",
        Fault::Launch,
        "the host's RDMA device is not usable in the container: its device node was not passed, or not with permission",
        "start the container with --device /dev/infiniband/uverbsN for each device and --device /dev/infiniband/rdma_cm",
        lines,
    )
}

fn hardware(log: &Log<'_>) -> Option<Cause> {
    let looked = log.hints.rdma_devices.as_ref().is_some_and(Vec::is_empty);
    let lines = if looked && !log.uses_rdma() { log.no_device() } else { Vec::new() };
    cause(
        "no-rdma-hardware",
        Fault::Host,
        "the host shows no RDMA device (/sys/class/infiniband is empty)",
        "use an instance type with RDMA, attach an elastic RDMA interface, and load the driver on the host",
        lines,
    )
}

fn port_down(log: &Log<'_>) -> Option<Cause> {
    let devices = log.devices();
    let all_down = !devices.is_empty() && devices.iter().all(|device| device.has_active_port == Some(false));
    let lines = if all_down && !log.uses_rdma() { log.no_device() } else { Vec::new() };
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    cause(
        "port-down",
        Fault::Host,
        format!("no port of {} is active", names.join(", ")),
        "bring the network interface of the device up on the host and give it an address (ip link set eth1 up; dhclient eth1)",
        lines,
    )
}

fn filter(log: &Log<'_>) -> Option<Cause> {
    let (rank, value) = log.setting("NCCL_IB_HCA")?;
    let filter = InterfaceFilter::parse(value);
    let usable =
        |device: &&RdmaDeviceHint| device.can_be_opened != Some(false) && device.has_active_port != Some(false);
    let names: Vec<&str> = log.devices().iter().filter(usable).map(|device| device.name.as_str()).collect();
    if names.is_empty() || log.uses_rdma() || names.iter().any(|name| filter.allows(name, None)) {
        return None;
    }
    let mut lines = log.no_device();
    if !lines.is_empty() {
        lines.insert(0, format!("{}: NCCL_IB_HCA set by environment to {value}", rank.label()));
    }
    cause(
        "hca-filter-matches-nothing",
        Fault::Job,
        format!("NCCL_IB_HCA={value} names none of {}", names.join(", ")),
        format!("set NCCL_IB_HCA={}, or unset it", names.join(",")),
        lines,
    )
}

/// A network plugin that came with the image and found no device, or is for another fabric.
fn foreign_plugin(log: &Log<'_>) -> Option<Cause> {
    if log.uses_rdma() {
        return None;
    }
    let is_builtin = |name: &str| matches!(name, "IB" | "Socket");
    let plugins = log.ranks().iter().flat_map(|rank| rank.plugins.iter().map(move |plugin| (rank, plugin)));
    let mut lines: Vec<String> = plugins
        .filter(|(_, plugin)| plugin.state != PluginState::NotFound && !is_builtin(&plugin.name))
        .map(|(rank, plugin)| format!("{}: network plugin {}", rank.label(), plugin.name))
        .take(MAX_EVIDENCE)
        .collect();
    let networks = log.evidence.networks.keys();
    lines.extend(networks.filter(|name| !is_builtin(name)).map(|name| format!("Using network {name}")));
    let complaints = log.lines(|line| line.starts_with("NET/OFI") || line.contains("NET/OFI "));
    lines.extend(complaints);
    let works = log.evidence.networks.keys().any(|name| is_verbs_network(name));
    if works && !log.ranks().iter().any(|rank| rank.no_ib_device) {
        return None;
    }
    lines.truncate(MAX_EVIDENCE);
    cause(
        "foreign-net-plugin",
        Fault::Image,
        match log.ranks().iter().any(|rank| rank.no_ib_device) {
            true => "a network plugin of the image took over from NCCL's own, and found no device",
            false => "a network plugin of the image took over from NCCL's own",
        },
        "set NCCL_NET_PLUGIN=none, or remove the plugin (libnccl-net*.so) from the image",
        lines,
    )
}

fn memlock(log: &Log<'_>) -> Option<Cause> {
    let verbs = |line: &str| {
        ["ibv_reg_mr", "ibv_create_cq", "ibv_create_qp", "ibv_alloc_pd"].iter().any(|call| line.contains(call))
            && line.contains("failed")
    };
    let no_memory = |line: &str| {
        verbs(line)
            && (line.contains("Cannot allocate memory") || line.contains("error -12") || line.contains("errno 12"))
    };
    match log.hints.memlock {
        Limit::Bytes(bytes) => cause(
            "memlock-low",
            Fault::Launch,
            format!("the limit of locked memory is {bytes} B: RDMA memory cannot be registered"),
            "start the container with --ulimit memlock=-1 (and --cap-add IPC_LOCK); in Kubernetes LimitMEMLOCK=infinity of containerd",
            // Old versions name no error.
            log.lines(|line| no_memory(line) || (verbs(line) && !line.contains("error"))),
        ),
        limit => cause(
            "verbs-out-of-memory",
            Fault::Host,
            "the RDMA driver refuses memory",
            match limit {
                Limit::Unlimited => {
                    "the limit of locked memory is not the reason: look in the host's kernel log, and at the device's limits of queue pairs and memory regions (ibv_devinfo -v)"
                }
                _ => {
                    "check `ulimit -l` in the container (start it with --ulimit memlock=-1); if it is unlimited, look in the host's kernel log"
                }
            },
            log.lines(no_memory),
        ),
    }
}

/// `EINVAL` from `ibv_modify_qp` on eRDMA: the driver runs as iWARP, which NCCL cannot use.
fn not_compat(log: &Log<'_>) -> Option<Cause> {
    let is_erdma = log.devices().iter().any(|device| device.is_erdma)
        || log.ranks().iter().any(|rank| rank.physical_devices().iter().any(|name| name.starts_with("erdma")));
    let erdma: Vec<&RdmaDeviceHint> =
        log.devices().iter().filter(|device| device.is_erdma || device.name.starts_with("erdma")).collect();
    let is_compat = !erdma.is_empty() && erdma.iter().all(|device| device.is_iwarp == Some(false));
    if !is_erdma || is_compat {
        return None;
    }
    let mut lines = log.lines(|line| line.contains("ibv_modify_qp failed") && line.contains("Invalid argument"));
    if !lines.is_empty() {
        let iwarp = erdma.iter().filter(|device| device.is_iwarp == Some(true));
        lines.extend(iwarp.map(|device| format!("{}: transport iWARP", device.name)));
    }
    cause(
        "erdma-driver-not-compat",
        Fault::Host,
        "the host's erdma driver is not in compatibility mode: its devices are iWARP, which NCCL cannot connect",
        "load it on the host with compat_mode=Y (rmmod erdma; modprobe erdma compat_mode=Y), or install it in OFED or compat mode; the image is fine, and no other GID index helps",
        lines,
    )
}

fn namespace(log: &Log<'_>) -> Option<Cause> {
    let lines = log.lines(|line| line.contains("ibv_modify_qp failed") && line.contains("No such device"));
    cause(
        "netns-gid-mismatch",
        Fault::Launch,
        "the GID belongs to a network interface that is not in the container's network namespace",
        "run the container in the host's network (--network host, hostNetwork: true)",
        lines,
    )
}

/// Status 12 with vendor error 129 at once: the devices do not reach one another. A GID is the cause where it is seen.
fn gid(log: &Log<'_>) -> Option<Cause> {
    let retries = |line: &str| {
        line.contains("Got completion")
            && (line.contains("status=12") || line.contains("(12)") || line.contains("error 12"))
            && (line.contains("vendor err 129") || line.contains("vendor_err=129"))
    };
    let lines = log.lines(retries);
    let on_infiniband = log
        .ranks()
        .iter()
        .flat_map(|rank| rank.ib_devices.iter().flatten())
        .any(|device| device.ports.iter().any(|port| port.link.starts_with("IB")));
    if lines.is_empty() || on_infiniband {
        return None;
    }
    let set = log.setting("NCCL_IB_GID_INDEX").and_then(|(_, value)| value.parse::<u32>().ok());
    // The default was index 0 to 2.20, and is found by NCCL since 2.21.
    let is_old = log
        .ranks()
        .iter()
        .filter_map(RankEvidence::decoded_version)
        .any(|version| version < NcclVersion::new(2, 21, 0));
    let index = set.or(is_old.then_some(0));
    let in_use: Vec<&str> = log.ranks().iter().flat_map(RankEvidence::physical_devices).collect();
    let table: Vec<&GidEntry> =
        log.hints.gids.iter().filter(|entry| in_use.is_empty() || in_use.contains(&entry.device.as_str())).collect();
    let chosen = table.iter().find(|entry| Some(entry.index) == index);
    let link_local = lines.iter().any(|line| line.contains("localGid fe80") || line.contains("localGid FE80"));
    let suspect = match chosen {
        Some(chosen) => !chosen.is_routable(),
        None => link_local || (index.is_some() && !table.is_empty()) || set.is_some(),
    };
    if !suspect {
        return None;
    }
    let better = table.iter().find(|entry| entry.is_routable());
    let remedy = match better {
        Some(better) => format!("set NCCL_IB_GID_INDEX={}: RoCE v2 with the IPv4 address ({}, {})", better.index, better.device, better.gid),
        None => "choose the GID index of RoCE v2 with the IPv4 address (rdmaprep devices), or leave it to NCCL 2.21+ (NCCL_IB_GID_INDEX=-1)".to_owned(),
    };
    let summary = match index {
        Some(index) => {
            format!("the devices do not reach one another: GID index {index} is not a routable RoCE v2 address")
        }
        None => "the devices do not reach one another: the GID in use is link-local".to_owned(),
    };
    cause("gid-unroutable", Fault::Job, summary, remedy, lines)
}

fn shm(log: &Log<'_>) -> Option<Cause> {
    let segment = |line: &str| {
        line.contains("rror while creating shared memory segment")
            || line.contains("fallocate")
            || (line.contains("failed to extend") && line.contains("/dev/shm/"))
    };
    // Every version but 2.12 – 2.22 says so in the same line or the one before.
    let full = |line: &str| segment(line) && line.contains("No space left on device");
    let small = log.hints.shm_bytes.is_some_and(|bytes| bytes <= 64 << 20);
    let full_now =
        !log.lines(full).is_empty() || !log.lines(|line| segment(line) && line.contains("failed to extend")).is_empty();
    let lines = if full_now || small { log.lines(segment) } else { Vec::new() };
    cause(
        "shm-too-small",
        Fault::Launch,
        "/dev/shm is full: a container has 64 MiB by default",
        "start the container with --shm-size=8g or --ipc=host",
        lines,
    )
}

/// A bridge or a container's own interface for the ranks to meet on, and they did not meet.
fn interface(log: &Log<'_>) -> Option<Cause> {
    let is_virtual = |name: &str| {
        ["br-", "veth", "docker", "virbr", "cni", "flannel", "cali", "lxc", "tunl"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let stuck = log.ranks().iter().filter(|rank| rank.phase <= Phase::Bootstrap);
    let chosen =
        stuck.filter_map(|rank| Some((rank, rank.bootstrap.as_ref()?))).filter(|(_, found)| is_virtual(&found.name));
    let lines: Vec<String> = chosen
        .clone()
        .map(|(rank, found)| format!("{}: Bootstrap: Using {}:{}", rank.label(), found.name, found.address))
        .take(MAX_EVIDENCE)
        .collect();
    let others = chosen.clone().flat_map(|(rank, _)| &rank.socket_interfaces);
    let other = others.map(|found| found.name.as_str()).find(|name| !is_virtual(name)).unwrap_or("eth0");
    let names: Vec<&str> = chosen.map(|(_, found)| found.name.as_str()).take(3).collect();
    cause(
        "bootstrap-interface",
        Fault::Job,
        format!("the ranks are to meet over {}, which other hosts do not reach", names.join(", ")),
        format!("set NCCL_SOCKET_IFNAME to the interface of the hosts' common network, as NCCL_SOCKET_IFNAME=={other}"),
        lines,
    )
}

/// Everything connected over P2P, then nothing until the time was over.
fn stalled(log: &Log<'_>) -> Option<Cause> {
    let hint = log.lines(|line| line.contains("HINT") && line.contains("ACS"));
    let over = !log.ranks().is_empty() && log.ranks().iter().all(|rank| rank.phase == Phase::AfterInit);
    let is_p2p =
        |rank: &RankEvidence| rank.channels.iter().any(|group| matches!(group.transport, Transport::P2p { .. }));
    let only_local = !log.uses_rdma() && log.ranks().iter().all(is_p2p);
    let mut lines = hint;
    if log.hints.timed_out && over && only_local {
        lines.push(format!(
            "all {} processes came past Init COMPLETE with P2P channels, then wrote nothing",
            log.ranks().len()
        ));
    }
    cause(
        "p2p-stalled",
        Fault::Host,
        "GPUs do not reach one another's memory: PCIe ACS or the IOMMU may redirect it",
        "switch ACS off on the host's PCIe bridges, or the IOMMU to pass-through; NCCL_P2P_DISABLE=1 shows whether it is this",
        lines,
    )
}
