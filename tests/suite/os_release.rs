//! Case F17: where an image says which distribution it is, and what happens when it does not.

use crate::support::image_fixture;

use image_fixture::Fixture;
use rdmaprep::fabric::RepositoryError;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::plan::{PlanError, SwapOptions, plan_swap};

const OTHER: &str = "ID=debian\nVERSION_ID=12\n";

/// The distribution of an image without any release file, after a change.
fn distro(change: impl Fn(&mut Fixture)) -> Option<String> {
    let mut fixture = Fixture::good();
    fixture.remove("etc/os-release").remove("usr/lib/os-release");
    change(&mut fixture);
    let distro = fixture.facts().distro?;
    Some([Some(distro.id), distro.version].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

#[test]
fn every_place_and_every_link() {
    let ubuntu = "NAME='Ubuntu'\r\n# a comment\r\nID=\"ubuntu\"\r\nVERSION_ID='22.04'\r\n";
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Fixture), Option<&'a str>);
    let cases: [Case<'_>; 7] = [
        (
            "absolute link",
            &|f| {
                f.file("usr/lib/os-release", ubuntu).link("etc/os-release", "/usr/lib/os-release");
            },
            Some("ubuntu 22.04"),
        ),
        (
            "relative link",
            &|f| {
                f.file("usr/lib/os-release", ubuntu).link("etc/os-release", "../usr/lib/os-release");
            },
            Some("ubuntu 22.04"),
        ),
        (
            "only /usr/lib",
            &|f| {
                f.file("usr/lib/os-release", ubuntu);
            },
            Some("ubuntu 22.04"),
        ),
        (
            "two that differ: /etc wins",
            &|f| {
                f.file("usr/lib/os-release", OTHER).file("etc/os-release", ubuntu);
            },
            Some("ubuntu 22.04"),
        ),
        (
            "CentOS 6",
            &|f| {
                f.file("etc/centos-release", "CentOS release 6.10 (Final)\n");
            },
            Some("centos 6.10"),
        ),
        (
            "a link to nowhere, and the other file",
            &|f| {
                f.file("usr/lib/os-release", ubuntu).link("etc/os-release", "/gone");
            },
            Some("ubuntu 22.04"),
        ),
        ("none", &|_| {}, None),
    ];
    for (case, change, expected) in cases {
        assert_eq!(distro(change).as_deref(), expected, "{case}");
    }
}

/// Inspection goes on, a plan is refused, and the check says so.
#[test]
fn no_release_file_at_all() {
    let mut fixture = Fixture::good();
    fixture.remove("etc/os-release").remove("usr/lib/os-release");
    let facts = fixture.facts();
    assert!(facts.packages.installed("libibverbs1").is_some());
    let refused = plan_swap(&facts, None, &ERDMA, &SwapOptions::default()).unwrap_err();
    assert!(matches!(refused, PlanError::Repository(RepositoryError::Unknown { .. })), "{refused}");
}
