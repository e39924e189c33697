//! What a type requires of the image, and whether the platform has the type at all.

use super::InstanceSubject;
use crate::checks::Outcome;
use crate::checks::image::settings::{MOST_DEVICES, Set, effective};
use crate::diagnosis::Fault;
use crate::nccl_settings::InterfaceFilter;

pub(super) fn listed(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    let (name, title) = (subject.chosen.instance.name, &subject.target.title);
    let Some(source) = subject.target.sources.instances else {
        return Some(Outcome::skip(format!("no document lists the types that have eRDMA on {title}")));
    };
    if subject.chosen.is_listed {
        let said = format!("{name} is among the types that {title} lists");
        return Some(Outcome::pass(said).evidence([source.say()]));
    }
    let by: Vec<&str> = crate::targets::targets_with(subject.chosen.instance).iter().map(|target| target.id).collect();
    Some(
        Outcome::warn(format!(
            "{name} is not among the types that {title} lists for eRDMA; known to {}",
            by.join(", ")
        ))
        .evidence([format!("list: {}", source.say())])
        .remedy("rdmaprep targets shows which types each platform lists; the platform's console is authoritative")
        .blame(Fault::Launch),
    )
}

/// Repository of the vendor's own image. Images built on it have other names and are not recognised.
const VENDOR_IMAGE: &str = "egs/erdma";
/// The generation of GPU instances that it is for (the image's page).
const VENDOR_IMAGE_GENERATION: u32 = 8;

pub(super) fn image(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    let image = subject.facts.map(|facts| &facts.image);
    if image.is_none() && subject.image_name.is_none() {
        return None;
    }
    let tags =
        image.into_iter().flat_map(|image| image.repo_tags.iter().chain([&image.reference]).chain(&image.repo_digests));
    let name = subject.chosen.instance.name;
    let Some(image) = tags.map(String::as_str).chain(subject.image_name).find(|name| is_vendors(name)) else {
        let title = &subject.target.title;
        return Some(Outcome::skip(format!(
            "no document states requirements of {name} on an image beyond those of {title}"
        )));
    };
    let said = format!("the vendor's image is for GPU instances of generation {VENDOR_IMAGE_GENERATION}");
    Some(match subject.chosen.instance.generation() {
        Some(VENDOR_IMAGE_GENERATION) => Outcome::pass(format!("{said}, as {name} is")),
        Some(other) => Outcome::warn(format!("{said}, but {name} is of generation {other}"))
            .evidence([image.to_owned()])
            .remedy("use rdmaprep build on an image whose CUDA is right for the type's GPUs")
            .blame(Fault::Image),
        None => Outcome::unknown(format!("{said}; the generation of {name} is not in its name")),
    })
}

/// Whether a name is one of the vendor's own images.
fn is_vendors(name: &str) -> bool {
    let repository = name.split('@').next().unwrap_or(name);
    // A port has digits and a slash behind it, a tag has no slash.
    let repository =
        repository.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(repository, |(rest, _)| rest);
    repository.ends_with(&format!("/{VENDOR_IMAGE}"))
}

/// A filter that matches only some of the type's devices leaves the bandwidth of the others unused.
pub(super) fn devices(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    const NAME: &str = "NCCL_IB_HCA";
    let facts = subject.facts?;
    let name = subject.chosen.instance.name;
    let Some(nics) = subject.chosen.instance.nics else {
        return Some(Outcome::skip(format!("no document gives the number of NICs of {name}")));
    };
    let (filter, said) = match effective(facts, subject.target, NAME) {
        Set::Unknown(outcome) => return Some(outcome),
        Set::Unset => return Some(Outcome::pass(format!("no setting limits the {} of {name}", nics_text(nics.value)))),
        Set::To { value, from } => (InterfaceFilter::parse(&value), format!("{NAME}={value} ({from})")),
    };
    // The driver counts its devices from 0 (elastic-rdma-drivers); udev can rename them, which no image shows.
    let driver = subject.target.fabric.driver;
    let all: Vec<String> = (0..nics.value).map(|number| format!("{driver}_{number}")).collect();
    let left: Vec<&str> = all.iter().filter(|device| !filter.allows(device, Some(1))).map(String::as_str).collect();
    if left.is_empty() {
        return Some(Outcome::pass(format!("{said} lets every NIC of {name} through")));
    }
    let fits_other = (nics.value..MOST_DEVICES).any(|number| filter.allows(&format!("{driver}_{number}"), Some(1)));
    let of_type = format!("number of NICs: {}", nics.source.say());
    if left.len() == all.len() && fits_other {
        return Some(
            Outcome::fail(format!("{said} excludes all devices of {name}, {}: NCCL would use TCP", left.join(", ")))
                .evidence([of_type])
                .remedy(format!("ENV {NAME}={driver}"))
                .blame(Fault::Image),
        );
    }
    if left.len() == all.len() {
        return Some(Outcome::skip(format!("{said} fits no {driver}_N: see nccl-ib-hca")));
    }
    Some(
        Outcome::warn(format!(
            "{said} excludes {}: {} of the {} of {name} carry nothing",
            left.join(", "),
            left.len(),
            nics_text(nics.value)
        ))
        .evidence([of_type])
        .remedy(format!("ENV {NAME}={driver}"))
        .blame(Fault::Image),
    )
}

