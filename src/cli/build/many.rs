//! Several recipes at once: each is built regardless of the others, and a table shows all results.

use super::{BuildArgs, open_workbench, tags_of};
use crate::build::{BuildResult, Built, SCHEMA_VERSION, Workbench, check_names};
use crate::checks::Verdict;
use crate::cli::TextOrJson;
use crate::cli::error::{CliError, describe};
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::recipes;
use crate::cli::{Global, block_on};
use crate::judge::Exit;
use crate::judge::Judge;
use crate::recipe::{Kind, REGION};
use crate::report::write_check;
use crate::swap::{self, Found, Subject, SwapRequest};
use crate::units::Elapsed;
use futures_util::StreamExt;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ManyResult {
    schema_version: u32,
    /// That of the process.
    exit_code: u8,
    recipes: Vec<Row>,
}

/// The result of one recipe.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Row {
    recipe: String,
    /// The image that the recipe names.
    base: String,
    result: Outcome,
    /// The exit code of `build` for this recipe alone; 0 if there is nothing to build, which alone would be bad usage.
    exit_code: u8,
    /// The id of the built image.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    time_ms: u64,
    /// What went wrong, in one line, or why nothing was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remedy: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<BuildResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum Outcome {
    Built,
    Failed,
    /// There is nothing to build.
    Skipped,
    /// Interrupted before or during the build.
    Interrupted,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Built => "built",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "skipped",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// The exit code of several builds: that of the result that most clearly needs attention.
///
/// An interrupt comes first, then an image at fault, a recipe or usage at fault, the host, and a time limit. Unknown comes
/// last.
fn worst(exits: impl IntoIterator<Item = Exit>) -> Exit {
    let rank = |exit: &Exit| match exit {
        Exit::Ok => 0,
        Exit::NotExamined => 1,
        Exit::TimeLimit => 2,
        Exit::Host => 3,
        Exit::Usage => 4,
        Exit::ImageAtFault => 5,
        Exit::Interrupted => 6,
    };
    exits.into_iter().max_by_key(rank).unwrap_or(Exit::Ok)
}

pub(super) fn run(args: &BuildArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    if !args.tags.is_empty() {
        let hint = "omit -t: each recipe has its own name, to which --tag-prefix is prepended";
        return Err(CliError::Usage(format!("several images cannot have one name\n  {hint}")));
    }
    let found = collect(args, global)?;
    check_names(args.tag_prefix.as_deref().unwrap_or_default(), &found)?;
    // Bad options are reported before any work is done, unless they are bad for some recipes only.
    let judges: Vec<Judge> =
        found.iter().map(|found| args.judge.load(Some(&found.recipe))).collect::<Result<_, CliError>>()?;
    let request = args.swap.load()?;
    let mut refused = judges.iter().map(|judge| request.check(judge.fabric()));
    if let Some(first) = refused.next()
        && refused.all(|other| other.is_err())
    {
        first?;
    }
    let rows = block_on(async {
        let bench = open_workbench(args, request.clone(), global).await?;
        let work = found.iter().zip(&judges).map(|of| make(args, global, (&bench, &request), of));
        let mut rows: Vec<(Row, Exit)> =
            futures_util::stream::iter(work).buffer_unordered(args.jobs.get()).collect().await;
        // They end in any order, and are shown by name.
        rows.sort_by(|(one, _), (other, _)| one.recipe.cmp(&other.recipe));
        Ok(rows)
    })?;
    let exit = worst(rows.iter().map(|(_, exit)| *exit));
    let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    match args.format {
        TextOrJson::Json => {
            output.json(&ManyResult { schema_version: SCHEMA_VERSION, exit_code: exit.code(), recipes: rows })
        }
        TextOrJson::Text => output.write(|out, style| {
            for row in &rows {
                if let Some(build) = row.build.as_ref().filter(|build| build.report.verdict != Verdict::Pass) {
                    write_check(out, &build.report, false, style)?;
                    writeln!(out)?;
                }
            }
            write_table(out, &rows)
        }),
    }
    Ok(exit)
}

/// The selected recipes, in the order of the arguments, including duplicates.
fn collect(args: &BuildArgs, global: &Global) -> Result<Vec<Found>, CliError> {
    let mut all: Vec<Found> = Vec::new();
    if args.all && args.subjects.is_empty() {
        all = swap::all_shipped()?;
    }
    for text in &args.subjects {
        if args.all {
            all.extend(swap::all_in(Path::new(text))?);
            continue;
        }
        match recipes::find(text, global)? {
            Some(found) => all.push(found),
            None => {
                let hint = "only recipes can be built together; build an image with its own command";
                return Err(CliError::Usage(format!("{text} is an image\n  {hint}")));
            }
        }
    }
    if args.recipe.region.is_some() && !all.iter().any(|found| found.recipe.base().contains(REGION)) {
        return Err(CliError::Usage("none of the recipes has a regional image\n  omit --region".into()));
    }
    Ok(all)
}

