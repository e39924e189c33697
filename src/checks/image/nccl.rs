//! Checks of the NCCL that each consumer gets, and of NCCL's network plugins.

use super::consumers::{CRASHES_ON_ERDMA, Use, copy_at, deciding, uses, version_of};
use super::remedies::install_command;
use super::settings::{Setting, setting};
use super::subject::{Subject, abbreviate};
use crate::checks::Outcome;
use crate::facts::{ImageFacts, NcclKind, PackageFacts};
use crate::versions::{CudaVersion, NcclRequirement, NcclVersion, parse_cuda_version, parse_nccl_version};

/// A release that works.
const WORKS_ON_ERDMA: NcclVersion = NcclVersion::new(2, 29, 7);
/// First release in which `NCCL_NET_PLUGIN=none` is a keyword (NVIDIA/nccl v2.28, `src/plugin/net.cc`).
const NONE_IS_A_KEYWORD: NcclVersion = NcclVersion::new(2, 28, 0);

/// Vendors of plugins for Mellanox devices (NVIDIA's HPC-X and Spectrum-X), as `inspect` names them.
const MELLANOX_PLUGINS: [&str; 2] = ["hpcx", "spcx"];

pub(super) fn nccl_version(subject: &Subject<'_>) -> Outcome {
    let Some(minimum) = &subject.target.minimum_nccl else {
        return Outcome::skip(format!("{} states no minimum", subject.target.title));
    };
    let facts = subject.facts;
    if facts.nccl_consumers.is_empty() {
        return Outcome::unknown("these facts do not show which NCCL each consumer gets: inspect the image again");
    }
    let evidence = facts.nccl.iter().map(|copy| {
        format!("{} ({:?}): {}", copy.path, copy.kind, copy.version.as_deref().unwrap_or("no version text"))
            .to_lowercase()
    });
    let first = deciding(facts);
    if first.is_empty() {
        let paths: Vec<String> = facts.nccl.iter().map(|copy| copy.path.clone()).collect();
        return match paths.is_empty() {
            true => Outcome::fail(format!("the image has no NCCL; {} needs {minimum}", subject.target.title)),
            false => Outcome::fail(format!("NCCL exists only where the loader does not look: {}", abbreviate(&paths))),
        }
        .evidence(evidence)
        .remedy(remedy_for(facts, None, Release::Meeting(minimum)));
    }
    let all = uses(facts);
    let present = all.iter().filter(|used| used.is_torch() || used.consumer.path.is_some());
    let summary = present.map(Use::say).collect::<Vec<_>>().join("; ");
    let is_bad = |used: &Use<'_>| used.consumer.path.is_none() || used.version.is_some_and(|v| !minimum.allows(v));
    let is_unknown = |used: &Use<'_>| used.consumer.path.is_some() && used.version.is_none();
    // The training framework decides; another program's older copy is worth a warning.
    let outcome = if first.iter().all(is_bad) {
        let remedy = remedy_for(facts, Some(&first[0]), Release::Meeting(minimum));
        Outcome::fail(format!("{summary}; {} needs {minimum}", subject.target.title)).remedy(remedy)
    } else if first.iter().all(|used| is_bad(used) || is_unknown(used)) {
        Outcome::unknown(summary)
    } else if all
        .iter()
        .any(|used| (used.is_torch() || used.consumer.path.is_some()) && (is_bad(used) || is_unknown(used)))
    {
        Outcome::warn(format!("{summary}; {} needs {minimum}", subject.target.title))
    } else {
        Outcome::pass(summary)
    };
    outcome.evidence(evidence)
}

/// The release that a remedy installs.
#[derive(Clone, Copy)]
enum Release<'a> {
    Meeting(&'a NcclRequirement),
    Exactly(NcclVersion),
}

