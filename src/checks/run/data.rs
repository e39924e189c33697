//! Checks of what came out: right values, bandwidth.

use super::{Judged, RunSubject, count};
use crate::checks::Outcome;
use crate::diagnosis::{CauseId, Fault, GpuDirect};
use crate::facts::run::{AgentEnding, DataType, Ending, Measured, Placement, Row, RunFacts, WrongElement};

/// Every measurement with its row, in the order in which they were made.
pub(super) fn measurements(run: &RunFacts) -> impl Iterator<Item = (&Row, Placement, &Measured)> {
    run.rows
        .iter()
        .flat_map(|row| [(row, Placement::OutOfPlace, &row.out_of_place), (row, Placement::InPlace, &row.in_place)])
}

/// Every row with its bus bandwidths, out of place and in place, in GB/s.
pub fn measured_rows(run: &RunFacts) -> impl Iterator<Item = (&Row, [f64; 2])> {
    let ranks = u32::try_from(run.ranks.len()).unwrap_or(u32::MAX);
    run.rows
        .iter()
        .map(move |row| (row, [&row.out_of_place, &row.in_place].map(|one| one.busbw_gb_per_s(row.size_bytes, ranks))))
}

/// Mean of the bus bandwidths of all measurements, in GB/s, as nccl-tests forms it; `None`: nothing was measured.
pub fn average_busbw_gb_per_s(run: &RunFacts) -> Option<f64> {
    let ranks = u32::try_from(run.ranks.len()).unwrap_or(u32::MAX);
    let all: Vec<f64> = measurements(run).map(|(row, _, one)| one.busbw_gb_per_s(row.size_bytes, ranks)).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// How many measurements have wrong values: nccl-tests' "Out of bounds values".
pub fn wrong_results(run: &RunFacts) -> usize {
    measurements(run).filter(|(_, _, one)| one.wrong.is_some_and(|wrong| wrong > 0)).count()
}

/// The value of an element's bit pattern.
fn decode(data_type: DataType, bits: u32) -> f32 {
    match data_type {
        DataType::Float => f32::from_bits(bits),
        DataType::Bfloat16 => f32::from_bits(bits << 16),
        DataType::Half => half(bits),
    }
}

/// IEEE 754 binary16.
fn half(bits: u32) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = (bits & 0x3ff) as f32;
    match bits >> 10 & 0x1f {
        // Steps of 2^-24 below the smallest normal number.
        0 => sign * fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => sign * f32::INFINITY,
        0x1f => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent as i32 - 15),
    }
}

fn say_element(row: &Row, placement: Placement, element: &WrongElement) -> String {
    let placement = match placement {
        Placement::OutOfPlace => "out of place",
        Placement::InPlace => "in place",
    };
    let digits = 2 + 2 * row.data_type.size() as usize;
    let say = |bits: u32| format!("{} ({bits:#0digits$x})", decode(row.data_type, bits));
    format!(
        "{} {} B {placement}: rank {}, element {}: found {}, expected {}",
        row.data_type.name(),
        row.size_bytes,
        element.rank,
        element.index,
        say(element.found_bits),
        say(element.expected_bits)
    )
}

pub(super) fn data_correct(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    let wrong = wrong_results(run);
    if wrong > 0 {
        let elements: u64 = measurements(run).filter_map(|(_, _, one)| one.wrong).sum();
        let first = measurements(run)
            .filter_map(|(row, placement, one)| Some(say_element(row, placement, one.first_wrong.as_ref()?)));
        let uses_gdr = run.evidence.as_ref().is_some_and(|e| matches!(e.gpu_direct, GpuDirect::Yes | GpuDirect::Mixed));
        let remedy = if run.planted.is_some() && elements == 1 {
            "--plant-wrong changed this element, and the check found it: run again without"
        } else if uses_gdr {
            "run again without GPUDirect (--env NCCL_NET_GDR_LEVEL=LOC): if the values are then right, the host's PCIe \
             settings (ACS, IOMMU) or its peer memory module corrupt them"
        } else {
            "run again with --env NCCL_P2P_DISABLE=1, then with another NCCL: whichever fixes it is the lead"
        };
        return Ok(Outcome::fail(format!(
            "{} of {} have wrong values, {} in all",
            wrong,
            count(measurements(run).count(), "result"),
            count(usize::try_from(elements).unwrap_or(usize::MAX), "element"),
        ))
        .evidence(first)
        .remedy(remedy)
        .named(CauseId::DataCorruption));
    }
    if run.rows.is_empty() {
        return Err(Outcome::unknown("there is no result to verify"));
    }
    if run.planted.is_some() {
        return Err(Outcome::unknown("--plant-wrong changed nothing: the run has no such rank, size or element"));
    }
    if !run.collective.check {
        return Ok(Outcome::skip("verification was turned off"));
    }
    if measurements(run).any(|(_, _, one)| one.wrong.is_none()) {
        return Err(Outcome::unknown("some results were not verified"));
    }
    let expected = run.collective.sizes().len() * run.collective.data_types.len();
    if run.rows.len() < expected || run.ending != (Ending::Agent { ending: AgentEnding::Complete }) {
        return Err(Outcome::unknown(format!(
            "correct as far as the run got: {} of {expected} sizes and types",
            run.rows.len()
        )));
    }
    Ok(Outcome::pass(format!("{}, every element correct", count(measurements(run).count(), "result"))))
}

