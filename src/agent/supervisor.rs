//! Starts the ranks of a container, watches them, and reports what happens.
//!
//! A rank that hangs in NCCL cannot be woken from within: whoever does not leave a phase in time is named with its phase
//! and NCCL's last line, and all are ended. A rank that fails gives the others a moment to say what they saw of it.

use super::barrier::Barrier;
use super::channel::{RankMessage, RankPlan};
use super::children::{Event, GpuAnswer, RankProcess, explain_exit, probe_gpus, probe_verbs};
use super::counters::Counters;
use super::environment;
use super::logs::RankFiles;
use super::table::Table;
use crate::facts::run::{
    AgentEnding, AgentMessage, AgentPlan, Collective, Failure, Gpu, GpuProbe, GpuSelection, PROTOCOL, Phase,
    RankFailure, RankStart, VerbsProbe,
};
use crate::signals::EndSignals;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the other ranks may go on after one failed.
const GRACE: Duration = Duration::from_secs(1);
/// How often to look for ended processes while one is ending.
const REAP_PAUSE: Duration = Duration::from_millis(5);

/// Runs everything; the exit code of the process.
pub(super) fn run(plan: &Path) -> u8 {
    let plan = match read_plan(plan) {
        Ok(plan) => plan,
        Err(error) => {
            // There is nobody to speak the protocol with.
            let _ = writeln!(io::stderr(), "error: reading the plan {}: {error}", plan.display());
            return 2;
        }
    };
    let ending = Supervisor::new(&plan).and_then(|mut supervisor| supervisor.run());
    match ending {
        Ok(AgentEnding::Complete) => 0,
        Ok(AgentEnding::Failed | AgentEnding::PhaseTimeout | AgentEnding::TotalTimeout | AgentEnding::Interrupted) => 1,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            1
        }
    }
}

fn read_plan(path: &Path) -> io::Result<AgentPlan> {
    let plan: AgentPlan = serde_json::from_slice(&std::fs::read(path)?)?;
    if plan.protocol != PROTOCOL {
        let text = format!("it uses protocol {}, but this agent speaks {PROTOCOL}", plan.protocol);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(plan)
}

struct Supervisor<'a> {
    plan: &'a AgentPlan,
    started: Instant,
    events: Receiver<Event>,
    sender: Sender<Event>,
    ranks: Vec<Rank>,
    table: Table,
    oom_kills_before: u64,
    failed_at: Option<Instant>,
    interrupted: bool,
    verbs_said: bool,
    /// Rank 0 has made the unique id.
    has_id: bool,
    /// A replacement for an unusable planned directory; removed with this value.
    own_directory: Option<TempDir>,
}

/// A rank and its progress.
struct Rank {
    process: RankProcess,
    phase: Phase,
    entered: Instant,
    /// Phases entered so far; all ranks go the same way.
    steps: u32,
    closed: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The rank reported that it is done.
    Done,
    /// The rank's failure was reported.
    Failed,
}

fn say(message: &AgentMessage) -> io::Result<()> {
    super::write_line(message)
}

impl<'a> Supervisor<'a> {
    fn new(plan: &'a AgentPlan) -> io::Result<Supervisor<'a>> {
        let started = Instant::now();
        let (sender, events) = channel();
        watch_signals(sender.clone());
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        say(&AgentMessage::Hello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned(), hostname })?;
        Ok(Supervisor {
            plan,
            started,
            events,
            sender,
            ranks: Vec::new(),
            table: Table::default(),
            oom_kills_before: 0,
            failed_at: None,
            interrupted: false,
            verbs_said: false,
            has_id: false,
            own_directory: None,
        })
    }

