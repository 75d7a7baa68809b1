//! How long those wait who join, each of them and by the number that joined at once.

use super::{BarChart, BarSeries, Curve, Ink, Picture, PicturePanel, PlotAxis};
use crate::plot::reading::elastic::ElasticFile;

/// What one bench of joiners measured.
pub(crate) fn picture(file: &ElasticFile) -> Picture {
    let megabytes = file.bytes as f64 / 1e6;
    let setting = format!("{megabytes:.1} MB a replica, {} Mbit/s a host", file.rate_mbit);
    let notes = vec![file.machine.line(), setting];
    let rows = vec![vec![stalls(file), by_number(file)]];
    Picture::new("Groups that join a running job", notes, rows)
}

fn stalls(file: &ElasticFile) -> PicturePanel {
    let joiners = file.cdf_s.len();
    let points = |of: &dyn Fn(usize) -> f64| {
        (0..joiners).map(|place| ((place + 1) as f64, of(place))).collect()
    };
    let curves = [
        Curve::new("ideal", Ink::Limit, points(&|_| file.ideal_s)),
        Curve::new("weightcast", Ink::Weightcast, points(&|place| file.cdf_s[place])),
    ];
    let x = PlotAxis::fitted("joiners, the shortest stall first");
    PicturePanel::curves(
        format!("Stall of {joiners} joiners"),
        x,
        PlotAxis::linear("seconds"),
        curves,
    )
}

fn by_number(file: &ElasticFile) -> PicturePanel {
    let names = file.by_number.keys().map(|number| format!("{number} at once")).collect();
    let ideal = file.by_number.values().map(|_| Some(file.ideal_s));
    let stalls = file.by_number.values().map(|stall| Some(*stall));
    let series = [
        BarSeries::new("ideal", Ink::Limit, ideal),
        BarSeries::new("weightcast", Ink::Weightcast, stalls),
    ];
    PicturePanel::bars("Median stall", BarChart::new("seconds", names, series))
}
