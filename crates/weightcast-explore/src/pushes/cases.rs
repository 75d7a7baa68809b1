//! The pushes that are looked at as a matter of course, and what must be found in broken ones.

use weightcast_protocol::{Safeguard, Safeguards};

use super::{PushBounds, PushFaults};
use crate::suite::SuiteCase;

/// The safeguards that can be switched off, by what their absence is called.
pub const EXPLORED_PUSH_MUTANTS: [(&str, Safeguard); 14] = [
    ("any_target", Safeguard::OwnTarget),
    ("old_orders", Safeguard::NewestOrder),
    ("closed_counts", Safeguard::OpenGrantsCount),
    ("compared_open", Safeguard::AllClosed),
    ("asleep_open", Safeguard::SleepCloses),
    ("moved_open", Safeguard::MovedClosed),
    ("pushed_unverified", Safeguard::PushVerified),
    ("sender_goes_on", Safeguard::SenderStops),
    ("routes_redrawn", Safeguard::RoutesKept),
    ("no_push_deadline", Safeguard::PushDeadline),
    ("written_is_ready", Safeguard::ReadyAwaited),
    ("grants_for_ever", Safeguard::GrantsEnd),
    ("lost_kept", Safeguard::LostMoved),
    ("slow_kept", Safeguard::SlowMoved),
];

/// Switches safeguards off by name; several are joined by `+`.
///
/// # Errors
/// Names the mutants that there are.
pub fn push_without(names: &str) -> Result<Safeguards, String> {
    crate::bounds::switched_off(&EXPLORED_PUSH_MUTANTS, names)
}

/// All that must hold; then what safeguards are there for.
pub fn push_suite() -> Vec<SuiteCase<PushBounds>> {
    let whole = whole().into_iter();
    let whole = whole.map(|bounds| SuiteCase { bounds, found: None, off: "" });
    whole.chain(broken()).collect()
}

fn whole() -> [PushBounds; 13] {
    let (none, one) = (PushFaults::default(), PushBounds::quiet());
    let (two, pair) = (PushBounds { senders: 2, ..one }, PushBounds { targets: 2, ..one });
    let (late, again) = (PushFaults { late_writes: 1, ..none }, PushBounds { again: true, ..one });
    let four = PushBounds { targets: 2, ..two };
    [
        PushBounds { parcels: 2, ..four },
        PushBounds { senders: 3, parcels: 3, ..one }.with(PushFaults { sender_deaths: 1, ..none }),
        PushBounds { parcels: 2, ..two }.with(PushFaults { sender_deaths: 1, stalls: 1, ..none }),
        PushBounds { parcels: 2, ..two }.with(PushFaults {
            flips: 1,
            moves_on: 1,
            cancels: 1,
            ..none
        }),
        two.with(PushFaults { stalls: 1, losses: 1, repeats: 1, ..none }),
        two.with(PushFaults { stalls: 1, timeouts: 1, ..late }),
        four.with(PushFaults { stalls: 1, leaves: 1, ..none }),
        one.with(PushFaults { sleeps: 1, repeats: 1, timeouts: 1, ..late }),
        one.with(PushFaults { target_deaths: 1, losses: 1, ..late }),
        one.with(PushFaults { splits: 1, repeats: 1, ..late }),
        again.with(PushFaults { splits: 1, repeats: 1, ..late }),
        one.with(PushFaults { splits: 1, flips: 1, ..none }),
        pair.with(PushFaults { driver_deaths: 1, ..none }),
    ]
}

fn broken() -> impl Iterator<Item = SuiteCase<PushBounds>> {
    let (none, one) = (PushFaults::default(), PushBounds::quiet());
    let two = PushBounds { senders: 2, ..one };
    let stalled = two.with(PushFaults { stalls: 1, ..none });
    let pair = PushBounds { targets: 2, ..two };
    let broken = [
        ("pushed_unverified", "P1", one.with(PushFaults { flips: 1, ..none })),
        ("closed_counts+pushed_unverified", "P1", one.with(PushFaults { splits: 1, ..none })),
        ("closed_counts", "P2", stalled),
        ("compared_open", "P2", one),
        ("asleep_open", "P2", one.with(PushFaults { sleeps: 1, ..none })),
        ("moved_open", "P3", stalled),
        ("sender_goes_on", "P3", one.with(PushFaults { moves_on: 1, ..none })),
        ("routes_redrawn", "P4", pair.with(PushFaults { leaves: 1, ..none })),
        ("no_push_deadline", "P5", one.with(PushFaults { stalls: 1, ..none })),
        ("written_is_ready", "P5", one),
        ("grants_for_ever", "P5", one.with(PushFaults { timeouts: 1, ..none })),
        ("lost_kept+slow_kept", "P6", two.with(PushFaults { sender_deaths: 1, ..none })),
        ("slow_kept", "P6", stalled),
        ("any_target", "P7", one.with(PushFaults { target_deaths: 1, ..none })),
        ("old_orders", "P7", one.with(PushFaults { driver_deaths: 1, ..none })),
    ];
    broken.into_iter().map(|(off, found, bounds)| {
        let safeguards = push_without(off).expect("the names are right");
        let bounds = PushBounds { safeguards, only: Some(found), ..bounds };
        SuiteCase { bounds, found: Some(found), off }
    })
}
