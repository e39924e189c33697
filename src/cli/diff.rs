//! `rdmaprep diff`

use super::Global;
use super::TextOrJson;
use super::error::CliError;
use super::output::Output;
use super::source::SourceArgs;
use crate::diff::{ImageDiff, diff_images};
use crate::fabric::{RDMA_CORE_PACKAGES, RDMA_RPM_PACKAGES};
use crate::inspect::is_ofed_name;
use crate::judge::Exit;
use crate::report::write_diff;
use clap::Args;
use serde::Serialize;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// First image
    before: String,
    /// Second image
    after: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
    #[command(flatten)]
    source: SourceArgs,
}

/// The whole result, as `--format json` writes it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DiffResult {
    schema_version: u32,
    #[serde(flatten)]
    diff: ImageDiff,
}

const SCHEMA_VERSION: u32 = 1;

/// Whether a swap may change a package, of whichever architecture.
fn is_of_the_swap(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or(name);
    RDMA_CORE_PACKAGES.contains(&name) || RDMA_RPM_PACKAGES.contains(&name) || is_ofed_name(name)
}

pub(super) fn run(args: &DiffArgs, global: &Global, output: &mut Output) -> Result<Exit, CliError> {
    let before = args.source.load_facts(&args.before, global)?;
    let after = args.source.load_facts(&args.after, global)?;
    let diff = diff_images(&before, &after, is_of_the_swap);
    match args.format {
        TextOrJson::Json => output.json(&DiffResult { schema_version: SCHEMA_VERSION, diff }),
        TextOrJson::Text => output.write(|out, style| {
            writeln!(out, "{} -> {}", before.image.reference, after.image.reference)?;
            write_diff(out, &diff, style)
        }),
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::tests::{assert_kept, schema};

    #[test]
    fn the_schema_of_what_it_writes() {
        let title = "What rdmaprep diff --format json writes";
        assert_kept("diff", &schema::<DiffResult>(title, SCHEMA_VERSION));
    }

    #[test]
    fn what_a_swap_may_change() {
        for name in ["libibverbs1", "libibverbs1:i386", "libibverbs", "librdmacm-utils", "mlnx-tools"] {
            assert!(is_of_the_swap(name), "{name}");
        }
        for name in ["openmpi-bin", "ucx", "libibverbs-of-mine"] {
            assert!(!is_of_the_swap(name), "{name}");
        }
    }
}
