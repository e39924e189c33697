//! Published bandwidths, and how a measurement compares with them.
//!
//! A baseline applies only to runs with the same layout: the same instance type, number of hosts, and ranks per host.
//! Within one host NVLink or a NIC's loopback carries the data, and a figure for two hosts says nothing about that.

use super::TARGETS;
use super::instance::InstanceType;
use super::source::Source;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A run of nccl-tests that a source publishes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// `all_reduce_perf`
    pub collective: &'static str,
    /// `None`: the source does not name the type.
    pub instance: Option<&'static str>,
    pub hosts: u32,
    pub ranks_per_host: u32,
    /// The run's variables.
    pub settings: &'static [(&'static str, &'static str)],
    pub command: &'static str,
    /// Versions, and the image they come from.
    pub software: &'static str,
    /// Smallest size first.
    pub rows: &'static [BaselineRow],
    pub source: &'static Source,
}

/// One size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BaselineRow {
    pub size_bytes: u64,
    pub out_of_place: BaselineFigures,
    pub in_place: BaselineFigures,
}

/// What nccl-tests prints for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BaselineFigures {
    pub time_us: f64,
    pub algbw_gb_per_s: f64,
    pub busbw_gb_per_s: f64,
}

impl BaselineRow {
    /// From the columns of nccl-tests: time, algbw, busbw.
    pub(super) const fn new(size_bytes: u64, out_of_place: [f64; 3], in_place: [f64; 3]) -> BaselineRow {
        const fn figures([time_us, algbw_gb_per_s, busbw_gb_per_s]: [f64; 3]) -> BaselineFigures {
            BaselineFigures { time_us, algbw_gb_per_s, busbw_gb_per_s }
        }
        BaselineRow { size_bytes, out_of_place: figures(out_of_place), in_place: figures(in_place) }
    }
}

impl Baseline {
    pub fn layout(&self) -> Layout {
        Layout { hosts: self.hosts, ranks: self.hosts * self.ranks_per_host, ranks_per_host: Some(self.ranks_per_host) }
    }

    /// `NCCL_ALGO=Ring NCCL_DEBUG=INFO …`
    pub fn settings_text(&self) -> String {
        self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// How the ranks of a run are distributed over hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Layout {
    pub hosts: u32,
    pub ranks: u32,
    /// Absent: hosts have different numbers of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_per_host: Option<u32>,
}

impl Layout {
    /// The layout given the host of each rank; `None`: there is no rank.
    pub fn of<'a>(host_of_rank: impl IntoIterator<Item = &'a str>) -> Option<Layout> {
        let mut counts = BTreeMap::<&str, u32>::new();
        for host in host_of_rank {
            *counts.entry(host).or_default() += 1;
        }
        Layout::of_counts(counts.into_values())
    }

    /// The layout given the ranks of each host; `None`: there is no host.
    pub fn of_counts(counts: impl IntoIterator<Item = u32>) -> Option<Layout> {
        let counts: Vec<u32> = counts.into_iter().collect();
        let first = *counts.first()?;
        Some(Layout {
            hosts: u32::try_from(counts.len()).unwrap_or(u32::MAX),
            ranks: counts.iter().sum(),
            ranks_per_host: counts.iter().all(|count| *count == first).then_some(first),
        })
    }
}

/// `8 ranks on one host`, `2 × 8 ranks`, `12 ranks on 2 hosts`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.hosts, self.ranks_per_host) {
            (1, _) if self.ranks == 1 => f.write_str("1 rank on one host"),
            (1, _) => write!(f, "{} ranks on one host", self.ranks),
            (hosts, Some(per_host)) => write!(f, "{hosts} × {per_host} ranks"),
            (hosts, None) => write!(f, "{} ranks on {hosts} hosts", self.ranks),
        }
    }
}

/// The largest size of a run of all-reduce.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    pub layout: Layout,
    pub size_bytes: u64,
    /// Out of place.
    pub algbw_gb_per_s: f64,
    pub busbw_gb_per_s: f64,
    pub in_place_busbw_gb_per_s: Option<f64>,
}

