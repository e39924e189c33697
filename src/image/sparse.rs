//! Sparse files as GNU tar writes them in PAX archives (GNU tar manual, "Storing Sparse Files"; versions 0.0, 0.1, 1.0).
//!
//! Input: an entry with its PAX records; output: its real name and size, and a reader that restores the holes. The tar
//! reader itself handles the format of GNU's own archives.

use std::io::{self, Read};

/// Most pieces of data in one file.
const MAX_PIECES: usize = 1 << 20;

/// A sparse file of a PAX archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sparse {
    /// Real path; `None`: the entry's own.
    pub name: Option<String>,
    /// Real size in bytes.
    pub size: u64,
    /// Offset and length of the data; `None`: they are at the start of the entry's content.
    pieces: Option<Vec<(u64, u64)>>,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a sparse file's map is damaged: {what}"))
}

impl Sparse {
    /// Reads an entry's PAX records, in order; `None`: the file is not sparse.
    pub(super) fn from_records<'a>(records: impl Iterator<Item = (&'a str, &'a str)>) -> io::Result<Option<Sparse>> {
        let (mut name, mut size, mut major, mut pieces) = (None, None, None, Vec::new());
        let mut seen = false;
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad("not a number"));
        for (key, value) in records {
            let Some(key) = key.strip_prefix("GNU.sparse.") else { continue };
            seen = true;
            match key {
                "name" => name = Some(value.to_owned()),
                "size" | "realsize" => size = Some(number(value)?),
                "major" => major = Some(number(value)?),
                // Version 0.0 repeats these two, 0.1 has one list.
                "offset" | "numbytes" => pieces.push(number(value)?),
                "map" => pieces = value.split(',').map(number).collect::<io::Result<_>>()?,
                _ => {}
            }
        }
        if !seen {
            return Ok(None);
        }
        let size = size.ok_or_else(|| bad("no size"))?;
        let pieces = match major {
            Some(1) => None,
            Some(0) | None => Some(pair(&pieces, size)?),
            Some(_) => return Err(bad("an unknown version")),
        };
        Ok(Some(Sparse { name, size, pieces }))
    }

    /// The file's content, holes and all.
    pub(super) fn content<R: Read>(&self, mut data: R) -> io::Result<SparseReader<R>> {
        let pieces = match &self.pieces {
            Some(pieces) => pieces.clone(),
            None => pair(&read_map(&mut data)?, self.size)?,
        };
        Ok(SparseReader { data, pieces: pieces.into_iter().rev().collect(), at: 0, size: self.size })
    }
}

/// Numbers in pairs, in order and inside the file.
fn pair(numbers: &[u64], size: u64) -> io::Result<Vec<(u64, u64)>> {
    if !numbers.len().is_multiple_of(2) || numbers.len() / 2 > MAX_PIECES {
        return Err(bad("an odd or excessive number of entries"));
    }
    let mut end = 0;
    numbers
        .chunks(2)
        .map(|piece| {
            let (offset, length) = (piece[0], piece[1]);
            if offset < end {
                return Err(bad("pieces overlap"));
            }
            end = offset.checked_add(length).filter(|end| *end <= size).ok_or_else(|| bad("a piece is outside"))?;
            Ok((offset, length))
        })
        .collect()
}

/// Version 1.0: a count, then offset and length of each piece, a decimal number a line, filled up to whole blocks.
fn read_map(data: &mut impl Read) -> io::Result<Vec<u64>> {
    let (mut numbers, mut digits) = (Vec::new(), String::new());
    let mut block = [0; 512];
    loop {
        data.read_exact(&mut block)?;
        for byte in block {
            match byte {
                b'0'..=b'9' if digits.len() < 20 => digits.push(char::from(byte)),
                b'\n' => {
                    numbers.push(digits.parse().map_err(|_| bad("not a number"))?);
                    digits.clear();
                    let pieces = usize::try_from(numbers[0]).unwrap_or(usize::MAX);
                    if pieces > MAX_PIECES {
                        return Err(bad("too many pieces"));
                    }
                    if numbers.len() == 1 + 2 * pieces {
                        numbers.remove(0);
                        return Ok(numbers);
                    }
                }
                _ => return Err(bad("not a number")),
            }
        }
    }
}

/// Reads a sparse file with its holes as zeros.
pub(super) struct SparseReader<R> {
    data: R,
    /// Pieces that are left, the first at the end.
    pieces: Vec<(u64, u64)>,
    at: u64,
    size: u64,
}

impl<R: Read> Read for SparseReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while matches!(self.pieces.last(), Some((offset, length)) if self.at >= offset + length) {
            self.pieces.pop();
        }
        let (end, is_data) = match self.pieces.last() {
            Some((offset, length)) if self.at >= *offset => (offset + length, true),
            Some((offset, _)) => (*offset, false),
            None => (self.size, false),
        };
        let most = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let n = if is_data {
            match self.data.read(&mut buffer[..most])? {
                0 if most > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => n,
            }
        } else {
            buffer[..most].fill(0);
            most
        };
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(records: &[(&str, &str)], data: &[u8]) -> io::Result<Vec<u8>> {
        let sparse = Sparse::from_records(records.iter().copied())?.unwrap();
        let mut out = Vec::new();
        sparse.content(data)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn all_three_versions() {
        let expected = b"\0\0\0abc\0\0de\0";
        let old = [
            ("GNU.sparse.size", "11"),
            ("GNU.sparse.offset", "3"),
            ("GNU.sparse.numbytes", "3"),
            ("GNU.sparse.offset", "8"),
            ("GNU.sparse.numbytes", "2"),
        ];
        assert_eq!(content(&old, b"abcde").unwrap(), expected);
        let listed = [("GNU.sparse.size", "11"), ("GNU.sparse.map", "3,3,8,2"), ("GNU.sparse.name", "n")];
        assert_eq!(content(&listed, b"abcde").unwrap(), expected);
        let mut data = b"2\n3\n3\n8\n2\n".to_vec();
        data.resize(512, 0);
        data.extend(b"abcde");
        let newest = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "11")];
        assert_eq!(content(&newest, &data).unwrap(), expected);
        assert!(content(&newest, &data[..514]).is_err(), "data that ends early");
    }

    #[test]
    fn damaged_maps_are_errors() {
        for map in ["3,3,4,2", "9,3", "3", "x,1", "18446744073709551615,1"] {
            let records = [("GNU.sparse.size", "11"), ("GNU.sparse.map", map)];
            assert!(content(&records, b"abcdefgh").is_err(), "{map}");
        }
        assert!(content(&[("GNU.sparse.map", "0,1")], b"a").is_err(), "no size");
        assert!(content(&[("GNU.sparse.major", "2"), ("GNU.sparse.size", "1")], b"a").is_err());
        let no_map = [("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "11")];
        assert!(content(&no_map, &[b'x'; 512]).is_err());
    }

    #[test]
    fn other_records_make_no_sparse_file() {
        assert_eq!(Sparse::from_records([("path", "a"), ("mtime", "1")].into_iter()).unwrap(), None);
    }
}
