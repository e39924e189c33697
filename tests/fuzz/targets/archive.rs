//! An image archive of any bytes: an image whose facts can be read, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::image::archive::read_archive;
use rdmaprep::inspect::{harvest, inspect};

fuzz_target!(|data: &[u8]| {
    if let Ok(image) = read_archive(data, None, &harvest) {
        let _ = inspect(&image, "fuzz".to_owned());
    }
});
