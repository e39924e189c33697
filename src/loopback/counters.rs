//! What the counters of a port say about traffic that a device sent to itself.

use crate::agent::counters::Counters;
use crate::facts::loopback::{CounterRise, CounterUnit};
use std::fs;
use std::path::{Path, PathBuf};

/// A port's counters at one moment.
pub struct Before {
    class: PathBuf,
    device: String,
    port: u32,
    bytes: Counters,
    packets: Option<(u64, u64)>,
}

/// Soft-RoCE counts packets (Linux, `drivers/infiniband/sw/rxe/rxe_hw_counters.c`).
const PACKETS: [&str; 2] = ["hw_counters/sent_pkts", "hw_counters/rcvd_pkts"];

impl Before {
    /// Reads them, below `/sys/class`.
    pub fn read(class: &Path, device: &str, port: u32) -> Before {
        Before {
            class: class.to_path_buf(),
            device: device.to_owned(),
            port,
            bytes: Counters::read(class),
            packets: packets(class, device, port),
        }
    }

    /// How much they rose since, beside what `moved_bytes` must have added: in packets of `mtu_bytes` where there is no counter
    /// of bytes.
    pub fn rise(&self, moved_bytes: u64, mtu_bytes: Option<u32>) -> Option<CounterRise> {
        let deltas = Counters::read(&self.class).since(&self.bytes);
        let mine = deltas.into_iter().find(|delta| delta.device == self.device && delta.port == Some(self.port));
        if let Some(delta) = mine {
            return Some(CounterRise {
                source: delta.source,
                unit: CounterUnit::Bytes,
                sent: delta.sent_bytes,
                received: delta.received_bytes,
                expected: moved_bytes,
            });
        }
        let (before, after) = (self.packets?, packets(&self.class, &self.device, self.port)?);
        Some(CounterRise {
            source: PACKETS[0].to_owned(),
            unit: CounterUnit::Packets,
            sent: after.0.saturating_sub(before.0),
            received: after.1.saturating_sub(before.1),
            expected: moved_bytes.div_ceil(u64::from(mtu_bytes?)),
        })
    }
}

fn packets(class: &Path, device: &str, port: u32) -> Option<(u64, u64)> {
    let folder = class.join("infiniband").join(device).join("ports").join(port.to_string());
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    Some((read(PACKETS[0])?, read(PACKETS[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_where_they_are_counted_else_packets() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, value: u64| {
            let path = tree.path().join("infiniband").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        };
        let both = |device: &str, names: [&str; 2], values: [u64; 2]| {
            for (name, value) in names.iter().zip(values) {
                write(&format!("{device}/ports/1/hw_counters/{name}"), value);
            }
        };
        let (bytes, packets) = (["hw_tx_bytes_cnt", "hw_rx_bytes_cnt"], ["sent_pkts", "rcvd_pkts"]);
        both("erdma_0", bytes, [100, 100]);
        both("rxe_0", packets, [5, 5]);
        write("none_0/ports/1/state", 4);
        let before: Vec<Before> =
            ["erdma_0", "rxe_0", "none_0"].iter().map(|device| Before::read(tree.path(), device, 1)).collect();
        both("erdma_0", bytes, [10_100, 10_099]);
        both("rxe_0", packets, [15, 16]);

        let rises: Vec<_> = before.iter().map(|before| before.rise(10_000, Some(1024))).collect();
        let erdma = rises[0].as_ref().unwrap();
        assert_eq!(
            (erdma.unit, erdma.sent, erdma.received, erdma.expected),
            (CounterUnit::Bytes, 10_000, 9_999, 10_000)
        );
        assert!(!erdma.confirms(), "a byte is missing");
        let rxe = rises[1].as_ref().unwrap();
        assert_eq!((rxe.unit, rxe.sent, rxe.received, rxe.expected), (CounterUnit::Packets, 10, 11, 10));
        assert!(rxe.confirms());
        assert_eq!(rises[2], None);
        assert!(!before[1].rise(0, Some(1024)).unwrap().confirms(), "nothing was moved");
    }
}
