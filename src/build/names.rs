//! The names that recipes give to what is built from them.

use crate::recipe::Kind;
use crate::reference::Reference;
use crate::remedy::Remedy;
use crate::swap::Found;

/// Two recipes give one name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} would both be {name}")]
pub struct NameTaken {
    first: String,
    second: String,
    name: String,
}

impl Remedy for NameTaken {
    fn remedy(&self) -> Option<String> {
        Some("set tag in one of them".to_owned())
    }
}

/// Refuses recipes whose images would have the same name: the later one would take it from the other.
///
/// # Errors
/// Both recipes, and the name.
pub fn check_names(prefix: &str, all: &[Found]) -> Result<(), NameTaken> {
    let mut images: Vec<(&Found, Name)> = Vec::new();
    for found in all.iter().filter(|found| found.recipe.kind == Kind::Base) {
        // An invalid name is reported for the recipe itself.
        let Some(tag) = found.recipe.default_tag().map(|tag| format!("{prefix}{tag}")) else { continue };
        let Some(image) = Name::parse(&tag) else { continue };
        if let Some((other, _)) = images.iter().find(|(_, other)| *other == image) {
            return Err(NameTaken { first: other.origin.clone(), second: found.origin.clone(), name: tag });
        }
        images.push((found, image));
    }
    Ok(())
}

/// A name as an engine reads it: registry, repository and tag, each with its default.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    registry: String,
    repository: String,
    tag: String,
}

impl Name {
    fn parse(name: &str) -> Option<Name> {
        let reference = Reference::parse(name).ok()?;
        let tag = reference.tag().unwrap_or("latest");
        Some(Name {
            registry: reference.registry().to_owned(),
            repository: reference.repository().to_owned(),
            tag: tag.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::parse_recipe;

    #[test]
    fn images_of_the_same_name() {
        let found = |origin: &str, tag: &str| {
            let text = format!("tag = '{tag}'\n[base]\nimage = 'x'\n[fabric]\nname = 'erdma'\n");
            Found { origin: origin.to_owned(), recipe: parse_recipe(origin, &text).unwrap() }
        };
        let check = |prefix: &str, one: &str, other: &str| {
            check_names(prefix, &[found("one", one), found("other", other)]).map_err(|error| error.to_string())
        };
        for (prefix, one, other) in [
            ("", "a", "a"),
            ("", "a", "a:latest"),
            ("", "a:latest", "docker.io/library/a"),
            ("", "team/a", "index.docker.io/team/a:latest"),
            ("r.example.com/", "a", "a:latest"),
        ] {
            let said = format!("one and other would both be {prefix}{other}");
            assert_eq!(check(prefix, one, other), Err(said), "{one} {other}");
        }
        for (prefix, one, other) in
            [("", "a", "b"), ("", "a:1", "a"), ("", "r:5000/a", "a:5000"), ("r.example.com/", "a", "library/a")]
        {
            assert_eq!(check(prefix, one, other), Ok(()), "{one} {other}");
        }
        // Ready images are not built.
        let mut ready = found("other", "a:latest");
        ready.recipe.kind = Kind::Ready;
        assert!(check_names("", &[found("one", "a"), ready]).is_ok());
    }
}
