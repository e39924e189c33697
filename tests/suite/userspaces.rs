//! Whose packages come in, on the real engine: each Ubuntu that the vendor lists, package files without a network, the
//! distribution's own, DOCA's, and none at all.

use crate::support;
use crate::support::schema;

use schema::{assert_valid, validator};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::*;

/// Also the images that say of themselves that they are Ubuntu's.
fn ubuntu_rig() -> bool {
    if !rig() {
        return false;
    }
    let output = Command::new(root().join("tests/rig/ubuntu.sh")).output().unwrap();
    assert!(output.status.success(), "ubuntu.sh: {}", String::from_utf8_lossy(&output.stderr));
    true
}

fn build(base: &str, tag: &str, more: &[&str]) -> Ran {
    run(rdmaprep().args(["build", base, "-t", tag, "--format", "json", "--progress", "plain", "--no-cache"]).args(more))
}

#[track_caller]
fn result_of(ran: &Ran) -> Value {
    let result = serde_json::from_str(&ran.expect(0).stdout).unwrap();
    assert_valid(&validator("schemas/build.schema.json"), &result, "build.schema.json");
    result
}

fn in_container(image: &str, script: &str) -> String {
    must(
        "docker",
        &["run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "/bin/sh", image, "-ec", script],
    )
}

fn versions(image: &str) -> String {
    in_container(image, r"dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' | sort")
}

fn label(image: &str, name: &str) -> String {
    let format = format!("{{{{index .Config.Labels {name:?}}}}}");
    must("docker", &["image", "inspect", "-f", &format, image]).trim().to_owned()
}

/// The names of a change's packages.
fn changed(result: &Value, kind: &str) -> Vec<String> {
    let list = result["diff"][kind].as_array().unwrap();
    list.iter().map(|change| change["package"].as_str().unwrap().to_owned()).collect()
}

/// What holds whatever the packages are: nothing broken, no Mellanox source, and who needed the libraries still has them.
#[track_caller]
fn assert_whole(image: &str) {
    let said = in_container(
        image,
        "apt-get check > /dev/null; dpkg --audit; ls /etc/apt/sources.list.d /tmp /var/tmp /var/lib/apt/lists",
    );
    assert!(!said.contains("mellanox"), "{said}");
    assert!(!said.contains("rdmaprep") && !said.contains(".deb"), "{said}");
    let versions = versions(image);
    for name in ["openmpi-bin ", "libopenmpi3 ", "libucx0 ", "libfabric1 "] {
        assert!(versions.contains(&format!("\n{name}")), "{name}:\n{versions}");
    }
}

/// Nobody says a suite: the distribution does.
#[test]
fn each_ubuntu_by_its_name() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    for (version, codename, rdmacm) in [
        ("18.04", "bionic", "librdmacm1"),
        ("20.04", "focal", "librdmacm1"),
        ("22.04", "jammy", "librdmacm1"),
        ("24.04", "noble", "librdmacm1t64"),
    ] {
        let base = format!("rdmaprep-test/ubuntu:{version}");
        let tag = names.unique(&format!("ubuntu-{codename}"));
        let result =
            result_of(&build(&base, &tag, &["--target", "ecs", "--mirror", &mirror.address, "--network", "host"]));
        // NCCL and CUDA are not in this image: the userspace is what is judged.
        let verdict = run(rdmaprep().args(["check", "--target", "ecs", "--all", &tag]));
        verdict.expect(0).prints("PASS for ecs").prints(&format!("pass     distro-listed        Ubuntu {version} LTS"));
        verdict.prints("liberdma-rdmav34.so").prints("is pinned to the vendor's repository");
        assert!(
            changed(&result, "lost").iter().all(|name| name == "mlnx-ofed-basic-user-only" || name == "librdmacm1")
        );
        let versions = versions(&tag);
        for name in ["libibverbs1", "ibverbs-providers", "ibverbs-utils", rdmacm, "libibverbs-dev", "librdmacm-dev"] {
            assert!(versions.contains(&format!("\n{name} 44.1-2 installed\n")), "{version}, {name}:\n{versions}");
        }
        assert!(!versions.contains("mlnx"), "{version}:\n{versions}");
        assert_whole(&tag);
        let source = in_container(&tag, "cat /etc/apt/sources.list.d/erdma.list");
        let suite = format!("{}/apt/ubuntu {codename}/erdma", mirror.address);
        assert_eq!(source.trim(), format!("deb [arch=amd64 signed-by=/etc/apt/keyrings/erdma.asc] {suite} main"));
        assert_eq!(label(&tag, "rdmaprep.packages"), suite);
        let policy = in_container(&tag, &format!("apt-cache policy libibverbs1 {rdmacm}"));
        assert_eq!(policy.matches("Candidate: 44.1-2").count(), 2, "{policy}");
    }
}

