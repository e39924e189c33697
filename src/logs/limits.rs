//! What a text says of the container: limits, sizes and device nodes.

use crate::logs::nccl::Limit;

/// What is known about the container.
#[derive(Debug, Default)]
pub struct Limits {
    pub memlock: Limit,
    pub shm_bytes: Option<u64>,
    /// `/dev/nvidiactl` is there.
    pub gpu_nodes: Option<bool>,
}

impl Limits {
    pub fn push_line(&mut self, line: &str) {
        let line = line.trim_end();
        if line.starts_with("max locked memory") || line.starts_with("Max locked memory") {
            self.memlock = memlock(line).unwrap_or(self.memlock);
        } else if line.ends_with(" /dev/shm") {
            self.shm_bytes = shm(line).or(self.shm_bytes);
        } else if line.contains("The NVIDIA Driver was not detected") {
            // The banner of NVIDIA's images.
            self.gpu_nodes = Some(false);
        } else if line.contains("/dev/nvidia") {
            if line.contains("No such file") {
                self.gpu_nodes = Some(false);
            } else if line.ends_with("/dev/nvidiactl") {
                self.gpu_nodes = Some(true);
            }
        }
    }

    pub fn append(&mut self, other: &Limits) {
        if other.memlock != Limit::NotKnown {
            self.memlock = other.memlock;
        }
        self.shm_bytes = other.shm_bytes.or(self.shm_bytes);
        self.gpu_nodes = other.gpu_nodes.or(self.gpu_nodes);
    }
}

/// `max locked memory (kbytes, -l) 64` (bash), `Max locked memory 65536 65536 bytes` (/proc/PID/limits).
fn memlock(line: &str) -> Option<Limit> {
    let (value, unit) = match line.split_once(')') {
        Some((_, rest)) => (rest.split_whitespace().next()?, 1024),
        None => (line.split_whitespace().nth(3)?, 1),
    };
    if value == "unlimited" {
        return Some(Limit::Unlimited);
    }
    Some(Limit::Bytes(value.parse::<u64>().ok()?.saturating_mul(unit)))
}

/// `shm 65536 0 65536 0% /dev/shm` (df), `shm 64M 0 64M 0% /dev/shm` (df -h).
fn shm(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().take(7).collect();
    let [_, size, _, _, share, "/dev/shm"] = words[..] else { return None };
    if !share.ends_with('%') {
        return None;
    }
    let unit: f64 = match size.as_bytes().last()? {
        b'K' => 1024.0,
        b'M' => 1024.0 * 1024.0,
        b'G' => 1024.0 * 1024.0 * 1024.0,
        _ => return Some(size.parse::<u64>().ok()?.saturating_mul(1024)),
    };
    // A size as people read it may have a fraction.
    let number: f64 = size[..size.len() - 1].parse().ok()?;
    (number >= 0.0).then_some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shells_say() {
        for (line, expected) in [
            ("max locked memory           (kbytes, -l) 64", Limit::Bytes(65_536)),
            ("max locked memory       (kbytes, -l) unlimited", Limit::Unlimited),
            ("Max locked memory         8388608              8388608              bytes", Limit::Bytes(8_388_608)),
            ("Max locked memory         unlimited            unlimited            bytes", Limit::Unlimited),
            ("max locked memory", Limit::NotKnown),
        ] {
            let mut limits = Limits::default();
            limits.push_line(line);
            assert_eq!(limits.memlock, expected, "{line}");
        }
        for (line, expected) in [
            ("shm                65536     0     65536   0% /dev/shm", Some(64 << 20)),
            ("shm              64M     0   64M   0% /dev/shm", Some(64 << 20)),
            ("tmpfs           1.5G     0  1.5G   0% /dev/shm", Some(3 << 29)),
            ("mount: /dev/shm", None),
        ] {
            let mut limits = Limits::default();
            limits.push_line(line);
            assert_eq!(limits.shm_bytes, expected, "{line}");
        }
        let mut limits = Limits::default();
        limits.push_line("ls: cannot access '/dev/nvidiactl': No such file or directory");
        assert_eq!(limits.gpu_nodes, Some(false));
        limits.push_line("crw-rw-rw- 1 root root 195, 255 Jan  2 03:04 /dev/nvidiactl");
        assert_eq!(limits.gpu_nodes, Some(true));
    }
}
