//! Counters of the ports, read again and again → rates.

use crate::facts::devices::{PortRates, TrafficSample};
use crate::sysfs::rdma::Traffic;
use crate::sysfs::{Tree, rdma};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Device and port.
type Key = (String, u32);

type Reading = BTreeMap<Key, Traffic>;

/// Watches the counters below a root.
#[derive(Debug)]
pub struct Watch {
    root: PathBuf,
    /// Names to watch; empty: all.
    devices: Vec<String>,
    at: Instant,
    last: Reading,
}

impl Watch {
    /// Reads the counters for the first time.
    pub fn start(root: &Path, devices: &[String]) -> Watch {
        let last = read(root, devices);
        Watch { root: root.to_path_buf(), devices: devices.to_vec(), at: Instant::now(), last }
    }

    /// Reads them again; how fast they rose since the last time.
    pub fn sample(&mut self, unix_time_s: u64) -> TrafficSample {
        let now = read(&self.root, &self.devices);
        let at = Instant::now();
        let interval_s = at.duration_since(self.at).as_secs_f64();
        let ports = rates(&self.last, &now, interval_s);
        (self.last, self.at) = (now, at);
        TrafficSample { unix_time_s, interval_s, ports }
    }
}

fn read(root: &Path, devices: &[String]) -> Reading {
    let tree = Tree::new(root);
    let wanted = |name: &String| devices.is_empty() || devices.contains(name);
    let mut found = BTreeMap::new();
    for device in rdma::devices(&tree).into_iter().filter(wanted) {
        for port in rdma::ports(&tree, &device) {
            let moved = rdma::traffic(&tree, &rdma::port_folder(&device, &port.to_string()));
            // A port without counters is shown as such.
            let moved = moved.unwrap_or(Traffic {
                sent_bytes: 0,
                received_bytes: 0,
                sent_packets: None,
                received_packets: None,
                source: String::new(),
            });
            found.insert((device.clone(), port), moved);
        }
    }
    found
}

/// One that is new, or went down because its driver was loaded anew, has no rate.
fn rates(before: &Reading, now: &Reading, interval_s: f64) -> Vec<PortRates> {
    let rate = |before: Option<u64>, now: Option<u64>| {
        let rise = now?.checked_sub(before?)?;
        (interval_s > 0.0).then(|| rise as f64 / interval_s)
    };
    let port = |((device, port), now): (&Key, &Traffic)| {
        let before = before.get(&(device.clone(), *port)).filter(|before| before.source == now.source);
        let bytes =
            |of: fn(&Traffic) -> u64| (!now.source.is_empty()).then(|| rate(before.map(of), Some(of(now)))).flatten();
        let packets = |of: fn(&Traffic) -> Option<u64>| rate(before.and_then(of), of(now));
        PortRates {
            device: device.clone(),
            port: *port,
            received_bytes_per_s: bytes(|moved| moved.received_bytes),
            received_packets_per_s: packets(|moved| moved.received_packets),
            sent_bytes_per_s: bytes(|moved| moved.sent_bytes),
            sent_packets_per_s: packets(|moved| moved.sent_packets),
        }
    };
    now.iter().map(port).collect()
}