/// Renders with these options for an image, and without a look at it; the outcomes are the same.
#[track_caller]
fn assert_same_unseen(names: &mut Names, base: &str, distro: &str, options: &[&str], user: Option<&str>) {
    let render = |which: &[&str]| {
        run(rdmaprep().args(["render", "--target", "ecs"]).args(options).args(which)).expect(0).stdout.clone()
    };
    let (planned, unseen) = (names.unique("planned"), names.unique("unseen"));
    derive_image(&planned, &render(&[base]));
    let mut which = vec!["--distro", distro, "--base", base];
    which.extend(user.iter().flat_map(|user| ["--user", *user]));
    derive_image(&unseen, &render(&which));
    assert_same_outcome([&planned, &unseen], &["var/log", "var/cache"]);
    for image in [planned, unseen] {
        must("docker", &["rmi", &image]);
    }
}

/// A Dockerfile that was written without a look at the image has the outcome of the one that was planned from its facts: on
/// two images of the rig, or on each of them (`make oracles`).
#[test]
fn images_that_were_not_looked_at() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let by_name = ["--mirror", &mirror.address];
    let by_suite = ["--mirror", &mirror.address, "--suite", "bookworm/erdma"];
    let images = [
        (BASE, "debian:12", by_suite.as_slice()),
        ("rdmaprep-test/debian:12", "debian:12", &by_suite),
        (OFED, "debian:12", &by_suite),
        ("rdmaprep-test/ubuntu:18.04", "ubuntu:18.04", &by_name),
        ("rdmaprep-test/ubuntu:20.04", "ubuntu:20.04", &by_name),
        ("rdmaprep-test/ubuntu:22.04", "ubuntu:22.04", &by_name),
        ("rdmaprep-test/ubuntu:24.04", "ubuntu:24.04", &by_name),
    ];
    for (base, distro, options) in images.into_iter().take(rounds(2) as usize) {
        assert_same_unseen(&mut names, base, distro, options, None);
    }
}

