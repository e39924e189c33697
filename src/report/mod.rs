//! Facts and findings → text for people, JSON, JUnit, SARIF and GitHub annotations for machines.
//!
//! Writers take a `&mut dyn Write`; nothing here decides or prints on its own.

mod devices;
mod explanation;
mod format;
mod github;
mod junit;
pub mod loopback;
mod nccl_tests;
mod printf;
mod recipes;
mod registry;
mod run;
mod run_text;
mod sarif;
#[cfg(test)]
pub mod schema;
mod targets;
mod targets_text;
mod text;
mod traffic;

pub use devices::{write_devices, write_host_check};
pub use explanation::write_log_explanation;
pub use format::{Format, write_json, write_report};
pub use github::write_github;
pub use junit::write_junit;
pub use nccl_tests::write_nccl_tests;
pub use recipes::{RecipeEntry, RecipeListing, write_recipe, write_recipes};
pub use registry::{CheckEntry, RegistryListing, write_explanation, write_list};
pub use run::{MeasuredReport, RowReport, RunReport, SocketReport};
pub use run_text::write_preflight;
pub use sarif::write_sarif;
pub use targets::{InstanceListing, TargetListing};
pub use targets_text::{write_instance, write_target, write_targets};
pub use text::{Style, write_check, write_diff, write_facts};
pub use traffic::{Totals, write_sample, write_totals};

use crate::checks::{Bar, Finding, InstanceUse, Status, Verdict};
use crate::facts::devices::DeviceFacts;
use crate::facts::run::RunFacts;
use crate::facts::{ImageFacts, ImageIdentity};
use crate::policy::PolicyUse;
use crate::recipe::{Kind, Recipe};
use crate::targets::Target;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Version of the report's JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// The result of `check`, of `preflight` and of `devices --check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    pub schema_version: u32,
    /// Version of rdmaprep.
    pub rdmaprep_version: String,
    pub target: String,
    pub fabric: String,
    /// The instance type, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceUse>,
    pub verdict: Verdict,
    /// The lowest status that counts as a failure.
    #[serde(default)]
    pub fail_on: Bar,
    /// What a policy changed; absent without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyUse>,
    /// The image; absent if a host was judged, or a recipe alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageIdentity>,
    /// The recipe that the image was built from, or that was judged with no image at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<RecipeIdentity>,
    pub findings: Vec<Finding>,
    /// The run of a preflight; absent if only the image was examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunReport>,
    /// The host that was judged; absent if an image was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<DeviceFacts>,
}

/// The recipe of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecipeIdentity {
    pub name: String,
    pub kind: Kind,
    /// The image that it names; `{region}` is replaced by `--region`.
    pub image: String,
}

impl RecipeIdentity {
    pub fn new(recipe: &Recipe) -> RecipeIdentity {
        RecipeIdentity { name: recipe.name.clone(), kind: recipe.kind, image: recipe.base().to_owned() }
    }
}

impl Report {
    pub fn new(
        facts: &ImageFacts,
        target: &Target,
        findings: Vec<Finding>,
        fail_on: Bar,
        policy: Option<PolicyUse>,
    ) -> Report {
        let report = Report::bare(target, findings, fail_on, policy);
        Report { image: Some(facts.image.clone()), ..report }
    }

    /// The report of a preflight: `findings` are those of its run, and of the image if they count too.
    pub fn of_run(
        image: ImageIdentity,
        run: RunFacts,
        target: &Target,
        findings: Vec<Finding>,
        fail_on: Bar,
        policy: Option<PolicyUse>,
    ) -> Report {
        let run = RunReport::new(run, &findings, fail_on);
        let report = Report::bare(target, findings, fail_on, policy);
        Report { image: Some(image), run: Some(run), ..report }
    }

    /// The report on what a recipe states.
    pub fn of_recipe(
        recipe: &Recipe,
        target: &Target,
        findings: Vec<Finding>,
        fail_on: Bar,
        policy: Option<PolicyUse>,
    ) -> Report {
        Report { recipe: Some(RecipeIdentity::new(recipe)), ..Report::bare(target, findings, fail_on, policy) }
    }

