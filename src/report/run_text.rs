//! The result of `preflight`, for people: how it was run, the numbers, then the findings as in `check`.

use super::printf::fitting;
use super::run::{MeasuredReport, RunReport, SocketReport, blame_words};
use super::text::{Style, write_findings, write_policy, write_subject, write_verdict};
use super::{Report, visible};
use crate::checks::run::{InEffect, cuda_of_code, in_effect, version_of_rank};
use crate::facts::run::RunFacts;
use crate::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Writes the result of `preflight`. `all` also shows what passed.
pub fn write_preflight(out: &mut dyn Write, report: &Report, all: bool, style: Style) -> io::Result<()> {
    write_subject(out, report)?;
    let Some(run) = &report.run else {
        return write_verdict(out, report, style, "");
    };
    for (name, lines) in setup(&run.facts) {
        for (at, line) in lines.iter().enumerate() {
            writeln!(out, "  {:<11} {}", if at == 0 { name } else { "" }, visible(line))?;
        }
    }
    write_rows(out, run)?;
    if let Some(socket) = &run.over_socket {
        write_beside(out, run, socket)?;
    }
    write_findings(out, report, all, style)?;
    if let Some(policy) = &report.policy {
        write_policy(out, policy, style)?;
    }
    let fault = run.at_fault.map(|blame| format!("; {}", blame_words(blame))).unwrap_or_default();
    write_verdict(out, report, style, &format!("{fault}; {}", visible(&run.rdma_line())))
}

/// How the image was run: name and lines of each paragraph.
fn setup(run: &RunFacts) -> Vec<(&'static str, Vec<String>)> {
    let launch = &run.launch;
    let mut about = vec![("GPU access:", vec![format!("{} ({})", launch.gpu_access, launch.gpu_access_reason)])];
    if let Some(probe) = &run.gpus {
        let cuda = probe.cuda_version_code.and_then(cuda_of_code).map(|version| format!(", CUDA {version}"));
        let driver = run.environment.as_ref().and_then(|environment| environment.kernel_driver.as_ref());
        let driver = driver.map(|driver| format!("driver {driver}{}", cuda.unwrap_or_default()));
        let gpus = probe.gpus.iter().map(|gpu| {
            let numa = gpu.numa_node.map(|node| format!("  NUMA {node}")).unwrap_or_default();
            format!("{:>2}  {}  {}  {}{numa}", gpu.index, gpu.pci_address, gpu.name, Bytes(gpu.memory_bytes))
        });
        about.push(("GPUs:", driver.into_iter().chain(gpus).collect()));
    }
    let nccl: BTreeSet<String> = run
        .ranks
        .iter()
        .filter_map(|rank| {
            let path = rank.nccl.as_ref().map_or("", |library| library.path.as_str());
            Some(format!("{} ({path})", version_of_rank(rank)?))
        })
        .collect();
    about.push(("NCCL:", nccl.into_iter().collect()));
    let was_seen = run.environment.is_some();
    about.push(("settings:", in_effect(run).iter().filter(|_| was_seen).map(InEffect::say).collect()));
    about.retain(|(_, lines)| !lines.is_empty());
    about
}

/// A table with the columns of nccl-tests, without those that are the same in every row.
fn write_rows(out: &mut dyn Write, run: &RunReport) -> io::Result<()> {
    if run.rows.is_empty() {
        return Ok(());
    }
    let place = |name| format!("{name:^32}");
    writeln!(out, "  {:>22}{}{}", "", place("out of place"), place("in place").trim_end())?;
    let columns = format!("  {:>7}  {:>6}  {:>6}  {:>6}", "us", "algbw", "busbw", "wrong");
    writeln!(out, "  {:>12}  {:>8}{columns}{columns}", "bytes", "type")?;
    for row in &run.rows {
        writeln!(
            out,
            "  {:>12}  {:>8}{}{}",
            row.size_bytes,
            row.data_type.name(),
            cells(&row.out_of_place),
            cells(&row.in_place)
        )?;
    }
    let average = run.average_busbw_gb_per_s.map_or("unknown".to_owned(), |average| format!("{average:.2} GB/s"));
    let ranks = if run.ranks == 1 { "1 rank".to_owned() } else { format!("{} ranks", run.ranks) };
    writeln!(out, "  average bus bandwidth of {ranks}: {average}")
}

/// Bus bandwidth of the run next to that of the run over TCP.
fn write_beside(out: &mut dyn Write, run: &RunReport, socket: &SocketReport) -> io::Result<()> {
    let via = |transports: &BTreeMap<String, u64>| match transports.keys().cloned().collect::<Vec<_>>() {
        names if names.is_empty() => "no channel".to_owned(),
        names => names.join(", "),
    };
    let own = run.facts.evidence.as_ref().map(|evidence| via(&evidence.transports)).unwrap_or_default();
    writeln!(out, "  busbw out of place, compared with TCP (this run: {own}; over TCP: {})", via(&socket.transports))?;
    writeln!(out, "  {:>12}  {:>8}  {:>9}  {:>9}  {:>7}", "bytes", "type", "this run", "over TCP", "times")?;
    for row in &run.rows {
        let other = socket.rows.iter().find(|o| (o.size_bytes, o.data_type) == (row.size_bytes, row.data_type));
        let other = other.map(|other| &other.out_of_place);
        let times = other.filter(|_| row.out_of_place.time_us > 0.0).map(|o| o.time_us / row.out_of_place.time_us);
        let cell = |value: Option<f64>, width| value.map_or_else(|| "-".to_owned(), |value| fitting(value, width));
        writeln!(
            out,
            "  {:>12}  {:>8}  {:>9}  {:>9}  {:>7}",
            row.size_bytes,
            row.data_type.name(),
            cell(row.out_of_place.busbw_gb_per_s, 9).trim(),
            cell(other.and_then(|other| other.busbw_gb_per_s), 9).trim(),
            cell(times, 7).trim()
        )?;
    }
    match &socket.failure {
        Some(failure) => writeln!(out, "  the run over TCP is incomplete: {}", visible(failure)),
        None => Ok(()),
    }
}

fn cells(one: &MeasuredReport) -> String {
    let wide = |value: Option<f64>| value.map_or_else(|| format!("{:>6}", "-"), |value| fitting(value, 6));
    let wrong = one.wrong.map_or("-".to_owned(), |wrong| wrong.to_string());
    format!("  {}  {}  {}  {wrong:>6}", fitting(one.time_us, 7), wide(one.algbw_gb_per_s), wide(one.busbw_gb_per_s))
}
