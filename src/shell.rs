//! Words for a POSIX shell.

/// Quotes one word; it stays bare where nothing in it means anything to the shell.
pub fn shell_quote(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "/._-:=+@%,".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Joins words into a command line, each quoted as far as it needs to be.
pub fn shell_join<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(|word| shell_quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words() {
        assert_eq!(shell_quote("/etc/a-b.list"), "/etc/a-b.list");
        assert_eq!(shell_quote("/etc/$(id) it's"), r"'/etc/$(id) it'\''s'");
        assert_eq!(shell_quote(""), "''");
        assert_eq!(shell_join(["echo", "a b"]), "echo 'a b'");
    }
}
