//! The swap of an image of rpm packages on the real engine, with the real dnf and rpm: the vendor's yum repository is on
//! loopback, both builders build.

mod support;

use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;
use support::*;

const IMAGE: &str = "rdmaprep-test/rpm:latest";
const OFED: &str = "2307mlnx47-1.2310119";
const SWAPPED: [&str; 7] =
    ["libibumad", "libibverbs", "libibverbs-utils", "librdmacm", "librdmacm-utils", "rdma-core", "rdma-core-devel"];

/// Makes image and repository, once; `false`: the test says that it was skipped.
fn rpm_rig() -> bool {
    static RIG: OnceLock<Result<(), String>> = OnceLock::new();
    let made = RIG.get_or_init(|| {
        let engine = Command::new("docker").arg("version").output();
        if !engine.is_ok_and(|output| output.status.success()) {
            return Err("no Docker engine answers".to_owned());
        }
        for program in ["rpmbuild", "createrepo_c"] {
            if Command::new(program).arg("--version").output().is_err() {
                return Err(format!("{program} is not installed (tests/rig/deps.sh test)"));
            }
        }
        let output = Command::new(root().join("tests/rig/rpm.sh")).output().unwrap();
        assert!(output.status.success(), "rpm.sh: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    });
    if let Err(reason) = made {
        say_skipped(reason);
    }
    made.is_ok()
}

/// The command of a build from a directory below `yum/alinux/3` of the mirror.
fn build_from(base: &str, tag: &str, mirror: &Mirror, directory: &str) -> Command {
    let mut command = rdmaprep();
    command.args(["build", base, "-t", tag, "--network", "host", "--progress", "plain", "--no-cache"]);
    command.args(["--mirror", &mirror.address, "--suite", &format!("alinux/3/{directory}/x86_64")]);
    command
}

fn build(base: &str, tag: &str, mirror: &Mirror, more: &[&str]) -> Value {
    let ran = run(build_from(base, tag, mirror, "erdma").args(["--format", "json"]).args(more));
    serde_json::from_str(&ran.expect(0).stdout).unwrap()
}

fn in_container(image: &str, script: &str) -> String {
    must(
        "docker",
        &["run", "--rm", "--network", "host", "--user", "0", "--entrypoint", "/bin/sh", image, "-ec", script],
    )
}

fn names(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|change| change["package"].as_str().unwrap()).collect()
}

/// What the result must be, whichever builder made it. Cases A01 and A02.
fn assert_swapped(image: &str) {
    let installed = in_container(image, r"rpm -qa --qf '\n%{NAME} %{VERSION}-%{RELEASE}\n'");
    for name in SWAPPED {
        assert!(installed.contains(&format!("\n{name} 44.1-2\n")), "{name}:\n{installed}");
    }
    assert!(installed.contains("\nucx ") && !installed.contains("mlnx"), "{installed}");
    // The database holds together, and the files are those of the packages.
    in_container(image, "rpm -Va --nofiles; dnf check; rpm -V libibverbs librdmacm libibverbs-utils");
    let left = in_container(
        image,
        "ls /etc/yum.repos.d /etc/libibverbs.d /opt /tmp /var/cache; cat /etc/yum.repos.d/erdma.repo; rpm -q gpg-pubkey",
    );
    for gone in ["mlnx", "mellanox", "vmw_pvrdma_old", "tmp."] {
        assert!(!left.contains(gone), "{gone}: {left}");
    }
    assert!(left.contains("gpgcheck=1") && left.contains("erdma.driver") && left.contains("base.repo"), "{left}");
    let opened = in_container(
        image,
        "python3 -c 'import ctypes, glob; ctypes.CDLL(\"libibverbs.so.1\", mode=ctypes.RTLD_GLOBAL); \
         print([ctypes.CDLL(p) and p for p in glob.glob(\"/usr/lib64/libibverbs/liberdma-rdmav*.so\")])'",
    );
    assert_eq!(opened.trim(), "['/usr/lib64/libibverbs/liberdma-rdmav34.so']");
}

/// A later update must not bring another build in, though one with a higher version is offered.
fn assert_pinned(image: &str, mirror: &Mirror) {
    let later = mirror.address.replace("/erdma", "/more/later/");
    let said = in_container(
        image,
        &format!(
            "printf '[later]\\nname=later\\nbaseurl={later}\\ngpgcheck=0\\n' > /etc/yum.repos.d/base.repo; dnf -y upgrade; rpm -q libibverbs; \
             dnf -q list --showduplicates libibverbs"
        ),
    );
    assert!(said.contains("\nlibibverbs-44.1-2.x86_64\n"), "{said}");
    assert!(said.contains("48.0-1.el8"), "the test would show nothing if there were no other build: {said}");
}

#[test]
fn buildkit_swaps_an_image_of_rpm_packages() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let tag = image_names.unique("rpm-buildkit");
    let before = run(rdmaprep().args(["check", IMAGE]));
    before.expect(1).prints("FAIL     ofed-packages").prints("mlnx_ofed.repo").prints("rdmaprep build");
    let result = build(IMAGE, &tag, &mirror, &["--builder", "buildkit"]);
    assert_eq!(result["report"]["verdict"], "pass", "{}", result["report"]);
    let diff = &result["diff"];
    assert_eq!(names(&diff["lost"]), ["mlnx-ofed-basic-user-only"]);
    assert_eq!(names(&diff["changed"]), SWAPPED);
    assert_eq!(diff["changed"][0]["before"], OFED, "{diff}");
    // The key that signed the packages, which rpm keeps as one.
    assert_eq!(names(&diff["gained"]), ["gpg-pubkey"]);
    assert_swapped(&tag);
    assert_pinned(&tag, &mirror);
    run(rdmaprep().args(["check", &tag])).expect(0).prints("PASS for pai-dlc");
    // Case A13: the swap of a swapped image changes nothing.
    let again = image_names.unique("rpm-again");
    let result = build(&tag, &again, &mirror, &[]);
    for kind in ["lost", "gained", "changed"] {
        assert_eq!(result["diff"][kind].as_array().unwrap().len(), 0, "{kind}: {}", result["diff"]);
    }
    assert_swapped(&again);
}

#[test]
fn the_classic_builder_keeps_user_and_shell() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let base = image_names.unique("rpm-user");
    derive_image(
        &base,
        &format!(
            "FROM {IMAGE}\nRUN printf '[doca.1]\\nname=x\\nbaseurl=https://linux.mellanox.com/public/repo/doca/2.9/rhel8/x86_64/\\n\
             [mine]\\nname=x\\nbaseurl=http://127.0.0.1:1/\\nenabled=0\\n' > /etc/yum.repos.d/mixed.repo\n\
             SHELL [\"/bin/bash\", \"-c\"]\nENV LD_LIBRARY_PATH=/nowhere\nUSER 1000:1000\n"
        ),
    );
    let tag = image_names.unique("rpm-classic");
    build(&base, &tag, &mirror, &["--builder", "classic"]);
    assert_swapped(&tag);
    let config = |image: &str| -> Value {
        serde_json::from_str(&must("docker", &["image", "inspect", "--format", "{{json .Config}}", image])).unwrap()
    };
    for key in ["User", "Entrypoint", "Cmd", "Shell", "Env", "WorkingDir"] {
        assert_eq!(config(&base)[key], config(&tag)[key], "{key}");
    }
    // A file that others share loses OFED's section alone.
    let mixed = in_container(&tag, "cat /etc/yum.repos.d/mixed.repo");
    assert_eq!(mixed, "[mine]\nname=x\nbaseurl=http://127.0.0.1:1/\nenabled=0\n");
}

