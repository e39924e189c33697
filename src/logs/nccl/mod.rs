//! NCCL's log → what it proves.
//!
//! Lines become records ([`mod@line`]), records the facts of one process ([`RankLog`]), those of all processes the
//! [`NcclEvidence`] of a run. From it follow whether RDMA carried the data ([`judge_rdma`]) and what went wrong
//! ([`explain_nccl_log`]). Nothing here reads a file; a log of any length takes the same memory.
//!
//! NCCL 2.4 to 2.30 are supported; the modules document formats and sources.

mod causes;
mod channels;
mod evidence;
pub mod line;
mod meaning;
mod message;
mod rank;
mod rdma;
mod reader;
mod room;
mod stream;

pub use causes::{GidEntry, Hints, KeyEntry, Limit, RdmaDeviceHint, explain_nccl_log};
pub use evidence::{DeviceUse, NcclEvidence, TransportUse, VersionUse};
pub use message::{Direction, IbDevice, IbPort, Membership, SocketInterface};
pub use rank::{ChannelGroup, Counted, Phase, PluginState, PluginUse, RankEvidence, Transport, Warnings};
pub use rdma::{CounterReading, DeviceBytes, ExpectedBytes, Observed, RdmaReason, RdmaVerdict, judge_rdma};
pub use reader::RankLog;
pub use room::Room;
pub use stream::{Interleaved, Logs, MAX_PROCESSES};
