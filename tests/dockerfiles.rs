//! Whole Dockerfiles, per distribution, from facts of small images.

#[path = "support/image_fixture.rs"]
mod image_fixture;
#[path = "support/mod.rs"]
mod support;

use image_fixture::Fixture;
use rdmaprep::dockerfile::render_dockerfile;
use rdmaprep::fabric::RepositoryChoice;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::plan::{KeyFile, PlanError, SwapOptions, plan_swap};

fn dockerfile(fixture: &Fixture, options: &SwapOptions) -> String {
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, options).unwrap();
    let text = render_dockerfile(&plan);
    assert_eq!(text, render_dockerfile(&plan), "the same plan gives the same bytes");
    assert_builds_everywhere(&text);
    support::hadolint(&text);
    text
}

/// Case F01: what only BuildKit understands must not be in it; and keys and sources as they should be.
fn assert_builds_everywhere(text: &str) {
    for forbidden in ["# syntax=", "<<", "--mount", "apt-key", "trusted.gpg.d/erdma", "COPY --", "gpg --dearmor"] {
        assert!(!text.contains(forbidden), "{forbidden} in\n{text}");
    }
    for needed in
        ["signed-by=/etc/apt/keyrings/erdma.", "--allow-downgrades --allow-change-held-packages", "apt-get check"]
    {
        assert!(text.contains(needed), "{needed} is not in\n{text}");
    }
    assert_eq!(text.matches("\nRUN ").count(), 1, "one transaction");
}

fn mirror_and_suite() -> SwapOptions {
    let repository = RepositoryChoice {
        mirror: Some("http://mirror.example.com/erdma".into()),
        suite: Some("bookworm/erdma".into()),
        ..RepositoryChoice::default()
    };
    SwapOptions { repository, ..SwapOptions::default() }
}

#[test]
fn ubuntu_18_04() {
    let fixture = Fixture::ofed("ubuntu", "18.04", "bionic", "librdmacm1");
    insta::assert_snapshot!(dockerfile(&fixture, &SwapOptions::default()));
}

#[test]
fn ubuntu_20_04() {
    let fixture = Fixture::ofed("ubuntu", "20.04", "focal", "librdmacm1");
    insta::assert_snapshot!(dockerfile(&fixture, &SwapOptions::default()));
}

#[test]
fn ubuntu_22_04() {
    let fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    insta::assert_snapshot!(dockerfile(&fixture, &SwapOptions::default()));
}

/// librdmacm1 has another name there.
#[test]
fn ubuntu_24_04() {
    let fixture = Fixture::ofed("ubuntu", "24.04", "noble", "librdmacm1t64");
    insta::assert_snapshot!(dockerfile(&fixture, &SwapOptions::default()));
}

#[test]
fn debian_12_with_mirror_and_suite() {
    let fixture = Fixture::ofed("debian", "12", "bookworm", "librdmacm1");
    insta::assert_snapshot!(dockerfile(&fixture, &mirror_and_suite()));
}

/// Case A10's image: nothing to remove, everything to install; on Arm, as another user, with another shell.
#[test]
fn without_any_rdma_userspace() {
    let mut fixture = Fixture::plain("ubuntu", "22.04", "jammy", "arm64");
    fixture.config["User"] = "trainer:1000".into();
    fixture.config["Shell"] = serde_json::json!(["/bin/bash", "-o", "pipefail", "-c"]);
    insta::assert_snapshot!(dockerfile(&fixture, &SwapOptions::default()));
}

/// Every option that shows in the text.
#[test]
fn with_every_option() {
    let mut fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    fixture.file(
        "etc/apt/sources.list",
        "deb http://archive.example.com/ubuntu jammy main\ndeb http://linux.mellanox.com/it's/x86_64 ./\n",
    );
    let options = SwapOptions {
        repository: RepositoryChoice { vpc: true, ..RepositoryChoice::default() },
        key: Some(KeyFile { content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_vec() }),
        apt_proxy: Some("http://cache.example.com:3142".into()),
        build_args: vec!["RES_OPTIONS".into(), "http_proxy".into()],
        extra_packages: vec!["perftest".into()],
        ..SwapOptions::default()
    };
    insta::assert_snapshot!(dockerfile(&fixture, &options));
}

