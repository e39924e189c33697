//! Where a figure comes from.

use serde::Serialize;

/// A document or program that states a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Source {
    pub title: &'static str,
    /// Without a scheme: `help.aliyun.com/...`; empty where it has none.
    pub address: &'static str,
    /// When it was read, `2026-11`.
    pub read: &'static str,
}

/// A figure with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    pub value: T,
    pub source: &'static Source,
}
