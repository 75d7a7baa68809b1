//! A figure of the paper as it was played: waits for weights, predictions beside reports, busy links.

use super::{BarChart, BarSeries, Ink, Picture, PicturePanel};
use crate::plot::reading::scenario::{FileCase, FileComparison, FileLink, ScenarioFile};

/// Links that are shown of all cases together.
const LINKS: usize = 12;

/// What was predicted for one scenario.
pub(crate) fn picture(file: &ScenarioFile) -> Picture {
    let cases = &file.cases;
    let (figure, what) = file.figure.split_once(": ").unwrap_or(("", &file.figure));
    let rows = vec![vec![stalls(cases)], vec![comparisons(cases)], vec![links(cases)]];
    Picture::new(&format!("Simulated: {what}"), vec![figure.to_owned()], rows)
}

fn stalls(cases: &[FileCase]) -> PicturePanel {
    let sorted = |case: &FileCase| {
        let mut stalls: Vec<f64> = case.outcome.stalls.iter().map(|stall| stall.stall_s).collect();
        stalls.sort_by(f64::total_cmp);
        stalls
    };
    let sorted: Vec<Vec<f64>> = cases.iter().map(sorted).collect();
    let median = sorted.iter().map(|all| all.get(all.len().saturating_sub(1) / 2).copied());
    let longest = sorted.iter().map(|all| all.last().copied());
    let series = [
        BarSeries::new("median of all shards", Ink::Weightcast, median),
        BarSeries::new("longest", Ink::Compared, longest),
    ];
    let names = cases.iter().map(|case| case.case.clone()).collect();
    PicturePanel::bars("Waits for weights", BarChart::new("seconds", names, series))
}

/// Seconds alone: other units have no place on the axis.
fn comparisons(cases: &[FileCase]) -> PicturePanel {
    let seconds = |row: &&FileComparison| row.what.contains("(s)") && row.reported.is_some();
    let rows: Vec<(&FileCase, &FileComparison)> = cases
        .iter()
        .flat_map(|case| case.rows.iter().filter(seconds).map(move |row| (case, row)))
        .collect();
    let name = |what: &str, case| named(&what.replace(" (s)", ""), case, cases.len());
    let names = rows.iter().map(|(case, row)| name(&row.what, case)).collect();
    let series = [
        BarSeries::new("predicted", Ink::Weightcast, rows.iter().map(|(_, row)| row.predicted)),
        BarSeries::new("reported", Ink::Limit, rows.iter().map(|(_, row)| row.reported)),
    ];
    PicturePanel::bars("Predicted beside reported", BarChart::new("seconds", names, series))
}

fn links(cases: &[FileCase]) -> PicturePanel {
    let of_each = (LINKS / cases.len().max(1)).max(1);
    let mut busy: Vec<(String, f64)> = Vec::new();
    for case in cases {
        let mut links: Vec<&FileLink> = case.outcome.links.iter().collect();
        links.sort_by(|a, b| b.gb.total_cmp(&a.gb));
        let busiest = links.iter().take(of_each);
        busy.extend(busiest.map(|link| (named(&link.name, case, cases.len()), link.gb)));
    }
    let series = [BarSeries::new("GB", Ink::Weightcast, busy.iter().map(|(_, gb)| Some(*gb)))];
    let names = busy.iter().map(|(name, _)| name.clone()).collect();
    PicturePanel::bars("Use of the busiest links", BarChart::new("GB, one way", names, series))
}

/// What tells rows apart comes first: long names are cut at their end.
fn named(what: &str, case: &FileCase, cases: usize) -> String {
    if cases == 1 { what.to_owned() } else { format!("{what}: {}", case.case) }
}
