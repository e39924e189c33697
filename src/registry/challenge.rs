//! Authentication that a registry requires: the `WWW-Authenticate` header → [`Challenge`]s (RFC 9110, 11.6.1).

use std::collections::BTreeMap;

/// One authentication scheme that is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Lower case.
    pub scheme: String,
    /// Keys are lower case.
    pub parameters: BTreeMap<String, String>,
}

impl Challenge {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Parses one header; it may contain several challenges. A malformed part ends the list.
pub(super) fn parse_challenges(header: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return found;
        }
        match after.trim_start().strip_prefix('=') {
            Some(value) => {
                let Some((value, after)) = parse_value(value.trim_start()) else { return found };
                let Some(challenge) = found.last_mut() else { return found };
                challenge.parameters.insert(word.to_ascii_lowercase(), value);
                rest = after;
            }
            None => {
                found.push(Challenge { scheme: word.to_ascii_lowercase(), parameters: BTreeMap::new() });
                rest = after;
            }
        }
    }
}

/// A token or a quoted string, and what follows it.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| !is_token(c)).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_real_registries() {
        // Docker Hub.
        let hub = parse_challenges(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/ubuntu:pull""#,
        );
        assert_eq!(hub.len(), 1);
        assert_eq!(hub[0].scheme, "bearer");
        assert_eq!(hub[0].parameter("realm"), Some("https://auth.docker.io/token"));
        assert_eq!(hub[0].parameter("scope"), Some("repository:library/ubuntu:pull"));
        // docker-registry with htpasswd.
        let basic = parse_challenges(r#"Basic realm="a, \"b\"""#);
        assert_eq!(basic[0].parameter("realm"), Some(r#"a, "b""#));
        // Two in one header.
        let both = parse_challenges(r#"Basic realm="x", Bearer realm="https://r/t", service=s,error=invalid_token"#);
        assert_eq!(both.iter().map(|c| c.scheme.as_str()).collect::<Vec<_>>(), ["basic", "bearer"]);
        assert_eq!(both[1].parameter("service"), Some("s"));
    }

    #[test]
    fn malformed_headers_end() {
        for (text, challenges) in [
            ("", 0),
            ("=", 0),
            ("realm=x", 0),
            (r#"Bearer realm="open"#, 1),
            ("Negotiate", 1),
            ("\u{e4}", 0),
            (",,,", 0),
        ] {
            assert_eq!(parse_challenges(text).len(), challenges, "{text}");
        }
    }
}
