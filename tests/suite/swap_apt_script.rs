//! The functions of templates/swap-apt.sh on small roots, with stand-ins for the programs that they call, in each shell
//! that an image may have as `/bin/sh`. The real programs are in engine, userspaces and recipe_builds.

use crate::support::{joined_functions, say_skipped};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/swap-apt.sh");
const DISCOVERY: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/templates/discover.sh"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/templates/discover-apt.sh"),
];
const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

/// Programs as functions, which come before a shell's own: busybox has a dpkg.
const FUNCTIONS: &str = r#"
dpkg() {
  case "$1" in
    -L) cat "$root/files" ;;
    -S) grep -qxF -e "$2" "$root/owned" ;;
    --print-architecture) echo amd64 ;;
    --get-selections) cat "$root/selections" ;;
    --set-selections) sed 's/^/selected /' ;;
    --no-act)
      shift 2
      set -- " $* "
      while read -r required by; do
        case "$1" in
          *" $by "*) continue ;;
          *" $required "*)
            printf 'dpkg: dependency problems prevent removal of %s:\n %s depends on %s; however:\n' "$required" "$by" "$required"
            return 1 ;;
        esac
      done < "$root/required" ;;
  esac
}
id() { echo "${uid:-0}"; }
env() { shift 2; "$@"; }
ldconfig() { [ "$#" = 0 ] || cat "$root/loader"; }
readlink() { echo "$2"; }
"#;

/// dash has no function with such a name.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "dpkg-query",
        r#"case "$3 $4" in
  *Status*) cat "$root/packages" ;;
  *Depends*:*) exit 1 ;;
  *Depends*" pinned-tools") echo ', libc6 (>= 2), librdmacm1:any (= 44.1-2)' ;;
  *Depends*) echo ', libc6 (>= 2), libibverbs1 (>= 2)' ;;
esac"#,
    ),
    (
        "apt-get",
        r#"case " $* " in
  *" --simulate "*) cat "$root/simulation" ;;
esac"#,
    ),
    (
        "apt-cache",
        r#"shift
for name; do
  grep "^ $name |" "$root/madison" || true
done"#,
    ),
];

/// Functions of the scripts as they are, and for bash as a Dockerfile has them.
pub fn functions(shell: &[&str], scripts: &[&str]) -> String {
    match shell[0] {
        "bash" => joined_functions(scripts),
        _ => scripts.iter().map(|path| format!(". {path}\n")).collect(),
    }
}

