//! What launchers and engines put in front of a program's line.

/// A line without its prefixes: mpirun's `[1,0]<stdout>:`, torchrun's `[rank0]:`, kubectl's `[pod/x/y] `, compose's
/// `name-1  | `, srun's `0: `, and the time of a container engine (`2026-01-02T03:04:05Z stdout F `) or of NCCL.
pub(super) fn without_lead(line: &[u8]) -> &[u8] {
    let mut line = line;
    for _ in 0..4 {
        match after_lead(line) {
            Some(rest) => line = rest,
            None => break,
        }
    }
    line
}

fn after_lead(line: &[u8]) -> Option<&[u8]> {
    match line.first()? {
        b'[' => after_bracket(line),
        first if first.is_ascii_digit() => after_time(line).or_else(|| after_number(line)),
        first if first.is_ascii_alphabetic() => after_bar(line),
        _ => None,
    }
}

fn after_bracket(line: &[u8]) -> Option<&[u8]> {
    let close = line.iter().take(160).position(|byte| *byte == b']')?;
    let (inner, rest) = (&line[1..close], &line[close + 1..]);
    for stream in [b"<stdout>:".as_slice(), b"<stderr>:", b"<stddiag>:"] {
        if let Some(rest) = rest.strip_prefix(stream) {
            return Some(rest);
        }
    }
    let is_label = |inner: &[u8]| {
        [b"rank".as_slice(), b"default"].iter().any(|start| inner.starts_with(start))
            || (!inner.is_empty() && inner.iter().all(u8::is_ascii_digit))
    };
    if is_label(inner)
        && let Some(rest) = rest.strip_prefix(b":")
    {
        return Some(rest.strip_prefix(b" ").unwrap_or(rest));
    }
    let is_time = inner.len() >= 19 && inner[..4].iter().all(u8::is_ascii_digit) && inner.contains(&b':');
    if is_time || inner.starts_with(b"pod/") { rest.strip_prefix(b" ") } else { None }
}

/// `2026-01-02T03:04:05.123456789Z `, with `stdout F ` behind it in a node's log.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    let is_time = line.len() > 20 && line[4] == b'-' && line[10] == b'T' && line[13] == b':';
    if !is_time {
        return None;
    }
    let space = line.iter().take(48).position(|byte| *byte == b' ')?;
    let rest = &line[space + 1..];
    for stream in [b"stdout F ".as_slice(), b"stderr F ", b"stdout P ", b"stderr P "] {
        if let Some(rest) = rest.strip_prefix(stream) {
            return Some(rest);
        }
    }
    Some(rest)
}

/// `12: `.
fn after_number(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().take(7).position(|byte| !byte.is_ascii_digit())?;
    line[end..].strip_prefix(b": ")
}

/// `worker-1  | `.
fn after_bar(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().take(64).position(|byte| *byte == b' ')?;
    let rest = line[end..].trim_ascii_start();
    (rest.starts_with(b"| ")).then(|| &rest[2..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leads_go() {
        for line in [
            "# Out of bounds values : 0 OK",
            "[1,0]<stdout>:# Out of bounds values : 0 OK",
            "[1,0]<stderr>:[rank0]:# Out of bounds values : 0 OK",
            "[rank0]: # Out of bounds values : 0 OK",
            "[pod/job-0/main] # Out of bounds values : 0 OK",
            "2026-01-02T03:04:05.123456789Z # Out of bounds values : 0 OK",
            "2026-01-02T03:04:05.123456789Z stdout F # Out of bounds values : 0 OK",
            "[2026-01-02 03:04:05] # Out of bounds values : 0 OK",
            "worker-1  | # Out of bounds values : 0 OK",
            "0: # Out of bounds values : 0 OK",
        ] {
            assert_eq!(without_lead(line.as_bytes()), b"# Out of bounds values : 0 OK", "{line}");
        }
        for line in ["", "[", "[1/2] FROM x", "8388608 2 float", "hca_id:\terdma_0", "a | b", "2026-01-02T"] {
            let expected = if line == "a | b" { "b" } else { line };
            assert_eq!(without_lead(line.as_bytes()), expected.as_bytes(), "{line}");
        }
    }
}
