//! What the counters of a port say about traffic that a device sent to itself.

use crate::facts::loopback::{CounterRise, CounterUnit};
use crate::sysfs::Tree;
use crate::sysfs::rdma::{Traffic, port_folder, traffic};
use std::path::{Path, PathBuf};

/// A port's counters at one moment.
pub(super) struct Before {
    root: PathBuf,
    /// Below the root.
    folder: String,
    bytes: Option<Traffic>,
    packets: Option<(u64, u64)>,
}

/// Soft-RoCE counts packets (Linux, `drivers/infiniband/sw/rxe/rxe_hw_counters.c`).
const PACKETS: [&str; 2] = ["hw_counters/sent_pkts", "hw_counters/rcvd_pkts"];

impl Before {
    /// Reads the counters, below the root that has `sys`.
    pub(super) fn read(root: &Path, device: &str, port: u32) -> Before {
        let folder = port_folder(device, &port.to_string());
        let tree = Tree::new(root);
        let (bytes, packets) = (traffic(&tree, &folder), packets(&tree, &folder));
        Before { root: root.to_path_buf(), folder, bytes, packets }
    }

    /// How much the counters rose, and how much `moved_bytes` must have added: in packets of `mtu_bytes` if the port has no
    /// byte counter.
    pub(super) fn rise(&self, moved_bytes: u64, mtu_bytes: Option<u32>) -> Option<CounterRise> {
        let tree = Tree::new(&self.root);
        // A counter that was reset counts from zero.
        let rise = |before: u64, after: u64| after.checked_sub(before).unwrap_or(after);
        if let Some(before) = &self.bytes {
            let after = traffic(&tree, &self.folder).filter(|after| after.source == before.source)?;
            return Some(CounterRise {
                source: after.source,
                unit: CounterUnit::Bytes,
                sent: rise(before.sent_bytes, after.sent_bytes),
                received: rise(before.received_bytes, after.received_bytes),
                expected: moved_bytes,
            });
        }
        let (before, after) = (self.packets?, packets(&tree, &self.folder)?);
        Some(CounterRise {
            source: PACKETS[0].to_owned(),
            unit: CounterUnit::Packets,
            sent: rise(before.0, after.0),
            received: rise(before.1, after.1),
            expected: moved_bytes.div_ceil(u64::from(mtu_bytes?)),
        })
    }
}

fn packets(tree: &Tree<'_>, folder: &str) -> Option<(u64, u64)> {
    let read = |file: &str| tree.number(&format!("{folder}/{file}"));
    Some((read(PACKETS[0])?, read(PACKETS[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn bytes_where_they_are_counted_else_packets() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, value: u64| {
            let path = tree.path().join("sys/class/infiniband").join(path);
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
