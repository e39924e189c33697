//! Remedies of errors.

/// An error that may have a remedy.
///
/// `Display` is one line that says what is wrong; the remedy is separate, so that each is printed in its own place.
pub trait Remedy: std::error::Error {
    /// What the user can do, one line each; `None` if there is no general remedy.
    fn remedy(&self) -> Option<String>;
}

/// An error with its remedy below, for where there is room for one text.
pub fn with_remedy<E: Remedy>(error: &E) -> String {
    let remedy = error.remedy().unwrap_or_default();
    let lines = remedy.lines().map(|line| format!("\n  {line}"));
    format!("{error}{}", lines.collect::<String>())
}
