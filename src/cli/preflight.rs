//! `rdmaprep preflight`

use super::destinations::{Destination, destination_of, destinations, format_of, write_everywhere};
use super::error::CliError;
use super::judge::JudgeArgs;
use super::output::Output;
use super::progress::{Progress, ProgressMode};
use super::{Global, block_on, interrupted};
use crate::checks::RunOptions;
use crate::docker::container_spec::Bind;
use crate::docker::redact::HIDDEN;
use crate::facts::run::{
    AgentMessage, AgentPlan, Collective, DataType, GpuSelection, LaunchFacts, PROTOCOL, Placement, Plant, RunFacts,
};
use crate::image::reference::Reference;
use crate::judge::Exit;
use crate::judge::{RunContext, preflight_exit};
use crate::launch::gpu_access::{Wanted, parse_selection};
use crate::launch::owner::Owner;
use crate::launch::preflight::{NcclChoice, Preflight, PreflightRequest, Step, prepare};
use crate::launch::run::agent_command;
use crate::launch::spec::{
    AGENT_RUN_DIRECTORY, ExtraDevice, LaunchOptions, can_start_agent, parse_device, parse_mount,
};
use crate::launch::variables::UserVariable;
use crate::remedy::with_remedy;
use crate::report::{Format, write_report};
use crate::source::{self, Client, LayerCache, load_from_daemon};
use crate::units::Bytes;
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  rdmaprep preflight my/train:1-erdma                          every GPU of this host, as a job would get it
  rdmaprep preflight my/train:1-erdma --force-nic --require-rdma    through the NICs even within one host
  rdmaprep preflight my/train:1 --instance ebmgn8v.48xlarge    has the host the NICs of its type, and their bandwidth?
  rdmaprep preflight my/train:1 --gpus 1 --ranks-per-gpu 2     the network's way with a single GPU
  rdmaprep preflight my/train:1 -b 8 -e 1G -f 2 -n 50 --format nccl-tests > all_reduce.txt
  rdmaprep preflight my/train:1 -o junit=preflight.xml -o json=preflight.json
  rdmaprep preflight my/train:1 --dry-run                      only show the docker run line";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PreflightArgs {
    /// Image in the daemon
    image: String,
    #[command(flatten)]
    judge: JudgeArgs,
    /// Judge only the run, not the image's content
    #[arg(long)]
    run_only: bool,
    /// Fail unless RDMA is proved to have carried the data
    #[arg(long)]
    require_rdma: bool,
    /// Fail below this average bus bandwidth
    #[arg(long, value_name = "GB/S", value_parser = parse_bandwidth)]
    min_busbw: Option<f64>,
    /// Output format on stdout [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = format_of(Format::OF_RUNS))]
    format: Option<Format>,
    /// Write the result to a file in a format; may be repeated; - is stdout
    #[arg(short, long = "output", value_name = "FORMAT=FILE", value_parser = destination_of(Format::OF_RUNS))]
    outputs: Vec<Destination>,
    /// Repeat the run over TCP and show both side by side
    #[arg(long)]
    compare_socket: bool,
    /// Also show what passed
    #[arg(long)]
    all: bool,
    /// Keep every rank's NCCL log in this directory
    #[arg(long, value_name = "DIR")]
    nccl_logs: Option<PathBuf>,
    /// Progress format on stderr; auto is a live line on a terminal, else plain lines
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    #[command(flatten)]
    collective: CollectiveArgs,
    #[command(flatten)]
    launch: LaunchArgs,
}

/// What to measure; the letters are those of nccl-tests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the all-reduce")]
struct CollectiveArgs {
    /// Smallest size in bytes, with K, M or G for powers of 1024
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "32K", value_parser = parse_size)]
    min_bytes: u64,
    /// Largest size in bytes; reduced to what the GPUs can hold
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    max_bytes: u64,
    /// Factor between sizes
    #[arg(short = 'f', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    step_factor: u64,
    /// Bytes between sizes, instead of a factor
    #[arg(short = 'i', long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "step_factor")]
    step_bytes: Option<u64>,
    /// Timed operations per size
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Warm-up operations per size
    #[arg(short = 'w', long, value_name = "N", default_value_t = 1)]
    warmup_iters: u32,
    /// Element types, separated by commas
    #[arg(short = 'd', long, value_name = "TYPE", value_enum, value_delimiter = ',', default_value = "float")]
    datatype: Vec<ElementType>,
    /// Whether to check the results: 0 or 1
    #[arg(short = 'c', long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    check: u8,
    /// GPUs: all, a count, or a list of indices such as 0,2 (2, for index 2 alone)
    #[arg(long, value_name = "all|N|LIST", default_value = "all", value_parser = parse_selection)]
    gpus: GpuSelection,
    /// Ranks per GPU; with more than one, ranks communicate over the network
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks_per_gpu: u32,
    /// Send through the NICs even within this host: turns off NCCL's P2P, shared memory and NVLS
    #[arg(long)]
    force_nic: bool,
    /// libnccl to use: auto (torch's, if there is torch), loader (what the loader finds), or a path in the image
    #[arg(long, value_name = "auto|loader|PATH", default_value = "auto")]
    nccl: String,
    /// Corrupt one element of a result before it is checked, to see that the check finds it
    #[arg(long, value_name = "RANK:SIZE:out-of-place|in-place:ELEMENT", value_parser = parse_plant)]
    plant_wrong: Option<Plant>,
    /// Time limit for the whole run, in seconds
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
    /// Time limit for each phase of a rank (bootstrap, init, connect, each size), in seconds
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    phase_timeout: u64,
}

