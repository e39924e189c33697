//! `rdmaprep devices`

use super::destinations::{Destination, destination_of, destinations, format_of, write_everywhere};
use super::error::CliError;
use super::judge::JudgeArgs;
use super::output::Output;
use super::{block_on, interrupted};
use crate::devices::{self, Watch};
use crate::facts::devices::TrafficSample;
use crate::judge::Exit;
use crate::judge::host_exit;
use crate::loopback;
use crate::report::loopback::text as loopback_text;
use crate::report::{Format, Totals, write_devices, write_json, write_report, write_sample, write_totals};
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EXAMPLES: &str = "\
Examples:
  rdmaprep devices                            of this host, or of the container that it runs in
  rdmaprep devices erdma_0 --format json      all that is known of one device
  rdmaprep devices --check --target pai-dlc   can a job use them? 4: it cannot, 3: not known
  rdmaprep devices --check --instance ecs.ebmgn8v.48xlarge     has it the NICs of its type?
  rdmaprep devices --check --nics 2 -o junit=host.xml
  rdmaprep devices --loopback                 does the device path work? RDMA writes to itself, verified
  rdmaprep devices --watch --interval 2       traffic per device, until Ctrl-C
  rdmaprep devices --sysfs captured           a directory with the sys, proc and dev of a host";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DevicesArgs {
    /// Show only these RDMA devices [default: all, and the host]
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    /// Judge whether a job of the target can use the host's devices
    #[arg(long, conflicts_with_all = ["devices", "watch"])]
    check: bool,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Expected number of devices of the target's fabric, for --check [default: that of the --instance type]
    #[arg(long, value_name = "N", requires = "check")]
    nics: Option<u32>,
    /// Also show what passed, with --check
    #[arg(long, requires = "check")]
    all: bool,
    /// Show traffic continuously
    #[arg(long, conflicts_with = "outputs")]
    watch: bool,
    /// Seconds between samples, with --watch
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Stop after this many samples, with --watch [default: at Ctrl-C]
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write from each device to itself over RDMA and verify every byte: proves the device without a second host
    #[arg(long, conflicts_with_all = ["check", "watch", "sysfs"])]
    loopback: bool,
    /// Slot of the GID table, with --loopback [default: the one that NCCL uses]
    #[arg(long, value_name = "N", requires = "loopback")]
    gid_index: Option<u32>,
    /// Message size in bytes, with --loopback [default: 64 KiB to 8 MiB by factors of two]
    #[arg(long, value_name = "BYTES", requires = "loopback", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(4096..=8 << 20))]
    sizes: Vec<u64>,
    /// Corrupt this message before it is verified, to see that the check finds it, with --loopback
    #[arg(long, value_name = "N", requires = "loopback", value_parser = clap::value_parser!(u32).range(1..))]
    plant_wrong: Option<u32>,
    /// Read a captured tree instead of this host: a directory with sys, and proc and dev if captured
    #[arg(long, value_name = "DIR")]
    sysfs: Option<PathBuf>,
    /// Output format on stdout [default: text]; junit, sarif and github are for --check
    #[arg(long, value_name = "FORMAT", value_parser = format_of(Format::OF_REPORTS))]
    format: Option<Format>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = destination_of(Format::OF_REPORTS))]
    outputs: Vec<Destination>,
}

/// Seconds, long enough that more than the reading itself is measured.
fn parse_interval(text: &str) -> Result<f64, String> {
    const SHORTEST_S: f64 = 0.05;
    const LONGEST_S: f64 = 86_400.0;
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds, such as 2 or 0.5".to_owned())?;
    if (SHORTEST_S..=LONGEST_S).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("from {SHORTEST_S} to {LONGEST_S} seconds"))
    }
}

