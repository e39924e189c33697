//! Text for people: short when all is well, evidence and remedy when it is not. Colour never carries meaning.

use super::{Report, status_word, verdict_word, visible};
use crate::checks::{self, Bar, Finding, Status, SubjectKind, Verdict};
use crate::diff::ImageDiff;
use crate::facts::{ImageFacts, ImageIdentity, LoaderCache, NcclKind};
use crate::policy::{Level, PolicyUse};
use crate::units::{ByteDelta, Bytes};
use std::io::{self, Write};

/// Whether to colour.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub colour: bool,
}

impl Style {
    /// Wraps a word in an SGR code.
    fn paint(self, code: &str, word: &str) -> String {
        if self.colour { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
    }

    pub(super) fn bold(self, word: &str) -> String {
        self.paint("1", word)
    }

    fn status(self, status: Status) -> String {
        match status {
            Status::Pass => self.paint("32", "pass   "),
            Status::Skip => self.paint("2", "skip   "),
            Status::Warn => self.paint("33", "warn   "),
            Status::Unknown => self.paint("35", "unknown"),
            Status::Fail => self.paint("1;31", "FAIL   "),
        }
    }
}

/// Evidence lines shown per finding; the JSON form has them all.
const EVIDENCE_SHOWN: usize = 8;

/// Writes the result of `check`. `all` also shows what passed.
pub fn write_check(out: &mut dyn Write, report: &Report, all: bool, style: Style) -> io::Result<()> {
    write_subject(out, report)?;
    write_findings(out, report, all, style)?;
    if let Some(policy) = &report.policy {
        write_policy(out, policy, style)?;
    }
    write_verdict(out, report, style, "")
}

/// Writes what was judged.
pub(super) fn write_subject(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let subject = report.subject();
    match &report.image {
        Some(image) => writeln!(out, "{} ({})", visible(&subject), identity(image)),
        None => writeln!(out, "{}", visible(&subject)),
    }
}

/// Writes a paragraph per finding; `all` also shows what passed. Findings for a named instance type are always shown: its
/// figures were requested, and that there are none is an answer.
pub(super) fn write_findings(out: &mut dyn Write, report: &Report, all: bool, style: Style) -> io::Result<()> {
    let is_shown = |finding: &&Finding| all || !is_fine(finding) || is_of_an_instance(finding);
    let shown = report.findings.iter().filter(is_shown);
    for finding in shown {
        // A step that a run did not reach is one line, not one for each check that needed it.
        let alike = same_unknown(report, finding);
        if let [first, rest @ .., last] = alike.as_slice() {
            if last.check == finding.check {
                let names: Vec<String> = rest.iter().chain([last]).map(|finding| finding.check.clone()).collect();
                let summary = visible(&finding.summary);
                writeln!(out, "  {}  {:<20} {summary}", style.status(finding.status), first.check)?;
                for line in wrap(&names).lines() {
                    writeln!(out, "             also: {line}")?;
                }
            }
            continue;
        }
        write_finding(out, finding, style)?;
    }
    Ok(())
}

/// Writes each of these findings with its evidence.
pub(super) fn write_every_finding(out: &mut dyn Write, findings: &[Finding], style: Style) -> io::Result<()> {
    findings.iter().try_for_each(|finding| write_finding(out, finding, style))
}

fn is_fine(finding: &Finding) -> bool {
    matches!(finding.status, Status::Pass | Status::Skip)
}

fn is_of_an_instance(finding: &Finding) -> bool {
    checks::by_id(&finding.check).is_some_and(|check| check.subject() == SubjectKind::Instance)
}

fn write_finding(out: &mut dyn Write, finding: &Finding, style: Style) -> io::Result<()> {
    writeln!(out, "  {}  {:<20} {}", style.status(finding.status), finding.check, visible(&finding.summary))?;
    if is_fine(finding) && !is_of_an_instance(finding) {
        return Ok(());
    }
    // A line of evidence that only repeats the summary is noise.
    let evidence = finding.evidence.iter().filter(|line| !finding.summary.contains(line.as_str()));
    let (mut more, mut lines) = (0, 0);
    for line in evidence {
        lines += 1;
        if lines <= EVIDENCE_SHOWN {
            writeln!(out, "             {}", visible(line))?;
        } else {
            more += 1;
        }
    }
    if more > 0 {
        writeln!(out, "             and {more} more (--format json shows all)")?;
    }
    if let Some(remedy) = &finding.remedy {
        writeln!(out, "             remedy: {}", visible(remedy))?;
    }
    Ok(())
}

/// The findings of a run that share one unknown.
fn same_unknown<'a>(report: &'a Report, finding: &Finding) -> Vec<&'a Finding> {
    // Nor is anything that a recipe cannot state, if there is no image.
    let is_of_recipe_alone = report.recipe.is_some() && report.image.is_none();
    if (report.run.is_none() && !is_of_recipe_alone) || finding.status != Status::Unknown {
        return Vec::new();
    }
    let alike = |other: &&Finding| other.status == Status::Unknown && other.summary == finding.summary;
    report.findings.iter().filter(alike).collect()
}