/// How to start the container.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the launch")]
struct LaunchArgs {
    /// Only show the equivalent docker run line and the variables
    #[arg(long)]
    dry_run: bool,
    /// How the container gets GPUs: auto, nvidia (its toolkit), cdi, plain (device nodes and libraries), or none
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = Wanted::from_str)]
    gpu_access: Wanted,
    /// RDMA device to pass; may be repeated [default: every device of the target's fabric]
    #[arg(long, value_name = "NAME")]
    rdma_device: Vec<String>,
    /// Variable of the container, overriding all others; NAME alone takes this process's value
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    env: Vec<UserVariable>,
    /// Do not set the variables that the target presets
    #[arg(long)]
    no_presets: bool,
    /// Another device, as in docker run
    #[arg(long, value_name = "HOST[:CONTAINER[:PERMISSIONS]]", value_parser = device)]
    device: Vec<ExtraDevice>,
    /// Another file or directory, as in docker run -v
    #[arg(long, value_name = "SOURCE:TARGET[:ro]", value_parser = mount)]
    mount: Vec<Bind>,
    /// Network, as in docker run [default: host]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Separate /dev/shm of this size [default: the host's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    shm_size: Option<u64>,
    /// All privileges, as in the vendors' own commands
    #[arg(long)]
    privileged: bool,
    /// Start through the image's entrypoint
    #[arg(long)]
    keep_entrypoint: bool,
    /// Program to put into the container: an rdmaprep for its processor and C library [default: this one]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ElementType {
    Float,
    Half,
    Bfloat16,
}

impl From<ElementType> for DataType {
    fn from(element: ElementType) -> DataType {
        match element {
            ElementType::Float => DataType::Float,
            ElementType::Half => DataType::Half,
            ElementType::Bfloat16 => DataType::Bfloat16,
        }
    }
}

