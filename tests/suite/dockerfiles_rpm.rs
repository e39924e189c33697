//! Whole Dockerfiles for images of rpm packages, per distribution, and the plans behind them.

use crate::support;
use crate::support::image_fixture;

use image_fixture::Fixture;
use rdmaprep::distro::Distro;
use rdmaprep::dockerfile::render_dockerfile;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::fabric::roce::ROCE;
use rdmaprep::fabric::{Fabric, RepositoryChoice, RepositoryError, Userspace};
use rdmaprep::facts::{ImageFacts, OfedDirectory, Package, PackageFacts, PackageManager, PackageState, YumRepo};
use rdmaprep::package_file::{Form, PackageFile};
use rdmaprep::plan::offline::OfferedFiles;
use rdmaprep::plan::{KeyFile, PlanError, SwapOptions, SwapPlan, UnseenImage, WithoutOffer, plan_swap, plan_unseen};
use rdmaprep::remedy::with_remedy;

fn package(name: &str, version: &str, architecture: &str, depends: &str) -> Package {
    Package {
        name: name.into(),
        version: version.into(),
        architecture: architecture.into(),
        state: PackageState::Installed,
        held: false,
        source: None,
        depends: depends.into(),
        provides: String::new(),
        multi_arch: String::new(),
    }
}

/// An image of rpm packages with what it needs to install more, and nothing of RDMA.
fn plain(id: &str, version: &str, architecture: &str, manager: &str) -> ImageFacts {
    let mut facts = Fixture::plain(id, version, "", architecture).facts();
    let rpm = if architecture == "arm64" { "aarch64" } else { "x86_64" };
    facts.packages = PackageFacts { manager: PackageManager::RpmBdb, ..PackageFacts::default() };
    for name in ["glibc", "bash", "libnl3", manager] {
        facts.packages.list.push(package(name, "1-1", rpm, ""));
    }
    facts
}

/// The fixture with MLNX_OFED 5 and later: one build of rdma-core, the providers in libibverbs.
fn ofed(id: &str, version: &str, architecture: &str, manager: &str) -> ImageFacts {
    let mut facts = plain(id, version, architecture, manager);
    let rpm = if architecture == "arm64" { "aarch64" } else { "x86_64" };
    let isa = if architecture == "arm64" { "aarch-64" } else { "x86-64" };
    let build = "2307mlnx47-1.2310119";
    for name in ["libibumad", "libibverbs", "libibverbs-utils", "librdmacm", "librdmacm-utils", "rdma-core-devel"] {
        let pinned = format!("rdma-core({isa}) = {build}");
        facts.packages.list.push(package(name, build, rpm, &pinned));
        facts.ofed.packages.push(name.into());
    }
    facts.packages.list.push(package("rdma-core", build, rpm, ""));
    facts.packages.list.push(package("ucx", "1.15.0-1", rpm, "libibverbs.so.1()(64bit)"));
    let needs = "libibverbs, libibverbs-utils, librdmacm, librdmacm-utils";
    facts.packages.list.push(package("mlnx-ofed-basic-user-only", "23.10-1.1.9.0", "noarch", needs));
    facts.ofed.packages.extend(["rdma-core".into(), "mlnx-ofed-basic-user-only".into()]);
    facts.ofed.yum_repos.push(repo("/etc/yum.repos.d/mlnx_ofed.repo", "mlnx_ofed", false));
    facts.ofed.directories.push(OfedDirectory {
        path: "/opt/mellanox".into(),
        files: 1,
        size_bytes: 1,
        owners: Vec::new(),
        loader_reason: None,
        verbs_files: Vec::new(),
    });
    facts
}

fn repo(path: &str, id: &str, shared: bool) -> YumRepo {
    let url = "http://linux.mellanox.com/public/repo/mlnx_ofed/x".into();
    YumRepo { path: path.into(), id: id.into(), url, enabled: true, shared }
}

fn plan(facts: &ImageFacts, options: &SwapOptions) -> SwapPlan {
    plan_swap(facts, None, &ERDMA, options).unwrap()
}

fn refused(facts: &ImageFacts, options: &SwapOptions) -> PlanError {
    plan_swap(facts, None, &ERDMA, options).unwrap_err()
}

