//! Amounts of CPU and memory as Kubernetes writes them. Pure.
//!
//! Source: Kubernetes, `apimachinery/pkg/api/resource/quantity.go`. Only suffixes that make sense for the two are accepted,
//! so that `64g` or `64GB`, which other programs accept, is an error here and not in the cluster.

use std::fmt;
use std::str::FromStr;

/// Suffix and factor in bytes.
const SUFFIXES: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// A positive amount, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity(String);

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid quantity (cores: 8 or 500m; memory: 64Gi)")]
pub struct QuantityError(String);

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let wrong = || QuantityError(text.to_owned());
        let (number, suffix) = split(text);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let known = suffix == "m" || SUFFIXES.iter().any(|(name, _)| *name == suffix);
        // No machine has a longer number.
        if !is_number(whole) || !is_number(fraction) || !known || number.len() > 15 {
            return Err(wrong());
        }
        if number.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
            return Err(wrong());
        }
        Ok(Quantity(text.to_owned()))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Quantity {
    /// Memory in bytes; `None` if it is not a whole number, such as `500m`.
    pub fn bytes(&self) -> Option<u64> {
        let (number, suffix) = split(&self.0);
        let (_, factor) = SUFFIXES.iter().find(|(name, _)| *name == suffix)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let bytes = digits.checked_mul(u128::from(*factor))?;
        if bytes % scale == 0 { u64::try_from(bytes / scale).ok() } else { None }
    }

    /// Cores as a decimal number, as Docker requires; `None` if the suffix means more than one.
    pub fn cores(&self) -> Option<String> {
        let (number, suffix) = split(&self.0);
        match suffix {
            "" => Some(number.to_owned()),
            "m" => {
                let thousandths: u64 = number.parse().ok()?;
                Some(format!("{}.{:03}", thousandths / 1000, thousandths % 1000))
            }
            _ => None,
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (text, bytes, cores) in [
            ("8", Some(8), Some("8")),
            ("64Gi", Some(64 << 30), None),
            ("1.5Gi", Some(3 << 29), None),
            ("2G", Some(2_000_000_000), None),
            ("500m", None, Some("0.500")),
            ("0.5", None, Some("0.5")),
        ] {
            let amount: Quantity = text.parse().unwrap();
            assert_eq!((amount.bytes(), amount.cores().as_deref()), (bytes, cores), "{text}");
            assert_eq!(amount.to_string(), text);
        }
        for text in
            ["", "0", "0Gi", "0.0", "64g", "64GB", "-1", "1.", ".5", "1.2.3", "Gi", "1 Gi", "1e3", "9999999999999999"]
        {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError(text.into())), "{text:?}");
        }
    }
}
