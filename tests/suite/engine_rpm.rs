//! The swap of an image of rpm packages on the real engine, with the real dnf and rpm: the vendor's yum repository is on
//! loopback, both builders build.

use crate::support;

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

/// A Dockerfile that was written without a look at the image has the outcome of the one that was planned from its facts.
#[test]
fn an_image_that_was_not_looked_at() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let base = image_names.unique("rpm-unseen-base");
    let steps = "printf '[doca.1]\\nname=x\\nbaseurl=https://linux.mellanox.com/public/repo/doca/2.9/rhel8/x86_64/\\n\
                 [mine]\\nname=x\\nbaseurl=http://127.0.0.1:1/\\nenabled=0\\n' > /etc/yum.repos.d/mixed.repo; \
                 mkdir -p /etc/dnf/plugins; echo 'libibverbs-0:1.0-1.*' > /etc/dnf/plugins/versionlock.list";
    derive_image(&base, &format!("FROM {IMAGE}\nRUN {steps}\nUSER 1000:1000\n"));
    let render = |more: &[&str]| {
        let mut command = rdmaprep();
        command.args(["render", "--mirror", &mirror.address]);
        run(command.args(more)).expect(0).stdout.clone()
    };
    let (planned, unseen) = (image_names.unique("rpm-planned"), image_names.unique("rpm-unseen"));
    derive_image(&planned, &render(&[&base]));
    derive_image(&unseen, &render(&["--distro", "alinux:3", "--base", &base, "--user", "1000:1000"]));
    assert_swapped(&unseen);
    // Databases and logs differ between two builds of one Dockerfile.
    assert_same_outcome([&planned, &unseen], &["var/log", "var/cache", "var/lib/dnf", "var/lib/rpm"]);
    let packages = |image: &str| in_container(image, "rpm -qa --qf '%{NAME} %{EVR} %{ARCH} %{SIGMD5}\\n' | sort");
    assert_eq!(packages(&planned), packages(&unseen));
    // What it refuses: another distribution, and a package that needs OFED's build.
    let said = refused_build(&render(&["--distro", "centos:8", "--base", IMAGE]));
    assert!(
        said.contains("rdmaprep[other-distribution]: this Dockerfile is for centos 8, and the base image is alinux 3"),
        "{said}"
    );
    let more = mirror.address.replace("/erdma", "/more");
    let needing = image_names.unique("rpm-unseen-needing");
    derive_image(
        &needing,
        &format!(
            "FROM {IMAGE}\nRUN cd /tmp && curl -fsSO {more}/my-trainer-1-1.noarch.rpm && rpm --force-debian -i my-trainer* && rm my-trainer*\n"
        ),
    );
    let said = refused_build(&render(&["--distro", "alinux:3", "--base", &needing]));
    assert!(said.contains("]: the swap would remove my-trainer, which is outside the RDMA set"), "{said}");
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
    // A key or a directory that does not fit was asked for; the rest is the mirror's fault.
    let cases: [(&str, Vec<&str>, &str, &str, i32); 5] = [
        ("erdma", vec!["--key", &other_key], "is not signed by the key of the repository", "--key FILE", 2),
        ("unsigned", vec![], "is not signed by the key of the repository", "--no-gpg-check", 2),
        ("incomplete", vec![], "package librdmacm is not in", "use another one", 4),
        ("nothing", vec![], "there is no repository at", "--suite PATH", 2),
        ("dead", vec![], "cannot be reached", "--network host", 4),
    ];
    for builder in ["buildkit", "classic"] {
        for (directory, options, cause, remedy, code) in &cases {
            let mut command = build_from(IMAGE, &tag, &mirror, directory);
            if *directory == "dead" {
                command = rdmaprep();
                command.args(["build", IMAGE, "-t", &tag, "--network", "host", "--mirror", &dead]);
            }
            let ran = run(command.args(["--builder", builder]).args(options));
            assert_eq!(ran.code, Some(*code), "{directory}, {builder}: {}", ran.stderr);
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

/// A further package that the vendor's repository does not have: it comes from the others, or the build fails.
#[test]
fn further_packages_are_asked_for_everywhere() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let tag = image_names.unique("rpm-further");
    let further = ["--package", "libnl3-extra"];
    run(build_from(IMAGE, &tag, &mirror, "erdma").args(further)).expect(4).says("--base-repo URL");
    let base = mirror.address.replace("/erdma", "/more/base/");
    let from_base = ["--base-repo", &base];
    run(build_from(IMAGE, &tag, &mirror, "erdma").args(from_base).args(["--package", "perftets"]))
        .expect(2)
        .says("no repository has a requested package: package perftets is in no repository")
        .says("--package");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
    run(build_from(IMAGE, &tag, &mirror, "erdma").args(from_base).args(further)).expect(0).prints("libnl3-extra");
    assert_eq!(in_container(&tag, "rpm -q libnl3-extra"), "libnl3-extra-1-1.noarch\n");
    // Without a network only what stays is there.
    let files = tempfile::tempdir().unwrap();
    offline_files(files.path());
    std::fs::remove_file(files.path().join("librdmacm-utils-44.1-2.x86_64.rpm")).unwrap();
    let mut offline = rdmaprep();
    offline.args(["build", IMAGE, "-t", &image_names.unique("rpm-further-offline"), "--package", "librdmacm-utils"]);
    run(offline.args(["--offline", &files.path().display().to_string()]))
        .expect(2)
        .says("missing: package librdmacm-utils\n");
    assert_swapped(&tag);
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

/// Makes a package without files: `NAME.ARCH.rpm`.
fn made_package(directory: &std::path::Path, name: &str, version: &str, architecture: &str) {
    let spec = format!("Name: {name}\nVersion: {version}\nRelease: 2\nSummary: x\nLicense: x\n%description\n%files\n");
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("x.spec"), spec).unwrap();
    let define = |name: &str, path: &std::path::Path| format!("--define={name} {}", path.display());
    let output = Command::new("rpmbuild")
        .args(["-bb", "--quiet", &format!("--target={architecture}-linux"), &define("_topdir", work.path())])
        .args([&define("_rpmdir", directory), "--define=_rpmfilename %%{NAME}.%%{ARCH}.rpm", "x.spec"])
        .current_dir(work.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Builds an image with files of a directory.
fn derive_image_with(name: &str, context: &std::path::Path, dockerfile: &str) {
    std::fs::write(context.join("Dockerfile"), dockerfile).unwrap();
    let output = Command::new("docker")
        .args(["build", "-q", "--network", "host", "-t", name, &context.display().to_string()])
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The vendor's packages as files.
fn offline_files(directory: &std::path::Path) {
    let from = rig_dir().join("repo-rpm/erdma/yum/alinux/3/erdma/x86_64");
    let mut copied = 0;
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rpm") {
            std::fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
            copied += 1;
        }
    }
    assert_eq!(copied, SWAPPED.len());
}

/// Package files alone, with both builders: the build has no network, and nothing of a repository comes in.
#[test]
fn package_files_without_a_network() {
    if !rpm_rig() {
        return;
    }
    let (dir, mut image_names) = (tempfile::tempdir().unwrap(), Names::new());
    offline_files(dir.path());
    let deb = "libibverbs1_44.1-2_amd64.deb";
    std::fs::copy(rig_dir().join("debs/vendor").join(deb), dir.path().join(deb)).unwrap();
    let from = dir.path().display().to_string();
    let key = rig_dir().join("repo-rpm/erdma/GPGKEY").display().to_string();
    let other_key = rig_dir().join("repo-rpm/other-key.asc").display().to_string();
    let offline = |base: &str, tag: &str, more: &[&str]| {
        let mut command = rdmaprep();
        command.args(["build", base, "-t", tag, "--progress", "plain", "--no-cache", "--format", "json"]);
        run(command.args(["--offline", &from]).args(more))
    };
    for (builder, options, said) in [
        ("buildkit", &["--key", &key][..], "not used: libibverbs1_44.1-2_amd64.deb: it is a Debian package"),
        ("classic", &[], "signatures of the package files are not checked"),
    ] {
        let tag = image_names.unique(&format!("rpm-offline-{builder}"));
        let ran = offline(IMAGE, &tag, &[&["--builder", builder][..], options].concat());
        let result: Value = serde_json::from_str(&ran.expect(0).stdout).unwrap();
        ran.says(said);
        assert!(!ran.stderr.contains("http://"), "something was to be fetched: {}", ran.stderr);
        assert_eq!(names(&result["diff"]["lost"]), ["mlnx-ofed-basic-user-only"]);
        assert_eq!(names(&result["diff"]["changed"]), SWAPPED);
        assert_eq!(names(&result["diff"]["gained"]), Vec::<&str>::new());
        let left = in_container(
            &tag,
            "rpm -Va --nofiles; rpm -V libibverbs librdmacm; rpm -q ucx libibverbs; ls /etc/yum.repos.d /tmp /var/tmp /var/cache /opt; \
             cat /etc/dnf/plugins/versionlock.list",
        );
        assert!(left.contains("\nlibibverbs-44.1-2.x86_64\n") && left.contains("\nlibibverbs-0:44.1-2.*\n"), "{left}");
        for gone in ["mlnx", "mellanox", "erdma.repo", "rdmaprep.key", "tmp."] {
            assert!(!left.contains(gone), "{gone}: {left}");
        }
        // Again: the same files, nothing to change.
        let again = image_names.unique(&format!("rpm-offline-again-{builder}"));
        let result: Value = serde_json::from_str(&offline(&tag, &again, options).expect(0).stdout).unwrap();
        for kind in ["lost", "gained", "changed"] {
            assert_eq!(result["diff"][kind].as_array().unwrap().len(), 0, "{kind}: {}", result["diff"]);
        }
    }
    let tag = image_names.unique("rpm-offline-refused");
    offline(IMAGE, &tag, &["--key", &other_key]).expect(2).says("is not signed by the key that was given");
    // A file that was changed behind the Dockerfile.
    let out = dir.path().join("out").display().to_string();
    run(rdmaprep().args(["render", IMAGE, "--offline", &from, "-o", &out])).expect(0);
    let file = format!("{out}/packages/librdmacm-44.1-2.x86_64.rpm");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new("docker")
        .args(["build", "-q", "--force-rm", "--network", "none", "-t", &tag, &out])
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("librdmacm-44.1-2.x86_64.rpm: FAILED"), "{said}");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
}

/// What neither image nor directory has is named before anything is built, and each file that cannot be used.
#[test]
fn package_files_that_do_not_do() {
    if !rpm_rig() {
        return;
    }
    let (dir, mut image_names) = (tempfile::tempdir().unwrap(), Names::new());
    let tag = image_names.unique("rpm-offline-lacking");
    let from = dir.path().display().to_string();
    offline_files(dir.path());
    let repo = rig_dir().join("repo-rpm");
    let needing = "libibverbs-44.1-2.x86_64.rpm";
    std::fs::copy(repo.join("erdma/yum/alinux/3/needing/x86_64").join(needing), dir.path().join(needing)).unwrap();
    let built = |more: &[&str]| run(rdmaprep().args(["build", IMAGE, "-t", &tag, "--offline", &from]).args(more));
    built(&[]).expect(2).says("missing: libnl3-extra for libibverbs (is not in the image)");
    std::fs::remove_file(dir.path().join("librdmacm-44.1-2.x86_64.rpm")).unwrap();
    std::fs::copy(repo.join("more/base/libnl3-extra-1-1.noarch.rpm"), dir.path().join("extra.rpm")).unwrap();
    let deb = "librdmacm1_44.1-2_amd64.deb";
    std::fs::copy(rig_dir().join("debs/vendor").join(deb), dir.path().join(deb)).unwrap();
    std::fs::write(dir.path().join("librdmacm.rpm"), "<html>404</html>").unwrap();
    let whole = std::fs::read(dir.path().join(needing)).unwrap();
    std::fs::write(dir.path().join("half.rpm"), &whole[..whole.len() / 2]).unwrap();
    made_package(dir.path(), "librdmacm", "44.1", "aarch64");
    built(&[])
        .expect(2)
        .says("missing: package librdmacm\n")
        .says("unusable: librdmacm1_44.1-2_amd64.deb: it is a Debian package, but the image's packages are rpm's")
        .says("unusable: librdmacm.aarch64.rpm: it is for aarch64, but the image is for amd64")
        .says("unusable: librdmacm.rpm: it is not a package file")
        .says("unusable: half.rpm: it ends in the middle of payload: it was not copied completely");
    built(&["--base-repo", "http://127.0.0.1:1/"]).expect(2).says("--base-repo");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
    // What the directory has comes along, and is not held.
    std::fs::copy(
        repo.join("erdma/yum/alinux/3/erdma/x86_64/librdmacm-44.1-2.x86_64.rpm"),
        dir.path().join("librdmacm-44.1-2.x86_64.rpm"),
    )
    .unwrap();
    std::fs::remove_file(dir.path().join("librdmacm.aarch64.rpm")).unwrap();
    built(&["--no-cache"]).expect(0);
    let held = in_container(&tag, "rpm -q libnl3-extra libibverbs librdmacm; cat /etc/dnf/plugins/versionlock.list");
    assert!(held.starts_with("libnl3-extra-1-1.noarch\nlibibverbs-44.1-2.x86_64\n"), "{held}");
    assert!(held.contains("\nlibrdmacm-0:44.1-2.*\n") && !held.contains("libnl3-extra-0"), "{held}");
}

/// A package that only OFED's build satisfies: also without any repository it is not taken out.
#[test]
fn package_files_keep_what_needs_ofed() {
    if !rpm_rig() {
        return;
    }
    let (mirror, dir, mut image_names) = (Mirror::of("repo-rpm"), tempfile::tempdir().unwrap(), Names::new());
    let base = image_names.unique("rpm-offline-needs-ofed");
    let more = mirror.address.replace("/erdma", "/more");
    derive_image(
        &base,
        &format!(
            "FROM {IMAGE}\nRUN cd /tmp && curl -fsSO {more}/my-trainer-1-1.noarch.rpm && rpm --force-debian -i my-trainer* && rm my-trainer*\n"
        ),
    );
    offline_files(dir.path());
    let (tag, from) = (image_names.unique("rpm-offline-kept"), dir.path().display().to_string());
    let ran = run(rdmaprep().args(["build", &base, "-t", &tag, "--progress", "plain", "--offline", &from]));
    ran.expect(1).says("the swap would remove my-trainer, which is outside the RDMA set");
}

/// RoCE: what drives the devices stays, layer by layer; else the distribution's own comes in.
#[test]
fn roce_keeps_or_takes_the_distributions_own() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let on_cce = |base: &str, tag: &str, more: &[&str]| {
        let mut command = rdmaprep();
        command.args(["build", base, "-t", tag, "--target", "cce", "--progress", "plain", "--no-cache"]);
        run(command.args(["--format", "json", "--network", "host"]).args(more))
    };
    let kept = image_names.unique("rpm-kept");
    let result: Value = serde_json::from_str(&on_cce(IMAGE, &kept, &["--userspace", "keep"]).expect(0).stdout).unwrap();
    assert_eq!((result["userspace"].as_str(), result["report"]["verdict"].as_str()), (Some("keep"), Some("pass")));
    let layers = |image: &str| must("docker", &["image", "inspect", "-f", "{{json .RootFS.Layers}}", image]);
    assert_eq!(layers(IMAGE), layers(&kept));

    let inbox = ["--userspace", "inbox"];
    let tag = image_names.unique("rpm-inbox");
    on_cce(IMAGE, &tag, &inbox).expect(4).says("repositories are not reachable").says("--base-repo URL");
    on_cce(IMAGE, &tag, &["--userspace", "doca", "--doca-version", "2.10.0"]).expect(2).says("rhel 8 (amd64, arm64)");
    on_cce(IMAGE, &tag, &[&inbox[..], &["--no-gpg-check"]].concat()).expect(2).says("conflicts with");
    // Given ones that are out of reach, and such as nobody signed.
    on_cce(IMAGE, &tag, &[&inbox[..], &["--base-repo", "http://127.0.0.1:1/x/"]].concat())
        .expect(4)
        .says("the repositories of --base-repo are not reachable");
    let unsigned = mirror.address.replace("/erdma", "/more/later/");
    on_cce(IMAGE, &tag, &[&inbox[..], &["--base-repo", &unsigned]].concat())
        .expect(2)
        .says("no key that the image trusts has signed ")
        .says("rpm --import KEY");
    assert!(must("docker", &["images", "-q", &tag]).is_empty());
    // The distribution's repository, by its release and variables, beside Mellanox's builds and what a swap has left.
    let base = image_names.unique("rpm-inbox-base");
    let (erdma, more) = (&mirror.address, mirror.address.replace("/erdma", "/more"));
    let repo = |id: &str, url: &str| {
        format!("printf '%s\\n' '[{id}]' name=x 'baseurl={url}' gpgcheck=0 priority=1 > /etc/yum.repos.d/{id}.repo")
    };
    let steps = [
        "echo yum > /etc/dnf/vars/folder".to_owned(),
        repo("base", &format!("{erdma}/$folder/alinux/$releasever/unsigned/$basearch/")),
        repo("erdma", &format!("{more}/later/")),
        // The vendor's by another's hand: what it offers is for the other fabric.
        repo("alibaba", &format!("{erdma}/yum/alinux/3/erdma/x86_64/")),
        "mkdir -p /etc/dnf/plugins; echo 'libibverbs-0:1.0-1.*' > /etc/dnf/plugins/versionlock.list".to_owned(),
    ];
    // A later build of Mellanox's in a repository that does not say whose it is.
    let context = tempfile::tempdir().unwrap();
    made_package(context.path(), "librdmacm", "2407mlnx9", "noarch");
    must("createrepo_c", &["--quiet", &context.path().display().to_string()]);
    let steps = [&steps[..], &[repo("mixed", "file:///srv/mixed/")]].concat().join(" && ");
    derive_image_with(&base, context.path(), &format!("FROM {IMAGE}\nCOPY . /srv/mixed/\nRUN {steps}\n"));
    let result: Value = serde_json::from_str(&on_cce(&base, &tag, &inbox).expect(0).stdout).unwrap();
    assert_eq!(result["userspace"], "inbox");
    assert_eq!(result["report"]["verdict"], "pass", "{}", result["report"]);
    assert_eq!(names(&result["diff"]["lost"]), ["mlnx-ofed-basic-user-only"]);
    assert_eq!(names(&result["diff"]["changed"]), SWAPPED);
    let left = in_container(
        &tag,
        "rpm -Va --nofiles; rpm -q libibverbs librdmacm ucx; ls /etc/yum.repos.d /opt /tmp /usr/lib64/libibverbs; cat /etc/dnf/plugins/versionlock.list",
    );
    assert!(left.starts_with("libibverbs-44.1-2.x86_64\nlibrdmacm-44.1-2.x86_64\nucx-"), "{left}");
    assert!(left.contains("libmlx5-rdmav34.so") && !left.contains("libibverbs-0:"), "{left}");
    for gone in ["mellanox", "erdma.repo", "alibaba.repo", "mlnx", "tmp."] {
        assert!(!left.contains(gone), "{gone}: {left}");
    }
    run(rdmaprep().args(["check", "--target", "cce", &tag])).expect(0);
}