    fn run(&mut self) -> io::Result<AgentEnding> {
        let limit = Duration::from_millis(self.plan.phase_timeout_ms);
        let limit = limit.min(self.total_end().saturating_duration_since(Instant::now()));
        // The supervisor may have ended when the answers arrive.
        let (verbs, gpus) = (self.sender.clone(), self.sender.clone());
        thread::spawn(move || drop(verbs.send(Event::Verbs(probe_verbs(limit)))));
        let environment = environment::look();
        self.oom_kills_before = environment.cgroup.oom_kills.unwrap_or(0);
        say(&AgentMessage::Environment(environment))?;
        thread::spawn(move || drop(gpus.send(Event::Gpus(probe_gpus(limit)))));
        let answer = self.await_gpus()?;
        let before = Counters::read(Path::new("/"));
        let ending = match answer {
            None => AgentEnding::Interrupted,
            Some(GpuAnswer { probe, is_late }) => self.run_on(probe, is_late)?,
        };
        let after = Counters::read(Path::new("/"));
        say(&AgentMessage::Counters { deltas: after.since(&before) })?;
        self.end_ranks();
        for (rank, process) in (0_u32..).zip(&self.ranks) {
            let (text, omitted_bytes) = process.process.files.read_log();
            say(&AgentMessage::Log { rank, text, omitted_bytes })?;
            say(&AgentMessage::Output { rank, text: process.process.files.read_output() })?;
        }
        self.await_verbs()?;
        say(&AgentMessage::Finished { ending })?;
        Ok(ending)
    }