fn dockerfile(facts: &ImageFacts, options: &SwapOptions) -> String {
    let text = dockerfile_for(&ERDMA, facts, options);
    assert!(text.contains("\n    use_repository erdma http"), "{text}");
    text
}

/// The functions of the script are the same in all: a snapshot shows what differs.
fn without_functions(text: &str) -> String {
    let (head, rest) = text.split_once("RUN set -eu; \\\n").unwrap();
    let (_, steps) = rest.split_once("    # The swap of this image, step by step.\n").unwrap();
    format!("{head}RUN [functions]\n    # The swap of this image, step by step.\n{steps}")
}

fn dockerfile_for(fabric: &'static Fabric, facts: &ImageFacts, options: &SwapOptions) -> String {
    let plan = plan_swap(facts, None, fabric, options).unwrap();
    let text = render_dockerfile(&plan);
    assert_eq!(text, render_dockerfile(&plan), "the same plan gives the same bytes");
    // Case F01: what only BuildKit understands must not be in it; and none of apt.
    for forbidden in ["# syntax=", "<<", "--mount", "COPY --", "apt", "dpkg", "--nodeps"] {
        assert!(!text.contains(forbidden), "{forbidden} in\n{text}");
    }
    for needed in ["rpm -Va --nofiles", "protected_packages", "SIGMD5"] {
        assert!(text.contains(needed), "{needed} is not in\n{text}");
    }
    assert_eq!(text.matches("\nRUN ").count(), 1, "one transaction");
    let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} is not in\n{text}"));
    assert!(at("\n      unlock; ") < at("\n      carry_out shell "), "a lock would hold the packages as they are");
    support::hadolint(&text);
    without_functions(&text)
}

#[test]
fn centos_7() {
    insta::assert_snapshot!(dockerfile(&ofed("centos", "7", "amd64", "yum"), &SwapOptions::default()));
}

#[test]
fn centos_8() {
    insta::assert_snapshot!(dockerfile(&ofed("centos", "8", "amd64", "dnf"), &SwapOptions::default()));
}

#[test]
fn rhel_8() {
    insta::assert_snapshot!(dockerfile(&ofed("rhel", "8.10", "amd64", "dnf"), &SwapOptions::default()));
}

#[test]
fn alinux_2() {
    insta::assert_snapshot!(dockerfile(&ofed("alinux", "2.1903", "amd64", "yum"), &SwapOptions::default()));
}

#[test]
fn alinux_3() {
    insta::assert_snapshot!(dockerfile(&ofed("alinux", "3", "amd64", "dnf"), &SwapOptions::default()));
}

/// Case A10's image, on Arm, as another user, with another shell.
#[test]
fn alinux_3_on_arm_without_any_rdma_userspace() {
    let mut facts = plain("alinux", "3", "arm64", "dnf");
    facts.config.user = "trainer:1000".into();
    facts.config.shell = vec!["/bin/bash".into(), "-o".into(), "pipefail".into(), "-c".into()];
    insta::assert_snapshot!(dockerfile(&facts, &SwapOptions::default()));
}

/// Every option that shows in the text.
#[test]
fn rocky_9_with_every_option() {
    let mut facts = ofed("rocky", "9.3", "amd64", "dnf");
    facts.ofed.yum_repos.push(repo("/etc/yum.repos.d/mixed.repo", "doca_2.9[x]", true));
    let options = SwapOptions {
        repository: RepositoryChoice {
            mirror: Some("http://mirror.example.com/erdma".into()),
            suite: Some("rocky/9/erdma/x86_64".into()),
            vpc: false,
            ..Default::default()
        },
        key: Some(KeyFile { path: "vendor.key".into(), content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_vec() }),
        build_args: vec!["RES_OPTIONS".into(), "http_proxy".into()],
        extra_packages: vec!["perftest".into()],
        base_repos: vec!["http://vault.example.com/9.3/BaseOS/x86_64/os/".into()],
        ..SwapOptions::default()
    };
    insta::assert_snapshot!(dockerfile(&facts, &options));
    let unsigned = SwapOptions { key: None, no_gpg_check: true, ..options };
    let text = dockerfile(&facts, &unsigned);
    assert!(text.contains("\n# Signatures are not checked") && text.contains(" 'Alibaba eRDMA' unchecked; "), "{text}");
    assert!(plan(&facts, &unsigned).notes.iter().any(|note| note.starts_with("signatures are not checked")));
}

