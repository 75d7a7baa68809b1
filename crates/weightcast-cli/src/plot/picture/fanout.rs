//! Total stall by the number of readers, beside the ideal and beside everybody reading from the trainer.

use super::{BarChart, BarSeries, Curve, Ink, Picture, PicturePanel, PlotAxis};
use crate::plot::reading::fanout::{FanoutFile, FileKilled, FileSeeded, FileSpread, SpreadStalls};

const IDEAL: &str = "ideal";
const STACK: &str = "weightcast";
const NAIVE: &str = "all read from the trainer";

/// Which stall of a turn is shown.
struct Shown {
    title: &'static str,
    ideal: fn(&FileSpread) -> f64,
    measured: fn(&SpreadStalls) -> f64,
}

const TOTAL: Shown =
    Shown { title: "Total stall", ideal: |s| s.ideal_sum_s, measured: |stalls| stalls.sum_s };
const SLOWEST: Shown =
    Shown { title: "Slowest reader", ideal: |s| s.ideal_max_s, measured: |stalls| stalls.max_s };

/// What one bench of fan-out measured.
pub(crate) fn picture(file: &FanoutFile) -> Picture {
    let setting = format!(
        "{:.1} MB a replica, {} Mbit/s a host and direction; medians of turns; ideal: all at once, at line rate",
        file.bytes as f64 / 1e6,
        file.rate_mbit
    );
    let mut rows = Vec::new();
    for alike in file.spreads.chunk_by(|a, b| place(a) == place(b)) {
        rows.push([TOTAL, SLOWEST].map(|shown| spread_panel(&shown, alike)).into());
    }
    rows.push(vec![killed_panel(&file.killed)]);
    rows.extend(file.seeded.iter().map(|seeded| vec![seeded_panel(seeded)]));
    let notes = vec![file.machine.line(), setting];
    Picture::new("One version from a trainer to its readers", notes, rows)
}

/// What readers have in common that are compared in one panel.
fn place(spread: &FileSpread) -> (u64, u64) {
    (spread.shards, spread.datacentres)
}

fn spread_panel(shown: &Shown, alike: &[FileSpread]) -> PicturePanel {
    let (shards, datacentres) = place(&alike[0]);
    let far = if datacentres > 1 { format!(", {datacentres} datacentres") } else { String::new() };
    let title = format!("{}, {}{far}", shown.title, counted(shards, "shard"));
    let of = |measured: &SpreadStalls| (shown.measured)(measured);
    let series = [
        (IDEAL, Ink::Limit, alike.iter().map(|s| Some((shown.ideal)(s))).collect::<Vec<_>>()),
        (STACK, Ink::Weightcast, alike.iter().map(|s| Some(of(&s.stack))).collect()),
        (NAIVE, Ink::Compared, alike.iter().map(|s| s.naive.as_ref().map(of)).collect()),
    ];
    // A curve of one point says nothing.
    if let [spread] = alike {
        let values = series.map(|(name, ink, values)| BarSeries::new(name, ink, values));
        let categories = vec![counted(spread.readers, "reader")];
        return PicturePanel::bars(title, BarChart::new("seconds", categories, values));
    }
    let curves = series.map(|(name, ink, values)| {
        let points = alike.iter().zip(values);
        let points = points.filter_map(|(s, value)| Some((s.readers as f64, value?))).collect();
        Curve::new(name, ink, points)
    });
    PicturePanel::curves(
        title,
        PlotAxis::doubling("readers"),
        PlotAxis::logarithmic("seconds"),
        curves,
    )
}

fn killed_panel(killed: &[FileKilled]) -> PicturePanel {
    let category = |k: &FileKilled| {
        let readers = counted(k.readers, "reader");
        format!("{readers}, {}: killed at {} %", counted(k.shards, "shard"), k.percent)
    };
    let values = |of: fn(&FileKilled) -> f64| killed.iter().map(move |k| Some(of(k)));
    let series = [
        BarSeries::new("ideal", Ink::Limit, values(|k| k.ideal_s)),
        BarSeries::new("undisturbed", Ink::Other(0), values(|k| k.undisturbed_s)),
        BarSeries::new("a source killed", Ink::Weightcast, values(|k| k.max_s)),
    ];
    let categories = killed.iter().map(category).collect();
    PicturePanel::bars(
        "A source is killed part-way: the last of the others",
        BarChart::new("seconds", categories, series),
    )
}

fn seeded_panel(seeded: &FileSeeded) -> PicturePanel {
    let title = format!(
        "Offload seeding: {} of {}, half of them far away",
        counted(seeded.readers, "reader"),
        counted(seeded.shards, "shard")
    );
    let categories = ["the copy crosses", "a far update reads the seed", "longest poll meanwhile"];
    let ideal = [Some(seeded.ideal_crossing_s), Some(seeded.ideal_s), None];
    let stack = [seeded.crossing_s, seeded.consume_s, seeded.longest_poll_s].map(Some);
    let series =
        [BarSeries::new("ideal", Ink::Limit, ideal), BarSeries::new(STACK, Ink::Weightcast, stack)];
    PicturePanel::bars(title, BarChart::new("seconds", categories.map(String::from).into(), series))
}

/// `1 shard`, `2 shards`.
fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
