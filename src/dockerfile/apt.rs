//! The Dockerfile of an image of Debian packages: the functions of `templates/swap-apt.sh` that its steps need, and a call
//! for each step.

use super::script::{join_run, select_functions};
use super::{from_context, swapped};
use crate::fabric::Origin;
use crate::plan::SwapPlan;
use crate::plan::step::FILES_DIRECTORY;
use crate::shell::shell_join;

const SCRIPT: &str = include_str!("../../templates/swap-apt.sh");

/// Writes the Dockerfile.
pub(super) fn render(plan: &SwapPlan) -> String {
    let comments = match &plan.origin {
        Origin::Files(files) => vec![from_context(files.directory)],
        Origin::Apt(_) | Origin::Yum(_) | Origin::Distribution | Origin::Image => Vec::new(),
    };
    swapped(plan, &comments, &(copies(plan) + &run(plan)))
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
