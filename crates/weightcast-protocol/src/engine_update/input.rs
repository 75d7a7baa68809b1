//! What happens to an update, and what its driver has to do.

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::UpdateAttempt;
use crate::engine_update::order::{StepAnswer, StepOrder};
use crate::engine_update::outcome::UpdateOutcome;

/// Something that happens to an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and on the stack: a report is not worth a box"
)]
pub enum UpdateInput {
    /// A worker answers an order.
    Answered {
        /// The worker.
        worker: u32,
        /// The order.
        attempt: UpdateAttempt,
        /// What it says.
        answer: StepAnswer,
    },
    /// The engine died, or is thought to be dead: nothing more is ordered.
    Lost,
    /// The caller does not want the update any more. From the point of no return on, the update goes on to its end.
    Cancel,
    /// The fleet's update is committed: install.
    Proceed,
    /// The fleet's update is aborted: go back.
    Abort,
    /// The fleet's verdict cannot be had in time: leave the engine as it is.
    Leave,
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateOutput {
    /// Send this order to every worker, and again until the worker answers or the order is abandoned.
    Run(StepOrder),
    /// Stop sending this order. What a worker still does of it is fenced by its number.
    Abandon(StepOrder),
    /// All that can be done before the point of no return is done. The engine waits for `Proceed` or `Abort`.
    Prepared,
    /// The update is over.
    Ended(UpdateOutcome),
}
