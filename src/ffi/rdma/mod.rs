//! libibverbs as far as RDMA writes need it. Input: the library alone; output: safe types, each of which releases what it
//! holds when dropped.
//!
//! Posting and polling are not symbols of the library but inline functions of its header, which call through the device's
//! context.

#![allow(unsafe_code)]

mod abi;
mod memory;
mod queue;

pub use abi::number::{LINK_LAYER_ETHERNET, LINK_LAYER_INFINIBAND, PORT_ACTIVE, WC_RETRY_EXC_ERR};
pub use abi::{DeviceAttr, PortAttr, layout};
pub use memory::{Domain, Region};
pub use queue::{Address, Batch, CompletionQueue, Link, QueuePair};

use super::library::{Library, Scope, functions};
use super::verbs::LIBRARY;
use crate::facts::loopback::StepError;
use crate::facts::run::{Failure, LoadedLibrary};
use abi::{
    ContextHead, CqHead, DeviceHead, MemoryRegion, Opaque, QpAttr, QpHead, QpInitAttr, RawGid, RoomyPortAttr,
    number as n,
};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

functions! {
    /// The functions in use (`infiniband/verbs.h`, all since IBVERBS_1.1).
    Functions {
        devices = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut DeviceHead;
        free_devices = c"ibv_free_device_list": fn(*mut *mut DeviceHead);
        open = c"ibv_open_device": fn(*mut DeviceHead) -> *mut ContextHead;
        close = c"ibv_close_device": fn(*mut ContextHead) -> c_int;
        query_device = c"ibv_query_device": fn(*mut ContextHead, *mut DeviceAttr) -> c_int;
        query_port = c"ibv_query_port": fn(*mut ContextHead, u8, *mut PortAttr) -> c_int;
        query_gid = c"ibv_query_gid": fn(*mut ContextHead, u8, c_int, *mut RawGid) -> c_int;
        alloc_pd = c"ibv_alloc_pd": fn(*mut ContextHead) -> *mut Opaque;
        dealloc_pd = c"ibv_dealloc_pd": fn(*mut Opaque) -> c_int;
        reg_mr = c"ibv_reg_mr": fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut MemoryRegion;
        dereg_mr = c"ibv_dereg_mr": fn(*mut MemoryRegion) -> c_int;
        create_cq = c"ibv_create_cq": fn(*mut ContextHead, c_int, *mut c_void, *mut c_void, c_int) -> *mut CqHead;
        destroy_cq = c"ibv_destroy_cq": fn(*mut CqHead) -> c_int;
        create_qp = c"ibv_create_qp": fn(*mut Opaque, *mut QpInitAttr) -> *mut QpHead;
        modify_qp = c"ibv_modify_qp": fn(*mut QpHead, *mut QpAttr, c_int) -> c_int;
        destroy_qp = c"ibv_destroy_qp": fn(*mut QpHead) -> c_int;
        status_text = c"ibv_wc_status_str": fn(c_int) -> *const c_char;
    }
    optional {}
}

/// A system error number.
pub type Errno = i32;

/// The result of a call that returns a pointer.
fn pointer<T>(made: *mut T) -> Result<NonNull<T>, Errno> {
    NonNull::new(made).ok_or_else(last_errno)
}

/// The result of a call that returns a number: most return the error number, old ones -1, some providers its negative.
fn number(result: c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        -1 => Err(last_errno()),
        code => Err(code.abs()),
    }
}

fn last_errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The open library.
pub struct Verbs {
    functions: Functions,
    library: LoadedLibrary,
}

impl Verbs {
    pub fn open() -> Result<Verbs, Failure> {
        let library = Library::open(LIBRARY, Scope::Local)?;
        let functions = Functions::load(&library)?;
        let library = library.describe(functions.devices as *const c_void);
        Ok(Verbs { functions, library })
    }

    pub fn library(&self) -> &LoadedLibrary {
        &self.library
    }

    /// Every device that has a provider and a node.
    pub fn devices(&self) -> Result<Devices<'_>, Errno> {
        let mut count = 0;
        // SAFETY: gives a list of `count` devices, or null with errno set.
        let list = pointer(unsafe { (self.functions.devices)(&raw mut count) })?;
        Ok(Devices { verbs: self, list, count: usize::try_from(count).unwrap_or(0) })
    }

    fn status(&self, status: c_int) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.functions.status_text)(status) };
        if text.is_null() {
            return "unknown status".to_owned();
        }
        // SAFETY: a constant string of the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// The list of devices.
pub struct Devices<'v> {
    verbs: &'v Verbs,
    list: NonNull<*mut DeviceHead>,
    count: usize,
}

impl Devices<'_> {
    pub fn iter(&self) -> impl Iterator<Item = Device<'_>> {
        (0..self.count).filter_map(|at| {
            // SAFETY: the list has `count` entries until it is freed.
            let raw = NonNull::new(unsafe { *self.list.as_ptr().add(at) })?;
            Some(Device { verbs: self.verbs, raw, list: PhantomData })
        })
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: came from its counterpart; devices borrow from this value, and none of them is left.
        unsafe { (self.verbs.functions.free_devices)(self.list.as_ptr()) };
    }
}

