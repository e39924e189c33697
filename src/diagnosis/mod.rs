//! Everything known to go wrong with a run, a host or a build, in one table.
//!
//! Log readers, the loopback, the checks of a run and the builds find causes; only this table has a cause's name, who has to act, its
//! effect on a run and its remedy. [`CauseId`] names one, [`Cause`] is one that was found, with its evidence.

mod build_failure;
mod rdma;
mod table;

pub use build_failure::BuildFailure;
pub use rdma::{GpuDirect, RdmaUse};
pub use table::{CauseInfo, NcclVersions};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The image's content.
    Image,
    /// Hardware, driver, kernel or engine of the host, or a service that it needs: no image and no option helps.
    Host,
    /// How the container or the build was started: devices, limits, network, options.
    Launch,
    /// The job's own settings, NCCL's variables above all.
    Job,
}

/// A cause, by its stable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseId {
    // The collective and its ranks.
    DataCorruption,
    NcclVersionSkew,
    NcclTooOldLoaded,
    P2pStalled,
    ShmTooSmall,
    // Meeting.
    PortInUse,
    NoIpInterface,
    IfnameFilterMatchesNothing,
    BootstrapInterface,
    // GPUs.
    CudaForwardCompat,
    DriverTooOld,
    GpuNotPassed,
    NvidiaToolkitMissing,
    // What keeps NCCL from the RDMA devices.
    LibibverbsMissing,
    ErdmaProviderMissing,
    VerbsProviderMissing,
    RdmaSwitchedOff,
    AsymmetricHca,
    DeviceNotPermitted,
    NoRdmaHardware,
    PortDown,
    HcaFilterMatchesNothing,
    ForeignNetPlugin,
    // What breaks their connections.
    MemlockLow,
    VerbsOutOfMemory,
    DmabufUnsupported,
    ErdmaDriverNotCompat,
    NetnsGidMismatch,
    GidUnroutable,
    PartitionKey,
    InfinibandUnreachable,
    // What only the loopback sees.
    NoVerbsDevice,
    NoSuchDevice,
    GidAddressUnresolved,
    DeviceUnanswered,
    // Builds.
    NoSpace,
    SwapRemovesPackage,
    MirrorUnreachable,
    MirrorUnusable,
    SuiteMissing,
    KeyMismatch,
    SignatureBad,
    AptSourceUnreachable,
    AptSourceUnusable,
    AptConflict,
    RpmSourceUnreachable,
    RpmConflict,
    PackageMissing,
    PackageUnknown,
    PackageNotInImageSources,
    OtherLibibverbs,
    NoCurl,
    BaseNotFound,
    NoBridge,
    BaseMismatch,
    PackageManagerMissing,
    ReleaseUnknown,
    KeyUnreadable,
    PackageFilesChanged,
    SwapIncomplete,
    ProviderNotInPackages,
}

impl CauseId {
    /// Every cause.
    pub const ALL: [CauseId; table::ALL.len()] = table::ALL;

    /// What is known about the cause.
    pub fn info(self) -> CauseInfo {
        table::info(self)
    }

    /// The stable kebab-case name, as in JSON.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Who has to act.
    pub fn fault(self) -> Fault {
        self.info().fault
    }

    /// The cause with these lines as its evidence, in the table's words; `None` without evidence.
    pub fn found(self, evidence: Vec<String>) -> Option<Cause> {
        (!evidence.is_empty()).then(|| self.cause(evidence))
    }

    /// The cause, in the table's words.
    pub fn cause(self, evidence: Vec<String>) -> Cause {
        let info = self.info();
        Cause { id: self, summary: info.title.to_owned(), evidence, remedy: info.remedy.to_owned(), fault: info.fault }
    }
}

impl fmt::Display for CauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cause that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cause {
    pub id: CauseId,
    /// One line, with the particulars of this case.
    pub summary: String,
    /// Lines of the log (`rank 1 (host-a:7): …`), or other observations.
    #[serde(default)]
    pub evidence: Vec<String>,
    pub remedy: String,
    /// The table's, for readers of the JSON.
    pub fault: Fault,
}

impl Cause {
    /// Sets the summary for this case.
    #[must_use]
    pub fn summary(mut self, summary: impl Into<String>) -> Cause {
        self.summary = summary.into();
        self
    }

    /// Sets the remedy for this case.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Cause {
        self.remedy = remedy.into();
        self
    }
}
