//! The functions of templates/swap-rpm.sh on small roots, with stand-ins for the programs that they call, in each shell
//! that an image may have as `/bin/sh`. The real programs are in engine_rpm.

use super::swap_apt_script::functions;
use crate::support::say_skipped;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/swap-rpm.sh");
const DISCOVERY: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/templates/discover.sh"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/templates/discover-rpm.sh"),
];
const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

/// A root directory, and programs that come before the real ones.
struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    /// `files`: path in the root → content. `programs`: name → body of a shell script.
    fn new(files: &[(&str, &str)], programs: &[(&str, &str)]) -> Case {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join("root").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        std::fs::create_dir_all(dir.path().join("root")).unwrap();
        std::fs::create_dir_all(dir.path().join("bin")).unwrap();
        for (name, body) in programs {
            let path = dir.path().join("bin").join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Case { dir }
    }

    /// Runs `steps` after `prepare`; gives exit code, standard output and standard error.
    fn run(&self, shell: &[&str], manager: &str, steps: &str) -> (i32, String, String) {
        let dir = self.dir.path().display();
        // As functions, which come before a shell's own programs too: busybox has an rpm.
        let names = std::fs::read_dir(self.dir.path().join("bin")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let programs: String = names.map(|name| format!("{name}() {{ {dir}/bin/{name} \"$@\"; }}\n")).collect();
        let functions = functions(shell, &[SCRIPT, DISCOVERY[0], DISCOVERY[1]]);
        let script = format!(
            "trap 'rm -rf \"$tmp\"' EXIT\n{programs}{functions}\n\
             prepare x86_64 x86-64 {manager} {dir}/root\n{steps}\n"
        );
        let output = Command::new(shell[0]).args(&shell[1..]).args(["-c", &script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&self.dir.path().display().to_string(), "DIR");
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.path().join("root").join(path)).unwrap()
    }
}

/// Runs the steps in every shell, each on a root of its own, and gives what all of them print.
fn prints(files: &[(&str, &str)], programs: &[(&str, &str)], manager: &str, steps: &str) -> String {
    let mut printed: Option<String> = None;
    for shell in SHELLS {
        let (code, out, said) = Case::new(files, programs).run(shell, manager, steps);
        assert_eq!(code, 0, "{shell:?}: {out}{said}");
        assert_eq!(*printed.get_or_insert_with(|| out.clone()), out, "{shell:?}");
    }
    printed.unwrap()
}

/// Runs the steps in every shell; each must end with that line, and with nothing printed by a step after.
fn fails(files: &[(&str, &str)], programs: &[(&str, &str)], manager: &str, steps: &str, expected: &str) {
    for shell in SHELLS {
        let (code, out, said) =
            Case::new(files, programs).run(shell, manager, &format!("{steps}\necho reached the end"));
        assert_eq!(code, 1, "{shell:?}: {out}{said}");
        assert_eq!(said.lines().last(), Some(expected), "{shell:?}: {said}");
        assert!(!out.contains("reached the end"), "{shell:?}: {out}");
    }
}

#[test]
fn shellcheck_has_nothing_to_say() {
    let Ok(output) = Command::new("shellcheck").args(["-s", "sh", SCRIPT]).args(DISCOVERY).output() else {
        return say_skipped("shellcheck is not installed (tests/rig/deps.sh test)");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Installed: what `rpm -q` says of a package and of its builds.
const RPM: &str = r#"
case "$*" in
  *--eval*vercmp*"'10', '9'"*|*vercmp*"'2', '1'"*) echo 1 ;;
  *--eval*vercmp*) echo -1 ;;
  *--eval*_dbpath*) echo /var/lib/rpm ;;
  *--initdb*) ;;
  *"--provides --whatprovides system-release"*) echo 'system-release(releasever) = 3' ;;
  *" same.x86_64") echo '0: 1.0 1' ;;
  *" later.x86_64") echo '0: 10 1' ;;
  *" epoch.x86_64") echo '1: 1 1' ;;
  *" rebuilt.x86_64") echo '0: 9 2' ;;
  *" earlier.x86_64") echo '0: 8 1' ;;
  *) echo "package ${*##* } is not installed"; exit 1 ;;
esac"#;

