//! Messages between supervisor and rank: JSON lines over a socket that is the rank's stdin.

use crate::facts::run::{Collective, Failure, LoadedLibrary, Phase, Placement, Plant, WrongElement};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, BufRead, Write};

/// The first line that a rank reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RankPlan {
    pub rank: u32,
    pub ranks: u32,
    pub gpu: u32,
    pub nccl: Option<String>,
    pub collective: Collective,
    pub plant: Option<Plant>,
    /// Descriptor of the barrier's file.
    pub barrier: i32,
}

/// The second line that a rank reads: the communicator's id, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meeting {
    pub unique_id: String,
}

/// A message from a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RankMessage {
    Library {
        nccl: LoadedLibrary,
        version_code: i32,
    },
    Phase(Phase),
    /// From rank 0: the id for [`Meeting`].
    UniqueId(String),
    Timing(Timing),
    Failed(Failure),
    Done,
}

/// One rank's measurement of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Timing {
    pub data_type_index: u32,
    /// The requested size; whole elements may be less.
    pub size_bytes: u64,
    pub placement: Placement,
    pub time_us: f64,
    pub wrong: Option<u64>,
    pub first_wrong: Option<WrongElement>,
}

/// Writes one message as one line.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None`: the other side is gone.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// Lower-case hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of as many pairs of digits as the array is long.
pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_travel_as_digits() {
        let bytes: [u8; 4] = [0, 1, 0xab, 0xff];
        assert_eq!(to_hex(&bytes), "0001abff");
        assert_eq!(from_hex::<4>("0001abff"), Some(bytes));
        for text in ["", "0001abf", "0001abfg", "0001abff00", "é001abf"] {
            assert_eq!(from_hex::<4>(text), None, "{text}");
        }
    }

    #[test]
    fn messages_are_lines() {
        let mut wire = Vec::new();
        send(&mut wire, &RankMessage::Done).unwrap();
        send(&mut wire, &RankMessage::Phase(Phase::Init)).unwrap();
        let mut reader = wire.as_slice();
        assert_eq!(receive(&mut reader).unwrap(), Some(RankMessage::Done));
        assert_eq!(receive(&mut reader).unwrap(), Some(RankMessage::Phase(Phase::Init)));
        assert_eq!(receive::<RankMessage>(&mut reader).unwrap(), None);
    }
}
