//! [`SwapPlan`] → Dockerfile text. Pure: the same plan gives the same bytes.
//!
//! The shell of it is in `templates/`, one file per package manager; the distribution is data in the plan. It must build with the
//! classic builder, BuildKit and buildah, so there is no `# syntax=` line, no heredoc and no `RUN --mount`.

mod apt;
mod rpm;
mod script;

use crate::fabric::Origin;
use crate::plan::SwapPlan;

/// Writes the Dockerfile of a swap.
pub fn render_dockerfile(plan: &SwapPlan) -> String {
    match &plan.origin {
        Origin::Image => keep(plan),
        Origin::Yum(_) => rpm::render(plan),
        Origin::Files(_) | Origin::Distribution if plan.package_manager != "apt-get" => rpm::render(plan),
        Origin::Apt(_) | Origin::Files(_) | Origin::Distribution => apt::render(plan),
    }
}

/// Where the packages come from, for people.
fn packages_from(plan: &SwapPlan) -> String {
    match &plan.origin {
        Origin::Apt(repository) => format!("{} {}", repository.url, repository.suite),
        Origin::Yum(repository) => repository.base_url.clone(),
        Origin::Files(_) => "package files in the build context".to_owned(),
        Origin::Distribution if plan.package_manager == "apt-get" => "the apt sources of the image".to_owned(),
        Origin::Distribution if !plan.base_repos.is_empty() => {
            format!("the given repositories {}", plan.base_repos.join(" "))
        }
        Origin::Distribution => "the yum repositories of the image".to_owned(),
        Origin::Image => "the image".to_owned(),
    }
}

/// The Dockerfile of an image whose userspace stays.
fn keep(plan: &SwapPlan) -> String {
    format!(
        "# rdmaprep {}: the base image's userspace is right for {} and stays.\n{}{}",
        env!("CARGO_PKG_VERSION"),
        plan.fabric_title,
        base_lines(plan),
        labels(plan, "the base image's own")
    )
}

/// The Dockerfile of an image whose userspace changes: `comments` say more about the packages, `work` is what the build takes
/// from its context and its `RUN`. It works as root and with `sh`, and leaves user and shell as the base image has them.
fn swapped(plan: &SwapPlan, comments: &[String], work: &str) -> String {
    let comments: String = comments.iter().map(|comment| format!("# {comment}\n")).collect();
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
    text.push_str(work);
    if let Some(shell) = &plan.shell {
        text.push_str(&format!("SHELL {}\n", serde_json::Value::from(shell.clone())));
    }
    if let Some(user) = &plan.user {
        text.push_str(&format!("# As the base image has it.\n# hadolint ignore=DL3066\nUSER {user}\n"));
    }
    text + &labels(plan, &packages_from(plan))
}

/// The comment on package files of the build context.
fn from_context(directory: &str) -> String {
    format!("Its packages come from {directory}/ of the build context; nothing is fetched.")
}

/// The `FROM` line, and the arguments that the build takes.
fn base_lines(plan: &SwapPlan) -> String {
    let floating = "# No registry digest is known for this image, so its tag is all there is to name it by.\n# hadolint ignore=DL3007\n";
    let arguments: String = plan.build_args.iter().map(|name| format!("ARG {name}\n")).collect();
    format!("{}FROM {}\n{arguments}", if plan.base.floating { floating } else { "" }, plan.base.from)
}

/// The `LABEL` instruction.
fn labels(plan: &SwapPlan, packages_from: &str) -> String {
    let labels = [
        ("org.opencontainers.image.base.name", Some(plan.base.name.as_str())),
        ("org.opencontainers.image.base.digest", plan.base.digest.as_deref()),
        ("rdmaprep.fabric", Some(plan.fabric_id)),
        ("rdmaprep.packages", Some(packages_from)),
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
