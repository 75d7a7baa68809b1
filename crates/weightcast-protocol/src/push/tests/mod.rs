//! Directed tests of the machines, one behaviour each. The simulator plays the rest.

mod driver;
mod driver_words;
mod joining;
mod moving;
mod sender;
mod sender_words;
mod stored;
mod target;
mod target_words;

use std::collections::{BTreeMap, BTreeSet};

use crate::push::{
    ParcelsWritten, PushCommand, PushConfig, PushGrant, PushNumber, PushOrder, PushParcel,
    SenderId, TargetId, TargetNeeds,
};
use crate::{Epoch, Generation, Safeguards, Span, Version};

const PUSH: PushNumber = PushNumber { driver: 1, number: 1 };
const TARGET: TargetId = TargetId(7);

fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

fn senders(ids: &[u64]) -> BTreeSet<SenderId> {
    ids.iter().map(|id| SenderId(*id)).collect()
}

fn parcels(numbers: &[u32]) -> BTreeSet<u32> {
    numbers.iter().copied().collect()
}

/// Parcel 0 by the first sender, and so on.
fn routes(ids: &[u64]) -> BTreeMap<u32, SenderId> {
    (0..).zip(ids.iter().map(|id| SenderId(*id))).collect()
}

fn fill(revision: u64, ids: &[u64]) -> PushOrder {
    PushOrder {
        push: PUSH,
        target: TARGET,
        revision,
        version: version(5),
        command: PushCommand::Fill { routes: routes(ids) },
        lease: Span::from_secs(10),
    }
}

fn grant(number: u64, sender: u64, of: &[u32]) -> PushGrant {
    PushGrant {
        push: PUSH,
        target: TARGET,
        number,
        generation: Generation(1),
        sender: SenderId(sender),
        version: version(5),
        parcels: parcels(of),
    }
}

fn written(grant: u64, sender: u64, of: &[u32]) -> ParcelsWritten {
    ParcelsWritten { target: TARGET, grant, sender: SenderId(sender), parcels: parcels(of) }
}

fn needs(target: u64, held: &[(u64, &[u64])]) -> TargetNeeds {
    let parcel = |(bytes, ids): &(u64, &[u64])| PushParcel { bytes: *bytes, holders: senders(ids) };
    TargetNeeds { target: TargetId(target), parcels: held.iter().map(parcel).collect() }
}

fn config() -> PushConfig {
    PushConfig {
        push: PUSH,
        version: version(5),
        deadline: Span::from_secs(60),
        silence: Span::from_secs(20),
        patience: Span::from_secs(5),
        lease: Span::from_secs(10),
        ask_every: Span::from_secs(1),
        moves: 2,
        safeguards: Safeguards::default(),
    }
}
