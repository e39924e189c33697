//! Layers as GNU tar writes them: long names and sparse files, in its own format and in PAX.

use crate::support::image_fixture;

use image_fixture::archive_of;
use rdmaprep::image::archive::read_archive;
use rdmaprep::image::rootfs::Node;
use rdmaprep::inspect::{harvest, inspect};
use std::os::unix::fs::FileExt;
use std::process::Command;

const SIZE: u64 = 5_000_000;
const LIBRARY: &str = "usr/lib/x86_64-linux-gnu/libnccl.so.2";

#[test]
fn long_names_and_holes() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("opt/{0}/{0}", "n".repeat(120));
    std::fs::create_dir_all(dir.path().join(&long)).unwrap();
    std::fs::write(dir.path().join(&long).join("file"), "x").unwrap();
    std::os::unix::fs::symlink(format!("/{long}/file"), dir.path().join("opt/link")).unwrap();
    std::fs::create_dir_all(dir.path().join("usr/lib/x86_64-linux-gnu")).unwrap();
    let library = std::fs::File::create(dir.path().join(LIBRARY)).unwrap();
    library.set_len(SIZE).unwrap();
    // Holes before and behind.
    library.write_all_at(b"NCCL version 2.21.5+cuda12.4\n", 3_000_000).unwrap();
    for format in ["gnu", "posix"] {
        let output = Command::new("tar")
            .args(["--sparse", &format!("--format={format}"), "-c", "opt", "usr"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.len() < 100_000, "{format}: tar wrote the holes");
        let config = serde_json::json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {}});
        let archive = archive_of(&[output.stdout], &config, "example/formats:1");
        let image = read_archive(archive.as_slice(), None, &harvest).unwrap();
        assert!(matches!(image.rootfs.get("opt/link"), Some(Node::File { size: 1, .. })), "{format}: a long name");
        assert!(matches!(image.rootfs.get(LIBRARY), Some(Node::File { size: SIZE, .. })), "{format}: a sparse file");
        let facts = inspect(&image, format.to_owned()).unwrap();
        assert_eq!(facts.nccl.len(), 1, "{format}: {:?}", facts.nccl);
        assert_eq!(
            (facts.nccl[0].path.as_str(), facts.nccl[0].version.as_deref()),
            (&*format!("/{LIBRARY}"), Some("2.21.5"))
        );
    }
}
