//! Test data: bytes that differ between messages and between positions.
//!
//! A message consists of blocks: each is the message's own block of random bytes, preceded by its position. So old data,
//! data of another message, and data at the wrong position are all found.

/// Bytes of a block; a message's length is a multiple of it.
pub(super) const BLOCK: usize = 4096;

/// The block of a message, by SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn block(message: u32) -> [u8; BLOCK] {
    let mut state = u64::from(message).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; BLOCK];
    for word in bytes.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut next = state;
        next = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        next = (next ^ (next >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(next ^ (next >> 31)).to_le_bytes());
    }
    bytes
}

/// The blocks of a message, in order.
fn blocks(message: u32) -> impl FnMut(u64) -> [u8; BLOCK] {
    let mut block = block(message);
    let first = u64::from_le_bytes(std::array::from_fn(|at| block[at]));
    move |place| {
        block[..8].copy_from_slice(&first.wrapping_add(place).to_le_bytes());
        block
    }
}

/// Writes a message into a buffer.
pub(super) fn fill(buffer: &mut [u8], message: u32) {
    let mut expected = blocks(message);
    for (place, part) in (0..).zip(buffer.chunks_mut(BLOCK)) {
        part.copy_from_slice(&expected(place)[..part.len()]);
    }
}

/// A byte that differs from the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    pub offset: u64,
    pub found: u8,
    pub expected: u8,
}

/// The first byte of a buffer that differs from the message.
pub(super) fn first_difference(buffer: &[u8], message: u32) -> Option<Difference> {
    let mut expected = blocks(message);
    (0..).zip(buffer.chunks(BLOCK)).find_map(|(place, part)| {
        let wanted = &expected(place)[..part.len()];
        if part == wanted {
            return None;
        }
        let at = part.iter().zip(wanted).position(|(found, expected)| found != expected)?;
        Some(Difference { offset: place * BLOCK as u64 + at as u64, found: part[at], expected: wanted[at] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let mut buffer = vec![0; 3 * BLOCK];
        fill(&mut buffer, 7);
        assert_eq!(first_difference(&buffer, 7), None);
        for at in [0, 7, 8, BLOCK - 1, BLOCK, 2 * BLOCK + 9, 3 * BLOCK - 1] {
            let expected = buffer[at];
            buffer[at] = !expected;
            let difference = Difference { offset: at as u64, found: !expected, expected };
            assert_eq!(first_difference(&buffer, 7), Some(difference));
            buffer[at] = expected;
        }
    }

    #[test]
    fn other_messages_and_other_places_are_found() {
        let mut buffer = vec![0; 2 * BLOCK];
        assert!(first_difference(&buffer, 0).is_some(), "memory that nobody wrote to");
        fill(&mut buffer, 1);
        assert!((0..100).filter(|message| *message != 1).all(|message| first_difference(&buffer, message).is_some()));
        buffer.rotate_left(BLOCK);
        assert_eq!(first_difference(&buffer, 1).unwrap().offset, 0);
        buffer.rotate_left(8);
        assert!(first_difference(&buffer, 1).unwrap().offset < 8);
    }
}
