//! Which of the known words a mistyped one may have been meant for.

/// Words that are suggested at once.
const MOST: usize = 3;

/// The known words that are like `word`, the likest first.
///
/// `least` is the Jaro-Winkler likeness from which on a word is suggested, from 0 to 1. clap takes 0.7 for its own suggestions; long
/// words, and those that begin alike, need more.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>, least: f64) -> Vec<&'a str> {
    let word = word.to_ascii_lowercase();
    let mut alike: Vec<(f64, &str)> = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&word, known), known))
        .filter(|(s, _)| *s > least)
        .collect();
    alike.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    alike.into_iter().take(MOST).map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likest_come_first_and_not_too_many() {
        let known = ["ofed-packages", "ofed-files", "nccl-version", "ofed-path", "ofed-pins"];
        let found = closest("OFED-package", known, 0.75);
        assert_eq!((found[0], found.len()), ("ofed-packages", 3));
        assert!(closest("colour", known, 0.75).is_empty());
    }
}
