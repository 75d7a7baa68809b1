//! What must hold in every state of a push.

use crate::push::driver::PushDriver;
use crate::violation::Violation;

impl PushDriver {
    /// Looks whether the machine is in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        let open = || self.targets.values().filter(|of| of.is_open());
        let owed = open().flat_map(|of| of.unwritten().map(|(parcel, _)| of.bytes(parcel)));
        let owed = owed.fold(0u64, |sum, bytes| sum.saturating_add(bytes));
        let routed = open().all(|of| of.routes.len() == of.parcels.len());
        let held = open().all(|of| {
            let mut routes = of.routes.iter();
            routes.all(|(parcel, sender)| of.parcels[*parcel as usize].holders.contains(sender))
        });
        let lost = open().flat_map(|of| of.unwritten()).all(|(_, s)| !self.lost.contains(&s));
        let rules = [
            ("P6", routed, "a parcel without a sender"),
            ("P3", held, "a parcel with a sender that does not hold it"),
            ("P6", lost, "a parcel waits for a sender that is lost"),
            ("P4", owed == self.loads.sum(), "loads that are not those of the routes"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            None => Ok(()),
            Some((invariant, _, rule)) => {
                Err(Violation { invariant, detail: format!("{rule}: push {}", self.config.push) })
            }
        }
    }
}
