//! Checks of platform, distribution, CUDA and python3 against the target.

use super::remedies::install_line;
use super::subject::Subject;
use crate::checks::Outcome;
use crate::versions::parse_cuda_version;

pub(super) fn image_config(subject: &Subject<'_>) -> Outcome {
    if subject.facts.config.missing {
        if subject.facts.image.reference.starts_with("rootfs:") {
            return Outcome::unknown("a root directory has no config: environment, user and entrypoint are unknown")
                .remedy("check the image that it was made from");
        }
        return Outcome::unknown("the image has no config: it is incomplete in the engine's store")
            .remedy("docker pull IMAGE");
    }
    Outcome::pass("the image has a config")
}

pub(super) fn platform(subject: &Subject<'_>) -> Outcome {
    let image = &subject.facts.image;
    let platform = format!("{}/{}", image.os, image.architecture);
    match platform.as_str() {
        "linux/amd64" | "linux/arm64" => Outcome::pass(platform),
        "/" => Outcome::unknown("the image does not name its platform"),
        _ => Outcome::fail(format!("the image is for {platform}")),
    }
}

pub(super) fn distro_listed(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let fabric = subject.target.fabric;
    let architecture = &facts.image.architecture;
    if fabric.public_mirror.is_none() {
        return Outcome::skip(format!("{} has no packages besides the distribution's", fabric.title));
    }
    match &facts.distro {
        Some(distro) if fabric.lists(distro, architecture) => {
            Outcome::pass(match fabric.listed_as(distro, architecture) {
                Some(other) => {
                    format!("{distro}, treated as {other}, which the vendor lists and which is built from it")
                }
                None => distro.to_string(),
            })
        }
        None => Outcome::warn("the image does not name its distribution"),
        Some(distro) => Outcome::warn(format!("{distro} on {architecture} is not on the vendor's list"))
            .evidence([format!("listed: {}", fabric.all_known())]),
    }
}

pub(super) fn cuda_version(subject: &Subject<'_>) -> Outcome {
    let Some(minimum) = subject.target.minimum_cuda else {
        return Outcome::skip(format!("{} states no minimum", subject.target.title));
    };
    let cuda = &subject.facts.cuda;
    let evidence = cuda.evidence.iter().map(|e| format!("{}: {}", e.version, e.from));
    let Some(first) = cuda.evidence.first() else {
        return Outcome::fail(format!(
            "the image has no CUDA runtime; {} needs {minimum} or newer",
            subject.target.title
        ))
        .remedy(format!("start from an image with CUDA {minimum} or newer: rdmaprep images"));
    };
    let Some(version) = parse_cuda_version(&first.version) else {
        return Outcome::unknown(format!("CUDA version {:?} cannot be read", first.version)).evidence(evidence);
    };
    if first.source == crate::facts::CudaSource::Env {
        return Outcome::unknown(format!("only {} mentions CUDA, and no CUDA file was found", first.from))
            .evidence(evidence);
    }
    let outcome = if version < minimum {
        Outcome::fail(format!("CUDA {version}; {} needs {minimum} or newer", subject.target.title))
            .remedy(format!("start from an image with CUDA {minimum} or newer"))
    } else if cuda.evidence.iter().any(|e| e.version != first.version) {
        Outcome::warn(format!("CUDA {version} by {}, but other evidence disagrees", first.from))
    } else {
        Outcome::pass(format!("CUDA {version} ({})", first.from))
    };
    outcome.evidence(evidence)
}

pub(super) fn python3(subject: &Subject<'_>) -> Outcome {
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
    use crate::checks::image::testing::{finding, finding_for, good};
    use crate::facts::*;

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
            facts.cuda = CudaFacts { evidence: list.clone(), ..CudaFacts::default() };
            assert_eq!(finding(&facts, "cuda-version").status, status, "{list:?}");
        }
    }

    #[test]
    fn targets_ask_for_different_things() {
        let mut facts = good();
        facts.nccl[0].version = Some("2.17.1".into());
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
