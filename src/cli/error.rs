//! Expected errors of the command line and the exit code of each.

use crate::diagnosis::{Cause, Fault};
use crate::docker::auth::AuthError;
use crate::docker::build::BuildError;
use crate::docker::error::DockerError;
use crate::docker::pull::PullError;
use crate::docker::push::PushError;
use crate::job::JobError;
use crate::judge::Exit;
use crate::launch::gpu_access::AccessError;
use crate::launch::spec::SpecError;
use crate::plan::PlanError;
use crate::policy::PolicyError;
use crate::recipe::RecipeError;
use crate::registry::RegistryError;
use crate::remedy::Remedy;
use crate::source::SourceError;
use std::io::{self, Write};
use std::process::ExitCode;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("reading {path}")]
    File { path: String, source: io::Error },
    #[error("reading {path}")]
    LogFile { path: String, source: io::Error },
    #[error(
        "{path} is not an NCCL log, output of nccl-tests, ibv_devinfo or show_gids, or a build log\n  for an NCCL log, set NCCL_DEBUG=INFO in the job"
    )]
    UnknownText { path: String },
    #[error("policy {path}")]
    Policy { path: String, source: PolicyError },
    /// Every file that could not be written, with the reason.
    #[error("{}", describe_failures(.failures))]
    Write { failures: Vec<(String, io::Error)> },
    #[error("recipe {path}")]
    Recipe { path: String, source: RecipeError },
    #[error("recipe {recipe} is for {expected}, but {image} is {found}")]
    RecipeDistro { recipe: String, expected: String, image: String, found: String },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Docker(#[from] DockerError),
    #[error("{0}")]
    Auth(#[from] AuthError),
    #[error("planning the swap")]
    Plan(#[from] PlanError),
    #[error("{}", describe_build(.error))]
    Build { error: Box<BuildError>, cause: Option<Cause> },
    #[error(
        "the result {id} is not built on the inspected image\n  the base's tag moved meanwhile: run the command again"
    )]
    BaseMoved { id: String },
    #[error("{0}")]
    Pull(#[from] PullError),
    #[error("{0}")]
    Push(#[from] PushError),
    #[error("starting the runtime")]
    Runtime { source: io::Error },
    #[error("writing the result")]
    Output { source: io::Error },
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("{0}")]
    Spec(#[from] SpecError),
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
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Plan(PlanError::NotSound(_)) => Exit::ImageAtFault,
            CliError::Policy { .. }
            | CliError::Recipe { .. }
            | CliError::RecipeDistro { .. }
            | CliError::Usage(_)
            | CliError::File { .. }
            | CliError::Auth(_)
            | CliError::Spec(_)
            | CliError::Job(_)
            | CliError::Plan(_)
            | CliError::Pull(PullError::Reference(_)) => Exit::Usage,
            CliError::CannotStart(_) => Exit::ImageAtFault,
            CliError::Source(error) => source_exit(error),
            CliError::LogFile { .. }
            | CliError::UnknownText { .. }
            | CliError::BaseMoved { .. }
            | CliError::Pull(_)
            | CliError::Docker(_) => Exit::NotExamined,
            CliError::Build { error, cause } => build_exit(error, cause.as_ref()),
            CliError::Access(_)
            | CliError::Push(_)
            | CliError::Runtime { .. }
            | CliError::Output { .. }
            | CliError::Write { .. } => Exit::Host,
            CliError::Interrupted => Exit::Interrupted,
        }
    }

    /// The remedy, if the error's own text does not have it.
    fn remedy(&self) -> Option<String> {
        match self {
            CliError::Source(error) => error.remedy(),
            CliError::Docker(error) => error.remedy(),
            CliError::Auth(error) => error.remedy(),
            CliError::Pull(error) => error.remedy(),
            CliError::Push(error) => error.remedy(),
            CliError::Build { error, cause } => match cause {
                Some(cause) => Some(cause.remedy.clone()),
                None => error.remedy(),
            },
            CliError::File { .. }
            | CliError::LogFile { .. }
            | CliError::UnknownText { .. }
            | CliError::Policy { .. }
            | CliError::Write { .. }
            | CliError::Recipe { .. }
            | CliError::RecipeDistro { .. }
            | CliError::Usage(_)
            | CliError::Plan(_)
            | CliError::Access(_)
            | CliError::Spec(_)
            | CliError::Job(_)
            | CliError::CannotStart(_)
            | CliError::BaseMoved { .. }
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

/// Engines repeat the whole command of a failed step; here only its beginning is shown.
fn describe_build(error: &BuildError) -> String {
    match error {
        BuildError::Step { step, exit_code: Some(code), .. } => {
            format!("the build failed in {} with exit code {code}", super::progress::shorten(step))
        }
        BuildError::Step { step, message, .. } => {
            format!("the build failed in {}: {message}", super::progress::shorten(step))
        }
        other => other.to_string(),
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

/// An error with its causes on one line, then the remedies, one line each.
pub fn describe(error: &CliError) -> (String, Vec<String>) {
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
    if let CliError::Build { cause: Some(cause), .. } = error {
        message.push(cause.summary.clone());
    }
    remedies.extend(error.remedy());
    (message.join(": "), remedies)
}

/// Writes an error with its causes on one line and the remedy below.
pub fn report_error(error: &CliError, json: bool) {
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
