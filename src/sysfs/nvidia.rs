//! Files of NVIDIA's kernel driver.

use super::Tree;

/// One GPU of `/proc/driver/nvidia/gpus/*/information`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuInformation {
    /// PCI address such as `0000:1a:00.0`: the name of the directory.
    pub pci_address: String,
    /// `Device Minor`: the number in `/dev/nvidia0`. `None`: the file cannot be read, or lacks it.
    pub minor: Option<u32>,
    pub model: Option<String>,
    /// `GPU-…`
    pub uuid: Option<String>,
    /// The file was read.
    pub is_read: bool,
}

/// Every GPU of the driver, sorted by address.
pub fn load_gpus(tree: &Tree<'_>) -> Vec<GpuInformation> {
    let gpu = |address: String| {
        let Some(text) = tree.text(&format!("proc/driver/nvidia/gpus/{address}/information")) else {
            return GpuInformation { pci_address: address, ..GpuInformation::default() };
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))?.1;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        GpuInformation {
            pci_address: address,
            minor: field("Device Minor").and_then(|minor| minor.parse().ok()),
            model: field("Model"),
            uuid: field("GPU UUID"),
            is_read: true,
        }
    };
    tree.list("proc/driver/nvidia/gpus").into_iter().map(gpu).collect()
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 …`: the first word that is a version. The open
/// module says `NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build …`.
pub fn parse_driver_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut numbers = word.split('.');
        word.contains('.') && numbers.all(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    version_line(text)?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Whether the module is the open one, by the same line; `None`: the line is missing.
pub fn is_open_module(text: &str) -> Option<bool> {
    Some(version_line(text)?.contains("Open Kernel Module"))
}

fn version_line(text: &str) -> Option<&str> {
    text.lines().find(|line| line.starts_with("NVRM version:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_drivers_of_both_modules() {
        for (text, version, open) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version: 12.2.0",
                "535.54.03",
                false,
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root@host)",
                "580.65.06",
                true,
            ),
        ] {
            assert_eq!((parse_driver_version(text).as_deref(), is_open_module(text)), (Some(version), Some(open)));
        }
        assert_eq!((parse_driver_version("GCC version: 12.2.0"), is_open_module("GCC version: 12.2.0")), (None, None));
    }
}