/// Writes the last line, ending with `more`.
pub(super) fn write_verdict(out: &mut dyn Write, report: &Report, style: Style, more: &str) -> io::Result<()> {
    let colour = match report.verdict {
        Verdict::Pass => "1;32",
        Verdict::Fail => "1;31",
        Verdict::Unknown => "1;35",
    };
    let verdict = style.paint(colour, verdict_word(report.verdict));
    let bar = match report.fail_on {
        Bar::Fail => "",
        Bar::Warn => " (warnings count)",
    };
    writeln!(out, "{verdict} for {}{bar}: {}{more}", report.judged_for(), report.counts())
}

/// Writes what a policy changed, so that its verdict is not mistaken for the target's.
pub(super) fn write_policy(out: &mut dyn Write, policy: &PolicyUse, style: Style) -> io::Result<()> {
    writeln!(out, "  {}  {}", style.paint("36", "policy "), policy.file)?;
    for change in &policy.minimums {
        let was = change.was.as_deref().unwrap_or("none");
        writeln!(out, "             minimum {}: {was} -> {}", change.of, change.now)?;
    }
    for change in &policy.overrides {
        let found = change.found.map(|status| format!(", found {}", status_word(status))).unwrap_or_default();
        let reason = change.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let (was, now) = (level_word(change.was), level_word(change.now));
        writeln!(out, "             {}: {was} -> {now}{found}{reason}", change.check)?;
    }
    Ok(())
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Required => "required",
        Level::Advice => "advice",
        Level::Off => "off",
    }
}

/// The resolved image.
fn identity(image: &ImageIdentity) -> String {
    let id = if image.id.is_empty() { "no image id" } else { short(&image.id) };
    let manifest = image.manifest_digest.as_deref().map(|digest| format!(", manifest {}", short(digest)));
    let verified = if image.layers_verified { ", layers verified" } else { "" };
    format!("{id}{}{verified}", manifest.unwrap_or_default())
}

/// `sha256:0123456789ab`
fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