/// Case A13: MLNX_OFED 4's packages, of which one stands in the way of the new libibverbs.
#[test]
fn providers_of_their_own_give_way() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let base = image_names.unique("rpm-ofed4");
    let more = mirror.address.replace("/erdma", "/more/ofed4");
    derive_image(
        &base,
        &format!(
            "FROM {IMAGE}\nRUN rpm -e --nodeps {} mlnx-ofed-basic-user-only && cd /tmp && for p in libibverbs libmlx5; do \
             curl -fsSO {more}/$p-41mlnx1-OFED.4.9.3.0.0.49224.x86_64.rpm; done && rpm --force-debian -i lib*.rpm && rm lib*.rpm\n",
            SWAPPED.join(" ")
        ),
    );
    let tag = image_names.unique("rpm-ofed4-swapped");
    let result = build(&base, &tag, &mirror, &[]);
    assert_eq!(names(&result["diff"]["lost"]), ["libmlx5"]);
    assert_eq!(names(&result["diff"]["changed"]), ["libibverbs"]);
    let owner = in_container(&tag, "rpm -qf /usr/lib64/libmlx5.so.1; rpm -Va --nofiles");
    assert_eq!(owner.trim(), "libibverbs-44.1-2.x86_64");
}

/// Failures of the build, each with its cause, remedy and exit code, and no image.
#[test]
fn failed_builds_name_their_cause() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let tag = image_names.unique("rpm-failed");
    let other_key = rig_dir().join("repo-rpm/other-key.asc").display().to_string();
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/erdma", listener.local_addr().unwrap())
    };
    let cases: [(&str, Vec<&str>, &str, &str); 5] = [
        ("erdma", vec!["--key", &other_key], "is not signed by the key of the repository", "--key FILE"),
        ("unsigned", vec![], "is not signed by the key of the repository", "--no-gpg-check"),
        ("incomplete", vec![], "package librdmacm is not in", "use another one"),
        ("nothing", vec![], "there is no repository at", "--suite PATH"),
        ("dead", vec![], "cannot be reached", "--network host"),
    ];
    for builder in ["buildkit", "classic"] {
        for (directory, options, cause, remedy) in &cases {
            let mut command = build_from(IMAGE, &tag, &mirror, directory);
            if *directory == "dead" {
                command = rdmaprep();
                command.args(["build", IMAGE, "-t", &tag, "--network", "host", "--mirror", &dead]);
            }
            let ran = run(command.args(["--builder", builder]).args(options));
            assert_eq!(ran.code, Some(4), "{directory}, {builder}: {}", ran.stderr);
            ran.says(cause).says(remedy);
            assert!(must("docker", &["images", "-q", &tag]).is_empty(), "{directory}, {builder}");
        }
    }
    // Packages that nobody signed are taken when that is asked for, and only then.
    let ran = run(build_from(IMAGE, &tag, &mirror, "unsigned").arg("--no-gpg-check"));
    ran.expect(0).says("signatures are not checked");
    assert!(in_container(&tag, "cat /etc/yum.repos.d/erdma.repo").contains("gpgcheck=0"));
}