/// A device of a list.
#[derive(Clone, Copy)]
pub struct Device<'l> {
    verbs: &'l Verbs,
    raw: NonNull<DeviceHead>,
    list: PhantomData<&'l ()>,
}

/// The transport that a device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Infiniband,
    Iwarp,
    Other,
}

impl<'l> Device<'l> {
    fn head(&self) -> &DeviceHead {
        // SAFETY: the device lives as long as its list.
        unsafe { self.raw.as_ref() }
    }

    pub fn name(&self) -> String {
        text(&self.head().name)
    }

    /// Name of the node, such as `uverbs0`.
    pub fn node(&self) -> String {
        text(&self.head().dev_name)
    }

    pub fn transport(&self) -> Transport {
        match self.head().transport_type {
            n::TRANSPORT_IB => Transport::Infiniband,
            n::TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::Other,
        }
    }

    pub fn open(&self) -> Result<Context<'l>, Errno> {
        // SAFETY: the device is of a list that lives.
        let raw = pointer(unsafe { (self.verbs.functions.open)(self.raw.as_ptr()) })?;
        Ok(Context { verbs: self.verbs, raw })
    }
}

/// A name that fills its field has no NUL.
fn text(field: &[c_char]) -> String {
    #[allow(clippy::cast_sign_loss)] // a byte, whatever the machine calls it
    let bytes: Vec<u8> = field.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An open device.
pub struct Context<'l> {
    verbs: &'l Verbs,
    raw: NonNull<ContextHead>,
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: open, and what was made of it borrows from it.
        unsafe { (self.verbs.functions.close)(self.raw.as_ptr()) };
    }
}

impl Context<'_> {
    pub fn query_device(&self) -> Result<DeviceAttr, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut attributes: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is of the header's size.
        number(unsafe { (self.verbs.functions.query_device)(self.raw.as_ptr(), &raw mut attributes) })?;
        Ok(attributes)
    }

    pub fn query_port(&self, port: u8) -> Result<PortAttr, Errno> {
        // SAFETY: numbers only; zero is a value of each.
        let mut attributes: RoomyPortAttr = unsafe { std::mem::zeroed() };
        let known = (&raw mut attributes).cast::<PortAttr>();
        // SAFETY: the structure is of the header's size or larger.
        number(unsafe { (self.verbs.functions.query_port)(self.raw.as_ptr(), port, known) })?;
        Ok(attributes.known)
    }

    /// An empty slot is all zero.
    pub fn query_gid(&self, port: u8, index: u32) -> Result<[u8; 16], Errno> {
        let mut gid = RawGid::default();
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: writes one GID.
        number(unsafe { (self.verbs.functions.query_gid)(self.raw.as_ptr(), port, index, &raw mut gid) })?;
        Ok(gid.0)
    }

    pub fn alloc_pd(&self) -> Result<Domain<'_>, Errno> {
        // SAFETY: the context is open.
        let raw = pointer(unsafe { (self.verbs.functions.alloc_pd)(self.raw.as_ptr()) })?;
        Ok(Domain { verbs: self.verbs, raw, context: PhantomData })
    }

    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue<'_>, Errno> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        let null = std::ptr::null_mut();
        // SAFETY: the context is open; there is no channel, and vector 0 is there always.
        let raw = pointer(unsafe { (self.verbs.functions.create_cq)(self.raw.as_ptr(), entries, null, null, 0) })?;
        Ok(CompletionQueue { verbs: self.verbs, raw, context: PhantomData })
    }
}

/// The error with the system's message, and its name if it is one of those that occur here.
pub fn errno_error(code: Errno) -> StepError {
    use rustix::io::Errno as E;
    let known = [
        (E::PERM, "EPERM"),
        (E::NOENT, "ENOENT"),
        (E::IO, "EIO"),
        (E::NXIO, "ENXIO"),
        (E::AGAIN, "EAGAIN"),
        (E::NOMEM, "ENOMEM"),
        (E::ACCESS, "EACCES"),
        (E::BUSY, "EBUSY"),
        (E::NODEV, "ENODEV"),
        (E::INVAL, "EINVAL"),
        (E::NOSPC, "ENOSPC"),
        (E::NOSYS, "ENOSYS"),
        (E::NODATA, "ENODATA"),
        (E::NETUNREACH, "ENETUNREACH"),
        (E::TIMEDOUT, "ETIMEDOUT"),
        (E::HOSTUNREACH, "EHOSTUNREACH"),
        (E::OPNOTSUPP, "EOPNOTSUPP"),
        (E::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (E::NETDOWN, "ENETDOWN"),
    ];
    let name = known.iter().find(|(errno, _)| errno.raw_os_error() == code).map(|(_, name)| (*name).to_owned());
    let text = io::Error::from_raw_os_error(code).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    StepError::Errno { code, name, text }
}
