//! Mutants of pushes: the machines of `weightcast_protocol::push` with something missing.

use weightcast_protocol::{Safeguard, Span};
use weightcast_sim::{InvariantViolation, PushFault, PushOptions};

/// A push with something missing.
#[derive(Clone, Copy, Debug)]
pub struct PushMutant {
    /// As the command line has it.
    pub name: &'static str,
    /// What is switched off.
    pub what: &'static str,
    /// The invariants whose checkers must find it; one is enough.
    pub found_by: &'static [&'static str],
    off: &'static [Safeguard],
    /// Makes the world one in which it can show.
    scenario: fn(PushOptions) -> PushOptions,
}

impl PushMutant {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static PushMutant> {
        PUSH_MUTANTS.iter().find(|mutant| mutant.name == name)
    }

    /// Whether this is what had to be found.
    pub fn expects(&self, violation: &InvariantViolation) -> bool {
        self.found_by.contains(&violation.invariant.as_str())
    }

    /// The world in which this seed plays it.
    pub fn options(&self, seed: u64) -> PushOptions {
        let mut options = (self.scenario)(PushOptions::drawn(seed));
        options.safeguards = options.safeguards.without(self.off);
        options
    }
}

/// All of them.
pub const PUSH_MUTANTS: &[PushMutant] = &[
    PushMutant {
        name: "any_target",
        what: "an order that is meant for another target is obeyed",
        found_by: &["P7"],
        off: &[Safeguard::OwnTarget],
        scenario: restarting,
    },
    PushMutant {
        name: "old_orders",
        what: "a target obeys orders that are older than one it has heard",
        found_by: &["P7"],
        off: &[Safeguard::NewestOrder],
        scenario: as_drawn,
    },
    PushMutant {
        name: "closed_counts",
        what: "what was written under a closed grant counts",
        found_by: &["P2"],
        off: &[Safeguard::OpenGrantsCount],
        scenario: as_drawn,
    },
    PushMutant {
        name: "compared_open",
        what: "the content is compared while grants are open",
        found_by: &["P2"],
        off: &[Safeguard::AllClosed],
        scenario: as_drawn,
    },
    PushMutant {
        name: "asleep_open",
        what: "a target gives its memory away with grants open",
        found_by: &["P2"],
        off: &[Safeguard::SleepCloses],
        scenario: sleeping,
    },
    PushMutant {
        name: "moved_open",
        what: "the sender that has lost a parcel may still write the parcel",
        found_by: &["P3"],
        off: &[Safeguard::MovedClosed],
        scenario: as_drawn,
    },
    PushMutant {
        name: "pushed_unverified",
        what: "pushed content that differs from the version is served",
        found_by: &["P1"],
        off: &[Safeguard::PushVerified],
        scenario: flipping,
    },
    PushMutant {
        name: "sender_goes_on",
        what: "a sender goes on writing after its memory has changed",
        found_by: &["P3"],
        off: &[Safeguard::SenderStops],
        scenario: withdrawing,
    },
    PushMutant {
        name: "routes_redrawn",
        what: "all routes are chosen anew when a target joins or leaves",
        found_by: &["P4"],
        off: &[Safeguard::RoutesKept],
        scenario: coming_and_going,
    },
    PushMutant {
        name: "no_push_deadline",
        what: "a push may take for ever",
        found_by: &["P5"],
        off: &[Safeguard::PushDeadline],
        scenario: as_drawn,
    },
    PushMutant {
        name: "written_is_ready",
        what: "a push is over once all was written, whatever the comparison says",
        found_by: &["P5"],
        off: &[Safeguard::ReadyAwaited],
        scenario: as_drawn,
    },
    PushMutant {
        name: "grants_for_ever",
        what: "grants stay open when no driver is heard",
        found_by: &["P5"],
        off: &[Safeguard::GrantsEnd],
        scenario: abandoned,
    },
    PushMutant {
        name: "lost_kept+slow_kept",
        what: "parcels stay with a sender that is lost",
        found_by: &["P6"],
        off: &[Safeguard::LostMoved, Safeguard::SlowMoved],
        scenario: losing,
    },
    PushMutant {
        name: "slow_kept",
        what: "parcels stay with a sender that brings nothing",
        found_by: &["P6"],
        off: &[Safeguard::SlowMoved],
        scenario: standing_still,
    },
    PushMutant {
        name: "closed_counts+pushed_unverified",
        what: "what was written under a closed grant counts, and nobody looks",
        found_by: &["P1"],
        off: &[Safeguard::OpenGrantsCount, Safeguard::PushVerified],
        scenario: late_words,
    },
];

fn as_drawn(options: PushOptions) -> PushOptions {
    options
}

/// Targets start anew while orders are under way.
fn restarting(options: PushOptions) -> PushOptions {
    PushOptions { lost: 150, ..options }.with(PushFault::TargetDies, 12)
}

fn sleeping(options: PushOptions) -> PushOptions {
    options.with(PushFault::TargetSleeps, 12)
}

fn flipping(options: PushOptions) -> PushOptions {
    options.with(PushFault::WriteFlipped, 12)
}

fn withdrawing(options: PushOptions) -> PushOptions {
    options.with(PushFault::VersionWithdrawn, 12)
}

fn coming_and_going(options: PushOptions) -> PushOptions {
    let (targets, joiners, senders) = (5, 3, options.senders.max(3));
    PushOptions { targets, joiners, senders, shared: 900, ..options }
        .with(PushFault::TargetLeaves, 8)
}

fn abandoned(options: PushOptions) -> PushOptions {
    options.with(PushFault::DriverDies, 8)
}

/// One small target whose parcels many senders hold, and faults of senders that last longer than a push may.
fn shared(options: PushOptions) -> PushOptions {
    let (patience, moves, longest) = (Span::from_millis(300), 5, Span::from_secs(6));
    let options =
        PushOptions { targets: 1, joiners: 0, parcels: 4, senders: 6, lost: 0, ..options };
    let options = PushOptions { shared: 900, patience, moves, longest, ..options };
    let (write, deadline) = (Span::from_millis(60), Span::from_millis(3_600));
    PushOptions { write, deadline, publish_every: Span::from_secs(6), ..options }
}

fn losing(options: PushOptions) -> PushOptions {
    shared(options).only(PushFault::SenderDies, 16)
}

fn standing_still(options: PushOptions) -> PushOptions {
    shared(options).only(PushFault::SenderSuspended, 12)
}

/// Words wait on the way for longer than a push lasts.
fn late_words(options: PushOptions) -> PushOptions {
    let options = PushOptions { lost: 150, delay: Span::from_millis(400), ..options };
    let publish_every = Span::from_millis(900);
    PushOptions { publish_every, patience: Span::from_secs(2), ..options }
}
