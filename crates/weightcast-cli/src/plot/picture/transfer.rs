//! GB/s of an update, beside the limits of the machine: a panel for each way.

use super::{Bar, BarChart, BarSeries, Ink, Picture, PicturePanel};
use crate::plot::reading::transfer::{FileTransfer, FileWay, MeasuredSpeed, TransferFile};

/// Ways that are shown, and limits of each: a bench has two, and five.
const NAMES: usize = 8;

/// What one bench of transfers measured.
pub(crate) fn picture(file: &TransferFile) -> Picture {
    let quick = if file.quick { "; quick: too small to judge speed by" } else { "" };
    let ways = distinct(file.transfers.iter().flat_map(|t| &t.ways).map(|way| way.way.as_str()));
    let panels = ways.iter().map(|way| way_panel(way, &file.transfers));
    let notes = vec![file.machine.line(), format!("medians of {} runs{quick}", file.runs)];
    let rows = panels.map(|panel| vec![panel]).collect();
    Picture::new("Transfers beside the limits of the machine", notes, rows)
}

fn way_panel(way: &str, transfers: &[FileTransfer]) -> PicturePanel {
    let of = |transfer: &FileTransfer| transfer.ways.iter().position(|times| times.way == way);
    let measured: Vec<(&FileTransfer, &FileWay)> =
        transfers.iter().filter_map(|t| Some((t, &t.ways[of(t)?]))).collect();
    let categories = measured.iter().map(|(t, _)| format!("{}, {}", t.case, size(t.bytes)));
    let updates = measured.iter().map(|(_, times)| times.stack.as_ref().map(bar)).collect();
    let mut series =
        vec![BarSeries { name: "update".to_owned(), ink: Ink::Weightcast, bars: updates }];
    let limits = measured.iter().flat_map(|(_, times)| &times.limits);
    for (index, name) in distinct(limits.map(|l| l.limit.as_str())).into_iter().enumerate() {
        let limit =
            |times: &FileWay| times.limits.iter().find(|l| l.limit == name).map(|l| bar(&l.speed));
        let bars = measured.iter().map(|(_, times)| limit(times)).collect();
        series.push(BarSeries { name: name.to_owned(), ink: Ink::Other(index), bars });
    }
    PicturePanel::bars(format!("Way: {way}"), BarChart::new("GB/s", categories.collect(), series))
}

/// The speed, with the time behind it.
fn bar(speed: &MeasuredSpeed) -> Bar {
    let remark = match speed.median_s {
        1.0.. => format!("{:.2} s", speed.median_s),
        0.01.. => format!("{:.0} ms", speed.median_s * 1e3),
        _ => format!("{:.2} ms", speed.median_s * 1e3),
    };
    Bar { value: speed.gb_per_s, remark }
}

fn size(bytes: u64) -> String {
    match bytes {
        1_000_000_000.. => format!("{:.2} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Each name once, in the order of its first place; not more than are told apart.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if seen.len() < NAMES && !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}
