//! The result of `explain` for a log, as text.

use super::text::write_every_finding;
use super::{Style, visible};
use crate::diagnosis::{Cause, Fault, GpuDirect, RdmaUse};
use crate::explain::{Explanation, InputText, NcclState};
use crate::logs::nccl::{Phase, PluginState, RdmaReason, RdmaVerdict};
use crate::logs::nccl_tests::{NcclTests, Table};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Lines shown of a list; the JSON form has more.
const MAX_SHOWN: usize = 8;

/// Writes the kind of each text, the state it shows, and the causes it names.
pub fn write_log_explanation(out: &mut dyn Write, explanation: &Explanation, style: Style) -> io::Result<()> {
    for input in &explanation.inputs {
        write_input(out, input, style)?;
    }
    if let Some(state) = &explanation.nccl {
        write_nccl(out, state)?;
    }
    if let Some(tests) = &explanation.nccl_tests {
        write_tests(out, tests)?;
    }
    if let Some(layout) = &explanation.layout {
        line(out, "layout", &layout.to_string())?;
    }
    write_devices(out, explanation)?;
    if let Some(build) = &explanation.build {
        line(out, "build", if build.failed { "failed" } else { "names no failure" })?;
    }
    if let Some(verdict) = &explanation.rdma {
        write_verdict(out, verdict)?;
    }
    write_texts(out, explanation)?;
    if let Some(instance) = &explanation.instance {
        writeln!(out, "{}", style.bold(&instance.name))?;
        write_every_finding(out, &explanation.findings, style)?;
    }
    for cause in &explanation.causes {
        write_cause(out, cause, style)?;
    }
    if explanation.causes.is_empty() {
        let word = if explanation.shows_trouble { "unknown" } else { "no trouble" };
        writeln!(out, "{}: nothing in this text names a cause", style.bold(word))?;
        for advice in &explanation.advice {
            writeln!(out, "  next: {}", visible(advice))?;
        }
    }
    Ok(())
}

fn write_input(out: &mut dyn Write, input: &InputText, style: Style) -> io::Result<()> {
    let kinds: Vec<&str> = input.kinds.iter().map(|kind| kind.title()).collect();
    let name = if input.name == "-" { "stdin" } else { &input.name };
    let (lines, size) = (counted(input.lines, "line"), Bytes(input.size_bytes));
    writeln!(out, "{}: {} ({lines}, {size})", style.bold(&visible(name)), kinds.join(", "))
}

fn write_nccl(out: &mut dyn Write, state: &NcclState) -> io::Result<()> {
    let versions = state.versions.iter().map(|version| match version.processes {
        0 => version.text.clone(),
        processes => format!("{} ({})", version.text, processes_text(processes)),
    });
    line_of(out, "NCCL", versions)?;
    let ranks = match state.nranks {
        Some(nranks) => format!("{} of {nranks} have a log", state.ranks_seen),
        None => "not said".to_owned(),
    };
    let (processes, hosts) = (processes_text(state.processes), counted(u64::from(state.hosts), "host"));
    line(out, "ranks", &format!("{ranks}; {processes} on {hosts}"))?;
    let phases = state.phases.iter();
    line_of(out, "phase", phases.map(|(phase, count)| format!("{} ({})", phase_word(*phase), processes_text(*count))))?;
    // If all are done, their last lines say nothing.
    if state.behind.first().is_some_and(|process| process.phase < Phase::Ended) {
        for process in state.behind.iter().take(MAX_SHOWN) {
            let last = process.last_line.as_deref().unwrap_or("nothing");
            line(out, "last line", &format!("{}: {last}", process.process))?;
        }
        more(out, state.behind.len())?;
    }
    line(out, "network", &map_text(&state.networks))?;
    line(out, "interface", &map_text(&state.bootstrap_interfaces))?;
    let mut devices = map_text(&state.listed_devices);
    if state.processes_without_ib_device > 0 {
        let none = format!("none in {}", processes_text(state.processes_without_ib_device));
        devices = if devices.is_empty() { none } else { format!("{devices}, {none}") };
    }
    line(out, "devices", &devices)?;
    // The last message about a plugin.
    let mut plugins: Vec<(&str, PluginState)> = Vec::new();
    for plugin in &state.plugins {
        plugins.retain(|(name, _)| *name != plugin.name);
        plugins.push((&plugin.name, plugin.state));
    }
    line_of(out, "plugins", plugins.iter().map(|(name, state)| format!("{name} ({})", plugin_word(*state))))?;
    let transports = state.transports.iter();
    line_of(out, "channels", transports.map(|used| format!("{} {}", used.name, counted(used.lines, "line"))))?;
    for device in state.devices.iter().take(MAX_SHOWN) {
        let link = if device.link.is_empty() { String::new() } else { format!("/{}", device.link) };
        let lines = counted(device.lines, "channel line");
        let text = format!("{} {}{link}: {lines}, {} with GPUDirect", device.host, device.name, device.gdr_lines);
        line(out, "through", &text)?;
    }
    more(out, state.devices.len())?;
    for setting in state.settings.iter().take(3 * MAX_SHOWN) {
        line(out, "setting", &format!("{}={}", setting.name, setting.value))?;
    }
    if state.lines_left_out > 0 {
        let text = format!("{} from further processes: there are too many", counted(state.lines_left_out, "line"));
        line(out, "left out", &text)?;
    }
    Ok(())
}

