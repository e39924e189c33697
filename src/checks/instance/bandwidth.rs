//! A run's bandwidth at its largest size, compared with what a document reports for the type and with what its NICs can carry.
//!
//! A figure for two hosts does not apply to one host: there the ranks communicate over NVLink, or over a NIC's loopback.

use super::{InstanceSubject, Measured, say_size};
use crate::checks::Outcome;
use crate::diagnosis::Fault;
use crate::targets::{Baseline, BaselineRow, Comparison, Measurement, all_baselines, compare};

/// From this fraction of a document's figure on a run passes: the two figures that the vendor publishes for 2 × 8 ranks at
/// 1 GiB (14.51 and 12.74 GB/s) differ by 12 % between themselves.
pub const WARN_BELOW: f64 = 0.85;
/// Below this fraction something is missing: with one of two NICs gone half is left, and 12 % more of that (as the
/// two figures differ) is 0.56.
pub const FAIL_BELOW: f64 = 0.6;

pub(super) fn bandwidth(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    let name = subject.chosen.instance.name;
    let measured = match subject.measured {
        Measured::NotAsked => return None,
        Measured::Unknown(why) => return Some(Outcome::unknown(format!("no bandwidth to compare: {why}"))),
        Measured::Incomparable(why) => {
            return Some(Outcome::skip(format!("no baseline of {name} to compare with: {why}")));
        }
        Measured::Largest(measured) => measured,
    };
    let layout = measured.layout;
    Some(match compare(subject.chosen.instance, measured) {
        Comparison::NoBaseline => {
            Outcome::skip(format!("no baseline for {layout} of {name}: no document reports a bandwidth for this type"))
                .evidence(all_baselines().filter(|baseline| baseline.instance.is_none()).map(say_unnamed))
        }
        Comparison::OtherLayout(others) => {
            let layouts: Vec<String> = others.iter().map(|baseline| baseline.layout().to_string()).collect();
            Outcome::skip(format!("no baseline for {layout} of {name}: the source measured {}", layouts.join(", ")))
                .evidence(others.iter().map(|baseline| format!("source: {}", baseline.source.say())))
        }
        Comparison::TooSmall { baseline, least_bytes } => Outcome::skip(format!(
            "the largest size, {}, is too small to compare with the baseline of {name}: bandwidth dominates from {} on",
            say_size(measured.size_bytes),
            say_size(least_bytes)
        ))
        .evidence([format!("source: {}", baseline.source.say())])
        .remedy("measure up to a larger size: -e 1G"),
        Comparison::Compared { baseline, row, ratio } => judge(measured, baseline, row, ratio),
    })
}

fn say_unnamed(baseline: &Baseline) -> String {
    let best = baseline.rows.last().map_or(0.0, |row| row.out_of_place.busbw_gb_per_s);
    let (layout, source) = (baseline.layout(), baseline.source.say());
    format!("{best} GB/s for {layout} on a type that the source does not name says nothing about this one: {source}")
}

fn judge(measured: &Measurement, baseline: &Baseline, row: &BaselineRow, ratio: f64) -> Outcome {
    let halves = match measured.in_place_busbw_gb_per_s {
        Some(in_place) => format!("{:.2} GB/s out of place, {in_place:.2} in place", measured.busbw_gb_per_s),
        None => format!("{:.2} GB/s", measured.busbw_gb_per_s),
    };
    let summary = format!(
        "bus bandwidth at {}: {halves}; {:.0} % of the {:.2} and {:.2} GB/s reported for {} of {}",
        say_size(measured.size_bytes),
        // Never rounded up over a threshold.
        (ratio * 100.0).floor(),
        row.out_of_place.busbw_gb_per_s,
        row.in_place.busbw_gb_per_s,
        baseline.layout(),
        baseline.instance.unwrap_or("a type"),
    );
    let outcome = if ratio >= WARN_BELOW {
        Outcome::pass(summary)
    } else {
        let outcome = if ratio >= FAIL_BELOW { Outcome::warn(summary) } else { Outcome::fail(summary) };
        outcome.blame(Fault::Host).remedy(format!(
            "rdmaprep devices --check on every host: NICs, ports, MTU, peer memory; then compare settings: {}",
            baseline.settings_text()
        ))
    };
    outcome.evidence([
        format!("source: {}", baseline.source.say()),
        format!("there: {} at {}, {}", baseline.command, say_size(row.size_bytes), baseline.settings_text()),
        format!("there: {}", baseline.software),
        format!(
            "it passes from {:.0} % on (the vendor's own two figures differ by 12 %) and fails below {:.0} % (half is what \
             one of two NICs leaves)",
            WARN_BELOW * 100.0,
            FAIL_BELOW * 100.0
        ),
    ])
}

