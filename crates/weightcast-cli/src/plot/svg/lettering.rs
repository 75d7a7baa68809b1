//! Text: its kinds, and how wide it is at most.

use super::colours::{BLACK, GREY};

/// Which end of a text is at its spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A kind of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lettering {
    /// In pixels.
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) colour: &'static str,
    pub(super) anchor: Anchor,
}

const fn lettering(size: f64, bold: bool, colour: &'static str) -> Lettering {
    Lettering { size, bold, colour, anchor: Anchor::Start }
}

pub(super) const TITLE: Lettering = lettering(19.0, true, BLACK);
pub(super) const HEADING: Lettering = lettering(14.0, true, BLACK);
pub(super) const NOTE: Lettering = lettering(12.0, false, GREY);
pub(super) const LABEL: Lettering = lettering(12.0, false, BLACK);
pub(super) const TICK: Lettering = lettering(11.0, false, GREY);

impl Lettering {
    pub(super) fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }
}

/// Pixels that a text takes at most in the usual sans-serif fonts.
pub(super) fn width(text: &str, lettering: Lettering) -> f64 {
    let of = |char: char| match char {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        'f' | 'r' | 't' | '(' | ')' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        'A'..='Z' | '+' | '=' | '~' => 0.76,
        ' '..='~' => 0.63,
        _ => 1.0,
    };
    let bold = if lettering.bold { 1.08 } else { 1.0 };
    text.chars().map(of).sum::<f64>() * lettering.size * bold
}

/// The text, cut where it would be wider than this.
pub(super) fn fit(text: &str, lettering: Lettering, most: f64) -> String {
    if width(text, lettering) <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(MOST_CHARS).collect();
    while !cut.is_empty() && width(&cut, lettering) + width("…", lettering) > most {
        cut.pop();
    }
    cut + "…"
}

/// No line of a picture has room for more.
const MOST_CHARS: usize = 400;

/// As the text of an XML element; what XML cannot hold is replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for char in text.chars().take(MOST_CHARS + 1) {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_only_where_it_has_no_room() {
        let words = "rollout-0/1";
        let room = width(words, LABEL);
        assert_eq!(fit(words, LABEL, room), words);
        let cut = fit(words, LABEL, room - 0.1);
        assert!(cut.ends_with('…') && width(&cut, LABEL) <= room, "{cut}");
        assert_eq!(fit(words, LABEL, 0.0), "…");
        assert!(fit(&"m".repeat(1 << 20), LABEL, 1e6).chars().count() <= MOST_CHARS + 1);
    }

    #[test]
    fn text_that_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("<a & \"b\">\u{0}\n\u{ffff}é"),
            "&lt;a &amp; &quot;b&quot;&gt;\u{fffd}\u{fffd}\u{fffd}é"
        );
    }
}
