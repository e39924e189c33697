//! `rdmaprep job`

use super::destinations::write_file;
use super::error::CliError;
use super::output::Output;
use super::{Global, LogFormat};
use crate::job::{
    ArenaKind, Format, Job, JobSpec, Notation, PaiPlace, Quantity, RdmaNodes, UserCommand, Workload, default_name,
    write_job,
};
use crate::judge::Exit;
use crate::launch::host::{CDI_DIRECTORIES, load_host};
use crate::launch::variables::UserVariable;
use crate::remedy::with_remedy;
use crate::targets::{self, Target};
use clap::{Args, ValueEnum};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  rdmaprep job example.com/train:1 --for pytorchjob -o job.yaml \\
      -- torchrun train.py
  rdmaprep job example.com/train:1 --for mpijob --workers 4 \\
      -- all_reduce_perf -b 8 -e 1G -f 2 -g 1
  rdmaprep job example.com/train:1 --for pai-dlc -o job.json \\
      --instance ecs.ebmgn8v.48xlarge --command 'torchrun \\
      --nnodes=$WORLD_SIZE --node_rank=$RANK --nproc_per_node=$NPROC_PER_NODE \\
      --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py'
  rdmaprep job example.com/train:1 --for arena --target cce --kind pytorchjob \\
      -- torchrun train.py
  rdmaprep job my/train:1-erdma --for docker --nics 2 -- python train.py

Only the job goes to stdout; what to know about it is on stderr (-q leaves it out).";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct JobArgs {
    /// Image as the job's hosts pull it; it need not exist here
    image: String,
    /// Job format: CreateJob of PAI-DLC, a manifest for mpi-operator or training-operator, or a command line
    #[arg(long = "for", value_name = "FORMAT", value_enum)]
    format_for: For,
    /// Program and arguments, passed to the job unchanged
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
    /// A line for the image's /bin/sh, instead of a program
    #[arg(long, value_name = "LINE", conflicts_with = "program")]
    command: Option<String>,
    /// Where the hosts are, which determines devices and variables: ack or cce for clusters, also ecs for docker
    /// [default: pai-dlc for pai-dlc, ecs for docker, else ack]
    #[arg(long, value_name = "NAME", value_parser = parse_target)]
    target: Option<&'static Target>,
    /// Name of the job [default: derived from the image]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Variable of the job, overriding all others; NAME alone takes this process's value
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = parse_variable)]
    env: Vec<UserVariable>,
    /// Network interface over which the ranks meet [default: NCCL's choice]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Notation of a manifest [default: yaml; json for pai-dlc]
    #[arg(long, value_enum)]
    format: Option<Notations>,
    /// Write the job to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    size: SizeArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    pai: PaiArgs,
    /// Number of RDMA NICs of a docker host, from /dev/infiniband/uverbs0 on [default: those of the target's fabric here,
    /// else all that the host has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Options of docker")]
    nics: Option<u32>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Size of the job")]
struct SizeArgs {
    /// Number of hosts [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// GPUs per host [default: 8; all with docker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    gpus_per_worker: Option<u32>,
    /// Cores per worker, such as 64
    #[arg(long, value_name = "CORES")]
    cpu: Option<Quantity>,
    /// Memory per worker, such as 512Gi
    #[arg(long, value_name = "SIZE")]
    memory: Option<Quantity>,
    /// Size of /dev/shm, such as 64Gi [default: the pod's memory; 8Gi with docker; PAI's and arena's own]
    #[arg(long, value_name = "SIZE")]
    shared_memory: Option<Quantity>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of clusters")]
struct ClusterArgs {
    /// Namespace of the job
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// What arena submits [default: mpijob]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Port that the job uses on each host [default: 12345 for mpijob's sshd, 23456 for pytorchjob's master]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Also run on tainted nodes
    #[arg(long)]
    tolerate_all: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of PAI-DLC")]
struct PaiArgs {
    /// Workspace [default: the account's]
    #[arg(long, value_name = "ID")]
    workspace_id: Option<String>,
    /// Quota that the job runs on
    #[arg(long, value_name = "ID")]
    resource_id: Option<String>,
    /// Instance type of a worker, instead of a share of the quota
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["cpu", "memory", "shared_memory", "gpus_per_worker"])]
    instance: Option<String>,
    /// Region, for the line that submits the job
    #[arg(long, value_name = "ID")]
    region: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum For {
    PaiDlc,
    Mpijob,
    Pytorchjob,
    Arena,
    Docker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Notations {
    Yaml,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Mpijob,
    Pytorchjob,
}

fn parse_target(name: &str) -> Result<&'static Target, String> {
    targets::by_id(name).ok_or_else(|| format!("known targets: {}", targets::known()))
}

fn parse_variable(text: &str) -> Result<UserVariable, String> {
    UserVariable::parse(text, |name| std::env::var(name).ok()).map_err(|error| with_remedy(&error))
}

pub(super) fn run(args: &JobArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let target = target(args)?;
    check_options(args)?;
    let spec = JobSpec {
        name: args.name.clone().unwrap_or_else(|| default_name(&args.image)),
        image: args.image.clone(),
        workload: Workload::Command(match &args.command {
            Some(line) => UserCommand::Shell(line.clone()),
            None => UserCommand::Arguments(args.program.clone()),
        }),
        workers: args.size.workers.unwrap_or(2),
        gpus_per_worker: args.size.gpus_per_worker,
        cpu: args.size.cpu.clone(),
        memory: args.size.memory.clone(),
        shared_memory: args.size.shared_memory.clone(),
        env: args.env.clone(),
        target,
        namespace: args.cluster.namespace.clone(),
        interface: args.interface.clone(),
        port: args.cluster.port,
        tolerate_all: args.cluster.tolerate_all,
    };
    let Job { text, notes } = write_job(&spec, &format(args, target))?;
    if !global.quiet {
        say(&notes, global.log_format);
    }
    match &args.output {
        None => output.write(|out, _| out.write_all(text.as_bytes())),
        Some(path) => {
            write_file(path, &|out| out.write_all(text.as_bytes()))
                .map_err(|source| CliError::Write { failures: vec![(path.display().to_string(), source)] })?;
        }
    }
    Ok(Exit::Ok)
}

/// The named target if the format supports it, else the format's own.
fn target(args: &JobArgs) -> Result<&'static Target, CliError> {
    let known: &[&str] = match args.format_for {
        For::PaiDlc => &["pai-dlc"],
        For::Mpijob | For::Pytorchjob | For::Arena => &["ack", "cce"],
        For::Docker => &["ecs", "ack", "cce"],
    };
    match args.target {
        Some(target) if known.contains(&target.id) => Ok(target),
        Some(target) => Err(CliError::Usage(format!(
            "--target {}: --for {} is for {}\n  --target {}",
            target.id,
            name_of(args.format_for),
            known.join(" or "),
            known[0]
        ))),
        None => targets::by_id(known[0]).ok_or_else(|| CliError::Usage(format!("known targets: {}", targets::known()))),
    }
}