/// Case A13: packages from before rdma-core go in the same transaction; case A01: only what is installed is touched.
#[test]
fn the_plan_follows_the_facts() {
    let mut facts = plain("centos", "7", "amd64", "yum");
    let build = "41mlnx1-OFED.4.9.3.0.0.49224";
    for name in ["libibverbs", "libmlx5", "librxe"] {
        facts.packages.list.push(package(name, build, "x86_64", ""));
        facts.ofed.packages.push(name.into());
    }
    facts.packages.list.push(package("libibverbs", build, "i686", ""));
    facts.packages.list.push(package("perftest", "4.5-1", "x86_64", "libibverbs.so.1()(64bit)"));
    facts.packages.list.push(package("mft", "4.26.1-3", "x86_64", ""));
    facts.packages.list.push(package("mlnx-tools", "23.10-0.2310119", "x86_64", "mft"));
    facts.packages.list.push(package("my-trainer", "1-1", "noarch", "mlnx-tools >= 5, bash"));
    facts.packages.list.push(package("mlnx-ethtool", "6.4-1", "x86_64", "glibc"));
    facts.ofed.packages.extend(["mft".into(), "mlnx-tools".into(), "mlnx-ethtool".into()]);
    let plan = plan(&facts, &SwapOptions::default());
    assert_eq!(plan.installed().unwrap().superseded, ["libmlx5", "librxe"]);
    assert_eq!(plan.installed().unwrap().purge, ["libibverbs.i686", "mlnx-ethtool"]);
    assert_eq!(
        plan.notes,
        ["package mlnx-tools stays: my-trainer requires it", "package mft stays: mlnx-tools requires it"]
    );
    let companions: Vec<(&str, WithoutOffer)> =
        plan.installed().unwrap().companions.iter().map(|c| (c.name.as_str(), c.without_offer)).collect();
    assert_eq!(companions, [("perftest", WithoutOffer::Keep)]);
    for name in ["libibverbs", "libmlx5", "mlnx-ethtool", "perftest"] {
        assert!(plan.touches(name), "{name}");
    }
    for name in ["ucx", "my-trainer", "mlnx-tools", "libibverbs1x", "ibverbs-providers"] {
        assert!(!plan.touches(name), "{name}");
    }
}

/// Case A14: what is not on the vendor's list is refused with the list, never taken for something else.
#[test]
fn unlisted_distributions() {
    for (id, version, architecture) in
        [("anolis", "8.8", "amd64"), ("rocky", "9.3", "amd64"), ("almalinux", "8.9", "amd64"), ("centos", "7", "arm64")]
    {
        let error = refused(&ofed(id, version, architecture, "dnf"), &SwapOptions::default());
        assert!(matches!(error, PlanError::Repository(RepositoryError::NotListed { .. })), "{id}: {error}");
        assert!(with_remedy(&error).contains("alinux 3 (amd64, arm64), alinux 2 (amd64), centos 8"), "{error}");
    }
}

/// An address that nobody published is said to be one, where the plan is shown and in the Dockerfile.
#[test]
fn addresses_by_analogy_say_so() {
    let notes = |facts| plan(&facts, &SwapOptions::default()).notes;
    assert!(notes(ofed("centos", "7", "amd64", "yum")).is_empty());
    let said = notes(ofed("alinux", "3", "amd64", "dnf"));
    assert!(said[0].contains("no page of the vendor's names") && said[0].contains("--suite PATH"), "{said:?}");
    let path = SwapOptions {
        repository: RepositoryChoice { suite: Some("alinux/3/x".into()), ..RepositoryChoice::default() },
        ..SwapOptions::default()
    };
    assert!(plan(&ofed("alinux", "3", "amd64", "dnf"), &path).notes.is_empty(), "the user vouches for it");
}