/// RoCE: NVIDIA's repository, with its layout and a key of its own, on an image that says that it is Red Hat's.
#[test]
fn docas_packages() {
    if !rpm_rig() {
        return;
    }
    let (mirror, mut image_names) = (Mirror::of("repo-rpm"), Names::new());
    let base = image_names.unique("rpm-doca-base");
    derive_image(
        &base,
        &format!("FROM {IMAGE}\nRUN printf 'ID=\"rhel\"\\nVERSION_ID=\"8.10\"\\n' > /usr/lib/os-release\n"),
    );
    let doca = mirror.address.replace("/erdma", "/doca");
    let build_on = |base: &str, tag: &str, more: &[&str]| {
        let mut command = rdmaprep();
        command.args(["build", base, "-t", tag, "--target", "cce", "--userspace", "doca", "--doca-version", "2.10.0"]);
        command.args(["--mirror", &doca, "--network", "host", "--progress", "plain", "--no-cache", "--format", "json"]);
        run(command.args(more))
    };
    let tag = image_names.unique("rpm-doca");
    let other_key = rig_dir().join("repo-rpm/other-key.asc").display().to_string();
    build_on(&base, &tag, &["--key", &other_key]).expect(2).says("is not signed by the key of the repository");
    build_on(&base, &tag, &["--suite", "rhel8.10"]).expect(2).says("there is no repository at").says("--suite");
    let result: Value = serde_json::from_str(&build_on(&base, &tag, &[]).expect(0).stdout).unwrap();
    assert_eq!((result["userspace"].as_str(), result["report"]["verdict"].as_str()), (Some("doca"), Some("pass")));
    assert_eq!(names(&result["diff"]["changed"]), SWAPPED);
    // OFED's tools drive the same devices.
    assert_eq!(names(&result["diff"]["lost"]), Vec::<&str>::new());
    let left = in_container(
        &tag,
        "rpm -Va --nofiles; rpm -q libibverbs librdmacm mlnx-ofed-basic-user-only; ls /etc/yum.repos.d; cat /etc/yum.repos.d/doca.repo",
    );
    assert!(
        left.starts_with("libibverbs-2410mlnx54-1.2410068.x86_64\nlibrdmacm-2410mlnx54-1.2410068.x86_64\nmlnx-"),
        "{left}"
    );
    assert!(left.contains(&format!("\n[doca]\nname=RoCE on mlx5\nbaseurl={doca}/2.10.0/rhel8.6/x86_64/\n")), "{left}");
    assert!(
        left.contains("gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-doca") && !left.contains("mlnx_ofed.repo"),
        "{left}"
    );
    let again = image_names.unique("rpm-doca-again");
    let result: Value = serde_json::from_str(&build_on(&tag, &again, &[]).expect(0).stdout).unwrap();
    for kind in ["lost", "gained", "changed"] {
        assert_eq!(result["diff"][kind].as_array().unwrap().len(), 0, "{kind}: {}", result["diff"]);
    }
}

