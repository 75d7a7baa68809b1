//! The dispatcher: it takes each input to the rooms, and alone looks again at what they woke.
//!
//! Here a group's call comes in (`transact`, `arrival`), starts and goes on (`steps`, `settling`, `line`) and runs
//! out of time (`deadline`); what the rooms return for a room above them is done in `onward`.

mod arrival;
mod deadline;
mod inputs;
mod line;
mod onward;
mod settling;
mod steps;
mod transact;
