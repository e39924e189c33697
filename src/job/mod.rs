//! What to submit to run a command on several hosts: one description → the text of each scheduler's format. Pure.
//!
//! Input: a [`JobSpec`]. Output: a [`Job`], which is the text for stdout and notes for the user. To add a format, add a
//! file in this directory and an arm in [`write_job`].

mod arena;
mod docker;
mod document;
mod kubernetes;
mod mpi_job;
mod mpirun;
mod pai_dlc;
mod pytorch_job;
mod quantity;
mod settings;
mod spec;

pub use arena::ArenaKind;
pub use docker::RdmaNodes;
pub use pai_dlc::PaiPlace;
pub use quantity::Quantity;
pub use spec::{JobError, JobSpec, UserCommand, Workload, default_name};

use document::Node;

/// The scheduler that the job is written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Body of PAI-DLC's CreateJob; always JSON.
    PaiDlc(PaiPlace),
    /// `kubeflow.org/v2beta1`, for mpi-operator.
    MpiJob(Notation),
    /// `kubeflow.org/v1`, for training-operator.
    PytorchJob(Notation),
    /// The command line of arena.
    Arena(ArenaKind),
    /// The command lines of docker.
    Docker(RdmaNodes),
}

/// How a manifest is written down; kubectl takes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    Yaml,
    Json,
}

/// A job that is ready to submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Ends with a newline.
    pub text: String,
    /// Pitfalls, and what the platform sets itself. A remedy is on its own line.
    pub notes: Vec<String>,
}

/// Writes the job.
///
/// # Errors
/// The format cannot express a setting.
pub fn write_job(spec: &JobSpec, format: &Format) -> Result<Job, JobError> {
    spec.check()?;
    match format {
        Format::PaiDlc(place) => pai_dlc::body(spec, place),
        Format::MpiJob(notation) => mpi_job::manifest(spec).map(|job| job.written(*notation)),
        Format::PytorchJob(notation) => pytorch_job::manifest(spec).map(|job| job.written(*notation)),
        Format::Arena(kind) => arena::command_line(spec, *kind),
        Format::Docker(nodes) => docker::command_lines(spec, nodes),
    }
}

/// A manifest before it is written down.
struct Manifest {
    root: Node,
    notes: Vec<String>,
}

impl Manifest {
    fn written(self, notation: Notation) -> Job {
        let text = match notation {
            Notation::Yaml => self.root.to_yaml(),
            Notation::Json => self.root.to_json(),
        };
        Job { text, notes: self.notes }
    }
}
