//! The command line: arguments → one subcommand → exit code. The only place that prints.

mod agent;
mod build;
mod check;
mod clean;
mod destinations;
mod devices;
mod diff;
mod error;
mod explain;
mod images;
mod inspect;
mod job;
mod judge;
mod output;
mod preflight;
mod progress;
mod recipes;
mod render;
mod source;
mod swap;
mod targets;

use crate::judge::Exit;
use crate::signals::EndSignals;
use crate::source::DaemonChoice;
use clap::{Args, Parser, Subcommand, ValueEnum};
use error::{CliError, report_error};
use output::Output;
use std::io::IsTerminal;

const EXAMPLES: &str = "\
Examples:
  rdmaprep check nvcr.io/nvidia/pytorch:24.05-py3   is the image right for PAI-DLC?
  rdmaprep build my/train:1 -t my/train:1-erdma     swap its RDMA userspace, check, show what changed
  rdmaprep render my/train:1 > Dockerfile           only write the Dockerfile
  docker save my/train:1 -o t.tar && rdmaprep check t.tar      in a CI job without Docker
  rdmaprep build cuda-12.4-ubuntu22.04              the same from a shipped recipe; rdmaprep images lists them
  rdmaprep preflight my/train:1-erdma               launch it with this host's GPUs and run an NCCL all-reduce in it
  rdmaprep devices --check                          can a job use this host's RDMA devices?
  rdmaprep job my/train:1-erdma --for pytorchjob -- torchrun train.py      the manifest to submit
  rdmaprep explain train.log                        what an NCCL log shows, and which cause it names
  rdmaprep explain ofed-packages                    what a check means, and where its rule comes from

Exit codes:
  0  every required check passed      3  the image could not be examined, or a required check stayed unknown
  1  the image is at fault            4  the host or a service that it needs is at fault
  2  bad usage, recipe or policy      5  a time limit was reached          130  interrupted";

/// Makes a CUDA container image ready for RDMA training on a cloud fabric, and proves that it is.
#[derive(Debug, Parser)]
#[command(name = "rdmaprep", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "General options")]
struct Global {
    /// Log more on stderr; repeat for more (-vvv: everything)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Log only errors on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// When to colour the output
    #[arg(long, value_enum, default_value_t = Colour::Auto, global = true)]
    color: Colour,
    /// Log format on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Text, global = true)]
    log_format: LogFormat,
    /// Address of the Docker daemon; overrides DOCKER_HOST and contexts
    #[arg(short = 'H', long, value_name = "URL", global = true)]
    host: Option<String>,
    /// Docker context to use
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "host")]
    context: Option<String>,
}

impl Global {
    /// The daemon that the arguments name, if they name one.
    fn daemon(&self) -> DaemonChoice {
        DaemonChoice { host: self.host.clone(), context: self.context.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

/// Format of a result that is for people or for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TextOrJson {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what an image contains, without judging it
    Inspect(inspect::InspectArgs),
    /// Judge an image for a target, without running it
    Check(check::CheckArgs),
    /// Explain a log and the causes it names, or a check and the source of its rule
    Explain(explain::ExplainArgs),
    /// Write the Dockerfile that swaps an image's RDMA userspace
    Render(render::RenderArgs),
    /// Render, build through the Docker API, check the result and show what changed
    Build(build::BuildArgs),
    /// Show the shipped recipes, or everything one states
    Images(images::ImagesArgs),
    /// Show the differences between two images that matter for RDMA
    Diff(diff::DiffArgs),
    /// Launch an image as a job would be, run an NCCL all-reduce in it and judge the result
    Preflight(Box<preflight::PreflightArgs>),
    /// Write the job that runs a command in an image on several hosts, for a scheduler
    Job(Box<job::JobArgs>),
    /// Show the RDMA devices, GPUs and drivers of this host, judge them, or watch their traffic
    Devices(Box<devices::DevicesArgs>),
    /// Show the known targets, with the source of every figure
    Targets(targets::TargetsArgs),
    /// Remove containers left behind by an interrupted run
    Clean(clean::CleanArgs),
    /// Run inside a container
    #[command(subcommand, hide = true)]
    Agent(agent::AgentPart),
}

/// Parses the arguments of this process and runs.
pub fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` take this path too.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            return if error.print().is_ok() { exit } else { Exit::Usage };
        }
    };
    start_log(&cli.global);
    let mut output = Output::new(cli.global.color);
    let result = match &cli.command {
        Command::Inspect(args) => inspect::run(args, &cli.global, &mut output),
        Command::Check(args) => check::run(args, &cli.global, &mut output),
        Command::Explain(args) => explain::run(args, &mut output),
        Command::Render(args) => render::run(args, &cli.global, &mut output),
        Command::Build(args) => build::run(args, &cli.global, &mut output),
        Command::Images(args) => images::run(args, &mut output),
        Command::Diff(args) => diff::run(args, &cli.global, &mut output),
        Command::Preflight(args) => preflight::run(args, &cli.global, &mut output),
        Command::Job(args) => job::run(args, &cli.global, &mut output),
        Command::Devices(args) => devices::run(args, &mut output),
        Command::Targets(args) => targets::run(args, &mut output),
        Command::Clean(args) => clean::run(args, &cli.global, &mut output),
        Command::Agent(part) => agent::run(part),
    };
    match result.and_then(|exit| output.finish().map(|()| exit)) {
        Ok(exit) => exit,
        Err(error) => {
            report_error(&error, cli.global.log_format == LogFormat::Json);
            error.exit()
        }
    }
}

fn start_log(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => tracing::Level::ERROR,
        (false, 0) => tracing::Level::WARN,
        (false, 1) => tracing::Level::INFO,
        (false, 2) => tracing::Level::DEBUG,
        (false, _) => tracing::Level::TRACE,
    };
    let ansi = match global.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => std::io::stderr().is_terminal(),
    };
    // Libraries log only at the highest verbosity.
    let filter = tracing_subscriber::EnvFilter::new(match global.verbose {
        0..=2 => format!("off,rdmaprep={level}"),
        _ => format!("debug,rdmaprep={level}"),
    });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second call in one process, such as a test, changes nothing.
    let _ = match global.log_format {
        LogFormat::Text => builder.without_time().with_target(false).with_ansi(ansi).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Runs the asynchronous part of a command; an interrupt ends it.
fn block_on<T>(future: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| CliError::Runtime { source })?;
    let result = runtime.block_on(future);
    // An abandoned save may still wait for the daemon: it must not keep the process alive.
    runtime.shutdown_background();
    result
}

/// Runs until told to end.
async fn or_interrupted<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    tokio::select! {
        result = work => result,
        () = interrupted() => Err(CliError::Interrupted),
    }
}

/// Resolves when the process is told to end; never if it cannot listen for signals, whose default then ends it.
async fn interrupted() {
    match EndSignals::listen() {
        Ok(mut signals) => signals.received().await,
        Err(_) => std::future::pending().await,
    }
}
