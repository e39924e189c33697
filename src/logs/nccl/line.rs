//! One raw line of a log → the NCCL records on it, without their prefixes. Any bytes are a line.
//!
//! Shapes (NVIDIA/nccl `src/debug.cc`; `H` host, `P` process, `T` thread, `d` CUDA device):
//!
//! | NCCL | record |
//! |---|---|
//! | 2.4 – 2.30 | `H:P:T [d] NCCL INFO message` |
//! | to 2.25 | `H:P:T [d] file:line NCCL WARN message`, after an empty line |
//! | since 2.26 | `[YYYY-MM-DD HH:MM:SS] H:P:T [d] file:line NCCL WARN message`; the time can precede any level |
//! | 2.30 | `… [d] file:line (thread name) NCCL WARN message` |
//! | all | `H:P:T NCCL CALL message`, `H:P:T [d] 1.5 function:line NCCL TRACE message` |
//!
//! What other programs put in front (mpirun's `[1,0]<stdout>:`, a container engine's time, torchrun's `[rank0]:`) ends with
//! something that cannot be in a host name. Two processes that write to one pipe can leave two records on one line.

use memchr::memmem::Finder;
use memchr::memrchr;
use std::sync::LazyLock;

static NCCL: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"NCCL "));

/// `[d]` is the CUDA device; a value past this one is garbage (it was `[32523]` in a log of a process without a device).
const MAX_DEVICE: u32 = 255;

/// Bytes before `NCCL` that can belong to its prefix: host, process, a source file's path, a thread's name.
const MAX_PREFIX: usize = 1024;

/// Bytes of a host name (Linux has 64), and of what is glued to it.
const MAX_HOST: usize = 128;

/// The severity of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Warn,
    Trace,
    Call,
    /// A line without NCCL's prefix: the version by itself, another library's warning, the program's own output.
    Other,
}

/// One record of NCCL, or any other line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub level: Level,
    /// Empty where there is no prefix.
    pub host: &'a [u8],
    pub pid: u32,
    pub tid: u32,
    /// `None`: not given, or garbage.
    pub device: Option<u32>,
    pub message: &'a [u8],
    /// The text before the host.
    lead: &'a [u8],
    /// The text between the device and `NCCL`.
    place: &'a [u8],
}

impl<'a> Record<'a> {
    fn other(line: &'a [u8]) -> Record<'a> {
        Record { level: Level::Other, host: &[], pid: 0, tid: 0, device: None, message: line, lead: &[], place: &[] }
    }

    /// NCCL's own time (`2026-01-02 03:04:05`), or the time that a container engine put in front.
    pub fn timestamp(&self) -> Option<&'a [u8]> {
        let lead = self.lead.trim_ascii();
        if let Some(inner) = lead.strip_suffix(b"]") {
            let open = memrchr(b'[', inner)?;
            let time = &inner[open + 1..];
            if time.first().is_some_and(u8::is_ascii_digit) && time.contains(&b':') {
                return Some(time);
            }
        }
        let first = lead.split(|byte| *byte == b' ').next()?;
        (first.len() >= 19 && first[10] == b'T' && first[..4].iter().all(u8::is_ascii_digit)).then_some(first)
    }

    /// Source file (or function) and line of a warning, as `misc/socket.cc:64`.
    pub fn place(&self) -> Option<&'a [u8]> {
        // A trace has its time here, a warning of 2.30 the thread's name behind.
        let mut words = self.place.trim_ascii().split(|byte| *byte == b' ');
        words.find(|word| {
            memrchr(b':', word)
                .is_some_and(|colon| colon > 0 && colon + 1 < word.len() && is_number(&word[colon + 1..]))
        })
    }

    /// Name of the thread that warned (2.30).
    pub fn thread_name(&self) -> Option<&'a [u8]> {
        let inner = self.place.trim_ascii().strip_suffix(b")")?;
        Some(&inner[memchr::memchr(b'(', inner)? + 1..])
    }
}

