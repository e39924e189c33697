//! A text of a failed or slow run → what it is, what state it shows, and which causes it names.
//!
//! A text may be several things at once: a job's log holds NCCL's lines, the table of nccl-tests and another program's last
//! words. [`TextReader`] takes bytes in pieces of any size and keeps what has a bound; [`explain`] puts the texts of a run
//! together. Only what a text names is a cause.

mod build;
mod instance;
mod layout;
mod lead;
mod state;

pub use state::{
    BuildState, Explanation, InputText, Kind, NcclState, ProcessState, ProcessText, SCHEMA_VERSION, SettingUse,
};

use crate::diagnosis::{Cause, CauseId, RdmaUse};
use crate::logs::build::explain_build_log;
use crate::logs::devinfo::RdmaTexts;
use crate::logs::limits::Limits;
use crate::logs::nccl::{
    GidEntry, Hints, Interleaved, KeyEntry, Logs, NcclEvidence, Observed, Phase, RankEvidence, RdmaDeviceHint,
    RdmaVerdict, Room, explain_nccl_log, judge_rdma,
};
use crate::logs::nccl_tests::NcclTests;
use build::BuildText;
use lead::without_lead;

/// Reads one text.
#[derive(Debug)]
pub struct TextReader {
    stream: Interleaved,
    others: Others,
    size_bytes: u64,
}

/// The readers of lines that are not NCCL records.
#[derive(Debug, Default)]
struct Others {
    tests: NcclTests,
    rdma: RdmaTexts,
    limits: Limits,
    build: BuildText,
    lines: u64,
}

impl Others {
    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        let text = String::from_utf8_lossy(without_lead(line));
        self.tests.push_line(&text);
        self.rdma.push_line(&text);
        self.limits.push_line(&text);
        self.build.push_line(&text);
    }
}

impl TextReader {
    /// A text that keeps no more than `room` of its NCCL log.
    pub fn within(room: Room) -> TextReader {
        TextReader { stream: Interleaved::within(room), others: Others::default(), size_bytes: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.size_bytes += bytes.len() as u64;
        let others = &mut self.others;
        self.stream.push_with(bytes, &mut |line| others.take(line));
    }

    /// The end of the text; and the room that is left for another one of the same run.
    pub fn finish(self, name: &str) -> (Text, Room) {
        let TextReader { stream, mut others, size_bytes } = self;
        let logs = stream.finish_with(&mut |line| others.take(line));
        let room = logs.room.clone();
        (Text { name: name.to_owned(), logs, others, size_bytes }, room)
    }
}

/// A text that was read.
#[derive(Debug)]
pub struct Text {
    pub name: String,
    logs: Logs,
    others: Others,
    size_bytes: u64,
}

impl Text {
    /// The kinds of text; empty: none of the known ones.
    pub fn kinds(&self) -> Vec<Kind> {
        let Others { tests, rdma, build, .. } = &self.others;
        let is_nccl = !self.logs.ranks.is_empty() || self.logs.rest.version.is_some() || self.logs.left_out > 0;
        let known = [
            (Kind::NcclLog, is_nccl),
            (Kind::NcclTests, !tests.is_empty()),
            (Kind::IbvDevinfo, rdma.has_devinfo),
            (Kind::ShowGids, rdma.has_gid_table),
            (Kind::Sysfs, rdma.has_sysfs),
            (Kind::BuildLog, build.is_build),
        ];
        let mut kinds: Vec<Kind> = known.into_iter().filter_map(|(kind, is)| is.then_some(kind)).collect();
        if kinds.is_empty() {
            if !self.logs.rest.notes.is_empty() {
                kinds.push(Kind::ProgramOutput);
            } else if explain_build_log(build.lines()).is_some() {
                kinds.push(Kind::BuildLog);
            }
        }
        kinds
    }

