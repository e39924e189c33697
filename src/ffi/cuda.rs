//! libcuda, the driver's library: a small function table, opened at run time.
//!
//! Types and numbers are those of `cuda.h`; a test compares them with the public header.

#![allow(unsafe_code)]

use super::library::{Library, Scope, functions};
use crate::facts::run::{Failure, LoadedLibrary};
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::ptr::null_mut;

/// The driver's library. `libcuda.so` without a number is the toolkit's stub or a developer's link, and never opened.
pub const LIBRARY: &str = "libcuda.so.1";

/// `CUresult`
type Code = i32;
/// `CUdeviceptr`
pub type DevicePointer = u64;
type Handle = *mut c_void;

/// `CUDA_SUCCESS`
const SUCCESS: Code = 0;
/// `CUDA_ERROR_NOT_READY`
pub const NOT_READY: Code = 600;
/// `CU_STREAM_NON_BLOCKING`
pub const STREAM_NON_BLOCKING: c_uint = 1;

/// `CUdevice_attribute`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    EccEnabled = 32,
    ComputeCapabilityMajor = 75,
    ComputeCapabilityMinor = 76,
    GpuDirectRdmaSupported = 116,
    DmaBufSupported = 124,
}

functions! {
    /// The functions in use.
    Functions {
        init = c"cuInit": fn(c_uint) -> Code;
        driver_version = c"cuDriverGetVersion": fn(*mut i32) -> Code;
        error_name = c"cuGetErrorName": fn(Code, *mut *const c_char) -> Code;
        error_string = c"cuGetErrorString": fn(Code, *mut *const c_char) -> Code;
        device_count = c"cuDeviceGetCount": fn(*mut i32) -> Code;
        device = c"cuDeviceGet": fn(*mut i32, i32) -> Code;
        device_name = c"cuDeviceGetName": fn(*mut c_char, i32, i32) -> Code;
        device_memory = c"cuDeviceTotalMem_v2": fn(*mut usize, i32) -> Code;
        device_attribute = c"cuDeviceGetAttribute": fn(*mut i32, i32, i32) -> Code;
        device_pci = c"cuDeviceGetPCIBusId": fn(*mut c_char, i32, i32) -> Code;
        can_access_peer = c"cuDeviceCanAccessPeer": fn(*mut i32, i32, i32) -> Code;
        retain_context = c"cuDevicePrimaryCtxRetain": fn(*mut Handle, i32) -> Code;
        set_context = c"cuCtxSetCurrent": fn(Handle) -> Code;
        create_stream = c"cuStreamCreate": fn(*mut Handle, c_uint) -> Code;
        query_stream = c"cuStreamQuery": fn(Handle) -> Code;
        load_module = c"cuModuleLoadData": fn(*mut Handle, *const c_void) -> Code;
        module_function = c"cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char) -> Code;
        launch = c"cuLaunchKernel": fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> Code;
        allocate = c"cuMemAlloc_v2": fn(*mut DevicePointer, usize) -> Code;
        set_words = c"cuMemsetD32Async": fn(DevicePointer, c_uint, usize, Handle) -> Code;
        copy_to_host = c"cuMemcpyDtoH_v2": fn(*mut c_void, DevicePointer, usize) -> Code;
        copy_to_device = c"cuMemcpyHtoD_v2": fn(DevicePointer, *const c_void, usize) -> Code;
    }
    optional {}
}

/// The open library, initialised.
pub struct Cuda {
    functions: Functions,
    library: LoadedLibrary,
}

/// A stream of a context.
#[derive(Debug, Clone, Copy)]
pub struct Stream(pub Handle);

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(Handle);

/// Code of a module, on the device.
#[derive(Debug, Clone, Copy)]
pub struct Module(Handle);

impl Cuda {
    /// Opens the library, without initialising it.
    ///
    /// # Errors
    /// The library is missing, lacks a function, or is the stub.
    pub fn open() -> Result<Cuda, Failure> {
        let library = Library::open(LIBRARY, Scope::Global)?;
        let functions = Functions::load(&library)?;
        let library = library.describe(functions.init as *const c_void);
        if library.path.contains("/stubs/") {
            return Err(Failure::StubLibrary { path: library.path });
        }
        Ok(Cuda { functions, library })
    }

