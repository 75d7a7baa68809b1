//! The screen: lines made of the state. Nothing here asks a server or knows a terminal.
//!
//! `header` says who was asked and which model is looked at; below come panels, each a title and rows: `versions`,
//! `replicas` with their bars, `readers` as a tree, `errors`. `panel` shares the height between them.

mod errors;
mod header;
mod panel;
mod readers;
mod replicas;
mod versions;

use std::time::Duration;

use ratatui::style::Stylize;
use ratatui::text::Line;

use super::state::{Sort, TopState};

/// The lines of a screen of this width and height, at this time.
pub(super) fn lines(
    state: &TopState,
    now: Duration,
    width: u16,
    height: u16,
) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(width), usize::from(height));
    let mut lines = header::lines(state, now, width);
    let mut panels = Vec::new();
    if let Some(model) = state.model() {
        panels.push(versions::panel(model, width));
        panels.push(replicas::panel(model, state.sort, state.first_row, width));
        panels.push(readers::panel(model));
    }
    panels.push(errors::panel(state, now));
    lines.extend(panel::fit(panels, height.saturating_sub(lines.len() + 1), width));
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(footer(state));
    lines.truncate(height);
    lines
}

fn footer(state: &TopState) -> Line<'static> {
    let sort = match state.sort {
        Sort::Activity => "activity",
        Sort::Name => "name",
        Sort::Staleness => "staleness",
    };
    let pause = if state.paused { "p go on" } else { "p pause" };
    Line::from(format!("q quit   Tab model   s sorted by {sort}   {pause}   up, down scroll").dim())
}

#[cfg(test)]
mod tests;
