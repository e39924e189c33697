//! Whole Dockerfiles, per distribution, from facts of small images.

use crate::support;
use crate::support::image_fixture;

use image_fixture::Fixture;
use rdmaprep::distro::Distro;
use rdmaprep::dockerfile::render_dockerfile;
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::fabric::roce::ROCE;
use rdmaprep::fabric::{Fabric, RepositoryChoice, Userspace};
use rdmaprep::facts::{Package, PackageState};
use rdmaprep::package_file::{Form, PackageFile};
use rdmaprep::plan::offline::OfferedFiles;
use rdmaprep::plan::{KeyFile, PlanError, SwapOptions, UnseenImage, listed_distros, plan_swap, plan_unseen};
use rdmaprep::remedy::with_remedy;

fn dockerfile(fixture: &Fixture, options: &SwapOptions) -> String {
    let text = dockerfile_for(&ERDMA, fixture, options);
    let needed = "signed-by=/etc/apt/keyrings/erdma.";
    assert!(text.contains(needed), "{needed} is not in\n{text}");
    text
}

fn dockerfile_for(fabric: &'static Fabric, fixture: &Fixture, options: &SwapOptions) -> String {
    let plan = plan_swap(&fixture.facts(), None, fabric, options).unwrap();
    let text = render_dockerfile(&plan);
    assert_eq!(text, render_dockerfile(&plan), "the same plan gives the same bytes");
    if plan.userspace != Userspace::Keep {
        assert_builds_everywhere(&text);
    }
    support::hadolint(&text);
    text
}

/// Case F01: what only BuildKit understands must not be in it; and keys and sources as they should be.
fn assert_builds_everywhere(text: &str) {
    for forbidden in ["# syntax=", "<<", "--mount", "apt-key", "trusted.gpg.d/erdma", "COPY --", "gpg --dearmor"] {
        assert!(!text.contains(forbidden), "{forbidden} in\n{text}");
    }
    for needed in ["--allow-downgrades --allow-change-held-packages", "apt-get check"] {
        assert!(text.contains(needed), "{needed} is not in\n{text}");
    }
    assert_fits_ubuntu_18_04(text);
    assert_eq!(text.matches("\nRUN ").count(), 1, "one transaction");
}

/// Options of the programs that the Dockerfile starts, with the version that brought them (their changelogs). Ubuntu 18.04,
/// the oldest release that the vendor lists, has apt 1.6.17, dpkg 1.19.0.5, coreutils 8.28 and mawk 1.3.3.
const OPTIONS: [(&str, &str); 27] = [
    ("--allow-change-held-packages", "apt 1.1"),
    ("--allow-downgrades", "apt 1.1"),
    ("--audit", "dpkg 1.1"),
    ("--control-path", "dpkg 1.15"),
    ("--force-confmiss", "dpkg 1.4"),
    ("--force-confnew", "dpkg 1.4"),
    ("--get-selections", "dpkg 1.1"),
    ("--no-act", "dpkg 1.1"),
    ("--no-install-recommends", "apt 0.7"),
    ("--print-architecture", "dpkg 1.1"),
    ("--purge", "apt 0.5"),
    ("--remove", "dpkg 1.1"),
    ("--set-selections", "dpkg 1.1"),
    ("--simulate", "apt 0.5"),
    ("-o APT::Default-Release", "apt 0.5"),
    ("-o APT::Sandbox::User", "apt 1.1"),
    ("-o Acquire::Retries", "apt 0.5"),
    ("-o Acquire::http::Proxy", "apt 0.5"),
    ("-o Acquire::http::Timeout", "apt 0.5"),
    ("-o Dir::Etc::sourcelist", "apt 0.5"),
    ("-o Dir::Etc::sourceparts", "apt 0.5"),
    ("-o Dpkg::Options", "apt 0.5"),
    ("apt-helper download-file", "apt 1.0"),
    ("db:Status-Status", "dpkg 1.17"),
    ("env -C", "coreutils 8.28"),
    ("signed-by=", "apt 1.1"),
    (".asc", "apt 1.4"),
];