#[test]
fn what_cannot_be_planned_is_said() {
    let good = || ofed("centos", "8", "amd64", "dnf");
    let options = SwapOptions::default();
    let error = refused(&plain("centos", "8", "amd64", "microdnf"), &options);
    assert_eq!(error, PlanError::NoYum("microdnf"));
    let binary =
        SwapOptions { key: Some(KeyFile { path: "vendor.key".into(), content: vec![0x99, 1] }), ..options.clone() };
    assert_eq!(refused(&good(), &binary), PlanError::BinaryKey("vendor.key".into()));
    let proxy = SwapOptions { apt_proxy: Some("http://cache:3142".into()), ..options.clone() };
    assert!(matches!(refused(&good(), &proxy), PlanError::OtherManager { option: "--apt-proxy", .. }));
    for bad in ["ftp://x", "http://", "http://h/$(id)", "http://h/a b", "http://u:s3cret@h/"] {
        let repo = SwapOptions { base_repos: vec![bad.into()], ..options.clone() };
        let said = refused(&good(), &repo).to_string();
        assert!(said.contains("is not the address of a repository") && !said.contains("s3cret"), "{said}");
    }
    // What is for rpm images alone has no meaning for others.
    for more in [
        SwapOptions { no_gpg_check: true, ..options.clone() },
        SwapOptions { base_repos: vec!["http://h/".into()], ..options },
    ] {
        let error = refused(&Fixture::good().facts(), &more);
        assert!(matches!(error, PlanError::OtherManager { .. }), "{error}");
    }
}

fn file(name: &str, version: &str, depends: &str) -> PackageFile {
    let mut package = package(name, version, "x86_64", depends);
    package.source = (name != "libnl3").then(|| "rdma-core".into());
    package.provides = format!("{name}(x86-64) = {version}");
    if name == "libibverbs" {
        package.provides.push_str(", libibverbs.so.1()(64bit)");
    }
    let paths = ["usr/lib64/libibverbs/liberdma-rdmav34.so", "usr/lib64/libibverbs/libmlx5-rdmav34.so"];
    PackageFile { package, files: Some(paths.map(str::to_owned).to_vec()), form: Form::Rpm { sha256: "ab".repeat(32) } }
}

/// The least that is needed, and what it depends on.
const FILES: [(&str, &str); 4] = [
    ("libibverbs", "rdma-core(x86-64) = 44.1-2, libnl3 >= 1-1, /usr/bin/python3"),
    ("libibverbs-utils", "libibverbs(x86-64) = 44.1-2, libibverbs.so.1()(64bit)"),
    ("librdmacm", "libibverbs(x86-64) = 44.1-2"),
    ("rdma-core", ""),
];

fn offered(files: &[(&str, &str)], version: &str) -> SwapOptions {
    let packages = files.iter().map(|(name, depends)| (format!("{name}.rpm"), file(name, version, depends)));
    let files = OfferedFiles { packages: packages.collect(), ..OfferedFiles::default() };
    SwapOptions { files: Some(files), ..SwapOptions::default() }
}

fn offered_mut(options: &mut SwapOptions) -> &mut OfferedFiles {
    options.files.as_mut().unwrap()
}

/// No distribution has to be listed: who brings the files vouches for them. Nothing is fetched.
#[test]
fn package_files() {
    let mut facts = ofed("rocky", "9.3", "amd64", "dnf");
    facts.packages.list.retain(|package| package.name != "rdma-core");
    facts.ofed.packages.retain(|name| name != "rdma-core");
    let mut options = offered(&FILES, "44.1-2");
    offered_mut(&mut options).packages.insert("nl.rpm".into(), file("libnl3", "1:2-1", ""));
    let plan = plan(&facts, &options);
    assert_eq!(plan.files().unwrap().dependencies, ["rdma-core"], "the image's libnl3 does");
    assert!(plan.notes.contains(&"not used: nl.rpm: nothing needs it".to_owned()), "{:?}", plan.notes);
    assert!(plan.notes.iter().any(|note| note.starts_with("signatures of the package files are not checked")));
    let text = dockerfile_for(&ERDMA, &facts, &options);
    for fetching in ["http:", "https:", "use_repository", "ask_instead", "/etc/pki"] {
        assert!(!text.contains(fetching), "{fetching}:\n{text}");
    }
    insta::assert_snapshot!(text);
    options.key =
        Some(KeyFile { path: "vendor.key".into(), content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_vec() });
    let yum = ofed("centos", "7", "amd64", "yum");
    insta::assert_snapshot!("package_files_with_a_key_and_yum", dockerfile_for(&ERDMA, &yum, &options));
    // Another version of a dependency is asked for than the image has.
    options.files.as_mut().unwrap().packages.get_mut("libibverbs.rpm").unwrap().package.depends =
        "libnl3 >= 1:2".into();
    let plan = plan_swap(&yum, None, &ERDMA, &options).unwrap();
    assert_eq!(plan.files().unwrap().sources["libnl3-2-1.x86_64.rpm"], "nl.rpm");
    assert_eq!(plan.files().unwrap().dependencies, ["libnl3"]);
}

