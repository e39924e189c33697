//! Makes a CUDA container image ready for RDMA training on a cloud fabric, and proves that it is.
//!
//! Data flows one way: an image source gives a root file system (`image`), the inspection turns it into facts
//! (`inspect` → `facts`), checks judge facts (`checks`), reports show findings (`report`). A build plans the swap from the
//! same facts (`plan`), writes it as a Dockerfile (`dockerfile`) and hands it to the engine (`docker`). A launch runs the image
//! as a job would (`launch`), or writes the job (`job`). `cli` is at the top.

// What tests share is theirs alone.
#![cfg_attr(test, allow(unreachable_pub))]
#![deny(unsafe_code)]

// The fixtures of the integration tests name this crate from outside.
#[cfg(test)]
extern crate self as rdmaprep;
#[cfg(test)]
#[path = "../tests/support/image_fixture.rs"]
mod image_fixture;
#[cfg(test)]
#[path = "../tests/support/run_fixture.rs"]
mod run_fixture;
#[cfg(test)]
#[path = "../tests/support/sysfs_fixture.rs"]
mod sysfs_fixture;

pub mod agent;
pub mod build;
pub mod checks;
pub mod cli;
pub mod devices;
pub mod diagnosis;
pub mod diff;
pub mod distro;
pub mod docker;
pub mod dockerfile;
pub mod explain;
pub mod fabric;
pub mod facts;
pub mod ffi;
pub mod image;
pub mod inspect;
pub mod job;
pub mod judge;
pub mod launch;
pub mod logs;
pub mod loopback;
pub mod nccl_settings;
pub mod package_file;
pub mod plan;
pub mod policy;
pub mod recipe;
pub mod reference;
pub mod registry;
pub mod remedy;
pub mod report;
pub mod shell;
pub mod signals;
pub mod source;
pub mod suggest;
pub mod swap;
pub mod sysfs;
pub mod targets;
pub mod units;
pub mod versions;
