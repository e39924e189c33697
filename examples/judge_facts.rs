//! Judges facts that `rdmaprep inspect IMAGE --format json` saved: `cargo run --example judge_facts -- FACTS.json [TARGET]`.
//!
//! The exit code is that of `rdmaprep check`: 0 where every required check passed, 1 where the image is at fault.

use rdmaprep::judge::{Judge, verdict_exit};
use rdmaprep::report::{Format, Style, write_report};
use rdmaprep::source::load_saved;
use rdmaprep::targets;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("name a file of facts")?;
    let name = args.next().unwrap_or_else(|| "pai-dlc".to_owned());
    let target = targets::by_id(&name).ok_or_else(|| format!("known targets: {}", targets::known()))?;
    let report = Judge::new(target).judge(&load_saved(Path::new(&file))?);
    write_report(&mut std::io::stdout(), &report, Format::Text, false, Style { colour: false })?;
    Ok(verdict_exit(report.verdict).into())
}
