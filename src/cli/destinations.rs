//! `-o FORMAT=FILE` and `--format`: one result, written in several formats to several places.
//!
//! A file is written completely or not at all: under a temporary name, then renamed. One that cannot be written is an error
//! that names it, after the others were written.

use super::error::CliError;
use super::output::Output;
use crate::report::Style;
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One `-o FORMAT=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination<F> {
    format: F,
    /// `None`: stdout, written `-`.
    path: Option<PathBuf>,
}

impl<F: Copy> Destination<F> {
    pub fn format(&self) -> F {
        self.format
    }
}

/// Reads `FORMAT=FILE`, for clap.
pub fn parse_destination<F: ValueEnum>(text: &str) -> Result<Destination<F>, String> {
    let names = || {
        let names: Vec<String> =
            F::value_variants().iter().filter_map(|f| Some(f.to_possible_value()?.get_name().to_owned())).collect();
        names.join(", ")
    };
    let (format, path) = text.split_once('=').ok_or_else(|| format!("write FORMAT=FILE; formats: {}", names()))?;
    let format = F::from_str(format, false).map_err(|_| format!("{format:?} is not a format; formats: {}", names()))?;
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
pub fn destinations<F: Copy + PartialEq>(
    format: Option<F>,
    default: F,
    given: &[Destination<F>],
) -> Result<Vec<Destination<F>>, CliError> {
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
        all.insert(0, Destination { format: format.unwrap_or(default), path: None });
    }
    Ok(all)
}

/// Writes a result to every destination.
///
/// # Errors
/// Names all files that could not be written; the others are written nevertheless.
pub fn write_everywhere<F: Copy>(
    destinations: &[Destination<F>],
    output: &mut Output,
    write: impl Fn(F, &mut dyn Write, Style) -> io::Result<()>,
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
pub fn write_file(path: &Path, content: Content<'_>) -> io::Result<()> {
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
