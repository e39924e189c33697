//! The log of one process, line by line: lines in, bounded facts out.

use super::channels::Channels;
use super::line::{Level, Record, Sink, split_records, strip_ansi};
use super::meaning::{Milestones, Reading};
use super::rank::{Phase, RankEvidence};
use super::room::{MAX_TEXT, Room, kept};

/// The log of one process, line by line.
#[derive(Debug, Clone)]
pub struct RankLog {
    facts: RankEvidence,
    milestones: Milestones,
    channels: Channels,
    /// The last record's message, not yet as text.
    last: Vec<u8>,
    /// A line without its colours.
    plain: Vec<u8>,
    /// Its own memory budget, for [`RankLog::push`].
    room: Room,
}

impl Sink for RankLog {
    fn knows(&self, host: &[u8], pid: u32) -> bool {
        self.facts.pid == pid && self.facts.host.as_bytes() == host
    }

    fn take(&mut self, record: &Record<'_>) {
        self.push(record);
    }
}

impl Default for RankLog {
    fn default() -> RankLog {
        RankLog {
            facts: RankEvidence::default(),
            milestones: Milestones::default(),
            channels: Channels::default(),
            last: Vec::new(),
            plain: Vec::new(),
            room: Room::ONE,
        }
    }
}

impl RankLog {
    /// Bytes that a process takes before it keeps anything: itself, twice for the list that grows, its host and last line.
    pub(super) const BYTES: usize = 2 * size_of::<RankLog>() + 128 + MAX_TEXT;

    /// Reads the whole log of one process.
    pub fn read(text: &[u8]) -> RankLog {
        let mut log = RankLog::default();
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(|line| log.push_line(line));
        log
    }

    /// Takes one line, without its line feed. All records on it count as this process's.
    pub fn push_line(&mut self, line: &[u8]) {
        if memchr::memchr(0x1b, line).is_some() {
            let mut plain = std::mem::take(&mut self.plain);
            strip_ansi(line, &mut plain);
            split_records(&plain, self);
            self.plain = plain;
        } else {
            split_records(line, self);
        }
    }

    /// Takes one record.
    pub fn push(&mut self, record: &Record<'_>) {
        let mut room = std::mem::replace(&mut self.room, Room::new(0));
        self.push_within(record, &mut room);
        self.room = room;
    }

    /// Takes one record, and keeps no more than there is room for.
    pub(super) fn push_within(&mut self, record: &Record<'_>, room: &mut Room) {
        self.facts.lines += 1;
        if record.level == Level::Other {
            self.reading(room).other(record.message);
            return;
        }
        if self.facts.host.is_empty() {
            // At most 128 bytes: a process is counted with them.
            self.facts.host = kept(record.host);
            self.facts.pid = record.pid;
        }
        self.last.clear();
        self.last.extend_from_slice(&record.message[..record.message.len().min(MAX_TEXT)]);
        match record.level {
            Level::Info => {
                self.facts.info_lines += 1;
                self.reading(room).message(record.message);
            }
            Level::Warn => {
                self.facts.warnings.push(record.message, record.place(), room);
                self.reading(room).message(record.message);
            }
            Level::Trace | Level::Call | Level::Other => {}
        }
    }

    fn reading<'a>(&'a mut self, room: &'a mut Room) -> Reading<'a> {
        Reading { facts: &mut self.facts, milestones: &mut self.milestones, channels: &mut self.channels, room }
    }

    /// The state of the log so far.
    pub fn evidence(&self) -> RankEvidence {
        self.clone().into_evidence()
    }

    /// What it said.
    pub fn into_evidence(mut self) -> RankEvidence {
        self.facts.phase = self.phase();
        self.facts.last_line = (!self.last.is_empty()).then(|| kept(&self.last));
        self.channels.add_to(&mut self.facts);
        self.facts
    }

    pub fn phase(&self) -> Phase {
        let Milestones { bootstrap, past_bootstrap, complete, ended } = self.milestones;
        if ended {
            Phase::Ended
        } else if complete {
            Phase::AfterInit
        } else if self.facts.connected {
            Phase::Connected
        } else if past_bootstrap {
            Phase::InitStart
        } else if bootstrap {
            Phase::Bootstrap
        } else if self.facts.info_lines > 0 || self.facts.warnings.total > 0 || self.facts.version.is_some() {
            Phase::Loaded
        } else {
            Phase::Nothing
        }
    }
}
