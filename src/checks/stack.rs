//! Checks of platform, distribution, NCCL, CUDA and python3 against the target.

use super::packages::install_line;
use super::{Outcome, Subject, abbreviate};
use crate::facts::{NcclCopy, NcclKind};
use crate::versions::{NcclVersion, parse_cuda_version, parse_nccl_version};

pub fn image_config(subject: &Subject<'_>) -> Outcome {
    if subject.facts.config.missing {
        return Outcome::unknown("the image has no config: it is incomplete in the engine's store")
            .remedy("docker pull IMAGE");
    }
    Outcome::pass("the image has a config")
}

pub fn platform(subject: &Subject<'_>) -> Outcome {
    let image = &subject.facts.image;
    let platform = format!("{}/{}", image.os, image.architecture);
    match platform.as_str() {
        "linux/amd64" | "linux/arm64" => Outcome::pass(platform),
        "/" => Outcome::unknown("the image does not say which platform it is for"),
        _ => Outcome::fail(format!("the image is for {platform}")),
    }
}

pub fn distro_listed(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let fabric = subject.target.fabric;
    let architecture = &facts.image.architecture;
    match &facts.distro {
        Some(distro) if fabric.lists(distro, architecture) => Outcome::pass(distro.to_string()),
        None => Outcome::warn("the image does not say which distribution it is"),
        Some(distro) => Outcome::warn(format!("{distro} on {architecture} is not on the vendor's list"))
            .evidence([format!("listed: {}", fabric.all_known())]),
    }
}

/// Who uses a copy of NCCL.
struct Consumer<'a> {
    name: &'static str,
    copy: &'a NcclCopy,
}

/// Which copy torch gets: the one linked into it, else its wheel's, else the loader's.
fn torch_copy(copies: &[NcclCopy]) -> Option<&NcclCopy> {
    let of_kind = |kind| copies.iter().find(|copy| copy.kind == kind);
    of_kind(NcclKind::Static).or_else(|| of_kind(NcclKind::Wheel))
}

pub fn nccl_version(subject: &Subject<'_>) -> Outcome {
    let Some(minimum) = subject.target.minimum_nccl else {
        return Outcome::skip(format!("{} states no minimum", subject.target.title));
    };
    let copies = &subject.facts.nccl;
    let system = copies.iter().find(|copy| copy.loaded);
    let torch = torch_copy(copies);
    let consumers: Vec<Consumer<'_>> = [("torch", torch), ("programs linked to libnccl", system)]
        .into_iter()
        .filter_map(|(name, copy)| Some(Consumer { name, copy: copy? }))
        .collect();
    let evidence = copies.iter().map(|copy| {
        format!("{} ({:?}): {}", copy.path, copy.kind, copy.version.as_deref().unwrap_or("no version text"))
            .to_lowercase()
    });
    let Some(first) = consumers.first() else {
        let paths: Vec<String> = copies.iter().map(|copy| copy.path.clone()).collect();
        return match paths.is_empty() {
            true => Outcome::fail(format!("the image has no NCCL; {} needs {minimum} or newer", subject.target.title)),
            false => Outcome::fail(format!("NCCL is only where the loader does not look: {}", abbreviate(&paths))),
        }
        .evidence(evidence)
        .remedy(format!("RUN pip install 'nvidia-nccl-cu12>={minimum}'"));
    };
    let version = |consumer: &Consumer<'_>| consumer.copy.version.as_deref().and_then(parse_nccl_version);
    let say = |consumer: &Consumer<'_>| match version(consumer) {
        Some(version) => format!("{} {version} for {} ({})", "NCCL", consumer.name, consumer.copy.path),
        None => format!("NCCL of unknown version for {} ({})", consumer.name, consumer.copy.path),
    };
    let too_old = |consumer: &&Consumer<'_>| version(consumer).is_some_and(|v: NcclVersion| v < minimum);
    let summary = consumers.iter().map(say).collect::<Vec<_>>().join("; ");
    // The training framework decides; another program's older copy is worth a word.
    let outcome = if too_old(&first) {
        Outcome::fail(format!("{summary}; {} needs {minimum} or newer", subject.target.title))
            .remedy(remedy_for(first.copy, minimum))
    } else if version(first).is_none() {
        Outcome::unknown(summary)
    } else if consumers.iter().any(|consumer| too_old(&consumer) || version(consumer).is_none()) {
        Outcome::warn(format!("{summary}; the minimum is {minimum}"))
    } else {
        Outcome::pass(summary)
    };
    outcome.evidence(evidence)
}

fn remedy_for(copy: &NcclCopy, minimum: NcclVersion) -> String {
    match copy.kind {
        NcclKind::Static => {
            format!("NCCL is linked into {}: use a torch build with NCCL {minimum} or newer", copy.path)
        }
        NcclKind::Wheel => format!("RUN pip install 'nvidia-nccl-cu12>={minimum}'"),
        NcclKind::System | NcclKind::Other => {
            format!(
                "RUN apt-get update && apt-get install -y --allow-change-held-packages libnccl2   # {minimum} or newer"
            )
        }
    }
}