/// Every option in the text is known to be in Ubuntu 18.04's programs.
fn assert_fits_ubuntu_18_04(text: &str) {
    let version = |text: &str| -> (u32, u32) {
        let mut numbers = text.split('.').map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    for (option, since) in OPTIONS {
        let (program, since) = since.split_once(' ').unwrap();
        let has = match program {
            "apt" => "1.6",
            "dpkg" => "1.19",
            "coreutils" => "8.28",
            other => panic!("{other} is not in the list"),
        };
        assert!(version(since) <= version(has), "{option} needs {program} {since}");
    }
    let words: Vec<&str> = text.split([' ', '=', '\\', ';', '\n', '"', '(', ')']).collect();
    for (at, word) in words.iter().enumerate() {
        let option = match *word {
            "-o" if words[at + 1].contains("::") => format!("-o {}", words[at + 1].trim_end_matches("::")),
            // Of this program, in what the build says.
            "--user" => continue,
            word if word.starts_with("--") && word.len() > 2 => word.to_owned(),
            _ => continue,
        };
        assert!(OPTIONS.iter().any(|(known, _)| *known == option), "{option}: since which version?");
    }
    // mawk 1.3.3 knows neither intervals nor classes of characters.
    for line in text.lines().filter(|line| line.contains("awk ")) {
        assert!(!line.contains("[:") && !line.contains("\\s"), "{line}");
    }
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

/// What the vendor has for Arm, and what not.
#[test]
fn arm() {
    for (version, codename) in [("22.04", "jammy"), ("24.04", "noble")] {
        let text = dockerfile(&Fixture::plain("ubuntu", version, codename, "arm64"), &SwapOptions::default());
        for part in [
            &format!("use_repository erdma 'http://mirrors.aliyun.com/erdma/apt/ubuntu {codename}/erdma' "),
            "[arch=arm64 ",
            "prepare arm64 AArch64;",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains("amd64") && !text.contains("x86-64"), "{text}");
    }
    for (version, codename) in [("20.04", "focal"), ("18.04", "bionic")] {
        let fixture = Fixture::plain("ubuntu", version, codename, "arm64");
        let error = with_remedy(&plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap_err());
        assert!(error.contains(&format!("ubuntu {version} on arm64")), "{error}");
        assert!(error.contains(&format!("ubuntu {version} (amd64)")), "{error}");
    }
}

/// A package file as its control data describe it.
fn package_file(name: &str, version: &str, depends: &str) -> PackageFile {
    let source = ["verbs", "rdma"].iter().any(|part| name.contains(part)).then(|| "rdma-core".to_owned());
    let provider = ["usr/lib/x86_64-linux-gnu/libibverbs/liberdma-rdmav34.so", "usr/lib/x86_64-linux-gnu/libmlx5.so.1"];
    PackageFile {
        package: Package {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: "amd64".to_owned(),
            state: PackageState::Installed,
            held: false,
            source,
            depends: depends.to_owned(),
            provides: String::new(),
            multi_arch: String::new(),
        },
        files: Some(provider.map(str::to_owned).to_vec()),
        form: Form::Deb,
    }
}

fn offered(files: &[(&str, &str, &str)]) -> OfferedFiles {
    let packages =
        files.iter().map(|(name, version, depends)| (format!("{name}.deb"), package_file(name, version, depends)));
    OfferedFiles { packages: packages.collect(), ..OfferedFiles::default() }
}

const FILES: [(&str, &str, &str); 4] = [
    ("libibverbs1", "44.1-2", "libc6 (>= 2.34), libnl-3-200 (>= 3.2.7)"),
    ("ibverbs-providers", "44.1-2", "libibverbs1 (>= 38)"),
    ("ibverbs-utils", "44.1-2", "libibverbs1 (>= 34)"),
    ("librdmacm1", "44.1-2", "libibverbs1 (>= 31)"),
];

fn with_files(files: OfferedFiles) -> SwapOptions {
    SwapOptions { files: Some(files), ..SwapOptions::default() }
}

#[test]
fn package_files() {
    let mut fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    fixture.package("libnl-3-200", "3.2.0-1", "libc6");
    let mut files = offered(&FILES);
    files.packages.extend(offered(&[("libnl-3-200", "1:3.5.0-1", "libc6"), ("unneeded", "1", "")]).packages);
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &with_files(files.clone())).unwrap();
    assert_eq!(plan.files().unwrap().dependencies, ["libnl-3-200"], "the image's is too old");
    assert_eq!(plan.files().unwrap().sources["libnl-3-200_1%3a3.5.0-1_amd64.deb"], "libnl-3-200.deb");
    assert!(plan.notes.contains(&"not used: unneeded.deb: nothing needs it".to_owned()), "{:?}", plan.notes);
    assert!(plan.touches("libnl-3-200"));
    let text = dockerfile_for(&ERDMA, &fixture, &with_files(files));
    for fetching in ["http:", "https:", "apt-get update", "apt-get download", "signed-by", "apt-helper"] {
        assert!(!text.lines().any(|line| line.contains(fetching) && !line.contains("rm -f")), "{fetching}:\n{text}");
    }
    insta::assert_snapshot!(text);
}

/// No distribution has to be listed: who brings the files vouches for them.
#[test]
fn package_files_that_do_not_do() {
    let facts = Fixture::ofed("debian", "12", "bookworm", "librdmacm1").facts();
    let error = |files: OfferedFiles| with_remedy(&plan_swap(&facts, None, &ERDMA, &with_files(files)).unwrap_err());
    assert!(plan_swap(&facts, None, &ERDMA, &with_files(offered(&FILES))).is_ok());
    let mut some = offered(&FILES[..2]);
    some.unusable.insert("broken.deb".into(), "it is not a package file".into());
    let mut foreign = package_file("ibverbs-utils", "44.1-2", "");
    foreign.package.architecture = "arm64".into();
    some.packages.insert("utils-arm64.deb".into(), foreign);
    let said = error(some);
    for line in [
        "\n  missing: package ibverbs-utils\n  missing: package librdmacm1 or librdmacm1t64\n",
        "unusable: broken.deb: it is not a package file",
        "unusable: utils-arm64.deb: it is for arm64, but the image is for amd64",
    ] {
        assert!(said.contains(line), "{line}:\n{said}");
    }
    let mut newer = FILES;
    newer[0].2 = "libc6 (>= 2.39), libunheard (>= 1) | libof";
    let said = error(offered(&newer));
    assert!(said.contains("missing: libc6 (>= 2.39) for libibverbs1 (the image has libc6 2.35-0ubuntu3)"), "{said}");
    assert!(said.contains("missing: libunheard (>= 1) or libof for libibverbs1 (is not in the image)"), "{said}");
    let mut mixed = FILES;
    mixed[1].1 = "39.0-1";
    assert!(
        error(offered(&mixed)).contains("from different builds: ibverbs-providers 39.0-1 and ibverbs-utils 44.1-2")
    );
    let ofed = FILES.map(|(name, _, depends)| (name, "2307mlnx47-1.2310119", depends));
    assert!(error(offered(&ofed)).contains("is a Mellanox build, which drives no erdma device"));
    let mut stock = offered(&FILES);
    stock.packages.get_mut("ibverbs-providers.deb").unwrap().files = Some(vec!["usr/lib/libmlx5.so.1".into()]);
    assert!(error(stock).contains("ibverbs-providers.deb has no erdma provider"));
    let mut twice = offered(&FILES);
    twice.packages.insert("again.deb".into(), package_file("libibverbs1", "44.1-3", ""));
    twice.packages.remove("librdmacm1.deb");
    let said = error(twice);
    assert!(said.contains("libibverbs1.deb: package libibverbs1 is also in again.deb: keep one of them"), "{said}");
    let mut more = with_files(offered(&FILES));
    more.extra_packages = vec!["perftest".into()];
    let said = with_remedy(&plan_swap(&facts, None, &ERDMA, &more).unwrap_err());
    assert!(said.contains("missing: package perftest"), "{said}");
}

/// A package under its other name: the old one goes.
#[test]
fn a_package_file_with_the_other_name() {
    let fixture = Fixture::ofed("ubuntu", "24.04", "noble", "librdmacm1");
    let mut files = FILES;
    files[3].0 = "librdmacm1t64";
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &with_files(offered(&files))).unwrap();
    assert_eq!(support::apt_swap(&plan).renamed, ["librdmacm1"]);
    let text = render_dockerfile(&plan);
    assert!(text.contains("\n    drop_packages libibverbs-dev librdmacm1 "), "{text}");
}

