//! Causes that a line names by itself.

use super::Fault;
use super::software::{SKEW, SKEW_REMEDY};

/// A cause that a line names by itself.
pub(super) struct Words {
    pub id: &'static str,
    /// All of them in one line.
    pub marks: &'static [&'static str],
    pub summary: &'static str,
    pub remedy: &'static str,
    pub fault: Fault,
    /// A cause that says it better.
    pub unless: &'static str,
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
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: NO_IP.0,
        marks: &["No IP interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: NO_IP.0,
        marks: &["no socket interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: NO_IP.0,
        marks: &["No socket interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: NO_IP.0,
        marks: &["NET/Socket : no interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: NO_IP.0,
        marks: &["No usable listening interface found"],
        summary: NO_IP.1,
        remedy: NO_IP.2,
        fault: Fault::Launch,
        unless: "ifname-filter-matches-nothing",
    },
    Words {
        id: "port-in-use",
        marks: &["ddress already in use"],
        summary: "a port is taken by another process of the host's network",
        remedy: "choose another master port; in the host's network two runs cannot share one",
        fault: Fault::Launch,
        unless: "",
    },
    Words {
        id: "dmabuf-unsupported",
        marks: &["ibv_reg_dmabuf_mr", "failed", "Operation not supported"],
        summary: "the device's driver or the image's provider library cannot register dma-buf memory",
        remedy: "set NCCL_DMABUF_ENABLE=0 to use nvidia_peermem, or take newer rdma-core and driver (an old libmlx5 in the image does this, too)",
        fault: Fault::Host,
        unless: "",
    },
    Words {
        id: FORWARD.0,
        marks: &["forward compatibility was attempted on non supported HW"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
        unless: "",
    },
    Words {
        id: FORWARD.0,
        marks: &["unsupported display driver / cuda driver combination"],
        summary: FORWARD.1,
        remedy: FORWARD.2,
        fault: Fault::Image,
        unless: "",
    },
    Words {
        id: "gpu-not-passed",
        marks: &["no CUDA-capable device is detected"],
        summary: "the container sees no GPU",
        remedy: "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
        fault: Fault::Launch,
        unless: "",
    },
    Words {
        id: "gpu-not-passed",
        marks: &["Found no NVIDIA driver on your system"],
        summary: "the container sees no GPU",
        remedy: "start it with --gpus all (NVIDIA container toolkit), and check NVIDIA_VISIBLE_DEVICES",
        fault: Fault::Launch,
        unless: "",
    },
    Words {
        id: "nccl-version-skew",
        marks: &["Incompatible NCCL versions"],
        summary: SKEW,
        remedy: SKEW_REMEDY,
        fault: Fault::Image,
        unless: "",
    },
    Words {
        id: "nccl-version-skew",
        marks: &["was compiled with NCCL version", "but is running with"],
        summary: SKEW,
        remedy: SKEW_REMEDY,
        fault: Fault::Image,
        unless: "",
    },
    Words {
        id: "erdma-provider-missing",
        marks: &["couldn't load driver", "liberdma"],
        summary: "libibverbs finds no provider of eRDMA that it can load: the file is not there, or of another rdma-core (the number in its name)",
        remedy: "install libibverbs1 and ibverbs-providers from the vendor's repository together (rdmaprep build)",
        fault: Fault::Image,
        unless: "",
    },
    Words {
        id: "verbs-provider-missing",
        marks: &["no userspace device-specific driver found"],
        summary: "libibverbs has no provider for the device",
        remedy: "install ibverbs-providers of the fabric in the image (rdmaprep build)",
        fault: Fault::Image,
        unless: "erdma-provider-missing",
    },
    Words {
        id: "nvidia-toolkit-missing",
        marks: &["could not select device driver", "gpu"],
        summary: "the engine cannot give GPUs to a container: the NVIDIA container toolkit is not installed on the host",
        remedy: "install nvidia-container-toolkit on the host, then nvidia-ctk runtime configure and restart the engine",
        fault: Fault::Host,
        unless: "",
    },
    Words {
        id: "shm-too-small",
        marks: &["insufficient shared memory (shm)"],
        summary: "/dev/shm is full: a container has 64 MiB by default",
        remedy: "start the container with --shm-size=8g or --ipc=host",
        fault: Fault::Launch,
        unless: "",
    },
];
