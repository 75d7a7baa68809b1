//! What must hold in every state of a fleet, and what some state must show for the search to mean anything.

use std::collections::BTreeSet;

use stateright::Property;
use weightcast_protocol::engine_update::{FleetEnd, FleetTransaction, FleetVerdict};
use weightcast_protocol::server::Violation;

use super::FleetBounds;
use super::world::{FleetWorld, TORN};
use crate::invariants::Broken;

impl FleetWorld {
    /// Notes an invariant that does not hold, unless another one has broken before.
    pub(super) fn breaks(&mut self, invariant: &'static str, detail: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(|| Broken { invariant, detail: detail() });
    }

    pub(super) fn validated(&mut self, valid: Result<(), Violation>) {
        if let Err(violation) = valid {
            self.breaks(violation.invariant, || violation.detail);
        }
    }

    /// E5: what a driver says of a fleet's update is what the register says, while no register was lost.
    pub(super) fn check_end(&mut self, transaction: FleetTransaction, end: FleetEnd) {
        let verdict = self.verdicts.get(&transaction).copied();
        let true_end = match end {
            FleetEnd::Committed => verdict == Some(FleetVerdict::Commit),
            FleetEnd::Aborted => verdict != Some(FleetVerdict::Commit),
            FleetEnd::InDoubt => true,
        };
        if self.register_lives == 1 && !true_end {
            self.breaks("E5", || {
                format!("{transaction:?} ended as {end:?}; the verdict is {verdict:?}")
            });
        }
    }

    /// Looks at what engines serve.
    pub(super) fn check_served(&mut self) {
        let serving = self.engines.iter().filter(|it| it.alive && it.gate.may_serve());
        let serving: Vec<(u64, Option<u64>)> =
            serving.map(|it| (it.weights, it.gate.stamp().map(|version| version.number))).collect();
        let versions: BTreeSet<u64> = serving.iter().map(|(weights, _)| *weights).collect();
        if versions.contains(&TORN) {
            self.breaks("E1", || "an engine serves weights of no version".to_owned());
        }
        if let Some((weights, stamp)) =
            serving.iter().find(|(weights, stamp)| *stamp != Some(*weights))
        {
            let (weights, stamp) = (*weights, *stamp);
            self.breaks("E2", || {
                format!("an engine serves {weights}, and says that it is {stamp:?}")
            });
        }
        if versions.len() > 1 {
            self.breaks("E4", || format!("engines serve {versions:?} at once"));
        }
        let early =
            versions.iter().find(|served| **served != 0 && !self.committed.contains(served));
        if let Some(early) = early.copied() {
            self.breaks("E4", || format!("an engine serves {early}, which was not committed"));
        }
    }

    fn serve_all(&self, number: u64) -> bool {
        self.engines.iter().all(|it| it.alive && it.gate.may_serve() && it.weights == number)
    }
}

pub(super) fn properties() -> Vec<Property<FleetBounds>> {
    fn holds(state: &FleetWorld, invariant: &str) -> bool {
        state.broken.as_ref().is_none_or(|broken| broken.invariant != invariant)
    }
    macro_rules! always {
        ($($name:literal),*) => {
            vec![$(Property::always($name, |_: &FleetBounds, state: &FleetWorld| holds(state, $name))),*]
        };
    }
    let mut properties = always!["E1", "E2", "E4", "E5", "E7"];
    properties.extend([
        Property::sometimes("all serve version 1", |_: &FleetBounds, state: &FleetWorld| {
            state.serve_all(1)
        }),
        Property::sometimes("all serve version 2", |bounds: &FleetBounds, state: &FleetWorld| {
            bounds.driver_deaths + bounds.splits == 0 || state.serve_all(2)
        }),
        Property::sometimes(
            "a driver ends what another one had committed",
            |bounds: &FleetBounds, state: &FleetWorld| {
                bounds.driver_deaths == 0 || state.shows.recovered_commit
            },
        ),
        Property::sometimes(
            "a driver ends what another one had not committed",
            |bounds: &FleetBounds, state: &FleetWorld| {
                bounds.driver_deaths == 0 || state.shows.recovered_abort
            },
        ),
        Property::sometimes(
            "a driver finds its successor",
            |bounds: &FleetBounds, state: &FleetWorld| bounds.splits == 0 || state.shows.superseded,
        ),
        Property::sometimes("a driver is in doubt", |bounds: &FleetBounds, state: &FleetWorld| {
            bounds.register_losses == 0 || state.shows.in_doubt
        }),
    ]);
    properties
}
