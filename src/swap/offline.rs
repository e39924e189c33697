//! A directory of package files → its packages.

use super::error::SwapError;
use crate::package_file::read_package_file;
use crate::plan::offline::OfferedFiles;
use std::fs::File;
use std::path::Path;

/// Reads every package file in a directory, without subdirectories.
///
/// # Errors
/// The directory cannot be read, or holds no package file.
pub fn load_files(directory: &Path) -> Result<OfferedFiles, SwapError> {
    let failed = |source| SwapError::File { path: directory.display().to_string(), source };
    let mut offered = OfferedFiles { directory: directory.display().to_string(), ..OfferedFiles::default() };
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !(name.ends_with(".deb") || name.ends_with(".rpm")) {
            continue;
        }
        // A pipe would block.
        let opened = std::fs::metadata(&path).map(|metadata| metadata.is_file()).and_then(|is_file| match is_file {
            true => File::open(&path),
            false => Err(std::io::Error::other("it is not a regular file")),
        });
        match opened.map_err(Into::into).and_then(read_package_file) {
            Ok(file) => drop(offered.packages.insert(name, file)),
            Err(error) => drop(offered.unusable.insert(name, error.to_string())),
        }
    }
    if offered.packages.is_empty() && offered.unusable.is_empty() {
        return Err(SwapError::NoPackageFiles { directory: directory.display().to_string() });
    }
    Ok(offered)
}
