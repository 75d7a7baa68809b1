//! A panel: its title, its legend, its chart.

use super::canvas::{Area, Canvas};
use super::legend::{self, LegendEntry};
use super::lettering::{HEADING, fit};
use super::{bars, curves, timeline};
use crate::plot::picture::{Chart, PicturePanel};

const TITLE_HEIGHT: f64 = 22.0;

/// Pixels that a panel of this width needs.
pub(super) fn height(panel: &PicturePanel, width: f64) -> f64 {
    let chart = match &panel.chart {
        Chart::Curves(_) => curves::HEIGHT,
        Chart::Bars(chart) => bars::height(chart),
        Chart::Timeline(timeline) => timeline::height(timeline),
    };
    TITLE_HEIGHT + legend::height(&entries(&panel.chart), width) + chart
}

pub(super) fn draw(canvas: &mut Canvas, panel: &PicturePanel, area: Area) {
    let title = fit(&panel.title, HEADING, area.width);
    canvas.text((area.x, area.y + HEADING.size), &title, HEADING);
    let area = area.below(TITLE_HEIGHT);
    let entries = entries(&panel.chart);
    legend::draw(canvas, area, &entries);
    let area = area.below(legend::height(&entries, area.width));
    match &panel.chart {
        Chart::Curves(chart) => curves::draw(canvas, chart, area),
        Chart::Bars(chart) => bars::draw(canvas, chart, area),
        Chart::Timeline(timeline) => timeline::draw(canvas, timeline, area),
    }
}

/// One series alone needs no name.
fn entries(chart: &Chart) -> Vec<LegendEntry<'_>> {
    let entry = |line: bool| move |(name, ink)| LegendEntry { name, ink, line };
    let entries: Vec<_> = match chart {
        Chart::Curves(chart) => {
            chart.curves.iter().map(|c| (&*c.name, c.ink)).map(entry(true)).collect()
        }
        Chart::Bars(chart) => {
            chart.series.iter().map(|s| (&*s.name, s.ink)).map(entry(false)).collect()
        }
        Chart::Timeline(_) => Vec::new(),
    };
    if entries.len() > 1 { entries } else { Vec::new() }
}
