//! The Docker engine: the only module that uses the client library.
//!
//! Input: where the daemon is, and what to do with it. Output: descriptions of images, their archives, builds, pulls and
//! pushes, with errors that name the endpoint and a remedy.
//!
//! - [`config`], [`endpoint`], [`address`], [`context_store`]: the settings of the Docker client, and the daemon's address
//! - [`engine`], [`image`], `save`, `ssh`: the connection, and the images behind it
//! - [`context`], [`build`], `buildkit`, `classic`, `podman`: building
//! - [`container_spec`], [`container`], [`container_output`], [`upload`]: running one container and listening to it
//! - [`auth`], [`pull`], [`push`], [`mod@reference`]: registries

pub mod address;
pub mod auth;
pub mod build;
mod build_run;
mod build_start;
mod buildkit;
mod classic;
pub mod config;
pub mod container;
pub mod container_output;
pub mod container_spec;
pub mod context;
pub mod context_store;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod image;
mod leftovers;
mod log_lines;
mod podman;
pub mod pull;
pub mod push;
pub mod redact;
mod save;
mod ssh;
mod transcript;
pub mod upload;
