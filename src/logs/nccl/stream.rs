//! A log of many processes in one stream → the log of each. Bytes in, in pieces of any size.

use super::evidence::NcclEvidence;
use super::line::{Level, Record, Sink, split_records, strip_ansi};
use super::rank::RankEvidence;
use super::reader::RankLog;
use super::room::Room;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Most processes of one log; the lines of further ones are counted and left out.
pub const MAX_PROCESSES: usize = 65_536;

/// Bytes of a line that are looked at. NCCL's own are at most 2 KiB.
const MAX_LINE: usize = 16 * 1024;

/// Tells the records of a stream apart by host and process.
#[derive(Debug)]
pub struct Interleaved {
    processes: Processes,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    plain: Vec<u8>,
}

impl Default for Interleaved {
    fn default() -> Interleaved {
        Interleaved::within(Room::ALL)
    }
}

impl Interleaved {
    /// A stream whose processes keep no more than `room`, together.
    pub fn within(room: Room) -> Interleaved {
        let processes =
            Processes { logs: Vec::new(), places: Places::default(), rest: RankLog::default(), left_out: 0, room };
        Interleaved { processes, partial: Vec::new(), plain: Vec::new() }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_with(bytes, &mut |_| {});
    }

    /// Takes the next bytes; `other` gets every line without a record of NCCL, without colours.
    pub fn push_with(&mut self, mut bytes: &[u8], other: &mut dyn FnMut(&[u8])) {
        if !self.partial.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            let room = MAX_LINE.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            let Some(end) = end else { return };
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.partial);
            self.line(&line, other);
            self.partial = line;
            self.partial.clear();
        }
        let has_colours = memchr::memchr(0x1b, bytes).is_some();
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = &bytes[start..end.min(start + MAX_LINE)];
            if has_colours {
                self.line(line, other)
            } else {
                self.plain_line(line, other)
            }
            start = end + 1;
        }
        self.partial.extend_from_slice(&bytes[start..bytes.len().min(start + MAX_LINE)]);
    }

    /// Takes one line, without its line feed.
    pub fn push_line(&mut self, line: &[u8]) {
        self.line(&line[..line.len().min(MAX_LINE)], &mut |_| {});
    }

    /// The end of the stream: a last line may lack its line feed.
    pub fn finish(self) -> Logs {
        self.finish_with(&mut |_| {})
    }

    /// Ends like [`Interleaved::finish`]; `other` gets the last line if it is not a record.
    pub fn finish_with(mut self, other: &mut dyn FnMut(&[u8])) -> Logs {
        let line = std::mem::take(&mut self.partial);
        self.line(&line, other);
        let Processes { logs, rest, left_out, room, .. } = self.processes;
        Logs {
            ranks: logs.into_iter().map(RankLog::into_evidence).collect(),
            rest: rest.into_evidence(),
            left_out,
            room,
        }
    }

    fn line(&mut self, line: &[u8], other: &mut dyn FnMut(&[u8])) {
        if memchr::memchr(0x1b, line).is_some() {
            strip_ansi(line, &mut self.plain);
            split_records(&self.plain, &mut Both { processes: &mut self.processes, other });
        } else {
            self.plain_line(line, other);
        }
    }

    fn plain_line(&mut self, line: &[u8], other: &mut dyn FnMut(&[u8])) {
        if !line.is_empty() {
            split_records(line, &mut Both { processes: &mut self.processes, other });
        }
    }
}

/// The logs that a stream was made of.
#[derive(Debug)]
pub struct Logs {
    /// In the order in which they came up.
    pub ranks: Vec<RankEvidence>,
    /// Lines without a prefix.
    pub rest: RankEvidence,
    /// Records of processes past [`MAX_PROCESSES`], or past the room there is.
    pub left_out: u64,
    /// What is left, for another stream of the same run.
    pub room: Room,
}

impl Logs {
    /// What they add up to.
    pub fn evidence(self) -> NcclEvidence {
        NcclEvidence::of(self.ranks, &self.rest)
    }
}

#[derive(Debug)]
struct Processes {
    logs: Vec<RankLog>,
    places: Places,
    rest: RankLog,
    left_out: u64,
    room: Room,
}

/// Records go to their processes, other lines to the rest and to whoever reads them, too.
struct Both<'a> {
    processes: &'a mut Processes,
    other: &'a mut dyn FnMut(&[u8]),
}

