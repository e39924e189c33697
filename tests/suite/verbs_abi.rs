//! What `src/ffi/rdma/abi.rs` takes `infiniband/verbs.h` to say is what rdma-core's header says to a C compiler.

use crate::support::skipping;

use skipping::say_skipped;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fetched = Command::new(root.join("tests/rig/verbs-headers.sh")).stdin(Stdio::null()).output().unwrap();
    if !fetched.status.success() {
        let stderr = String::from_utf8_lossy(&fetched.stderr);
        let reason = stderr.lines().last().unwrap_or("no reason");
        return say_skipped(&format!("libibverbs-dev could not be fetched: {reason}"));
    }
    let headers = String::from_utf8(fetched.stdout).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let known = rdmaprep::ffi::rdma::layout();
    let names: String = known.iter().map(|(name, _)| format!("X({name})\n")).collect();
    std::fs::write(directory.path().join("names.h"), names).unwrap();
    let program = directory.path().join("verbs");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Werror", "-isystem"]).arg(headers.trim_end());
    compiler.arg("-I").arg(directory.path()).arg("-o").arg(&program).arg(root.join("tests/abi/verbs.c"));
    match compiler.output() {
        Ok(compiled) => assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr)),
        Err(error) => return say_skipped(&format!("there is no C compiler (cc): {error}")),
    }
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<String> = known.iter().map(|(name, value)| format!("{name}\t{value}")).collect();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(expected, said);
    assert!(known.len() > 150, "{}", known.len());
}
