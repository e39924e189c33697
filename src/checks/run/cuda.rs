//! Checks of GPUs, libcuda and driver as the container has them.

use super::{Judged, RunSubject, count};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault};
use crate::facts::DriverLibraryKind;
use crate::facts::run::{AgentEnding, Ending, Failure, GpuProbe, Origin};
use crate::versions::{CudaVersion, parse_cuda_version};

/// The node whose presence shows that GPUs were passed to the container.
const CONTROL_NODE: &str = "/dev/nvidiactl";

/// CUDA_ERROR_STUB_LIBRARY (cuda.h, CUDA 12.4).
const STUB_LIBRARY: i32 = 34;

/// Oldest driver on which programs of any minor version of a major CUDA run, as far as they compile nothing at run time
/// (NVIDIA, "CUDA Compatibility", minor version compatibility, read 2026-11).
const FIRST_DRIVER_OF_MAJOR: [(u32, u32); 3] = [(11, 450), (12, 525), (13, 580)];

/// Decodes `cuDriverGetVersion`: `X*1000 + Y*10`.
pub fn cuda_of_code(code: i32) -> Option<CudaVersion> {
    let code = u32::try_from(code).ok()?;
    (code >= 1000).then(|| CudaVersion::new(code / 1000, code % 1000 / 10))
}

fn probe<'a>(subject: &RunSubject<'a>) -> Result<&'a GpuProbe, Outcome> {
    subject.environment()?;
    subject.run.gpus.as_ref().ok_or_else(|| Outcome::unknown("the agent ended before it looked for GPUs"))
}

/// Whether the container has the driver's control node: `Err` where what it has is not known.
fn gpus_were_passed(subject: &RunSubject<'_>) -> Result<bool, Outcome> {
    Ok(subject.environment()?.nvidia_nodes.iter().any(|node| node.path == CONTROL_NODE))
}

fn not_passed(subject: &RunSubject<'_>) -> Outcome {
    let launch = &subject.run.launch;
    let blame = if launch.gpu_access == "none" { Fault::Launch } else { Fault::Host };
    Outcome::fail(format!("the GPUs were not passed into the container: it has no {CONTROL_NODE}"))
        .evidence([format!("GPU access: {} ({})", launch.gpu_access, launch.gpu_access_reason)])
        .remedy("docker run --gpus all, with the NVIDIA container toolkit on the host")
        .blame(blame)
}

/// What is wrong with the driver, if a CUDA error says so: by its code or, if NCCL passed it on, by its text.
pub(super) fn driver_fault(subject: &RunSubject<'_>, code: Option<i32>, text: &str) -> Option<Outcome> {
    // Codes and texts are those of cuda.h and cudaGetErrorString (CUDA 12.4).
    let is = |number: i32, words: &str| code == Some(number) || text.contains(words);
    if is(35, "driver version is insufficient") {
        if let Ok(false) = gpus_were_passed(subject) {
            return Some(not_passed(subject));
        }
        return Some(
            Outcome::fail(format!("the host's driver{} is too old for the image's CUDA", which(subject)))
                .named(CauseId::DriverTooOld)
                .remedy(CauseId::DriverTooOld.info().remedy),
        );
    }
    if is(803, "unsupported display driver / cuda driver combination")
        || is(804, "forward compatibility was attempted on non supported HW")
    {
        return Some(forward_compatibility(subject));
    }
    // CUDA_ERROR_UNSUPPORTED_PTX_VERSION: minor version compatibility does not reach code that is compiled at run time.
    if is(222, "PTX was compiled with an unsupported toolchain") {
        return Some(
            Outcome::fail(format!(
                "the host's driver{} cannot compile the image's PTX, which is from a newer CUDA",
                which(subject)
            ))
            .remedy("update the host's GPU driver, or use an image with the driver's CUDA or an older one")
            .blame(Fault::Host),
        );
    }
    None
}

