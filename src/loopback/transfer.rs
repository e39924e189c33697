//! One device: its own description, then on each port writes on a queue pair connected to itself and on two that are
//! connected to each other.

use super::cause::{self, Situation};
use super::counters::Before;
use super::{Options, Progress, ROOT, node_problem, pattern};
use crate::devices::gid;
use crate::diagnosis::{Cause, CauseId};
use crate::facts::devices::Gid;
use crate::facts::loopback::{
    DeviceLimits, DeviceLoopback, GidChoice, LoopbackFailure, Path, PathLoopback, PortAttributes, PortLoopback,
    SizeRow, Step, StepError, UsedGid, VerbsTransport,
};
use crate::facts::run::Failure;
use crate::ffi::rdma::{self as verbs, Address, Batch, Context, Domain, Errno, Link, QueuePair, Region, Verbs};
use crate::sysfs::{Tree, rdma};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Size of each of the two regions, in bytes.
const REGION_BYTES: usize = 16 << 20;
/// Writes posted at once.
const BATCH: usize = 16;
/// Batches of each size; with two queue pairs the second goes the other way.
const ROUNDS: usize = 2;
/// Depth of a queue pair: a batch and its receive.
const DEPTH: u32 = 32;
/// How long a port may take to show as down after a write failed because of it.
const STATE_PATIENCE: Duration = Duration::from_secs(1);
/// How often to look until then.
const STATE_POLL: Duration = Duration::from_millis(10);
/// Time limit for a batch.
const BATCH_LIMIT: Duration = Duration::from_secs(10);
/// 4.096 µs × 2^16 is 0.27 s: with the retries a device that does not answer is found out within seconds. (NCCL waits 2^20.)
const ACK_TIMEOUT: u8 = 16;
/// NCCL's value.
const RETRIES: u8 = 7;
/// The first packet's number on a connection; NCCL's is 0. The two directions differ.
const FIRST_PSN: u32 = 0;
/// Bit of `CAP_IPC_LOCK` (capabilities(7)).
const CAP_IPC_LOCK: u32 = 14;

type Progressing = Progress<DeviceLoopback>;
/// A failed step, before its cause is determined.
type StepResult<T> = Result<T, (Step, StepError)>;

/// Runs a step: records the position, and returns a call's error with it.
fn step<T>(progress: &Progressing, at: Step, call: impl FnOnce() -> Result<T, Errno>) -> StepResult<T> {
    progress.at(at);
    call().map_err(|errno| (at, verbs::errno_error(errno)))
}

/// Why a library could not be opened, in words.
pub(super) fn words(failure: &Failure) -> String {
    match failure {
        // The loader's message names it.
        Failure::LibraryMissing { detail, .. } => detail.clone(),
        Failure::SymbolMissing { library, symbol } => format!("{library} has no {symbol}"),
        other => format!("{other:?}"),
    }
}

/// Tries the device whose name is in `progress`.
pub(super) fn run(progress: &Progressing, options: &Options, deadline: Instant) {
    if let Err(failure) = try_device(progress, options, deadline) {
        progress.found().failure = Some(failure);
    }
}

fn try_device(progress: &Progressing, options: &Options, deadline: Instant) -> Result<(), LoopbackFailure> {
    let failed = |(step, error), cause: Option<Cause>| LoopbackFailure { step, error, cause: cause.map(Box::new) };
    let name = progress.found().name.clone();
    progress.at(Step::OpenLibrary);
    let verbs = Verbs::open()
        .map_err(|failure| failed((Step::OpenLibrary, StepError::Other { detail: words(&failure) }), None))?;
    let devices = step(progress, Step::DeviceList, || verbs.devices()).map_err(|error| failed(error, None))?;
    let Some(device) = devices.iter().find(|device| device.name() == name) else {
        let error = StepError::Other { detail: format!("{name} went away") };
        return Err(failed((Step::DeviceList, error), None));
    };
    let context = step(progress, Step::OpenDevice, || device.open())
        .map_err(|error| failed(error, node_problem(&device.node())))?;
    let limits = step(progress, Step::QueryDevice, || context.query_device()).map_err(|error| failed(error, None))?;
    let transport = {
        let mut found = progress.found();
        found.limits = Some(device_limits(&limits));
        found.transport
    };
    for port in 1..=limits.phys_port_cnt {
        let found = Port { progress, options, deadline, context: &context, device: &name, port, transport }.run();
        progress.found().ports.push(found);
    }
    progress.at(Step::Destroy);
    Ok(())
}

