//! Words of every kind, for tests and corpora.

use std::collections::BTreeSet;

use super::word::*;
use weightcast_protocol::push::{
    ParcelsWritten, PushCommand, PushGrant, PushNumber, PushOrder, PushReport, SendRefusal,
    SendRefused, SenderId, TargetId, TargetState,
};
use weightcast_protocol::{ContentDigest, Sum, Version};
use weightcast_protocol::{Epoch, Generation, Span};

pub(super) const VERSION: Version = Version { epoch: Epoch(3), number: 7 };
pub(super) const PUSH: PushNumber = PushNumber { driver: u64::MAX, number: 2 };

pub(super) fn names(count: usize) -> Vec<ContentDigest> {
    (0..count).map(|number| ContentDigest([number as u8; 16])).collect()
}

pub(super) fn grant(parcels: impl IntoIterator<Item = u32>) -> PushGrant {
    PushGrant {
        push: PUSH,
        target: TargetId(u64::MAX - 1),
        number: 4,
        generation: Generation(5),
        sender: SenderId(6),
        version: VERSION,
        parcels: parcels.into_iter().collect(),
    }
}

pub(super) fn opened() -> OpenedGrant {
    OpenedGrant { number: 4, id: u64::MAX, nonce: [255; 32] }
}

pub(super) fn order(routes: impl IntoIterator<Item = u32>) -> OrderWord {
    let routes = routes.into_iter().map(|parcel| (parcel, SenderId(u64::from(parcel)))).collect();
    let order = PushOrder {
        push: PUSH,
        target: TargetId(1),
        revision: 9,
        version: VERSION,
        command: PushCommand::Fill { routes },
        lease: Span(10),
    };
    OrderWord { order, driver: "10.0.0.1:7".to_owned(), base: names(3), parcels: u64::MAX }
}

pub(super) fn granted(parcels: impl IntoIterator<Item = u32>) -> GrantWord {
    GrantWord {
        grant: grant(parcels),
        opened: opened(),
        at: "10.0.0.2:7".to_owned(),
        driver: "10.0.0.1:7".to_owned(),
        base: names(2),
        layouts: names(4),
        shard: 3,
        parcels: 11,
    }
}

pub(super) fn report(written: impl IntoIterator<Item = u32>) -> ReportWord {
    let report = PushReport {
        target: TargetId(1),
        push: PUSH,
        revision: 9,
        sequence: 12,
        generation: Generation(5),
        state: TargetState::Filling,
        written: written.into_iter().collect(),
        differing: [(2, SenderId(6))].into(),
        grants: vec![grant([0, 2])],
    };
    ReportWord { report, opened: vec![opened()] }
}

pub(super) fn offer(shards: usize) -> PushOffer {
    PushOffer {
        replica: "rollout".to_owned(),
        shard: 1,
        target: TargetId(1),
        layouts: names(shards),
        accepts: true,
        holds: Some(VERSION),
    }
}

pub(super) fn written(parcels: impl IntoIterator<Item = u32>) -> WrittenWord {
    let parcels: BTreeSet<u32> = parcels.into_iter().collect();
    let sums =
        parcels.iter().map(|parcel| (*parcel, Sum([u64::MAX, u64::from(*parcel)]))).collect();
    let (target, sender) = (TargetId(1), SenderId(6));
    WrittenWord { written: ParcelsWritten { target, grant: 4, sender, parcels }, sums }
}

pub(super) fn question(replica: &str, driver: &str) -> PushQuestion {
    PushQuestion { replica: replica.to_owned(), shard: 1, driver: driver.to_owned() }
}

/// One word of each kind.
pub(crate) fn samples() -> Vec<PushWord> {
    let (push, target) = (PUSH, TargetId(1));
    vec![
        PushWord::Ask(question("rollout", "10.0.0.1:7")),
        PushWord::Offer(offer(2)),
        PushWord::Order(order([0, 1, 5])),
        PushWord::Report(report([0, 1])),
        PushWord::Grant(granted([0, 1])),
        PushWord::Written(written([0, 1])),
        PushWord::Refused(SendRefused {
            push,
            target,
            grant: 4,
            sender: SenderId(6),
            refusal: SendRefusal::NotHeld,
        }),
        PushWord::Over(OverWord::new(target, push, TargetOver::Differs, "a tensor")),
    ]
}