fn userspace(userspace: Userspace) -> SwapOptions {
    SwapOptions { userspace: Some(userspace), ..SwapOptions::default() }
}

#[test]
fn roce_with_the_distributions_own() {
    let mut fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    fixture.package("libibumad3", "2307mlnx47-1.2310119", "").set_field("libibumad3", "Source", "rdma-core");
    insta::assert_snapshot!(dockerfile_for(&ROCE, &fixture, &userspace(Userspace::Inbox)));
}

#[test]
fn roce_with_docas() {
    let mut fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    fixture.package("ca-certificates", "20230311", "");
    let mut options = userspace(Userspace::Doca);
    options.repository.doca_version = Some("2.10.0".into());
    insta::assert_snapshot!(dockerfile_for(&ROCE, &fixture, &options));
    // OFED's tools stay, since the devices are theirs; its source goes, since it would compete.
    let plan = plan_swap(&fixture.facts(), None, &ROCE, &options).unwrap();
    assert!(plan.installed().unwrap().purge.is_empty() && plan.installed().unwrap().remove_directories.is_empty());
    assert!(
        plan.installed().unwrap().remove_files.contains(&"/etc/apt/sources.list.d/mellanox_mlnx_ofed.list".to_owned())
    );
    let facts = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").facts();
    let notes = plan_swap(&facts, None, &ROCE, &options).unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("the image has no ca-certificates")), "{notes:?}");
}