/// How a consumer gets another NCCL, in the way it got its own; without any, as a wheel.
fn remedy_for(facts: &ImageFacts, used: Option<&Use<'_>>, release: Release<'_>) -> String {
    if let Some(consumer) = used.map(|used| used.consumer)
        && let (Some(directory), Some(hidden)) = (&consumer.library_path, &consumer.instead_of)
    {
        return format!("take {directory} out of LD_LIBRARY_PATH: without it {} gets {hidden}", consumer.name);
    }
    let copy = used.and_then(|used| used.copy);
    let cuda = copy.and_then(|copy| copy.built_for_cuda.as_deref()).and_then(parse_cuda_version);
    let cuda = cuda.or_else(|| facts.cuda.evidence.first().and_then(|evidence| parse_cuda_version(&evidence.version)));
    let cuda = cuda.map_or(12, |version| version.major);
    let packages = &facts.packages;
    match (copy.map_or(NcclKind::Wheel, |copy| copy.kind), release) {
        (NcclKind::Static, _) => {
            let path = copy.map_or("torch", |copy| copy.path.as_str());
            match release {
                Release::Meeting(requirement) => {
                    format!("NCCL is linked into {path}: use a torch build with NCCL {requirement}")
                }
                Release::Exactly(version) => {
                    format!("NCCL is linked into {path}: use a torch build with NCCL {version}")
                }
            }
        }
        (NcclKind::Wheel, Release::Meeting(requirement)) => {
            format!("RUN pip install 'nvidia-nccl-cu{cuda}{}'", requirement.package_specifier())
        }
        (NcclKind::Wheel, Release::Exactly(version)) => format!("RUN pip install 'nvidia-nccl-cu{cuda}=={version}'"),
        (NcclKind::Conda, Release::Meeting(requirement)) => {
            format!("RUN conda install -y 'nccl{}'", requirement.package_specifier())
        }
        (NcclKind::Conda, Release::Exactly(version)) => format!("RUN conda install -y 'nccl={version}'"),
        (NcclKind::System | NcclKind::HpcX | NcclKind::Other, Release::Meeting(requirement))
            if packages.manager.is_rpm() =>
        {
            match requirement {
                NcclRequirement::AtLeast(version) => {
                    format!("RUN {} 'libnccl >= {version}'", install_command(packages))
                }
                NcclRequirement::Within(_) => format!("RUN {} libnccl   # {requirement}", install_command(packages)),
            }
        }
        (NcclKind::System | NcclKind::HpcX | NcclKind::Other, Release::Exactly(version))
            if packages.manager.is_rpm() =>
        {
            let names = ["libnccl", "libnccl-devel"].map(|name| format!("'{name}-{version}-*+cuda{cuda}*'"));
            format!("RUN {} {}", install_command(packages), installed(packages, "libnccl-devel", &names))
        }
        (NcclKind::System | NcclKind::HpcX | NcclKind::Other, Release::Meeting(requirement)) => {
            format!("RUN {APT_INSTALL} libnccl2   # {requirement}")
        }
        (NcclKind::System | NcclKind::HpcX | NcclKind::Other, Release::Exactly(version)) => {
            let names = ["libnccl2", "libnccl-dev"].map(|name| format!("'{name}={version}-*+cuda{cuda}*'"));
            format!("RUN {APT_INSTALL} --allow-downgrades {}", installed(packages, "libnccl-dev", &names))
        }
    }
}

const APT_INSTALL: &str = "apt-get update && apt-get install -y --allow-change-held-packages";

/// The library, with its development package where that is there: it needs the library's exact version.
fn installed(packages: &PackageFacts, development: &str, names: &[String; 2]) -> String {
    let count = if packages.installed(development).is_some() { 2 } else { 1 };
    names[..count].join(" ")
}

