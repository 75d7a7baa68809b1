//! The first lines: the server, totals, and the model that is shown.

use std::time::Duration;

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use crate::output::{size, time};
use crate::top::state::TopState;

pub(super) fn lines(state: &TopState, now: Duration, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![first(state, now, width)];
    if let Some((since, reason)) = &state.trouble {
        let silent = time(now.saturating_sub(*since).as_secs_f64());
        let text = format!("no answer for {silent}, asking again: {reason}");
        lines.push(Line::from(text.red().bold()));
    }
    match state.model() {
        Some(_) => lines.push(models(state)),
        None if state.answered.is_some() => lines.push(Line::from("no model is open".dim())),
        None => {}
    }
    lines
}

fn first(state: &TopState, now: Duration, width: usize) -> Line<'static> {
    let left = format!("weightcast top  {}", state.server);
    let right = match &state.answered {
        None => "not heard of yet".to_owned(),
        Some((at, status)) => {
            let rates = status.models.iter().flat_map(|model| &model.replicas);
            let rates = rates.filter_map(|replica| replica.reading.as_ref()?.bytes_per_s);
            let reading = match rates.fold(0u64, u64::saturating_add) {
                0 => String::new(),
                rate => format!("{}/s  ", size(rate)),
            };
            let age = match state.paused {
                true => "paused".to_owned(),
                false => format!("{} ago", time(now.saturating_sub(*at).as_secs_f64())),
            };
            format!("{reading}{} sessions  term {}  {age}", status.sessions, status.term)
        }
    };
    let gap = width.saturating_sub(left.chars().count() + right.chars().count()).max(2);
    Line::from(vec![left.bold(), " ".repeat(gap).into(), right.into()])
}

/// The names of the models, with the shown model reversed, and what is known of that model.
fn models(state: &TopState) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = vec!["model ".into()];
    for (index, model) in state.models().iter().enumerate() {
        let name = format!(" {} ", model.name);
        spans.push(if index == state.model_index() { name.reversed() } else { name.into() });
    }
    if let Some(model) = state.model() {
        let retain =
            if model.retain > 0 { format!("  retain {}", model.retain) } else { String::new() };
        spans.push(format!("  epoch {}  revision {}{retain}", model.epoch, model.revision).dim());
    }
    Line::from(spans)
}