#[test]
fn roce_with_what_is_there() {
    let fixture = Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    insta::assert_snapshot!(dockerfile_for(&ROCE, &fixture, &SwapOptions::default()));
    let plan = plan_swap(&fixture.facts(), None, &ROCE, &SwapOptions::default()).unwrap();
    assert_eq!(
        plan.notes,
        [
            "the image's userspace is right for RoCE on mlx5 (libibverbs1 2307mlnx47-1.2310119): it is kept, and nothing is installed or removed"
        ]
    );
}

/// What is not sound cannot be kept, and by default is not.
#[test]
fn roce_chooses_by_what_is_there() {
    let good = || Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1");
    let chosen =
        |fixture: &Fixture| plan_swap(&fixture.facts(), None, &ROCE, &SwapOptions::default()).unwrap().userspace;
    assert_eq!(chosen(&good()), Userspace::Keep);
    let mut without_provider = good();
    without_provider.remove("usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so");
    let mut without_driver = good();
    without_driver.remove("etc/libibverbs.d/mlx5.driver");
    let mut mixed = good();
    mixed.set_field("ibverbs-providers", "Version", "39.0-1");
    let mut two = good();
    two.file("usr/lib/x86_64-linux-gnu/libibverbs.so", "ELF\0IBVERBS_PRIVATE_34\0");
    for (fixture, reason) in [
        (without_provider, "finds no mlx5 provider"),
        (without_driver, "no file in /etc/libibverbs.d names the mlx5 driver"),
        (mixed, "libibverbs1 is 2307mlnx47-1.2310119 and ibverbs-providers is 39.0-1"),
        (two, "libibverbs.so and libibverbs.so.1 are two libraries"),
        (Fixture::plain("ubuntu", "22.04", "jammy", "amd64"), "the loader finds no libibverbs.so.1"),
    ] {
        assert_eq!(chosen(&fixture), Userspace::Inbox, "{reason}");
        let error = with_remedy(&plan_swap(&fixture.facts(), None, &ROCE, &userspace(Userspace::Keep)).unwrap_err());
        assert!(error.contains(reason) && error.contains("--userspace inbox"), "{error}");
    }
    // More packages are asked for: nothing can be added to what stays as it is.
    let mut more = SwapOptions { extra_packages: vec!["perftest".into()], ..SwapOptions::default() };
    assert_eq!(plan_swap(&good().facts(), None, &ROCE, &more).unwrap().userspace, Userspace::Inbox);
    more.userspace = Some(Userspace::Keep);
    let error = with_remedy(&plan_swap(&good().facts(), None, &ROCE, &more).unwrap_err());
    assert_eq!(error, "--package conflicts with --userspace keep\n  omit one of them");
}

