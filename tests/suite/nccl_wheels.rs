//! Real NCCL libraries, as NVIDIA's wheels have them, and the headers of NCCL, CUDA and libibverbs: each library opens and says
//! its version, and the numbers that the agent knows are the headers'.

use crate::support::skipping;
use crate::support::wheels;

use skipping::say_skipped;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NCCL_LIBRARY: &str = "nvidia/nccl/lib/libnccl.so.2";
const NCCL_HEADER: &str = "nvidia/nccl/include/nccl.h";
/// Oldest to newest; 2.27 and later differ in how they look for plugins.
const NCCL: [(&str, &str); 6] = [
    ("nvidia-nccl-cu12", "2.18.3"),
    ("nvidia-nccl-cu12", "2.19.3"),
    ("nvidia-nccl-cu12", "2.21.5"),
    ("nvidia-nccl-cu12", "2.27.7"),
    ("nvidia-nccl-cu12", "2.28.9"),
    ("nvidia-nccl-cu13", "2.29.7"),
];
const CUDA_HEADER: &str = "nvidia/cuda_runtime/include/cuda.h";
/// The first and the last CUDA 12 that have a wheel of their own.
const CUDA: [&str; 2] = ["12.1.105", "12.9.79"];

/// What every NCCL since 2.18 has and an agent may need.
const SYMBOLS: [&str; 14] = [
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclAllReduce",
    "ncclCommGetAsyncError",
    "ncclGetLastError",
    "ncclGetErrorString",
    "ncclCommDestroy",
    "ncclCommFinalize",
    "ncclCommAbort",
    "ncclCommCount",
    "ncclCommSplit",
    "ncclGroupStart",
    "ncclGroupEnd",
];

/// Since 2.19.
const LATER_SYMBOLS: [&str; 2] = ["ncclMemAlloc", "ncclMemFree"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi").join(name)
}

/// Compiles a program; `false`: there is no compiler, and the test says that it was skipped.
fn compile(source: &Path, include: &[&Path], program: &Path) -> bool {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Werror", "-o"]).arg(program).arg(source).arg("-ldl");
    for folder in include {
        command.arg("-isystem").arg(folder);
    }
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            say_skipped(&format!("there is no C compiler (cc): {error}"));
            false
        }
    }
}

/// What a program prints that must succeed.
fn printed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_library_opens_and_says_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("open");
    if !compile(&source("open.c"), &[], &program) {
        return;
    }
    for (project, version) in NCCL {
        let folder = match wheels::wheel(project, version, &[NCCL_LIBRARY, NCCL_HEADER]) {
            Ok(folder) => folder,
            Err(reason) => return say_skipped(&reason),
        };
        let parts: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
        let mut symbols = SYMBOLS.to_vec();
        if parts[1] >= 19 {
            symbols.extend(LATER_SYMBOLS);
        }
        let said = printed(Command::new(&program).arg(folder.join(NCCL_LIBRARY)).args(symbols));
        let code = parts[0] * 10_000 + parts[1] * 100 + parts[2];
        assert_eq!(said, format!("version {code}\n"), "{project} {version}");
        // And through the agent's own table.
        let mut agent = Command::new(env!("CARGO_BIN_EXE_rdmaprep"));
        let said = printed(agent.args(["agent", "nccl-version"]).arg(folder.join(NCCL_LIBRARY)));
        assert_eq!(said, format!("{code}\n"), "{project} {version}");
    }
}

