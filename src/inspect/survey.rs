//! One walk over the whole tree for all parts of the inspection: names of interest → paths.
//!
//! An image may have a million files; every further walk over them costs as much as reading a good part of the index.

use super::names::is_ofed_directory;
use crate::image::rootfs::{Kept, Node, RootFs};

/// The directory that makes another one a conda environment.
const CONDA_META: &str = "conda-meta";

/// Objects whose names some part needs.
pub(super) struct Survey<'a> {
    /// In walking order; links are links.
    named: Vec<(String, &'a Node)>,
    /// Conda environments, without leading slash, each with a trailing one.
    conda: Vec<String>,
}

impl<'a> Survey<'a> {
    /// Walks the tree.
    pub(super) fn load(fs: &'a RootFs) -> Survey<'a> {
        let mut survey = Survey { named: Vec::new(), conda: Vec::new() };
        fs.walk("", &mut |path, node| {
            let name = path.rsplit('/').next().unwrap_or(path);
            match node {
                Node::Dir if name == CONDA_META => {
                    let environment = path.strip_suffix(CONDA_META).unwrap_or(path);
                    // The root itself is not an environment.
                    survey.conda.extend((!environment.is_empty()).then(|| environment.to_owned()));
                }
                _ if is_of_interest(name, node) => survey.named.push((path.to_owned(), node)),
                _ => {}
            }
        });
        survey
    }

    /// Every object kept, with its path.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, &'a Node)> {
        self.named.iter().map(|(path, node)| (path.as_str(), *node))
    }

    /// Paths of the files whose last name passes `matches`: links are left out.
    pub(super) fn files_named(&self, matches: impl Fn(&str) -> bool) -> Vec<String> {
        let fits = |path: &str| matches(path.rsplit('/').next().unwrap_or(path));
        let files = self.named().filter(|(path, node)| matches!(node, Node::File { .. }) && fits(path));
        files.map(|(path, _)| path.to_owned()).collect()
    }

    /// Whether a path is in a conda environment.
    pub(super) fn is_in_conda(&self, path: &str) -> bool {
        self.conda.iter().any(|environment| path.starts_with(environment))
    }
}

/// Libraries, inspected files, and the few names that are evidence by themselves.
fn is_of_interest(name: &str, node: &Node) -> bool {
    match node {
        Node::File { kept: Kept::Hits(_), .. } => true,
        Node::File { .. } | Node::Symlink(_) => {
            name.contains(".so") || name == "version.py" || name.starts_with("nvidia_cuda_runtime")
        }
        Node::Dir => is_ofed_directory(name) || name.starts_with("nvidia_cuda_runtime"),
        Node::Special => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_fixture::Fixture;

    #[test]
    fn names_and_environments() {
        let mut fixture = Fixture::good();
        fixture.file("opt/conda/conda-meta/history", "").file("opt/conda/lib/libz.so.1", "ELF");
        fixture.link("opt/libz.so", "conda/lib/libz.so.1").file("conda-meta/x", "");
        let image = fixture.image();
        let survey = Survey::load(&image.rootfs);
        assert_eq!(survey.files_named(|name| name.starts_with("libz")), ["opt/conda/lib/libz.so.1"]);
        assert!(survey.named().any(|(path, _)| path == "opt/libz.so"));
        assert!(survey.is_in_conda("opt/conda/lib/libz.so.1") && !survey.is_in_conda("opt/libz.so"));
    }
}
