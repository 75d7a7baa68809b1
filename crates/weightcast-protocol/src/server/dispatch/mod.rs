//! The dispatcher passes each input to the rooms. It alone works the agenda off.
//!
//! A group's call comes in (`transact`, `arrival`), starts and goes on (`steps`, `settling`,
//! `line`) and runs out of time (`deadline`). `onward` does what rooms return for the rooms above
//! them. `inputs` and `fleet` are what comes in beside messages.

mod arrival;
mod deadline;
pub(in crate::server) mod fleet;
mod inputs;
mod line;
mod onward;
mod settling;
mod steps;
mod transact;
