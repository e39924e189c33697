//! A constant shell script and calls of its functions → one `RUN` instruction.
//!
//! The builders join an instruction's lines to one, so that every command must end: with a semicolon, or with a word that
//! goes on. Comments stay, for whoever keeps the Dockerfile; the builders take them out.

use std::collections::{BTreeMap, BTreeSet};

/// Words after which a command goes on in the next line.
const OPEN: [&str; 9] = ["{", "do", "then", "else", "in", ";;", "&&", "||", "|"];

/// Joins the commands of a script, without the comments before the first, and the lines that follow it.
///
/// A line of `calls` is a call, or a comment if it starts with `#`. The last must be a call.
pub fn join_run(script: &str, calls: &[String]) -> String {
    let body = script.lines().skip_while(|line| line.is_empty() || line.starts_with('#'));
    let commands = body.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("# shellcheck "));
    let mut goes_on = false;
    let end = |line| {
        let ended = end_command(line, goes_on);
        goes_on = line.ends_with('\\');
        ended
    };
    let lines: Vec<String> = commands.chain(calls.iter().map(String::as_str)).map(end).collect();
    let text = lines.join("\n    ");
    // Nothing follows the last one.
    format!("RUN {}\n", text.strip_suffix("; \\").unwrap_or(&text))
}

/// The script without the functions that `roots` do not come to call, and without blank lines and headings between them.
///
/// A function begins with `NAME() {` and ends with `}`, each at the start of a line; the comment right above belongs to it.
/// A word outside of comments that is a function's name counts as a call, so that a name in a variable is one too.
pub fn select_functions(script: &str, roots: &[&str]) -> String {
    let blocks: Vec<&str> = script.split("\n\n").collect();
    let name = |block: &str| {
        let code = block.lines().find(|line| !line.starts_with('#'))?;
        code.strip_suffix("() {").map(str::to_owned)
    };
    let functions: BTreeMap<String, &str> = blocks.iter().filter_map(|block| Some((name(block)?, *block))).collect();
    let mut needed = BTreeSet::new();
    let mut todo: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(function) = todo.pop() {
        if let Some(block) = functions.get(&function)
            && needed.insert(function)
        {
            let code = block.lines().filter(|line| !line.trim_start().starts_with('#'));
            todo.extend(code.skip(1).flat_map(|line| line.split(|c: char| !is_word(c))).map(str::to_owned));
        }
    }
    let kept = blocks.iter().filter(|block| match name(block) {
        Some(function) => needed.contains(&function),
        None => block.lines().any(|line| !line.starts_with('#')),
    });
    kept.copied().collect::<Vec<_>>().join("\n")
}

/// With the hyphen, so that the name of a program is not taken for a function's.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Ends a line's command; `continued`: the line before goes on in this one.
fn end_command(line: &str, continued: bool) -> String {
    let code = line.trim();
    if code.starts_with('#') || code.ends_with('\\') {
        return line.to_owned();
    }
    let goes_on = code.split(' ').next_back().is_some_and(|word| OPEN.contains(&word));
    // `name)` of a case; a substitution has its opening parenthesis, here or in the line before.
    let is_pattern = code.ends_with(')') && !code.contains('(') && !continued;
    let end = if goes_on || is_pattern { "" } else { ";" };
    format!("{line}{end} \\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_are_called_stay() {
        let script = "#!/bin/sh\n# A head.\nset -eu\n\n# one ARGUMENT\none() {\n  how=two\n  \"$how\" three-not\n}\n\n# ---- A part\n\n\
                      two() {\n  # three\n  echo 2\n}\n\nthree() {\n  echo 3\n}\n";
        assert_eq!(
            select_functions(script, &["one"]),
            "#!/bin/sh\n# A head.\nset -eu\n# one ARGUMENT\none() {\n  how=two\n  \"$how\" three-not\n}\n\
             two() {\n  # three\n  echo 2\n}"
        );
        assert!(select_functions(script, &["three"]).ends_with("set -eu\nthree() {\n  echo 3\n}\n"));
    }

    /// Each shape of a line; the shell says whether the outcome still means the same.
    #[test]
    fn joined_commands_do_what_the_script_does() {
        let script = "#!/bin/sh\n# A head.\n\nset -eu\n\n# What it does.\nsay() {\n  case \"$1\" in\n    a)\n      echo one ;;\n    b|c) echo \
                      two ;;\n    *)\n      # shellcheck disable=SC2086 # words\n      echo $((1 + 2))\n  esac\n}\nif [ \"$#\" = 9 ]; \
                      then\n  echo no\nelse\n  for word in a b d; do\n    say \"$word\" ||\n      exit 1\n  done\nfi\nlast=$(say \
                      \\\n  c)\n";
        let run = join_run(script, &["# The steps.".to_owned(), "say a".to_owned(), "echo \"$last\"".to_owned()]);
        assert!(
            !run.contains("shellcheck") && !run.contains("A head") && run.contains("\n    # What it does.\n"),
            "{run}"
        );
        // As a builder does it: comments go, and a line that goes on is one with the next.
        let kept = run.lines().filter(|line| !line.trim_start().starts_with('#'));
        let command: String = kept.map(|line| line.strip_suffix('\\').unwrap_or(line)).collect();
        let command = command.strip_prefix("RUN ").unwrap();
        let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n3\none\ntwo\n", "{said}\n{command}");
    }
}
