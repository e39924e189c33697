//! The Dockerfile of an image of Debian packages: the functions of `templates/swap-apt.sh` that its steps need, and a call
//! for each step.

use super::script::{join_run, select_functions};
use super::{base_lines, labels, packages_from};
use crate::fabric::Origin;
use crate::plan::SwapPlan;
use crate::plan::step::FILES_DIRECTORY;
use crate::shell::shell_join;

const SCRIPT: &str = include_str!("../../templates/swap-apt.sh");

/// Writes the Dockerfile.
pub(super) fn render(plan: &SwapPlan) -> String {
    let from = match &plan.origin {
        Origin::Files(files) => {
            format!("# Its packages come from {}/ of the build context; nothing is fetched.\n", files.directory)
        }
        _ => String::new(),
    };
    let mut text = format!(
        "# rdmaprep {}: {} userspace in place of what the base image has.\n{from}{}",
        env!("CARGO_PKG_VERSION"),
        plan.fabric_title,
        base_lines(plan)
    );
    if plan.user.is_some() {
        text.push_str("USER 0\n");
    }
    if plan.shell.is_some() {
        text.push_str("SHELL [\"/bin/sh\", \"-c\"]\n");
    }
    text.push_str(&copies(plan));
    text.push_str(&run(plan));
    if let Some(shell) = &plan.shell {
        text.push_str(&format!("SHELL {}\n", serde_json::Value::from(shell.clone())));
    }
    if let Some(user) = &plan.user {
        text.push_str(&format!("# As the base image has it.\n# hadolint ignore=DL3066\nUSER {user}\n"));
    }
    text + &labels(plan, &packages_from(plan))
}

/// What the build takes from its context.
fn copies(plan: &SwapPlan) -> String {
    match (&plan.origin, &plan.key_file) {
        (Origin::Apt(repository), Some(key_file)) => format!("COPY {key_file} {}\n", plan.keyring(repository)),
        (Origin::Files(files), _) => {
            let names: String =
                files.names.iter().map(|name| format!(" {}/{name} \\\n    ", files.directory)).collect();
            format!("COPY{names} {FILES_DIRECTORY}/\n")
        }
        _ => String::new(),
    }
}

fn run(plan: &SwapPlan) -> String {
    let (mut calls, mut functions, mut said) = (Vec::new(), Vec::new(), None);
    for step in plan.apt_steps() {
        // Several steps may have one reason.
        if let Some(reason) = step.reason().filter(|reason| said != Some(*reason)) {
            calls.push(format!("# {reason}"));
            said = Some(reason);
        }
        let (function, arguments) = step.call();
        functions.push(function);
        calls.push(format!("{function} {}", shell_join(arguments)).trim_end().to_owned());
    }
    join_run(&select_functions(SCRIPT, &functions), &calls)
}
