//! D2: nobody reads, directly or through others, from itself: in the server's books, and in what is
//! really served. A reader may have been told of another source than the books say; what it still
//! reads there must not come from itself either.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::{Incarnation, Time};

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

pub(super) struct AcyclicReads;

impl Checker for AcyclicReads {
    fn name(&self) -> &'static str {
        "D2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Served { version, chunk, in_circle: true, .. } => {
                Some(format!("chunk {chunk} of {version} is read in a circle"))
            }
            _ => None,
        }
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
