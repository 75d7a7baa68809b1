//! E6: doubt ends by its bound, and engines without a driver go on by themselves; after the faults every engine comes to serve the newest version.

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct DoubtEnds;

impl UpdateChecker for DoubtEnds {
    fn name(&self) -> &'static str {
        "E6"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        match fact {
            UpdateFact::Doubts { engine, since, bound } => {
                let (since, bound) = (since.0 as f64 / 1e9, bound.0 as f64 / 1e9);
                Some(format!(
                    "engine {engine} is in doubt from {since:.3} s on, and after {bound:.3} s"
                ))
            }
            UpdateFact::DoubtsEarly { engine, step } => {
                Some(format!("engine {engine} doubts the driver that waits for its {step}"))
            }
            UpdateFact::Abandoned { engine, transaction } => {
                Some(format!("engine {engine} stands still for {transaction:?}, and has not left"))
            }
            UpdateFact::Over { engine, serves, wanted, state } if *serves != Some(*wanted) => {
                Some(format!("at the end engine {engine} serves {serves:?}, not {wanted}: {state}"))
            }
            _ => None,
        }
    }
}
