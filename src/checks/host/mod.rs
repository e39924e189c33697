//! A host's devices → findings. As with images, a check reads facts and reports what it found.
//!
//! [`REGISTRY`] holds every check. [`crate::fabric::Fabric::drives`] says whose a device is.

mod device;
mod port;
mod registry;
mod system;

pub(super) use device::judge_nic_count;
pub use registry::REGISTRY;

use super::{Check, Finding, Outcome};
use crate::facts::devices::{DeviceFacts, Hca, HcaPort};
use crate::targets::{ChosenInstance, Target};

/// The input of a host check.
#[derive(Clone, Copy)]
pub struct HostSubject<'a> {
    pub facts: &'a DeviceFacts,
    pub target: &'a Target,
    /// Expected number of the fabric's devices; `None`: not given.
    pub nics: Option<u32>,
    /// The host's instance type, which has its own number.
    pub instance: Option<ChosenInstance>,
}

/// Result of a check; `Err`: the facts do not decide.
pub type Judged = Result<Outcome, Outcome>;

/// How a check judges.
pub type Judge = fn(&HostSubject<'_>) -> Judged;

/// Runs every check of a host.
pub fn check_host(subject: &HostSubject<'_>) -> Vec<Finding> {
    let judge = |check: &Check<Judge>| (check.judge)(subject).unwrap_or_else(|unknown| unknown);
    REGISTRY.iter().map(|check| judge(check).into_finding(check, subject.target)).collect()
}

impl<'a> HostSubject<'a> {
    fn is_own(&self, device: &Hca) -> bool {
        self.target.fabric.drives(device.nic())
    }

    /// The fabric's devices.
    fn own(&self) -> Vec<&'a Hca> {
        self.facts.rdma_devices.iter().filter(|device| self.is_own(device)).collect()
    }

    /// Devices of anything else.
    fn foreign(&self) -> Vec<&'a Hca> {
        self.facts.rdma_devices.iter().filter(|device| !self.is_own(device)).collect()
    }

    /// The fabric's devices; where there is none, what to say in place of a verdict: `host-devices` has failed already.
    fn some_own(&self) -> Result<Vec<&'a Hca>, Outcome> {
        let own = self.own();
        if own.is_empty() {
            return Err(Outcome::skip(format!("there is no {} device", self.target.fabric.title)));
        }
        Ok(own)
    }

    /// Devices with each of their ports.
    fn ports(&self) -> Result<Vec<(&'a Hca, &'a HcaPort)>, Outcome> {
        let own = self.some_own()?;
        Ok(own.into_iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))).collect())
    }

    /// Ports that a job could use: on Ethernet, of devices that speak RoCE. Ports that are down are included, so that all
    /// problems are reported at once.
    fn roce_ports(&self) -> Result<Vec<(&'a Hca, &'a HcaPort)>, Outcome> {
        let mut ports = self.ports()?;
        if ports.iter().all(|(_, port)| port.is_infiniband()) {
            return Err(Outcome::skip("the link layer is InfiniBand"));
        }
        ports.retain(|(device, port)| !port.is_infiniband() && device::is_iwarp(device) != Some(true));
        if ports.is_empty() {
            return Err(Outcome::skip("in iWARP mode there is nothing to choose; see host-driver-mode"));
        }
        Ok(ports)
    }
}

/// `erdma_0 port 1`
fn say_port(device: &Hca, port: &HcaPort) -> String {
    format!("{} port {}", device.name, port.port)
}

/// `erdma_0, erdma_1`
fn names(devices: &[&Hca]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    names.join(", ")
}

/// `1 device`, `8 devices`
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
pub mod testing {
    //! A good host to break in one place.
    use super::*;
    pub use crate::checks::run::testing::expect;
    use crate::checks::{Bar, Status, Verdict, verdict};
    use crate::devices::load_captured;
    pub use crate::sysfs_fixture::SysTree;
    use crate::targets;

    /// The facts of a host that is right for PAI-DLC in every respect.
    pub fn good() -> DeviceFacts {
        load_captured(SysTree::erdma().root())
    }

    pub fn findings(facts: &DeviceFacts, target: &str, nics: Option<u32>) -> Vec<Finding> {
        check_host(&HostSubject { facts, target: targets::by_id(target).unwrap(), nics, instance: None })
    }

    /// The finding of one check for a target.
    pub fn found_for(facts: &DeviceFacts, check: &str, target: &str) -> Finding {
        findings(facts, target, None).into_iter().find(|finding| finding.check == check).unwrap()
    }

    /// The finding of one check for PAI-DLC.
    pub fn found(facts: &DeviceFacts, check: &str) -> Finding {
        found_for(facts, check, "pai-dlc")
    }

    #[test]
    fn good_hosts_pass_everything() {
        for (tree, target, nics) in
            [(SysTree::erdma(), "pai-dlc", 2), (SysTree::erdma(), "ecs", 2), (SysTree::mlx5(), "cce", 9)]
        {
            let findings = findings(&load_captured(tree.root()), target, Some(nics));
            let not_passed: Vec<_> =
                findings.iter().filter(|f| !matches!(f.status, Status::Pass | Status::Skip)).collect();
            assert!(not_passed.is_empty(), "{target}: {not_passed:#?}");
            assert_eq!(verdict(&findings, Bar::Warn), Verdict::Pass);
        }
    }

    /// Case D18's twin: no device at all is exactly one failure.
    #[test]
    fn a_host_without_devices_fails_once() {
        for (tree, words) in [(SysTree::plain(), "no RDMA device"), (SysTree::mlx5(), "belongs to Alibaba eRDMA")] {
            let findings = findings(&load_captured(tree.root()), "pai-dlc", None);
            let failed: Vec<_> = findings.iter().filter(|f| f.status == Status::Fail).collect();
            assert_eq!(failed.len(), 1, "{failed:#?}");
            assert!(failed[0].check == "host-devices" && failed[0].summary.contains(words), "{failed:#?}");
            assert_eq!(verdict(&findings, Bar::Fail), Verdict::Fail);
        }
    }

    /// Every problem has someone to blame, and it is never the image.
    #[test]
    fn blame_is_never_the_image_s() {
        let trees = [SysTree::plain(), SysTree::erdma(), SysTree::erdma_iwarp(), SysTree::bond(), SysTree::soft_roce()];
        for tree in trees {
            for target in ["pai-dlc", "cce"] {
                for finding in findings(&load_captured(tree.root()), target, Some(3)) {
                    let is_fault = matches!(finding.status, Status::Fail | Status::Warn);
                    let is_right = match finding.blame {
                        Some(crate::diagnosis::Fault::Image) => false,
                        Some(_) => is_fault,
                        None => !is_fault,
                    };
                    assert!(is_right, "{finding:#?}");
                }
            }
        }
    }
}