/// Writes the result of `inspect`.
pub fn write_facts(out: &mut dyn Write, facts: &ImageFacts) -> io::Result<()> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut row = |name, value: String| rows.push((name, value));
    let image = &facts.image;
    row("image", image.reference.clone());
    row("id", image.id.clone());
    if !image.repo_digests.is_empty() {
        row("digest", image.repo_digests.join("\n"));
    }
    if let Some(digest) = &image.manifest_digest {
        row("manifest", digest.clone());
    }
    row("platform", [image.os.as_str(), &image.architecture].join("/"));
    let verified = if image.layers_verified { ", verified" } else { "" };
    row("size", format!("{} in {} layers{verified}", Bytes(image.size_bytes()), image.layers.len()));
    row("size by origin", sizes(facts));
    row("distribution", facts.distro.as_ref().map_or("unknown".to_owned(), ToString::to_string));
    let user = match facts.config.user.as_str() {
        _ if facts.config.missing => "unknown: there is no config",
        "" => "root",
        user => user,
    };
    row("user", user.to_owned());
    if !facts.config.entrypoint.is_empty() {
        row("entrypoint", facts.config.entrypoint.join(" "));
    }
    let held = facts.packages.all_installed().filter(|package| package.held).count();
    let counted =
        format!("{} installed, {held} held ({})", facts.packages.all_installed().count(), facts.packages.manager);
    // Unreadable does not mean zero.
    let unread = facts.packages.problem.as_ref().map(|problem| format!("not known: {problem}"));
    row("packages", unread.unwrap_or(counted));
    row("cuda", facts.cuda.evidence.iter().map(|e| format!("{} {}", e.version, e.from)).collect::<Vec<_>>().join("\n"));
    row("nccl", facts.nccl.iter().map(nccl_line).collect::<Vec<_>>().join("\n"));
    let consumers = facts.nccl_consumers.iter().map(|consumer| {
        let path = consumer.path.as_deref().unwrap_or("none");
        let assumed = if consumer.assumed { ", assumed" } else { "" };
        format!("{}: {path} ({}{assumed})", consumer.name, consumer.how)
    });
    row("nccl used by", consumers.collect::<Vec<_>>().join("\n"));
    let plugins = facts.nccl_plugins.iter().map(|plugin| {
        let reach = if plugin.reachable { "found by the loader" } else { "not found by the loader" };
        format!("{} ({}, {reach})", plugin.path, plugin.maker)
    });
    row("nccl plugins", plugins.collect::<Vec<_>>().join("\n"));
    let settings = facts.nccl_settings.iter().map(|set| format!("{}={} ({})", set.name, set.value, set.from));
    let unread = facts.nccl_settings_unread.iter().map(|path| format!("{path} was not read"));
    row("nccl settings", settings.chain(unread).collect::<Vec<_>>().join("\n"));
    let drivers = facts.cuda.driver_libraries.iter().map(|library| format!("{} ({:?})", library.path, library.kind));
    row("libcuda", drivers.map(|line| line.replace("BakedIn", "baked in")).collect::<Vec<_>>().join("\n"));
    let torch = facts.torch.iter().map(|torch| {
        let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
        let cuda = torch.cuda.as_ref().map_or("without CUDA".to_owned(), |cuda| format!("for CUDA {cuda}"));
        format!("{} {} ({cuda})", or(&torch.version), torch.path)
    });
    row("torch", torch.collect::<Vec<_>>().join("\n"));
    let python = facts.python3.as_ref().map(|p| format!("{} {}", p.version.as_deref().unwrap_or("?"), p.path));
    row("python3", python.unwrap_or_default());
    let libraries = facts.verbs.libraries.iter().map(|library| {
        let abi = library.provider_abi.map_or("unknown ABI".to_owned(), |abi| format!("opens -rdmav{abi}"));
        format!(
            "{} ({abi}, {}{})",
            library.path,
            origin(facts, library.package.as_deref()),
            if library.loaded { ", loaded" } else { "" }
        )
    });
    let cache = match &facts.loader.cache {
        LoaderCache::Absent => "no ld.so.cache".to_owned(),
        LoaderCache::Unreadable { problem } => format!("ld.so.cache cannot be read: {problem}"),
        LoaderCache::Read { entries } => format!("ld.so.cache with {entries} entries"),
    };
    let paths = facts.loader.library_path.iter().map(|path| format!("LD_LIBRARY_PATH: {path}"));
    row("loader", paths.chain([cache]).collect::<Vec<_>>().join("\n"));
    row("libibverbs", libraries.collect::<Vec<_>>().join("\n"));
    let providers: Vec<String> =
        facts.verbs.providers.iter().map(|p| format!("{} (rdmav{})", p.driver, p.abi)).collect();
    row("providers", wrap(&providers));
    let ofed = &facts.ofed;
    row("ofed packages", wrap(&ofed.packages));
    let mut left: Vec<String> = ofed.apt_sources.iter().map(|source| source.path.clone()).collect();
    left.extend(ofed.yum_repos.iter().map(|repo| format!("{} [{}]", repo.path, repo.id)));
    left.extend(ofed.apt_keys.iter().cloned());
    left.extend(
        ofed.directories.iter().map(|dir| format!("{} ({} files, {})", dir.path, dir.files, Bytes(dir.size_bytes))),
    );
    left.extend(ofed.loader_configs.iter().cloned());
    row("ofed leftovers", left.join("\n"));
    let stacks: Vec<String> = ofed.stacks.iter().map(|stack| format!("{}: {}", stack.name, stack.evidence)).collect();
    row("other stacks", stacks.join("\n"));
    for (name, value) in rows {
        let value = if value.is_empty() { "none" } else { &value };
        for (at, line) in value.lines().enumerate() {
            writeln!(out, "{:<16}{}", if at == 0 { name } else { "" }, visible(line))?;
        }
    }
    Ok(())
}