#[test]
fn a_registry_digest_pins_the_base() {
    let mut facts = Fixture::good().facts();
    let digest = format!("sha256:{}", "ab".repeat(32));
    facts.image.repo_digests = vec![format!("example/ubuntu@{digest}")];
    let plan = plan_swap(&facts, Some("example/ubuntu:22.04"), &ERDMA, &SwapOptions::default()).unwrap();
    let text = render_dockerfile(&plan);
    assert!(text.contains(&format!("\nFROM example/ubuntu:22.04@{digest}\n")), "{text}");
    assert!(text.contains(&format!("org.opencontainers.image.base.digest=\"{digest}\"")), "{text}");
    // Another repository's digest is another image's.
    facts.image.repo_digests = vec![format!("other/ubuntu@{digest}")];
    let plan = plan_swap(&facts, Some("example/ubuntu:22.04"), &ERDMA, &SwapOptions::default()).unwrap();
    assert!(render_dockerfile(&plan).contains("\nFROM example/ubuntu:22.04\n"));
}

/// Case A01: only what is installed is touched, and nothing that something else needs.
#[test]
fn the_plan_follows_the_facts() {
    let mut fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    fixture.package("mlnx-tools", "23.10-0.2310119", "");
    fixture.package("my-trainer", "1.0", "mlnx-tools");
    fixture.package("libibumad3", "39.0-1", "").set_field("libibumad3", "Source", "rdma-core");
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap();
    assert_eq!(plan.purge, ["mlnx-ofed-basic-user-only"]);
    assert_eq!(plan.notes, ["package mlnx-tools stays: my-trainer depends on it"]);
    assert!(!plan.unhold.contains(&"libnccl2".to_owned()), "NVIDIA's hold on NCCL is none of ours");
    let without_offer: Vec<String> =
        plan.companions.iter().map(|c| format!("{} {:?}", c.name, c.without_offer)).collect();
    assert_eq!(without_offer, ["libibumad3 Keep", "libibverbs-dev Remove"]);
    assert_eq!(
        plan.remove_files,
        [
            "/etc/apt/keyrings/mlnx.gpg",
            "/etc/apt/sources.list.d/mellanox_mlnx_ofed.list",
            "/etc/libibverbs.d/old.driver",
        ]
    );
    assert_eq!(plan.remove_directories, ["/opt/mellanox"]);
    // A directory that a package has files in stays.
    let mut fixture = fixture.clone();
    fixture.owned_file("my-trainer", "opt/mellanox/lib/x.so", "ELF");
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap();
    assert!(plan.remove_directories.is_empty());
    assert!(
        plan.notes.contains(&"/opt/mellanox stays: package my-trainer has files in it".to_owned()),
        "{:?}",
        plan.notes
    );
}

#[test]
fn what_cannot_be_planned_is_said() {
    let good = || Fixture::good().facts();
    let options = SwapOptions::default();
    let error = |facts: &rdmaprep::facts::ImageFacts, options: &SwapOptions| {
        plan_swap(facts, None, &ERDMA, options).unwrap_err()
    };
    let mut facts = good();
    facts.image.architecture = "s390x".into();
    assert!(matches!(error(&facts, &options), PlanError::Platform { .. }));
    let mut facts = good();
    facts.image.repo_tags.clear();
    assert!(matches!(error(&facts, &options), PlanError::Nameless(_)));
    let mut facts = good();
    facts.config.user = "a b".into();
    assert!(matches!(error(&facts, &options), PlanError::User(_)));
    let bad_key = SwapOptions { key: Some(KeyFile { content: b"<html>404".to_vec() }), ..options.clone() };
    assert!(matches!(error(&good(), &bad_key), PlanError::Key(_)));
    let bad_package = SwapOptions { extra_packages: vec!["a;b".into()], ..options.clone() };
    assert!(matches!(error(&good(), &bad_package), PlanError::PackageName(_)));
    let secret = SwapOptions { apt_proxy: Some("http://u:s3cret@proxy:1".into()), ..options };
    let said = error(&good(), &secret).to_string();
    assert!(said.contains("http_proxy") && !said.contains("s3cret"), "{said}");
}