    fn input(&self) -> InputText {
        let lines = self.others.lines + self.logs.ranks.iter().map(|rank| rank.lines).sum::<u64>() + self.logs.left_out;
        InputText { name: self.name.clone(), kinds: self.kinds(), size_bytes: self.size_bytes, lines }
    }
}

/// Puts the texts of one run together. `timed_out`: the run hung, or was ended for its time.
pub fn explain(texts: Vec<Text>, timed_out: bool) -> Explanation {
    let inputs: Vec<InputText> = texts.iter().map(Text::input).collect();
    let has = |kind: Kind| inputs.iter().any(|input| input.kinds.contains(&kind));
    let (has_nccl, has_tests, has_build) = (has(Kind::NcclLog), has(Kind::NcclTests), has(Kind::BuildLog));
    let mut all = Others::default();
    let mut rest = RankEvidence::default();
    let (mut ranks, mut left_out) = (Vec::new(), 0);
    let (mut build_causes, mut build_failed) = (Vec::new(), false);
    for text in texts {
        let is_build = text.kinds().contains(&Kind::BuildLog);
        let Text { mut logs, others, .. } = text;
        // A line without prefix, in a text of one process, is its own (NCCL up to 2.21).
        if let [rank] = &mut logs.ranks[..]
            && rank.version.is_none()
        {
            rank.version = logs.rest.version.take();
        }
        ranks.append(&mut logs.ranks);
        rest.absorb(logs.rest);
        left_out += logs.left_out;
        if is_build {
            build_failed |= others.build.has_failed;
            build_causes.extend(explain_build_log(others.build.lines()));
        }
        all.tests.append(others.tests);
        all.rdma.append(others.rdma);
        all.limits.append(&others.limits);
    }
    let Others { tests, rdma, limits, .. } = all;
    let watchdog = ranks
        .iter()
        .chain([&rest])
        .flat_map(|log| log.notes.iter())
        .any(|note| note.text.contains("Watchdog caught collective operation timeout"));
    let evidence = NcclEvidence::of(ranks, &rest);
    let hints = hints(&rdma, &limits, timed_out || watchdog);
    let observed =
        Observed { nranks: nranks(&evidence, &tests), wrong_values: tests.wrong_values(), ..Observed::default() };
    let logged_layout = layout::logged(&evidence);
    let layout = layout::of(&tests, logged_layout);
    let verdict = (has_nccl || has_tests).then(|| judge_rdma(&evidence, &observed));

    let mut causes: Vec<Cause> = data_corruption(&tests, &evidence).into_iter().collect();
    let mut found = explain_nccl_log(&evidence, &hints);
    add_versions(&mut found, &tests);
    causes.append(&mut found);
    causes.append(&mut build_causes);

    let trouble = is_in_trouble(&evidence, &tests, &rdma, verdict.as_ref()) || (has_build && build_failed);
    let advice = if causes.is_empty() && trouble { advice(&evidence, &tests, &rdma, has_nccl) } else { Vec::new() };
    Explanation {
        schema_version: state::SCHEMA_VERSION,
        rdmaprep_version: env!("CARGO_PKG_VERSION").to_owned(),
        inputs,
        nccl: has_nccl.then(|| NcclState::of(&evidence, left_out)),
        other_failures: state::process_texts(&[], &rest),
        nccl_tests: has_tests.then_some(tests),
        layout,
        unlisted_layout: logged_layout,
        instance: None,
        findings: Vec::new(),
        rdma_devices: (!rdma.is_empty()).then_some(rdma),
        build: has_build.then_some(BuildState { failed: build_failed }),
        rdma: verdict,
        causes,
        shows_trouble: trouble,
        advice,
    }
}

/// Ranks that the run had: nccl-tests lists them, as far as its table is whole.
fn nranks(evidence: &NcclEvidence, tests: &NcclTests) -> Option<u32> {
    tests.nranks().max(evidence.nranks)
}

fn hints(rdma: &RdmaTexts, limits: &Limits, timed_out: bool) -> Hints {
    let opened = rdma.devices.iter().map(|device| RdmaDeviceHint {
        name: device.name.clone(),
        can_be_opened: Some(true),
        has_active_port: (!device.ports.is_empty()).then(|| device.has_active_port()),
        is_erdma: device.is_erdma(),
        is_iwarp: (!device.transport.is_empty()).then(|| device.is_iwarp()),
        ports: device.ports.iter().map(|port| port.number).collect(),
    });
    let unopened = (rdma.unopened_devices > 0).then(|| RdmaDeviceHint {
        name: if rdma.unopened_devices == 1 {
            "a device".to_owned()
        } else {
            format!("{} devices", rdma.unopened_devices)
        },
        can_be_opened: Some(false),
        ..RdmaDeviceHint::default()
    });
    let devices: Vec<RdmaDeviceHint> = opened.chain(unopened).collect();
    let has_devices = rdma.no_devices || !devices.is_empty();
    let gid = |gid: &crate::logs::devinfo::Gid| GidEntry {
        device: gid.device.clone(),
        index: gid.index,
        gid: gid.gid.clone(),
        kind: gid.kind.clone(),
    };
    let key = |key: &crate::logs::devinfo::PartitionKey| KeyEntry {
        device: key.device.clone(),
        index: key.index,
        key: key.key,
    };
    Hints {
        is_one_host: false,
        memlock: limits.memlock,
        shm_bytes: limits.shm_bytes,
        gpu_nodes: limits.gpu_nodes,
        rdma_devices: has_devices.then_some(devices),
        devices_from: match (has_devices, rdma.has_devinfo) {
            (false, _) => "",
            (true, true) => "ibv_devinfo",
            (true, false) => "sysfs",
        },
        gids: rdma.gids.iter().map(gid).collect(),
        partition_keys: rdma.partition_keys.iter().map(key).collect(),
        timed_out,
    }
}

/// Wrong results outrank everything: what carried them does not matter then.
fn data_corruption(tests: &NcclTests, evidence: &NcclEvidence) -> Option<Cause> {
    if !tests.has_wrong_values() {
        return None;
    }
    let mut lines = Vec::new();
    for table in tests.tables.iter().filter(|table| table.wrong() > 0) {
        if let Some(out) = table.out_of_bounds.filter(|out| out.failed) {
            lines.push(format!("nccl-tests: Out of bounds values : {} FAILED", out.count));
        }
        for row in &table.rows {
            let halves = [(Some(row.out_of_place), "out of place"), (row.in_place, "in place")];
            for (half, how) in halves {
                if let Some(wrong) = half.and_then(|half| half.wrong_values).filter(|wrong| *wrong > 0) {
                    lines.push(format!("nccl-tests: {} bytes, {how}: {wrong} wrong values", row.size_bytes));
                }
            }
        }
    }
    lines.truncate(8);
    let is_direct = evidence.devices.iter().any(|device| device.gdr_lines > 0);
    if is_direct {
        lines.push("channels go through GPUDirect RDMA (/GDRDMA)".to_owned());
    }
    let cause = CauseId::DataCorruption.cause(lines);
    Some(match is_direct {
        true => cause.remedy("run it again with GPUDirect off (NCCL_NET_GDR_LEVEL=LOC): if the results are then right, the host's peer memory driver or PCIe setting (ACS, IOMMU) is at fault; else check MTU and GPUs"),
        false => cause,
    })
}

/// The NCCL that nccl-tests was built with, and the one it runs with.
fn add_versions(causes: &mut [Cause], tests: &NcclTests) {
    let (Some(headers), Some(library)) = (&tests.nccl_headers, &tests.nccl_library) else { return };
    for cause in causes.iter_mut().filter(|cause| cause.id == CauseId::NcclVersionSkew && headers != library) {
        cause.evidence.push(format!("nccl-tests was compiled with NCCL {headers} and runs with NCCL {library}"));
    }
}

/// Whether anything in the texts is not as it should be.
fn is_in_trouble(evidence: &NcclEvidence, tests: &NcclTests, rdma: &RdmaTexts, verdict: Option<&RdmaVerdict>) -> bool {
    let ranks = &evidence.ranks;
    let is_over = |rank: &RankEvidence| rank.phase >= Phase::Connected || rank.connected;
    // Output without a table of channels, as at VERSION, is not evidence of anything.
    let says_little = ranks.is_empty() || !evidence.has_info();
    let is_carried = verdict.is_none_or(|verdict| matches!(verdict.by_log, RdmaUse::Yes | RdmaUse::NotExercised));
    evidence.notes.total > 0
        || ranks.iter().any(|rank| rank.warnings.total > 0)
        || !tests.failures.is_empty()
        || tests.tables.iter().any(|table| table.out_of_bounds.is_none() || table.is_fast_enough == Some(false))
        || rdma.no_devices
        || rdma.unopened_devices > 0
        || rdma.devices.iter().any(|device| !device.ports.is_empty() && !device.has_active_port())
        || (!says_little && (!is_carried || !ranks.iter().all(is_over)))
}

/// What to look at if nothing names a cause.
fn advice(evidence: &NcclEvidence, tests: &NcclTests, rdma: &RdmaTexts, has_nccl: bool) -> Vec<String> {
    let mut advice = Vec::new();
    if (has_nccl || !tests.is_empty()) && !evidence.has_info() {
        advice.push(
            "the log has no line at INFO: run it again with NCCL_DEBUG=INFO, and unset NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS"
                .to_owned(),
        );
    }
    let none = evidence.ranks.iter().any(|rank| rank.no_ib_device);
    if none && rdma.devices.is_empty() {
        advice.push(
            "NCCL found no RDMA device and does not say why: `ibv_devinfo -v` in the same container tells whether a port is down, a device was not passed, or the host has none (rdmaprep explain LOG DEVINFO)"
                .to_owned(),
        );
    }
    let is_unanswered =
        evidence.ranks.iter().any(|rank| rank.warnings.iter().any(|w| w.text.contains("Got completion")));
    if is_unanswered && rdma.gids.is_empty() {
        advice.push(
            "RDMA devices did not reach each other: the GID tables of both hosts (show_gids, or ibv_devinfo -v) tell whether the GID index is right (rdmaprep explain LOG GIDS)"
                .to_owned(),
        );
    }
    if let Some(missing) = evidence.missing_ranks().filter(|missing| !missing.is_empty() && evidence.has_info()) {
        let first: Vec<String> = missing.iter().take(8).map(u32::to_string).collect();
        let more = if missing.len() > 8 { " …" } else { "" };
        advice.push(format!("{} ranks have no log here: {}{more}", missing.len(), first.join(", ")));
    }
    let is_stuck = evidence.ranks.iter().any(|rank| rank.phase < Phase::Connected && rank.info_lines > 0);
    if is_stuck {
        advice.push("the ranks stopped on the way, see the last line of each: a rank without a log, or on another interface, is the usual reason".to_owned());
    }
    advice
}
