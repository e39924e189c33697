//! The functions of templates/swap-apt.sh on small roots, with stand-ins for the programs that they call, in each shell
//! that an image may have as `/bin/sh`. The real programs are in engine, userspaces and recipe_builds.

use crate::support::say_skipped;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/swap-apt.sh");
const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

/// Programs as functions, which come before a shell's own: busybox has a dpkg.
const FUNCTIONS: &str = r#"
dpkg() {
  case "$1" in
    -L) cat "$root/files" ;;
  esac
}
env() { shift 2; "$@"; }
ldconfig() { [ "$#" = 0 ] || cat "$root/loader"; }
readlink() { echo "$2"; }
"#;

/// dash has no function with such a name.
const PROGRAMS: [(&str, &str); 2] = [
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
    let script = format!(
        "{FUNCTIONS}\n. {SCRIPT}\ntrap 'rm -rf \"$tmp\"' EXIT\nprepare amd64 {root}\nPATH={programs}:$PATH\n\
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
    let Ok(output) = Command::new("shellcheck").args(["-s", "sh", SCRIPT]).output() else {
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
    let steps = "prove_loader erdma x86-64\necho \"$lib $providers\"";
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