/// An image in which much was left, and whose user is not root, has the same outcome, too.
#[test]
fn what_an_image_that_was_not_looked_at_has_left() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let base = names.unique("unseen-base");
    let steps = "printf 'deb http://127.0.0.1:1/mine x main\\ndeb [trusted=yes] https://linux.mellanox.com/public/repo ./\\n' \
                 > /etc/apt/sources.list.d/mixed.list; echo mellanox > /etc/apt/trusted.gpg.d/mine.asc; \
                 apt-mark hold libibverbs1 mlnx-ofed-basic-user-only; mkdir -p /usr/local/ofed/5.8 /opt/MLNX_OFED_LINUX-5.8; \
                 touch /usr/local/ofed/5.8/x; echo /usr/local/ofed/5.8 > /etc/ld.so.conf.d/ofed.conf; \
                 mkdir -p /etc/apt/keyrings; touch /etc/apt/keyrings/erdma.asc; \
                 echo 'deb [signed-by=/etc/apt/keyrings/erdma.asc] http://127.0.0.1:1/erdma/apt/ubuntu x main' > /etc/apt/sources.list.d/erdma.list";
    derive_image(
        &base,
        &format!("FROM rdmaprep-test/ubuntu:24.04\nRUN {steps}\nSHELL [\"/bin/bash\", \"-c\"]\nUSER 1000:1000\n"),
    );
    let options = ["--mirror", &mirror.address, "--package", "perftest"];
    let shell = format!("{base}-sh");
    // The shell is what nobody can know of it.
    derive_image(&shell, &format!("FROM {base}\nSHELL [\"/bin/sh\", \"-c\"]\n"));
    assert_same_unseen(&mut names, &shell, "ubuntu:24.04", &options, Some("1000:1000"));
    must("docker", &["rmi", &shell]);
    for (distro, base, code) in [
        (
            "ubuntu:22.04",
            "rdmaprep-test/ubuntu:24.04",
            "]: this Dockerfile is for ubuntu 22.04, and the base image is ubuntu 24.04",
        ),
        ("ubuntu:24.04", &base, "]: the base image does not run as root: write this Dockerfile with --user 1000"),
        ("alinux:3", "rdmaprep-test/ubuntu:24.04", "rdmaprep[no-manager]: of package managers the base image has"),
    ] {
        let ran = run(rdmaprep().args(["render", "--mirror", &mirror.address, "--distro", distro, "--base", base]));
        let said = refused_build(&ran.expect(0).stdout);
        assert!(said.contains(code), "{distro}: {said}");
    }
}

/// Ubuntu 24.04 has librdmacm1 under another name, and the vendor's repository may have either: OFED's librdmacm1 → the new
/// name → the old name. Both have the same files, so one of them goes.
#[test]
fn either_name_of_librdmacm() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let plain = format!("{}-plain", mirror.address);
    let mut base = "rdmaprep-test/ubuntu:24.04".to_owned();
    for (round, (address, here, gone)) in [
        (&plain, "librdmacm1 ", "librdmacm1t64 "),
        (&mirror.address, "librdmacm1t64 ", "librdmacm1 "),
        (&plain, "librdmacm1 ", "librdmacm1t64 "),
    ]
    .into_iter()
    .enumerate()
    {
        let tag = names.unique(&format!("noble-{round}"));
        result_of(&build(&base, &tag, &["--target", "ecs", "--mirror", address, "--network", "host"]));
        let versions = versions(&tag);
        assert!(versions.contains(&format!("\n{here}44.1-2 installed\n")), "{versions}");
        assert!(!versions.contains(&format!("\n{gone}")), "{versions}");
        assert_whole(&tag);
        base = tag;
    }
}

/// Copies the vendor's packages of these names.
fn some_debs(directory: &Path, names: &[&str]) {
    for name in names {
        let file = format!("{name}_44.1-2_amd64.deb");
        std::fs::copy(rig_dir().join("debs/vendor").join(&file), directory.join(&file)).unwrap();
    }
}

const FOUR: [&str; 4] = ["libibverbs1", "ibverbs-providers", "ibverbs-utils", "librdmacm1"];