fn device_limits(attributes: &verbs::DeviceAttr) -> DeviceLimits {
    let count = |number: i32| u32::try_from(number).unwrap_or(0);
    let firmware: Vec<u8> = attributes.fw_ver.iter().copied().take_while(|byte| *byte != 0).collect();
    DeviceLimits {
        firmware: String::from_utf8_lossy(&firmware).into_owned(),
        vendor_id: format!("0x{:04x}", attributes.vendor_id),
        vendor_part_id: attributes.vendor_part_id,
        hardware_version: attributes.hw_ver,
        node_guid: guid(attributes.node_guid),
        system_image_guid: guid(attributes.sys_image_guid),
        ports: u32::from(attributes.phys_port_cnt),
        max_mr_bytes: attributes.max_mr_size,
        max_mr: count(attributes.max_mr),
        max_pd: count(attributes.max_pd),
        max_qp: count(attributes.max_qp),
        max_qp_wr: count(attributes.max_qp_wr),
        max_sge: count(attributes.max_sge),
        max_cq: count(attributes.max_cq),
        max_cqe: count(attributes.max_cqe),
    }
}

/// A GID as in sysfs.
fn words_of(raw: [u8; 16]) -> String {
    Ipv6Addr::from(raw).segments().map(|segment| format!("{segment:04x}")).join(":")
}

/// A GUID as in sysfs: `0016:3eff:fe2c:6aad`.
fn guid(bytes: [u8; 8]) -> String {
    let parts: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    parts.join(":")
}

fn port_attributes(attributes: &verbs::PortAttr) -> PortAttributes {
    // enum ibv_port_state; sysfs uses the same words.
    let states = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
    let state = usize::try_from(attributes.state).ok().and_then(|state| states.get(state));
    PortAttributes {
        state: state.map_or_else(|| format!("state {}", attributes.state), |state| (*state).to_owned()),
        link_layer: match attributes.link_layer {
            verbs::LINK_LAYER_INFINIBAND => "InfiniBand",
            verbs::LINK_LAYER_ETHERNET => "Ethernet",
            _ => "unspecified",
        }
        .to_owned(),
        max_mtu_bytes: mtu_bytes(attributes.max_mtu),
        active_mtu_bytes: mtu_bytes(attributes.active_mtu),
        lid: u32::from(attributes.lid),
        sm_lid: u32::from(attributes.sm_lid),
        lmc: u32::from(attributes.lmc),
        max_message_bytes: attributes.max_msg_sz,
        gid_table_length: u32::try_from(attributes.gid_tbl_len).unwrap_or(0),
    }
}

/// `enum ibv_mtu`: 1 is 256, and each next value doubles it.
fn mtu_bytes(mtu: i32) -> Option<u32> {
    (1..=5).contains(&mtu).then(|| 128 << mtu)
}

/// One port of an open device.
struct Port<'a> {
    progress: &'a Progressing,
    options: &'a Options,
    deadline: Instant,
    context: &'a Context<'a>,
    device: &'a str,
    port: u8,
    transport: VerbsTransport,
}

