//! The run of a preflight in the format of nccl-tests 2.19.6, for people and programs that read it.
//!
//! Formats: NVIDIA/nccl-tests 2.19.6, `src/util.cu`. Only the first line differs: it names rdmaprep and its version. An
//! unfinished run has an error instead of the two result lines.

use super::printf::{fitting, general};
use super::visible;
use crate::checks::run::{average_busbw_gb_per_s, first_failure, say_failure, wrong_results};
use crate::facts::run::{AgentEnding, Ending, Measured, RunFacts};
use std::io::{self, Write};

/// The name that nccl-tests gives the program.
const PROGRAM: &str = "all_reduce_perf";

/// Writes the run as text of nccl-tests.
pub fn write_nccl_tests(out: &mut dyn Write, run: &RunFacts) -> io::Result<()> {
    let collective = &run.collective;
    let library = run.ranks.iter().find_map(|rank| rank.nccl_version_code).unwrap_or_default();
    let (step, unit) =
        if collective.step_factor > 1 { (collective.step_factor, "factor") } else { (collective.step_bytes, "bytes") };
    // rdmaprep is not compiled with NCCL's headers.
    writeln!(out, "# rdmaprep version {} nccl-headers=0 nccl-library={library}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "# Collective test starting: {PROGRAM}")?;
    writeln!(
        out,
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {step}({unit}) warmup iters: {} iters: {} agg iters: 1 \
         validation: {} graph: 0 unalign: 0",
        collective.min_bytes,
        collective.max_bytes,
        collective.warmup,
        collective.iterations,
        u8::from(collective.check)
    )?;
    writeln!(out, "#\n# Using devices")?;
    let hostname = run.hostname.as_deref().unwrap_or("unknown");
    for rank in &run.ranks {
        let gpu = run.gpus.iter().flat_map(|probe| &probe.gpus).find(|gpu| gpu.index == rank.gpu);
        let address = gpu.map_or("0000:00:00", |gpu| gpu.pci_address.split('.').next().unwrap_or_default());
        let name = gpu.map_or("unknown", |gpu| gpu.name.as_str());
        writeln!(
            out,
            "#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}",
            rank.rank,
            0,
            rank.pid,
            visible(hostname),
            rank.gpu,
            address.to_ascii_lowercase(),
            visible(name)
        )?;
    }
    write_table(out, run)?;
    if run.ending == (Ending::Agent { ending: AgentEnding::Complete }) {
        write_results(out, run)
    } else {
        let why = first_failure(run).map_or_else(
            || "the run did not finish".to_owned(),
            |failed| format!("rank {} in {}: {}", failed.rank, failed.phase, say_failure(&failed.failure)),
        );
        writeln!(out, "#\n# error: {}", visible(&why))
    }
}

fn write_table(out: &mut dyn Write, run: &RunFacts) -> io::Result<()> {
    writeln!(out, "#")?;
    writeln!(
        out,
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       in-place          ",
        "", "", "", "", ""
    )?;
    let heads = [
        ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"],
        ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""],
    ];
    for [size, count, data_type, redop, root, time, algbw, busbw, wrong] in heads {
        write!(out, "# {size:>10}  {count:>12}  {data_type:>8}  {redop:>6}  {root:>6}")?;
        // A column for time stamps, which has no width, leaves its space.
        writeln!(
            out,
            "  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6} "
        )?;
    }
    let ranks = u32::try_from(run.ranks.len()).unwrap_or(u32::MAX);
    for row in &run.rows {
        write!(out, "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.size_bytes, row.count, row.data_type.name(), "sum", -1)?;
        write_measured(out, row.size_bytes, ranks, &row.out_of_place)?;
        write_measured(out, row.size_bytes, ranks, &row.in_place)?;
        writeln!(out)?;
    }
    Ok(())
}

fn write_measured(out: &mut dyn Write, size_bytes: u64, ranks: u32, one: &Measured) -> io::Result<()> {
    let wrong = one.wrong.map_or("   N/A".to_owned(), |wrong| format!("{:>6}", general(wrong as f64)));
    write!(
        out,
        "  {}  {}  {}  {wrong}",
        fitting(one.time_us, 7),
        fitting(one.algbw_gb_per_s(size_bytes), 6),
        fitting(one.busbw_gb_per_s(size_bytes, ranks), 6)
    )
}

fn write_results(out: &mut dyn Write, run: &RunFacts) -> io::Result<()> {
    let wrong = wrong_results(run);
    let word = if wrong == 0 { "OK" } else { "FAILED" };
    writeln!(out, "# {:<20} : {wrong} {word}", "Out of bounds values")?;
    // nccl-tests prints a word for its threshold after the number; here only its space remains.
    let average = average_busbw_gb_per_s(run).unwrap_or(f64::NAN);
    writeln!(out, "# {:<20} : {} ", "Avg bus bandwidth", general(average))?;
    writeln!(out, "#\n# Collective test concluded: {PROGRAM}\n#\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::run::{DataType, Failure, Phase, RankFailure, Row};
    use crate::run_fixture::{good_run, measured, one_rank};

    const CAPTURE: &str = include_str!("../../tests/data/nccl-tests-2.19.6-h200-1gpu.txt");

    fn text_of(run: &RunFacts) -> String {
        let mut out = Vec::new();
        write_nccl_tests(&mut out, run).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The interval of values that print as this text.
    fn interval(text: &str) -> (f64, f64) {
        let value: f64 = text.parse().unwrap();
        let half = match text.split_once('e') {
            Some((_, power)) => 0.5 * 10f64.powi(power.parse().unwrap()),
            None => 0.5 * 10f64.powi(-(text.split_once('.').map_or(0, |(_, decimals)| decimals.len()) as i32)),
        };
        (value - half, value + half)
    }

    /// A time that prints like the capture's and gives the capture's bandwidth.
    fn time_us(size_bytes: u64, time: &str, algbw: &str) -> f64 {
        let ((from, to), (slow, fast)) = (interval(time), interval(algbw));
        let (by_fast, by_slow) = (size_bytes as f64 / 1e3 / fast, size_bytes as f64 / 1e3 / slow);
        let (low, high) = (from.max(by_fast), to.min(by_slow));
        assert!(low < high, "{time} {algbw}");
        f64::midpoint(low, high)
    }

    fn run_of_the_capture() -> RunFacts {
        let mut run = one_rank();
        (run.collective.min_bytes, run.collective.max_bytes) = (32768, 4_294_967_296);
        run.hostname = Some("vm".into());
        run.ranks[0].nccl_version_code = Some(22803);
        run.rows = CAPTURE
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let size_bytes = words[0].parse().unwrap();
                Row {
                    data_type: DataType::Float,
                    size_bytes,
                    count: words[1].parse().unwrap(),
                    out_of_place: measured(time_us(size_bytes, words[5], words[6])),
                    in_place: measured(time_us(size_bytes, words[9], words[10])),
                }
            })
            .collect();
        run
    }

    #[test]
    fn the_captured_text_byte_for_byte() {
        let run = run_of_the_capture();
        assert_eq!(run.rows.len(), 18);
        let made = text_of(&run);
        let (first, rest) = made.split_once('\n').unwrap();
        assert_eq!(
            first,
            format!("# rdmaprep version {} nccl-headers=0 nccl-library=22803", env!("CARGO_PKG_VERSION"))
        );
        let (_, captured) = CAPTURE.split_once('\n').unwrap();
        assert_eq!(rest, captured);
    }

    #[test]
    fn wrong_unchecked_and_stepped() {
        let mut run = good_run();
        run.collective.step_factor = 1;
        run.collective.step_bytes = 1 << 20;
        run.rows[0].in_place.wrong = Some(12_345_678);
        run.rows[1].out_of_place.wrong = None;
        let text = text_of(&run);
        assert!(text.contains("step: 1048576(bytes)"), "{text}");
        assert!(text.contains("  1.23457e+07\n"), "{text}");
        assert!(text.contains("     N/A  "), "{text}");
        assert!(text.contains("\n# Out of bounds values : 1 FAILED\n# Avg bus bandwidth    : 13.6564 \n"), "{text}");
    }

    #[test]
    fn a_run_that_broke_off_has_no_result() {
        let mut run = good_run();
        run.rows.pop();
        run.ending = Ending::Agent { ending: AgentEnding::Failed };
        run.failures.push(RankFailure { rank: 1, phase: Phase::Warmup, failure: Failure::Exit { code: 1 } });
        let text = text_of(&run);
        assert!(text.ends_with("#\n# error: rank 1 in warmup: ended with exit code 1 without a message\n"), "{text}");
        assert!(!text.contains("Avg bus bandwidth"), "{text}");
    }
}
