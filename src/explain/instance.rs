//! What a run's texts show beside the figures of an instance type.

use super::Explanation;
use crate::checks::{InstanceSubject, Measured, check_instance};
use crate::nccl_tests::{NcclTests, TestRow};
use crate::targets::{ChosenInstance, Layout, Measurement, Target};

impl Explanation {
    /// Takes a person's word on the number of hosts, where the texts do not show it.
    ///
    /// # Errors
    /// Texts that show another number, that do not say how many ranks there were, or ranks that are no multiple of it.
    pub fn say_hosts(&mut self, hosts: u32) -> Result<(), String> {
        if let Some(layout) = self.layout {
            return if layout.hosts == hosts { Ok(()) } else { Err(format!("the text shows {layout}")) };
        }
        let listed = self.nccl_tests.as_ref().and_then(NcclTests::nranks);
        let Some(ranks) = listed.max(self.nccl.as_ref().and_then(|state| state.nranks)) else {
            return Err("the text does not say how many ranks there were".to_owned());
        };
        if !ranks.is_multiple_of(hosts) {
            return Err(format!("{ranks} ranks are not as many on each of {hosts} hosts"));
        }
        self.layout = Some(Layout { hosts, ranks, ranks_per_host: Some(ranks / hosts) });
        Ok(())
    }

    /// Compares what the texts show with what documents say of a type.
    pub fn judge_instance(&mut self, chosen: ChosenInstance, target: &Target) {
        let measured = measured(self.nccl_tests.as_ref(), self.layout);
        let subject = InstanceSubject { chosen, target, facts: None, run: None, measured: &measured };
        self.findings = check_instance(&subject);
        self.instance = Some(chosen.into());
    }
}

fn measured(tests: Option<&NcclTests>, layout: Option<Layout>) -> Measured {
    const REDUCES: &str = "all_reduce_perf";
    let Some(tests) = tests else {
        return Measured::Unknown("the text has no table of nccl-tests".to_owned());
    };
    let with_rows = || tests.tables.iter().filter(|table| !table.rows.is_empty());
    let is_other = |name: &Option<String>| name.as_deref().is_some_and(|name| name != REDUCES);
    let rows = with_rows().filter(|table| !is_other(&table.collective)).flat_map(|table| &table.rows);
    let Some(row) = rows.max_by_key(|row| row.size_bytes) else {
        return match with_rows().find_map(|table| table.collective.as_deref()) {
            Some(other) => Measured::Incomparable(format!("documents report {REDUCES}, and this is {other}")),
            None => Measured::Unknown("the table of nccl-tests has no row".to_owned()),
        };
    };
    let Some(layout) = layout else {
        return Measured::Unknown(
            "the text does not show on which host every rank ran (the `# Rank` lines of nccl-tests do; or say --hosts N)".to_owned(),
        );
    };
    if !is_all_reduce(row, layout.ranks) {
        return Measured::Incomparable(format!(
            "busbw over algbw is not that of an all-reduce of {} ranks, 2(n-1)/n",
            layout.ranks
        ));
    }
    Measured::checked(Measurement {
        layout,
        size_bytes: row.size_bytes,
        algbw_gb_per_s: row.out_of_place.algbw_gb_per_s,
        busbw_gb_per_s: row.out_of_place.busbw_gb_per_s,
        in_place_busbw_gb_per_s: row.in_place.map(|half| half.busbw_gb_per_s),
    })
}

/// Whether a row can be one of all-reduce: older tables do not name their collective, but `busbw = algbw × 2(n−1)/n` holds
/// for no other one (nccl-tests, doc/PERFORMANCE.md). It shows a rank list that is another run's, too.
fn is_all_reduce(row: &TestRow, ranks: u32) -> bool {
    // Printed with two digits: half of the last one of both.
    const ROUNDING: f64 = 0.005;
    let ranks = f64::from(ranks.max(1));
    let factor = 2.0 * (ranks - 1.0) / ranks;
    let half = row.out_of_place;
    (half.algbw_gb_per_s * factor - half.busbw_gb_per_s).abs() <= ROUNDING * (1.0 + factor) + 1e-9
}