/// `1 NIC`, `2 NICs`
pub(super) fn nics_text(count: u32) -> String {
    if count == 1 { "1 NIC".to_owned() } else { format!("{count} NICs") }
}

#[cfg(test)]
mod tests {
    use super::super::Measured;
    use super::super::testing::findings;
    use crate::checks::Finding;
    use crate::checks::Status::*;
    use crate::checks::image::testing::good;
    use crate::checks::run::testing::expect;
    use crate::diagnosis::Fault::*;
    use crate::facts::{ImageFacts, NcclSetting};

    fn found(facts: &ImageFacts, of: (&str, &str), check: &str) -> Finding {
        findings(of, Some(facts), None, &Measured::NotAsked).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn whether_the_platform_lists_it() {
        let listed = |of| found(&good(), of, "instance-listed");
        expect(&listed(("pai-dlc", "ebmgn8v.48xlarge")), Pass, None, &["ecs.ebmgn8v.48xlarge", "www.alibabacloud.com"]);
        let words = ["not among the types that Alibaba PAI-DLC lists", "known to ecs, ack"];
        expect(&listed(("pai-dlc", "ebmgn9gc.64xlarge")), Warn, Some(Launch), &words);
        // No page of these has a list.
        for target in ["ecs", "ack"] {
            expect(&listed((target, "ebmgn8v.48xlarge")), Skip, None, &["no document lists the types"]);
        }
    }

    #[test]
    fn the_vendor_s_image_is_for_one_generation() {
        let of_image = |name: &str, of| {
            let mut facts = good();
            facts.image.repo_tags = vec![name.to_owned()];
            found(&facts, of, "instance-image")
        };
        let vendor = "egs-registry.cn-hangzhou.cr.aliyuncs.com/egs/erdma:cuda12.4.1-cudnn9-ubuntu22.04";
        expect(&of_image(vendor, ("ecs", "gn8is.2xlarge")), Pass, None, &["generation 8"]);
        expect(&of_image(vendor, ("pai-dlc", "ebmgn7v.32xlarge")), Warn, Some(Image), &["is of generation 7", vendor]);
        for other in ["my/train:1", "localhost:5000/my/erdma:1", "x/egs/erdma-tools:1"] {
            expect(&of_image(other, ("ecs", "ebmgn7v.32xlarge")), Skip, None, &["no document states"]);
        }
    }

    #[test]
    fn a_filter_that_leaves_nics_unused() {
        let with = |value: Option<&str>, of| {
            let mut facts = good();
            facts.nccl_settings.retain(|setting| setting.name != "NCCL_IB_HCA");
            facts.nccl_settings.extend(value.map(|value| NcclSetting {
                name: "NCCL_IB_HCA".into(),
                value: value.into(),
                from: crate::facts::SettingSource::Env,
                overridden: Vec::new(),
            }));
            found(&facts, of, "instance-devices")
        };
        let two = ("ecs", "ebmgn8v.48xlarge");
        expect(&with(None, two), Pass, None, &["2 NICs"]);
        expect(&with(Some("erdma"), two), Pass, None, &["every NIC"]);
        let words = ["NCCL_IB_HCA==erdma_0 (Env) excludes erdma_1", "number of NICs: Alibaba Cloud help, PAI"];
        expect(&with(Some("=erdma_0"), two), Warn, Some(Image), &words);
        // One is all that there is.
        expect(&with(Some("=erdma_0"), ("ecs", "gn8is.2xlarge")), Pass, None, &[]);
        // The platform's value wins over the image's.
        let words = ["NCCL_IB_HCA=erdma (preset of pai-dlc)"];
        expect(&with(Some("=erdma_0"), ("pai-dlc", "ebmgn8v.48xlarge")), Pass, None, &words);
        expect(&with(Some("mlx5"), two), Skip, None, &["nccl-ib-hca"]);
        // Devices of a larger type do not belong to this one.
        let one = ("ecs", "gn8is.2xlarge");
        for value in ["erdma_1", "^erdma_0", "=erdma_2,erdma_3"] {
            expect(&with(Some(value), one), Fail, Some(Image), &["all devices of ecs.gn8is.2xlarge, erdma_0", "TCP"]);
        }
        expect(&with(Some("erdma_2,erdma_3"), two), Fail, Some(Image), &["erdma_0, erdma_1"]);
        expect(&with(Some("=erdma_0"), ("ecs", "ebmgn8ia.64xlarge")), Skip, None, &["no document gives the number"]);
        let mut facts = good();
        facts.nccl_settings_unread.push("/etc/nccl.conf".into());
        expect(&found(&facts, two, "instance-devices"), Unknown, None, &["/etc/nccl.conf"]);
    }
}
