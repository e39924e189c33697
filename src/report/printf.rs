//! Numbers formatted like C's printf, so that tables match nccl-tests exactly.
//!
//! Rust rounds a decimal conversion as C does in its default mode: from the exact value, half to even.

/// `%.*e`: at least two digits of exponent, always with its sign.
pub(super) fn exponent(value: f64, precision: usize) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match power.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', power),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%g`: six significant digits, without zeros at the end.
pub(super) fn general(value: f64) -> String {
    const DIGITS: usize = 6;
    if !value.is_finite() {
        return not_finite(value);
    }
    let scientific = exponent(value, DIGITS - 1);
    let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
    // C decides by the exponent that the number has after rounding.
    let power_number: i32 = power.parse().unwrap_or_default();
    if !(-4..DIGITS as i32).contains(&power_number) {
        return format!("{}e{power}", without_zeros(mantissa));
    }
    let decimals = usize::try_from(DIGITS as i32 - 1 - power_number).unwrap_or_default();
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

fn not_finite(value: f64) -> String {
    let name = if value.is_nan() { "nan" } else { "inf" };
    let sign = if value.is_sign_negative() { "-" } else { "" };
    format!("{sign}{name}")
}

/// nccl-tests' `getFloatStr` (2.19.6, `src/util.cu`): as many decimals, two at most, as fit into the width; else an
/// exponent. `snprintf` cuts off what is too long even so.
pub(super) fn fitting(value: f64, width: usize) -> String {
    let fixed = |decimals: usize| {
        if value.is_finite() { format!("{value:.decimals$}") } else { not_finite(value) }
    };
    let text = [2, 1, 0].into_iter().map(fixed).find(|text| text.len() <= width);
    let text = text.unwrap_or_else(|| exponent(value, usize::from(width >= 7)));
    format!("{:>width$}", text.get(..width).unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Python 3's `%`, which is C's printf.
    #[test]
    fn general_and_exponent() {
        for (value, general_text, one, none) in [
            (0.0_f64, "0", "0.0e+00", "0e+00"),
            (1.0_f64, "1", "1.0e+00", "1e+00"),
            (-1.0_f64, "-1", "-1.0e+00", "-1e+00"),
            (0.1_f64, "0.1", "1.0e-01", "1e-01"),
            (0.5_f64, "0.5", "5.0e-01", "5e-01"),
            (1.5_f64, "1.5", "1.5e+00", "2e+00"),
            (2.5_f64, "2.5", "2.5e+00", "2e+00"),
            (100000.0_f64, "100000", "1.0e+05", "1e+05"),
            (999999.0_f64, "999999", "1.0e+06", "1e+06"),
            (999999.5_f64, "1e+06", "1.0e+06", "1e+06"),
            (1000000.0_f64, "1e+06", "1.0e+06", "1e+06"),
            (123456.0_f64, "123456", "1.2e+05", "1e+05"),
            (1234567.0_f64, "1.23457e+06", "1.2e+06", "1e+06"),
            (123456.5_f64, "123456", "1.2e+05", "1e+05"),
            (0.0001_f64, "0.0001", "1.0e-04", "1e-04"),
            (9.9999995e-05_f64, "0.0001", "1.0e-04", "1e-04"),
            (0.0001234567_f64, "0.000123457", "1.2e-04", "1e-04"),
            (1e-05_f64, "1e-05", "1.0e-05", "1e-05"),
            (1e-05_f64, "1e-05", "1.0e-05", "1e-05"),
            (33.3227_f64, "33.3227", "3.3e+01", "3e+01"),
            (93.18_f64, "93.18", "9.3e+01", "9e+01"),
            (10000000000.0_f64, "1e+10", "1.0e+10", "1e+10"),
            (1e+100_f64, "1e+100", "1.0e+100", "1e+100"),
            (1e-100_f64, "1e-100", "1.0e-100", "1e-100"),
            (3976821.0_f64, "3.97682e+06", "4.0e+06", "4e+06"),
            (137111.4_f64, "137111", "1.4e+05", "1e+05"),
            (0.43_f64, "0.43", "4.3e-01", "4e-01"),
            (248.0_f64, "248", "2.5e+02", "2e+02"),
            (12345678.0_f64, "1.23457e+07", "1.2e+07", "1e+07"),
            (4294967296.0_f64, "4.29497e+09", "4.3e+09", "4e+09"),
            (0.3333333333333333_f64, "0.333333", "3.3e-01", "3e-01"),
            (0.6666666666666666_f64, "0.666667", "6.7e-01", "7e-01"),
            (999999.4999_f64, "999999", "1.0e+06", "1e+06"),
            (99999.95_f64, "99999.9", "1.0e+05", "1e+05"),
            (5e-324_f64, "4.94066e-324", "4.9e-324", "5e-324"),
            (1.7976931348623157e+308_f64, "1.79769e+308", "1.8e+308", "2e+308"),
            (0.30000000000000004_f64, "0.3", "3.0e-01", "3e-01"),
            (-33.5_f64, "-33.5", "-3.4e+01", "-3e+01"),
            (-1e-07_f64, "-1e-07", "-1.0e-07", "-1e-07"),
            (0.0003238327648331624_f64, "0.000323833", "3.2e-04", "3e-04"),
            (3.9482349642317344e-07_f64, "3.94823e-07", "3.9e-07", "4e-07"),
            (724362866.6754276_f64, "7.24363e+08", "7.2e+08", "7e+08"),
            (9413004193.968256_f64, "9.413e+09", "9.4e+09", "9e+09"),
            (57998924.7747068_f64, "5.79989e+07", "5.8e+07", "6e+07"),
            (2.1469818083566174e-06_f64, "2.14698e-06", "2.1e-06", "2e-06"),
            (4.336456836623858e-06_f64, "4.33646e-06", "4.3e-06", "4e-06"),
            (2406630001.2702503_f64, "2.40663e+09", "2.4e+09", "2e+09"),
            (42451918914.2514_f64, "4.24519e+10", "4.2e+10", "4e+10"),
            (0.12380196114964559_f64, "0.123802", "1.2e-01", "1e-01"),
            (63062591573.173706_f64, "6.30626e+10", "6.3e+10", "6e+10"),
            (94770894245.70056_f64, "9.47709e+10", "9.5e+10", "9e+10"),
            (5.855414226403867e-07_f64, "5.85541e-07", "5.9e-07", "6e-07"),
            (9.7625510559292e-07_f64, "9.76255e-07", "9.8e-07", "1e-06"),
            (0.0005566648979370926_f64, "0.000556665", "5.6e-04", "6e-04"),
            (0.0002896092863316763_f64, "0.000289609", "2.9e-04", "3e-04"),
            (54068588553.21425_f64, "5.40686e+10", "5.4e+10", "5e+10"),
            (30848182410193.434_f64, "3.08482e+13", "3.1e+13", "3e+13"),
            (18072637992.39375_f64, "1.80726e+10", "1.8e+10", "2e+10"),
            (0.05712043914117922_f64, "0.0571204", "5.7e-02", "6e-02"),
            (3723975427.2573123_f64, "3.72398e+09", "3.7e+09", "4e+09"),
            (71211076574.61536_f64, "7.12111e+10", "7.1e+10", "7e+10"),
            (0.005960116996623266_f64, "0.00596012", "6.0e-03", "6e-03"),
            (4964144951.134917_f64, "4.96414e+09", "5.0e+09", "5e+09"),
            (427.5923056694029_f64, "427.592", "4.3e+02", "4e+02"),
        ] {
            assert_eq!(general(value), general_text);
            assert_eq!(exponent(value, 1), one);
            assert_eq!(exponent(value, 0), none);
        }
        assert_eq!((general(f64::NAN), general(f64::INFINITY)), ("nan".into(), "inf".into()));
    }

    /// `getFloatStr` of nccl-tests 2.19.6 in Python, for both widths.
    #[test]
    fn numbers_that_fit() {
        for (value, seven, six) in [
            (7.86_f64, "   7.86", "  7.86"),
            (1006.51_f64, "1006.51", "1006.5"),
            (2006.466_f64, "2006.47", "2006.5"),
            (99999.994_f64, " 100000", "100000"),
            (9999.994_f64, "9999.99", " 10000"),
            (9999.996_f64, "10000.0", " 10000"),
            (999.994_f64, " 999.99", "999.99"),
            (999.996_f64, "1000.00", "1000.0"),
            (0.43_f64, "   0.43", "  0.43"),
            (999.99_f64, " 999.99", "999.99"),
            (1056.04_f64, "1056.04", "1056.0"),
            (1929.3_f64, "1929.30", "1929.3"),
            (22502.3_f64, "22502.3", " 22502"),
            (137111.4_f64, " 137111", "137111"),
            (999999.4_f64, " 999999", "999999"),
            (999999.6_f64, "1000000", " 1e+06"),
            (3976821.6_f64, "3976822", " 4e+06"),
            (10000000.0_f64, "1.0e+07", " 1e+07"),
            (9999999.4_f64, "9999999", " 1e+07"),
            (9999999.6_f64, "1.0e+07", " 1e+07"),
            (10000000000.0_f64, "1.0e+10", " 1e+10"),
            (1000000000000.0_f64, "1.0e+12", " 1e+12"),
            (0.0_f64, "   0.00", "  0.00"),
            (0.004_f64, "   0.00", "  0.00"),
            (0.005_f64, "   0.01", "  0.01"),
            (0.015_f64, "   0.01", "  0.01"),
            (125.945_f64, " 125.94", "125.94"),
            (99999.96_f64, " 100000", "100000"),
            (99999.4_f64, "99999.4", " 99999"),
        ] {
            assert_eq!((fitting(value, 7).as_str(), fitting(value, 6).as_str()), (seven, six), "{value}");
        }
    }
}
