//! Finds the coverage points of striping.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ClientMessage, ReadFailure, ServerMessage};
use weightcast_protocol::{Attempt, Incarnation, OpSeq};

use crate::checkers::Fact;
use crate::sights::coverage::{Point, Points};

/// A call of a group.
type GroupCall = (Incarnation, OpSeq);

/// What must be remembered to recognise a point.
#[derive(Debug, Default)]
pub(crate) struct StripingSights {
    /// The last assignment of each transfer, and how many sources it named.
    assigned: BTreeMap<GroupCall, (Attempt, usize)>,
    /// Reads from several sources in which one source has failed.
    failed: BTreeSet<(GroupCall, Attempt)>,
}

impl StripingSights {
    pub(crate) fn observe(&mut self, fact: &Fact<'_>, points: &mut Points) {
        match fact {
            Fact::Heard {
                who,
                message: ClientMessage::ReadFailed { seq, attempt, failure },
                ..
            } => {
                let Some(group) = who.incarnation else { return };
                let place = (group, *seq);
                let striped = self.before(place, *attempt);
                if striped && matches!(failure, ReadFailure::Source { .. }) {
                    self.failed.insert((place, *attempt));
                }
            }
            Fact::Said { who, message, .. } => {
                if let Some(group) = who.incarnation {
                    self.said(group, message, points);
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, group: Incarnation, message: &ServerMessage, points: &mut Points) {
        match message {
            ServerMessage::Assigned { seq, attempt, since, assignment } => {
                let (place, last) = ((group, *seq), Attempt(attempt.0.saturating_sub(1)));
                if self.failed.contains(&(place, last)) && since < attempt {
                    points.insert(Point::StripeLost);
                }
                let anew = since == attempt && assignment.stripes() == 1;
                if anew && self.before(place, last) {
                    points.insert(Point::StripedReadAgain);
                }
                self.assigned.insert(place, (*attempt, assignment.stripes()));
            }
            ServerMessage::Answered { seq, result: Ok(Answer::Committed { .. }) }
                if self.assigned.get(&(group, *seq)).is_some_and(|(_, stripes)| *stripes > 1) =>
            {
                points.insert(Point::StripedCommitted);
            }
            _ => {}
        }
    }

    /// Whether `attempt` is the transfer's last assignment, and named several sources.
    fn before(&self, place: GroupCall, attempt: Attempt) -> bool {
        self.assigned.get(&place).is_some_and(|(last, stripes)| *last == attempt && *stripes > 1)
    }
}
