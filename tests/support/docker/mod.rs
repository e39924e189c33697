//! What the integration tests share.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod mock_daemon;
pub mod real_engine;
pub mod registry;
#[path = "../skipping.rs"]
mod skipping;