/// How a measurement compares with the sources' figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Comparison {
    /// No figure exists for the type.
    NoBaseline,
    /// Figures exist only for these other layouts.
    OtherLayout(Vec<&'static Baseline>),
    /// The size is too small for its bandwidth to be meaningful.
    TooSmall { baseline: &'static Baseline, least_bytes: u64 },
    Compared {
        baseline: &'static Baseline,
        row: &'static BaselineRow,
        /// Measured over published: the smaller of out of place and in place.
        ratio: f64,
    },
}

/// From this size on bandwidth dominates, not the latency of the steps: in the PAI page's table the rows of this size and
/// larger are within 2 % of each other (14.25 to 14.53 GB/s), and those below rise steeply, with a dip at 1 MiB.
const LEAST_COMPARABLE_BYTES: u64 = 128 << 20;

/// Compares a measurement on a type with the figures published for it.
pub fn compare(instance: &InstanceType, measured: &Measurement) -> Comparison {
    let of_type: Vec<&'static Baseline> =
        all_baselines().filter(|baseline| baseline.instance == Some(instance.name)).collect();
    if of_type.is_empty() {
        return Comparison::NoBaseline;
    }
    let Some(baseline) = of_type.iter().copied().find(|baseline| baseline.layout() == measured.layout) else {
        return Comparison::OtherLayout(of_type);
    };
    // Bandwidth does not fall with size: a larger run reaches at least what the nearest smaller row has.
    let comparable = |row: &&BaselineRow| row.size_bytes >= LEAST_COMPARABLE_BYTES;
    let row = baseline.rows.iter().filter(comparable).rev().find(|row| row.size_bytes <= measured.size_bytes);
    let Some(row) = row else {
        let least = baseline.rows.iter().find(comparable).map_or(LEAST_COMPARABLE_BYTES, |row| row.size_bytes);
        return Comparison::TooSmall { baseline, least_bytes: least };
    };
    let out_of_place = measured.busbw_gb_per_s / row.out_of_place.busbw_gb_per_s;
    let in_place = measured.in_place_busbw_gb_per_s.map(|in_place| in_place / row.in_place.busbw_gb_per_s);
    Comparison::Compared { baseline, row, ratio: in_place.map_or(out_of_place, |in_place| in_place.min(out_of_place)) }
}

/// Whether a document reports a bandwidth for a type and layout.
pub fn has_baseline(instance: &InstanceType, layout: Layout) -> bool {
    all_baselines().any(|baseline| baseline.instance == Some(instance.name) && baseline.layout() == layout)
}

/// The baselines of all targets: an instance type is the same machine, whoever starts jobs on it.
pub fn all_baselines() -> impl Iterator<Item = &'static Baseline> {
    TARGETS.iter().flat_map(|target| target.baselines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::find_instance;

    fn two_by_eight() -> Layout {
        Layout { hosts: 2, ranks: 16, ranks_per_host: Some(8) }
    }

    fn measured(layout: Layout, size_bytes: u64, out_of_place: f64, in_place: f64) -> Measurement {
        Measurement {
            layout,
            size_bytes,
            algbw_gb_per_s: out_of_place / 1.875,
            busbw_gb_per_s: out_of_place,
            in_place_busbw_gb_per_s: Some(in_place),
        }
    }

    /// The printed columns belong together: size over time is algbw, and 2(n−1)/n of it is busbw.
    #[test]
    fn tables_are_consistent() {
        for baseline in all_baselines() {
            let ranks = f64::from(baseline.hosts * baseline.ranks_per_host);
            let factor = 2.0 * (ranks - 1.0) / ranks;
            assert!(baseline.rows.windows(2).all(|pair| pair[0].size_bytes < pair[1].size_bytes));
            for row in baseline.rows {
                for half in [row.out_of_place, row.in_place] {
                    let algbw = row.size_bytes as f64 / 1e3 / half.time_us;
                    assert!((algbw - half.algbw_gb_per_s).abs() < 0.006, "{row:?}: {algbw}");
                    assert!((algbw * factor - half.busbw_gb_per_s).abs() < 0.011, "{row:?}: {}", algbw * factor);
                }
            }
        }
        assert_eq!(all_baselines().map(|baseline| baseline.rows.len()).collect::<Vec<_>>(), [18, 1]);
    }

    #[test]
    fn only_the_same_layout_is_compared() {
        let ebmgn8v = find_instance("ebmgn8v.48xlarge").unwrap();
        let one_host = Layout { hosts: 1, ranks: 8, ranks_per_host: Some(8) };
        let uneven = Layout { hosts: 2, ranks: 16, ranks_per_host: None };
        for layout in [one_host, uneven, Layout { hosts: 4, ranks: 16, ranks_per_host: Some(4) }] {
            let compared = compare(ebmgn8v, &measured(layout, 4 << 30, 300.0, 300.0));
            assert!(
                matches!(&compared, Comparison::OtherLayout(others) if others.len() == 1),
                "{layout}: {compared:?}"
            );
        }
        let other = find_instance("ebmgn8is.32xlarge").unwrap();
        assert_eq!(compare(other, &measured(two_by_eight(), 4 << 30, 14.0, 14.0)), Comparison::NoBaseline);
    }

    #[test]
    fn the_row_of_the_size_counts() {
        let ebmgn8v = find_instance("ebmgn8v.48xlarge").unwrap();
        let compared = |size, out, inside| compare(ebmgn8v, &measured(two_by_eight(), size, out, inside));
        for (size, expected) in
            [(128 << 20, 128 << 20), (256 << 20, 256 << 20), (3 << 30, 2 << 30), (16 << 30, 4 << 30)]
        {
            let Comparison::Compared { row, .. } = compared(size, 14.0, 14.0) else { panic!("{size}") };
            assert_eq!(row.size_bytes, expected, "{size}");
        }
        // The worse half decides.
        let Comparison::Compared { ratio, .. } = compared(4 << 30, 14.53, 7.26) else { panic!() };
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
        let small = compared(64 << 20, 13.9, 13.9);
        assert!(matches!(small, Comparison::TooSmall { least_bytes, .. } if least_bytes == 128 << 20), "{small:?}");
    }

    #[test]
    fn layouts() {
        assert_eq!(Layout::of(["a", "b", "a", "b"]), Some(Layout { hosts: 2, ranks: 4, ranks_per_host: Some(2) }));
        assert_eq!(Layout::of(["a", "b", "a"]).unwrap().to_string(), "3 ranks on 2 hosts");
        assert_eq!(Layout::of(["a"; 8]).unwrap().to_string(), "8 ranks on one host");
        assert_eq!(two_by_eight().to_string(), "2 × 8 ranks");
        assert_eq!(Layout::of([]), None);
    }
}