/// What dnf prints of a repository; `yum` says Arch and Repo.
const INFO: &str = r#"
cat <<'END'
Available Packages
Name         : same
Version      : 1.0
Release      : 1
Architecture : x86_64
Repository   : erdma
Name         : later
Version      : 9
Release      : 1
Architecture : x86_64
Repository   : erdma
Name        : epoch
Version     : 2
Release     : 1
Arch        : x86_64
Repo        : erdma
Name        : rebuilt
Version     : 9
Release     : 1
Arch        : x86_64
Repo        : erdma
Name        : earlier
Epoch       : 2
Version     : 9
Release     : 1
Arch        : x86_64
Repo        : erdma
Name        : foreign
Version     : 1
Release     : 1
Arch        : i686
Repo        : erdma
Name        : new
Version     : 9mlnx1
Release     : 1
Arch        : noarch
Repo        : erdma
END"#;

#[test]
fn a_transaction_names_exact_builds() {
    let steps = "origin=repository; repository=erdma; origin_text=http://m/\n\
        take same; take foreign new; companion later keep; companion epoch remove; companion rebuilt keep\n\
        companion earlier keep; companion lost keep; companion pinned remove; take_also perftest; drop_packages libmlx5 mft\n\
        cat \"$tmp/family\" >> \"$tmp/removable\"; list_offers; write_transaction\n\
        cat \"$tmp/transaction\"; echo --; cat \"$tmp/wanted\"; echo --; cat \"$tmp/sought\"";
    for manager in ["dnf", "yum"] {
        let said = prints(&[], &[("rpm", RPM), (manager, INFO)], manager, steps);
        assert_eq!(
            said,
            "reinstall same-0:1.0-1.x86_64\ninstall new-0:9mlnx1-1.noarch\ndowngrade later-0:9-1.x86_64\n\
             downgrade epoch-0:2-1.x86_64\ndowngrade rebuilt-0:9-1.x86_64\ninstall earlier-2:9-1.x86_64\nremove pinned\n\
             install perftest\nremove libmlx5\nremove mft\nrun\n--\n\
             same-1.0-1.x86_64.rpm\nnew-9mlnx1-1.noarch.rpm\nlater-9-1.x86_64.rpm\nepoch-2-1.x86_64.rpm\n\
             rebuilt-9-1.x86_64.rpm\nearlier-9-1.x86_64.rpm\n--\nperftest\n",
            "{manager}"
        );
    }
    let missing = "origin=repository; repository=erdma; origin_text=http://m/; take foreign absent; list_offers; write_transaction";
    let expected = "rdmaprep[package-missing]: package foreign is not in http://m/";
    fails(&[], &[("rpm", RPM), ("dnf", INFO)], "dnf", missing, expected);
}

/// The distribution's repositories: the latest build that is not Mellanox's, with the release and variables of the image.
#[test]
fn the_distributions_offers() {
    let dnf = r#"
echo "$*" | grep -q -e '--releasever=3 .*info --showduplicates available new same' || exit 1
root=$(echo "$*" | sed 's/.*--installroot=\([^ ]*\).*/\1/'); grep -q al8 "$root/etc/dnf/vars/dist" || exit 1
for v in 1 2 3mlnx1; do printf 'Name : same\nVersion : %s\nRelease : 1\nArchitecture : x86_64\nRepository : base\n' "$v"; done"#;
    let files = [("etc/dnf/vars/dist", "al8\n")];
    let steps = "take_also new; take same; list_offers; cat \"$tmp/offers\"";
    assert_eq!(prints(&files, &[("rpm", RPM), ("dnf", dnf)], "dnf", steps), "same 0: 2 1 x86_64\nsame 0: 1 1 x86_64\n");
    let expected = "rdmaprep[yum-repositories-lack-package]: none of the packages is in the yum repositories of the image: can they be reached?";
    fails(&files, &[("rpm", RPM), ("dnf", "exit 1")], "dnf", "take same; list_offers", expected);
    let given = "ask_instead http://v/a; take same; list_offers";
    let expected = "rdmaprep[given-repositories-lack-package]: none of the packages is in the given repositories http://v/a: can they be reached?";
    fails(&files, &[("rpm", RPM), ("dnf", "exit 1")], "dnf", given, expected);
}

/// Package files: dnf takes all of them by one command, yum each by its own; a file that changed is refused.
#[test]
fn package_files() {
    let rpm = r#"
case "$*" in
  *--qf*-qp*|*-qp*--qf*) case "$*" in *same*) n='same 0: 1.0 1 x86_64' ;; *) n='new 0: 9 1 noarch' ;; esac
     case "$*" in *ARCH}" "*) echo "$n ${*##*ARCH\} }" | sed 's/\\n .*//' ;; *) echo "$n" ;; esac ;;
  *" same.x86_64") echo '0: 1.0 1' ;;
  *) echo "package x is not installed"; exit 1 ;;
