//! P6: what a lost sender was to write arrives if another holder lives; after the faults every target comes to serve the newest
//! version.

use crate::pushes::checkers::{PushChecker, PushFact};

pub(super) struct Arrives;

impl PushChecker for Arrives {
    fn name(&self) -> &'static str {
        "P6"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        match fact {
            PushFact::FailedUnstruck { push, target, end } => {
                let end = end.name();
                Some(format!("push {push} ends {end} at {target}, and holders of all of it live"))
            }
            PushFact::Over { target, serves, wanted, state } if *serves != Some(*wanted) => {
                Some(format!("at the end {target} serves {serves:?}, not {wanted}: {state}"))
            }
            _ => None,
        }
    }
}
