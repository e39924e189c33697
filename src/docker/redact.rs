//! Keeps credentials out of everything that is shown.
//!
//! Input: a URL, or any text that may hold URLs (log lines of a build, daemon messages). Output: the same text with
//! the `user:password` part of each URL replaced by [`HIDDEN`].

use std::borrow::Cow;

/// Replaces a credential.
pub const HIDDEN: &str = "***";

/// Shorter passwords are not searched for literally: they would blank out ordinary words.
const SHORTEST_LITERAL: usize = 6;

/// Hides the user information of one URL, with or without a scheme.
///
/// Proxy variables may lack the scheme (`user:password@proxy:3128`), so everything before the last `@` of the
/// authority counts as user information.
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}{HIDDEN}{}", &rest[at..]),
        None => url.to_owned(),
    }
}

/// Hides the user information of every `scheme://…` URL inside `text`.
///
/// Text without a scheme is left alone: `name:tag@sha256:…` looks like `user:password@host`.
pub fn redact(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | '`' | '<' | '>') || c.is_whitespace())
            .unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rfind('@') {
            Some(user_end) => {
                out.push_str(HIDDEN);
                out.push_str(&authority[user_end..]);
            }
            None => out.push_str(authority),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Hides URL credentials, and also literal secrets that are known beforehand.
///
/// A build step may print a proxy variable in a form that [`redact`] cannot recognise (no scheme, or only the
/// password), so the secrets of the request are searched for as they are.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// `urls`: values that may carry user information; `passwords`: secrets as they are.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>, passwords: impl IntoIterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        for url in urls {
            let Some(user_info) = user_info(url) else { continue };
            secrets.push(user_info.to_owned());
            if let Some((_, password)) = user_info.split_once(':') {
                secrets.push(password.to_owned());
            }
        }
        secrets.extend(passwords.into_iter().map(str::to_owned));
        secrets.retain(|secret| secret.len() >= SHORTEST_LITERAL);
        // The longest first: a secret that contains another one must go as a whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self { secrets }
    }

    /// `text` without the known secrets and without URL credentials.
    pub fn clean(&self, text: &str) -> String {
        let mut clean = redact(text).into_owned();
        for secret in &self.secrets {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), HIDDEN);
            }
        }
        clean
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish()
    }
}

fn user_info(url: &str) -> Option<&str> {
    let rest = url.find("://").map_or(url, |at| &url[at + 3..]);
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    authority.rfind('@').map(|at| &authority[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_their_user_information() {
        for (url, expected) in [
            ("http://u:p@proxy:3128", "http://***@proxy:3128"),
            ("http://u:p%40x@proxy:3128/path?a=b", "http://***@proxy:3128/path?a=b"),
            ("http://u:p@ss@proxy", "http://***@proxy"),
            ("https://token@host/x", "https://***@host/x"),
            ("user:secret@proxy:3128", "***@proxy:3128"),
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://host/a@b", "http://host/a@b"),
            ("unix:///var/run/docker.sock", "unix:///var/run/docker.sock"),
            ("", ""),
        ] {
            assert_eq!(redact_url(url), expected, "{url}");
        }
    }

    #[test]
    fn urls_inside_text_are_found() {
        assert_eq!(
            redact("Err:1 http://u:p@mirror/debian (via 'socks5h://a:b@p:1') and https://plain/x@y"),
            "Err:1 http://***@mirror/debian (via 'socks5h://***@p:1') and https://plain/x@y"
        );
        assert_eq!(redact("name:tag@sha256:abc"), "name:tag@sha256:abc");
        assert_eq!(redact("é://ü:ö@ß/ä"), "é://***@ß/ä");
    }

    #[test]
    fn known_secrets_go_in_any_form() {
        let redactor = Redactor::new(["http://bob:hunter22@proxy:3128", "plain:3128"], ["s3cr3t-registry"]);
        assert_eq!(
            redactor.clean("bob:hunter22@proxy:3128 hunter22 s3cr3t-registry bob"),
            "***@proxy:3128 *** *** bob"
        );
        assert!(!format!("{redactor:?}").contains("hunter22"));
    }

    #[test]
    fn short_passwords_do_not_blank_words() {
        let redactor = Redactor::new(["http://u:a@proxy"], ["b"]);
        assert_eq!(redactor.clean("a bad banana"), "a bad banana");
    }
}