pub(super) fn nccl_shadowed(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let (mut worse, mut unknown, mut better) = (Vec::new(), Vec::new(), Vec::new());
    let mut hits_torch = false;
    for used in uses(facts) {
        let (Some(directory), Some(hidden)) = (&used.consumer.library_path, &used.consumer.instead_of) else {
            continue;
        };
        let name = &used.consumer.name;
        match (used.version, copy_at(facts, Some(hidden)).and_then(version_of)) {
            (Some(got), Some(meant)) if got < meant => {
                hits_torch |= used.is_torch();
                worse.push(format!(
                    "LD_LIBRARY_PATH directory {directory} gives {name} NCCL {got} before the {meant} of {hidden}"
                ));
            }
            (Some(got), Some(_)) => better.push(format!("{name} gets NCCL {got} from {directory} of LD_LIBRARY_PATH")),
            _ => unknown
                .push(format!("{name} gets an NCCL from {directory} before {hidden}, and their versions are unknown")),
        }
    }
    let assumed = uses(facts).iter().any(|used| used.consumer.assumed && used.consumer.instead_of.is_some());
    if assumed && !worse.is_empty() {
        worse.push("the search path of its library could not be read; with an RPATH it would not be hidden".to_owned());
    }
    let remedy = "take the directory out of LD_LIBRARY_PATH, or the old libnccl out of the directory";
    if hits_torch {
        Outcome::fail(worse[0].clone()).evidence(worse).remedy(remedy)
    } else if !worse.is_empty() {
        Outcome::warn(worse[0].clone()).evidence(worse).remedy(remedy)
    } else if let Some(first) = unknown.first() {
        Outcome::unknown(first.clone()).evidence(unknown)
    } else {
        Outcome::pass("LD_LIBRARY_PATH hides no newer NCCL").evidence(better)
    }
}

pub(super) fn nccl_release(subject: &Subject<'_>) -> Outcome {
    if subject.target.fabric.id != "erdma" {
        return Outcome::skip("no release is known to fail on this fabric");
    }
    let facts = subject.facts;
    let is_bad = |used: &Use<'_>| used.version.is_some_and(|version| CRASHES_ON_ERDMA.contains(&version));
    let first = deciding(facts);
    let all = uses(facts);
    let bad: Vec<String> = all.iter().filter(|used| is_bad(used)).map(Use::say).collect();
    let source = "reported by the public guide \"RDT on eRDMA\": 2.28.7 and 2.28.9 end in a segmentation fault in \
                  ncclNetInit; 2.28.3, 2.29.7 and 2.30.7 work";
    let used = first.iter().find(|used| is_bad(used)).or_else(|| all.iter().find(|used| is_bad(used)));
    let remedy = format!(
        "{}   # or another release than 2.28.7 and 2.28.9",
        remedy_for(facts, used, Release::Exactly(WORKS_ON_ERDMA))
    );
    let (summary, evidence) = (abbreviate(&bad), [source.to_owned()]);
    if first.iter().any(is_bad) {
        Outcome::fail(format!("{summary} crashes at start on eRDMA")).evidence(evidence).remedy(remedy)
    } else if !bad.is_empty() {
        Outcome::warn(format!("{summary} crashes at start on eRDMA")).evidence(evidence).remedy(remedy)
    } else if let Some(used) = first.iter().find(|used| used.consumer.path.is_some() && used.version.is_none()) {
        Outcome::unknown(used.say())
    } else if first.is_empty() {
        Outcome::skip("no consumer gets an NCCL")
    } else {
        Outcome::pass("no consumer gets a release that is known to fail")
    }
}

pub(super) fn nccl_cuda(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let runtimes = facts.cuda.evidence.iter().filter(|e| e.source != crate::facts::CudaSource::Env);
    let versions: Vec<CudaVersion> = runtimes.filter_map(|e| parse_cuda_version(&e.version)).collect();
    if versions.is_empty() {
        return Outcome::skip("no CUDA runtime was found to compare with");
    }
    let mut others = Vec::new();
    for used in uses(facts) {
        let built = used.copy.and_then(|copy| copy.built_for_cuda.as_deref()).and_then(parse_cuda_version);
        // NCCL linked into torch has its own runtime next to it.
        if let (Some(built), Some(copy)) = (built, used.copy)
            && versions.iter().all(|version| version.major != built.major)
        {
            let line =
                format!("{} was built for CUDA {built}, and the image's runtime is CUDA {}", copy.path, versions[0]);
            if !others.contains(&line) {
                others.push(line);
            }
        }
    }
    match others.is_empty() {
        true => Outcome::pass("every NCCL in use was built for the major CUDA version of the image"),
        false => Outcome::warn(abbreviate(&others)).evidence(others),
    }
}

