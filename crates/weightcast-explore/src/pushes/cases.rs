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
    let quiet = PushBounds::quiet();
    let none = PushFaults::default();
    let whole = [quiet, quiet.with(PushFaults { losses: 1, ..none })];
    whole.map(|bounds| SuiteCase { bounds, found: None, off: "" }).to_vec()
}
