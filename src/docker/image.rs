//! Local images of an engine.
//!
//! Input: an image's name or ID. Output: an [`ImageSummary`], in which everything that some engine omits is optional;
//! or the image is removed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard::models::{DriverData, ImageConfig, ImageInspect};
use bollard::query_parameters::RemoveImageOptionsBuilder;

use super::engine::{CONTROL_TIMEOUT, Engine, STORE_TIMEOUT};
use super::error::DockerError;
use crate::reference::Reference;

/// What an engine knows about one of its images.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ImageSummary {
    /// Digest of the configuration (of the manifest, in an engine with the containerd image store).
    pub id: String,
    /// Names, each with a tag.
    pub repo_tags: Vec<String>,
    /// Names, each with the manifest's digest; known after a pull or a push.
    pub repo_digests: Vec<String>,
    /// Size of all layers, unpacked, in bytes.
    pub size_bytes: Option<u64>,
    /// Architecture in Go's spelling.
    pub architecture: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Variant of the architecture, such as `v8`.
    pub variant: Option<String>,
    /// Digests of the unpacked layers, the lowest first.
    pub diff_ids: Vec<String>,
    /// What this image's containers start with; `None`: the engine has no configuration for it.
    pub config: Option<ImageSettings>,
    /// Directories in which a local engine keeps the layers unpacked, the lowest first; empty if it does not say.
    pub layer_directories: Vec<PathBuf>,
}

/// The part of an image's configuration that containers start with. `None`: the engine did not say, or it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ImageSettings {
    pub env: Option<Vec<String>>,
    pub user: Option<String>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
    pub shell: Option<Vec<String>>,
    pub labels: Option<BTreeMap<String, String>>,
    pub working_dir: Option<String>,
    pub on_build: Option<Vec<String>>,
}

/// One line of an image's history, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HistoryEntry {
    /// ID of the layer's image, if the engine still has it.
    pub id: Option<String>,
    /// The instruction.
    pub created_by: String,
    /// Size of the layer in bytes.
    pub size_bytes: u64,
}

impl Engine {
    /// Describes a local image; `None` if no image has that name.
    pub async fn inspect_image(&self, name: &str) -> Result<Option<ImageSummary>, DockerError> {
        Reference::parse(name)?;
        let operation = format!("inspecting the image {name}");
        let inspected = self.call(&operation, CONTROL_TIMEOUT, self.client().inspect_image(name)).await;
        or_missing(inspected.map(summarise))
    }

    /// The steps that made a local image; `None` if no image has that name.
    pub async fn image_history(&self, name: &str) -> Result<Option<Vec<HistoryEntry>>, DockerError> {
        Reference::parse(name)?;
        let operation = format!("reading the history of the image {name}");
        let history = self.call(&operation, CONTROL_TIMEOUT, self.client().image_history(name)).await;
        or_missing(history.map(|items| {
            let entry = |item: bollard::models::ImageHistoryResponseItem| HistoryEntry {
                // Layers that came from a registry have no image of their own.
                id: Some(item.id).filter(|id| id != "<missing>" && !id.is_empty()),
                created_by: item.created_by,
                size_bytes: u64::try_from(item.size).unwrap_or(0),
            };
            items.into_iter().map(entry).collect()
        }))
    }

    /// Removes a name from an image, and the image with its last name. `force` also removes an image that has several
    /// names, or that a stopped container uses. Returns whether the image existed.
    pub async fn remove_image(&self, name: &str, force: bool) -> Result<bool, DockerError> {
        self.delete_image(name, force, false).await
    }

    /// Removes like [`Engine::remove_image`]; `keep_parents` leaves the nameless images below it alone.
    pub(super) async fn delete_image(&self, name: &str, force: bool, keep_parents: bool) -> Result<bool, DockerError> {
        Reference::parse(name)?;
        let options = RemoveImageOptionsBuilder::default().force(force).noprune(keep_parents).build();
        let operation = format!("removing the image {name}");
        let removal = self.client().remove_image(name, Some(options), None);
        let removed = self.call(&operation, STORE_TIMEOUT, removal).await;
        Ok(or_missing(removed)?.is_some())
    }

    /// Gives a local image one more name.
    pub async fn tag_image(&self, image: &str, name: &str) -> Result<(), DockerError> {
        Reference::parse(image)?;
        let reference = Reference::parse(name)?;
        let options = bollard::query_parameters::TagImageOptionsBuilder::default()
            .repo(&reference.name())
            .tag(reference.tag().unwrap_or("latest"))
            .build();
        let operation = format!("tagging the image {image} as {name}");
        self.call(&operation, CONTROL_TIMEOUT, self.client().tag_image(image, Some(options))).await
    }
}

