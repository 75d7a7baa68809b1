//! A5: for two leases after a server took over, what it does not know may exist: it lets nobody give
//! up the only copy of a version that it knows.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact};

pub(super) struct RecoveryWindow {
    lease: Span,
    /// Since when it may know less than there is; set by what comes from an earlier term.
    since: Option<Time>,
    /// What each group held last.
    held: BTreeMap<Incarnation, Version>,
    books: Option<Rc<Snapshot>>,
    /// Groups that have just been told that they may change their memory.
    unpublished: BTreeSet<Incarnation>,
}

impl RecoveryWindow {
    pub(super) fn new(lease: Span) -> Self {
        Self {
            lease,
            since: None,
            held: BTreeMap::new(),
            books: None,
            unpublished: BTreeSet::new(),
        }
    }
}

impl Checker for RecoveryWindow {
    fn name(&self) -> &'static str {
        "A5"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Books(books) => {
                let wrong = self.given_up(now, books);
                if books.recovers && self.since.is_none() {
                    self.since = Some(now);
                }
                let replicas = books.models.values().flat_map(|model| &model.replicas);
                for replica in replicas {
                    match replica.version {
                        Some(version) if replica.state != ReplicaState::Fenced => {
                            self.held.insert(replica.incarnation, version);
                        }
                        Some(_) => drop(self.held.remove(&replica.incarnation)),
                        None => {}
                    }
                }
                self.books = Some(Rc::clone(books));
                wrong
            }
            Fact::Said { who, message: ServerMessage::Answered { result, .. }, .. }
                if *result == Ok(Answer::Unpublished) =>
            {
                self.unpublished.extend(who.incarnation);
                None
            }
            // Perhaps in the event in which it is given up: what was refused is no copy.
            Fact::Said { who, message: ServerMessage::Fenced { .. }, .. } => {
                who.incarnation.and_then(|group| self.held.remove(&group));
                None
            }
            _ => None,
        }
    }
}

impl RecoveryWindow {
    /// What was given up in the event that ends with these books, and nobody else has.
    fn given_up(&mut self, now: Time, after: &Rc<Snapshot>) -> Option<String> {
        let unpublished = std::mem::take(&mut self.unpublished);
        let since = self.since.filter(|since| now < *since + self.lease.scaled(2, 1))?;
        let before = self.books.as_ref()?;
        unpublished.into_iter().find_map(|own| {
            let version = self.held.get(&own)?;
            let copied = |model: &ModelSnapshot| model.versions.contains_key(version);
            // Within the event, the order is not seen.
            let known = [before, after].iter().any(|books| books.models.values().any(copied));
            let late = (now - since).0 / 1_000_000;
            (!known)
                .then(|| format!("{own} gave up {version}, {late} ms after the server took over"))
        })
    }
}
