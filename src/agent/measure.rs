//! The all-reduce of one rank: timed as in nccl-tests, with a check of every element on the GPU.
//!
//! The course is that of nccl-tests 2.19.6 (`src/common.cu`, TimeTest and BenchTime): warm-up operations; then, per size
//! and placement, one untimed operation, a barrier, the host's clock around `n` asynchronous operations that move through
//! the buffers, and an untimed operation whose result is checked.

#![allow(unsafe_code)]

use super::barrier::Barrier;
use super::pattern::expected_bits;
use crate::facts::run::{Collective, DataType, Failure, Placement, Plant, WrongElement};
use crate::ffi::cuda::{Cuda, DevicePointer, Kernel, Stream};
use crate::ffi::nccl::{Communicator, Nccl};
use std::ffi::{CStr, c_void};
use std::time::{Duration, Instant};

/// The kernels, for the driver to compile: PTX ISA 8.1 at most, which every driver since CUDA 12.1 reads.
const PTX: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("kernels/all_reduce.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("the PTX has a NUL"),
};

/// Threads of a block.
const THREADS: u32 = 256;
/// Enough blocks for the largest GPU; the kernels stride.
const MAX_BLOCKS: u64 = 8192;
/// Fills a receive buffer before a checked operation: NaN in every type.
const POISON: u32 = 0xffff_ffff;
/// How fast the driver clears new memory of `ncclMemAlloc` in the background, at least. Operations meanwhile take a tenth
/// longer: on an H200 (driver 580, NCCL 2.28.3) for 43 ms after 8 GiB and 64 ms after 12 GiB, 200 GB/s. nccl-tests does not
/// wait, and its first sizes show it; its second cycle (`-N 2`) does not.
const CLEARED_BYTES_PER_S: f64 = 50e9;
/// Seed of the data that is timed; nccl-tests' number.
const TIMED_SEED: u64 = 99;

/// Everything that one rank works with.
pub(super) struct Bench<'a> {
    member: Member<'a>,
    kernels: Vec<Kernels>,
    buffers: Buffers,
    max_bytes: u64,
    /// When the driver has cleared the buffers.
    cleared: Instant,
}

struct Kernels {
    fill: Kernel,
    check: Kernel,
}

struct Buffers {
    send: DevicePointer,
    receive: DevicePointer,
    /// Two 64-bit numbers: wrong elements, and the first of them.
    result: DevicePointer,
}

/// One checked operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checked {
    pub wrong: u64,
    pub first: Option<WrongElement>,
}

/// The timed result for one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timed {
    pub time_us: f64,
}

/// The rank's identity and resources.
pub(super) struct Member<'a> {
    pub cuda: &'a Cuda,
    pub nccl: &'a Nccl,
    pub communicator: Communicator,
    pub stream: Stream,
    pub rank: u32,
    pub ranks: u32,
    pub barrier: Barrier,
    pub plant: Option<Plant>,
}

