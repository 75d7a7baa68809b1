//! D2: nobody reads from itself through others: neither in the server's books, nor, for longer than
//! a message takes, in what the readers have been told.

use std::collections::BTreeMap;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::{ModelSnapshot, Snapshot};
use weightcast_protocol::{Incarnation, Time};

use super::{Checker, Fact};

/// Edges from readers to sources.
type Graph = BTreeMap<Incarnation, Incarnation>;

#[derive(Default)]
pub(super) struct Acyclic {
    /// What each group was told last, by the name of the source.
    told: BTreeMap<Incarnation, String>,
}

impl Checker for Acyclic {
    fn name(&self) -> &'static str {
        "D2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said { who, message: ServerMessage::Assigned { assignment, .. }, .. } => {
                self.told.insert(who.incarnation?, assignment.replica.clone());
                None
            }
            Fact::Said { who, message: ServerMessage::Answered { .. }, .. } => {
                self.told.remove(&who.incarnation?);
                None
            }
            Fact::Books(snapshot) => self.check(snapshot),
            _ => None,
        }
    }
}

impl Acyclic {
    fn check(&self, snapshot: &Snapshot) -> Option<String> {
        snapshot.models.values().find_map(|model| {
            let books = model.edges.iter().map(|edge| (edge.reader_life, edge.source_life));
            let books: Graph = books.collect();
            let cycle = |graph: &Graph| graph.keys().copied().find(|reader| loops(graph, *reader));
            let told = self.live(model, &books);
            cycle(&books)
                .map(|reader| format!("group {reader} reads from itself"))
                .or_else(|| cycle(&told).map(|reader| format!("{reader} was told to read itself")))
        })
    }

    /// What live readers were told, by the lives that the books know; one that lost its source and
    /// has not been told of another reads nothing that counts.
    fn live(&self, model: &ModelSnapshot, books: &Graph) -> Graph {
        let life = |name: &String| {
            model.replicas.iter().rev().find(|r| r.name == *name).map(|r| r.incarnation)
        };
        let told = self.told.iter().filter(|(reader, _)| books.contains_key(reader));
        told.filter_map(|(reader, source)| Some((*reader, life(source)?))).collect()
    }
}

fn loops(graph: &Graph, reader: Incarnation) -> bool {
    let above = |group: &Incarnation| graph.get(group).copied();
    std::iter::successors(above(&reader), above).take(graph.len()).any(|group| group == reader)
}
