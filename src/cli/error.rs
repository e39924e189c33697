//! Expected errors of the command line and the exit code of each.

use crate::build::{BuildFailure, NameTaken};
use crate::diagnosis::{Cause, Fault};
use crate::docker::build::BuildError;
use crate::docker::error::DockerError;
use crate::docker::pull::PullError;
use crate::job::JobError;
use crate::judge::Exit;
use crate::launch::preflight::PrepareError;
use crate::launch::run::RunError;
use crate::plan::PlanError;
use crate::policy::PolicyError;
use crate::registry::RegistryError;
use crate::remedy::Remedy;
use crate::source::SourceError;
use crate::swap::SwapError;
use std::io::{self, Write};
use std::process::ExitCode;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CliError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("reading {path}")]
    File { path: String, source: io::Error },
    #[error("reading {path}")]
    LogFile { path: String, source: io::Error },
    #[error("{path} is not an NCCL log, output of nccl-tests, ibv_devinfo or show_gids, or a build log")]
    UnknownText { path: String },
    #[error("policy {path}")]
    Policy { path: String, source: PolicyError },
    /// Every file that could not be written, with the reason.
    #[error("{}", describe_failures(.failures))]
    Write { failures: Vec<(String, io::Error)> },
    #[error(transparent)]
    Swap(#[from] SwapError),
    #[error(transparent)]
    Build(#[from] BuildFailure),
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Docker(#[from] DockerError),
    #[error("starting the runtime")]
    Runtime { source: io::Error },
    #[error("writing the result")]
    Output { source: io::Error },
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("{0}")]
    Job(#[from] JobError),
    /// The agent does not start in the image's containers.
    #[error("{0}")]
    CannotStart(String),
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The exit code of each error.
    pub(super) fn exit(&self) -> Exit {
        match self {
            CliError::Policy { .. }
            | CliError::NameTaken(_)
            | CliError::Usage(_)
            | CliError::File { .. }
            | CliError::Prepare(PrepareError::Spec(_))
            | CliError::Job(_) => Exit::Usage,
            CliError::CannotStart(_) => Exit::ImageAtFault,
            CliError::Source(error) => source_exit(error),
            CliError::Swap(error) => swap_exit(error),
            CliError::Build(failure) => failure_exit(failure),
            CliError::LogFile { .. }
            | CliError::UnknownText { .. }
            | CliError::Docker(_)
            | CliError::Prepare(PrepareError::Docker(_)) => Exit::NotExamined,
            CliError::Prepare(PrepareError::Access(_))
            | CliError::Runtime { .. }
            | CliError::Output { .. }
            | CliError::Write { .. } => Exit::Host,
            CliError::Interrupted => Exit::Interrupted,
        }
    }

    /// What the user can do, one line each.
    fn remedy(&self) -> Option<String> {
        match self {
            CliError::Source(error) => error.remedy(),
            CliError::Docker(error) => error.remedy(),
            CliError::Prepare(error) => error.remedy(),
            CliError::Policy { source, .. } => source.remedy(),
            CliError::Job(error) => error.remedy(),
            CliError::UnknownText { .. } => Some("for an NCCL log, set NCCL_DEBUG=INFO in the job".to_owned()),
            CliError::Swap(error) => error.remedy(),
            CliError::Build(failure) => failure.remedy(),
            CliError::NameTaken(error) => error.remedy(),
            CliError::File { .. }
            | CliError::LogFile { .. }
            | CliError::Write { .. }
            | CliError::Usage(_)
            | CliError::CannotStart(_)
            | CliError::Runtime { .. }
            | CliError::Output { .. }
            | CliError::Interrupted => None,
        }
    }
}

fn describe_failures(failures: &[(String, io::Error)]) -> String {
    let failures: Vec<String> = failures.iter().map(|(path, error)| format!("writing {path}: {error}")).collect();
    failures.join("; ")
}

fn swap_exit(error: &SwapError) -> Exit {
    match error {
        SwapError::Plan(PlanError::NotSound(_)) => Exit::ImageAtFault,
        SwapError::Source(error) => source_exit(error),
        SwapError::File { .. }
        | SwapError::Recipe { .. }
        | SwapError::RecipeDistro { .. }
        | SwapError::OtherFabric { .. }
        | SwapError::Ready { .. }
        | SwapError::RegionOfImage { .. }
        | SwapError::NoRecipe { .. }
        | SwapError::NoRecipes { .. }
        | SwapError::NotShipped { .. }
        | SwapError::NoPackageFiles { .. }
        | SwapError::NotInDaemon { .. }
        | SwapError::Plan(_) => Exit::Usage,
    }
}

fn failure_exit(failure: &BuildFailure) -> Exit {
    match failure {
        BuildFailure::Source(error) => source_exit(error),
        BuildFailure::Swap(error) => swap_exit(error),
        BuildFailure::Build { error, cause } => build_exit(error, cause.as_ref()),
        BuildFailure::Auth(_) | BuildFailure::Pull(PullError::Reference(_)) => Exit::Usage,
        BuildFailure::Docker(_) | BuildFailure::Pull(_) | BuildFailure::BaseMoved { .. } => Exit::NotExamined,
        BuildFailure::Push(_) => Exit::Host,
        BuildFailure::Interrupted => Exit::Interrupted,
    }
}

fn source_exit(error: &SourceError) -> Exit {
    match error {
        SourceError::Reference(_)
        | SourceError::NoChoice { .. }
        | SourceError::Config(_)
        | SourceError::Endpoint(_) => Exit::Usage,
        SourceError::Registry(error) => registry_exit(error),
        SourceError::Nowhere { source, .. } => registry_exit(source),
        SourceError::Image { .. }
        | SourceError::Inspect { .. }
        | SourceError::NoSuchImage { .. }
        | SourceError::Docker(_)
        | SourceError::FactsFile { .. }
        | SourceError::SavedFacts { .. } => Exit::NotExamined,
    }
}

fn registry_exit(error: &RegistryError) -> Exit {
    match error {
        RegistryError::Reference(_)
        | RegistryError::Auth(_)
        | RegistryError::Mirror(_)
        | RegistryError::Ca { .. }
        | RegistryError::NoRoots => Exit::Usage,
        RegistryError::Unreachable { .. }
        | RegistryError::Tls { .. }
        | RegistryError::NotFound { .. }
        | RegistryError::Unauthorized { .. }
        | RegistryError::Challenge { .. }
        | RegistryError::TokenAddress { .. }
        | RegistryError::Status { .. }
        | RegistryError::Protocol { .. }
        | RegistryError::Dropped { .. }
        | RegistryError::Layer { .. }
        | RegistryError::Image(_) => Exit::NotExamined,
    }
}

fn build_exit(error: &BuildError, cause: Option<&Cause>) -> Exit {
    match error {
        BuildError::Cancelled => Exit::Interrupted,
        BuildError::InvalidTag { .. } | BuildError::Context(_) => Exit::Usage,
        BuildError::Daemon(_) | BuildError::Truncated { .. } | BuildError::BuilderUnavailable { .. } => Exit::Host,
        BuildError::Unverified { .. } => Exit::NotExamined,
        BuildError::Step { .. } | BuildError::Rejected { .. } => match cause.map(|cause| cause.fault) {
            Some(Fault::Host) => Exit::Host,
            // How the build was started: its options, and the files that were given.
            Some(Fault::Launch | Fault::Job) => Exit::Usage,
            Some(Fault::Image) | None => Exit::ImageAtFault,
        },
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> CliError {
        match error {
            RunError::Docker(error) => CliError::Docker(error),
            RunError::Interrupted => CliError::Interrupted,
        }
    }
}

/// An error with its causes on one line, then the remedies, one line each.
pub(super) fn describe(error: &CliError) -> (String, Vec<String>) {
    let (mut message, mut remedies) = (Vec::new(), Vec::new());
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        let mut lines = text.lines();
        // A transparent wrapper repeats its cause.
        let first = lines.next().unwrap_or_default().to_owned();
        if message.last() != Some(&first) {
            message.push(first);
            remedies.extend(lines.map(|line| line.trim().to_owned()));
        }
        cause = error.source();
    }
    remedies.extend(error.remedy().iter().flat_map(|remedy| remedy.lines()).map(str::to_owned));
    (message.join(": "), remedies)
}

/// Writes an error with its causes on one line and the remedy below.
pub(super) fn report_error(error: &CliError, json: bool) {
    let (message, remedies) = describe(error);
    // Nothing can be reported if stderr is gone.
    let _ = if json {
        tracing::error!(remedy = remedies.join("\n"), "{message}");
        Ok(())
    } else {
        let remedies = remedies.iter().map(|line| format!("  {line}\n")).collect::<String>();
        write!(io::stderr(), "error: {message}\n{remedies}")
    };
}
