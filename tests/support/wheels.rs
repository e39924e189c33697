//! NVIDIA's libraries and headers, out of wheels of PyPI (`tests/rig/wheel.sh`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder with these files of the wheel; the error is the reason why the wheel could not be fetched.
pub fn wheel(project: &str, version: &str, files: &[&str]) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rig/wheel.sh");
    let output = Command::new(script)
        .arg(format!("{project}=={version}"))
        .args(files)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("tests/rig/wheel.sh: {e}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let reason = stderr.lines().rev().find(|line| line.contains("ERROR")).or(stderr.lines().last());
        return Err(format!("{project} {version} could not be fetched: {}", reason.unwrap_or("no reason was given")));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}
