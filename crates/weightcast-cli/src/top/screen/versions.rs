//! The newest versions, and who holds them.

use ratatui::text::Line;
use weightcast::wire::ModelStatus;

use super::panel::Panel;

/// Versions that are shown: older ones are of little interest.
const SHOWN: usize = 4;

pub(super) fn panel(model: &ModelStatus, width: usize) -> Panel {
    let newest = model.versions.iter().rev();
    let mut rows: Vec<Line<'static>> = newest
        .take(SHOWN)
        .map(|version| {
            let start = format!("  {:<8} held by {:<4} ", version.version, version.replicas.len());
            let names = named(&version.replicas, width.saturating_sub(start.len()));
            Line::from(start + &names)
        })
        .collect();
    if rows.is_empty() {
        rows.push(Line::from("  none is held"));
    }
    let more = model.versions.len().saturating_sub(SHOWN);
    let title = match more {
        0 => "versions".to_owned(),
        more => format!("versions, and {more} older"),
    };
    Panel { title, columns: None, rows }
}

/// As many names as there is room for.
fn named(names: &[String], width: usize) -> String {
    let all = names.join(", ");
    if all.len() <= width {
        return all;
    }
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let more = format!(" ... {} more", names.len() - index);
        let separator = if index == 0 { "" } else { ", " };
        if text.len() + separator.len() + name.len() + more.len() > width {
            return text + &more;
        }
        text += separator;
        text += name;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_named_as_there_is_room_for() {
        let names = ["one", "two", "three"].map(str::to_owned);
        for (width, said) in [
            (15, "one, two, three"),
            (19, "one, two, three"),
            (14, "one ... 2 more"),
            (13, " ... 3 more"),
            (0, " ... 3 more"),
        ] {
            assert_eq!(named(&names, width), said, "{width}");
        }
        assert_eq!(named(&[], 9), "");
    }
}
