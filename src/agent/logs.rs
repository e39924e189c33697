//! The output of ranks: NCCL's log and the process's own output, each a file per rank.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes kept from a log's beginning and from its end: the part between is repetitive.
const HEAD_BYTES: u64 = 1024 * 1024;
const TAIL_BYTES: u64 = 512 * 1024;
/// Bytes of a process's own output that are kept, from the end.
const OUTPUT_BYTES: u64 = 16 * 1024;
/// Bytes searched for the last line of a log.
const LAST_LINE_BYTES: u64 = 64 * 1024;

/// The files of one rank.
#[derive(Debug, Clone)]
pub(super) struct RankFiles {
    /// `NCCL_DEBUG_FILE`
    pub log: PathBuf,
    /// stdout and stderr
    pub output: PathBuf,
}

impl RankFiles {
    pub(super) fn new(directory: &Path, rank: u32) -> RankFiles {
        RankFiles {
            log: directory.join(format!("nccl-{rank}.log")),
            output: directory.join(format!("rank-{rank}.out")),
        }
    }

    /// The log, with the number of bytes left out in its middle.
    pub(super) fn read_log(&self) -> (String, u64) {
        read_ends(&self.log, HEAD_BYTES, TAIL_BYTES).unwrap_or_default()
    }

    /// The end of the process's own output.
    pub(super) fn read_output(&self) -> String {
        read_ends(&self.output, 0, OUTPUT_BYTES).unwrap_or_default().0
    }

    /// NCCL's last line.
    pub(super) fn last_line(&self) -> Option<String> {
        let (text, _) = read_ends(&self.log, 0, LAST_LINE_BYTES).ok()?;
        text.lines().rev().map(str::trim_end).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Beginning and end of a file, and the bytes between them. Lines are never cut.
fn read_ends(path: &Path, head: u64, tail: u64) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length <= head + tail {
        let mut all = Vec::new();
        file.take(head + tail).read_to_end(&mut all)?;
        return Ok((String::from_utf8_lossy(&all).into_owned(), 0));
    }
    let mut start = Vec::new();
    file.by_ref().take(head).read_to_end(&mut start)?;
    start.truncate(start.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    file.seek(SeekFrom::Start(length - tail))?;
    let mut end = Vec::new();
    file.take(tail).read_to_end(&mut end)?;
    let cut = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
    end.drain(..cut);
    let omitted = length - start.len() as u64 - end.len() as u64;
    start.append(&mut end);
    Ok((String::from_utf8_lossy(&start).into_owned(), omitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_lose_their_middle_by_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\nfour\nfive\n").unwrap();
        assert_eq!(read_ends(&path, 100, 100).unwrap(), ("one\ntwo\nthree\nfour\nfive\n".into(), 0));
        assert_eq!(read_ends(&path, 6, 7).unwrap(), ("one\nfive\n".into(), 15));
        assert_eq!(read_ends(&path, 0, 7).unwrap(), ("five\n".into(), 19));
        assert!(read_ends(&directory.path().join("none"), 1, 1).is_err());
    }

    #[test]
    fn the_last_word_is_found_behind_empty_lines() {
        let directory = tempfile::tempdir().unwrap();
        let files = RankFiles::new(directory.path(), 3);
        assert_eq!((files.last_line(), files.read_log()), (None, (String::new(), 0)));
        std::fs::write(&files.log, "a\nNCCL INFO b \n\n\n").unwrap();
        assert_eq!(files.last_line().as_deref(), Some("NCCL INFO b"));
    }
}
