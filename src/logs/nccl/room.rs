//! How much may be kept of a log, over all its processes.

/// Bytes of a text that are kept.
pub(super) const MAX_TEXT: usize = 400;

/// Bytes that may still be kept. Texts are counted with what holds them, roughly.
#[derive(Debug, Clone)]
pub struct Room {
    left: usize,
}

impl Room {
    /// Memory limit for the logs of all processes: 1,024 ranks need about 4 MiB.
    pub const ALL: Room = Room { left: 48 << 20 };
    /// Memory limit for one process.
    pub const ONE: Room = Room { left: 1 << 20 };

    pub const fn new(bytes: usize) -> Room {
        Room { left: bytes }
    }

    /// Whether that much may still be kept; then it is taken.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// What was taken is no longer kept.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.left = self.left.saturating_add(bytes);
    }

    /// A text to keep, cut where it is long; `None`: there is no room.
    pub(super) fn keep(&mut self, text: &[u8]) -> Option<String> {
        let text = kept(text);
        self.take(text.len() + size_of::<String>()).then_some(text)
    }
}

/// A text that is cut where it is long.
pub(super) fn kept(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]).into_owned()
}