fn which(subject: &RunSubject<'_>) -> String {
    let run = subject.run;
    let kernel = run.environment.as_ref().and_then(|environment| environment.kernel_driver.as_ref());
    kernel.or(run.host_driver.as_ref()).map(|version| format!(" ({version})")).unwrap_or_default()
}

fn forward_compatibility(subject: &RunSubject<'_>) -> Outcome {
    let loaded =
        subject.run.gpus.as_ref().and_then(|probe| probe.library.as_ref()).map(|library| library.path.as_str());
    let in_image = subject.facts.iter().flat_map(|facts| &facts.cuda.driver_libraries);
    let compat: Vec<String> = in_image
        .filter(|library| library.kind == DriverLibraryKind::Compat)
        .map(|library| match &library.loader_reason {
            Some(reason) => format!("{} ({reason})", library.path),
            None => library.path.clone(),
        })
        .collect();
    let is_loaded = loaded.is_some_and(is_compat);
    if is_loaded || !compat.is_empty() {
        let loaded = loaded.filter(|_| is_loaded).map(|path| format!("loaded: {path}"));
        return Outcome::fail(format!(
            "the image's compatibility driver does not work with the host's{}",
            which(subject)
        ))
        .named(CauseId::CudaForwardCompat)
        .evidence(loaded.into_iter().chain(compat))
        .remedy("take the compat directory off the loader's path (LD_LIBRARY_PATH, /etc/ld.so.conf.d), or update the host's driver");
    }
    Outcome::fail(format!(
        "the driver's libraries and the host's kernel module{} are of different versions",
        which(subject)
    ))
    .evidence(loaded.map(|path| format!("loaded: {path}")))
    .remedy("after a driver update, on the host: reload the nvidia modules or reboot; then nvidia-ctk cdi generate")
    .blame(Fault::Host)
}

fn is_compat(path: &str) -> bool {
    path.contains("/compat/")
}

/// A variable as the run has it, and who set it.
fn in_container<'a>(subject: &RunSubject<'a>, name: &str) -> Option<(&'a str, Option<Origin>)> {
    let value = subject.run.environment.as_ref()?.variables.get(name)?;
    let set = subject.run.launch.variables.iter().find(|variable| variable.name == name);
    Some((value.as_str(), set.map(|variable| variable.origin)))
}

fn blame_for(origin: Option<Origin>) -> Fault {
    match origin {
        Some(Origin::Image) => Fault::Image,
        Some(Origin::Preset | Origin::User | Origin::Run) | None => Fault::Job,
    }
}

pub(super) fn gpu_visible(subject: &RunSubject<'_>) -> Judged {
    let probe = probe(subject)?;
    if !probe.gpus.is_empty() {
        let mut names: Vec<&str> = probe.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        return Ok(Outcome::pass(format!("{}: {}", count(probe.gpus.len(), "GPU"), names.join(", "))));
    }
    match &probe.failure {
        _ if !gpus_were_passed(subject)? => Ok(not_passed(subject)),
        Some(Failure::Cuda { code: STUB_LIBRARY, .. }) => {
            Err(Outcome::unknown("libcuda is a stub, so the GPUs were not counted"))
        }
        Some(Failure::Cuda { call, code, name, text }) => {
            let said = format!("{call}: {name} ({code}): {text}");
            if let Some(outcome) = driver_fault(subject, Some(*code), text) {
                return Ok(outcome.evidence([said]));
            }
            // CUDA_ERROR_NO_DEVICE
            if *code == 100 {
                return Ok(no_device(subject).evidence([said]));
            }
            let outcome = Outcome::fail(format!("CUDA cannot be started: {said}")).blame(Fault::Host);
            // CUDA_ERROR_SYSTEM_NOT_READY
            Ok(if *code == 802 {
                outcome.remedy("on the host: systemctl start nvidia-fabricmanager")
            } else {
                outcome.remedy("on the host: nvidia-smi, and dmesg | grep -i -e nvrm -e xid")
            })
        }
        Some(Failure::LibraryMissing { .. } | Failure::SymbolMissing { .. } | Failure::StubLibrary { .. }) => {
            Err(Outcome::unknown("libcuda could not be used, so the GPUs were not counted"))
        }
        Some(other) => Err(Outcome::unknown(format!("the GPUs were not counted: {}", super::say_failure(other)))),
        None => Ok(no_device(subject)),
    }
}