impl Port<'_> {
    fn run(&self) -> PortLoopback {
        let mut found = PortLoopback {
            port: u32::from(self.port),
            attributes: None,
            gid: None,
            failure: None,
            paths: Vec::new(),
            counters: None,
        };
        found.failure = self.fill(&mut found).err();
        found
    }

    fn fill(&self, found: &mut PortLoopback) -> Result<(), LoopbackFailure> {
        let failed = |(step, error), cause: Option<Cause>| LoopbackFailure { step, error, cause: cause.map(Box::new) };
        let attributes = step(self.progress, Step::QueryPort, || self.context.query_port(self.port))
            .map_err(|error| failed(error, None))?;
        let described = port_attributes(&attributes);
        found.attributes = Some(described.clone());
        if attributes.state != verbs::PORT_ACTIVE {
            let error = StepError::Other { detail: "NCCL would skip the port".to_owned() };
            let cause = port_not_active(&described.state);
            return Err(failed((Step::QueryPort, error), Some(cause)));
        }
        let is_infiniband = attributes.link_layer == verbs::LINK_LAYER_INFINIBAND;
        let mut situation = self.situation(described.gid_table_length, is_infiniband);
        let gid = self.gid(&mut situation, is_infiniband).map_err(|error| {
            let cause = cause::of(error.0, &error.1, &situation).or_else(|| cause::unusable(&situation));
            failed(error, cause)
        })?;
        found.gid = Some(gid.0.clone());
        let link = Link {
            port: self.port,
            gid_index: u8::try_from(gid.0.index).unwrap_or(u8::MAX),
            mtu: attributes.active_mtu,
            is_global: situation.is_global,
            first_psn: FIRST_PSN,
            timeout: ACK_TIMEOUT,
            retries: RETRIES,
        };
        let before = Before::read(std::path::Path::new(ROOT), self.device, found.port);
        let address = Address { number: 0, gid: gid.1, lid: attributes.lid };
        for path in [Path::Itself, Path::Pair] {
            let mut moved = PathLoopback { path, rows: Vec::new(), failure: None };
            let sizes = self.options.sizes.iter().copied().filter(|size| *size <= u64::from(attributes.max_msg_sz));
            let sizes: Vec<u64> = sizes.filter(|size| *size <= REGION_BYTES as u64).collect();
            let done = self.path(&mut moved, &sizes, &link, &address);
            moved.failure = done.err().map(|error| {
                let cause = self.port_went_down(error.0).or_else(|| cause::of(error.0, &error.1, &situation));
                failed(error, cause)
            });
            found.paths.push(moved);
        }
        found.counters = before.rise(found.moved_bytes(), described.active_mtu_bytes);
        Ok(())
    }

    /// The port was active at the start.
    fn port_went_down(&self, step: Step) -> Option<Cause> {
        if !matches!(step, Step::PostSend | Step::PollCq) {
            return None;
        }
        // The first write may fail a moment before the driver has the port's new state.
        let deadline = Instant::now() + STATE_PATIENCE;
        loop {
            let now = self.context.query_port(self.port).ok()?;
            if now.state != verbs::PORT_ACTIVE {
                return Some(port_not_active(&port_attributes(&now).state));
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(STATE_POLL);
        }
    }

    fn situation(&self, length: u32, is_infiniband: bool) -> Situation {
        self.progress.at(Step::QueryGid);
        let folder = rdma::port_folder(self.device, &self.port.to_string());
        let tree = Tree::new(std::path::Path::new(ROOT));
        let slots = (0..length).filter_map(|index| {
            let raw = self.context.query_gid(self.port, index).ok().filter(|raw| *raw != [0; 16])?;
            let attribute = |name: &str| tree.line(&format!("{folder}/gid_attrs/{name}/{index}"));
            gid::gid(index, &words_of(raw), attribute("types"), attribute("ndevs"))
        });
        Situation {
            transport: self.transport,
            memlock_bytes: memlock(),
            wanted_bytes: 2 * REGION_BYTES as u64,
            gids: slots.collect(),
            gid_index: 0,
            is_global: !is_infiniband,
        }
    }

    /// The GID to use.
    fn gid(&self, situation: &mut Situation, is_infiniband: bool) -> StepResult<(UsedGid, [u8; 16])> {
        let chosen = gid::nccl_choice(&situation.gids, is_infiniband).map_or(0, |choice| choice.index);
        let chosen_by = if self.options.gid_index.is_some() { GidChoice::Asked } else { GidChoice::Nccl };
        let index = self.options.gid_index.unwrap_or(chosen);
        situation.gid_index = index;
        let raw = step(self.progress, Step::QueryGid, || self.context.query_gid(self.port, index))?;
        // A queue pair's attributes have one byte for it.
        if u8::try_from(index).is_err() {
            let detail = format!("index {index}: a queue pair accepts none above {}", u8::MAX);
            return Err((Step::QueryGid, StepError::Other { detail }));
        }
        let slot = situation.gids.iter().find(|gid| gid.index == index);
        let interface = slot.and_then(|slot| slot.netdev.clone());
        let tree = Tree::new(std::path::Path::new(ROOT));
        let gid = UsedGid {
            index,
            gid: words_of(raw),
            is_empty: slot.is_none(),
            ipv4: slot.and_then(|slot| slot.ipv4),
            kind: slot.and_then(|slot| slot.kind.clone()),
            is_routable: is_infiniband || slot.is_some_and(Gid::is_routable),
            is_interface_here: interface.as_ref().is_some_and(|name| tree.exists(&format!("sys/class/net/{name}"))),
            interface,
            chosen_by,
        };
        Ok((gid, raw))
    }

    /// Creates everything that a path needs, moves the data, and releases everything.
    fn path(&self, moved: &mut PathLoopback, sizes: &[u64], link: &Link, address: &Address) -> StepResult<()> {
        let progress = self.progress;
        let domain = step(progress, Step::AllocPd, || self.context.alloc_pd())?;
        let mut source = step(progress, Step::RegMr, || domain.register(REGION_BYTES))?;
        let mut target = step(progress, Step::RegMr, || domain.register(REGION_BYTES))?;
        let queue = step(progress, Step::CreateCq, || self.context.create_cq(2 * DEPTH))?;
        let pairs = self.connect(moved.path, &domain, &queue, link, address)?;
        let (first, last) = (&pairs[0], &pairs[pairs.len() - 1]);
        let mut message = 0;
        for size in sizes {
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            let count = (REGION_BYTES / size).clamp(1, BATCH);
            let places: Vec<Range<usize>> = (0..count).map(|at| at * size..(at + 1) * size).collect();
            let mut time = Duration::ZERO;
            for round in 0..ROUNDS {
                let (sender, receiver) = if round % 2 == 0 { (first, last) } else { (last, first) };
                let first_message = message + 1;
                message += u32::try_from(count).unwrap_or(0);
                fill(&mut source, &places, first_message)?;
                progress.at(Step::PollCq);
                let deadline = self.deadline.min(Instant::now() + BATCH_LIMIT);
                let batch = Batch { sender, receiver, queue: &queue, places: &places, immediate: message, deadline };
                time += batch.run(&mut source, &mut target)?;
                progress.at(Step::Verify);
                plant(&mut target, &places, first_message, self.options.plant);
                verify(&mut target, &places, first_message)?;
            }
            moved.rows.push(SizeRow {
                size_bytes: size as u64,
                messages: u32::try_from(count * ROUNDS).unwrap_or(0),
                time_us: time.as_secs_f64() * 1e6,
            });
        }
        progress.at(Step::Destroy);
        Ok(())
    }

    /// One queue pair, or two, ready to send. They exchange addresses as NCCL's ranks do, but within this process.
    fn connect<'q>(
        &self,
        path: Path,
        domain: &'q Domain,
        queue: &'q verbs::CompletionQueue,
        link: &Link,
        address: &Address,
    ) -> StepResult<Vec<QueuePair<'q>>> {
        let progress = self.progress;
        let count = match path {
            Path::Itself => 1,
            Path::Pair => 2,
        };
        let pairs = (0..count)
            .map(|_| step(progress, Step::CreateQp, || domain.create_qp(queue, DEPTH)))
            .collect::<Result<Vec<_>, _>>()?;
        for pair in &pairs {
            step(progress, Step::ModifyToInit, || pair.to_init(link))?;
        }
        for (pair, other) in pairs.iter().zip(pairs.iter().rev()) {
            let other = Address { number: other.number(), ..*address };
            step(progress, Step::ModifyToRtr, || pair.to_rtr(link, &other))?;
        }
        for pair in &pairs {
            step(progress, Step::ModifyToRts, || pair.to_rts(link))?;
        }
        Ok(pairs)
    }
}

