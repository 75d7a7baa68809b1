//! The fleets that are looked at as a matter of course, and what must be found in broken ones.

use weightcast_protocol::{Safeguard, Safeguards};

use super::FleetBounds;
use crate::suite::SuiteCase;

/// The safeguards that can be switched off, by what their absence is called.
pub const FLEET_MUTANTS: [(&str, Safeguard); 10] = [
    ("register_unasked", Safeguard::RegisterDecides),
    ("recovery_unasked", Safeguard::RecoveryAsks),
    ("last_verdict", Safeguard::FirstVerdict),
    ("late_commit", Safeguard::NewestCommits),
    ("lost_register_denies", Safeguard::LostUnsaid),
    ("fleet_in_part", Safeguard::FleetWhole),
    ("orders_unfenced", Safeguard::OrdersFenced),
    ("effects_unfenced", Safeguard::EffectsFenced),
    ("unadmitted", Safeguard::AdmittedFirst),
    ("held_unverified", Safeguard::HeldVerified),
];

/// Switches safeguards off by name; several are joined by `+`.
///
/// # Errors
/// Names the mutants that there are.
pub fn fleet_without(names: &str) -> Result<Safeguards, String> {
    crate::bounds::switched_off(&FLEET_MUTANTS, names)
}

/// All that must hold; then what safeguards are there for.
pub fn fleet_suite() -> Vec<SuiteCase<FleetBounds>> {
    let quiet = FleetBounds::quiet();
    let one = FleetBounds { engines: 1, ..quiet };
    let lost = FleetBounds { driver_deaths: 1, ..quiet };
    let forgotten = FleetBounds { driver_deaths: 1, register_losses: 1, ..one };
    let restarted = FleetBounds { engine_deaths: 1, ..quiet };
    let whole = [
        FleetBounds { engines: 3, ..quiet },
        lost,
        restarted,
        FleetBounds { splits: 1, ..one },
        FleetBounds { splits: 1, engine_deaths: 1, ..one },
        FleetBounds { losses: 1, timeouts: 2, ..one },
        FleetBounds { register_losses: 1, timeouts: 1, ..quiet },
        forgotten,
    ];
    let broken = [
        ("fleet_in_part", "E4", quiet),
        ("register_unasked", "E5", one),
        ("recovery_unasked", "E4", lost),
        ("last_verdict", "E4", lost),
        ("lost_register_denies+late_commit", "E5", forgotten),
        ("orders_unfenced", "E7", FleetBounds { driver_deaths: 1, ..one }),
        ("effects_unfenced", "E7", FleetBounds { driver_deaths: 1, ..one }),
        ("unadmitted+held_unverified", "E4", restarted),
    ];
    let broken = broken.map(|(off, found, bounds)| {
        let safeguards = fleet_without(off).expect("the names are right");
        let bounds = FleetBounds { safeguards, only: Some(found), ..bounds };
        SuiteCase { bounds, found: Some(found), off }
    });
    let whole = whole.map(|bounds| SuiteCase { bounds, found: None, off: "" });
    whole.into_iter().chain(broken).collect()
}