/// The driver is there, and says that there is no GPU.
fn no_device(subject: &RunSubject<'_>) -> Outcome {
    for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"] {
        if let Some((value, origin)) = in_container(subject, name).filter(|(value, _)| hides_all(value)) {
            return Outcome::fail(format!("{name}={value} hides every GPU"))
                .remedy(format!("--env {name}=all, or unset it"))
                .blame(blame_for(origin));
        }
    }
    let nodes = subject.run.environment.iter().flat_map(|environment| &environment.nvidia_nodes);
    let closed: Vec<String> =
        nodes.filter_map(|node| Some(format!("{}: {}", node.path, node.error.as_ref()?))).collect();
    let outcome = if closed.is_empty() {
        Outcome::fail("the driver finds no GPU")
            .remedy("on the host: nvidia-smi -L; pass the GPUs' own nodes too, /dev/nvidia0 and so on")
    } else {
        Outcome::fail("the GPUs' device nodes cannot be opened")
            .remedy("docker run --gpus all, or --device for each of the nodes: the device cgroup refuses them")
    };
    outcome.evidence(closed).blame(Fault::Host)
}

fn hides_all(value: &str) -> bool {
    matches!(value.trim(), "" | "void" | "none" | "-1" | "NoDevFiles")
}

pub(super) fn cuda_library(subject: &RunSubject<'_>) -> Judged {
    let probe = probe(subject)?;
    let stub = |path: &str| {
        Outcome::fail(format!("the loader finds the CUDA toolkit's stub, which works with no GPU: {path}"))
            .remedy(
                "take the stubs directory off the loader's path: LD_LIBRARY_PATH, /etc/ld.so.conf.d, then RUN ldconfig",
            )
            .blame(Fault::Image)
    };
    match &probe.failure {
        Some(Failure::StubLibrary { path }) => return Ok(stub(path)),
        Some(Failure::Cuda { code: STUB_LIBRARY, .. }) => {
            return Ok(stub(probe.library.as_ref().map_or("libcuda.so.1", |library| library.path.as_str())));
        }
        Some(Failure::LibraryMissing { detail, .. }) => return Ok(missing(subject)?.evidence([detail.clone()])),
        Some(Failure::SymbolMissing { library, symbol }) => {
            return Ok(Outcome::fail(format!("{library} has no {symbol}: the driver is too old{}", which(subject)))
                .remedy("update the host's GPU driver")
                .blame(Fault::Host));
        }
        Some(_) | None => {}
    }
    let Some(library) = &probe.library else {
        return Err(Outcome::unknown("the opened libcuda is unknown"));
    };
    let path = library.path.as_str();
    if path.contains("/stubs/") {
        return Ok(stub(path));
    }
    if is_compat(path) {
        return Ok(Outcome::warn(format!("libcuda is the image's compatibility driver, not the host's: {path}"))
            .remedy("if the host's driver is new enough, take the compat directory off the loader's path")
            .blame(Fault::Image));
    }
    let kernel = subject.environment()?.kernel_driver.as_deref();
    match (path.rsplit_once("libcuda.so.").map(|(_, version)| version), kernel) {
        (Some(version), Some(kernel)) if version.contains('.') && version != kernel => {
            Ok(Outcome::warn(format!("libcuda is from driver {version}, but the host's kernel module from {kernel}"))
                .evidence([path.to_owned()])
                .remedy("restart the host after a driver update; remove a libcuda that was built into the image")
                .blame(match is_in_image(subject, path) {
                    true => Fault::Image,
                    false => Fault::Host,
                }))
        }
        _ if path.is_empty() => Ok(Outcome::pass(format!("{} was opened", library.asked))),
        _ => Ok(Outcome::pass(path)),
    }
}

