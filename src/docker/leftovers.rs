//! Removes what an unsuccessful build leaves in the engine.
//!
//! Input: a [`Snapshot`] from before the build, and the build's [`Traces`]. Output: the containers and images that the
//! build made are gone, or an event reports what could not be removed. Nothing that existed before is touched: the
//! traces come from a text stream that the build's own steps can write to.

use std::collections::HashSet;
use std::time::Duration;

use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveContainerOptionsBuilder,
};
use tokio::time::Instant;

use super::build::BuildEvent;
use super::engine::{CONTROL_TIMEOUT, Engine, STORE_TIMEOUT};
use super::error::DockerError;
use super::transcript::{Traces, UnfinishedStep};
use crate::reference::Reference;

/// How long the daemon may take to end a step by itself. It kills the container at once, but may be writing a layer.
const DAEMON_GRACE: Duration = Duration::from_secs(30);

/// How often to look.
const POLL: Duration = Duration::from_millis(100);

/// What an engine held before a build.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    images: HashSet<String>,
    containers: HashSet<String>,
}

impl Snapshot {
    pub(super) async fn take(engine: &Engine) -> Result<Self, DockerError> {
        let containers = containers(engine).await?.into_iter().collect();
        let images = images(engine).await?.into_iter().map(|image| image.id).collect();
        Ok(Self { images, containers })
    }

    pub(super) fn has_image(&self, id: &str) -> bool {
        self.images.iter().any(|known| is_same(known, id))
    }

    fn has_container(&self, id: &str) -> bool {
        self.containers.iter().any(|known| is_same(known, id))
    }
}

/// Removes the traces. `tags` are the build's own names. Returns an event for each object that remains.
pub(super) async fn remove(engine: &Engine, before: &Snapshot, traces: &Traces, tags: &[String]) -> Vec<BuildEvent> {
    let mut events = Vec::new();
    for id in traces.containers.iter().filter(|id| !before.has_container(id)) {
        if let Err(error) = remove_container(engine, id).await {
            events.push(left_behind(format!("container {id}"), &error));
        }
    }
    let mut images: Vec<String> = traces.images.iter().rev().filter(|id| !before.has_image(id)).cloned().collect();
    if let Some(step) = &traces.unfinished {
        match unnamed_images(engine, before, step).await {
            Ok(unnamed) => images.splice(0..0, unnamed).for_each(drop),
            Err(error) => events.push(left_behind(format!("the image of the step `{}`", step.name), &error)),
        }
    }
    for tag in tags.iter().filter(|_| traces.may_have_named) {
        // A build stopped at its very end may have named its image without reporting it.
        match engine.inspect_image(tag).await {
            Ok(Some(image)) if !before.has_image(&image.id) => images.insert(0, image.id),
            Ok(_) => {}
            Err(error) => events.push(left_behind(format!("the tag {tag}"), &error)),
        }
    }
    for id in images {
        if let Err(error) = remove_image(engine, &id, tags).await {
            events.push(left_behind(format!("image {id}"), &error));
        }
    }
    events
}

fn left_behind(object: String, error: &DockerError) -> BuildEvent {
    tracing::warn!(object, %error, "cleaning up after the build");
    BuildEvent::LeftBehind { object, reason: error.to_string() }
}

