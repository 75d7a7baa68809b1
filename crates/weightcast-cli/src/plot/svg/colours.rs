//! Colours that the colour-blind can tell apart (Okabe and Ito's), dark enough on white.

use crate::plot::picture::Ink;

pub(super) const BLACK: &str = "#222222";
pub(super) const GREY: &str = "#555555";
pub(super) const GRID: &str = "#e4e4e4";
pub(super) const WHITE: &str = "#ffffff";

/// Two tones for versions that follow one another.
pub(super) const TONES: [&str; 2] = ["#0072b2", "#56b4e9"];

const OTHERS: [&str; 5] = ["#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31"];

pub(super) fn colour(ink: Ink) -> &'static str {
    match ink {
        Ink::Weightcast => "#0072b2",
        Ink::Compared => "#d55e00",
        Ink::Limit => "#7a7a7a",
        Ink::Other(index) => OTHERS[index % OTHERS.len()],
    }
}