    /// Waits for the libcuda probe; `None`: told to end meanwhile.
    fn await_gpus(&mut self) -> io::Result<Option<GpuAnswer>> {
        while !self.interrupted {
            match self.events.recv() {
                Ok(Event::Gpus(answer)) => return Ok(Some(answer)),
                Ok(Event::Verbs(probe)) => self.tell_verbs(probe)?,
                Ok(Event::Interrupted) => self.interrupted = true,
                // There are no ranks yet, and the supervisor holds a sender itself.
                Ok(Event::Said { .. } | Event::Closed { .. }) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn tell_verbs(&mut self, probe: VerbsProbe) -> io::Result<()> {
        self.verbs_said = true;
        say(&AgentMessage::Verbs(probe))
    }

    /// The ranks, on the GPUs that libcuda named.
    fn run_on(&mut self, probe: GpuProbe, is_late: bool) -> io::Result<AgentEnding> {
        let (known, all) = (probe.failure.is_none(), probe.gpus.clone());
        say(&AgentMessage::Gpus(probe))?;
        match select(&self.plan.gpus, &all) {
            _ if is_late && Instant::now() >= self.total_end() => Ok(AgentEnding::TotalTimeout),
            _ if is_late => Ok(AgentEnding::PhaseTimeout),
            _ if !known || all.is_empty() => Ok(AgentEnding::Failed),
            Err(detail) => self.refuse(detail),
            Ok(chosen) => self.run_ranks(&chosen),
        }
    }

    /// A run that cannot start: no rank is to blame, and the first one carries the reason.
    fn refuse(&self, detail: String) -> io::Result<AgentEnding> {
        say(&AgentMessage::Failure(RankFailure {
            rank: 0,
            phase: Phase::Libraries,
            failure: Failure::Other { detail },
        }))?;
        Ok(AgentEnding::Failed)
    }

    fn run_ranks(&mut self, chosen: &[&Gpu]) -> io::Result<AgentEnding> {
        let Some(directory) = self.writable_directory() else {
            return self.refuse(format!("neither {} nor /tmp nor /dev/shm can be written to", self.plan.directory));
        };
        let collective = match fit(&self.plan.collective, chosen, self.plan.ranks_per_gpu) {
            Ok(collective) => collective,
            Err(detail) => return self.refuse(detail),
        };
        if collective.max_bytes != self.plan.collective.max_bytes {
            say(&AgentMessage::Reduced { max_bytes: collective.max_bytes })?;
        }
        if let Err(error) = self.start_ranks(chosen, &collective, &directory) {
            return self.refuse(format!("starting the ranks: {error}"));
        }
        self.watch(&collective)
    }

    /// The planned directory if it takes a file, else a new one: the others' are not the run's alone.
    fn writable_directory(&mut self) -> Option<PathBuf> {
        let planned = PathBuf::from(&self.plan.directory);
        if tempfile::tempfile_in(&planned).is_ok() {
            return Some(planned);
        }
        let prefix = format!("rdmaprep-agent-{}-", std::process::id());
        let own = ["/tmp", "/dev/shm"]
            .into_iter()
            .find_map(|parent| tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).ok());
        self.own_directory = own;
        self.own_directory.as_ref().map(|own| own.path().to_owned())
    }

    fn start_ranks(&mut self, chosen: &[&Gpu], collective: &Collective, directory: &Path) -> io::Result<()> {
        let per_gpu = self.plan.ranks_per_gpu.max(1);
        let ranks = u32::try_from(chosen.len()).unwrap_or(u32::MAX).saturating_mul(per_gpu);
        let barrier = barrier_file(directory)?;
        // Ranks of the same slot are one host to NCCL, one on each GPU.
        let places = (0..per_gpu).flat_map(|slot| chosen.iter().map(move |gpu| (slot, gpu.index)));
        for (rank, (slot, gpu)) in (0..ranks).zip(places) {
            let plan = RankPlan {
                rank,
                ranks,
                gpu,
                nccl: self.plan.nccl.clone(),
                collective: collective.clone(),
                plant: self.plan.plant.clone(),
                barrier: barrier.as_raw_fd(),
            };
            let host_id = (per_gpu > 1).then(|| format!("rdmaprep-{slot}"));
            let variables: Vec<_> = host_id.iter().map(|id| ("NCCL_HOSTID", id.clone())).collect();
            let files = RankFiles::new(directory, rank);
            let process = RankProcess::start(&plan, files, &variables, self.sender.clone())?;
            say(&AgentMessage::Started(RankStart { rank, pid: process.child.id(), gpu, host_id }))?;
            self.ranks.push(Rank {
                process,
                phase: Phase::Libraries,
                entered: Instant::now(),
                steps: 0,
                closed: false,
                state: State::Running,
            });
        }
        Ok(())
    }

    /// Runs until every rank is done, one failed, or a time limit passed.
    fn watch(&mut self, collective: &Collective) -> io::Result<AgentEnding> {
        loop {
            match self.events.recv_timeout(self.next_look()) {
                Ok(event) => self.take(event, collective)?,
                // The supervisor holds a sender itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.reap()?;
            if self.interrupted {
                return Ok(AgentEnding::Interrupted);
            }
            if self.ranks.iter().all(|rank| rank.state == State::Done) {
                return Ok(AgentEnding::Complete);
            }
            let over = self.failed_at.is_some_and(|at| at.elapsed() >= GRACE);
            if over || self.ranks.iter().all(|rank| rank.state != State::Running) {
                return Ok(AgentEnding::Failed);
            }
            if self.failed_at.is_none()
                && let Some(ending) = self.overdue()
            {
                self.name_silent()?;
                return Ok(ending);
            }
        }
    }

    /// Time until something needs attention.
    fn next_look(&self) -> Duration {
        if self.ranks.iter().any(|rank| rank.closed && rank.state == State::Running) {
            return REAP_PAUSE;
        }
        let now = Instant::now();
        let phase = Duration::from_millis(self.plan.phase_timeout_ms);
        let ends = self.running().map(|rank| rank.entered + phase);
        let end = ends.chain([self.total_end()]).chain(self.failed_at.map(|at| at + GRACE)).min().unwrap_or(now);
        end.saturating_duration_since(now).max(Duration::from_millis(1))
    }

    fn total_end(&self) -> Instant {
        self.started + Duration::from_millis(self.plan.total_timeout_ms)
    }

    fn running(&self) -> impl Iterator<Item = &Rank> {
        self.ranks.iter().filter(|rank| rank.state == State::Running)
    }

    fn overdue(&self) -> Option<AgentEnding> {
        let phase = Duration::from_millis(self.plan.phase_timeout_ms);
        if Instant::now() >= self.total_end() {
            return Some(AgentEnding::TotalTimeout);
        }
        self.running().any(|rank| rank.entered.elapsed() >= phase).then_some(AgentEnding::PhaseTimeout)
    }

    fn take(&mut self, event: Event, collective: &Collective) -> io::Result<()> {
        match event {
            Event::Interrupted => self.interrupted = true,
            Event::Verbs(probe) => self.tell_verbs(probe)?,
            // It was waited for before there were ranks.
            Event::Gpus(_) => {}
            Event::Closed { rank } => {
                if let Some(rank) = self.ranks.get_mut(rank as usize) {
                    rank.closed = true;
                }
            }
            Event::Said { rank, message } => self.hear(rank, message, collective)?,
        }
        Ok(())
    }

    fn hear(&mut self, number: u32, message: RankMessage, collective: &Collective) -> io::Result<()> {
        let ranks = self.ranks.len();
        let Some(rank) = self.ranks.get_mut(number as usize) else { return Ok(()) };
        match message {
            RankMessage::Library { nccl, version_code } => {
                say(&AgentMessage::Library { rank: number, nccl, nccl_version_code: version_code })?;
            }
            RankMessage::Phase(phase) => {
                (rank.phase, rank.entered) = (phase, Instant::now());
                rank.steps += 1;
                say(&AgentMessage::Phase { rank: number, phase })?;
            }
            RankMessage::UniqueId(id) => {
                self.has_id = true;
                for rank in &mut self.ranks {
                    rank.process.meet(&id);
                }
            }
            RankMessage::Timing(timing) => {
                if let Some(row) = self.table.add(timing, ranks, collective) {
                    say(&AgentMessage::Row(row))?;
                }
            }
            RankMessage::Failed(failure) => {
                rank.state = State::Failed;
                let phase = rank.phase;
                self.failed_at.get_or_insert_with(Instant::now);
                say(&AgentMessage::Failure(RankFailure { rank: number, phase, failure }))?;
            }
            RankMessage::Done => rank.state = State::Done,
        }
        Ok(())
    }

    /// Looks for ranks that ended silently.
    fn reap(&mut self) -> io::Result<()> {
        for (number, rank) in (0_u32..).zip(&mut self.ranks) {
            if !rank.closed || rank.state != State::Running {
                continue;
            }
            let Some(status) = rank.process.child.try_wait()? else { continue };
            rank.state = State::Failed;
            self.failed_at.get_or_insert_with(Instant::now);
            let cgroup = environment::own_cgroup();
            let out_of_memory = cgroup.oom_kills.unwrap_or(0) > self.oom_kills_before;
            let failure = explain_exit(status, out_of_memory, cgroup.memory_limit_bytes);
            say(&AgentMessage::Failure(RankFailure { rank: number, phase: rank.phase, failure }))?;
        }
        Ok(())
    }

    /// Names every rank that has not come to its end.
    fn name_silent(&self) -> io::Result<()> {
        let furthest = self.ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
        // In the bootstrap all others wait for the id from rank 0.
        let owes_id = |number: u32| number == 0 && !self.has_id && self.ranks.len() > 1;
        for (number, rank) in (0_u32..).zip(&self.ranks).filter(|(_, rank)| rank.state == State::Running) {
            let failure = Failure::Silent {
                after_ms: u64::try_from(rank.entered.elapsed().as_millis()).unwrap_or(u64::MAX),
                behind: rank.steps < furthest || (rank.phase == Phase::Bootstrap && owes_id(number)),
                last_nccl_line: rank.process.files.last_line(),
            };
            say(&AgentMessage::Failure(RankFailure { rank: number, phase: rank.phase, failure }))?;
        }
        Ok(())
    }

    /// Ends whatever still runs. A process stuck in the kernel remains until the container is removed.
    fn end_ranks(&mut self) {
        for rank in &mut self.ranks {
            // A rank that is done ends itself in a moment; to end it now loses nothing.
            let _ = rank.process.child.kill();
        }
        let end = Instant::now() + GRACE;
        for rank in &mut self.ranks {
            while matches!(rank.process.child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(REAP_PAUSE);
            }
        }
    }

    fn await_verbs(&mut self) -> io::Result<()> {
        let limit = Duration::from_millis(self.plan.phase_timeout_ms).min(GRACE);
        while !self.verbs_said && !self.interrupted {
            match self.events.recv_timeout(limit) {
                Ok(Event::Verbs(probe)) => self.tell_verbs(probe)?,
                Ok(Event::Interrupted) => self.interrupted = true,
                Ok(Event::Said { .. } | Event::Closed { .. } | Event::Gpus(_)) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Listens for the signals to end: as the container's first process the agent would not get them otherwise. Returns when it
/// listens.
fn watch_signals(events: Sender<Event>) {
    let (listens, started) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = EndSignals::listen()?;
            // The supervisor may be at its end, here and below.
            let _ = listens.send(());
            signals.received().await;
            let _ = events.send(Event::Interrupted);
            io::Result::Ok(())
        })
    });
    // Without a listener the default action of each signal remains.
    let _ = started.recv();
}

/// The GPUs that take part.
fn select<'a>(wanted: &GpuSelection, all: &'a [Gpu]) -> Result<Vec<&'a Gpu>, String> {
    let seen = all.len();
    match wanted {
        GpuSelection::All => Ok(all.iter().collect()),
        GpuSelection::First(count) if *count as usize > seen => {
            Err(format!("{count} GPUs were requested, but the container sees {seen}"))
        }
        GpuSelection::First(count) => Ok(all.iter().take(*count as usize).collect()),
        GpuSelection::List(indices) => indices
            .iter()
            .map(|index| all.iter().find(|gpu| gpu.index == *index))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| format!("GPUs {indices:?} were requested, but the container sees 0 to {}", seen.max(1) - 1)),
    }
}

