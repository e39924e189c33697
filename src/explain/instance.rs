//! A run's texts compared with the figures of an instance type.

use super::Explanation;
use super::layout::listed;
use crate::checks::{InstanceSubject, Measured, Status, check_instance};
use crate::logs::nccl_tests::{NcclTests, Table, TestRow};
use crate::targets::{ChosenInstance, InstanceType, Layout, Measurement, Target, has_baseline};

impl Explanation {
    /// Takes a person's word on the number of hosts, where the texts do not show it.
    ///
    /// # Errors
    /// The texts show another number or no number of ranks, or the ranks are not a multiple of it.
    pub fn say_hosts(&mut self, hosts: u32) -> Result<(), String> {
        if let Some(layout) = self.layout {
            return if layout.hosts == hosts { Ok(()) } else { Err(format!("the text shows {layout}")) };
        }
        if let Some(shown) = self.nccl.as_ref().map(|state| state.hosts).filter(|shown| *shown > hosts) {
            return Err(format!("the text shows {shown} hosts"));
        }
        let Some(ranks) = self.nranks() else {
            return Err(format!("the text does not show the number of ranks\n  {MORE_TEXT}"));
        };
        if !ranks.is_multiple_of(hosts) {
            return Err(format!("{ranks} ranks do not divide evenly over {hosts} hosts"));
        }
        self.layout = Some(Layout { hosts, ranks, ranks_per_host: Some(ranks / hosts) });
        self.unlisted_layout = self.layout;
        Ok(())
    }

    /// The number of ranks, whoever says it.
    fn nranks(&self) -> Option<u32> {
        let listed = self.nccl_tests.as_ref().and_then(NcclTests::nranks);
        listed.max(self.nccl.as_ref().and_then(|state| state.nranks))
    }

    /// Compares what the texts show with what documents say of a type.
    pub fn judge_instance(&mut self, chosen: ChosenInstance, target: &Target) {
        let measured = match &self.nccl_tests {
            Some(tests) => {
                let remedy = if self.nranks().is_some() { "say --hosts N" } else { MORE_TEXT };
                measured(tests, self.unlisted_layout, chosen.instance, remedy)
            }
            None => Measured::Unknown("the text has no table of nccl-tests".to_owned()),
        };
        let subject = InstanceSubject { chosen, target, facts: None, image_name: None, run: None, measured: &measured };
        self.findings = check_instance(&subject);
        self.shows_trouble |= self.findings.iter().any(|finding| matches!(finding.status, Status::Warn | Status::Fail));
        self.instance = Some(chosen.into());
    }
}

/// The texts that show the ranks if a table alone does not.
const MORE_TEXT: &str =
    "give the whole output, with the `# Rank` lines above the table, or also NCCL's log (NCCL_DEBUG=INFO)";

/// The largest size of the table that documents can say something of: of its rows the slowest, where several are of that size.
/// A table's ranks lie as its own list of devices says; `unlisted`: as they lie where it has none. `remedy`: what shows them.
fn measured(tests: &NcclTests, unlisted: Option<Layout>, instance: &InstanceType, remedy: &str) -> Measured {
    const REDUCES: &str = "all_reduce_perf";
    let with_rows = || tests.tables.iter().filter(|table| !table.rows.is_empty());
    let is_other = |table: &&Table| table.collective.as_deref().is_some_and(|name| name != REDUCES);
    let mut tables = with_rows().filter(|table| !is_other(table)).peekable();
    if tables.peek().is_none() {
        return match with_rows().find_map(|table| table.collective.as_deref()) {
            Some(other) => Measured::Incomparable(format!("documents report {REDUCES}, but this is {other}")),
            None => Measured::Unknown("the table of nccl-tests has no row".to_owned()),
        };
    }
    let laid_out: Vec<(&Table, Layout)> = tables
        .filter_map(|table| {
            let layout = if table.device_count == 0 { unlisted } else { listed(table) };
            Some((table, layout?))
        })
        .collect();
    let Some((_, first)) = laid_out.first() else {
        return Measured::Unknown(format!("the text does not show on which host each rank ran: {remedy}"));
    };
    let speed = |row: &TestRow| row.out_of_place.busbw_gb_per_s;
    let all_reduces = laid_out.iter().filter(|(table, layout)| is_all_reduce(table, layout.ranks));
    let rows = all_reduces.flat_map(|(table, layout)| table.rows.iter().map(|row| (*table, *layout, row)));
    let best = rows.max_by(|(_, layout, row), (_, other_layout, other)| {
        let known = (has_baseline(instance, *layout), row.size_bytes);
        known.cmp(&(has_baseline(instance, *other_layout), other.size_bytes)).then(speed(other).total_cmp(&speed(row)))
    });
    let Some((table, layout, row)) = best else {
        return Measured::Incomparable(format!(
            "busbw over algbw does not match an all-reduce of {} ranks, 2(n-1)/n",
            first.ranks
        ));
    };
    if !agrees(row, layout.ranks) {
        return Measured::Unknown(format!(
            "the row of {} bytes contradicts itself: of {} ranks {} GB/s of algbw are not {} of busbw",
            row.size_bytes,
            layout.ranks,
            row.out_of_place.algbw_gb_per_s,
            speed(row)
        ));
    }
    if table.wrong() > 0 {
        return Measured::Unknown("results are wrong, and the bandwidth of wrong data means nothing".to_owned());
    }
    Measured::checked(Measurement {
        layout,
        size_bytes: row.size_bytes,
        algbw_gb_per_s: row.out_of_place.algbw_gb_per_s,
        busbw_gb_per_s: speed(row),
        in_place_busbw_gb_per_s: row.in_place.map(|half| half.busbw_gb_per_s),
    })
}

/// Whether a table can be one of all-reduce: older ones do not name their collective, but `busbw = algbw × 2(n−1)/n` holds
/// for no other one of more than two ranks (nccl-tests, doc/PERFORMANCE.md). It shows a rank list that is another run's, too.
fn is_all_reduce(table: &Table, ranks: u32) -> bool {
    // In slow rows two printed digits agree with any collective.
    const TELLING_GB_PER_S: f64 = 0.5;
    let telling = || table.rows.iter().filter(|row| row.out_of_place.algbw_gb_per_s >= TELLING_GB_PER_S);
    let agreeing = telling().filter(|row| agrees(row, ranks)).count();
    // One damaged row does not make it another collective's.
    2 * agreeing > telling().count() || (telling().count() == 0 && table.rows.iter().all(|row| agrees(row, ranks)))
}

/// Whether both bandwidths of a row are those of an all-reduce.
fn agrees(row: &TestRow, ranks: u32) -> bool {
    // Printed with two digits: half of the last one of both.
    const ROUNDING: f64 = 0.005;
    let ranks = f64::from(ranks.max(1));
    let factor = 2.0 * (ranks - 1.0) / ranks;
    let half = row.out_of_place;
    (half.algbw_gb_per_s * factor - half.busbw_gb_per_s).abs() <= ROUNDING * (1.0 + factor) + 1e-9
}