/// The error for a region that the device may still write to after its batch failed.
fn lost(step: Step) -> (Step, StepError) {
    (step, StepError::Other { detail: "the memory is still in use by the device".to_owned() })
}

fn fill(source: &mut Region, places: &[Range<usize>], first_message: u32) -> StepResult<()> {
    for (message, place) in (first_message..).zip(places) {
        pattern::fill(source.bytes(place.clone()).ok_or_else(|| lost(Step::PostSend))?, message);
    }
    Ok(())
}

/// Changes the last byte of a received message.
fn plant(target: &mut Region, places: &[Range<usize>], first_message: u32, planted: Option<u32>) {
    let place = planted.and_then(|planted| planted.checked_sub(first_message));
    let place = place.and_then(|at| places.get(usize::try_from(at).ok()?));
    if let Some(byte) = place.and_then(|place| target.bytes(place.clone())?.last_mut()) {
        *byte = !*byte;
    }
}

fn verify(target: &mut Region, places: &[Range<usize>], first_message: u32) -> StepResult<()> {
    for (message, place) in (first_message..).zip(places) {
        let bytes = target.bytes(place.clone()).ok_or_else(|| lost(Step::Verify))?;
        if let Some(pattern::Difference { offset, found, expected }) = pattern::first_difference(bytes, message) {
            return Err((Step::Verify, StepError::WrongData { message, offset_bytes: offset, found, expected }));
        }
    }
    Ok(())
}

/// The limit of locked memory; `None`: unlimited, or it does not apply to this process.
fn memlock() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let is_bound = capabilities >> CAP_IPC_LOCK & 1 == 0;
    getrlimit(Resource::Memlock).current.filter(|_| is_bound)
}

fn port_not_active(state: &str) -> Cause {
    CauseId::PortDown.cause(Vec::new()).summary(format!("the port is not active but {state}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_fields_own_words() {
        assert_eq!([1, 3, 5].map(mtu_bytes), [Some(256), Some(1024), Some(4096)]);
        assert_eq!([0, 6, -1].map(mtu_bytes), [None; 3]);
        assert_eq!(guid([0, 0x16, 0x3e, 0xff, 0xfe, 0x2c, 0x6a, 0xad]), "0016:3eff:fe2c:6aad");
    }
}
