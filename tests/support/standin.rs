//! The stand-ins for libcuda, libnccl and libibverbs (`tests/standin/README.md`), built with the machine's C compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds them into a folder of this name, each of `without` once more without that symbol (at `without/SYMBOL`); gives the
/// folder. The error is the reason why they could not be built.
pub fn build(name: &str, without: &[&str]) -> Result<PathBuf, String> {
    if !Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Err("there is no C compiler (cc)".to_owned());
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("standin-{name}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/build.sh");
    let output = Command::new(script).arg(&folder).args(without).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(folder)
}
