//! D2: the read graph is acyclic, in the server's books and in what is really served. A reader goes
//! on at its old source until it hears of the next one, or of the end of its call. So a circle may
//! close in what is served, but only for as long as a message can be lost.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::{Incarnation, Span, Time};

use super::{Checker, Fact};

type Graph = BTreeMap<Incarnation, Vec<Incarnation>>;

pub(super) struct Acyclic;

impl Checker for Acyclic {
    fn name(&self) -> &'static str {
        "D2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let mut books = Graph::new();
            for edge in &model.edges {
                books.entry(edge.reader_life).or_default().push(edge.source_life);
            }
            let reader = books.keys().copied().find(|reader| loops(&books, *reader))?;
            Some(format!("group {reader} reads from itself"))
        })
    }
}

pub(super) struct AcyclicReads {
    /// The longest time for which a session may read without having heard of its next source. It is
    /// the lease, or the second that a session waits after a call's deadline, by a slow clock.
    unheard: Span,
    /// Since when each process has been served by a source that reads, directly or through others,
    /// from the process itself.
    circles: BTreeMap<usize, Time>,
}

impl AcyclicReads {
    pub(super) fn new(lease: Span) -> Self {
        let unheard = lease.max(Span::from_secs(1)).scaled(12, 10);
        Self { unheard, circles: BTreeMap::new() }
    }
}

impl Checker for AcyclicReads {
    fn name(&self) -> &'static str {
        "D2"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Served { reader, version, chunk, in_circle, .. } = fact else { return None };
        if !in_circle {
            self.circles.remove(reader);
            return None;
        }
        let lasts = now - *self.circles.entry(*reader).or_insert(now);
        (lasts > self.unheard).then(|| {
            let millis = lasts.0 / 1_000_000;
            format!("chunk {chunk} of {version} is read in a circle, for {millis} ms now")
        })
    }
}

fn loops(graph: &Graph, reader: Incarnation) -> bool {
    let above = |group: Incarnation| graph.get(&group).into_iter().flatten().copied();
    let mut next: Vec<Incarnation> = above(reader).collect();
    let mut seen = BTreeSet::new();
    while let Some(group) = next.pop() {
        if group == reader {
            return true;
        }
        if seen.insert(group) {
            next.extend(above(group));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::snapshots::{VERSION, books, edge};

    #[test]
    fn the_books_hold_no_circle() {
        for (edges, circle) in [
            (vec![(1, 2), (2, 3)], false),
            (vec![(1, 2), (1, 3), (2, 3)], false),
            (vec![(1, 2), (2, 3), (3, 1)], true),
            (vec![(1, 4), (1, 2), (2, 1)], true),
            (vec![(1, 1)], true),
        ] {
            let edges_of: Vec<_> = edges.iter().map(|(from, to)| edge(*from, *to)).collect();
            let books = std::rc::Rc::new(books(vec![], edges_of));
            let found = Acyclic.observe(Time(0), &Fact::Books(&books)).is_some();
            assert_eq!(found, circle, "{edges:?}");
        }
    }

    #[test]
    fn what_is_served_goes_in_a_circle_no_longer_than_a_word_may_be_lost() {
        // Lease, and when which process reads in a circle; at the last one the circle has lasted too long.
        let second = 1_000_000_000;
        for (lease, reads, too_long) in [
            (10 * second, vec![(0, 1, true), (12 * second, 1, true)], false),
            (10 * second, vec![(0, 1, true), (12 * second + 1, 1, true)], true),
            (second / 2, vec![(0, 1, true), (12 * second / 10, 1, true)], false),
            (second / 2, vec![(0, 1, true), (12 * second / 10 + 1, 1, true)], true),
            (second, vec![(0, 1, true), (9, 1, false), (2 * second, 1, true)], false),
            (second, vec![(0, 1, true), (9, 2, false), (2 * second, 1, true)], true),
            (second, vec![(0, 1, true), (9, 2, true), (2 * second, 3, true)], false),
        ] {
            let mut checker = AcyclicReads::new(Span(lease));
            let (last, earlier) = reads.split_last().unwrap();
            assert!(earlier.iter().all(|read| !circles(&mut checker, read)), "{reads:?}");
            assert_eq!(circles(&mut checker, last), too_long, "{reads:?}");
        }
    }

    fn circles(checker: &mut AcyclicReads, read: &(u64, usize, bool)) -> bool {
        let (now, reader, in_circle) = *read;
        let (version, held, chunk, tag, there) = (VERSION, None, 0, 0, true);
        let fact = Fact::Served { reader, version, held, chunk, tag, there, in_circle };
        checker.observe(Time(now), &fact).is_some()
    }
}
