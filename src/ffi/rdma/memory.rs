//! Protection domains, and memory that a device reads and writes.

use super::abi::{MemoryRegion, Opaque, number as n};
use super::{Errno, Verbs, pointer};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// A protection domain.
pub struct Domain<'c> {
    pub(super) verbs: &'c Verbs,
    pub(super) raw: NonNull<Opaque>,
    pub(super) context: PhantomData<&'c ()>,
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated, and what was made in it borrows from it.
        unsafe { (self.verbs.functions.dealloc_pd)(self.raw.as_ptr()) };
    }
}

const PAGE: usize = 4096;

impl Domain<'_> {
    /// New zeroed memory that the device may write to.
    pub fn register(&self, bytes: usize) -> Result<Region<'_>, Errno> {
        let layout = Layout::from_size_align(bytes.max(PAGE), PAGE).map_err(|_| libc_enomem())?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(libc_enomem)?;
        let access = n::ACCESS_LOCAL_WRITE | n::ACCESS_REMOTE_WRITE;
        // SAFETY: the memory is this long, and stays until the region is deregistered.
        let made =
            unsafe { (self.verbs.functions.reg_mr)(self.raw.as_ptr(), memory.as_ptr().cast(), layout.size(), access) };
        match pointer(made) {
            Ok(raw) => Ok(Region { verbs: self.verbs, raw, memory, layout, is_lost: false, domain: PhantomData }),
            Err(errno) => {
                // SAFETY: allocated above, and registered nowhere.
                unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
                Err(errno)
            }
        }
    }
}

fn libc_enomem() -> Errno {
    rustix::io::Errno::NOMEM.raw_os_error()
}

/// Memory that the device reads and writes.
pub struct Region<'d> {
    pub(super) verbs: &'d Verbs,
    pub(super) raw: NonNull<MemoryRegion>,
    pub(super) memory: NonNull<u8>,
    pub(super) layout: Layout,
    /// A batch did not finish: the device may still write.
    pub(super) is_lost: bool,
    pub(super) domain: PhantomData<&'d ()>,
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // SAFETY: registered once.
        let result = unsafe { (self.verbs.functions.dereg_mr)(self.raw.as_ptr()) };
        // Memory that the device may still write to is leaked.
        if result == 0 {
            // SAFETY: allocated with this layout, and no longer the device's.
            unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
        }
    }
}

impl Region<'_> {
    /// A part of the memory; `None`: beyond its end, or the device may still write.
    pub fn bytes(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        if self.is_lost {
            return None;
        }
        // SAFETY: initialised memory of this length; batches borrow it exclusively until the device is done with it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }.get_mut(range)
    }

    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: registered.
        let region = unsafe { self.raw.as_ref() };
        (region.lkey, region.rkey)
    }
}
