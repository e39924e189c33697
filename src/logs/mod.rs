//! Readers of text that other programs print: NCCL's log, nccl-tests' tables, the tools of RDMA, builds, limits of processes.
//!
//! Each reads lines and gives data; none opens a file, and none judges more than its own text.

pub mod build;
pub mod devinfo;
pub mod limits;
pub mod nccl;
pub mod nccl_tests;