/// Reduces the largest size to what the smallest GPU can hold twice per rank, as nccl-tests does.
fn fit(collective: &Collective, chosen: &[&Gpu], ranks_per_gpu: u32) -> Result<Collective, String> {
    const GIB: u64 = 1 << 30;
    let memory = chosen.iter().map(|gpu| gpu.memory_bytes).min().unwrap_or(0);
    // nccl-tests 2.19.6, src/common.cu: 1 GiB for each 16 GiB, at most 4, and 1 more for NCCL.
    let reserve = (memory.div_ceil(16 * GIB) * GIB).min(4 * GIB) + GIB;
    let limit = memory.saturating_sub(reserve) / 2 / u64::from(ranks_per_gpu.max(1));
    let mut fitting = collective.clone();
    let largest = collective.sizes().into_iter().rfind(|size| *size <= limit);
    match largest {
        _ if collective.max_bytes <= limit => {}
        Some(largest) => fitting.max_bytes = largest,
        None => {
            let wanted = collective.min_bytes;
            return Err(format!(
                "the smallest size is {wanted} B, but a rank can use only {limit} B of the GPU's memory"
            ));
        }
    }
    Ok(fitting)
}

/// The barrier's file: it has no name, and ranks inherit it.
fn barrier_file(directory: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    Barrier::prepare(&file)?;
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::run::DataType;

    fn gpu(index: u32, memory_bytes: u64) -> Gpu {
        Gpu {
            index,
            name: "GPU".into(),
            pci_address: String::new(),
            memory_bytes,
            compute_capability: (9, 0),
            ecc: None,
            numa_node: None,
            gpu_direct_rdma: None,
            dma_buf: None,
        }
    }

    fn collective(min_bytes: u64, max_bytes: u64) -> Collective {
        Collective {
            min_bytes,
            max_bytes,
            step_factor: 2,
            step_bytes: 0,
            iterations: 20,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        }
    }

    #[test]
    fn gpus_are_chosen_or_missed_by_name() {
        let all = [gpu(0, 0), gpu(1, 0)];
        let chosen = |wanted| select(&wanted, &all).map(|gpus| gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>());
        assert_eq!(chosen(GpuSelection::All), Ok(vec![0, 1]));
        assert_eq!(chosen(GpuSelection::First(1)), Ok(vec![0]));
        assert_eq!(chosen(GpuSelection::List(vec![1, 0])), Ok(vec![1, 0]));
        assert_eq!(chosen(GpuSelection::First(3)), Err("3 GPUs were requested, but the container sees 2".into()));
        let error = chosen(GpuSelection::List(vec![2])).unwrap_err();
        assert_eq!(error, "GPUs [2] were requested, but the container sees 0 to 1");
    }

    #[test]
    fn sizes_fit_the_smallest_gpu() {
        const GIB: u64 = 1 << 30;
        let (large, small) = (gpu(0, 80 * GIB), gpu(1, 16 * GIB));
        let max = |wanted: &Collective, gpus: &[&Gpu], per_gpu| fit(wanted, gpus, per_gpu).map(|fit| fit.max_bytes);
        assert_eq!(max(&collective(8, 16 * GIB), &[&large], 1), Ok(16 * GIB));
        // 16 GiB less 2 is 14, of which a buffer gets 7: the sizes are powers of two.
        assert_eq!(max(&collective(GIB, 16 * GIB), &[&large, &small], 1), Ok(4 * GIB));
        assert_eq!(max(&collective(GIB, 16 * GIB), &[&small], 4), Ok(GIB));
        let error = max(&collective(8 * GIB, 16 * GIB), &[&small], 1).unwrap_err();
        assert!(error.contains("8589934592 B") && error.contains("7516192768 B"), "{error}");
    }
}
