//! Which colour is what: a line of names above a chart, or several.

use super::canvas::{Area, Canvas, Pen};
use super::colours::colour;
use super::lettering::{LABEL, fit, width};
use crate::plot::picture::Ink;

const LINE: f64 = 18.0;
/// The patch of colour, with the space behind it.
const PATCH: f64 = 24.0;
const APART: f64 = 18.0;

/// A name and its colour, as a line or as a patch.
pub(super) struct LegendEntry<'a> {
    pub(super) name: &'a str,
    pub(super) ink: Ink,
    pub(super) line: bool,
}

/// Pixels that a legend takes in a panel of this width.
pub(super) fn height(entries: &[LegendEntry], width: f64) -> f64 {
    places(entries, width).last().map_or(0.0, |(_, row)| (row + 1) as f64 * LINE)
}

pub(super) fn draw(canvas: &mut Canvas, area: Area, entries: &[LegendEntry]) {
    for (entry, (left, row)) in entries.iter().zip(places(entries, area.width)) {
        let (x, baseline) = (area.x + left, area.y + row as f64 * LINE + 13.0);
        let (colour, middle) = (colour(entry.ink), baseline - 4.0);
        if entry.line {
            let pen = Pen { colour, width: 2.0, dashed: entry.ink == Ink::Limit };
            canvas.line((x, middle), (x + PATCH - 6.0, middle), pen);
        } else {
            let patch = Area { x, y: middle - 5.0, width: 12.0, height: 10.0 };
            canvas.rectangle(patch, colour, "");
        }
        let name = fit(entry.name, LABEL, area.width - PATCH);
        canvas.text((x + PATCH, baseline), &name, LABEL);
    }
}

/// Where each entry begins, and in which row.
fn places(entries: &[LegendEntry], room: f64) -> Vec<(f64, usize)> {
    let (mut left, mut row) = (0.0, 0);
    let mut places = Vec::with_capacity(entries.len());
    for entry in entries {
        let needed = PATCH + width(entry.name, LABEL);
        if left > 0.0 && left + needed > room {
            (left, row) = (0.0, row + 1);
        }
        places.push((left, row));
        left += needed + APART;
    }
    places
}
