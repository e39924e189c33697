//! The agent's GPU kernels: the PTX in the repository is what NVRTC makes of the source, and drivers' assemblers take it.

use crate::support::skipping;
use crate::support::wheels;

use skipping::say_skipped;
use std::path::Path;
use std::process::Command;

/// The value in `tests/rig/kernels.sh`.
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

/// Assemblers of CUDA (a driver has the same), and GPUs that each knows: Pascal, Volta, Turing, Ampere, Ada, Hopper,
/// Blackwell. CUDA 13 makes nothing for Pascal any more, and still takes PTX that was compiled for it.
const ASSEMBLERS: [(&str, &str, &str, &[u32]); 3] = [
    ("nvidia-cuda-nvcc-cu12", "12.1.105", "nvidia/cuda_nvcc/bin/ptxas", &[60, 70, 75, 80, 86, 89, 90]),
    ("nvidia-cuda-nvcc-cu12", "12.9.86", "nvidia/cuda_nvcc/bin/ptxas", &[60, 70, 90, 100, 120]),
    ("nvidia-cuda-nvcc", "13.5.37", "nvidia/cu13/bin/ptxas", &[75, 80, 90, 100, 120]),
];

#[test]
fn assemblers_of_old_and_new_drivers_take_the_ptx() {
    let directory = tempfile::tempdir().unwrap();
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/agent/kernels/all_reduce.ptx");
    for (project, version, file, targets) in ASSEMBLERS {
        let folder = match wheels::wheel(project, version, &[file]) {
            Ok(folder) => folder,
            Err(reason) => return say_skipped(&reason),
        };
        for target in targets {
            let mut ptxas = Command::new(folder.join(file));
            ptxas.arg(format!("--gpu-name=sm_{target}")).arg(&ptx).arg("-o").arg(directory.path().join("cubin"));
            let output = ptxas.output().unwrap();
            assert!(output.status.success(), "{version}, sm_{target}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
