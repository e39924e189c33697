//! The agent's GPU kernels: the PTX in the repository is what NVRTC makes of the source.

#[path = "support/skipping.rs"]
mod skipping;
#[path = "support/wheels.rs"]
mod wheels;

use skipping::say_skipped;
use std::path::Path;
use std::process::Command;

/// As in `tests/rig/kernels.sh`.
const NVRTC: &str = "12.1.105";
const NVRTC_FILES: [&str; 2] =
    ["nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.1"];

#[test]
fn the_ptx_is_that_of_the_source() {
    if let Err(reason) = wheels::wheel("nvidia-cuda-nvrtc-cu12", NVRTC, &NVRTC_FILES) {
        return say_skipped(&reason);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let compiled = directory.path().join("all_reduce.ptx");
    let output = Command::new(root.join("tests/rig/kernels.sh")).arg(&compiled).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let committed = std::fs::read_to_string(root.join("src/agent/kernels/all_reduce.ptx")).unwrap();
    let compiled = std::fs::read_to_string(compiled).unwrap();
    assert!(committed == compiled, "src/agent/kernels/all_reduce.ptx is not up to date: run tests/rig/kernels.sh");
}