/// Turns "no such image" into `None`: an answer, not a failure.
fn or_missing<T>(result: Result<T, DockerError>) -> Result<Option<T>, DockerError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(DockerError::Daemon { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn summarise(image: ImageInspect) -> ImageSummary {
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    ImageSummary {
        id: image.id.unwrap_or_default(),
        repo_tags: image.repo_tags.unwrap_or_default(),
        repo_digests: image.repo_digests.unwrap_or_default(),
        size_bytes: image.size.and_then(|size| u64::try_from(size).ok()),
        architecture: text(image.architecture),
        os: text(image.os),
        variant: text(image.variant),
        diff_ids: image.root_fs.and_then(|root_fs| root_fs.layers).unwrap_or_default(),
        config: image.config.map(settings),
        layer_directories: image.graph_driver.map(layer_directories).unwrap_or_default(),
    }
}

/// The storage drivers whose layers are plain directories.
const DIRECTORY_DRIVERS: [&str; 3] = ["overlay2", "overlay", "fuse-overlayfs"];

fn layer_directories(driver: DriverData) -> Vec<PathBuf> {
    if !DIRECTORY_DRIVERS.contains(&driver.name.as_str()) {
        return Vec::new();
    }
    let lower = driver.data.get("LowerDir").map(String::as_str).unwrap_or_default();
    let upper = driver.data.get("UpperDir").map(String::as_str);
    // `LowerDir` names the highest first.
    let from_top = upper.into_iter().chain(lower.split(':')).filter(|dir| !dir.is_empty());
    let mut directories: Vec<PathBuf> = from_top.map(PathBuf::from).collect();
    directories.reverse();
    directories
}

fn settings(config: ImageConfig) -> ImageSettings {
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    let list = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    ImageSettings {
        env: list(config.env),
        user: text(config.user),
        entrypoint: list(config.entrypoint),
        cmd: list(config.cmd),
        shell: list(config.shell),
        labels: config.labels.filter(|labels| !labels.is_empty()).map(BTreeMap::from_iter),
        working_dir: text(config.working_dir),
        on_build: list(config.on_build),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(json: &str) -> ImageSummary {
        summarise(serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}")))
    }

    #[test]
    fn an_image_in_full() {
        let image = summary(
            r#"{"Id":"sha256:ab","RepoTags":["a:1"],"RepoDigests":["a@sha256:cd"],"Size":7,"Architecture":"arm64",
                "Os":"linux","Variant":"v8","RootFS":{"Type":"layers","Layers":["sha256:1","sha256:2"]},
                "Config":{"Env":["A=1"],"User":"1000","Entrypoint":["/e"],"Cmd":["c"],"Shell":["/bin/bash","-c"],
                "Labels":{"k":"v"},"WorkingDir":"/w","OnBuild":["RUN x"]}}"#,
        );
        assert_eq!(image.id, "sha256:ab");
        assert_eq!(image.size_bytes, Some(7));
        assert_eq!(image.variant.as_deref(), Some("v8"));
        assert_eq!(image.diff_ids, ["sha256:1", "sha256:2"]);
        let config = image.config.unwrap();
        assert_eq!(config.shell.as_deref(), Some(["/bin/bash".to_owned(), "-c".to_owned()].as_slice()));
        assert_eq!(config.labels, Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])));
        assert_eq!(config.on_build.as_deref(), Some(["RUN x".to_owned()].as_slice()));
    }

    #[test]
    fn what_an_engine_leaves_out_or_nulls_is_none() {
        for json in [
            "{}",
            r#"{"Config":null,"RootFS":null,"RepoTags":null}"#,
            // What `docker import` leaves in Docker 20.10.24.
            r#"{"Id":"","RepoTags":null,"Config":null,"Size":-1,"GraphDriver":{"Data":null,"Name":"vfs"}}"#,
            r#"{"Variant":"","RootFS":{"Type":"layers"}}"#,
        ] {
            assert_eq!(summary(json), ImageSummary::default(), "{json}");
        }
        for json in [
            r#"{"Config":{"Labels":{},"Env":[],"Cmd":[]}}"#,
            r#"{"Config":{"Hostname":"","User":"","Env":null,"Cmd":null,"Volumes":null,"WorkingDir":"",
                "Entrypoint":null,"OnBuild":null,"Labels":null}}"#,
        ] {
            assert_eq!(summary(json).config, Some(ImageSettings::default()), "{json}");
        }
    }

    #[test]
    fn layer_directories_are_lowest_first() {
        let image = summary(
            r#"{"GraphDriver":{"Name":"overlay2","Data":{"LowerDir":"/d/2/diff:/d/1/diff","UpperDir":"/d/3/diff"}}}"#,
        );
        assert_eq!(image.layer_directories, ["/d/1/diff", "/d/2/diff", "/d/3/diff"].map(PathBuf::from));
        let zfs = summary(r#"{"GraphDriver":{"Name":"zfs","Data":{"UpperDir":"/d"}}}"#);
        assert!(zfs.layer_directories.is_empty());
    }
}
