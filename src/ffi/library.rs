//! Opening a shared library at run time: a missing library or function is a finding, not an error of the loader.
//!
//! Libraries are never closed: libnccl leaves threads behind that run its code.

#![allow(unsafe_code)]

use crate::facts::run::{Failure, LoadedLibrary};
use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{CStr, c_void};
use std::mem::ManuallyDrop;

/// Whether the library's symbols are visible to libraries opened later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Local,
    Global,
}

/// An open library.
pub struct Library {
    handle: ManuallyDrop<Handle>,
    asked: String,
}

impl Library {
    /// Opens a library by soname, as the loader finds it, or by path.
    ///
    /// # Errors
    /// [`Failure::LibraryMissing`] with the loader's message.
    pub fn open(name: &str, scope: Scope) -> Result<Library, Failure> {
        let flags = RTLD_LAZY
            | match scope {
                Scope::Local => RTLD_LOCAL,
                Scope::Global => RTLD_GLOBAL,
            };
        // SAFETY: the initialisers of the library run; it is one that a job of this image would open, too.
        match unsafe { Handle::open(Some(name), flags) } {
            Ok(handle) => Ok(Library { handle: ManuallyDrop::new(handle), asked: name.to_owned() }),
            Err(error) => {
                let detail = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                Err(Failure::LibraryMissing { library: name.to_owned(), detail })
            }
        }
    }

    /// A function of the library.
    ///
    /// # Errors
    /// [`Failure::SymbolMissing`].
    ///
    /// # Safety
    /// `F` must be the type of the function as its header declares it.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, Failure> {
        // SAFETY: the caller promises the type.
        match unsafe { self.handle.get::<F>(name.to_bytes_with_nul()) } {
            Ok(symbol) => Ok(*symbol),
            Err(_) => {
                Err(Failure::SymbolMissing { library: self.asked.clone(), symbol: name.to_string_lossy().into_owned() })
            }
        }
    }

    /// The requested name, and the file that contains `function`.
    pub fn describe(&self, function: *const c_void) -> LoadedLibrary {
        LoadedLibrary { asked: self.asked.clone(), path: mapped_file(function).unwrap_or_default() }
    }
}

/// The file mapped at an address, by the kernel's record.
fn mapped_file(address: *const c_void) -> Option<String> {
    file_at(&std::fs::read_to_string("/proc/self/maps").ok()?, address as u64)
}

fn file_at(maps: &str, address: u64) -> Option<String> {
    maps.lines().find_map(|line| {
        // 7f0c6a000000-7f0c6a021000 r-xp 00000000 08:01 1234    /usr/lib/libcuda.so.535.54.03
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let within = u64::from_str_radix(start, 16).ok()? <= address && address < u64::from_str_radix(end, 16).ok()?;
        let path = rest.find('/').map(|at| &rest[at..])?;
        within.then(|| path.trim_end_matches(" (deleted)").to_owned())
    })
}

/// Declares the functions used from a library, and how to find them all.
macro_rules! functions {
    (
        $(#[$doc:meta])* $table:ident {
            $( $field:ident = $name:literal: fn($($arg:ty),*) $(-> $ret:ty)?; )*
        }
        optional {
            $( $ofield:ident = $oname:literal: fn($($oarg:ty),*) $(-> $oret:ty)?; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $( pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?, )*
            $( pub $ofield: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>, )*
        }

        impl $table {
            fn load(library: &$crate::ffi::library::Library) -> Result<Self, $crate::facts::run::Failure> {
                Ok(Self {
                    // SAFETY: the types are those of the public header.
                    $( $field: unsafe { library.function($name) }?, )*
                    // SAFETY: as above; an older library may lack it.
                    $( $ofield: unsafe { library.function($oname) }.ok(), )*
                })
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_loaders_words() {
        let Err(failure) = Library::open("libnosuch.so.9", Scope::Local) else { panic!("it opened") };
        let Failure::LibraryMissing { library, detail } = failure else { panic!("{failure:?}") };
        assert_eq!(library, "libnosuch.so.9");
        assert!(detail.contains("cannot open shared object file"), "{detail}");
    }

    #[test]
    fn a_function_is_found_with_its_file_or_named() {
        let library = Library::open("libc.so.6", Scope::Local).unwrap();
        // SAFETY: getpid(2) takes nothing and gives an int.
        let getpid = unsafe { library.function::<extern "C" fn() -> i32>(c"getpid") }.unwrap();
        assert_eq!(getpid(), i32::try_from(std::process::id()).unwrap());
        let described = library.describe(getpid as *const c_void);
        assert!(described.path.starts_with('/') && described.path.contains("libc"), "{described:?}");
        // SAFETY: never called.
        let missing = unsafe { library.function::<extern "C" fn()>(c"no_such_function") };
        assert_eq!(
            missing.err(),
            Some(Failure::SymbolMissing { library: "libc.so.6".into(), symbol: "no_such_function".into() })
        );
    }

    #[test]
    fn maps_are_searched_by_address() {
        let maps = "\
1000-2000 r--p 00000000 08:01 1 /a b/libx.so
2000-3000 r-xp 00001000 08:01 1                          /usr/lib/liby.so.1 (deleted)
3000-4000 rw-p 00000000 00:00 0 ";
        assert_eq!(file_at(maps, 0x1fff).as_deref(), Some("/a b/libx.so"));
        assert_eq!(file_at(maps, 0x2000).as_deref(), Some("/usr/lib/liby.so.1"));
        assert_eq!(file_at(maps, 0x3000), None);
        assert_eq!(file_at(maps, 0x4000), None);
    }
}