pub(super) fn bandwidth(subject: &RunSubject<'_>) -> Judged {
    let run = subject.run;
    subject.started()?;
    let minimum = subject.options.min_busbw_gb_per_s;
    let Some(average) = average_busbw_gb_per_s(run).filter(|average| average.is_finite()) else {
        return Err(Outcome::unknown("nothing was measured"));
    };
    if run.ranks.len() < 2 {
        let summary = "not-exercised: with one rank no data moves between GPUs";
        return match minimum {
            None => Ok(Outcome::skip(summary)),
            Some(minimum) => Err(Outcome::unknown(format!("{summary}, so {minimum} GB/s are not shown"))),
        };
    }
    let gdr = match run.evidence.as_ref().map(|evidence| evidence.gpu_direct) {
        Some(GpuDirect::Yes) => ", with GPUDirect RDMA",
        Some(GpuDirect::No) => ", without GPUDirect RDMA",
        Some(GpuDirect::Mixed) => ", with GPUDirect RDMA on some channels",
        Some(GpuDirect::NotExercised | GpuDirect::Unknown) | None => "",
    };
    let said = format!("average bus bandwidth {average:.1} GB/s{gdr}");
    Ok(match minimum {
        None => Outcome::pass(said),
        Some(minimum) if average >= minimum => Outcome::pass(format!("{said}; at least {minimum} is required")),
        Some(minimum) => {
            let outcome = Outcome::fail(format!("{said}; at least {minimum} is required")).blame(Fault::Host);
            match gdr {
                ", without GPUDirect RDMA" => {
                    outcome.remedy("see gpu-direct: without it every byte goes through the host's memory")
                }
                _ => outcome,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Status::*;
    use crate::checks::run::RunOptions;
    use crate::checks::run::testing::*;
    use crate::diagnosis::Fault::*;

    #[test]
    fn values_of_bit_patterns() {
        assert_eq!(decode(DataType::Float, 0x4080_0000), 4.0);
        assert_eq!(decode(DataType::Bfloat16, 0x4080), 4.0);
        for (bits, value) in
            [(0x4400, 4.0), (0xc000, -2.0), (0x3555, 0.333_251_95), (0x0001, 5.960_464_5e-8), (0x7bff, 65504.0)]
        {
            assert_eq!(decode(DataType::Half, bits), value, "{bits:#x}");
        }
        assert_eq!(half(0x7c00), f32::INFINITY);
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn verification() {
        expect(&found(&good_run(), "data-correct"), Pass, None, &["6 results"]);
        let mut run = good_run();
        run.rows.pop();
        expect(&found(&run, "data-correct"), Unknown, None, &["2 of 3"]);
        run.rows[0].in_place.wrong = None;
        expect(&found(&run, "data-correct"), Unknown, None, &["not verified"]);
        run.collective.check = false;
        expect(&found(&run, "data-correct"), Skip, None, &[]);
        run.rows.clear();
        expect(&found(&run, "data-correct"), Unknown, None, &["no result"]);
    }

    #[test]
    fn thresholds_for_one_rank() {
        let asked = RunOptions { min_busbw_gb_per_s: Some(1.0), ..RunOptions::default() };
        expect(&found(&one_rank(), "bandwidth"), Skip, None, &["not-exercised"]);
        expect(&found_with(&one_rank(), "bandwidth", asked), Unknown, None, &["not-exercised"]);
        let mut run = good_run();
        run.rows.clear();
        expect(&found(&run, "bandwidth"), Unknown, None, &[]);
        run.evidence = None;
        expect(&found(&good_run(), "bandwidth"), Pass, None, &["GB/s, with GPUDirect RDMA"]);
    }

    #[test]
    fn elements_are_named_with_their_values() {
        let mut run = good_run();
        let wrong = WrongElement { rank: 1, index: 17, found_bits: 0x3c00, expected_bits: 0x4000 };
        run.rows[1].data_type = DataType::Half;
        run.rows[1].in_place.wrong = Some(3);
        run.rows[1].in_place.first_wrong = Some(wrong);
        run.evidence.as_mut().unwrap().gpu_direct = GpuDirect::No;
        let words =
            ["half 2097152 B in place: rank 1, element 17: found 1 (0x3c00), expected 2 (0x4000)", "NCCL_P2P_DISABLE"];
        expect(&found(&run, "data-correct"), Fail, Some(Image), &words);
    }

    #[test]
    fn what_was_changed_on_purpose_is_said() {
        let plant =
            crate::facts::run::Plant { rank: 0, size_bytes: 1 << 20, placement: Placement::OutOfPlace, element: 7 };
        let mut run = good_run();
        run.planted = Some(plant);
        expect(&found(&run, "data-correct"), Unknown, None, &["--plant-wrong changed nothing"]);
        run.rows[0].out_of_place.wrong = Some(1);
        expect(&found(&run, "data-correct"), Fail, Some(Image), &["1 element in all", "--plant-wrong changed this"]);
        // More than was changed is not explained by it.
        run.rows[1].out_of_place.wrong = Some(1);
        let finding = found(&run, "data-correct");
        assert!(!format!("{finding:?}").contains("--plant-wrong"), "{finding:?}");
    }
}