pub(super) fn run(args: &DevicesArgs, output: &mut Output) -> Result<Exit, CliError> {
    let places = destinations(args.format, &args.outputs)?;
    if !args.check && places.iter().any(|place| place.format().is_of_a_verdict()) {
        return Err(CliError::Usage("the formats junit, sarif and github show verdicts: add --check".into()));
    }
    if !args.check && args.judge.instance.is_some() {
        return Err(CliError::Usage("--instance states what the host should have: add --check".into()));
    }
    if let Some(root) = &args.sysfs {
        devices::check_root(root).map_err(|what| CliError::Usage(format!("--sysfs {}: {what}", root.display())))?;
    }
    if args.watch {
        return watch(args, output);
    }
    if args.loopback {
        return loopback(args, &places, output);
    }
    let judge = args.judge.load(None)?;
    let mut facts = match &args.sysfs {
        Some(root) => devices::load_captured(root),
        None => devices::load_live(),
    };
    if args.check {
        let report = judge.judge_host(facts, args.nics);
        write_everywhere(&places, output, |format, out, style| write_report(out, &report, format, args.all, style))?;
        return Ok(host_exit(report.verdict));
    }
    choose(&facts.rdma_devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>(), &args.devices)?;
    if !args.devices.is_empty() {
        facts.rdma_devices.retain(|device| args.devices.contains(&device.name));
    }
    write_everywhere(&places, output, |format, out, style| match format {
        Format::Text => write_devices(out, &facts, &args.devices, style),
        _ => write_json(out, &facts),
    })?;
    Ok(Exit::Ok)
}

fn loopback(args: &DevicesArgs, places: &[Destination], output: &mut Output) -> Result<Exit, CliError> {
    let mut options = loopback::Options {
        devices: args.devices.clone(),
        gid_index: args.gid_index,
        plant: args.plant_wrong,
        ..loopback::Options::default()
    };
    if !args.sizes.is_empty() {
        options.sizes.clone_from(&args.sizes);
    }
    let report = loopback::run(&options);
    write_everywhere(places, output, |format, out, _| match format {
        Format::Text => out.write_all(loopback_text(&report).as_bytes()),
        _ => write_json(out, &report),
    })?;
    Ok(if report.is_proven() { Exit::Ok } else { Exit::Host })
}

/// # Errors
/// No device has the name.
fn choose(known: &[String], wanted: &[String]) -> Result<(), CliError> {
    let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) else { return Ok(()) };
    let known =
        if known.is_empty() { "this host has none".to_owned() } else { format!("known devices: {}", known.join(", ")) };
    Err(CliError::Usage(format!("there is no RDMA device {unknown:?}\n  {known}")))
}

/// Shows traffic until interrupted, or for the requested number of samples.
fn watch(args: &DevicesArgs, output: &mut Output) -> Result<Exit, CliError> {
    let root = args.sysfs.as_deref().unwrap_or(Path::new("/"));
    choose(&devices::names(root), &args.devices)?;
    let mut watch = Watch::start(root, &args.devices);
    let interval = Duration::from_secs_f64(args.interval);
    let is_json = args.format == Some(Format::Json);
    let in_place = !is_json && io::stdout().is_terminal();
    let mut totals = Totals::default();
    let ended = block_on(async {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut shown = 0;
        let mut height = 0;
        let end = interrupted();
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return Ok(Exit::Interrupted),
                _ = ticks.tick() => {}
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
            let sample = watch.sample(now);
            totals.add(&sample);
            output.write(|out, _| show(out, &sample, is_json, if in_place { height } else { 0 }));
            height = 1 + sample.ports.len().max(1);
            shown += 1;
            if args.count == Some(shown) || output.is_closed() {
                return Ok(Exit::Ok);
            }
        }
    })?;
    if !is_json {
        output.write(|out, _| write_totals(out, &totals));
    }
    Ok(ended)
}

/// Writes a sample over the `height` lines of the previous one.
fn show(out: &mut dyn Write, sample: &TrafficSample, is_json: bool, height: usize) -> io::Result<()> {
    if is_json {
        serde_json::to_writer(&mut *out, sample)?;
        return writeln!(out);
    }
    if height > 0 {
        // Up, and clear to the end of the screen (ECMA-48, CPL and ED).
        write!(out, "\x1b[{height}F\x1b[J")?;
    }
    write_sample(out, sample)
}
