//! The facts of an image → findings.

pub(super) mod consumers;
mod loader;
mod nccl;
mod packages;
mod registry;
mod remedies;
pub(super) mod settings;
mod stack;
mod subject;
mod verbs;

pub use registry::REGISTRY;
pub use subject::Subject;

use super::finding::{Finding, Outcome};

/// How a check judges.
pub type Judge = fn(&Subject<'_>) -> Outcome;

/// Runs every check of an image.
pub fn check_image(subject: &Subject<'_>) -> Vec<Finding> {
    REGISTRY.iter().map(|check| (check.judge)(subject).into_finding(check, subject.target)).collect()
}

#[cfg(test)]
pub mod testing {
    //! A good image to break in one place.
    use super::*;
    use crate::checks::{Bar, Status, Verdict, verdict};
    use crate::facts::*;
    use crate::targets;

    /// The facts of a Ubuntu 22.04 image that is right for PAI-DLC in every respect.
    pub fn good() -> ImageFacts {
        crate::image_fixture::Fixture::good().facts()
    }

    /// The finding of one check for PAI-DLC.
    pub fn finding(facts: &ImageFacts, check: &str) -> Finding {
        finding_for(facts, check, "pai-dlc")
    }

    pub fn finding_for(facts: &ImageFacts, check: &str, target: &str) -> Finding {
        let target = targets::by_id(target).unwrap();
        let subject = Subject { facts, target };
        check_image(&subject).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn the_good_image_passes_everything() {
        let facts = good();
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_image(&Subject { facts: &facts, target });
        let not_passed: Vec<_> = findings.iter().filter(|f| f.status != Status::Pass).collect();
        assert!(not_passed.is_empty(), "{not_passed:#?}");
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Pass);
    }

    /// A userspace that is foreign on one fabric is right on another.
    #[test]
    fn mellanox_software_is_judged_by_the_devices() {
        let mut facts = good();
        facts.ofed.directories.push(OfedDirectory {
            path: "/opt/mellanox".into(),
            files: 1,
            size_bytes: 1,
            owners: Vec::new(),
            verbs_files: vec!["/opt/mellanox/lib/libibverbs.so.1".into()],
            loader_reason: Some("LD_LIBRARY_PATH names /opt/mellanox/lib".into()),
        });
        facts.nccl_plugins.push(NetPlugin {
            path: "/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so".into(),
            name: String::new(),
            reachable: true,
            maker: "hpcx".into(),
        });
        let gid = |value: &str| NcclSetting {
            name: "NCCL_IB_GID_INDEX".into(),
            value: value.into(),
            from: SettingSource::Env,
            overridden: Vec::new(),
        };
        let status = |facts: &ImageFacts, check, target| finding_for(facts, check, target).status;
        for (check, erdma, roce) in [
            ("ofed-loader-path", Status::Fail, Status::Skip),
            ("nccl-net-plugin", Status::Warn, Status::Pass),
            ("nccl-gid-index", Status::Pass, Status::Pass),
        ] {
            assert_eq!((status(&facts, check, "ecs"), status(&facts, check, "cce")), (erdma, roce), "{check}");
        }
        // Which index is right there, only the host knows.
        facts.nccl_settings.push(gid("1"));
        assert_eq!(status(&facts, "nccl-gid-index", "ecs"), Status::Pass);
        assert_eq!(status(&facts, "nccl-gid-index", "cce"), Status::Unknown);
    }

    #[test]
    fn an_unknown_is_never_a_pass() {
        let mut facts = good();
        facts.config.missing = true;
        let target = targets::by_id("pai-dlc").unwrap();
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Unknown);
        facts.python3 = None;
        let findings = check_image(&Subject { facts: &facts, target });
        assert_eq!(verdict(&findings, Bar::Fail), Verdict::Fail);
    }
}
