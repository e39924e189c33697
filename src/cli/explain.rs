//! `rdmaprep explain`: a log, or the id of a check.

use super::TextOrJson;
use super::error::CliError;
use super::judge::{parse_instance, parse_target};
use super::output::Output;
use crate::checks;
use crate::explain::{Text, TextReader, explain};
use crate::judge::Exit;
use crate::logs::nccl::Room;
use crate::policy::suggest;
use crate::report::{CheckEntry, write_explanation, write_log_explanation};
use crate::targets::Target;
use clap::Args;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  rdmaprep explain train.log                  what an NCCL log shows, and which cause it names
  rdmaprep explain rank0.log rank1.log.gz     the ranks of one run, a file each
  kubectl logs job-0 | rdmaprep explain -     from a pipe
  rdmaprep explain train.log devinfo.txt      with what ibv_devinfo -v said in its container
  rdmaprep explain all_reduce.log --instance ebmgn8v.48xlarge   is it as fast as documents say?
  rdmaprep explain ofed-packages              a check, and where its rule comes from
  rdmaprep check --list                       every check there is

Read are logs of NCCL 2.4 to 2.30, output of nccl-tests, ibv_devinfo and show_gids, and build
logs, several of them in one file, gzipped or not. A cause is named where the text names it.

Exit codes:
  0  it was read, whatever it says      2  bad usage      3  it is none of these, or cannot be read";

/// Bytes read at once: a few lines of each process, and less than a cache.
const PIECE: usize = 128 * 1024;

/// The magic of gzip (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// Logs of one run (- is stdin), or the id of a check
    #[arg(value_name = "LOG|ID", required = true)]
    subjects: Vec<String>,
    /// The run hung or timed out, so silence is evidence too
    #[arg(long)]
    timed_out: bool,
    /// Instance type of the hosts, such as ecs.ebmgn8v.48xlarge: compare the bandwidth of nccl-tests with published figures
    #[arg(long, value_name = "TYPE")]
    instance: Option<String>,
    /// Where the hosts are, with --instance: pai-dlc, ecs, ack or cce
    #[arg(long, value_name = "NAME", default_value = "pai-dlc", value_parser = parse_target, requires = "instance")]
    target: &'static Target,
    /// Number of hosts in the run, with equal ranks on each, with --instance if the text does not show it
    #[arg(long, value_name = "N", requires = "instance", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

pub(super) fn run(args: &ExplainArgs, output: &mut Output) -> Result<Exit, CliError> {
    let chosen = parse_instance(args.target, args.instance.as_deref())?;
    // An existing path wins over a check with that name.
    if let [id] = &args.subjects[..]
        && !is_path(id)
    {
        if chosen.is_some() && checks::by_id(id).is_some() {
            return Err(CliError::Usage(format!("{id} is a check: --instance is for the log of a run")));
        }
        return explain_check(id, args.format, output);
    }
    if args.subjects.iter().filter(|name| *name == "-").count() > 1 {
        return Err(CliError::Usage("stdin (-) can be read only once".to_owned()));
    }
    if let Some(name) = args.subjects.iter().find(|name| !is_path(name)) {
        return Err(CliError::Usage(match checks::by_id(name) {
            Some(_) => format!("{name} is a check, not a file: explain it by itself"),
            None => format!("there is no file {name:?}"),
        }));
    }
    let (mut texts, mut room) = (Vec::new(), Room::ALL);
    for name in &args.subjects {
        let (text, left) = read_text(name, room)?;
        room = left;
        if text.kinds().is_empty() {
            return Err(CliError::UnknownText { path: name.clone() });
        }
        texts.push(text);
    }
    let mut explanation = explain(texts, args.timed_out);
    if let Some(hosts) = args.hosts {
        explanation.say_hosts(hosts).map_err(|what| CliError::Usage(format!("--hosts {hosts}: {what}")))?;
    }
    if let Some(chosen) = chosen {
        explanation.judge_instance(chosen, args.target);
    }
    match args.format {
        TextOrJson::Text => output.write(|out, style| write_log_explanation(out, &explanation, style)),
        TextOrJson::Json => output.json(&explanation),
    }
    Ok(Exit::Ok)
}

fn is_path(name: &str) -> bool {
    name == "-" || Path::new(name).exists()
}

fn explain_check(id: &str, format: TextOrJson, output: &mut Output) -> Result<Exit, CliError> {
    let Some(check) = checks::by_id(id) else {
        return Err(CliError::Usage(format!("there is no file and no check {id:?}\n  {}", suggest(id))));
    };
    match format {
        TextOrJson::Text => output.write(|out, style| write_explanation(out, &check, style)),
        TextOrJson::Json => output.json(&CheckEntry::new(check)),
    }
    Ok(Exit::Ok)
}

/// Reads a text to its end, compressed or not.
fn read_text(name: &str, room: Room) -> Result<(Text, Room), CliError> {
    let failed = |source| CliError::LogFile { path: name.to_owned(), source };
    let mut input: Box<dyn Read> = match name {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(failed)?),
    };
    let mut reader = TextReader::within(room);
    let mut piece = vec![0; PIECE];
    let mut start = 0;
    while start < GZIP.len() {
        match read_piece(&mut input, &mut piece[start..GZIP.len()]).map_err(failed)? {
            0 => break,
            length => start += length,
        }
    }
    if piece[..start] == GZIP {
        input = Box::new(MultiGzDecoder::new(io::Cursor::new(GZIP).chain(input)));
    } else {
        reader.push(&piece[..start]);
    }
    loop {
        match read_piece(&mut input, &mut piece).map_err(failed)? {
            0 => break,
            length => reader.push(&piece[..length]),
        }
    }
    Ok(reader.finish(name))
}

fn read_piece(input: &mut dyn Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