async fn make(
    args: &BuildArgs,
    global: &Global,
    bench: (&Workbench, &SwapRequest),
    (found, judge): (&Found, &Judge),
) -> (Row, Exit) {
    let started = Instant::now();
    let name = &found.recipe.name;
    let mut row = Row {
        recipe: name.clone(),
        base: found.recipe.base().to_owned(),
        result: Outcome::Skipped,
        exit_code: 0,
        verdict: None,
        time_ms: 0,
        message: None,
        remedy: Vec::new(),
        build: None,
    };
    if found.recipe.kind == Kind::Ready {
        row.message = Some(format!("ready for {}: there is nothing to swap", found.recipe.fabric.title));
        return (row, Exit::Ok);
    }
    let mut progress = Progress::of_one(name, args.progress, global);
    let exit = match build_one(args, bench, (found, judge), &mut progress).await {
        Ok(built) => {
            let exit = built.exit();
            row.result = Outcome::Built;
            row.verdict = Some(built.result.report.verdict);
            row.message = built.describe_damage();
            row.build = Some(built.result);
            exit
        }
        Err(error) => {
            let exit = error.exit();
            row.result = if exit == Exit::Interrupted { Outcome::Interrupted } else { Outcome::Failed };
            let (message, remedy) = describe(&error);
            if exit != Exit::Interrupted {
                progress.error(&message, &remedy);
            }
            (row.message, row.remedy) = (Some(message), remedy);
            exit
        }
    };
    row.exit_code = exit.code();
    row.time_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    (row, exit)
}

async fn build_one(
    args: &BuildArgs,
    (bench, request): (&Workbench, &SwapRequest),
    (found, judge): (&Found, &Judge),
    progress: &mut Progress,
) -> Result<Built, CliError> {
    if bench.is_stopped() {
        return Err(CliError::Interrupted);
    }
    // The region applies only to regional images.
    let region = args.recipe.region.as_deref().filter(|_| found.recipe.base().contains(REGION));
    let subject = Subject::recipe(found.clone(), region)?;
    subject.check_fabric(judge.fabric())?;
    request.check(judge.fabric())?;
    let tags = tags_of(args, &subject)?;
    Ok(bench.make(&subject, judge, &tags, &mut |event| progress.event(event)).await?)
}

/// Writes a line per recipe.
fn write_table(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let head = ["RECIPE", "RESULT", "VERDICT", "TIME", "IMAGE OR REASON"].map(str::to_owned);
    let lines = rows.iter().map(|row| {
        let verdict = match row.verdict {
            Some(Verdict::Pass) => "pass",
            Some(Verdict::Fail) => "FAIL",
            Some(Verdict::Unknown) => "unknown",
            None => "-",
        };
        let id = row.build.as_ref().map(|build| build.image_id.clone());
        let what: Vec<String> = id.into_iter().chain(row.message.clone()).collect();
        [
            row.recipe.clone(),
            row.result.word().to_owned(),
            verdict.to_owned(),
            if row.time_ms == 0 { "-".to_owned() } else { Elapsed(Duration::from_millis(row.time_ms)).to_string() },
            what.join("  "),
        ]
    });
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(lines).collect();
    let widths: Vec<usize> =
        (0..5).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    let count = |outcome| rows.iter().filter(|row| row.result == outcome).count();
    let parts: Vec<String> = [Outcome::Built, Outcome::Failed, Outcome::Skipped, Outcome::Interrupted]
        .into_iter()
        .filter(|outcome| count(*outcome) > 0)
        .map(|outcome| format!("{} {}", count(outcome), outcome.word().to_lowercase()))
        .collect();
    writeln!(out, "{}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::tests::{assert_kept, schema};

    #[test]
    fn the_schemas_of_what_builds_write() {
        let title = "What rdmaprep build IMAGE --format json writes";
        assert_kept("build", &schema::<BuildResult>(title, SCHEMA_VERSION));
        let title = "What rdmaprep build --all --format json writes, and build of several recipes";
        assert_kept("builds", &schema::<ManyResult>(title, SCHEMA_VERSION));
    }

    #[test]
    fn the_worst_of_several() {
        for (exits, expected) in [
            (vec![], Exit::Ok),
            (vec![Exit::Ok, Exit::NotExamined], Exit::NotExamined),
            (vec![Exit::NotExamined, Exit::TimeLimit], Exit::TimeLimit),
            (vec![Exit::Host, Exit::TimeLimit], Exit::Host),
            (vec![Exit::Usage, Exit::Host], Exit::Usage),
            (vec![Exit::Ok, Exit::ImageAtFault, Exit::Usage], Exit::ImageAtFault),
            (vec![Exit::Interrupted, Exit::ImageAtFault], Exit::Interrupted),
        ] {
            assert_eq!(worst(exits.clone()), expected, "{exits:?}");
        }
    }
}