/// Waits until the daemon has removed the container of a step, and removes it by force if it does not.
async fn remove_container(engine: &Engine, id: &str) -> Result<(), DockerError> {
    let deadline = Instant::now() + DAEMON_GRACE;
    loop {
        let state = containers(engine).await?;
        if !state.iter().any(|known| is_same(known, id)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    let operation = format!("removing the container {id}");
    match engine.call(&operation, STORE_TIMEOUT, engine.client().remove_container(id, Some(options))).await {
        // 404: gone; 409: the daemon is removing it right now.
        Ok(()) | Err(DockerError::Daemon { status: 404 | 409, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes an image of the build, unless somebody else gave it a name or uses it.
async fn remove_image(engine: &Engine, id: &str, tags: &[String]) -> Result<(), DockerError> {
    let Some(image) = engine.inspect_image(id).await? else {
        return Ok(());
    };
    if !image.repo_tags.iter().all(|tag| tags.iter().any(|own| is_same_name(own, tag))) {
        return Ok(());
    }
    // Only an image that has names needs force, and these are the build's own.
    engine.delete_image(id, !image.repo_tags.is_empty(), true).await.map(drop)
}

/// Compares names; the engine lists them with their tag, and without Docker Hub.
fn is_same_name(one: &str, other: &str) -> bool {
    let whole = |name: &str| {
        let reference = Reference::parse(name).ok()?;
        Some((reference.name(), reference.tag().unwrap_or("latest").to_owned()))
    };
    whole(one).is_some() && whole(one) == whole(other)
}

/// Images of a step whose layer the daemon was still writing when the stream was closed: nameless, new, made from the
/// step's parent by the step's instruction.
async fn unnamed_images(engine: &Engine, before: &Snapshot, step: &UnfinishedStep) -> Result<Vec<String>, DockerError> {
    let images = images(engine).await?;
    let candidates = images.into_iter().filter(|image| {
        image.repo_tags.iter().all(|tag| tag == "<none>:<none>")
            && is_same(&image.parent_id, &step.parent)
            && !before.has_image(&image.id)
    });
    let mut unnamed = Vec::new();
    for image in candidates {
        let history = engine.image_history(&image.id).await?.unwrap_or_default();
        if history.first().is_some_and(|newest| is_made_by(&newest.created_by, &step.instruction)) {
            unnamed.push(image.id);
        }
    }
    Ok(unnamed)
}

/// The history has the command of `RUN` after the shell, and other instructions after `#(nop)`.
fn is_made_by(created_by: &str, instruction: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (created_by, instruction) = (words(created_by), words(instruction));
    let Some((verb, command)) = instruction.split_first() else {
        return false;
    };
    if verb.eq_ignore_ascii_case("RUN") {
        return !command.is_empty() && created_by.ends_with(command);
    }
    created_by.windows(2).any(|pair| pair[0] == "#(nop)" && pair[1].eq_ignore_ascii_case(verb))
}

async fn containers(engine: &Engine) -> Result<Vec<String>, DockerError> {
    let options = ListContainersOptionsBuilder::default().all(true).build();
    let listing = engine.client().list_containers(Some(options));
    let containers = engine.call("listing the containers", CONTROL_TIMEOUT, listing).await?;
    Ok(containers.into_iter().filter_map(|container| container.id).collect())
}

async fn images(engine: &Engine) -> Result<Vec<bollard::models::ImageSummary>, DockerError> {
    let options = ListImagesOptionsBuilder::default().all(true).build();
    engine.call("listing the images", CONTROL_TIMEOUT, engine.client().list_images(Some(options))).await
}

/// Compares two IDs of which one or both may be shortened.
fn is_same(one: &str, other: &str) -> bool {
    let bare = |id| str::strip_prefix(id, "sha256:").unwrap_or(id);
    let (one, other) = (bare(one), bare(other));
    !one.is_empty() && !other.is_empty() && (one.starts_with(other) || other.starts_with(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_ids_mean_the_same_object() {
        assert!(is_same("sha256:81857468af00123", "81857468af00"));
        assert!(is_same("81857468af00", "sha256:81857468af00123"));
        assert!(!is_same("sha256:81857468af00123", "91857468af00"));
        assert!(!is_same("sha256:", "81857468af00") && !is_same("", ""));
    }

    #[test]
    fn names_are_compared_as_the_engine_lists_them() {
        assert!(is_same_name("docker.io/library/x", "x:latest"));
        assert!(is_same_name("localhost/x:1", "localhost/x:1"));
        assert!(!is_same_name("x:1", "x:2"));
        assert!(!is_same_name("Bad", "Bad"));
    }

    #[test]
    fn an_unnamed_image_is_recognised_by_its_instruction() {
        assert!(is_made_by("/bin/sh -c apt-get  update && x", "RUN apt-get update && x"));
        assert!(is_made_by("|1 A=1 /bin/sh -c make", "run make"));
        assert!(is_made_by("/bin/sh -c #(nop) COPY file:abc in /dst ", "COPY a /dst"));
        assert!(!is_made_by("/bin/sh -c make install", "RUN make"));
        assert!(!is_made_by("/bin/sh -c #(nop)  CMD [\"x\"]", "COPY a /dst"));
        assert!(!is_made_by("/bin/sh -c make", "RUN") && !is_made_by("x", ""));
    }

    #[test]
    fn what_was_there_before_is_known() {
        let before = Snapshot { images: ["sha256:aabb".to_owned()].into(), containers: ["ccdd".to_owned()].into() };
        assert!(before.has_image("aabb") && before.has_container("ccdd"));
        assert!(!before.has_image("ccdd") && !before.has_container("aabb"));
    }
}
