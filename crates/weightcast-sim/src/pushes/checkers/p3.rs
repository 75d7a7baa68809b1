//! P3: whatever is written under a grant is of its one sender, of the generation that the memory has then, and of the grant's
//! version; and no two senders may write one parcel at a time.

use std::collections::BTreeMap;

use weightcast_protocol::Generation;
use weightcast_protocol::push::{PushGrant, TargetId};

use crate::pushes::checkers::{PushChecker, PushFact};
use crate::pushes::parts::queue::SimWrite;
use crate::pushes::parts::target::SPOILED;

#[derive(Default)]
pub(super) struct OneSender {
    open: BTreeMap<(TargetId, u64), PushGrant>,
    /// The generation of each target's memory: that of its newest grant.
    generations: BTreeMap<TargetId, Generation>,
}

impl OneSender {
    fn opened(&mut self, target: TargetId, grant: &PushGrant) -> Option<String> {
        let other = |open: &&PushGrant| {
            open.target == target
                && open.sender != grant.sender
                && !open.parcels.is_disjoint(&grant.parcels)
        };
        let other = self.open.values().find(other).map(|open| (open.number, open.sender));
        self.open.insert((target, grant.number), grant.clone());
        self.generations.insert(target, grant.generation);
        let (number, sender) = other?;
        let (new, own) = (grant.number, grant.sender);
        Some(format!("{own} gets grant {new} at {target}, and {sender} has grant {number} open"))
    }

    fn wrote(&self, write: &SimWrite) -> Option<String> {
        let SimWrite { target, sender, generation, content, .. } = *write;
        let grant = self.open.get(&(target, write.grant))?;
        let now = self.generations.get(&target).copied().unwrap_or_default();
        if grant.sender != sender || generation != now || !is_of(content, grant) {
            let (own, version) = (grant.sender, grant.version.number);
            return Some(format!(
                "{sender} writes {content} in generation {generation} at {target}, which has \
                 generation {now} and lets {own} write {version}"
            ));
        }
        None
    }
}

/// Whether bytes are of the version that is to be written. A flipped bit is of no version; P1 is about that.
fn is_of(content: u64, grant: &PushGrant) -> bool {
    content == grant.version.number || content == SPOILED
}

impl PushChecker for OneSender {
    fn name(&self) -> &'static str {
        "P3"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        match fact {
            PushFact::Opened { target, grant } => return self.opened(*target, grant),
            PushFact::Closed { target, grant } => {
                self.open.remove(&(*target, *grant));
            }
            PushFact::Died { target } => self.open.retain(|(of, _), _| of != target),
            PushFact::Wrote { write } => return self.wrote(write),
            _ => {}
        }
        None
    }
}
