//! [`SwapPlan`] → Dockerfile text. Pure: the same plan gives the same bytes.
//!
//! The shell of it is in `templates/`, one file per package manager; the distribution is data in the plan. It must build with the
//! classic builder, BuildKit and buildah, so there is no `# syntax=` line, no heredoc and no `RUN --mount`.

pub mod script;

use crate::fabric::{Origin, YumRepository};
use crate::plan::steps::{FILES_DIRECTORY, FILES_KEY};
use crate::plan::{Change, Look, RpmSwap, SwapPlan};
use crate::shell::shell_join;
use script::{join_run, select_functions};

const APT: &str = include_str!("../templates/swap-apt.sh");
const RPM: &str = include_str!("../templates/swap-rpm.sh");
/// Functions that find out what nobody has looked at.
const DISCOVERY: &str = include_str!("../templates/discover.sh");
const DISCOVERY_APT: &str = include_str!("../templates/discover-apt.sh");
const DISCOVERY_RPM: &str = include_str!("../templates/discover-rpm.sh");

/// Writes the Dockerfile of a swap.
pub fn render_dockerfile(plan: &SwapPlan) -> String {
    let is_unseen = plan.packages().is_some_and(|packages| matches!(packages.image, Look::Unseen(_)));
    match (&plan.change, is_unseen) {
        (Change::None, _) => keep(plan),
        (Change::Apt(_), false) => swapped(plan, &[APT]),
        (Change::Apt(_), true) => swapped(plan, &[APT, DISCOVERY, DISCOVERY_APT]),
        (Change::Rpm(_), false) => swapped(plan, &[RPM]),
        (Change::Rpm(_), true) => swapped(plan, &[RPM, DISCOVERY, DISCOVERY_RPM]),
    }
}

/// Where the packages come from, for people.
fn packages_from(plan: &SwapPlan) -> String {
    let files = "package files in the build context".to_owned();
    match &plan.change {
        Change::None => "the base image's own".to_owned(),
        Change::Apt(swap) => match &swap.origin {
            Origin::Repository(repository) => format!("{} {}", repository.url, repository.suite),
            Origin::Files(_) => files,
            Origin::Distribution => "the apt sources of the image".to_owned(),
        },
        Change::Rpm(swap) => match &swap.origin {
            Origin::Repository(repository) => repository.base_url.clone(),
            Origin::Files(_) => files,
            Origin::Distribution if !swap.base_repos.is_empty() => {
                format!("the given repositories {}", swap.base_repos.join(" "))
            }
            Origin::Distribution => "the yum repositories of the image".to_owned(),
        },
    }
}

/// The Dockerfile of an image whose userspace stays.
fn keep(plan: &SwapPlan) -> String {
    format!(
        "# rdmaprep {}: the base image's userspace is right for {} and stays.\n{}{}",
        env!("CARGO_PKG_VERSION"),
        plan.fabric_title,
        base_lines(plan),
        labels(plan)
    )
}

/// The Dockerfile of an image whose userspace changes: what the build takes from its context, and a `RUN` with those functions
/// of the scripts that the steps need, and a call for each step. It works as root and with `sh`, and leaves user and shell as
/// the base image has them.
fn swapped(plan: &SwapPlan, scripts: &[&str]) -> String {
    let comments: String = comments(plan).iter().map(|comment| format!("# {comment}\n")).collect();
    let mut text = format!(
        "# rdmaprep {}: {} userspace in place of what the base image has.\n{comments}{}",
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
    text.push_str(&(copies(plan) + &run(plan, scripts)));
    if let Some(shell) = &plan.shell {
        text.push_str(&format!("SHELL {}\n", serde_json::Value::from(shell.clone())));
    }
    if let Some(user) = &plan.user {
        text.push_str(&format!("# As the base image has it.\n# hadolint ignore=DL3066\nUSER {user}\n"));
    }
    text + &labels(plan)
}

/// What is said of the packages.
fn comments(plan: &SwapPlan) -> Vec<String> {
    let mut comments = Vec::new();
    if let Some(Look::Unseen(distro)) = plan.packages().map(|packages| &packages.image) {
        comments
            .push(format!("Written for {distro} without a look at the base image: the build finds out what is to go."));
    }
    if let Some(files) = plan.files() {
        comments.push(format!("Its packages come from {}/ of the build context; nothing is fetched.", files.directory));
    }
    if let Change::Rpm(swap) = &plan.change {
        comments.extend(comments_on_trust(plan, swap).into_iter().map(str::to_owned));
    }
    comments
}

/// Who vouches for rpm packages.
fn comments_on_trust(plan: &SwapPlan, swap: &RpmSwap) -> Vec<&'static str> {
    match &swap.origin {
        Origin::Files(_) if plan.key_file.is_some() => Vec::new(),
        Origin::Files(_) => vec![
            "Their signatures are not checked: what proves them is that they are the files with the digests below.",
        ],
        Origin::Repository(YumRepository { by_analogy, gpg_check, .. }) => {
            let analogy =
                "The repository's address is by analogy: no page of the vendor's names the one for this distribution.";
            let unchecked = "Signatures are not checked, as it was asked for: nothing proves who made the packages.";
            by_analogy.then_some(analogy).into_iter().chain((!gpg_check).then_some(unchecked)).collect()
        }
        Origin::Distribution => {
            vec!["Its packages come from the image's own repositories, and are checked as those say."]
        }
    }
}

