//! Which replica reads from which: a tree for each source that reads from no other.

use std::collections::{BTreeMap, BTreeSet};

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use weightcast::wire::{ModelStatus, ReadingStatus};

use super::panel::Panel;
use super::replicas::share;
use crate::output::size;

/// How deep a tree is drawn: what is below begins at the left again, for want of room on the line.
const DEPTH: usize = 32;

pub(super) fn panel(model: &ModelStatus) -> Panel {
    let mut rows = Tree::of(model).lines();
    if rows.is_empty() {
        rows.push(Line::from("  nobody reads"));
    }
    Panel { title: "who reads from whom".to_owned(), columns: None, rows }
}

/// Readers by their sources.
struct Tree<'a> {
    readers: BTreeMap<&'a str, BTreeSet<&'a str>>,
    reading: BTreeMap<&'a str, &'a ReadingStatus>,
}

/// A replica in the tree, and how its line begins.
struct Branch<'a> {
    name: &'a str,
    /// The text before the names of its readers.
    below: String,
    line: String,
    depth: usize,
}

impl<'a> Tree<'a> {
    fn of(model: &'a ModelStatus) -> Self {
        let mut readers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for edge in &model.readers {
            readers.entry(&edge.source).or_default().insert(&edge.reader);
        }
        let reading = model
            .replicas
            .iter()
            .filter_map(|replica| Some((replica.name.as_str(), replica.reading.as_ref()?)));
        Self { readers, reading: reading.collect() }
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let reads: BTreeSet<&str> = self.readers.values().flatten().copied().collect();
        // Two lives of one name may seem to read from each other. Any of the two can be the root then.
        let (inner, roots): (Vec<&str>, Vec<&str>) =
            self.readers.keys().partition(|source| reads.contains(*source));
        let (mut lines, mut drawn) = (Vec::new(), BTreeSet::new());
        for root in roots.into_iter().chain(inner) {
            if !drawn.contains(root) {
                self.draw(root, &mut lines, &mut drawn);
            }
        }
        lines
    }

    /// Draws a source with all below it. The readers of a replica are drawn where it stands first.
    fn draw(&self, root: &'a str, lines: &mut Vec<Line<'static>>, drawn: &mut BTreeSet<&'a str>) {
        let (line, below) = ("  ".to_owned(), "  ".to_owned());
        let mut next = vec![Branch { name: root, below, line, depth: 0 }];
        while let Some(Branch { name, below, line, depth }) = next.pop() {
            let below_here = depth < DEPTH;
            let readers = self.readers.get(name).filter(|_| below_here && drawn.insert(name));
            let readers: Vec<&str> = readers.into_iter().flatten().copied().collect();
            lines.push(self.line(line, name, !below_here));
            for (place, reader) in readers.iter().enumerate().rev() {
                let last = place + 1 == readers.len();
                let (corner, beside) = if last { ("`- ", "   ") } else { ("|- ", "|  ") };
                let (line, below) = (format!("{below}{corner}"), format!("{below}{beside}"));
                next.push(Branch { name: reader, below, line, depth: depth + 1 });
            }
        }
    }

    /// The line of a replica; of one whose readers are drawn apart, if it has any, `continued`.
    fn line(&self, start: String, name: &str, continued: bool) -> Line<'static> {
        let mut spans: Vec<Span<'static>> = vec![start.dim(), name.to_owned().into()];
        if let Some(reading) = self.reading.get(name) {
            let percent = share(reading.arrived_bytes, reading.total_bytes, 100);
            let rate =
                reading.bytes_per_s.map_or(String::new(), |rate| format!("  {}/s", size(rate)));
            spans.push(format!("  {percent} %{rate}").cyan());
        }
        if continued && self.readers.contains_key(name) {
            spans.push("  ... its readers further down".dim());
        }
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use weightcast::wire::{ReaderStatus, ReplicaStatus};

    use super::*;

    fn text(edges: &[(&str, &str)], replicas: Vec<ReplicaStatus>) -> Vec<String> {
        let edge = |(reader, source): &(&str, &str)| ReaderStatus {
            reader: (*reader).to_owned(),
            source: (*source).to_owned(),
            version: 7,
        };
        let readers = edges.iter().map(edge).collect();
        let model = ModelStatus { readers, replicas, ..ModelStatus::default() };
        panel(&model).rows.iter().map(|row| row.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn readers_stand_below_their_sources() {
        let edges = [("b", "t"), ("a", "t"), ("c", "a"), ("d", "a"), ("e", "d"), ("g", "f")];
        let reading = ReadingStatus {
            arrived_bytes: 999,
            total_bytes: 2_000,
            bytes_per_s: Some(1_500_000),
            ..ReadingStatus::default()
        };
        let name = "a".to_owned();
        let replica = ReplicaStatus { name, reading: Some(reading), ..ReplicaStatus::default() };
        let expected = [
            "  f",
            "  `- g",
            "  t",
            "  |- a  49 %  1.50 MB/s",
            "  |  |- c",
            "  |  `- d",
            "  |     `- e",
            "  `- b",
        ];
        assert_eq!(text(&edges, vec![replica]), expected);
        assert_eq!(text(&[], Vec::new()), ["  nobody reads"]);
    }

    #[test]
    fn a_reader_of_two_sources_stands_below_both_and_its_readers_once() {
        let edges = [("r", "s"), ("r", "t"), ("x", "r")];
        assert_eq!(text(&edges, Vec::new()), ["  s", "  `- r", "     `- x", "  t", "  `- r"]);
    }

    /// Two lives of one name may look like a circle.
    #[test]
    fn a_circle_ends() {
        let edges = [("a", "b"), ("b", "a"), ("c", "c")];
        let expected = ["  a", "  `- b", "     `- a", "  c", "  `- c"];
        assert_eq!(text(&edges, Vec::new()), expected);
    }

    #[test]
    fn a_long_chain_begins_at_the_left_again() {
        let names: Vec<String> = (0..40).map(|place| format!("r{place:02}")).collect();
        let edges: Vec<(&str, &str)> =
            names.windows(2).map(|pair| (pair[1].as_str(), pair[0].as_str())).collect();
        let rows = text(&edges, Vec::new());
        assert!(rows[DEPTH].ends_with("`- r32  ... its readers further down"), "{}", rows[DEPTH]);
        assert_eq!(rows[DEPTH + 1..DEPTH + 3], ["  r32", "  `- r33"]);
        assert_eq!(rows.len(), names.len() + 1);
    }
}
