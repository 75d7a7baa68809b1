//! Panels of the screen: a title, and rows below it. They share the height.

use ratatui::style::Stylize;
use ratatui::text::Line;

/// A part of the screen, with a title.
pub(super) struct Panel {
    pub(super) title: String,
    /// The heading of the columns, if there is one.
    pub(super) columns: Option<Line<'static>>,
    pub(super) rows: Vec<Line<'static>>,
}

/// Fewer lines than these are for rows alone.
const ROOM_FOR_COLUMNS: usize = 4;

/// The panels, one below the other, in so many lines. A panel that gets too few says how many rows it lacks.
pub(super) fn fit(panels: Vec<Panel>, height: usize, width: usize) -> Vec<Line<'static>> {
    let wanted = panels.iter().map(|of| 1 + usize::from(of.columns.is_some()) + of.rows.len());
    let wanted: Vec<usize> = wanted.collect();
    let shares = shares(height, &wanted);
    panels.into_iter().zip(shares).flat_map(|(panel, share)| shown(panel, share, width)).collect()
}

fn shown(panel: Panel, share: usize, width: usize) -> Vec<Line<'static>> {
    let Panel { title, columns, mut rows } = panel;
    let columns = columns.filter(|_| share >= ROOM_FOR_COLUMNS);
    let room = share.saturating_sub(1 + usize::from(columns.is_some()));
    if rows.len() > room {
        let hidden = rows.len() - room.saturating_sub(1);
        rows.truncate(room.saturating_sub(1));
        rows.push(Line::from(format!("  ... {hidden} more").dim()));
    }
    let rule = "-".repeat(width.saturating_sub(title.chars().count() + 4));
    let title = Line::from(vec!["-- ".dim(), title.bold(), " ".into(), rule.dim()]);
    std::iter::once(title).chain(columns).chain(rows).take(share).collect()
}

/// How many lines each panel gets: as many as it wants, or an equal share of what the smaller panels leave.
fn shares(height: usize, wanted: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|index| wanted[*index]);
    let (mut left, mut given) = (height, vec![0; wanted.len()]);
    for (served, index) in order.iter().enumerate() {
        given[*index] = wanted[*index].min(left / (wanted.len() - served));
        left -= given[*index];
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_little_gets_it_and_the_others_share() {
        for (height, wanted, given) in [
            (10, vec![2, 3, 4], vec![2, 3, 4]),
            (9, vec![2, 3, 4], vec![2, 3, 4]),
            (8, vec![2, 3, 4], vec![2, 3, 3]),
            (10, vec![20, 2, 30], vec![4, 2, 4]),
            (11, vec![20, 2, 30], vec![4, 2, 5]),
            (2, vec![5, 5, 5], vec![0, 1, 1]),
            (0, vec![5, 5], vec![0, 0]),
            (7, vec![], vec![]),
        ] {
            assert_eq!(shares(height, &wanted), given, "{height} {wanted:?}");
        }
    }

    #[test]
    fn a_block_says_how_many_rows_there_is_no_room_for() {
        let of = |columns: Option<&'static str>, share| -> Vec<String> {
            let rows = ["a", "b", "c"].map(Line::from).into();
            let panel = Panel { title: "t".to_owned(), columns: columns.map(Line::from), rows };
            shown(panel, share, 9).iter().map(ToString::to_string).collect()
        };
        let text = |share| of(None, share);
        assert_eq!(text(5), ["-- t ----", "a", "b", "c"]);
        assert_eq!(text(4), ["-- t ----", "a", "b", "c"]);
        assert_eq!(text(3), ["-- t ----", "a", "  ... 2 more"]);
        assert_eq!(text(2), ["-- t ----", "  ... 3 more"]);
        assert_eq!(text(1), ["-- t ----"]);
        assert_eq!(text(0), [""; 0]);
        let text = |share| of(Some("columns"), share);
        assert_eq!(text(6), ["-- t ----", "columns", "a", "b", "c"]);
        assert_eq!(text(4), ["-- t ----", "columns", "a", "  ... 2 more"]);
        assert_eq!(text(3), ["-- t ----", "a", "  ... 2 more"]);
    }
}