esac"#;
    let files = [("f/new-9-1.noarch.rpm", "new"), ("f/same-1.0-1.x86_64.rpm", "same")];
    let digests = "expect_file 11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437 new-9-1.noarch.rpm\n";
    let steps = format!(
        "use_files \"$root/f\" unchecked; {digests}\ntake same; take new; take_also kept; list_offers; write_transaction; cat \"$tmp/transaction\""
    );
    let dnf = prints(&files, &[("rpm", rpm)], "dnf", &steps).replace("DIR/root/", "");
    assert_eq!(dnf, "install f/new-9-1.noarch.rpm f/same-1.0-1.x86_64.rpm\nreinstall same-0:1.0-1.x86_64\nrun\n");
    let yum = prints(&files, &[("rpm", rpm)], "yum", &steps).replace("DIR/root/", "");
    assert_eq!(yum, "reinstall f/same-1.0-1.x86_64.rpm\ninstall f/new-9-1.noarch.rpm\nrun\n");
    let lacking = steps.replace("take new", "take absent");
    let expected = "rdmaprep[files-lack-package]: package absent is not in package files in the build context";
    fails(&files, &[("rpm", rpm)], "dnf", &lacking, expected);
    let changed = [("f/new-9-1.noarch.rpm", "changed"), ("f/same-1.0-1.x86_64.rpm", "same")];
    let expected = "rdmaprep[files-changed]: the package files are not those that this Dockerfile was written for";
    fails(&changed, &[("rpm", rpm)], "dnf", &steps, expected);
}

#[test]
fn a_repository_becomes_a_file() {
    let curl_writes = r#"prev=; for a; do [ "$prev" != -o ] || out=$a; prev=$a; done; echo content > "$out""#;
    let steps = "use_repository erdma http://m/yum/x/ 'Alibaba eRDMA' http://m/GPGKEY\n\
        ask_instead http://v/a http://v/b; sed 's/#.*/#/' \"$root/etc/yum.repos.d/erdma.repo\"; ls \"$tmp/base\"; sed -n 3,6p \"$tmp/base/base2.repo\"";
    let programs = [("curl", curl_writes)];
    let said =
        prints(&[("etc/pki/rpm-gpg/RPM-GPG-KEY-base", "")], &programs, "dnf", &format!("{steps} | sed \"s=$root==g\""));
    assert!(
        said.starts_with("[erdma]\nname=Alibaba eRDMA\nbaseurl=http://m/yum/x/\nenabled=1\ngpgcheck=1\n"),
        "{said}"
    );
    assert!(said.ends_with(
        "#\n#\npriority=1\nskip_if_unavailable=1\nbase1.repo\nbase2.repo\nerdma.repo\nbaseurl=http://v/b\nenabled=1\ngpgcheck=1\n\
         gpgkey= file:///etc/pki/rpm-gpg/RPM-GPG-KEY-base file:///etc/pki/rpm-gpg/RPM-GPG-KEY-erdma\n"
    ), "{said}");
    let unchecked =
        "use_repository erdma http://m/ x unchecked; cat \"$root/etc/yum.repos.d/erdma.repo\"; [ -z \"$key\" ]";
    let said = prints(&[], &programs, "dnf", unchecked);
    assert!(said.contains("\ngpgcheck=0\n") && !said.contains("gpgkey"), "{said}");
    let steps = "use_repository erdma http://m/ x http://m/GPGKEY";
    for (curl, expected) in [
        ("exit 22", "rdmaprep[repository-missing]: there is no repository at http://m/"),
        ("exit 7", "rdmaprep[repository-unreachable]: http://m/ cannot be reached"),
        (
            "case \"$*\" in *GPGKEY) exit 22 ;; esac",
            "rdmaprep[key-unreachable]: the repository's key cannot be fetched from http://m/GPGKEY",
        ),
    ] {
        fails(&[], &[("curl", curl)], "dnf", steps, expected);
    }
}