pub(super) fn nccl_version_hint(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let Some(text) = facts.config.env("NCCL_VERSION") else {
        return Outcome::pass("NCCL_VERSION is not set");
    };
    let found: Vec<String> =
        facts.nccl.iter().map(|copy| format!("{}: {}", copy.path, copy.version.as_deref().unwrap_or("?"))).collect();
    let Some(said) = parse_nccl_version(text) else {
        return Outcome::warn(format!("NCCL_VERSION={text} is not a version")).evidence(found);
    };
    if facts.nccl.is_empty() {
        return Outcome::warn(format!("NCCL_VERSION={text}, but the image has no NCCL"));
    }
    let versions: Vec<_> = facts.nccl.iter().map(version_of).collect();
    if versions.contains(&Some(said)) {
        Outcome::pass(format!("NCCL_VERSION={text} matches a copy in the image"))
    } else if versions.contains(&None) {
        Outcome::unknown(format!("NCCL_VERSION={text}, but one copy's version is unknown")).evidence(found)
    } else {
        Outcome::warn(format!("NCCL_VERSION={text} matches none of the image's versions: {}", abbreviate(&found)))
            .evidence(found)
            .remedy("ENV NCCL_VERSION=   # it has no effect and misleads readers")
    }
}

pub(super) fn net_plugin(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let evidence = facts.nccl_plugins.iter().map(|plugin| {
        let reach = if plugin.reachable { "the loader finds it" } else { "the loader does not find it" };
        format!("{} ({}): {reach}", plugin.path, plugin.maker)
    });
    let remedy = "ENV NCCL_NET_PLUGIN=none";
    let chosen = match setting(subject, "NCCL_NET_PLUGIN") {
        Setting::Unset => None,
        Setting::Set(setting) => Some(setting),
        Setting::Unknown(outcome) => return outcome.evidence(evidence),
    };
    let value = chosen.map_or("", |setting| setting.value.as_str());
    if value == "none" {
        let old = deciding(facts).iter().any(|used| used.version.is_some_and(|v| v < NONE_IS_A_KEYWORD));
        return Outcome::pass(match old {
            // It looks for libnccl-net-none.so, finds none, and continues with its own transports.
            true => "NCCL_NET_PLUGIN=none: harmless before NCCL 2.28, where it is not a keyword but the name of a plugin that does not exist",
            false => "NCCL_NET_PLUGIN=none: NCCL uses its own transports",
        })
        .evidence(evidence);
    }
    let reached = facts.nccl_plugins.iter().find(|plugin| {
        let full = match plugin.name.as_str() {
            "" => "libnccl-net.so".to_owned(),
            name => format!("libnccl-net-{name}.so"),
        };
        plugin.reachable && (plugin.name == value || value == full || plugin.path == value)
    });
    match (chosen, reached) {
        (_, Some(plugin)) if plugin.maker == "aws-ofi" => Outcome::fail(format!(
            "{} is opened instead of NCCL's own transports, and libfabric has no provider for {}",
            plugin.path, subject.target.fabric.title
        ))
        .remedy(remedy),
        (_, Some(plugin)) if subject.target.fabric.is_mellanox && MELLANOX_PLUGINS.contains(&plugin.maker.as_str()) => {
            Outcome::pass(format!("{} ({}) is made for these devices", plugin.path, plugin.maker))
        }
        (_, Some(plugin)) => Outcome::warn(format!(
            "{} ({}) is opened instead of NCCL's own transports; it was made for other hardware",
            plugin.path, plugin.maker
        ))
        .remedy(remedy),
        (Some(setting), None) if !value.is_empty() => Outcome::warn(format!(
            "NCCL_NET_PLUGIN={value} ({}) names a plugin that the loader does not find",
            setting.from
        ))
        .remedy(remedy),
        _ => Outcome::pass("the loader finds no network plugin, so NCCL uses its own transports"),
    }
    .evidence(evidence)
}