/// The non-empty classes.
fn sizes(facts: &ImageFacts) -> String {
    let size = &facts.size;
    let parts = [
        ("packages", size.distro_packages_bytes.unwrap_or_default()),
        ("CUDA", size.cuda_toolkit_bytes),
        ("NCCL", size.nccl_bytes),
        ("python", size.python_packages_bytes),
        ("OFED and the like", size.ofed_bytes),
        ("other", size.other_bytes),
    ];
    let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
    parts.map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect::<Vec<_>>().join(", ")
}

fn origin(facts: &ImageFacts, package: Option<&str>) -> String {
    match package.and_then(|name| facts.packages.installed(name)) {
        Some(package) => format!("{} {}", package.name, package.version),
        None => "no package".to_owned(),
    }
}

fn nccl_line(copy: &crate::facts::NcclCopy) -> String {
    let kind = match copy.kind {
        NcclKind::System => "system",
        NcclKind::Wheel => "wheel",
        NcclKind::Conda => "conda",
        NcclKind::HpcX => "HPC-X",
        NcclKind::Static => "linked in",
        NcclKind::Other => "elsewhere",
    };
    let version = copy.version.as_deref().unwrap_or("?");
    let cuda = copy.built_for_cuda.as_ref().map_or(String::new(), |cuda| format!(", built for CUDA {cuda}"));
    format!("{version} {} ({kind}{cuda}{})", copy.path, if copy.loaded { ", loaded" } else { "" })
}

/// Names in lines of about eighty characters.
fn wrap(names: &[String]) -> String {
    let mut lines = vec![String::new()];
    for name in names {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(name),
            Some(line) if line.len() + name.len() < 78 => {
                line.push_str(", ");
                line.push_str(name);
            }
            _ => lines.push(name.clone()),
        }
    }
    lines.join("\n")
}

/// Writes the difference of two images.
pub fn write_diff(out: &mut dyn Write, diff: &ImageDiff, style: Style) -> io::Result<()> {
    for (sign, code, changes) in [("-", "31", &diff.lost), ("+", "32", &diff.gained), ("~", "33", &diff.changed)] {
        for change in changes {
            let versions = match (&change.before, &change.after) {
                (Some(before), Some(after)) => format!("{before} -> {after}"),
                (Some(version), None) | (None, Some(version)) => version.clone(),
                (None, None) => String::new(),
            };
            let outside = if change.expected { "" } else { "   outside the RDMA set" };
            writeln!(
                out,
                "  {} {:<28} {}{outside}",
                style.paint(code, sign),
                visible(&change.package),
                visible(&versions)
            )?;
        }
    }
    for note in &diff.other {
        writeln!(out, "  {} {}", style.paint("33", "~"), visible(note))?;
    }
    writeln!(
        out,
        "  packages: {} lost, {} gained, {} changed; layers: {} new, {}",
        diff.lost.len(),
        diff.gained.len(),
        diff.changed.len(),
        diff.new_layers,
        ByteDelta(diff.layer_bytes_delta)
    )
}
