//! The `rdmaprep` command: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    rdmaprep::cli::run().into()
}
