//! S10: a listing is the state at one revision, and revisions never go back.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use weightcast_protocol::message::{Answer, Listing, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, Snapshot};
use weightcast_protocol::{Incarnation, OpSeq, Revision, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct Snapshots {
    /// The first listing that a group was given for each revision of each model.
    listings: BTreeMap<(String, Revision), Arc<Listing>>,
    /// The model of each group. Revisions of different models are not comparable.
    models: BTreeMap<Incarnation, String>,
    seen: BTreeMap<Incarnation, BTreeMap<OpSeq, Revision>>,
    before: Option<Rc<Snapshot>>,
}

impl Checker for Snapshots {
    fn name(&self) -> &'static str {
        "S10"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said { who, message: ServerMessage::Answered { seq, result }, .. } => {
                let Ok(Answer::Listed(listing)) = result else { return None };
                self.listed(who.incarnation?, *seq, listing)
            }
            Fact::Books(books) => {
                let before = self.before.replace(Rc::clone(books));
                self.enter(books);
                books.models.iter().find_map(|(name, model)| {
                    let before = before.as_ref().and_then(|before| before.models.get(name));
                    self.books(name, before, model)
                })
            }
            _ => None,
        }
    }
}

impl Snapshots {
    fn enter(&mut self, books: &Snapshot) {
        for (name, model) in &books.models {
            for replica in &model.replicas {
                self.models.entry(replica.incarnation).or_insert_with(|| name.clone());
            }
        }
    }

    fn listed(&mut self, group: Incarnation, seq: OpSeq, listing: &Arc<Listing>) -> Option<String> {
        // A group is in the books before it makes a call.
        let about = (self.models.get(&group)?.clone(), listing.revision);
        let known = self.listings.entry(about).or_insert_with(|| Arc::clone(listing));
        if known != listing {
            return Some(format!("two listings at revision {}", listing.revision));
        }
        let seen = self.seen.entry(group).or_default();
        seen.insert(seq, listing.revision);
        let before = seen.range(..seq).next_back();
        before
            .filter(|(_, earlier)| **earlier > listing.revision)
            .map(|(_, earlier)| format!("revision {} after {earlier}", listing.revision))
    }

    /// The books agree with what was listed at their revision, and every change of the listing
    /// since the last books has a new revision.
    fn books(
        &self,
        name: &str,
        before: Option<&ModelSnapshot>,
        books: &ModelSnapshot,
    ) -> Option<String> {
        let revision = books.revision;
        if let Some(before) = before {
            if before.revision > revision {
                return Some(format!("revision {revision} after {}", before.revision));
            }
            if before.revision == revision && before.versions != books.versions {
                return Some(format!("two states at revision {revision}"));
            }
        }
        let listing = self.listings.get(&(name.to_owned(), revision))?;
        let said = listing.versions.iter().map(|(v, names)| (v, names.iter().collect::<Vec<_>>()));
        let is = books.versions.iter().map(|(v, names)| (v, names.iter().collect::<Vec<_>>()));
        (!said.eq(is))
            .then(|| format!("what was listed at revision {revision} is not in the books"))
    }
}

/// Revisions shown to one shard never go back, whichever servers show them.
#[derive(Default)]
pub(super) struct Onwards {
    shown: BTreeMap<(Incarnation, u32), Revision>,
}

impl Checker for Onwards {
    fn name(&self) -> &'static str {
        "S10"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Done { who, result: Ok(Answer::Listed(listing)), .. } = fact else {
            return None;
        };
        let revision = listing.revision;
        let shown = self.shown.entry((who.incarnation?, who.shard)).or_insert(revision);
        let before = std::mem::replace(shown, revision);
        (before > revision).then(|| format!("a shard was shown revision {revision} after {before}"))
    }
}
