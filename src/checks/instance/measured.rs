//! The result of a run at its largest size.

use crate::checks::run::measured_rows;
use crate::facts::run::{Ending, RunFacts};
use crate::targets::{Layout, Measurement};

/// Bandwidth of a run, as far as it can be compared with a document's.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// Nothing was run.
    NotAsked,
    /// The facts do not decide, and why.
    Unknown(String),
    /// What was measured is not comparable with documents, and why.
    Incomparable(String),
    Largest(Measurement),
}

impl Measured {
    /// The bandwidth from a preflight.
    pub fn of_run(run: &RunFacts) -> Measured {
        if let Ending::NotStarted { .. } = run.ending {
            return Measured::Unknown("the container did not start".to_owned());
        }
        let Some((row, [out_of_place, in_place])) = measured_rows(run).max_by_key(|(row, _)| row.size_bytes) else {
            return Measured::Unknown("nothing was measured".to_owned());
        };
        let Some(layout) = layout_of(run) else {
            return Measured::Unknown("no rank was started".to_owned());
        };
        Measured::checked(Measurement {
            layout,
            size_bytes: row.size_bytes,
            algbw_gb_per_s: row.out_of_place.algbw_gb_per_s(row.size_bytes),
            busbw_gb_per_s: out_of_place,
            in_place_busbw_gb_per_s: Some(in_place),
        })
    }

    /// With one rank there is no bus bandwidth; with zero time it is not a number.
    pub fn checked(measured: Measurement) -> Measured {
        let is_number = measured.busbw_gb_per_s.is_finite() && measured.algbw_gb_per_s.is_finite();
        if measured.layout.ranks < 2 {
            return Measured::Incomparable("with one rank no data moves between GPUs".to_owned());
        }
        if !is_number || measured.busbw_gb_per_s <= 0.0 {
            return Measured::Unknown("the largest size has no bandwidth".to_owned());
        }
        Measured::Largest(measured)
    }
}

/// Where the ranks were; a rank that does not say is on the agent's own host.
fn layout_of(run: &RunFacts) -> Option<Layout> {
    let own = run.hostname.as_deref().unwrap_or_default();
    Layout::of(run.ranks.iter().map(|rank| rank.host.as_deref().unwrap_or(own)))
}
