//! Which grants are open: as few as the routes need, and none over a parcel for two senders.

use std::collections::{BTreeMap, BTreeSet};

use crate::Safeguard;
use crate::push::grant::PushGrant;
use crate::push::names::SenderId;
use crate::push::target::{PushTarget, TargetOutput};

impl PushTarget {
    /// Closes each grant of whose parcels one has another sender now.
    pub(super) fn close_moved(&mut self) {
        if !self.safeguards.on(Safeguard::MovedClosed) {
            return;
        }
        let moved = |grant: &PushGrant| {
            let to_other = |parcel: &&u32| self.routes.get(parcel) != Some(&grant.sender);
            let open = |parcel: &&u32| !self.written.contains_key(parcel);
            grant.parcels.iter().filter(open).any(|parcel| to_other(&parcel))
        };
        let close: Vec<u64> =
            self.grants.values().filter(|grant| moved(grant)).map(|grant| grant.number).collect();
        close.into_iter().for_each(|number| self.close(number));
    }

    /// Opens a grant for each sender that has parcels to write, and none for them yet.
    pub(super) fn open_missing(&mut self) {
        let mut missing: BTreeMap<SenderId, BTreeSet<u32>> = BTreeMap::new();
        for (parcel, sender) in &self.routes {
            let covers =
                |grant: &PushGrant| grant.sender == *sender && grant.parcels.contains(parcel);
            if !self.written.contains_key(parcel) && !self.grants.values().any(covers) {
                missing.entry(*sender).or_default().insert(*parcel);
            }
        }
        missing.into_iter().for_each(|(sender, parcels)| self.open(sender, parcels));
    }

    fn open(&mut self, sender: SenderId, parcels: BTreeSet<u32>) {
        let Some(version) = self.version else { return };
        self.granted += 1;
        let grant = PushGrant {
            push: self.heard.0,
            target: self.id,
            number: self.granted,
            generation: self.generation,
            sender,
            version,
            parcels,
        };
        self.grants.insert(grant.number, grant.clone());
        self.outputs.push_back(TargetOutput::Open(grant));
    }

    /// Closes all grants.
    pub(super) fn close_all(&mut self) {
        while let Some(number) = self.grants.keys().next().copied() {
            self.close(number);
        }
    }

    fn close(&mut self, grant: u64) {
        self.grants.remove(&grant);
        self.outputs.push_back(TargetOutput::Close { grant });
    }
}
