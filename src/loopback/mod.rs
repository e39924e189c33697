//! RDMA writes from a device to itself: proof that driver, provider, limits and GID work, on a host with one GPU or none.
//!
//! Input: [`Options`]. Output: a [`LoopbackReport`] with what was moved and verified, or the step that failed and its cause.
//! Each device is tried in its own thread ([`transfer`]), since a call into a driver may never return: then the thread is
//! abandoned, and the report says in which step. A thread that returns has released everything.

mod cause;
mod counters;
mod pattern;
mod transfer;

use crate::diagnosis::{Cause, CauseId};
use crate::facts::loopback::{
    DeviceLoopback, LoopbackFailure, LoopbackReport, SCHEMA_VERSION, Step, StepError, VerbsTransport,
};
use crate::facts::run::LoadedLibrary;
use crate::ffi::rdma::{self as verbs, Transport, Verbs};
use crate::sysfs::{Tree, rdma};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// What to test.
#[derive(Debug, Clone)]
pub struct Options {
    /// Empty: every device.
    pub devices: Vec<String>,
    /// `None`: the one that NCCL uses.
    pub gid_index: Option<u32>,
    /// Message sizes in bytes: multiples of 4096.
    pub sizes: Vec<u64>,
    /// A message of each path, from 1, to corrupt before it is verified: proof that the check finds it.
    pub plant: Option<u32>,
    /// Time limit per device.
    pub device_timeout: Duration,
}

/// 64 KiB to 8 MiB. NCCL's messages are at most half a buffer of 4 MiB (`NCCL_BUFFSIZE`).
const SIZES: std::ops::RangeInclusive<u32> = 16..=23;

impl Default for Options {
    fn default() -> Self {
        Options {
            devices: Vec::new(),
            gid_index: None,
            sizes: SIZES.map(|power| 1 << power).collect(),
            plant: None,
            device_timeout: Duration::from_secs(30),
        }
    }
}

/// How long a thread past its deadline may take to report.
const GRACE: Duration = Duration::from_secs(2);
/// Where `sys` is.
const ROOT: &str = "/";
const NODES: &str = "/dev/infiniband";

/// A thread's current step, and its results so far.
#[derive(Debug)]
struct Progress<T> {
    step: Mutex<Step>,
    found: Mutex<T>,
}

impl<T> Progress<T> {
    fn at(&self, step: Step) {
        *lock(&self.step) = step;
    }

    fn found(&self) -> MutexGuard<'_, T> {
        lock(&self.found)
    }
}

/// The value that a panicked thread left is still usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs in its own thread and returns what was found by its end, by the time limit, or before a panic; the failure says which.
fn within<T: Clone + Send + 'static>(
    limit: Duration,
    start: T,
    work: impl FnOnce(&Progress<T>) + Send + 'static,
) -> (T, Option<LoopbackFailure>) {
    let began = Instant::now();
    let progress = Arc::new(Progress { step: Mutex::new(Step::OpenLibrary), found: Mutex::new(start) });
    let (done, wait) = mpsc::channel();
    let theirs = Arc::clone(&progress);
    std::thread::spawn(move || {
        work(&theirs);
        // Nobody may be waiting any more.
        let _ = done.send(());
    });
    let error = match wait.recv_timeout(limit) {
        Ok(()) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let after_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            Some(StepError::Timeout { after_ms })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Some(StepError::Other { detail: "the thread panicked".into() }),
    };
    let failure = error.map(|error| LoopbackFailure { step: *lock(&progress.step), error, cause: None });
    let found = progress.found().clone();
    (found, failure)
}

/// The devices that libibverbs knows.
#[derive(Debug, Clone, Default)]
struct Listed {
    library: Option<LoadedLibrary>,
    failure: Option<LoopbackFailure>,
    devices: Vec<DeviceLoopback>,
}

/// Moves data on every requested device. Each takes at most little more than [`Options::device_timeout`].
pub fn run(options: &Options) -> LoopbackReport {
    let (listed, hung) = within(options.device_timeout, Listed::default(), list);
    let mut report = LoopbackReport {
        schema_version: SCHEMA_VERSION,
        library: listed.library,
        failure: listed.failure.or(hung),
        devices: Vec::new(),
    };
    if report.failure.as_ref().is_some_and(|failure| failure.step == Step::OpenLibrary) {
        return report;
    }
    let mut devices = listed.devices;
    devices.extend(unlisted(&Tree::new(Path::new(ROOT)), &devices));
    let known: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
    let asked = &options.devices;
    devices.retain(|device| asked.is_empty() || asked.contains(&device.name));
    let missing: Vec<&str> = asked.iter().filter(|name| !known.contains(name)).map(String::as_str).collect();
    if (devices.is_empty() || !missing.is_empty()) && report.failure.is_none() {
        let cause = if missing.is_empty() { CauseId::NoVerbsDevice.cause(Vec::new()) } else { no_such_device(&known) };
        let detail = format!("no device {}", missing.join(", ")).trim_end().to_owned();
        let error = StepError::Other { detail };
        report.failure = Some(LoopbackFailure { step: Step::DeviceList, error, cause: Some(Box::new(cause)) });
    }
    report.devices = devices.into_iter().map(|device| try_device(device, options)).collect();
    report
}