/// Package files alone, with both builders: the build has no network, and nothing of a source stays.
#[test]
fn package_files_without_a_network() {
    if !ubuntu_rig() {
        return;
    }
    let (dir, mut names) = (tempfile::tempdir().unwrap(), Names::new());
    some_debs(dir.path(), &FOUR);
    some_debs(
        dir.path(),
        &["libibverbs-dev", "librdmacm-dev", "rdma-core", "rdmacm-utils", "libibumad3", "libibumad-dev"],
    );
    std::fs::write(dir.path().join("README"), "no package").unwrap();
    let from = dir.path().display().to_string();
    for builder in ["buildkit", "classic"] {
        let tag = names.unique(&format!("offline-{builder}"));
        let ran =
            build("rdmaprep-test/ubuntu:22.04", &tag, &["--target", "ecs", "--builder", builder, "--offline", &from]);
        let result = result_of(&ran);
        assert_eq!(changed(&result, "lost"), ["mlnx-ofed-basic-user-only"]);
        assert_eq!(changed(&result, "changed").len(), 10);
        assert!(!ran.stderr.contains("http://"), "something was to be fetched: {}", ran.stderr);
        assert_whole(&tag);
        let policy = in_container(
            &tag,
            "apt-cache policy libibverbs1; ls /etc/apt/sources.list.d /etc/apt/keyrings; cat /etc/apt/preferences.d/erdma",
        );
        assert!(policy.contains("Package: libibverbs1\nPin: version 44.1-2\n"), "{policy}");
        assert!(!policy.contains("erdma.list") && !policy.contains("erdma.asc"), "{policy}");
        assert_eq!(label(&tag, "rdmaprep.packages"), "package files in the build context");
    }
    // What a network would have shown: the same Dockerfile asks for one in no line.
    let out = dir.path().join("out").display().to_string();
    run(rdmaprep().args(["render", "rdmaprep-test/ubuntu:22.04", "--offline", &from, "-o", &out])).expect(0);
    let text = std::fs::read_to_string(format!("{out}/Dockerfile")).unwrap();
    for fetching in ["apt-get update", "apt-get download", "http", "sources.list.d/erdma"] {
        assert!(!text.contains(fetching), "{fetching}:\n{text}");
    }
    let copied = std::fs::read(format!("{out}/packages/libibverbs1_44.1-2_amd64.deb")).unwrap();
    assert_eq!(copied, std::fs::read(dir.path().join("libibverbs1_44.1-2_amd64.deb")).unwrap());
}

/// Companions without a file: what pins a swapped library goes, what is OFED's goes, and dependents stay.
#[test]
fn four_package_files_are_enough() {
    if !ubuntu_rig() {
        return;
    }
    let (dir, mut names) = (tempfile::tempdir().unwrap(), Names::new());
    some_debs(dir.path(), &FOUR);
    // A package without checksums of its files, as few builders make it.
    let (deb, tree) = (dir.path().join("ibverbs-utils_44.1-2_amd64.deb"), dir.path().join("tree"));
    let (deb, tree) = (deb.display().to_string(), tree.display().to_string());
    must("dpkg-deb", &["-R", &deb, &tree]);
    std::fs::remove_file(format!("{tree}/DEBIAN/md5sums")).unwrap();
    must("dpkg-deb", &["-b", &tree, &deb]);
    let tag = names.unique("offline-four");
    let from = dir.path().display().to_string();
    let result = result_of(&build("rdmaprep-test/ubuntu:22.04", &tag, &["--target", "ecs", "--offline", &from]));
    let lost = changed(&result, "lost");
    for name in ["libibverbs-dev", "librdmacm-dev", "mlnx-ofed-basic-user-only"] {
        assert!(lost.iter().any(|lost| lost == name), "{lost:?}");
    }
    assert!(!versions(&tag).contains("mlnx"));
    assert_whole(&tag);
}

