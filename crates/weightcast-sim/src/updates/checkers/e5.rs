//! E5: every update ends by its bound, and what it says of the engine is true.

use weightcast_protocol::engine_update::{EngineState, FleetEnd, FleetVerdict};

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct TrueOutcome;

impl UpdateChecker for TrueOutcome {
    fn name(&self) -> &'static str {
        "E5"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let (engine, outcome, version, serves) = match fact {
            UpdateFact::Ended { engine, outcome, version, serves, disturbed: false, .. } => {
                (engine, outcome, *version, *serves)
            }
            UpdateFact::FleetEnded { driver, end, verdict } => {
                let right = match end {
                    FleetEnd::Committed => *verdict == Some(FleetVerdict::Commit),
                    FleetEnd::Aborted => *verdict != Some(FleetVerdict::Commit),
                    FleetEnd::InDoubt => true,
                };
                let what =
                    || format!("driver {driver} ends {end:?}; the register says {verdict:?}");
                return (!right).then(what);
            }
            UpdateFact::Overdue { driver, what, due } => {
                let due = due.0 as f64 / 1e9;
                return Some(format!("driver {driver}: {what} had to end by {due:.3} s"));
            }
            _ => return None,
        };
        let held = match outcome.state {
            EngineState::Old(told) | EngineState::New(told) => version == Some(told.number),
            EngineState::Empty => !serves,
            EngineState::Gone => return None,
        };
        let wrong = !held || outcome.serving != serves;
        let what = format!("{:?}, serving: {}", outcome.state, outcome.serving);
        wrong.then(|| {
            format!("engine {engine} is said to be {what}; it holds {version:?}, serving: {serves}")
        })
    }
}
