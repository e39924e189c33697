//! The ranks' measurements → rows of the table.

use super::channel::Timing;
use crate::facts::run::{Collective, Measured, Placement, Row};
use std::collections::BTreeMap;

/// Puts the ranks' measurements together.
#[derive(Default)]
pub(super) struct Table {
    open: BTreeMap<(u32, u64, Placement), Vec<Timing>>,
    ready: BTreeMap<(u32, u64, Placement), Measured>,
}

impl Table {
    /// Adds a measurement; returns the row that it completes.
    pub(super) fn add(&mut self, timing: Timing, ranks: usize, collective: &Collective) -> Option<Row> {
        let (index, size) = (timing.data_type_index, timing.size_bytes);
        let key = (index, size, timing.placement);
        let timings = self.open.entry(key).or_default();
        timings.push(timing);
        if timings.len() < ranks {
            return None;
        }
        let timings = self.open.remove(&key)?;
        self.ready.insert(key, mean(&timings));
        let data_type = *collective.data_types.get(index as usize)?;
        let (out, inside) = ((index, size, Placement::OutOfPlace), (index, size, Placement::InPlace));
        if !self.ready.contains_key(&out) || !self.ready.contains_key(&inside) {
            return None;
        }
        let count = size / data_type.size();
        Some(Row {
            data_type,
            size_bytes: count * data_type.size(),
            count,
            out_of_place: self.ready.remove(&out)?,
            in_place: self.ready.remove(&inside)?,
        })
    }
}

fn mean(timings: &[Timing]) -> Measured {
    let times = || timings.iter().map(|timing| timing.time_us);
    Measured {
        time_us: times().sum::<f64>() / timings.len() as f64,
        min_time_us: times().fold(f64::INFINITY, f64::min),
        max_time_us: times().fold(0.0, f64::max),
        wrong: timings.iter().map(|timing| timing.wrong).sum(),
        first_wrong: timings.iter().find_map(|timing| timing.first_wrong.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::run::{DataType, WrongElement};

    #[test]
    fn a_row_has_every_rank_and_both_placements() {
        let mut table = Table::default();
        let asked = Collective {
            min_bytes: 10,
            max_bytes: 10,
            step_factor: 2,
            step_bytes: 0,
            iterations: 20,
            warmup: 1,
            data_types: vec![DataType::Float],
            check: true,
        };
        let timing = |placement, time_us, wrong| Timing {
            data_type_index: 0,
            size_bytes: 10,
            placement,
            time_us,
            wrong: Some(wrong),
            first_wrong: (wrong > 0).then_some(WrongElement { rank: 1, index: 0, found_bits: 1, expected_bits: 0 }),
        };
        assert_eq!(table.add(timing(Placement::OutOfPlace, 1.0, 0), 2, &asked), None);
        // A rank may be ahead of another by one measurement.
        assert_eq!(table.add(timing(Placement::InPlace, 5.0, 0), 2, &asked), None);
        assert_eq!(table.add(timing(Placement::OutOfPlace, 3.0, 2), 2, &asked), None);
        let row = table.add(timing(Placement::InPlace, 5.0, 0), 2, &asked).unwrap();
        assert_eq!((row.size_bytes, row.count), (8, 2));
        let out = &row.out_of_place;
        assert_eq!((out.time_us, out.min_time_us, out.max_time_us, out.wrong), (2.0, 1.0, 3.0, Some(2)));
        assert_eq!(out.first_wrong.as_ref().map(|wrong| wrong.rank), Some(1));
        assert_eq!((row.in_place.wrong, row.in_place.first_wrong), (Some(0), None));
    }
}