/// nccl-tests rounds to two digits, and clocks differ a little.
const LINE_RATE_SLACK: f64 = 1.05;

/// A bandwidth that the NICs cannot carry.
///
/// Whatever the algorithm, ring, tree or reduction in the network: the result on a host depends on every byte of the other
/// hosts' sum, so as many bytes as the buffer has must enter it, and buffer over time is the *algorithm* bandwidth. It cannot
/// exceed what the host's NICs receive. (The bus bandwidth is that bound for a ring only; a tree over two hosts moves less than
/// a ring does.) Within one host nothing has to pass a NIC. A type may be allowed more than its figure for a short time, and
/// TCP over the same NICs has the same bound: what is beyond shows another way, or hosts that are one, and is a warning.
pub(super) fn line_rate(subject: &InstanceSubject<'_>) -> Option<Outcome> {
    let Measured::Largest(measured) = subject.measured else { return None };
    let name = subject.chosen.instance.name;
    if measured.layout.hosts < 2 {
        return Some(Outcome::skip("within one host nothing has to pass a NIC"));
    }
    let Some(rate) = subject.chosen.instance.line_rate_gbit_per_s() else {
        return Some(Outcome::skip(format!("no document gives the bandwidth of {name}")));
    };
    let needed = measured.algbw_gb_per_s * 8.0;
    let said = format!("{needed:.0} Gbit/s into each host at least, of {} that {name} can carry", rate.value);
    if needed <= f64::from(rate.value) * LINE_RATE_SLACK {
        return Some(Outcome::pass(said).evidence([format!("bandwidth: {}", rate.source.say())]));
    }
    Some(
        Outcome::warn(format!("{said}: the data did not go through its NICs alone, or the hosts are of another type"))
            .evidence([format!("bandwidth: {}", rate.source.say())])
            .remedy(
                "look at the channels in NCCL's log (rdmaprep explain LOG), and name the type that the hosts are of",
            )
            .blame(Fault::Launch),
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::findings;
    use super::*;
    use crate::checks::Finding;
    use crate::checks::Status::*;
    use crate::checks::run::testing::{expect, good_run, row};
    use crate::diagnosis::Fault::*;
    use crate::facts::run::RunFacts;
    use crate::targets::Layout;

    const EBMGN8V: &str = "ebmgn8v.48xlarge";

    fn measured(hosts: u32, per_host: u32, size_bytes: u64, busbw: f64) -> Measured {
        let layout = Layout { hosts, ranks: hosts * per_host, ranks_per_host: Some(per_host) };
        let ranks = f64::from(layout.ranks);
        Measured::checked(Measurement {
            layout,
            size_bytes,
            algbw_gb_per_s: busbw / (2.0 * (ranks - 1.0) / ranks),
            busbw_gb_per_s: busbw,
            in_place_busbw_gb_per_s: Some(busbw),
        })
    }

    fn found(name: &str, measured: &Measured, check: &str) -> Finding {
        findings(("pai-dlc", name), None, None, measured).into_iter().find(|finding| finding.check == check).unwrap()
    }

    #[test]
    fn beside_the_figure_of_the_same_layout() {
        let at = |busbw| found(EBMGN8V, &measured(2, 8, 1 << 30, busbw), "instance-bandwidth");
        let words = [
            "bus bandwidth at 1 GiB: 14.50 GB/s",
            "99 % of the 14.51 and 14.50 GB/s reported for 2 × 8 ranks of ecs.ebmgn8v.48xlarge",
            "NCCL_ALGO=Ring",
            "www.alibabacloud.com/help/en/pai",
        ];
        expect(&at(14.50), Pass, None, &words);
        expect(&at(30.0), Pass, None, &["206 %"]);
        // The vendor's other figure passes.
        expect(&at(12.74), Pass, None, &["87 %"]);
        expect(&at(14.51 * 0.849), Warn, Some(Host), &["84 %", "rdmaprep devices --check"]);
        expect(&at(14.51 * 0.615), Warn, Some(Host), &["61 %"]);
        expect(&at(14.51 * 0.565), Fail, Some(Host), &["56 %"]);
        expect(&at(0.01), Fail, Some(Host), &[]);
    }

    #[test]
    fn another_layout_is_never_a_pass() {
        for (hosts, per_host, said) in [
            (1, 8, "no baseline for 8 ranks on one host of ecs.ebmgn8v.48xlarge: the source measured 2 × 8 ranks"),
            (1, 2, "no baseline for 2 ranks on one host"),
            (2, 4, "no baseline for 2 × 4 ranks of"),
            (4, 4, "no baseline for 4 × 4 ranks of"),
        ] {
            for busbw in [0.5, 400.0] {
                expect(
                    &found(EBMGN8V, &measured(hosts, per_host, 1 << 30, busbw), "instance-bandwidth"),
                    Skip,
                    None,
                    &[said],
                );
            }
        }
        let words = ["no baseline for 2 × 8 ranks of ecs.ebmgn8is.32xlarge", "12.74 GB/s", "does not name"];
        expect(&found("ebmgn8is.32xlarge", &measured(2, 8, 1 << 30, 12.0), "instance-bandwidth"), Skip, None, &words);
        let words = ["64 MiB, is too small", "from 128 MiB on"];
        expect(&found(EBMGN8V, &measured(2, 8, 64 << 20, 13.0), "instance-bandwidth"), Skip, None, &words);
        let one = measured(1, 1, 1 << 30, 0.0);
        expect(&found(EBMGN8V, &one, "instance-bandwidth"), Skip, None, &["with one rank"]);
        let none = Measured::Unknown("nothing was measured".into());
        expect(&found(EBMGN8V, &none, "instance-bandwidth"), Unknown, None, &["nothing was measured"]);
        assert!(matches!(measured(2, 8, 1 << 30, f64::INFINITY), Measured::Unknown(_)));
    }

    /// A preflight of several hosts is judged by the same function.
    #[test]
    fn the_facts_of_a_run() {
        let of_run = |run: &RunFacts| {
            let all = findings(("pai-dlc", EBMGN8V), None, Some(run), &Measured::of_run(run));
            all.into_iter().find(|finding| finding.check == "instance-bandwidth").unwrap()
        };
        let mut run = good_run();
        expect(&of_run(&run), Skip, None, &["no baseline for 2 ranks on one host of ecs.ebmgn8v.48xlarge"]);
        let first = run.ranks[0].clone();
        run.ranks = (0..16u32)
            .map(|number| {
                let mut rank = first.clone();
                (rank.rank, rank.host) = (number, Some(format!("worker-{}", number / 8)));
                rank
            })
            .collect();
        run.rows.push(row(4 << 30, 554_176.0, 554_452.0));
        expect(&of_run(&run), Pass, None, &["bus bandwidth at 4 GiB: 14.53 GB/s out of place, 14.52 in place"]);
        run.rows.clear();
        expect(&of_run(&run), Unknown, None, &["nothing was measured"]);
    }

    #[test]
    fn what_the_nics_cannot_carry() {
        let at = |name, hosts, busbw| found(name, &measured(hosts, 8, 1 << 30, busbw), "instance-line-rate");
        // 62 Gbit/s of 160.
        expect(&at(EBMGN8V, 2, 14.51), Pass, None, &["62 Gbit/s into each host at least, of 160"]);
        // A tree over two hosts may have a bus bandwidth beyond the line rate: 20 GB/s are 160 Gbit/s.
        expect(&at(EBMGN8V, 2, 30.0), Pass, None, &["128 Gbit/s"]);
        expect(&at(EBMGN8V, 2, 300.0), Warn, Some(Launch), &["the data did not go through its NICs alone"]);
        expect(&at(EBMGN8V, 1, 300.0), Skip, None, &["within one host"]);
        expect(&at("ebmgn7v.32xlarge", 2, 300.0), Skip, None, &["no document gives the bandwidth"]);
    }
}
