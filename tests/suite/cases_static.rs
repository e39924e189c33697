//! Bug reports of other people about CUDA images, and what the static inspection has to say of each.
//!
//! Every test makes an image file by file, reads it as an archive and asks the checks. The cases, with the reports that they
//! come from:
//!
//! | case | report | what is tried here |
//! |---|---|---|
//! | A01 | openucx/ucx#6662 | OFED's versions outrank every other: FAIL while one is installed |
//! | A02 | ROCm/MAD#200 | dependents of a package that was torn out: WARN |
//! | A03 | openucx/ucx#6576 | OFED unpacked past the package database: FAIL on the loader's path, else WARN |
//! | A04 | NVIDIA/nccl#1044 | a driver file without its library: WARN, and the job is fine |
//! | A06 | linux-rdma/perftest#262 | erdma.driver without any liberdma: FAIL |
//! | A07 | rdma-core v56 to v64 | library and provider of different builds: FAIL; of one build: PASS |
//! | A08 | rdma-core v43 | Ubuntu 22.04's own packages: FAIL; 24.04's: provider there, WARN |
//! | A09 | horovod/horovod#1117 | libibverbs without providers: FAIL |
//! | A10 | NVIDIA/nvidia-container-toolkit#1877 | no libibverbs: FAIL |
//! | A14 | vendor's pages | distributions that the vendor does not list: said, and not planned for |
//! | A15 | horovod/horovod#1255 | what mlnxofedinstall leaves: source and key are named |
//! | B01 | NVIDIA/nccl#1171 | two NCCLs: each consumer has its own answer |
//! | B03 | NVIDIA/nccl#809 | NCCL inside torch: that one counts |
//! | B04 | pytorch/pytorch#116977 | what torch says of itself does not count: the library does |
//! | B05 | pytorch/pytorch#119932 | LD_LIBRARY_PATH hides the wheel: FAIL |
//! | B07 | vllm-project/vllm#4312 | NCCL in odd places: found; a variable speaks for vLLM alone |
//! | B08 | cupy/cupy-release-tools#485 | CUDA fine, NCCL too old: FAIL for NCCL alone |
//! | B11 | images' NCCL_VERSION | a variable is a hint: WARN where it is wrong |
//! | C01 | SciSharp/LLamaSharp#724 | no version file: libcudart's name, with all other evidence |
//! | C04 | LlamaEdge/LlamaEdge#74 | CUDA from wheels alone: PASS |
//! | C05 | NVIDIA/nccl#1320 | NCCL's own +cuda is not the image's: WARN where the majors differ |
//! | C06 | NVIDIA/nvidia-docker#1256 | compatibility libraries: told apart from a driver; WARN on the loader's path |
//! | C07 | NVIDIA/nvidia-docker#753 | NVIDIA_REQUIRE_CUDA as data (its judgement is the preflight's) |
//! | D06 | vendor's ACK page | a filter that no device of the driver's names fits |
//! | D08 | NVIDIA/nccl#769 | the GID index that each NCCL takes by itself |
//! | D12 | NVIDIA/nccl#941 | HPC-X's plugin in the loader's reach: WARN, with the remedy |
//! | D14 | aws/aws-ofi-nccl#170 | AWS's plugin: FAIL; a configuration without it: fine; `spcx`: WARN |
//! | D15 | microsoft/AzureML-BERT#34 | RDMA switched off by Env or file: FAIL, with the place named |
//!
//! Elsewhere: B09 in `versions`, D07 in `nccl_settings`. Not static: B13, C08 and the rest of D. A13 is of rpm templates, which
//! are not there yet.

use crate::support::image_fixture;
use crate::support::skipping;

use image_fixture::Fixture;
use image_fixture::elf::Library;
use rdmaprep::checks::{Bar, Finding, Severity, Status, Subject, Verdict, check_image, verdict};
use rdmaprep::fabric::erdma::ERDMA;
use rdmaprep::facts::*;
use rdmaprep::plan::{SwapOptions, plan_swap};
use rdmaprep::remedy::with_remedy;
use rdmaprep::targets;

const LIB: &str = "usr/lib/x86_64-linux-gnu";
const SITE: &str = "usr/local/lib/python3.11/site-packages";

fn findings(fixture: &Fixture, target: &str) -> Vec<Finding> {
    let facts = fixture.facts();
    check_image(&Subject { facts: &facts, target: targets::by_id(target).unwrap() })
}

fn found_for(fixture: &Fixture, check: &str, target: &str) -> Finding {
    findings(fixture, target).into_iter().find(|finding| finding.check == check).unwrap()
}

fn found(fixture: &Fixture, check: &str) -> Finding {
    found_for(fixture, check, "pai-dlc")
}

/// One check's status, and words that its summary must have.
fn expect(fixture: &Fixture, check: &str, status: Status, words: &[&str]) -> Finding {
    let finding = found(fixture, check);
    assert_eq!(finding.status, status, "{finding:#?}");
    for word in words {
        assert!(finding.summary.contains(word), "{word:?} is not in {finding:#?}");
    }
    finding
}

