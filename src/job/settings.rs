//! The variables that a job sets if the platform sets none. Pure.

use super::spec::JobSpec;
use crate::fabric::erdma::ERDMA;
use crate::targets;

/// Variables of PAI-DLC that do not carry over to another platform of the same fabric: interfaces and devices have
/// different names there. The ACK page's own node has `rocep26s0`, which a filter for `erdma` would exclude.
const OF_THE_PLATFORM: [&str; 2] = ["NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"];

/// Variables in the order in which they are set; the user's are last and replace others.
pub(super) fn variables(spec: &JobSpec) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match variables.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => variables.push((name.to_owned(), value.to_owned())),
    };
    // Without its log nothing proves which path the data took.
    set("NCCL_DEBUG", "INFO");
    if spec.target.fabric.id == ERDMA.id {
        let presets = targets::by_id("pai-dlc").map_or(&[] as &[_], |target| target.nccl_presets);
        for (name, value) in presets.iter().filter(|(name, _)| !OF_THE_PLATFORM.contains(name)) {
            set(name, value);
        }
    }
    if let Some(interface) = &spec.interface {
        set("NCCL_SOCKET_IFNAME", interface);
        // torch.distributed's other backend, which DDP jobs use for objects and barriers.
        set("GLOO_SOCKET_IFNAME", interface);
    }
    for variable in &spec.env {
        set(&variable.name, &variable.value);
    }
    variables
}

/// Notes about them for the user.
pub(super) fn notes(spec: &JobSpec) -> Vec<String> {
    let mut notes = Vec::new();
    let is_given = |name: &str| spec.env.iter().any(|variable| variable.name == name);
    if !is_given("NCCL_IB_GID_INDEX") {
        notes.push(if spec.target.fabric.id == ERDMA.id {
            "GID index 1 is usual for eRDMA, but not right for every NIC: `rdmaprep devices` on a host shows them; with NCCL \
             2.21 or newer each NIC finds its own\n  --env NCCL_IB_GID_INDEX=-1"
                .to_owned()
        } else {
            "NCCL 2.21 or newer finds the RoCE v2 GID itself; an older one needs its index, which `rdmaprep devices` on a \
             host shows\n  --env NCCL_IB_GID_INDEX=N"
                .to_owned()
        });
    }
    if spec.interface.is_none() && !is_given("NCCL_SOCKET_IFNAME") {
        notes.push(
            "hosts with bridges or several networks may try to meet over the wrong one\n  --interface eth0   (the name on the hosts)"
                .to_owned(),
        );
    }
    notes
}
