//! What nccl-tests (`all_reduce_perf` and its like) print → devices, rows, totals. Pure: lines in, values out.
//!
//! Sources: NVIDIA/nccl-tests `src/common.cu` and the collectives' files, v2.0 to v2.19:
//!
//! | version | table |
//! |---|---|
//! | to 2.12 | `size count type redop [root] time algbw busbw error` twice; `error` is a deviation such as `5e-07` |
//! | since 2.13 | `size count type redop root time algbw busbw #wrong` twice; `#wrong` is a number of values |
//! | all | `N/A` in the last column with `-c 0`, and for what has no in-place form |
//!
//! Other lines say nothing here; what is kept has a bound.

use crate::versions::NcclVersion;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tables of one text; a sweep over all collectives has ten.
const MAX_TABLES: usize = 64;
/// Rows kept of one table; the usual one has 30.
const MAX_ROWS: usize = 256;
/// Devices kept of one table; further ones are counted.
const MAX_DEVICES: usize = 64;
/// Hosts counted of one table.
const MAX_HOSTS: usize = 4096;
const MAX_FAILURES: usize = 16;
/// Bytes of a text that are kept.
const MAX_TEXT: usize = 400;

/// Everything that nccl-tests said in a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NcclTests {
    /// `2.19.6`; older ones do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// NCCL that it was compiled with, `2.28.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_headers: Option<String>,
    /// NCCL that it runs with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_library: Option<String>,
    pub tables: Vec<Table>,
    /// Lines of a program that gave up: `host-a: Test NCCL failure common.cu:777 '…'`.
    pub failures: Vec<String>,
}

/// One run of a collective.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Table {
    /// `all_reduce_perf`; older ones do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<String>,
    /// The first 64.
    pub devices: Vec<TestDevice>,
    /// One per rank.
    pub device_count: u32,
    /// Host → how many of them, for the first 4096 hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices_by_host: BTreeMap<String, u32>,
    pub rows: Vec<TestRow>,
    /// All, those that are not kept too.
    pub row_count: u64,
    /// Sum of `#wrong` over all rows; absent where the rows were not checked, or have `error` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_values: Option<u64>,
    /// Absent: the run did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_bounds: Option<OutOfBounds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_busbw_gb_per_s: Option<f64>,
    /// The program's own word on its bandwidth, where `-check` gave it a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_fast_enough: Option<bool>,
    /// Results were compared (`validation: 1`, and no `N/A` in every row).
    pub is_checked: bool,
}

/// `# Out of bounds values : 248 FAILED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutOfBounds {
    pub count: u64,
    pub failed: bool,
}

/// A rank and its GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestDevice {
    pub rank: u32,
    pub pid: u32,
    pub host: String,
    pub device: u32,
    /// `0000:0f:00`; `0x0f` in older ones.
    pub bus_id: String,
    pub name: String,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestRow {
    pub size_bytes: u64,
    pub count: u64,
    pub data_type: String,
    pub operation: String,
    pub out_of_place: Measured,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<Measured>,
}

/// One half of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    pub time_us: f64,
    pub algbw_gb_per_s: f64,
    pub busbw_gb_per_s: f64,
    /// `#wrong`; absent: not checked, or an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_values: Option<u64>,
    /// `error` of older versions, the largest deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
}

impl NcclTests {
    pub fn is_empty(&self) -> bool {
        self.version.is_none() && self.tables.is_empty() && self.failures.is_empty()
    }

    /// Ranks of the largest run; `None`: it does not say. One rank has no bus bandwidth: `2(n−1)/n` is zero.
    pub fn nranks(&self) -> Option<u32> {
        let listed = self.tables.iter().map(|table| table.device_count).max().filter(|count| *count > 0);
        let rows = || self.tables.iter().flat_map(|table| &table.rows);
        let is_alone = |row: &TestRow| row.out_of_place.algbw_gb_per_s > 0.0 && row.out_of_place.busbw_gb_per_s == 0.0;
        listed.or_else(|| (rows().any(is_alone) && rows().all(is_alone)).then_some(1))
    }

