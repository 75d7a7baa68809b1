//! Finds the coverage points of failover: which server acts in which term, and what came over.

use std::collections::BTreeMap;
use std::rc::Rc;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq, Term};

use crate::books::retained::is_offload;
use crate::checkers::{Fact, Who};
use crate::sights::coverage::{Point, Points};

/// What must be remembered to recognise a point.
#[derive(Debug, Default)]
pub(crate) struct FailoverSights {
    /// The last books of each term.
    books: BTreeMap<Term, Rc<Snapshot>>,
    /// The term in which each shard last made each call.
    calls: BTreeMap<(Incarnation, u32, OpSeq), Term>,
}

impl FailoverSights {
    pub(crate) fn observe(&mut self, fact: &Fact<'_>, points: &mut Points) {
        match fact {
            Fact::Books(after) if after.term > Term(0) => self.books(after, points),
            Fact::Heard { who, term, message: ClientMessage::Call { seq, .. } } => {
                self.called(who, *term, *seq, points);
            }
            Fact::Said { message: ServerMessage::Superseded, .. } => {
                points.insert(Point::SupersededRefused);
            }
            Fact::Said { message: ServerMessage::Refused { error, retry: true }, .. }
                if error.to_string().contains("have come over") =>
            {
                points.insert(Point::WindowHeldRun);
            }
            _ => {}
        }
    }

    fn called(&mut self, who: &Who, term: Term, seq: OpSeq, points: &mut Points) {
        let Some(incarnation) = who.incarnation.filter(|_| term > Term(0)) else { return };
        let before = self.calls.insert((incarnation, who.shard, seq), term);
        if before.is_some_and(|before| before < term) {
            points.insert(Point::CallCameOver);
        }
    }

    fn books(&mut self, after: &Rc<Snapshot>, points: &mut Points) {
        if after.counters.held_back > 0 {
            points.insert(Point::WindowHeldUnpublish);
        }
        let Some(before) = self.books.insert(after.term, Rc::clone(after)) else {
            return self.took_over(after.term, points);
        };
        let later = self.books.range(after.term.next()..).any(|(_, books)| books.sessions > 0);
        if later && after.sessions > 0 {
            points.insert(Point::TwoServersActed);
        }
        for (name, model) in &after.models {
            if let Some(before) = before.models.get(name) {
                came_over(before, model, points);
            }
        }
    }

    /// The first books of a term.
    fn took_over(&self, term: Term, points: &mut Points) {
        let Some((old, lost)) = self.books.range(..term).next_back() else { return };
        let same = old.server() == term.server();
        points.insert(if same { Point::ServerRestarted } else { Point::BackupTookOver });
        let replicas = lost.models.values().flat_map(|model| &model.replicas);
        for replica in replicas {
            if replica.state == ReplicaState::Draining {
                points.insert(Point::LostWhileDraining);
            }
            if is_offload(replica) && is_being_filled(replica) {
                points.insert(Point::LostWhileOffloading);
            }
        }
    }
}

/// Whether a replica has joined and is not sealed yet.
fn is_being_filled(replica: &ReplicaSnapshot) -> bool {
    use ReplicaState::{Empty, Opening, Published};
    [Opening, Empty, Published].contains(&replica.state)
}

/// Looks at what became of the groups that were still to come over.
fn came_over(before: &ModelSnapshot, after: &ModelSnapshot, points: &mut Points) {
    let recovering = before.replicas.iter().filter(|r| r.state == ReplicaState::Recovering);
    for old in recovering {
        let new = after.replicas.iter().find(|replica| replica.incarnation == old.incarnation);
        match new.map(|new| new.state) {
            Some(ReplicaState::Sealed | ReplicaState::Published) => {
                points.insert(Point::CopyCameOver);
            }
            Some(ReplicaState::Broken) => {
                points.insert(Point::RecoveryBroken);
            }
            _ => {}
        }
    }
}