/// What neither image nor directory has is named before anything is built; what the directory has comes along.
#[test]
fn dependencies_of_package_files() {
    if !ubuntu_rig() {
        return;
    }
    let (dir, mut names) = (tempfile::tempdir().unwrap(), Names::new());
    let tag = names.unique("offline-dependencies");
    let from = dir.path().display().to_string();
    let bare = names.unique("bare");
    derive_image(&bare, "FROM rdmaprep-test/debian:12\nRUN sed -i s/^ID=debian/ID=ubuntu/ /usr/lib/os-release\n");
    run(rdmaprep().args(["render", &bare, "--offline", &from])).expect(2).says("it contains no .deb or .rpm file");
    some_debs(dir.path(), &["libibverbs1", "ibverbs-providers", "ibverbs-utils"]);
    std::fs::write(dir.path().join("librdmacm1_44.1-2_amd64.deb"), "<html>404</html>").unwrap();
    std::os::unix::fs::symlink("/nowhere/x.deb", dir.path().join("librdmacm1t64_44.1-2_amd64.deb")).unwrap();
    let incomplete = build(&bare, &tag, &["--target", "ecs", "--offline", &from]);
    incomplete
        .expect(2)
        .says("missing: package librdmacm1 or librdmacm1t64")
        .says("unusable: librdmacm1_44.1-2_amd64.deb: it is not a package file")
        .says("unusable: librdmacm1t64_44.1-2_amd64.deb: reading it: No such file or directory");
    std::fs::remove_file(dir.path().join("librdmacm1t64_44.1-2_amd64.deb")).unwrap();
    some_debs(dir.path(), &["librdmacm1"]);
    let lacking = build(&bare, &tag, &["--target", "ecs", "--offline", &from]);
    lacking
        .expect(2)
        .says(&format!("{from}: it lacks packages that the swap needs"))
        .says("missing: libnl-3-200 (>= 3.2.7) for")
        .says("(is not in the image)");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
    let fetched = Command::new("apt-get")
        .args([
            "download",
            "-qq",
            "-o",
            "APT::Sandbox::User=root",
            "libnl-3-200/bookworm",
            "libnl-route-3-200/bookworm",
        ])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(fetched.success());
    let result = result_of(&build(&bare, &tag, &["--target", "ecs", "--offline", &from]));
    let mut gained = changed(&result, "gained");
    gained.sort();
    assert_eq!(
        gained,
        ["ibverbs-providers", "ibverbs-utils", "libibverbs1", "libnl-3-200", "libnl-route-3-200", "librdmacm1"]
    );
    let pins = in_container(&tag, "cat /etc/apt/preferences.d/erdma");
    assert!(pins.contains("Package: libibverbs1\n") && !pins.contains("libnl"), "{pins}");
    // What was written beside an older set of files takes its own, and nothing else that lies there.
    let out = dir.path().join("out").display().to_string();
    std::fs::create_dir_all(format!("{out}/packages")).unwrap();
    std::fs::write(format!("{out}/packages/libibverbs1_1.0-1_amd64.deb"), "a former one").unwrap();
    run(rdmaprep().args(["render", &bare, "--offline", &from, "-o", &out])).expect(0);
    let written = names.unique("offline-written");
    let built = || {
        let mut docker = Command::new("docker");
        docker.args(["build", "-q", "--force-rm", "--network", "none", "-t", &written, &out]);
        docker.env("DOCKER_BUILDKIT", "0");
        docker.output().unwrap()
    };
    let output = built();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A file that is gone is named before anything is changed.
    for entry in std::fs::read_dir(format!("{out}/packages")).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("libnl-3-200") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let output = built();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("packages/libnl-3-200_"), "{said}");
}

/// RoCE: what is right stays, layer by layer, and still gets its name.
#[test]
fn a_sound_userspace_is_kept() {
    if !rig() {
        return;
    }
    let mut names = Names::new();
    let tag = names.unique("kept");
    let ran = build(OFED, &tag, &["--target", "cce"]);
    ran.says("the image's userspace is right for RoCE on mlx5 (libibverbs1 2307mlnx47-1.2310119): it is kept");
    let result = result_of(&ran);
    assert_eq!((result["userspace"].as_str(), result["report"]["verdict"].as_str()), (Some("keep"), Some("pass")));
    let layers = |image: &str| must("docker", &["image", "inspect", "-f", "{{json .RootFS.Layers}}", image]);
    assert_eq!(layers(OFED), layers(&tag));
    assert_eq!(label(&tag, "rdmaprep.fabric"), "roce");
    // Two builds in one image do not work together, so there is nothing to keep.
    let mixed = names.unique("mixed");
    let context = tempfile::tempdir().unwrap();
    some_debs(context.path(), &["ibverbs-providers"]);
    std::fs::write(
        context.path().join("Dockerfile"),
        format!("FROM {OFED}\nCOPY *.deb /p/\nRUN dpkg -i --force-downgrade /p/*.deb && rm -r /p\n"),
    )
    .unwrap();
    let path = context.path().display().to_string();
    let made = Command::new("docker")
        .args(["build", "-q", "--network", "none", "-t", &mixed, &path])
        .env("DOCKER_BUILDKIT", "0")
        .output();
    assert!(made.unwrap().status.success());
    run(rdmaprep().args(["check", "--target", "cce", &mixed]))
        .expect(1)
        .prints("FAIL     rdma-one-build")
        .prints("libibverbs1 is 2307mlnx47-1.2310119 and ibverbs-providers is 44.1-2");
    build(&mixed, &tag, &["--target", "cce", "--userspace", "keep"]).expect(1).says(
        "the image's own userspace cannot be kept: libibverbs1 is 2307mlnx47-1.2310119 and ibverbs-providers is 44.1-2",
    );
}