/// Runs `steps` after `prepare` on a root with these files; gives exit code, standard output and standard error.
fn run(shell: &[&str], files: &[(&str, &str)], steps: &str) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root").display().to_string();
    std::fs::create_dir_all(&root).unwrap();
    for (path, content) in files {
        let path = dir.path().join("root").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    for (name, body) in PROGRAMS {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\nroot={root}\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let programs = dir.path().display();
    let functions = functions(shell, &[SCRIPT, DISCOVERY[0], DISCOVERY[1]]);
    let script = format!(
        "{FUNCTIONS}\n{functions}\ntrap 'rm -rf \"$tmp\"' EXIT\nprepare amd64 x86-64 {root}\nprograms={programs}; PATH=$programs:$PATH\n\
         debs=$tmp apt=online proxy= pins= repo=R\n{steps}\n"
    );
    let output = Command::new(shell[0]).args(&shell[1..]).args(["-c", &script]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&root, "ROOT");
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// What every shell prints to standard output.
fn prints(files: &[(&str, &str)], steps: &str) -> String {
    let printed = SHELLS.map(|shell| {
        let (code, out, said) = run(shell, files, steps);
        assert_eq!(code, 0, "{shell:?}: {out}{said}");
        out
    });
    assert!(printed.iter().all(|out| *out == printed[0]), "{printed:?}");
    printed[0].clone()
}

/// Every shell ends with that line, and comes to no step after.
fn fails(files: &[(&str, &str)], steps: &str, expected: &str) {
    for shell in SHELLS {
        let (code, out, said) = run(shell, files, &format!("{steps}\necho reached the end"));
        assert_eq!((code, said.lines().last()), (1, Some(expected)), "{shell:?}: {out}{said}");
        assert!(!out.contains("reached the end"), "{shell:?}: {out}");
    }
}

#[test]
fn shellcheck_has_nothing_to_say() {
    let Ok(output) = Command::new("shellcheck").args(["-s", "sh", SCRIPT]).args(DISCOVERY).output() else {
        return say_skipped("shellcheck is not installed");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_was_left_goes_and_nothing_else() {
    let files = [
        ("etc/apt/sources.list", "deb http://a x\ndeb http://b/it's ./\n"),
        ("etc/apt/preferences.d/erdma", "old"),
        ("etc/a file", ""),
        ("etc/stays", ""),
        ("opt/mellanox/bin/x", ""),
    ];
    let steps = "remove_files '/etc/a file' /etc/none\nremove_directories /opt/mellanox\nforget_pins erdma doca\n\
                 drop_entry /etc/apt/sources.list \"deb http://b/it's ./\"\ncat \"$root/etc/apt/sources.list\"\n\
                 (cd \"$root\" && find . -type f | sort)";
    assert_eq!(prints(&files, steps), "deb http://a x\n./etc/apt/sources.list\n./etc/stays\n");
}

const MADISON: &str = " libibverbs1 | 44.1-2 | http://m jammy Packages\n libibverbs1 | 39.0-1 | http://m jammy Packages\n\
                       librdmacm1t64 | 44.1-2 | http://m\n perftest | 2307mlnx47-1 | http://mellanox\n perftest | 4.5-1 | http://u\n";

/// The first of a package's names that is offered, in its first version; and what becomes of the others.
#[test]
fn versions_are_chosen_from_what_is_offered() {
    let steps = "cp \"$root/madison\" \"$tmp/offers\"\ntake libibverbs1\ntake librdmacm1 librdmacm1t64\n\
                 companion libibverbs-dev remove\ncompanion libibumad3 keep\ncompanion ibacm distribution\n\
                 note_renamed librdmacm1 libibverbs1\ntake_also sockperf\nchoose_offers\nchoose_others\n\
                 cat \"$tmp/chosen\" \"$tmp/arguments\"";
    let expected = "libibverbs1=44.1-2\nlibrdmacm1t64=44.1-2\nlibibverbs-dev-\nibacm-\nlibrdmacm1-\nsockperf\n";
    assert_eq!(prints(&[("madison", MADISON)], steps), expected);
    // Mellanox's builds are for other devices: the first that is not one.
    let elsewhere = "elsewhere perftest none";
    let files = [("madison", " perftest | 2307mlnx47-1 | http://mellanox\n perftest | 4.5-1 | http://u\n")];
    assert_eq!(prints(&files, elsewhere), "perftest=4.5-1\n");
}

#[test]
fn a_package_that_nobody_offers_ends_the_build() {
    let take = "cp \"$root/madison\" \"$tmp/offers\"\ntake ibverbs-providers ibverbs-other\n";
    let files = [("madison", MADISON)];
    let lacks = "package ibverbs-providers is not in R";
    fails(&files, &format!("{take}choose_offers"), &format!("rdmaprep[apt-sources-lack-package]: {lacks}"));
    fails(&files, &format!("{take}pins=x\nchoose_offers"), &format!("rdmaprep[package-missing]: {lacks}"));
    fails(
        &[("madison", "")],
        "use_image_sources ''\ntake a\nfetch_from_image_sources",
        "rdmaprep[apt-sources-lack-package]: none of the packages is in the apt sources of the image: can they be reached?",
    );
}

#[test]
fn nothing_else_may_go() {
    let steps = "take libibverbs1\ndrop_packages mlnx-tools 'ibacm:i386'\nmay_go libmlx5-1\nswap_packages";
    let may = "Inst x\nPurg mlnx-tools [1]\nRemv ibacm:i386 [1]\nRemv libmlx5-1 [1]\nRemv libibverbs1 [1]\n";
    prints(&[("simulation", may)], steps);
    let removes = format!("{may}Remv my-trainer [1]\n");
    let said = "rdmaprep[swap-removes-package]: the swap would remove my-trainer, which is outside the RDMA set";
    fails(&[("simulation", &removes)], steps, said);
    fails(&[], steps, "rdmaprep[apt-conflict]: apt cannot put these packages together");
}

#[test]
fn the_loader_has_the_last_word() {
    let loader = "\tlibibverbs.so.1 (libc6,AArch64) => /other/libibverbs.so.1\n\tlibibverbs.so.1 (libc6,x86-64) => /usr/lib/x/libibverbs.so.1\n";
    let steps = "prove_loader erdma\necho \"$lib $providers\"";
    let with =
        |loader, files, driver| [("loader", loader), ("files", files), ("etc/libibverbs.d/erdma.driver", driver)];
    let there = "/lib/x/libibverbs.so.1\n/usr/lib/x/libibverbs/liberdma-rdmav*.so\n";
    let lib = "/usr/lib/x/libibverbs.so.1 /usr/lib/x/libibverbs\n";
    assert_eq!(prints(&with(loader, there, "driver erdma\n"), steps), lib);
    let no_file = "rdmaprep[no-driver-file]: /etc/libibverbs.d/erdma.driver does not name the erdma driver";
    fails(&with(loader, there, "driver mlx5\n"), steps, no_file);
    let other = "rdmaprep[other-libibverbs]: the loader finds /usr/lib/x/libibverbs.so.1 before the libibverbs.so.1 of package libibverbs1";
    fails(&with(loader, "/usr/lib/y/libibverbs.so.1\n", ""), steps, other);
    let none = "rdmaprep[no-provider]: package ibverbs-providers brings no erdma provider to /usr/lib/x/libibverbs";
    fails(&with(loader, "/usr/lib/x/libibverbs.so.1\n", ""), steps, none);
    fails(&with("", "", ""), steps, "rdmaprep[no-libibverbs]: the loader finds no libibverbs.so.1");
}

/// An image with MLNX_OFED: status, name, architecture, version and source of each package.
const PACKAGES: &str = "\
installed bash amd64 5.2 bash
installed ibverbs-providers amd64 2307mlnx47-1 rdma-core
installed libibverbs1 amd64 2307mlnx47-1 rdma-core
installed libibverbs1 i386 2307mlnx47-1 rdma-core
installed librdmacm1t64 amd64 2307mlnx47-1 rdma-core
installed libibumad3 amd64 2307mlnx47-1 rdma-core
installed ibacm amd64 44.1-2 rdma-core
installed perftest amd64 4.5-1 perftest
installed pinned-tools all 44.1-2 rdma-core
installed libmlx5-1 amd64 41mlnx1-1 libmlx5
installed mft amd64 4.26-1 mft
installed mlnx-tools amd64 23.10-1 mlnx-tools
installed mlnx-ethtool amd64 6.4-1 mlnx-ethtool
installed my-ucx amd64 1.15.2307MLNX-1 my-ucx
config-files mlnx-fw-updater amd64 23.10-1 mlnx-fw-updater
installed ucx amd64 1-1 ucx
";

/// What the plan from facts says of the same packages (dockerfiles).
#[test]
fn packages_are_found_at_build_time() {
    let files = [
        ("packages", PACKAGES),
        ("required", "mlnx-tools my-trainer\nmft mlnx-tools\n"),
        ("selections", "bash\thold\nlibibverbs1:amd64\thold\nmlnx-ethtool\thold\nucx\tinstall\n"),
    ];
    let steps = |whose: &str| {
        format!(
            "prepare_unseen amd64 x86-64 \"$root\"; PATH=$programs:$PATH; list_installed\n\
             rdma_packages libibverbs1 libibumad3 perftest; split_providers libmlx5-1 librxe-1; ofed_packages mft 'mlnx-*'\n\
             take_present libibverbs1; take_present librdmacm1t64 librdmacm1; take_present ibverbs-providers\n\
             discover_packages {whose}; sort \"$tmp/removable\" > \"$tmp/may\"\n\
             cat \"$tmp/taken\" \"$tmp/more\" \"$tmp/drops\"; echo --; uniq \"$tmp/may\""
        )
    };
    let said = prints(&files, &steps("vendor"));
    let (noted, removable) = said.split_once("--\n").unwrap();
    let noted: Vec<&str> = noted.lines().filter(|line| !line.starts_with("rdmaprep: found")).collect();
    let expected = [
        "rdmaprep: package mlnx-tools stays: my-trainer depends on it",
        "rdmaprep: package mft stays: mlnx-tools depends on it",
        "selected libibverbs1:amd64 install",
        "selected mlnx-ethtool install",
        "libibverbs1",
        "librdmacm1t64 librdmacm1",
        "ibverbs-providers",
        "renamed librdmacm1t64",
        "distribution libibumad3",
        "keep ibacm",
        "keep perftest",
        "remove pinned-tools",
        "libmlx5-1-",
        "mlnx-ethtool-",
        "my-ucx-",
        "libibverbs1:i386-",
    ];
    assert_eq!(noted, expected);
    assert!(removable.contains("libmlx5-1\n") && !removable.contains("mft"), "{removable}");
    // Whoever asks for a package does not want it gone.
    let said = prints(&files, &steps("vendor").replace("discover_packages", "take_also my-ucx; discover_packages"));
    assert!(!said.contains("my-ucx-") && said.contains("mlnx-ethtool-"), "{said}");
    // DOCA's tools are OFED's successors.
    let said = prints(&files, &steps("doca"));
    assert!(said.contains("keep libibumad3\n") && said.contains("\nlibibverbs1:i386-\n"), "{said}");
    assert!(!said.contains("mlnx-ethtool-"), "{said}");
}

#[test]
fn repositories_are_found_at_build_time() {
    let files = [
        ("owned", ""),
        (
            "etc/apt/sources.list",
            "# deb http://mlnx/ x\ndeb http://a/ubuntu jammy main\n  deb [trusted=yes] https://linux.mellanox.com/public/repo ./ # it\n",
        ),
        (
            "etc/apt/sources.list.d/ofed.list",
            "deb [signed-by=/usr/share/keyrings/theirs.gpg] http://linux.Mellanox.com/x ./\n",
        ),
        ("etc/apt/sources.list.d/erdma.list", "deb [signed-by=/k] http://m/ x\n"),
        ("etc/apt/sources.list.d/alibaba.list", "deb http://m/erdma/apt/ubuntu jammy/erdma main\n"),
        (
            "etc/apt/sources.list.d/doca.sources",
            "Types: deb\nURIs: https://linux.mellanox.com/public/repo/doca/2.9\nSuites: ./\n",
        ),
        (
            "etc/apt/sources.list.d/mixed.sources",
            "Types: deb\nURIs: https://n/doca/2.9\nSuites: ./\n\nTypes: deb\nURIs: http://a/mlnx-free\nSuites: x\n",
        ),
        (
            "etc/apt/sources.list.d/shared.sources",
            "Types: deb\nURIs: https://n/doca/2.9\n\nTypes: deb\nURIs: http://b\n",
        ),
        ("etc/apt/sources.list.d/mine.list", "deb [signed-by=/usr/share/keyrings/mlnx-mirror.asc] http://a/mine x\n"),
        ("etc/apt/keyrings/erdma.asc", ""),
        ("etc/apt/keyrings/erdma.gpg", ""),
        ("etc/apt/keyrings/mine.gpg", "key of me"),
        ("etc/apt/trusted.gpg.d/GPG-KEY-Mellanox.pub", ""),
        ("etc/apt/trusted.gpg.d/x.gpg", "key of Mellanox Technologies"),
        ("usr/share/keyrings/theirs.gpg", ""),
    ];
    let steps = "prepare_unseen amd64 x86-64 \"$root\"\nspare_key /etc/apt/keyrings/erdma.gpg\n\
                 discover_repositories erdma mlx5 doca\n\
                 echo --; cat \"$root/etc/apt/sources.list\"; cd \"$root\"; find etc usr -type f > list; sort list";
    let mut files = files.to_vec();
    files.push(("packages", ""));
    let said = prints(&files, steps);
    let (told, left) = said.split_once("--\n").unwrap();
    assert!(
        told.contains("shared.sources stays: it also has other repositories; remove this stanza by hand:\n"),
        "{told}"
    );
    assert_eq!(
        left,
        "# deb http://mlnx/ x\ndeb http://a/ubuntu jammy main\netc/apt/keyrings/erdma.gpg\netc/apt/keyrings/mine.gpg\n\
         etc/apt/sources.list\netc/apt/sources.list.d/mine.list\netc/apt/sources.list.d/shared.sources\n"
    );
}

#[test]
fn directories_and_driver_files_are_found_at_build_time() {
    let files = |owner: &'static str| {
        [
            ("opt/mellanox/a/x", ""),
            ("usr/local/ofed/4.6/x", ""),
            ("usr/share/doc/ofed/chapter", ""),
            ("etc/ld.so.conf.d/ofed.conf", "/opt/Mellanox/lib\n"),
            ("etc/libibverbs.d/owned.driver", "driver owned\n"),
            ("etc/libibverbs.d/loose.driver", "driver loose\n"),
            ("owned", "/etc/libibverbs.d/owned.driver\n"),
            (owner, "/.\n/usr/local\n/usr/local/ofed/4.6/x\n"),
        ]
    };
    let steps = "echo mlnx-tools > \"$tmp/purge\"; discover_driver_files; discover_directories; remove_found_directories; echo --\n\
                 cd \"$root\"; find etc opt usr -type f > list; sort list";
    let said = prints(&files("var/lib/dpkg/info/mlnx-tools.list"), steps);
    assert!(said.ends_with("--\netc/libibverbs.d/owned.driver\nusr/share/doc/ofed/chapter\n"), "{said}");
    let said = prints(&files("var/lib/dpkg/info/ucx:amd64.list"), steps);
    assert!(said.contains("rdmaprep: /usr/local/ofed/4.6 stays: package ucx has files in it\n"), "{said}");
    assert!(
        said.ends_with(
            "--\netc/ld.so.conf.d/ofed.conf\netc/libibverbs.d/owned.driver\nusr/local/ofed/4.6/x\nusr/share/doc/ofed/chapter\n"
        ),
        "{said}"
    );
}

#[test]
fn an_image_of_something_else_is_refused() {
    let said = "rdmaprep[other-architecture]: this Dockerfile is for arm64, and the base image is for amd64";
    fails(&[], "prepare_unseen arm64 AArch64", said);
    let said = "rdmaprep[not-root]: the base image does not run as root: write this Dockerfile with --user 1000";
    fails(&[], "uid=1000\nprepare_unseen amd64 x86-64", said);
    let said = "rdmaprep[no-manager]: the base image has no dpkg, which is needed";
    fails(&[], "command() { false; }\nprepare_unseen amd64 x86-64", said);
}
