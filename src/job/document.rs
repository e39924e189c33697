//! A manifest as a tree, and its two notations. Pure.
//!
//! The YAML is written here, not by a library, because kubectl and helm parse YAML 1.1, where `on`, `1_000` and `12:30`
//! are not strings, while libraries quote by the rules of 1.2. Here a string is unquoted only if every version reads it as
//! one, and is otherwise a JSON string, which is valid in YAML's double quotes.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A value; maps keep the order in which they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl From<&str> for Node {
    fn from(text: &str) -> Node {
        Node::Text(text.to_owned())
    }
}

impl From<String> for Node {
    fn from(text: String) -> Node {
        Node::Text(text)
    }
}

impl From<u32> for Node {
    fn from(number: u32) -> Node {
        Node::Number(number.into())
    }
}

impl From<bool> for Node {
    fn from(flag: bool) -> Node {
        Node::Flag(flag)
    }
}

impl<T: Into<Node>> From<Vec<T>> for Node {
    fn from(list: Vec<T>) -> Node {
        Node::List(list.into_iter().map(Into::into).collect())
    }
}

/// A map of these entries.
pub(super) fn map<const N: usize>(entries: [(&str, Node); N]) -> Node {
    Node::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Text(text) => serializer.serialize_str(text),
            Node::Number(number) => serializer.serialize_u64(*number),
            Node::Flag(flag) => serializer.serialize_bool(*flag),
            Node::List(list) => list.serialize(serializer),
            Node::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl Node {
    /// Adds an entry to a map if there is a value.
    #[must_use]
    pub(super) fn with(mut self, key: &str, value: Option<impl Into<Node>>) -> Node {
        if let (Node::Map(entries), Some(value)) = (&mut self, value) {
            entries.push((key.to_owned(), value.into()));
        }
        self
    }

    /// Indented JSON, with a newline at its end.
    ///
    /// # Panics
    /// Never: keys are strings, and every number is valid in JSON.
    pub(super) fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_else(|error| panic!("a manifest as JSON: {error}"));
        text + "\n"
    }

    /// YAML in block style, with a newline at its end.
    pub(super) fn to_yaml(&self) -> String {
        let mut out = String::new();
        match self {
            Node::Map(entries) if !entries.is_empty() => write_map(entries, 0, &mut out),
            Node::List(items) if !items.is_empty() => write_list(items, 0, &mut out),
            Node::Text(_) | Node::Number(_) | Node::Flag(_) | Node::List(_) | Node::Map(_) => {
                out = self.inline();
                out.push('\n');
            }
        }
        out
    }

    /// A value that fits on the key's own line.
    fn inline(&self) -> String {
        match self {
            Node::Text(text) => yaml_scalar(text),
            Node::Number(number) => number.to_string(),
            Node::Flag(flag) => flag.to_string(),
            Node::List(_) => "[]".to_owned(),
            Node::Map(_) => "{}".to_owned(),
        }
    }
}

fn write_map(entries: &[(String, Node)], indent: usize, out: &mut String) {
    for (number, (key, value)) in entries.iter().enumerate() {
        // The first key of a list item follows its dash.
        if number > 0 || !out.ends_with("- ") {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&yaml_scalar(key));
        out.push(':');
        match value {
            Node::Map(below) if !below.is_empty() => {
                out.push('\n');
                write_map(below, indent + 2, out);
            }
            Node::List(items) if !items.is_empty() => {
                out.push('\n');
                write_list(items, indent, out);
            }
            other => {
                out.push(' ');
                out.push_str(&other.inline());
                out.push('\n');
            }
        }
    }
}

fn write_list(items: &[Node], indent: usize, out: &mut String) {
    for item in items {
        out.push_str(&" ".repeat(indent));
        out.push_str("- ");
        match item {
            Node::Map(entries) if !entries.is_empty() => write_map(entries, indent + 2, out),
            other => {
                out.push_str(&other.inline());
                out.push('\n');
            }
        }
    }
}

/// Words that YAML 1.1 reads as a boolean or null (yaml.org/type/bool.html, null.html), in lower case.
const WORDS_THAT_ARE_NO_STRINGS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// A string as a scalar on one line.
pub(super) fn yaml_scalar(text: &str) -> String {
    let starts_bare = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "/._- ".contains(c);
    // A colon ends a key only before a space and at the end.
    let no_key = text.split(':').skip(1).all(|rest| !rest.is_empty() && !rest.starts_with(' '));
    let bare = starts_bare
        && no_key
        && text.chars().all(|c| is_bare(c) || c == ':')
        && !text.ends_with([' ', ':'])
        && !WORDS_THAT_ARE_NO_STRINGS.contains(&text.to_ascii_lowercase().as_str());
    if bare { text.to_owned() } else { format!("\"{}\"", yaml_escape(text)) }
}

/// The text between the double quotes of a YAML string.
pub(super) fn yaml_escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // YAML 1.1, "c-printable", and the line ends of 1.1 that JSON leaves alone.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_style() {
        let node = map([
            ("kind", "MPIJob".into()),
            ("spec", map([("slots", 8_u32.into()), ("empty", map([])), ("none", Node::List(Vec::new()))])),
            (
                "list",
                Node::List(vec![
                    map([("name", "a".into()), ("args", vec!["-c", "x: y"].into())]),
                    map([("mount", map([("on", true.into())]))]),
                    "b".into(),
                ]),
            ),
        ]);
        assert_eq!(
            node.to_yaml(),
            "kind: MPIJob\nspec:\n  slots: 8\n  empty: {}\n  none: []\nlist:\n- name: a\n  args:\n  - \"-c\"\n  - \"x: y\"\n\
             - mount:\n    \"on\": true\n- b\n"
        );
        let value: serde_json::Value = serde_json::from_str(&node.to_json()).unwrap();
        assert_eq!(value["list"][0]["args"][1], "x: y");
        let json = node.to_json();
        let at: Vec<usize> = ["kind", "spec", "list"].map(|key| json.find(&format!("\"{key}\"")).unwrap()).to_vec();
        assert!(at.is_sorted(), "in the order given: {json}");
    }

    #[test]
    fn strings_that_need_no_quotes_and_those_that_do() {
        for bare in ["python", "/bin/sh", "registry.example.com:5000/a/b:1.2", "a b", "nvidia.com/gpu", "yesterday"] {
            assert_eq!(yaml_scalar(bare), bare);
        }
        for quoted in [
            "",
            "yes",
            "ON",
            "Null",
            "y",
            "1",
            "1_000",
            "12:30",
            "-c",
            "--x",
            "a: b",
            "a:",
            "a #b",
            "a ",
            " a",
            "~",
            "*a",
            "&a",
            "{}",
            "[a]",
            "!a",
            "%a",
            "@a",
            "`a",
            "a\tb",
            "é",
            "a,b",
            "key=value",
            ".inf",
            "2026-11-29",
            "a : b",
        ] {
            assert_eq!(yaml_scalar(quoted), format!("\"{}\"", yaml_escape(quoted)), "{quoted:?}");
        }
        assert_eq!(
            yaml_escape("a\"\\\n\t\u{7f}\u{85}\u{2028}\u{1F600}é"),
            "a\\\"\\\\\\n\\t\\u007f\\u0085\\u2028\u{1F600}é"
        );
    }
}
