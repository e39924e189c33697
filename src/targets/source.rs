//! The source of a figure.

use serde::Serialize;

/// A document or program that states a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Source {
    pub title: &'static str,
    /// Without a scheme: `help.aliyun.com/...`; empty if only the title is known.
    pub address: &'static str,
    /// The month when it was read, `2026-11`.
    pub read: &'static str,
}

impl Source {
    /// `TITLE, ADDRESS, read 2026-11`
    pub fn say(&self) -> String {
        match self.address {
            "" => format!("{}, read {}", self.title, self.read),
            address => format!("{}, {address}, read {}", self.title, self.read),
        }
    }
}

/// A figure with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sourced<T> {
    pub value: T,
    pub source: &'static Source,
}

/// A figure and its source.
pub(super) const fn sourced<T: Copy>(value: T, source: &'static Source) -> Sourced<T> {
    Sourced { value, source }
}