#[test]
fn sections_and_locks_that_go() {
    let repo = "[a]\nname=a\n[doca_2.9[x]]\nbaseurl=x\n[doca_2x9[x]]\nbaseurl=y\n";
    let said = prints(
        &[("etc/yum.repos.d/m.repo", repo)],
        &[],
        "dnf",
        "drop_entry /etc/yum.repos.d/m.repo 'doca_2.9[x]'; cat \"$root/etc/yum.repos.d/m.repo\"",
    );
    assert_eq!(said, "[a]\nname=a\n[doca_2x9[x]]\nbaseurl=y\n");
    let dnf =
        "# rdmaprep: libibverbs 44.1-2\nlibibverbs-0:44.1-2.*\nlibibverbs-utils-0:1-1.*\n!libmlx5-1-1.*\nucx-0:1-1.*\n";
    let yum = "0:libibverbs-44.1-2.*\n0:ucx-1-1.*\n";
    let files = [("etc/dnf/plugins/versionlock.list", dnf), ("etc/yum/pluginconf.d/versionlock.list", yum)];
    let steps = "take libibverbs; drop_packages libmlx5; cat \"$tmp/family\" >> \"$tmp/removable\"; unlock\n\
        cat \"$root\"/etc/dnf/plugins/versionlock.list \"$root\"/etc/yum/pluginconf.d/versionlock.list";
    assert_eq!(prints(&files, &[], "dnf", steps), "libibverbs-utils-0:1-1.*\nucx-0:1-1.*\n0:ucx-1-1.*\n");
    let case = Case::new(&[("opt/mellanox/x", ""), ("opt/a b/x", ""), ("opt/kept", "")], &[]);
    case.run(SHELLS[0], "dnf", "remove_directories /opt/mellanox '/opt/a b'; remove_files /opt/none");
    assert_eq!(case.read("opt/kept"), "");
    assert!(!case.dir.path().join("root/opt/mellanox").exists() && !case.dir.path().join("root/opt/a b").exists());
}

/// What rpmkeys of several releases prints, and which of it is a signature.
#[test]
fn signatures() {
    let rpmkeys = |said: &str| format!("case \"$*\" in *--import*) ;; *) echo '/p/x.rpm: {said}' ;; esac");
    let steps = "key=/k; signer=given; echo /p/x.rpm > \"$tmp/files\"; check_signatures; echo signed";
    for good in ["digests signatures OK", "rsa sha1 (md5) pgp md5 OK"] {
        assert_eq!(prints(&[], &[("rpmkeys", &rpmkeys(good))], "dnf", steps), "signed\n");
    }
    let expected = "rdmaprep[key-mismatch]: x.rpm is not signed by the key that was given";
    for bad in
        ["digests OK", "sha1 md5 OK", "digests SIGNATURES NOT OK", "RSA sha1 ((MD5) PGP) md5 NOT OK (MISSING KEYS)"]
    {
        fails(&[], &[("rpmkeys", &rpmkeys(bad))], "dnf", steps, expected);
    }
    let other = steps.replace("given", "'the repository'");
    let expected = "rdmaprep[key-mismatch]: x.rpm is not signed by the key of the repository";
    fails(&[], &[("rpmkeys", &rpmkeys("digests OK"))], "dnf", &other, expected);
    let expected = "rdmaprep[bad-key]: /k is not a key that rpm can read";
    fails(&[], &[("rpmkeys", "exit 1")], "dnf", steps, expected);
}

/// What dnf and yum say when they do not do it → code and sentence.
#[test]
fn refusals_say_why() {
    for (manager, log, expected) in [
        (
            "dnf",
            "Package my-1-1.noarch.rpm is not signed",
            "untrusted-package]: no key that the image trusts has signed my-1-1.noarch.rpm",
        ),
        (
            "yum",
            "Public key for /c/my-1.rpm is not installed",
            "untrusted-package]: no key that the image trusts has signed my-1.rpm",
        ),
        (
            "dnf",
            " Problem: The operation would result in removing the following protected packages: my-trainer, x",
            "swap-removes-package]: the swap would remove my-trainer, which is outside the RDMA set",
        ),
        (
            "yum",
            "Error: Trying to remove \"my-trainer\", which is protected",
            "swap-removes-package]: the swap would remove my-trainer, which is outside the RDMA set",
        ),
        ("yum", "Error: something else", "rpm-conflict]: yum cannot put these packages together"),
    ] {
        let steps = format!("from=/x; : > \"$tmp/transaction\"; echo '{log}' > \"$tmp/log\"; refuse");
        fails(&[], &[(manager, "exit 1")], manager, &steps, &format!("rdmaprep[{expected}"));
    }
    // dnf names what is lacking only if nothing may be removed.
    let dnf = "case \"$*\" in *--assumeno*) echo '  - nothing provides libnl3-extra needed by libibverbs-44.1-2.x86_64' ;; esac";
    let log = "removing the following protected packages: my-trainer";
    let steps = format!("from=/x; echo 'remove x' > \"$tmp/transaction\"; echo '{log}' > \"$tmp/log\"; refuse");
    let expected = "rdmaprep[rpm-conflict]: dnf cannot put these packages together: nothing provides libnl3-extra needed by libibverbs-44.1-2.x86_64";
    fails(&[], &[("dnf", dnf)], "dnf", &steps, expected);
}

