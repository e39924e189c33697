//! Checks of the `NCCL_*` settings that an image brings along.

use super::consumers::deciding;
use super::subject::Subject;
use crate::checks::Outcome;
use crate::facts::{ImageFacts, NcclSetting, SettingSource};
use crate::nccl_settings::{InterfaceFilter, parse_number};
use crate::targets::Target;
use crate::versions::NcclVersion;

/// From here on NCCL chooses the GID index itself; before, the default is 0 (NVIDIA/nccl `src/transport/net_ib.cc`).
const CHOOSES_GID: NcclVersion = NcclVersion::new(2, 21, 0);
/// The instance types with most devices have four; the names are `erdma_0`, `erdma_1`, … (elastic-rdma-drivers).
pub(crate) const MOST_DEVICES: u32 = 16;
/// The interface that carries TCP on the vendor's instances (the PAI preset).
const TCP_INTERFACE: &str = "eth0";

/// One setting of the image.
pub(crate) enum Setting<'a> {
    Unset,
    Set(&'a NcclSetting),
    /// Unknown: a file that may set it was not read.
    Unknown(Outcome),
}

pub(crate) fn setting<'a>(subject: &Subject<'a>, name: &str) -> Setting<'a> {
    let facts = subject.facts;
    let found = facts.nccl_settings.iter().find(|setting| setting.name == name);
    match (found, facts.nccl_settings_unread.first()) {
        (Some(setting), _) if setting.from == SettingSource::Env => Setting::Set(setting),
        (_, Some(path)) => Setting::Unknown(Outcome::unknown(format!("{path} may set {name}, but was not read"))),
        (Some(setting), None) => Setting::Set(setting),
        (None, None) => Setting::Unset,
    }
}

/// A setting's value for NCCL in a job: the target's overrides the image's.
pub(crate) enum Set {
    Unset,
    To { value: String, from: String },
    Unknown(Outcome),
}

pub(crate) fn effective(facts: &ImageFacts, target: &Target, name: &str) -> Set {
    if let Some(value) = target.nccl_preset(name) {
        return Set::To { value: value.to_owned(), from: format!("preset of {}", target.id) };
    }
    match setting(&Subject { facts, target }, name) {
        Setting::Unset => Set::Unset,
        Setting::Set(set) => Set::To { value: set.value.clone(), from: set.from.to_string() },
        Setting::Unknown(outcome) => Set::Unknown(outcome),
    }
}

