//! A .deb or .rpm file of any bytes: what its control data or header says, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::package_file::read_package_file;
use std::io::Cursor;

fuzz_target!(|data: &[u8]| {
    let _ = read_package_file(Cursor::new(data));
});