#[test]
fn an_installed_package_is_the_one_that_was_offered() {
    let rpm = |installed: &str, verified: &str| {
        format!(
            "case \"$*\" in *-qp*) echo 'libibverbs 44.1-2 x86_64 m s' ;; *-V*) [ -z '{verified}' ] || {{ echo '{verified}'; exit 1; }} ;;\n\
             *) echo '{installed}' ;; esac"
        )
    };
    let steps = "origin_text=http://m/; prove_package /p/libibverbs.rpm";
    let same = "libibverbs 44.1-2 x86_64 m s";
    for verified in ["", "S.5....T.  c /etc/libibverbs.d/x.driver"] {
        let said = prints(&[], &[("rpm", &rpm(same, verified))], "dnf", steps);
        assert_eq!(said, "rdmaprep: libibverbs 44.1-2 from http://m/\n");
    }
    let expected = "rdmaprep[other-build]: the installed libibverbs is not the build that http://m/ offers";
    fails(&[], &[("rpm", &rpm("libibverbs 44.1-2 x86_64 m other", ""))], "dnf", steps, expected);
    let expected = "rdmaprep[files-differ]: the files of libibverbs are not those of its package";
    fails(&[], &[("rpm", &rpm(same, "..5......    /usr/lib64/libibverbs.so.1"))], "dnf", steps, expected);
}

#[test]
fn what_is_lost_or_left_fails() {
    let rpm = |after: &str, unmet: &str| {
        format!("case \"$*\" in *-qa*) printf '%s\\n' {after} ;; *-Va*) echo '{unmet}' ;; '-q gone') exit 1 ;; esac")
    };
    let steps = "printf '%s\\n' bash ucx old > \"$tmp/before\"; echo old > \"$tmp/removable\"; : > \"$tmp/sought\"; : > \"$tmp/files\"\n\
        : > \"$tmp/unmet\"; prove_packages; echo proven";
    assert_eq!(
        prints(
            &[],
            &[("rpm", &rpm("bash ucx", ""))],
            "dnf",
            &steps.replace(": > \"$tmp/unmet\"", "echo > \"$tmp/unmet\"")
        ),
        "proven\n"
    );
    let expected = "rdmaprep[swap-removes-package]: the swap removed ucx, which is outside the RDMA set";
    fails(&[], &[("rpm", &rpm("bash", ""))], "dnf", steps, expected);
    let expected = "rdmaprep[requirements-unmet]: packages miss what they require";
    fails(&[], &[("rpm", &rpm("bash ucx", "Unsatisfied dependencies for ucx"))], "dnf", steps, expected);
    let expected = "rdmaprep[still-there]: package mft is still there";
    let dropping = steps.replace(": > \"$tmp/unmet\"", "echo > \"$tmp/unmet\"; drop_packages gone mft");
    fails(&[], &[("rpm", &rpm("bash ucx", ""))], "dnf", &dropping, expected);
    let mellanox = "case \"$*\" in *VERSION*) echo '2307mlnx47-1 libibumad' ;; *) echo perftest-1-1 ;; esac";
    let expected = "rdmaprep[still-mellanox]: still Mellanox builds: libibumad";
    fails(&[], &[("rpm", mellanox)], "dnf", "take libibumad; take_also perftest; prove_no_mellanox", expected);
    let expected = "rdmaprep[mellanox-only]: package perftest is in no repository but Mellanox's";
    fails(&[], &[("rpm", "echo perftest-1mlnx-1")], "dnf", "take_also perftest; prove_no_mellanox", expected);
}