/// What the build takes from its context.
fn copies(plan: &SwapPlan) -> String {
    let key_path = match &plan.change {
        Change::Apt(swap) => match &swap.origin {
            Origin::Repository(repository) => plan.keyring(repository),
            Origin::Files(_) | Origin::Distribution => String::new(),
        },
        Change::Rpm(swap) => match &swap.origin {
            Origin::Repository(repository) => format!("/etc/pki/rpm-gpg/RPM-GPG-KEY-{}", repository.name),
            Origin::Files(_) | Origin::Distribution => FILES_KEY.to_owned(),
        },
        Change::None => String::new(),
    };
    let key = plan.key_file.as_ref().map(|key| format!("COPY {key} {key_path}\n"));
    let files = plan.files().map(|files| {
        let names = files.sources.keys().map(|name| format!("{}/{name} \\\n     ", files.directory));
        format!("COPY {}{FILES_DIRECTORY}/\n", names.collect::<String>())
    });
    key.into_iter().chain(files).collect()
}

fn run(plan: &SwapPlan, scripts: &[&str]) -> String {
    let (mut calls, mut functions, mut said) = (Vec::new(), Vec::new(), None);
    for step in plan.steps() {
        // Several steps may have one reason.
        if let Some(reason) = step.reason().filter(|reason| said != Some(*reason)) {
            calls.push(format!("# {reason}"));
            said = Some(reason);
        }
        let (function, arguments) = step.call();
        functions.push(function);
        calls.push(format!("{function} {}", shell_join(arguments)).trim_end().to_owned());
    }
    join_run(&select_functions(&scripts.join("\n"), &functions), &calls)
}

/// The `FROM` line, and the arguments that the build takes.
fn base_lines(plan: &SwapPlan) -> String {
    let floating = "# No registry digest is known for this image, so its tag is all there is to name it by.\n# hadolint ignore=DL3007\n";
    let arguments: String = plan.build_args.iter().map(|name| format!("ARG {name}\n")).collect();
    format!("{}FROM {}\n{arguments}", if plan.base.floating { floating } else { "" }, plan.base.from)
}

/// The `LABEL` instruction.
fn labels(plan: &SwapPlan) -> String {
    let packages_from = packages_from(plan);
    let labels = [
        ("org.opencontainers.image.base.name", Some(plan.base.name.as_str())),
        ("org.opencontainers.image.base.digest", plan.base.digest.as_deref()),
        ("rdmaprep.fabric", Some(plan.fabric_id)),
        ("rdmaprep.packages", Some(&packages_from)),
        ("rdmaprep.version", Some(env!("CARGO_PKG_VERSION"))),
    ];
    let labels = labels.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", dockerfile_quote(value?))));
    format!("LABEL {}\n", labels.collect::<Vec<_>>().join(" \\\n      "))
}

/// A value of a `LABEL` instruction.
fn dockerfile_quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values() {
        assert_eq!(dockerfile_quote(r#"a"b$c\"#), r#""a\"b\$c\\""#);
    }
}