    pub fn library(&self) -> &LoadedLibrary {
        &self.library
    }

    /// Turns a code into an error that names the call.
    fn check(&self, call: &str, code: Code) -> Result<(), Failure> {
        if code == SUCCESS {
            return Ok(());
        }
        let words = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the function writes a pointer to a constant, or nothing.
            let found = unsafe { function(code, &raw mut text) };
            let known = found == SUCCESS && !text.is_null();
            // SAFETY: as above, and the text ends with a NUL.
            if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { String::new() }
        };
        let (name, text) = (words(self.functions.error_name), words(self.functions.error_string));
        Err(Failure::Cuda { call: call.to_owned(), code, name, text })
    }

    /// `cuInit`
    pub fn init(&self) -> Result<(), Failure> {
        // SAFETY: takes flags only.
        self.check("cuInit", unsafe { (self.functions.init)(0) })
    }

    /// The CUDA version that the driver is for: 12040 for 12.4. Works before [`Cuda::init`].
    pub fn driver_version(&self) -> Result<i32, Failure> {
        self.number("cuDriverGetVersion", |out| {
            // SAFETY: writes one int.
            unsafe { (self.functions.driver_version)(out) }
        })
    }

    pub fn device_count(&self) -> Result<u32, Failure> {
        let count = self.number("cuDeviceGetCount", |out| {
            // SAFETY: writes one int.
            unsafe { (self.functions.device_count)(out) }
        })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// The handle of a device.
    pub fn device(&self, index: u32) -> Result<i32, Failure> {
        let index = i32::try_from(index).unwrap_or(i32::MAX);
        self.number("cuDeviceGet", |out| {
            // SAFETY: writes one CUdevice.
            unsafe { (self.functions.device)(out, index) }
        })
    }

    pub fn device_name(&self, device: i32) -> Result<String, Failure> {
        self.text("cuDeviceGetName", |buffer, length| {
            // SAFETY: writes at most `length` bytes.
            unsafe { (self.functions.device_name)(buffer, length, device) }
        })
    }

    /// PCI address such as `0000:1a:00.0`.
    pub fn device_pci_address(&self, device: i32) -> Result<String, Failure> {
        let text = self.text("cuDeviceGetPCIBusId", |buffer, length| {
            // SAFETY: writes at most `length` bytes.
            unsafe { (self.functions.device_pci)(buffer, length, device) }
        })?;
        Ok(text.to_ascii_lowercase())
    }

    pub fn device_memory_bytes(&self, device: i32) -> Result<u64, Failure> {
        let mut bytes = 0_usize;
        // SAFETY: writes one size_t.
        self.check("cuDeviceTotalMem", unsafe { (self.functions.device_memory)(&raw mut bytes, device) })?;
        Ok(bytes as u64)
    }

    pub fn attribute(&self, device: i32, attribute: Attribute) -> Result<i32, Failure> {
        self.number("cuDeviceGetAttribute", |out| {
            // SAFETY: writes one int.
            unsafe { (self.functions.device_attribute)(out, attribute as i32, device) }
        })
    }

    /// Whether the first device can use the memory of the second.
    pub fn can_access_peer(&self, device: i32, peer: i32) -> Result<bool, Failure> {
        let can = self.number("cuDeviceCanAccessPeer", |out| {
            // SAFETY: writes one int.
            unsafe { (self.functions.can_access_peer)(out, device, peer) }
        })?;
        Ok(can != 0)
    }

    /// Creates the primary context of a device, which libnccl uses, and makes it current for this thread.
    pub fn enter_context(&self, device: i32) -> Result<(), Failure> {
        let mut context = null_mut();
        // SAFETY: writes one handle.
        let retained = unsafe { (self.functions.retain_context)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", retained)?;
        // SAFETY: the handle was just made, and is not given back before the process ends.
        self.check("cuCtxSetCurrent", unsafe { (self.functions.set_context)(context) })
    }

    /// A stream that does not wait for the default stream, as nccl-tests uses.
    pub fn stream(&self) -> Result<Stream, Failure> {
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        let made = unsafe { (self.functions.create_stream)(&raw mut stream, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", made)?;
        Ok(Stream(stream))
    }

    /// Whether all work of the stream is done; an error of the work is reported here.
    pub fn is_done(&self, stream: Stream) -> Result<bool, Failure> {
        // SAFETY: the stream lives as long as the process.
        match unsafe { (self.functions.query_stream)(stream.0) } {
            NOT_READY => Ok(false),
            code => self.check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Waits for the stream by polling, which keeps the processor busy.
    pub fn wait(&self, stream: Stream) -> Result<(), Failure> {
        while !self.is_done(stream)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Loads PTX; the driver compiles it for the device.
    pub fn load_ptx(&self, ptx: &CStr) -> Result<Module, Failure> {
        let mut module = null_mut();
        // SAFETY: the text ends with a NUL, as PTX must.
        let loaded = unsafe { (self.functions.load_module)(&raw mut module, ptx.as_ptr().cast()) };
        self.check("cuModuleLoadData", loaded)?;
        Ok(Module(module))
    }

    pub fn kernel(&self, module: Module, name: &str) -> Result<Kernel, Failure> {
        let mut kernel = null_mut();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module stays loaded; writes one handle.
        let found = unsafe { (self.functions.module_function)(&raw mut kernel, module.0, name.as_ptr()) };
        self.check("cuModuleGetFunction", found)?;
        Ok(Kernel(kernel))
    }

    /// Starts a kernel.
    ///
    /// # Safety
    /// `parameters` must point to values of the types that the kernel declares, in its order.
    pub unsafe fn launch(
        &self,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        stream: Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<(), Failure> {
        // SAFETY: the caller promises the parameters; the driver copies them before it returns.
        let code = unsafe {
            let parameters = parameters.as_mut_ptr();
            (self.functions.launch)(kernel.0, blocks, 1, 1, threads, 1, 1, 0, stream.0, parameters, null_mut())
        };
        self.check("cuLaunchKernel", code)
    }

    pub fn allocate(&self, bytes: u64) -> Result<DevicePointer, Failure> {
        let mut pointer = 0;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: writes one pointer.
        self.check("cuMemAlloc", unsafe { (self.functions.allocate)(&raw mut pointer, bytes) })?;
        Ok(pointer)
    }

    /// Sets `words` words of four bytes.
    ///
    /// # Safety
    /// The range must be inside an allocation of the context.
    pub unsafe fn set_words(&self, to: DevicePointer, value: u32, words: u64, stream: Stream) -> Result<(), Failure> {
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        // SAFETY: the caller promises the range.
        self.check("cuMemsetD32Async", unsafe { (self.functions.set_words)(to, value, words, stream.0) })
    }

    /// Copies from the device.
    ///
    /// # Safety
    /// `from` must have as many bytes as `to`.
    pub unsafe fn read(&self, from: DevicePointer, to: &mut [u8]) -> Result<(), Failure> {
        // SAFETY: the caller promises the source, and the slice is the destination.
        let copied = unsafe { (self.functions.copy_to_host)(to.as_mut_ptr().cast(), from, to.len()) };
        self.check("cuMemcpyDtoH", copied)
    }

    /// Copies to the device.
    ///
    /// # Safety
    /// `to` must have as many bytes as `from`.
    pub unsafe fn write(&self, to: DevicePointer, from: &[u8]) -> Result<(), Failure> {
        // SAFETY: the caller promises the destination, and the slice is the source.
        let copied = unsafe { (self.functions.copy_to_device)(to, from.as_ptr().cast(), from.len()) };
        self.check("cuMemcpyHtoD", copied)
    }

    fn number(&self, call: &str, get: impl FnOnce(*mut i32) -> Code) -> Result<i32, Failure> {
        let mut value = 0;
        self.check(call, get(&raw mut value))?;
        Ok(value)
    }

    fn text(&self, call: &str, get: impl FnOnce(*mut c_char, i32) -> Code) -> Result<String, Failure> {
        const LENGTH: usize = 256;
        let mut buffer = [0_u8; LENGTH];
        self.check(call, get(buffer.as_mut_ptr().cast(), LENGTH as i32))?;
        let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(LENGTH);
        Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
    }
}
