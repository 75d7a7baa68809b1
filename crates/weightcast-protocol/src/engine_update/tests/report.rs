//! What the reports of workers and of engines come to.

use super::{LIFE, version};
use crate::engine_update::{EngineReport, FleetTransaction, FleetVerdict, UpdateAttempt};

const LOST: FleetTransaction = FleetTransaction { driver: 1, number: 2 };

/// A worker that serves.
fn worker() -> EngineReport {
    EngineReport {
        life: LIFE,
        seen: UpdateAttempt::before(1, 2),
        ready: Some(version(2)),
        held: Some(version(2)),
        old: Some(version(1)),
        staged: Some(version(3)),
        serving: true,
        ..EngineReport::default()
    }
}

/// An engine stands still if one worker does: somebody has to resume that one.
#[test]
fn an_engine_is_what_all_of_its_workers_are_and_stands_still_where_one_does() {
    let later = UpdateAttempt::before(1, 3);
    for (other, engine) in [
        (
            EngineReport { paused: true, serving: false, ..worker() },
            EngineReport { paused: true, serving: false, ..worker() },
        ),
        (EngineReport { asleep: true, ..worker() }, EngineReport { asleep: true, ..worker() }),
        (EngineReport { seen: later, ..worker() }, EngineReport { seen: later, ..worker() }),
        (EngineReport { life: Some(9), ..worker() }, EngineReport { life: None, ..worker() }),
        (
            EngineReport { ready: Some(version(1)), ..worker() },
            EngineReport { ready: None, ..worker() },
        ),
        (EngineReport { held: None, ..worker() }, EngineReport { held: None, ..worker() }),
        (
            EngineReport { old: Some(version(2)), ..worker() },
            EngineReport { old: None, ..worker() },
        ),
        (EngineReport { staged: None, ..worker() }, EngineReport { staged: None, ..worker() }),
        (worker(), worker()),
    ] {
        for workers in [[worker(), worker(), other], [other, worker(), worker()]] {
            assert_eq!(EngineReport::of_all(&workers), engine);
        }
    }
    assert_eq!(EngineReport::of_all([]), EngineReport::default());
}

/// A commit that was none would have engines serve the new version beside those that had not prepared.
#[test]
fn only_an_engine_that_serves_what_was_offered_or_has_it_in_the_place_of_another_shows_a_commit() {
    let (old, new) = (Some(version(1)), Some(version(2)));
    let stands = EngineReport { old, transaction: Some(LOST), paused: true, ..Default::default() };
    for (report, verdict) in [
        (EngineReport { ready: new, serving: true, ..Default::default() }, FleetVerdict::Commit),
        (EngineReport { ready: new, ..stands }, FleetVerdict::Commit),
        // It may have held this before the update.
        (EngineReport { ready: new, old: new, ..stands }, FleetVerdict::Abort),
        (EngineReport { ready: new, old: None, ..stands }, FleetVerdict::Abort),
        // It has this of another update.
        (
            EngineReport { ready: new, transaction: Some(FleetTransaction::default()), ..stands },
            FleetVerdict::Abort,
        ),
        (EngineReport { ready: new, transaction: None, ..stands }, FleetVerdict::Abort),
        // It has only been prepared.
        (EngineReport { ready: old, staged: new, ..stands }, FleetVerdict::Abort),
        (EngineReport { ready: old, serving: true, ..stands }, FleetVerdict::Abort),
    ] {
        let prepared = EngineReport { ready: old, staged: new, ..stands };
        for reports in [[report, prepared], [prepared, report]] {
            let found = FleetVerdict::of_reports(&reports, LOST, version(2));
            assert_eq!(found, verdict, "{report:?}");
        }
    }
    assert_eq!(FleetVerdict::of_reports([], LOST, version(2)), FleetVerdict::Abort);
}