fn write_tests(out: &mut dyn Write, tests: &NcclTests) -> io::Result<()> {
    if let (Some(headers), Some(library)) = (&tests.nccl_headers, &tests.nccl_library) {
        let version = tests.version.as_deref().unwrap_or_default();
        line(out, "nccl-tests", &format!("{version}, compiled with NCCL {headers}, runs with NCCL {library}"))?;
    }
    for table in tests.tables.iter().take(MAX_SHOWN) {
        line(out, "test", &table_text(table))?;
    }
    more(out, tests.tables.len())?;
    for failure in tests.failures.iter().take(MAX_SHOWN) {
        line(out, "gave up", failure)?;
    }
    Ok(())
}

fn table_text(table: &Table) -> String {
    let name = table.collective.as_deref().unwrap_or("a collective");
    let mut text = format!("{name}: {}", counted(table.row_count, "row"));
    if table.device_count > 0 {
        text += &format!(", {}", counted(u64::from(table.device_count), "rank"));
    }
    if let Some(row) = table.rows.last() {
        text += &format!(", to {}", Bytes(row.size_bytes));
    }
    if let Some(average) = table.average_busbw_gb_per_s {
        text += &format!(", average bus bandwidth {average} GB/s");
    }
    text += &match (table.wrong(), table.is_checked) {
        (0, true) => ", no wrong value".to_owned(),
        (0, false) => ", results not checked".to_owned(),
        (wrong, _) => format!(", {} wrong", counted(wrong, "value")),
    };
    match (table.out_of_bounds, table.is_fast_enough) {
        (None, _) => text += "; it did not finish",
        (Some(_), Some(false)) => text += "; slower than required",
        (Some(_), _) => {}
    }
    text
}

fn write_devices(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let Some(rdma) = &explanation.rdma_devices else { return Ok(()) };
    for device in rdma.devices.iter().take(2 * MAX_SHOWN) {
        let ports = device.ports.iter().map(|port| format!("port {} {} {}", port.number, port.state, port.link_layer));
        let ports = ports.collect::<Vec<_>>().join(", ");
        let transport = if device.transport.is_empty() { "not said" } else { &device.transport };
        let text = format!("{}: transport {transport}, vendor {}, {ports}", device.name, device.vendor_id);
        line(out, "device", &text)?;
    }
    if rdma.no_devices {
        line(out, "device", "none found")?;
    }
    for gid in rdma.gids.iter().take(MAX_SHOWN) {
        let kind = if gid.kind.is_empty() { String::new() } else { format!(" ({})", gid.kind) };
        line(out, "GID", &format!("{} port {} index {}: {}{kind}", gid.device, gid.port, gid.index, gid.gid))?;
    }
    more(out, rdma.gids.len())
}

