//! Counters of the ports, sampled repeatedly → rates.

use crate::facts::devices::{PortRates, TrafficSample};
use crate::sysfs::rdma::Traffic;
use crate::sysfs::{Tree, rdma};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One port at one moment.
#[derive(Debug, Clone)]
struct Reading {
    device: String,
    port: u32,
    /// `None`: the port has no byte counter.
    moved: Option<Traffic>,
}

/// Watches the counters below a root.
#[derive(Debug)]
pub struct Watch {
    root: PathBuf,
    /// Names to watch; empty: all.
    devices: Vec<String>,
    at: Instant,
    last: Vec<Reading>,
}

impl Watch {
    /// Reads the counters for the first time.
    pub fn start(root: &Path, devices: &[String]) -> Watch {
        let last = read(root, devices);
        Watch { root: root.to_path_buf(), devices: devices.to_vec(), at: Instant::now(), last }
    }

    /// Reads the counters again and returns how fast they rose since the last time.
    pub fn sample(&mut self, unix_time_s: u64) -> TrafficSample {
        let now = read(&self.root, &self.devices);
        let at = Instant::now();
        let interval_s = at.duration_since(self.at).as_secs_f64();
        let ports = rates(&self.last, &now, interval_s);
        (self.last, self.at) = (now, at);
        TrafficSample { unix_time_s, interval_s, ports }
    }
}

fn read(root: &Path, devices: &[String]) -> Vec<Reading> {
    let tree = Tree::new(root);
    let mut found = Vec::new();
    for device in rdma::devices(&tree) {
        if !devices.is_empty() && !devices.contains(&device) {
            continue;
        }
        for port in rdma::ports(&tree, &device) {
            let moved = rdma::traffic(&tree, &rdma::port_folder(&device, &port.to_string()));
            found.push(Reading { device: device.clone(), port, moved });
        }
    }
    found
}

/// A new port, or one whose counter fell because its driver was reloaded, has no rate.
fn rates(before: &[Reading], now: &[Reading], interval_s: f64) -> Vec<PortRates> {
    let port = |now: &Reading| {
        let last = before.iter().find(|before| (&before.device, before.port) == (&now.device, now.port));
        let rate = |of: fn(&Traffic) -> Option<u64>| {
            let rise = of(now.moved.as_ref()?)?.checked_sub(of(last?.moved.as_ref()?)?)?;
            (interval_s > 0.0).then(|| rise as f64 / interval_s)
        };
        PortRates {
            device: now.device.clone(),
            port: now.port,
            received_bytes_per_s: rate(|moved| Some(moved.received_bytes)),
            received_packets_per_s: rate(|moved| moved.received_packets),
            sent_bytes_per_s: rate(|moved| Some(moved.sent_bytes)),
            sent_packets_per_s: rate(|moved| moved.sent_packets),
        }
    };
    now.iter().map(port).collect()
}
