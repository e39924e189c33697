//! Which NCCL each consumer of an image gets.

use crate::facts::{ConsumerName, ImageFacts, NcclConsumer, NcclCopy};
use crate::versions::{NcclVersion, parse_nccl_version};

/// Releases that end in a segmentation fault in `ncclNetInit` on eRDMA; 2.28.3, 2.29.7 and 2.30.7 do not.
/// Source: public guide "RDT on eRDMA", read 2026-11; NVIDIA has published no cause.
pub(crate) const CRASHES_ON_ERDMA: [NcclVersion; 2] = [NcclVersion::new(2, 28, 7), NcclVersion::new(2, 28, 9)];

/// A consumer, its copy and the copy's version.
pub(crate) struct Use<'a> {
    pub consumer: &'a NcclConsumer,
    pub copy: Option<&'a NcclCopy>,
    pub version: Option<NcclVersion>,
}

pub(crate) fn copy_at<'a>(facts: &'a ImageFacts, path: Option<&str>) -> Option<&'a NcclCopy> {
    facts.nccl.iter().find(|copy| Some(copy.path.as_str()) == path)
}

pub(crate) fn version_of(copy: &NcclCopy) -> Option<NcclVersion> {
    copy.version.as_deref().and_then(parse_nccl_version)
}

pub(crate) fn uses(facts: &ImageFacts) -> Vec<Use<'_>> {
    facts
        .nccl_consumers
        .iter()
        .map(|consumer| {
            let copy = copy_at(facts, consumer.path.as_deref());
            Use { consumer, copy, version: copy.and_then(version_of) }
        })
        .collect()
}

impl Use<'_> {
    pub(crate) fn is_torch(&self) -> bool {
        !matches!(self.consumer.name, ConsumerName::Programs | ConsumerName::Vllm)
    }

    pub(crate) fn say(&self) -> String {
        let name = &self.consumer.name;
        match (&self.consumer.path, self.version) {
            (None, _) => format!("no NCCL for {name}"),
            (Some(path), Some(version)) => format!("NCCL {version} for {name} ({path})"),
            (Some(path), None) => format!("NCCL of unknown version for {name} ({path})"),
        }
    }
}

/// The consumers whose copy decides: every torch; without one, programs in general; else any with a copy.
pub(crate) fn deciding(facts: &ImageFacts) -> Vec<Use<'_>> {
    let (torch, others): (Vec<_>, Vec<_>) = uses(facts).into_iter().partition(Use::is_torch);
    if !torch.is_empty() {
        return torch;
    }
    let (programs, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .filter(|used| used.consumer.path.is_some())
        .partition(|u| u.consumer.name == ConsumerName::Programs);
    if programs.is_empty() { others } else { programs }
}
