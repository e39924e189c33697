//! What an error says to do about it.

/// An error that may know what helps.
///
/// Its `Display` is one line that says what is wrong; the remedy comes apart from it, so that each is printed in its own place.
pub trait Remedy: std::error::Error {
    /// What the user can do about it, a line each; `None` where nothing general can be said.
    fn remedy(&self) -> Option<String>;
}
