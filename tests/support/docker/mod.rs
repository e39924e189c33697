//! What the integration tests share.

pub mod mock_daemon;
pub mod real_engine;
pub mod registry;