/// The four-valued verdict, with its evidence.
fn write_verdict(out: &mut dyn Write, verdict: &RdmaVerdict) -> io::Result<()> {
    let word = match verdict.by_log {
        RdmaUse::Yes => "yes by the log; byte counters were not read, so it is not proved",
        RdmaUse::No => "no",
        RdmaUse::NotExercised => "not-exercised",
        RdmaUse::Unknown => "unknown",
    };
    line(out, "RDMA", word)?;
    for reason in verdict.reasons.iter().filter(|reason| !matches!(reason, RdmaReason::CountersNotRead)) {
        line(out, "", &reason.to_string())?;
    }
    let direct = match verdict.gpu_direct {
        GpuDirect::Yes => "yes: every channel line through RDMA has /GDRDMA",
        GpuDirect::No => "no: RDMA goes through host memory, which is slower",
        GpuDirect::Mixed => "on some channels only",
        GpuDirect::NotExercised | GpuDirect::Unknown => return Ok(()),
    };
    line(out, "GPUDirect", direct)
}

/// Warnings that no cause quotes.
fn write_texts(out: &mut dyn Write, explanation: &Explanation) -> io::Result<()> {
    let evidence = || explanation.causes.iter().flat_map(|cause| &cause.evidence);
    let own = explanation.nccl.iter().flat_map(|state| &state.warnings);
    let all = own.chain(&explanation.other_failures);
    let texts: Vec<_> = all.filter(|said| !evidence().any(|line| line.contains(&said.text))).collect();
    for said in texts.iter().take(MAX_SHOWN) {
        let process = said.process.as_ref().map_or_else(String::new, |process| format!("{process}: "));
        let times = if said.count > 1 { format!(" ({} times)", said.count) } else { String::new() };
        line(out, "said", &format!("{process}{}{times}", said.text))?;
    }
    more(out, texts.len())
}

fn write_cause(out: &mut dyn Write, cause: &Cause, style: Style) -> io::Result<()> {
    let fault = match cause.fault {
        Fault::Image => "the image",
        Fault::Host => "the host",
        Fault::Launch => "how the container was started",
        Fault::Job => "the job's settings",
    };
    writeln!(out, "{} {}: {}", style.bold("cause"), cause.id, visible(&cause.summary))?;
    for evidence in &cause.evidence {
        writeln!(out, "  {}", visible(evidence))?;
    }
    writeln!(out, "  at fault: {fault}")?;
    writeln!(out, "  remedy: {}", visible(&cause.remedy))
}

/// Writes a line, if there is something to report.
fn line(out: &mut dyn Write, name: &str, text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { writeln!(out, "  {name:<10} {}", visible(text)) }
}

fn line_of(out: &mut dyn Write, name: &str, parts: impl Iterator<Item = String>) -> io::Result<()> {
    let parts: Vec<String> = parts.take(2 * MAX_SHOWN).collect();
    line(out, name, &parts.join(", "))
}

/// States that a list is longer than shown.
fn more(out: &mut dyn Write, count: usize) -> io::Result<()> {
    if count > MAX_SHOWN { line(out, "", &format!("and {} more", count - MAX_SHOWN)) } else { Ok(()) }
}

fn map_text(map: &BTreeMap<String, u32>) -> String {
    let shown = map.iter().take(MAX_SHOWN);
    let mut parts: Vec<String> =
        shown.map(|(name, processes)| format!("{name} ({})", processes_text(*processes))).collect();
    if map.len() > MAX_SHOWN {
        parts.push(format!("and {} more", map.len() - MAX_SHOWN));
    }
    parts.join(", ")
}

fn processes_text(count: u32) -> String {
    counted(u64::from(count), "process")
}

fn counted(count: u64, what: &str) -> String {
    let plural = if what.ends_with('s') { "es" } else { "s" };
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}{plural}") }
}

fn plugin_word(state: PluginState) -> &'static str {
    match state {
        PluginState::NotFound => "not found",
        PluginState::Loaded => "loaded",
        PluginState::Initialized => "initialized",
        PluginState::Failed => "failed",
        PluginState::Assigned => "assigned",
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Nothing => "nothing",
        Phase::Loaded => "loaded",
        Phase::Bootstrap => "bootstrap",
        Phase::InitStart => "init-start",
        Phase::Connected => "connected",
        Phase::AfterInit => "after-init",
        Phase::Ended => "ended",
    }
}
