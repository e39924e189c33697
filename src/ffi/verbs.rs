//! libibverbs: which devices it sees, and whether they can be opened.

#![allow(unsafe_code)]

use super::library::{Library, Scope, functions};
use crate::facts::run::Failure;
use crate::facts::run::{LoadedLibrary, VerbsDevice};
use std::ffi::{CStr, c_char, c_void};

/// The name that programs are linked with; NCCL up to 2.29 opens `libibverbs.so` first.
pub const LIBRARY: &str = "libibverbs.so.1";

type Handle = *mut c_void;

functions! {
    /// The functions in use (`infiniband/verbs.h`, all since IBVERBS_1.1).
    Functions {
        devices = c"ibv_get_device_list": fn(*mut i32) -> *mut Handle;
        free_devices = c"ibv_free_device_list": fn(*mut Handle);
        name = c"ibv_get_device_name": fn(Handle) -> *const c_char;
        open = c"ibv_open_device": fn(Handle) -> Handle;
        close = c"ibv_close_device": fn(Handle) -> i32;
    }
    optional {}
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

    /// Every device that has a provider, each opened once and closed again.
    ///
    /// # Errors
    /// The kernel has no RDMA, or the list cannot be read.
    pub fn devices(&self) -> Result<Vec<VerbsDevice>, Failure> {
        let mut count = 0;
        // SAFETY: gives a list of `count` handles, or null with errno set.
        let list = unsafe { (self.functions.devices)(&raw mut count) };
        if list.is_null() {
            let detail = format!("ibv_get_device_list: {}", std::io::Error::last_os_error());
            return Err(Failure::Other { detail });
        }
        let count = usize::try_from(count).unwrap_or(0);
        let devices = (0..count).map(|at| {
            // SAFETY: the list has `count` entries until it is freed.
            let device = unsafe { *list.add(at) };
            VerbsDevice { name: self.name(device), error: self.try_open(device) }
        });
        let devices = devices.collect();
        // SAFETY: the list came from its counterpart, and no handle of it is kept.
        unsafe { (self.functions.free_devices)(list) };
        Ok(devices)
    }

    fn name(&self, device: Handle) -> String {
        // SAFETY: the device is of the list; its name lives as long as that.
        let name = unsafe { (self.functions.name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: ends with a NUL.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    fn try_open(&self, device: Handle) -> Option<String> {
        // SAFETY: the device is of the list.
        let context = unsafe { (self.functions.open)(device) };
        if context.is_null() {
            return Some(std::io::Error::last_os_error().to_string());
        }
        // SAFETY: it was just opened.
        unsafe { (self.functions.close)(context) };
        None
    }
}