    /// Wrong values of all runs; `None`: not every one was checked.
    pub fn wrong_values(&self) -> Option<u64> {
        let with_rows: Vec<&Table> = self.tables.iter().filter(|table| table.row_count > 0).collect();
        if with_rows.is_empty() || with_rows.iter().any(|table| !table.is_checked) {
            return None;
        }
        Some(with_rows.iter().map(|table| table.wrong()).sum())
    }

    /// Whether some result was wrong, checked in all runs or not.
    pub fn has_wrong_values(&self) -> bool {
        self.tables.iter().any(|table| table.wrong() > 0)
    }

    /// Adds what another text of the same run says.
    pub fn append(&mut self, other: NcclTests) {
        self.version = self.version.take().or(other.version);
        self.nccl_headers = self.nccl_headers.take().or(other.nccl_headers);
        self.nccl_library = self.nccl_library.take().or(other.nccl_library);
        self.tables.extend(other.tables);
        self.tables.truncate(MAX_TABLES);
        self.failures.extend(other.failures);
        self.failures.truncate(MAX_FAILURES);
    }

    /// Takes a line, without what a launcher put in front.
    pub fn push_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            self.comment(comment.trim_start());
        } else if line.as_bytes().first().is_some_and(u8::is_ascii_digit) {
            if let Some(row) = parse_row(line) {
                self.row(row);
            }
        } else if is_failure(line) && self.failures.len() < MAX_FAILURES {
            self.failures.push(kept(line));
        }
    }

    fn comment(&mut self, text: &str) {
        if let Some(rest) = text.strip_prefix("nccl-tests version ") {
            for word in rest.split_whitespace() {
                let decoded = |code: &str| Some(NcclVersion::from_code(code.parse().ok()?)?.to_string());
                match word.split_once('=') {
                    Some(("nccl-headers", code)) => self.nccl_headers = decoded(code),
                    Some(("nccl-library", code)) => self.nccl_library = decoded(code),
                    Some(_) => {}
                    None => self.version = Some(kept(word)),
                }
            }
        } else if let Some(name) = text.strip_prefix("Collective test starting:") {
            if let Some(table) = self.new_table() {
                // Whether it was started by its path or by its name.
                table.collective = name.trim().rsplit('/').next().map(kept);
            }
        } else if text.starts_with("nThread ") {
            let is_begun = self.tables.last().is_some_and(|table| !table.is_begun());
            if let Some(table) = if is_begun { self.tables.last_mut() } else { self.new_table() } {
                table.is_checked = !text.contains("validation: 0");
            }
        } else if text.starts_with("Using devices") {
            if self.tables.last().is_none_or(Table::is_begun)
                && let Some(table) = self.new_table()
            {
                table.is_checked = true;
            }
        } else if let Some(rest) = text.strip_prefix("Rank ") {
            if let (Some(device), Some(table)) = (parse_device(rest), self.tables.last_mut()) {
                table.device_count = table.device_count.saturating_add(1);
                let hosts = &mut table.devices_by_host;
                if hosts.len() < MAX_HOSTS || hosts.contains_key(&device.host) {
                    *hosts.entry(device.host.clone()).or_default() += 1;
                }
                if table.devices.len() < MAX_DEVICES {
                    table.devices.push(device);
                }
            }
        } else if let Some(rest) = text.strip_prefix("Out of bounds values") {
            let mut words = rest.trim_start_matches([' ', ':']).split_whitespace();
            let count = words.next().and_then(|word| word.parse().ok());
            if let (Some(count), Some(table)) = (count, self.table()) {
                let failed = verdict(words.next()).map_or(count > 0, |is_ok| !is_ok);
                table.out_of_bounds = Some(OutOfBounds { count, failed });
            }
        } else if let Some(rest) = text.strip_prefix("Avg bus bandwidth") {
            let mut words = rest.trim_start_matches([' ', ':']).split_whitespace();
            let average = words.next().and_then(finite);
            if let (Some(average), Some(table)) = (average, self.table()) {
                table.average_busbw_gb_per_s = Some(average);
                table.is_fast_enough = verdict(words.next());
            }
        }
    }

    fn row(&mut self, row: TestRow) {
        let Some(table) = self.table() else { return };
        table.row_count += 1;
        let halves = [Some(row.out_of_place), row.in_place];
        for wrong in halves.iter().flatten().filter_map(|half| half.wrong_values) {
            table.wrong_values = Some(table.wrong_values.unwrap_or(0).saturating_add(wrong));
        }
        let is_told = |half: &Measured| half.wrong_values.is_some() || half.deviation.is_some();
        if table.row_count == 1 {
            table.is_checked |= is_told(&row.out_of_place);
        }
        // `-c 0`.
        table.is_checked &= is_told(&row.out_of_place);
        if table.rows.len() < MAX_ROWS {
            table.rows.push(row);
        }
    }

    /// The table that a line belongs to; its head may be missing.
    fn table(&mut self) -> Option<&mut Table> {
        if self.tables.is_empty() { self.new_table() } else { self.tables.last_mut() }
    }

    fn new_table(&mut self) -> Option<&mut Table> {
        if self.tables.len() == MAX_TABLES {
            return None;
        }
        self.tables.push(Table::default());
        self.tables.last_mut()
    }
}

