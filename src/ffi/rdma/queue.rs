//! Completion queues, queue pairs, and batches of writes over them.

use super::abi::{
    AddressAttr, CqHead, GlobalRoute, QpAttr, QpCap, QpHead, QpInitAttr, RawGid, ReceiveRequest, ScatterGather,
    SendRequest, WorkCompletion, number as n,
};
use super::memory::{Domain, Region};
use super::{Errno, Verbs, errno_error, last_errno, number, pointer};
use crate::facts::loopback::{Step, StepError};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A completion queue.
pub struct CompletionQueue<'c> {
    pub(super) verbs: &'c Verbs,
    pub(super) raw: NonNull<CqHead>,
    pub(super) context: PhantomData<&'c ()>,
}

impl Drop for CompletionQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: created, and queue pairs that use it borrow from it.
        unsafe { (self.verbs.functions.destroy_cq)(self.raw.as_ptr()) };
    }
}

/// Completions polled at once.
const COMPLETIONS: usize = 16;

impl CompletionQueue<'_> {
    fn poll(&self) -> Result<Vec<WorkCompletion>, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut completions: [WorkCompletion; COMPLETIONS] = unsafe { std::mem::zeroed() };
        // SAFETY: the queue's context lives as long as the queue.
        let poll = unsafe { (*self.raw.as_ref().context).ops.poll_cq }.ok_or_else(no_such_call)?;
        // SAFETY: there is room for as many completions.
        let count = unsafe { poll(self.raw.as_ptr(), COMPLETIONS as c_int, completions.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => Ok(completions[..count.min(COMPLETIONS)].to_vec()),
            Err(_) => Err(last_errno()),
        }
    }
}

/// The provider lacks a call.
fn no_such_call() -> Errno {
    rustix::io::Errno::NOSYS.raw_os_error()
}

/// The address of a queue pair.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub number: u32,
    pub gid: [u8; 16],
    pub lid: u16,
}

/// Settings that both ends of a connection share.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub port: u8,
    pub gid_index: u8,
    /// `enum ibv_mtu`
    pub mtu: c_int,
    /// The GID is used: always on Ethernet.
    pub is_global: bool,
    pub first_psn: u32,
    /// 4.096 µs × 2^timeout
    pub timeout: u8,
    pub retries: u8,
}

/// A queue pair.
pub struct QueuePair<'q> {
    pub(super) verbs: &'q Verbs,
    pub(super) raw: NonNull<QpHead>,
    pub(super) made_of: PhantomData<&'q ()>,
}

impl Domain<'_> {
    /// A queue pair of type RC, with `depth` entries on each side.
    pub fn create_qp<'q>(&'q self, queue: &'q CompletionQueue<'_>, depth: u32) -> Result<QueuePair<'q>, Errno> {
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let mut attributes = QpInitAttr {
            qp_context: std::ptr::null_mut(),
            send_cq: queue.raw.as_ptr(),
            recv_cq: queue.raw.as_ptr(),
            srq: std::ptr::null_mut(),
            cap,
            qp_type: n::QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are of the same context and live longer than the pair.
        let raw = pointer(unsafe { (self.verbs.functions.create_qp)(self.raw.as_ptr(), &raw mut attributes) })?;
        Ok(QueuePair { verbs: self.verbs, raw, made_of: PhantomData })
    }
}

impl Drop for QueuePair<'_> {
    fn drop(&mut self) {
        // SAFETY: created once.
        unsafe { (self.verbs.functions.destroy_qp)(self.raw.as_ptr()) };
    }
}