    /// The report of a host's devices.
    pub fn of_host(
        host: DeviceFacts,
        target: &Target,
        findings: Vec<Finding>,
        fail_on: Bar,
        policy: Option<PolicyUse>,
    ) -> Report {
        Report { host: Some(host), ..Report::bare(target, findings, fail_on, policy) }
    }

    fn bare(target: &Target, findings: Vec<Finding>, fail_on: Bar, policy: Option<PolicyUse>) -> Report {
        Report {
            schema_version: SCHEMA_VERSION,
            rdmaprep_version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.id.to_owned(),
            fabric: target.fabric.id.to_owned(),
            instance: None,
            verdict: crate::checks::verdict(&findings, fail_on),
            fail_on,
            policy,
            image: None,
            recipe: None,
            findings,
            run: None,
            host: None,
        }
    }

    /// Names the instance type that the findings are for.
    pub fn on(self, instance: Option<InstanceUse>) -> Report {
        Report { instance, ..self }
    }

    /// Adds a run over TCP for comparison.
    pub fn compare_with_socket(&mut self, socket: &RunFacts) {
        if let Some(run) = &mut self.run {
            run.over_socket = Some(SocketReport::new(socket));
        }
    }

    /// What was judged: the image's reference, `host:` with a name or the directory of a captured tree, or `recipe:` and a name.
    fn subject(&self) -> String {
        match (&self.image, &self.host) {
            (Some(image), _) => image.reference.clone(),
            (None, Some(host)) if host.is_live => format!("host:{}", host.hostname.as_deref().unwrap_or("localhost")),
            (None, Some(host)) => format!("host:{}", host.root),
            (None, None) => match &self.recipe {
                Some(recipe) => format!("recipe:{}", recipe.name),
                None => "nothing".to_owned(),
            },
        }
    }

    /// The image's id; empty where no image was judged.
    fn image_id(&self) -> &str {
        self.image.as_ref().map_or("", |image| &image.id)
    }
}

impl Report {
    /// `1 failed, 2 warned, 11 passed`
    fn counts(&self) -> String {
        let count = |status| self.findings.iter().filter(|finding| finding.status == status).count();
        let parts: Vec<String> = [
            (Status::Fail, "failed"),
            (Status::Unknown, "unknown"),
            (Status::Warn, "warned"),
            (Status::Pass, "passed"),
            (Status::Skip, "skipped"),
        ]
        .into_iter()
        .filter(|(status, _)| count(*status) > 0)
        .map(|(status, word)| format!("{} {word}", count(status)))
        .collect();
        parts.join(", ")
    }

    /// `pai-dlc`, `pai-dlc on ecs.ebmgn8v.48xlarge`
    fn judged_for(&self) -> String {
        match &self.instance {
            Some(instance) => format!("{} on {}", self.target, instance.name),
            None => self.target.clone(),
        }
    }

    /// `FAIL for pai-dlc: 1 failed, 13 passed`
    fn headline(&self) -> String {
        let rdma = self.run.as_ref().map(|run| format!("; {}", run.rdma_line())).unwrap_or_default();
        format!("{} for {}: {}{rdma}", verdict_word(self.verdict), self.judged_for(), self.counts())
    }
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Unknown => "UNKNOWN",
    }
}

/// A status as spelled in JSON and text.
fn status_word(status: Status) -> &'static str {
    match status {
        Status::Pass => "pass",
        Status::Skip => "skip",
        Status::Warn => "warn",
        Status::Unknown => "unknown",
        Status::Fail => "fail",
    }
}

/// A text from an image, made safe for a terminal or log: the image's author chose its file names, and a control character
/// in one must not recolour, hide or reorder what is read.
fn visible(text: &str) -> Cow<'_, str> {
    // The bidirectional overrides and isolates (Unicode 16, Bidi_Control).
    let hides = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if hides(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect())
}

/// Summary, evidence and remedy of a finding, one line each.
fn details(finding: &Finding) -> String {
    let remedy = finding.remedy.iter().map(|remedy| format!("remedy: {remedy}"));
    let lines = [finding.summary.clone()].into_iter().chain(finding.evidence.iter().cloned()).chain(remedy);
    lines.map(|line| visible(&line).into_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(visible("/opt/\u{fc}/a b"), "/opt/\u{fc}/a b");
        assert_eq!(visible("a\u{1b}[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\u{a}c\\u{202e}d");
    }
}
