//! How the ranks of a run lie on hosts, as far as its texts show every one.

use crate::nccl_log::NcclEvidence;
use crate::nccl_tests::{NcclTests, Table};
use crate::targets::Layout;
use std::collections::BTreeMap;

/// From the list of devices of nccl-tests; else from NCCL's log, where every rank has one.
pub fn of(tests: &NcclTests, evidence: &NcclEvidence) -> Option<Layout> {
    tests.tables.iter().filter_map(listed).max_by_key(|layout| layout.ranks).or_else(|| logged(evidence))
}

fn listed(table: &Table) -> Option<Layout> {
    let is_whole = u32::try_from(table.devices.len()) == Ok(table.device_count);
    if is_whole { Layout::of(table.devices.iter().map(|device| device.host.as_str())) } else { None }
}

fn logged(evidence: &NcclEvidence) -> Option<Layout> {
    let nranks = evidence.nranks?;
    let mut hosts = BTreeMap::new();
    for process in evidence.ranks.iter().filter(|process| !process.host.is_empty()) {
        for rank in process.ranks_of(nranks) {
            hosts.insert(rank, process.host.as_str());
        }
    }
    (u32::try_from(hosts.len()) == Ok(nranks)).then(|| Layout::of(hosts.into_values())).flatten()
}
