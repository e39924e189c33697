//! Targets and instance types as tables for people. A figure has the number of the document that states it; the list of
//! documents is at the end.

use super::Style;
use super::targets::of_type;
use crate::targets::{Baseline, InstanceType, Source, Sourced, Target, targets_that_list};
use crate::versions::NcclRequirement;
use std::io::{self, Write};

/// The documents that a text cites by number and lists at its end.
#[derive(Default)]
struct Notes {
    sources: Vec<&'static Source>,
}

impl Notes {
    /// `[2]`
    fn mark(&mut self, source: &'static Source) -> String {
        let at = self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        format!("[{}]", at + 1)
    }

    fn figure(&mut self, figure: Option<Sourced<u32>>) -> String {
        match figure {
            Some(figure) => format!("{} {}", figure.value, self.mark(figure.source)),
            None => "-".to_owned(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nsources")?;
        for (at, source) in self.sources.iter().enumerate() {
            writeln!(out, "  [{}] {}, read {}", at + 1, source.title, source.read)?;
            if !source.address.is_empty() {
                writeln!(out, "      {}", source.address)?;
            }
        }
        Ok(())
    }
}

/// Writes a line per target.
pub fn write_targets(out: &mut dyn Write, targets: &[&Target], style: Style) -> io::Result<()> {
    let mut rows =
        vec![["NAME", "PLATFORM", "FABRIC", "CUDA", "NCCL", "PYTHON3", "K8S RESOURCE", "TYPES"].map(String::from)];
    for target in targets {
        let at_least = |version: Option<String>| version.map_or("-".to_owned(), |version| format!(">= {version}"));
        let nccl = |requirement: &NcclRequirement| match requirement {
            NcclRequirement::AtLeast(version) => format!(">= {version}"),
            NcclRequirement::Within(requirement) => requirement.to_string(),
        };
        rows.push([
            target.id.to_owned(),
            target.title.to_string(),
            target.fabric.id.to_owned(),
            at_least(target.minimum_cuda.map(|version| version.to_string())),
            target.minimum_nccl.as_ref().map_or("-".to_owned(), nccl),
            if target.needs_python3 { "needed" } else { "-" }.to_owned(),
            target.device_resource.unwrap_or("-").to_owned(),
            target.instances.len().to_string(),
        ]);
    }
    write_table(out, &rows, "", style)?;
    writeln!(out, "\n-: none, or no document states it. rdmaprep targets NAME shows everything with its source.")
}

/// Writes everything about one target.
pub fn write_target(out: &mut dyn Write, target: &Target, style: Style) -> io::Result<()> {
    let mut notes = Notes::default();
    writeln!(
        out,
        "{}  {}, {} {}",
        style.bold(target.id),
        target.title,
        target.fabric.title,
        notes.mark(target.source)
    )?;
    let sources = target.sources;
    write_demands(out, target, &mut notes, style)?;
    if let (Some(resource), Some(source)) = (target.device_resource, sources.device_resource) {
        heading(out, "devices", style)?;
        writeln!(out, "  {resource} {}", notes.mark(source))?;
    }
    if let Some(source) = sources.docker_flags {
        heading(out, "the vendor's docker run", style)?;
        writeln!(out, "  {} {}", target.docker_flags.join(" "), notes.mark(source))?;
    }
    write_instances(out, target, &mut notes, style)?;
    for baseline in target.baselines {
        write_baseline(out, baseline, &mut notes, style)?;
    }
    if !target.notes.is_empty() {
        heading(out, "besides", style)?;
        for note in target.notes {
            writeln!(out, "  {} {}", note.value, notes.mark(note.source))?;
        }
    }
    notes.write(out)
}

/// What the platform requires of an image, and what it sets in every job.
fn write_demands(out: &mut dyn Write, target: &Target, notes: &mut Notes, style: Style) -> io::Result<()> {
    let sources = target.sources;
    if let Some(source) = sources.minimums {
        let mark = notes.mark(source);
        heading(out, "needs", style)?;
        let cuda = target.minimum_cuda.map(|version| format!("CUDA {version} or newer"));
        let nccl = target.minimum_nccl.as_ref().map(|minimum| format!("NCCL {minimum}"));
        for text in cuda.into_iter().chain(nccl).chain(target.needs_python3.then(|| "python3".to_owned())) {
            writeln!(out, "  {text} {mark}")?;
        }
    }
    if let Some(source) = sources.variables {
        let mark = notes.mark(source);
        heading(out, "sets in every job, overriding the image's", style)?;
        for (name, value) in target.nccl_presets {
            writeln!(out, "  {name}={value} {mark}")?;
        }
        for variable in target.variables {
            match variable.value {
                Some(value) => writeln!(out, "  {}={value} {mark}", variable.name)?,
                None => writeln!(out, "  {}: {} {mark}", variable.name, variable.note)?,
            }
        }
        if !target.nccl_without_effect.is_empty() {
            writeln!(out, "  no effect: {} {mark}", target.nccl_without_effect.join(", "))?;
        }
    }
    Ok(())
}

fn heading(out: &mut dyn Write, text: &str, style: Style) -> io::Result<()> {
    writeln!(out, "\n{}", style.bold(text))
}

fn write_instances(out: &mut dyn Write, target: &Target, notes: &mut Notes, style: Style) -> io::Result<()> {
    if !target.instances.is_empty() {
        let title = match target.sources.instances {
            Some(source) => format!("instance types {}", notes.mark(source)),
            None => "known instance types with eRDMA".to_owned(),
        };
        heading(out, &title, style)?;
        write_types(out, target.instances, notes, style)?;
    }
    if !target.families.is_empty() {
        heading(out, "families without figures for their types", style)?;
        for family in target.families {
            writeln!(out, "  {:<9} {} {}", family.name, family.said.value, notes.mark(family.said.source))?;
        }
    }
    Ok(())
}

fn write_types(out: &mut dyn Write, types: &[&InstanceType], notes: &mut Notes, style: Style) -> io::Result<()> {
    let mut rows = vec![["TYPE", "NICS", "GBIT/S", "RDMA GBIT/S", "GPUS"].map(String::from)];
    for instance in types {
        rows.push([
            instance.name.to_owned(),
            notes.figure(instance.nics),
            notes.figure(instance.bandwidth_gbit_per_s),
            notes.figure(instance.rdma_gbit_per_s),
            notes.figure(instance.gpus),
        ]);
    }
    write_table(out, &rows, "  ", style)
}

/// Settings, command and rows of a reported run.
fn write_baseline(out: &mut dyn Write, baseline: &Baseline, notes: &mut Notes, style: Style) -> io::Result<()> {
    let on = baseline.instance.unwrap_or("an unnamed type");
    let mark = notes.mark(baseline.source);
    heading(out, &format!("bandwidth of {} on {on} {mark}", baseline.layout()), style)?;
    writeln!(out, "  {}\n  {}\n  {}", baseline.command, baseline.settings_text(), baseline.software)?;
    let mut rows =
        vec![["SIZE (B)", "TIME (US)", "ALGBW", "BUSBW (GB/S)", "IN PLACE", "ALGBW", "BUSBW"].map(String::from)];
    for row in baseline.rows {
        rows.push([
            row.size_bytes.to_string(),
            time(row.out_of_place.time_us),
            format!("{:.2}", row.out_of_place.algbw_gb_per_s),
            format!("{:.2}", row.out_of_place.busbw_gb_per_s),
            time(row.in_place.time_us),
            format!("{:.2}", row.in_place.algbw_gb_per_s),
            format!("{:.2}", row.in_place.busbw_gb_per_s),
        ]);
    }
    write_table(out, &rows, "  ", style)
}

/// Writes everything about one instance type.
pub fn write_instance(out: &mut dyn Write, instance: &'static InstanceType, style: Style) -> io::Result<()> {
    let mut notes = Notes::default();
    writeln!(out, "{}", style.bold(instance.name))?;
    for (name, figure) in [
        ("RDMA NICs", instance.nics),
        ("network, Gbit/s", instance.bandwidth_gbit_per_s),
        ("of that RDMA, Gbit/s", instance.rdma_gbit_per_s),
        ("GPUs", instance.gpus),
    ] {
        writeln!(out, "  {name:<21} {}", notes.figure(figure))?;
    }
    let listed = targets_that_list(instance).into_iter();
    let listed: Vec<String> = listed.map(|(target, source)| format!("{} {}", target.id, notes.mark(source))).collect();
    let listed = if listed.is_empty() { "-".to_owned() } else { listed.join(", ") };
    writeln!(out, "  {:<21} {listed}", "listed by")?;
    for baseline in of_type(instance) {
        write_baseline(out, baseline, &mut notes, style)?;
    }
    if of_type(instance).next().is_none() {
        writeln!(out, "\nno document reports a bandwidth for this type")?;
    }
    notes.write(out)
}

/// A size as nccl-tests prints it.
fn time(us: f64) -> String {
    if us < 10_000.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

/// Columns as wide as their widest cell, those of numbers to the right.
fn write_table<const N: usize>(
    out: &mut dyn Write,
    rows: &[[String; N]],
    indent: &str,
    style: Style,
) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let is_number = |column: usize| rows.iter().skip(1).all(|row| row[column].parse::<f64>().is_ok());
    let columns: Vec<(usize, bool)> = (0..N).map(|column| (width(column), is_number(column))).collect();
    for (at, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&columns).map(|(cell, (width, is_number))| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        writeln!(out, "{indent}{}", if at == 0 { style.bold(line) } else { line.to_owned() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TARGETS;

    fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Every number in brackets is in the list at the end, and every document there is cited above.
    #[test]
    fn every_mark_has_its_source() {
        for target in TARGETS {
            let said = text(|out| write_target(out, target, Style { colour: false }));
            let (body, list) = said.split_once("\nsources\n").unwrap();
            let listed = list.lines().filter(|line| line.trim_start().starts_with('[')).count();
            assert!(listed > 0, "{said}");
            for number in 1..=listed {
                assert!(body.contains(&format!("[{number}]")), "{}: [{number}] is not used", target.id);
            }
            assert!(!body.contains(&format!("[{}]", listed + 1)), "{said}");
        }
    }
}