fn name_of(format: For) -> String {
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn format(args: &JobArgs, target: &Target) -> Format {
    let notation = match args.format {
        Some(Notations::Json) => Notation::Json,
        Some(Notations::Yaml) | None => Notation::Yaml,
    };
    match args.format_for {
        For::PaiDlc => Format::PaiDlc(PaiPlace {
            workspace_id: args.pai.workspace_id.clone(),
            resource_id: args.pai.resource_id.clone(),
            instance: args.pai.instance.clone(),
            region: args.pai.region.clone(),
        }),
        For::Mpijob => Format::MpiJob(notation),
        For::Pytorchjob => Format::PytorchJob(notation),
        For::Arena => Format::Arena(match args.cluster.kind {
            Some(Kind::Pytorchjob) => ArenaKind::PytorchJob,
            Some(Kind::Mpijob) | None => ArenaKind::MpiJob,
        }),
        For::Docker => Format::Docker(rdma_nodes(args.nics, target)),
    }
}

/// The requested nodes, else this host's, else those found by the job's host.
fn rdma_nodes(nics: Option<u32>, target: &Target) -> RdmaNodes {
    if let Some(count) = nics {
        return RdmaNodes::of_nics(count);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    RdmaNodes::of_host(&load_host(Path::new("/"), &path, &CDI_DIRECTORIES), target.fabric)
}

/// Refuses options that the format cannot express, rather than write a different job.
fn check_options(args: &JobArgs) -> Result<(), CliError> {
    let (size, cluster, pai) = (&args.size, &args.cluster, &args.pai);
    let manifests: &[For] = &[For::Mpijob, For::Pytorchjob];
    let clusters: &[For] = &[For::Mpijob, For::Pytorchjob, For::Arena];
    let options: [(&str, bool, &[For]); 12] = [
        ("--workers", size.workers.is_some(), &[For::PaiDlc, For::Mpijob, For::Pytorchjob, For::Arena]),
        ("--interface", args.interface.is_some(), &[For::Mpijob, For::Pytorchjob, For::Arena, For::Docker]),
        ("--namespace", cluster.namespace.is_some(), clusters),
        ("--tolerate-all", cluster.tolerate_all, clusters),
        ("--port", cluster.port.is_some(), manifests),
        ("--kind", cluster.kind.is_some(), &[For::Arena]),
        ("--workspace-id", pai.workspace_id.is_some(), &[For::PaiDlc]),
        ("--resource-id", pai.resource_id.is_some(), &[For::PaiDlc]),
        ("--instance", pai.instance.is_some(), &[For::PaiDlc]),
        ("--region", pai.region.is_some(), &[For::PaiDlc]),
        ("--nics", args.nics.is_some(), &[For::Docker]),
        ("--format", args.format.is_some(), &[For::PaiDlc, For::Mpijob, For::Pytorchjob]),
    ];
    let unused = options.iter().find(|(_, given, formats)| *given && !formats.contains(&args.format_for));
    if let Some((option, _, formats)) = unused {
        let formats: Vec<String> = formats.iter().map(|format| format!("--for {}", name_of(*format))).collect();
        return Err(CliError::Usage(format!(
            "{option} has no meaning with --for {}\n  omit it; it is for {}",
            name_of(args.format_for),
            formats.join(", ")
        )));
    }
    if args.format_for == For::PaiDlc && args.format == Some(Notations::Yaml) {
        return Err(CliError::Usage("--format yaml: PAI-DLC takes JSON alone\n  --format json".into()));
    }
    Ok(())
}

/// Prints the notes on stderr, each with its remedy below.
fn say(notes: &[String], log_format: LogFormat) {
    for note in notes {
        let (text, remedy) = note.split_once('\n').unwrap_or((note, ""));
        match log_format {
            LogFormat::Json => tracing::warn!(remedy = remedy.trim(), "{text}"),
            // If this fails, nobody can be told.
            LogFormat::Text => {
                let _ = writeln!(io::stderr(), "note: {note}");
            }
        }
    }
}
