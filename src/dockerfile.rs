//! [`SwapPlan`] → Dockerfile text. Pure: the same plan gives the same bytes.
//!
//! The shell of it is in `templates/`, one file per package manager; the distribution is data in the plan. It must build with the
//! classic builder, BuildKit and buildah, so there is no `# syntax=` line, no heredoc and no `RUN --mount`.

mod apt;
mod script;

use crate::fabric::Origin;
use crate::fabric::yum::rpm_architecture;
use crate::plan::SwapPlan;
use crate::shell::shell_quote;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value, context};
use std::collections::BTreeSet;

const RPM_TEMPLATE: &str = include_str!("../templates/rpm.dockerfile.j2");

/// Writes the Dockerfile of a swap.
///
/// # Panics
/// When the template does not fit the plan's type, which the tests of this module rule out.
pub fn render_dockerfile(plan: &SwapPlan) -> String {
    match &plan.origin {
        Origin::Image => keep(plan),
        Origin::Yum(_) => render_rpm(plan),
        Origin::Files(_) | Origin::Distribution if plan.package_manager != "apt-get" => render_rpm(plan),
        Origin::Apt(_) | Origin::Files(_) | Origin::Distribution => apt::render(plan),
    }
}

fn render_rpm(plan: &SwapPlan) -> String {
    let companions = || plan.companions.iter().map(|companion| companion.name.clone());
    let family: BTreeSet<String> = plan.install.iter().flatten().cloned().chain(companions()).collect();
    let removable: BTreeSet<String> = family.iter().chain(&plan.purge).chain(&plan.superseded).cloned().collect();
    let constants = context! {
        packages_from => packages_from(plan),
        version => env!("CARGO_PKG_VERSION"),
        removable,
        family,
        // How `ldconfig -p` names the architecture (glibc, ldconfig `flags`).
        loader_arch => if plan.architecture == "arm64" { "AArch64" } else { "x86-64" },
        rpm_arch => rpm_architecture(&plan.architecture),
    };
    environment()
        .and_then(|env| env.get_template("rpm")?.render(context! { ..Value::from(Serde(plan)), ..constants }))
        .unwrap_or_else(|error| panic!("the rpm template does not fit the plan: {error:#}"))
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

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.add_filter("sh", |text: String| shell_quote(&text));
    // A leading space each, so that an empty list leaves nothing behind.
    env.add_filter("words", |words: Vec<String>| {
        words.iter().map(|w| format!(" {}", shell_quote(w))).collect::<String>()
    });
    env.add_filter("json_array", |words: Vec<String>| serde_json::Value::from(words).to_string());
    env.add_filter("quoted", |text: String| dockerfile_quote(&text));
    env.add_filter("flatten", |lists: Vec<Vec<String>>| lists.concat());
    env.add_filter("sed", |text: String| sed_pattern(&text));
    env.add_template("rpm", RPM_TEMPLATE)?;
    Ok(env)
}

/// A text as a basic regular expression between slashes that matches it alone.
fn sed_pattern(text: &str) -> String {
    text.chars().flat_map(|c| r"\/.*[]^$".contains(c).then_some('\\').into_iter().chain([c])).collect()
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
    fn sed_patterns() {
        assert_eq!(sed_pattern("mlnx_ofed_23.10-1"), r"mlnx_ofed_23\.10-1");
        assert_eq!(sed_pattern(r"a/[b]*\"), r"a\/\[b\]\*\\");
    }

    #[test]
    fn label_values() {
        assert_eq!(dockerfile_quote(r#"a"b$c\"#), r#""a\"b\$c\\""#);
    }
}
