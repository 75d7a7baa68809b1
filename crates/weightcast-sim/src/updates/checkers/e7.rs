//! E7: once a worker has heard an order, no earlier order has an effect there; and none that is meant for another life.

use std::collections::BTreeMap;

use weightcast_protocol::engine_update::{StepOrder, UpdateAttempt};

use crate::updates::checkers::{UpdateChecker, UpdateFact};
use crate::updates::parts::queue::EngineLife;

#[derive(Default)]
pub(super) struct Fenced {
    heard: BTreeMap<(EngineLife, u32), UpdateAttempt>,
}

impl UpdateChecker for Fenced {
    fn name(&self) -> &'static str {
        "E7"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        match fact {
            UpdateFact::Started { at, worker, newest } => {
                self.heard.insert((*at, *worker), UpdateAttempt::before(*newest, 0));
            }
            UpdateFact::Heard { at, worker, attempt } => {
                let heard = self.heard.entry((*at, *worker)).or_default();
                *heard = (*heard).max(*attempt);
            }
            UpdateFact::Changed { at, worker, order } => {
                let heard = self.heard.get(&(*at, *worker)).copied().unwrap_or_default();
                let EngineLife { engine, life } = at;
                let StepOrder { attempt, step, .. } = order;
                if order.life != Some(u64::from(*life)) {
                    let meant = order.life;
                    return Some(format!(
                        "{step} for life {meant:?} changes worker {worker} of engine {engine} in life {life}"
                    ));
                }
                if *attempt < heard {
                    return Some(format!(
                        "{step} of {attempt} changes worker {worker} of engine {engine} after {heard}"
                    ));
                }
            }
            _ => {}
        }
        None
    }
}