/// Takes records, and knows the processes that it has taken some of.
pub trait Sink {
    fn knows(&self, host: &[u8], pid: u32) -> bool;
    fn take(&mut self, record: &Record<'_>);
}

/// Gives the records of a line to `sink`, in order; the whole line as [`Level::Other`] where there are none.
///
/// Where a record is glued to the text before it (`…all ringshost-a:1:1 [0] NCCL INFO …`) a process that the sink knows
/// tells where the host begins.
pub fn split_records(line: &[u8], sink: &mut impl Sink) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut pending: Option<Record<'_>> = None;
    let (mut start, mut from) = (0, 0);
    while let Some(found) = NCCL.find(&line[from..]) {
        let at = from + found;
        from = at + 5;
        let Some(mut header) = parse_header(&line[start..], at - start) else { continue };
        let message = start + header.message;
        if let Some(mut previous) = pending.take() {
            let host = &line[start + header.host.0..start + header.host.1];
            header.host.0 += glued(host, header.pid, previous.host, sink);
            let end = start + lead_of_next(&line[start..start + header.host.0]);
            previous.message = line[start..end].trim_ascii_end();
            sink.take(&previous);
        }
        pending = Some(Record {
            level: header.level,
            host: &line[start + header.host.0..start + header.host.1],
            pid: header.pid,
            tid: header.tid,
            device: header.device,
            message: &line[message..],
            lead: &line[start..start + header.host.0],
            place: &line[start + header.place.0..start + header.place.1],
        });
        start = message;
        from = message;
    }
    match pending {
        Some(record) => sink.take(&record),
        None => sink.take(&Record::other(line)),
    }
}

/// How much of the word before `:pid` belongs to the record before: up to a host that is known, or the neighbour's.
fn glued(word: &[u8], pid: u32, neighbour: &[u8], sink: &impl Sink) -> usize {
    if sink.knows(word, pid) {
        return 0;
    }
    let known = (1..word.len()).find(|skip| sink.knows(&word[*skip..], pid));
    known.unwrap_or_else(|| if word.ends_with(neighbour) { word.len() - neighbour.len() } else { 0 })
}

/// The first record of a line.
pub fn parse_line(line: &[u8]) -> Record<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut from = 0;
    while let Some(found) = NCCL.find(&line[from..]) {
        let at = from + found;
        from = at + 5;
        let Some(header) = parse_header(line, at) else { continue };
        return Record {
            level: header.level,
            host: &line[header.host.0..header.host.1],
            pid: header.pid,
            tid: header.tid,
            device: header.device,
            message: &line[header.message..],
            lead: &line[..header.host.0],
            place: &line[header.place.0..header.place.1],
        };
    }
    Record::other(line)
}

/// Takes out ANSI escape sequences (`ESC [ … letter`).
pub fn strip_ansi(line: &[u8], plain: &mut Vec<u8>) {
    plain.clear();
    let mut rest = line;
    while let Some(at) = memchr::memchr(0x1b, rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(sequence) = rest.strip_prefix(b"[") {
            let end =
                sequence.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(sequence.len(), |end| end + 1);
            rest = &sequence[end..];
        }
    }
    plain.extend_from_slice(rest);
}

/// Offsets into the text that the header was found in.
struct Header {
    level: Level,
    host: (usize, usize),
    pid: u32,
    tid: u32,
    device: Option<u32>,
    place: (usize, usize),
    message: usize,
}

/// Reads the prefix backwards from `NCCL ` at `at`.
fn parse_header(text: &[u8], at: usize) -> Option<Header> {
    let after = &text[at + 5..];
    let (level, word) = match after.first()? {
        b'I' => (Level::Info, b"INFO".as_slice()),
        b'W' => (Level::Warn, b"WARN".as_slice()),
        b'T' => (Level::Trace, b"TRACE".as_slice()),
        b'C' => (Level::Call, b"CALL".as_slice()),
        _ => return None,
    };
    let rest = after.strip_prefix(word)?;
    let space = usize::from(!rest.is_empty());
    if !rest.is_empty() && rest[0] != b' ' {
        return None;
    }
    let message = at + 5 + word.len() + space;
    // Any prefix is short: text further away is not examined.
    let base = at.saturating_sub(MAX_PREFIX);
    let head = text[base..at].strip_suffix(b" ")?;
    let header = |((host, host_end), pid, tid), device, place| Header {
        level,
        host: (base + host, base + host_end),
        pid,
        tid,
        device,
        place: (base + place, base + head.len()),
        message,
    };
    if level == Level::Call {
        return Some(header(process_before(head, head.len())?, None, head.len()));
    }
    // At INFO, which most lines are, the device is the last word.
    if let Some(inner) = head.strip_suffix(b"]") {
        let digits = inner.iter().rev().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        let open = inner.len() - digits;
        if digits > 0
            && open >= 2
            && inner[open - 2..open] == *b" ["
            && let Some(process) = process_before(head, open - 2)
        {
            let device = parse_u32(&inner[open..]).filter(|device| *device <= MAX_DEVICE);
            return Some(header(process, device, head.len()));
        }
    }
    // A thread's name may hold a bracket, too.
    let mut end = head.len();
    for _ in 0..4 {
        let open = memrchr(b'[', &head[..end])?;
        if let Some((device, close)) = bracketed_number(&head[open..])
            && let Some(before) = open.checked_sub(1).filter(|before| head[*before] == b' ')
            && let Some(process) = process_before(head, before)
        {
            return Some(header(process, device, open + close));
        }
        end = open;
    }
    None
}