/// By name, in C's words.
const NUMBERS: [(&str, i64); 55] = [
    ("sizeof(ncclUniqueId)", 128),
    ("sizeof(ncclResult_t)", 4),
    ("ncclSuccess", 0),
    ("ncclUnhandledCudaError", 1),
    ("ncclSystemError", 2),
    ("ncclInternalError", 3),
    ("ncclInvalidArgument", 4),
    ("ncclInvalidUsage", 5),
    ("ncclRemoteError", 6),
    ("ncclInProgress", 7),
    ("ncclFloat16", 6),
    ("ncclFloat32", 7),
    ("ncclBfloat16", 9),
    ("ncclSum", 0),
    ("offsetof(ncclConfig_t, size)", 0),
    ("offsetof(ncclConfig_t, magic)", 8),
    ("offsetof(ncclConfig_t, version)", 12),
    ("offsetof(ncclConfig_t, blocking)", 16),
    ("sizeof(CUdevice)", 4),
    ("sizeof(CUdeviceptr)", 8),
    ("sizeof(CUresult)", 4),
    ("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", 16),
    ("CU_DEVICE_ATTRIBUTE_ECC_ENABLED", 32),
    ("CU_DEVICE_ATTRIBUTE_PCI_BUS_ID", 33),
    ("CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID", 34),
    ("CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID", 50),
    ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", 75),
    ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", 76),
    ("CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED", 116),
    ("CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", 124),
    ("CU_STREAM_NON_BLOCKING", 1),
    ("CUDA_ERROR_OUT_OF_MEMORY", 2),
    ("CUDA_ERROR_NOT_INITIALIZED", 3),
    ("CUDA_ERROR_STUB_LIBRARY", 34),
    ("CUDA_ERROR_NO_DEVICE", 100),
    ("CUDA_ERROR_INVALID_DEVICE", 101),
    ("CUDA_ERROR_INVALID_CONTEXT", 201),
    ("CUDA_ERROR_INVALID_PTX", 218),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 222),
    ("CUDA_ERROR_NOT_FOUND", 500),
    ("CUDA_ERROR_NOT_READY", 600),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", 700),
    ("CUDA_ERROR_NOT_SUPPORTED", 801),
    ("CUDA_ERROR_SYSTEM_NOT_READY", 802),
    ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 803),
    ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 804),
    ("CUDA_ERROR_UNKNOWN", 999),
    ("sizeof(struct ibv_device_attr)", 232),
    ("sizeof(struct ibv_port_attr)", 52),
    ("offsetof(struct ibv_device, name)", 24),
    ("offsetof(struct ibv_device, dev_name)", 88),
    ("offsetof(struct ibv_device, dev_path)", 152),
    ("offsetof(struct ibv_device, ibdev_path)", 408),
    ("sizeof(struct ibv_device)", 664),
    ("offsetof(struct ibv_context, device)", 0),
];

/// The folder with Debian's `infiniband/verbs.h`.
fn verbs_headers() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rig/verbs-headers.sh");
    let output = Command::new(script).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("libibverbs-dev could not be fetched: {}", stderr.lines().last().unwrap_or("no reason")));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

#[test]
fn numbers_are_those_of_the_headers() {
    let verbs = match verbs_headers() {
        Ok(folder) => folder,
        Err(reason) => return say_skipped(&reason),
    };
    // What nccl.h includes of the CUDA runtime, as far as it needs it: bfloat16 exists.
    let directory = tempfile::tempdir().unwrap();
    let stubs = directory.path();
    let runtime = "typedef struct CUstream_st *cudaStream_t;\n#define __CUDA_BF16_TYPES_EXIST__ 1\n";
    std::fs::write(stubs.join("cuda_runtime.h"), runtime).unwrap();
    for name in ["cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h"] {
        std::fs::write(stubs.join(name), "").unwrap();
    }
    let wanted: BTreeMap<&str, i64> = NUMBERS.into_iter().collect();
    for ((project, version), cuda_version) in NCCL.into_iter().flat_map(|nccl| CUDA.map(|cuda| (nccl, cuda))) {
        let nccl = wheels::wheel(project, version, &[NCCL_LIBRARY, NCCL_HEADER]);
        let cuda = wheels::wheel("nvidia-cuda-runtime-cu12", cuda_version, &[CUDA_HEADER]);
        let (nccl, cuda) = match (nccl, cuda) {
            (Ok(nccl), Ok(cuda)) => (nccl, cuda),
            (Err(reason), _) | (_, Err(reason)) => return say_skipped(&reason),
        };
        let program = stubs.join("constants");
        let (nccl, cuda) = (nccl.join("nvidia/nccl/include"), cuda.join("nvidia/cuda_runtime/include"));
        let include = [stubs, nccl.as_path(), cuda.as_path(), verbs.as_path()];
        if !compile(&source("constants.c"), &include, &program) {
            return;
        }
        let said = printed(&mut Command::new(&program));
        let found: BTreeMap<&str, i64> = said
            .lines()
            .map(|line| line.split_once('\t').map(|(name, value)| (name, value.parse().unwrap())).unwrap())
            .collect();
        assert_eq!(found, wanted, "{project} {version}, CUDA {cuda_version}");
    }
}

