//! A log of many processes in one stream → the log of each. Bytes in, in pieces of any size.

use super::evidence::NcclEvidence;
use super::line::{Level, Record, Sink, split_records, strip_ansi};
use super::state::RankLog;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Most processes of one log; the lines of further ones are counted and left out.
pub const MAX_PROCESSES: usize = 65_536;

/// Bytes of a line that are looked at. NCCL's own are at most 2 KiB.
const MAX_LINE: usize = 16 * 1024;

/// Tells the records of a stream apart by host and process.
#[derive(Debug, Default)]
pub struct Interleaved {
    processes: Processes,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    plain: Vec<u8>,
}

impl Interleaved {
    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if !self.partial.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let room = MAX_LINE.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.partial);
            self.line(&line);
            self.partial = line;
            self.partial.clear();
        }
        let has_colours = memchr::memchr(0x1b, bytes).is_some();
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end.min(start + MAX_LINE)];
            if has_colours {
                self.line(line)
            } else {
                self.plain_line(line)
            }
            start = end + 1;
        }
        self.partial.extend_from_slice(&bytes[start..bytes.len().min(start + MAX_LINE)]);
    }

    /// Takes one line, without its line feed.
    pub fn push_line(&mut self, line: &[u8]) {
        self.line(&line[..line.len().min(MAX_LINE)]);
    }

    /// The end of the stream: a last line may lack its line feed.
    pub fn finish(mut self) -> Logs {
        let line = std::mem::take(&mut self.partial);
        self.line(&line);
        Logs { ranks: self.processes.logs, rest: self.processes.rest, left_out: self.processes.left_out }
    }

    fn line(&mut self, line: &[u8]) {
        if memchr::memchr(0x1b, line).is_some() {
            strip_ansi(line, &mut self.plain);
            split_records(&self.plain, &mut self.processes);
        } else {
            self.plain_line(line);
        }
    }

    fn plain_line(&mut self, line: &[u8]) {
        if !line.is_empty() {
            split_records(line, &mut self.processes);
        }
    }
}

/// The logs that a stream was made of.
#[derive(Debug, Default)]
pub struct Logs {
    /// In the order in which they came up.
    pub ranks: Vec<RankLog>,
    /// Lines without a prefix.
    pub rest: RankLog,
    /// Records of processes past [`MAX_PROCESSES`].
    pub left_out: u64,
}

impl Logs {
    /// What they add up to.
    pub fn evidence(&self) -> NcclEvidence {
        NcclEvidence::of(self.ranks.iter().map(RankLog::evidence), &self.rest.evidence())
    }
}

#[derive(Debug, Default)]
struct Processes {
    logs: Vec<RankLog>,
    places: Places,
    rest: RankLog,
    left_out: u64,
}

impl Sink for Processes {
    fn knows(&self, host: &[u8], pid: u32) -> bool {
        self.places.find(host, pid).is_ok()
    }

    fn take(&mut self, record: &Record<'_>) {
        if record.level == Level::Other {
            self.rest.push(record);
            return;
        }
        match self.places.find(record.host, record.pid) {
            Ok(at) => self.logs[at].push(record),
            Err(_) if self.logs.len() >= MAX_PROCESSES => self.left_out += 1,
            Err(key) => {
                self.places.insert(key, self.logs.len());
                let mut log = RankLog::default();
                log.push(record);
                self.logs.push(log);
            }
        }
    }
}

/// Host and process → where its log is: open addressing, so that a lookup is one line of cache.
///
/// A place is found by a hash of 64 bits with a random key; that two of 65,536 processes share one has a chance of 1e-10.
#[derive(Debug)]
struct Places {
    /// A power of two, at most half full. `Place::log` is one more than the log's place; zero: free.
    slots: Vec<Place>,
    used: usize,
    seed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    key: u64,
    log: u32,
}

impl Default for Places {
    fn default() -> Places {
        Places { slots: vec![Place::default(); 64], used: 0, seed: RandomState::new().hash_one(0) }
    }
}

impl Places {
    /// The log of a process, or the key to put one at.
    fn find(&self, host: &[u8], pid: u32) -> Result<usize, u64> {
        let key = self.key(host, pid);
        match self.slots[self.slot(key)] {
            Place { log: 0, .. } => Err(key),
            Place { log, .. } => Ok(log as usize - 1),
        }
    }

    fn insert(&mut self, key: u64, log: usize) {
        if 2 * (self.used + 1) > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![Place::default(); 2 * old.len()];
            for place in old.into_iter().filter(|place| place.log > 0) {
                let slot = self.slot(place.key);
                self.slots[slot] = place;
            }
        }
        let slot = self.slot(key);
        // At most MAX_PROCESSES.
        self.slots[slot] = Place { key, log: u32::try_from(log + 1).unwrap_or(u32::MAX) };
        self.used += 1;
    }

    /// Where a key is, or would be.
    fn slot(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        // The high half of the key is as random as the low one.
        let mut slot = (key >> 32) as usize & mask;
        while self.slots[slot].log > 0 && self.slots[slot].key != key {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Folded multiplication over words of eight bytes.
    fn key(&self, host: &[u8], pid: u32) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, word: u64| {
            let product = u128::from(state ^ word) * u128::from(FACTOR ^ self.seed.rotate_left(32) | 1);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let mut state = mix(self.seed, u64::from(pid) ^ ((host.len() as u64) << 32));
        let mut words = host.chunks_exact(8);
        for word in &mut words {
            state = mix(state, u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        mix(mix(state, u64::from_le_bytes(last)), self.seed)
    }
}