pub(super) fn run(args: &PreflightArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let destinations = destinations(args.format, &args.outputs)?;
    let (Reference::Daemon(name) | Reference::Name(name)) = source::parse(&args.image)? else {
        let hint = "load it first: docker load -i FILE";
        return Err(CliError::Usage(format!("{}: a preflight runs an image in the daemon\n  {hint}", args.image)));
    };
    let judge = args.judge.load(None)?;
    let collective = args.collective.collective()?;
    let program = agent_program(args.launch.agent.as_deref())?;
    if let Some(directory) = &args.nccl_logs {
        let failed = |source| CliError::Write { failures: vec![(directory.display().to_string(), source)] };
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let client = Client::load(&global.daemon())?;
    let progress = Progress::new(args.progress, global);
    let prepared = block_on(async {
        // One watch for everything: between two, a signal would be lost.
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        tokio::spawn(async move {
            interrupted().await;
            stop.cancel();
        });
        let preparing = async {
            let engine = client.connect().await?;
            progress.phase(&format!("reading {name}"));
            let facts = load_from_daemon(&engine, &name, &LayerCache::default()).await?;
            let prepared = prepare(&engine, &facts, args.request(collective)).await?;
            Ok::<_, CliError>((engine, facts, prepared))
        };
        let (engine, facts, prepared) = tokio::select! {
            prepared = preparing => prepared?,
            () = cancel.cancelled() => return Err(CliError::Interrupted),
        };
        if args.launch.dry_run {
            return Ok((prepared, facts, None));
        }
        can_start_agent(&facts).map_err(CliError::CannotStart)?;
        let ran = prepared.run(&engine, &program, &mut |step| show(&progress, &step), &cancel).await?;
        Ok((prepared, facts, Some(ran)))
    });
    let (prepared, facts, ran) = prepared?;
    progress.finish();
    let Some(Preflight { run, over_socket }) = ran else {
        output.write(|out, _| write_dry_run(out, &prepared.launch.facts));
        return Ok(Exit::Ok);
    };
    let mut failures = Vec::new();
    if let Some(directory) = &args.nccl_logs {
        failures = keep_logs(directory, &run);
    }
    let options = RunOptions { require_rdma: args.require_rdma, min_busbw_gb_per_s: args.min_busbw };
    let ending = run.ending.clone();
    let context = RunContext { image: facts.image.clone(), facts: Some(&facts), checks_image: !args.run_only, options };
    let mut report = judge.judge_run(run, context);
    if let Some(socket) = over_socket {
        report.compare_with_socket(&socket);
    }
    write_everywhere(&destinations, output, |format, out, style| write_report(out, &report, format, args.all, style))?;
    if !failures.is_empty() {
        return Err(CliError::Write { failures });
    }
    Ok(preflight_exit(&report.findings, report.fail_on, &ending))
}

impl PreflightArgs {
    fn request(&self, collective: Collective) -> PreflightRequest<'_> {
        let PreflightArgs { collective: asked, launch, .. } = self;
        let owner = Owner::load(Path::new("/"), std::process::id());
        PreflightRequest {
            target: self.judge.target(None),
            access: launch.gpu_access,
            gpus: asked.gpus.clone(),
            nccl: match asked.nccl.as_str() {
                "auto" => NcclChoice::Auto,
                "loader" => NcclChoice::Loader,
                path => NcclChoice::Path(path.to_owned()),
            },
            plan: AgentPlan {
                protocol: PROTOCOL,
                directory: AGENT_RUN_DIRECTORY.to_owned(),
                gpus: asked.gpus.clone(),
                ranks_per_gpu: asked.ranks_per_gpu,
                nccl: None,
                collective,
                phase_timeout_ms: asked.phase_timeout.saturating_mul(1000),
                total_timeout_ms: asked.timeout.saturating_mul(1000),
                plant: asked.plant_wrong.clone(),
            },
            options: LaunchOptions {
                keep_entrypoint: launch.keep_entrypoint,
                rdma_devices: launch.rdma_device.clone(),
                devices: launch.device.clone(),
                mounts: launch.mount.clone(),
                env: launch.env.clone(),
                presets: !launch.no_presets,
                force_nic: asked.force_nic,
                ranks_per_gpu: asked.ranks_per_gpu,
                privileged: launch.privileged,
                network: launch.network.clone(),
                shm_bytes: launch.shm_size,
                ..LaunchOptions::new(&run_id(), owner, agent_command())
            },
            compare_socket: self.compare_socket,
        }
    }
}

fn show(progress: &Progress, step: &Step<'_>) {
    match step {
        Step::Starting(image) => progress.phase(&format!("starting {image}")),
        Step::OverSocket => progress.phase("once more, over TCP"),
        Step::Said(message) => {
            if let Some(text) = say(message) {
                progress.phase(&text);
            }
        }
    }
}

/// The line of progress for a message, if any.
fn say(message: &AgentMessage) -> Option<String> {
    match message {
        AgentMessage::Gpus(probe) => {
            let first = probe.gpus.first()?;
            let plural = if probe.gpus.len() == 1 { "" } else { "s" };
            Some(format!("{} GPU{plural} ({}): asking NCCL", probe.gpus.len(), first.name))
        }
        AgentMessage::Phase { rank: 0, phase } => match phase {
            crate::facts::run::Phase::Init => Some("ranks meet".to_owned()),
            crate::facts::run::Phase::Connect => Some("ranks connect".to_owned()),
            _ => None,
        },
        AgentMessage::Reduced { max_bytes } => Some(format!("the GPUs hold {} at most", Bytes(*max_bytes))),
        AgentMessage::Row(row) => {
            let wrong = [&row.out_of_place, &row.in_place].iter().filter_map(|one| one.wrong).sum::<u64>();
            let wrong = if wrong > 0 { format!(", {wrong} WRONG") } else { String::new() };
            let (size, out, inside) = (row.size_bytes, row.out_of_place.time_us, row.in_place.time_us);
            Some(format!("{} {size} B: {out:.1} us out of place, {inside:.1} us in place{wrong}", row.data_type.name()))
        }
        AgentMessage::Failure(failure) => Some(format!("rank {} failed in {}", failure.rank, failure.phase)),
        _ => None,
    }
}

fn write_dry_run(out: &mut dyn Write, facts: &LaunchFacts) -> io::Result<()> {
    writeln!(out, "{}", facts.command_line)?;
    writeln!(out, "# GPU access: {} ({})", facts.gpu_access, facts.gpu_access_reason)?;
    for variable in &facts.variables {
        let origin = match variable.origin {
            crate::facts::run::Origin::Image => "image",
            crate::facts::run::Origin::Preset => "preset",
            // The line has only the names of secrets.
            crate::facts::run::Origin::User if variable.value == HIDDEN => {
                "user; from the environment of the shell that runs the line"
            }
            crate::facts::run::Origin::User => "user",
            crate::facts::run::Origin::Run => "this run",
        };
        writeln!(out, "# {}={} ({origin})", variable.name, variable.value)?;
    }
    Ok(())
}

