//! Channel lines of one process, counted by what carries them.

use super::message::{ChannelLine, Direction, parse_via};
use super::rank::{ChannelGroup, RankEvidence, Transport};
use super::room::{MAX_TEXT, Room};

const MAX_CHANNEL_GROUPS: usize = 128;
const MAX_PEERS: usize = 64;

/// Bytes of `NET/IB/0/GDRDMA/Shared`, with room.
const RECENT_TEXT: usize = 30;

/// Where the last channel lines were counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Channels {
    /// A hash of each of `recent`, side by side: of a thousand processes in turn, none has more than a line in the near cache.
    tags: [u32; PLACES],
    recent: [Recent; PLACES],
    oldest: usize,
}

const PLACES: usize = 8;

/// Lines of one group and peer, counted apart.
#[derive(Debug, Clone, Copy)]
struct Recent {
    via: [u8; RECENT_TEXT],
    /// Zero: free.
    length: u8,
    direction: Direction,
    peer: Option<u32>,
    group: usize,
    lines: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { via: [0; RECENT_TEXT], length: 0, direction: Direction::Send, peer: None, group: usize::MAX, lines: 0 }
    }
}

impl Recent {
    fn is(&self, line: &ChannelLine<'_>) -> bool {
        usize::from(self.length) == line.via.len()
            && self.peer == line.peer
            && self.direction == line.direction
            && self.via[..line.via.len()] == *line.via
    }
}

/// Length and last eight bytes of the text for peer, direction and transport.
fn tag(line: &ChannelLine<'_>) -> u32 {
    let end = line.via.last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let direction = u64::from(line.direction == Direction::Send);
    let rest = u64::from(line.peer.unwrap_or(u32::MAX)) | ((line.via.len() as u64) << 32) | (direction << 63);
    let mixed = (end ^ rest.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Zero is a free place's.
    (mixed >> 32) as u32 | 1
}

impl Channels {
    /// Counts a channel where the last ones of its kind were counted; parses what carries it only where that is new.
    pub(super) fn count(&mut self, line: &ChannelLine<'_>, facts: &mut RankEvidence, room: &mut Room) {
        let tag = tag(line);
        for at in 0..PLACES {
            if self.tags[at] == tag && self.recent[at].is(line) {
                self.recent[at].lines += 1;
                return;
            }
        }
        self.count_new(line, tag, facts, room);
    }

    /// Adds to the facts what was counted here.
    pub(super) fn add_to(&self, facts: &mut RankEvidence) {
        for recent in &self.recent {
            if let Some(group) = facts.channels.get_mut(recent.group) {
                group.lines += recent.lines;
            }
        }
    }

    fn count_new(&mut self, line: &ChannelLine<'_>, tag: u32, facts: &mut RankEvidence, room: &mut Room) {
        let Some(via) = parse_via(line.via) else { return };
        let groups = &mut facts.channels;
        let fits = |group: &ChannelGroup| group.direction == line.direction && group.transport.is(&via);
        let at = match groups.iter().position(fits) {
            Some(at) => at,
            // A group's name is as long as a text may be, at most.
            None if groups.len() < MAX_CHANNEL_GROUPS
                && room.take(2 * size_of::<ChannelGroup>() + line.via.len().min(MAX_TEXT)) =>
            {
                groups.push(ChannelGroup {
                    transport: Transport::of(&via),
                    direction: line.direction,
                    lines: 0,
                    peers: Vec::new(),
                    more_peers: false,
                });
                groups.len() - 1
            }
            None => {
                facts.channels_left_out += 1;
                return;
            }
        };
        let group = &mut groups[at];
        group.lines += 1;
        if let Some(peer) = line.peer
            && let Err(at) = group.peers.binary_search(&peer)
        {
            if group.peers.len() < MAX_PEERS && room.take(2 * size_of::<u32>()) {
                group.peers.insert(at, peer);
            } else {
                group.more_peers = true;
            }
        }
        if let Ok(length) = u8::try_from(line.via.len())
            && line.via.len() <= RECENT_TEXT
        {
            self.oldest = (self.oldest + 1) % self.recent.len();
            let recent = &mut self.recent[self.oldest];
            if let Some(group) = groups.get_mut(recent.group) {
                group.lines += recent.lines;
            }
            let mut via = [0; RECENT_TEXT];
            via[..line.via.len()].copy_from_slice(line.via);
            self.tags[self.oldest] = tag;
            *recent = Recent { via, length, direction: line.direction, peer: line.peer, group: at, lines: 0 };
        }
    }
}
