//! Every parser of text, on any text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdmaprep::distro::{parse_os_release, parse_release_line};
use rdmaprep::image::reference::parse_reference;
use rdmaprep::reference::is_image_name;
use rdmaprep::inspect::packages::{parse_depends, parse_dpkg_status};
use rdmaprep::nccl_settings::{InterfaceFilter, parse_conf, parse_number};
use rdmaprep::policy::parse_policy;
use rdmaprep::recipe::parse_recipe;
use rdmaprep::facts::saved::parse_saved_facts;
use rdmaprep::versions::{parse_cuda_version, parse_nccl_version};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(distro) = parse_os_release(text) {
        assert!(!distro.id.is_empty());
    }
    let _ = parse_release_line(text);
    let _ = parse_reference(text, |path| path.as_os_str().len() % 2 == 0);
    let _ = is_image_name(text);
    let _ = parse_recipe("fuzz", text);
    let _ = parse_policy("policy.toml", text);
    let _ = parse_saved_facts(text);
    let _ = (parse_conf(text), parse_number(text));
    let filter = InterfaceFilter::parse(text);
    let _ = filter.allows("erdma_0", Some(1));
    let _ = (parse_nccl_version(text), parse_cuda_version(text));
    if let Ok(packages) = parse_dpkg_status(text) {
        for package in &packages {
            let _ = parse_depends(&package.depends);
        }
    }
    for group in parse_depends(text) {
        assert!(group.iter().all(|dependency| !dependency.name.is_empty()), "{text:?}");
    }
});
