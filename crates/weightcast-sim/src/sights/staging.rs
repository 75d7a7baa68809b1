//! Finds the coverage points of staged updates.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq};

use crate::checkers::Fact;
use crate::sights::coverage::{Point, Points};

/// What must be remembered to recognise a point.
#[derive(Debug, Default)]
pub(crate) struct StagingSights {
    /// Staged updates that have a source, by the group's life.
    staged: BTreeMap<Incarnation, OpSeq>,
    /// Replicas that held one version while they read another.
    reading: BTreeSet<Incarnation>,
    books: Option<Rc<Snapshot>>,
}

impl StagingSights {
    pub(crate) fn observe(&mut self, fact: &Fact<'_>, points: &mut Points) {
        match fact {
            Fact::Said { who, message, .. } => {
                if let Some(incarnation) = who.incarnation {
                    self.said(incarnation, message, points);
                }
            }
            Fact::Books(after) => self.books(after, points),
            _ => {}
        }
    }

    fn said(&mut self, group: Incarnation, message: &ServerMessage, points: &mut Points) {
        match message {
            ServerMessage::Assigned { seq, attempt, since, assignment } if assignment.staged => {
                self.staged.insert(group, *seq);
                if attempt > since {
                    points.insert(Point::StagedResumed);
                }
            }
            ServerMessage::Answered { seq, result: Ok(Answer::Committed { .. }) }
                if self.staged.get(&group) == Some(seq) =>
            {
                points.insert(Point::StagedCommitted);
            }
            ServerMessage::Answered { seq, result: Err(_) }
                if self.staged.get(&group) == Some(seq) && self.holds(group) =>
            {
                points.insert(Point::StagedKept);
            }
            _ => {}
        }
    }

    /// Whether the group held a version after the last event.
    fn holds(&self, group: Incarnation) -> bool {
        let models = self.books.iter().flat_map(|books| books.models.values());
        let mut replicas = models.flat_map(|model| &model.replicas);
        replicas.any(|replica| replica.incarnation == group && replica.version.is_some())
    }

    fn books(&mut self, after: &Rc<Snapshot>, points: &mut Points) {
        let before = self.books.replace(Rc::clone(after));
        for (name, model) in &after.models {
            self.model(model, points);
            let old = before.as_ref().and_then(|before| before.models.get(name));
            for replica in &model.replicas {
                let was = old.and_then(|old| {
                    old.replicas.iter().find(|r| r.incarnation == replica.incarnation)
                });
                if was.is_some_and(|was| was.state == ReplicaState::Installing)
                    && replica.state == ReplicaState::Broken
                {
                    points.insert(Point::StagedLostInstalling);
                }
            }
        }
    }

    fn model(&mut self, model: &ModelSnapshot, points: &mut Points) {
        for replica in &model.replicas {
            let own = replica.incarnation;
            let reads = model.edges.iter().any(|edge| edge.reader_life == own);
            let read = model.edges.iter().any(|edge| edge.source_life == own);
            match replica.state {
                ReplicaState::Sealed | ReplicaState::Published if reads => {
                    self.reading.insert(own);
                    if read {
                        points.insert(Point::StagedReadMeanwhile);
                    }
                }
                ReplicaState::Draining if !reads && read && self.reading.contains(&own) => {
                    points.insert(Point::StagedDrained);
                }
                ReplicaState::Draining => {}
                _ => drop(self.reading.remove(&own)),
            }
        }
    }
}
