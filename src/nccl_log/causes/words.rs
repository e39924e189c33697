//! Causes that a line names by itself.

use super::Fault;

/// A cause that a line names by itself.
pub(super) struct Words {
    pub id: &'static str,
    /// All of them in one line.
    pub marks: &'static [&'static str],
    pub summary: &'static str,
    pub remedy: &'static str,
    pub fault: Fault,
}

const NO_IP: (&str, &str, &str) = (
    "no-ip-interface",
    "there is no usable IP interface in the container",
    "run the container in the host's network (--network host, hostNetwork: true), and check NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY where they are set",
);
const FORWARD: (&str, &str, &str) = (
    "cuda-forward-compat",
    "the image's CUDA forward-compatibility libcuda does not fit this GPU or driver",
    "take /usr/local/cuda/compat off the loader's path (ld.so.conf.d, LD_LIBRARY_PATH), or upgrade the host's driver",
);

pub(super) const WORDS: &[Words] = &[
    Words {
        id: NO_IP.0,
        marks: &["Address family not supported by protocol"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words { id: NO_IP.0, marks: &["No IP interface found"], summary: NO_IP.1, remedy: NO_IP.2, fault: Fault::Launch },
    Words {
        id: NO_IP.0,
        marks: &["no socket interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: NO_IP.0,
        marks: &["NET/Socket : no interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: NO_IP.0,
        marks: &["No usable listening interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
    },
    Words {
        id: "port-in-use",
        marks: &["ddress already in use"],
        summary: "a port is taken by another process of the host's network",
        remedy: "choose another master port; in the host's network two runs cannot share one",
        fault: Fault::Launch,
    },
    Words {
        id: "dmabuf-unsupported",
        marks: &["ibv_reg_dmabuf_mr", "failed", "Operation not supported"],
        summary: "the device's driver or the image's provider library cannot register dma-buf memory",
        remedy: "set NCCL_DMABUF_ENABLE=0 to use nvidia_peermem, or take newer rdma-core and driver (an old libmlx5 in the image does this, too)",
        fault: Fault::Host,
    },
    Words {
        id: FORWARD.0,
        marks: &["forward compatibility was attempted on non supported HW"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
    },
    Words {
        id: FORWARD.0,
        marks: &["unsupported display driver / cuda driver combination"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
    },
    Words {
        id: "gpu-not-passed",
        marks: &["no CUDA-capable device is detected"],
        summary: "the container sees no GPU",
        remedy: "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
        fault: Fault::Launch,
    },
    Words {
        id: "nccl-too-old-loaded",
        marks: &["undefined symbol: nccl"],
        summary: "the NCCL that the loader found is older than the one the program was built with",
        remedy: "find which libnccl.so.2 is loaded (LD_LIBRARY_PATH comes before the wheel's own) and take the old one out of the way",
        fault: Fault::Image,
    },
    Words {
        id: "nccl-version-skew",
        marks: &["Incompatible NCCL versions"],
        summary: "the program was built with another NCCL than it runs with",
        remedy: "rebuild it, or load the NCCL that it was built with",
        fault: Fault::Image,
    },
    Words {
        id: "nccl-version-skew",
        marks: &["was compiled with NCCL version", "but is running with"],
        summary: "the program was built with another NCCL than it runs with",
        remedy: "rebuild it, or load the NCCL that it was built with",
        fault: Fault::Image,
    },
];
