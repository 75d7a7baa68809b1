//! E9: an engine does not lose the version that it serves before a step begins that writes its parameters.

use weightcast_protocol::engine_update::EngineState;

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct KeptUntilWritten;

impl UpdateChecker for KeptUntilWritten {
    fn name(&self) -> &'static str {
        "E9"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Ended { engine, outcome, version, intact: true, disturbed: false, .. } =
            fact
        else {
            return None;
        };
        let lost = outcome.state == EngineState::Empty;
        lost.then(|| format!("engine {engine} has lost {version:?}, to which nobody has written"))
    }
}
