//! Tests that need a process of their own: for an environment, or for what the kernel counts of a process.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Set in the child.
const CHILD: &str = "RDMAPREP_TEST_CHILD";

/// Runs the test `name` (`module::function`) again, alone in a process, with these programs (name and text) in front of
/// `PATH`. Returns false in that process, which goes on.
pub fn runs_in_own_process(name: &str, programs: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    for (program, text) in programs {
        let path = dir.path().join(program);
        std::fs::write(&path, text).expect("writing the program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("making it executable");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(dir.path().to_owned()).chain(std::env::split_paths(&path));
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .env("PATH", std::env::join_paths(paths).expect("a path list"))
        .output()
        .expect("running this program");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "the child ran the test: {out}");
    let skipped: String = err.lines().filter(|line| line.starts_with("skipped: ")).collect();
    let _ = writeln!(std::io::stderr(), "{skipped}");
    true
}
