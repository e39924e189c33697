//! Reads numbers from untrusted bytes: an offset out of range is `None`, never a panic.

/// `length` bytes from `at` on.
pub(super) fn slice(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

/// A number in the byte order of the machine that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = slice(bytes, at, 2)?.try_into().ok()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = slice(bytes, at, 4)?.try_into().ok()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }

    /// A number as an index; `None` also if it does not fit `usize`.
    pub(super) fn index(self, bytes: &[u8], at: usize) -> Option<usize> {
        self.u32(bytes, at).and_then(|number| usize::try_from(number).ok())
    }
}

/// The pages of a database that were read. A sound database refers to each page once, so a walk never reads more than the
/// file's length.
#[derive(Debug)]
pub(super) struct Visited(Vec<bool>);

impl Visited {
    pub(super) fn of(pages: usize) -> Visited {
        Visited(vec![false; pages])
    }

    /// Whether the page exists and is seen for the first time.
    pub(super) fn first(&mut self, page: usize) -> bool {
        self.0.get_mut(page).is_some_and(|seen| !std::mem::replace(seen, true))
    }
}