#[test]
fn the_loader_finds_the_library_of_the_package() {
    let ldconfig = "printf '\\tlibibverbs.so.1 (libc6) => /wrong\\n\\tlibibverbs.so.1 (libc6,x86-64) => %s/libibverbs.so.1\\n%b' ROOT \"$MORE\"";
    let case = |more: &str, owner: &str, driver: &str| {
        let files = [
            ("usr/lib64/libibverbs.so.1", ""),
            ("usr/lib64/other.so", ""),
            ("usr/lib64/libibverbs/liberdma-rdmav34.so", ""),
            ("etc/libibverbs.d/erdma.driver", driver),
            ("etc/libibverbs.d/stray.driver", "driver stray\n"),
        ];
        let case = Case::new(&files, &[("rpm", owner)]);
        let lib = case.dir.path().join("root/usr/lib64").display().to_string();
        let body = ldconfig.replace("ROOT", &lib).replace("$MORE", &more.replace("ROOT", &lib));
        let path = case.dir.path().join("bin/ldconfig");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        case
    };
    for shell in SHELLS {
        let good = case("", "echo libibverbs", "driver erdma\n");
        let (code, _, said) = good.run(shell, "dnf", "prove_loader erdma; remove_stray_drivers");
        assert_eq!((code, said.as_str()), (0, ""), "{shell:?}");
        let left = good.dir.path().join("root/etc/libibverbs.d");
        assert!(left.join("erdma.driver").exists() && !left.join("stray.driver").exists());
        let lib = "DIR/root/usr/lib64";
        for (more, owner, driver, expected) in [
            (
                "",
                "echo ofed",
                "driver erdma\n",
                format!(
                    "other-libibverbs]: the loader finds {lib}/libibverbs.so.1 before the libibverbs.so.1 of package libibverbs"
                ),
            ),
            (
                "\\tlibibverbs.so (libc6,x86-64) => ROOT/other.so\\n",
                "echo libibverbs",
                "driver erdma\n",
                format!(
                    "other-libibverbs]: libibverbs.so is {lib}/other.so and libibverbs.so.1 is {lib}/libibverbs.so.1: NCCL opens the first"
                ),
            ),
            (
                "",
                "case $4 in *rdmav*) echo x ;; *) echo libibverbs ;; esac",
                "driver erdma\n",
                format!("no-provider]: package libibverbs brings no erdma provider to {lib}/libibverbs"),
            ),
            (
                "",
                "echo libibverbs",
                "driver mlx5\n",
                "no-driver-file]: /etc/libibverbs.d/erdma.driver does not name the erdma driver".to_owned(),
            ),
        ] {
            let (code, _, said) = case(more, owner, driver).run(shell, "dnf", "prove_loader erdma");
            assert_eq!((code, said.lines().last()), (1, Some(format!("rdmaprep[{expected}").as_str())), "{shell:?}");
        }
    }
    fails(
        &[],
        &[("ldconfig", "true")],
        "dnf",
        "prove_loader erdma",
        "rdmaprep[no-libibverbs]: the loader finds no libibverbs.so.1",
    );
}

#[test]
fn pins_are_what_each_plugin_reads() {
    let rpm = "case \"$*\" in *epoch.rpm) echo 'epoch 3:1-1' ;; *free.rpm) echo 'free 1-1' ;; *) echo 'libibverbs 44.1-2' ;; esac";
    let steps = "note_dependencies free; printf '%s\\n' /p/libibverbs.rpm /p/free.rpm /p/epoch.rpm > \"$tmp/files\"; pin_packages\n\
        cat \"$root\"/etc/*/*/versionlock.list";
    let heads = ["# rdmaprep: libibverbs 44.1-2\n", "# rdmaprep: epoch 3:1-1\n"];
    let dnf = prints(&[], &[("rpm", rpm)], "dnf", steps);
    assert_eq!(dnf, format!("{}libibverbs-0:44.1-2.*\n{}epoch-3:1-1.*\n", heads[0], heads[1]));
    let yum = prints(&[], &[("rpm", rpm)], "yum", steps);
    assert_eq!(yum, format!("{}0:libibverbs-44.1-2.*\n{}3:epoch-1-1.*\n", heads[0], heads[1]));
}

#[test]
fn the_build_leaves_nothing_behind() {
    let case = Case::new(&[("var/cache/dnf/x", ""), ("f/a.rpm", ""), ("key", "")], &[]);
    let (code, out, said) = case.run(SHELLS[0], "dnf", "use_files \"$root/f\" \"$root/key\"; echo \"$tmp\"; clean_up");
    assert_eq!(code, 0, "{said}");
    assert!(!Path::new(out.trim()).exists());
    for path in ["var/cache/dnf/x", "f", "key"] {
        assert!(!case.dir.path().join("root").join(path).exists(), "{path}");
    }
}

/// Programs of an image with MLNX_OFED: `rpm -qa` and what rpm says of each package.
const OFED_RPM: &str = r#"
case "$*" in
  *SOURCERPM*) cat <<'END'