#[test]
fn options_that_do_not_go_together() {
    let facts = Fixture::good().facts();
    let error = |fabric, options: &SwapOptions| with_remedy(&plan_swap(&facts, None, fabric, options).unwrap_err());
    assert!(error(&ERDMA, &userspace(Userspace::Inbox)).contains("has no userspace \"inbox\"\n  known: vendor"));
    assert!(error(&ROCE, &userspace(Userspace::Vendor)).contains("known: keep, inbox, doca"));
    let with = |repository: RepositoryChoice, chosen| SwapOptions { repository, ..userspace(chosen) };
    let mirror = RepositoryChoice { mirror: Some("http://m.example.com/x".into()), ..RepositoryChoice::default() };
    assert!(error(&ROCE, &with(mirror, Userspace::Inbox)).contains("--mirror conflicts with --userspace inbox"));
    let vpc = RepositoryChoice { vpc: true, ..RepositoryChoice::default() };
    assert!(error(&ROCE, &with(vpc, Userspace::Doca)).contains("--vpc conflicts with"));
    let doca = RepositoryChoice { doca_version: Some("2.10.0".into()), ..RepositoryChoice::default() };
    assert!(error(&ERDMA, &with(doca, Userspace::Vendor)).contains("--doca-version conflicts with"));
    let key = SwapOptions {
        key: Some(KeyFile { path: "vendor.key".into(), content: vec![0x99] }),
        ..userspace(Userspace::Keep)
    };
    assert!(error(&ROCE, &key).contains("--key conflicts with --userspace keep"));
    let proxy = SwapOptions { apt_proxy: Some("http://p.example.com:1".into()), ..userspace(Userspace::Keep) };
    assert!(error(&ROCE, &proxy).contains("--apt-proxy conflicts with --userspace keep"));
    // Of a choice that the user did not make it says whose it was.
    let mirror = RepositoryChoice { mirror: Some("http://m.example.com/x".into()), ..RepositoryChoice::default() };
    let unchosen = SwapOptions { repository: mirror.clone(), ..SwapOptions::default() };
    let kept = plan_swap(&Fixture::ofed("ubuntu", "22.04", "jammy", "librdmacm1").facts(), None, &ROCE, &unchosen);
    let said = with_remedy(&kept.unwrap_err());
    assert!(
        said.starts_with("--mirror conflicts with the userspace that the image would get, keep: its own is right\n"),
        "{said}"
    );
    assert!(said.contains("--userspace: RoCE on mlx5 has keep, inbox, doca"), "{said}");
    let more = SwapOptions { extra_packages: vec!["perftest".into()], ..unchosen };
    assert!(error(&ROCE, &more).contains("would get, inbox: additional packages are requested\n"));
    let doca = RepositoryChoice { doca_version: Some("2.10.0".into()), ..RepositoryChoice::default() };
    let said = error(&ERDMA, &SwapOptions { repository: doca, ..SwapOptions::default() });
    assert!(said.contains("would get, vendor: there is no other\n"), "{said}");
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
        key: Some(KeyFile { path: "vendor.key".into(), content: b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_vec() }),
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
    assert_eq!(plan.installed().unwrap().purge, ["mlnx-ofed-basic-user-only"]);
    assert_eq!(plan.notes, ["package mlnx-tools stays: my-trainer depends on it"]);
    assert!(!support::apt_swap(&plan).unhold.contains(&"libnccl2".to_owned()), "NVIDIA's hold on NCCL is none of ours");
    let without_offer: Vec<String> =
        plan.installed().unwrap().companions.iter().map(|c| format!("{} {:?}", c.name, c.without_offer)).collect();
    assert_eq!(without_offer, ["libibumad3 Keep", "libibverbs-dev Remove"]);
    assert_eq!(
        plan.installed().unwrap().remove_files,
        [
            "/etc/apt/keyrings/mlnx.gpg",
            "/etc/apt/sources.list.d/mellanox_mlnx_ofed.list",
            "/etc/libibverbs.d/old.driver",
        ]
    );
    assert_eq!(plan.installed().unwrap().remove_directories, ["/opt/mellanox"]);
    // A directory that a package has files in stays.
    let mut fixture = fixture.clone();
    fixture.owned_file("my-trainer", "opt/mellanox/lib/x.so", "ELF");
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap();
    assert!(plan.installed().unwrap().remove_directories.is_empty());
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
    let bad_key = SwapOptions {
        key: Some(KeyFile { path: "vendor.key".into(), content: b"<html>404".to_vec() }),
        ..options.clone()
    };
    assert!(matches!(error(&good(), &bad_key), PlanError::Key { .. }));
    let bad_package = SwapOptions { extra_packages: vec!["a;b".into()], ..options.clone() };
    assert!(matches!(error(&good(), &bad_package), PlanError::PackageName(_)));
    let secret = SwapOptions { apt_proxy: Some("http://u:s3cret@proxy:1".into()), ..options };
    let said = with_remedy(&error(&good(), &secret));
    assert!(said.contains("http_proxy") && !said.contains("s3cret"), "{said}");
}

