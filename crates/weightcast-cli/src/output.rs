//! What is printed for others to read.

use std::io::{ErrorKind, Write};

/// Prints; a reader that has enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
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
