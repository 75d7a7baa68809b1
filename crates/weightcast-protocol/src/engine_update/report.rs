//! What a worker says of itself when it is asked.

use serde::{Deserialize, Serialize};

use crate::Version;
use crate::engine_update::attempt::{FleetTransaction, UpdateAttempt};

/// What one worker is; or a whole engine, where its workers agree ([`EngineReport::of_all`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineReport {
    /// The engine's life; `None` where workers are of several.
    pub life: Option<u64>,
    /// The newest order that was heard.
    pub seen: UpdateAttempt,
    /// The version that the live parameters hold: installed, verified, without foreign caches, and stamped.
    pub ready: Option<Version>,
    /// The version that the live parameters should hold. Unless it is `ready` too, it is verified before it is resumed
    /// ([`EngineUpdate::admit`](crate::engine_update::EngineUpdate::admit)).
    pub held: Option<Version>,
    /// The version that the engine may go back to, as the driver said when the update began.
    pub old: Option<Version>,
    /// The version that is staged, whole and verified.
    pub staged: Option<Version>,
    /// Generates nothing until it is resumed.
    pub paused: bool,
    /// May generate now.
    pub serving: bool,
    /// The memory is given away until the engine wakes.
    pub asleep: bool,
    /// The fleet's update that has begun here and is not over.
    pub transaction: Option<FleetTransaction>,
    /// The version that `transaction` is to bring, or the last update of this engine alone.
    pub offered: Option<Version>,
}

impl EngineReport {
    /// What the engine is whose workers say this. An engine is paused, and an update has begun there, if this is so at
    /// one worker; all else has to be so at all of them.
    pub fn of_all<'a>(workers: impl IntoIterator<Item = &'a EngineReport>) -> Self {
        let join = |one: EngineReport, other: &EngineReport| EngineReport {
            // A fleet may go back to an earlier version: what is offered is known by its update, not by its number.
            transaction: one.transaction.max(other.transaction),
            offered: if other.transaction > one.transaction { other.offered } else { one.offered },
            life: one.life.filter(|life| other.life == Some(*life)),
            seen: one.seen.max(other.seen),
            ready: one.ready.filter(|version| other.ready == Some(*version)),
            held: one.held.filter(|version| other.held == Some(*version)),
            old: one.old.filter(|version| other.old == Some(*version)),
            staged: one.staged.filter(|version| other.staged == Some(*version)),
            paused: one.paused || other.paused,
            serving: one.serving && other.serving,
            asleep: one.asleep || other.asleep,
        };
        let mut workers = workers.into_iter();
        workers.next().map_or(Self::default(), |first| workers.fold(*first, join))
    }
}
