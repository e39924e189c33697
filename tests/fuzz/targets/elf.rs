//! A library of any bytes, in chunks of any size: facts that do not depend on the chunks, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::image::elf::ElfReader;

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let read = |size: usize| {
        let mut reader = ElfReader::default();
        bytes.chunks(size).for_each(|chunk| reader.push(chunk));
        format!("{:?}", reader.finish())
    };
    assert_eq!(read(1 + usize::from(*first)), read(bytes.len().max(1)));
});
