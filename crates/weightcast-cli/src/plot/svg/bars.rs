//! Bars that lie: names have room at the left, numbers stand behind their bars.

use super::axis::AxisScale;
use super::canvas::{Area, Canvas};
use super::colours::colour;
use super::frame::{BELOW, level, ticks_for};
use super::lettering::{Anchor, LABEL, TICK, fit, width};
use crate::plot::numbers::number;
use crate::plot::picture::{Bar, BarChart, BarSeries, Spacing};

/// Height of one bar, and between two categories.
const BAR: f64 = 13.0;
const BETWEEN: f64 = 8.0;
const APART: f64 = 6.0;
/// Share of a panel that names may take.
const NAMES: f64 = 0.45;

pub(super) fn height(chart: &BarChart) -> f64 {
    let categories = (0..chart.categories.len()).map(|place| category_height(chart, place));
    categories.sum::<f64>() + BETWEEN + BELOW
}

/// The bars of a category: series without a number there take no room.
fn present(chart: &BarChart, place: usize) -> impl Iterator<Item = (&BarSeries, &Bar)> {
    chart.series.iter().filter_map(move |series| Some((series, series.bars.get(place)?.as_ref()?)))
}

fn category_height(chart: &BarChart, place: usize) -> f64 {
    present(chart, place).count().max(1) as f64 * BAR + BETWEEN
}

pub(super) fn draw(canvas: &mut Canvas, chart: &BarChart, area: Area) {
    let names = chart.categories.iter().map(|name| width(name, LABEL));
    let names = names.fold(0.0, f64::max).min(area.width * NAMES) + APART;
    let bars = || (0..chart.categories.len()).flat_map(|place| present(chart, place));
    let written = bars().map(|(_, bar)| width(&label(bar), TICK)).fold(0.0, f64::max) + APART;
    let plot = Area {
        x: area.x + names,
        y: area.y,
        width: (area.width - names - written).max(1.0),
        height: height(chart) - BELOW,
    };
    let ticks = ticks_for(plot.width, 70.0);
    let scale = AxisScale::of(Spacing::Linear, bars().map(|(_, bar)| bar.value), ticks);
    level(canvas, plot, &scale, &chart.axis, true);
    let mut top = plot.y + BETWEEN;
    for (place, name) in chart.categories.iter().enumerate() {
        let height = category_height(chart, place);
        let (shown, middle) = (fit(name, LABEL, names - APART), top + (height - BETWEEN) / 2.0);
        canvas.text((plot.x - APART, middle + 4.0), &shown, LABEL.anchored(Anchor::End));
        for (row, (series, bar)) in present(chart, place).enumerate() {
            let row = Area { y: top + row as f64 * BAR, height: BAR - 2.0, ..plot };
            let tip = format!("{name}, {}: {} {}", series.name, label(bar), chart.axis);
            draw_bar(canvas, bar, row, &scale, colour(series.ink), &tip);
        }
        top += height;
    }
}

fn draw_bar(canvas: &mut Canvas, bar: &Bar, row: Area, scale: &AxisScale, fill: &str, tip: &str) {
    let (Some(zero), Some(end)) = (scale.share(0.0), scale.share(bar.value)) else { return };
    let (from, to) = (zero.min(end), zero.max(end));
    let drawn = Area { x: row.x + from * row.width, width: (to - from) * row.width, ..row };
    canvas.rectangle(drawn, fill, tip);
    canvas.text((drawn.right() + 4.0, row.bottom() - 1.5), &label(bar), TICK);
}

/// What stands behind a bar.
fn label(bar: &Bar) -> String {
    match bar.remark.as_str() {
        "" => number(bar.value),
        remark => format!("{} ({remark})", number(bar.value)),
    }
}