impl Table {
    /// Something besides its head is known.
    fn is_begun(&self) -> bool {
        self.device_count > 0 || self.row_count > 0 || self.out_of_bounds.is_some()
    }

    /// Wrong values, whoever counted them.
    pub fn wrong(&self) -> u64 {
        let out = self.out_of_bounds.map_or(0, |out| if out.failed { out.count.max(1) } else { 0 });
        out.max(self.wrong_values.unwrap_or(0))
    }

    /// The largest bus bandwidth of a row.
    pub fn best_busbw_gb_per_s(&self) -> Option<f64> {
        let halves = self.rows.iter().flat_map(|row| [Some(row.out_of_place), row.in_place]).flatten();
        halves.map(|half| half.busbw_gb_per_s).max_by(f64::total_cmp)
    }
}

/// ` 0 Group  0 Pid    123 on     host-a device  0 [0000:0f:00] NVIDIA X`; older ones have no group.
fn parse_device(text: &str) -> Option<TestDevice> {
    let (numbers, place) = text.split_once(" on ")?;
    let mut words = numbers.split_whitespace();
    let rank = words.next()?.parse().ok()?;
    let pid = words.skip_while(|word| *word != "Pid").nth(1)?.parse().ok()?;
    let (host, rest) = place.trim().split_once(" device ")?;
    let (device, rest) = rest.split_once('[')?;
    let (bus_id, name) = rest.split_once(']')?;
    Some(TestDevice {
        rank,
        pid,
        host: kept(host.trim()),
        device: device.trim().parse().ok()?,
        bus_id: kept(bus_id.trim()),
        name: kept(name.trim()),
    })
}

/// `1048576 262144 float sum -1 24.5 42.7 80.1 0 24.1 43.4 81.4 0`.
fn parse_row(line: &str) -> Option<TestRow> {
    let words: Vec<&str> = line.split_whitespace().take(16).collect();
    let is_word = |word: &str| word.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && word != "N/A";
    let (size_bytes, count) = (words.first()?.parse().ok()?, words.get(1)?.parse().ok()?);
    let data_type = *words.get(2).filter(|word| is_type(word))?;
    // Collectives that reduce nothing may leave the operation out.
    let operation = words.get(3).filter(|word| is_word(word));
    let mut rest = &words[3 + usize::from(operation.is_some())..];
    // A root is a whole number before the eight columns. Any other number of columns is a row that was cut.
    match rest.len() {
        4 | 8 => {}
        5 | 9 if rest[0].parse::<i64>().is_ok() => rest = &rest[1..],
        _ => return None,
    }
    let out_of_place = parse_half(&rest[..4])?;
    let in_place = rest.get(4..8).and_then(parse_half);
    Some(TestRow {
        size_bytes,
        count,
        data_type: data_type.to_owned(),
        operation: operation.map(|word| kept(word)).unwrap_or_default(),
        out_of_place,
        in_place,
    })
}

