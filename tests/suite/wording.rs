//! The wording of messages and doc comments: patterns that read badly, and are easy to find without false alarms.

use crate::support::root;
use std::path::{Path, PathBuf};

/// First words of a doc comment that leave it without a subject: nobody can read it alone.
const WITHOUT_SUBJECT: [&str; 6] = ["The same", "Those of ", "Of ", "It ", "As [", "As `"];

/// Words after "is no" and "are no" that are not a noun: "is no longer" is plain English.
const NOT_A_NOUN: [&str; 5] = ["longer", "more", "larger", "better", "less"];

/// Every Rust file of the program and its tests.
fn sources() -> Vec<PathBuf> {
    let mut todo = vec![root().join("src"), root().join("tests")];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The text of a doc comment's line; `None`: it is something else.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// Whether a doc comment's paragraph begins without a subject.
fn lacks_subject(paragraph: &str) -> bool {
    WITHOUT_SUBJECT.iter().any(|words| paragraph.starts_with(words))
}

/// Whether a text says that something "is no size", rather than that it is not a valid one. "There is no size" is fine.
fn negates_a_noun(text: &str) -> bool {
    ["is no ", "are no "].iter().any(|words| {
        text.match_indices(words).any(|(at, _)| {
            let before = text[..at].trim_end().rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            let noun: String = text[at + words.len()..].chars().take_while(char::is_ascii_alphabetic).collect();
            let is_a_word = !text[..at].ends_with(|c: char| c.is_ascii_alphabetic());
            is_a_word
                && !before.eq_ignore_ascii_case("there")
                && !noun.is_empty()
                && !NOT_A_NOUN.contains(&noun.as_str())
        })
    })
}

/// What is wrong with a file, a line each.
fn slips(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let paragraph = doc(line);
        let begins = before.is_none_or(|before| before.is_empty() || before.starts_with('#'));
        let at = format!("{}:{}", path.display(), number + 1);
        if begins && paragraph.is_some_and(lacks_subject) {
            found.push(format!("{at}: the doc comment has no subject: {}", line.trim()));
        }
        let is_code = !line.trim_start().starts_with("//");
        if (is_code && line.contains('"') || paragraph.is_some()) && negates_a_noun(line) {
            found.push(format!("{at}: say \"is not a ...\" or \"there is no ...\": {}", line.trim()));
        }
        before = paragraph;
    }
    found
}

#[test]
fn doc_comments_and_messages_are_plain_english() {
    let own = Path::new(file!()).file_name().unwrap();
    let files = sources();
    assert!(files.len() > 200, "{}", files.len());
    let others = files.iter().filter(|path| path.file_name() != Some(own));
    let found: Vec<String> = others.flat_map(|path| slips(path, &std::fs::read_to_string(path).unwrap())).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_patterns_find_what_they_are_for() {
    let slips = |text: &str| slips(Path::new("x.rs"), text).len();
    assert_eq!(slips("/// The same of rpm.\nfn f() {}\n"), 1);
    assert_eq!(slips("/// Bytes.\n///\n/// It is bounded.\n"), 1);
    assert_eq!(slips("/// A list.\n/// Of the second line nothing is required.\n"), 0);
    assert_eq!(slips("#[error(\"{0:?} is no size\")]\n"), 1);
    assert_eq!(slips("#[error(\"there is no image in it\")]\n"), 0);
    assert_eq!(slips("#[error(\"the engine is no longer there\")]\n"), 0);
    assert_eq!(slips("#[error(\"{0:?} is not a size\")]\n"), 0);
}

/// An error's text is one line, which can stand in a chain of causes; what to do is its remedy.
#[test]
fn errors_have_their_remedies_beside_them() {
    let mut seen = 0;
    for path in sources().iter().filter(|path| path.components().any(|part| part.as_os_str() == "src")) {
        let text = std::fs::read_to_string(path).unwrap();
        for (at, _) in text.match_indices("#[error(") {
            let attribute = &text[at..at + text[at..].find(")]").unwrap()];
            assert!(!attribute.contains("\\n"), "{}: {attribute}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}
