//! What is printed for others to read.

use std::io::{ErrorKind, Write};

/// Prints; a reader that has enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_while_read(text).map(drop)
}

/// Prints. False if the reader of the output is gone.
pub(crate) fn print_while_read(text: &str) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1e3 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1e3, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.2} {}", UNITS[unit]) }
}

/// A length of time for people.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..60 => format!("{whole} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..172_800 => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} days", whole / 86_400),
    }
}

/// Lines of at most `width` characters, cut between words; a longer word is cut within.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_ascii_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let line = lines.last_mut().expect("there is one");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + rest.len() <= width {
                line.push_str(&" "[..gap]);
                line.extend(rest.drain(..));
            } else if used == 0 {
                line.extend(rest.drain(..width));
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each unit from its thousand on; beyond the last there is none.
    #[test]
    fn sizes_have_the_unit_that_suits() {
        for (bytes, said) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 KB"),
            (1_001, "1.00 KB"),
            (999_000, "999.00 KB"),
            (1_000_000, "1.00 MB"),
            (999_000_000, "999.00 MB"),
            (1_000_000_000, "1.00 GB"),
            (1_000_000_000_000, "1.00 TB"),
            (1_000_000_000_000_000, "1000.00 TB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }

    #[test]
    fn times_have_the_units_that_suit() {
        for (seconds, said) in [
            (-1.0, "0.0 s"),
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (10.0, "10 s"),
            (59.9, "59 s"),
            (60.0, "1 min 0 s"),
            (3_599.0, "59 min 59 s"),
            (3_600.0, "1 h 0 min"),
            (172_799.0, "47 h 59 min"),
            (172_800.0, "2 days"),
            (f64::MAX, "213503982334601 days"),
            (f64::NAN, "0.0 s"),
        ] {
            assert_eq!(time(seconds), said, "{seconds}");
        }
    }

    #[test]
    fn lines_are_as_wide_as_they_may_be() {
        for (text, width, lines) in [
            ("", 4, &[""][..]),
            ("ab cd", 5, &["ab cd"]),
            ("ab cd", 4, &["ab", "cd"]),
            ("  ab\n cd  ", 9, &["ab cd"]),
            ("abcdefgh", 3, &["abc", "def", "gh"]),
            ("a abcd ef", 3, &["a", "abc", "d", "ef"]),
            ("\u{fc}\u{fc} \u{fc}", 4, &["\u{fc}\u{fc} \u{fc}"]),
        ] {
            assert_eq!(wrapped(text, width), lines, "{text} {width}");
        }
    }
}