/// The target's value, if it overrides the image's own.
fn preset(subject: &Subject<'_>, name: &str) -> Option<&'static str> {
    subject.target.nccl_preset(name)
}

/// `NCCL_IB_DISABLE=1 (/etc/nccl.conf)`
fn say(setting: &NcclSetting) -> String {
    format!("{}={} ({})", setting.name, setting.value, setting.from)
}

fn take_out(setting: &NcclSetting) -> String {
    match &setting.from {
        SettingSource::Env => format!("ENV {}=", setting.name),
        SettingSource::File(path) => format!("RUN sed -i '/^{}=/d' {path}", setting.name),
    }
}

pub(crate) fn ib_enabled(subject: &Subject<'_>) -> Outcome {
    match setting(subject, "NCCL_IB_DISABLE") {
        Setting::Unknown(outcome) => return outcome,
        Setting::Set(setting) if parse_number(&setting.value).is_some_and(|value| value != 0) => {
            return Outcome::fail(format!("{} switches RDMA off", say(setting)))
                .evidence(setting.overridden.clone())
                .remedy(match setting.from {
                    SettingSource::Env => "ENV NCCL_IB_DISABLE=0".to_owned(),
                    SettingSource::File(_) => take_out(setting),
                });
        }
        Setting::Set(_) | Setting::Unset => {}
    }
    match setting(subject, "NCCL_NET") {
        Setting::Unknown(outcome) => outcome,
        Setting::Set(setting) if !setting.value.is_empty() && !setting.value.eq_ignore_ascii_case("IB") => {
            Outcome::fail(format!("{} restricts NCCL to one network, but RDMA is the one called IB", say(setting)))
                .remedy(match setting.from {
                    SettingSource::Env => "ENV NCCL_NET=IB".to_owned(),
                    SettingSource::File(_) => take_out(setting),
                })
        }
        Setting::Set(_) | Setting::Unset => Outcome::pass("no setting switches RDMA off"),
    }
}

pub(crate) fn ib_hca(subject: &Subject<'_>) -> Outcome {
    const NAME: &str = "NCCL_IB_HCA";
    let set = match setting(subject, NAME) {
        Setting::Unknown(outcome) => return outcome,
        Setting::Unset => return Outcome::pass("no setting limits the devices"),
        Setting::Set(setting) => setting,
    };
    let driver = subject.target.fabric.driver;
    let filter = InterfaceFilter::parse(&set.value);
    let devices: Vec<String> = (0..MOST_DEVICES).map(|number| format!("{driver}_{number}")).collect();
    let allowed: Vec<&String> = devices.iter().filter(|device| filter.allows(device, Some(1))).collect();
    if let Some(first) = allowed.first() {
        return Outcome::pass(format!("{} lets {first} through", say(set)));
    }
    let summary = format!("{} can match no {driver}_N device, so NCCL would use TCP", say(set));
    // udev can name a device by its place on the PCI bus (rdma-core, kernel-boot/rdma-persistent-naming.rules).
    let is_pci_name = |name: &str| ["roc", "ibp", "rocep", "iw"].iter().any(|prefix| name.starts_with(prefix));
    let remedy = format!("ENV {NAME}={driver}");
    match preset(subject, NAME) {
        Some(value) => Outcome::warn(format!("{summary}; {} sets {NAME}={value} over it", subject.target.title)),
        None if !filter.excludes && filter.entries.iter().any(|(name, _)| is_pci_name(name)) => {
            Outcome::warn(format!("{summary}, unless the host's udev has renamed it"))
        }
        None => Outcome::fail(summary),
    }
    .remedy(remedy)
}

pub(crate) fn gid_index(subject: &Subject<'_>) -> Outcome {
    let set = match setting(subject, GID_INDEX) {
        Setting::Unknown(outcome) => return outcome,
        Setting::Set(setting) => Some(setting),
        Setting::Unset => None,
    };
    // With a value that is not a number, NCCL keeps its default.
    let set = set.and_then(|setting| Some((setting, parse_number(&setting.value)?)));
    let fabric = GidRules::of(subject);
    let preset = preset(subject, GID_INDEX).map(|value| format!("{} sets {GID_INDEX}={value}", subject.target.title));
    match (set, preset) {
        (Some((setting, 0)), preset) => {
            let over = preset.map(|preset| format!("; {preset} over it")).unwrap_or_default();
            Outcome::warn(format!("{}: {}{over}", say(setting), fabric.index_0)).remedy(fabric.remedy)
        }
        (_, Some(preset)) => Outcome::pass(preset),
        (Some((setting, value)), None) if Some(value) == fabric.usual => Outcome::pass(say(setting)),
        (Some((setting, value)), None) if value > 0 => Outcome::unknown(format!(
            "{}: the image does not show whether the host's GID table has an address there",
            say(setting)
        )),
        (set, None) => index_of_nccl(subject, set.map(|(setting, _)| setting), &fabric),
    }
}

const GID_INDEX: &str = "NCCL_IB_GID_INDEX";

/// What is known about a fabric's GID tables.
struct GidRules {
    /// Why index 0 does not work.
    index_0: &'static str,
    /// The index that has the address on most hosts.
    usual: Option<i64>,
    remedy: &'static str,
}

impl GidRules {
    fn of(subject: &Subject<'_>) -> GidRules {
        if subject.target.fabric.is_mellanox {
            // The default GIDs come first, v1 before v2 (Linux, drivers/infiniband/core/cache.c, ib_cache_gid_set_default_gid).
            // The slot of RoCE v2 with an IPv4 address differs by host; Baidu's page (BCC/s/ilks01soo) has 3 in its example.
            GidRules {
                index_0: "index 0 is RoCE v1 with a link-local address, which does not reach other hosts",
                usual: None,
                remedy: "ENV NCCL_IB_GID_INDEX=3   # the index that rdmaprep devices shows as v2 with an IPv4 address; or unset, with NCCL 2.21 or newer",
            }
        } else {
            GidRules {
                index_0: "index 0 is the link-local address, which does not reach other hosts \
                          (elastic-rdma-drivers erdma_verbs.c)",
                usual: Some(1),
                remedy: "ENV NCCL_IB_GID_INDEX=1   # or unset, with NCCL 2.21 or newer",
            }
        }
    }
}

/// The index that NCCL uses if none is set; `set`: a negative value, which newer ones read as that.
fn index_of_nccl(subject: &Subject<'_>, set: Option<&NcclSetting>, fabric: &GidRules) -> Outcome {
    let used = deciding(subject.facts);
    let versions: Vec<Option<NcclVersion>> =
        used.iter().filter(|used| used.consumer.path.is_some()).map(|used| used.version).collect();
    let is_old = versions.iter().flatten().any(|version| *version < CHOOSES_GID);
    match set {
        Some(setting) if is_old => {
            Outcome::warn(format!("{}: NCCL before {CHOOSES_GID} does not choose it itself", say(setting)))
                .remedy(fabric.remedy)
        }
        _ if versions.is_empty() => Outcome::skip("no consumer gets an NCCL"),
        _ if is_old => {
            let why = fabric.index_0;
            Outcome::warn(format!("{GID_INDEX} is not set, and NCCL before {CHOOSES_GID} uses 0: {why}"))
                .remedy(fabric.remedy)
        }
        _ if versions.contains(&None) => {
            Outcome::unknown(format!("{GID_INDEX} is not set, and NCCL's version is unknown"))
        }
        _ => Outcome::pass(format!("NCCL {CHOOSES_GID} and newer choose the index themselves")),
    }
}

pub(crate) fn socket_ifname(subject: &Subject<'_>) -> Outcome {
    const NAME: &str = "NCCL_SOCKET_IFNAME";
    let set = match setting(subject, NAME) {
        Setting::Unknown(outcome) => return outcome,
        Setting::Unset => return Outcome::pass("no setting limits the interfaces"),
        Setting::Set(setting) => setting,
    };
    if set.value.is_empty() {
        return Outcome::pass("no setting limits the interfaces");
    }
    let filter = InterfaceFilter::parse_sockets(&set.value);
    let over = preset(subject, NAME)
        .map(|value| format!("; {} sets {NAME}={value} over it", subject.target.title))
        .unwrap_or_default();
    let remedy = format!("ENV {NAME}={TCP_INTERFACE}");
    if !filter.allows(TCP_INTERFACE, None) {
        return Outcome::warn(format!("{} excludes {TCP_INTERFACE}, the hosts' interface{over}", say(set)))
            .remedy(remedy);
    }
    if filter.allows("lo", None) {
        // Only without the variable does NCCL leave out lo by itself (src/misc/socket.cc, ncclFindInterfaces).
        return Outcome::warn(format!(
            "{} lets lo through, which comes first and reaches no other host{over}",
            say(set)
        ))
        .remedy(remedy);
    }
    Outcome::pass(say(set))
}

/// Settings in the image that do nothing in the target's jobs: those that the platform sets to another value, and those
/// that it documents as having no effect.
pub(crate) fn platform_settings(subject: &Subject<'_>) -> Outcome {
    let (facts, target) = (subject.facts, subject.target);
    if target.nccl_presets.is_empty() && target.nccl_without_effect.is_empty() {
        return Outcome::skip(format!("{} sets no variable of NCCL", target.title));
    }
    let idle = facts.nccl_settings.iter().filter_map(|set| {
        let why = match target.nccl_preset(&set.name) {
            Some(value) if value != set.value => format!("the platform overrides it with {}={value}", set.name),
            Some(_) => return None,
            None if target.nccl_without_effect.contains(&set.name.as_str()) => "it has no effect there".to_owned(),
            None => return None,
        };
        Some((set, why))
    });
    let idle: Vec<(&NcclSetting, String)> = idle.collect();
    let Some((first, why)) = idle.first() else {
        return match facts.nccl_settings_unread.first() {
            Some(path) => Outcome::unknown(format!("{path} may have settings, but was not read")),
            None => Outcome::pass(format!("no setting in the image is lost in jobs on {}", target.title)),
        };
    };
    let more = if idle.len() > 1 { format!(", and {} more", idle.len() - 1) } else { String::new() };
    Outcome::warn(format!("{} does nothing in jobs on {}: {why}{more}", say(first), target.title))
        .evidence(idle.iter().skip(1).map(|(set, why)| format!("{}: {why}", say(set))))
        .evidence(target.sources.variables.map(|source| format!("source: {}", source.say())))
        .remedy(format!("set it in the job if it must differ from the platform's; {}", take_out(first)))
}
