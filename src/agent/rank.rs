//! One rank, in a separate process: opens the libraries, joins the communicator, measures, checks.
//!
//! Input: a [`RankPlan`] and a [`Meeting`] on stdin, which is a socket. Output: [`RankMessage`]s on the same socket. It says
//! where it is before it goes there, so that whoever waits for it knows where it stopped.

#![allow(unsafe_code)]

use super::barrier::Barrier;
use super::channel::{Meeting, RankMessage, RankPlan, Timing, from_hex, receive, send, to_hex};
use super::measure::{Bench, Member};
use crate::facts::run::{Failure, Phase, Placement};
use crate::ffi::cuda::Cuda;
use crate::ffi::nccl::{Nccl, UniqueId};
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Runs the rank; does not return to the caller's cleanup, since libraries are loaded whose exit handlers may wait for
/// other ranks.
pub(super) fn run() -> ! {
    let code = match connect().and_then(|mut supervisor| supervise(&mut supervisor)) {
        Ok(()) => 0,
        // Nobody is there to be told.
        Err(_) => 1,
    };
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(code) }
}

/// The connection to the supervisor.
struct Supervisor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

fn connect() -> io::Result<Supervisor> {
    let writer = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let reader = BufReader::new(writer.try_clone()?);
    Ok(Supervisor { reader, writer })
}

impl Supervisor {
    /// A message that cannot be sent has no reader: the process is about to be ended.
    fn say(&mut self, message: &RankMessage) -> Result<(), Failure> {
        send(&mut self.writer, message)
            .map_err(|error| Failure::Other { detail: format!("the supervisor is gone: {error}") })
    }

    fn enter(&mut self, phase: Phase) -> Result<(), Failure> {
        self.say(&RankMessage::Phase(phase))
    }
}

fn supervise(supervisor: &mut Supervisor) -> io::Result<()> {
    super::end_with_supervisor();
    let Some(plan) = receive::<RankPlan>(&mut supervisor.reader)? else { return Ok(()) };
    let last = match work(supervisor, &plan) {
        Ok(()) => RankMessage::Done,
        Err(failure) => RankMessage::Failed(failure),
    };
    send(&mut supervisor.writer, &last)
}

fn work(supervisor: &mut Supervisor, plan: &RankPlan) -> Result<(), Failure> {
    supervisor.enter(Phase::Libraries)?;
    let cuda = Cuda::open()?;
    let nccl = Nccl::open(plan.nccl.as_deref())?;
    let version_code = nccl.version_code()?;
    supervisor.say(&RankMessage::Library { nccl: nccl.library().clone(), version_code })?;

    supervisor.enter(Phase::Cuda)?;
    cuda.init()?;
    let device = cuda.device(plan.gpu)?;
    cuda.enter_context(device)?;
    let stream = cuda.stream()?;

    supervisor.enter(Phase::Bootstrap)?;
    if plan.rank == 0 {
        let id = nccl.unique_id()?;
        supervisor.say(&RankMessage::UniqueId(to_hex(&id.0)))?;
    }
    let lost = |detail: &str| Failure::Other { detail: detail.to_owned() };
    let meeting = receive::<Meeting>(&mut supervisor.reader).ok().flatten();
    let meeting = meeting.ok_or_else(|| lost("the supervisor sent no unique id"))?;
    let id = UniqueId(from_hex(&meeting.unique_id).ok_or_else(|| lost("the unique id cannot be read"))?);

    supervisor.enter(Phase::Init)?;
    let communicator = nccl.join(id, plan.rank, plan.ranks)?;

    supervisor.enter(Phase::Connect)?;
    // SAFETY: the supervisor left this descriptor open for the rank.
    let file = unsafe { BorrowedFd::borrow_raw(plan.barrier) };
    let barrier = Barrier::map(&file, plan.ranks).map_err(|error| lost(&format!("mapping the barrier: {error}")))?;
    let (rank, ranks, plant) = (plan.rank, plan.ranks, plan.plant.clone());
    let member = Member { cuda: &cuda, nccl: &nccl, communicator, stream, rank, ranks, barrier, plant };
    let bench = Bench::prepare(member, &plan.collective)?;
    bench.connect(plan.collective.data_types[0], plan.collective.min_bytes)?;
    measure(supervisor, plan, &bench)?;

    supervisor.enter(Phase::Finish)?;
    nccl.leave(communicator)
}

fn measure(supervisor: &mut Supervisor, plan: &RankPlan, bench: &Bench<'_>) -> Result<(), Failure> {
    let collective = &plan.collective;
    let mut seed = 0;
    for (at, data_type) in collective.data_types.iter().copied().enumerate() {
        let data_type_index = u32::try_from(at).unwrap_or(u32::MAX);
        supervisor.enter(Phase::Warmup)?;
        bench.warm_up(data_type, collective)?;
        for size_bytes in collective.sizes() {
            for placement in [Placement::OutOfPlace, Placement::InPlace] {
                supervisor.enter(Phase::Collective { data_type_index, size_bytes, placement })?;
                let timed = bench.time(at, size_bytes, placement, collective)?;
                // Another seed each time: what an earlier operation left is wrong now.
                seed += 1;
                let checked = if collective.check {
                    supervisor.enter(Phase::Verify { data_type_index, size_bytes, placement })?;
                    Some(bench.check(at, data_type, size_bytes, placement, seed)?)
                } else {
                    None
                };
                supervisor.say(&RankMessage::Timing(Timing {
                    data_type_index,
                    size_bytes,
                    placement,
                    time_us: timed.time_us,
                    wrong: checked.as_ref().map(|checked| checked.wrong),
                    first_wrong: checked.and_then(|checked| checked.first),
                }))?;
            }
        }
    }
    Ok(())
}