bash 1-1 x86_64 bash-1-1.src.rpm
libibverbs 2307mlnx47-1 x86_64 rdma-core-2307mlnx47-1.src.rpm
libibverbs 2307mlnx47-1 i686 rdma-core-2307mlnx47-1.src.rpm
libibumad 2307mlnx47-1 x86_64 rdma-core-2307mlnx47-1.src.rpm
perftest 4.5-1 x86_64 perftest-4.5-1.src.rpm
rdma-core 44.1-2 x86_64 rdma-core-44.1-2.src.rpm
rdma-core-devel 44.1-2 x86_64 rdma-core-44.1-2.src.rpm
pinned-tools 44.1-2 noarch rdma-core-44.1-2.src.rpm
libmlx5 41mlnx1-1 x86_64 libmlx5-41mlnx1-1.src.rpm
mft 4.26-1 x86_64 mft-4.26-1.src.rpm
mlnx-tools 23.10-1 x86_64 mlnx-tools-23.10-1.src.rpm
mlnx-ethtool 6.4-1 x86_64 mlnx-ethtool-6.4-1.src.rpm
my-ucx 1.15.2307MLNX-1 x86_64 my-ucx-1-1.src.rpm
ucx 1-1 x86_64 ucx-1-1.src.rpm
END
  ;;
  *"--requires pinned-tools") echo 'librdmacm(x86-64) = 44.1-2' ;;
  *--requires*) echo 'libc.so.6()(64bit)' ;;
  "-e --test "*mlnx-tools*) printf 'error: Failed dependencies:\n\tmlnx-tools >= 5 is needed by (installed) my-trainer-1-1.noarch\n'; exit 1 ;;
  "-e --test "*mft*) printf 'error: Failed dependencies:\n\tlibmft is needed by (installed) libibumad-1-1.x86_64\n\tmft is needed by (installed) mlnx-tools-23.10-1.x86_64\n'; exit 1 ;;
  *"--whatprovides mlnx-tools"*) echo mlnx-tools ;;
  *"--whatprovides mft"*|*"--whatprovides libmft"*) echo mft ;;
  *"my-trainer-1-1.noarch") echo my-trainer ;;
  *"libibumad-1-1.x86_64") echo libibumad ;;
  *"mlnx-tools-23.10-1.x86_64") echo mlnx-tools ;;
esac"#;

/// What the plan from facts says of the same packages (dockerfiles_rpm, the_plan_follows_the_facts).
#[test]
fn packages_are_found_at_build_time() {
    let steps = |whose: &str| {
        format!(
            "rdma_packages libibverbs libibumad librdmacm perftest rdma-core; split_providers libmlx5 librxe; ofed_packages mft 'mlnx-*'\n\
             take libibverbs; take librdmacm; discover_packages {whose}; cat \"$tmp/wishes\""
        )
    };
    let said = prints(&[], &[("rpm", OFED_RPM)], "dnf", &steps("vendor"));
    let wishes: String =
        said.lines().filter(|line| !line.starts_with("rdmaprep: found")).map(|line| format!("{line}\n")).collect();
    assert_eq!(
        wishes,
        "rdmaprep: package mlnx-tools stays: my-trainer requires it\nrdmaprep: package mft stays: mlnx-tools requires it\n\
         take libibverbs\ntake librdmacm\ncompanion libibumad remove\ncompanion perftest keep\ncompanion pinned-tools remove\n\
         companion rdma-core keep\ncompanion rdma-core-devel keep\n\
         drop libibverbs.i686\ndrop mlnx-ethtool\ndrop my-ucx\ndrop libmlx5\n"
    );
    let said = prints(&[], &[("rpm", OFED_RPM)], "dnf", &format!("take_also my-ucx; {}", steps("vendor")));
    assert!(!said.contains("drop my-ucx") && said.contains("drop mlnx-ethtool"), "{said}");
    let doca = prints(&[], &[("rpm", OFED_RPM)], "dnf", &steps("doca"));
    assert!(doca.contains("\ncompanion libibumad keep\n"), "{doca}");
    assert!(doca.ends_with("companion rdma-core-devel keep\ndrop libibverbs.i686\ndrop libmlx5\n"), "{doca}");
}

#[test]
fn repositories_are_found_at_build_time() {
    let files = [
        (
            "etc/yum.repos.d/mlnx_ofed.repo",
            "[mlnx_ofed]\nbaseurl=http://linux.mellanox.com/public/repo/x/\nenabled=0\n[empty]\nname=x",
        ),
        ("etc/yum.repos.d/base.repo", "# http://mlnx\n[base]\nname=mellanox\nbaseurl=http://b/\n"),
        ("etc/yum.repos.d/erdma.repo", "[x]\nbaseurl=http://m/\n"),
        ("etc/yum.repos.d/alibaba.repo", "[x]\nbaseurl=\n  http://m/erdma/yum/x/\n"),
        (
            "etc/yum.repos.d/mixed.repo",
            "[doca_2.9[x]]\nBaseURL = https://linux.Mellanox.com/DOCA/\n[mine]\nbaseurl=http://m/x",
        ),
        ("etc/zypp/repos.d/d.repo", "[d]\nmirrorlist=https://m/doca/2.9\n"),
    ];
    let said = prints(
        &files,
        &[],
        "dnf",
        "discover_repositories erdma mlx5 doca > /dev/null\ncd \"$root\"; find . -name '*.repo' > list; sort list; cat etc/yum.repos.d/mixed.repo",
    );
    assert_eq!(said, "./etc/yum.repos.d/base.repo\n./etc/yum.repos.d/mixed.repo\n[mine]\nbaseurl=http://m/x");
}