/// Nothing but the named checks differs from a pass.
fn only(fixture: &Fixture, checks: &[&str]) {
    let others: Vec<Finding> = findings(fixture, "pai-dlc")
        .into_iter()
        .filter(|finding| !matches!(finding.status, Status::Pass | Status::Skip))
        .filter(|finding| !checks.contains(&finding.check.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

fn nccl(version: &str) -> Library {
    Library::new("libnccl.so.2").text(&format!("NCCL version {version}\n"))
}

/// torch of a wheel: its CUDA library finds NCCL in the wheel beside it.
fn torch(fixture: &mut Fixture) {
    let library = Library::new("libtorch_cuda.so").needs("libnccl.so.2").needs("libc.so.6");
    let library = library.runpath("$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../../nvidia/nccl/lib:$ORIGIN");
    fixture.library(&format!("{SITE}/torch/lib/libtorch_cuda.so"), &library);
    fixture.file(&format!("{SITE}/torch/version.py"), "__version__ = '2.2.0+cu121'\ncuda = '12.1'\n");
}

fn wheel(fixture: &mut Fixture, version: &str) {
    fixture.library(&format!("{SITE}/nvidia/nccl/lib/libnccl.so.2"), &nccl(version));
}

fn replace_nccl(fixture: &mut Fixture, line: &str) {
    fixture.remove_package("libnccl2");
    fixture.nccl(line);
}

#[test]
fn a01_ofed_outranks_the_vendor() {
    let mut fixture = Fixture::good();
    fixture.set_field("libibverbs1", "Version", "54mlnx1-1.54103");
    expect(&fixture, "ofed-packages", Status::Fail, &["libibverbs1 54mlnx1-1.54103"]);
    assert_eq!(verdict(&findings(&fixture, "pai-dlc"), Bar::Fail), Verdict::Fail);
}

#[test]
fn a02_dependents_of_what_was_torn_out() {
    let mut fixture = Fixture::good();
    fixture.package("libucx0", "1.12.1-1", "libibverbs1 (>= 28), libgone1");
    expect(&fixture, "packages-consistent", Status::Warn, &["libucx0 needs libgone1"]);
    fixture.set_field("libucx0", "Depends", "libibverbs1 (>= 28)").set_field(
        "libucx0",
        "Status",
        "install ok half-configured",
    );
    expect(&fixture, "packages-consistent", Status::Warn, &["libucx0 is half installed"]);
}

#[test]
fn a03_ofed_past_the_package_database() {
    let mut fixture = Fixture::good();
    for version in ["4.6-1.0.1.1", "4.7-1.0.0.1"] {
        let root = format!("usr/local/ofed/{version}/usr/lib");
        fixture
            .library(&format!("{root}/libibverbs.so.1"), &Library::new("libibverbs.so.1").text("IBVERBS_PRIVATE_22"));
        fixture.library(&format!("{root}/libibverbs/libmlx5-rdmav22.so"), &Library::new("libmlx5-rdmav22.so"));
    }
    fixture.ldconfig();
    let left = expect(&fixture, "ofed-leftovers", Status::Warn, &[]);
    for version in ["4.6-1.0.1.1", "4.7-1.0.0.1"] {
        let root = format!("/usr/local/ofed/{version}");
        let directory = fixture.facts().ofed.directories.into_iter().find(|dir| dir.path == root).unwrap();
        assert!(directory.size_bytes > 0 && directory.owners.is_empty(), "{directory:?}");
        let line = format!("directory {root} (2 files, {})", rdmaprep::units::Bytes(directory.size_bytes));
        assert!(left.evidence.contains(&line), "{line}: {left:?}");
    }
    assert!(fixture.facts().packages.all_installed().all(|package| !package.is_mlnx_build()));
    expect(&fixture, "ofed-loader-path", Status::Pass, &[]);

    let mut by_file = fixture.clone();
    by_file.file("etc/ld.so.conf.d/ofed.conf", "/usr/local/ofed/4.6-1.0.1.1/usr/lib\n");
    expect(&by_file, "ofed-loader-path", Status::Fail, &["4.6-1.0.1.1", "/etc/ld.so.conf.d/ofed.conf names"]);
    // The cache was written before.
    expect(&by_file, "loader-cache", Status::Warn, &["/usr/local/ofed/4.6-1.0.1.1/usr/lib"]);

    let mut by_variable = fixture.clone();
    by_variable.env("LD_LIBRARY_PATH", "/usr/local/ofed/4.7-1.0.0.1/usr/lib");
    expect(&by_variable, "ofed-loader-path", Status::Fail, &["4.7-1.0.0.1", "LD_LIBRARY_PATH names"]);
    // It really is the one that is opened, and it has no erdma.
    expect(&by_variable, "rdma-provider", Status::Fail, &["-rdmav22"]);
}

#[test]
fn a04_a_driver_file_without_its_library() {
    let mut fixture = Fixture::good();
    fixture.file("etc/libibverbs.d/ipath.driver", "driver ipathverbs\n");
    expect(&fixture, "driver-files", Status::Warn, &["/etc/libibverbs.d/ipath.driver"]);
    only(&fixture, &["driver-files"]);
    assert_eq!(verdict(&findings(&fixture, "pai-dlc"), Bar::Fail), Verdict::Pass);
}

#[test]
fn a06_the_driver_file_alone() {
    let mut fixture = Fixture::good();
    fixture.remove(&format!("{LIB}/libibverbs/liberdma-rdmav34.so"));
    expect(&fixture, "rdma-provider", Status::Fail, &["erdma.driver", "liberdma-rdmav34.so"]);
    // Where no eRDMA device is, it is no more than noise.
    for (check, status) in [("rdma-provider", Status::Pass), ("driver-files", Status::Warn)] {
        assert_eq!(found_for(&fixture, check, "cce").status, status, "{check}");
    }
    assert_eq!(verdict(&findings(&fixture, "cce"), Bar::Fail), Verdict::Pass);
}

#[test]
fn a07_library_and_provider_of_different_builds() {
    let library = |abi: u32| {
        let library = Library::new("libibverbs.so.1").version("IBVERBS_1.1").version(&format!("IBVERBS_PRIVATE_{abi}"));
        library.text(&format!("-rdmav{abi}.so"))
    };
    let mut fixture = Fixture::good();
    fixture.library(&format!("{LIB}/libibverbs.so.1.14.44.1"), &library(34));
    only(&fixture, &[]);
    let facts = fixture.facts();
    let read = facts.libraries.iter().find(|library| library.path.contains("libibverbs")).unwrap();
    assert_eq!(read.versions.as_deref().unwrap(), ["IBVERBS_1.1", "IBVERBS_PRIVATE_34"]);
    fixture.library(&format!("{LIB}/libibverbs.so.1.14.44.1"), &library(59));
    expect(&fixture, "rdma-provider", Status::Fail, &["-rdmav59", "liberdma-rdmav34.so"]);
    // The other way round: the provider is the newer one.
    fixture.library(&format!("{LIB}/libibverbs.so.1.14.44.1"), &library(34));
    fixture.remove(&format!("{LIB}/libibverbs/liberdma-rdmav34.so"));
    fixture.file(&format!("{LIB}/libibverbs/liberdma-rdmav57.so"), "ELF");
    expect(&fixture, "rdma-provider", Status::Fail, &["-rdmav34", "liberdma-rdmav57.so"]);
    // And a good pair of a newer rdma-core.
    fixture.library(&format!("{LIB}/libibverbs.so.1.14.44.1"), &library(57));
    expect(&fixture, "rdma-provider", Status::Pass, &["liberdma-rdmav57.so"]);
}

#[test]
fn a08_the_distributions_own_packages() {
    let mut jammy = Fixture::plain("ubuntu", "22.04", "jammy", "amd64");
    jammy.rdma_core("39.0-1", "librdmacm1", &["mlx5"]);
    expect(&jammy, "rdma-provider", Status::Fail, &["ibverbs-providers 39.0-1 is installed but has no erdma"]);
    let mut noble = Fixture::plain("ubuntu", "24.04", "noble", "amd64");
    noble.rdma_core("50.0-2", "librdmacm1t64", &["erdma", "mlx5"]);
    expect(&noble, "rdma-provider", Status::Pass, &[]);
    expect(&noble, "rdma-vendor-build", Status::Warn, &["libibverbs1 50.0-2"]);
}

#[test]
fn a09_no_providers() {
    let mut fixture = Fixture::good();
    fixture.remove_package("ibverbs-providers");
    expect(&fixture, "rdma-provider", Status::Fail, &["without any provider", "ibverbs-providers"]);
}

#[test]
fn a10_no_libibverbs() {
    for architecture in ["amd64", "arm64"] {
        let fixture = Fixture::plain("ubuntu", "22.04", "jammy", architecture);
        expect(&fixture, "libibverbs", Status::Fail, &["no libibverbs.so.1"]);
        expect(&fixture, "rdma-provider", Status::Fail, &[]);
    }
}

#[test]
fn a14_distributions_that_are_not_listed() {
    for (id, version, codename, architecture) in [
        ("ubuntu", "20.04", "focal", "arm64"),
        ("ubuntu", "18.04", "bionic", "arm64"),
        ("ubuntu", "23.10", "mantic", "amd64"),
        ("debian", "12", "bookworm", "amd64"),
        ("anolis", "8.9", "", "amd64"),
        ("rocky", "9.4", "", "amd64"),
    ] {
        let fixture = Fixture::plain(id, version, codename, architecture);
        let finding = expect(&fixture, "distro-listed", Status::Warn, &[id, "not on the vendor's list"]);
        assert!(finding.evidence[0].contains("ubuntu 22.04"), "{finding:?}");
        let error = with_remedy(&plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap_err());
        assert!(error.contains(&format!("{id} {version} on {architecture}")), "{error}");
        assert!(
            error.contains("ubuntu 24.04 (amd64, arm64), ubuntu 22.04 (amd64, arm64), ubuntu 20.04 (amd64)"),
            "{error}"
        );
    }
    // Without an os-release nothing is guessed, either; what Debian derivatives share is not a name.
    let mut unknown = Fixture::plain("ubuntu", "22.04", "jammy", "amd64");
    unknown.remove("usr/lib/os-release").remove("etc/os-release").file("etc/debian_version", "bookworm/sid\n");
    expect(&unknown, "distro-listed", Status::Warn, &["does not name its distribution"]);
    let error = with_remedy(&plan_swap(&unknown.facts(), None, &ERDMA, &SwapOptions::default()).unwrap_err());
    assert!(
        error.contains("does not name its distribution") && error.contains("ubuntu 22.04 (amd64, arm64)"),
        "{error}"
    );
}

#[test]
fn a15_what_mlnxofedinstall_leaves() {
    let mut fixture = Fixture::good();
    let source = "deb [signed-by=/etc/apt/trusted.gpg.d/mlnx.gpg] http://linux.mellanox.com/public/repo/mlnx_ofed/23.10/ubuntu22.04/x86_64 ./\n";
    fixture.file("etc/apt/sources.list.d/mellanox_mlnx_ofed.list", source).file("etc/apt/trusted.gpg.d/mlnx.gpg", "k");
    fixture.file("root/MLNX_OFED_LINUX-23.10-ubuntu22.04-x86_64/mlnxofedinstall", "#!/bin/sh\n");
    let left = expect(&fixture, "ofed-leftovers", Status::Warn, &["can bring OFED back"]);
    for part in ["mellanox_mlnx_ofed.list", "apt key /etc/apt/trusted.gpg.d/mlnx.gpg", "MLNX_OFED_LINUX-23.10"] {
        assert!(left.evidence.iter().any(|line| line.contains(part)), "{part}: {left:?}");
    }
    expect(&fixture, "ofed-loader-path", Status::Pass, &[]);
    // And the swap takes them away.
    let plan = plan_swap(&fixture.facts(), None, &ERDMA, &SwapOptions::default()).unwrap();
    assert_eq!(
        plan.installed().unwrap().remove_files,
        ["/etc/apt/sources.list.d/mellanox_mlnx_ofed.list", "/etc/apt/trusted.gpg.d/mlnx.gpg"],
    );
    assert_eq!(plan.installed().unwrap().remove_directories, ["/root/MLNX_OFED_LINUX-23.10-ubuntu22.04-x86_64"]);
}

#[test]
fn b01_each_consumer_has_its_own() {
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.17.1+cuda12.1");
    torch(&mut fixture);
    wheel(&mut fixture, "2.19.3+cuda12.3");
    let finding =
        expect(&fixture, "nccl-version", Status::Warn, &["NCCL 2.19.3 for torch", "NCCL 2.17.1 for programs"]);
    assert_eq!(finding.evidence.len(), 2, "{finding:?}");
    let facts = fixture.facts();
    assert_eq!(facts.nccl_consumers[0].how, "its RUNPATH");
    assert!(!facts.nccl_consumers[0].assumed);
    assert_eq!(facts.torch[0].version.as_deref(), Some("2.2.0+cu121"));
    // The wheel alone, with no torch that could be looked into.
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.17.1+cuda12.1");
    wheel(&mut fixture, "2.19.3+cuda12.3");
    expect(&fixture, "nccl-version", Status::Warn, &["2.19.3", "2.17.1"]);
    assert!(fixture.facts().nccl_consumers[0].assumed);
}

#[test]
fn b03_nccl_inside_torch() {
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.21.5+cuda12.4");
    let library = Library::new("libtorch_cuda.so").needs("libc.so.6").text("NCCL version 2.10.3+cuda11.3\n");
    fixture.library(&format!("{SITE}/torch/lib/libtorch_cuda.so"), &library);
    let finding = expect(&fixture, "nccl-version", Status::Fail, &["NCCL 2.10.3 for torch"]);
    let remedy = finding.remedy.unwrap();
    assert!(remedy.contains("torch build") && !remedy.contains("apt"), "{remedy}");
}

#[test]
fn b04_the_library_counts_not_what_torch_says() {
    let mut fixture = Fixture::good();
    torch(&mut fixture);
    fixture.file(&format!("{SITE}/torch/include/nccl.h"), "#define NCCL_VERSION_CODE 21801\n");
    wheel(&mut fixture, "2.19.3+cuda12.1");
    expect(&fixture, "nccl-version", Status::Pass, &["NCCL 2.19.3 for torch"]);
}

#[test]
fn b05_an_old_library_before_the_wheel() {
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.18.5+cuda12.1");
    torch(&mut fixture);
    wheel(&mut fixture, "2.19.3+cuda12.1");
    expect(&fixture, "nccl-shadowed", Status::Pass, &[]);
    fixture.env("LD_LIBRARY_PATH", &format!("/{LIB}:/usr/local/cuda/lib64"));
    let words = ["LD_LIBRARY_PATH directory /usr/lib/x86_64-linux-gnu gives torch NCCL 2.18.5 before the 2.19.3"];
    expect(&fixture, "nccl-shadowed", Status::Fail, &words);
    let version = expect(&fixture, "nccl-version", Status::Fail, &["NCCL 2.18.5 for torch"]);
    assert!(version.remedy.unwrap().starts_with("take /usr/lib/x86_64-linux-gnu out of LD_LIBRARY_PATH"));
    // The project's own wheels have an RPATH (2.1.2 to 2.11.0, by readelf), and that is before the variable.
    let mut official = fixture.clone();
    let library = Library::new("libtorch_cuda.so").needs("libnccl.so.2").rpath("$ORIGIN/../../nvidia/nccl/lib:$ORIGIN");
    official.library(&format!("{SITE}/torch/lib/libtorch_cuda.so"), &library);
    expect(&official, "nccl-shadowed", Status::Pass, &[]);
    expect(&official, "nccl-version", Status::Warn, &["NCCL 2.19.3 for torch", "NCCL 2.18.5 for programs"]);
    // The same without a torch that could be read.
    fixture.remove(&format!("{SITE}/torch/lib/libtorch_cuda.so"));
    expect(&fixture, "nccl-shadowed", Status::Fail, &["2.18.5 before the 2.19.3"]);
    // A newer one does no harm.
    replace_nccl(&mut fixture, "2.21.5+cuda12.1");
    expect(&fixture, "nccl-shadowed", Status::Pass, &[]);
    // LD_PRELOAD is before everything.
    fixture.library("opt/libnccl.so.2.16.2", &nccl("2.16.2+cuda12.0")).env("LD_PRELOAD", "/opt/libnccl.so.2.16.2");
    expect(&fixture, "nccl-version", Status::Fail, &["NCCL 2.16.2"]);
}

#[test]
fn b07_odd_places() {
    let mut fixture = Fixture::good();
    torch(&mut fixture);
    wheel(&mut fixture, "2.19.3+cuda12.1");
    const ODD: &str = "root/.config/vllm/nccl/cu12/libnccl.so.2.18.1";
    fixture.library(ODD, &nccl("2.18.1+cuda12.1"));
    let copy = fixture.facts().nccl.into_iter().find(|copy| copy.path == format!("/{ODD}")).unwrap();
    assert_eq!((copy.kind, copy.version.as_deref()), (NcclKind::Other, Some("2.18.1")));
    only(&fixture, &[]);
    fixture.env("VLLM_NCCL_SO_PATH", &format!("/{ODD}"));
    expect(&fixture, "nccl-version", Status::Warn, &["2.19.3 for torch", "2.18.1 for vllm"]);
    // A variable that names nothing.
    fixture.env("VLLM_NCCL_SO_PATH", "/nowhere/libnccl.so.2");
    assert_eq!(fixture.facts().nccl_consumers.iter().find(|c| c.name.to_string() == "vllm").unwrap().path, None);
}

#[test]
fn b08_cuda_is_fine_and_nccl_too_old() {
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.17.1+cuda12.1");
    expect(&fixture, "nccl-version", Status::Fail, &["2.17.1", "2.19.0"]);
    expect(&fixture, "cuda-version", Status::Pass, &[]);
    only(&fixture, &["nccl-version"]);
}

#[test]
fn b11_a_variable_is_a_hint() {
    let mut fixture = Fixture::good();
    fixture.env("NCCL_VERSION", "2.21.5-1");
    only(&fixture, &[]);
    fixture.env("NCCL_VERSION", "2.17.1-1");
    expect(&fixture, "nccl-version-hint", Status::Warn, &["2.17.1-1", "2.21.5"]);
    expect(&fixture, "nccl-version", Status::Pass, &["2.21.5"]);
    fixture.remove_package("libnccl2");
    fixture.remove(&format!("{LIB}/libnccl.so.2"));
    expect(&fixture, "nccl-version-hint", Status::Warn, &["the image has no NCCL"]);
    expect(&fixture, "nccl-version", Status::Fail, &["no NCCL"]);
}

#[test]
fn c01_no_version_file() {
    let mut fixture = Fixture::good();
    fixture.link("usr/local/cuda", "/etc/alternatives/cuda").link("etc/alternatives/cuda", "/usr/local/cuda-12.4");
    let cuda = fixture.facts().cuda;
    let sources: Vec<CudaSource> = cuda.evidence.iter().map(|evidence| evidence.source).collect();
    assert_eq!((cuda.version.as_deref(), sources), (Some("12.4"), vec![CudaSource::Libcudart, CudaSource::Env]));
    fixture.package("cuda-cudart-12-1", "12.1.105-1", "");
    expect(&fixture, "cuda-version", Status::Warn, &[]);
    // A version file is stronger than all of these.
    fixture.file("usr/local/cuda-12.4/version.json", r#"{"cuda": {"version": "12.6.3"}}"#);
    assert_eq!(fixture.facts().cuda.version.as_deref(), Some("12.6"));
}

#[test]
fn c04_cuda_from_wheels() {
    let mut fixture = Fixture::good();
    fixture.remove("usr/local/cuda").remove("usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12");
    fixture
        .remove("usr/local/cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12.4.127")
        .remove("etc/ld.so.conf.d/000_cuda.conf");
    fixture.config["Env"] = serde_json::json!(["PATH=/usr/bin:/bin"]);
    let found = expect(&fixture, "cuda-version", Status::Fail, &["no CUDA runtime"]);
    assert_eq!(found.remedy.as_deref(), Some("start from an image with CUDA 12.1 or newer: rdmaprep images"));
    fixture.file(&format!("{SITE}/nvidia_cuda_runtime_cu12-12.4.127.dist-info/METADATA"), "Name: x\n");
    fixture.file(&format!("{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"), "ELF");
    torch(&mut fixture);
    wheel(&mut fixture, "2.21.5+cuda12.4");
    expect(&fixture, "cuda-version", Status::Pass, &["12.4"]);
}

#[test]
fn c05_nccl_s_cuda_is_not_the_image_s() {
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.21.5+cuda11.8");
    assert_eq!(fixture.facts().cuda.version.as_deref(), Some("12.4"));
    expect(&fixture, "nccl-cuda", Status::Warn, &["built for CUDA 11.8", "CUDA 12.4"]);
    only(&fixture, &["nccl-cuda"]);
    replace_nccl(&mut fixture, "2.21.5+cuda12.1");
    only(&fixture, &[]);
}

#[test]
fn c06_compatibility_libraries() {
    let mut fixture = Fixture::good();
    let compat = "usr/local/cuda-12.4/compat";
    fixture
        .file(&format!("{compat}/libcuda.so.550.54.14"), "ELF")
        .link(&format!("{compat}/libcuda.so.1"), "libcuda.so.550.54.14");
    fixture.file("usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs/libcuda.so", "ELF");
    fixture.ldconfig();
    let finding = expect(&fixture, "driver-libraries", Status::Pass, &["compatibility driver 550.54.14"]);
    assert_eq!(finding.severity, Severity::Advice);
    assert_eq!(fixture.facts().cuda.version.as_deref(), Some("12.4"));
    for setting in ["variable", "file"] {
        let mut forced = fixture.clone();
        match setting {
            "variable" => forced.env("LD_LIBRARY_PATH", "/usr/local/cuda/compat"),
            _ => forced.file("etc/ld.so.conf.d/compat.conf", "/usr/local/cuda/compat\n"),
        };
        expect(&forced, "driver-libraries", Status::Warn, &["550.54.14 hides the host's", "/usr/local/cuda/compat"]);
    }
    // A driver that a build left; the empty files that a mounted one leaves are none.
    fixture.file(&format!("{LIB}/libcuda.so.535.104.05"), "");
    expect(&fixture, "driver-libraries", Status::Pass, &[]);
    fixture.file(&format!("{LIB}/libcuda.so.535.104.05"), "ELF");
    expect(&fixture, "driver-libraries", Status::Warn, &["driver 535.104.05 that was built into the image"]);
}

#[test]
fn c07_what_the_image_asks_of_the_host() {
    let mut fixture = Fixture::good();
    fixture.env("NVIDIA_REQUIRE_CUDA", "cuda>=12.4 brand=tesla,driver>=470,driver<471");
    let requires = fixture.facts().cuda.requires;
    assert_eq!(requires, [vec!["cuda>=12.4"], vec!["brand=tesla", "driver>=470", "driver<471"]]);
    only(&fixture, &[]);
}

#[test]
fn d06_and_d15_device_filters() {
    let mut fixture = Fixture::good();
    for (value, ecs, pai) in [
        ("erdma", Status::Pass, Status::Pass),
        ("=erdma_0,erdma_1:1", Status::Pass, Status::Pass),
        ("^mlx5", Status::Pass, Status::Pass),
        ("mlx5", Status::Fail, Status::Warn),
        ("^erdma", Status::Fail, Status::Warn),
        ("=erdma", Status::Fail, Status::Warn),
        ("rocep26s0", Status::Warn, Status::Warn),
    ] {
        fixture.env("NCCL_IB_HCA", value);
        assert_eq!(found_for(&fixture, "nccl-ib-hca", "ecs").status, ecs, "{value}");
        assert_eq!(found(&fixture, "nccl-ib-hca").status, pai, "{value}");
    }
}

#[test]
fn d08_gid_index() {
    for (version, value, status) in [
        ("2.20.5", None, Status::Warn),
        ("2.21.5", None, Status::Pass),
        ("2.21.5", Some("0"), Status::Warn),
        ("2.20.5", Some("1"), Status::Pass),
        ("2.20.5", Some("-1"), Status::Warn),
        ("2.21.5", Some("-1"), Status::Pass),
        ("2.21.5", Some("3"), Status::Unknown),
    ] {
        let mut fixture = Fixture::good();
        replace_nccl(&mut fixture, &format!("{version}+cuda12.4"));
        if let Some(value) = value {
            fixture.env("NCCL_IB_GID_INDEX", value);
        }
        let finding = found_for(&fixture, "nccl-gid-index", "ecs");
        assert_eq!(finding.status, status, "{version} {value:?}: {finding:?}");
    }
    // On mlx5 index 0 is RoCE v1 besides, and which one is right differs by host.
    for (version, value, status) in [
        ("2.20.5", None, Status::Warn),
        ("2.21.5", None, Status::Pass),
        ("2.21.5", Some("0"), Status::Warn),
        ("2.20.5", Some("3"), Status::Unknown),
        ("2.20.5", Some("-1"), Status::Warn),
        ("2.21.5", Some("-1"), Status::Pass),
        ("2.20.5", Some("three"), Status::Warn),
    ] {
        let mut fixture = Fixture::good();
        replace_nccl(&mut fixture, &format!("{version}+cuda12.4"));
        if let Some(value) = value {
            fixture.env("NCCL_IB_GID_INDEX", value);
        }
        let finding = found_for(&fixture, "nccl-gid-index", "cce");
        assert_eq!(finding.status, status, "{version} {value:?}: {finding:?}");
        let has_remedy = finding.remedy.is_some_and(|remedy| remedy.contains("NCCL_IB_GID_INDEX=3"));
        assert_eq!(has_remedy, status == Status::Warn, "{version} {value:?}");
    }
    // PAI-DLC sets it in every job.
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.20.5+cuda12.4");
    only(&fixture, &[]);
}

#[test]
fn d12_the_plugin_of_hpcx() {
    let mut fixture = Fixture::good();
    let plugin = "opt/hpcx/nccl_rdma_sharp_plugin/lib";
    fixture.library(&format!("{plugin}/libnccl-net.so.0.0.0"), &Library::new("libnccl-net.so.0"));
    fixture.link(&format!("{plugin}/libnccl-net.so"), "libnccl-net.so.0.0.0").env("OPAL_PREFIX", "/opt/hpcx/ompi");
    fixture.ldconfig();
    expect(&fixture, "nccl-net-plugin", Status::Pass, &["finds no network plugin"]);
    expect(&fixture, "foreign-stacks", Status::Warn, &["OPAL_PREFIX=/opt/hpcx/ompi"]);
    fixture
        .file("etc/ld.so.conf.d/hpcx.conf", &format!("/{plugin}\n"))
        .file("opt/hpcx/ompi/bin/mpirun", "ELF")
        .ldconfig();
    let finding = expect(&fixture, "nccl-net-plugin", Status::Warn, &[plugin, "hpcx"]);
    assert_eq!(finding.remedy.as_deref(), Some("ENV NCCL_NET_PLUGIN=none"));
    only(&fixture, &["nccl-net-plugin"]);
    // The remedy, which is harmless before 2.28 too.
    fixture.env("NCCL_NET_PLUGIN", "none");
    expect(&fixture, "nccl-net-plugin", Status::Pass, &["harmless before NCCL 2.28"]);
    replace_nccl(&mut fixture, "2.28.3+cuda12.9");
    expect(&fixture, "nccl-net-plugin", Status::Pass, &["uses its own transports"]);
}

#[test]
fn d14_the_plugin_of_aws() {
    let mut fixture = Fixture::good();
    fixture.file("etc/ld.so.conf.d/aws-ofi-nccl.conf", "/opt/amazon/ofi-nccl/lib\n");
    only(&fixture, &[]);
    assert!(fixture.facts().ofed.stacks.iter().any(|stack| stack.name == "efa" && stack.dangling));
    fixture.library("opt/amazon/ofi-nccl/lib/libnccl-net.so", &Library::new("libnccl-net.so")).ldconfig();
    expect(&fixture, "nccl-net-plugin", Status::Fail, &["/opt/amazon/ofi-nccl/lib/libnccl-net.so"]);
    expect(&fixture, "foreign-stacks", Status::Warn, &["EFA"]);

    let mut fixture = Fixture::good();
    fixture.env("NCCL_NET_PLUGIN", "spcx");
    expect(&fixture, "nccl-net-plugin", Status::Warn, &["spcx", "Env"]);
}

#[test]
fn d15_rdma_switched_off() {
    let mut fixture = Fixture::good();
    fixture.env("NCCL_IB_DISABLE", "0");
    only(&fixture, &[]);
    fixture.env("NCCL_IB_DISABLE", "1");
    expect(&fixture, "nccl-ib-enabled", Status::Fail, &["NCCL_IB_DISABLE=1 (Env)"]);

    let mut fixture = Fixture::good();
    fixture.file("etc/nccl.conf", "NCCL_IB_DISABLE=1\n");
    let finding = expect(&fixture, "nccl-ib-enabled", Status::Fail, &["NCCL_IB_DISABLE=1 (/etc/nccl.conf)"]);
    assert_eq!(finding.remedy.as_deref(), Some("RUN sed -i '/^NCCL_IB_DISABLE=/d' /etc/nccl.conf"));
    // Env is before the file.
    fixture.env("NCCL_IB_DISABLE", "0");
    expect(&fixture, "nccl-ib-enabled", Status::Pass, &[]);

    let mut fixture = Fixture::good();
    fixture.env("NCCL_NET", "Socket");
    expect(&fixture, "nccl-ib-enabled", Status::Fail, &["NCCL_NET=Socket"]);
    // A file that was not read may say anything.
    let mut fixture = Fixture::good();
    fixture.env("NCCL_CONF_FILE", "/opt/settings").file("opt/settings", "NCCL_IB_DISABLE=1\n");
    expect(&fixture, "nccl-ib-enabled", Status::Unknown, &["/opt/settings"]);

    for (value, status) in [
        ("eth0", Status::Pass),
        ("=eth0", Status::Pass),
        ("eth", Status::Pass),
        ("^docker0", Status::Warn),
        ("^lo,docker", Status::Pass),
        ("ens3", Status::Warn),
    ] {
        let mut fixture = Fixture::good();
        fixture.env("NCCL_SOCKET_IFNAME", value);
        assert_eq!(found(&fixture, "nccl-socket-ifname").status, status, "{value}");
    }
}

/// NCCL opens `libibverbs.so` before `libibverbs.so.1`.
#[test]
fn two_builds_under_the_two_names() {
    let mut fixture = Fixture::good();
    fixture.link(&format!("{LIB}/libibverbs.so"), "libibverbs.so.1");
    expect(&fixture, "libibverbs-names", Status::Pass, &["are both"]);
    fixture.library("usr/local/lib/libibverbs.so", &Library::new("libibverbs.so.1").text("-rdmav59.so"));
    fixture.env("LD_LIBRARY_PATH", "/usr/local/lib");
    expect(&fixture, "libibverbs-names", Status::Fail, &["/usr/local/lib/libibverbs.so", "no erdma provider"]);
    // conda's python has an RPATH, and brings conda's library into the process.
    let mut fixture = Fixture::good();
    let site = "opt/conda/lib/python3.11/site-packages";
    fixture
        .library("opt/conda/bin/python3.11", &Library::new("").rpath("$ORIGIN/../lib"))
        .file("opt/conda/conda-meta/history", "");
    fixture.link("opt/conda/bin/python3", "python3.11");
    fixture.library(&format!("{site}/nvidia/nccl/lib/libnccl.so.2"), &nccl("2.21.5+cuda12.4"));
    let torch = Library::new("libtorch_cuda.so").needs("libnccl.so.2").rpath("$ORIGIN/../../nvidia/nccl/lib");
    fixture.library(&format!("{site}/torch/lib/libtorch_cuda.so"), &torch);
    only(&fixture, &[]);
    fixture.library("opt/conda/lib/libibverbs.so.1", &Library::new("libibverbs.so.1").text("-rdmav34.so"));
    expect(
        &fixture,
        "libibverbs-names",
        Status::Fail,
        &["torch is /opt/conda/lib/libibverbs.so.1", "no erdma provider"],
    );
    assert_eq!(fixture.facts().verbs.libraries[0].place, VerbsPlace::Conda);
    // A wheel's own copy is somebody's, and says nothing of NCCL.
    let mut fixture = Fixture::good();
    let bundled = format!("{SITE}/nixl.libs/libibverbs-4c1ef7b2.so.1.14.44.0");
    fixture.library(&bundled, &Library::new("libibverbs-4c1ef7b2.so.1").text("-rdmav34.so"));
    expect(&fixture, "libibverbs-copies", Status::Warn, &[&bundled]);
    only(&fixture, &["libibverbs-copies"]);
}

#[test]
fn releases_that_crash_on_erdma() {
    for (version, status) in
        [("2.28.3", Status::Pass), ("2.28.7", Status::Fail), ("2.28.9", Status::Fail), ("2.29.7", Status::Pass)]
    {
        let mut fixture = Fixture::good();
        replace_nccl(&mut fixture, &format!("{version}+cuda12.9"));
        expect(&fixture, "nccl-release", status, &[]);
        // torch's own copy decides.
        torch(&mut fixture);
        wheel(&mut fixture, "2.27.3+cuda12.9");
        let status = if status == Status::Fail { Status::Warn } else { status };
        expect(&fixture, "nccl-release", status, &[]);
    }
}

/// A swap changes packages: what belongs to none is to go first.
#[test]
fn remedies_that_a_build_does_not_bring() {
    let remedy = |fixture: &Fixture, check: &str| found_for(fixture, check, "pai-dlc").remedy.unwrap();
    let foreign = Library::new("libibverbs.so.1").text("-rdmav59.so");
    let mut fixture = Fixture::good();
    fixture.library("opt/conda/lib/libibverbs.so.1", &foreign).file("opt/conda/conda-meta/history", "");
    fixture.env("LD_LIBRARY_PATH", "/usr/x:/opt/conda/lib/");
    for check in ["rdma-provider", "rdma-vendor-build"] {
        let said = remedy(&fixture, check);
        assert!(
            said.starts_with("take /opt/conda/lib out of LD_LIBRARY_PATH; then rdmaprep build "),
            "{check}: {said}"
        );
    }
    let mut fixture = Fixture::good();
    fixture.library("usr/local/lib/libibverbs.so.1", &foreign).env("LD_LIBRARY_PATH", "/usr/local/lib");
    assert!(remedy(&fixture, "rdma-provider").starts_with("take /usr/local/lib out of"));
    let mut fixture = Fixture::good();
    fixture.library("usr/local/lib/libibverbs.so.1", &foreign);
    fixture.file("etc/ld.so.conf.d/00-local.conf", "/usr/local/lib\n");
    let said = remedy(&fixture, "rdma-provider");
    assert!(said.starts_with("RUN rm -f /usr/local/lib/libibverbs.so* && ldconfig   # of no package; then"), "{said}");
    // A stanza in a file of others, and a tool that somebody needs: what a build leaves is not what it takes away.
    let stanza = "Types: deb\nURIs: https://linux.mellanox.com/public/repo/doca/2.9/ubuntu22.04/x86_64\nSuites: ./\n";
    let others = "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu\nSuites: jammy\nComponents: main\n";
    let mut fixture = Fixture::good();
    fixture.file("etc/apt/sources.list.d/all.sources", &format!("{others}\n{stanza}"));
    fixture.package("mlnx-tools", "24.04.0.2404066-1", "").package("my-trainer", "1", "mlnx-tools");
    let said = remedy(&fixture, "ofed-leftovers");
    assert!(said.starts_with("by hand, since rdmaprep build leaves it: "), "{said}");
    assert!(said.contains("package mlnx-tools stays: my-trainer depends on it"), "{said}");
    assert!(said.contains("remove OFED's stanza"), "{said}");
    fixture.package("mlnx-ethtool", "6.9-1.2404066", "");
    assert!(remedy(&fixture, "ofed-leftovers").starts_with("rdmaprep build "));
}

/// A source that stands elsewhere is one, too, when a link leads to it.
#[test]
fn linked_apt_sources() {
    let mut fixture = Fixture::good();
    fixture.file(
        "opt/conf/ofed.list",
        "deb http://linux.mellanox.com/public/repo/mlnx_ofed/23.10/ubuntu22.04/x86_64 ./\n",
    );
    fixture.link("etc/apt/sources.list.d/ofed.list", "/opt/conf/ofed.list");
    expect(&fixture, "ofed-leftovers", Status::Warn, &["apt source that can bring OFED back"]);
    assert_eq!(fixture.facts().ofed.apt_sources[0].path, "/etc/apt/sources.list.d/ofed.list");
}

/// Another release comes in the way that this one came: the wheel of a system's NCCL would change nothing.
#[test]
fn another_release_replaces_the_copy_that_is_loaded() {
    let remedy = |fixture: &Fixture| found_for(fixture, "nccl-release", "pai-dlc").remedy.unwrap();
    let apt = "RUN apt-get update && apt-get install -y --allow-change-held-packages --allow-downgrades";
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.28.9+cuda12.9");
    assert!(
        remedy(&fixture).starts_with(&format!("{apt} 'libnccl2=2.29.7-*+cuda12*'   # or another")),
        "{}",
        remedy(&fixture)
    );
    let mut fixture = Fixture::good();
    replace_nccl(&mut fixture, "2.28.9+cuda13.0");
    fixture.package("libnccl-dev", "2.28.9-1+cuda13.0", "");
    assert!(
        remedy(&fixture).starts_with(&format!("{apt} 'libnccl2=2.29.7-*+cuda13*' 'libnccl-dev=2.29.7-*+cuda13*'   #")),
        "{}",
        remedy(&fixture)
    );
    let mut fixture = Fixture::good();
    torch(&mut fixture);
    wheel(&mut fixture, "2.28.9+cuda13.0");
    assert!(remedy(&fixture).starts_with("RUN pip install 'nvidia-nccl-cu13==2.29.7'   #"), "{}", remedy(&fixture));
}

/// A library that does not show its version or ABI neither passes nor fails.
#[test]
fn what_cannot_be_told() {
    let mut fixture = Fixture::good();
    fixture.remove_package("libnccl2");
    fixture.library(&format!("{LIB}/libnccl.so.2"), &Library::new("libnccl.so.2")).env("NCCL_VERSION", "2.21.5");
    for check in ["nccl-version", "nccl-release", "nccl-version-hint"] {
        expect(&fixture, check, Status::Unknown, &[]);
    }
    assert_eq!(found_for(&fixture, "nccl-gid-index", "ecs").status, Status::Unknown);
    assert_eq!(verdict(&findings(&fixture, "pai-dlc"), Bar::Fail), Verdict::Unknown);
    torch(&mut fixture);
    wheel(&mut fixture, "2.21.5+cuda12.4");
    fixture.env("LD_LIBRARY_PATH", &format!("/{LIB}"));
    fixture.library(&format!("{SITE}/torch/lib/libtorch_cuda.so"), &Library::new("x").needs("libnccl.so.2"));
    expect(&fixture, "nccl-version", Status::Unknown, &["unknown version for torch"]);

    let mut fixture = Fixture::good();
    fixture
        .library("usr/local/lib/libibverbs.so", &Library::new("libibverbs.so.1"))
        .env("LD_LIBRARY_PATH", "/usr/local/lib");
    expect(&fixture, "libibverbs-names", Status::Unknown, &["does not show which providers"]);

    // Facts of an older version have no consumers.
    let mut facts = Fixture::good().facts();
    facts.nccl_consumers.clear();
    let findings = check_image(&Subject { facts: &facts, target: targets::by_id("pai-dlc").unwrap() });
    let version = findings.iter().find(|finding| finding.check == "nccl-version").unwrap();
    assert_eq!(version.status, Status::Unknown, "{version:?}");
}

/// A library of another architecture is there for nobody.
#[test]
fn a_library_of_another_architecture() {
    let mut fixture = Fixture::good();
    let library = Library::new("libibverbs.so.1").text("-rdmav34.so").arm64();
    fixture.library(&format!("{LIB}/libibverbs.so.1.14.44.1"), &library);
    let finding = expect(&fixture, "libibverbs", Status::Fail, &["accepts no libibverbs.so.1"]);
    assert!(finding.evidence.iter().any(|line| line.ends_with("is for aarch64")), "{finding:?}");
}

/// A cache that is damaged is not a cache that says nothing.
#[test]
fn a_damaged_loader_cache_is_unknown() {
    let mut fixture = Fixture::good();
    fixture.file("etc/ld.so.cache", "glibc-ld.so.cache1.1 and then nothing that makes sense, for forty bytes and more");
    expect(&fixture, "loader-cache", Status::Unknown, &["cannot be read"]);
    // The job would still find what it needs in the default directories.
    only(&fixture, &["loader-cache"]);
}

/// ldconfig's own work, where this machine has some.
#[test]
fn a_real_loader_cache() {
    let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else {
        skipping::say_skipped("this machine has no /etc/ld.so.cache");
        return;
    };
    let entries = rdmaprep::inspect::parse_cache(&bytes).unwrap();
    let libc = entries.iter().find(|entry| entry.name == "libc.so.6").unwrap();
    assert!(std::path::Path::new(&libc.path).exists(), "{libc:?}");
    assert!(libc.fits(if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }), "{libc:?}");
}
