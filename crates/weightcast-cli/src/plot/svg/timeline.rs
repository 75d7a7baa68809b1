//! Which worker held which version when.

use super::axis::AxisScale;
use super::canvas::{Area, Canvas};
use super::colours::{BLACK, TONES, WHITE};
use super::frame::{BELOW, level, ticks_for};
use super::lettering::{Anchor, LABEL, Lettering, TICK, fit, width};
use crate::plot::numbers::decimals;
use crate::plot::picture::{Period, Spacing, Timeline, Track};

const TRACK: f64 = 26.0;
/// Of what is drawn in a track.
const BLOCK: f64 = 20.0;
const APART: f64 = 8.0;

pub(super) fn height(timeline: &Timeline) -> f64 {
    timeline.tracks.len() as f64 * TRACK + BELOW
}

pub(super) fn draw(canvas: &mut Canvas, timeline: &Timeline, area: Area) {
    let names = timeline.tracks.iter().map(|track| width(&track.name, LABEL));
    let names = names.fold(0.0, f64::max).min(area.width / 3.0) + APART;
    let (x, width) = (area.x + names, area.width - names - APART);
    let plot = Area { x, width, height: height(timeline) - BELOW, ..area };
    let length = timeline.to_s - timeline.from_s;
    let scale = AxisScale::of(Spacing::Fitted, [length].into_iter(), ticks_for(plot.width, 90.0));
    let label = format!(
        "seconds after {} s; a number is a version, a gap is a time without one",
        decimals(timeline.from_s, 2)
    );
    level(canvas, plot, &scale, &label, true);
    for (place, track) in timeline.tracks.iter().enumerate() {
        let row = Area { y: plot.y + place as f64 * TRACK, height: BLOCK, ..plot };
        let name = fit(&track.name, LABEL, names - APART);
        canvas.text((plot.x - APART, row.y + 15.0), &name, LABEL.anchored(Anchor::End));
        draw_track(canvas, timeline, track, row, &scale);
    }
}

fn draw_track(
    canvas: &mut Canvas,
    timeline: &Timeline,
    track: &Track,
    row: Area,
    scale: &AxisScale,
) {
    let place = |seconds: f64| {
        let within = seconds.min(timeline.to_s).max(timeline.from_s) - timeline.from_s;
        row.x + scale.share(within).unwrap_or(0.0) * row.width
    };
    for period in &track.periods {
        let (left, right) = (place(period.from_s), place(period.to_s));
        let block = Area { x: left, width: (right - left).max(0.0), ..row };
        let (fill, lettering) = look(period);
        let Period { version, from_s, to_s } = period;
        let tip = format!("{}: version {version} from {from_s:.3} to {to_s:.3} s", track.name);
        canvas.rectangle(block, fill, &tip);
        let number = version.to_string();
        if width(&number, lettering) + 4.0 <= block.width {
            canvas.text((left + block.width / 2.0, row.y + 14.0), &number, lettering);
        }
    }
}

/// Versions that follow one another differ in tone.
fn look(period: &Period) -> (&'static str, Lettering) {
    let tone = (period.version % 2) as usize;
    let colour = [WHITE, BLACK][tone];
    (TONES[tone], Lettering { colour, anchor: Anchor::Middle, ..TICK })
}
