//! Mutants of takeovers: who acts, in which term, and whose word counts after it.

use weightcast_protocol::{Safeguard, Span};
use weightcast_sim::{FaultCounts, FaultKind, WorldOptions};

use super::Mutant;

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "lease_from_answer",
        what: "a lease counts from when its renewal was answered, not from when it was asked for",
        found_by: &["T1"],
        off: &[Safeguard::LeaseFromAsking],
        scenario: hard_to_reach,
    },
    Mutant {
        name: "stale_term_accepted",
        what: "servers and sessions go on in a term although there is a later one",
        found_by: &["T2", "T3", "L5"],
        off: &[Safeguard::TermOrder],
        scenario: failing_over,
    },
    Mutant {
        name: "tickets_unchecked",
        what: "servers believe terms and pasts that no server has written",
        found_by: &["T6"],
        off: &[Safeguard::TicketCheck],
        scenario: pretending,
    },
    Mutant {
        name: "claims_unproved",
        what: "a shard that comes over may say that it held what no server has seen it hold",
        found_by: &["T6"],
        off: &[Safeguard::ClaimCheck],
        scenario: pretending,
    },
    Mutant {
        name: "unequal_recovery",
        what: "a group goes on in a later term although its shards were answered differently",
        found_by: &["G1", "G4", "T3"],
        off: &[Safeguard::EqualRecovery],
        scenario: failing_over,
    },
    Mutant {
        name: "no_recovery_window",
        what: "a server that took over acts as if it knew all that there is",
        found_by: &["A5"],
        off: &[Safeguard::RecoveryWindow],
        scenario: failing_over,
    },
    Mutant {
        name: "revisions_restart",
        what: "a server that takes over counts revisions from the start",
        found_by: &["S10"],
        off: &[Safeguard::RevisionsGoOn],
        scenario: failing_over,
    },
    Mutant {
        name: "runs_restart",
        what: "a server that knows of no run counts runs from the start",
        found_by: &["S7"],
        off: &[Safeguard::RunsApart],
        scenario: forgotten,
    },
    Mutant {
        name: "seal_said_once",
        what: "digests that came while a session had no server are never told to one",
        found_by: &["L7"],
        off: &[Safeguard::SealRepeated],
        scenario: sealing,
    },
    Mutant {
        name: "refused_may_activate+no_deference",
        what: "who was refused by a server that acts may make the next one act, at once",
        found_by: &["L5"],
        off: &[Safeguard::RefusalIsAnswer, Safeguard::Deference],
        scenario: failing_over,
    },
];

/// The server is heard late, and then not any more.
fn hard_to_reach(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::Stall, 30).with(FaultKind::Partition, 20);
    WorldOptions { late: 300, late_by: Span(options.lease.0 / 2), faults, ..options }
}

/// Servers come and go.
pub(super) fn failing_over(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none()
        .with(FaultKind::Break, 20)
        .with(FaultKind::Pause, 6)
        .with(FaultKind::ServerCrash, 8)
        .with(FaultKind::ServerPause, 8)
        .with(FaultKind::Rift, 8);
    WorldOptions { servers: 3, reconnect: Span::from_secs(30), faults, ..options }
}

/// The same, and somebody makes use of it.
fn pretending(options: WorldOptions) -> WorldOptions {
    let options = failing_over(options);
    WorldOptions { faults: options.faults.clone().with(FaultKind::Pretend, 60), ..options }
}

/// Servers die while versions are sealed, which takes longer than to find another one.
fn sealing(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::SealCrash, 30).with(FaultKind::Break, 80);
    let digest_time = Span::from_millis(4_000);
    WorldOptions { servers: 2, reconnect: Span::from_secs(30), digest_time, faults, ..options }
}

/// The only server dies, and now and then everybody who could tell the next one what there was.
fn forgotten(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::Crash, 60).with(FaultKind::ServerCrash, 12);
    WorldOptions { trainers: 1, rollouts: 1, servers: 1, faults, ..options }
}