#[test]
fn package_files_that_do_not_do() {
    let facts = ofed("rocky", "9.3", "amd64", "dnf");
    let error = |options: &SwapOptions| with_remedy(&refused(&facts, options));
    let mut some = offered(&FILES[..2], "44.1-2");
    let mut deb = file("librdmacm", "44.1-2", "");
    deb.form = Form::Deb;
    let mut foreign = file("librdmacm", "44.1-2", "");
    foreign.package.architecture = "aarch64".into();
    let files = offered_mut(&mut some);
    files.packages.extend([("cm.deb".into(), deb.clone()), ("cm.rpm".into(), foreign)]);
    files.unusable.insert("half.rpm".into(), "it ends".into());
    let said = error(&some);
    for line in [
        "\n  missing: package librdmacm\n",
        "unusable: cm.deb: it is a Debian package, but the image's packages are rpm's",
        "unusable: cm.rpm: it is for aarch64, but the image is for amd64",
        "unusable: half.rpm: it ends",
    ] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
    let mut needy = FILES;
    needy[0].1 = "libnl-3.so.200()(64bit), libnl3 >= 3, (libunheard if glibc), (libunheard if musl), /opt/x";
    let said = error(&offered(&needy, "44.1-2"));
    for line in [
        "missing: libnl-3.so.200()(64bit) for libibverbs (is not in the image)",
        "missing: libnl3 >= 3 for libibverbs (the image has libnl3 1-1)",
        "missing: (libunheard if glibc) for libibverbs",
    ] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
    assert!(!said.contains("musl") && !said.contains("/opt/x"), "{said}");
    let mut mixed = offered(&FILES, "44.1-2");
    offered_mut(&mut mixed).packages.insert("librdmacm.rpm".into(), file("librdmacm", "39.0-1", ""));
    assert!(error(&mixed).contains("from different builds: "), "{}", error(&mixed));
    let none = FILES.map(|(name, _)| (name, ""));
    assert!(error(&offered(&none, "2307mlnx47-1")).contains("is a Mellanox build, which drives no erdma device"));
    let mut stock = offered(&none, "44.1-2");
    offered_mut(&mut stock).packages.get_mut("libibverbs.rpm").unwrap().files = Some(vec!["usr/lib64/x".into()]);
    assert!(error(&stock).contains("libibverbs.rpm has no erdma provider"), "{}", error(&stock));
    // Files of rpm's are nothing for apt, and its own carry no signature that a key could check.
    let ubuntu = Fixture::good().facts();
    let said = with_remedy(&refused(&ubuntu, &offered(&FILES, "44.1-2")));
    assert!(said.contains("librdmacm.rpm: it is an rpm package, but the image's packages are Debian's"), "{said}");
    let key = Some(KeyFile { path: "vendor.key".into(), content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_vec() });
    let error = refused(&ubuntu, &SwapOptions { key, ..offered(&FILES, "44.1-2") });
    assert!(matches!(error, PlanError::OtherManager { option: "--key", .. }), "{error}");
}

/// What NVIDIA's repository writes is named after it, and not after the driver.
#[test]
fn roce_with_docas() {
    let facts = ofed("rocky", "9.3", "amd64", "dnf");
    let repository = RepositoryChoice { doca_version: Some("2.10.0".into()), ..RepositoryChoice::default() };
    let options = SwapOptions { userspace: Some(Userspace::Doca), repository, ..SwapOptions::default() };
    insta::assert_snapshot!(dockerfile_for(&ROCE, &facts, &options));
}

