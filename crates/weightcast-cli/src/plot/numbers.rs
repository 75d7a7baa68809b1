//! How numbers are written.

/// A number with three digits that count, thousands apart: 0.382, 23.5, 1,024. Whole numbers have no decimals.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        1e12.. => format!("{value:.1e}"),
        _ if value.fract() == 0.0 => thousands(&format!("{value:.0}")),
        100.0.. => thousands(&format!("{value:.0}")),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A number with as many decimals as are wanted, thousands apart.
pub(super) fn decimals(value: f64, decimals: usize) -> String {
    match value.abs() {
        1e12.. => format!("{value:.1e}"),
        _ => thousands(&format!("{value:.decimals$}")),
    }
}

fn thousands(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut text = String::with_capacity(digits.len() + 4);
    for (place, char) in digits.char_indices() {
        let left = whole.saturating_sub(place);
        let inside = place > 0 && !text.ends_with('-') && place < whole;
        if inside && left.is_multiple_of(3) {
            text.push(',');
        }
        text.push(char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (-12.0, "-12"),
            (0.000_12, "1.2e-4"),
            (0.001, "0.001"),
            (0.382_4, "0.382"),
            (1.402_5, "1.40"),
            (9.994, "9.99"),
            (23.54, "23.5"),
            (304.2, "304"),
            (999.6, "1,000"),
            (1_024.0, "1,024"),
            (-1_024.0, "-1,024"),
            (123_456_789.0, "123,456,789"),
            (1e12, "1.0e12"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((decimals(-120.0, 0), decimals(1_000.25, 1)), ("-120".into(), "1,000.2".into()));
    }
}