/// dnf's own versionlock plugin: locks of the former builds give way, others stay, and the new ones hold.
#[test]
fn locks_of_the_versionlock_plugin() {
    if !rpm_rig() {
        return;
    }
    let (mirror, context, mut image_names) = (Mirror::of("repo-rpm"), tempfile::tempdir().unwrap(), Names::new());
    let plugin = Command::new("sh")
        .args([
            "-ec",
            "apt-get download -qq -o APT::Sandbox::User=root dnf-plugins-core; dpkg-deb -x dnf-plugins-core_*.deb all; \
               cd all; tar -c etc/dnf/plugins/versionlock.* usr/lib/python3/dist-packages/dnf-plugins/versionlock.py \
               usr/lib/python3/dist-packages/dnfpluginscore/__init__.py > ../plugin.tar",
        ])
        .current_dir(context.path())
        .output()
        .unwrap();
    assert!(plugin.status.success(), "{}", String::from_utf8_lossy(&plugin.stderr));
    let base = image_names.unique("rpm-locked-base");
    let dockerfile = format!(
        "FROM {IMAGE}\nADD plugin.tar /\nRUN dnf -q --disablerepo=* versionlock add ucx {} && cat /etc/dnf/plugins/versionlock.list\n",
        SWAPPED.join(" ")
    );
    derive_image_with(&base, context.path(), &dockerfile);
    let proposed = |image: &str, repository: &str, arguments: &str| {
        let dnf = format!("dnf --assumeno --repofrompath=x,{repository} --repo=x --setopt=x.gpgcheck=0 {arguments}");
        in_container(image, &format!("{dnf} 2>&1 || true"))
    };
    // As the plugin has it other builds are not there: in both cases the test would show nothing without this.
    let vendor = format!("{}/yum/alinux/3/erdma/x86_64/", mirror.address);
    let (locked, free) = ("downgrade libibverbs", "--disableplugin=versionlock downgrade libibverbs");
    let said = proposed(&base, &vendor, locked);
    assert!(!said.contains("44.1-2"), "{said}");
    let said = proposed(&base, &vendor, free);
    assert!(said.contains("44.1-2"), "{said}");
    let tag = image_names.unique("rpm-locked");
    build(&base, &tag, &mirror, &[]);
    assert_swapped(&tag);
    let locks = in_container(&tag, "cat /etc/dnf/plugins/versionlock.list");
    assert!(locks.contains("\nucx-0:") && !locks.contains(OFED), "{locks}");
    assert!(locks.contains("\n# rdmaprep: libibverbs 44.1-2\nlibibverbs-0:44.1-2.*\n"), "{locks}");
    // Without the vendor's repository, which comes first, it is the plugin alone that holds them.
    let later = mirror.address.replace("/erdma", "/more/later/");
    let said = proposed(&tag, &later, "upgrade libibverbs");
    assert!(said.contains("Nothing to do") && !said.contains("48.0-1.el8"), "{said}");
    let said = proposed(&tag, &later, "--disableplugin=versionlock upgrade libibverbs");
    assert!(said.contains("48.0-1.el8"), "{said}");
    // The swap of that image is not held back by its own locks.
    let again = image_names.unique("rpm-locked-again");
    build(&tag, &again, &mirror, &[]);
    assert_swapped(&again);
}