/// The types of nccl-tests, `test_typenames` of `src/common.cu`.
fn is_type(word: &str) -> bool {
    [
        "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3",
        "f8e5m2", "fp8_e4m3", "fp8_e5m2", "int", "char",
    ]
    .contains(&word)
}

fn parse_half(words: &[&str]) -> Option<Measured> {
    let [time, algbw, busbw, last] = words else { return None };
    let is_whole = last.bytes().all(|byte| byte.is_ascii_digit());
    let deviation = match *last {
        _ if is_whole => None,
        // Not a number is as wrong as a number can be.
        "nan" | "-nan" | "inf" => Some(f64::MAX),
        other => finite(other),
    };
    let is_told = is_whole || deviation.is_some() || *last == "N/A";
    is_told.then_some(Measured {
        // If the row was cut, a root is in its place: -1 or 0.
        time_us: finite(time).filter(|value| *value > 0.0 || *time == "0.00")?,
        algbw_gb_per_s: finite(algbw)?,
        busbw_gb_per_s: finite(busbw)?,
        wrong_values: last.parse().ok().filter(|_| is_whole),
        deviation,
    })
}

fn finite(word: &str) -> Option<f64> {
    word.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn is_failure(line: &str) -> bool {
    ["Test NCCL failure ", "Test CUDA failure ", "Test failure ", "Incompatible NCCL versions"]
        .iter()
        .any(|mark| line.contains(mark))
        || ["uda failure ", "NCCL failure "].iter().any(|mark| {
            line.split_once(mark).is_some_and(|(_, place)| place.split(' ').next().is_some_and(|p| p.contains(".cu:")))
        })
        || line.contains("_perf: symbol lookup error")
        || line.contains("_perf: undefined symbol")
}

fn kept(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// The word that nccl-tests prints after a sum if it judges it.
fn verdict(word: Option<&str>) -> Option<bool> {
    match word {
        Some("OK") => Some(true),
        Some("FAILED") => Some(false),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> NcclTests {
        let mut tests = NcclTests::default();
        text.lines().for_each(|line| tests.push_line(line));
        tests
    }

    /// A real one, of one rank.
    #[test]
    fn a_run_of_one_gpu() {
        let tests = read(include_str!("../../tests/data/nccl-tests-2.19.6-h200-1gpu.txt"));
        assert_eq!(tests.version.as_deref(), Some("2.19.6"));
        assert_eq!((tests.nccl_headers.as_deref(), tests.nccl_library.as_deref()), (Some("2.28.3"), Some("2.28.3")));
        let [table] = &tests.tables[..] else { panic!("{} tables", tests.tables.len()) };
        assert_eq!(table.collective.as_deref(), Some("all_reduce_perf"));
        assert_eq!((table.device_count, table.devices[0].name.as_str()), (1, "NVIDIA H200"));
        assert_eq!((table.devices[0].host.as_str(), table.devices[0].bus_id.as_str()), ("vm", "0000:00:06"));
        assert_eq!((table.row_count, table.rows[17].size_bytes), (18, 4_294_967_296));
        assert_eq!(table.rows[0].out_of_place.time_us, 7.86);
        assert_eq!(table.rows[17].in_place.unwrap().algbw_gb_per_s, 3e6);
        assert_eq!(table.out_of_bounds, Some(OutOfBounds { count: 0, failed: false }));
        assert_eq!((table.average_busbw_gb_per_s, table.is_fast_enough), (Some(0.0), None));
        assert_eq!((tests.nranks(), tests.wrong_values()), (Some(1), Some(0)));
    }

    #[test]
    fn rows_of_every_version() {
        for (line, busbw, wrong, deviation, in_place) in [
            ("8388608 2097152 float sum -1 24.5 42.7 80.1 0 24.1 43.4 81.4 12", 80.1, Some(0), None, Some(81.4)),
            ("8388608 2097152 float sum 24.5 42.7 80.1 5e-07 24.1 43.4 81.4 5e-07", 80.1, None, Some(5e-7), Some(81.4)),
            ("8388608 2097152 float sum 24.5 42.7 80.1 0e+00 24.1 43.4 81.4 0e+00", 80.1, None, Some(0.0), Some(81.4)),
            ("8388608 2097152 float sum -1 24.5 42.7 80.1 N/A 24.1 43.4 81.4 N/A", 80.1, None, None, Some(81.4)),
            ("8388608 2097152 float 0 24.5 42.7 80.1 0 24.1 43.4 81.4 N/A", 80.1, Some(0), None, Some(81.4)),
            ("8388608 2097152 float none -1 24.5 42.7 80.1 0", 80.1, Some(0), None, None),
            ("8 2 bfloat16 prod -1 24.5 0.00 0.00 1 24.1 0.00 0.00 0", 0.0, Some(1), None, Some(0.0)),
        ] {
            let row = parse_row(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(row.out_of_place.busbw_gb_per_s, busbw, "{line}");
            assert_eq!((row.out_of_place.wrong_values, row.out_of_place.deviation), (wrong, deviation), "{line}");
            assert_eq!(row.in_place.map(|half| half.busbw_gb_per_s), in_place, "{line}");
        }
        for line in
            ["8 2 apples sum -1 1 2 3 0", "8 2 float", "8 x float sum -1 1 2 3 0", "8 2 float sum -1 a b c 0", "12"]
        {
            assert_eq!(parse_row(line), None, "{line}");
        }
    }

    #[test]
    fn what_was_checked() {
        let head = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n# Using devices\n#   Rank  0 Pid  12 on host-a device  0 [0x0f] Tesla V100\n#   Rank  1 Pid  12 on host-a device  1 [0x10] Tesla V100\n";
        let with = |row: &str, end: &str| read(&format!("{head}{row}\n{end}"));
        let old = with(
            "8 2 float sum 24.5 42.7 80.1 5e-07 24.1 43.4 81.4 5e-07",
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 80.7 OK\n",
        );
        assert_eq!((old.nranks(), old.wrong_values(), old.tables[0].is_fast_enough), (Some(2), Some(0), Some(true)));
        assert_eq!(old.tables[0].devices[1].bus_id, "0x10");
        // Only these two words are a verdict.
        let row = "8 2 float sum 24.5 42.7 80.1 5e-07 24.1 43.4 81.4 5e-07";
        for (word, wrong, fast) in [("FAILED", true, Some(false)), ("#", false, None), ("", false, None)] {
            let end = format!("# Out of bounds values : 0 {word}\n# Avg bus bandwidth    : 12.7876 {word}\n");
            let said = with(row, &end);
            assert_eq!((said.has_wrong_values(), said.tables[0].is_fast_enough), (wrong, fast), "{word}");
        }
        let wrong =
            with("8 2 float sum -1 24.5 42.7 80.1 240 24.1 43.4 81.4 8", "# Out of bounds values : 248 FAILED\n");
        assert_eq!((wrong.wrong_values(), wrong.has_wrong_values()), (Some(248), true));
        let cut = with("8 2 float sum -1 24.5 42.7 80.1 240 24.1 43.4 81.4 8", "");
        assert_eq!((cut.wrong_values(), cut.has_wrong_values()), (Some(248), true));
        let unchecked =
            with("8 2 float sum -1 24.5 42.7 80.1 N/A 24.1 43.4 81.4 N/A", "# Out of bounds values : 0 OK\n");
        assert_eq!((unchecked.wrong_values(), unchecked.has_wrong_values()), (None, false));
    }

    #[test]
    fn programs_that_gave_up() {
        for line in [
            "host-a: Test NCCL failure common.cu:777 'unhandled system error'",
            "host-a: Test CUDA failure common.cu:891 'out of memory'",
            "Cuda failure common.cu:891 'out of memory'",
            "NCCL failure common.cu:777 'unhandled system error'",
            " .. host-a pid 12: Test failure common.cu:1000",
        ] {
            assert_eq!(read(line).failures, [line.trim()], "{line}");
        }
        assert!(read("x: Cuda failure 'out of memory'").is_empty());
    }
}