/// `[number]` at the start: the device where it is one, and the length.
fn bracketed_number(text: &[u8]) -> Option<(Option<u32>, usize)> {
    let close = text.iter().take(24).position(|byte| *byte == b']')?;
    let inner = &text[1..close];
    let digits = inner.strip_prefix(b"-").unwrap_or(inner);
    if !is_number(digits) {
        return None;
    }
    let device = parse_u32(inner).filter(|device| *device <= MAX_DEVICE);
    Some((device, close + 1))
}

/// `host:pid:tid` that ends at `end`.
fn process_before(text: &[u8], end: usize) -> Option<((usize, usize), u32, u32)> {
    let (tid_at, tid) = number_before(text, end)?;
    let (pid_at, pid) = number_before(text, colon_before(text, tid_at)?)?;
    let host_end = colon_before(text, pid_at)?;
    let first = host_end.saturating_sub(MAX_HOST);
    let before = text[first..host_end].iter().rposition(|byte| !IS_HOST[usize::from(*byte)]);
    let host = before.map_or(first, |at| first + at + 1);
    (host < host_end).then_some(((host, host_end), pid, tid))
}

/// Bytes that a host's name may have.
static IS_HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        byte += 1;
    }
    table
};

fn colon_before(text: &[u8], at: usize) -> Option<usize> {
    at.checked_sub(1).filter(|colon| text[*colon] == b':')
}

/// The number that ends at `end`, and where it begins.
fn number_before(text: &[u8], end: usize) -> Option<(usize, u32)> {
    let begin = text[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |before| before + 1);
    Some((begin, parse_u32(&text[begin..end])?))
}

