//! Sizes and durations as people read them.
//!
//! Input: plain integers with the unit in the name (`_bytes`, `_ms`); output: `Display` text. JSON never uses these
//! types: it carries the number, with the unit in the key.

use std::fmt;
use std::time::Duration;

/// A number of bytes, shown with a decimal prefix (`1.5 MB`), as Docker and registries show sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1000.0;
        let mut unit = 0;
        // 999.95 would print as "1000.0": go to the next unit before rounding does.
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// A difference of sizes in bytes, always with its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteDelta(pub i64);

impl fmt::Display for ByteDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{}", Bytes(self.0.unsigned_abs()))
    }
}

/// A wall-clock duration: `0.4 s`, `12.3 s`, `2 min 05 s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed(pub Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 59.95 {
            write!(f, "{seconds:.1} s")
        } else {
            let whole = seconds.round() as u64;
            write!(f, "{} min {:02} s", whole / 60, whole % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_choose_their_unit() {
        let shown: Vec<String> =
            [0, 999, 1000, 1_550_000, 999_949_999, 999_950_000].iter().map(|b| Bytes(*b).to_string()).collect();
        assert_eq!(shown, ["0 B", "999 B", "1.0 kB", "1.6 MB", "999.9 MB", "1.0 GB"]);
    }

    #[test]
    fn deltas_keep_their_sign() {
        assert_eq!(ByteDelta(-1500).to_string(), "-1.5 kB");
        assert_eq!(ByteDelta(0).to_string(), "+0 B");
    }

    #[test]
    fn durations_change_form_at_a_minute() {
        assert_eq!(Elapsed(Duration::from_millis(400)).to_string(), "0.4 s");
        assert_eq!(Elapsed(Duration::from_millis(59_970)).to_string(), "1 min 00 s");
        assert_eq!(Elapsed(Duration::from_secs(125)).to_string(), "2 min 05 s");
    }
}
