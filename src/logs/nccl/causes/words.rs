//! Causes that a line names by itself.

use super::meeting::NO_INTERFACE;
use crate::diagnosis::CauseId;

/// A cause that a line names by itself.
pub(super) struct Words {
    pub id: CauseId,
    /// Any of these lists, of which all are in one line.
    pub marks: &'static [&'static [&'static str]],
    /// A cause that says it better.
    pub unless: Option<CauseId>,
}

impl Words {
    pub(super) fn fit(&self, line: &str) -> bool {
        self.marks.iter().any(|marks| marks.iter().all(|mark| line.contains(mark)))
    }
}

const fn words(id: CauseId, marks: &'static [&'static [&'static str]]) -> Words {
    Words { id, marks, unless: None }
}

pub(super) const WORDS: &[Words] = &[
    Words {
        id: CauseId::NoIpInterface,
        marks: &[
            &["Address family not supported by protocol"],
            &[NO_INTERFACE[0]],
            &[NO_INTERFACE[1]],
            &[NO_INTERFACE[2]],
            &[NO_INTERFACE[3]],
            &[NO_INTERFACE[4]],
        ],
        unless: Some(CauseId::IfnameFilterMatchesNothing),
    },
    words(CauseId::PortInUse, &[&["ddress already in use"]]),
    words(CauseId::DmabufUnsupported, &[&["ibv_reg_dmabuf_mr", "failed", "Operation not supported"]]),
    words(
        CauseId::CudaForwardCompat,
        &[
            &["forward compatibility was attempted on non supported HW"],
            &["unsupported display driver / cuda driver combination"],
        ],
    ),
    words(
        CauseId::GpuNotPassed,
        &[&["no CUDA-capable device is detected"], &["Found no NVIDIA driver on your system"]],
    ),
    words(
        CauseId::NcclVersionSkew,
        &[&["Incompatible NCCL versions"], &["was compiled with NCCL version", "but is running with"]],
    ),
    words(CauseId::ErdmaProviderMissing, &[&["couldn't load driver", "liberdma"]]),
    Words {
        id: CauseId::VerbsProviderMissing,
        marks: &[&["no userspace device-specific driver found"]],
        unless: Some(CauseId::ErdmaProviderMissing),
    },
    words(CauseId::NvidiaToolkitMissing, &[&["could not select device driver", "gpu"]]),
    words(CauseId::ShmTooSmall, &[&["insufficient shared memory (shm)"]]),
];
