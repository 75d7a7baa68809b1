//! E8: a router is sent only to engines whose workers have all served the fleet's version within the last lease, in the life
//! that is named; and after the faults to all engines.

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct AdmittedWhole;

impl UpdateChecker for AdmittedWhole {
    fn name(&self) -> &'static str {
        "E8"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        match fact {
            UpdateFact::Admitted { engine, version, served: false, .. } => Some(format!(
                "{engine} is admitted with {version}, which a worker has not served lately"
            )),
            UpdateFact::Admitted { engine, version, fleet: Some(fleet), .. }
                if version != fleet =>
            {
                Some(format!("{engine} is admitted with {version}, and the fleet is at {fleet}"))
            }
            UpdateFact::OverRouted { engine, admitted: false } => {
                Some(format!("at the end nothing is sent to engine {engine}"))
            }
            _ => None,
        }
    }
}
