//! libnccl: a small function table, opened at run time and never closed.
//!
//! Types and numbers are those of `nccl.h`; a test compares them with the public header.

#![allow(unsafe_code)]

use super::cuda::{DevicePointer, Stream};
use super::library::{Library, Scope, functions};
use crate::facts::run::{DataType, Failure, LoadedLibrary};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

/// The name that current programs are linked with.
pub const LIBRARY: &str = "libnccl.so.2";

/// `ncclResult_t`
type Code = i32;
type Handle = *mut c_void;

const SUCCESS: Code = 0;
/// `ncclInProgress` (since 2.14): not an error.
const IN_PROGRESS: Code = 7;
/// `ncclSum`
pub const SUM: i32 = 0;

/// Length of a unique id, in bytes.
pub const UNIQUE_ID_BYTES: usize = 128;

/// `ncclUniqueId`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; UNIQUE_ID_BYTES]);

/// `ncclDataType_t`
pub fn data_type_code(data_type: DataType) -> i32 {
    match data_type {
        DataType::Half => 6,
        DataType::Float => 7,
        DataType::Bfloat16 => 9,
    }
}

functions! {
    /// The functions in use; all but the optional ones are in every NCCL since 2.4.
    Functions {
        version = c"ncclGetVersion": fn(*mut i32) -> Code;
        unique_id = c"ncclGetUniqueId": fn(*mut UniqueId) -> Code;
        init_rank = c"ncclCommInitRank": fn(*mut Handle, i32, UniqueId, i32) -> Code;
        all_reduce = c"ncclAllReduce": fn(
            *const c_void, *mut c_void, usize, i32, i32, Handle, Handle
        ) -> Code;
        async_error = c"ncclCommGetAsyncError": fn(Handle, *mut Code) -> Code;
        error_string = c"ncclGetErrorString": fn(Code) -> *const c_char;
        destroy = c"ncclCommDestroy": fn(Handle) -> Code;
    }
    optional {
        // Since 2.13.
        last_error = c"ncclGetLastError": fn(Handle) -> *const c_char;
        // Since 2.19.
        allocate = c"ncclMemAlloc": fn(*mut *mut c_void, usize) -> Code;
    }
}

/// The open library.
pub struct Nccl {
    functions: Functions,
    library: LoadedLibrary,
}

/// A communicator of this rank.
#[derive(Debug, Clone, Copy)]
pub struct Communicator(Handle);

impl Nccl {
    /// Opens `path`, or what the loader finds for [`LIBRARY`].
    ///
    /// # Errors
    /// The library is missing or lacks a function.
    pub fn open(path: Option<&str>) -> Result<Nccl, Failure> {
        let library = Library::open(path.unwrap_or(LIBRARY), Scope::Local)?;
        let functions = Functions::load(&library)?;
        let library = library.describe(functions.version as *const c_void);
        Ok(Nccl { functions, library })
    }

    pub fn library(&self) -> &LoadedLibrary {
        &self.library
    }

    fn text(&self, code: Code) -> String {
        // SAFETY: gives a constant for every code.
        constant(unsafe { (self.functions.error_string)(code) })
    }

    fn last_error(&self, communicator: Handle) -> String {
        // SAFETY: takes a communicator or none, and gives a text that lives until the next error.
        self.functions.last_error.map_or_else(String::new, |last| constant(unsafe { last(communicator) }))
    }

    fn check(&self, call: &str, code: Code, communicator: Handle) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        let (text, last_error) = (self.text(code), self.last_error(communicator));
        Err(Failure::Nccl { call: call.to_owned(), code, text, last_error })
    }

    /// `NCCL_VERSION_CODE` of the library.
    pub fn version_code(&self) -> Result<i32, Failure> {
        let mut version = 0;
        // SAFETY: writes one int.
        self.check("ncclGetVersion", unsafe { (self.functions.version)(&raw mut version) }, null_mut())?;
        Ok(version)
    }

    /// Creates the id of a new communicator; the process listens for its ranks from then on.
    pub fn unique_id(&self) -> Result<UniqueId, Failure> {
        let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
        // SAFETY: writes one id.
        self.check("ncclGetUniqueId", unsafe { (self.functions.unique_id)(&raw mut id) }, null_mut())?;
        Ok(id)
    }

    /// Joins the communicator; returns when all ranks did.
    pub fn join(&self, id: UniqueId, rank: u32, ranks: u32) -> Result<Communicator, Failure> {
        let int = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        let mut communicator = null_mut();
        // SAFETY: writes one handle; the CUDA context of this thread is the rank's.
        let code = unsafe { (self.functions.init_rank)(&raw mut communicator, int(ranks), id, int(rank)) };
        // No communicator exists yet.
        self.check("ncclCommInitRank", code, null_mut())?;
        Ok(Communicator(communicator))
    }

    /// Memory that NCCL may map into other ranks, as in nccl-tests; `None`: this NCCL has no allocator.
    pub fn allocate(&self, bytes: u64) -> Result<Option<DevicePointer>, Failure> {
        let Some(allocate) = self.functions.allocate else { return Ok(None) };
        let mut pointer = null_mut();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: writes one pointer.
        self.check("ncclMemAlloc", unsafe { allocate(&raw mut pointer, bytes) }, null_mut())?;
        Ok(Some(pointer as DevicePointer))
    }

    /// Puts a sum over all ranks into the stream.
    ///
    /// # Safety
    /// Both ranges must have `count` elements and live until the stream is done.
    pub unsafe fn all_reduce(
        &self,
        communicator: Communicator,
        from: DevicePointer,
        to: DevicePointer,
        count: u64,
        data_type: DataType,
        stream: Stream,
    ) -> Result<(), Failure> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        // SAFETY: the caller promises the ranges.
        let code = unsafe {
            let (from, to) = (from as *const c_void, to as *mut c_void);
            (self.functions.all_reduce)(from, to, count, data_type_code(data_type), SUM, communicator.0, stream.0)
        };
        self.check("ncclAllReduce", code, communicator.0)
    }

    /// Whether the communicator met an error while an operation ran.
    pub fn check_async(&self, communicator: Communicator) -> Result<(), Failure> {
        let mut state = SUCCESS;
        // SAFETY: writes one code.
        let code = unsafe { (self.functions.async_error)(communicator.0, &raw mut state) };
        self.check("ncclCommGetAsyncError", code, communicator.0)?;
        if state == SUCCESS || state == IN_PROGRESS {
            return Ok(());
        }
        let (text, last_error) = (self.text(state), self.last_error(communicator.0));
        Err(Failure::NcclAsync { code: state, text, last_error })
    }

    /// Leaves the communicator.
    pub fn leave(&self, communicator: Communicator) -> Result<(), Failure> {
        // SAFETY: the handle is not used again.
        self.check("ncclCommDestroy", unsafe { (self.functions.destroy)(communicator.0) }, null_mut())
    }
}

fn constant(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library gives texts that end with a NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}
