//! What must hold in every state of an update.

use crate::engine_update::course::touches;
use crate::engine_update::update::{EngineUpdate, Heading};
use crate::violation::Violation;

impl EngineUpdate {
    /// Looks whether the machine is in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        let runs = !matches!(self.heading, Heading::Held | Heading::Over);
        let changes = self.heading == Heading::Forward && touches(self.config.means, self.step);
        let rules = [
            (runs == self.due.is_some(), "a step without a deadline, or a deadline without a step"),
            (!changes || self.no_return, "parameters change, and the update may still go back"),
            (self.retries <= self.config.retries, "more retries than there were"),
            (
                self.heading != Heading::Held || self.config.transaction.is_some(),
                "an update of one engine waits for a fleet",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => {
                let detail = format!("{rule}: {:?} in {}", self.heading, self.step);
                Err(Violation { invariant: "E5", detail })
            }
        }
    }
}
