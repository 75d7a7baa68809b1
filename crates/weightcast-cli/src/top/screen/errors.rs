//! What went wrong in the last minutes, and when.

use std::time::Duration;

use ratatui::style::Stylize;
use ratatui::text::Line;

use super::panel::Panel;
use crate::output::time;
use crate::top::state::{SHOWN, TopState};

pub(super) fn panel(state: &TopState, now: Duration) -> Panel {
    let mut rows: Vec<Line<'static>> = state
        .incidents
        .iter()
        .map(|incident| {
            let ago = time(now.saturating_sub(incident.at).as_secs_f64());
            Line::from(vec![format!("  {ago:>12} ago  ").dim(), incident.what.clone().red()])
        })
        .collect();
    if rows.is_empty() {
        rows.push(Line::from("  none"));
    }
    let title = format!("errors of the last {} minutes", SHOWN.as_secs() / 60);
    Panel { title, columns: None, rows }
}
