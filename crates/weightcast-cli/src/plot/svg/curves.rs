//! Numbers over numbers.

use super::axis::AxisScale;
use super::canvas::{Area, Canvas, Pen};
use super::colours::{GREY, colour};
use super::frame::{ABOVE, BELOW, left_of, level, ticks_for, upright};
use super::lettering::{TICK, fit};
use crate::plot::numbers::number;
use crate::plot::picture::{Curve, CurveChart, Ink, Mark};

/// Of a chart with its labels.
pub(super) const HEIGHT: f64 = 236.0;
/// Room at the right end, for half a tick label.
const BESIDE: f64 = 16.0;
/// A curve of more points has no marks: they would be a band.
const MARKED: usize = 40;

pub(super) fn draw(canvas: &mut Canvas, chart: &CurveChart, area: Area) {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let plot_height = area.height - ABOVE - BELOW;
    let y = AxisScale::of(chart.y.spacing, points().map(|p| p.1), ticks_for(plot_height, 26.0));
    let left = left_of(&y);
    let plot = Area {
        x: area.x + left,
        y: area.y + ABOVE,
        width: area.width - left - BESIDE,
        height: plot_height,
    };
    let x = AxisScale::of(chart.x.spacing, points().map(|p| p.0), ticks_for(plot.width, 70.0));
    upright(canvas, plot, &y, &chart.y.label);
    level(canvas, plot, &x, &chart.x.label, false);
    for curve in &chart.curves {
        draw_curve(canvas, curve, plot, (&x, &y), (&chart.x.label, &chart.y.label));
    }
    for mark in &chart.marks {
        draw_mark(canvas, mark, plot, &x);
    }
}

/// An upright line, and its name beside its upper end.
fn draw_mark(canvas: &mut Canvas, mark: &Mark, plot: Area, x: &AxisScale) {
    let Some(share) = x.share(mark.x) else { return };
    let at = plot.x + share * plot.width;
    let pen = Pen { dashed: true, ..Pen::thin(GREY) };
    canvas.line((at, plot.y), (at, plot.bottom()), pen);
    let name = fit(&mark.name, TICK, plot.right() - at - 4.0);
    canvas.text((at + 4.0, plot.y + TICK.size), &name, TICK);
}

fn draw_curve(
    canvas: &mut Canvas,
    curve: &Curve,
    plot: Area,
    (x, y): (&AxisScale, &AxisScale),
    (x_label, y_label): (&str, &str),
) {
    let shown: Vec<_> = curve
        .points
        .iter()
        .filter_map(|(across, up)| {
            let spot = (
                plot.x + x.share(*across)? * plot.width,
                plot.bottom() - y.share(*up)? * plot.height,
            );
            let (across, up) = (number(*across), number(*up));
            Some((spot, format!("{}, {x_label} {across}: {up} {y_label}", curve.name)))
        })
        .collect();
    let colour = colour(curve.ink);
    let pen = Pen { colour, width: 2.0, dashed: curve.ink == Ink::Limit };
    let spots: Vec<_> = shown.iter().map(|(spot, _)| *spot).collect();
    canvas.polyline(&spots, pen, &curve.name);
    if shown.len() <= MARKED {
        for (spot, tip) in &shown {
            canvas.circle(*spot, colour, tip);
        }
    }
}
