//! `-o FORMAT=FILE` and `--format`: one result, written in several formats to several places.
//!
//! A file is written completely or not at all: under a temporary name, then renamed. One that cannot be written is an error
//! that names it, after the others were written.

use super::error::CliError;
use super::output::Output;
use crate::report::{Format, Style};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One `-o FORMAT=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    format: Format,
    /// `None`: stdout, written `-`.
    path: Option<PathBuf>,
}

impl Destination {
    pub(super) fn format(&self) -> Format {
        self.format
    }
}

/// Reads `--format`, for clap, where a command has these formats.
pub(super) fn format_of(accepted: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(accepted.iter().map(|format| format.name())).try_map(|name| by_name(accepted, &name))
}

/// Reads `FORMAT=FILE`, for clap, where a command has these formats.
pub(super) fn destination_of(
    accepted: &'static [Format],
) -> impl Fn(&str) -> Result<Destination, String> + Clone + Send + Sync + 'static {
    move |text| parse_destination(text, accepted)
}

fn by_name(accepted: &[Format], name: &str) -> Result<Format, String> {
    let names = || accepted.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    let found = accepted.iter().copied().find(|format| format.name() == name);
    found.ok_or_else(|| format!("{name:?} is not a format; formats: {}", names()))
}

fn parse_destination(text: &str, accepted: &[Format]) -> Result<Destination, String> {
    let names = || accepted.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    let (format, path) = text.split_once('=').ok_or_else(|| format!("write FORMAT=FILE; formats: {}", names()))?;
    let format = by_name(accepted, format)?;
    match path {
        "" => Err("the file has no name; - is stdout".to_owned()),
        "-" | "/dev/stdout" => Ok(Destination { format, path: None }),
        path => Ok(Destination { format, path: Some(path.into()) }),
    }
}

/// The destinations: stdout gets `--format` unless an `-o` names it.
///
/// # Errors
/// Two results for one place.
pub(super) fn destinations(format: Option<Format>, given: &[Destination]) -> Result<Vec<Destination>, CliError> {
    let to_stdout = given.iter().filter(|destination| destination.path.is_none()).count();
    if to_stdout + usize::from(format.is_some()) > 1 {
        return Err(CliError::Usage(
            "two results would go to stdout: --format and -o FORMAT=- exclude each other".into(),
        ));
    }
    let mut seen = BTreeSet::new();
    if let Some(path) = given.iter().filter_map(|d| d.path.as_ref()).find(|path| !seen.insert(*path)) {
        return Err(CliError::Usage(format!("two results would go to {}", path.display())));
    }
    let mut all = given.to_vec();
    if to_stdout == 0 {
        all.insert(0, Destination { format: format.unwrap_or(Format::Text), path: None });
    }
    Ok(all)
}

/// Writes a result to every destination.
///
/// # Errors
/// Names all files that could not be written; the others are written nevertheless.
pub(super) fn write_everywhere(
    destinations: &[Destination],
    output: &mut Output,
    write: impl Fn(Format, &mut dyn Write, Style) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut failures = Vec::new();
    for Destination { format, path } in destinations {
        match path {
            None => output.write(|out, style| write(*format, out, style)),
            Some(path) => {
                if let Err(source) = write_file(path, &|out| write(*format, out, Style { colour: false })) {
                    failures.push((path.display().to_string(), source));
                }
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(CliError::Write { failures }) }
}

type Content<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Writes a file completely, or leaves it unchanged.
pub(super) fn write_file(path: &Path, content: Content<'_>) -> io::Result<()> {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // A device, a pipe, or an open file (/dev/stderr, /dev/fd/3) is written to, not replaced.
        Ok(metadata) if !metadata.is_file() || path.starts_with("/dev") || path.starts_with("/proc") => {
            fill(File::options().append(true).open(path)?, content)
        }
        // A link stays a link, to the new content.
        Ok(_) => replace_file(&path.canonicalize()?, content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace_file(path, content),
        Err(error) => Err(error),
    }
}

fn replace_file(path: &Path, content: Content<'_>) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The process's umask applies, as to any new file.
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".rdmaprep-").permissions(Permissions::from_mode(0o666));
    let (file, temporary) = builder.tempfile_in(directory).map_err(without_temporary_name)?.into_parts();
    fill(file, content)?;
    temporary.persist(path)?;
    Ok(())
}

/// The error without the temporary file's name, which helps nobody.
fn without_temporary_name(error: io::Error) -> io::Error {
    // tempfile: `No such file or directory (os error 2) at path "..."`.
    let text = error.to_string();
    match text.rsplit_once(" at path ") {
        Some((cause, _)) => io::Error::new(error.kind(), cause.to_owned()),
        None => error,
    }
}

fn fill(file: File, content: Content<'_>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out)?;
    out.flush()
}