/// A package that only OFED's build satisfies: the swap is refused before anything is changed.
#[test]
fn a_package_that_needs_ofed_is_not_removed() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let base = image_names.unique("rpm-needs-ofed");
    let more = mirror.address.replace("/erdma", "/more");
    derive_image(
        &base,
        &format!(
            "FROM {IMAGE}\nRUN cd /tmp && curl -fsSO {more}/my-trainer-1-1.noarch.rpm && rpm --force-debian -i my-trainer* && rm my-trainer*\n"
        ),
    );
    let tag = image_names.unique("rpm-refused");
    let ran = run(&mut build_from(&base, &tag, &mirror, "erdma"));
    ran.expect(1).says("the swap would remove my-trainer, which is outside the RDMA set");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
}

/// A package that the image lacks: its own repositories are asked only then, and where they no longer answer another one
/// may stand in for them during the build.
#[test]
fn a_missing_dependency_comes_from_the_base_repository() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let tag = image_names.unique("rpm-needing");
    let ran = run(&mut build_from(IMAGE, &tag, &mirror, "needing"));
    ran.expect(4).says("nothing provides libnl3-extra").says("repositories are not reachable").says("--base-repo URL");
    let base = mirror.address.replace("/erdma", "/more/base/");
    let ran = run(build_from(IMAGE, &tag, &mirror, "needing").args(["--base-repo", &base]));
    // It belongs to the set of nobody, so that the diff shows it.
    ran.expect(0).prints("libnl3-extra");
    assert_swapped(&tag);
    let repos = in_container(&tag, "cat /etc/yum.repos.d/*.repo");
    assert!(!repos.contains("more/base"), "it was for the build alone: {repos}");
}

/// Podman's builder takes the same Dockerfile.
#[test]
fn buildah_builds_the_same_dockerfile() {
    if !rpm_rig() {
        return;
    }
    if Command::new("buildah").arg("--version").output().is_err() {
        return say_skipped("buildah is not installed (tests/rig/deps.sh test)");
    }
    let mirror = Mirror::of("repo-rpm");
    let dir = tempfile::tempdir().unwrap();
    let context = dir.path().join("context").display().to_string();
    run(rdmaprep().args(["render", IMAGE, "-o", &context, "--mirror", &mirror.address])).expect(0);
    let folder = |name: &str| dir.path().join(name).display().to_string();
    let store = ["--root", &folder("root"), "--runroot", &folder("run"), "--storage-driver", "vfs"].map(str::to_owned);
    let buildah = |args: &[&str]| {
        let all: Vec<&str> = store.iter().map(String::as_str).chain(args.iter().copied()).collect();
        must("buildah", &all)
    };
    buildah(&["pull", "-q", &format!("docker-daemon:{IMAGE}")]);
    let (isolation, network) = (["--isolation", "chroot"], ["--network", "host"]);
    buildah(&[&["bud", "-q"], &isolation[..], &network, &["--pull-never", "-t", "swapped", &context]].concat());
    let container = buildah(&["from", "--pull-never", "localhost/swapped"]);
    let versions = buildah(
        &[&["run"], &isolation[..], &[container.trim(), "--", "rpm", "-q", "libibverbs", "librdmacm"]].concat(),
    );
    assert_eq!(versions, "libibverbs-44.1-2.x86_64\nlibrdmacm-44.1-2.x86_64\n");
}
