//! A barrier between the ranks of one container: a page of shared memory, as fast as the MPI barrier of nccl-tests.
//!
//! A waiting rank yields its processor, so that more ranks than processors do not block each other. Nobody waits forever:
//! the supervisor ends all ranks if one does not arrive.

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The content of the page.
#[repr(C)]
struct Shared {
    arrived: AtomicU32,
    round: AtomicU32,
}

/// One rank's view of the barrier.
pub(super) struct Barrier {
    shared: &'static Shared,
    ranks: u32,
}

/// Polls before the processor is yielded: about a microsecond.
const POLLS: u32 = 64;

impl Barrier {
    /// Makes `file` long enough; called once, before the ranks start.
    pub(super) fn prepare(file: &File) -> io::Result<()> {
        file.set_len(size_of::<Shared>() as u64)
    }

    /// Maps a prepared file.
    pub(super) fn map(file: &impl AsFd, ranks: u32) -> io::Result<Barrier> {
        let (protection, length) = (ProtFlags::READ | ProtFlags::WRITE, size_of::<Shared>());
        // SAFETY: a new mapping at an address that the kernel chooses; it is never taken away.
        let page = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        // SAFETY: the mapping is aligned to a page, as long as `Shared`, lives as long as the process, and is used
        // through atomics only.
        Ok(Barrier { shared: unsafe { &*page.cast::<Shared>() }, ranks })
    }

    /// Returns when every rank has called it as often as this one.
    pub(super) fn wait(&self) {
        let round = self.shared.round.load(Ordering::Acquire);
        if self.shared.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.ranks {
            self.shared.arrived.store(0, Ordering::Release);
            self.shared.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut polls = 0;
        while self.shared.round.load(Ordering::Acquire) == round {
            polls += 1;
            if polls % POLLS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_runs_ahead() {
        const RANKS: u32 = 5;
        const ROUNDS: u64 = 200;
        let file = tempfile::tempfile().unwrap();
        Barrier::prepare(&file).unwrap();
        let done: Vec<AtomicU64> = (0..RANKS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for rank in 0..RANKS as usize {
                let (done, file) = (&done, &file);
                scope.spawn(move || {
                    let barrier = Barrier::map(file, RANKS).unwrap();
                    for round in 1..=ROUNDS {
                        done[rank].store(round, Ordering::SeqCst);
                        barrier.wait();
                        assert!(done.iter().all(|done| done.load(Ordering::SeqCst) >= round));
                        barrier.wait();
                    }
                });
            }
        });
    }
}
