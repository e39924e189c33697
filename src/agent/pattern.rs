//! The data to sum: every element's sum over the ranks is exact in its type, whatever the order of the additions.
//!
//! Each element gets a share from up to 16 ranks, a window of ranks that moves from element to element; the others give
//! zero. Shares are whole numbers so small that no partial sum needs more bits than the type has. What a rank gives
//! depends on the element, the rank and the seed, so a missing, doubled, shifted or stale element shows. The kernels in
//! `kernels/all_reduce.cu` compute the same.

use crate::facts::run::DataType;

/// Ranks that contribute to one element.
const SHARES: u64 = 16;

/// Largest share of either sign: 16 of them stay below 2^24 (float), 2^11 (half) and 2^8 (bfloat16), up to which these
/// types hold every whole number (IEEE 754; bfloat16 has 8 bits of significand).
fn largest_share(data_type: DataType) -> u64 {
    match data_type {
        DataType::Float => 524_287,
        DataType::Half => 127,
        DataType::Bfloat16 => 15,
    }
}

/// SplitMix64's output function over an index.
fn mix(seed: u64, index: u64) -> u64 {
    let mut x = index.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn share(data_type: DataType, hash: u64, slot: u64) -> i64 {
    let largest = largest_share(data_type);
    // Below 2^21: the conversion keeps every value.
    (mix(hash, slot) % (2 * largest + 1)) as i64 - largest as i64
}

/// One rank's contribution to an element.
#[cfg(test)]
fn given(data_type: DataType, index: u64, rank: u64, ranks: u64, seed: u64) -> i64 {
    let hash = mix(seed, index);
    let slot = (rank + ranks - (hash >> 32) % ranks) % ranks;
    if slot < ranks.min(SHARES) { share(data_type, hash, slot) } else { 0 }
}

/// The sum of an element over all ranks.
fn sum(data_type: DataType, index: u64, ranks: u64, seed: u64) -> i64 {
    let hash = mix(seed, index);
    (0..ranks.min(SHARES)).map(|slot| share(data_type, hash, slot)).sum()
}

/// Bit pattern of an element's sum.
pub(super) fn expected_bits(data_type: DataType, index: u64, ranks: u32, seed: u64) -> u32 {
    bits(data_type, sum(data_type, index, u64::from(ranks), seed))
}

/// Bit pattern of a whole number that the type holds.
fn bits(data_type: DataType, value: i64) -> u32 {
    let float = (value as f32).to_bits();
    match data_type {
        DataType::Float => float,
        // Upper half: the lower bits are zero.
        DataType::Bfloat16 => float >> 16,
        DataType::Half => half_bits(value),
    }
}

/// IEEE 754 binary16 of a whole number of at most 11 bits.
fn half_bits(value: i64) -> u32 {
    if value == 0 {
        return 0;
    }
    let sign = if value < 0 { 0x8000 } else { 0 };
    let magnitude = u32::try_from(value.unsigned_abs()).unwrap_or(u32::MAX);
    let exponent = magnitude.ilog2();
    // Bias 15, 10 bits of fraction.
    sign | ((exponent + 15) << 10) | ((magnitude << (10 - exponent.min(10))) & 0x3ff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::Bfloat16];

    #[test]
    fn what_ranks_give_adds_up() {
        for data_type in TYPES {
            for ranks in [1, 2, 3, 8, 16, 17, 1000] {
                for index in [0, 1, 77, 1 << 40] {
                    let total: i64 = (0..ranks).map(|rank| given(data_type, index, rank, ranks, 9)).sum();
                    assert_eq!(total, sum(data_type, index, ranks, 9), "{data_type:?} {ranks} {index}");
                }
            }
        }
    }

    #[test]
    fn no_partial_sum_leaves_the_exact_range() {
        for (data_type, bits) in [(DataType::Float, 24), (DataType::Half, 11), (DataType::Bfloat16, 8)] {
            assert!(SHARES * largest_share(data_type) <= 1 << bits, "{data_type:?}");
        }
    }

    /// A missing rank shows in nearly every element, and with more ranks than shares in many.
    #[test]
    fn a_missing_rank_shows() {
        for (data_type, ranks, at_least) in
            [(DataType::Float, 8, 999), (DataType::Bfloat16, 8, 900), (DataType::Half, 64, 200)]
        {
            let seen = (0..1000).filter(|index| given(data_type, *index, 3, ranks, 1) != 0).count();
            assert!(seen >= at_least, "{data_type:?} {ranks}: {seen}");
        }
    }

    #[test]
    fn bit_patterns_of_whole_numbers() {
        for (value, half, bfloat) in
            [(0, 0, 0), (1, 0x3c00, 0x3f80), (-1, 0xbc00, 0xbf80), (127, 0x57f0, 0x42fe), (240, 0x5b80, 0x4370)]
        {
            assert_eq!(bits(DataType::Half, value), half, "{value}");
            assert_eq!(bits(DataType::Bfloat16, value), bfloat, "{value}");
        }
        assert_eq!(bits(DataType::Half, 2032), 0x67f0);
        assert_eq!(bits(DataType::Float, -524_287), (-524_287_f32).to_bits());
    }

    #[test]
    fn seeds_and_indices_give_other_values() {
        let values: std::collections::BTreeSet<u32> = (0..100)
            .flat_map(|index| (0..10).map(move |seed| expected_bits(DataType::Float, index, 4, seed)))
            .collect();
        assert!(values.len() > 990, "{}", values.len());
    }
}