#[test]
fn directories_and_driver_files_are_found_at_build_time() {
    let files = [
        ("opt/mellanox/a/x", ""),
        ("opt/mellanox/ofed/libibverbs.so.1", ""),
        ("usr/local/ofed/4.6/x", ""),
        ("usr/local/ofed/5.0/x", ""),
        ("usr/share/doc/ofed/chapter", ""),
        ("srv/OFED-1/lib/libmlx5-rdmav25.so", ""),
        ("root/MLNX_OFED_LINUX-23/x", ""),
        ("etc/ld.so.conf.d/ofed.conf", "# x\n/opt/Mellanox/lib\n"),
        ("etc/ld.so.conf.d/other.conf", "/usr/lib64 # mellanox is /opt/mellanox\n"),
        ("etc/libibverbs.d/owned.driver", "driver owned\n"),
        ("etc/libibverbs.d/loose.driver", "driver loose\n"),
    ];
    let owned = |owner: &str| {
        format!(
            "for f; do case \"$f\" in *owned.driver) ;; */4.6/x) echo {owner} ;; /*) echo \"file $f is not owned by any package\"; s=1 ;; esac; done; exit ${{s:-0}}"
        )
    };
    let steps = "echo mlnx-tools > \"$tmp/purge\"; discover_driver_files; discover_directories; remove_found_directories; echo --\n\
        cd \"$root\"; find . -type f | sort";
    let kept = "./etc/ld.so.conf.d/other.conf\n./etc/libibverbs.d/owned.driver\n";
    let said = prints(&files, &[("rpm", &owned("mlnx-tools"))], "dnf", steps);
    assert!(said.ends_with(&format!("--\n{kept}./usr/share/doc/ofed/chapter\n")), "{said}");
    let said = prints(&files, &[("rpm", &owned("ucx"))], "dnf", steps);
    assert!(said.contains("rdmaprep: /usr/local/ofed/4.6 stays: package ucx has files in it\n"), "{said}");
    assert!(
        said.ends_with(
            "--\n./etc/ld.so.conf.d/ofed.conf\n./etc/ld.so.conf.d/other.conf\n./etc/libibverbs.d/owned.driver\n\
             ./usr/local/ofed/4.6/x\n./usr/share/doc/ofed/chapter\n"
        ),
        "{said}"
    );
}

#[test]
fn an_image_of_something_else_is_refused() {
    let release = [("etc/os-release", "NAME=x\nID=\"centos\"\nVERSION_ID='8.4'\n")];
    for version in ["8", "8.4"] {
        assert_eq!(prints(&release, &[], "dnf", &format!("expect_distro centos {version}; echo ok")), "ok\n");
    }
    let expected = "rdmaprep[other-distribution]: this Dockerfile is for rhel 8, and the base image is centos 8.4";
    fails(&release, &[], "dnf", "expect_distro rhel 8", expected);
    let expected = "rdmaprep[other-distribution]: this Dockerfile is for centos 8.40, and the base image is centos 8.4";
    fails(&release, &[], "dnf", "expect_distro centos 8.40", expected);
    let expected = "rdmaprep[other-distribution]: the base image does not say which distribution it is (no os-release)";
    fails(&[], &[], "dnf", "expect_distro rhel 8", expected);
    let has = |name: &str| format!("case \"$*\" in '-q {name}') ;; *) exit 1 ;; esac");
    let steps = "prepare_unseen x86_64 x86-64 \"$root\"; echo $manager";
    let (uname, id) = (("uname", "echo x86_64"), ("id", "echo 0"));
    assert_eq!(prints(&[], &[("rpm", &has("yum")), uname, id], "dnf", steps), "yum\n");
    let expected = "rdmaprep[no-manager]: of package managers the base image has microdnf, and dnf or yum are needed";
    fails(&[], &[("rpm", &has("microdnf")), uname, id], "dnf", steps, expected);
    let expected =
        "rdmaprep[no-manager]: of package managers the base image has none that is known, and dnf or yum are needed";
    fails(&[], &[("rpm", "exit 1"), uname, id], "dnf", steps, expected);
    let expected = "rdmaprep[other-architecture]: this Dockerfile is for x86_64, and the base image is for aarch64";
    fails(&[], &[("uname", "echo aarch64"), id], "dnf", steps, expected);
    let expected = "rdmaprep[not-root]: the base image does not run as root: write this Dockerfile with --user 1000";
    fails(&[], &[("id", "echo 1000")], "dnf", steps, expected);
}
