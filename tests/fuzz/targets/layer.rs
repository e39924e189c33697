//! A layer of any bytes: an index that stays in its root, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::image::layer::{Want, index_layer};
use rdmaprep::image::rootfs::RootFs;

fuzz_target!(|data: &[u8]| {
    // The first half twice in the second image, so that layers meet.
    for want in [Want::Content, Want::Markers] {
        let Ok(index) = index_layer(data, &move |_, _| want) else { return };
        for (path, _) in &index.changes {
            assert!(!path.starts_with('/') && !path.split('/').any(|name| name == ".."), "{path:?}");
        }
        let fs = RootFs::merge([index.clone(), index]);
        fs.walk("", &mut |path, _| {
            let real = fs.real_path(path);
            assert!(real.is_none_or(|real| !real.starts_with('/') && !real.contains("..")), "{path:?}");
        });
    }
});
