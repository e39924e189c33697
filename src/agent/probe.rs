//! Probes of libcuda and libibverbs, each in a separate process: a crash in a library affects only that.

use crate::facts::run::{Failure, Gpu, GpuProbe, VerbsProbe};
use crate::ffi::cuda::{Attribute, Cuda};
use crate::ffi::verbs::Verbs;
use std::fs;

/// Probes libcuda.
pub(super) fn gpus() -> GpuProbe {
    let mut probe =
        GpuProbe { library: None, cuda_version_code: None, gpus: Vec::new(), peer_access: Vec::new(), failure: None };
    probe.failure = fill_gpus(&mut probe).err();
    probe
}

/// Results from before a failure are kept.
fn fill_gpus(probe: &mut GpuProbe) -> Result<(), Failure> {
    let cuda = Cuda::open()?;
    probe.library = Some(cuda.library().clone());
    probe.cuda_version_code = Some(cuda.driver_version()?);
    cuda.init()?;
    let count = cuda.device_count()?;
    let mut devices = Vec::new();
    for index in 0..count {
        let device = cuda.device(index)?;
        let pci_address = cuda.device_pci_address(device)?;
        // A driver older than an attribute does not know it.
        let flag = |attribute| cuda.attribute(device, attribute).ok().map(|value| value != 0);
        probe.gpus.push(Gpu {
            index,
            name: cuda.device_name(device)?,
            memory_bytes: cuda.device_memory_bytes(device)?,
            compute_capability: (
                cuda.attribute(device, Attribute::ComputeCapabilityMajor)?,
                cuda.attribute(device, Attribute::ComputeCapabilityMinor)?,
            ),
            ecc: flag(Attribute::EccEnabled),
            numa_node: numa_node(&pci_address),
            gpu_direct_rdma: flag(Attribute::GpuDirectRdmaSupported),
            dma_buf: flag(Attribute::DmaBufSupported),
            pci_address,
        });
        devices.push(device);
    }
    for (index, device) in (0_u32..).zip(&devices) {
        for (peer_index, peer) in (0_u32..).zip(&devices) {
            if index != peer_index && cuda.can_access_peer(*device, *peer)? {
                probe.peer_access.push((index, peer_index));
            }
        }
    }
    Ok(())
}

fn numa_node(pci_address: &str) -> Option<i32> {
    let node = fs::read_to_string(format!("/sys/bus/pci/devices/{pci_address}/numa_node")).ok()?;
    // -1: the firmware does not report it.
    node.trim().parse().ok().filter(|node| *node >= 0)
}

/// Probes libibverbs.
pub(super) fn verbs() -> VerbsProbe {
    match Verbs::open() {
        Err(failure) => VerbsProbe { library: None, devices: Vec::new(), failure: Some(failure), warnings: Vec::new() },
        Ok(verbs) => {
            let (devices, failure) = match verbs.devices() {
                Ok(devices) => (devices, None),
                Err(failure) => (Vec::new(), Some(failure)),
            };
            VerbsProbe { library: Some(verbs.library().clone()), devices, failure, warnings: Vec::new() }
        }
    }
}
