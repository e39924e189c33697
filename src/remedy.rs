//! Remedies of errors.

/// An error that may have a remedy.
///
/// `Display` is one line that says what is wrong; the remedy is separate, so that each is printed in its own place.
pub trait Remedy: std::error::Error {
    /// What the user can do, one line each; `None` if there is no general remedy.
    fn remedy(&self) -> Option<String>;
}