/// RoCE: the distribution's own packages in place of OFED's, and where there were none.
#[test]
fn the_distributions_own_packages() {
    if !rig() {
        return;
    }
    let mut names = Names::new();
    let swapped = names.unique("inbox");
    let result = result_of(&build(OFED, &swapped, &["--target", "cce", "--userspace", "inbox", "--network", "host"]));
    assert_eq!(result["userspace"], "inbox");
    assert_eq!(changed(&result, "lost"), ["mlnx-ofed-basic-user-only"]);
    assert!(!versions(&swapped).contains("mlnx"));
    assert_whole(&swapped);
    assert_eq!(label(&swapped, "rdmaprep.packages"), "the apt sources of the image");
    run(rdmaprep().args(["check", "--target", "cce", "--all", &swapped])).expect(0).prints("libmlx5-rdmav34.so");
    // The distribution's updates stay open to it.
    assert_eq!(in_container(&swapped, "ls /etc/apt/preferences.d | wc -l").trim(), "0");

    let fresh = names.unique("fresh");
    let result = result_of(&build("rdmaprep-test/debian:12", &fresh, &["--target", "cce", "--network", "host"]));
    assert_eq!(result["userspace"], "inbox", "nothing is there to be kept");
    let again = names.unique("fresh-again");
    assert_eq!(result_of(&build(&fresh, &again, &["--target", "cce"]))["userspace"], "keep");
}

/// A swap to eRDMA's packages is undone, from whatever mirror they came: they, their source, key and pins are the other
/// fabric's. A third-party source that apt rejects is not a reason to give up.
#[test]
fn a_former_swap_is_undone() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let (erdma, broken, back) = (names.unique("to-erdma"), names.unique("to-erdma-broken"), names.unique("back"));
    let plain = format!("{}-plain", mirror.address);
    let base = "rdmaprep-test/ubuntu:24.04";
    result_of(&build(base, &erdma, &["--target", "ecs", "--mirror", &plain, "--network", "host"]));
    derive_image(
        &broken,
        &format!(
            "FROM {erdma}\nRUN printf 'Package: libibverbs1\\nPin: version 1.0-1\\nPin-Priority: 1001\\n' > /etc/apt/preferences.d/mlx5 \
             && echo 'deb {plain}/apt/ubuntu noble/erdma main' > /etc/apt/sources.list.d/unsigned.list\n"
        ),
    );
    let inbox = ["--target", "cce", "--userspace", "inbox"];
    let on_host = [&inbox[..], &["--network", "host"]].concat();
    let ran = build(&broken, &back, &on_host);
    ran.says("NO_PUBKEY").says("an apt source of the image cannot be used; going on without it");
    result_of(&ran);
    let left = in_container(
        &back,
        "ls /etc/apt/preferences.d /etc/apt/sources.list.d /etc/apt/keyrings; dpkg-query -W libibverbs1",
    );
    for gone in ["erdma", "mlx5", "44.1-2"] {
        assert!(!left.contains(gone), "{gone}: {left}");
    }
    assert!(left.contains("unsigned.list"), "{left}");
    // Neither a missing network nor a name that nobody knows is the image's fault.
    let tag = names.unique("back-refused");
    build(&erdma, &tag, &[&inbox[..], &["--network", "none"]].concat())
        .expect(4)
        .says("the image's own apt sources are not reachable")
        .says("--network host");
    build(&erdma, &tag, &[&on_host[..], &["--package", "perftets"]].concat())
        .expect(2)
        .says("no repository has a requested package: Unable to locate package perftets")
        .says("--package");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
}

