//! The program as it is given out (`tests/rig/dist.sh`): what it needs of a system, and that it starts on old and new ones.

use crate::support::readelf;
use crate::support::skipping;
use crate::support::standin;

use skipping::say_skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The C library's own parts before glibc 2.34; since then all but the first and the loader are empty.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"];
/// CentOS 7's.
const OLDEST_GLIBC: (u32, u32) = (2, 17);
/// Debian releases and their glibc; sid has the newest. Releases older than these are on a server of their own.
const SUITES: [(&str, &str); 3] = [("bullseye", "2.31"), ("trixie", "2.41"), ("sid", "2.")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn program() -> Option<PathBuf> {
    let program = root().join("target/dist/rdmaprep");
    if program.exists() {
        return Some(program);
    }
    say_skipped("target/dist/rdmaprep is not there (make dist)");
    None
}

#[test]
fn it_needs_an_old_c_library_and_nothing_else() {
    let Some(program) = program() else { return };
    let wanted = readelf::wanted(&program);
    for library in &wanted.libraries {
        assert!(LIBRARIES.contains(&library.as_str()), "it needs {library}");
    }
    assert!(wanted.libraries.iter().any(|library| library == "libc.so.6"), "{:?}", wanted.libraries);
    let newest = wanted.newest_glibc();
    assert!(newest <= OLDEST_GLIBC && newest > (2, 0), "it needs glibc {newest:?}: {:?}", wanted.versions);
    let foreign: Vec<&String> = wanted.versions.iter().filter(|version| !version.starts_with("GLIBC_")).collect();
    assert!(foreign.is_empty(), "it needs {foreign:?}");
}

/// The root with a release's C library; the error is the reason why there is none.
fn libc_root(suite: &str) -> Result<PathBuf, String> {
    let output = Command::new(root().join("tests/rig/libc-root.sh")).arg(suite).stdin(Stdio::null()).output().unwrap();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let reason = stderr.lines().last().unwrap_or("no reason was given").to_owned();
        return Err(format!("the C library of Debian {suite} could not be fetched: {reason}"));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// What a program of a root prints to stdout and stderr; `None`: only root may start one, and the test says that it was skipped.
fn in_root(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("chroot");
    // Symbols are looked for at once, not when they are called.
    command.arg(folder).args(arguments).env("LD_BIND_NOW", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        say_skipped("chroot is for root");
        return None;
    }
    assert!(output.status.success(), "{arguments:?} in {}: {stderr}", folder.display());
    Some(String::from_utf8(output.stdout).unwrap() + &stderr)
}

#[test]
fn it_starts_on_old_and_new_systems() {
    let Some(program) = program() else { return };
    for (suite, glibc) in SUITES {
        let folder = match libc_root(suite) {
            Ok(folder) => folder,
            Err(reason) => {
                say_skipped(&reason);
                continue;
            }
        };
        // Is it the system that it is taken for? The library is a program that says what it is.
        let Some(library) = in_root(&folder, &["/lib/x86_64-linux-gnu/libc.so.6"]) else { return };
        assert!(library.contains(&format!("release version {glibc}")), "Debian {suite}: {library}");

        let name = format!("/rdmaprep.{}", std::process::id());
        let copy = folder.join(&name[1..]);
        // A copy of this process's own would be open for writing in whatever other tests start meanwhile.
        assert!(Command::new("cp").arg(&program).arg(&copy).status().unwrap().success());
        let said = in_root(&folder, &[&name, "--version"]);
        std::fs::remove_file(&copy).unwrap();
        assert_eq!(said.unwrap().trim(), concat!("rdmaprep ", env!("CARGO_PKG_VERSION")), "Debian {suite}");
    }
}

/// The libraries that tests put beside the program (`tests/standin`) must load wherever it starts.
#[test]
fn the_stand_ins_load_on_old_and_new_systems() {
    let Some(program) = program() else { return };
    let built = match standin::build("dist", &[]) {
        Ok(built) => built,
        Err(reason) => return say_skipped(&reason),
    };
    for (suite, _) in SUITES {
        let folder = match libc_root(suite) {
            Ok(folder) => folder,
            Err(reason) => {
                say_skipped(&reason);
                continue;
            }
        };
        let own = tempfile::tempdir_in(&folder).unwrap();
        let inside = Path::new("/").join(own.path().file_name().unwrap());
        std::fs::copy(&program, own.path().join("rdmaprep")).unwrap();
        let mut preload = Vec::new();
        for library in ["libcuda.so.1", "libnccl.so.2", "libibverbs.so.1"] {
            std::fs::copy(built.join(library), own.path().join(library)).unwrap();
            preload.push(inside.join(library).to_str().unwrap().to_owned());
        }
        // The loader itself says on stderr what it can not load, or finds no symbol for.
        let loader = ["/lib64/ld-linux-x86-64.so.2", "--preload", &preload.join(":")];
        let program = inside.join("rdmaprep");
        let arguments = [&loader[..], &[program.to_str().unwrap(), "--version"]].concat();
        let Some(said) = in_root(&folder, &arguments) else { return };
        assert_eq!(said.trim(), concat!("rdmaprep ", env!("CARGO_PKG_VERSION")), "Debian {suite}");
    }
}
