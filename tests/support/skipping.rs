//! Honest skipping: the reason on stderr, past the test harness, and in the file that the test runner reads.

use std::io::Write;

/// Says that the running test did not run, and why.
pub fn say_skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one piece, because tests run side by side.
    let _ = std::io::stderr().write_all(format!("skipped: {name}: {reason}\n").as_bytes());
    if let Some(path) = std::env::var_os("RDMAPREP_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}