/// What images have that gets in apt's way, all at once: a folder for temporary files that is made at run time, a release by
/// default, another language, a line that apt cannot read, no folder for sources, packages of another architecture on hold,
/// complaints of dpkg's from before, and a perftest of OFED's.
#[test]
fn what_images_have_that_gets_in_the_way() {
    if !rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let (base, tag) = (names.unique("in-the-way-base"), names.unique("in-the-way"));
    let context = tempfile::tempdir().unwrap();
    let made = |name: &str, version: &str, architecture: &str, more: &str| {
        let tree = context.path().join(format!("{name}-{architecture}"));
        std::fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: x <x@y.invalid>\nDescription: x\n{more}"
        );
        std::fs::write(tree.join("DEBIAN/control"), control).unwrap();
        let deb = context.path().join(format!("{name}_{architecture}.deb"));
        must("dpkg-deb", &["-b", &tree.display().to_string(), &deb.display().to_string()]);
        std::fs::remove_dir_all(tree).unwrap();
    };
    made("libibverbs1", "2307mlnx47-1.2310119", "i386", "Multi-Arch: same\nSource: rdma-core\n");
    made("perftest", "23.10.0-0.29.2310119mlnx", "amd64", "");
    made("half-made", "1", "all", "");
    std::fs::write(
        context.path().join("Dockerfile"),
        format!(
            "FROM {OFED}\nCOPY *.deb /p/\n\
             RUN dpkg --add-architecture i386 && dpkg -i --force-depends /p/*.deb && rm -r /p && apt-mark hold libibverbs1:i386 \
             && rm /var/lib/dpkg/info/half-made.list /var/lib/dpkg/info/half-made.md5sums \
             && echo 'APT::Default-Release \"stable\";' > /etc/apt/apt.conf.d/99release \
             && rm -rf /etc/apt/sources.list.d /etc/apt/preferences.d && echo 'deb nonsense' >> /etc/apt/sources.list\n\
             ENV TMPDIR=/scratch/tmp LANG=zh_CN.UTF-8 LANGUAGE=zh_CN\n"
        ),
    )
    .unwrap();
    let path = context.path().display().to_string();
    let output = Command::new("docker").args(["build", "-q", "-t", &base, &path]).env("DOCKER_BUILDKIT", "0").output();
    assert!(output.as_ref().unwrap().status.success(), "{output:?}");
    assert!(in_container(&base, "dpkg --audit").contains("half-made"), "the test would show nothing without it");
    let on_mirror = [&["--target", "ecs"][..], &mirror.options()].concat();
    let ran = build(&base, &tag, &on_mirror);
    ran.says("the apt sources of the image cannot be read; going on without them");
    let result = result_of(&ran);
    let mut lost = changed(&result, "lost");
    lost.sort();
    assert_eq!(lost, ["libibverbs1:i386", "mlnx-ofed-basic-user-only", "perftest"]);
    let now = versions(&tag);
    assert!(now.contains("\nlibibverbs1 44.1-2 installed\n") && !now.contains("mlnx"), "{now}");
    let refused = names.unique("in-the-way-refused");
    let typo = build(&base, &refused, &[&on_mirror[..], &["--package", "perftets"]].concat());
    typo.expect(1).says("an apt source of the image cannot be used, and a package is missing without it");
    // OFED's build is not what was asked for, whether there is another or not.
    let asked = build(&base, &refused, &[&on_mirror[..], &["--package", "perftest"]].concat());
    asked.expect(2).says("package perftest is in no repository but Mellanox's").says("--package");
    let mended = names.unique("in-the-way-mended");
    derive_image(&mended, &format!("FROM {base}\nRUN sed -i /nonsense/d /etc/apt/sources.list\n"));
    let with = names.unique("in-the-way-perftest");
    let result = result_of(&build(&mended, &with, &[&on_mirror[..], &["--package", "perftest"]].concat()));
    assert!(changed(&result, "changed").contains(&"perftest".to_owned()), "{}", result["diff"]);
    assert!(!versions(&with).contains("mlnx"));
    // Without a network a package that would go is not there, either.
    let files = tempfile::tempdir().unwrap();
    some_debs(files.path(), &FOUR);
    let offline = ["--target", "ecs", "--offline", &files.path().display().to_string()].map(str::to_owned);
    let offline: Vec<&str> = offline.iter().map(String::as_str).collect();
    for package in ["perftest", "rdmacm-utils"] {
        let ran = build(&base, &refused, &[&offline[..], &["--package", package]].concat());
        ran.expect(2).says(&format!("missing: package {package}\n"));
    }
    assert!(must("docker", &["images", "-q", &refused]).is_empty());
}

