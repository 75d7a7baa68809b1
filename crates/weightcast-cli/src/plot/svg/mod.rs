//! A picture drawn as SVG. Nothing is measured by a font: widths of text are estimated, on the wide side.
//!
//! Reading order: `canvas` (elements), `lettering` (text and numbers), `colours`, `axis` (values to places), `panel`
//! with `legend`, and a file for each kind of chart.

mod axis;
mod bars;
mod canvas;
mod colours;
mod curves;
mod frame;
mod legend;
mod lettering;
mod panel;
mod timeline;

use self::canvas::{Area, Canvas};
use self::lettering::{NOTE, TITLE, fit};
use super::picture::Picture;

/// Width of a picture in pixels: fits on a page and on a laptop's screen.
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
/// Between panels, in both directions.
const GAP: f64 = 24.0;

/// The SVG file of a picture: the same picture always gives the same bytes.
pub(super) fn draw(picture: &Picture) -> String {
    let mut canvas = Canvas::default();
    let inner = WIDTH - 2.0 * MARGIN;
    let mut y = MARGIN + TITLE.size;
    canvas.text((MARGIN, y), &fit(&picture.title, TITLE, inner), TITLE);
    y += 4.0;
    for note in &picture.notes {
        y += NOTE.size + 5.0;
        canvas.text((MARGIN, y), &fit(note, NOTE, inner), NOTE);
    }
    for row in &picture.rows {
        y += GAP;
        let count = row.len() as f64;
        let width = (inner - GAP * (count - 1.0)) / count;
        let height = row.iter().map(|one| panel::height(one, width)).fold(0.0, f64::max);
        for (place, one) in row.iter().enumerate() {
            let x = MARGIN + place as f64 * (width + GAP);
            panel::draw(&mut canvas, one, Area { x, y, width, height });
        }
        y += height;
    }
    canvas.finish(WIDTH, y + MARGIN, &picture.title)
}

#[cfg(test)]
mod tests;