/// Where the next record begins: NCCL's time and mpirun's tag precede its host.
fn lead_of_next(text: &[u8]) -> usize {
    let mut end = text.len();
    if text.ends_with(b"] ")
        && let Some(open) = memrchr(b'[', text)
        && text[open + 1..].first().is_some_and(u8::is_ascii_digit)
    {
        end = open;
    }
    if text[..end].ends_with(b">:")
        && let Some(open) = memrchr(b'[', &text[..end])
        && text[open..end].contains(&b'<')
    {
        end = open;
    }
    end
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// The whole of it a decimal number.
pub(super) fn parse_u32(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 10 {
        return None;
    }
    text.iter().try_fold(0u32, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u32::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Every dialect: line → level, device, place, time, message.
    #[test]
    fn dialects() {
        type Dialect = (&'static str, Level, Option<u32>, Option<&'static str>, Option<&'static str>);
        let table: &[Dialect] = &[
            ("host-a:11:12 [3] NCCL INFO m", Level::Info, Some(3), None, None),
            ("host-a:11:12 [3] include/shm.h:28 NCCL WARN m", Level::Warn, Some(3), Some("include/shm.h:28"), None),
            (
                "[2026-01-02 03:04:05] host-a:11:12 [3] init.cc:7 NCCL WARN m",
                Level::Warn,
                Some(3),
                Some("init.cc:7"),
                Some("2026-01-02 03:04:05"),
            ),
            (
                "[2026-01-02 03:04:05] host-a:11:12 [3] NCCL INFO m",
                Level::Info,
                Some(3),
                None,
                Some("2026-01-02 03:04:05"),
            ),
            (
                "[2026-01-02 03:04:05] host-a:11:12 [0] net.cc:9 (NCCL Progress[1] 0) NCCL WARN m",
                Level::Warn,
                Some(0),
                Some("net.cc:9"),
                Some("2026-01-02 03:04:05"),
            ),
            ("[1,0]<stdout>:host-a:11:12 [0] NCCL INFO m", Level::Info, Some(0), None, None),
            (
                "[1,0]<stderr>:[2026-01-02 03:04:05] host-a:11:12 [0] a.cc:1 NCCL WARN m",
                Level::Warn,
                Some(0),
                Some("a.cc:1"),
                Some("2026-01-02 03:04:05"),
            ),
            (
                "2026-01-02T03:04:05.123456789Z stdout F host-a:11:12 [0] NCCL INFO m\r",
                Level::Info,
                Some(0),
                None,
                Some("2026-01-02T03:04:05.123456789Z"),
            ),
            ("[rank0]:host-a:11:12 [0] NCCL INFO m", Level::Info, Some(0), None, None),
            ("host-a:11:12 [32523] NCCL INFO m", Level::Info, None, None, None),
            ("host-a:11:12 [-1] NCCL INFO m", Level::Info, None, None, None),
            ("host-a:11:12 NCCL CALL m", Level::Call, None, None, None),
            ("host-a:11:12 [0] 1.500000 initFunc:5 NCCL TRACE m", Level::Trace, Some(0), Some("initFunc:5"), None),
        ];
        for (line, level, device, place, time) in table {
            let record = parse_line(line.as_bytes());
            assert_eq!((record.level, record.device), (*level, *device), "{line}");
            assert_eq!((text(record.host), record.pid, record.tid), ("host-a".to_owned(), 11, 12), "{line}");
            assert_eq!(record.place().map(text).as_deref(), *place, "{line}");
            assert_eq!(record.timestamp().map(text).as_deref(), *time, "{line}");
            assert_eq!(text(record.message), "m", "{line}");
        }
        let named = parse_line(b"host-a:1:2 [0] a.cc:1 (NCCL Service 0) NCCL WARN m");
        assert_eq!(named.thread_name().map(text).as_deref(), Some("NCCL Service 0"));
    }

    #[test]
    fn lines_that_are_no_record() {
        for line in [
            "",
            "NCCL version 2.19.3+cuda12.3",
            "host-a: Test NCCL failure common.cu:777 'unhandled system error'",
            "NCCL INFO x",
            "a:b [0] NCCL INFO x",
            ":1:2 [0] NCCL INFO x",
            "host-a:1:99999999999 [0] NCCL INFO x",
            "host-a:1:2 [0] NCCL INFOX x",
            "host-a:1:2 [x] NCCL INFO x",
            "NCCL ",
            " NCCL INFO ",
        ] {
            let record = parse_line(line.as_bytes());
            assert_eq!((record.level, text(record.message).as_str()), (Level::Other, line));
        }
    }

    struct Known<'a>(&'a [(&'a str, u32)], Vec<(String, u32, String)>);

    impl Sink for Known<'_> {
        fn knows(&self, host: &[u8], pid: u32) -> bool {
            self.0.contains(&(text(host).as_str(), pid))
        }

        fn take(&mut self, record: &Record<'_>) {
            self.1.push((text(record.host), record.pid, text(record.message)));
        }
    }

    fn split(line: &str, known: &[(&str, u32)]) -> Vec<(String, u32, String)> {
        let mut sink = Known(known, Vec::new());
        split_records(line.as_bytes(), &mut sink);
        sink.1
    }

    #[test]
    fn two_records_on_one_line() {
        let expected = [
            ("host-a".to_owned(), 1, "Connected all rings".to_owned()),
            ("host-b".to_owned(), 2, "Using network IB".to_owned()),
        ];
        for (line, known) in [
            // The end of the first is not marked: only a known host tells.
            (
                "host-a:1:1 [0] NCCL INFO Connected all ringshost-b:2:2 [1] NCCL INFO Using network IB",
                [("host-b", 2)].as_slice(),
            ),
            ("host-a:1:1 [0] NCCL INFO Connected all rings host-b:2:2 [1] NCCL INFO Using network IB", &[]),
            (
                "host-a:1:1 [0] NCCL INFO Connected all rings[1,1]<stdout>:host-b:2:2 [1] NCCL INFO Using network IB",
                &[],
            ),
            (
                "host-a:1:1 [0] NCCL INFO Connected all rings[2026-01-02 03:04:05] host-b:2:2 [1] a.cc:1 NCCL WARN Using network IB",
                &[],
            ),
        ] {
            assert_eq!(split(line, known), expected, "{line}");
        }
        // Of one host: the neighbour's name is enough.
        let one_host = split("host-a:1:1 [0] NCCL INFO via P2P/IPChost-a:2:2 [1] NCCL INFO x", &[]);
        assert_eq!(one_host, [("host-a".into(), 1, "via P2P/IPC".into()), ("host-a".into(), 2, "x".into())]);
    }

    #[test]
    fn colours_go() {
        let mut plain = Vec::new();
        strip_ansi(b"\x1b[33mhost-a:1:2 [0] \x1b[1;32mNCCL INFO\x1b[0m m\x1b", &mut plain);
        assert_eq!(text(&plain), "host-a:1:2 [0] NCCL INFO m");
        strip_ansi(b"\x1b[33", &mut plain);
        assert_eq!(plain, b"");
    }
}