/// RoCE: NVIDIA's repository, with its layout and a key of its own.
#[test]
fn docas_packages() {
    if !ubuntu_rig() {
        return;
    }
    let (mirror, mut names) = (Mirror::start(), Names::new());
    let doca = mirror.address.replace("/erdma", "/doca");
    let options = ["--target", "cce", "--userspace", "doca", "--mirror", &doca, "--network", "host"];
    let tag = names.unique("doca");
    let base = "rdmaprep-test/ubuntu:22.04";
    build(base, &tag, &options).expect(2).says("name one with --doca-version");
    let version = ["--doca-version", "2.10.0"];
    let result = result_of(&build(base, &tag, &[&options[..], &version].concat()));
    assert_eq!(result["report"]["verdict"], "pass");
    let now = versions(&tag);
    for name in ["libibverbs1", "ibverbs-providers", "ibverbs-utils", "librdmacm1", "libibverbs-dev", "rdma-core"] {
        assert!(now.contains(&format!("\n{name} 2410mlnx54-1.2410068 installed\n")), "{name}:\n{now}");
    }
    assert!(!now.contains("2307mlnx47"), "{now}");
    let source = in_container(
        &tag,
        "ls /etc/apt/sources.list.d; cat /etc/apt/sources.list.d/doca.list; ls /etc/apt/preferences.d",
    );
    assert!(
        source.contains(&format!("signed-by=/etc/apt/keyrings/doca.asc] {doca}/2.10.0/ubuntu22.04/x86_64 ./\n")),
        "{source}"
    );
    assert!(!source.contains("mellanox_mlnx_ofed.list") && source.ends_with("doca\n"), "{source}");
    // The same again, with the key as a file and the whole userspace.
    let again = names.unique("doca-again");
    let key = rig_dir().join("repo/doca/GPG-KEY-Mellanox.pub").display().to_string();
    let more = ["--key", &key, "--package", "doca-ofed-userspace"];
    let result = result_of(&build(&tag, &again, &[&options[..], &version, &more].concat()));
    assert_eq!(changed(&result, "gained"), ["doca-ofed-userspace"]);
    assert_eq!(changed(&result, "lost"), Vec::<String>::new());
    // Another's signature.
    let key = rig_dir().join("other-key.asc").display().to_string();
    build(base, &names.unique("doca-key"), &[&options[..], &version, &["--key", &key]].concat())
        .expect(2)
        .says("the key does not match the repository's signature");
}
