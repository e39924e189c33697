//! A loader cache of any bytes: entries, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::inspect::parse_cache;

fuzz_target!(|data: &[u8]| {
    if let Ok(entries) = parse_cache(data) {
        // An entry takes 24 bytes in the file.
        assert!(entries.len() <= data.len() / 24, "{} entries", entries.len());
    }
});
