//! Why an image's facts cannot be read.

use crate::docker::config::ConfigError;
use crate::docker::endpoint::EndpointError;
use crate::docker::error::DockerError;
use crate::facts::saved::SavedFactsError;
use crate::image::ImageError;
use crate::image::reference::ReferenceError;
use crate::inspect::InspectError;
use crate::registry::RegistryError;
use crate::remedy::Remedy;
use std::io;

/// Why an image's facts cannot be read. Each names the image or file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("reading image {reference}")]
    Image { reference: String, source: ImageError },
    #[error("{directory} is a root directory: it holds no image {image:?} to choose")]
    NoChoice { directory: String, image: String },
    #[error("reading image {reference}")]
    Inspect { reference: String, source: InspectError },
    #[error("the Docker daemon has no image {name}")]
    NoSuchImage { name: String },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("image {name} was not found: {daemon}; its registry was tried too")]
    Nowhere { name: String, daemon: String, source: Box<RegistryError> },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error("reading {path}")]
    FactsFile { path: String, source: io::Error },
    #[error("facts {path}")]
    SavedFacts { path: String, source: SavedFactsError },
}

impl Remedy for SourceError {
    fn remedy(&self) -> Option<String> {
        match self {
            SourceError::NoSuchImage { name } => Some(format!("docker pull {name}   (or docker load -i FILE)")),
            SourceError::Registry(error) => error.remedy(),
            SourceError::Nowhere { source, .. } => source.remedy(),
            SourceError::Reference(error) => error.remedy(),
            SourceError::Image { source, .. } => source.remedy(),
            SourceError::SavedFacts { source, .. } => source.remedy(),
            SourceError::Config(error) => error.remedy(),
            SourceError::Endpoint(error) => error.remedy(),
            SourceError::Docker(error) => error.remedy(),
            SourceError::NoChoice { .. } | SourceError::Inspect { .. } | SourceError::FactsFile { .. } => None,
        }
    }
}