#[test]
fn roce_with_the_distributions_own() {
    let inbox = SwapOptions { userspace: Some(Userspace::Inbox), ..SwapOptions::default() };
    let facts = ofed("rocky", "9.3", "amd64", "dnf");
    let text = dockerfile_for(&ROCE, &facts, &inbox);
    assert!(text.contains("rdmaprep.packages=\"the yum repositories of the image\""), "{text}");
    insta::assert_snapshot!(text);
    let base_repos = vec!["http://vault.example.com/7/".to_owned()];
    let text =
        dockerfile_for(&ROCE, &ofed("centos", "7", "amd64", "yum"), &SwapOptions { base_repos, ..inbox.clone() });
    insta::assert_snapshot!("roce_from_a_given_repository_with_yum", text);
    for (option, more) in [
        ("--no-gpg-check", SwapOptions { no_gpg_check: true, ..inbox.clone() }),
        (
            "--key",
            SwapOptions {
                key: Some(KeyFile {
                    path: "vendor.key".into(),
                    content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----".to_vec(),
                }),
                ..inbox
            },
        ),
    ] {
        assert_eq!(plan_swap(&facts, None, &ROCE, &more), Err(PlanError::NotWith { option, userspace: "inbox" }));
    }
    // DOCA's as files: OFED's tools stay, since the devices are theirs.
    let none = FILES.map(|(name, _)| (name, ""));
    let plan = plan_swap(&facts, None, &ROCE, &offered(&none, "2410mlnx54-1")).unwrap();
    assert_eq!(
        (plan.userspace, plan.installed().unwrap().purge.len(), plan.installed().unwrap().remove_directories.len()),
        (Userspace::Doca, 0, 0)
    );
    assert!(!render_dockerfile(&plan).contains("    prove_no_mellanox; "));
}

/// An image that nobody looked at: only the distribution is known, by a name such as the command line has.
#[test]
fn an_image_that_was_not_looked_at() {
    let plan = |fabric: &'static Fabric, distro: &str, architecture: &str, options: &SwapOptions| {
        let distro = Distro::named(distro).unwrap();
        let image = UnseenImage { name: "my/train:1", distro: &distro, architecture, user: Some("1000:1000") };
        plan_unseen(&image, fabric, options)
    };
    let options = SwapOptions { extra_packages: vec!["perftest".into()], ..SwapOptions::default() };
    let text = render_dockerfile(&plan(&ERDMA, "alinux:3", "arm64", &options).unwrap());
    support::hadolint(&text);
    insta::assert_snapshot!("unseen_alinux_3", without_functions(&text));
    let doca = RepositoryChoice { doca_version: Some("2.10.0".into()), ..RepositoryChoice::default() };
    let doca = SwapOptions { userspace: Some(Userspace::Doca), repository: doca, ..SwapOptions::default() };
    let text = render_dockerfile(&plan(&ROCE, "rocky:9.3", "amd64", &doca).unwrap());
    assert!(text.contains("expect_distro rocky 9.3; ") && text.contains("discover_packages doca; "), "{text}");
    assert!(!text.contains("    discover_directories; "), "{text}");
    let inbox = render_dockerfile(&plan(&ROCE, "centos:8", "amd64", &SwapOptions::default()).unwrap());
    assert!(inbox.contains("discover_packages inbox; ") && !inbox.contains("    pin_packages; "), "{inbox}");
    let error =
        |distro, architecture| with_remedy(&plan(&ERDMA, distro, architecture, &SwapOptions::default()).unwrap_err());
    let unknown = error("anolis:8.8", "amd64");
    assert!(unknown.contains("alinux, centos, debian,") && unknown.contains("rocky, ubuntu"), "{unknown}");
    let unlisted = error("centos:7", "arm64");
    assert!(unlisted.contains("listed by the vendor"), "{unlisted}");
    let keep = SwapOptions { userspace: Some(Userspace::Keep), ..SwapOptions::default() };
    assert_eq!(plan(&ROCE, "centos:8", "amd64", &keep), Err(PlanError::KeptUnseen));
}