impl<'a> Bench<'a> {
    /// Loads the kernels and takes the memory: two buffers of the largest size.
    pub(super) fn prepare(member: Member<'a>, collective: &Collective) -> Result<Bench<'a>, Failure> {
        let (cuda, nccl) = (member.cuda, member.nccl);
        let module = cuda.load_ptx(PTX)?;
        let mut kernels = Vec::new();
        for data_type in &collective.data_types {
            let kernel = |what| cuda.kernel(module, &format!("rdmaprep_{what}_{}", data_type.name()));
            kernels.push(Kernels { fill: kernel("fill")?, check: kernel("check")? });
        }
        let max_bytes = collective.max_bytes;
        // Whole words, since buffers are set by words.
        let bytes = max_bytes.next_multiple_of(4);
        let take = || match nccl.allocate(bytes)? {
            Some(pointer) => Ok(pointer),
            None => cuda.allocate(bytes),
        };
        let buffers = Buffers { send: take()?, receive: take()?, result: cuda.allocate(16)? };
        let cleared = Instant::now() + Duration::from_secs_f64(2.0 * bytes as f64 / CLEARED_BYTES_PER_S);
        Ok(Bench { member, kernels, buffers, max_bytes, cleared })
    }

    /// Starts one operation. `iteration` moves it through the buffers, past data still in caches.
    fn start(&self, data_type: DataType, size: u64, placement: Placement, iteration: u64) -> Result<(), Failure> {
        let count = size / data_type.size();
        let bytes = count * data_type.size();
        let steps = self.max_bytes.checked_div(bytes).unwrap_or(1).max(1);
        let shift = bytes * (iteration % steps);
        let receive = self.buffers.receive + shift;
        let send = match placement {
            Placement::OutOfPlace => self.buffers.send + shift,
            Placement::InPlace => receive,
        };
        // SAFETY: shift + bytes is at most max_bytes, the length of both buffers.
        unsafe {
            self.member.nccl.all_reduce(self.member.communicator, send, receive, count, data_type, self.member.stream)
        }
    }

    /// Waits for the stream, polling NCCL for errors meanwhile.
    fn complete(&self) -> Result<(), Failure> {
        while !self.member.cuda.is_done(self.member.stream)? {
            self.member.nccl.check_async(self.member.communicator)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The first operation, in which NCCL connects the ranks.
    pub(super) fn connect(&self, data_type: DataType, size: u64) -> Result<(), Failure> {
        self.start(data_type, size, Placement::OutOfPlace, 0)?;
        self.complete()
    }

    /// The untimed operations before the table: every size by factors of two. Returns when the buffers are clear.
    pub(super) fn warm_up(&self, data_type: DataType, collective: &Collective) -> Result<(), Failure> {
        let mut size = collective.min_bytes;
        while size > 0 && size <= collective.max_bytes {
            for iteration in 0..collective.warmup {
                self.start(data_type, size, Placement::OutOfPlace, u64::from(iteration))?;
            }
            self.complete()?;
            let Some(next) = size.checked_mul(2) else { break };
            size = next;
        }
        std::thread::sleep(self.cleared.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Times one size.
    pub(super) fn time(
        &self,
        at: usize,
        size: u64,
        placement: Placement,
        collective: &Collective,
    ) -> Result<Timed, Failure> {
        let data_type = collective.data_types[at];
        let from = match placement {
            Placement::OutOfPlace => self.buffers.send,
            Placement::InPlace => self.buffers.receive,
        };
        self.fill(at, data_type, from, size, TIMED_SEED)?;
        self.start(data_type, size, placement, 0)?;
        self.complete()?;
        self.member.barrier.wait();
        let start = Instant::now();
        for iteration in 0..collective.iterations {
            self.start(data_type, size, placement, u64::from(iteration))?;
        }
        self.complete()?;
        let elapsed = start.elapsed();
        let time_us = elapsed.as_secs_f64() * 1e6 / f64::from(collective.iterations.max(1));
        // Nobody starts to check while another still times.
        self.member.barrier.wait();
        Ok(Timed { time_us })
    }

    /// Runs one operation on fresh data and counts the elements that are not the exact sum.
    pub(super) fn check(
        &self,
        at: usize,
        data_type: DataType,
        size: u64,
        placement: Placement,
        seed: u64,
    ) -> Result<Checked, Failure> {
        let (count, receive) = (size / data_type.size(), self.buffers.receive);
        // SAFETY: the buffer has the largest size, in whole words.
        unsafe { self.member.cuda.set_words(receive, POISON, size.div_ceil(4), self.member.stream)? };
        let from = match placement {
            Placement::OutOfPlace => self.buffers.send,
            Placement::InPlace => receive,
        };
        self.fill(at, data_type, from, size, seed)?;
        self.start(data_type, size, placement, 0)?;
        self.complete()?;
        if let Some(plant) = &self.member.plant
            && (plant.rank, plant.size_bytes, plant.placement) == (self.member.rank, size, placement)
            && plant.element < count
        {
            self.plant(data_type, receive + plant.element * data_type.size())?;
        }
        let mut words = [0_u8; 16];
        words[8..].copy_from_slice(&u64::MAX.to_ne_bytes());
        // SAFETY: `result` has 16 bytes.
        unsafe { self.member.cuda.write(self.buffers.result, &words)? };
        let (mut data, mut count_, mut ranks, mut seed_, mut result) =
            (receive, count, self.member.ranks, seed, self.buffers.result);
        let mut parameters =
            [pointer(&mut data), pointer(&mut count_), pointer(&mut ranks), pointer(&mut seed_), pointer(&mut result)];
        // SAFETY: (const T*, u64, u32, u64, u64*), as kernels/all_reduce.cu declares it.
        unsafe {
            self.member.cuda.launch(
                self.kernels[at].check,
                blocks(count),
                THREADS,
                self.member.stream,
                &mut parameters,
            )?
        };
        self.member.cuda.wait(self.member.stream)?;
        // SAFETY: as above.
        unsafe { self.member.cuda.read(self.buffers.result, &mut words)? };
        let number = |from: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&words[from..from + 8]);
            u64::from_ne_bytes(bytes)
        };
        let (wrong, index) = (number(0), number(8));
        let first = if wrong > 0 && index < count { Some(self.wrong_element(data_type, index, seed)?) } else { None };
        Ok(Checked { wrong, first })
    }

    fn fill(&self, at: usize, data_type: DataType, to: DevicePointer, size: u64, seed: u64) -> Result<(), Failure> {
        let (mut data, mut count, mut rank, mut ranks, mut seed) =
            (to, size / data_type.size(), self.member.rank, self.member.ranks, seed);
        let blocks = blocks(count);
        let mut parameters =
            [pointer(&mut data), pointer(&mut count), pointer(&mut rank), pointer(&mut ranks), pointer(&mut seed)];
        // SAFETY: (T*, u64, u32, u32, u64), as kernels/all_reduce.cu declares it.
        unsafe { self.member.cuda.launch(self.kernels[at].fill, blocks, THREADS, self.member.stream, &mut parameters) }
    }

    /// Flips the lowest bit of an element.
    fn plant(&self, data_type: DataType, at: DevicePointer) -> Result<(), Failure> {
        let mut element = vec![0_u8; if data_type.size() == 4 { 4 } else { 2 }];
        // SAFETY: the caller checked that the element is in the buffer.
        unsafe { self.member.cuda.read(at, &mut element)? };
        // The lowest byte comes first on every machine that has CUDA.
        element[0] ^= 1;
        // SAFETY: as above.
        unsafe { self.member.cuda.write(at, &element) }
    }

    fn wrong_element(&self, data_type: DataType, index: u64, seed: u64) -> Result<WrongElement, Failure> {
        let mut element = [0_u8; 4];
        let length = if data_type.size() == 4 { 4 } else { 2 };
        // SAFETY: the index came from the kernel, which looks at elements of the buffer alone.
        unsafe { self.member.cuda.read(self.buffers.receive + index * data_type.size(), &mut element[..length])? };
        Ok(WrongElement {
            rank: self.member.rank,
            index,
            found_bits: u32::from_le_bytes(element),
            expected_bits: expected_bits(data_type, index, self.member.ranks, seed),
        })
    }
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn blocks(count: u64) -> u32 {
    // At least one: launching zero blocks is an error.
    u32::try_from(count.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS)).unwrap_or(1)
}
