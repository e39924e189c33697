//! A log of many processes in one stream → the log of each. Bytes in, in pieces of any size.

use super::evidence::NcclEvidence;
use super::line::{Level, for_each_record, strip_ansi};
use super::state::RankLog;
use std::collections::HashMap;
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
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.line(&bytes[start..end.min(start + MAX_LINE)]);
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
        if line.is_empty() {
            return;
        }
        if memchr::memchr(0x1b, line).is_some() {
            strip_ansi(line, &mut self.plain);
            self.processes.push(&self.plain);
        } else {
            self.processes.push(line);
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
    names: Vec<(Box<[u8]>, u32)>,
    /// Hash of host and process → where it is in `logs`; the next free number where two hashes are alike.
    places: HashMap<u64, u32>,
    hasher: RandomState,
    rest: RankLog,
    left_out: u64,
    /// Whose record came last.
    latest: usize,
}

impl Processes {
    fn push(&mut self, line: &[u8]) {
        // A line has one record, two at the most where processes share a pipe.
        let mut records = [None, None, None, None];
        let mut count = 0;
        let knows = |host: &[u8], pid| self.find(host, pid).is_ok();
        for_each_record(line, knows, |record| {
            if let Some(slot) = records.get_mut(count) {
                *slot = Some(record);
                count += 1;
            }
        });
        for record in records.into_iter().flatten() {
            if record.level == Level::Other {
                self.rest.push(&record);
                continue;
            }
            match self.find(record.host, record.pid) {
                Ok(at) => {
                    self.latest = at;
                    self.logs[at].push(&record);
                }
                Err(_) if self.logs.len() >= MAX_PROCESSES => self.left_out += 1,
                Err(hash) => {
                    self.latest = self.logs.len();
                    // At most MAX_PROCESSES.
                    self.places.insert(hash, u32::try_from(self.latest).unwrap_or(u32::MAX));
                    self.names.push((record.host.into(), record.pid));
                    let mut log = RankLog::default();
                    log.push(&record);
                    self.logs.push(log);
                }
            }
        }
    }

    /// Where a process is, or the key to put it at.
    fn find(&self, host: &[u8], pid: u32) -> Result<usize, u64> {
        let is = |at: usize| self.names.get(at).is_some_and(|(name, number)| *number == pid && **name == *host);
        if is(self.latest) {
            return Ok(self.latest);
        }
        let mut hash = self.hasher.hash_one((host, pid));
        while let Some(at) = self.places.get(&hash) {
            let at = *at as usize;
            if is(at) {
                return Ok(at);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }
}