impl Sink for Both<'_> {
    fn knows(&self, host: &[u8], pid: u32) -> bool {
        self.processes.places.find(host, pid).is_ok()
    }

    fn take(&mut self, record: &Record<'_>) {
        let Processes { logs, places, rest, left_out, room } = &mut *self.processes;
        if record.level == Level::Other {
            rest.push_within(record, room);
            (self.other)(record.message);
            return;
        }
        match places.find(record.host, record.pid) {
            Ok(at) => logs[at].push_within(record, room),
            Err(key) if logs.len() < MAX_PROCESSES && room.take(RankLog::BYTES) => {
                places.insert(key, record.host, record.pid, logs.len());
                let mut log = RankLog::default();
                log.push_within(record, room);
                logs.push(log);
            }
            Err(_) => *left_out += 1,
        }
    }
}

/// Host and process → where its log is: open addressing, so that a lookup is one line of cache, and the host's name.
#[derive(Debug)]
struct Places {
    /// A power of two, at most half full. `Place::log` is one more than the log's place; zero: free.
    slots: Vec<Place>,
    used: usize,
    /// Names of the hosts: many processes share one.
    hosts: Vec<Box<[u8]>>,
    /// Random, so that nobody can choose names that fall together.
    seed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    key: u64,
    log: u32,
    pid: u32,
    host: u32,
}

impl Default for Places {
    fn default() -> Places {
        let seed = RandomState::new().hash_one(0);
        Places { slots: vec![Place::default(); 64], used: 0, hosts: Vec::new(), seed }
    }
}

impl Places {
    /// The log of a process, or the key to put one at.
    fn find(&self, host: &[u8], pid: u32) -> Result<usize, u64> {
        let key = self.key(host, pid);
        let mut slot = self.first_slot(key);
        loop {
            let place = &self.slots[slot];
            if place.log == 0 {
                return Err(key);
            }
            // Equal keys are most likely of one process, but only the name says so.
            if place.key == key && place.pid == pid && is_same(&self.hosts[place.host as usize], host) {
                return Ok(place.log as usize - 1);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Puts in a process that is not there.
    fn insert(&mut self, key: u64, host: &[u8], pid: u32, log: usize) {
        if 2 * (self.used + 1) > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![Place::default(); 2 * old.len()];
            old.into_iter().filter(|place| place.log > 0).for_each(|place| self.put(place));
        }
        // The ranks of a host come up near each other; where they do not, a name is kept twice.
        let near = self.hosts.len().saturating_sub(64);
        let host = match self.hosts[near..].iter().position(|known| **known == *host) {
            Some(at) => near + at,
            None => {
                self.hosts.push(host.into());
                self.hosts.len() - 1
            }
        };
        // Both are at most MAX_PROCESSES.
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.put(Place { key, log: narrow(log + 1), pid, host: narrow(host) });
        self.used += 1;
    }

    fn put(&mut self, place: Place) {
        let mut slot = self.first_slot(place.key);
        while self.slots[slot].log > 0 {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = place;
    }

    fn first_slot(&self, key: u64) -> usize {
        // The high half of the key is as random as the low one.
        (key >> 32) as usize & (self.slots.len() - 1)
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
            state = mix(state, word_of(word));
        }
        // The last word overlaps the one before.
        let rest = if host.len() >= 8 { word_of(&host[host.len() - 8..]) } else { short_word(words.remainder()) };
        mix(state, rest)
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap_or_default())
}

fn short_word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte))
}

/// Equality of short texts, without a call.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.len() < 8 {
        return short_word(a) == short_word(b);
    }
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).all(|(a, b)| word_of(a) == word_of(b));
    words && word_of(&a[a.len() - 8..]) == word_of(&b[b.len() - 8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_of_names() {
        for length in 0..40 {
            let name: Vec<u8> = (0..length).map(|at| b'a' + at % 26).collect();
            assert!(is_same(&name, &name.clone()));
            assert!(!is_same(&name, &[name.as_slice(), b"x"].concat()));
            for at in 0..name.len() {
                let mut other = name.clone();
                other[at] = b'-';
                assert!(!is_same(&name, &other), "{length} {at}");
            }
        }
    }

    /// The name decides, not the hash.
    #[test]
    fn processes_whose_hashes_are_alike() {
        let mut places = Places::default();
        let key = places.key(b"host-a", 1);
        places.insert(key, b"host-b", 1, 0);
        places.insert(key, b"host-a", 2, 1);
        assert_eq!(places.find(b"host-a", 1), Err(key));
        places.insert(key, b"host-a", 1, 2);
        assert_eq!(places.find(b"host-a", 1), Ok(2));
        for number in 0..1000 {
            let key = places.key(b"host-c", number);
            places.insert(key, b"host-c", number, 3 + number as usize);
        }
        assert_eq!(places.find(b"host-a", 1), Ok(2));
        assert_eq!((places.find(b"host-c", 999), places.hosts.len()), (Ok(1002), 3));
    }
}
