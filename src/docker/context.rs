//! The build context: the files that a Dockerfile can copy, as a tar archive in memory.
//!
//! Input: paths, contents and modes. Output: the same bytes for the same files, in whatever order they were added:
//! builders compare the context with their cache.

use std::collections::BTreeMap;
use std::io;

/// Name of the Dockerfile inside the archive.
pub(super) const DOCKERFILE: &str = "Dockerfile";

/// Why a context cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The path would leave the context, or is none.
    #[error("packing the build context: `{path}` is no relative path inside it")]
    Path { path: String },
    /// The path is there twice, or is the Dockerfile's.
    #[error("packing the build context: `{path}` is there twice")]
    Duplicate { path: String },
    /// The archive format cannot hold the file.
    #[error("packing the build context: adding `{path}`")]
    Pack { path: String, source: io::Error },
}

/// The files of a build, besides its Dockerfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildContext {
    /// Path inside the context, content, permission bits.
    pub files: Vec<(String, Vec<u8>, u32)>,
}

impl BuildContext {
    /// Packs the files and the Dockerfile.
    pub fn to_tar(&self, dockerfile: &str) -> Result<Vec<u8>, ContextError> {
        let mut entries: BTreeMap<&str, (&[u8], u32)> = BTreeMap::from([(DOCKERFILE, (dockerfile.as_bytes(), 0o644))]);
        for (path, content, mode) in &self.files {
            if !is_inside(path) {
                return Err(ContextError::Path { path: path.clone() });
            }
            if entries.insert(path, (content, *mode)).is_some() {
                return Err(ContextError::Duplicate { path: path.clone() });
            }
        }
        let mut archive = tar::Builder::new(Vec::new());
        for (path, (content, mode)) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(content.len() as u64);
            header.set_mode(mode & 0o7777);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            archive
                .append_data(&mut header, path, content)
                .map_err(|source| ContextError::Pack { path: path.to_owned(), source })?;
        }
        archive.into_inner().map_err(|source| ContextError::Pack { path: String::new(), source })
    }
}

fn is_inside(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn context(files: &[(&str, &str, u32)]) -> BuildContext {
        let files =
            files.iter().map(|(path, text, mode)| ((*path).to_owned(), text.as_bytes().to_vec(), *mode)).collect();
        BuildContext { files }
    }

    #[test]
    fn order_of_the_files_does_not_matter() {
        let one = context(&[("b/x.sh", "x", 0o755), ("a", "y", 0o600)]).to_tar("FROM scratch\n").expect("valid");
        let two = context(&[("a", "y", 0o600), ("b/x.sh", "x", 0o755)]).to_tar("FROM scratch\n").expect("valid");
        assert_eq!(one, two);

        let mut archive = tar::Archive::new(one.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("text");
            let header = entry.header();
            assert_eq!((header.mtime().ok(), header.uid().ok(), header.gid().ok()), (Some(0), Some(0), Some(0)));
            let path = entry.path().expect("a path").display().to_string();
            seen.push((path, text, entry.header().mode().expect("a mode")));
        }
        let expected = [("Dockerfile", "FROM scratch\n", 0o644), ("a", "y", 0o600), ("b/x.sh", "x", 0o755)];
        assert_eq!(seen, expected.map(|(path, text, mode)| (path.to_owned(), text.to_owned(), mode)));
    }

    #[test]
    fn paths_outside_or_twice_are_refused() {
        for path in ["", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/"] {
            assert!(matches!(context(&[(path, "", 0)]).to_tar(""), Err(ContextError::Path { .. })), "{path}");
        }
        for files in [&[("a", "", 0), ("a", "", 0)][..], &[("Dockerfile", "", 0)][..]] {
            assert!(matches!(context(files).to_tar(""), Err(ContextError::Duplicate { .. })));
        }
    }

    #[test]
    fn long_paths_survive() {
        let path = format!("{}/x", "d".repeat(150));
        let bytes = context(&[(&path, "z", 0o644)]).to_tar("").expect("valid");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let paths: Vec<String> = archive
            .entries()
            .expect("entries")
            .map(|e| e.expect("entry").path().expect("path").display().to_string())
            .collect();
        assert!(paths.contains(&path), "{paths:?}");
    }
}
