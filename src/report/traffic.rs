//! Traffic of RDMA ports, as `eadm stat -l` shows it: a line per port and interval, and totals at the end.

use super::visible;
use crate::facts::devices::TrafficSample;
use crate::units::Bytes;
use std::io::{self, Write};

/// Totals over all samples, by port.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    /// Ports in the order in which samples name them.
    ports: Vec<(String, u32, PortTotals)>,
    pub time_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PortTotals {
    pub received: Flow,
    pub sent: Flow,
}

/// One direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    pub bytes: f64,
    pub packets: f64,
    pub most_bytes_per_s: f64,
    /// `None`: no sample had a rate.
    pub least_bytes_per_s: Option<f64>,
}

impl Flow {
    fn add(&mut self, bytes_per_s: Option<f64>, packets_per_s: Option<f64>, interval_s: f64) {
        self.packets += packets_per_s.unwrap_or(0.0) * interval_s;
        let Some(rate) = bytes_per_s else { return };
        self.bytes += rate * interval_s;
        self.most_bytes_per_s = self.most_bytes_per_s.max(rate);
        self.least_bytes_per_s = Some(self.least_bytes_per_s.map_or(rate, |least| least.min(rate)));
    }
}

impl Totals {
    pub fn add(&mut self, sample: &TrafficSample) {
        self.time_s += sample.interval_s;
        for port in &sample.ports {
            let known =
                self.ports.iter().position(|(device, number, _)| (device, *number) == (&port.device, port.port));
            let at = known.unwrap_or_else(|| {
                self.ports.push((port.device.clone(), port.port, PortTotals::default()));
                self.ports.len() - 1
            });
            let totals = &mut self.ports[at].2;
            totals.received.add(port.received_bytes_per_s, port.received_packets_per_s, sample.interval_s);
            totals.sent.add(port.sent_bytes_per_s, port.sent_packets_per_s, sample.interval_s);
        }
    }

    /// Device, port, totals.
    pub fn ports(&self) -> impl Iterator<Item = (&str, u32, &PortTotals)> {
        self.ports.iter().map(|(device, port, totals)| (device.as_str(), *port, totals))
    }
}

/// Writes a sample: the time, then a line per port, in the format of `eadm stat -l`.
pub fn write_sample(out: &mut dyn Write, sample: &TrafficSample) -> io::Result<()> {
    writeln!(out, "{} UTC", time_of_day(sample.unix_time_s))?;
    for line in sample_lines(sample) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The lines of the ports.
fn sample_lines(sample: &TrafficSample) -> Vec<String> {
    if sample.ports.is_empty() {
        return vec!["  no RDMA device".to_owned()];
    }
    let width = sample.ports.iter().map(|port| port.device.chars().count()).max().unwrap_or(0);
    let port = |port: &crate::facts::devices::PortRates| {
        format!(
            "  {:<width$}  port {}  rx: {:>10} {:>11}  tx: {:>10} {:>11}",
            visible(&port.device),
            port.port,
            say_bytes(port.received_bytes_per_s),
            say_packets(port.received_packets_per_s),
            say_bytes(port.sent_bytes_per_s),
            say_packets(port.sent_packets_per_s)
        )
    };
    sample.ports.iter().map(port).collect()
}

fn say_bytes(rate: Option<f64>) -> String {
    rate.map_or("- B/s".to_owned(), |rate| format!("{}/s", Bytes(rate.round() as u64)))
}

fn say_packets(rate: Option<f64>) -> String {
    rate.map_or("- p/s".to_owned(), |rate| format!("{rate:.0} p/s"))
}

/// `14:53:00`
fn time_of_day(unix_time_s: u64) -> String {
    let second = unix_time_s % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Writes the totals over all samples, as `eadm stat` does at its end.
pub fn write_totals(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    for (device, port, of_port) in totals.ports() {
        writeln!(out, "{} port {port}, {:.1} s", visible(device), totals.time_s)?;
        for (name, flow) in [("rx", &of_port.received), ("tx", &of_port.sent)] {
            let average = (totals.time_s > 0.0).then(|| flow.bytes / totals.time_s);
            let known = flow.least_bytes_per_s.is_some();
            writeln!(
                out,
                "  {name}: {} in {:.0} packets; max {}, average {}, min {}",
                Bytes(flow.bytes.round() as u64),
                flow.packets,
                say_bytes(Some(flow.most_bytes_per_s).filter(|_| known)),
                say_bytes(average.filter(|_| known)),
                say_bytes(flow.least_bytes_per_s)
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::devices::PortRates;

    fn sample(received: Option<f64>, sent: Option<f64>) -> TrafficSample {
        let port = PortRates {
            device: "erdma_0".into(),
            port: 1,
            received_bytes_per_s: received,
            received_packets_per_s: received.map(|rate| rate / 1000.0),
            sent_bytes_per_s: sent,
            sent_packets_per_s: None,
        };
        TrafficSample {
            unix_time_s: 1_732_892_400 - 1_732_892_400 % 86_400 + 53_580,
            interval_s: 2.0,
            ports: vec![port],
        }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_sample_is_a_line_per_port() {
        let said = text(|out| write_sample(out, &sample(Some(5.5e9), None)));
        assert_eq!(said, "14:53:00 UTC\n  erdma_0  port 1  rx:   5.5 GB/s 5500000 p/s  tx:      - B/s       - p/s\n");
        let empty = TrafficSample { unix_time_s: 0, interval_s: 1.0, ports: Vec::new() };
        assert_eq!(text(|out| write_sample(out, &empty)), "00:00:00 UTC\n  no RDMA device\n");
    }

    #[test]
    fn totals_have_extremes_and_an_average() {
        let mut totals = Totals::default();
        for (received, sent) in [(Some(1000.0), None), (Some(3000.0), None), (None, None)] {
            totals.add(&sample(received, sent));
        }
        let said = text(|out| write_totals(out, &totals));
        let expected = "erdma_0 port 1, 6.0 s\n  rx: 8.0 kB in 8 packets; max 3.0 kB/s, average 1.3 kB/s, min 1.0 kB/s\n  \
                        tx: 0 B in 0 packets; max - B/s, average - B/s, min - B/s\n";
        assert_eq!(said, expected);
    }
}