fn is_in_image(subject: &RunSubject<'_>, path: &str) -> bool {
    subject.facts.is_some_and(|facts| facts.cuda.driver_libraries.iter().any(|library| library.path == path))
}

/// libcuda is not there: the driver's libraries come from the host, with the GPUs.
fn missing(subject: &RunSubject<'_>) -> Judged {
    const CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";
    if !gpus_were_passed(subject)? {
        return Ok(Outcome::fail("there is no libcuda in the container: the GPUs were not passed into it")
            .remedy("docker run --gpus all, with the NVIDIA container toolkit on the host")
            .blame(if subject.run.launch.gpu_access == "none" { Fault::Launch } else { Fault::Host }));
    }
    // NVIDIA container toolkit, "Driver Capabilities": libcuda is of `compute`; unset means `compute,utility`.
    if let Some((value, origin)) = in_container(subject, CAPABILITIES) {
        let has_compute = value.split(',').any(|word| matches!(word.trim(), "all" | "compute" | ""));
        if !has_compute {
            return Ok(Outcome::fail(format!("{CAPABILITIES}={value} omits compute, and libcuda with it"))
                .remedy(format!("ENV {CAPABILITIES}=compute,utility"))
                .blame(blame_for(origin)));
        }
    }
    Ok(Outcome::fail("the GPUs are there, but the driver's libcuda.so.1 was not mounted into the container")
        .remedy("on the host: nvidia-container-cli list | grep libcuda; with CDI: nvidia-ctk cdi generate")
        .blame(Fault::Host))
}

