//! One checker per invariant of pushes. Each sees every fact and keeps what it needs; none looks into a machine.

mod p1;
mod p2;
mod p3;
mod p4;
mod p5;
mod p6;
mod p7;

use weightcast_protocol::Time;
use weightcast_protocol::push::{PushGrant, PushNumber, SenderId, TargetEnd, TargetId};

use crate::pushes::options::CHUNKS;
use crate::pushes::parts::queue::SimWrite;

/// What a driver was told, as far as it says whose routes may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteCause {
    /// Something about one target.
    Target(TargetId),
    /// Targets that were not there before.
    Joined,
    /// A sender is gone, or has nothing to give.
    Sender(SenderId),
    /// Nothing but time, or something about all.
    None,
}

/// Something that happened.
#[derive(Debug)]
pub(super) enum PushFact<'a> {
    /// A target that serves this version computes with its memory.
    Served { target: TargetId, version: u64, memory: &'a [[u64; CHUNKS]] },
    /// A target opens a grant.
    Opened { target: TargetId, grant: &'a PushGrant },
    /// A target closes a grant.
    Closed { target: TargetId, grant: u64 },
    /// A target died; its memory is gone.
    Died { target: TargetId },
    /// A target's memory is given away.
    Slept { target: TargetId },
    /// A target begins to compare its memory.
    Compares { target: TargetId },
    /// A write was let in.
    Wrote { write: &'a SimWrite },
    /// A target counts a parcel as written, by a word about this grant.
    Counted { target: TargetId, grant: u64, parcel: u32 },
    /// A driver has changed the routes of a target: parcels, and who was to write them before.
    Moved { cause: RouteCause, target: TargetId, moved: &'a [(u32, SenderId)] },
    /// A push is not over at a target, though its bound has passed.
    Overdue { push: PushNumber, target: TargetId, due: Time },
    /// Grants are open, though no driver was heard for a lease.
    LeftOpen { target: TargetId, grants: usize, since: Time },
    /// A push is over at a target; whether the target was ready after this push.
    Ended { push: PushNumber, target: TargetId, end: TargetEnd, ready: bool },
    /// A push has failed at a target that nothing had struck, and so had holders of all that is missing.
    FailedUnstruck { push: PushNumber, target: TargetId, end: TargetEnd },
    /// An order has arrived: whom it was meant for, whether a newer one had come before, and whether the target has changed.
    Ordered { target: TargetId, meant: TargetId, newer: bool, changed: bool },
    /// The world is over: what a target serves, if it serves, and what it should.
    Over { target: TargetId, serves: Option<u64>, wanted: u64, state: &'a str },
}

/// Checks one invariant.
pub(super) trait PushChecker {
    /// The invariant's name.
    fn name(&self) -> &'static str;

    /// Takes a fact in; returns what is wrong, if anything is.
    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String>;
}

/// All of them.
pub(super) fn push_checkers() -> Vec<Box<dyn PushChecker>> {
    vec![
        Box::new(p1::WholeVersion),
        Box::new(p2::ClosedCounts::default()),
        Box::new(p3::OneSender::default()),
        Box::new(p4::Undisturbed),
        Box::new(p5::Bounded),
        Box::new(p6::Arrives),
        Box::new(p7::NewestPushOnly),
    ]
}
