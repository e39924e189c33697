//! The requirements of an instance type on an image, a host and a run → findings. They exist only if a type was named.
//!
//! [`REGISTRY`] holds every check. A type's figures come from documents (`targets`); if no document gives one, a check says
//! so and passes nothing.

mod bandwidth;
mod image;
mod measured;
mod nics;
mod registry;

pub use bandwidth::{FAIL_BELOW, WARN_BELOW};
pub use measured::Measured;
pub use registry::REGISTRY;

use super::{Check, Finding, Outcome};
use crate::facts::ImageFacts;
use crate::facts::run::RunFacts;
use crate::targets::{ChosenInstance, Target, targets_that_list};
use serde::{Deserialize, Serialize};

/// The input of an instance type's check.
#[derive(Clone, Copy)]
pub struct InstanceSubject<'a> {
    pub chosen: ChosenInstance,
    pub target: &'a Target,
    /// What is in the image, where it is judged.
    pub facts: Option<&'a ImageFacts>,
    /// Name of an image of which no more is known, as a recipe has it.
    pub image_name: Option<&'a str>,
    /// The run of a preflight.
    pub run: Option<&'a RunFacts>,
    /// Bandwidth, if it is to be judged.
    pub measured: &'a Measured,
}

/// How a check judges; `None`: there is nothing of the kind to look at.
pub type Judge = fn(&InstanceSubject<'_>) -> Option<Outcome>;

/// Runs every check of an instance type that has something to look at.
pub fn check_instance(subject: &InstanceSubject<'_>) -> Vec<Finding> {
    let finding = |check: &Check<Judge>| Some((check.judge)(subject)?.into_finding(check, subject.target));
    REGISTRY.iter().filter_map(finding).collect()
}

/// The type that a report is for, with what documents say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InstanceUse {
    pub name: String,
    /// RDMA NICs; absent: no document gives the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics: Option<u32>,
    /// Bandwidth of the instance's network, all NICs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_gbit_per_s: Option<u32>,
    /// The most of it that RDMA can use, if a document gives less than the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_gbit_per_s: Option<u32>,
    /// Targets whose documents name it.
    pub listed_by: Vec<String>,
}

impl From<ChosenInstance> for InstanceUse {
    fn from(chosen: ChosenInstance) -> InstanceUse {
        let instance = chosen.instance;
        InstanceUse {
            name: instance.name.to_owned(),
            nics: instance.nics.map(|figure| figure.value),
            bandwidth_gbit_per_s: instance.bandwidth_gbit_per_s.map(|figure| figure.value),
            rdma_gbit_per_s: instance.rdma_gbit_per_s.map(|figure| figure.value),
            listed_by: targets_that_list(instance).iter().map(|(target, _)| target.id.to_owned()).collect(),
        }
    }
}

/// `128 MiB`, as nccl-tests' sizes are powers of two.
fn say_size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod testing {
    use super::*;
    use crate::targets::{by_id, choose_instance};

    pub fn chosen(target: &str, name: &str) -> ChosenInstance {
        choose_instance(by_id(target).unwrap(), name).unwrap()
    }

    /// The findings for a type, of whatever is given.
    pub fn findings(
        (target, name): (&str, &str),
        facts: Option<&ImageFacts>,
        run: Option<&RunFacts>,
        measured: &Measured,
    ) -> Vec<Finding> {
        let chosen = chosen(target, name);
        check_instance(&InstanceSubject {
            chosen,
            target: by_id(target).unwrap(),
            facts,
            image_name: None,
            run,
            measured,
        })
    }

    #[test]
    fn what_was_not_looked_at_has_no_finding() {
        let ids = |found: Vec<Finding>| found.into_iter().map(|finding| finding.check).collect::<Vec<_>>();
        let of = ("pai-dlc", "ebmgn8v.48xlarge");
        assert_eq!(ids(findings(of, None, None, &Measured::NotAsked)), ["instance-listed"]);
        let facts = crate::checks::image::testing::good();
        let of_image = ["instance-listed", "instance-image", "instance-devices"];
        assert_eq!(ids(findings(of, Some(&facts), None, &Measured::NotAsked)), of_image);
        let run = crate::checks::run::testing::good_run();
        let of_run = ["instance-listed", "instance-nic-count", "instance-bandwidth", "instance-line-rate"];
        assert_eq!(ids(findings(of, None, Some(&run), &Measured::of_run(&run))), of_run);
    }

    #[test]
    fn sizes() {
        assert_eq!([1 << 30, 96 << 20, 1000].map(say_size), ["1 GiB", "96 MiB", "1000 B"]);
    }
}
