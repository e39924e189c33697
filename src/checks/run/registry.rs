//! The checks of a preflight and what is to be known of each.
//!
//! The order is that of reports. Wrong data comes first: nothing else that a run shows outweighs it.

use super::{Judge, container, cuda, data, limits, nccl, ranks, rdma, settings};
use crate::checks::Check;
use crate::checks::Severity::{Advice, Required};

/// Every check of a run.
pub static REGISTRY: &[Check<Judge>] = &[
    Check {
        id: "data-correct",
        severity: Required,
        exceptions: &[],
        about: "Every element of every result has the right value.",
        needs: &["rows", "collective"],
        why: "Wrong sums do not stop a job: it keeps training, towards a worse model. One run does not tell whether they come from \
              the image or the host, so the verdict is against the image until another run clears it.",
        remedy: "Run again without GPUDirect (--env NCCL_NET_GDR_LEVEL=LOC), then without P2P, then with another NCCL.",
        source: "NVIDIA/nccl-tests issues 7, 8 and 131; Mellanox/nv_peer_memory issue 38",
        judge: data::data_correct,
    },
    Check {
        id: "container-start",
        severity: Required,
        exceptions: &[],
        about: "The engine starts a container with GPUs and RDMA devices, and the agent responds.",
        needs: &["launch", "ending"],
        why: "A job's containers are started in the same way: the engine refuses there what it refuses here, and it is mostly \
              the host that lacks something.",
        remedy: "Set up the NVIDIA container toolkit on the host, update its driver, or start from an image with glibc.",
        source: "NVIDIA/nvidia-docker issues 753 and 1034; NVIDIA/nvidia-container-toolkit issue 871",
        judge: container::container_start,
    },
    Check {
        id: "gpu-visible",
        severity: Required,
        exceptions: &[],
        about: "CUDA sees a GPU in the container.",
        needs: &["gpus", "environment"],
        why: "CUDA gives one message if no GPU was passed in and if the driver is too old; /dev/nvidiactl tells the two \
              apart.",
        remedy: "docker run --gpus all; if the GPUs are there, a newer driver on the host.",
        source: "NVIDIA/nvidia-docker issues 400, 1256 (error 803) and 1515 (error 804); rapidsai/cuml issue 5961",
        judge: cuda::gpu_visible,
    },
    Check {
        id: "cuda-library",
        severity: Required,
        exceptions: &[],
        about: "The libcuda that processes open is the host driver's.",
        needs: &["gpus", "environment"],
        why: "The toolkit's stub opens and does nothing, a compatibility driver works only with some hosts, and one \
              built into the image only with the host that it was built on.",
        remedy: "Take stubs and compat directories off the loader's path; ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        source: "NVIDIA container toolkit, \"Driver Capabilities\"; NVIDIA/nvidia-docker issue 1256",
        judge: cuda::cuda_library,
    },
    Check {
        id: "driver-version",
        severity: Required,
        exceptions: &[],
        about: "The host's driver is new enough for the image's CUDA and for the target.",
        needs: &["gpus"],
        why: "A driver of the same major CUDA version runs older and newer programs of that version, but does not compile \
              their code at run time; one of an older major version runs nothing.",
        remedy: "Update the host's GPU driver, or start from an image with an older CUDA.",
        source: "NVIDIA, \"CUDA Compatibility\", minor version compatibility, read 2026-11; Alibaba Cloud help, PAI, \"Use eRDMA \
                 for distributed training\", read 2026-11: CUDA 12.1 or later",
        judge: cuda::driver_version,
    },
    Check {
        id: "nccl-loaded",
        severity: Required,
        exceptions: &[],
        about: "Every rank opens libnccl and finds every function in it.",
        needs: &["ranks", "failures"],
        why: "A program built for a newer NCCL than the loader gives it ends with `undefined symbol`: that is a \
              version mismatch, not a failure of RDMA.",
        remedy: "Install the NCCL that the program was built for, and remove older ones from LD_LIBRARY_PATH.",
        source: "NVIDIA/nccl issue 1784; pytorch/pytorch issues 119932 and 119072; NVIDIA/nccl-tests 2.19.6, src/common.cu",
        judge: nccl::nccl_loaded,
    },
    Check {
        id: "nccl-loaded-version",
        severity: Required,
        exceptions: &[],
        about: "The NCCL that the ranks loaded is new enough for the target, and built for the image's major CUDA.",
        needs: &["ranks"],
        why: "pip, dpkg and torch.cuda.nccl.version() may show a copy other than the one that runs; here the loaded \
              library itself is queried.",
        remedy: "RUN pip install a newer nvidia-nccl-cu12, or apt-get install a newer libnccl2",
        source: "Alibaba Cloud help, PAI, \"Use eRDMA for distributed training\", read 2026-11: NCCL 2.19 or later; \
                 pytorch/pytorch issue 116977; NVIDIA/nccl issue 1320",
        judge: nccl::nccl_loaded_version,
    },
    Check {
        id: "nccl-same-everywhere",
        severity: Required,
        exceptions: &[],
        about: "All ranks loaded one NCCL, and it is the one that the image's programs get.",
        needs: &["ranks"],
        why: "Ranks with different NCCLs end with `Mismatched NCCL version` or wait for each other forever; a run with a copy \
              other than torch's says nothing about torch's.",
        remedy: "Give every rank the same image and LD_LIBRARY_PATH.",
        source: "NVIDIA/nccl v2.28, src/init.cc; NVIDIA/nccl issues 354 and 1171",
        judge: nccl::nccl_same_everywhere,
    },
    Check {
        id: "ranks-complete",
        severity: Required,
        exceptions: &[],
        about: "Every rank did everything requested and exited normally.",
        needs: &["ranks", "rows", "failures", "ending"],
        why: "One rank that crashes or waits blocks all of them. A job's own log does not show which one it was, in which phase, and \
              NCCL's last line. If nothing shows the cause, none is given.",
        remedy: "See the finding; without any line from NCCL: --env NCCL_DEBUG=INFO, --env NCCL_DEBUG_SUBSYS=ALL",
        source: "NVIDIA/nccl issues 1260, 2385 and 631; NVIDIA/nccl-tests issues 12, 15 and 117; kubeflow/mpi-operator issue 593",
        judge: ranks::ranks_complete,
    },
    Check {
        id: "rdma-used",
        severity: Required,
        exceptions: &[],
        about: "RDMA carried the data between ranks: yes, no, not exercised or unknown.",
        needs: &["evidence", "counters"],
        why: "NCCL falls back to TCP without an error, and the sums are right. Sockets are a failure if the container had an \
              RDMA device, and a warning on a host that has none. One host proves nothing unless the ranks are made to use its \
              device. With --require-rdma anything but yes is a failure.",
        remedy: "See the finding; on one host: --force-nic",
        source: "vllm-project/vllm issue 42075; NVIDIA/nccl-tests issue 206; NVIDIA/nccl v2.30.7, src/transport/net_ib",
        judge: rdma::rdma_used,
    },
    Check {
        id: "gpu-direct",
        severity: Advice,
        exceptions: &[],
        about: "The RDMA device reads and writes the GPUs' memory itself.",
        needs: &["evidence"],
        why: "Without GPUDirect RDMA every byte goes through the host's memory: correct, but about a third of the bandwidth on a \
              fast fabric. The presence of DMA-BUF does not prove that it was used.",
        remedy: "On the host: modprobe nvidia_peermem; or dma-buf, with a newer rdma-core and driver.",
        source: "NVIDIA/nccl issues 1412, 465 and 778; NVIDIA/nccl-tests issue 245; sgl-project/sglang issue 23143",
        judge: rdma::gpu_direct,
    },
    Check {
        id: "bandwidth",
        severity: Required,
        exceptions: &[],
        about: "The average bus bandwidth is not below the given threshold.",
        needs: &["rows", "ranks"],
        why: "Bandwidth proves nothing about RDMA, and a good value depends on the instance, so the user sets it with --min-busbw. \
              Without it the number is reported, and the check passes.",
        remedy: "See gpu-direct, and the topology of GPUs and devices.",
        source: "NVIDIA/nccl-tests 2.19.6, NCCL_TESTS_MIN_BW; NVIDIA/nccl issues 1412 and 527",
        judge: data::bandwidth,
    },
    Check {
        id: "rdma-devices",
        severity: Required,
        exceptions: &[],
        about: "The container has the fabric's devices: present, with an active port, openable, known to libibverbs.",
        needs: &["environment", "verbs"],
        why: "NCCL reports `No device found` for all of these: no hardware, a port that is down, a node that was not passed, a \
              provider missing from the image. Each has a different remedy, and only the last is the image's fault.",
        remedy: "See the finding.",
        source: "NVIDIA/nccl v2.30.7, src/transport/net_ib (ports that are not active are skipped); NVIDIA/nccl issue 451",
        judge: rdma::rdma_devices,
    },
    Check {
        id: "network-mode",
        severity: Required,
        exceptions: &[],
        about: "The container shares the host's network.",
        needs: &["launch"],
        why: "The addresses of a RoCE or eRDMA device belong to its interface in the host's network namespace: elsewhere \
              connections end with `ibv_modify_qp failed with error No such device`.",
        remedy: "docker run --network host",
        source: "NVIDIA/nccl issues 925 and 551; NVIDIA/nccl-tests issue 14",
        judge: container::network_mode,
    },
    Check {
        id: "memlock",
        severity: Required,
        exceptions: &[],
        about: "The processes may lock as much memory as they need.",
        needs: &["environment"],
        why: "RDMA locks its buffers. With a small limit the registration fails with `Cannot allocate memory`, which has other \
              causes if there is no limit.",
        remedy: "docker run --ulimit memlock=-1 --cap-add IPC_LOCK",
        source: "NVIDIA/nccl-tests issue 206; microsoft/mscclpp issue 335; NVIDIA/nccl issues 1129 and 380",
        judge: limits::memlock,
    },
    Check {
        id: "shm-size",
        severity: Required,
        exceptions: &[],
        about: "/dev/shm is large enough for NCCL and data loaders.",
        needs: &["environment"],
        why: "Docker's default is 64 MB. NCCL then cannot create its segments, or dies of a bus error.",
        remedy: "docker run --ipc host, or --shm-size 8g",
        source: "NVIDIA/nccl issues 342, 290 and 525; vllm-project/vllm issue 1710",
        judge: limits::shm_size,
    },
    Check {
        id: "settings-in-effect",
        severity: Advice,
        exceptions: &[],
        about: "No NCCL setting switches RDMA off, and the run did not have to override any in the image.",
        needs: &["launch", "environment"],
        why: "A run that overrides the image's value shows what the host can do, not what the image does on its own.",
        remedy: "ENV NAME= in the image, or remove the line from /etc/nccl.conf",
        source: "NCCL user guide, environment variables; NVIDIA/nccl v2.28, src/misc/param.cc",
        judge: settings::settings_in_effect,
    },
];
