//! What must hold in every state of a target.

use std::collections::BTreeMap;

use crate::push::report::TargetState;
use crate::push::target::PushTarget;
use crate::violation::Violation;

impl PushTarget {
    /// Looks whether the machine is in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        let mut writers = BTreeMap::new();
        let open = self.grants.values();
        let pairs = open.flat_map(|grant| grant.parcels.iter().map(move |p| (*p, grant.sender)));
        let alone = pairs
            .filter(|(parcel, _)| !self.written.contains_key(parcel))
            .all(|(parcel, sender)| *writers.entry(parcel).or_insert(sender) == sender);
        let present = self.grants.values().all(|grant| grant.generation == self.generation);
        let whole = self.routes.keys().all(|parcel| self.written.contains_key(parcel));
        let complete = matches!(self.state, TargetState::Verifying | TargetState::Ready);
        let rules = [
            ("P2", self.grants.is_empty() || self.state == TargetState::Filling, "an open grant"),
            ("P3", alone, "two senders may write one parcel"),
            ("P3", present, "a grant of an earlier generation"),
            ("P1", !complete || whole, "parcels are missing"),
            ("P5", !self.is_filled() || self.until.is_some(), "no end of what is being filled"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            None => Ok(()),
            Some((invariant, _, rule)) => {
                let detail = format!("{rule}: {} is {}", self.id, self.state.name());
                Err(Violation { invariant, detail })
            }
        }
    }
}
