//! The axes of a chart: grid, ticks, labels.

use super::axis::AxisScale;
use super::canvas::{Area, Canvas, Pen};
use super::colours::{GREY, GRID};
use super::lettering::{Anchor, TICK, fit, width};

/// Height of the labels below a chart: of its ticks, and of the axis.
pub(super) const BELOW: f64 = 36.0;
/// Height of the label above the upright axis.
pub(super) const ABOVE: f64 = 18.0;
/// Between a tick label and the axis, or another label.
const APART: f64 = 6.0;

/// Pixels that the labels of an upright axis take.
pub(super) fn left_of(scale: &AxisScale) -> f64 {
    scale.ticks().map(|(_, label)| width(&label, TICK)).fold(0.0, f64::max) + APART
}

/// The upright axis at the left of a plot, with a line through the plot at each tick. Here and below, labels that
/// would touch their neighbour are left out.
pub(super) fn upright(canvas: &mut Canvas, plot: Area, scale: &AxisScale, label: &str) {
    canvas.text((plot.x, plot.y - APART - 1.0), &fit(label, TICK, plot.width), TICK);
    let mut free_above = f64::INFINITY;
    for (share, label) in scale.ticks() {
        let y = plot.bottom() - share * plot.height;
        canvas.line((plot.x, y), (plot.right(), y), Pen::thin(GRID));
        if y <= free_above {
            canvas.text((plot.x - APART, y + 4.0), &label, TICK.anchored(Anchor::End));
            free_above = y - TICK.size - 2.0;
        }
    }
}

/// The axis below a plot.
pub(super) fn level(canvas: &mut Canvas, plot: Area, scale: &AxisScale, label: &str, grid: bool) {
    let bottom = plot.bottom();
    let mut free_from = f64::NEG_INFINITY;
    for (share, label) in scale.ticks() {
        let x = plot.x + share * plot.width;
        if grid {
            canvas.line((x, plot.y), (x, bottom), Pen::thin(GRID));
        }
        canvas.line((x, bottom), (x, bottom + 4.0), Pen::thin(GREY));
        let half = width(&label, TICK) / 2.0;
        if x - half >= free_from {
            canvas.text((x, bottom + 15.0), &label, TICK.anchored(Anchor::Middle));
            free_from = x + half + APART;
        }
    }
    canvas.line((plot.x, bottom), (plot.right(), bottom), Pen::thin(GREY));
    let middle = plot.x + plot.width / 2.0;
    let label = fit(label, TICK, plot.width);
    canvas.text((middle, bottom + 30.0), &label, TICK.anchored(Anchor::Middle));
}

/// A number of ticks that a length has room for.
pub(super) fn ticks_for(pixels: f64, each: f64) -> usize {
    ((pixels / each) as usize).clamp(2, 12)
}
