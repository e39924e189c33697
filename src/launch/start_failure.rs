//! The words of an engine that did not start a container → why. Pure: text → [`StartFailure`].
//!
//! The texts are those of Docker, runc, crun, podman and NVIDIA's container toolkit; the tests quote them. A program whose
//! loader is missing may fail after the start was reported: then the words are the container's last line.

use crate::facts::run::StartFailure;

/// Finds the cause.
pub fn classify_start_failure(message: &str) -> StartFailure {
    let lower = message.to_ascii_lowercase();
    let says = |words: &str| lower.contains(words);
    let any = |list: &[&str]| list.iter().any(|words| lower.contains(words));
    let is_missing = any(&["no such file", "does not exist", "not found"]);
    if says("requirement error") && says("unsatisfied condition") {
        return StartFailure::DriverTooOld;
    }
    if says("could not select device driver") {
        // An engine without CDI does not know its driver.
        return if says("device driver \"cdi\"") {
            StartFailure::CdiDeviceUnknown
        } else {
            StartFailure::NvidiaToolkitMissing
        };
    }
    // A specification that is older than the host's devices.
    if says("failed to stat cdi host device") {
        return StartFailure::DeviceMissing;
    }
    if any(&["unresolvable cdi devices", "cdi device injection failed", "setting up cdi devices"]) {
        return StartFailure::CdiDeviceUnknown;
    }
    let names_toolkit = any(&["nvidia-container-runtime", "nvidia-container-cli", "nvidia-container-toolkit"]);
    let names_runtime = any(&["unknown or invalid runtime name: nvidia", "unknown runtime specified nvidia"]);
    if names_runtime || names_toolkit && says("exec") && is_missing && !says("initialization error") {
        return StartFailure::NvidiaToolkitMissing;
    }
    if names_toolkit {
        let no_device = ["driver not loaded", "unknown device", "load library failed", "no cuda-capable device"];
        return if any(&no_device) { StartFailure::DeviceMissing } else { StartFailure::Other };
    }
    let names_device =
        ["gathering device information", "bind source path", "error mounting", "statfs ", "cannot stat `"];
    if is_missing && any(&names_device) {
        return StartFailure::DeviceMissing;
    }
    let names_program = ["exec: ", "exec /", "exec user process", "executable file ", "open executable"];
    if says("exec format error") || is_missing && any(&names_program) {
        return StartFailure::NoLoader;
    }
    // podman about a device or directory: `Error: stat /dev/x: no such file or directory`.
    if is_missing && says("stat /") {
        return StartFailure::DeviceMissing;
    }
    StartFailure::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_engines() {
        for (message, expected) in [
            // Docker 20.10.24 and newer without the toolkit.
            (r#"could not select device driver "" with capabilities: [[gpu]]"#, StartFailure::NvidiaToolkitMissing),
            (
                r#"could not select device driver "nvidia" with capabilities: [[gpu]]"#,
                StartFailure::NvidiaToolkitMissing,
            ),
            ("unknown or invalid runtime name: nvidia", StartFailure::NvidiaToolkitMissing),
            ("Unknown runtime specified nvidia", StartFailure::NvidiaToolkitMissing),
            (
                r#"failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/io.containerd.runtime.v2.task/moby/ab/log.json: no such file or directory): exec: "nvidia-container-runtime": executable file not found in $PATH: unknown"#,
                StartFailure::NvidiaToolkitMissing,
            ),
            (
                "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: fork/exec /usr/bin/nvidia-container-runtime-hook: no such file or directory: unknown",
                StartFailure::NvidiaToolkitMissing,
            ),
            // NVIDIA/nvidia-docker#753 and later.
            (
                "OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: Running hook #0:: error running hook: exit status 1, stdout: , stderr: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a newer version, or use an earlier cuda container: unknown",
                StartFailure::DriverTooOld,
            ),
            (
                "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: requirement error: unsatisfied condition: cuda >= 12.4: unknown",
                StartFailure::DriverTooOld,
            ),
            // The toolkit is there and the driver is not.
            (
                "error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
                StartFailure::DeviceMissing,
            ),
            (
                "stderr: nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown",
                StartFailure::DeviceMissing,
            ),
            ("stderr: nvidia-container-cli: device error: 7: unknown device: unknown", StartFailure::DeviceMissing),
            ("nvidia-container-cli: mount error: failed to add device rules: unknown", StartFailure::Other),
            // Docker 20.10.24, which has no CDI; then Docker 25 and newer, and podman.
            (r#"could not select device driver "cdi" with capabilities: []"#, StartFailure::CdiDeviceUnknown),
            (
                "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all: unknown",
                StartFailure::CdiDeviceUnknown,
            ),
            ("setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=9", StartFailure::CdiDeviceUnknown),
            (
                r#"CDI device injection failed: failed to inject devices: failed to stat CDI host device "/dev/nvidia3": no such file or directory"#,
                StartFailure::DeviceMissing,
            ),
            // Docker 20.10.24.
            (
                r#"error gathering device information while adding custom device "/dev/infiniband/uverbs0": no such file or directory"#,
                StartFailure::DeviceMissing,
            ),
            (
                r#"invalid mount config for type "bind": bind source path does not exist: /nope"#,
                StartFailure::DeviceMissing,
            ),
            (
                r#"failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error mounting "/data" to rootfs at "/data": stat /data: no such file or directory: unknown"#,
                StartFailure::DeviceMissing,
            ),
            ("stat /dev/infiniband/uverbs0: no such file or directory", StartFailure::DeviceMissing),
            ("statfs /nope: no such file or directory", StartFailure::DeviceMissing),
            (
                "crun: cannot stat `/dev/nope`: No such file or directory: OCI runtime attempted to invoke a command that was not found",
                StartFailure::DeviceMissing,
            ),
            // runc 1.1.5, at the start and in the container's output.
            (
                r#"failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/nope": stat /nope: no such file or directory: unknown"#,
                StartFailure::NoLoader,
            ),
            (
                r#"runc create failed: unable to start container process: exec: "python3": executable file not found in $PATH: unknown"#,
                StartFailure::NoLoader,
            ),
            ("exec /rdmaprep/agent: no such file or directory", StartFailure::NoLoader),
            ("exec /rdmaprep/agent: exec format error", StartFailure::NoLoader),
            ("standard_init_linux.go:228: exec user process caused: no such file or directory", StartFailure::NoLoader),
            (r#"standard_init_linux.go:211: exec user process caused "exec format error""#, StartFailure::NoLoader),
            (
                "crun: executable file `/nope` not found: No such file or directory: OCI runtime attempted to invoke a command that was not found",
                StartFailure::NoLoader,
            ),
            (
                "crun: open executable: No such file or directory: OCI runtime attempted to invoke a command that was not found",
                StartFailure::NoLoader,
            ),
            // Neither a missing file nor a missing loader.
            (
                r#"unable to start container process: exec: "/etc/passwd": permission denied: unknown"#,
                StartFailure::Other,
            ),
            ("error setting rlimit type 8: operation not permitted: unknown", StartFailure::Other),
            (
                "runc create failed: unable to start container process: unable to apply caps: operation not permitted: unknown",
                StartFailure::Other,
            ),
            ("network nope not found", StartFailure::Other),
            ("", StartFailure::Other),
        ] {
            assert_eq!(classify_start_failure(message), expected, "{message}");
        }
    }
}
