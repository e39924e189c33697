//! The package database of a real CUDA 13.0.2 image on Ubuntu 24.04 (see `tests/data/README.md`).

use crate::support::image_fixture;

use image_fixture::Fixture;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::facts::{PackageFacts, PackageManager, PackageState};
use rdmaprep::inspect::packages::{Candidates, parse_depends, parse_dpkg_status};
use rdmaprep::plan::{Companion, SwapOptions, WithoutOffer, plan_swap};
use std::io::Read;

fn database() -> PackageFacts {
    let file = include_bytes!("../data/cuda-13.0.2-ubuntu24.04-dpkg-status.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&file[..]).read_to_string(&mut text).unwrap();
    PackageFacts { manager: PackageManager::Dpkg, list: parse_dpkg_status(&text).unwrap(), ..PackageFacts::default() }
}

/// `apt-get check` passes in that image: a dependency that seems unmet here is a fault of the reader.
#[test]
fn every_dependency_is_met() {
    let packages = database();
    let candidates = Candidates::of(&packages);
    let mut groups = 0;
    for package in packages.all_installed() {
        for group in parse_depends(&package.depends) {
            groups += 1;
            let met = group.iter().any(|dependency| candidates.meet(package, dependency));
            assert!(met, "{} needs {group:?}", package.name);
        }
    }
    assert!(groups > 500, "{groups} dependencies were looked at");
}

#[test]
fn what_is_in_it() {
    let packages = database();
    assert_eq!(packages.list.len(), 439);
    assert!(packages.list.iter().all(|package| package.state == PackageState::Installed));
    let held: Vec<&str> = packages.list.iter().filter(|package| package.held).map(|p| p.name.as_str()).collect();
    assert_eq!(held, ["libcublas-13-0", "libcublas-dev-13-0", "libcudnn9-cuda-13", "libnccl-dev", "libnccl2"]);
    assert_eq!(packages.installed("libnccl2").unwrap().version, "2.28.3-1+cuda13.0");
}

/// What the swap would do to that image: everything of rdma-core moves, NVIDIA's holds stay.
#[test]
fn the_plan_for_it() {
    let mut facts = Fixture::plain("ubuntu", "24.04", "noble", "amd64").facts();
    facts.packages = database();
    let plan = plan_swap(&facts, None, &ERDMA, &SwapOptions::default()).unwrap();
    assert_eq!(
        plan.packages().unwrap().install,
        [vec!["libibverbs1"], vec!["ibverbs-providers"], vec!["ibverbs-utils"], vec!["librdmacm1t64", "librdmacm1"],]
    );
    assert_eq!(
        plan.installed().unwrap().companions,
        [Companion { name: "libibverbs-dev".into(), without_offer: WithoutOffer::Remove }]
    );
    assert!(
        plan.installed().unwrap().purge.is_empty()
            && crate::support::apt_swap(&plan).unhold.is_empty()
            && plan.notes.is_empty()
    );
}