pub fn cuda_version(subject: &Subject<'_>) -> Outcome {
    let Some(minimum) = subject.target.minimum_cuda else {
        return Outcome::skip(format!("{} states no minimum", subject.target.title));
    };
    let cuda = &subject.facts.cuda;
    let evidence = cuda.evidence.iter().map(|e| format!("{}: {}", e.version, e.from));
    let Some(first) = cuda.evidence.first() else {
        return Outcome::fail(format!(
            "the image has no CUDA runtime; {} needs {minimum} or newer",
            subject.target.title
        ));
    };
    let Some(version) = parse_cuda_version(&first.version) else {
        return Outcome::unknown(format!("CUDA version {:?} cannot be read", first.version)).evidence(evidence);
    };
    if first.source == crate::facts::CudaSource::Env {
        return Outcome::unknown(format!("only {} speaks of CUDA, and no file of it was found", first.from))
            .evidence(evidence);
    }
    let outcome = if version < minimum {
        Outcome::fail(format!("CUDA {version}; {} needs {minimum} or newer", subject.target.title))
            .remedy(format!("start from an image with CUDA {minimum} or newer"))
    } else if cuda.evidence.iter().any(|e| e.version != first.version) {
        Outcome::warn(format!("CUDA {version} by {}, and other evidence disagrees", first.from))
    } else {
        Outcome::pass(format!("CUDA {version} ({})", first.from))
    };
    outcome.evidence(evidence)
}

pub fn python3(subject: &Subject<'_>) -> Outcome {
    match &subject.facts.python3 {
        Some(python) => Outcome::pass(match &python.version {
            Some(version) => format!("python {version} ({})", python.path),
            None => format!("python3 ({})", python.path),
        }),
        None if !subject.target.needs_python3 => Outcome::skip(format!("{} does not need it", subject.target.title)),
        None => Outcome::fail(format!("python3 is not on the image's PATH; {} needs it", subject.target.title))
            .remedy(install_line(&subject.facts.packages, "python3")),
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::Status;
    use crate::checks::testing::{finding, finding_for, good};
    use crate::facts::*;

    fn copy(kind: NcclKind, version: Option<&str>, loaded: bool) -> NcclCopy {
        let path = match kind {
            NcclKind::Static => "/usr/lib/python3/site-packages/torch/lib/libtorch_cuda.so",
            NcclKind::Wheel => "/usr/lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2",
            _ => "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
        };
        NcclCopy {
            path: path.into(),
            kind,
            version: version.map(str::to_owned),
            built_for_cuda: None,
            loaded,
            package: None,
        }
    }

    #[test]
    fn which_nccl_decides() {
        use NcclKind::*;
        for (copies, status, case) in [
            (vec![], Status::Fail, "none"),
            (vec![copy(System, Some("2.17.1"), true)], Status::Fail, "B08: system too old"),
            (
                vec![copy(Wheel, Some("2.19.3"), false), copy(System, Some("2.17.1"), true)],
                Status::Warn,
                "B01: torch is fine",
            ),
            (
                vec![copy(Static, Some("2.10.3"), false), copy(System, Some("2.21.5"), true)],
                Status::Fail,
                "B03: static in torch",
            ),
            (vec![copy(System, None, true)], Status::Unknown, "no version text"),
            (vec![copy(Other, Some("2.21.5"), false)], Status::Fail, "off the loader's path"),
            (vec![copy(System, Some("2.19.0"), true)], Status::Pass, "exactly the minimum"),
        ] {
            let mut facts = good();
            facts.nccl = copies;
            assert_eq!(finding(&facts, "nccl-version").status, status, "{case}");
        }
    }

    #[test]
    fn cuda_by_evidence() {
        let evidence = |source, version: &str| CudaEvidence { source, version: version.into(), from: "x".into() };
        for (list, status) in [
            (vec![], Status::Fail),
            (vec![evidence(CudaSource::Libcudart, "11.8")], Status::Fail),
            (vec![evidence(CudaSource::Env, "12.4")], Status::Unknown),
            (vec![evidence(CudaSource::Libcudart, "12.4"), evidence(CudaSource::Env, "12.1")], Status::Warn),
            (vec![evidence(CudaSource::Wheel, "12.1")], Status::Pass),
        ] {
            let mut facts = good();
            facts.cuda = CudaFacts { version: None, evidence: list.clone() };
            assert_eq!(finding(&facts, "cuda-version").status, status, "{list:?}");
        }
    }

    #[test]
    fn targets_ask_for_different_things() {
        let mut facts = good();
        facts.nccl = vec![copy(NcclKind::System, Some("2.17.1"), true)];
        facts.python3 = None;
        assert_eq!(finding_for(&facts, "nccl-version", "ecs").status, Status::Skip);
        assert_eq!(finding_for(&facts, "python3", "ecs").status, Status::Skip);
        assert_eq!(finding(&facts, "python3").status, Status::Fail);
    }

    #[test]
    fn unlisted_distributions_are_a_warning() {
        let mut facts = good();
        facts.distro.as_mut().unwrap().version = Some("23.10".into());
        assert_eq!(finding(&facts, "distro-listed").status, Status::Warn);
        facts.distro = None;
        assert_eq!(finding(&facts, "distro-listed").status, Status::Warn);
    }

    #[test]
    fn platforms() {
        let mut facts = good();
        for (os, architecture, status) in
            [("linux", "s390x", Status::Fail), ("", "", Status::Unknown), ("linux", "arm64", Status::Pass)]
        {
            facts.image.os = os.into();
            facts.image.architecture = architecture.into();
            assert_eq!(finding(&facts, "platform").status, status);
        }
    }
}
