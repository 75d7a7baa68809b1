//! A help text, read by options. The tests of weightcast-bench use this file too.

/// What a help text says of one option, in one line.
pub(crate) fn of_option(text: &str, option: &str) -> String {
    let is_option = |line: &&str| line.trim_start().starts_with('-');
    let mut lines = text.lines().skip_while(|line| {
        let mut words = line.split_ascii_whitespace();
        !words.any(|word| word == option) || !is_option(line)
    });
    let first = lines.next().unwrap_or_else(|| panic!("{option} is not in {text}"));
    let rest = lines.take_while(|line| !is_option(line));
    let words = std::iter::once(first).chain(rest).flat_map(str::split_ascii_whitespace);
    words.collect::<Vec<_>>().join(" ")
}
