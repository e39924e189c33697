//! Byte counters of RDMA devices and network interfaces.

use crate::facts::run::CounterDelta;
use crate::sysfs::{Tree, rdma};
use std::collections::BTreeMap;
use std::path::Path;

/// Device and port, and the file that was read.
type Key = (String, Option<u32>, String);

/// Values at one moment, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters(BTreeMap<Key, (u64, u64)>);

impl Counters {
    /// Reads all counters below a root.
    pub(super) fn read(root: &Path) -> Counters {
        let tree = Tree::new(root);
        let mut found = BTreeMap::new();
        for device in rdma::devices(&tree) {
            for port in rdma::ports(&tree, &device) {
                if let Some(moved) = rdma::traffic(&tree, &rdma::port_folder(&device, &port.to_string())) {
                    let key = (device.clone(), Some(port), moved.source);
                    found.insert(key, (moved.sent_bytes, moved.received_bytes));
                }
            }
        }
        // Ranks of one host talk over `lo`, whatever interface NCCL names.
        for interface in tree.list("sys/class/net") {
            let read = |file: &str| tree.number(&format!("sys/class/net/{interface}/statistics/{file}"));
            if let (Some(sent), Some(received)) = (read("tx_bytes"), read("rx_bytes")) {
                found.insert((interface, None, "statistics/tx_bytes".to_owned()), (sent, received));
            }
        }
        Counters(found)
    }

    /// How much each counter rose since `before`; one that was reset counts from zero.
    pub(super) fn since(&self, before: &Counters) -> Vec<CounterDelta> {
        let deltas = self.0.iter().filter_map(|((device, port, source), after)| {
            let before = before.0.get(&(device.clone(), *port, source.clone()))?;
            let rise = |before: u64, after: u64| after.checked_sub(before).unwrap_or(after);
            Some(CounterDelta {
                device: device.clone(),
                port: *port,
                sent_bytes: rise(before.0, after.0),
                received_bytes: rise(before.1, after.1),
                source: source.clone(),
            })
        });
        deltas.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn units_are_bytes_and_a_reset_is_no_wrap() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, value: u64| {
            let path = tree.path().join("sys/class").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        };
        let mlx5 = "infiniband/mlx5_0/ports/1/counters";
        let erdma = "infiniband/erdma_0/ports/1/hw_counters";
        for (path, value) in [
            (format!("{mlx5}/port_xmit_data"), 10),
            (format!("{mlx5}/port_rcv_data"), 20),
            (format!("{erdma}/hw_tx_bytes_cnt"), 1000),
            (format!("{erdma}/hw_rx_bytes_cnt"), 0),
            ("net/eth0/statistics/tx_bytes".to_owned(), 5000),
            ("net/eth0/statistics/rx_bytes".to_owned(), 5000),
            ("net/lo/statistics/tx_bytes".to_owned(), 1),
            ("net/lo/statistics/rx_bytes".to_owned(), 1),
        ] {
            write(&path, value);
        }
        let before = Counters::read(tree.path());
        write(&format!("{mlx5}/port_xmit_data"), 110);
        write(&format!("{erdma}/hw_rx_bytes_cnt"), 7);
        write("net/eth0/statistics/tx_bytes", 40);
        let deltas = Counters::read(tree.path()).since(&before);
        let said: Vec<_> = deltas.iter().map(|d| (d.device.as_str(), d.port, d.sent_bytes, d.received_bytes)).collect();
        let expected =
            [("erdma_0", Some(1), 0, 7), ("eth0", None, 40, 0), ("lo", None, 0, 0), ("mlx5_0", Some(1), 400, 0)];
        assert_eq!(said, expected);
    }
}
