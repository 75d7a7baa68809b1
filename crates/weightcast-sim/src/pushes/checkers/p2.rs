//! P2: nothing counts, and nothing is written, once its grant is closed; and no grant is open over memory that is compared,
//! served, or given away.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::push::TargetId;

use crate::pushes::checkers::{PushChecker, PushFact};

#[derive(Default)]
pub(super) struct ClosedCounts {
    open: BTreeMap<TargetId, BTreeSet<u64>>,
}

impl ClosedCounts {
    fn is_open(&self, target: TargetId, grant: u64) -> bool {
        self.open.get(&target).is_some_and(|open| open.contains(&grant))
    }

    /// What is wrong if a target has grants open while it does this.
    fn none(&self, target: TargetId, does: &str) -> Option<String> {
        let open = self.open.get(&target).filter(|open| !open.is_empty())?;
        Some(format!("{target} {does}, and has grants {open:?} open"))
    }
}

impl PushChecker for ClosedCounts {
    fn name(&self) -> &'static str {
        "P2"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        match fact {
            PushFact::Opened { target, grant } => {
                self.open.entry(*target).or_default().insert(grant.number);
            }
            PushFact::Closed { target, grant } => {
                self.open.entry(*target).or_default().remove(grant);
            }
            PushFact::Died { target } => {
                self.open.remove(target);
            }
            PushFact::Compares { target } => return self.none(*target, "compares its memory"),
            PushFact::Served { target, .. } => return self.none(*target, "serves"),
            PushFact::Slept { target } => return self.none(*target, "gives its memory away"),
            PushFact::Wrote { write } if !self.is_open(write.target, write.grant) => {
                let (target, grant, sender) = (write.target, write.grant, write.sender);
                return Some(format!("{sender} writes at {target} under grant {grant}, closed"));
            }
            PushFact::Counted { target, grant, parcel } if !self.is_open(*target, *grant) => {
                return Some(format!("{target} counts parcel {parcel} of grant {grant}, closed"));
            }
            _ => {}
        }
        None
    }
}
