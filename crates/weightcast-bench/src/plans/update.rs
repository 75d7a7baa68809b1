//! Whole updates, part by part, beside what published systems report.

use super::case::{CaseRow, PredictedUpdate};

/// A table for each machine: the cases for which a time is reported.
pub(super) fn table(cases: &[CaseRow]) -> String {
    let machines = cases.first().map_or(0, |row| row.updates.len());
    (0..machines).map(|at| of_machine(cases, at)).collect()
}

fn of_machine(cases: &[CaseRow], at: usize) -> String {
    let PredictedUpdate { machine, parts, .. } = &cases[0].updates[at];
    let mut text =
        format!("\nWhole updates on {}: {}.\n\n| case | bound s |", machine.name, machine.ways);
    parts.iter().for_each(|part| text += &format!(" {} s |", part.name));
    text += " predicted s | reported s | reported of predicted |\n|---|---|";
    text += &"---|".repeat(parts.len() + 3);
    text.push('\n');
    for (row, reported) in cases.iter().filter_map(|row| Some((row, row.reported_s?))) {
        let update = &row.updates[at];
        text += &format!("| {} | {:.3} |", row.case, row.lower_bound_s);
        update.parts.iter().for_each(|part| text += &format!(" {:.3} |", part.seconds));
        let ratio = reported / update.predicted_s;
        text += &format!(" {:.3} | {reported:.3} | {ratio:.2} |\n", update.predicted_s);
    }
    text + "\n" + &figures(&cases[0].updates[at])
}

/// The machine's figures, each with its source.
fn figures(update: &PredictedUpdate) -> String {
    let mut text = String::from("| figure | value | from |\n|---|---|---|\n");
    for (what, unit, figure) in update.machine.figures() {
        let value = if unit == "GB/s" { figure.value / 1e9 } else { figure.value };
        let value = format!("{value} {unit}");
        text += &format!("| {what} | {} | {} |\n", value.trim_end(), figure.from);
    }
    text
}