/// Images that nobody looked at, of every distribution that is known.
#[test]
fn images_that_were_not_looked_at() {
    let render = |fabric: &'static Fabric, distro: &Distro, options: &SwapOptions| {
        let image = UnseenImage { name: "my/train:1", distro, architecture: "amd64", user: None };
        let text = render_dockerfile(&plan_unseen(&image, fabric, options).unwrap());
        support::hadolint(&text);
        text
    };
    let jammy = render(&ERDMA, &Distro::of("ubuntu", "22.04"), &SwapOptions::default());
    assert_builds_everywhere(&jammy);
    let (head, rest) = jammy.split_once("RUN set -eu; \\\n").unwrap();
    let (_, steps) = rest.split_once("    # The swap of this image, step by step.\n").unwrap();
    insta::assert_snapshot!("unseen_ubuntu_22_04", format!("{head}RUN [functions]\n{steps}"));
    let inbox = SwapOptions { userspace: Some(Userspace::Inbox), ..SwapOptions::default() };
    for (fabric, options, expected) in [
        (&ERDMA, SwapOptions::default(), vec!["alinux 2", "alinux 3", "centos 7", "ubuntu 18.04", "ubuntu 24.04"]),
        (&ROCE, inbox, vec!["alinux 3", "rhel 8", "ubuntu 22.04"]),
    ] {
        let listed = listed_distros(fabric, "amd64", &options).unwrap();
        let names: Vec<String> = listed.iter().map(Distro::to_string).collect();
        assert!(expected.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
        for distro in &listed {
            let text = render(fabric, distro, &options);
            let (id, version) = (&distro.id, distro.version.as_deref().unwrap());
            assert!(text.contains(&format!("    expect_distro {id} {version}; ")), "{text}");
        }
    }
    let arm: Vec<String> =
        listed_distros(&ERDMA, "arm64", &SwapOptions::default()).unwrap().iter().map(Distro::to_string).collect();
    assert!(arm.contains(&"ubuntu 24.04".to_owned()) && !arm.contains(&"centos 7".to_owned()), "{arm:?}");
}