fn list(progress: &Progress<Listed>) {
    let verbs = match Verbs::open() {
        Ok(verbs) => verbs,
        Err(failure) => {
            progress.found().failure = Some(LoopbackFailure {
                step: Step::OpenLibrary,
                error: StepError::Other { detail: transfer::words(&failure) },
                cause: None,
            });
            return;
        }
    };
    progress.found().library = Some(verbs.library().clone());
    progress.at(Step::DeviceList);
    match verbs.devices() {
        Ok(devices) => {
            let found = devices.iter().map(|device| DeviceLoopback {
                name: device.name(),
                node: device.node(),
                transport: match device.transport() {
                    Transport::Infiniband => VerbsTransport::Infiniband,
                    Transport::Iwarp => VerbsTransport::Iwarp,
                    Transport::Other => VerbsTransport::Other,
                },
                limits: None,
                failure: None,
                ports: Vec::new(),
            });
            progress.found().devices = found.collect();
        }
        Err(errno) => {
            let (step, error) = (Step::DeviceList, verbs::errno_error(errno));
            progress.found().failure =
                Some(LoopbackFailure { step, error, cause: Some(Box::new(CauseId::NoVerbsDevice.cause(Vec::new()))) });
        }
    }
}

/// Devices in sysfs that libibverbs omits: those without a node or a provider.
fn unlisted(tree: &Tree<'_>, listed: &[DeviceLoopback]) -> Vec<DeviceLoopback> {
    let mut found = rdma::devices(tree);
    found.retain(|name| listed.iter().all(|device| device.name != *name));
    let left_out = found.into_iter().map(|name| {
        let node = rdma::uverbs(tree, &name).unwrap_or_default();
        let cause = node_problem(&node).unwrap_or_else(|| {
            let cause = CauseId::VerbsProviderMissing.cause(Vec::new());
            cause.summary("no provider of libibverbs knows the device")
        });
        let error = StepError::Other { detail: format!("libibverbs does not list {name}") };
        let failure = LoopbackFailure { step: Step::DeviceList, error, cause: Some(Box::new(cause)) };
        let transport = VerbsTransport::Other;
        DeviceLoopback { name, node, transport, limits: None, failure: Some(failure), ports: Vec::new() }
    });
    left_out.collect()
}

/// None of the devices has the name.
fn no_such_device(known: &[String]) -> Cause {
    let summary = match known.is_empty() {
        true => "there is no RDMA device".to_owned(),
        false => format!("there is {}", known.join(", ")),
    };
    CauseId::NoSuchDevice.cause(Vec::new()).summary(summary)
}

/// What is wrong with a device's node, if anything.
fn node_problem(node: &str) -> Option<Cause> {
    let path = PathBuf::from(NODES).join(if node.is_empty() { "uverbs*" } else { node });
    let shown = path.display().to_string();
    if !path.exists() {
        return Some(CauseId::DeviceNotPermitted.cause(Vec::new()).summary(format!("{shown} is not there")));
    }
    let opened = fs::File::options().read(true).write(true).open(&path);
    opened.err().map(|error| CauseId::DeviceNotPermitted.cause(Vec::new()).summary(format!("{shown}: {error}")))
}

fn try_device(device: DeviceLoopback, options: &Options) -> DeviceLoopback {
    if device.failure.is_some() {
        return device;
    }
    let deadline = Instant::now() + options.device_timeout;
    let options = options.clone();
    let work = move |progress: &Progress<DeviceLoopback>| transfer::run(progress, &options, deadline);
    let (mut device, hung) = within(options_limit(deadline), device, work);
    device.failure = device.failure.or(hung);
    device
}

fn options_limit(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) + GRACE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_come_back_is_left_behind() {
        let (wake, sleep) = mpsc::channel::<()>();
        let (found, failure) = within(Duration::from_millis(20), 0, move |progress| {
            *progress.found() = 1;
            progress.at(Step::CreateQp);
            let _ = sleep.recv();
        });
        let failure = failure.unwrap();
        assert_eq!((found, failure.step), (1, Step::CreateQp));
        assert!(matches!(failure.error, StepError::Timeout { after_ms } if after_ms >= 20), "{failure:?}");
        drop(wake);
    }

    #[test]
    fn a_thread_that_panics_says_where() {
        let (found, failure) = within(Duration::from_secs(60), 0, |progress| {
            progress.at(Step::RegMr);
            panic!("as it should");
        });
        let failure = failure.unwrap();
        assert_eq!((found, failure.step), (0, Step::RegMr));
        assert!(matches!(failure.error, StepError::Other { .. }), "{failure:?}");
        assert_eq!(within(Duration::from_secs(60), 3, |progress| *progress.found() += 1), (4, None));
    }

    #[test]
    fn devices_that_the_library_leaves_out_are_named() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join("sys/class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("infiniband/erdma_1/node_type", "1: CA\n");
        write("infiniband/erdma_0/node_type", "1: CA\n");
        write("infiniband_verbs/uverbs77/ibdev", "erdma_1\n");
        let listed = DeviceLoopback {
            name: "erdma_0".to_owned(),
            node: "uverbs0".to_owned(),
            transport: VerbsTransport::Infiniband,
            limits: None,
            failure: None,
            ports: Vec::new(),
        };
        let found = unlisted(&Tree::new(tree.path()), &[listed]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].node.as_str()), ("erdma_1", "uverbs77"));
        let failure = found[0].failure.as_ref().unwrap();
        assert_eq!(failure.step, Step::DeviceList);
        let cause = failure.cause.as_ref().unwrap();
        assert_eq!(
            (cause.id, cause.summary.as_str()),
            (CauseId::DeviceNotPermitted, "/dev/infiniband/uverbs77 is not there")
        );
    }

    #[test]
    fn sizes_are_whole_blocks() {
        let sizes = Options::default().sizes;
        assert_eq!((sizes[0], sizes[sizes.len() - 1], sizes.len()), (64 << 10, 8 << 20, 8));
        assert!(sizes.iter().all(|size| size % pattern::BLOCK as u64 == 0));
    }
}
