//! How the ranks of a run lie on hosts, as far as its texts show every one.

use crate::logs::nccl::NcclEvidence;
use crate::logs::nccl_tests::{NcclTests, Table};
use crate::targets::Layout;
use std::collections::BTreeMap;

/// The largest of the texts: from the lists of devices of nccl-tests; else from NCCL's log, where every rank has one.
pub(super) fn of(tests: &NcclTests, logged: Option<Layout>) -> Option<Layout> {
    tests.tables.iter().filter_map(listed).max_by_key(|layout| layout.ranks).or(logged)
}

/// From a table's own list of devices.
pub(super) fn listed(table: &Table) -> Option<Layout> {
    let is_whole = table.devices_by_host.values().sum::<u32>() == table.device_count;
    if is_whole { Layout::of_counts(table.devices_by_host.values().copied()) } else { None }
}

/// From NCCL's log.
pub(super) fn logged(evidence: &NcclEvidence) -> Option<Layout> {
    let nranks = evidence.nranks?;
    let mut hosts = BTreeMap::new();
    for process in evidence.ranks.iter().filter(|process| !process.host.is_empty()) {
        for rank in process.ranks_of(nranks) {
            hosts.insert(rank, process.host.as_str());
        }
    }
    (u32::try_from(hosts.len()) == Ok(nranks)).then(|| Layout::of(hosts.into_values())).flatten()
}
