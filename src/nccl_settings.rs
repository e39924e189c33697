//! NCCL's settings as NCCL itself reads them: configuration files and interface filters. Pure: text → values.
//!
//! Sources: NVIDIA/nccl `src/misc/param.cc` (files) and `src/misc/utils.cc`, `src/transport/net_ib.cc` (filters), v2.19 to
//! v2.30; they are alike in all of them.

/// Most entries of a filter of devices (`MAX_IB_DEVS`; it was 16 before 2.23).
const MAX_DEVICES: usize = 32;

/// Most entries of a filter of interfaces (`MAX_IFS`, `src/include/socket.h`).
pub const MAX_INTERFACES: usize = 16;

/// Reads a configuration file (`/etc/nccl.conf`, `~/.nccl.conf`, `$NCCL_CONF_FILE`).
///
/// Like NCCL, it knows no comments and trims nothing: a line with `#` or a space before the name sets a variable that
/// nobody asks for. The first line of a name counts.
pub fn parse_conf(text: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    for line in text.split('\n') {
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.starts_with("NCCL_") && !settings.iter().any(|(known, _)| known == name) {
            settings.push((name.to_owned(), value.to_owned()));
        }
    }
    settings
}

/// A number as `strtoll(…, 0)` reads it; `None` where NCCL falls back to the default.
pub fn parse_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (16, hex),
        None if digits.starts_with('0') && digits.len() > 1 => (8, digits),
        None => (10, digits),
    };
    // NCCL takes the number at the start and does not look at what follows.
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let value = i64::from_str_radix(&digits[..end], radix).ok()?;
    Some(if negative { -value } else { value })
}

/// The value of `NCCL_IB_HCA` or `NCCL_SOCKET_IFNAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceFilter {
    /// `^`: what the list names is left out.
    pub excludes: bool,
    /// `=`: names are whole names, not beginnings.
    pub exact: bool,
    /// Name, and port where it has one.
    pub entries: Vec<(String, Option<u32>)>,
}

impl InterfaceFilter {
    /// Reads the value of `NCCL_IB_HCA`: `[^][=]name[:port],…`. Only this order of the two signs works: in `=^x` the name is
    /// `^x`.
    pub fn parse(text: &str) -> InterfaceFilter {
        InterfaceFilter::parse_up_to(text, MAX_DEVICES)
    }

    /// Reads the value of `NCCL_SOCKET_IFNAME`, which has the same form.
    pub fn parse_sockets(text: &str) -> InterfaceFilter {
        InterfaceFilter::parse_up_to(text, MAX_INTERFACES)
    }

    /// The value of `NCCL_IB_HCA` that lets these devices through and no other: `=erdma_0,erdma_1`.
    pub fn exactly<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
        format!("={}", names.into_iter().collect::<Vec<_>>().join(","))
    }

    fn parse_up_to(text: &str, limit: usize) -> InterfaceFilter {
        let (excludes, text) = strip(text, '^');
        let (exact, text) = strip(text, '=');
        let entries = text
            .split(',')
            .filter_map(|entry| {
                let (name, port) = match entry.split_once(':') {
                    // Text after a second colon is skipped.
                    Some((name, rest)) => (name, Some(rest.split(':').next().unwrap_or(rest))),
                    None => (entry, None),
                };
                let port = port.map(leading_integer).and_then(|port| u32::try_from(port).ok());
                (!name.is_empty()).then(|| (name.to_owned(), port))
            })
            .take(limit)
            .collect();
        InterfaceFilter { excludes, exact, entries }
    }

    /// Whether NCCL uses a device or interface; `port` is `None` for an interface.
    pub fn allows(&self, name: &str, port: Option<u32>) -> bool {
        let listed = self.entries.is_empty()
            || self.entries.iter().any(|(wanted, wanted_port)| {
                let named = if self.exact { name == wanted } else { name.starts_with(wanted.as_str()) };
                named && (port.is_none() || wanted_port.is_none() || *wanted_port == port)
            });
        listed != self.excludes
    }
}

fn strip(text: &str, sign: char) -> (bool, &str) {
    match text.strip_prefix(sign) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// `atoi`: nothing to read is zero.
fn leading_integer(text: &str) -> i64 {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['-', '+']));
    let end = text[sign..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| at + sign);
    text[..end].trim_start_matches('+').parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case D07, every example of it.
    #[test]
    fn the_grammar_of_device_filters() {
        let devices = ["mlx5_1", "mlx5_10", "mlx5_11", "erdma_0", "erdma_1"];
        let mlx5 = ["mlx5_1", "mlx5_10", "mlx5_11"].as_slice();
        for (text, expected) in [
            ("mlx5_1", mlx5),
            ("=mlx5_1", &["mlx5_1"]),
            ("^mlx5_1", &["erdma_0", "erdma_1"]),
            ("^=mlx5_1", &["mlx5_10", "mlx5_11", "erdma_0", "erdma_1"]),
            ("mlx5_1:1", mlx5),
            ("mlx5_1:2", &[]),
            ("erdma", &["erdma_0", "erdma_1"]),
            ("=erdma", &[]),
            ("", &devices),
            ("=^erdma_0", &[]),
            // An entry may be empty, a port may be any, and more than one colon changes nothing.
            (",,erdma_0,", &["erdma_0"]),
            ("erdma_0:-1", &["erdma_0"]),
            ("erdma_0:1:eth0,mlx5_10", &["mlx5_10", "erdma_0"]),
            ("^", &[]),
        ] {
            let filter = InterfaceFilter::parse(text);
            let allowed: Vec<&str> = devices.into_iter().filter(|device| filter.allows(device, Some(1))).collect();
            assert_eq!(allowed, expected, "{text:?}");
        }
    }

    #[test]
    fn a_filter_has_as_many_entries_as_nccl_takes() {
        let names: Vec<String> = (0..40).map(|number| format!("eth{number:02}")).collect();
        let text = names.join(",");
        let count = |filter: &InterfaceFilter| names.iter().filter(|name| filter.allows(name, None)).count();
        assert_eq!(count(&InterfaceFilter::parse(&text)), 32);
        assert_eq!(count(&InterfaceFilter::parse_sockets(&text)), 16);
    }

    #[test]
    fn configuration_files() {
        let text = "# comment\nNCCL_IB_DISABLE=1\n NCCL_DEBUG=INFO\n#NCCL_NET=Socket\nNCCL_X\nNCCL_IB_DISABLE=0\nNCCL_A=b=c\r\nPATH=/x\n";
        let settings = parse_conf(text);
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(settings, [("NCCL_IB_DISABLE", "1"), ("NCCL_A", "b=c\r")]);
    }

    #[test]
    fn numbers() {
        for (text, value) in [
            ("1", Some(1)),
            ("-1", Some(-1)),
            (" 0x10", Some(16)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("3abc", Some(3)),
            ("", None),
            ("yes", None),
        ] {
            assert_eq!(parse_number(text), value, "{text:?}");
        }
    }
}
