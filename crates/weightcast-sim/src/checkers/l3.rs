//! L3: a group that gives its copy up has no reader once the drain deadline has passed.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq, Span, Time};

use super::{Checker, Fact};
use crate::books::retained::{is_offload, is_seed};

pub(super) struct BoundedDrain {
    deadline: Span,
    /// Since when copies are being given up.
    since: BTreeMap<Drain, Time>,
    /// Drains that had a reader after their deadline, and when that was first seen. The checker
    /// complains only if the reader is still there later: a server that was suspended handles its
    /// timers among the messages that came meanwhile.
    late: BTreeMap<Drain, Time>,
}

/// One drain: its group, its call, and the sources that the group reads meanwhile. An update that
/// loses a source keeps its copy. If the update is given other sources in the same event, a new
/// drain begins, although the books never show the copy in between.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Drain {
    group: Incarnation,
    seq: Option<OpSeq>,
    sources: BTreeSet<Incarnation>,
}

impl BoundedDrain {
    pub(super) fn new(deadline: Span) -> Self {
        Self { deadline, since: BTreeMap::new(), late: BTreeMap::new() }
    }

    fn follow(&mut self, now: Time, books: &Snapshot) {
        let drains: Vec<Drain> = books.models.values().flat_map(drains).collect();
        self.since.retain(|drain, _| drains.contains(drain));
        self.late.retain(|drain, _| drains.contains(drain));
        for drain in drains {
            self.since.entry(drain).or_insert(now);
        }
    }

    fn is_late(&mut self, now: Time, model: &ModelSnapshot, drain: &Drain) -> bool {
        let read = model.edges.iter().any(|edge| edge.source_life == drain.group);
        if now <= self.since[drain] + self.deadline || !read {
            self.late.remove(drain);
            return false;
        }
        *self.late.entry(drain.clone()).or_insert(now) < now
    }
}

impl Checker for BoundedDrain {
    fn name(&self) -> &'static str {
        "L3"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(books) = fact else { return None };
        self.follow(now, books);
        books.models.values().find_map(|model| {
            let drain = drains(model).find(|drain| self.is_late(now, model, drain))?;
            let millis = (now - self.since[&drain]).0 / 1_000_000;
            let edge = model.edges.iter().find(|edge| edge.source_life == drain.group)?;
            let (reader, source) = (&edge.reader, &edge.source);
            Some(format!("{reader} still reads {source}, which gave up its copy {millis} ms ago"))
        })
    }
}

fn drains(model: &ModelSnapshot) -> impl Iterator<Item = Drain> + '_ {
    model.replicas.iter().filter(|replica| gives_up(replica)).map(|replica| {
        let group = replica.incarnation;
        let seq = replica.pending.as_ref().map(|pending| pending.seq);
        let reads = model.edges.iter().filter(|edge| edge.reader_life == group);
        Drain { group, seq, sources: reads.map(|edge| edge.source_life).collect() }
    })
}

/// Whether the time of a replica's readers runs. An offload or seed replica that was released
/// serves until its process hears that it may close; only then does the time begin.
fn gives_up(replica: &ReplicaSnapshot) -> bool {
    match replica.state {
        ReplicaState::Closing => true,
        ReplicaState::Draining => !is_offload(replica) && !is_seed(replica),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::books::snapshots::{books, edge, replica};

    /// Group 1 gives its copy up for what its sources have; group 3 reads from it.
    fn says(checker: &mut BoundedDrain, now: u64, sources: &[u64]) -> bool {
        let mut edges = vec![edge(3, 1)];
        edges.extend(sources.iter().map(|source| edge(1, *source)));
        let mut giver = replica(1);
        giver.state = ReplicaState::Draining;
        let books = Rc::new(books(vec![giver], edges));
        checker.observe(Time(now), &Fact::Books(&books)).is_some()
    }

    #[test]
    fn readers_leave_within_the_drain_deadline_of_the_sources_it_has() {
        for (before, after, late) in [
            (vec![4, 5], vec![4, 5], true),
            (vec![4, 5], vec![5, 4], true),
            (vec![4, 5], vec![4], false),
            (vec![4, 5], vec![4, 6], false),
            (vec![4], vec![4, 5], false),
            (vec![], vec![], true),
        ] {
            let mut checker = BoundedDrain::new(Span(10));
            assert!(!says(&mut checker, 1, &before));
            assert!(!says(&mut checker, 11, &after), "the deadline has not passed");
            assert!(!says(&mut checker, 12, &after), "the server may find its timer late");
            assert_eq!(says(&mut checker, 13, &after), late, "{before:?}, {after:?}");
        }
    }
}