pub(super) fn driver_version(subject: &RunSubject<'_>) -> Judged {
    let probe = probe(subject)?;
    if let Some(cause) = subject.cause(&[CauseId::DriverTooOld, CauseId::CudaForwardCompat]) {
        return Ok(super::failed_by(cause));
    }
    let Some(driver) = probe.cuda_version_code.and_then(cuda_of_code) else {
        return Err(Outcome::unknown("the driver's CUDA version is unknown"));
    };
    let said = format!("the driver{} is for CUDA {driver}", which(subject));
    let evidence =
        probe.library.as_ref().filter(|library| is_compat(&library.path)).map(|library| {
            format!("{}: the version is the compatibility driver's, the kernel's is older", library.path)
        });
    if let Some(minimum) = subject.target.minimum_cuda.filter(|minimum| driver < *minimum) {
        return Ok(Outcome::fail(format!("{said}; {} needs {minimum} or newer", subject.target.title))
            .evidence(evidence)
            .remedy("update the host's GPU driver")
            .blame(Fault::Host));
    }
    let Some(facts) = subject.facts else {
        return Err(Outcome::unknown(format!("{said}, but the image's is unknown")));
    };
    let Some(image) = facts.cuda.version.as_deref().and_then(parse_cuda_version) else {
        // Programs may have CUDA linked in. NCCL has, and what it was built with ran, or did not.
        return if subject.run.ending == (Ending::Agent { ending: AgentEnding::Complete }) {
            Ok(Outcome::pass(format!("{said}; the image has no CUDA of its own, and NCCL's ran")))
        } else {
            Err(Outcome::unknown(format!("{said}, but the image's CUDA was not found")))
        };
    };
    let remedy = "update the host's GPU driver, or use an image with an older CUDA";
    Ok(if driver >= image {
        Outcome::pass(format!("{said}, the image has CUDA {image}"))
    } else if driver.major == image.major {
        let first = FIRST_DRIVER_OF_MAJOR.iter().find(|(major, _)| *major == image.major);
        let first = first.map(|(_, driver)| format!(" (drivers from {driver} on)")).unwrap_or_default();
        Outcome::warn(format!(
            "{said}, but the image has CUDA {image}: within {}.x that works{first}, except for code that is compiled at \
             run time (PTX, NVRTC)",
            image.major
        ))
        .remedy(remedy)
        .blame(Fault::Host)
    } else {
        Outcome::fail(format!("{said}, but the image has CUDA {image}")).named(CauseId::DriverTooOld).remedy(remedy)
    }
    .evidence(evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::image::testing::good;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;
    use crate::facts::run::{LoadedLibrary, RunFacts};

    fn cuda(code: i32, text: &str) -> Failure {
        Failure::Cuda { call: "cuInit".into(), code, name: format!("ERROR_{code}"), text: text.into() }
    }

    fn without_gpus(failure: Option<Failure>) -> RunFacts {
        let mut run = good_run();
        let probe = run.gpus.as_mut().unwrap();
        probe.gpus.clear();
        probe.cuda_version_code = None;
        probe.failure = failure;
        run
    }

    fn with_library(path: &str) -> RunFacts {
        let mut run = good_run();
        run.gpus.as_mut().unwrap().library = Some(LoadedLibrary { asked: "libcuda.so.1".into(), path: path.into() });
        run
    }

    #[test]
    fn gpus_that_are_not_seen() {
        expect(&found(&good_run(), "gpu-visible"), Pass, None, &["2 GPUs: NVIDIA H200"]);
        let mut run = good_run();
        run.gpus = None;
        expect(&found(&run, "gpu-visible"), Unknown, None, &[]);
        expect(
            &found(&without_gpus(Some(cuda(802, "not ready"))), "gpu-visible"),
            Fail,
            Some(Host),
            &["fabricmanager"],
        );
        expect(&found(&without_gpus(Some(cuda(999, "unknown"))), "gpu-visible"), Fail, Some(Host), &["dmesg"]);

        let mut run = without_gpus(Some(cuda(100, "no CUDA-capable device is detected")));
        expect(&found(&run, "gpu-visible"), Fail, Some(Host), &["nvidia-smi -L"]);
        run.environment.as_mut().unwrap().nvidia_nodes[0].error = Some("Operation not permitted".into());
        expect(&found(&run, "gpu-visible"), Fail, Some(Host), &["/dev/nvidia0: Operation not permitted"]);
        run.environment.as_mut().unwrap().variables.insert("CUDA_VISIBLE_DEVICES".into(), "-1".into());
        expect(&found(&run, "gpu-visible"), Fail, Some(Job), &["hides every GPU"]);
        run.launch.variables.push(variable("CUDA_VISIBLE_DEVICES", "-1", Origin::Image));
        expect(&found(&run, "gpu-visible"), Fail, Some(Image), &[]);
    }

    #[test]
    fn no_access_was_asked_for() {
        let mut run = without_gpus(None);
        run.launch.gpu_access = "none".into();
        run.environment.as_mut().unwrap().nvidia_nodes.clear();
        expect(&found(&run, "gpu-visible"), Fail, Some(Launch), &["not passed"]);
    }

    #[test]
    fn the_wrong_libcuda() {
        let missing =
            Failure::LibraryMissing { library: "libcuda.so.1".into(), detail: "cannot open shared object file".into() };
        let run = without_gpus(Some(missing));
        expect(&found(&run, "cuda-library"), Fail, Some(Host), &["cannot open shared object file"]);
        expect(&found(&run, "gpu-visible"), Unknown, None, &[]);
        let mut video = run;
        let variables = &mut video.environment.as_mut().unwrap().variables;
        variables.insert("NVIDIA_DRIVER_CAPABILITIES".into(), "video,utility".into());
        video.launch.variables.push(variable("NVIDIA_DRIVER_CAPABILITIES", "video,utility", Origin::Image));
        expect(&found(&video, "cuda-library"), Fail, Some(Image), &["omits compute"]);
        video.environment.as_mut().unwrap().nvidia_nodes.clear();
        expect(&found(&video, "cuda-library"), Fail, Some(Host), &["not passed"]);

        let stub = Failure::StubLibrary { path: "/usr/local/cuda/lib64/stubs/libcuda.so".into() };
        expect(&found(&without_gpus(Some(stub)), "cuda-library"), Fail, Some(Image), &["stub"]);
        let run = without_gpus(Some(cuda(34, "CUDA driver is a stub library")));
        expect(&found(&run, "cuda-library"), Fail, Some(Image), &["stub"]);
        expect(&found(&run, "gpu-visible"), Unknown, None, &["stub"]);
        let old = Failure::SymbolMissing { library: "libcuda.so.1".into(), symbol: "cuMemCreate".into() };
        expect(&found(&without_gpus(Some(old)), "cuda-library"), Fail, Some(Host), &["cuMemCreate"]);
        let compat = with_library("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15");
        expect(&found(&compat, "cuda-library"), Warn, Some(Image), &["compatibility driver"]);
        let other = with_library("/usr/lib/x86_64-linux-gnu/libcuda.so.535.54.03");
        expect(&found(&other, "cuda-library"), Warn, Some(Host), &["535.54.03", "550.54.14"]);
        let mut unknown = good_run();
        unknown.gpus.as_mut().unwrap().library = None;
        expect(&found(&unknown, "cuda-library"), Unknown, None, &[]);
    }

    /// Seen with an image that has libnccl and nothing else of CUDA.
    #[test]
    fn an_image_without_a_cuda_of_its_own() {
        let (mut run, mut facts) = (good_run(), good());
        facts.cuda.version = None;
        let of = |run: &RunFacts, facts: &crate::facts::ImageFacts| {
            let findings = findings_for(run, Some(facts), "ecs", crate::checks::RunOptions::default());
            findings.into_iter().find(|finding| finding.check == "driver-version").unwrap()
        };
        expect(&of(&run, &facts), Pass, None, &["NCCL's ran"]);
        run.ending = Ending::Agent { ending: AgentEnding::Failed };
        expect(&of(&run, &facts), Unknown, None, &["was not found"]);
    }

    #[test]
    fn driver_and_image() {
        let with_code = |code| {
            let mut run = good_run();
            run.gpus.as_mut().unwrap().cuda_version_code = code;
            run
        };
        // The good image has CUDA 12.4, PAI-DLC asks for 12.1.
        expect(&found(&with_code(Some(12040)), "driver-version"), Pass, None, &["CUDA 12.4"]);
        expect(&found(&with_code(Some(13000)), "driver-version"), Pass, None, &["CUDA 13.0"]);
        let minor = found(&with_code(Some(12020)), "driver-version");
        expect(&minor, Warn, Some(Host), &["CUDA 12.2", "PTX", "525"]);
        expect(&found(&with_code(Some(12000)), "driver-version"), Fail, Some(Host), &["needs 12.1 or newer"]);
        expect(&found(&with_code(None), "driver-version"), Unknown, None, &[]);
        let findings = findings_for(&with_code(Some(11080)), Some(&good()), "ecs", Default::default());
        let old = findings.iter().find(|finding| finding.check == "driver-version").unwrap();
        expect(old, Fail, Some(Host), &["driver-too-old", "11.8"]);
        let unknown = found_in(&good_run(), None, "driver-version", Default::default());
        expect(&unknown, Unknown, None, &["the image's is unknown"]);
    }

    #[test]
    fn errors_that_speak_of_the_driver() {
        let run = good_run();
        let target = crate::targets::by_id("ecs").unwrap();
        let subject = RunSubject { run: &run, facts: None, target, options: Default::default() };
        let found = |text| driver_fault(&subject, None, text).map(|outcome| outcome.summary);
        assert!(found("the provided PTX was compiled with an unsupported toolchain.").unwrap().contains("compile"));
        assert!(found("system has unsupported display driver / cuda driver combination").is_some());
        assert_eq!(found("out of memory"), None);
    }

    #[test]
    fn codes() {
        assert_eq!(cuda_of_code(12040), Some(CudaVersion::new(12, 4)));
        assert_eq!(cuda_of_code(13000), Some(CudaVersion::new(13, 0)));
        assert_eq!((cuda_of_code(0), cuda_of_code(-1)), (None, None));
    }
}