impl QueuePair<'_> {
    pub fn number(&self) -> u32 {
        // SAFETY: lives.
        unsafe { self.raw.as_ref() }.qp_num
    }

    fn modify(&self, mut attributes: QpAttr, mask: c_int) -> Result<(), Errno> {
        // SAFETY: the structure is of the header's size, and the mask says what of it is read.
        number(unsafe { (self.verbs.functions.modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask) })
    }

    /// The attributes that NCCL sets (NVIDIA/nccl `src/transport/net_ib/connect.cc`: `ncclIbQpInit`, `ncclIbQpRtr`, `ncclIbQpRts`).
    pub fn to_init(&self, link: &Link) -> Result<(), Errno> {
        let attributes = QpAttr {
            qp_state: n::QPS_INIT,
            port_num: link.port,
            qp_access_flags: u32::try_from(n::ACCESS_REMOTE_WRITE).unwrap_or(0),
            ..QpAttr::default()
        };
        self.modify(attributes, n::QP_STATE | n::QP_PKEY_INDEX | n::QP_PORT | n::QP_ACCESS_FLAGS)
    }

    pub fn to_rtr(&self, link: &Link, other: &Address) -> Result<(), Errno> {
        let route = GlobalRoute {
            dgid: RawGid(other.gid),
            sgid_index: link.gid_index,
            hop_limit: 255,
            ..GlobalRoute::default()
        };
        let attributes = QpAttr {
            qp_state: n::QPS_RTR,
            path_mtu: link.mtu,
            dest_qp_num: other.number,
            rq_psn: link.first_psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ah_attr: AddressAttr {
                grh: if link.is_global { route } else { GlobalRoute::default() },
                is_global: u8::from(link.is_global),
                dlid: other.lid,
                port_num: link.port,
                ..AddressAttr::default()
            },
            ..QpAttr::default()
        };
        let mask = n::QP_STATE
            | n::QP_AV
            | n::QP_PATH_MTU
            | n::QP_DEST_QPN
            | n::QP_RQ_PSN
            | n::QP_MAX_DEST_RD_ATOMIC
            | n::QP_MIN_RNR_TIMER;
        self.modify(attributes, mask)
    }

    pub fn to_rts(&self, link: &Link) -> Result<(), Errno> {
        let attributes = QpAttr {
            qp_state: n::QPS_RTS,
            sq_psn: link.first_psn,
            timeout: link.timeout,
            retry_cnt: link.retries,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        let mask =
            n::QP_STATE | n::QP_SQ_PSN | n::QP_TIMEOUT | n::QP_RETRY_CNT | n::QP_RNR_RETRY | n::QP_MAX_QP_RD_ATOMIC;
        self.modify(attributes, mask)
    }

    /// Posts a receive for a write with immediate data.
    fn post_recv(&self, id: u64) -> Result<(), Errno> {
        let mut request =
            ReceiveRequest { wr_id: id, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair's context lives as long as the pair.
        let post = unsafe { (*self.raw.as_ref().context).ops.post_recv }.ok_or_else(no_such_call)?;
        // SAFETY: the request is read before the call returns, and names no memory.
        number(unsafe { post(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }

    /// # Safety
    /// Both regions must stay allocated and untouched until the completion.
    unsafe fn post_write(
        &self,
        from: &Region,
        to: &Region,
        place: &Range<usize>,
        id: u64,
        immediate: Option<u32>,
    ) -> Result<(), Errno> {
        let beyond = |region: &Region| region.layout.size() < place.end;
        let Ok(length) = u32::try_from(place.len()) else { return Err(no_such_call()) };
        if beyond(from) || beyond(to) {
            return Err(no_such_call());
        }
        let mut part =
            ScatterGather { addr: from.memory.as_ptr() as u64 + place.start as u64, length, lkey: from.keys().0 };
        let mut request = SendRequest {
            wr_id: id,
            next: std::ptr::null_mut(),
            sg_list: &raw mut part,
            num_sge: 1,
            opcode: if immediate.is_some() { n::WR_RDMA_WRITE_WITH_IMM } else { n::WR_RDMA_WRITE },
            send_flags: n::SEND_SIGNALED,
            imm_data: immediate.unwrap_or(0).to_be_bytes(),
            remote_addr: to.memory.as_ptr() as u64 + place.start as u64,
            rkey: to.keys().1,
            rest: [0; 9],
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the pair's context lives as long as the pair.
        let post = unsafe { (*self.raw.as_ref().context).ops.post_send }.ok_or_else(no_such_call)?;
        // SAFETY: the request is read before the call returns; the caller keeps the memory.
        number(unsafe { post(self.raw.as_ptr(), &raw mut request, &raw mut bad) })
    }
}

/// A batch of writes, each from one offset in `from` to the same offset in `to`.
pub struct Batch<'b> {
    pub sender: &'b QueuePair<'b>,
    pub receiver: &'b QueuePair<'b>,
    pub queue: &'b CompletionQueue<'b>,
    pub places: &'b [Range<usize>],
    /// Immediate data of the last write.
    pub immediate: u32,
    pub deadline: Instant,
}

/// Id of the receive that the last write of a batch consumes.
const RECEIVE_ID: u64 = u64::MAX;

impl Batch<'_> {
    /// Posts the batch and waits until it has arrived: as in NCCL, the last write tells the receiver, which then has what was
    /// written before. Returns the time since the first post.
    pub fn run(&self, from: &mut Region, to: &mut Region) -> Result<Duration, (Step, StepError)> {
        let done = self.post_and_wait(from, to);
        if done.is_err() {
            from.is_lost = true;
            to.is_lost = true;
        }
        done
    }

    fn post_and_wait(&self, from: &Region, to: &Region) -> Result<Duration, (Step, StepError)> {
        let failed = |step| move |errno| (step, errno_error(errno));
        self.receiver.post_recv(RECEIVE_ID).map_err(failed(Step::PostRecv))?;
        let start = Instant::now();
        for (id, place) in (0..).zip(self.places) {
            let is_last = id + 1 == self.places.len() as u64;
            let immediate = is_last.then_some(self.immediate);
            // SAFETY: `run` has both regions for itself, and gives none back of which a write is not completed.
            unsafe { self.sender.post_write(from, to, place, id, immediate) }.map_err(failed(Step::PostSend))?;
        }
        let mut sent = vec![false; self.places.len()];
        let mut is_received = false;
        while !is_received || sent.contains(&false) {
            let completions = self.queue.poll().map_err(failed(Step::PollCq))?;
            let now = Instant::now();
            if completions.is_empty() && now > self.deadline {
                let after_ms = u64::try_from((now - start).as_millis()).unwrap_or(u64::MAX);
                return Err((Step::PollCq, StepError::Timeout { after_ms }));
            }
            if completions.is_empty() {
                std::thread::yield_now();
            }
            for completion in completions {
                self.take(&completion, &mut sent, &mut is_received).map_err(|error| (Step::PollCq, error))?;
            }
        }
        Ok(start.elapsed())
    }

    fn take(&self, completion: &WorkCompletion, sent: &mut [bool], received: &mut bool) -> Result<(), StepError> {
        if completion.status != n::WC_SUCCESS {
            return Err(StepError::Completion {
                status: completion.status,
                text: self.sender.verbs.status(completion.status),
                vendor_error: completion.vendor_err,
            });
        }
        let is_new = if completion.wr_id == RECEIVE_ID {
            let is_mine = completion.opcode == n::WC_RECV_RDMA_WITH_IMM
                && completion.imm_data == self.immediate.to_be_bytes()
                && completion.qp_num == self.receiver.number();
            is_mine && !std::mem::replace(received, true)
        } else {
            let slot = usize::try_from(completion.wr_id).ok().and_then(|id| sent.get_mut(id));
            slot.is_some_and(|slot| !std::mem::replace(slot, true))
        };
        if is_new {
            return Ok(());
        }
        let WorkCompletion { wr_id, opcode, .. } = completion;
        Err(StepError::UnexpectedCompletion { detail: format!("a completion of id {wr_id}, opcode {opcode}") })
    }
}