/// What the agent was compiled with is what the headers were compared with.
#[test]
fn the_agent_has_these_numbers() {
    use rdmaprep::facts::run::DataType;
    use rdmaprep::ffi::cuda::{Attribute, DevicePointer, NOT_READY, STREAM_NON_BLOCKING};
    use rdmaprep::ffi::nccl::{SUM, UniqueId, data_type_code};
    let sizes = [("sizeof(ncclUniqueId)", size_of::<UniqueId>()), ("sizeof(CUdeviceptr)", size_of::<DevicePointer>())];
    let numbers = [
        ("ncclFloat16", data_type_code(DataType::Half)),
        ("ncclFloat32", data_type_code(DataType::Float)),
        ("ncclBfloat16", data_type_code(DataType::Bfloat16)),
        ("ncclSum", SUM),
        ("CU_DEVICE_ATTRIBUTE_ECC_ENABLED", Attribute::EccEnabled as i32),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", Attribute::ComputeCapabilityMajor as i32),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", Attribute::ComputeCapabilityMinor as i32),
        ("CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED", Attribute::GpuDirectRdmaSupported as i32),
        ("CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", Attribute::DmaBufSupported as i32),
        ("CUDA_ERROR_NOT_READY", NOT_READY),
        ("CU_STREAM_NON_BLOCKING", i32::try_from(STREAM_NON_BLOCKING).unwrap()),
    ];
    let sizes = sizes.map(|(name, size)| (name, i64::try_from(size).unwrap()));
    for (name, value) in sizes.into_iter().chain(numbers.map(|(name, number)| (name, i64::from(number)))) {
        let (_, expected) = NUMBERS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(value, *expected, "{name}");
    }
}

/// torch's releases for CUDA 12 and 13 on either side of 2.10, which began to say `requires NCCL version 2.27.0 or later`.
const TORCH: [&str; 4] = ["2.8.0", "2.10.0", "2.11.0", "2.15.0"];
const TORCH_LIBRARY: &str = "torch/lib/libtorch_cuda.so";
const SITE: &str = "usr/local/lib/python3.11/site-packages";

/// The wheel's own metadata says which NCCL torch loads, and its RPATH leads to that one.
#[test]
fn torch_has_no_nccl_linked_in_and_loads_the_wheel() {
    for version in TORCH {
        let metadata = format!("torch-{version}.dist-info/METADATA");
        let torch = match wheels::wheel("torch", version, &[TORCH_LIBRARY, &metadata]) {
            Ok(folder) => folder,
            Err(reason) => return say_skipped(&reason),
        };
        let text = std::fs::read_to_string(torch.join(&metadata)).unwrap();
        let asked = text.lines().find_map(|line| line.strip_prefix("Requires-Dist: nvidia-nccl-")).unwrap();
        let (cuda, nccl_version) = asked.split(';').next().unwrap().trim().split_once("==").unwrap();
        let nccl = match wheels::wheel(&format!("nvidia-nccl-{cuda}"), nccl_version, &[NCCL_LIBRARY]) {
            Ok(folder) => folder,
            Err(reason) => return say_skipped(&reason),
        };
        let root = tempfile::tempdir().unwrap();
        for (folder, library) in [(&torch, TORCH_LIBRARY), (&nccl, NCCL_LIBRARY)] {
            let path = root.path().join(SITE).join(library);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if std::fs::hard_link(folder.join(library), &path).is_err() {
                std::fs::copy(folder.join(library), &path).unwrap();
            }
        }
        let output = Command::new(env!("CARGO_BIN_EXE_rdmaprep"))
            .args(["inspect", "--format", "json", &format!("rootfs:{}", root.path().display())])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let facts: rdmaprep::facts::ImageFacts = serde_json::from_slice(&output.stdout).unwrap();
        let copies: Vec<_> = facts.nccl.iter().map(|copy| (copy.path.as_str(), copy.version.as_deref())).collect();
        let wheel = format!("/{SITE}/{NCCL_LIBRARY}");
        let patched = nccl_version.split('.').take(3).collect::<Vec<_>>().join(".");
        assert_eq!(copies, [(wheel.as_str(), Some(patched.as_str()))], "torch {version}");
        let consumer = facts.nccl_consumers.iter().find(|consumer| consumer.name.to_string() == "torch").unwrap();
        assert_eq!(consumer.path.as_deref(), Some(wheel.as_str()), "torch {version}");
        assert_eq!(consumer.by, format!("/{SITE}/{TORCH_LIBRARY}"), "torch {version}");
    }
}
