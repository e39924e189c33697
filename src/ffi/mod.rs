//! The C libraries that are opened at run time, behind safe types: libcuda, libnccl and libibverbs.
//!
//! Nothing is linked: a library that is missing is a finding. What each binding takes the public headers to say is held to them
//! by tests.

pub mod cuda;
pub mod library;
pub mod nccl;
pub mod rdma;
pub mod verbs;