/// Writes every rank's log; returns what could not be written.
fn keep_logs(directory: &Path, run: &RunFacts) -> Vec<(String, io::Error)> {
    let mut failures = Vec::new();
    for rank in &run.ranks {
        let path = directory.join(format!("rank-{}.log", rank.rank));
        if let Err(error) = std::fs::write(&path, &rank.log) {
            failures.push((path.display().to_string(), error));
        }
    }
    failures
}

/// The file that goes into the container.
fn agent_program(named: Option<&Path>) -> Result<PathBuf, CliError> {
    match named {
        Some(path) => match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(path.to_owned()),
            Ok(_) => Err(CliError::Usage(format!("--agent {}: it is not a file", path.display()))),
            Err(source) => Err(CliError::File { path: path.display().to_string(), source }),
        },
        None => std::env::current_exe().map_err(|source| CliError::Runtime { source }),
    }
}

/// The run's name: time and process.
fn run_id() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{:x}-{}", now.as_millis(), std::process::id())
}

impl CollectiveArgs {
    fn collective(&self) -> Result<Collective, CliError> {
        if self.min_bytes > self.max_bytes {
            let (min, max) = (self.min_bytes, self.max_bytes);
            return Err(CliError::Usage(format!("-b {min} is more than -e {max}: no size is left to measure")));
        }
        let data_types: Vec<DataType> = self.datatype.iter().copied().map(DataType::from).collect();
        if let Some(data_type) = data_types.iter().find(|data_type| self.min_bytes < data_type.size()) {
            let (name, size) = (data_type.name(), data_type.size());
            return Err(CliError::Usage(format!("-b {} is less than one {name}, which has {size} B", self.min_bytes)));
        }
        let collective = Collective {
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            step_factor: if self.step_bytes.is_some() { 1 } else { self.step_factor },
            step_bytes: self.step_bytes.unwrap_or(0),
            iterations: self.iters,
            warmup: self.warmup_iters,
            data_types,
            check: self.check == 1,
        };
        const MOST_SIZES: usize = 10_000;
        let count = collective.sizes().len();
        if count > MOST_SIZES {
            return Err(CliError::Usage(format!("-i makes {count} sizes; at most {MOST_SIZES} are measured")));
        }
        Ok(collective)
    }
}

/// A size in bytes: a whole number, with K, M or G for powers of 1024, as nccl-tests reads it.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a valid size: write bytes, such as 32K, 256M or 4G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        // CUDA's pointers have 57 bits at most.
        Some(size @ 1..=0x1ff_ffff_ffff_ffff) => Ok(size),
        Some(_) | None => Err(wrong()),
    }
}

fn parse_plant(text: &str) -> Result<Plant, String> {
    let wrong = || format!("{text:?}: write RANK:SIZE:PLACEMENT:ELEMENT, as 0:1M:out-of-place:1234");
    let parts: Vec<&str> = text.split(':').collect();
    let [rank, size, placement, element] = parts[..] else { return Err(wrong()) };
    Ok(Plant {
        rank: rank.parse().map_err(|_| wrong())?,
        size_bytes: parse_size(size)?,
        placement: match placement {
            "out-of-place" => Placement::OutOfPlace,
            "in-place" => Placement::InPlace,
            _ => return Err(wrong()),
        },
        element: element.parse().map_err(|_| wrong())?,
    })
}

fn parse_bandwidth(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err(format!("{text:?} is not a valid bandwidth: write GB/s, such as 40 or 92.5")),
    }
}

fn parse_variable(text: &str) -> Result<UserVariable, String> {
    UserVariable::parse(text, |name| std::env::var(name).ok()).map_err(|error| with_remedy(&error))
}

fn device(text: &str) -> Result<ExtraDevice, String> {
    parse_device(text).map_err(|error| with_remedy(&error))
}

fn mount(text: &str) -> Result<Bind, String> {
    parse_mount(text).map_err(|error| with_remedy(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_nccl_tests() {
        for (text, size) in
            [("8", 8), ("32K", 32 << 10), ("1m", 1 << 20), ("4G", 4 << 30), ("16B", 16), ("2MiB", 2 << 20)]
        {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in ["", "K", "0", "-1", "1T", "1.5G", "1 G", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_planted_element_is_named_in_full() {
        let plant = parse_plant("1:1M:in-place:7").unwrap();
        let expected = Plant { rank: 1, size_bytes: 1 << 20, placement: Placement::InPlace, element: 7 };
        assert_eq!(plant, expected);
        for text in ["", "1:1M:in-place", "1:1M:x:7", "a:1M:in-place:7", "1:x:in-place:7", "1:1M:in-place:-7"] {
            assert!(parse_plant(text).is_err(), "{text}");
        }
    }
}
