//! S10: a listing is the state at one revision, and revisions never go back.

use std::collections::BTreeMap;
use std::sync::Arc;

use weightcast_protocol::message::{Answer, Listing, ServerMessage};
use weightcast_protocol::{Incarnation, OpSeq, Revision, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct Snapshots {
    listings: BTreeMap<Revision, Arc<Listing>>,
    seen: BTreeMap<Incarnation, BTreeMap<OpSeq, Revision>>,
}

impl Checker for Snapshots {
    fn name(&self) -> &'static str {
        "S10"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Said { who, message: ServerMessage::Answered { seq, result }, .. } = fact else {
            return None;
        };
        let Ok(Answer::Listed(listing)) = result else { return None };
        let known = self.listings.entry(listing.revision).or_insert_with(|| Arc::clone(listing));
        if known != listing {
            return Some(format!("two listings at revision {}", listing.revision));
        }
        let seen = self.seen.entry(who.incarnation?).or_default();
        seen.insert(*seq, listing.revision);
        let before = seen.range(..*seq).next_back();
        before
            .filter(|(_, earlier)| **earlier > listing.revision)
            .map(|(_, earlier)| format!("revision {} after {earlier}", listing.revision))
    }
}
